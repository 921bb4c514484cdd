// One run of a convolution: what it reads, where its results go, and the work.
#pragma once

#include <nanobind/nanobind.h>

#include "ops/conv/plan.h"
#include "python/arrays.h"
#include "python/results.h"
#include "python/settings.h"

namespace backops::python {

// An operand that is read, or of which only the shape is used.
struct ConvOperand {
  Array array{};
  bool is_read = false;
  ShapeOf shape{};

  const TensorView* view() const { return is_read ? &array.view : nullptr; }
};
ConvOperand read_operand(nanobind::handle value, const char* name, bool is_read);

// The results of one operator, and who gave them: three gradients, or one output.
struct ConvResults {
  Result results[3];
  bool wanted[3] = {};
  bool is_backward = false;

  void announce() const;
  // The caller's own, to be checked; then all of them.
  void set_given(ConvTensors& tensors) const { set(tensors, true); }
  void set_all(ConvTensors& tensors) const { set(tensors, false); }
  nanobind::object finish() const;

 private:
  void set(ConvTensors& tensors, bool given_only) const;
};

// `source` is the operand, known to Python as `like`, whose type and layout new results have.
ConvResults make_results(nanobind::handle out, nanobind::handle like, const Array& source,
                         const LegalConvProblem& legal);

// The operands have passed their checks. Gives what the caller is to get.
nanobind::object run_conv(const ConvPlan& plan, const ConvTensors& operands,
                          const ConvResults& results, const Memory& workspace,
                          const CallThreads& threads);

}  // namespace backops::python
