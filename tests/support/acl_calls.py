"""First stages of CANN's operators that succeed, for tests to change an argument of."""

from __future__ import annotations

from dataclasses import replace

from backops import acl
from backops.acl import Status
from tests.support.acl import PRODUCTS, DataType, Format, Spec, initialised, int_array

NULL, INVALID = Status.PARAM_NULLPTR, Status.PARAM_INVALID
NOT_FOUND = Status.INNER_FIND_KERNEL_ERROR
HALF_PRODUCTS = ("training", "training_pro", "inference")
WITH_POOL = tuple(product for product in PRODUCTS if product != "200I")
WITH_BF16 = tuple(product for product in PRODUCTS if product not in HALF_PRODUCTS)
ALL = tuple(PRODUCTS)
FLOAT, HALF, BF16 = DataType.FLOAT, DataType.FLOAT16, DataType.BF16


class Call:
    """A first stage that succeeds, but for what a row changes."""

    def __init__(self, operator, tensors, /, **arguments):
        self.operator, self.tensors, self.arguments = operator, tensors, arguments

    def __call__(self, /, **changes):
        arguments = self.arguments | changes
        assert len(arguments) == len(self.arguments), "no such argument"
        made = [self.make(value) for value in arguments.values()]
        function = f"aclnn{self.operator}GetWorkspaceSize"
        size, executor, status = getattr(acl, function)(*made)
        assert (size is None) == (executor is None) == (status != Status.SUCCESS)
        if executor is not None:
            assert acl.aclDestroyAclOpExecutor(executor) == Status.SUCCESS
        for value, handle in zip(arguments.values(), made, strict=True):
            self.destroy(value, handle)
        return status

    @staticmethod
    def make(value):
        if isinstance(value, Spec):
            return value.create()
        if isinstance(value, list):
            if value and isinstance(value[0], bool):
                return acl.aclCreateBoolArray(value, len(value))
            return int_array(value)
        return value

    @staticmethod
    def destroy(value, handle):
        if isinstance(value, Spec):
            acl.aclDestroyTensor(handle)
        elif isinstance(value, list):
            bools = value and isinstance(value[0], bool)
            (acl.aclDestroyBoolArray if bools else acl.aclDestroyIntArray)(handle)


pool2d = Call(
    "AvgPool2dBackward",
    ("gradOutput", "self", "gradInput"),
    gradOutput=Spec((2, 3, 4, 4), DataType.FLOAT16),
    self=Spec((2, 3, 8, 8), DataType.FLOAT16),
    kernelSize=[2, 2],
    stride=[2, 2],
    padding=[0, 0],
    ceilMode=False,
    countIncludePad=True,
    divisorOverride=0,
    cubeMathType=0,
    gradInput=Spec((2, 3, 8, 8), DataType.FLOAT16),
)

pool3d = Call(
    "AvgPool3dBackward",
    ("gradOutput", "self", "output"),
    gradOutput=Spec((2, 3, 4, 4, 4), format=Format.NCDHW),
    self=Spec((2, 3, 8, 8, 8), format=Format.NCDHW),
    kernelSize=[2, 2, 2],
    stride=[2],
    padding=[0],
    ceilMode=False,
    countIncludePad=True,
    divisorOverride=0,
    output=Spec((2, 3, 8, 8, 8), format=Format.NCDHW),
)

adaptive3d = Call(
    "AdaptiveAvgPool3dBackward",
    ("gradOutput", "self", "out"),
    gradOutput=Spec((2, 3, 2, 3, 4), format=Format.NCDHW),
    self=Spec((2, 3, 8, 8, 8), format=Format.NCDHW),
    out=Spec((2, 3, 8, 8, 8), format=Format.NCDHW),
)

adaptive2d = Call(
    "AdaptiveAvgPool2dBackward",
    ("gradOutput", "self", "out"),
    gradOutput=Spec((2, 3, 3, 4)),
    self=Spec((2, 3, 8, 8)),
    out=Spec((2, 3, 8, 8)),
)

conv = Call(
    "ConvolutionBackward",
    ("gradOutput", "input", "weight", "gradInput", "gradWeight", "gradBias"),
    gradOutput=Spec((2, 4, 8, 8), DataType.FLOAT16),
    input=Spec((2, 3, 8, 8), DataType.FLOAT16),
    weight=Spec((4, 3, 3, 3), DataType.FLOAT16),
    biasSizes=[4],
    stride=[1, 1],
    padding=[1, 1],
    dilation=[1, 1],
    transposed=False,
    outputPadding=None,
    groups=1,
    outputMask=[True, True, True],
    cubeMathType=0,
    gradInput=Spec((2, 3, 8, 8), DataType.FLOAT16),
    gradWeight=Spec((4, 3, 3, 3), DataType.FLOAT16),
    gradBias=Spec((4,), DataType.FLOAT16, Format.ND),
)

