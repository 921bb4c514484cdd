// Convolution plans through their interface: every engine on every problem it takes, against loops
// written from the definition.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/matrix/matrix.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/choose.h"
#include "ops/conv/plan.h"
#include "tests/check.h"
#include "tests/elements.h"
#include "tests/memory.h"
#include "tests/tensors.h"

namespace backops {
namespace {

using namespace test;

// ---- the definition ----------------------------------------------------------------------------

struct Sums {
  std::vector<long double> values;
  std::vector<double> magnitudes;
  std::vector<std::int64_t> terms;

  explicit Sums(std::int64_t count)
      : values(static_cast<std::size_t>(count)), magnitudes(values.size()), terms(values.size()) {}
  void add(std::int64_t index, double a, double b) {
    const auto i = static_cast<std::size_t>(index);
    values[i] += static_cast<long double>(a) * b;
    magnitudes[i] += std::fabs(a * b);
    ++terms[i];
  }
};

struct Operands {
  Tensor grad_output, input, weight, bias;
};

struct Expected {
  Sums output, grad_input, grad_weight, grad_bias;
};

std::vector<double> operand_values(const Tensor& tensor, Rounding rounding) {
  const std::int64_t count = element_count(tensor.view.shape, tensor.view.ndim);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(rounded_operand(tensor.get(i), rounding));
  }
  return values;
}

// The axes of a problem, always three: those in front that a shorter one lacks are of size 1.
struct Axis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
  // The input that tap t of output o reads, or -1.
  std::int64_t input_of(std::int64_t o, std::int64_t t) const {
    const std::int64_t i = o * stride - padding + t * dilation;
    return i < in ? std::max<std::int64_t>(i, -1) : -1;
  }
};

// The map that joins the tensors: a transposed convolution's input is its output.
struct Map {
  const std::int64_t *in_shape, *out_shape;
  std::int64_t batch, group_inputs, outputs, ins, outs, taps;
  std::vector<Axis> axes;

  Map(const ConvProblem& p, const std::int64_t* output_shape)
      : in_shape(is_transposed(p.op) ? output_shape : p.input_shape),
        out_shape(is_transposed(p.op) ? p.input_shape : output_shape),
        batch(p.ndim == p.rank + 2 ? p.input_shape[0] : 1),
        group_inputs(p.weight_shape[1]),
        outputs(p.weight_shape[0]),
        ins(element_count(in_shape + p.ndim - p.rank, p.rank)),
        outs(element_count(out_shape + p.ndim - p.rank, p.rank)),
        taps(element_count(p.weight_shape + 2, p.rank)),
        axes(static_cast<std::size_t>(kMaxConvRank - p.rank)) {
    for (int i = 0; i < p.rank; ++i) {
      const int at = p.ndim - p.rank + i;
      axes.push_back({in_shape[at], out_shape[at], p.weight_shape[2 + i], p.stride[i],
                      p.padding_before[i], p.dilation[i]});
    }
  }
};

// Calls body(output position, input position or -1, tap), all counted from 0; -1 is padding.
template <class Body>
void for_each_join(const std::vector<Axis>& axes, const Body& body) {
  const Axis &d = axes[0], &h = axes[1], &w = axes[2];
  const std::int64_t outs = d.out * h.out * w.out, taps = d.kernel * h.kernel * w.kernel;
  for (std::int64_t o = 0; o < outs; ++o) {
    for (std::int64_t t = 0; t < taps; ++t) {
      const std::int64_t i0 = d.input_of(o / (h.out * w.out), t / (h.kernel * w.kernel));
      const std::int64_t i1 = h.input_of(o / w.out % h.out, t / w.kernel % h.kernel);
      const std::int64_t i2 = w.input_of(o % w.out, t % w.kernel);
      const bool is_inside = i0 >= 0 && i1 >= 0 && i2 >= 0;
      body(o, is_inside ? (i0 * h.in + i1) * w.in + i2 : -1, t);
    }
  }
}

// Calls body(out, in or -1, weight): where the elements that are multiplied are in their tensors.
template <class Body>
void for_each_product(const Map& map, std::int64_t groups, const Body& body) {
  for (std::int64_t image = 0; image < map.batch; ++image) {
    for (std::int64_t o = 0; o < map.outputs; ++o) {
      const std::int64_t out_at = (image * map.outputs + o) * map.outs;
      for (std::int64_t c = 0; c < map.group_inputs; ++c) {
        const std::int64_t channel = o / (map.outputs / groups) * map.group_inputs + c;
        const std::int64_t in_at = (image * map.group_inputs * groups + channel) * map.ins;
        const std::int64_t weight_at = (o * map.group_inputs + c) * map.taps;
        for_each_join(map.axes, [&](std::int64_t out, std::int64_t in, std::int64_t tap) {
          body(out_at + out, in < 0 ? -1 : in_at + in, weight_at + tap);
        });
      }
    }
  }
}

