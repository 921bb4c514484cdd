"""Convolutions of backops.jax against the reference and XLA's own operators and derivatives."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import backops
import backops.jax
from tests.support.arrays import jax_x64, quickly_compiled
from tests.support.cases import per_axis
from tests.support.conv_cases import (
    TRANSPOSED_CASES,
    ConvCase,
    find_conv_case,
    make_arrays,
    reading_id,
    readings,
)
from tests.support.conv_compare import assert_close, assert_exact
from tests.support.floats import same_bits

_quickly_compiled = pytest.fixture(autouse=True, scope="module")(quickly_compiled)

FORWARD = ("conv", "conv_transpose")
NAMES = (
    "empty_batch",
    "plain_1d",
    "plain_3d",
    "unbatched_2d",
    "groups_1d",
    "depthwise_2d",
    "depthwise_3d",
    "depthwise_dilated",
    "depthwise_multiplier",
    "stride_and_dilation",
    "asymmetric_groups",
)
CASES = readings([*map(find_conv_case, NAMES), *TRANSPOSED_CASES], FORWARD)


def conv(case, x, weight, bias=None):
    return getattr(backops.jax, case.operator)(x, weight, bias, **case.keywords)


def by_xla(case, x, weight, bias=None):
    """The same convolution, all of it XLA's."""
    stride, padding, dilation = (
        per_axis(value, case.rank) for value in (case.stride, case.padding, case.dilation)
    )
    if case.is_transposed:
        first, second, *kernel = weight.shape
        groups = case.groups
        # Each group's inputs and outputs in each other's places, and the kernel backwards.
        weight = weight.reshape(groups, first // groups, second, *kernel).swapaxes(1, 2)
        weight = weight.reshape(groups * second, first // groups, *kernel)
        weight = jnp.flip(weight, tuple(range(2, weight.ndim)))
        reach = [d * (k - 1) - p for k, d, p in zip(kernel, dilation, padding, strict=True)]
        ends = [(r, r + more) for r, more in zip(reach, case.output_padding, strict=True)]
        windows = {"window_strides": (1,) * case.rank, "padding": ends, "lhs_dilation": stride}
    else:
        windows = {"window_strides": stride, "padding": [(p, p) for p in padding]}
    y = jax.lax.conv_general_dilated(
        x if case.batched else x[None], weight, **windows, rhs_dilation=dilation,
        feature_group_count=case.groups,
    )  # fmt: skip
    if bias is not None:
        y += bias.reshape(-1, *(1,) * case.rank)
    return y if case.batched else y[0]


def forward_and_gradients(case, grad_output, *operands):
    def both(grad_output, *operands):
        y, backward = jax.vjp(lambda *operands: conv(case, *operands), *operands)
        return y, backward(grad_output)

    y, gradients = jax.jit(both)(grad_output, *operands)
    return np.asarray(y), tuple(map(np.asarray, gradients))


def check(case, dtype, kind="normal", assert_right=assert_close):
    operands = make_arrays(case, dtype, kind=kind)
    backward = case.read_as(f"{case.operator}_backward")
    grad_output, *_ = make_arrays(backward, dtype, 1, kind)
    y, gradients = forward_and_gradients(case, grad_output, *operands)
    assert_right((y,), case, operands)
    assert_right(gradients, backward, (grad_output, *operands[:2]))


@pytest.mark.parametrize("case", CASES, ids=reading_id)
def test_float32_is_that_of_the_reference(case):
    check(case, "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", FORWARD)
@pytest.mark.parametrize("name", ["plain_2d", "depthwise_1d"])
def test_half_types_are_rounded_once(name, operator, dtype):
    check(find_conv_case(name).read_as(operator), dtype)


@pytest.mark.parametrize("operator", FORWARD)
def test_float64_where_jax_has_it(operator):
    with jax_x64():
        check(find_conv_case("toy").read_as(operator), "float64")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("operator", FORWARD)
@pytest.mark.parametrize("name", ["stride_and_dilation", "asymmetric_groups"])
def test_integers_are_exact(name, operator, dtype):
    check(find_conv_case(name).read_as(operator), dtype, "integer", assert_exact)


@pytest.mark.parametrize("operator", FORWARD)
def test_bits_are_those_of_the_numpy_operators(operator):
    case = find_conv_case("plain_2d").read_as(operator)
    backward = case.read_as(f"{operator}_backward")
    x, weight, bias = make_arrays(case, "bfloat16")
    grad_output, *_ = make_arrays(backward, "bfloat16", 1)
    y, gradients = forward_and_gradients(case, grad_output, x, weight, bias)
    assert same_bits(y, case.call(backops, x, weight, bias)[0])
    for i, gradient in enumerate(gradients):
        mask = [i == k for k in range(3)]
        expected = backward.call(backops, grad_output, x, weight, output_mask=mask)
        assert same_bits(gradient, expected[i]), i


# Padding


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(2, 0), (1, 3)]], ids=str)
@pytest.mark.parametrize("stride", [1, 2, (3, 1)])
def test_padding_is_that_of_lax(padding, stride):
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 4, 9, 8)).astype(np.float32)
    weight = random.standard_normal((6, 2, 4, 3)).astype(np.float32)
    strides = per_axis(stride, 2)

    def ours(x, weight):
        return backops.jax.conv(
            x, weight, stride=stride, padding=padding, dilation=(1, 2), groups=2
        )

    def theirs(x, weight):
        return jax.lax.conv_general_dilated(
            x, weight, strides, padding, rhs_dilation=(1, 2), feature_group_count=2
        )

    close(ours(x, weight), theirs(x, weight))
    gradients = (jax.grad(lambda *a, f=f: jnp.sin(f(*a)).sum(), (0, 1)) for f in (ours, theirs))
    close_trees(*(jax.jit(gradient)(x, weight) for gradient in gradients))


