"""Two times between which a simulated one must lie: nothing overlaps, and everything overlaps but the slowest."""

from __future__ import annotations

import attrs
import numpy as np

from archmodel.result import Result
from archmodel.spec.system import member_of


@attrs.frozen
class Bounds:
    """`serial_s`: all work in turn, at full speed. `overlapped_s`: the slowest resource alone, step by step, which `slowest`
    names: a unit, a link, a memory tier, the host or the dispatch of commands."""

    serial_s: float
    overlapped_s: float
    slowest: str

    def gains(self, old_s: float) -> tuple[float, float]:
        """Least and largest gain on a run of `old_s`."""
        return old_s / self.serial_s - 1.0, old_s / self.overlapped_s - 1.0


def bounds(result: Result, phase: str = "") -> Bounds:
    """Bounds of a run, or of one phase. No event runs faster than alone, and while work is left, something runs.

    A tier or link is busy at least for what it carries over its bandwidth; so two units that share a memory gain nothing on one
    that already keeps it busy, whatever they compute.
    """
    soc, table = result.soc, result.table.timeline
    cores = [soc.dispatcher(block) or member_of(block) for block in soc.resources]  # who issues the commands of each
    issuers = list(dict.fromkeys(cores))
    issuer = np.array([issuers.index(core) for core in cores])[result.table.owner]
    names = (*soc.resources, *soc.shared, *(f"{name}.dispatch".lstrip(".") for name in issuers))
    serial_s, overlapped_s = 0.0, 0.0
    total = np.zeros(len(names))
    for step in result.steps:
        if phase and step.step.phase != phase:
            continue
        seconds = step.count * table.duration_s
        busy = np.bincount(result.table.owner, seconds, minlength=len(soc.resources))
        dispatch = np.bincount(issuer, step.count * table.dispatch_s, minlength=len(issuers))
        serial_s += step.weight * float(seconds.sum() + dispatch.sum())
        for name in soc.controls:  # commands and synchronisations take turns on it
            busy[soc.resources.index(name)] += dispatch[issuers.index(name)] if name in issuers else 0.0
        each = np.concatenate([busy, seconds @ table.usage, dispatch])
        overlapped_s += step.weight * float(each.max())
        total += step.weight * each
    return Bounds(serial_s, overlapped_s, names[int(total.argmax())])
