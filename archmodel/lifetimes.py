"""Results of a simulated step and how long each is kept: memory over time on every side, and a place for each in an arena."""

from __future__ import annotations

import attrs
import numpy as np

from archmodel.costs import Floats
from archmodel.operations import Ints
from archmodel.result import Result, StepResult


@attrs.frozen(eq=False)
class Lifetimes:
    """Results that lie with one unit during a step; arrays of shape (results,). Each lives from its start to its end."""

    event: Ints
    byte: Floats
    start_s: Floats
    end_s: Floats

    def over_time(self) -> tuple[Floats, Floats]:
        """Instants [s] at which the living bytes change, and those bytes [B] from each instant on."""
        instants = np.concatenate([self.start_s, self.end_s])
        change = np.concatenate([self.byte, -self.byte])
        # what dies makes room before what is born at the same instant
        order = np.lexsort((change, instants))
        time, last = np.unique(instants[order], return_index=True)
        ends = np.append(last[1:], len(order)) - 1
        return time, np.maximum(np.cumsum(change[order])[ends], 0.0) if len(time) else np.zeros(0)

    @property
    def peak_byte(self) -> float:
        """Most bytes [B] alive at once."""
        return float(self.over_time()[1].max(initial=0.0))


def lifetimes(result: Result, step: StepResult) -> dict[str, Lifetimes]:
    """Lifetimes in one simulated step of a run, by the unit with which results lie.

    A result lives from the start of the event that writes it to the end of the last that reads it, or to the end of the
    step where none does. Weights and caches live throughout and are not among them.
    """
    program, table = step.program, result.table
    events, out = program.events, program.simulated
    readers = np.repeat(np.arange(len(events.row)), np.diff(events.dep_start))
    last = np.full(len(events.row), -1.0)
    np.maximum.at(last, events.dep, out.end_s[readers])
    last = np.where(last < 0.0, program.makespan_s, last)
    found = {}
    for name in result.soc.units:
        number = result.soc.resources.index(name)
        mine = np.flatnonzero((table.lies[events.row] == number) & (table.result_byte[events.row] > 0.0))
        found[name] = Lifetimes(mine, table.result_byte[events.row[mine]], out.start_s[mine], last[mine])
    return found


def arena(living: Lifetimes) -> tuple[Floats, float]:
    """An offset [B] for each result such that no two that live at once overlap, and the size [B] of the arena.

    First fit, largest result first: the usual static plan of tensor memory (Pisarchyk and Lee, arXiv:2001.03288, "greedy by
    size"). The size is at least `peak_byte`.
    """
    offset = np.zeros(len(living.byte))
    placed = np.zeros(len(living.byte), dtype=bool)
    for i in np.lexsort((living.start_s, -living.byte)):
        beside = np.flatnonzero(placed & (living.start_s < living.end_s[i]) & (living.end_s > living.start_s[i]))
        at = 0.0
        for j in beside[np.argsort(offset[beside], kind="stable")]:
            if offset[j] - at >= living.byte[i]:
                break
            at = max(at, offset[j] + living.byte[j])
        offset[i] = at
        placed[i] = True
    return offset, float((offset + living.byte).max(initial=0.0))
