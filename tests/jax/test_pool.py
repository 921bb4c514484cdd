"""Pooling of backops.jax against the definition, the reference and XLA's own derivatives."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import backops
import backops.jax
from tests.support.arrays import jax_x64
from tests.support.cases import per_axis
from tests.support.floats import DTYPES, round_to, same_bits
from tests.support.pool_cases import find_case, make_grad
from tests.support.pool_compare import assert_close
from tests.support.pool_definitions import forward

NAMES = (
    "toy",
    "empty_batch_2d",
    "kernel_equals_stride_2d_with_rest",
    "gaps_1d",
    "overlap_3d",
    "asymmetric_2d",
    "kernel_longer_than_axis_exclude_pad",
    "exclude_pad_2d",
    "divisor_exclude_pad_ceil",
    "ceil_mode_overhang_padded",
    "ceil_mode_drops_last_window_1d",
    "ceil_mode_one_axis_overhangs",
    "global_2d",
    "unbatched_3d",
    "unbatched_adaptive_2d",
    "adaptive_divides_2d",
    "adaptive_uneven_3d",
    "adaptive_upsampling_1d",
    "adaptive_one_below_input",
)


def pool(case, x):
    function = getattr(backops.jax, case.function.removesuffix("_backward"))
    if case.adaptive:
        return function(x, case.output_size)
    return function(x, *case.positional, **case.keywords)


def make_input(case, dtype):
    random = np.random.default_rng(len(case.name))
    values = random.standard_normal(case.input_shape)
    return round_to(values, dtype).astype(DTYPES[dtype])


def forward_and_gradient(case, x, grad):
    def both(x, grad):
        y, backward = jax.vjp(lambda x: pool(case, x), x)
        return y, backward(grad)[0]

    y, gradient = jax.jit(both)(x, grad)
    return np.asarray(y), np.asarray(gradient)


def check(case, dtype):
    x, grad = make_input(case, dtype), make_grad(case, dtype)
    y, gradient = forward_and_gradient(case, x, grad)
    assert_close(gradient, case, grad)
    exact = forward(case, x.astype(np.float64))
    size = forward(case, np.abs(x).astype(np.float64))
    eps = np.finfo(np.float64 if dtype == "float64" else np.float32).eps
    allowed = 64 * eps * size
    assert y.dtype == DTYPES[dtype]
    low, high = (round_to(exact + sign * allowed, dtype) for sign in (-1, 1))
    assert y.shape == exact.shape
    # One rounding: between what both ends of the float32 sum's error round to.
    assert ((low <= y.astype(np.float64)) & (y.astype(np.float64) <= high)).all()


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_that_of_the_definition(name):
    check(find_case(name), "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exclude_pad_2d", "adaptive_uneven_3d", "divisor_1d"])
def test_half_types_are_rounded_once(name, dtype):
    check(find_case(name), dtype)


@pytest.mark.parametrize("name", ["overlap_2d", "adaptive_uneven_2d"])
def test_float64_where_jax_has_it(name):
    with jax_x64():
        check(find_case(name), "float64")


def test_both_directions_are_those_of_numpy_operators_bit_by_bit():
    case = find_case("overlap_2d")
    grad = make_grad(case, "bfloat16")
    _, gradient = forward_and_gradient(case, make_input(case, "bfloat16"), grad)
    assert same_bits(gradient, case.backward(backops, grad))
    x = make_input(case, "bfloat16")
    y = backops.avg_pool2d(x, *case.positional, **case.keywords)
    assert same_bits(np.asarray(pool(case, x)), y)


def test_gradient_agrees_with_xla():
    def by_xla(x):
        sums = jax.lax.reduce_window(
            x, 0.0, jax.lax.add, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))
        )
        return (jnp.sin(sums / 9)).sum()

    x = make_input(find_case("overlap_2d"), "float32")
    ours = jax.grad(lambda x: jnp.sin(backops.jax.avg_pool2d(x, 3, 2, 1)).sum())(x)
    np.testing.assert_allclose(ours, jax.grad(by_xla)(x), rtol=1e-5, atol=1e-7)


def test_both_directions_are_computed_by_handlers():
    def f(x):
        return jnp.sin(backops.jax.adaptive_avg_pool1d(x, 3)).sum()

    def calls(function):
        text = jax.jit(function).lower(jnp.ones((1, 2, 7))).as_text()
        return re.findall(r"custom_call @backops_(\w+)", text)

    assert calls(f) == ["pool"]
    assert calls(jax.grad(f)) == ["pool", "pool_backward"]
    # Of a linear function the gradient needs no more than itself.
    assert calls(jax.grad(lambda x: backops.jax.avg_pool1d(x, 2).sum())) == ["pool_backward"]


@pytest.mark.parametrize("name", ["unbatched_2d", "unbatched_adaptive_1d"])
def test_vmap_over_any_axis_and_twice(name):
    case = find_case(name)

    def gradient(x):
        return jax.grad(lambda x: jnp.sin(pool(case, x)).sum())(x)

    random = np.random.default_rng(0)
    x = random.standard_normal((2, 3, *case.input_shape)).astype(np.float32)
    compiled = jax.jit(gradient)
    expected = np.stack([[compiled(one) for one in row] for row in x])
    twice = jax.jit(jax.vmap(jax.vmap(gradient)))(x)
    np.testing.assert_array_equal(twice, expected)
    moved = jax.vmap(gradient, in_axes=-1, out_axes=1)(np.moveaxis(x[1], 0, -1))
    np.testing.assert_array_equal(np.moveaxis(moved, 1, 0), expected[1])


@pytest.mark.parametrize("name", ["divisor_exclude_pad_ceil", "unbatched_adaptive_2d"])
def test_derivatives_of_derivatives(name):
    case = find_case(name)
    with jax_x64():
        x = jnp.asarray(make_input(case, "float64"))
        check_grads(jax.jit(lambda x: jnp.sin(pool(case, x))), (x,), order=2)


@pytest.mark.parametrize("name", ["ceil_mode_overhang_padded", "adaptive_uneven_1d"])
def test_linear_transpose_is_the_gradient(name):
    case = find_case(name)
    x, grad = make_input(case, "float32"), make_grad(case, "float32")
    back = jax.linear_transpose(lambda x: pool(case, x), x)
    assert same_bits(np.asarray(back(grad)[0]), case.backward(backops, grad))
    (again,) = jax.linear_transpose(lambda g: back(g)[0], grad)(x)
    assert same_bits(np.asarray(again), np.asarray(pool(case, x)))


def test_jacobians_in_both_directions_are_the_same():
    x = jnp.arange(12.0).reshape(1, 2, 6)

    def f(x):
        return backops.jax.avg_pool1d(x, 3, 2, 1)

    np.testing.assert_array_equal(jax.jacfwd(f)(x), jax.jacrev(f)(x))
    assert not np.any(jax.hessian(lambda x: f(x).sum())(x))


def test_integers_are_exact():
    case = find_case("kernel_equals_stride_2d_with_rest")
    x = np.random.default_rng(0).integers(-8, 9, case.input_shape).astype(np.float32)
    window = np.prod(per_axis(case.kernel_size, case.rank))
    sums = backops.jax.avg_pool2d(x, *case.positional, **{**case.keywords, "divisor_override": 1})
    np.testing.assert_array_equal(sums, np.round(forward(case, x.astype(np.float64)) * window))


def test_nan_reaches_exactly_its_windows():
    for name in ("adaptive_uneven_1d", "overlap_1d"):
        case = find_case(name)
        x = np.zeros(case.input_shape, np.float32)
        x[0, 0, 9] = np.nan
        y = np.asarray(pool(case, x))
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(np.isnan(y), np.isnan(forward(case, x)))


def test_output_size_none_keeps_the_axis():
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 6)
    y = backops.jax.adaptive_avg_pool2d(x, (None, 3))
    np.testing.assert_array_equal(y, x.reshape(1, 4, 3, 2).mean(-1))
    np.testing.assert_array_equal(backops.jax.adaptive_avg_pool2d(x, None), x)
