#include "ops/pool/windows.h"

#include <algorithm>
#include <utility>

namespace backops {
namespace {

// Sizes up to 2^62 times each other do not fit 64 bits.
using Wide = __int128;

std::int64_t floor_div(Wide a, std::int64_t b) {
  const auto narrow = static_cast<std::int64_t>(a);
  if (narrow == a) {  // a 128-bit division is a call of its own
    const std::int64_t quotient = narrow / b;
    return narrow % b < 0 ? quotient - 1 : quotient;
  }
  const Wide quotient = a / b;
  return static_cast<std::int64_t>(a % b < 0 ? quotient - 1 : quotient);
}

std::int64_t ceil_div(Wide a, std::int64_t b) { return floor_div(a + b - 1, b); }

}  // namespace

FloorLine::FloorLine(std::int64_t step, std::int64_t offset, std::int64_t divisor, std::int64_t i)
    : divisor_(divisor), whole_step_(step / divisor), rest_step_(step % divisor) {
  const Wide at = static_cast<Wide>(step) * i + offset;
  value_ = floor_div(at, divisor);
  rest_ = static_cast<std::int64_t>(at - static_cast<Wide>(value_) * divisor);
}

AxisWindows AxisWindows::fixed(std::int64_t in, std::int64_t out, std::int64_t kernel,
                               std::int64_t stride, std::int64_t padding, bool count_include_pad) {
  return AxisWindows(in, out, false, kernel, stride, padding, count_include_pad);
}

AxisWindows AxisWindows::adaptive(std::int64_t in, std::int64_t out) {
  return AxisWindows(in, out, true, 1, 1, 0, true);
}

AxisWindows::AxisWindows(std::int64_t in, std::int64_t out, bool adaptive, std::int64_t kernel,
                         std::int64_t stride, std::int64_t padding, bool count_include_pad)
    : in_(in),
      out_(out),
      adaptive_(adaptive),
      kernel_(kernel),
      stride_(stride),
      padding_(padding),
      count_include_pad_(count_include_pad) {
  describe_covers();
  if (adaptive) {
    one_divisor_ = out == 1 || in % out == 0 || out % in == 0;
    if (!one_divisor_) {
      std::vector<double> weights(static_cast<std::size_t>(out));
      for (std::int64_t o = 0; o < out; ++o) {
        weights[static_cast<std::size_t>(o)] = 1.0 / static_cast<double>(divisor(o));
      }
      adaptive_weights_ = std::make_shared<const std::vector<double>>(std::move(weights));
    }
    return;
  }
  find_edges();
}

AxisWindows AxisWindows::transposed() const {
  AxisWindows other = *this;
  other.forward_ = !forward_;
  other.describe_covers();
  return other;
}

void AxisWindows::describe_covers() {
  if (adaptive_) {
    once_ = targets() % sources() == 0;
    slides_ = in_ == out_;
    longest_ = once_ ? 1 : sources() % targets() == 0 ? sources() / targets() : covers_of(1);
    return;
  }
  slides_ = stride_ == 1;
  if (forward_) {
    longest_ = std::min(in_, kernel_);
    once_ = (kernel_ == 1 && stride_ == 1) || (in_ == 1 && out_ == 1);
    return;
  }
  longest_ = std::min(out_, (std::min(kernel_, in_ + padding_) - 1) / stride_ + 1);
  const Cover head = cover(0), tail = cover(in_ - 1);
  const bool covered = head.last > head.first && tail.last > tail.first;
  once_ = covered && (out_ == 1 || kernel_ == stride_);
}

void AxisWindows::find_edges() {
  // Only windows that start before 0 or end beyond `in` (or, counting padding, beyond in + padding)
  // can differ from the rest.
  plain_begin_ = count_include_pad_ ? 0 : std::min(out_, ceil_div(padding_, stride_));
  const std::int64_t end = count_include_pad_ ? in_ + padding_ : in_;
  const std::int64_t last_start =
      end - kernel_ + padding_;  // start + padding of the last plain one
  plain_end_ = last_start < 0 ? 0 : std::min(out_, last_start / stride_ + 1);
  plain_end_ = std::max(plain_begin_, plain_end_);
  one_divisor_ = true;
  for (std::int64_t o = 0; o < plain_begin_; ++o) one_divisor_ &= divisor(o) == divisor(0);
  for (std::int64_t o = plain_end_; o < out_; ++o) one_divisor_ &= divisor(o) == divisor(0);
  if (plain_begin_ < plain_end_) one_divisor_ &= divisor(plain_begin_) == divisor(0);
}

std::int64_t AxisWindows::begin(std::int64_t o) const {
  if (adaptive_) return floor_div(static_cast<Wide>(o) * in_, out_);
  return std::max<std::int64_t>(o * stride_ - padding_, 0);
}

std::int64_t AxisWindows::divisor(std::int64_t o) const {
  if (adaptive_) return ceil_div(static_cast<Wide>(o + 1) * in_, out_) - begin(o);
  const std::int64_t start = o * stride_ - padding_;
  if (count_include_pad_) return std::min(start + kernel_, in_ + padding_) - start;
  return std::min(start + kernel_, in_) - begin(o);
}

template <class T>
void AxisWindows::weights(std::int64_t begin, std::int64_t end, double scale, T* result) const {
  if (adaptive_weights_) {
    for (std::int64_t o = begin; o < end; ++o) {
      *result++ = static_cast<T>((*adaptive_weights_)[static_cast<std::size_t>(o)] * scale);
    }
    return;
  }
  const auto weight = [&](std::int64_t o) {
    return static_cast<T>(scale / static_cast<double>(divisor(o)));
  };
  if (adaptive_) {
    std::fill(result, result + (end - begin), weight(0));
    return;
  }
  const std::int64_t plain_begin = std::min(std::max(begin, plain_begin_), end);
  const std::int64_t plain_end = std::max(plain_begin, std::min(end, plain_end_));
  for (std::int64_t o = begin; o < plain_begin; ++o) *result++ = weight(o);
  if (plain_begin < plain_end) {
    std::fill(result, result + (plain_end - plain_begin), weight(plain_begin));
    result += plain_end - plain_begin;
  }
  for (std::int64_t o = plain_end; o < end; ++o) *result++ = weight(o);
}

template void AxisWindows::weights<float>(std::int64_t, std::int64_t, double, float*) const;
template void AxisWindows::weights<double>(std::int64_t, std::int64_t, double, double*) const;

std::int64_t AxisWindows::covers_of(std::int64_t count) const {
  if (adaptive_) {
    const Wide spanned = static_cast<Wide>(count) * sources();
    return std::min<std::int64_t>(sources(), floor_div(spanned, targets()) + 2);
  }
  if (forward_) return std::min(in_, (count - 1) * stride_ + kernel_);
  // Of a kernel longer than the axis, only what lies on it and its left padding can matter.
  const std::int64_t kernel = std::min(kernel_, in_ + padding_);
  return std::min(out_, (count - 1 + kernel) / stride_ + 1);
}

std::int64_t AxisWindows::sharing_targets() const {
  if (!forward_) return longest_;
  if (adaptive_) return in_ % out_ == 0 ? 1 : std::min(out_, out_ / in_ + 2);
  return ceil_div(longest_, stride_);
}

std::int64_t AxisWindows::longest_step() const {
  if (adaptive_) return ceil_div(sources(), targets());
  return forward_ ? std::min(stride_, in_) : 1;
}

bool AxisWindows::is_inside(std::int64_t begin, std::int64_t end) const {
  if (adaptive_) return false;
  if (forward_)
    return begin * stride_ >= padding_ && (end - 1) * stride_ - padding_ + kernel_ <= in_;
  return begin + padding_ >= kernel_ - 1 && (end - 1 + padding_) / stride_ < out_;
}

// One line of the adaptive kind serves both ways: exchanging inputs and outputs transposes it.
AxisWindows::Covers::Covers(const AxisWindows& axis, std::int64_t target)
    : sources_(axis.sources()),
      first_(axis.adaptive_  ? FloorLine(axis.sources(), 0, axis.targets(), target)
             : axis.forward_ ? FloorLine(axis.stride_, -axis.padding_, 1, target)
                             : FloorLine(1, axis.padding_ - axis.kernel_, axis.stride_, target)),
      last_(axis.adaptive_  ? FloorLine(axis.sources(), axis.sources() + axis.targets() - 1,
                                        axis.targets(), target)
            : axis.forward_ ? FloorLine(axis.stride_, axis.kernel_ - axis.padding_, 1, target)
                            : FloorLine(1, axis.padding_, axis.stride_, target)),
      from_(axis.adaptive_ || axis.forward_ ? 0 : 1) {}

Cover AxisWindows::Covers::get() const {
  const std::int64_t last = std::min(sources_, last_.value() + from_);
  const std::int64_t first = std::min(last, std::max<std::int64_t>(0, first_.value() + from_));
  return {first, last};
}

}  // namespace backops
