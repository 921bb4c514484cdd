"""Figures of several CPUs: the files in docs/figures, and what is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backops._bench import figures, figures_text
from backops._bench.figures import Column
from backops._command import CommandError
from tests.support.paths import ROOT

EPYC = {
    "CPU": "AMD EPYC",
    "instruction set": "avx512_bf16",
    "capabilities": "avx2 avx512 avx512_bf16",
    "backops": "1",
    "torch": "2.13.0+cpu",
    "threads": "2",
}
HELD = EPYC | {
    "instruction set": "avx2",
    "capabilities": "avx2",
    "limits": "BACKOPS_ISA=avx2 ATEN_CPU_CAPABILITY=avx2",
}


def record(**changes: Any) -> dict[str, Any]:
    return {
        "name": "layer", "problem": "(1,2)", "dtype": "float32", "layout": "contiguous",
        "seconds": 0.002, "pytorch_seconds": 0.004, "pytorch_note": None, "ratio": 2.0,
        "share_of_bound": 0.5, "disturbed": False, "threads": 2, **changes,
    }  # fmt: skip


def pool(**changes: Any) -> dict[str, Any]:
    sizes = {"moved_bytes": 300_000_000, "grad_input_bytes": 200_000_000}
    return record(**{"name": "pool", **sizes, **changes})


def conv(**changes: Any) -> dict[str, Any]:
    return record(**{"gradients": "all", "flops": 1000, **changes})


def layer(**changes: Any) -> dict[str, Any]:
    return conv(**{"choice": "", "kernel": "not kept", **changes})


def step(dtype: str = "float32", **backward: float) -> dict[str, Any]:
    seconds = {side: {"backward": value} for side, value in backward.items()}
    return {"network": "resnet18", "dtype": dtype, "seconds": seconds}


def document(*results: dict[str, Any], environment: Any = EPYC, date: str = "2026-01-02") -> Any:
    return {"date": date, "environment": environment, "results": [*results], "summary": []}


# Files


@pytest.mark.parametrize(
    ("cpu", "capabilities", "slug"),
    [
        ("AMD EPYC", "avx2 avx512 avx512_bf16", "amd-epyc-avx512_bf16"),
        ("AMD EPYC", "avx2 avx512 wide_512 avx512_bf16", "amd-epyc-avx512_bf16-wide_512"),
        ("Intel(R) Xeon(R) Processor", "avx2 avx512 wide_512", "intel-xeon-avx512"),
        ("Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz", "avx2 avx512 avx512_bf16 amx",
         "intel-xeon-platinum-8480-amx"),
        ("Neoverse-N1", "neon", "neoverse-n1-neon"),
        ("Some CPU", "none", "some-generic"),
    ],
)  # fmt: skip
def test_files_are_named_after_cpu_and_capability(cpu: str, capabilities: str, slug: str) -> None:
    assert figures.slug_of({**EPYC, "CPU": cpu, "capabilities": capabilities}) == slug


def add(folder: Path, *documents: Any, here: dict[str, str] = EPYC) -> list[Path]:
    paths = []
    for number, each in enumerate(documents):
        paths.append(folder / f"measured{number}")
        paths[-1].write_text(json.dumps(each))
    return figures.add(folder / "figures", paths, here)


def test_what_was_measured_goes_to_the_file_of_its_cpu(tmp_path: Path) -> None:
    xeon = {**EPYC, "CPU": "Xeon", "capabilities": "avx2 avx512"}
    paths = add(
        tmp_path,
        document(pool(), conv()),
        document(layer(), layer(gradients="parameters")),
        document(layer(gradients="output")),
        document(layer(gradients="output"), layer()),
        document(step(alone=2.0, enabled=1.0)),
        document(pool(), environment=xeon),
    )
    assert [path.name for path in paths] == 5 * ["amd-epyc-avx512_bf16.json"] + ["xeon-avx512.json"]
    epyc, other = figures.columns_of(tmp_path / "figures")
    assert [*epyc.parts] == ["all", "layers", "forward", "transposed", "train"]
    assert [*other.parts] == ["all"]
    assert "kernel" not in epyc.parts["layers"]["results"][0]


def test_what_is_measured_again_replaces_its_like_and_nothing_else(tmp_path: Path) -> None:
    (path,) = add(tmp_path, document(pool()))
    machine = json.loads(path.read_text()) | {"note": "by hand"}
    path.write_text(json.dumps(machine))
    add(tmp_path, document(layer()), document(pool(ratio=7.0), date="2026-02-03"))
    (column,) = figures.columns_of(tmp_path / "figures")
    assert column.parts["all"]["date"] == "2026-02-03"
    assert column.parts["layers"]["date"] == "2026-01-02"
    assert column.note == "by hand"


def test_what_was_held_to_less_is_a_set_of_its_own(tmp_path: Path) -> None:
    add(tmp_path, document(pool()), document(pool(ratio=1.5), environment=HELD))
    native, held = figures.columns_of(tmp_path / "figures")
    assert (native.title, native.held) == ("AMD EPYC, avx512_bf16", False)
    assert (held.title, held.held) == ("AMD EPYC, avx512_bf16, held to avx2", True)
    assert figures.drawn([native, held]) == [("", native.parts["all"])]


def test_what_was_held_elsewhere_has_no_file(tmp_path: Path) -> None:
    for here in ({**EPYC, "CPU": "another"}, HELD):
        with pytest.raises(CommandError, match="held to avx2"):
            add(tmp_path, document(pool(), environment=HELD), here=here)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"results": []}'])
def test_files_of_unfinished_runs_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "unfinished.json"
    path.write_text(text)
    with pytest.raises(CommandError, match=r"unfinished\.json: not what"):
        figures.add(tmp_path / "figures", [path], EPYC)
    assert not (tmp_path / "figures").exists()


def test_records_are_lines(tmp_path: Path) -> None:
    value = {"a": {"b": [{"c": 1, "d": [2]}, {"c": 3}], "e": []}, "f": None}
    text = figures.dumps(value)
    assert json.loads(text) == value
    assert '      {"c": 1, "d": [2]},\n      {"c": 3}\n' in text


# Tables


def column(title: str = "a CPU", held: bool = False, note: str = "", **parts: Any) -> Column:
    return Column(title, parts, held, note)


def cells_of(table: str, title: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_summary_has_a_column_for_each_cpu() -> None:
    measured = column(
        "first",
        all=document(
            pool(ratio=2.0), pool(ratio=8.0, share_of_bound=0.75), pool(name="toy", ratio=0.1),
            pool(ratio=0.01, disturbed=True), pool(dtype="bfloat16", ratio=None),
            conv(ratio=3.0), conv(ratio=0.5, gradients="weight"),
        ),
        layers=document(layer(ratio=0.5), layer(ratio=2.0), layer(gradients="parameters")),
        forward=document(layer(ratio=4.0, gradients="output")),
        transposed=document(layer(ratio=2.0, gradients="output"), layer(ratio=0.5)),
        train=document(step(alone=3.0, enabled=2.0, benchmark=1.0), step("float16", alone=1.0,
                                                                         enabled=0.5)),
    )  # fmt: skip
    table = figures_text.summary_table([measured, column("second", note="A note")])
    assert "|  | first | second |\n|---|---|---|\n" in table
    expected = {
        "`bench all` measured": "2026-01-02, PyTorch 2.13.0, 2 threads; 1 disturbed lines left out",
        "pooling, float32": "4.0x, worst 2.0x",
        "smallest share of memory bound, 128 MB and more, float32": "0.50",
        "convolution, float32": "3.0x, worst 3.0x",
        "layers of networks, backward, float32": "1.00x, worst 0.50x, 1 of 2 below 1.0",
        "the same layers, forward, float32": "4.0x, worst 4.0x, 0 of 1 below 1.0",
        "transposed convolutions, both ways, float32": "1.00x, worst 0.50x, 1 of 2 below 1.0",
        "backward pass of ResNet-18, float32": "1.50x, benchmark 3.0x",
        "backward pass of ResNet-18, float16": "2.0x",
    }
    for title, cell in expected.items():
        assert cells_of(table, title) == [cell, "not measured"]
    assert "pooling, float16" not in table  # nobody measured it
    assert table.endswith("\n\nsecond: A note.")


def test_cases_have_a_section_for_each_cpu() -> None:
    part = document(
        pool(name="both", ratio=2.345), pool(name="both", dtype="bfloat16", ratio=12.3),
        pool(name="both", dtype="float16", ratio=None, pytorch_note="PyTorch cannot"),
        pool(name="alone", ratio=0.987, seconds=0.000123456, layout="channels_last"),
        pool(name="disturbed", disturbed=True), pool(name="long", pytorch_note="not timed"),
        conv(name="dense"), conv(name="single", gradients="weight"),
    )  # fmt: skip
    text = figures_text.case_tables([column("first", all=part), column("second", layers=part)])
    assert text.startswith("### first\n\n2026-01-02, PyTorch 2.13.0, 2 threads")
    assert "second" not in text
    assert "| both | (1,2) | 2.00 ms, 2.3x | 2.00 ms, 12x | 2.00 ms, PyTorch cannot |" in text
    assert "| alone, channels-last | (1,2) | 123 µs, 0.99x |  |  |" in text
    assert "| dense | (1,2) | 2.00 ms, 2.0x |  |  |" in text
    for name in ("disturbed |", "long", "single"):
        assert name not in text


def whole(title: str, *, ratio: float, held: bool = False) -> Column:
    """Measured in every dtype: pooling, convolution half as fast, training a quarter."""
    dtypes = {"float32": 1, "bfloat16": 2, "float16": 10}
    results = [
        make(dtype=dtype, ratio=factor * ratio / share)
        for dtype, factor in dtypes.items()
        for make, share in ((pool, 1), (conv, 2))
    ]
    steps = [step(dtype, alone=each * ratio / 4, enabled=1.0) for dtype, each in dtypes.items()]
    return column(title, held, all=document(*results), train=document(*steps))


def test_readme_claims_what_holds_on_every_cpu() -> None:
    partly = column("partly", all=document(pool(ratio=0.5)), train=document(step(alone=1.0)))
    columns = [whole("one", ratio=6), whole("two", ratio=4), whole("h", ratio=1, held=True), partly]
    assert " ".join(figures_text.speed_sentence(columns).split()) == (
        "On each of 2 CPUs (one; two), pooling is at least 4.0 times as fast in float32, 8.0 times "
        "in bfloat16 and 40 times in float16, convolution at least 2.0 times as fast in float32, "
        "4.0 times in bfloat16 and 20 times in float16 (geometric means against PyTorch)."
    )
    assert " ".join(figures_text.training_sentence(columns[:1]).split()) == (
        "On the one CPU measured so far (one), the backward pass of four networks (`make "
        "bench-train`) is 1.50 times as fast in float32, 3.0 times in bfloat16 and 15 times in "
        "float16 (geometric means)."
    )


def test_only_marked_blocks_are_written() -> None:
    text = (
        "before\n<!-- figures speed: written by make picture -->\nold\n"
        "<!-- end of figures -->\nafter\n"
    )
    columns = [whole("a CPU", ratio=2)]
    new = figures_text.with_blocks(text, columns)
    assert new.startswith("before\n<!-- figures speed")
    assert new.endswith("against PyTorch).\n<!-- end of figures -->\nafter\n")
    assert "old" not in new
    assert figures_text.with_blocks(new, columns) == new


def test_picture_is_of_cpus_that_can_be_compared() -> None:
    good, bad = document(pool()), document(pool(disturbed=True))
    columns = [column(all=good, note="A note"), column(all=bad), column(layers=good)]
    assert figures.drawn(columns) == [("A note", good)]


# The files that are there


@pytest.mark.parametrize("name", figures.PAGES)
def test_pages_show_the_figures_of_the_files(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- figures " in text
    columns = figures.columns_of(ROOT / figures.FIGURES)
    assert figures_text.with_blocks(text, columns) == text, "make picture writes it anew"


def test_picture_shows_the_figures_of_the_files() -> None:
    from backops._bench import plot

    shown = (ROOT / figures.PICTURE).read_text(encoding="utf-8")
    for note, each in figures.drawn(figures.columns_of(ROOT / figures.FIGURES)):
        assert plot.origin(each) in shown, "make picture draws it anew"
        assert note in shown


def test_files_have_the_names_of_their_cpus() -> None:
    paths = sorted((ROOT / figures.FIGURES).glob("*.json"))
    assert paths
    for path in paths:
        machine = json.loads(path.read_text(encoding="utf-8"))
        assert path.stem == figures.slug_of(machine["environment"])
