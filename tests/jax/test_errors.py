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
        "expected an int or a sequence of 1 or 2 ints",
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
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_raise_while_jax_traces(name):
    function, error, message = BAD[name]
    for call in (function, jax.jit(function), jax.grad(lambda x: function(x).sum())):
        with pytest.raises(error) as caught:
            call(X)
        assert str(caught.value) == message


def handler(name, shape, operands, attributes):
    arrays = {key: np.atleast_1d(np.asarray(value, np.int64)) for key, value in attributes.items()}
    function = jax.ffi.ffi_call(name, [jax.ShapeDtypeStruct(s, jnp.float32) for s in shape])
    return jax.block_until_ready(function(*operands, **arrays))


CONV = {"rank": 1, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
G = jnp.ones((1, 1, 3))


@pytest.mark.parametrize(
    ("name", "shapes", "operands", "attributes", "message"),
    [
        ("pool", [(1, 1, 9)], [G], {"rank": 1}, "adaptive is missing"),
        ("pool", [(1, 1, 9)], [G], {"rank": 4, "adaptive": 1}, "rank is 4, expected 1 to 3"),
        ("pool", [(1, 2, 9)], [G], {"rank": 1, "adaptive": 1}, "grad_output is"),
        ("pool", [(9,)], [G], {"rank": 1, "adaptive": 1}, "grad_input is of 1 axes"),
        ("pool", [(1, 1, 9)], [G.astype(int)], {"rank": 1, "adaptive": 1}, "grad_output is of XLA"),
        ("pool", [(1, 1, 9)], [], {"rank": 1, "adaptive": 1}, "grad_output is missing"),
        ("conv", [(1, 1, 3)], [G, G], {**CONV, "output_mask": (1, 0, 0)}, "grad_output is"),
        ("conv", [(1,)], [G], {**CONV, "output_mask": (0, 0, 1)}, "output_mask is without"),
        (
            "conv",
            [(2, 1, 1, 3)],
            [jnp.ones((3, 1, 1, 3)), jnp.ones((1, 1, 1, 1))],
            {**CONV, "output_mask": (1, 0, 0)},
            "grad_output is of other batch axes",
        ),
        (
            "conv",
            [(2, 1, 1, 3), (1, 1, 1, 1)],
            [jnp.ones((2, 1, 1, 3)), jnp.ones((2, 1, 1, 3)), jnp.ones((1, 1, 1, 1))],
            {**CONV, "output_mask": (1, 1, 0)},
            "result is of fewer batches",
        ),
    ],
)
def test_handlers_refuse_what_does_not_fit(name, shapes, operands, attributes, message):
    with pytest.raises(Exception, match=f"backops_{name}_backward: {message}"):
        handler(f"backops_{name}_backward", shapes, operands, attributes)


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
