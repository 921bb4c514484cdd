"""Convolution of backops.jax against the reference and XLA's own derivatives."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import backops.jax
from tests.support.arrays import jax_x64
from tests.support.conv_cases import ConvCase, find_conv_case, make_arrays
from tests.support.conv_compare import assert_close

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


def conv(case, x, weight, bias=None):
    return backops.jax.conv(x, weight, bias, **case.keywords)


def by_xla(case, x, weight, bias):
    """The same convolution, all of it XLA's."""
    whole = [value if isinstance(value, tuple) else (value,) * case.rank
             for value in (case.stride, case.padding, case.dilation)]  # fmt: skip
    x = x if case.batched else x[None]
    y = jax.lax.conv_general_dilated(
        x, weight, whole[0], [(p, p) for p in whole[1]], rhs_dilation=whole[2],
        feature_group_count=case.groups,
    )  # fmt: skip
    y += bias.reshape(-1, *(1,) * case.rank)
    return y if case.batched else y[0]


def make_bias(case, dtype="float32"):
    return jnp.linspace(-1, 1, case.weight_shape[0]).astype(dtype)


def check(case, dtype):
    grad_output, x, weight = make_arrays(case, dtype)
    bias = make_bias(case, dtype)

    def both(grad_output, *operands):
        y, backward = jax.vjp(lambda *operands: conv(case, *operands), *operands)
        return y, backward(grad_output)

    y, gradients = jax.jit(both)(grad_output, x, weight, bias)
    assert_close(tuple(map(np.asarray, gradients)), case, (grad_output, x, weight))
    wide = "float64" if dtype == "float64" else "float32"
    exact = by_xla(case, *(jnp.asarray(a).astype(wide) for a in (x, weight, bias)))
    assert y.dtype == dtype
    # One rounding of a sum whose order may differ.
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(
        np.asarray(y, np.float64), np.asarray(exact, np.float64), rtol=eps, atol=3e-5
    )


@pytest.mark.parametrize("name", NAMES)
def test_float32_gradients_are_those_of_the_reference(name):
    check(find_conv_case(name), "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["plain_2d", "depthwise_1d"])
def test_half_types_are_rounded_once(name, dtype):
    check(find_conv_case(name), dtype)


def test_float64_where_jax_has_it():
    with jax_x64():
        check(find_conv_case("toy"), "float64")


# Which gradients are computed


def masks(function, *operands):
    """The output_mask of every backward call in a compiled function."""
    text = jax.jit(function).lower(*operands).as_text()
    found = re.findall(r"backops_conv_backward.*?output_mask = dense<\[?([01, ]+)\]?>", text)
    return ["1, 1, 1" if mask == "1" else mask for mask in found]  # a short form


def test_only_what_is_asked_for_is_computed():
    case = find_conv_case("toy")
    _, x, weight = make_arrays(case)
    bias = make_bias(case)

    def loss(x, weight, bias):
        return jnp.sin(conv(case, x, weight, bias)).sum()

    assert masks(loss, x, weight, bias) == []
    for argnums, mask in (
        ((0, 1, 2), ["1, 1, 1"]),
        ((1, 2), ["0, 1, 1"]),
        (0, ["1, 0, 0"]),
        (1, ["0, 1, 0"]),
        (2, []),  # a plain sum
    ):
        assert masks(jax.grad(loss, argnums), x, weight, bias) == mask, argnums
        ours = jax.jit(jax.grad(loss, argnums))(x, weight, bias)
        theirs = jax.jit(jax.grad(lambda *a: jnp.sin(by_xla(case, *a)).sum(), argnums))
        theirs = theirs(x, weight, bias)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
                     ours, theirs)  # fmt: skip


# vmap

BATCHED = ConvCase("batched", (2, 4, 6, 7), (6, 2, 3, 3), 2, 1, 1, 2)


@pytest.mark.parametrize(
    "in_axes",
    [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, None), (0, None, 0), (1, 2, 0)],
)
def test_vmap_over_each_argument(in_axes):
    random = np.random.default_rng(1)
    shapes = (BATCHED.input_shape, BATCHED.weight_shape, (6,))
    operands = [
        random.standard_normal(shape if axis is None else (*shape[:axis], 3, *shape[axis:])).astype(
            np.float32
        )
        for shape, axis in zip(shapes, in_axes, strict=True)
    ]

    def gradients(function):
        def loss(*operands):
            return jnp.sin(function(BATCHED, *operands)).sum()

        return jax.grad(loss, (0, 1, 2))

    def total(function):
        def loss(*operands):
            return jnp.sin(jax.vmap(lambda *a: function(BATCHED, *a), in_axes)(*operands)).sum()

        return jax.grad(loss, (0, 1, 2))

    def close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)

    each = jax.jit(jax.vmap(gradients(conv), in_axes))(*operands)
    jax.tree.map(close, each, jax.jit(jax.vmap(gradients(by_xla), in_axes))(*operands))
    summed = jax.jit(total(conv))(*operands)
    jax.tree.map(close, summed, jax.jit(total(by_xla))(*operands))


def test_vmap_of_a_model_is_one_convolution():
    """A weight gradient per example, summed afterwards, would be as large as N weights."""
    case = find_conv_case("unbatched_2d")
    x = jnp.ones((5, *case.input_shape))
    weight = jnp.ones(case.weight_shape)

    def loss(weight):
        return jax.vmap(lambda x: conv(case, x, weight))(x).sum()

    text = jax.jit(jax.grad(loss)).lower(weight).as_text()
    (call,) = re.findall(r"backops_conv_backward.*->.*", text)
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


# More than one derivative


@pytest.mark.parametrize("argnums", [(0, 1, 2), (0,), (1,)])
def test_gradients_of_gradients(argnums):
    case = ConvCase("small", (1, 2, 5), (4, 1, 2), 2, 1, 1, 2)
    with jax_x64():
        _, *operands = make_arrays(case, "float64")
        operands.append(np.asarray(make_bias(case, "float64")))

        def f(*some):
            all_of_them = list(operands)
            for i, value in zip(argnums, some, strict=True):
                all_of_them[i] = value
            return jnp.sin(conv(case, *all_of_them))

        check_grads(jax.jit(f), tuple(operands[i] for i in argnums), order=2, modes=["rev"])


def test_gradient_penalty_agrees_with_xla():
    case = find_conv_case("groups_1d")
    _, x, weight = make_arrays(case)
    bias = make_bias(case)

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


def test_forward_mode_is_refused_by_jax():
    case = find_conv_case("plain_1d")
    _, x, weight = make_arrays(case)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda x: conv(case, x, weight), (x,), (x,))
