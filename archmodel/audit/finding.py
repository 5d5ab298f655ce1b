"""What a judge of claims returns: inequalities with their two numbers, figures, and what would flip the verdict."""

from __future__ import annotations

import math
from enum import StrEnum

import attrs


class Verdict(StrEnum):
    """What arithmetic says of a claim."""

    HOLDS = "HOLDS"
    CONDITIONAL = "CONDITIONAL"
    FAIL = "FAIL"
    UNDER_SPECIFIED = "UNDER-SPECIFIED"
    DIMENSION = "DIMENSION"
    INCONSISTENT = "INCONSISTENT"


@attrs.frozen
class Check:
    """`needed` <= `available`, both in `unit`; it holds where `needed` exceeds by no more than the tolerance."""

    needed_is: str
    needed: float
    available_is: str
    available: float
    unit: str = ""
    tolerance_fraction: float = 0.0

    @property
    def holds(self) -> bool:
        return self.needed <= self.available * (1.0 + self.tolerance_fraction) * (1.0 + 1e-9)

    @property
    def factor(self) -> float:
        """Times that `needed` exceeds `available`, below 1 where it holds; infinite where nothing is available."""
        return self.needed / self.available if self.available > 0.0 else math.inf


@attrs.frozen
class Figure:
    """A number worth knowing, in `unit`."""

    name: str
    value: float
    unit: str = ""


@attrs.frozen
class Flip:
    """A condition under which a claim that fails would hold: `what` `relation` `value`, all else as it is."""

    what: str
    relation: str
    value: float
    unit: str = ""


@attrs.frozen(kw_only=True)
class Finding:
    """One claim, or one reading of it, judged.

    Where all checks hold it HOLDS, and where none does it is a FAIL. Where some do, the claim is a FAIL unless `partly` says
    what of it holds, and then CONDITIONAL. Without a check it is UNDER-SPECIFIED. `says` goes over all of this.
    """

    checks: tuple[Check, ...]
    figures: tuple[Figure, ...] = ()
    flips: tuple[Flip, ...] = ()
    partly: str = ""
    says: Verdict | None = None

    @property
    def verdict(self) -> Verdict:
        if self.says is not None:
            return self.says
        if not self.checks:
            return Verdict.UNDER_SPECIFIED
        held = [check.holds for check in self.checks]
        if all(held):
            return Verdict.HOLDS
        return Verdict.CONDITIONAL if any(held) and self.partly else Verdict.FAIL

    @property
    def factor(self) -> float:
        """By how much the claim fails: the largest factor of its checks."""
        return max((check.factor for check in self.checks), default=0.0)
