"""Which engine a convolution is planned on, over a grid of shapes.

    python -m tests.support.conv_choices > tests/cases/conv_choices.txt

writes what is chosen now. A change of choice then shows in the diff of that file.
"""

from __future__ import annotations

import itertools

import backops

from .conv_cases import ConvCase

CHANNELS = (1, 3, 4, 8, 15, 16, 17, 20, 26, 32, 33, 36, 48, 50, 64, 65, 128, 256)
FEW = (1, 2, 5, 8, 10)


def grid() -> list[ConvCase]:
    """Batches of 8: dense layers, groups, depthwise ones, sequences, volumes, odd ones."""
    cases = [dense(channels, channels, 3) for channels in CHANNELS]
    cases += [dense(64, few, kernel) for few, kernel in itertools.product(FEW, (1, 3))]
    cases += [dense(few, 64, kernel) for few, kernel in itertools.product(FEW, (1, 3, 7))]
    cases += [dense(64, 64, 1, stride=2), dense(64, 128, 3, stride=2), dense(2, 4, 1, stride=2)]
    cases += [grouped(32, size, 3) for size in (1, 2, 3, 4, 5, 8, 12, 15, 16, 24, 32)]
    cases += [grouped(3, size, 3) for size in (4, 8, 16)]
    cases += [grouped(64, 1, kernel) for kernel in (5, 7, 31)]
    cases += [ConvCase("sequence", (8, c, 4000), (c, c, 9), padding=4) for c in (1, 24, 64)]
    cases += [
        ConvCase("depthwise sequence", (8, 64, length), (64, 1, 31), padding=15, groups=64)
        for length in (500, 4000, 16000)
    ]
    cases += [
        ConvCase("volume", (2, c, 16, 28, 28), (c, c, 3, 3, 3), padding=1) for c in (3, 16, 20, 64)
    ]
    cases += [
        ConvCase("one column", (8, 8, 22, 500), (8, 1, 22, 1), groups=8),
        ConvCase("dilated", (8, 3, 56, 56), (32, 3, 3, 3), padding=2, dilation=2),
        ConvCase("patches", (8, 3, 224, 224), (768, 3, 16, 16), stride=16),
        ConvCase("long stride", (8, 4, 9000), (8, 4, 40), stride=20),
    ]
    return cases


def dense(channels, outputs, kernel, stride=1) -> ConvCase:
    return ConvCase(
        "dense", (8, channels, 56, 56), (outputs, channels, kernel, kernel), stride, kernel // 2
    )


def grouped(groups, size, kernel) -> ConvCase:
    shape = (8, groups * size, 28, 28)
    return ConvCase(
        "grouped", shape, (shape[1], size, kernel, kernel), 1, kernel // 2, groups=groups
    )


def line_of(case: ConvCase) -> str:
    parts = [f"{case.name}: {case.input_shape} * {case.weight_shape}"]
    for name, default in (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1)):
        if getattr(case, name) != default:
            parts.append(f"{name} {getattr(case, name)}")
    return ", ".join(parts)


# Name: capabilities, bytes of the first-level and of the second-level cache.
CPUS = {
    "Sapphire Rapids": ("avx2 avx512 wide_512 avx512_bf16 amx", 48 << 10, 2 << 20),
    "Ice Lake": ("avx2 avx512 wide_512", 48 << 10, 1280 << 10),
    "Zen 5": ("avx2 avx512 wide_512 avx512_bf16", 48 << 10, 1 << 20),
    "Zen 4": ("avx2 avx512 avx512_bf16", 32 << 10, 1 << 20),
    "a laptop": ("avx2", 32 << 10, 512 << 10),
    "anything": ("", 32 << 10, 512 << 10),
}
DTYPES = ("float32", "bfloat16", "float64")


def engine_of(case: ConvCase, dtype: str, cpu: str) -> str:
    """The engines that CPU would run it on, and "half" where vectors have half their width."""
    why = backops._native.explain_conv(
        case.input_shape, case.weight_shape, case.stride, case.padding, case.dilation, case.groups,
        dtype, *CPUS[cpu],
    )  # fmt: skip
    names = []
    for line in why.splitlines():
        name, chosen, rest = line.partition(": chosen")
        if chosen:
            names.append(name.rpartition(": ")[2] + (" half" if "half width" in rest else ""))
    return " + ".join(names)


def choices() -> str:
    """One line for each CPU and problem: what runs in each of DTYPES."""
    lines = []
    for cpu in CPUS:
        lines.append(f"# {cpu}: {', '.join(DTYPES)}")
        lines += [
            f"{line_of(case)} -> {', '.join(engine_of(case, dtype, cpu) for dtype in DTYPES)}"
            for case in grid()
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(choices(), end="")
