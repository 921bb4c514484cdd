"""Which engine a convolution is planned on, over a grid of shapes.

    PYTHONPATH=tests python -m conv_choices > tests/cases/conv_choices.txt

writes what is chosen now. A change of choice then shows in the diff of that file.
"""

from __future__ import annotations

import itertools

from conv_support import ConvCase

CHANNELS = (1, 3, 4, 8, 15, 16, 17, 20, 26, 32, 33, 36, 48, 50, 64, 65, 128, 256)
FEW = (1, 2, 5, 8, 10)


def grid() -> list[ConvCase]:
    """Batches of 8: dense layers by channels, by kernel and by rank, groups, depthwise, sequences."""
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


def print_choices() -> None:
    """One line for each problem: what runs in float32, bfloat16 and float64."""
    import backops.plan

    for case in grid():
        kernels = [
            case.plan(backops.plan, dtype=dtype).kernel
            for dtype in ("float32", "bfloat16", "float64")
        ]
        engines = [
            "windows" if ":windows" in kernel else kernel.split()[1].split(":")[0]
            for kernel in kernels
        ]
        print(f"{line_of(case)} -> {' '.join(engines)}")


LEVELS = ("avx512", "avx2", "generic")


def choices() -> str:
    import support

    code = "import conv_choices; conv_choices.print_choices()"
    return "".join(
        f"# {level}\n{support.run_python(code, BACKOPS_ISA=level).stdout}" for level in LEVELS
    )


if __name__ == "__main__":
    print(choices(), end="")