// Calls body(channel, index) for the elements of the operator's output.
template <class Body>
void for_each_output(const ConvProblem& p, const std::int64_t* shape, const Body& body) {
  const std::int64_t channels = shape[p.ndim - p.rank - 1];
  const std::int64_t positions = element_count(shape + p.ndim - p.rank, p.rank);
  for (std::int64_t i = 0; i < element_count(shape, p.ndim); ++i) {
    body(i / positions % channels, i);
  }
}

Expected expected_forward(const ConvProblem& p, const std::int64_t* output_shape,
                          const Operands& operands) {
  const std::vector<double> input = operand_values(operands.input, p.rounding);
  const std::vector<double> weight = operand_values(operands.weight, p.rounding);
  Expected expected{Sums(element_count(output_shape, p.ndim)), Sums(0), Sums(0), Sums(0)};
  for_each_product(
      Map(p, output_shape), p.groups, [&](std::int64_t out, std::int64_t in, std::int64_t at) {
        if (in < 0) return;
        const bool turned = p.op == ConvOperator::transpose;
        expected.output.add(turned ? in : out, input[static_cast<std::size_t>(turned ? out : in)],
                            weight[static_cast<std::size_t>(at)]);
      });
  for_each_output(p, output_shape, [&](std::int64_t channel, std::int64_t i) {
    if (p.has_bias) expected.output.add(i, operands.bias.get(channel), 1);
  });
  return expected;
}

Expected expected_backward(const ConvProblem& p, const std::int64_t* output_shape,
                           const Operands& operands) {
  const std::vector<double> grad = operand_values(operands.grad_output, p.rounding);
  const std::vector<double> input = operand_values(operands.input, p.rounding);
  const std::vector<double> weight = operand_values(operands.weight, p.rounding);
  Expected expected{Sums(0), Sums(element_count(p.input_shape, p.ndim)),
                    Sums(element_count(p.weight_shape, p.rank + 2)),
                    Sums(output_shape[p.ndim - p.rank - 1])};
  for_each_product(Map(p, output_shape), p.groups,
                   [&](std::int64_t out, std::int64_t in, std::int64_t at) {
                     const auto own = static_cast<std::size_t>(at);
                     const bool turned = is_transposed(p.op);
                     if (in < 0) return;
                     const std::int64_t grad_at = turned ? in : out, input_at = turned ? out : in;
                     const double g = grad[static_cast<std::size_t>(grad_at)];
                     expected.grad_input.add(input_at, g, weight[own]);
                     expected.grad_weight.add(at, g, input[static_cast<std::size_t>(input_at)]);
                   });
  for_each_output(p, output_shape, [&](std::int64_t channel, std::int64_t i) {
    expected.grad_bias.add(channel, grad[static_cast<std::size_t>(i)], 1);
  });
  return expected;
}

// ---- running -----------------------------------------------------------------------------------

struct Results {
  Tensor output, grad_input, grad_weight, grad_bias;
};

ConvTensors bound(const ConvProblem& p, const Operands& operands, const Results& results) {
  ConvTensors t;
  if (!is_backward(p.op)) {
    t.input = &operands.input.view;
    t.weight = &operands.weight.view;
    if (p.has_bias) t.bias = &operands.bias.view;
    t.output = &results.output.view;
    return t;
  }
  t.grad_output = &operands.grad_output.view;
  if (p.wants_weight) t.input = &operands.input.view;
  if (p.wants_input) t.weight = &operands.weight.view;
  if (p.wants_input) t.grad_input = &results.grad_input.view;
  if (p.wants_weight) t.grad_weight = &results.grad_weight.view;
  if (p.wants_bias) t.grad_bias = &results.grad_bias.view;
  return t;
}

bool is_untouched(const char* begin, std::size_t bytes) {
  return std::all_of(begin, begin + bytes,
                     [](char byte) { return static_cast<unsigned char>(byte) == kUntouched; });
}

