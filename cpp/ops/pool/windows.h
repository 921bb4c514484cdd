// Pooling along one axis: which outputs cover an input index, and what each output divides by.
// Fixed and adaptive pooling differ only in here; the divisor rule lives only in here.
//
// It is a small sparse matrix. Applying it makes targets out of sources: the gradient's way, inputs
// out of outputs; transposed, the forward way, outputs out of inputs. Either way each target has
// one contiguous run of sources.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/export.h"

namespace backops {

// floor((step * i + offset) / divisor) for a running i, without a division per step.
class FloorLine {
 public:
  FloorLine(std::int64_t step, std::int64_t offset, std::int64_t divisor, std::int64_t i);
  std::int64_t value() const { return value_; }
  void next() {
    value_ += whole_step_;
    rest_ += rest_step_;
    if (rest_ >= divisor_) {
      rest_ -= divisor_;
      ++value_;
    }
  }

 private:
  std::int64_t divisor_, whole_step_, rest_step_, value_, rest_;
};

// Sources [first, last) cover a target; both ends never fall as the target's index grows.
struct Cover {
  std::int64_t first, last;
  bool operator==(const Cover& other) const { return first == other.first && last == other.last; }
};

class BACKOPS_API AxisWindows {
 public:
  static AxisWindows fixed(std::int64_t in, std::int64_t out, std::int64_t kernel,
                           std::int64_t stride, std::int64_t padding, bool count_include_pad);
  static AxisWindows adaptive(std::int64_t in, std::int64_t out);
  static AxisWindows identity(std::int64_t size) { return adaptive(size, size); }

  // The same windows, applied the other way.
  AxisWindows transposed() const;

  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }
  std::int64_t targets() const { return forward_ ? out_ : in_; }
  std::int64_t sources() const { return forward_ ? in_ : out_; }

  // The first input index of output `o`'s window; a window's start may lie before it, in padding.
  std::int64_t begin(std::int64_t o) const;
  // What output `o` divides by along this axis.
  std::int64_t divisor(std::int64_t o) const;
  bool has_one_divisor() const { return one_divisor_; }
  std::size_t table_bytes() const {
    return adaptive_weights_ ? adaptive_weights_->size() * sizeof(double) : 0;
  }

  // 1 / divisor for the outputs [begin, end), times `scale`.
  template <class T>
  void weights(std::int64_t begin, std::int64_t end, double scale, T* result) const;

  Cover cover(std::int64_t target) const { return Covers(*this, target).get(); }

  // Longest cover of any target, or a little more: of adaptive windows one, of transposed fixed
  // ones whatever lies on padding.
  std::int64_t longest_cover() const { return longest_; }
  // One source each, and no source between those of neighbours. Some problems of which it holds
  // are denied it when transposed.
  bool covers_every_index_once() const { return once_; }
  // One source for every target: the result is constant along the axis.
  bool is_constant() const { return sources() == 1 && once_; }
  // One target, the sum of every source.
  bool is_total() const { return targets() == 1 && cover(0) == Cover{0, sources()}; }
  // Neighbours share so few sources that sums of sums would not be worth their making.
  bool is_summed_directly() const { return forward_ && sharing_targets() <= 2; }
  // Stride 1: target t is covered by the sources from t - slide_lead() on, as far as they exist.
  bool slides() const { return slides_; }
  std::int64_t slide_lead() const { return forward_ ? padding_ : kernel_ - 1 - padding_; }
  std::int64_t slide_kernel() const { return kernel_; }

  // Most sources that cover some of `count` neighbouring targets.
  std::int64_t covers_of(std::int64_t count) const;
  // About how many neighbouring targets share sources.
  std::int64_t sharing_targets() const;

  // How far apart neighbouring targets' covers begin, at most.
  std::int64_t longest_step() const;

  // Away from the borders, covers repeat after so many targets but for a shift; 0: they do not.
  std::int64_t period() const { return adaptive_ ? 0 : forward_ ? 1 : stride_; }
  bool is_inside(std::int64_t begin, std::int64_t end) const;

  // Covers of targets t, t + 1, ... in turn.
  class Covers {
   public:
    Covers(const AxisWindows& axis, std::int64_t target);
    Cover get() const;
    void next() {
      first_.next();
      last_.next();
    }

   private:
    std::int64_t sources_;
    FloorLine first_, last_;
    std::int64_t from_;  // where both lines count from
  };

 private:
  AxisWindows(std::int64_t in, std::int64_t out, bool adaptive, std::int64_t kernel,
              std::int64_t stride, std::int64_t padding, bool count_include_pad);
  void find_edges();
  void describe_covers();

  std::int64_t in_, out_;
  bool adaptive_, forward_ = false;
  std::int64_t kernel_, stride_, padding_;
  bool count_include_pad_;
  bool one_divisor_ = true, once_ = false, slides_ = false;
  std::int64_t longest_ = 0;
  // Outputs in [plain_begin_, plain_end_) have windows that touch no border.
  std::int64_t plain_begin_ = 0, plain_end_ = 0;
  std::shared_ptr<const std::vector<double>> adaptive_weights_;  // where divisors differ
};

}  // namespace backops
