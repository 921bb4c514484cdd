// Gradients as products of matrices, by oneDNN's matmul.
#include <cstring>

#include "ops/onednn.h"
#include "ops/onednn_gradients.h"

namespace backops {
namespace {

using dnnl::memory;
using Desc = memory::desc;

enum class Order : std::uint8_t { rows, columns };  // what lies side by side

// result (rows x columns, row by row) = left (rows x depth) times right (depth x columns); with
// `adds`, it is added to.
class Product {
 public:
  Product() = default;
  Product(std::int64_t rows, std::int64_t columns, std::int64_t depth, Order left_order,
          Order right_order, bool adds)
      : left_(matrix(rows, depth, left_order)),
        right_(matrix(depth, columns, right_order)),
        result_(matrix(rows, columns, Order::rows)) {
    dnnl::primitive_attr attributes = with_own_scratchpad();
    if (adds) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc desc(onednn_cpu(), left_, right_, result_, attributes);
    scratch_bytes_ = desc.scratchpad_desc().get_size();
    name_ = desc.impl_info_str();
    primitive_ = dnnl::matmul(desc);
  }

  const std::string& name() const { return name_; }
  std::size_t scratch_bytes() const { return scratch_bytes_; }

  void run(const float* left, const float* right, float* result, char* scratch) const {
    dnnl::stream stream(onednn_cpu());
    primitive_.execute(stream, {{DNNL_ARG_SRC, memory_at(left_, left)},
                                {DNNL_ARG_WEIGHTS, memory_at(right_, right)},
                                {DNNL_ARG_DST, memory_at(result_, result)},
                                {DNNL_ARG_SCRATCHPAD, scratchpad_at(primitive_, scratch)}});
  }

 private:
  static Desc matrix(std::int64_t rows, std::int64_t columns, Order order) {
    const bool by_rows = order == Order::rows;
    return Desc({rows, columns}, memory::data_type::f32,
                by_rows ? memory::dims{columns, 1} : memory::dims{1, rows});
  }

  Desc left_, right_, result_;
  dnnl::matmul primitive_;
  std::string name_;
  std::size_t scratch_bytes_ = 0;
};

// Two sizes of part and what computes them.
struct Products {
  Product smaller, larger;

  const Product& of(const EvenParts& parts, std::int64_t index) const {
    return parts.is_larger(index) ? larger : smaller;
  }
  std::size_t scratch_bytes() const {
    return std::max(smaller.scratch_bytes(), larger.scratch_bytes());
  }
};

template <class Make>
Products make_products(const EvenParts& parts, const Make& make) {
  Products result;
  result.smaller = make(parts.smaller());
  result.larger = parts.is_larger(0) ? make(parts.larger()) : result.smaller;
  return result;
}

bool is_pointwise(const ConvShape& s) {
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    if (s.kernel[axis] != 1 || s.stride[axis] != 1 || s.padding[axis] != 0) return false;
  }
  return s.groups == 1;
}

// A channels-first image is a matrix of its own, if it is worth a product.
bool is_worth_channels_first(const ConvShape& s, std::int64_t cuts) {
  constexpr std::int64_t kLeastPositions = 256;
  return s.in_positions() >= kLeastPositions && s.batch >= cuts;
}

class PointwiseInputGradient : public InputGradient {
 public:
  PointwiseInputGradient(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape),
        rows_{s_.batch * s_.in_positions(),
              std::min(s_.batch * s_.in_positions(), input_cuts(cuts))},
        images_{s_.batch, std::min(s_.batch, rows_.count)},
        takes_channels_first_(is_worth_channels_first(s_, rows_.count)) {
    by_rows_ = make_products(rows_, [&](std::int64_t rows) {
      return Product(rows, s_.channels, s_.outputs, Order::rows, Order::rows, false);
    });
    if (!takes_channels_first_) return;
    by_image_ =
        Product(s_.channels, s_.in_positions(), s_.outputs, Order::columns, Order::rows, false);
  }

  std::string name() const override { return "matmul:" + by_rows_.smaller.name(); }
  bool takes_channels_first() const override { return takes_channels_first_; }
  std::size_t scratch_bytes() const override {
    return std::max(by_rows_.scratch_bytes(), by_image_.scratch_bytes());
  }
  std::size_t weight_bytes() const override { return 0; }
  void prepare(const float*, float*, char*) const override {}
  std::int64_t parts() const override { return rows_.count; }

