"""Tables and sentences made of the figures of several CPUs, for the marked blocks of pages."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backops._bench.pool_report import LARGE_TENSOR_BYTES

if TYPE_CHECKING:
    from backops._bench.figures import Column

Parts = Mapping[str, Mapping[str, Any]]
Record = Mapping[str, Any]

DTYPES = ("float32", "bfloat16", "float16")
NETWORKS = {
    "resnet18": "ResNet-18",
    "mobilenet_v2": "MobileNetV2",
    "convnext": "ConvNeXt-T with fewer blocks",
    "unet3d": "3-D U-Net",
}
# What benchmarks of single layers measure.
LAYERS = {
    "layers": "layers of networks, backward",
    "forward": "the same layers, forward",
    "transposed": "transposed convolutions, both ways",
}
NOT_MEASURED = "not measured"
BLOCK = re.compile(
    r"(<!-- figures (\w+): written by make picture -->\n).*?(<!-- end of figures -->)", re.DOTALL
)


def with_blocks(text: str, columns: Sequence[Column]) -> str:
    """The text of a page with its marked blocks written anew."""
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]](columns)}\n{match[3]}", text)


# ---- figures -------------------------------------------------------------------------------------


def results_of(parts: Parts, part: str, dtype: str) -> list[Record]:
    """What can be trusted, of that dtype."""
    results = parts[part]["results"] if part in parts else ()
    return [each for each in results if each["dtype"] == dtype and not each.get("disturbed")]


def pooling(parts: Parts, dtype: str) -> list[Record]:
    return [
        each
        for each in results_of(parts, "all", dtype)
        if "moved_bytes" in each and each["name"] != "toy"
    ]


def convolution(parts: Parts, dtype: str) -> list[Record]:
    return [each for each in results_of(parts, "all", dtype) if each.get("gradients") == "all"]


def layers(parts: Parts, part: str, dtype: str) -> list[Record]:
    """Of `bench layers` those with all gradients; all that the other two measure."""
    of_part = results_of(parts, part, dtype)
    return [each for each in of_part if part != "layers" or each["gradients"] == "all"]


def ratios_of(results: Iterable[Record]) -> list[float]:
    return [each["ratio"] for each in results if each["ratio"] is not None]


def training(parts: Parts, dtype: str, side: str) -> dict[str, float]:
    """By network, how many times as fast the backward pass is as PyTorch alone."""
    return {
        each["network"]: each["seconds"]["alone"]["backward"] / each["seconds"][side]["backward"]
        for each in results_of(parts, "train", dtype)
        if side in each["seconds"]
    }


def mean(ratios: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def times(ratio: float) -> str:
    digits = 0 if ratio >= 10 else 1 if ratio >= 2 else 2
    return f"{ratio:.{digits}f}"


# ---- cells of the summary ------------------------------------------------------------------------


def mean_and_worst(results: Sequence[Record]) -> str:
    ratios = ratios_of(results)
    if not ratios:
        return NOT_MEASURED
    return f"{times(mean(ratios))}x, worst {times(min(ratios))}x"


def share_cell(parts: Parts, dtype: str) -> str:
    large = [r for r in pooling(parts, dtype) if r["grad_input_bytes"] >= LARGE_TENSOR_BYTES]
    return f"{min(r['share_of_bound'] for r in large):.2f}" if large else NOT_MEASURED


def layers_cell(parts: Parts, part: str, dtype: str) -> str:
    of_dtype = layers(parts, part, dtype)
    if not of_dtype:
        return NOT_MEASURED
    ratios = ratios_of(of_dtype)
    slower = sum(ratio < 1 for ratio in ratios)
    return f"{mean_and_worst(of_dtype)}, {slower} of {len(ratios)} below 1.0"


def training_cell(parts: Parts, dtype: str, network: str) -> str:
    names = {"enabled": "", "benchmark": "benchmark "}
    cells = [
        f"{name}{times(ratios[network])}x"
        for side, name in names.items()
        if network in (ratios := training(parts, dtype, side))
    ]
    return ", ".join(cells) or NOT_MEASURED


def measured_cell(parts: Parts, part: str) -> str:
    if part not in parts:
        return NOT_MEASURED
    document = parts[part]
    about = document["environment"]
    disturbed = sum(bool(each.get("disturbed")) for each in document["results"])
    left_out = f"; {disturbed} disturbed lines left out" if disturbed else ""
    torch = about["torch"].partition("+")[0]
    return f"{document['date']}, PyTorch {torch}, {about['threads']} threads{left_out}"


Cell = Callable[[Parts], str]


def summary_rows() -> list[tuple[str, Cell]]:
    def row(title: str, cell: Callable[..., str], *arguments: Any) -> tuple[str, Cell]:
        return title, lambda parts: cell(parts, *arguments)

    rows = [row("`bench all` measured", measured_cell, "all")]
    for dtype in DTYPES:
        rows.append(row(f"pooling, {dtype}", lambda p, d: mean_and_worst(pooling(p, d)), dtype))
    for dtype in DTYPES:
        rows.append(
            row(f"smallest share of memory bound, 128 MB and more, {dtype}", share_cell, dtype)
        )
    for dtype in DTYPES:
        title = f"convolution, {dtype}"
        rows.append(row(title, lambda p, d: mean_and_worst(convolution(p, d)), dtype))
    for part, title in LAYERS.items():
        rows.append(row(f"`bench {part}` measured", measured_cell, part))
        for dtype in DTYPES:
            rows.append(row(f"{title}, {dtype}", layers_cell, part, dtype))
    rows.append(row("`bench-train` measured", measured_cell, "train"))
    for network, name in NETWORKS.items():
        for dtype in DTYPES:
            rows.append(row(f"backward pass of {name}, {dtype}", training_cell, dtype, network))
    return rows


# ---- blocks --------------------------------------------------------------------------------------


def summary_table(columns: Sequence[Column]) -> str:
    lines = [
        table_line(["", *(column.title for column in columns)]),
        "|---" * (len(columns) + 1) + "|",
    ]
    for title, cell in summary_rows():
        cells = [cell(column.parts) for column in columns]
        if any(each != NOT_MEASURED for each in cells):
            lines.append(table_line([title, *cells]))
    notes = [f"{column.title}: {column.note}." for column in columns if column.note]
    return "\n".join([*lines, *(f"\n{note}" for note in notes)])


def case_tables(columns: Sequence[Column]) -> str:
    """For each CPU a section of its own."""
    sections = [section_of(column) for column in columns if "all" in column.parts]
    return "\n\n".join(sections)


def section_of(column: Column) -> str:
    results = column.parts["all"]["results"]
    tables = {
        "Pooling": [each for each in results if "moved_bytes" in each],
        "Convolution, all three gradients": [r for r in results if r.get("gradients") == "all"],
    }
    lines = [f"### {column.title}", "", f"{measured_cell(column.parts, 'all')}."]
    lines += [f"{column.note}."] if column.note else []
    for title, of_table in tables.items():
        if of_table:
            lines += ["", f"{title}:", "", *case_table(of_table)]
    return "\n".join([*lines, *(f"\n{remark}" for remark in column.remarks)])


def case_table(results: Iterable[Record]) -> list[str]:
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for result in results:
        if result["pytorch_note"] == "not timed" or result["disturbed"]:
            continue
        layout = ", channels-last" if result["layout"] == "channels_last" else ""
        case = f"{result['name']}{layout}", result["problem"]
        cells.setdefault(case, {})[result["dtype"]] = case_cell(result)
    rows = [
        table_line([*case, *(of_case.get(dtype, "") for dtype in DTYPES)])
        for case, of_case in cells.items()
    ]
    return [table_line(["case", "problem", *DTYPES]), "|---|---|---|---|---|", *rows]


def case_cell(result: Record) -> str:
    seconds, ratio = result["seconds"], result["ratio"]
    time = f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
    return f"{time}, {result['pytorch_note'] or times(ratio) + 'x'}"


def table_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def speed_sentence(columns: Sequence[Column]) -> str:
    """What holds on every CPU that was measured in full."""

    def of_pooling(parts: Parts, dtype: str) -> list[float]:
        return ratios_of(pooling(parts, dtype))

    def of_convolution(parts: Parts, dtype: str) -> list[float]:
        return ratios_of(convolution(parts, dtype))

    columns = in_full(columns, of_pooling, of_convolution)
    return wrapped(
        f"{on_cpus(columns)}, pooling is {least_means(columns, of_pooling)}, convolution "
        f"{least_means(columns, of_convolution)} (geometric means against PyTorch)."
    )


def training_sentence(columns: Sequence[Column]) -> str:
    def of_training(parts: Parts, dtype: str) -> list[float]:
        return list(training(parts, dtype, "enabled").values())

    columns = in_full(columns, of_training)
    return wrapped(
        f"{on_cpus(columns)}, the backward pass of four networks (`make bench-train`) is "
        f"{least_means(columns, of_training)} (geometric means)."
    )


Ratios = Callable[[Parts, str], list[float]]


def in_full(columns: Sequence[Column], *all_ratios: Ratios) -> list[Column]:
    """CPUs with such figures of every dtype, and held to nothing less."""
    return [
        column
        for column in columns
        if not column.held
        and all(ratios(column.parts, dtype) for ratios in all_ratios for dtype in DTYPES)
    ]


def wrapped(text: str) -> str:
    return textwrap.fill(text, 128, break_long_words=False, break_on_hyphens=False)


def on_cpus(columns: Sequence[Column]) -> str:
    if len(columns) == 1:
        return f"On the one CPU measured so far ({columns[0].title})"
    return f"On each of {len(columns)} CPUs ({'; '.join(column.title for column in columns)})"


def least_means(columns: Sequence[Column], ratios: Ratios) -> str:
    """The smallest geometric mean of any CPU, by dtype."""
    least = [min(mean(ratios(column.parts, dtype)) for column in columns) for dtype in DTYPES]
    claims = [
        f"{times(value)} times in {dtype}" for value, dtype in zip(least, DTYPES, strict=True)
    ]
    first, second, third = claims
    at_least = "at least " if len(columns) > 1 else ""
    return f"{at_least}{first.replace('times', 'times as fast')}, {second} and {third}"


BLOCKS: dict[str, Callable[[Sequence[Column]], str]] = {
    "summary": summary_table,
    "cases": case_tables,
    "speed": speed_sentence,
    "training": training_sentence,
}
