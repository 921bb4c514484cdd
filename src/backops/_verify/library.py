"""Drives a shared library through the InfiniOp or the CANN interface, as a C program would.

Written from the documents alone, with device memory and copies, so that the library may belong to
a real device. Nothing of backops' own libraries is loaded: their names are the same as those of
the library that is checked, and the loader would mix them up.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backops._calls import ADAPTIVE, GRADIENTS, Call
from backops._command import CommandError
from backops._geometry import output_padding
from backops._verify.truth import conv_numbers, pool_numbers

DEVICES = (
    "cpu", "nvidia", "cambricon", "ascend", "metax", "moore", "iluvatar", "kunlun", "hygon", "qy",
    "ali",
)  # fmt: skip
TO_DEVICE, TO_HOST = 1, 2  # kinds of copies, the same in both interfaces

Pointer = ctypes.c_void_p
Results = dict[str, NDArray[Any]]


class Unsupported(Exception):
    """The interface has no way to say this case."""


def open_library(path: str, device: str) -> Callable[[Call], Results]:
    """The interface that the library has, ready for calls."""
    symbols = Symbols(Path(path))
    kind, _, number = device.partition(":")
    if kind not in DEVICES or not (number or "0").isdecimal():
        raise CommandError(f"device {device!r}: expected one of {', '.join(DEVICES)}, or cpu:1")
    if symbols.has("infiniopCreateHandle"):
        return InfiniOp(symbols, DEVICES.index(kind), int(number or 0)).run
    if symbols.has("aclCreateTensor"):
        return Cann(symbols, int(number or 0)).run
    raise CommandError(f"{path}: has neither infiniopCreateHandle nor aclCreateTensor")


class Symbols:
    """Functions of a library, of those it is linked with, and of its neighbours."""

    NEIGHBOURS = (
        "libinfinirt.so",
        "libascendcl.so",
        "libnnopbase.so",
        "libopapi.so",
        "libopapi_nn.so",
    )

    def __init__(self, path: Path) -> None:
        try:
            self._libraries = [ctypes.CDLL(str(path))]
        except OSError as error:
            raise CommandError(f"{path}: cannot be loaded ({error})") from error
        self._neighbours = [path.with_name(name) for name in self.NEIGHBOURS]

    def find(self, name: str) -> Any:
        for library in self._libraries:
            if hasattr(library, name):
                return getattr(library, name)
        while self._neighbours:
            path = self._neighbours.pop(0)
            if path.exists():
                self._libraries.append(ctypes.CDLL(str(path)))
                if hasattr(self._libraries[-1], name):
                    return getattr(self._libraries[-1], name)
        return None

    def has(self, name: str) -> bool:
        return self.find(name) is not None

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns a status, which must be 0."""
        function = self.find(name)
        if function is None:
            raise Unsupported(f"the library has no {name}")
        function.restype = ctypes.c_int
        status = function(*arguments)
        if status != 0:
            raise CommandError(f"{name} returned {status}{self._recent_message()}")

    def make(self, name: str, *arguments: Any) -> Pointer:
        """Calls a function that returns an object, which must not be NULL."""
        function = self.find(name)
        if function is None:
            raise Unsupported(f"the library has no {name}")
        function.restype = ctypes.c_void_p
        made = function(*arguments)
        if not made:
            raise CommandError(f"{name} returned NULL{self._recent_message()}")
        return Pointer(made)

    def _recent_message(self) -> str:
        function = self.find("aclGetRecentErrMsg")
        if function is None:
            return ""
        function.restype = ctypes.c_char_p
        message = function()
        return f": {message.decode(errors='replace')}" if message else ""


