// What convolution plans refuse, and which engine they would choose on CPUs that are described.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "ops/conv/choose.h"
#include "ops/conv/plan.h"
#include "tests/check.h"
#include "tests/elements.h"
#include "tests/errors.h"
#include "tests/tensors.h"

namespace backops {
namespace {

using namespace test;

// All axes alike; padding of `kernel / 2` on both ends.
ConvProblem square_problem(DType dtype, const std::vector<std::int64_t>& input,
                           std::int64_t outputs, std::int64_t kernel, std::int64_t groups) {
  ConvProblem p;
  p.dtype = dtype;
  p.ndim = static_cast<int>(input.size());
  p.rank = p.ndim - 2;
  p.groups = groups;
  std::copy(input.begin(), input.end(), p.input_shape);
  p.weight_shape[0] = outputs;
  p.weight_shape[1] = input[1] / groups;
  for (int axis = 0; axis < p.rank; ++axis) {
    p.weight_shape[2 + axis] = kernel;
    p.stride[axis] = p.dilation[axis] = 1;
    p.padding_before[axis] = kernel / 2;
  }
  p.pad_both_ends();
  return p;
}

ConvProblem valid_problem() { return square_problem(DType::float32, {2, 4, 8, 9}, 6, 3, 2); }

template <class Change>
std::string error_after(const Change& change) {
  ConvProblem p = valid_problem();
  change(p);
  const std::string error = error_of([&] { const LegalConvProblem legal(p); });
  // Plans and explanations check no other way.
  CHECK_EQUAL(error_of([&] { const ConvPlan plan(p, 1, false); }), error);
  CHECK_EQUAL(error_of([&] { explain_conv(p, detected_cpu()); }), error);
  return error;
}

void test_output_shape_counts_both_paddings() {
  ConvProblem p = valid_problem();
  p.stride[1] = 2;
  p.dilation[1] = 2;
  p.padding_before[1] = 4;
  p.padding_after[1] = 1;
  const LegalConvProblem legal(p);
  CHECK_EQUAL(shape_text(legal.output_shape(), 4), "(2, 6, 8, 5)");  // (9 + 5 - 5) / 2 + 1
}

void test_plan_refuses_bad_shapes() {
  CHECK_EQUAL(error_after([](ConvProblem&) {}), "");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.ndim = 2; }),
              "shape: input is (2, 4), expected 3 or 4 axes for weight (6, 2, 3, 3)");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.input_shape[0] = 0; }), "");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.input_shape[1] = 0; }),
              "shape: input is (2, 0, 8, 9), expected positive sizes (only the batch may be "
              "empty)");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.weight_shape[2] = 0; }),
              "shape: weight is (6, 2, 0, 3), expected positive sizes");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.input_shape[1] = 5; }),
              "shape: input is (2, 5, 8, 9), but its 5 channels do not divide into groups = 2");
  CHECK_EQUAL(
      error_after([](ConvProblem& p) { p.weight_shape[0] = 7; }),
      "shape: weight is (7, 2, 3, 3), but its 7 output channels do not divide into groups = 2");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.weight_shape[1] = 4; }),
              "shape: weight is (6, 4, 3, 3), but input (2, 4, 8, 9) with groups = 2 has 2 "
              "channels per group");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.dilation[1] = 6; }),
              "shape: weight is (6, 2, 3, 3), but 3 elements at dilation[1] = 6 reach over more "
              "than the padded input size 11");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.input_shape[0] = std::int64_t{1} << 53; }),
              "shape: input is (9007199254740992, 4, 8, 9), expected sizes whose bytes fit in 63 "
              "bits");
}

void test_plan_refuses_bad_parameters() {
  const std::int64_t beyond = (std::int64_t{1} << 60) + 1;
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.groups = 0; }),
              "param: groups is 0, expected at least 1");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.stride[0] = 0; }),
              "param: stride[0] is 0, expected 1 to 2**60");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.padding_before[1] = -1; }),
              "param: padding[1] is -1, expected 0 to 2**60");
  CHECK_EQUAL(error_after([](ConvProblem& p) { p.padding_after[0] = -3; }),
              "param: padding[0] is -3, expected 0 to 2**60");
  CHECK_EQUAL(error_after([&](ConvProblem& p) { p.dilation[1] = beyond; }),
              "param: dilation[1] is 1152921504606846977, expected 1 to 2**60");
}

