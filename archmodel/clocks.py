"""Clocks that a run sustains under a power cap, and the clocks at which it takes the least energy within its limits.

All blocks with voltage points move together, by one factor on their clocks (`dvfs.clocked`); the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.components import dvfs, power
from archmodel.costs import FIELDS, Costs
from archmodel.errors import MappingError
from archmodel.evaluate import evaluate, evaluate_steps
from archmodel.kernels.timeline import RowTable
from archmodel.plan import Plan
from archmodel.result import Result
from archmodel.schedule import Table
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import WorkloadSpec
from archmodel.steps import Sample, decode_samples, first_step

_HALVINGS = 16  # of the span of factors: 1.5e-5 of it is left
_POINTS = 17  # of the curve, and again between the neighbours of its best point


@attrs.frozen(eq=False)
class Capped:
    """A run under a power cap: each phase at the highest clocks that keep it."""

    cap_w: float
    factor: dict[str, float]  # on the clocks, by phase
    free: Result  # the same run without the cap
    result: Result


@attrs.frozen(eq=False)
class Point:
    """A run at one factor on the clocks. `wrong` says which limit it misses, and is empty where it keeps all."""

    factor: float
    result: Result
    total_j: float  # idle energy up to the end of the period included, where there is a period
    wrong: str

    @property
    def joules_per_token(self) -> float:
        return self.total_j / self.result.tokens


@attrs.frozen(eq=False)
class Sweep:
    """Runs over the clocks that the voltage points allow, slowest first, and the one that takes the least energy."""

    points: tuple[Point, ...]
    best: Point
    period_s: float | None
    idle_power_w: float  # of all chips at the lowest clocks

    @property
    def result(self) -> Result:
        return self.best.result


def capped(
    chip: ChipSpec, workload: WorkloadSpec, cap_w: float, *, plan: Plan | None = None, every_token: bool = False
) -> Capped:
    """The run with every phase at the highest clocks at which its mean power keeps `cap_w` [W] of each chip and its memory.

    A limiter of a real board averages over less than a second, so that a phase is taken to last longer than that and finds
    clocks of its own. Power at a factor is one evaluation; the factor is halved towards the power, the same way for every
    cap, so that a lower cap never gives higher clocks. Raises MappingError where even the lowest clocks draw more.
    """
    free = evaluate(chip, workload, plan=plan, every_token=every_token)
    samples = [Sample(first_step(workload), 1.0, 0.0), *decode_samples(workload, every_token)]
    factor: dict[str, float] = {}
    runs = {1.0: free}
    for phase in free.phases:
        mine = [sample for sample in samples if sample.step.phase == phase]

        def power_w(factor: float, phase: str = phase, mine: list[Sample] = mine) -> float:
            found = evaluate_steps(dvfs.clocked(chip, factor), workload, mine, plan)
            return found.phase_power_w(phase) / found.chips

        factor[phase] = each = _sustained(chip, phase, power_w, cap_w)
        if each not in runs:
            runs[each] = evaluate(dvfs.clocked(chip, each), workload, plan=plan, every_token=every_token)
    return Capped(cap_w, factor, free, joined(free, {phase: runs[each] for phase, each in factor.items()}))


def _sustained(chip: ChipSpec, phase: str, power_w: Callable[[float], float], cap_w: float) -> float:
    """Highest factor in (0, 1] at which the power of one chip in a phase keeps the cap."""

    if power_w(1.0) <= cap_w:
        return 1.0
    low = min(dvfs.clock_span(chip)[0], 1.0)
    if not power_w(low) <= cap_w:
        where = "at the lowest clocks of its voltage points" if dvfs.scaled_blocks(chip) else "and no block has voltage_points"
        raise MappingError(f"{chip.name}: {phase} draws {power_w(low):.4g} W {where}, more than the power cap of {cap_w:g} W")
    return _highest(lambda factor: power_w(factor) <= cap_w, low, 1.0)


def _highest(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Where `fits` turns false between `low`, which fits, and `high`, which does not: the last value found to fit."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def joined(base: Result, runs: Mapping[str, Result]) -> Result:
    """One run whose phases are those of `runs`, which differ in clocks only; `base` is the chip as its file gives it."""
    steps = tuple(runs[step.step.phase].steps[number] for number, step in enumerate(base.steps))
    table = base.table
    for phase, run in runs.items():
        count = sum(step.count for step in steps if step.step.phase == phase)
        table = _laid_over(table, run.table, np.asarray(count) > 0)
    return attrs.evolve(base, steps=steps, table=table)


def _laid_over(base: Table, top: Table, mine: NDArray[np.bool_]) -> Table:
    """`base` with the rows `mine` (a mask, shape (rows,)) of `top`."""

    def pick(low: Any, high: Any) -> Any:
        return np.where(mine[:, None] if low.ndim > 1 else mine, high, low)

    costs = Costs(**{name: pick(getattr(base.costs, name), getattr(top.costs, name)) for name in FIELDS})
    timeline = RowTable(*(pick(low, high) for low, high in zip(base.timeline, top.timeline, strict=True)))
    byte, written = pick(base.byte, top.byte), pick(base.written_byte, top.written_byte)
    return attrs.evolve(base, costs=costs, timeline=timeline, byte=byte, written_byte=written)


def least_energy(
    chip: ChipSpec, workload: WorkloadSpec, *, plan: Plan | None = None, cap_w: float | None = None,
    period_s: float | None = None, every_token: bool = False,
) -> Sweep:  # fmt: skip
    """The clocks, one factor for the whole run, that take the least energy and keep the workload's limits.

    Args:
        chip, workload, plan, every_token: as of `evaluate`.
        cap_w: power [W] that no phase may exceed, of each chip and its memory.
        period_s: time [s] from one run to the next, which the run must keep; the chip idles at its lowest clocks for the rest
            of it, so that racing to idle is compared with running slowly.

    The curve has 17 points over what the voltage points allow; 17 more between the neighbours of the best one find it to about
    1 % of the span. Raises MappingError where no point keeps the limits, or no block has voltage points.
    """
    low, high = dvfs.clock_span(chip)
    if not dvfs.scaled_blocks(chip):
        raise MappingError(f"{chip.name}: no block has voltage_points, so that there are no clocks to choose from")
    idle_w = sum(power.static_power_w(dvfs.clocked(chip, low).blocks, chip.power).values()) * chip.power.scale

    def point(factor: float) -> Point:
        found = evaluate(dvfs.clocked(chip, factor), workload, plan=plan, every_token=every_token)
        idle_j = idle_w * found.chips * max(0.0, (period_s or 0.0) - found.total_s)
        return Point(factor, found, found.total_j + idle_j, _wrong(found, cap_w, period_s))

    points = tuple(point(float(factor)) for factor in np.linspace(low, high, _POINTS))
    fine = [index for index, each in enumerate(points) if not each.wrong]
    if not fine:
        raise MappingError(f"{chip.name}: no clocks keep all limits; at the highest ones {points[-1].wrong}")
    best = min(fine, key=lambda index: points[index].total_j)
    near = points[max(best - 1, 0)].factor, points[min(best + 1, len(points) - 1)].factor
    closer = [point(float(factor)) for factor in np.linspace(*near, _POINTS)[1:-1]]
    chosen = min((each for each in (points[best], *closer) if not each.wrong), key=lambda each: each.total_j)
    return Sweep(points, chosen, period_s, idle_w * chosen.result.chips)


def _wrong(result: Result, cap_w: float | None, period_s: float | None) -> str:
    """The first limit that a run misses, with its numbers."""
    for name, (limit_s, value_s) in result.limits_s.items():
        if value_s > limit_s:
            return f"{name} is {1e3 * value_s:.4g} ms, above the limit of {1e3 * limit_s:.4g} ms"
    if period_s is not None and result.total_s > period_s:
        return f"a run takes {1e3 * result.total_s:.4g} ms, longer than the period of {1e3 * period_s:.4g} ms"
    drawn_w = max(result.phase_power_w(phase) for phase in result.phases) / result.chips
    if cap_w is not None and not drawn_w <= cap_w:
        return f"power is {drawn_w:.4g} W, above the cap of {cap_w:.4g} W"
    return ""
