"""What became of one case of a suite."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from backops._verify.cases import Case
from backops._verify.verify import Report, printable

BAD = ("wrong", "failed", "crashed", "timeout")


@dataclass(frozen=True)
class Result:
    """`status` is right, wrong, failed (raised), crashed, timeout or skipped."""

    name: str
    operator: str
    status: str
    detail: str = ""
    wrong: int = 0
    elements: int = 0
    max_ulps: int = 0
    times_allowed: float = 0.0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    @staticmethod
    def of(case: Case, report: Report, seconds: float) -> Result:
        bad = [tensor for tensor in report.tensors if not tensor.is_right]
        findings = [f"{tensor.name}: {text}" for tensor in bad for text in tensor.findings]
        return Result(
            name=case.label,
            operator=case.operator,
            status="right" if report.is_right else "wrong",
            detail=findings[0] if findings else "",
            wrong=sum(tensor.wrong for tensor in report.tensors),
            elements=sum(tensor.elements for tensor in report.tensors),
            max_ulps=max(tensor.max_ulps for tensor in report.tensors),
            times_allowed=max(tensor.times_allowed for tensor in report.tensors),
            seconds=round(seconds, 4),
            findings=findings,
        )

    def to_json(self) -> dict[str, Any]:
        plain = printable(asdict(self))
        assert isinstance(plain, dict)
        return plain

    @staticmethod
    def from_json(row: dict[str, Any]) -> Result:
        return Result(**{**row, "times_allowed": float(row["times_allowed"])})