// 4 channels in, 6 out, in 2 groups.
ConvProblem transposed_problem() {
  ConvProblem p = valid_problem();
  p.op = ConvOperator::transpose;
  p.weight_shape[0] = 4;
  p.weight_shape[1] = 3;
  p.stride[0] = p.stride[1] = 2;
  return p;
}

template <class Change>
std::string transposed_error_after(const Change& change) {
  ConvProblem p = transposed_problem();
  change(p);
  const std::string error = error_of([&] { const LegalConvProblem legal(p); });
  p.op = ConvOperator::transpose_backward;
  CHECK_EQUAL(error_of([&] { const LegalConvProblem legal(p); }), error);
  return error;
}

void test_transposed_output_shape() {
  ConvProblem p = transposed_problem();
  p.output_padding[0] = 1;
  p.padding_after[1] = 0;
  const LegalConvProblem legal(p);
  CHECK_EQUAL(shape_text(legal.output_shape(), 4), "(2, 6, 16, 18)");
  CHECK_EQUAL(legal.output_channels(), 6);
}

void test_plan_refuses_bad_transposed_problems() {
  CHECK_EQUAL(transposed_error_after([](ConvProblem&) {}), "");
  CHECK_EQUAL(transposed_error_after([](ConvProblem& p) { p.weight_shape[0] = 6; }),
              "shape: weight is (6, 3, 3, 3), but input (2, 4, 8, 9) has 4 channels");
  CHECK_EQUAL(transposed_error_after([](ConvProblem& p) { p.groups = 3; }),
              "shape: input is (2, 4, 8, 9), but its 4 channels do not divide into groups = 3");
  CHECK_EQUAL(transposed_error_after([](ConvProblem& p) { p.output_padding[1] = 2; }),
              "param: output_padding[1] is 2, expected 0 to 1 (below stride[1] = 2 or "
              "dilation[1] = 1)");
  CHECK_EQUAL(transposed_error_after([](ConvProblem& p) { p.output_padding[0] = -1; }),
              "param: output_padding[0] is -1, expected 0 to 1 (below stride[0] = 2 or "
              "dilation[0] = 1)");
  CHECK_EQUAL(
      transposed_error_after([](ConvProblem& p) { p.padding_before[0] = p.padding_after[0] = 9; }),
      "shape: input is (2, 4, 8, 9), but with weight (4, 3, 3, 3), stride[0] = 2 and "
      "padding[0] = 9 the output has size -1 along that axis, expected at least 1");
  CHECK_EQUAL(transposed_error_after([](ConvProblem& p) { p.stride[1] = std::int64_t{1} << 60; }),
              "shape: input is (2, 4, 8, 9), but with weight (4, 3, 3, 3), stride[1] = "
              "1152921504606846976 and padding[1] = 1 the output has more than 10**18 elements "
              "along an axis");
}

void test_rank_comes_from_the_weight() {
  const std::int64_t shape[] = {6, 2, 3, 3, 3, 3};
  CHECK_EQUAL(conv_rank(shape, 3), 1);
  CHECK_EQUAL(conv_rank(shape, 5), 3);
  CHECK_EQUAL(error_of([&] { conv_rank(shape, 2); }),
              "shape: weight is (6, 2), expected 3 to 5 axes");
  CHECK_EQUAL(error_of([&] { conv_rank(shape, 6); }),
              "shape: weight is (6, 2, 3, 3, 3, 3), expected 3 to 5 axes");
}

// Dense tensors of a plan, one after another in one memory.
struct AllTensors {
  std::vector<char> memory = std::vector<char>(1 << 16);
  TensorView grad_output, input, weight, grad_input, grad_weight, grad_bias;

