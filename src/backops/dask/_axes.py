"""One axis of an operator, cut into pieces: what a piece needs, and as which problem it is solved.

`outputs` are places along the smaller side (pooled, or convolved), `inputs` along the other one;
ranges are half open. A part of an operator is a problem of its own, `Part`, on a stretch of the
inputs. Its windows are those of the uncut axis, with their divisors; what it has beyond those that
are wanted is filled with zeros or thrown away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """Outputs `outputs` of the uncut axis as a problem on inputs from `inputs[0]` to `inputs[1]`.

    `inputs` may reach beyond the axis: zeros are there.
    """

    outputs: Range
    inputs: Range
    padding: int = 0

    @property
    def length(self) -> int:
        return self.inputs[1] - self.inputs[0]


@dataclass(frozen=True)
class FixedAxis:
    """Windows of one length at one distance."""

    length: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    ceil_mode: bool
    count_include_pad: bool

    def window(self, output: int) -> Range:
        """Where it begins and ends, before it is cut to the axis."""
        begin = output * self.stride - self.padding
        return begin, begin + self.kernel

    def divisor(self, output: int) -> int:
        begin, end = self.window(output)
        if self.count_include_pad:
            return min(end, self.length + self.padding) - begin
        return min(end, self.length) - max(begin, 0)

    def reach(self, outputs: Range) -> Range:
        """From the begin of the first window to the end of the last."""
        return self.window(outputs[0])[0], self.window(outputs[1] - 1)[1]

    def covering(self, inputs: Range) -> Range:
        """The outputs whose windows hold any of the inputs."""
        first = -((inputs[0] + self.padding - self.kernel + 1) // -self.stride)
        last = (inputs[1] - 1 + self.padding) // self.stride
        return _ordered(max(first, 0), min(last + 1, self.outputs))

    def begin_of(self, output: int) -> int:
        """Where a chunk of inputs begins that goes with outputs from here on."""
        return min(output * self.stride, self.length)

    def owner_end(self, inputs_end: int) -> int:
        """The outputs before it go with the inputs before `inputs_end`."""
        return min(-(inputs_end // -self.stride), self.outputs)

    def is_uniform(self, outputs: Range) -> bool:
        """Whether the windows all divide by the kernel's length."""
        begin, end = self.reach(outputs)
        if self.count_include_pad:
            return end <= self.length + self.padding
        return begin >= 0 and end <= self.length

    def count(self, length: int, padding: int) -> int:
        """How many outputs the operator has on an axis of that length."""
        steps = length + 2 * padding - self.kernel
        outputs = (-(steps // -self.stride) if self.ceil_mode else steps // self.stride) + 1
        return outputs - ((outputs - 1) * self.stride >= length + padding)

    def whole(self) -> Part:
        return Part((0, self.outputs), (0, self.length), self.padding)

    def free(self, outputs: Range, inputs: Range) -> Part:
        """A part whose divisors are given otherwise; its inputs are near `inputs`, if possible.

        Padding cuts the ends of the outer windows off, on both sides alike; what it takes too much
        behind is given back, up to a stride.
        """
        if outputs == (0, self.outputs) and inputs == (0, self.length):
            return self.whole()
        begin, end = self.reach(outputs)
        # Inputs behind the last window, as long as they make room for no further one.
        room = 0 if self.ceil_mode else self.stride - 1
        padding = max(0, min(inputs[0] - begin, end + room - inputs[1], self.kernel // 2))
        end -= padding
        end += max(0, min(inputs[1] - end, room))
        return Part(outputs, (begin + padding, end), padding)

    def true(self, outputs: Range) -> Part:
        """A part whose windows have the uncut axis' own divisors."""
        first = max(0, outputs[0] + self.padding // -self.stride)
        begin, end = first * self.stride, self.window(outputs[1] - 1)[1]
        if end > self.length or outputs[1] == self.outputs:
            return Part((first, self.outputs), (begin, self.length), self.padding)
        count = self.count(end - begin, self.padding)
        return Part((first, first + count), (begin, end), self.padding)


@dataclass(frozen=True)
class AdaptiveAxis:
    """Windows that share an axis evenly; of different lengths unless they divide it."""

    length: int
    outputs: int

    def window(self, output: int) -> Range:
        begin = output * self.length // self.outputs
        return begin, -((output + 1) * self.length // -self.outputs)

    def divisor(self, output: int) -> int:
        begin, end = self.window(output)
        return end - begin

    def reach(self, outputs: Range) -> Range:
        return self.window(outputs[0])[0], self.window(outputs[1] - 1)[1]

    def covering(self, inputs: Range) -> Range:
        first = inputs[0] * self.outputs // self.length
        return _ordered(first, -(inputs[1] * self.outputs // -self.length))

    def begin_of(self, output: int) -> int:
        return output * self.length // self.outputs

    def owner_end(self, inputs_end: int) -> int:
        """The outputs before it have windows that begin before `inputs_end`."""
        return -(inputs_end * self.outputs // -self.length)

    def periods(self, outputs: Range) -> Part:
        """A part in whole periods of the windows' pattern, which is adaptive again."""
        common = math.gcd(self.length, self.outputs)
        period, inputs = self.outputs // common, self.length // common
        first, last = outputs[0] // period, -(outputs[1] // -period)
        return Part((first * period, last * period), (first * inputs, last * inputs))


@dataclass(frozen=True)
class TapAxis:
    """A convolution: output `o` meets input `o * stride - padding + tap * dilation`."""

    length: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def span(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    def reach(self, outputs: Range) -> Range:
        begin = outputs[0] * self.stride - self.padding
        return begin, (outputs[1] - 1) * self.stride - self.padding + self.span

    def covering(self, inputs: Range) -> Range:
        """From the first to the last output that has a tap in the inputs."""
        first = max(0, -((inputs[0] + self.padding - self.span + 1) // -self.stride))
        last = min(self.outputs, (inputs[1] - 1 + self.padding) // self.stride + 1)
        while first < last and not self._meets(first, inputs):
            first += 1
        while first < last and not self._meets(last - 1, inputs):
            last -= 1
        return _ordered(first, last)

    def _meets(self, output: int, inputs: Range) -> bool:
        begin = output * self.stride - self.padding
        tap = max(0, -((inputs[0] - begin) // -self.dilation))
        return tap < self.kernel and begin + tap * self.dilation < inputs[1]

    def begin_of(self, output: int) -> int:
        return min(output * self.stride, self.length)

    def owner_end(self, inputs_end: int) -> int:
        return min(-(inputs_end // -self.stride), self.outputs)

    def from_outputs(self, outputs: Range) -> Part:
        """All that the outputs meet, padding included unless it is the whole axis: an operator
        pads both sides alike."""
        windows = (self.length + 2 * self.padding - self.span) // self.stride + 1
        if outputs == (0, windows):
            return Part(outputs, (0, self.length), self.padding)
        return Part(outputs, self.reach(outputs))

    def from_inputs(self, inputs: Range) -> Part | None:
        """The outputs that meet the inputs, on as little more than these as can be."""
        if inputs == (0, self.length):
            return Part((0, self.outputs), inputs, self.padding)
        outputs = self.covering(inputs)
        if outputs[0] == outputs[1]:
            return None
        begin, end = self.reach(outputs)
        room = self.stride - 1
        padding = max(0, min(inputs[0] - begin, end + room - inputs[1]))
        end -= padding
        end += max(0, min(inputs[1] - end, room))
        return Part(outputs, (begin + padding, end), padding)


def _ordered(first: int, last: int) -> Range:
    return first, max(first, last)
