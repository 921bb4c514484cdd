"""By what the cases of a suite are judged."""

from __future__ import annotations

from dataclasses import dataclass

from backops._verify.published import LEVELS

RETRIES = 1000
"""What the double benchmark recommends."""
DOUBLE_RUNS = 2
"""Enough to see a result that changes from run to run; the standard asks for far more."""


@dataclass(frozen=True)
class Rules:
    """`runs` of each case must agree; a failed one may be tried again with `retries` seeds."""

    standard: str = "float32"
    runs: int = 1
    retries: int = RETRIES
    benchmark: str | None = None
    """The second implementation, as `--benchmark` names it; None: the preferred one."""

    @property
    def is_double(self) -> bool:
        return self.standard in LEVELS

    @property
    def key(self) -> tuple[str, ...]:
        """What a result depends on beside the case and the candidate."""
        return self.standard, str(self.runs), str(self.retries), self.benchmark or ""
