// What is a legal pooling problem, the shape it pools to, and which tensors fit.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/common/checks.h"
#include "ops/pool/plan.h"

namespace backops {
namespace {

void check_window(const PoolProblem& p, int axis) {
  check_range("{kernel_size}", axis, p.kernel_size[axis], 1);
  check_range("{stride}", axis, p.stride[axis], 1);
  const std::int64_t half = p.kernel_size[axis] / 2;
  if (p.padding[axis] < 0 || p.padding[axis] > half) {
    throw Error(ErrorKind::param, element_name("{padding}", axis), std::to_string(p.padding[axis]),
                "expected 0 to " + std::to_string(half) + " (half of " +
                    element_name("{kernel_size}", axis) + " = " +
                    std::to_string(p.kernel_size[axis]) + ")");
  }
}

std::int64_t pooled_size(const PoolProblem& p, int axis) {
  const std::int64_t in = p.input_shape[p.ndim - p.rank + axis];
  const std::int64_t padded = in + 2 * p.padding[axis];
  const std::int64_t stride = p.stride[axis], room = padded - p.kernel_size[axis];
  // With ceil_mode, a kernel that sticks out by less than one stride has one window.
  if (p.ceil_mode ? room <= -stride : room < 0) {
    throw Error(ErrorKind::shape, "{input}", shape_text(p.input_shape, p.ndim),
                "but " + element_name("{kernel_size}", axis) + " = " +
                    std::to_string(p.kernel_size[axis]) + " needs a padded size of at least " +
                    (p.ceil_mode ? std::to_string(p.kernel_size[axis] - stride + 1) : "that") +
                    ", not " + std::to_string(padded));
  }
  if (!p.ceil_mode) return room / stride + 1;
  std::int64_t size = room / stride + (room > 0 && room % stride != 0) + 1;
  // A last window that would start beyond the input and its left padding is no window.
  if ((size - 1) * stride >= in + p.padding[axis]) --size;
  return size;
}

}  // namespace

LegalPoolProblem::LegalPoolProblem(const PoolProblem& p) : problem_(p) {
  if (p.ndim != p.rank + 1 && p.ndim != p.rank + 2) {
    throw Error(
        ErrorKind::shape, "{input}", shape_text(p.input_shape, std::min(p.ndim, kMaxDims)),
        "expected " + std::to_string(p.rank + 1) + " or " + std::to_string(p.rank + 2) + " axes");
  }
  const bool batched = p.ndim == p.rank + 2;
  const int channels_and_batch = p.ndim - p.rank;
  check_sizes("{input}", p.input_shape, p.ndim, batched);
  check_bytes("{input}", p.input_shape, p.ndim, p.dtype);
  std::copy(p.input_shape, p.input_shape + channels_and_batch, output_shape_);
  for (int axis = 0; axis < p.rank; ++axis) {
    if (!p.adaptive) check_window(p, axis);
    output_shape_[channels_and_batch + axis] =
        p.adaptive ? p.output_size[axis] : pooled_size(p, axis);
  }
  const char* const output = p.is_forward() ? "{output}" : "{grad_output}";
  check_sizes(output, output_shape_, p.ndim, batched);
  check_bytes(output, output_shape_, p.ndim, p.dtype);
}

void LegalPoolProblem::check_output(const TensorView& output, const char* name,
                                    const char* because) const {
  const PoolProblem& p = problem_;
  check_dtype(name, output.dtype, p.dtype, because);
  if (output.ndim == p.ndim && std::equal(output_shape_, output_shape_ + p.ndim, output.shape)) {
    return;
  }
  const std::string input = "{input} " + shape_text(p.input_shape, p.ndim);
  const std::string windows =
      p.adaptive ? ""
                 : " with {kernel_size} " + shape_text(p.kernel_size, p.rank) + ", {stride} " +
                       shape_text(p.stride, p.rank) + ", {padding} " +
                       shape_text(p.padding, p.rank) + (p.ceil_mode ? ", {ceil_mode}" : "");
  throw Error(ErrorKind::shape, name, shape_text(output.shape, output.ndim),
              "but " + input + windows + " pools to " + shape_text(output_shape_, p.ndim));
}

void LegalPoolProblem::check_source(const TensorView& source) const {
  const PoolProblem& p = problem_;
  if (!p.is_forward()) return check_output(source, p.source_name(), " as planned");
  check_dtype(p.source_name(), source.dtype, p.dtype, " as planned");
  if (source.ndim != p.ndim || !std::equal(p.input_shape, p.input_shape + p.ndim, source.shape)) {
    throw Error(ErrorKind::shape, p.source_name(), shape_text(source.shape, source.ndim),
                "expected " + shape_text(p.input_shape, p.ndim) + " as planned");
  }
}

void LegalPoolProblem::check_target(const TensorView& target) const {
  if (!problem_.is_forward()) return check_pool_grad_input(problem_, target);
  check_output(target, problem_.target_name(), " like {input}");
  check_no_overlap_within(problem_.target_name(), target);
}

void check_pool_grad_input(const PoolProblem& p, const TensorView& grad_input) {
  check_dtype("{grad_input}", grad_input.dtype, p.dtype, " like {grad_output}");
  if (grad_input.ndim != p.ndim ||
      !std::equal(p.input_shape, p.input_shape + p.ndim, grad_input.shape)) {
    throw Error(ErrorKind::shape, "{grad_input}", shape_text(grad_input.shape, grad_input.ndim),
                "expected the shape of {input}, " + shape_text(p.input_shape, p.ndim));
  }
  check_no_overlap_within("{grad_input}", grad_input);
}

}  // namespace backops
