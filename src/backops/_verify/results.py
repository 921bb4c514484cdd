"""What became of one case of a suite."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from backops._verify.cases import Case
from backops._verify.limits import Limit
from backops._verify.retry import Interval, Retry
from backops._verify.verify import Report, printable

BAD = ("wrong", "failed", "crashed", "timeout")
LIMIT_NUMBERS = ("value", "limit", "times", "benchmark", "ratio")


@dataclass(frozen=True)
class Result:
    """`status` is right, wrong, failed (raised), crashed, timeout or skipped."""

    name: str
    operator: str
    status: str
    detail: str = ""
    values: str = ""
    """What the data were, if the case or the standard says."""
    benchmark: str = ""
    """The second implementation, where the standard has one."""
    wrong: int = 0
    elements: int = 0
    max_ulps: int = 0
    times_allowed: float = 0.0
    """The figure nearest to its limit, or furthest beyond, in units of the limit."""
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)
    limits: dict[str, list[Limit]] = field(default_factory=dict)
    """Of each gradient, with the case's own seed."""
    retry: Retry | None = None
    """What other seeds said, where a failed case was tried again."""

    @staticmethod
    def of(case: Case, report: Report) -> Result:
        bad = [tensor for tensor in report.tensors if not tensor.is_right]
        findings = [f"{tensor.name}: {text}" for tensor in bad for text in tensor.findings]
        return Result(
            name=case.label,
            operator=case.operator,
            status="right" if report.is_right else "wrong",
            detail=findings[0] if findings else "",
            values=case.values or "",
            benchmark=report.tensors[0].benchmark if report.tensors else "",
            wrong=sum(tensor.wrong for tensor in report.tensors),
            elements=sum(tensor.elements for tensor in report.tensors),
            max_ulps=max(tensor.max_ulps for tensor in report.tensors),
            times_allowed=max(tensor.times_limit for tensor in report.tensors),
            findings=findings,
            limits={tensor.name: tensor.limits for tensor in report.tensors},
        )

    def failed_by(self, finding: str) -> Result:
        """Wrong for this reason, which comes first."""
        return replace(self, status="wrong", detail=finding, findings=[finding, *self.findings])

    def with_finding(self, finding: str) -> Result:
        return replace(self, findings=[*self.findings, finding])

    def after(self, retry: Retry) -> Result:
        """Right or wrong as the other seeds say."""
        head = f"with {retry.seeds} other seeds"
        told = [f"{head}, {interval.sentence()}" for interval in retry.intervals]
        if retry.is_right:
            return replace(self, status="right", detail="", retry=retry, findings=told)
        worse = [text for text, interval in zip(told, retry.intervals, strict=True)
                 if interval.is_worse]  # fmt: skip
        return replace(
            self, detail=f"{self.detail}; {worse[0]}", retry=retry, findings=[*self.findings, *told]
        )

    def to_json(self) -> dict[str, Any]:
        plain = printable(asdict(self))
        assert isinstance(plain, dict)
        return plain

    @staticmethod
    def from_json(row: dict[str, Any]) -> Result:
        limits = {
            tensor: [limit_of(values) for values in rows] for tensor, rows in row["limits"].items()
        }
        retry = row["retry"]
        if retry is not None:
            found = [Interval(**{**values, **floats(values, ("median", "low", "high"))})
                     for values in retry["intervals"]]  # fmt: skip
            retry = Retry(retry["seeds"], found)
        return Result(
            **{**row, **floats(row, ("times_allowed",)), "limits": limits, "retry": retry}
        )


def limit_of(values: dict[str, Any]) -> Limit:
    return Limit(**{**values, **floats(values, LIMIT_NUMBERS)})


def floats(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, float | None]:
    """What JSON has no number for, which is text there, as a number again."""
    return {name: None if values[name] is None else float(values[name]) for name in names}
