"""The error table of the forward operators and of transposed convolutions, on every product.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import pytest

from backops import acl
from backops.acl import Status
from tests.support.acl import PRODUCTS, DataType, Format, Spec, initialised
from tests.support.acl_calls import (
    ALL,
    BF16,
    FLOAT,
    HALF,
    HALF_PRODUCTS,
    INVALID,
    NOT_FOUND,
    NULL,
    Call,
    check_rows,
    conv,
    forward_adaptive2d,
    forward_adaptive3d,
    forward_conv,
    forward_global_of,
    forward_pool2d,
    forward_pool3d,
    one,
    products_of,
    reshaped,
    transposed_of,
    with_all,
)

CONV_TENSORS = ("input", "weight", "output")

CONVOLUTION = [
    # NULL, before anything else is looked at
    *[
        (forward_conv, {name: None, "cubeMathType": 9}, NULL, f"{name} is NULL, expected a pointer")
        for name in (*CONV_TENSORS, "stride", "padding", "dilation")
    ],
    # dtypes
    *[
        (forward_conv, with_all(forward_conv, dtype=dtype), INVALID, f"is {name}, expected FLOAT")
        for dtype, name in ((DataType.DOUBLE, "DOUBLE"), (DataType.INT8, "INT8"), (99, "99"))
    ],
    *[
        (
            forward_conv,
            one(forward_conv, name, dtype=FLOAT),
            INVALID,
            f"the dtype of {name} is FLOAT, expected that of input, FLOAT16",
        )
        for name in ("weight", "bias", "output")
    ],
    # formats
    *[
        (
            forward_conv,
            one(forward_conv, name, format=format),
            INVALID,
            f"the format of {name} is {format.name}, expected ND or NCL or NCHW or NCDHW",
        )
        for name in CONV_TENSORS
        for format in (Format.NHWC, Format.NC1HWC0)
    ],
    # axes and sizes
    (
        forward_conv,
        one(forward_conv, "weight", shape=(4, 3)),
        INVALID,
        "weight is (4, 3), expected 3 to 5 axes",
    ),
    (
        forward_conv,
        one(forward_conv, "input", shape=(8, 8)),
        INVALID,
        "input is (8, 8), expected 3 or 4 axes for weight (4, 3, 3, 3)",
    ),
    *[
        (
            forward_conv,
            one(forward_conv, name, shape=shape),
            INVALID,
            f"{name} is {shape}, expected positive sizes",
        )
        for name, shape in (
            ("input", (2, 0, 8, 8)),
            ("input", (2, 3, 8, 0)),
            ("weight", (0, 3, 3, 3)),
            ("weight", (4, 3, 3, 0)),
        )
    ],
    (forward_conv, one(forward_conv, "input", shape=(-1, 3, 8, 8)), INVALID, "expected sizes from"),
    (
        forward_conv,
        one(forward_conv, "input", shape=(2, 5, 8, 8)),
        INVALID,
        "weight is (4, 3, 3, 3), but input (2, 5, 8, 8) with groups = 1 has 5 channels per group",
    ),
    (
        forward_conv,
        one(forward_conv, "output", shape=(2, 4, 8, 7)),
        INVALID,
        "output is (2, 4, 8, 7), but input (2, 3, 8, 8) and weight (4, 3, 3, 3) with stride "
        "(1, 1), padding (1, 1), dilation (1, 1) make (2, 4, 8, 8)",
    ),
    (forward_conv, one(forward_conv, "output", shape=(4, 8, 8)), INVALID, "make (2, 4, 8, 8)"),
    (forward_conv, one(forward_conv, "output", shape=(0, 4, 8, 8)), INVALID, "make (2, 4, 8, 8)"),
    *[
        (
            forward_conv,
            one(forward_conv, "bias", shape=shape),
            INVALID,
            "expected one element per output channel, (4,)",
        )
        for shape in ((3,), (1,), (4, 1), (0,))
    ],
    # strides
    (
        forward_conv,
        one(forward_conv, "output", strides=(0, 64, 8, 1)),
        INVALID,
        "output is a tensor whose elements overlap, expected one memory location per element",
    ),
    # arrays and parameters
    *[
        (
            forward_conv,
            {name: values},
            INVALID,
            f"the length of {name} is {len(values)}, expected 1 or 2",
        )
        for name in ("stride", "dilation")
        for values in ([], [1] * 3)
    ],
    (forward_conv, {"padding": []}, INVALID, "the length of padding is 0, expected 1 or 2"),
    *[
        (forward_conv, {"padding": [1] * n}, INVALID, f"padding is {n}, expected 1, 2 or 4")
        for n in (3, 5)
    ],
    (forward_conv, {"padding": [1, 1, -1, 1]}, INVALID, "padding[2] is -1, expected 0 to 2**60"),
    (forward_conv, {"padding": [-1]}, INVALID, "padding[0] is -1, expected 0 to 2**60"),
    (
        forward_conv,
        {"padding": [1, 2, 0, 1]},
        INVALID,
        "padding (1, 0) before and (2, 1) after, dilation (1, 1) make (2, 4, 9, 7)",
    ),
    (forward_conv, {"stride": [0]}, INVALID, "stride[0] is 0, expected 1 to 2**60"),
    (forward_conv, {"dilation": [1, -1]}, INVALID, "dilation[1] is -1, expected 1 to 2**60"),
    (forward_conv, {"dilation": [9]}, INVALID, "reach over more than the padded input size 10"),
    (forward_conv, {"groups": 0}, INVALID, "groups is 0, expected at least 1"),
    (forward_conv, {"groups": -(1 << 63)}, INVALID, "expected at least 1"),
    (forward_conv, {"groups": 2}, INVALID, "3 channels do not divide into groups = 2"),
    # cubeMathType
    *[
        (forward_conv, {"cubeMathType": value}, INVALID, f"is {value}, expected 0 to 3")
        for value in (-1, 4, 127, -128)
    ],
]

# The same of both operators.
TRANSPOSED = [
    (call, transposed_of(call) | changes, code, text)
    for call in (forward_conv, conv)
    for changes, code, text in (
        ({"outputPadding": None}, NULL, "outputPadding is NULL, expected a pointer"),
        ({"outputPadding": []}, INVALID, "the length of outputPadding is 0, expected 1 or 2"),
        ({"outputPadding": [1] * 4}, INVALID, "the length of outputPadding is 4, expected 1 or 2"),
        (
            {"outputPadding": [1, 2]},
            INVALID,
            "outputPadding[1] is 2, expected 0 to 1 (below stride[1] = 2 or dilation[1] = 1)",
        ),
        ({"outputPadding": [-1]}, INVALID, "outputPadding[0] is -1, expected 0 to 1"),
        (
            {"outputPadding": [0]},
            INVALID,
            "is (2, 4, 16, 16), but input (2, 3, 8, 8) and weight (3, 4, 3, 3) with stride (2, 2), "
            "padding (1, 1), outputPadding (0, 0), dilation (1, 1) make (2, 4, 15, 15)",
        ),
        (
            one(call, "weight", shape=(4, 3, 3, 3)),
            INVALID,
            "weight is (4, 3, 3, 3), but input (2, 3, 8, 8) has 3 channels",
        ),
        ({"groups": 2}, INVALID, "3 channels do not divide into groups = 2"),
        (
            {"padding": [20]},
            INVALID,
            "the output has size -22 along that axis, expected",
        ),
        ({"padding": [1, 2, 1, 1]}, INVALID, "make (2, 4, 15, 16)"),
    )
]

POOLS = (forward_pool2d, forward_pool3d, forward_adaptive2d, forward_adaptive3d)

# Of pooling, on products that have it.
POOLING = [
    # NULL, before anything else is looked at
    *[
        (call, {name: None}, NULL, f"{name} is NULL, expected a pointer")
        for call, names in (
            (forward_pool2d, ("self", "kernelSize", "paddings", "out")),
            (forward_pool3d, ("self", "kernelSize", "padding", "out")),
            (forward_adaptive2d, ("self", "outputSize", "out")),
            (forward_adaptive3d, ("self", "outputSize", "out")),
        )
        for name in names
    ],
    # dtypes
    *[
        (call, with_all(call, dtype=dtype), INVALID, f"is {name}, expected FLOAT")
        for call in POOLS
        for dtype, name in ((DataType.DOUBLE, "DOUBLE"), (DataType.INT32, "INT32"), (99, "99"))
    ],
    *[
        (call, one(call, "out", dtype=dtype), INVALID, "the dtype of out is FLOAT")
        for call, dtype in zip(POOLS, (FLOAT, HALF, HALF, HALF), strict=True)
    ],
    # formats
    *[
        (forward_pool2d, with_all(forward_pool2d, format=format), INVALID, "expected NCHW for 4")
        for format in (Format.ND, Format.NHWC, Format.NCL)
    ],
    (
        forward_pool2d,
        {"self": Spec((3, 8, 8), HALF), "out": Spec((3, 4, 4), HALF, Format.NCL)},
        INVALID,
        "the format of out is NCL, expected that of self, NCHW",
    ),
    *[
        (
            call,
            with_all(call, format=Format.NCHW),
            INVALID,
            "the format of self is NCHW, expected NCDHW or ND for 5 axes",
        )
        for call in (forward_pool3d, forward_adaptive3d)
    ],
    *[
        (
            call,
            one(call, "out", format=Format.ND),
            INVALID,
            f"the format of out is ND, expected that of self, {like}",
        )
        for call, like in (
            (forward_pool3d, "NCDHW"),
            (forward_adaptive3d, "NCDHW"),
            (forward_adaptive2d, "NCHW"),
        )
    ],
    (
        forward_adaptive2d,
        with_all(forward_adaptive2d, format=Format.NC1HWC0),
        INVALID,
        "the format of self is NC1HWC0, expected NCHW or NHWC or ND or NCL",
    ),
    # axes
    *[
        (
            call,
            one(call, name, shape=(2,) * ndim),
            INVALID,
            f"{name} is a tensor of {ndim} axes, expected {rank + 1} or {rank + 2}",
        )
        for call, rank in zip(POOLS, (2, 3, 2, 3), strict=True)
        for name in call.tensors
        for ndim in (rank, rank + 3)
    ],
    *[
        (
            call,
            one(call, "out", shape=call.arguments["out"].shape[1:]),
            INVALID,
            f"out is a tensor of {rank + 1} axes, expected as many as self, {rank + 2}",
        )
        for call, rank in zip(POOLS, (2, 3, 2, 3), strict=True)
    ],
    # sizes
    *[
        (
            call,
            one(call, name, shape=(*call.arguments[name].shape[:-1], size)),
            INVALID,
            "expected sizes from 1",
        )
        for call in (forward_pool2d, forward_pool3d, forward_adaptive3d)
        for name in call.tensors
        for size in (0, -1)
    ],
    (
        forward_pool2d,
        one(forward_pool2d, "out", shape=(2, 3, 4, 5)),
        INVALID,
        "out is (2, 3, 4, 5), but self (2, 3, 8, 8) with kernelSize (2, 2), strides (2, 2), "
        "paddings (0, 0) pools to (2, 3, 4, 4)",
    ),
    (forward_pool2d, one(forward_pool2d, "out", shape=(1, 3, 4, 4)), INVALID, "to (2, 3, 4, 4)"),
    (
        forward_pool3d,
        one(forward_pool3d, "out", shape=(2, 3, 4, 4, 5)),
        INVALID,
        "out is (2, 3, 4, 4, 5), but self (2, 3, 8, 8, 8) with kernelSize (2, 2, 2), stride "
        "(2, 2, 2), padding (0, 0, 0) pools to (2, 3, 4, 4, 4)",
    ),
    (
        forward_adaptive3d,
        one(forward_adaptive3d, "out", shape=(2, 3, 2, 3, 5)),
        INVALID,
        "out is (2, 3, 2, 3, 5), but self (2, 3, 8, 8, 8) pools to (2, 3, 2, 3, 4)",
    ),
    *[
        (
            forward_adaptive2d,
            one(forward_adaptive2d, "out", shape=shape),
            INVALID,
            f"out is {shape}, but self (2, 3, 8, 8) pools to (2, 3, 3, 4)",
        )
        for shape in ((2, 3, 4, 4), (1, 3, 3, 4), (2, 3, 0, 4))
    ],
    (
        forward_adaptive2d,
        {"outputSize": [0, 4]},
        INVALID,
        "out is (2, 3, 3, 4), but self (2, 3, 8, 8) pools to (2, 3, 0, 4)",
    ),
    *[
        (
            forward_adaptive2d,
            one(forward_adaptive2d, "self", shape=shape),
            INVALID,
            f"self is {shape}, expected positive sizes",
        )
        for shape in ((2, 3, 8, 0), (2, 0, 8, 8))
    ],
    # strides
    *[
        (
            call,
            one(call, "out", strides=(0,) * len(call.arguments["out"].shape)),
            INVALID,
            "out is a tensor whose elements overlap, expected one memory location per element",
        )
        for call in POOLS
    ],
    # arrays
    *[
        (call, {name: values}, INVALID, f"the length of {name} is {len(values)}, expected 1 or")
        for call, rank, names in (
            (forward_pool2d, 2, ("kernelSize", "strides", "paddings")),
            (forward_pool3d, 3, ("kernelSize", "stride", "padding")),
        )
        for name in names
        for values in ([], [1] * (rank + 1))
        if values or not name.startswith("stride")
    ],
    *[
        (
            call,
            {"outputSize": [1] * count},
            INVALID,
            f"the length of outputSize is {count}, expected {rank}",
        )
        for call, rank in ((forward_adaptive2d, 2), (forward_adaptive3d, 3))
        for count in (0, 1, rank + 1)
    ],
    # parameters
    (forward_adaptive2d, {"outputSize": [3, -1]}, INVALID, "outputSize[1] is -1, expected at lea"),
    (forward_adaptive3d, {"outputSize": [0, 3, 4]}, INVALID, "outputSize[0] is 0, expected at lea"),
    (forward_adaptive3d, {"outputSize": [2, 3, 1 << 62]}, INVALID, "out is (2, 3, 2, 3, "),
    (forward_pool2d, {"kernelSize": [2, 0]}, INVALID, "kernelSize[1] is 0, expected 1 to 2**60"),
    (forward_pool2d, {"strides": [0, 1]}, INVALID, "strides[0] is 0, expected 1 to 2**60"),
    (
        forward_pool2d,
        {"kernelSize": [3], "paddings": [2, 0]},
        INVALID,
        "paddings[0] is 2, expected 0 to 1 (half of kernelSize[0] = 3)",
    ),
    (forward_pool2d, {"paddings": [-1]}, INVALID, "paddings[0] is -1, expected 0 to 1"),
    (forward_pool2d, {"kernelSize": [9]}, INVALID, "self is (2, 3, 8, 8), but kernelSize[0] = 9"),
    (forward_pool3d, {"padding": [2]}, INVALID, "padding[0] is 2, expected 0 to 1 (half of kern"),
    (forward_pool3d, {"stride": [-1]}, INVALID, "stride[0] is -1, expected 1 to 2**60"),
    # cubeMathType
    *[
        (forward_pool2d, {"cubeMathType": value}, INVALID, f"is {value}, expected 0 to 3")
        for value in (-1, 4, 127, -128)
    ],
]

# AvgPool2d, where products differ.
PRODUCT_ROWS = [
    (forward_pool2d, ("200I",), {}, NOT_FOUND, "the product is Atlas 200I/500 A2, expected one"),
    *[
        (
            forward_pool2d,
            HALF_PRODUCTS,
            {"divisorOverride": value},
            INVALID,
            f"divisorOverride is {value}, expected -255 to 255 on Atlas ",
        )
        for value in (256, -256, -(1 << 63))
    ],
    *[
        (forward_pool2d, products, changes | {"cubeMathType": mode}, INVALID, text)
        for products, changes, mode, text in (
            (HALF_PRODUCTS, with_all(forward_pool2d, dtype=FLOAT), 0, "is 0, expected 1 or 2 for"),
            (HALF_PRODUCTS, with_all(forward_pool2d, dtype=FLOAT), 3, "is 3, expected 0 to 2 on"),
            (("A2", "A3", *HALF_PRODUCTS), {}, 3, "cubeMathType is 3, expected 0 to 2"),
            (("A2", "A3"), with_all(forward_pool2d, dtype=BF16), 2, "is 2, expected 0 or 1 for"),
            (("A2", "A3"), with_all(forward_pool2d, dtype=BF16), 3, "is 3, expected 0 to 2 for"),
            (("950",), forward_global_of(BF16), 2, "is 2, expected 0 or 1 for bfloat16"),
            (("950",), forward_global_of(BF16), 3, "is 3, expected 0 to 2 for bfloat16"),
            (("950",), forward_global_of(HALF), 3, "is 3, expected 0 to 2 for float16"),
        )
    ],
    *[
        (call, HALF_PRODUCTS, with_all(call, dtype=BF16), INVALID, "is BF16, expected FLOAT or")
        for call in POOLS
    ],
]

HALF_SERIES = [
    (forward_conv, with_all(forward_conv, dtype=BF16), INVALID, "is BF16, expected FLOAT or FLOAT"),
    (
        forward_conv,
        with_all(forward_conv, dtype=FLOAT),
        INVALID,
        "is 0, expected 1 or 2 for float32",
    ),
    (
        forward_conv,
        with_all(forward_conv, dtype=FLOAT) | {"cubeMathType": 3},
        INVALID,
        "cubeMathType is 3, expected 0 to 2 on Atlas ",
    ),
]

ROWS = [
    *[(call, ALL, *row) for call, *row in (*CONVOLUTION, *TRANSPOSED)],
    *[(call, HALF_PRODUCTS, *row) for call, *row in HALF_SERIES],
    *[(call, ALL if row[1] == NULL else products_of(call), *row) for call, *row in POOLING],
    *PRODUCT_ROWS,
]


@pytest.mark.parametrize("product", PRODUCTS)
def test_error_table(product):
    assert check_rows(ROWS, product) > 100


def test_output_padding_of_what_is_not_transposed_is_not_looked_at():
    with initialised():
        for call in (forward_conv, conv):
            for value in (None, [], [7, 7, 7], [-1]):
                assert call(outputPadding=value) == Status.SUCCESS, value
            assert status_without(call, "outputPadding", {"outputPadding": [1]}) == Status.SUCCESS


@pytest.mark.parametrize(
    ("call", "name"), [(forward_conv, "bias"), (forward_conv, "outputPadding"), (conv, "weight")]
)
def test_destroyed_arguments_are_told(call, name):
    with initialised():
        assert status_without(call, name, transposed_of(call)) == INVALID
        assert f"{name} is no object that is alive" in acl.aclGetRecentErrMsg()


def status_without(call, name, changes):
    """Of the first stage, when one of its objects was destroyed before."""
    arguments = call.arguments | changes
    made = {each: Call.make(value) for each, value in arguments.items()}
    Call.destroy(arguments[name], made[name])
    return getattr(acl, f"aclnn{call.operator}GetWorkspaceSize")(*made.values())[-1]


def test_rows_would_be_seen_to_be_wrong():
    with initialised():
        assert forward_conv() == Status.SUCCESS
        assert forward_conv(**transposed_of(forward_conv)) == Status.SUCCESS
        changes = reshaped(forward_conv, output=(2, 4, 7, 8))
        with pytest.raises(AssertionError, match="expected"):
            check_rows([(forward_conv, ALL, changes, INVALID, "another text")], "A2")
