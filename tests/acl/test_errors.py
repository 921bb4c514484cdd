"""The error table of the documents, row by row, on every product.

Arguments in, code and message out.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import numpy as np
import pytest

from backops import acl
from backops.acl import Status
from tests.support.acl import PRODUCTS, DataType, DeviceMemory, Format, Spec, initialised, int_array
from tests.support.acl_calls import (
    ALL,
    BF16,
    FLOAT,
    HALF,
    HALF_PRODUCTS,
    INVALID,
    NOT_FOUND,
    NULL,
    WITH_POOL,
    Call,
    adaptive2d,
    adaptive3d,
    check_rows,
    conv,
    global_of,
    one,
    pool2d,
    pool3d,
    reshaped,
    with_all,
)

# Operator, products, what is changed, code, and the message after "<function>: ".
ROWS = [
    # NULL, before anything else is looked at
    *[
        (call, products, {name: None, **worse}, NULL, f"{name} is NULL, expected a pointer")
        for call, products, names, worse in (
            (pool2d, ALL, (*pool2d.tensors, "kernelSize", "padding"), {"cubeMathType": 9}),
            (pool3d, ALL, (*pool3d.tensors, "kernelSize", "padding"), {}),
            (adaptive3d, ALL, adaptive3d.tensors, {}),
            (adaptive2d, ALL, adaptive2d.tensors, {}),
            (conv, ALL, (*conv.tensors, "stride", "padding", "dilation", "outputMask"), {}),
        )
        for name in names
    ],
    # products
    (pool2d, ("200I",), {}, NOT_FOUND, "the product is Atlas 200I/500 A2, expected one that has"),
    *[
        (
            call,
            HALF_PRODUCTS,
            with_all(call, dtype=BF16),
            INVALID,
            "is BF16, expected FLOAT or FLOA",
        )
        for call in (pool2d, pool3d, adaptive3d, adaptive2d, conv)
    ],
    # dtypes
    *[
        (
            call,
            WITH_POOL if call is pool2d else ALL,
            with_all(call, dtype=dtype),
            INVALID,
            f"is {name}, expected FLOAT",
        )
        for call in (pool2d, pool3d, adaptive3d, adaptive2d, conv)
        for dtype, name in (
            (DataType.DOUBLE, "DOUBLE"),
            (DataType.INT32, "INT32"),
            (DataType.FLOAT8_E4M3FN, "FLOAT8_E4M3FN"),
            (99, "99"),
        )
    ],
    (
        pool2d,
        WITH_POOL,
        one(pool2d, "gradInput", dtype=FLOAT),
        INVALID,
        "the dtype of gradInput is FLOAT, expected that of self, FLOAT16",
    ),
    (
        pool2d,
        WITH_POOL,
        one(pool2d, "gradOutput", dtype=FLOAT),
        INVALID,
        "the dtype of gradOutput is FLOAT, expected that of self, FLOAT16",
    ),
    (
        adaptive3d,
        ALL,
        one(adaptive3d, "out", dtype=HALF),
        INVALID,
        "the dtype of out is FLOAT16, expected that of self, FLOAT",
    ),
    (
        conv,
        ALL,
        one(conv, "weight", dtype=FLOAT),
        INVALID,
        "the dtype of weight is FLOAT, expected that of input, FLOAT16",
    ),
    # formats
    (
        pool2d,
        WITH_POOL,
        with_all(pool2d, format=Format.ND),
        INVALID,
        "the format of gradOutput is ND, expected NCHW for 4 axes",
    ),
    (pool2d, WITH_POOL, with_all(pool2d, format=Format.NHWC), INVALID, "is NHWC, expected NCHW"),
    (pool2d, WITH_POOL, with_all(pool2d, format=Format.NCL), INVALID, "is NCL, expected NCHW"),
    (
        pool2d,
        WITH_POOL,
        reshaped(pool2d, gradOutput=(3, 4, 4), self=(3, 8, 8), gradInput=(3, 8, 8))
        | {"gradInput": Spec((3, 8, 8), HALF, Format.NCL)},
        INVALID,
        "the format of gradInput is NCL, expected that of self, NCHW",
    ),
    (
        pool2d,
        WITH_POOL,
        reshaped(pool2d, self=(3, 8, 8), gradInput=(3, 8, 8))
        | {"gradOutput": Spec((3, 4, 4), HALF, Format.ND)},
        INVALID,
        "the format of gradOutput is ND, expected NCHW or NCL for 3 axes",
    ),
    (
        adaptive3d,
        ALL,
        with_all(adaptive3d, format=Format.NCHW),
        INVALID,
        "the format of gradOutput is NCHW, expected NCDHW or ND for 5 axes",
    ),
    (
        adaptive3d,
        ALL,
        one(adaptive3d, "gradOutput", format=Format.ND),
        INVALID,
        "the format of gradOutput is ND, expected that of self, NCDHW",
    ),
    (adaptive2d, ALL, with_all(adaptive2d, format=Format.NC1HWC0), INVALID, "is NC1HWC0, expected"),
    (
        adaptive2d,
        ALL,
        one(adaptive2d, "gradOutput", format=Format.NHWC),
        INVALID,
        "the format of gradOutput is NHWC, expected that of self, NCHW",
    ),
    (conv, ALL, one(conv, "input", format=Format.NHWC), INVALID, "the format of input is NHWC"),
    # axes
    *[
        (
            pool2d,
            WITH_POOL,
            one(pool2d, name, shape=shape),
            INVALID,
            f"{name} is a tensor of {len(shape)} axes, expected 3 or 4",
        )
        for name in pool2d.tensors
        for shape in ((8, 8), (1, 2, 3, 8, 8))
    ],
    (
        pool2d,
        WITH_POOL,
        one(pool2d, "gradOutput", shape=(3, 4, 4)),
        INVALID,
        "gradOutput is a tensor of 3 axes, expected as many as self, 4",
    ),
    (pool2d, WITH_POOL, one(pool2d, "self", shape=(1,) * 9), INVALID, "self is a tensor of 9 axes"),
    *[
        (
            adaptive3d,
            ALL,
            one(adaptive3d, name, shape=(8, 8, 8)),
            INVALID,
            f"{name} is a tensor of 3 axes, expected 4 or 5",
        )
        for name in adaptive3d.tensors
    ],
    (
        adaptive3d,
        ALL,
        one(adaptive3d, "out", shape=(3, 8, 8, 8)),
        INVALID,
        "out is a tensor of 4 axes, expected as many as self, 5",
    ),
    (adaptive2d, ALL, one(adaptive2d, "self", shape=(8, 8)), INVALID, "self is a tensor of 2 axes"),
    (
        conv,
        ALL,
        one(conv, "weight", shape=(4, 3)),
        INVALID,
        "weight is (4, 3), expected 3 to 5 axes",
    ),
    (conv, ALL, one(conv, "input", shape=(8, 8)), INVALID, "input is (8, 8), expected 3 or 4 axes"),
    # sizes
    *[
        (
            call,
            WITH_POOL,
            one(call, name, shape=(*call.arguments[name].shape[:-1], size)),
            INVALID,
            f"{name} is ({', '.join(map(str, call.arguments[name].shape[:-1]))}, {size}), "
            "expected sizes from 1",
        )
        for call in (pool2d, adaptive3d)
        for name in call.tensors
        for size in (0, -1)
    ],
    (
        pool2d,
        WITH_POOL,
        one(pool2d, "self", shape=(1 << 40, 1 << 40, 8, 8)),
        INVALID,
        "expected at most 2**47 bytes",
    ),
    (
        pool2d,
        WITH_POOL,
        one(pool2d, "gradOutput", shape=(2, 3, 4, 5)),
        INVALID,
        "gradOutput is (2, 3, 4, 5), but self (2, 3, 8, 8) with kernelSize (2, 2), stride (2, 2), "
        "padding (0, 0) pools to (2, 3, 4, 4)",
    ),
    (pool2d, WITH_POOL, one(pool2d, "gradOutput", shape=(1, 3, 4, 4)), INVALID, "pools to (2, 3"),
    (
        pool2d,
        WITH_POOL,
        one(pool2d, "gradInput", shape=(2, 3, 8, 9)),
        INVALID,
        "gradInput is (2, 3, 8, 9), expected the shape of self, (2, 3, 8, 8)",
    ),
    (
        pool3d,
        ALL,
        one(pool3d, "output", shape=(2, 3, 8, 8, 9)),
        INVALID,
        "output is (2, 3, 8, 8, 9), expected the shape of self, (2, 3, 8, 8, 8)",
    ),
    (
        adaptive3d,
        ALL,
        one(adaptive3d, "out", shape=(2, 3, 8, 8, 9)),
        INVALID,
        "out is (2, 3, 8, 8, 9), expected the shape of self, (2, 3, 8, 8, 8)",
    ),
    (
        adaptive3d,
        ALL,
        one(adaptive3d, "gradOutput", shape=(2, 4, 2, 3, 4)),
        INVALID,
        "gradOutput is (2, 4, 2, 3, 4), but self (2, 3, 8, 8, 8) pools to (2, 3, 2, 3, 4)",
    ),
    (adaptive2d, ALL, one(adaptive2d, "gradOutput", shape=(1, 3, 3, 4)), INVALID, "pools to (2, 3"),
    (
        conv,
        ALL,
        one(conv, "gradWeight", shape=(4, 3, 3, 2)),
        INVALID,
        "gradWeight is (4, 3, 3, 2), expected that of weight, (4, 3, 3, 3)",
    ),
    (conv, ALL, one(conv, "gradOutput", shape=(2, 4, 8, 7)), INVALID, "make (2, 4, 8, 8)"),
    (
        conv,
        ALL,
        one(conv, "gradBias", shape=(3,)),
        INVALID,
        "gradBias is (3,), expected one element",
    ),
    # without elements
    *[
        (
            call,
            ALL,
            one(call, name, shape=shape),
            INVALID,
            f"{name} is {shape}, expected positive sizes",
        )
        for call, name, shape in (
            (conv, "input", (2, 0, 8, 8)),
            (conv, "input", (2, 3, 8, 0)),
            (conv, "weight", (0, 3, 3, 3)),
            (conv, "weight", (4, 3, 3, 0)),
            (adaptive2d, "self", (2, 3, 8, 0)),
            (adaptive2d, "self", (2, 0, 8, 8)),
        )
    ],
    (conv, ALL, one(conv, "gradOutput", shape=(0, 4, 8, 8)), INVALID, "make (2, 4, 8, 8)"),
    (conv, ALL, one(conv, "input", shape=(0, 3, 8, 8)), INVALID, "make (0, 4, 8, 8)"),
    (conv, ALL, one(conv, "gradInput", shape=(0, 3, 8, 8)), INVALID, "expected that of input"),
    (conv, ALL, one(conv, "input", shape=(-1, 3, 8, 8)), INVALID, "expected sizes from 0 to 2**47"),
    (
        adaptive2d,
        ALL,
        one(adaptive2d, "gradOutput", shape=(1, 3, 0, 4)),
        INVALID,
        "gradOutput is (1, 3, 0, 4), but self (2, 3, 8, 8) pools to (2, 3, 0, 4)",
    ),
    (
        adaptive2d,
        ALL,
        reshaped(adaptive2d, gradOutput=(2, 3, 0, 4), out=(2, 3, 8, 9)),
        INVALID,
        "out is (2, 3, 8, 9), expected the shape of self, (2, 3, 8, 8)",
    ),
    (
        adaptive2d,
        ALL,
        reshaped(adaptive2d, gradOutput=(2, 3, 0, 4))
        | one(adaptive2d, "out", strides=(0, 0, 8, 1)),
        INVALID,
        "out is a tensor whose elements overlap",
    ),
    (adaptive2d, ALL, one(adaptive2d, "out", shape=(0, 3, 8, 8)), INVALID, "expected the shape of"),
    # strides
    (
        pool2d,
        WITH_POOL,
        one(pool2d, "gradInput", strides=(0, 64, 8, 1)),
        INVALID,
        "gradInput is a tensor whose elements overlap, expected one memory location per element",
    ),
    (
        pool2d,
        WITH_POOL,
        one(pool2d, "gradInput", strides=(1 << 60, 64, 8, 1)),
        INVALID,
        "of stride",
    ),
    (pool2d, WITH_POOL, one(pool2d, "gradInput", offset=1 << 60), INVALID, "at offset"),
    (conv, ALL, one(conv, "gradWeight", strides=(0, 9, 3, 1)), INVALID, "whose elements overlap"),
    # arrays
    *[
        (
            call,
            products,
            {name: values},
            INVALID,
            f"the length of {name} is {len(values)}, expected 1 or {rank}"
            if (call, name, len(values)) != (conv, "padding", 3)
            else "the length of padding is 3, expected 1, 2 or 4",
        )
        for call, products, rank in ((pool2d, WITH_POOL, 2), (pool3d, ALL, 3), (conv, ALL, 2))
        for name in ("kernelSize", "stride", "padding")
        for values in ([], [1] * (rank + 1))
        if name in call.arguments and not (name == "stride" and call is not conv and not values)
    ],
    (conv, ALL, {"outputMask": [True, True]}, INVALID, "the length of outputMask is 2, expected 3"),
    # parameters
    (pool2d, WITH_POOL, {"kernelSize": [2, 0]}, INVALID, "kernelSize[1] is 0, expected 1 to 2**60"),
    (pool2d, WITH_POOL, {"kernelSize": [-2]}, INVALID, "kernelSize[0] is -2, expected 1 to 2**60"),
    (pool2d, WITH_POOL, {"stride": [0, 1]}, INVALID, "stride[0] is 0, expected 1 to 2**60"),
    (
        pool2d,
        WITH_POOL,
        {"padding": [-1]},
        INVALID,
        "padding[0] is -1, expected 0 to 1 (half of kernelSize[0] = 2)",
    ),
    (
        pool2d,
        WITH_POOL,
        {"kernelSize": [3], "padding": [2, 0]},
        INVALID,
        "padding[0] is 2, expected 0 to 1 (half of kernelSize[0] = 3)",
    ),
    (
        pool2d,
        WITH_POOL,
        {"kernelSize": [9]},
        INVALID,
        "self is (2, 3, 8, 8), but kernelSize[0] = 9",
    ),
    (
        pool3d,
        ALL,
        {"padding": [2]},
        INVALID,
        "padding[0] is 2, expected 0 to 1 (half of kernelSize",
    ),
    (conv, ALL, {"stride": [0]}, INVALID, "stride[0] is 0, expected 1 to 2**60"),
    (conv, ALL, {"dilation": [-1]}, INVALID, "dilation[0] is -1, expected 1 to 2**60"),
    (conv, ALL, {"padding": [1] * 5}, INVALID, "is 5, expected 1, 2 or 4"),
    (conv, ALL, {"padding": [1, 1, -1, 1]}, INVALID, "padding[2] is -1, expected 0 to 2**60"),
    (conv, ALL, {"padding": [1, 1, 1, 1 << 62]}, INVALID, "padding[3] is 4611686018427387904"),
    (
        conv,
        ALL,
        {"padding": [1, 2, 0, 1]},
        INVALID,
        "padding (1, 0) before and (2, 1) after, dilation (1, 1) make (2, 4, 9, 7)",
    ),
    (conv, ALL, {"groups": 0}, INVALID, "groups is 0, expected at least 1"),
    (conv, ALL, {"groups": 2}, INVALID, "3 channels do not divide into groups = 2"),
    # divisorOverride
    *[
        (
            pool2d,
            HALF_PRODUCTS,
            {"divisorOverride": value},
            INVALID,
            f"divisorOverride is {value}, expected -255 to 255 on Atlas ",
        )
        for value in (256, -256, 1 << 62, -(1 << 63))
    ],
    # cubeMathType
    *[
        (
            call,
            products,
            {"cubeMathType": value},
            INVALID,
            f"cubeMathType is {value}, expected 0 to 3",
        )
        for call, products in ((pool2d, WITH_POOL), (conv, ALL))
        for value in (-1, 4, 127, -128)
    ],
    (
        pool2d,
        HALF_PRODUCTS,
        with_all(pool2d, dtype=FLOAT),
        INVALID,
        "cubeMathType is 0, expected 1 or 2 for float32 on Atlas ",
    ),
    (
        pool2d,
        ("A2", "A3", *HALF_PRODUCTS),
        {"cubeMathType": 3},
        INVALID,
        "cubeMathType is 3, expect",
    ),
    (
        pool2d,
        HALF_PRODUCTS,
        with_all(pool2d, dtype=FLOAT) | {"cubeMathType": 3},
        INVALID,
        "cubeMathType is 3, expected 0 to 2 on Atlas ",
    ),
    (
        pool2d,
        ("A2", "A3"),
        with_all(pool2d, dtype=BF16) | {"cubeMathType": 2},
        INVALID,
        "cubeMathType is 2, expected 0 or 1 for bfloat16 on Atlas A",
    ),
    (
        pool2d,
        ("A2", "A3"),
        with_all(pool2d, dtype=BF16) | {"cubeMathType": 3},
        INVALID,
        "cubeMathType is 3, expected 0 to 2 for bfloat16 on Atlas A",
    ),
    (
        pool2d,
        ("950",),
        global_of(BF16) | {"cubeMathType": 2},
        INVALID,
        "is 2, expected 0 or 1 for bf",
    ),
    (
        pool2d,
        ("950",),
        global_of(BF16) | {"cubeMathType": 3},
        INVALID,
        "is 3, expected 0 to 2 for bf",
    ),
    (
        pool2d,
        ("950",),
        global_of(HALF) | {"cubeMathType": 3},
        INVALID,
        "is 3, expected 0 to 2 for fl",
    ),
    (
        conv,
        HALF_PRODUCTS,
        with_all(conv, dtype=FLOAT),
        INVALID,
        "cubeMathType is 0, expected 1 or 2",
    ),
    (
        conv,
        HALF_PRODUCTS,
        with_all(conv, dtype=FLOAT) | {"cubeMathType": 3},
        INVALID,
        "cubeMathType is 3, expected 0 to 2 on Atlas ",
    ),
]


@pytest.mark.parametrize("product", PRODUCTS)
def test_error_table(product):
    assert check_rows(ROWS, product) > 60


def test_global_pooling_has_one_window():
    """On Ascend 950 only that refuses cubeMathType 2 for bfloat16."""
    shapes = {"self": (2, 3, 4, 4), "gradInput": (2, 3, 4, 4), "kernelSize": [6], "padding": [2]}
    for ceil_mode, outputs, status in ((False, 1, INVALID), (True, 2, Status.SUCCESS)):
        changes = {"stride": [3], "ceilMode": ceil_mode, "cubeMathType": 2} | {
            name: Spec(value, BF16) if isinstance(value, tuple) else value
            for name, value in (shapes | {"gradOutput": (2, 3, outputs, outputs)}).items()
        }
        with initialised(PRODUCTS["950"]):
            assert pool2d(**changes) == status, acl.aclGetRecentErrMsg()


def test_rows_would_be_seen_to_be_wrong():
    with initialised():
        assert pool2d(padding=[1]) != Status.SUCCESS  # another shape of gradOutput
        assert pool2d() == Status.SUCCESS


@pytest.mark.parametrize("name", ["workspaceSize", "executor"])
@pytest.mark.parametrize("worse", [{}, {"padding": [9]}])
def test_null_out_pointers(name, worse):
    import ctypes

    with initialised():
        arguments = [Call.make(value) for value in (pool2d.arguments | worse).values()]
        size, executor = ctypes.c_uint64(77), ctypes.c_void_p(88)
        pointers = {"workspaceSize": ctypes.byref(size), "executor": ctypes.byref(executor)}
        pointers[name] = None
        status = acl._pooling._nn_avg_pool2d_backward_get_workspace_size(
            *arguments, *pointers.values()
        )
        assert status == NULL
        assert f": {name} is NULL" in acl.aclGetRecentErrMsg()
        assert (size.value, executor.value) == (77, 88)


def test_destroyed_arguments_are_told():
    with initialised():
        made = {name: Call.make(value) for name, value in pool2d.arguments.items()}
        acl.aclDestroyTensor(made["self"])
        size, executor, status = acl.aclnnAvgPool2dBackwardGetWorkspaceSize(*made.values())
        assert (size, executor, status) == (None, None, INVALID)
        assert "self is no object that is alive" in acl.aclGetRecentErrMsg()
        assert acl.aclDestroyTensor(made["self"]) == INVALID
        assert acl.aclDestroyIntArray(made["padding"]) == Status.SUCCESS
        assert acl.aclDestroyIntArray(made["padding"]) == INVALID


def test_sizes_of_a_bias_that_is_not_wanted_are_not_looked_at():
    with initialised():
        sizes = int_array([4])
        acl.aclDestroyIntArray(sizes)
        assert conv(biasSizes=sizes) == INVALID
        assert "biasSizes is no object that is alive" in acl.aclGetRecentErrMsg()
        assert conv(biasSizes=sizes, outputMask=[True, True, False]) == Status.SUCCESS


def test_nothing_is_written_by_a_refused_launch():
    with initialised():
        content = np.arange(256, dtype=np.uint8)
        memory = DeviceMemory(content)
        changes = {"gradInput": Spec((2, 3, 8, 8), HALF, data=memory.address)}
        assert pool2d(**changes, cubeMathType=9) == INVALID
        assert (memory.read() == content).all()
