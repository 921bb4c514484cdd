// A convolution without a direction. One bilinear map joins three tensors: `input`, `weight` and
// `output`. Any of them is a product of the other two, and an operator is a choice of products:
// the backward pass of a convolution makes `input` and `weight` from `output`.
//
// Along an axis, tap t joins output o with the input at o * stride - padding + t * dilation. The
// zeros behind the input are not a number of their own: `out` tells where outputs end.
//
// Input and output can change places: the same map is then turned, and tap t joins input i with the
// output at i * stride - padding + t * dilation. So the output product is the input product of the
// turned problem, and engines make two products instead of three. The weight product is the same
// either way: it is never asked of a turned problem.
#pragma once

#include <cstddef>
#include <cstdint>

namespace backops {

constexpr int kMaxConvRank = 3;

// With all three spatial axes; those a problem does not have are of size 1.
struct ConvShape {
  std::int64_t batch, inputs, outputs, groups;  // channels of all groups together
  std::int64_t in[kMaxConvRank], out[kMaxConvRank], kernel[kMaxConvRank];
  std::int64_t stride[kMaxConvRank], padding[kMaxConvRank], dilation[kMaxConvRank];
  // From one position of the input to the next in its tensor; see without_skipped.
  std::int64_t input_step[kMaxConvRank];
  bool images_are_columns;  // of the tensors; see with_columns
  bool is_turned;
  // The products that are wanted, and the sums of `output` over all but its channels.
  bool makes_input, makes_weight, makes_bias;
  bool adds_bias;  // a number for each channel of `input`, to the input product
  bool is_double;  // sums are float64, otherwise float32

  std::int64_t group_inputs() const { return inputs / groups; }
  std::int64_t group_outputs() const { return outputs / groups; }
  std::int64_t in_positions() const { return in[0] * in[1] * in[2]; }
  std::int64_t out_positions() const { return out[0] * out[1] * out[2]; }
  std::int64_t in_image() const { return in_positions() * inputs; }
  std::int64_t out_image() const { return out_positions() * outputs; }
  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  std::int64_t weights() const { return outputs * group_inputs() * taps(); }
  std::size_t sum_bytes() const { return is_double ? sizeof(double) : sizeof(float); }

  // Those that meet all taps, but for borders.
  std::int64_t windows() const { return is_turned ? in_positions() : out_positions(); }
  // Multiplications of one product, as floating point: no size overflows.
  double multiplications() const {
    return static_cast<double>(batch) * static_cast<double>(windows()) *
           static_cast<double>(weights());
  }
  bool has_strides() const { return stride[0] != 1 || stride[1] != 1 || stride[2] != 1; }
  // Whether every input position belongs to one output and one tap.
  bool is_pointwise() const {
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      if (kernel[axis] != 1 || stride[axis] != 1 || padding[axis] != 0 || in[axis] != out[axis]) {
        return false;
      }
    }
    return true;
  }
};

// The same map with input and output in each other's places.
ConvShape turned(const ConvShape& shape);
// The same weight product of the inputs alone that a tap reads: kernels of one element skip those
// between strides.
ConvShape without_skipped(const ConvShape& shape);
// The same with images of one position as the columns of one image: in runs, not one by one.
ConvShape with_columns(const ConvShape& shape);
// The same outputs of one channel and one tap: the bias sums know no others.
ConvShape without_kernel(const ConvShape& shape);

}  // namespace backops
