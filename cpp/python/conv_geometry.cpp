// What is known of a convolution without a plan, for those who call it by other ways.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "python/arguments.h"
#include "python/bindings.h"
#include "python/conv_problem.h"
#include "python/errors.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

// What "SAME" means: as many outputs as strides fit the input, and where the padding is odd, one
// more behind it.
void pad_same(ConvProblem& p) {
  if (p.ndim < p.rank) return;  // refused later
  for (int axis = 0; axis < p.rank; ++axis) {
    const std::int64_t in = p.input_shape[p.ndim - p.rank + axis];
    // What these two change is refused later.
    const std::int64_t stride = std::max<std::int64_t>(p.stride[axis], 1);
    const std::int64_t dilation = std::min(p.dilation[axis], std::int64_t{1} << 32);
    const std::int64_t last = (in - 1) / stride * stride;
    const std::int64_t reach = last + (p.weight_shape[2 + axis] - 1) * dilation + 1;
    const std::int64_t total = std::max<std::int64_t>(reach - in, 0);
    p.padding_before[axis] = total / 2;
    p.padding_after[axis] = total - total / 2;
  }
}

bool is_sequence(nb::handle value) {
  return PyTuple_Check(value.ptr()) || PyList_Check(value.ptr());
}

// "SAME", "VALID", or a sequence of pairs, before and after.
void set_padding(ConvProblem& p, nb::handle padding) {
  const auto refuse = [&] {
    const std::string rank = std::to_string(p.rank);
    throw Error(ErrorKind::param, "{padding}", short_repr(padding),
                std::string(is_transposed(p.op) ? "expected " : "expected 'SAME', 'VALID', ") +
                    "an int, " + rank + " ints or " + rank + " pairs of ints");
  };
  if (PyUnicode_Check(padding.ptr())) {
    const std::string text = nb::cast<std::string>(padding);
    if (is_transposed(p.op) || (text != "SAME" && text != "VALID")) refuse();
    if (text == "SAME") pad_same(p);
    return;
  }
  if (nb::len(padding) != static_cast<std::size_t>(p.rank)) refuse();
  for (int axis = 0; axis < p.rank; ++axis) {
    const nb::object pair = padding[axis];
    if (!is_sequence(pair) || nb::len(pair) != 2 || !as_int64(pair[0], &p.padding_before[axis]) ||
        !as_int64(pair[1], &p.padding_after[axis])) {
      refuse();
    }
  }
}

bool is_plain(nb::handle padding) {
  if (PyUnicode_Check(padding.ptr())) return false;
  return !is_sequence(padding) || nb::len(padding) == 0 || !is_sequence(nb::object(padding[0]));
}

// The input is called x. Only who can tell padding before from padding after may ask for
// `any_padding`.
nb::tuple conv_geometry(nb::handle input_shape, nb::handle weight_shape, nb::handle stride,
                        nb::handle padding, nb::handle dilation, nb::handle groups,
                        nb::handle dtype, const std::string& operator_name,
                        nb::handle output_padding, bool any_padding) {
  try {
    const nb::str keep("keep");
    const nb::int_ none(0);
    const bool plain = !any_padding || is_plain(padding);
    ConvProblem p = read_problem(
        read_operator(operator_name), dtype, input_shape, weight_shape,
        {stride, plain ? padding : nb::handle(none), output_padding, dilation, groups, keep});
    if (!plain) set_padding(p, padding);
    const LegalConvProblem legal(p);
    return nb::make_tuple(as_tuple(legal.output_shape(), p.ndim), as_tuple(p.stride, p.rank),
                          as_tuple(p.padding_before, p.rank), as_tuple(p.dilation, p.rank),
                          p.groups, as_tuple(p.output_padding, p.rank),
                          as_tuple(p.padding_after, p.rank));
  } catch (const Error& error) {
    raise_as_python(error, operator_name, forward_name);
  }
}

}  // namespace

void bind_conv_geometry(nb::module_& m) {
  using namespace nb::literals;
  m.def("conv_geometry", conv_geometry, "input_shape"_a.none(), "weight_shape"_a.none(),
        "stride"_a.none(), "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(),
        "dtype"_a.none(), "operator"_a = "conv", "output_padding"_a.none() = 0,
        "any_padding"_a = false);
}

}  // namespace backops::python
