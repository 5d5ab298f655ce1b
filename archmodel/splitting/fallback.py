"""What is left when one side of a split fails: the plan on the rest, what must be reloaded for it, and what it yields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from archmodel.errors import ArchmodelError, MappingError
from archmodel.evaluate import evaluate
from archmodel.result import Result
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import WorkloadSpec
from archmodel.splitting.rest import lost_tiers, without
from archmodel.splitting.strategies import ground_of, one_side


@attrs.frozen(eq=False)
class Fallback:
    """The degraded plan for the loss of a unit; `result` is None where nothing can take over, and `why` says so.

    `reload_byte` are weights that the rest does not hold yet, which come from `source` in `reload_s` (None: there is no way);
    `recompute_s` is the time to read the prompts again where the KV cache went with the unit's memory.
    """

    lost: str
    result: Result | None
    why: str
    reload_byte: float
    source: str
    reload_s: float | None
    recompute_s: float

    @property
    def ready_s(self) -> float | None:
        """Time [s] until the rest serves again; None where it never does."""
        return None if self.result is None or self.reload_s is None else self.reload_s + self.recompute_s


class Fallbacks:
    """Degraded plans of one chip and workload: what a loss leaves is evaluated once for all plans."""

    def __init__(self, chip: ChipSpec, workload: WorkloadSpec) -> None:
        self.chip, self.workload = chip, workload
        self.rest: dict[str, Result | str] = {}

    def of(self, plan: Result) -> Iterator[Fallback]:
        """A fallback for the loss of each unit that a plan uses."""
        seconds = plan.busy_s()
        for unit in plan.soc.units:
            if seconds[unit] > 0.0:
                yield _fallback(plan, unit, self._without(unit))

    def _without(self, unit: str) -> Result | str:
        """The best that the rest can do, or why it can do nothing."""
        if unit not in self.rest:
            try:
                self.rest[unit] = best_alone(without(self.chip, unit), self.workload)
            except ArchmodelError as error:
                self.rest[unit] = " ".join(str(error).split())
        return self.rest[unit]


def best_alone(chip: ChipSpec, workload: WorkloadSpec) -> Result:
    """The fastest run in which one unit takes all that it can. Raises MappingError where none runs."""
    found: list[Result] = []
    problem = f"{chip.name}: no unit is left that could run {workload.name}"
    for strategy in one_side(ground_of(chip, workload)):
        try:
            found.append(evaluate(chip, workload, plan=strategy.plan))
        except MappingError as error:
            problem = str(error)
    if not found:
        raise MappingError(problem)
    return min(found, key=lambda result: result.total_s)


def _fallback(plan: Result, unit: str, result: Result | str) -> Fallback:
    if isinstance(result, str):
        return Fallback(unit, None, result, 0.0, "", None, 0.0)
    lost = lost_tiers(plan.chip, unit) | {unit}  # with the cells of a unit that computes in its memory
    held, needed = _weights(plan), _weights(result)
    reload_byte, reload_s, source = 0.0, 0.0, ""
    for tier, byte in needed.items():
        missing = byte - (0.0 if tier in lost else held.get(tier, 0.0))
        if missing > 1e-9 * byte:
            source, byte_per_s = _source(result.soc, tier, held, lost)
            reload_byte += missing
            reload_s = reload_s + missing / byte_per_s if byte_per_s else float("inf")
    recompute_s = result.time_to_first_token_s if _tiers(plan, "KV cache") & lost else 0.0
    why = "" if reload_s < float("inf") else "no block that still runs holds the weights"
    return Fallback(unit, result, why, reload_byte, source, reload_s if not why else None, recompute_s)


def _weights(result: Result) -> dict[str, float]:
    """Bytes of weights by tier."""
    out: dict[str, float] = {}
    for buffer in result.residency.buffers:
        if buffer.what.endswith("weights"):
            out[buffer.tier] = out.get(buffer.tier, 0.0) + buffer.byte
    return out


def _tiers(result: Result, what: str) -> set[str]:
    return {buffer.tier for buffer in result.residency.buffers if buffer.what == what}


def _source(soc: Soc, tier: str, held: Mapping[str, float], lost: set[str]) -> tuple[str, float]:
    """Block that still has the weights and its bandwidth [B/s] to a tier: the host, or a tier that is left; 0 without one."""
    names = [soc.host[0]] if soc.host else []
    names += [name for name in held if name in soc.tiers and name not in lost and name != tier]
    for name in names:
        try:
            way = soc.route(name, tier)
        except ArchmodelError:
            continue
        passed = [soc.shared.index(block) for block in (*way, tier, name) if block in soc.shared]
        return name, min(float(soc.shared_byte_per_s[index]) for index in passed)
    return "", 0.0
