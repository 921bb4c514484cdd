// Pooling plans through their interface: what they refuse, and what they compute, against loops
// written from the definition.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "ops/pool/plan.h"
#include "tests/check.h"
#include "tests/elements.h"
#include "tests/errors.h"
#include "tests/memory.h"
#include "tests/tensors.h"
#include "tests/window_definition.h"

namespace backops {
namespace {

using namespace test;

PoolProblem valid_problem() {
  PoolProblem p;
  const std::int64_t shape[] = {2, 3, 8, 9};
  std::copy(shape, shape + 4, p.input_shape);
  for (int axis = 0; axis < 2; ++axis) {
    p.kernel_size[axis] = 3;
    p.stride[axis] = 2;
    p.padding[axis] = 1;
    p.output_size[axis] = 2;
  }
  return p;
}

template <class Change>
std::string error_after(const Change& change) {
  PoolProblem p = valid_problem();
  change(p);
  return error_of([&] { const PoolPlan plan(p); });
}

void test_plan_refuses_bad_shapes() {
  CHECK_EQUAL(error_after([](PoolProblem&) {}), "");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.ndim = 2; }),
              "shape: input is (2, 3), expected 3 or 4 axes");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.ndim = 5; }),
              "shape: input is (2, 3, 8, 9, 0), expected 3 or 4 axes");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.input_shape[0] = 0; }), "");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.input_shape[1] = 0; }),
              "shape: input is (2, 0, 8, 9), expected positive sizes (only the batch may be "
              "empty)");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.input_shape[3] = -1; }),
              "shape: input is (2, 3, 8, -1), expected positive sizes (only the batch may be "
              "empty)");
  CHECK_EQUAL(error_after([](PoolProblem& p) {
                p.ndim = 3;
                p.input_shape[0] = 0;
              }),
              "shape: input is (0, 3, 8), expected positive sizes");
  CHECK_EQUAL(error_after([](PoolProblem& p) {
                p.input_shape[0] = p.input_shape[1] = std::int64_t{1} << 30;
              }),
              "shape: input is (1073741824, 1073741824, 8, 9), expected sizes whose bytes fit in "
              "63 bits");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.kernel_size[1] = 12; }),
              "shape: input is (2, 3, 8, 9), but kernel_size[1] = 12 needs a padded size of at "
              "least that, not 11");
  CHECK_EQUAL(error_after([](PoolProblem& p) {
                p.kernel_size[1] = 14;
                p.stride[1] = 3;
                p.ceil_mode = true;
              }),
              "shape: input is (2, 3, 8, 9), but kernel_size[1] = 14 needs a padded size of at "
              "least 12, not 11");
  CHECK_EQUAL(error_after([](PoolProblem& p) {
                p.adaptive = true;
                p.output_size[0] = 0;
              }),
              "shape: grad_output is (2, 3, 0, 2), expected positive sizes (only the batch may be "
              "empty)");
}

void test_plan_refuses_bad_windows() {
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.kernel_size[0] = 0; }),
              "param: kernel_size[0] is 0, expected 1 to 2**60");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.kernel_size[1] = (std::int64_t{1} << 60) + 1; }),
              "param: kernel_size[1] is 1152921504606846977, expected 1 to 2**60");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.stride[1] = 0; }),
              "param: stride[1] is 0, expected 1 to 2**60");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.stride[0] = -2; }),
              "param: stride[0] is -2, expected 1 to 2**60");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.padding[0] = 2; }),
              "param: padding[0] is 2, expected 0 to 1 (half of kernel_size[0] = 3)");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.padding[1] = -1; }),
              "param: padding[1] is -1, expected 0 to 1 (half of kernel_size[1] = 3)");
}

