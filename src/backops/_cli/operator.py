"""Options that name an operator's tensors and parameters, for `run` and `verify`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click
from numpy.typing import NDArray

from backops._calls import OPERATORS, Call
from backops._command import UsageError
from backops._files import DTYPES, Shape, parse_shape, read_tensor

PRECISIONS = ("keep", "allow_fp32_down", "fp16", "hf32")


def axes(text: str) -> int | tuple[int, ...]:
    """3 from "3", (3, 5) from "3,5" or "3x5"."""
    if not re.fullmatch(r"-?\d+([,x]-?\d+)*", text):
        raise click.BadParameter(f"{text!r} is not an integer, or several as in 3,3")
    numbers = tuple(map(int, re.split("[,x]", text)))
    return numbers[0] if len(numbers) == 1 else numbers


def output_axes(text: str) -> Any:
    """As `axes`; "none" keeps an axis as it is."""
    parts = [None if part == "none" else axes(part) for part in re.split("[,x]", text)]
    return parts[0] if len(parts) == 1 else tuple(parts)


def mask(text: str) -> tuple[bool, ...]:
    """(True, False, True) from "1,0,1"."""
    if not re.fullmatch("[01],[01],[01]", text):
        raise click.BadParameter(f"{text!r} is not three of 0 and 1, as in 1,1,0")
    return tuple(digit == "1" for digit in text.split(","))


def operator_options(*, required: bool) -> Callable[[Any], Any]:
    """The argument OPERATOR, the tensors, and every parameter of any operator."""
    decorators = [
        click.argument(
            "operator", type=click.Choice(OPERATORS), metavar="OPERATOR", required=required
        ),
        click.option(
            "--grad-output",
            metavar="FILE",
            help="Gradient of the operator's result, for the operators that end in _backward.",
        ),
        click.option(
            "--input",
            metavar="FILE|SHAPE",
            help="Forward input. Its shape (8,64,56,56) is enough for gradients of pooling, and "
            "for those of a convolution but grad_weight.",
        ),
        click.option(
            "--weight",
            metavar="FILE|SHAPE",
            help="Weight of a convolution, or its shape where that is enough.",
        ),
        click.option("--bias", metavar="FILE", help="Of conv and conv_transpose; may be left out."),
        click.option(
            "--dtype",
            type=click.Choice(tuple(DTYPES)),
            help="Of .bin files and bfloat16 .npy files that do not say.",
        ),
        click.option(
            "--shape", metavar="SHAPE", help="Of grad_output (forward: input) in a .bin file."
        ),
        click.option(
            "--kernel-size",
            type=axes,
            metavar="N|N,N,..",
            help="One for all axes, or one per axis.",
        ),
        click.option(
            "--stride",
            type=axes,
            metavar="N|N,N,..",
            help="Pooling: kernel size if left out; convolution: 1.",
        ),
        click.option(
            "--padding", type=axes, metavar="N|N,N,..", help="On both sides of each axis."
        ),
        click.option(
            "--output-padding",
            type=axes,
            metavar="N|N,N,..",
            help="Transposed convolution: outputs added at the end of each axis.",
        ),
        click.option(
            "--output-size",
            type=output_axes,
            metavar="N|N,N,..",
            help="Of adaptive pooling; none keeps the size of an axis.",
        ),
        click.option("--dilation", type=axes, metavar="N|N,N,..", help="Convolution only."),
        click.option("--ceil-mode/--no-ceil-mode", default=None, help="Round the pooled size up."),
        click.option(
            "--count-include-pad/--no-count-include-pad",
            default=None,
            help="Whether padding counts in the divisor (default: it does).",
        ),
        click.option(
            "--divisor-override",
            type=int,
            metavar="N",
            help="Divide by N instead of the window's size.",
        ),
        click.option("--groups", type=int, metavar="N", help="Convolution only."),
        click.option(
            "--precision",
            type=click.Choice(PRECISIONS),
            help="What float32 operands are rounded to first.",
        ),
        click.option(
            "--output-mask",
            type=mask,
            metavar="1,1,1",
            help="Which of a convolution's gradients: input, weight, bias.",
        ),
    ]

    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def make_call(
    operator: str,
    *,
    grad_output: str | None,
    input: str | None,
    weight: str | None,
    bias: str | None,
    dtype: str | None,
    shape: str | None,
    **parameters: Any,
) -> Call:
    """Reads the files; a parameter that was not given is None and left out."""
    is_forward = not operator.endswith("_backward")
    if grad_output is None and not is_forward:
        raise UsageError("--grad-output is required")
    if input is None:
        raise UsageError("--input is required")
    sizes = None if shape is None else parse_shape(shape)
    return Call(
        operator,
        None if grad_output is None else read_tensor(grad_output, dtype=dtype, shape=sizes),
        tensor_or_shape(input, dtype, sizes if is_forward else None),
        None if weight is None else tensor_or_shape(weight, dtype),
        {name: value for name, value in parameters.items() if value is not None},
        None if bias is None else read_tensor(bias, dtype=dtype),
    )


def tensor_or_shape(
    text: str, dtype: str | None, shape: Shape | None = None
) -> NDArray[Any] | Shape:
    """`shape` is that of a file which does not say."""
    if re.fullmatch(r"\d+([,x]\d+)*", text):
        return parse_shape(text)
    return read_tensor(text, dtype=dtype, shape=shape)
