"""Bad arguments of backops.jax, and bad calls of its handlers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import backops
import backops.jax
from tests.support.processes import run_python

X = jnp.ones((2, 4, 8, 8))
W = jnp.ones((6, 4, 3, 3))

BAD = {
    "padding": (
        lambda x: backops.jax.avg_pool2d(x, 3, padding=2),
        backops.ParamError,
        "avg_pool2d: padding[0] is 2, expected 0 to 1 (half of kernel_size[0] = 3)",
    ),
    "axes": (
        lambda x: backops.jax.avg_pool3d(x[0], 3),
        backops.ShapeError,
        "avg_pool3d: x is (4, 8, 8), expected 4 or 5 axes",
    ),
    "kernel_size": (
        lambda x: backops.jax.avg_pool2d(x, (1, 2, 3)),
        backops.ParamError,
        "avg_pool2d: kernel_size is (1, 2, 3), expected an int or a sequence of 1 or 2 ints",
    ),
    "dtype": (
        lambda x: backops.jax.avg_pool2d(x.astype(jnp.int32), 3),
        backops.DTypeError,
        "avg_pool2d: x.dtype is 'int32', expected float16, bfloat16, float32 or float64",
    ),
    "output_size": (
        lambda x: backops.jax.adaptive_avg_pool2d(x, (3, 0)),
        backops.ParamError,
        "adaptive_avg_pool2d: output_size[1] is 0, expected a positive int",
    ),
    "output_size_length": (
        lambda x: backops.jax.adaptive_avg_pool2d(x, (3, None, 3)),
        backops.ParamError,
        "adaptive_avg_pool2d: output_size is (3, None, 3), "
        "expected an int or a sequence of 1 or 2 ints (or None, which keeps a size)",
    ),
    "channels": (
        lambda x: backops.jax.conv(x, W, groups=2),
        backops.ShapeError,
        "conv: weight is (6, 4, 3, 3), but x (2, 4, 8, 8) with groups = 2 has 2 channels per group",
    ),
    "weight_dtype": (
        lambda x: backops.jax.conv(x, W.astype(jnp.bfloat16)),
        backops.DTypeError,
        "conv: weight is bfloat16, expected float32 like x",
    ),
    "bias": (
        lambda x: backops.jax.conv(x, W, jnp.ones(4)),
        backops.ShapeError,
        "conv: bias is (4,), expected one element per output channel, (6,)",
    ),
    "dilation": (
        lambda x: backops.jax.conv(x, W, dilation=5),
        backops.ShapeError,
        "conv: weight is (6, 4, 3, 3), but 3 elements at dilation[0] = 5 reach over more than the "
        "padded x size 8",
    ),
    "conv_padding": (
        lambda x: backops.jax.conv(x, W, padding="same"),
        backops.ParamError,
        "conv: padding is 'same', expected 'SAME', 'VALID', an int, 2 ints or 2 pairs of ints",
    ),
    "pairs": (
        lambda x: backops.jax.conv(x, W, padding=[(1, 1), (1, 2, 3)]),
        backops.ParamError,
        "conv: padding is [(1, 1), (1, 2, 3)], expected 'SAME', 'VALID', an int, 2 ints or 2 pairs "
        "of ints",
    ),
    "negative_pair": (
        lambda x: backops.jax.conv(x, W, padding=[(1, 1), (0, -1)]),
        backops.ParamError,
        "conv: padding[1] is -1, expected 0 to 2**60",
    ),
    "same_stride": (
        lambda x: backops.jax.conv(x, W, padding="SAME", stride=0),
        backops.ParamError,
        "conv: stride[0] is 0, expected 1 to 2**60",
    ),
    "same_axes": (
        lambda x: backops.jax.conv(x[0, 0, 0], W, padding="SAME"),
        backops.ShapeError,
        "conv: x is (8,), expected 3 or 4 axes for weight (6, 4, 3, 3)",
    ),
    "same_dilation": (
        lambda x: backops.jax.conv(x, W, padding="SAME", dilation=2**40),
        backops.ShapeError,
        "conv: weight is (6, 4, 3, 3), but 3 elements at dilation[0] = 1099511627776 reach "
        "over more than the padded x size 8589934600",
    ),
    "transposed_padding": (
        lambda x: backops.jax.conv_transpose(x, W, padding="SAME"),
        backops.ParamError,
        "conv_transpose: padding is 'SAME', expected an int, 2 ints or 2 pairs of ints",
    ),
    "transposed_channels": (
        lambda x: backops.jax.conv_transpose(x, W),
        backops.ShapeError,
        "conv_transpose: weight is (6, 4, 3, 3), but x (2, 4, 8, 8) has 4 channels",
    ),
    "output_padding": (
        lambda x: backops.jax.conv_transpose(x, W[:4], stride=2, output_padding=2),
        backops.ParamError,
        "conv_transpose: output_padding[0] is 2, expected 0 to 1 (below stride[0] = 2 or "
        "dilation[0] = 1)",
    ),
    "transposed_bias": (
        lambda x: backops.jax.conv_transpose(x, W[:4], jnp.ones(6)),
        backops.ShapeError,
        "conv_transpose: bias is (6,), expected one element per output channel, (4,)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_raise_while_jax_traces(name):
    function, error, message = BAD[name]
    for call in (function, jax.jit(function), jax.grad(lambda x: function(x).sum())):
        with pytest.raises(error) as caught:
            call(X)
        assert str(caught.value) == message


CONV = {
    "rank": 1,
    "transposed": 0,
    "stride": 1,
    "padding_before": 0,
    "padding_after": 0,
    "output_padding": 0,
    "dilation": 1,
    "groups": 1,
}
POOL = {"rank": 1, "adaptive": 1}
G = jnp.ones((1, 1, 3))
W1 = jnp.ones((1, 1, 1))


@pytest.mark.parametrize(
    ("name", "shape", "operands", "attributes", "message"),
    [
        ("pool", (1, 1, 2), [G], {"rank": 1}, "adaptive is missing"),
        ("pool", (1, 2, 2), [G], POOL, "output is"),
        ("pool", (2,), [G], POOL, "output is of 1 axes"),
        ("pool", (1, 1, 2), [], POOL, "input is missing"),
        ("pool_backward", (1, 1, 9), [G], {**POOL, "rank": 4}, "rank is 4, expected 1 to 3"),
        ("pool_backward", (1, 2, 9), [G], POOL, "grad_output is"),
        ("pool_backward", (9,), [G], POOL, "grad_input is of 1 axes"),
        ("pool_backward", (1, 1, 9), [G.astype(int)], POOL, "grad_output is of XLA"),
        ("conv", (1, 1, 4), [G, W1], CONV, "output is"),
        ("conv", (1, 1, 3), [G], CONV, "weight is missing"),
        ("conv", (1, 1, 3), [G, W1, jnp.ones(2)], CONV, "bias is"),
        ("conv", (1, 1, 3), [G, W1], {**CONV, "groups": (1, 1)}, "groups is missing"),
        ("conv", (1, 1, 3), [G, W1.astype(jnp.float16)], CONV, "weight is float16"),
        ("conv_grad_input", (1, 1, 4), [G, W1], CONV, "grad_output is"),
        ("conv_grad_weight", (1, 1, 3), [G, G], CONV, "grad_output is"),
        (
            "conv_grad_input",
            (2, 1, 1, 3),
            [jnp.ones((3, 1, 1, 3)), W1[None]],
            CONV,
            "grad_output is of other batch axes",
        ),
        ("conv_grad_weight", (1, 1, 1, 1), [G[None], G], CONV, "input is of other batch axes"),
        ("channel_sums", (2,), [G], {"rank": 1}, "grad_bias is"),
    ],
)
def test_handlers_refuse_what_does_not_fit(name, shape, operands, attributes, message):
    arrays = {key: np.atleast_1d(np.asarray(value, np.int64)) for key, value in attributes.items()}
    function = jax.ffi.ffi_call(f"backops_{name}", jax.ShapeDtypeStruct(shape, jnp.float32))
    with pytest.raises(Exception, match=f"backops_{name}: {message}"):
        jax.block_until_ready(function(*operands, **arrays))


def test_without_jax_the_import_says_what_is_missing():
    code = """
import sys
sys.modules["jax"] = None
try:
    import backops.jax
except ImportError as error:
    print(error)
"""
    assert run_python(code).stdout.startswith("backops.jax needs JAX")