void test_plan_refuses_tensors_that_do_not_fit() {
  const PoolPlan plan(valid_problem());
  std::vector<char> memory(8192);
  const TensorView output = dense_view(memory.data(), DType::float32, plan.output_shape(), 4);
  const TensorView input =
      dense_view(memory.data() + 4096, DType::float32, plan.problem().input_shape, 4);
  const auto output_error = [&](TensorView view) {
    return error_of([&] { plan.check_source(view); });
  };
  const auto input_error = [&](TensorView view) {
    return error_of([&] {
      plan.check_target(view);
      plan.check_memory(output, view);
    });
  };
  CHECK_EQUAL(output_error(output), "");
  CHECK_EQUAL(input_error(input), "");
  TensorView wrong = output;
  wrong.dtype = DType::float16;
  CHECK_EQUAL(output_error(wrong), "dtype: grad_output is float16, expected float32 as planned");
  wrong = output;
  wrong.shape[3] = 4;
  CHECK_EQUAL(output_error(wrong),
              "shape: grad_output is (2, 3, 4, 4), but input (2, 3, 8, 9) with kernel_size (3, 3), "
              "stride (2, 2), padding (1, 1) pools to (2, 3, 4, 5)");
  wrong = input;
  wrong.dtype = DType::float64;
  CHECK_EQUAL(input_error(wrong),
              "dtype: grad_input is float64, expected float32 like grad_output");
  wrong = input;
  wrong.ndim = 3;
  CHECK_EQUAL(input_error(wrong),
              "shape: grad_input is (2, 3, 8), expected the shape of input, (2, 3, 8, 9)");
  wrong = input;
  wrong.stride_bytes[2] -= 4;
  CHECK_EQUAL(input_error(wrong),
              "layout: grad_input is a tensor whose elements overlap, expected one memory location "
              "per element");
  wrong = input;
  wrong.data = memory.data() + 400;
  CHECK_EQUAL(
      input_error(wrong),
      "layout: grad_input is memory of another tensor, expected memory that grad_output does not "
      "share");
}

void test_forward_plan_refuses_tensors_that_do_not_fit() {
  PoolProblem p = valid_problem();
  p.direction = PoolDirection::forward;
  const PoolPlan plan(p);
  std::vector<char> memory(8192);
  const TensorView input = dense_view(memory.data(), DType::float32, p.input_shape, 4);
  const TensorView output =
      dense_view(memory.data() + 4096, DType::float32, plan.output_shape(), 4);
  const auto input_error = [&](TensorView view) {
    return error_of([&] { plan.check_source(view); });
  };
  const auto output_error = [&](TensorView view) {
    return error_of([&] {
      plan.check_target(view);
      plan.check_memory(input, view);
    });
  };
  CHECK_EQUAL(input_error(input), "");
  CHECK_EQUAL(output_error(output), "");
  TensorView wrong = input;
  wrong.dtype = DType::float16;
  CHECK_EQUAL(input_error(wrong), "dtype: input is float16, expected float32 as planned");
  CHECK_EQUAL(input_error(output),
              "shape: input is (2, 3, 4, 5), expected (2, 3, 8, 9) as planned");
  wrong = output;
  wrong.dtype = DType::float64;
  CHECK_EQUAL(output_error(wrong), "dtype: output is float64, expected float32 like input");
  CHECK_EQUAL(output_error(input),
              "shape: output is (2, 3, 8, 9), but input (2, 3, 8, 9) with kernel_size (3, 3), "
              "stride (2, 2), padding (1, 1) pools to (2, 3, 4, 5)");
  wrong = output;
  wrong.stride_bytes[2] -= 4;
  CHECK_EQUAL(output_error(wrong),
              "layout: output is a tensor whose elements overlap, expected one memory location per "
              "element");
  wrong = output;
  wrong.data = memory.data() + 400;
  CHECK_EQUAL(output_error(wrong),
              "layout: output is memory of another tensor, expected memory that input does not "
              "share");
  p.adaptive = true;
  p.output_size[0] = 0;
  CHECK_EQUAL(error_of([&] { const PoolPlan refused(p); }),
              "shape: output is (2, 3, 0, 2), expected positive sizes (only the batch may be "
              "empty)");
}