// Runs with a workspace of exactly the size asked for, somebody else's bytes on both sides; it
// holds bytes of `held`, which are NaNs unless told otherwise. Gives all bytes of the results'
// memory.
std::string run_with_guards(Random& random, const ConvPlan& plan, const Operands& operands,
                            const Results& results, int threads, int held = 0xff) {
  constexpr std::size_t kGuard = 64;
  const Tensor* const all[] = {&results.output, &results.grad_input, &results.grad_weight,
                               &results.grad_bias};
  for (const Tensor* tensor : all) {
    std::memset(tensor->memory.data(), kUntouched, tensor->memory.size());
  }
  const std::size_t bytes = plan.workspace_bytes();
  const Memory memory(static_cast<std::int64_t>(bytes + 2 * kGuard), random.integer(0, 63));
  char* const workspace = memory.data() + kGuard;
  std::memset(workspace, held, bytes);
  const ConvTensors tensors = bound(plan.problem(), operands, results);
  plan.check_inputs(tensors);
  plan.check_results(tensors);
  plan.check_memory(tensors, workspace, bytes);
  plan.run(tensors, workspace, threads);
  CHECK(is_untouched(memory.data(), kGuard) && is_untouched(workspace + bytes, kGuard));
  std::string written;
  for (const Tensor* tensor : all) {
    check_gaps(*tensor);
    written.append(tensor->memory.data(), tensor->memory.size());
  }
  return written;
}

void check_result(const char* name, bool wanted, const Tensor& tensor, const Sums& expected) {
  if (!wanted) {
    CHECK(is_untouched(tensor.memory.data(), tensor.memory.size()));
    return;
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double got = tensor.get(static_cast<std::int64_t>(i));
    const auto value = static_cast<double>(expected.values[i]);
    const double tolerance =
        sum_tolerance(tensor.view.dtype, expected.terms[i], expected.magnitudes[i]);
    if (is_close(got, value, tolerance)) continue;
    if (++wrong > 1) continue;
    const std::string before = g_situation;
    const Situation here("%s element %zu of %s", name, i, before.c_str());
    CHECK_EQUAL(got, value);
  }
  CHECK_EQUAL(wrong, std::size_t{0});
}

void check_results(const ConvProblem& p, const Results& results, const Expected& expected) {
  if (!is_backward(p.op)) return check_result("output", true, results.output, expected.output);
  check_result("grad_input", p.wants_input, results.grad_input, expected.grad_input);
  check_result("grad_weight", p.wants_weight, results.grad_weight, expected.grad_weight);
  check_result("grad_bias", p.wants_bias, results.grad_bias, expected.grad_bias);
}

// ---- problems ----------------------------------------------------------------------------------

std::string problem_text(const ConvProblem& p) {
  const char* const names[] = {"conv ", "backward ", "transpose ", "transpose_backward "};
  return names[static_cast<int>(p.op)] + std::string(name_of(p.dtype)) + " input " +
         shape_text(p.input_shape, p.ndim) + " weight " + shape_text(p.weight_shape, p.rank + 2) +
         " stride " + shape_text(p.stride, p.rank) + " padding " +
         shape_text(p.padding_before, p.rank) + shape_text(p.padding_after, p.rank) + " dilation " +
         shape_text(p.dilation, p.rank) + " output padding " +
         shape_text(p.output_padding, p.rank) + " groups " + std::to_string(p.groups) +
         (p.has_bias ? " bias" : "") + " wants " + (p.wants_input ? "i" : "") +
         (p.wants_weight ? "w" : "") + (p.wants_bias ? "b" : "") + " rounding " +
         std::to_string(static_cast<int>(p.rounding));
}

void choose_axis(Random& random, ConvProblem& p, int axis, std::int64_t longest) {
  const std::int64_t in = random.integer(1, longest);
  const std::int64_t kernel = random.chance(0.3) ? 1 : random.integer(1, 5);
  p.input_shape[p.ndim - p.rank + axis] = in;
  p.weight_shape[2 + axis] = kernel;
  p.stride[axis] = random.chance(0.5) ? 1 : random.integer(1, 4);
  p.dilation[axis] = random.chance(0.7) ? 1 : random.integer(1, 3);
  const std::int64_t reach = (kernel - 1) * p.dilation[axis] + 1;
  p.padding_before[axis] = random.chance(0.3) ? 0 : random.integer(0, reach);
  p.padding_after[axis] = random.chance(0.5) ? p.padding_before[axis] : random.integer(0, reach);
  if (is_transposed(p.op)) {
    p.output_padding[axis] = random.integer(0, std::max(p.stride[axis], p.dilation[axis]) - 1);
    const std::int64_t padded = (in - 1) * p.stride[axis] + reach + p.output_padding[axis];
    p.padding_before[axis] = std::min(p.padding_before[axis], padded - 1);
    p.padding_after[axis] = std::min(p.padding_after[axis], padded - 1 - p.padding_before[axis]);
    return;
  }
  const std::int64_t missing = reach - in - p.padding_before[axis] - p.padding_after[axis];
  if (missing > 0) p.padding_after[axis] += missing;
}