  explicit AllTensors(const ConvPlan& plan) {
    const ConvProblem& p = plan.problem();
    char* next = memory.data();
    const auto place = [&](const std::int64_t* shape, int ndim) {
      const TensorView view = dense_view(next, p.dtype, shape, ndim);
      next += dense_bytes(shape, ndim, p.dtype);
      return view;
    };
    grad_output = place(plan.output_shape(), p.ndim);
    input = place(p.input_shape, p.ndim);
    weight = place(p.weight_shape, p.rank + 2);
    grad_input = place(p.input_shape, p.ndim);
    grad_weight = place(p.weight_shape, p.rank + 2);
    grad_bias = place(p.weight_shape, 1);
  }
  ConvTensors bound() const {
    ConvTensors t;
    t.grad_output = &grad_output;
    t.input = &input;
    t.weight = &weight;
    t.grad_input = &grad_input;
    t.grad_weight = &grad_weight;
    t.grad_bias = &grad_bias;
    return t;
  }
};

template <class Change>
std::string tensor_error(const Change& change) {
  const ConvPlan plan(valid_problem(), 1, false);
  AllTensors all(plan);
  change(all);
  return error_of([&] {
    plan.check_inputs(all.bound());
    plan.check_results(all.bound());
    plan.check_memory(all.bound());
  });
}

void test_plan_refuses_tensors_that_do_not_fit() {
  using All = AllTensors;
  CHECK_EQUAL(tensor_error([](All&) {}), "");
  CHECK_EQUAL(tensor_error([](All& t) { t.grad_output.dtype = DType::float16; }),
              "dtype: grad_output is float16, expected float32 as planned");
  CHECK_EQUAL(tensor_error([](All& t) { t.grad_output.shape[3] = 8; }),
              "shape: grad_output is (2, 6, 8, 8), but input (2, 4, 8, 9) and weight (6, 2, 3, 3) "
              "with stride (1, 1), padding (1, 1), dilation (1, 1) make (2, 6, 8, 9)");
  CHECK_EQUAL(tensor_error([](All& t) { t.input.dtype = DType::float64; }),
              "dtype: input is float64, expected float32 like grad_output");
  CHECK_EQUAL(tensor_error([](All& t) { t.weight.shape[0] = 5; }),
              "shape: weight is (5, 2, 3, 3), expected (6, 2, 3, 3)");
  CHECK_EQUAL(tensor_error([](All& t) { t.grad_input.ndim = 3; }),
              "shape: grad_input is (2, 4, 8), expected that of input, (2, 4, 8, 9)");
  CHECK_EQUAL(tensor_error([](All& t) { t.grad_bias.shape[0] = 7; }),
              "shape: grad_bias is (7,), expected one element per output channel, (6,)");
  CHECK_EQUAL(tensor_error([](All& t) { t.grad_weight.stride_bytes[0] = 4; }),
              "layout: grad_weight is a tensor whose elements overlap, expected one memory "
              "location per element");
  CHECK_EQUAL(tensor_error([](All& t) { t.grad_input.data = t.input.data; }),
              "layout: grad_input is memory of another tensor, expected memory that input does "
              "not share");
  CHECK_EQUAL(tensor_error([](All& t) { t.grad_bias.data = t.grad_weight.data; }),
              "layout: grad_bias is memory of another tensor, expected memory that grad_weight "
              "does not share");
}

void test_workspace_shares_no_memory() {
  const ConvPlan plan(valid_problem(), 1, false);
  const AllTensors all(plan);
  std::vector<char> apart(64);
  CHECK_EQUAL(error_of([&] { plan.check_memory(all.bound(), apart.data(), 64); }), "");
  CHECK_EQUAL(error_of([&] { plan.check_memory(all.bound(), all.weight.data, 64); }),
              "layout: workspace is memory of a tensor, expected memory that weight does not "
              "share");
}

// ---- choices -----------------------------------------------------------------------------------

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char letter : text) {
    if (letter == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += letter;
    }
  }
  return lines;
}

// The name before ": chosen, "; there is one.
std::string chosen(const ConvProblem& p, const Cpu& cpu) {
  const std::vector<std::string> lines = lines_of(explain_conv(p, cpu));
  CHECK_EQUAL(lines.size(), engine_texts().size());
  std::string name;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string begin = std::string(engine_texts()[i].name) + ": ";
    CHECK_EQUAL(lines[i].substr(0, begin.size()), begin);
    if (lines[i].substr(begin.size(), 8) != "chosen, ") continue;
    CHECK_EQUAL(name, "");
    name = engine_texts()[i].name;
  }
  return name;
}