struct Expected {
  std::vector<double> values, magnitudes;
  std::vector<std::int64_t> terms;
};

// The pooled axes, always three: those in front of a shorter problem have one index and one output.
std::vector<Definition> definitions_of(const PoolProblem& p) {
  std::vector<Definition> axes(static_cast<std::size_t>(kMaxRank - p.rank), Definition{1, 1, true});
  for (int axis = 0; axis < p.rank; ++axis) {
    const std::int64_t in = p.input_shape[p.ndim - p.rank + axis];
    if (p.adaptive) {
      axes.push_back({in, p.output_size[axis], true});
      continue;
    }
    const std::int64_t out =
        pooled_size(in, p.kernel_size[axis], p.stride[axis], p.padding[axis], p.ceil_mode);
    axes.push_back({in, out, false, p.kernel_size[axis], p.stride[axis], p.padding[axis],
                    p.count_include_pad});
  }
  return axes;
}

// Adds the terms between one output element and every input element of its window: backward, what
// the output gives to the inputs, forward, what they give to it.
void add_terms(const PoolProblem& p, const std::vector<Definition>& axes, std::int64_t plane,
               const std::int64_t (&o)[kMaxRank], std::int64_t output, const Tensor& source,
               Expected& expected) {
  double divisor = 1;
  for (std::size_t i = 0; i < kMaxRank; ++i) {
    divisor *= static_cast<double>(axes[i].divisor(o[i]));
  }
  const bool overridden = !p.adaptive && p.divisor_override != 0;
  if (overridden) divisor = static_cast<double>(p.divisor_override);
  for (std::int64_t d = axes[0].begin(o[0]); d < axes[0].end(o[0]); ++d) {
    for (std::int64_t r = axes[1].begin(o[1]); r < axes[1].end(o[1]); ++r) {
      for (std::int64_t c = axes[2].begin(o[2]); c < axes[2].end(o[2]); ++c) {
        const std::int64_t row = (plane * axes[0].in + d) * axes[1].in + r;
        const std::int64_t input = row * axes[2].in + c;
        const double value = source.get(p.is_forward() ? input : output);
        const double share = rounded_operand(value, p.rounding) / divisor;
        const auto at = static_cast<std::size_t>(p.is_forward() ? output : input);
        expected.values[at] += share;
        expected.magnitudes[at] += std::fabs(share);
        ++expected.terms[at];
      }
    }
  }
}

Expected expected_result(const PoolProblem& p, const Tensor& source) {
  const std::vector<Definition> axes = definitions_of(p);
  const LegalPoolProblem legal(p);
  const auto count = static_cast<std::size_t>(element_count(legal.target_shape(), p.ndim));
  Expected expected{std::vector<double>(count), std::vector<double>(count),
                    std::vector<std::int64_t>(count)};
  const std::int64_t planes = element_count(p.input_shape, p.ndim - p.rank);
  std::int64_t next = 0, o[kMaxRank];
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    for (o[0] = 0; o[0] < axes[0].out; ++o[0]) {
      for (o[1] = 0; o[1] < axes[1].out; ++o[1]) {
        for (o[2] = 0; o[2] < axes[2].out; ++o[2]) {
          add_terms(p, axes, plane, o, next++, source, expected);
        }
      }
    }
  }
  return expected;
}

std::string problem_text(const PoolProblem& p) {
  const std::string windows =
      p.adaptive ? " adaptive to " + shape_text(p.output_size, p.rank)
                 : " kernel " + shape_text(p.kernel_size, p.rank) + " stride " +
                       shape_text(p.stride, p.rank) + " padding " + shape_text(p.padding, p.rank) +
                       (p.ceil_mode ? " ceil" : "") + (p.count_include_pad ? " include_pad" : "") +
                       " divisor " + std::to_string(p.divisor_override);
  return (p.is_forward() ? "forward " : "backward ") + std::string(name_of(p.dtype)) + " " +
         shape_text(p.input_shape, p.ndim) + windows + " rounding " +
         std::to_string(static_cast<int>(p.rounding));
}

