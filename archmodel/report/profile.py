"""Utilisation, bandwidth and power over time: sums of events in equal bins over the whole run."""

from __future__ import annotations

import attrs
import numpy as np

from archmodel.costs import Floats
from archmodel.result import Result, StepResult


@attrs.frozen(eq=False)
class Profile:
    """Means over bins of equal width. `time_s` holds their middles, shape (bins,); the others have that shape by name.

    `busy_fraction` is the share of time in which a resource runs an event, `utilisation` is defined as in `Result`;
    `bandwidth_byte_per_s` and `power_w`, times the width, add up to the bytes and the energy of the run. The first step is
    resolved in time; a decode step that stands for others contributes its mean for as long as they take.
    """

    time_s: Floats
    busy_fraction: dict[str, Floats]
    utilisation: dict[str, Floats]
    bandwidth_byte_per_s: dict[str, Floats]
    power_w: dict[str, Floats]


def profile(result: Result, bins: int = 160) -> Profile:
    """Profile of a run in `bins` bins."""
    edges = np.linspace(0.0, result.total_s, bins + 1)
    width = float(edges[1])
    sums = _first_step(result, edges)
    static_j: dict[str, Floats] = {}
    start = 0.0
    for step in result.steps:
        end = start + step.weight * step.total_s
        inside_s = np.diff(np.clip(edges, start, end))
        if step is not result.first:
            sums += (inside_s / (end - start))[:, None] * step.weight * _step_sums(result, step)
        for name, watt in result.step_static_power_w(step).items():
            static_j[name] = static_j.get(name, 0.0) + watt * inside_s
        start = end
    soc, energy = result.soc, result.row_energy_j
    sizes = [len(soc.resources), len(soc.units), len(soc.shared), len(energy)]
    busy, useful, byte, power = np.split((sums / width).T, np.cumsum(sizes)[:-1])
    shares = np.minimum([*busy, *useful, *(byte / soc.shared_byte_per_s[:, None])], 1.0)
    names = [*soc.resources, *soc.units, *soc.shared]
    serial = [named[0] for named in (soc.control, soc.host) if named]
    busy_fraction = dict(zip(soc.resources, shares, strict=False))
    return Profile(
        time_s=edges[:-1] + width / 2.0,
        busy_fraction=busy_fraction,
        utilisation={
            **dict(zip(names[sizes[0] :], shares[sizes[0] :], strict=True)),
            **{name: busy_fraction[name] for name in serial},
        },
        bandwidth_byte_per_s=dict(zip(soc.shared, byte, strict=True)),
        power_w={
            **dict(zip(energy, power, strict=True)),
            **{f"{name}_static": joule / width for name, joule in static_j.items()},
        },
    )


def step_power_w(result: Result, step: StepResult) -> tuple[Floats, dict[str, Floats]]:
    """Power [W] of all chips between one start or end of an event and the next, by block and `static`.

    Returns the times [s] at which it changes, shape (n + 1,), and the power by name, each of shape (n,). Each event spreads
    its energy evenly over its time; power times the lengths of the intervals adds up to the energy of the step.
    """
    program = step.program
    start, end, rows = program.simulated.start_s, program.simulated.end_s, program.events.row
    edges = np.unique(np.concatenate([[0.0], start, end]))
    blocks: dict[str, Floats] = {}
    for component, joule in result.row_energy_j.items():
        block = max((name for name in result.chip.blocks if f"{component}_".startswith(f"{name}_")), key=len)
        blocks[block] = blocks.get(block, 0.0) + joule
    sums = spread(start, end, np.column_stack(list(blocks.values()))[rows], edges)
    power = dict(zip(blocks, (sums / np.diff(edges)[:, None]).T, strict=True))
    return edges, {**power, "static": np.full(len(sums), sum(result.step_static_power_w(step).values()))}


def _useful_s(result: Result) -> Floats:
    """Seconds at the peak that one run of each row is worth to its unit; shape (rows, units)."""
    table = result.table
    owned = table.owner[:, None] == np.arange(len(result.soc.units))
    return np.asarray((table.costs.utilisation * table.timeline.duration_s)[:, None] * owned)


def _row_quantities(result: Result) -> Floats:
    """Useful seconds by unit, bytes by tier and link, joules by component of one run of each row; shape (rows, n)."""
    return np.column_stack([_useful_s(result), result.table.byte, *result.row_energy_j.values()])


def _step_sums(result: Result, step: StepResult) -> Floats:
    """Busy seconds by resource, and the row quantities, of one step; shape (resources + n,)."""
    return np.concatenate([step.busy_s, step.count @ _row_quantities(result)])


def _first_step(result: Result, edges: Floats) -> Floats:
    """What `_step_sums` adds up, of the first step by bin; shape (bins, resources + n)."""
    program = result.first.program
    start, end, rows = program.simulated.start_s, program.simulated.end_s, program.events.row
    busy = np.zeros((len(rows), len(result.soc.resources)))
    busy[np.arange(len(rows)), result.table.owner[rows]] = end - start
    return spread(start, end, np.hstack([busy, _row_quantities(result)[rows]]), edges)


def spread(start_s: Floats, end_s: Floats, values: Floats, edges_s: Floats) -> Floats:
    """Sums in bins of events that spread their `values`, shape (events, n), evenly over their time; shape (bins, n).

    An event that takes no time falls into the bin of its instant.
    """
    lasting = end_s > start_s
    rate = values[lasting] / (end_s - start_s)[lasting, None]
    time = np.concatenate([[edges_s[0]], start_s[lasting], end_s[lasting]])
    order = np.argsort(time, kind="stable")
    slope = np.cumsum(np.vstack([np.zeros((1, values.shape[1])), rate, -rate])[order], axis=0)
    risen = np.cumsum(slope[:-1] * np.diff(time[order])[:, None], axis=0)
    total = np.vstack([np.zeros((1, values.shape[1])), risen])
    at_edges = np.column_stack([np.interp(edges_s, time[order], column) for column in total.T])
    sums = np.maximum(np.diff(at_edges, axis=0), 0.0)
    instant = np.clip(np.searchsorted(edges_s, start_s[~lasting], side="right") - 1, 0, len(sums) - 1)
    np.add.at(sums, instant, values[~lasting])
    return sums