def int64s(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def unwritten(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A result before the library writes it: what it leaves out stays NaN, and is found wrong."""
    return np.full(shape, np.nan, dtype)


def check(call: Call, dtypes: dict[str, int]) -> None:
    name = call.source.dtype.name
    if name not in dtypes:
        raise Unsupported(f"the interface has no {name}")
    if call.source.size == 0 or 0 in call.input_shape:
        raise Unsupported("the interface takes no empty tensors")


class InfiniOp:
    DTYPES = {"float16": 12, "float32": 13, "bfloat16": 19}  # noqa: RUF012

    def __init__(self, symbols: Symbols, device: int, number: int) -> None:
        self.symbols = symbols
        symbols.call("infinirtInit")
        symbols.call("infinirtSetDevice", ctypes.c_int(device), ctypes.c_int(number))
        self.handle = Pointer()
        symbols.call("infiniopCreateHandle", ctypes.byref(self.handle))

    def run(self, call: Call) -> Results:
        check(call, self.DTYPES)
        if call.parameters.get("precision", "keep") != "keep":
            raise Unsupported("InfiniOp has no precision")
        if call.is_transposed:
            raise Unsupported("InfiniOp has no transposed convolution")
        if call.is_conv:
            return self.conv(call) if call.is_forward else self.conv_backward(call)
        if not call.parameters.get("count_include_pad", True):
            raise Unsupported("InfiniOp always counts padding")
        if call.parameters.get("divisor_override"):
            raise Unsupported("InfiniOp has no divisor_override")
        return self.pool(call)

    def pool(self, call: Call) -> Results:
        name, numbers = infiniop_pool(call)
        source, dtype = batched(call.source, call), call.source.dtype
        ((result_name, shape),) = call.result_shapes().items()
        result = unwritten(batched_shape(shape, call), dtype)
        arrays = [source]
        if not call.is_forward:
            arrays.append(np.zeros(result.shape, dtype))  # the forward input
        with ExitStack() as stack:
            operator = self.operator(stack, name, [result, *arrays], *numbers)
            inputs = [self.upload(stack, array) for array in arrays]
            self.launch(stack, name, operator, [result], inputs)
        return {result_name: result.reshape(shape)}

    def conv(self, call: Call) -> Results:
        assert isinstance(call.weight, np.ndarray)
        operands = [batched(call.source, call), np.ascontiguousarray(call.weight)]
        bias = None if call.bias is None else np.ascontiguousarray(call.bias)
        result = unwritten(batched_shape(call.output_shape, call), call.source.dtype)
        with ExitStack() as stack:
            numbers = self.conv_numbers(call)
            operator = self.operator(stack, "Conv", [result, *operands, bias], *numbers)
            inputs = [self.upload(stack, array) for array in operands]
            inputs.append(Pointer() if bias is None else self.upload(stack, bias))
            self.launch(stack, "Conv", operator, [result], inputs)
        return {"output": result.reshape(call.output_shape)}

    def conv_backward(self, call: Call) -> Results:
        assert isinstance(call.input, np.ndarray)
        assert isinstance(call.weight, np.ndarray)
        grad, input = batched(call.grad_output, call), batched(call.input, call)
        weight = np.ascontiguousarray(call.weight)
        shapes = (input.shape, weight.shape, weight.shape[:1])
        results = [unwritten(shape, grad.dtype) for shape in shapes]
        with ExitStack() as stack:
            described = [grad, input, weight, results[2]]
            numbers = self.conv_numbers(call)
            operator = self.operator(stack, "ConvBackward", described, *numbers)
            inputs = [self.upload(stack, array) for array in (grad, input, weight)]
            self.launch(stack, "ConvBackward", operator, results, inputs)
        return chosen_gradients(call, results)

    def conv_numbers(self, call: Call) -> list[Any]:
        stride, padding, dilation = conv_numbers(call)
        groups = ctypes.c_size_t(call.parameters.get("groups", 1))
        return [*map(int64s, (padding, stride, dilation)), groups]

    def operator(
        self, stack: ExitStack, name: str, arrays: Sequence[NDArray[Any] | None], *numbers: Any
    ) -> Pointer:
        """The descriptor of an operator on such tensors; None is a bias that is not there."""
        made = Pointer()
        tensors = [
            Pointer() if array is None else self.descriptor(stack, array.shape, array.dtype)
            for array in arrays
        ]
        create = f"infiniopCreate{name}Descriptor"
        self.symbols.call(create, self.handle, ctypes.byref(made), *tensors, *numbers)
        stack.callback(self.symbols.call, f"infiniopDestroy{name}Descriptor", made)
        return made

    def launch(
        self,
        stack: ExitStack,
        name: str,
        operator: Pointer,
        results: list[NDArray[Any]],
        inputs: list[Pointer],
    ) -> None:
        size = ctypes.c_size_t()
        self.symbols.call(f"infiniopGet{name}WorkspaceSize", operator, ctypes.byref(size))
        workspace = self.allocate(stack, size.value) if size.value else Pointer()
        outputs = [self.upload(stack, array) for array in results]
        # Stream NULL: done when the call returns.
        self.symbols.call(f"infiniop{name}", operator, workspace, size, *outputs, *inputs, None)
        self.symbols.call("infinirtDeviceSynchronize")
        for array, output in zip(results, outputs, strict=True):
            self.copy(array.ctypes.data, output, array.nbytes, TO_HOST)

    def descriptor(self, stack: ExitStack, shape: Sequence[int], dtype: np.dtype[Any]) -> Pointer:
        made = Pointer()
        self.symbols.call(
            "infiniopCreateTensorDescriptor",
            ctypes.byref(made),
            ctypes.c_size_t(len(shape)),
            int64s(shape),
            None,
            ctypes.c_int(self.DTYPES[dtype.name]),
        )
        stack.callback(self.symbols.call, "infiniopDestroyTensorDescriptor", made)
        return made

    def upload(self, stack: ExitStack, array: NDArray[Any]) -> Pointer:
        memory = self.allocate(stack, array.nbytes)
        self.copy(memory, array.ctypes.data, array.nbytes, TO_DEVICE)
        return memory

    def allocate(self, stack: ExitStack, size: int) -> Pointer:
        memory = Pointer()
        self.symbols.call("infinirtMalloc", ctypes.byref(memory), ctypes.c_size_t(size))
        stack.callback(self.symbols.call, "infinirtFree", memory)
        return memory

    def copy(self, to: Any, source: Any, size: int, kind: int) -> None:
        self.symbols.call(
            "infinirtMemcpy", as_pointer(to), as_pointer(source), ctypes.c_size_t(size),
            ctypes.c_int(kind),
        )  # fmt: skip


class Cann:
    DTYPES = {"float32": 0, "float16": 1, "bfloat16": 27}  # noqa: RUF012
    FORMATS = {3: 47, 4: 0, 5: 30}  # noqa: RUF012  # NCL, NCHW, NCDHW
    ND = 2
    PRECISIONS = ("keep", "allow_fp32_down", "fp16", "hf32")  # cubeMathType 0 to 3

    def __init__(self, symbols: Symbols, number: int) -> None:
        self.symbols = symbols
        symbols.call("aclInit", None)
        symbols.call("aclrtSetDevice", ctypes.c_int32(number))
        self.stream = Pointer()
        symbols.call("aclrtCreateStream", ctypes.byref(self.stream))

    def run(self, call: Call) -> Results:
        check(call, self.DTYPES)
        with ExitStack() as stack:
            if not call.is_conv:
                return self.pool(stack, call)
            return self.conv(stack, call) if call.is_forward else self.conv_backward(stack, call)

    def pool(self, stack: ExitStack, call: Call) -> Results:
        name = operator_name(call)
        dtype = call.source.dtype
        ((result_name, shape),) = call.result_shapes().items()
        result = unwritten(shape, dtype)
        # Unbatched 3-D pooling has four axes, which are not NCHW.
        axes = self.ND if call.rank == 3 and result.ndim == 4 else None
        operands = [self.upload(stack, call.source, axes)[0]]
        if not call.is_forward:
            operands.append(self.upload(stack, np.zeros(call.input_shape, dtype), axes)[0])
        output, memory = self.upload(stack, result, axes)
        parameters = self.pool_parameters(stack, call, name)
        self.launch(stack, name, *operands, *parameters, output)
        self.copy(result.ctypes.data, memory, result.nbytes, TO_HOST)
        return {result_name: result}

    def pool_parameters(self, stack: ExitStack, call: Call, name: str) -> list[Any]:
        if call.operator in ADAPTIVE:
            if not call.is_forward:
                return []
            return [self.ints(stack, call.output_shape[-call.rank :])]
        parameters: list[Any] = [
            *(self.ints(stack, numbers) for numbers in pool_numbers(call)),
            ctypes.c_bool(call.parameters.get("ceil_mode", False)),
            ctypes.c_bool(call.parameters.get("count_include_pad", True)),
            ctypes.c_int64(call.parameters.get("divisor_override") or 0),
        ]
        precision = self.precision(call)
        if call.rank == 2:
            parameters.append(precision)
        elif precision.value:
            raise Unsupported(f"{name} has no precision")
        return parameters

    def precision(self, call: Call) -> ctypes.c_int8:
        return ctypes.c_int8(self.PRECISIONS.index(call.parameters.get("precision", "keep")))

    def conv_parameters(self, stack: ExitStack, call: Call) -> list[Any]:
        return [
            *(self.ints(stack, numbers) for numbers in conv_numbers(call)),
            ctypes.c_bool(call.is_transposed),
            self.ints(stack, output_padding(call.rank, call.parameters)),
        ]

    def conv(self, stack: ExitStack, call: Call) -> Results:
        assert isinstance(call.weight, np.ndarray)
        result = unwritten(batched_shape(call.output_shape, call), call.source.dtype)
        output, memory = self.upload(stack, result)
        operands = [batched(call.source, call), call.weight]
        bias = None if call.bias is None else self.upload(stack, call.bias, self.ND)[0]
        self.launch(
            stack,
            "aclnnConvolution",
            *(self.upload(stack, array)[0] for array in operands),
            bias,
            *self.conv_parameters(stack, call),
            ctypes.c_int64(call.parameters.get("groups", 1)),
            output,
            self.precision(call),
        )
        self.copy(result.ctypes.data, memory, result.nbytes, TO_HOST)
        return {"output": result.reshape(call.output_shape)}

    def conv_backward(self, stack: ExitStack, call: Call) -> Results:
        assert isinstance(call.input, np.ndarray)
        assert isinstance(call.weight, np.ndarray)
        arrays = [batched(call.grad_output, call), batched(call.input, call), call.weight]
        operands = [self.upload(stack, array)[0] for array in arrays]
        shapes = (arrays[1].shape, call.weight_shape, (call.output_channels,))
        results = [unwritten(shape, arrays[0].dtype) for shape in shapes]
        outputs = [
            self.upload(stack, array, self.ND if array.ndim == 1 else None) for array in results
        ]
        masked = zip(outputs, call.output_mask, strict=True)
        self.launch(
            stack,
            "aclnnConvolutionBackward",
            *operands,
            self.ints(stack, (call.output_channels,)),
            *self.conv_parameters(stack, call),
            ctypes.c_int(call.parameters.get("groups", 1)),
            self.bools(stack, call.output_mask),
            self.precision(call),
            *(tensor if wanted else None for (tensor, _), wanted in masked),
        )
        for array, (_, memory) in zip(results, outputs, strict=True):
            self.copy(array.ctypes.data, memory, array.nbytes, TO_HOST)
        return chosen_gradients(call, results)

    def launch(self, stack: ExitStack, name: str, *arguments: Any) -> None:
        size, executor = ctypes.c_uint64(), Pointer()
        self.symbols.call(
            f"{name}GetWorkspaceSize", *arguments, ctypes.byref(size), ctypes.byref(executor)
        )
        workspace = self.allocate(stack, size.value) if size.value else Pointer()
        self.symbols.call(name, workspace, size, executor, self.stream)
        self.symbols.call("aclrtSynchronizeStream", self.stream)

    def upload(
        self, stack: ExitStack, array: NDArray[Any], axes: int | None = None
    ) -> tuple[Pointer, Pointer]:
        """A tensor on the device, and its memory."""
        array = np.ascontiguousarray(array)
        memory = self.allocate(stack, array.nbytes)
        self.copy(memory, array.ctypes.data, array.nbytes, TO_DEVICE)
        strides = [stride // array.itemsize for stride in array.strides]
        tensor = self.symbols.make(
            "aclCreateTensor",
            int64s(array.shape),
            ctypes.c_uint64(array.ndim),
            ctypes.c_int(self.DTYPES[array.dtype.name]),
            int64s(strides),
            ctypes.c_int64(0),
            ctypes.c_int(axes or self.FORMATS.get(array.ndim, self.ND)),
            int64s(array.shape),
            ctypes.c_uint64(array.ndim),
            memory,
        )
        stack.callback(self.symbols.call, "aclDestroyTensor", tensor)
        return tensor, memory

    def ints(self, stack: ExitStack, values: Sequence[int]) -> Pointer:
        made = self.symbols.make("aclCreateIntArray", int64s(values), ctypes.c_uint64(len(values)))
        stack.callback(self.symbols.call, "aclDestroyIntArray", made)
        return made

    def bools(self, stack: ExitStack, values: Sequence[bool]) -> Pointer:
        array = (ctypes.c_bool * len(values))(*values)
        made = self.symbols.make("aclCreateBoolArray", array, ctypes.c_uint64(len(values)))
        stack.callback(self.symbols.call, "aclDestroyBoolArray", made)
        return made

    def allocate(self, stack: ExitStack, size: int) -> Pointer:
        memory = Pointer()
        huge_first = ctypes.c_int(0)
        self.symbols.call("aclrtMalloc", ctypes.byref(memory), ctypes.c_size_t(size), huge_first)
        stack.callback(self.symbols.call, "aclrtFree", memory)
        return memory

    def copy(self, to: Any, source: Any, size: int, kind: int) -> None:
        self.symbols.call(
            "aclrtMemcpy", as_pointer(to), ctypes.c_size_t(size), as_pointer(source),
            ctypes.c_size_t(size), ctypes.c_int(kind),
        )  # fmt: skip


def infiniop_pool(call: Call) -> tuple[str, list[Any]]:
    """The function, and what it is told beside the tensors."""
    if call.operator in ADAPTIVE:
        if not call.is_forward or call.rank == 2:
            raise Unsupported(f"InfiniOp has no {call.operator}")
        sizes = int64s(call.output_shape[-call.rank :])
        return ("AdaptiveAvgPool1d", []) if call.rank == 1 else ("AdaptiveAvgPool3D", [sizes])
    numbers = pool_numbers(call)
    ceil_mode = call.parameters.get("ceil_mode", False)
    if call.is_forward and not ceil_mode and call.rank != 2:
        if call.rank == 1:
            return "AvgPool1d", [ctypes.c_size_t(number) for (number,) in numbers]
        return "AvgPool3d", [*map(int64s, numbers)]
    name = "AvgPool" if call.is_forward else "AvgPoolBackward"
    return name, [*map(int64s, numbers), ctypes.c_bool(ceil_mode)]


def operator_name(call: Call) -> str:
    kind = "AdaptiveAvgPool" if call.operator in ADAPTIVE else "AvgPool"
    if call.rank == 1:
        raise Unsupported("CANN has no 1-D pooling")
    return f"aclnn{kind}{call.rank}d{'' if call.is_forward else 'Backward'}"


def chosen_gradients(call: Call, results: Sequence[NDArray[Any]]) -> Results:
    """Those the call asks for, of its own shapes."""
    named = zip(GRADIENTS, results, strict=True)
    shapes = call.result_shapes()
    return {name: array.reshape(shapes[name]) for name, array in named if name in shapes}


def as_pointer(address: Any) -> Pointer:
    return address if isinstance(address, Pointer) else Pointer(address)


def batched_shape(shape: Sequence[int], call: Call) -> tuple[int, ...]:
    return (1,) * (call.rank + 2 - len(shape)) + tuple(shape)


def batched(array: NDArray[Any], call: Call) -> NDArray[Any]:
    """With a batch axis, and contiguous, as the descriptors say."""
    return np.ascontiguousarray(array).reshape(batched_shape(array.shape, call))
