#include "python/conv_run.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "python/arguments.h"
#include "python/without_gil.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

ConvResults make_gradients(nb::handle out, nb::handle like, const Array& source,
                           const LegalConvProblem& legal) {
  const ConvProblem& p = legal.problem();
  ConvResults all{{}, {p.wants_input, p.wants_weight, p.wants_bias}, true};
  const nb::object given = out.is_none() ? nb::make_tuple(nb::none(), nb::none(), nb::none())
                                         : three_of(out, "out", "arrays or None");
  const std::int64_t channels = legal.output_channels();
  const char* const names[] = {"{grad_input}", "{grad_weight}", "{grad_bias}"};
  const std::int64_t* const shapes[] = {p.input_shape, p.weight_shape, &channels};
  const int ndims[] = {p.ndim, p.rank + 2, 1};
  for (int i = 0; i < 3; ++i) {
    const nb::handle own = PyTuple_GET_ITEM(given.ptr(), i);
    if (!all.wanted[i] && !own.is_none()) {
      throw Error(ErrorKind::param, names[i], short_repr(own),
                  "expected None where {output_mask} is False");
    }
    if (!all.wanted[i]) continue;
    // Only activations are channels-last because grad_output is.
    const int rank = i == 0 ? p.rank : 0;
    all.results[i] = make_result(own, names[i], like, source, shapes[i], ndims[i], rank);
    if (!own.is_none()) check_writable(all.results[i].array, names[i]);
  }
  return all;
}

ConvResults make_output(nb::handle out, nb::handle like, const Array& source,
                        const LegalConvProblem& legal) {
  const ConvProblem& p = legal.problem();
  ConvResults all{{}, {true, false, false}, false};
  all.results[0] = make_result(out, "{output}", like, source, legal.output_shape(), p.ndim, p.rank);
  if (!out.is_none()) check_writable(all.results[0].array, "{output}");
  return all;
}

}  // namespace

ConvOperand read_operand(nb::handle value, const char* name, bool is_read) {
  ConvOperand operand;
  operand.is_read = is_read;
  if (!is_read) {
    operand.shape = shape_of(value, name);
    return operand;
  }
  operand.array = view_of(value, name);
  const TensorView& view = operand.array.view;
  operand.shape.ndim = view.ndim;
  std::copy(view.shape, view.shape + view.ndim, operand.shape.shape);
  operand.shape.dtype = name_of(view.dtype);
  return operand;
}

void ConvResults::announce() const {
  for (int i = 0; i < 3; ++i) {
    if (wanted[i]) results[i].announce();
  }
}

void ConvResults::set(ConvTensors& tensors, bool given_only) const {
  const auto view = [&](int i) -> const TensorView* {
    const bool is_set = wanted[i] && !(given_only && results[i].given.is_none());
    return is_set ? &results[i].view() : nullptr;
  };
  (is_backward ? tensors.grad_input : tensors.output) = view(0);
  tensors.grad_weight = view(1);
  tensors.grad_bias = view(2);
}

nb::object ConvResults::finish() const {
  if (!is_backward) return results[0].finish();
  nb::object finished[3];
  for (int i = 0; i < 3; ++i) finished[i] = wanted[i] ? results[i].finish() : nb::none();
  return nb::make_tuple(finished[0], finished[1], finished[2]);
}

ConvResults make_results(nb::handle out, nb::handle like, const Array& source,
                         const LegalConvProblem& legal) {
  return is_backward(legal.problem().op) ? make_gradients(out, like, source, legal)
                                         : make_output(out, like, source, legal);
}

nb::object run_conv(const ConvPlan& plan, const ConvTensors& operands, const ConvResults& results,
                    const Memory& workspace, const CallThreads& threads) {
  ConvTensors tensors = operands;
  results.set_given(tensors);
  plan.check_results(tensors);
  results.set_all(tensors);
  plan.check_memory(tensors, workspace.data, workspace.bytes);
  if (!threads.for_kernel) results.announce();
  {
    const WithoutGil released;
    const std::size_t bytes = plan.workspace_bytes();
    std::unique_ptr<char[]> temporary;
    char* memory = workspace.data;
    if (!memory && bytes <= kMostKeptBytes) memory = own_workspace(bytes);
    if (!memory) {
      temporary.reset(new char[bytes]);
      memory = temporary.get();
    }
    const OnTeam on_team(threads.team_or_null());
    plan.run(tensors, memory, threads.count);
  }
  return results.finish();
}

}  // namespace backops::python