void check_values(const PoolProblem& p, const Tensor& target, const Expected& expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double got = target.get(static_cast<std::int64_t>(i));
    const double tolerance = sum_tolerance(p.dtype, expected.terms[i], expected.magnitudes[i]);
    if (is_close(got, expected.values[i], tolerance) || ++wrong > 1) continue;
    const std::string before = g_situation;
    const Situation here("element %zu of %s", i, before.c_str());
    CHECK_EQUAL(got, expected.values[i]);
  }
  CHECK_EQUAL(wrong, std::size_t{0});
}

// Runs with a workspace of exactly the size asked for, holding NaNs. Half of the runs have bytes of
// the test's behind it, half end with the allocation, for the sanitizer.
void run_with_guards(Random& random, const PoolPlan& plan, const Tensor& source,
                     const Tensor& target, int threads) {
  plan.check_source(source.view);
  plan.check_target(target.view);
  plan.check_memory(source.view, target.view);
  std::memset(target.memory.data(), kUntouched, target.memory.size());
  const std::size_t guard = random.chance(0.5) ? 64 : 0, bytes = plan.workspace_bytes(threads);
  const Memory workspace(static_cast<std::int64_t>(bytes + guard), random.integer(0, 63));
  std::memset(workspace.data(), 0xff, bytes);
  plan.run(source.view, target.view, workspace.data(), threads);
  CHECK(bytes <= static_cast<std::size_t>(threads) << 20);
  CHECK(std::all_of(workspace.data() + bytes, workspace.data() + bytes + guard,
                    [](char byte) { return static_cast<unsigned char>(byte) == kUntouched; }));
}

void check_problem(Random& random, const PoolProblem& p, double special) {
  const LegalPoolProblem legal(p);
  const std::int64_t* const output_shape = legal.output_shape();
  const std::vector<Definition> axes = definitions_of(p);
  for (int axis = 0; axis < p.rank; ++axis) {
    CHECK_EQUAL(output_shape[p.ndim - p.rank + axis],
                axes[static_cast<std::size_t>(kMaxRank - p.rank + axis)].out);
  }
  const Tensor source = make_tensor(random, random_style(random, true), p.dtype,
                                    legal.source_shape(), p.ndim, p.rank);
  const Tensor target = make_tensor(random, random_style(random, false), p.dtype,
                                    legal.target_shape(), p.ndim, p.rank);
  const std::int64_t count = element_count(legal.source_shape(), p.ndim);
  for (std::int64_t i = 0; i < count; ++i) source.set(i, random.real());
  if (special != 0 && count > 0) source.set(random.integer(0, count - 1), special);
  const Expected expected = expected_result(p, source);
  std::vector<char> generic;
  for (const Isa isa : isa_levels()) {
    if (isa > detected_isa()) break;
    const PoolPlan plan(p, isa);
    const int threads = static_cast<int>(random.integer(1, 4));
    const Situation here("%s %s threads=%d", problem_text(p).c_str(), plan.kernel().c_str(),
                         threads);
    run_with_guards(random, plan, source, target, threads);
    const std::vector<char> got(target.memory.data(), target.memory.data() + target.memory.size());
    if (isa == Isa::generic) {
      check_values(p, target, expected);
      check_gaps(target);
      generic = got;
    }
    CHECK(got == generic);
  }
}

