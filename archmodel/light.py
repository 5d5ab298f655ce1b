"""Short operations on the low-power unit of `placement.light_unit`: which of them pay, and what they save and cost.

The decision is that of the whole run: with transfers, lost fusion, and the static power of every block for as long as it takes.
"""

from __future__ import annotations

import attrs

from archmodel.errors import MappingError
from archmodel.evaluate import evaluate
from archmodel.result import Result
from archmodel.spec.check import merged_placement
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import WorkloadSpec

#: roles of which a decode step has short operations, the shortest first
CANDIDATES = ("sampling", "router", "vector")


@attrs.frozen(eq=False)
class Trial:
    """The run with the short operations of `role` moved in addition to what was taken before it."""

    role: str
    saved_j: float
    cost_s: float
    taken: bool


@attrs.frozen(eq=False)
class Lightened:
    """A run without the low-power unit's share, and with what of it pays."""

    unit: str
    without: Result
    result: Result
    trials: tuple[Trial, ...]


def lightened(chip: ChipSpec, workload: WorkloadSpec, *, every_token: bool = False) -> Lightened:
    """The run with the roles on the low-power unit that save energy and slow it by at most `placement.light_slowdown`.

    Roles that `placement.light` names are moved as it says, whether they pay or not; with none named, each of `CANDIDATES` is
    tried on top of those taken before it. Raises MappingError where the placement names no low-power unit.
    """
    chip = merged_placement(chip, workload.placement)
    workload, placement = attrs.evolve(workload, placement={}), chip.placement
    if not placement.light_unit:
        raise MappingError(f"{chip.name}: placement.light_unit names no unit")

    def run(roles: tuple[str, ...]) -> Result:
        return evaluate(attrs.evolve(chip, placement=attrs.evolve(placement, light=roles)), workload, every_token=every_token)

    without = best = run(())
    taken: tuple[str, ...] = ()
    trials: list[Trial] = []
    for role in placement.light or CANDIDATES:
        tried = run((*taken, role))
        slow = tried.total_s > without.total_s * (1.0 + placement.light_slowdown)
        takes = bool(placement.light) or (tried.total_j < best.total_j and not slow)
        trials.append(Trial(role, best.total_j - tried.total_j, tried.total_s - best.total_s, takes))
        if takes:
            taken, best = (*taken, role), tried
    return Lightened(placement.light_unit, without, best, tuple(trials))