# Those of the forward pass

forward_conv = Call(
    "Convolution",
    ("input", "weight", "bias", "output"),
    input=Spec((2, 3, 8, 8), DataType.FLOAT16),
    weight=Spec((4, 3, 3, 3), DataType.FLOAT16),
    bias=Spec((4,), DataType.FLOAT16, Format.ND),
    stride=[1, 1],
    padding=[1, 1],
    dilation=[1, 1],
    transposed=False,
    outputPadding=None,
    groups=1,
    output=Spec((2, 4, 8, 8), DataType.FLOAT16),
    cubeMathType=0,
)

forward_pool2d = Call(
    "AvgPool2d",
    ("self", "out"),
    self=Spec((2, 3, 8, 8), DataType.FLOAT16),
    kernelSize=[2, 2],
    strides=[2, 2],
    paddings=[0, 0],
    ceilMode=False,
    countIncludePad=True,
    divisorOverride=0,
    cubeMathType=0,
    out=Spec((2, 3, 4, 4), DataType.FLOAT16),
)

forward_pool3d = Call(
    "AvgPool3d",
    ("self", "out"),
    self=Spec((2, 3, 8, 8, 8), format=Format.NCDHW),
    kernelSize=[2, 2, 2],
    stride=[2],
    padding=[0],
    ceilMode=False,
    countIncludePad=True,
    divisorOverride=0,
    out=Spec((2, 3, 4, 4, 4), format=Format.NCDHW),
)

forward_adaptive2d = Call(
    "AdaptiveAvgPool2d",
    ("self", "out"),
    self=Spec((2, 3, 8, 8)),
    outputSize=[3, 4],
    out=Spec((2, 3, 3, 4)),
)

forward_adaptive3d = Call(
    "AdaptiveAvgPool3d",
    ("self", "out"),
    self=Spec((2, 3, 8, 8, 8), format=Format.NCDHW),
    outputSize=[2, 3, 4],
    out=Spec((2, 3, 2, 3, 4), format=Format.NCDHW),
)


def transposed_of(call):
    """What makes `call` transposed, from (2, 3, 8, 8) to (2, 4, 16, 16)."""
    shapes = {
        "input": (2, 3, 8, 8),
        "weight": (3, 4, 3, 3),
        "gradInput": (2, 3, 8, 8),
        "gradWeight": (3, 4, 3, 3),
        "gradOutput": (2, 4, 16, 16),
        "output": (2, 4, 16, 16),
    }
    known = {name: shape for name, shape in shapes.items() if name in call.tensors}
    return reshaped(call, **known) | {"transposed": True, "stride": [2], "outputPadding": [1, 1]}


def products_of(call):
    """Those that have the operator."""
    return WITH_POOL if call.operator.startswith("AvgPool2d") else ALL


def with_all(call, **fields):
    """The same change to every tensor."""
    return {name: replace(call.arguments[name], **fields) for name in call.tensors}


def retyped(call, changes, dtype):
    """Every tensor of the call with its changes, in that dtype."""
    arguments = call.arguments | changes
    return {name: replace(arguments[name], dtype=dtype) for name in call.tensors}


def reshaped(call, **shapes):
    return {name: replace(call.arguments[name], shape=shape) for name, shape in shapes.items()}


def one(call, name, **fields):
    return {name: replace(call.arguments[name], **fields)}


global_pool = dict(
    reshaped(pool2d, gradOutput=(2, 3, 1, 1), self=(2, 3, 4, 4), gradInput=(2, 3, 4, 4)),
    kernelSize=[4],
)


def global_of(dtype):
    return _of_dtype(global_pool, dtype)


forward_global_pool = dict(
    reshaped(forward_pool2d, self=(2, 3, 4, 4), out=(2, 3, 1, 1)), kernelSize=[4]
)


def forward_global_of(dtype):
    return _of_dtype(forward_global_pool, dtype)


def _of_dtype(changes, dtype):
    return {
        name: replace(value, dtype=dtype) if isinstance(value, Spec) else value
        for name, value in changes.items()
    }


def check_rows(rows, product):
    """Calls that must fail on a product: with which code, and what the message has. Counts them.

    A row is a call, the products it is for, what is changed, the code, and the text after
    "<function>: ".
    """
    with initialised(PRODUCTS[product]):
        assert acl.aclrtGetSocName() == PRODUCTS[product]
        checked = 0
        for call, products, changes, code, text in rows:
            if product not in products:
                continue
            got = call(**changes), acl.aclGetRecentErrMsg()
            function = f"aclnn{call.operator}GetWorkspaceSize: "
            told = got[0] == code and got[1].startswith(function) and text in got[1]
            assert told, f"{call.operator} with {changes} gave {got}, expected {code!r}, {text!r}"
            checked += 1
    return checked