  void run(std::int64_t part, const GradientTensors& t, const float* weight,
           char* scratch) const override {
    if (!t.channels_first) {
      const std::int64_t row = rows_.first(part);
      return by_rows_.of(rows_, part)
          .run(t.grad_output + row * s_.outputs, weight, t.grad_input + row * s_.channels, scratch);
    }
    for (std::int64_t n = images_.first(part); n < images_.first(part + 1); ++n) {
      by_image_.run(weight, t.grad_output + n * s_.out_image(), t.grad_input + n * s_.in_image(),
                    scratch);
    }
  }

 private:
  const ConvShape s_;
  const EvenParts rows_, images_;
  const bool takes_channels_first_;
  Products by_rows_;
  Product by_image_;
};

class PointwiseWeightGradient : public WeightGradient {
 public:
  PointwiseWeightGradient(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape),
        rows_{s_.batch * s_.in_positions(),
              std::min(s_.batch * s_.in_positions(), weight_cuts(cuts))},
        images_{s_.batch, std::min(s_.batch, rows_.count)},
        takes_channels_first_(is_worth_channels_first(s_, rows_.count)) {
    by_rows_ = make_products(rows_, [&](std::int64_t rows) {
      return Product(s_.outputs, s_.channels, rows, Order::columns, Order::rows, false);
    });
    if (!takes_channels_first_) return;
    for (const bool adds : {false, true}) {
      (adds ? next_image_ : first_image_) =
          Product(s_.outputs, s_.channels, s_.in_positions(), Order::rows, Order::columns, adds);
    }
  }

  std::string name() const override { return "matmul:" + by_rows_.smaller.name(); }
  bool takes_channels_first() const override { return takes_channels_first_; }
  std::size_t scratch_bytes() const override {
    return std::max(
        {by_rows_.scratch_bytes(), first_image_.scratch_bytes(), next_image_.scratch_bytes()});
  }
  std::int64_t parts() const override { return rows_.count; }
  std::int64_t sum_elements() const override { return s_.weights(); }

  void run(std::int64_t part, const GradientTensors& t, float* sums, char* scratch) const override {
    if (!t.channels_first) {
      const std::int64_t row = rows_.first(part);
      return by_rows_.of(rows_, part)
          .run(t.grad_output + row * s_.outputs, t.input + row * s_.channels, sums, scratch);
    }
    const std::int64_t first = images_.first(part);
    for (std::int64_t n = first; n < images_.first(part + 1); ++n) {
      (n == first ? first_image_ : next_image_)
          .run(t.grad_output + n * s_.out_image(), t.input + n * s_.in_image(), sums, scratch);
    }
  }

  void write(const float* sums, float* grad_weight, char*) const override {
    std::copy(sums, sums + s_.weights(), grad_weight);
  }

 private:
  const ConvShape s_;
  const EvenParts rows_, images_;
  const bool takes_channels_first_;
  Products by_rows_;
  Product first_image_, next_image_;
};

// Windows of outputs, written out one a row: (kernel positions, channels) each. The outputs are
// taken some rows of an image at a time.
class Unfolding {
 public:
  explicit Unfolding(const ConvShape& shape)
      : s_(shape),
        window_(s_.kernel_positions() * s_.channels),
        output_rows_{s_.out[0] * s_.out[1], 1} {
    const std::int64_t row_elements = s_.out[2] * window_;
    const std::int64_t rows =
        std::clamp<std::int64_t>(kTileElements / row_elements, 1, output_rows_.total);
    output_rows_.count = (output_rows_.total + rows - 1) / rows;
  }

  std::int64_t window() const { return window_; }
  const EvenParts& tiles() const { return output_rows_; }
  std::int64_t outputs_in(std::int64_t rows) const { return rows * s_.out[2]; }
  std::size_t tile_bytes() const {
    return whole_lines(static_cast<std::size_t>(outputs_in(output_rows_.larger()) * window_) *
                       sizeof(float));
  }

  // Calls body(row of the image or -1, windows' part for it, first output of the row) ...
  // for each output row of a tile and each kernel row: where the kernel row is outside, image_row
  // is negative.
  template <class Body>
  void for_rows(std::int64_t tile, const Body& body) const {
    const std::int64_t first = output_rows_.first(tile);
    for (std::int64_t row = first; row < output_rows_.first(tile + 1); ++row) {
      for (std::int64_t kd = 0; kd < s_.kernel[0]; ++kd) {
        for (std::int64_t kh = 0; kh < s_.kernel[1]; ++kh) {
          const std::int64_t d = in_index(0, row / s_.out[1], kd);
          const std::int64_t h = in_index(1, row % s_.out[1], kh);
          const bool is_inside = d >= 0 && d < s_.in[0] && h >= 0 && h < s_.in[1];
          const std::int64_t at = (row - first) * s_.out[2] * window_ +
                                  (kd * s_.kernel[1] + kh) * s_.kernel[2] * s_.channels;
          body(is_inside ? (d * s_.in[1] + h) * s_.in[2] * s_.channels : -1, at);
        }
      }
    }
  }