void choose_channels(Random& random, ConvProblem& p) {
  const std::int64_t most = random.chance(0.3) ? 40 : 9;
  std::int64_t group_inputs = random.integer(1, most), group_outputs = random.integer(1, most);
  if (random.chance(0.5)) {
    p.groups = random.integer(2, 35);
    const bool is_depthwise = random.chance(0.5);
    group_inputs = is_depthwise ? 1 : random.integer(1, 4);
    group_outputs = is_depthwise ? random.integer(1, 2) : random.integer(1, 4);
    // Vectors hold whole groups of so many.
    if (random.chance(0.3)) group_inputs = group_outputs = std::int64_t{1} << random.integer(1, 3);
  } else if (random.chance(0.2)) {
    p.groups = 2;
    group_inputs = group_outputs = 16;  // fill the tiles of a matrix
  }
  // A transposed convolution's weight has its inputs first.
  p.input_shape[p.ndim - p.rank - 1] =
      p.groups * (is_transposed(p.op) ? group_outputs : group_inputs);
  p.weight_shape[0] = p.groups * group_outputs;
  p.weight_shape[1] = group_inputs;
}

ConvProblem random_problem(Random& random) {
  const std::int64_t longest[] = {0, 60, 14, 6};
  ConvProblem p;
  p.op = static_cast<ConvOperator>(random.integer(0, 3));
  p.has_bias = !is_backward(p.op) && random.chance(0.5);
  p.rank = static_cast<int>(random.integer(1, 3));
  p.dtype = kDTypes[random.integer(0, 3)];
  const bool is_batched = random.chance(0.8);
  p.ndim = p.rank + (is_batched ? 2 : 1);
  choose_channels(random, p);
  for (int axis = 0; axis < p.rank; ++axis) choose_axis(random, p, axis, longest[p.rank]);
  if (is_batched) p.input_shape[0] = random.chance(0.03) ? 0 : random.integer(1, 3);
  const std::int64_t wants = random.chance(0.5) ? 7 : random.integer(1, 7);
  p.wants_input = (wants & 1) != 0;
  p.wants_weight = (wants & 2) != 0;
  p.wants_bias = (wants & 4) != 0;
  if (p.dtype == DType::float32 && random.chance(0.3)) {
    p.rounding = static_cast<Rounding>(random.integer(1, 3));
  }
  return p;
}

double multiplications(const ConvProblem& p, const std::int64_t* output_shape) {
  const Map map(p, output_shape);
  return static_cast<double>(map.batch * map.outs) *
         static_cast<double>(element_count(p.weight_shape, p.rank + 2));
}

// This CPU, or a lesser one that it can play.
Cpu random_cpu(Random& random) {
  Cpu cpu = detected_cpu();
  if (random.chance(0.3)) cpu.capabilities = 0;
  if (random.chance(0.3)) {
    cpu.set(Capability::amx, false);
    cpu.set(Capability::avx512, false);
    cpu.set(Capability::avx512_bf16, false);
    cpu.set(Capability::wide_512, false);
  }
  const std::int64_t kilobytes[] = {64, 256, 1024, 2048};
  if (random.chance(0.5)) cpu.level2_bytes = kilobytes[random.integer(0, 3)] << 10;
  return cpu;
}

Tensor random_operand(Random& random, const ConvProblem& p, const std::int64_t* shape, int ndim) {
  const int rank = ndim > p.rank ? p.rank : 0;
  Tensor tensor = make_tensor(random, random_style(random, true), p.dtype, shape, ndim, rank);
  for (std::int64_t i = 0; i < element_count(shape, ndim); ++i) tensor.set(i, random.real());
  return tensor;
}

// A null name: whatever the plan chooses.
void force_engine(const char* name) {
  if (name == nullptr) {
    unsetenv("BACKOPS_ENGINE");
  } else {
    setenv("BACKOPS_ENGINE", name, 1);
  }
}

using Counts = std::map<std::string, int>;

