"""The suite that the `cann` standard describes, as far as one list of cases can hold it.

Every combination of operator, rank, dtype, batched or not, and attributes; sizes are powers of two
and those less one. Beside them empty tensors, sizes of 1, one size at its largest, NaN and
infinities.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

Row = dict[str, Any]

DTYPES = ("float32", "float16", "bfloat16")
SIZES = {1: (15, 16, 31, 32, 63, 64), 2: (7, 8, 15, 16), 3: (3, 4, 7, 8)}
CHANNELS = (1, 2, 3, 4, 7, 8)
BATCHES = (1, 2, 3, 4)
# The largest size along one axis here; a device's own limit may be larger.
LARGEST = 1 << 16
SPECIALS = ("nan", "inf", "-inf", "infinities")


def rows() -> Iterator[Row]:
    """Each kind of pooling and convolution, then the operators beside it on the same tensors."""
    for rank in (1, 2, 3):
        for row in itertools.chain(pools(rank), adaptives(rank), convs(rank)):
            yield from relatives({**row, "dtype": list(DTYPES)})
        for row in rounded_operands(rank):
            yield from relatives(row)
        for row in edges(rank):
            yield from relatives({**row, "dtype": list(DTYPES)})


def relatives(row: Row) -> Iterator[Row]:
    """A gradient, and the operator it belongs to; of a convolution the transposed ones too."""
    yield row
    forward = row["operator"].removesuffix("_backward")
    # Every second convolution has a bias, the same one whatever else changes.
    biased = {"bias": zlib.crc32(row["name"].encode()) % 2 == 0} if "weight" in row else {}
    yield {**row, "name": f"forward_{row['name']}", "operator": forward, **biased}
    if "weight" not in row:
        return
    outputs, *_ = row["weight"]
    groups, rank = row.get("groups", 1), len(row["weight"]) - 2
    input, sizes = row["input"], row["input"][-rank:]
    each = input[-rank - 1]
    # The same channels: as many of the input, and of a group's weight those of the output.
    transposed = {
        **row,
        "weight": [each, outputs // groups, *row["weight"][2:]],
        **({"output_padding": 1} if row.get("stride", 1) > 1 and max(sizes) < LARGEST else {}),
    }
    yield {
        **transposed,
        "name": f"transposed_{row['name']}",
        "operator": "conv_transpose",
        **biased,
    }
    yield {
        **transposed,
        "name": f"transposed_gradients_{row['name']}",
        "operator": "conv_transpose_backward",
    }


def combinations(**choices: tuple[Any, ...]) -> Iterator[Row]:
    """Every combination; a choice of None is left out."""
    for values in itertools.product(*choices.values()):
        named = zip(choices, values, strict=True)
        yield {name: value for name, value in named if value is not None}


def name_of(kind: str, rank: int, given: Row, is_batched: bool) -> str:
    short = ["".join(part[0] for part in name.split("_")) + str(value).replace(" ", "")
             for name, value in given.items()]  # fmt: skip
    return "_".join([f"{kind}{rank}d", *short, *([] if is_batched else ["unbatched"])])


def draw(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def shape(generator: np.random.Generator, rank: int, channels: int, is_batched: bool) -> list[int]:
    spatial = generator.choice(SIZES[rank], rank).tolist()
    return [*([int(generator.choice(BATCHES))] if is_batched else []), channels, *spatial]


def pools(rank: int) -> Iterator[Row]:
    attributes = combinations(
        kernel_size=(2, 3),
        stride=(None, 1, 2),
        padding=(0, 1),
        ceil_mode=(False, True),
        count_include_pad=(True, False),
        divisor_override=(None, 5),
    )
    for given, is_batched in itertools.product(attributes, (True, False)):
        name = name_of("avg_pool", rank, given, is_batched)
        generator = draw(name)
        sizes = shape(generator, rank, int(generator.choice(CHANNELS)), is_batched)
        yield {"name": name, "operator": f"avg_pool{rank}d_backward", "input": sizes, **given}


def adaptives(rank: int) -> Iterator[Row]:
    sizes = (1, 3, 4, 7, 8)
    for given, is_batched in itertools.product(combinations(output_size=sizes), (True, False)):
        name = name_of("adaptive_avg_pool", rank, given, is_batched)
        generator = draw(name)
        input = shape(generator, rank, int(generator.choice(CHANNELS)), is_batched)
        operator = f"adaptive_avg_pool{rank}d_backward"
        yield {"name": name, "operator": operator, "input": input, **given}


def convs(rank: int) -> Iterator[Row]:
    attributes = combinations(
        kernel_size=(1, 3), stride=(1, 2), padding=(0, 1), dilation=(1, 2), groups=(1, 2)
    )
    for given, is_batched in itertools.product(attributes, (True, False)):
        name = name_of("conv", rank, given, is_batched)
        generator = draw(name)
        groups = given["groups"]
        # Twice what is a power less one would be neither.
        channels = CHANNELS if groups == 1 else (1, 2, 4)
        each, outputs = (int(count) for count in generator.choice(channels, 2))
        sizes = [max(size, 7) for size in shape(generator, rank, 0, is_batched)[-rank:]]
        batch = [int(generator.choice(BATCHES))] if is_batched else []
        kernel = [given["kernel_size"]] * rank
        others = {key: value for key, value in given.items() if key != "kernel_size"}
        yield {
            "name": name, "operator": "conv_backward", "input": [*batch, groups * each, *sizes],
            "weight": [groups * outputs, each, *kernel], **others,
        }  # fmt: skip


def rounded_operands(rank: int) -> Iterator[Row]:
    """The precisions that change float32."""
    for precision in ("allow_fp32_down", "fp16", "hf32"):
        sizes = [2, 3, *[SIZES[rank][1]] * rank]
        more = {"precision": precision, "dtype": "float32", "input": sizes}
        yield {
            "name": f"avg_pool{rank}d_{precision}", "operator": f"avg_pool{rank}d_backward",
            "kernel_size": 3, "stride": 2, "padding": 1, **more,
        }  # fmt: skip
        yield {
            "name": f"conv{rank}d_{precision}", "operator": "conv_backward",
            "weight": [4, 3, *[3] * rank], "padding": 1, **more,
        }  # fmt: skip


def edges(rank: int) -> Iterator[Row]:
    """Empty, sizes of 1, one size at its largest, and inputs that are no numbers."""
    usual = SIZES[rank][1]
    shapes = {
        "empty": [0, 3, *[usual] * rank],
        "ones": [1] * (rank + 2),
        "largest": [1, 1, *[1] * (rank - 1), LARGEST],
        **{values: [2, 3, *[usual] * rank] for values in SPECIALS},
    }
    for kind, sizes in shapes.items():
        more: Row = {"input": sizes, **({"values": kind} if kind in SPECIALS else {})}
        is_one = kind == "ones" or (kind == "largest" and rank > 1)
        kernel = [1] * (rank - 1) + [1 if kind == "ones" else 2] if is_one else [2] * rank
        yield {
            "name": f"avg_pool{rank}d_{kind}", "operator": f"avg_pool{rank}d_backward",
            "kernel_size": kernel, **more,
        }  # fmt: skip
        yield {
            "name": f"adaptive_avg_pool{rank}d_{kind}",
            "operator": f"adaptive_avg_pool{rank}d_backward", "output_size": 1, **more,
        }  # fmt: skip
        yield {
            "name": f"conv{rank}d_{kind}", "operator": "conv_backward",
            "weight": [2, sizes[1], *kernel], **more,
        }  # fmt: skip