  // Windows of one image's outputs from the image; what is outside is zero.
  void unfold(std::int64_t tile, const float* image, float* windows) const {
    const std::int64_t length = s_.kernel[2] * s_.channels;
    for_rows(tile, [&](std::int64_t image_row, std::int64_t at) {
      float* to = windows + at;
      for (std::int64_t w = 0; w < s_.out[2]; ++w, to += window_) {
        const Span span = inside(w);
        if (image_row < 0 || span.begin >= span.end) {
          std::fill(to, to + length, 0.0f);
          continue;
        }
        std::fill(to, to + span.begin * s_.channels, 0.0f);
        const float* const from = image + image_row + in_index(2, w, span.begin) * s_.channels;
        std::memcpy(
            to + span.begin * s_.channels, from,
            static_cast<std::size_t>((span.end - span.begin) * s_.channels) * sizeof(float));
        std::fill(to + span.end * s_.channels, to + length, 0.0f);
      }
    });
  }

  // Adds windows to the image they are of.
  void fold(std::int64_t tile, const float* windows, float* image) const {
    for_rows(tile, [&](std::int64_t image_row, std::int64_t at) {
      if (image_row < 0) return;
      const float* from = windows + at;
      for (std::int64_t w = 0; w < s_.out[2]; ++w, from += window_) {
        const Span span = inside(w);
        if (span.begin >= span.end) continue;
        float* const to = image + image_row + in_index(2, w, span.begin) * s_.channels;
        const float* const own = from + span.begin * s_.channels;
        const std::int64_t count = (span.end - span.begin) * s_.channels;
        for (std::int64_t i = 0; i < count; ++i) to[i] += own[i];
      }
    });
  }

  // (outputs, channels, positions) to or from (outputs, positions, channels).
  void order_weights(const float* from, float* to, bool to_windows) const {
    const std::int64_t positions = s_.kernel_positions();
    for (std::int64_t o = 0; o < s_.outputs; ++o, from += window_, to += window_) {
      for (std::int64_t c = 0; c < s_.channels; ++c) {
        for (std::int64_t k = 0; k < positions; ++k) {
          const std::int64_t plain = c * positions + k, own = k * s_.channels + c;
          to[to_windows ? own : plain] = from[to_windows ? plain : own];
        }
      }
    }
  }

 private:
  // A tile stays in the second-level cache.
  static constexpr std::int64_t kTileElements = 1 << 17;

  struct Span {
    std::int64_t begin, end;
  };

  std::int64_t in_index(int axis, std::int64_t out, std::int64_t tap) const {
    return out * s_.stride[axis] - s_.padding[axis] + tap * s_.dilation[axis];
  }
  // The taps of a kernel row that lie inside the image.
  Span inside(std::int64_t w) const {
    const std::int64_t first = in_index(2, w, 0);
    return {std::clamp<std::int64_t>(-first, 0, s_.kernel[2]),
            std::clamp<std::int64_t>(s_.in[2] - first, 0, s_.kernel[2])};
  }

  const ConvShape s_;
  const std::int64_t window_;
  EvenParts output_rows_;
};

// With 8 channels half of a vector is empty where channels lie side by side.
bool is_worth_unfolding(const ConvShape& s) {
  constexpr std::int64_t kMostChannels = 8;
  constexpr std::int64_t kLeastOutputs = 16;
  return s.groups == 1 && s.channels <= kMostChannels && s.outputs >= kLeastOutputs &&
         s.kernel_positions() > 1 && s.dilation[2] == 1;
}

class UnfoldedInputGradient : public InputGradient {
 public:
  UnfoldedInputGradient(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape), unfolding_(s_), images_{s_.batch, std::min(s_.batch, input_cuts(cuts))} {
    products_ = make_products(unfolding_.tiles(), [&](std::int64_t rows) {
      return Product(unfolding_.outputs_in(rows), unfolding_.window(), s_.outputs, Order::rows,
                     Order::rows, false);
    });
  }

