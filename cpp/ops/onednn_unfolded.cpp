// The input gradient of few channels as a product of matrices, by oneDNN's matmul.
#include "ops/onednn.h"
#include "ops/onednn_gradients.h"

namespace backops {
namespace {

using dnnl::memory;
using Desc = memory::desc;

// result (rows x columns) = left (rows x depth) times right (depth x columns), all row by row.
class Product {
 public:
  Product() = default;
  Product(std::int64_t rows, std::int64_t columns, std::int64_t depth)
      : left_(matrix(rows, depth)), right_(matrix(depth, columns)), result_(matrix(rows, columns)) {
    const dnnl::matmul::primitive_desc desc(onednn_cpu(), left_, right_, result_,
                                            with_own_scratchpad());
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
  static Desc matrix(std::int64_t rows, std::int64_t columns) {
    return Desc({rows, columns}, memory::data_type::f32, memory::dims{columns, 1});
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
      return Product(unfolding_.outputs_in(rows), unfolding_.window(), s_.outputs);
    });
  }

  std::string name() const override { return "unfolded:" + products_.smaller.name(); }
  std::size_t scratch_bytes() const override {
    return unfolding_.bytes_of(tiles_.larger()) + products_.scratch_bytes();
  }
  std::size_t weight_bytes() const override {
    return static_cast<std::size_t>(s_.weights()) * sizeof(float);
  }
  void prepare(const float* weight, float* prepared, char*) const override {
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

std::unique_ptr<const InputGradient> make_unfolded_input_gradient(const ConvShape& shape,
                                                                  const ConvCuts& cuts) {
  if (!is_worth_unfolding(shape)) return nullptr;
  return std::make_unique<const UnfoldedInputGradient>(shape, cuts);
}

}  // namespace backops