void choose_windows(Random& random, PoolProblem& p, std::int64_t longest_kernel) {
  for (int axis = 0; axis < p.rank; ++axis) {
    const std::int64_t in = p.input_shape[p.ndim - p.rank + axis];
    p.output_size[axis] = random.chance(0.2) ? 1 : random.integer(1, 2 * in);
    do {
      p.kernel_size[axis] = random.integer(1, longest_kernel);
      p.padding[axis] = random.chance(0.5) ? 0 : random.integer(0, p.kernel_size[axis] / 2);
    } while (p.kernel_size[axis] > in + 2 * p.padding[axis]);
    p.stride[axis] = random.chance(0.3)   ? 1
                     : random.chance(0.3) ? p.kernel_size[axis]
                                          : random.integer(1, p.kernel_size[axis] + 2);
  }
}

PoolProblem random_problem(Random& random, int rank, std::int64_t longest_axis) {
  PoolProblem p;
  if (random.chance(0.5)) p.direction = PoolDirection::forward;
  p.rank = rank;
  p.dtype = kDTypes[random.integer(0, 3)];
  const bool batched = random.chance(0.7);
  p.ndim = rank + (batched ? 2 : 1);
  for (int i = 0; i < p.ndim; ++i) {
    p.input_shape[i] = random.integer(1, i < p.ndim - rank ? 4 : longest_axis);
  }
  if (batched && random.chance(0.03)) p.input_shape[0] = 0;
  p.adaptive = random.chance(0.35);
  p.ceil_mode = random.chance(0.4);
  p.count_include_pad = random.chance(0.5);
  const std::int64_t divisor = random.integer(1, 9);
  if (random.chance(0.25)) p.divisor_override = random.chance(0.5) ? divisor : -divisor;
  if (p.dtype == DType::float32 && random.chance(0.3)) {
    p.rounding = static_cast<Rounding>(random.integer(1, 3));
  }
  choose_windows(random, p, longest_axis + 3);
  return p;
}

void test_random_problems_match_their_definition() {
  Random random(5);
  const std::int64_t longest_axis[] = {0, 90, 24, 10};
  const double infinity = std::numeric_limits<double>::infinity();
  const double specials[] = {0, 0, 0, std::numeric_limits<double>::quiet_NaN(), infinity};
  for (int i = 0; i < 3000; ++i) {
    const int rank = 1 + i % 3;
    const PoolProblem p = random_problem(random, rank, longest_axis[rank]);
    const Situation here("%s", problem_text(p).c_str());
    check_problem(random, p, specials[random.integer(0, 4)]);
  }
}

PoolProblem fixed_problem(DType dtype, const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& kernel,
                          const std::vector<std::int64_t>& stride,
                          const std::vector<std::int64_t>& padding) {
  PoolProblem p;
  p.rank = static_cast<int>(kernel.size());
  p.ndim = static_cast<int>(shape.size());
  p.dtype = dtype;
  std::copy(shape.begin(), shape.end(), p.input_shape);
  std::copy(kernel.begin(), kernel.end(), p.kernel_size);
  std::copy(stride.begin(), stride.end(), p.stride);
  std::copy(padding.begin(), padding.end(), p.padding);
  return p;
}

std::vector<PoolProblem> both_ways(std::vector<PoolProblem> problems) {
  for (std::size_t i = problems.size(); i-- > 0;) {
    problems.push_back(problems[i]);
    problems.back().direction = PoolDirection::forward;
  }
  return problems;
}

PoolProblem adaptive_problem(DType dtype, const std::vector<std::int64_t>& shape,
                             const std::vector<std::int64_t>& output_size) {
  const std::vector<std::int64_t> ones(output_size.size(), 1);
  PoolProblem p = fixed_problem(dtype, shape, ones, ones, ones);
  p.adaptive = true;
  std::copy(output_size.begin(), output_size.end(), p.output_size);
  return p;
}

