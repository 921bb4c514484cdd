"""The results of a suite as one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import backops
from backops._verify.limits import shown
from backops._verify.page import limit_row, table, write_document
from backops._verify.results import BAD, Result
from backops._verify.rules import Rules
from backops._verify.suite import campaign_lines, counts_line
from backops._verify.targets import Target
from backops._verify.text import limit_head


def write_suite_page(path: Path, results: Sequence[Result], target: Target, rules: Rules) -> None:
    title = f"{target.name} by {rules.standard}: {verdict(results)}"
    write_document(path, title, page_parts(results, target, rules))


def verdict(results: Sequence[Result]) -> str:
    statuses = {result.status for result in results}
    if statuses & set(BAD):
        return "wrong"
    return "right" if "right" in statuses else "not checked"


def badge(status: str) -> str:
    kind = {"right": "right", "skipped": "quiet", "not checked": "quiet"}.get(status, "wrong")
    return f'<span class="{kind}">{escape(status)}</span>'


def page_parts(results: Sequence[Result], target: Target, rules: Rules) -> Iterator[str]:
    yield f"<h1>{escape(target.name)} {badge(verdict(results))} by {escape(rules.standard)}</h1>"
    made = f"backops {backops.__version__}"
    yield f'<p class="quiet">{counts_line(results)}; {escape(made)}</p>'
    for line in campaign_lines(results, rules):
        yield f"<p>{escape(line)}</p>"
    bad = [result for result in results if result.status in BAD]
    if bad:
        yield "<h2>What is not right</h2>"
        for result in bad:
            yield from case_parts(result)
    yield "<h2>All cases</h2>"
    yield table([case_row(result) for result in results],
                ("case", "status", "values", "seconds", "nearest to its limit"))  # fmt: skip
    skipped = Counter(result.detail for result in results if result.status == "skipped")
    if skipped:
        yield "<h2>Skipped</h2>"
        yield table([(str(count), escape(reason)) for reason, count in skipped.most_common()])


def case_parts(result: Result) -> Iterator[str]:
    yield f"<h3>{escape(result.name)} {badge(result.status)}</h3>"
    findings = result.findings or [result.detail]
    yield "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in findings) + "</ul>"
    has_benchmark = bool(result.benchmark)
    rows = [
        [f"<code>{escape(tensor)}</code>", *limit_row(limit, has_benchmark)]
        for tensor, limits in result.limits.items()
        for limit in limits
    ]
    if rows:
        yield table(rows, ("result", *limit_head(has_benchmark)))


def case_row(result: Result) -> tuple[str, ...]:
    return (
        escape(result.name),
        badge(result.status),
        escape(result.values),
        f"{result.seconds:.3f}",
        escape(nearest(result)),
    )


def nearest(result: Result) -> str:
    """The figure that is nearest to its limit, or furthest beyond."""
    found = [
        (
            limit.times,
            f"{tensor}: {limit.name} {shown(limit.value)}, {limit.rule} {shown(limit.limit)} "
            f"({limit.times:.3g} of it)",
        )
        for tensor, limits in result.limits.items()
        for limit in limits
        if limit.limit > 0 or not limit.holds
    ]
    return max(found)[1] if found else ""
