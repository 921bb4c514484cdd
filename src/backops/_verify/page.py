"""A report as one page that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import backops
from backops._calls import Call
from backops._verify import places, samples
from backops._verify.limits import Limit
from backops._verify.text import limit_cells, limit_head, share, small_line, ulp_range
from backops._verify.verify import Report, TensorReport

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 2em auto;
  max-width: 66em; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.2em; margin-top: 2em; }
h3 { font-size: 1em; margin-top: 1.6em; }
table { border-collapse: collapse; margin: .6em 0; }
td, th { text-align: left; padding: .25em 1.2em .25em 0; border-bottom: 1px solid #e4e4e4;
  vertical-align: top; }
td:not(:last-child) { white-space: nowrap; }
code { font-size: .92em; } img { max-width: 100%; height: auto; }
.right, .wrong { color: #fff; border-radius: .3em; padding: .05em .5em; }
.right { background: #27803b; } .wrong { background: #c0392b; }
.quiet { color: #666; }
"""


def write_page(
    path: Path, report: Report, call: Call, candidates: Mapping[str, NDArray[Any]]
) -> None:
    title = f"{report.operator}: {verdict(report.is_right)}"
    write_document(path, title, page_parts(report, call, candidates))


def write_document(path: Path, title: str, parts: Iterable[str]) -> None:
    body = "\n".join(parts)
    path.write_text(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width"/>\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n",
        encoding="utf-8",
    )


def verdict(is_right: bool) -> str:
    return "right" if is_right else "wrong"


def badge(is_right: bool) -> str:
    return f'<span class="{verdict(is_right)}">{verdict(is_right)}</span>'


def page_parts(report: Report, call: Call, candidates: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    yield f"<h1>{escape(report.operator)} {badge(report.is_right)}</h1>"
    given = ", ".join(f"{name}={value}" for name, value in report.parameters.items())
    shapes = f"input {report.input_shape}"
    if report.grad_output_shape is not None:
        shapes = f"grad_output {report.grad_output_shape}, {shapes}"
    made = f"backops {backops.__version__}"
    yield f'<p class="quiet">{escape(shapes)}{escape("; " + given) if given else ""}; {made}</p>'
    for tensor in report.tensors:
        yield from tensor_parts(tensor, call, candidates[tensor.name])


def tensor_parts(tensor: TensorReport, call: Call, candidate: NDArray[Any]) -> Iterator[str]:
    head = f"<code>{tensor.name}</code> {badge(tensor.is_right)} by {escape(tensor.standard)}"
    yield f"<h2>{head}</h2>"
    yield f'<p class="quiet">{escape(tensor.standard_description)}</p>'
    if tensor.findings:
        yield "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in tensor.findings) + "</ul>"
    if tensor.shape != tensor.expected_shape:
        return
    yield figures_table(tensor)
    yield "<h3>Limits</h3>"
    yield limits_table(tensor)
    yield "<h3>Distance to the rounded truth</h3>"
    yield histogram(tensor)
    if tensor.wrong:
        yield "<h3>Where the wrong elements are</h3>"
        yield axes_pictures(tensor)
    if tensor.worst:
        yield f"<h3>{'Furthest off' if tensor.wrong else 'Largest errors'}</h3>"
        yield worst_table(tensor)
    yield from plane_pictures(tensor, call, candidate)


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Cells are already escaped."""
    parts = ["<table>"]
    if head:
        parts.append("<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>")
    parts += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join([*parts, "</table>"])


def figures_table(tensor: TensorReport) -> str:
    beyond = ", ".join(f"{key}: {share(tensor, key)}" for key in tensor.beyond)
    small = [("small values", escape(small_line(tensor)))] if tensor.small_values else []
    benchmark = [("benchmark", escape(tensor.benchmark))] if tensor.benchmark else []
    return table(
        [
            ("shape, dtype", escape(f"{tensor.shape} {tensor.dtype}")),
            ("truth", escape(tensor.truth)),
            *benchmark,
            ("wrong elements", f"{tensor.wrong:,} of {tensor.elements:,}"),
            ("NaN missing, unexpected", f"{tensor.missing_nans}, {tensor.unexpected_nans}"),
            ("wrong infinities", f"{tensor.wrong_infinities}"),
            ("absolute error", f"largest {tensor.max_error:.3e}, mean {tensor.mean_error:.3e}"),
            (
                "relative error",
                f"largest {tensor.max_relative:.3e}, mean {tensor.mean_relative:.3e}",
            ),
            ("largest distance", f"{tensor.max_ulps:,} ulps"),
            *small,
            ("share with a relative error beyond", beyond),
        ]
    )


def limits_table(tensor: TensorReport) -> str:
    has_benchmark = bool(tensor.benchmark)
    return table([limit_row(limit, has_benchmark) for limit in tensor.limits],
                 limit_head(has_benchmark))  # fmt: skip


def limit_row(limit: Limit, has_benchmark: bool) -> list[str]:
    *cells, last = map(escape, limit_cells(limit, has_benchmark))
    kind = "right" if limit.holds else "wrong"
    return [*cells, f'<span class="{kind}">{last}</span>']


def picture(url: str, text: str) -> str:
    return f'<img alt="{escape(text)}" src="{url}"/>'


def histogram(tensor: TensorReport) -> str:
    from backops._verify import figures

    labels = [ulp_range(low, high) for low, high, _ in tensor.ulp_histogram]
    if not labels:
        return "<p>No element is finite.</p>"
    return picture(figures.ulp_histogram(tensor.ulp_histogram, labels), "histogram of ulps")


def axes_pictures(tensor: TensorReport) -> str:
    from backops._verify import figures

    axes = [
        (name, rows, length)
        for (name, rows), length in zip(
            tensor.wrong_by_axis.items(), tensor.expected_shape, strict=True
        )
        if 1 < length <= 1024
    ]
    return picture(figures.axis_counts(axes), "wrong elements by index") if axes else ""


def worst_table(tensor: TensorReport) -> str:
    rows = [
        (
            f"<code>{list(element.index)}</code>",
            f"{element.candidate:.7g}",
            f"{element.truth:.7g}",
            f"{element.error:.3e}",
            f"{element.ulps:.0f}",
            escape(element.origin),
        )
        for element in tensor.worst
    ]
    return table(rows, ("index", "candidate", "truth", "error", "ulps", "made of"))


def plane_pictures(tensor: TensorReport, call: Call, candidate: NDArray[Any]) -> Iterator[str]:
    from backops._verify import figures

    leading = places.leading_axes(call, tensor.name)
    plane_shape = tensor.expected_shape[leading:]
    if not plane_shape or max(plane_shape) < 2:
        return
    planes = candidate.reshape(-1, *plane_shape)
    names = places.axis_names(call, tensor.name)[:leading]
    for plane in tensor.worst_planes:
        found = samples.sample_call(call, tensor.name, plane)
        if found is None:
            yield "<p>Planes of a problem this large are not drawn.</p>"
            return
        part, whole = found
        truth = samples.sample_truth(part, tensor.name)[plane - whole.start]
        index = np.unravel_index(plane, tensor.expected_shape[:leading])
        title = ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=True))
        yield f"<h3>{escape(title)}</h3>"
        yield picture(figures.error_map(planes[plane].astype(np.float64), truth), title)