def test_pairs_cut_off_a_transposed_convolution():
    x, weight = jnp.arange(3.0).reshape(1, 3), jnp.array([[[1.0, 10.0]]])
    whole = backops.jax.conv_transpose(x, weight, stride=2)
    part = backops.jax.conv_transpose(x, weight, stride=2, padding=[(1, 2)])
    np.testing.assert_array_equal(part, whole[:, 1:-2])


# Which products are computed


def calls(function, *operands):
    """The handlers that a compiled function calls."""
    text = jax.jit(function).lower(*operands).as_text()
    return sorted(re.findall(r"custom_call @backops_(\w+)", text))


def test_only_what_is_asked_for_is_computed():
    case = find_conv_case("toy").read_as("conv")
    operands = make_arrays(case)

    def loss(*operands):
        return jnp.sin(conv(case, *operands)).sum()

    assert calls(loss, *operands) == ["conv"]
    products = ("conv_grad_input", "conv_grad_weight", "channel_sums")
    for argnums in ((0, 1, 2), (1, 2), (0,), (1,), (2,)):
        wanted = sorted(["conv", *(products[i] for i in argnums)])
        assert calls(jax.grad(loss, argnums), *operands) == wanted, argnums
        ours = jax.jit(jax.grad(loss, argnums))(*operands)
        theirs = jax.grad(lambda *a: jnp.sin(by_xla(case, *a)).sum(), argnums)
        close_trees(ours, jax.jit(theirs)(*operands))


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def close_trees(a, b):
    jax.tree.map(close, a, b)


# vmap

BATCHED = ConvCase("batched", (2, 4, 6, 7), (6, 2, 3, 3), 2, 1, 1, 2)


@pytest.mark.parametrize("operator", FORWARD)
@pytest.mark.parametrize(
    "in_axes",
    [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, None), (0, None, 0), (1, 2, 0)],
)
def test_vmap_over_each_argument(in_axes, operator):
    case = BATCHED.read_as(operator)
    random = np.random.default_rng(1)
    operands = [
        random.standard_normal(shape if axis is None else (*shape[:axis], 3, *shape[axis:])).astype(
            np.float32
        )
        for shape, axis in zip(case.operand_shapes.values(), in_axes, strict=True)
    ]

    def mapped(function):
        return jax.vmap(lambda *a: function(case, *a), in_axes)

    def gradients(function):
        return jax.grad(lambda *a: jnp.sin(function(case, *a)).sum(), (0, 1, 2))

    def total(function):
        return jax.grad(lambda *a: jnp.sin(mapped(function)(*a)).sum(), (0, 1, 2))

    def all_of(function):
        """In one, because most of the time goes into compiling."""
        return lambda *a: (
            mapped(function)(*a),
            jax.vmap(gradients(function), in_axes)(*a),
            total(function)(*a),
            jax.jvp(mapped(function), a, a),
        )

    close_trees(*(jax.jit(all_of(f))(*operands) for f in (conv, by_xla)))


def test_vmap_of_a_model_is_one_convolution():
    """A weight gradient per example, summed afterwards, would be as large as N weights."""
    case = find_conv_case("unbatched_2d").read_as("conv")
    x = jnp.ones((5, *case.input_shape))
    weight = jnp.ones(case.weight_shape)

    def loss(weight):
        return jax.vmap(lambda x: conv(case, x, weight))(x).sum()

    text = jax.jit(jax.grad(loss)).lower(weight).as_text()
    (call,) = re.findall(r"@backops_conv_grad_weight.*->.*", text)
    assert call.endswith("-> tensor<4x3x3x3xf32>")