// Larger than one tile along each axis in turn, channels included.
void test_problems_of_many_tiles() {
  Random random(6);
  const DType f32 = DType::float32, f16 = DType::float16, bf16 = DType::bfloat16;
  const std::vector<PoolProblem> problems = {
      fixed_problem(f32, {1, 1, 20011}, {7}, {3}, {2}),
      fixed_problem(f16, {1, 2, 20000}, {40}, {1}, {20}),
      fixed_problem(f32, {1, 1, 17000}, {100}, {7}, {50}),
      fixed_problem(f32, {1, 5000, 13}, {3, 5}, {1, 1}, {1, 2}),
      fixed_problem(bf16, {1, 3000, 20}, {20, 3}, {1, 2}, {10, 1}),
      fixed_problem(f32, {1, 1, 300, 300}, {5, 5}, {2, 2}, {2, 2}),
      fixed_problem(f32, {1, 9000, 4, 4}, {2, 2}, {1, 1}, {0, 0}),
      fixed_problem(f32, {3000, 1, 3, 5}, {2, 2}, {1, 1}, {0, 0}),
      fixed_problem(DType::float64, {1, 70, 40, 40}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}),
      fixed_problem(f32, {1, 60, 30, 30}, {20, 2, 2}, {1, 2, 2}, {10, 0, 0}),
      adaptive_problem(f32, {1, 1, 20011}, {777}),
      adaptive_problem(f32, {2, 300}, {9001}),
      adaptive_problem(f32, {1, 1, 200, 210}, {7, 300}),
      adaptive_problem(f16, {40, 1, 64, 64}, {1, 1}),
      adaptive_problem(f32, {1, 3, 40, 41, 42}, {7, 8, 9})};
  for (const PoolProblem& p : both_ways(problems)) {
    for (int layout = 0; layout < 3; ++layout) check_problem(random, p, 0);
  }
}

// Kernels longer than any memory cover the whole axis; only where they are cut matters.
void test_kernels_longer_than_memory() {
  Random random(7);
  const std::int64_t huge = std::int64_t{1} << 40, most = std::int64_t{1} << 60;
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
    for (const int flags : {0, 1, 2, 3}) {
      std::vector<PoolProblem> problems = {
          fixed_problem(dtype, {2, 2, 7}, {huge}, {1}, {huge / 2}),
          fixed_problem(dtype, {2, 2, 7}, {huge}, {3}, {huge / 2}),
          fixed_problem(dtype, {2, 3, 5, 9}, {3, huge}, {2, 1}, {1, huge / 2}),
          fixed_problem(dtype, {2, 3, 5, 9}, {huge - 3, 3}, {2, 1}, {huge / 2 - 2, 1}),
          fixed_problem(dtype, {2, 5, 5, 9}, {huge, huge, huge}, {1, 2, 3},
                        {huge / 2, huge / 2, huge / 2}),
          fixed_problem(dtype, {1, 40}, {most}, {most}, {most / 2})};
      for (PoolProblem& p : problems = both_ways(problems)) {
        p.ceil_mode = (flags & 1) != 0;
        p.count_include_pad = (flags & 2) != 0;
        check_problem(random, p, 0);
      }
    }
  }
}

// Scratch memory is bounded whatever the problem; plans that cannot keep to it need none.
void test_workspace_stays_below_a_megabyte_per_thread() {
  const DType f32 = DType::float32, f64 = DType::float64;
  const std::int64_t large = 1000000;
  const std::vector<PoolProblem> problems = {
      fixed_problem(f32, {32, 64, 224, 224}, {7, 7}, {1, 1}, {3, 3}),
      fixed_problem(f64, {32, 64, 224, 224}, {200, 200}, {1, 1}, {100, 100}),
      fixed_problem(f32, {1, 100000, 56, 56}, {3, 3}, {2, 2}, {1, 1}),
      fixed_problem(f64, {1, 1, large, large}, {1000, 1000}, {1, 1}, {0, 0}),
      fixed_problem(f32, {1, 1, large}, {large / 2}, {1}, {large / 4}),
      fixed_problem(f64, {8, 8, 100, 100, 100}, {50, 50, 50}, {1, 1, 1}, {25, 25, 25}),
      adaptive_problem(f32, {8, 8, 224, 224}, {7, 7}),
      adaptive_problem(f32, {8, 8, 7, 7}, {5000, 5000}),
      adaptive_problem(f64, {1, 1, 3, 3, 3}, {100, 1000, 10000})};
  for (const PoolProblem& p : both_ways(problems)) {
    const PoolPlan plan(p);
    const Situation here("%s %s", problem_text(p).c_str(), plan.kernel().c_str());
    for (const int threads : {1, 2, 7, 64}) {
      const std::size_t bytes = plan.workspace_bytes(threads);
      CHECK(bytes <= static_cast<std::size_t>(threads) << 20);
      CHECK(bytes >= plan.workspace_bytes(1));
      const bool plain = plan.kernel().find("plain") != std::string::npos;
      CHECK_EQUAL(bytes == 0, plain);
    }
  }
}

