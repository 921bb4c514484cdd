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

// (rows, columns) to (columns, rows)
void transpose_weights(const float* from, float* to, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) *to++ = from[r * columns + c];
  }
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

// A product's left matrix is brought into another order, row by row: the one with fewer channels,
// unless it takes longer to turn the result.
bool is_worth_turning(const ConvShape& s, std::int64_t rows) {
  return s.channels < s.outputs && s.weights() < rows * (s.outputs - s.channels) / 4;
}

class PointwiseInputGradient : public InputGradient {
 public:
  PointwiseInputGradient(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape),
        rows_{s_.batch * s_.in_positions(),
              std::min(s_.batch * s_.in_positions(), free_cuts(cuts))},
        images_{s_.batch, std::min(s_.batch, rows_.count)},
        takes_channels_first_(is_worth_channels_first(s_, rows_.count)) {
    by_rows_ = ByPart<Product>(rows_, [&](std::int64_t rows) {
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
  std::int64_t weight_slices() const override { return 0; }
  void prepare(std::int64_t, const float*, float*, char*) const override {}
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
  ByPart<Product> by_rows_;
  Product by_image_;
};

class PointwiseWeightGradient : public WeightGradient {
 public:
  PointwiseWeightGradient(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape),
        rows_{s_.batch * s_.in_positions(),
              std::min(s_.batch * s_.in_positions(), weight_cuts(cuts))},
        images_{s_.batch, std::min(s_.batch, rows_.count)},
        takes_channels_first_(is_worth_channels_first(s_, rows_.count)),
        is_turned_(is_worth_turning(s_, rows_.larger())) {
    by_rows_ = ByPart<Product>(rows_, [&](std::int64_t rows) {
      const std::int64_t left = is_turned_ ? s_.channels : s_.outputs;
      const std::int64_t right = is_turned_ ? s_.outputs : s_.channels;
      return Product(left, right, rows, Order::columns, Order::rows, false);
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
    return turned_bytes() + std::max({by_rows_.scratch_bytes(), first_image_.scratch_bytes(),
                                      next_image_.scratch_bytes()});
  }
  std::int64_t parts() const override { return rows_.count; }
  std::int64_t sum_elements() const override { return s_.weights(); }

  void run(std::int64_t part, const GradientTensors& t, float* sums, char* scratch) const override {
    if (!t.channels_first) return run_rows(part, t, sums, scratch);
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
  std::size_t turned_bytes() const {
    return is_turned_ ? whole_lines(static_cast<std::size_t>(s_.weights()) * sizeof(float)) : 0;
  }

  void run_rows(std::int64_t part, const GradientTensors& t, float* sums, char* scratch) const {
    const Product& product = by_rows_.of(rows_, part);
    const float* const grad = t.grad_output + rows_.first(part) * s_.outputs;
    const float* const input = t.input + rows_.first(part) * s_.channels;
    if (!is_turned_) return product.run(grad, input, sums, scratch);
    float* const turned = reinterpret_cast<float*>(scratch);
    product.run(input, grad, turned, scratch + turned_bytes());
    transpose_weights(turned, sums, s_.channels, s_.outputs);
  }

  const ConvShape s_;
  const EvenParts rows_, images_;
  const bool takes_channels_first_;
  const bool is_turned_;  // channels-last: the product is (channels x outputs)
  ByPart<Product> by_rows_;
  Product first_image_, next_image_;
};

// Windows of outputs, written out one a row: (kernel positions, channels) each. Rows of outputs are
// counted through all images.
class Unfolding {
 public:
  explicit Unfolding(const ConvShape& shape)
      : s_(shape), window_(s_.kernel_positions() * s_.channels) {}

  std::int64_t window() const { return window_; }
  std::int64_t image_rows() const { return s_.out[0] * s_.out[1]; }
  std::int64_t outputs_in(std::int64_t rows) const { return rows * s_.out[2]; }
  std::size_t bytes_of(std::int64_t rows) const {
    return whole_lines(static_cast<std::size_t>(outputs_in(rows) * window_) * sizeof(float));
  }
  // Cuts rows so that the windows of a part have no more than so many elements.
  EvenParts cut(std::int64_t rows, std::int64_t most_elements) const {
    const std::int64_t most_rows =
        std::clamp<std::int64_t>(most_elements / outputs_in(window_), 1, rows);
    return {rows, (rows + most_rows - 1) / most_rows};
  }

  // Adds windows to the images they are of.
  void fold(std::int64_t first, std::int64_t end, const float* windows, float* images) const {
    for_rows(first, end, [&](std::int64_t image_row, std::int64_t at) {
      if (image_row < 0) return;
      const float* from = windows + at;
      for (std::int64_t w = 0; w < s_.out[2]; ++w, from += window_) {
        const Span span = inside(w);
        if (span.begin >= span.end) continue;
        float* const to = images + image_row + in_index(2, w, span.begin) * s_.channels;
        const float* const own = from + span.begin * s_.channels;
        const std::int64_t count = (span.end - span.begin) * s_.channels;
        for (std::int64_t i = 0; i < count; ++i) to[i] += own[i];
      }
    });
  }

 private:
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

  // Calls body(where the image's row begins, where its part of the first window begins) for every
  // row of outputs and of the kernel; the first is negative where that row is outside the image.
  template <class Body>
  void for_rows(std::int64_t first, std::int64_t end, const Body& body) const {
    for (std::int64_t row = first; row < end; ++row) {
      const std::int64_t image = row / image_rows(), own = row % image_rows();
      for (std::int64_t kd = 0; kd < s_.kernel[0]; ++kd) {
        for (std::int64_t kh = 0; kh < s_.kernel[1]; ++kh) {
          const std::int64_t d = in_index(0, own / s_.out[1], kd);
          const std::int64_t h = in_index(1, own % s_.out[1], kh);
          const bool is_inside = d >= 0 && d < s_.in[0] && h >= 0 && h < s_.in[1];
          const std::int64_t image_row =
              image * s_.in_image() + (d * s_.in[1] + h) * s_.in[2] * s_.channels;
          const std::int64_t at = outputs_in(row - first) * window_ +
                                  (kd * s_.kernel[1] + kh) * s_.kernel[2] * s_.channels;
          body(is_inside ? image_row : -1, at);
        }
      }
    }
  }

  const ConvShape s_;
  const std::int64_t window_;
};

// Half of a vector is empty where so few channels lie side by side. With many channels and outputs
// windows are too large for the caches: 3x3 with 512 of both was slower than oneDNN's own kernel.
bool is_worth_unfolding(const ConvShape& s) {
  constexpr std::int64_t kMostChannels = 8, kLeastOutputs = 16;
  return s.groups == 1 && s.kernel_positions() > 1 && s.dilation[2] == 1 &&
         s.channels <= kMostChannels && s.outputs >= kLeastOutputs;
}

// Elements of windows that stay in the second-level cache.
constexpr std::int64_t kTileElements = 1 << 17;

class UnfoldedInputGradient : public InputGradient {
 public:
  UnfoldedInputGradient(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape),
        unfolding_(s_),
        images_{s_.batch, std::min(s_.batch, free_cuts(cuts))},
        tiles_(unfolding_.cut(unfolding_.image_rows(), kTileElements)) {
    products_ = ByPart<Product>(tiles_, [&](std::int64_t rows) {
      return Product(unfolding_.outputs_in(rows), unfolding_.window(), s_.outputs, Order::rows,
                     Order::rows, false);
    });
  }

  std::string name() const override { return "unfolded:" + products_.smaller.name(); }
  std::size_t scratch_bytes() const override {
    return unfolding_.bytes_of(tiles_.larger()) + products_.scratch_bytes();
  }
  std::size_t weight_bytes() const override {
    return static_cast<std::size_t>(s_.weights()) * sizeof(float);
  }
  std::int64_t weight_slices() const override { return 1; }
  void prepare(std::int64_t, const float* weight, float* prepared, char*) const override {
    for (std::int64_t o = 0; o < s_.outputs; ++o) {
      transpose_weights(weight + o * unfolding_.window(), prepared + o * unfolding_.window(),
                        s_.channels, s_.kernel_positions());
    }
  }
  std::int64_t parts() const override { return images_.count; }

  void run(std::int64_t part, const GradientTensors& t, const float* weight,
           char* scratch) const override {
    float* const windows = reinterpret_cast<float*>(scratch);
    char* const more = scratch + unfolding_.bytes_of(tiles_.larger());
    for (std::int64_t n = images_.first(part); n < images_.first(part + 1); ++n) {
      std::fill_n(t.grad_input + n * s_.in_image(), s_.in_image(), 0.0f);
      for (std::int64_t tile = 0; tile < tiles_.count; ++tile) {
        const std::int64_t first = n * unfolding_.image_rows() + tiles_.first(tile);
        const std::int64_t end = n * unfolding_.image_rows() + tiles_.first(tile + 1);
        products_.of(tiles_, tile)
            .run(t.grad_output + unfolding_.outputs_in(first) * s_.outputs, weight, windows, more);
        unfolding_.fold(first, end, windows, t.grad_input);
      }
    }
  }

 private:
  const ConvShape s_;
  const Unfolding unfolding_;
  const EvenParts images_, tiles_;  // tiles of rows of one image
  ByPart<Product> products_;
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

}  // namespace backops