def test_nested_vmap_with_different_arguments():
    random = np.random.default_rng(2)
    x = random.standard_normal((3, 1, 2, 7)).astype(np.float32)
    weight = random.standard_normal((4, 3, 2, 3)).astype(np.float32)

    def gradients(function):
        def one(x, weight):
            return jax.grad(lambda *a: jnp.sin(function(*a)).sum(), (0, 1))(x, weight)

        return jax.jit(jax.vmap(jax.vmap(one, (0, None)), (None, 0)))(x, weight)

    def plain(x, weight):
        return jax.lax.conv_general_dilated(x, weight, (1,), [(0, 0)])

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        gradients(backops.jax.conv),
        gradients(plain),
    )


def test_vmap_over_nothing():
    weight = jnp.ones((0, 4, 2, 3))
    gradient = jax.vmap(jax.grad(lambda w: backops.jax.conv(jnp.ones((1, 2, 7)), w).sum()))
    assert jax.jit(gradient)(weight).shape == weight.shape


# More than one derivative, and the other direction

SMALL = ConvCase("small", (1, 2, 5), (4, 1, 2), 2, 1, 1, 2)
# Fewer outputs than windows.
ODD = ConvCase("odd", (1, 2, 8), (4, 1, 2), 2, 1, 3, 2, 1)


def derivatives_of_derivatives():
    """Of all arguments together; of the small case, also of each alone."""
    return [
        pytest.param(case, argnums, id=f"{reading_id(case)}-{argnums}")
        for case in readings([SMALL, ODD], FORWARD)
        for argnums in [(0, 1, 2), (0,), (1,), (2,)][: 1 if case.fewer else None]
    ]


@pytest.mark.parametrize(("case", "argnums"), derivatives_of_derivatives())
def test_derivatives_of_derivatives(case, argnums):
    with jax_x64():
        operands = make_arrays(case, "float64")

        def f(*some):
            all_of_them = list(operands)
            for i, value in zip(argnums, some, strict=True):
                all_of_them[i] = value
            return jnp.sin(conv(case, *all_of_them))

        check_grads(jax.jit(f), tuple(operands[i] for i in argnums), order=2)


@pytest.mark.parametrize("operator", FORWARD)
def test_gradient_penalty_agrees_with_xla(operator):
    case = find_conv_case("groups_1d").read_as(operator)
    x, weight, bias = make_arrays(case)

    def penalty(function):
        def loss(weight, bias):
            y, backward = jax.vjp(lambda x: jnp.sin(function(case, x, weight, bias)), x)
            return (backward(jnp.ones_like(y))[0] ** 2).mean()

        return jax.jit(jax.grad(loss, (0, 1)))(weight, bias)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
        penalty(conv),
        penalty(by_xla),
    )


@pytest.mark.parametrize("case", readings([SMALL], FORWARD), ids=reading_id)
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.jacfwd(f, (0, 1, 2)),
        lambda f: jax.jacrev(f, (0, 1, 2)),
        lambda f: jax.hessian(lambda *a: jnp.sin(f(*a)).sum(), (0, 1, 2)),
        lambda f: lambda *a: jax.linearize(f, *a)[1](*a),
    ],
    ids=["jacfwd", "jacrev", "hessian", "linearize"],
)
def test_transforms_agree_with_xla(transform, case):
    operands = make_arrays(case)
    close_trees(
        *(jax.jit(transform(lambda *a, f=f: f(case, *a)))(*operands) for f in (conv, by_xla))
    )


@pytest.mark.parametrize("case", readings([SMALL, ODD], FORWARD), ids=reading_id)
def test_linear_transpose_is_the_gradient(case):
    backward = case.read_as(f"{case.operator}_backward")
    grad_output, x, weight = make_arrays(backward, kind="integer")
    to_x = jax.linear_transpose(lambda x: conv(case, x, weight), x)
    to_weight = jax.linear_transpose(lambda weight: conv(case, x, weight), weight)
    gradients = [np.asarray(to(grad_output)[0]) for to in (to_x, to_weight)]
    more = {"output_mask": (True, True, False)}
    assert_exact((*gradients, None), backward, (grad_output, x, weight), **more)
    # And back again.
    (y,) = jax.linear_transpose(lambda g: to_x(g)[0], grad_output)(x)
    np.testing.assert_array_equal(y, conv(case, x, weight))


def test_nan_reaches_exactly_what_it_should():
    case = find_conv_case("plain_1d").read_as("conv")
    x, weight, _ = make_arrays(case)
    x = x.copy()
    x[0, 0, 3] = np.nan
    assert_close((np.asarray(conv(case, x, weight)),), case, (x, weight))