void check_engine(Random& random, const ConvProblem& p, const Cpu& cpu, const Operands& operands,
                  const Results& results, const Expected& expected) {
  const ConvPlan plan(p, 5, false, cpu);
  const Situation here("%s, %s", plan.kernel().c_str(), problem_text(p).c_str());
  run_with_guards(random, plan, operands, results, 5);
  check_results(p, results, expected);
  std::string first;
  for (const int threads : {1, 2, 5}) {
    const ConvPlan same_bits(p, threads, true, cpu);
    const int held = threads == 2 ? 0 : 0xff;  // not a number
    const std::string bytes = run_with_guards(random, same_bits, operands, results, threads, held);
    if (threads == 1) {
      check_results(p, results, expected);
      first = bytes;
    }
    CHECK(bytes == first);
  }
}

void set_special(Random& random, const Tensor& tensor, double special) {
  const std::int64_t count = element_count(tensor.view.shape, tensor.view.ndim);
  if (special != 0 && count > 0) tensor.set(random.integer(0, count - 1), special);
}

void check_problem(Random& random, const ConvProblem& p, double special, Counts& runs) {
  const LegalConvProblem legal(p);
  const std::int64_t* const output_shape = legal.output_shape();
  const std::int64_t channels = legal.output_channels();
  const Operands operands{random_operand(random, p, output_shape, p.ndim),
                          random_operand(random, p, p.input_shape, p.ndim),
                          random_operand(random, p, p.weight_shape, p.rank + 2),
                          random_operand(random, p, &channels, 1)};
  const Tensor* const read[] = {&operands.input, &operands.weight, &operands.grad_output};
  set_special(random, *read[random.integer(0, is_backward(p.op) ? 2 : 1)], special);
  const auto result = [&](const std::int64_t* shape, int ndim, int rank) {
    return make_tensor(random, random_style(random, false), p.dtype, shape, ndim, rank);
  };
  const Results results{result(output_shape, p.ndim, p.rank), result(p.input_shape, p.ndim, p.rank),
                        result(p.weight_shape, p.rank + 2, p.rank), result(&channels, 1, 0)};
  const Expected expected = is_backward(p.op) ? expected_backward(p, output_shape, operands)
                                              : expected_forward(p, output_shape, operands);
  const Cpu cpu = random_cpu(random);
  force_engine(nullptr);
  check_engine(random, p, cpu, operands, results, expected);
  for (const EngineText& engine : engine_texts()) {
    force_engine(engine.name);
    try {
      check_engine(random, p, cpu, operands, results, expected);
      ++runs[engine.name];
    } catch (const Error& error) {
      const std::string refusal =
          std::string("BACKOPS_ENGINE is '") + engine.name + "', which does not take ";
      CHECK_EQUAL(std::string(error.what()).substr(0, refusal.size()), refusal);
    }
  }
}

void test_every_engine_follows_the_definition(std::uint64_t seed) {
  Random random(seed);
  const double infinity = std::numeric_limits<double>::infinity();
  const double specials[] = {0, 0, 0, 0, 0, 0, std::numeric_limits<double>::quiet_NaN(), infinity};
  Counts runs;
  int problems = 0;
  while (problems < 240) {
    const ConvProblem p = random_problem(random);
    const LegalConvProblem legal(p);
    const std::int64_t* const output_shape = legal.output_shape();
    // Every fourth has more work than one thread does alone; none more than plain loops can follow.
    const double work = multiplications(p, output_shape);
    if (work > 4e5 || (problems % 4 == 0 && work < 1e5)) continue;
    ++problems;
    check_problem(random, p, specials[random.integer(0, 7)], runs);
  }
  force_engine(nullptr);
  CHECK_EQUAL(runs["plain"], problems);
  const Cpu& cpu = detected_cpu();
  CHECK(runs["blocks"] > 150 && runs["lanes"] > 80);
  // Few channels fill short vectors.
  const int fewest = cpu.isa() == Isa::neon ? 2 : cpu.isa() == Isa::avx2 ? 4 : 5;
  CHECK(runs["folded"] > fewest && runs["rows"] > fewest);
  if (has_matrices(cpu) && cpu.isa() >= Isa::avx512) CHECK(runs["matrix"] > 7);
  if (has_pairs(cpu) && cpu.isa() >= Isa::avx512) CHECK(runs["pairs"] > 7);
  for (const auto& [name, count] : runs) std::printf("%s: %d problems\n", name.c_str(), count);
}

}  // namespace
}  // namespace backops

// Takes the seed of the problems: halves of them run at once.
int main(int argc, char** argv) {
  backops::test_every_engine_follows_the_definition(argc > 1 ? std::strtoull(argv[1], nullptr, 10)
                                                             : 51);
  return backops::test::finish();
}