void test_described_cpus_choose_their_engines() {
  const std::int64_t level1 = 32 << 10, level2 = 1 << 20;
  const Cpu plain = described_cpu("", level1, level2);
  const Cpu avx2 = described_cpu("avx2", level1, level2);
  const Cpu avx512 = described_cpu("avx2 avx512 wide_512", level1, level2);
  const Cpu amx = described_cpu("avx2 avx512 avx512_bf16 amx wide_512", level1, 2 * level2);
  const ConvProblem depthwise = square_problem(DType::float32, {8, 96, 56, 56}, 96, 3, 96);
  const ConvProblem dense = square_problem(DType::bfloat16, {8, 64, 56, 56}, 64, 3, 1);
  ConvProblem far = square_problem(DType::float32, {1, 4, 90, 90}, 4, 3, 1);
  far.stride[0] = far.stride[1] = 80;
  for (const Cpu& cpu : {plain, avx2, avx512, amx}) {
    const Situation here("%s", capability_names(cpu).c_str());
    CHECK_EQUAL(chosen(depthwise, cpu), "lanes");
    CHECK_EQUAL(chosen(far, cpu), "plain");
  }
#ifdef BACKOPS_X86  // their kernels, or the width of their vectors
  const ConvProblem first_layer = square_problem(DType::float32, {8, 3, 224, 224}, 64, 7, 1);
  CHECK_EQUAL(chosen(first_layer, avx512), "folded");
  CHECK_EQUAL(chosen(dense, amx), "matrix");
#endif
#ifndef BACKOPS_PLAIN_MATRICES
  CHECK_EQUAL(chosen(dense, avx512), "blocks");
  CHECK_EQUAL(chosen(dense, avx2), "blocks");
#endif
}

void test_capabilities_have_names() {
  const std::string names = "avx2 avx512 wide_512 avx512_bf16 amx neon bf16_products";
  CHECK_EQUAL(capability_names(described_cpu(names, 1, 2)), names);
  CHECK_EQUAL(described_cpu("avx2", 1, 2).level2_bytes, 2);
  CHECK_EQUAL(error_of([] { described_cpu("avx2 sse9", 1, 2); }),
              "param: capabilities is 'sse9', expected names as `backops info` prints them");
}

void test_width_of_amd_units() {
  constexpr unsigned kUnits256 = 4, kUnits512 = 8, kOthers = 2, kZen4 = 25, kZen5 = 26;
  CHECK(!amd_multiplies_512_at_once(kUnits256 | kOthers, kZen4));
  CHECK(!amd_multiplies_512_at_once(kOthers, kZen4));
  CHECK(!amd_multiplies_512_at_once(kUnits256 | kOthers, kZen5));  // laptops
  CHECK(amd_multiplies_512_at_once(kUnits512 | kOthers, kZen5));
  CHECK(amd_multiplies_512_at_once(kOthers, kZen5));
}

void test_forced_engine_is_one_that_takes_the_problem() {
  ConvProblem p = square_problem(DType::float32, {1, 4, 9, 9}, 4, 3, 1);
  const auto forced = [&](const char* name) {
    setenv("BACKOPS_ENGINE", name, 1);
    const std::string error = error_of([&] { const ConvPlan plan(p, 1, false); });
    unsetenv("BACKOPS_ENGINE");
    return error;
  };
  CHECK_EQUAL(forced("plain"), "");
  CHECK_EQUAL(forced("lanes"),
              "param: BACKOPS_ENGINE is 'lanes', which does not take one group: lanes are groups");
  CHECK_EQUAL(forced("gemm"),
              "param: BACKOPS_ENGINE is 'gemm', expected one of lanes, blocks, folded, rows, "
              "matrix, pairs, plain");
}

}  // namespace
}  // namespace backops

int main() {
  using namespace backops;
  test_output_shape_counts_both_paddings();
  test_plan_refuses_bad_shapes();
  test_plan_refuses_bad_parameters();
  test_transposed_output_shape();
  test_plan_refuses_bad_transposed_problems();
  test_rank_comes_from_the_weight();
  test_plan_refuses_tensors_that_do_not_fit();
  test_workspace_shares_no_memory();
  test_described_cpus_choose_their_engines();
  test_capabilities_have_names();
  test_width_of_amd_units();
  test_forced_engine_is_one_that_takes_the_problem();
  return test::finish();
}