// Results too large for the caches are written past them. Small integers through windows of four
// come out exact.
void test_large_results_are_exact() {
  const std::int64_t planes = 7, rows = 1900, columns = 1930;
  const PoolProblem p =
      fixed_problem(DType::float16, {planes, rows, columns}, {2, 2}, {2, 2}, {0, 0});
  const PoolPlan plan(p);
  Random random(8);
  const StrideStyle dense{true, false, false, false, false};
  const Tensor output = make_tensor(random, dense, p.dtype, plan.output_shape(), 3, 2);
  const Tensor input = make_tensor(random, dense, p.dtype, p.input_shape, 3, 2);
  CHECK(input.memory.size() >= std::size_t{48} << 20);
  const Format format = format_of(p.dtype);
  auto* const gradients = reinterpret_cast<std::uint16_t*>(output.memory.data());
  const auto gradient_at = [](std::int64_t i) { return static_cast<double>(4 * (i % 251)); };
  for (std::int64_t i = 0; i < planes * rows * columns / 4; ++i) {
    gradients[i] = half_bits(gradient_at(i), format);
  }
  std::uint16_t quarter[251];
  for (int i = 0; i < 251; ++i) quarter[i] = half_bits(i, format);
  run_with_guards(random, plan, output, input, 2);
  const auto* const results = reinterpret_cast<const std::uint16_t*>(input.memory.data());
  std::int64_t wrong = 0;
  for (std::int64_t row = 0; row < planes * rows; ++row) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t from = row / 2 * (columns / 2) + c / 2;
      wrong += results[row * columns + c] != quarter[from % 251];
    }
  }
  CHECK_EQUAL(wrong, 0);
}

// Nothing may be written for an empty batch, and nothing needs to be.
void test_empty_batch_writes_nothing() {
  PoolProblem p = valid_problem();
  p.input_shape[0] = 0;
  const PoolPlan plan(p);
  char byte = 0;
  const TensorView output = dense_view(&byte, p.dtype, plan.output_shape(), 4);
  const TensorView input = dense_view(&byte, p.dtype, p.input_shape, 4);
  plan.check_source(output);
  plan.check_target(input);
  plan.check_memory(output, input);
  std::vector<char> workspace(plan.workspace_bytes(1));
  plan.run(output, input, workspace.data(), 1);
  CHECK_EQUAL(static_cast<int>(byte), 0);
}

}  // namespace
}  // namespace backops

int main() {
  using namespace backops;
  test_plan_refuses_bad_shapes();
  test_plan_refuses_bad_windows();
  test_plan_refuses_tensors_that_do_not_fit();
  test_forward_plan_refuses_tensors_that_do_not_fit();
  test_random_problems_match_their_definition();
  test_problems_of_many_tiles();
  test_kernels_longer_than_memory();
  test_workspace_stays_below_a_megabyte_per_thread();
  test_large_results_are_exact();
  test_empty_batch_writes_nothing();
  return test::finish();
}