  std::string name() const override { return "unfolded:" + products_.smaller.name(); }
  std::size_t scratch_bytes() const override {
    return unfolding_.tile_bytes() + products_.scratch_bytes();
  }
  std::size_t weight_bytes() const override {
    return static_cast<std::size_t>(s_.weights()) * sizeof(float);
  }
  void prepare(const float* weight, float* prepared, char*) const override {
    unfolding_.order_weights(weight, prepared, true);
  }
  std::int64_t parts() const override { return images_.count; }

  void run(std::int64_t part, const GradientTensors& t, const float* weight,
           char* scratch) const override {
    float* const windows = reinterpret_cast<float*>(scratch);
    for (std::int64_t n = images_.first(part); n < images_.first(part + 1); ++n) {
      float* const image = t.grad_input + n * s_.in_image();
      const float* grad = t.grad_output + n * s_.out_image();
      std::fill(image, image + s_.in_image(), 0.0f);
      for (std::int64_t tile = 0; tile < unfolding_.tiles().count; ++tile) {
        products_.of(unfolding_.tiles(), tile)
            .run(grad + unfolding_.outputs_in(unfolding_.tiles().first(tile)) * s_.outputs, weight,
                 windows, scratch + unfolding_.tile_bytes());
        unfolding_.fold(tile, windows, image);
      }
    }
  }

 private:
  const ConvShape s_;
  const Unfolding unfolding_;
  const EvenParts images_;
  Products products_;
};

class UnfoldedWeightGradient : public WeightGradient {
 public:
  UnfoldedWeightGradient(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape), unfolding_(s_), images_{s_.batch, std::min(s_.batch, weight_cuts(cuts))} {
    products_ = make_products(unfolding_.tiles(), [&](std::int64_t rows) {
      return Product(s_.outputs, unfolding_.window(), unfolding_.outputs_in(rows), Order::columns,
                     Order::rows, true);
    });
  }

  std::string name() const override { return "unfolded:" + products_.smaller.name(); }
  std::size_t scratch_bytes() const override {
    return unfolding_.tile_bytes() + products_.scratch_bytes();
  }
  std::int64_t parts() const override { return images_.count; }
  std::int64_t sum_elements() const override { return s_.weights(); }

  void run(std::int64_t part, const GradientTensors& t, float* sums, char* scratch) const override {
    float* const windows = reinterpret_cast<float*>(scratch);
    std::fill(sums, sums + s_.weights(), 0.0f);
    for (std::int64_t n = images_.first(part); n < images_.first(part + 1); ++n) {
      const float* grad = t.grad_output + n * s_.out_image();
      for (std::int64_t tile = 0; tile < unfolding_.tiles().count; ++tile) {
        unfolding_.unfold(tile, t.input + n * s_.in_image(), windows);
        products_.of(unfolding_.tiles(), tile)
            .run(grad + unfolding_.outputs_in(unfolding_.tiles().first(tile)) * s_.outputs, windows,
                 sums, scratch + unfolding_.tile_bytes());
      }
    }
  }

  void write(const float* sums, float* grad_weight, char*) const override {
    unfolding_.order_weights(sums, grad_weight, false);
  }

 private:
  const ConvShape s_;
  const Unfolding unfolding_;
  const EvenParts images_;
  Products products_;
};

}  // namespace

std::unique_ptr<const InputGradient> make_pointwise_input_gradient(const ConvShape& shape,
                                                                   const ConvCuts& cuts) {
  if (!is_pointwise(shape)) return nullptr;
  return std::make_unique<const PointwiseInputGradient>(shape, cuts);
}

std::unique_ptr<const WeightGradient> make_pointwise_weight_gradient(const ConvShape& shape,
                                                                     const ConvCuts& cuts) {
  if (!is_pointwise(shape)) return nullptr;
  return std::make_unique<const PointwiseWeightGradient>(shape, cuts);
}

std::unique_ptr<const InputGradient> make_unfolded_input_gradient(const ConvShape& shape,
                                                                  const ConvCuts& cuts) {
  if (!is_worth_unfolding(shape)) return nullptr;
  return std::make_unique<const UnfoldedInputGradient>(shape, cuts);
}

std::unique_ptr<const WeightGradient> make_unfolded_weight_gradient(const ConvShape& shape,
                                                                    const ConvCuts& cuts) {
  if (!is_worth_unfolding(shape)) return nullptr;
  return std::make_unique<const UnfoldedWeightGradient>(shape, cuts);
}

}  // namespace backops
