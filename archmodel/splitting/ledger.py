"""Where the gain of a split comes from and where it leaks to: entries that add up to the difference of two times.

A unit's busy time is its computing, its waiting for memory and its fixed overhead, each as if it had the memory to itself, its
layout conversions, and what sharing memory with others adds. Units that run at once save time: the overlap, an entry below
zero. What is left of the time runs on no unit: exposed transfers, synchronisation, dispatch, host.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np

from archmodel.kernels.timeline import CLASS_COMPUTE, CLASS_CONVERSION
from archmodel.result import Result, StepResult

#: segments in which no unit runs
ALONE = ("transfer_exposed", "synchronisation", "dispatch", "host")


@attrs.frozen
class Entry:
    """One cause of time [s], before and after. `unit` is empty where it is no unit's."""

    cause: str
    unit: str
    old_s: float
    new_s: float

    @property
    def change_s(self) -> float:
        """Below zero where the split saves time."""
        return self.new_s - self.old_s

    @property
    def name(self) -> str:
        return f"{self.cause}_{self.unit}" if self.unit else self.cause


@attrs.frozen
class Ledger:
    """Entries that add up to `old_s` and `new_s`, and, outside the sum, what the split hides and leaves idle."""

    entries: tuple[Entry, ...]
    beside: tuple[Entry, ...]
    old_s: float
    new_s: float

    @property
    def change_s(self) -> float:
        return self.new_s - self.old_s

    def largest(self, *, saving: bool) -> Entry | None:
        """The entry that saves, or costs, most; None where none does."""
        found = min(self.entries, key=lambda entry: entry.change_s if saving else -entry.change_s)
        return found if (found.change_s < 0.0) == saving and found.change_s != 0.0 else None


def ledger(old: Result, new: Result, phase: str = "") -> Ledger:
    """The ledger of `new` against `old`, of the whole run or of one phase."""
    return Ledger(
        _entries(account(old, phase), account(new, phase)),
        _entries(beside(old, phase), beside(new, phase)),
        *(result.phase_s(phase) if phase else result.total_s for result in (old, new)),
    )


Account = dict[tuple[str, str], float]  # (cause, unit) -> time [s]


def _entries(old: Account, new: Account) -> tuple[Entry, ...]:
    names = dict.fromkeys([*old, *new])
    return tuple(Entry(*name, old.get(name, 0.0), new.get(name, 0.0)) for name in names)


def _steps(result: Result, phase: str) -> Iterable[StepResult]:
    return (step for step in result.steps if not phase or step.step.phase == phase)


def account(result: Result, phase: str = "") -> Account:
    """Time [s] by cause; the values add up to the time of the run or of the phase."""
    out: Account = {}
    for step in _steps(result, phase):
        for name, value in _step_account(result, step).items():
            out[name] = out.get(name, 0.0) + step.weight * value
    return out


def _step_account(result: Result, step: StepResult) -> Account:
    table = result.table.timeline
    at_full_speed = step.count * table.duration_s
    computing = at_full_speed * (table.event_class == CLASS_COMPUTE)
    causes = {
        "compute": computing * table.compute_share,
        "memory": computing * (1.0 - table.compute_share - table.overhead_share),
        "kernel_overhead": computing * table.overhead_share,
        "layout_conversion": at_full_speed * (table.event_class == CLASS_CONVERSION),
    }
    out: Account = {}
    for number, unit in enumerate(result.soc.units):
        mine = result.table.owner == number
        parts = {cause: float(value[mine].sum()) for cause, value in causes.items()}
        parts["contention"] = float(step.busy_s[number]) - sum(parts.values())
        out |= {(cause, unit): value for cause, value in parts.items()}
    out["overlap", ""] = _running_s(step) - _busy_s(result, step)
    return out | {(name, ""): step.segments_s[name] for name in ALONE}


def _running_s(step: StepResult) -> float:
    """Time [s] in which any unit runs."""
    return step.total_s - sum(step.segments_s[name] for name in ALONE)


def _busy_s(result: Result, step: StepResult) -> float:
    return float(np.sum(step.busy_s[: len(result.soc.units)]))


def beside(result: Result, phase: str = "") -> Account:
    """Time [s] that no sum counts: transfers hidden behind units, and each unit idle while another runs (bubbles)."""
    out: Account = {("transfer_hidden", ""): 0.0}
    for step in _steps(result, phase):
        out["transfer_hidden", ""] += step.weight * step.transfer_hidden_s
        for number, unit in enumerate(result.soc.units):
            bubble = _running_s(step) - float(step.busy_s[number])
            out["bubble", unit] = out.get(("bubble", unit), 0.0) + step.weight * bubble
    return out
