"""Result -> tables of columns, as the trace file holds them. Names end in their unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from archmodel.costs import LIMITS, Floats
from archmodel.kernels.timeline import (
    CLASS_COMPUTE,
    CLASS_CONVERSION,
    CLASS_HOST,
    CLASS_SYNCHRONISATION,
    CLASS_TRANSFER,
    WAIT_DISPATCH,
)
from archmodel.lifetimes import lifetimes
from archmodel.operations import NUMERIC, Ints, Kind
from archmodel.report.profile import profile, step_power_w
from archmodel.report.summary import headline
from archmodel.result import Result, StepResult
from archmodel.spec.workload import ROLES
from archmodel.units import FORMATS

_CLASSES = {
    CLASS_COMPUTE: "compute",
    CLASS_TRANSFER: "transfer",
    CLASS_CONVERSION: "layout_conversion",
    CLASS_SYNCHRONISATION: "synchronisation",
    CLASS_HOST: "host",
}
CLASSES = tuple(_CLASSES[code] for code in range(len(_CLASSES)))
#: why a resource stood idle before an event: nothing, its command, or an event elsewhere of one of the classes
CAUSES = ("none", "dispatch", *CLASSES)
_SHAPE = tuple(name for name in NUMERIC if name not in ("kind", "role", "capability", "compute_format", "flop"))


@attrs.frozen(eq=False)
class Choice:
    """A column of codes with the names that they stand for."""

    codes: Ints
    names: tuple[str, ...]

    def words(self) -> list[str]:
        return [self.names[code] for code in self.codes]


Column = Floats | Ints | Choice | Sequence[str]
Tables = dict[str, dict[str, Column]]


def record(result: Result) -> Tables:
    """Every table of a trace by name: of columns that are all equally long, or of single numbers (`summary`)."""
    shown = [result.first, *_representative(result)]
    over_time, kinds = profile(result), result.energy_by_kind_j
    curves = {name: getattr(over_time, name) for name in ("busy_fraction", "utilisation", "bandwidth_byte_per_s", "power_w")}
    return {
        "summary": {name: np.array(float(value)) for name, value in headline(result).items() if value is not None},
        "steps": _steps(result),
        "segments": _by_name("segment", {f"{p}_s": result.phase_segments_s(p) for p in result.phases}, result.segments_s),
        "energy": {"component": list(result.energy_j), "energy_j": np.array(list(result.energy_j.values()))},
        "energy_by_kind": {"kind": list(kinds), "energy_j": np.array(list(kinds.values()))},
        "operations": _operations(result),
        **{f"timeline/{step.step.label}": timeline(result, step) for step in shown},
        **{f"waits/{step.step.label}": waits(result, step) for step in shown},
        **{f"power/{step.step.label}": _power(result, step) for step in shown},
        **{f"kept/{step.step.label}": _kept(result, step) for step in shown},
        **{f"over_time/{name}": {"time_s": over_time.time_s, **values} for name, values in curves.items()},
        "residency": _residency(result),
        "tiers_and_links": _shared(result),
        "peaks": _peaks(result),
    }


def _representative(result: Result) -> list[StepResult]:
    """The decode step that stands for most others."""
    return [max(result.steps[1:], key=lambda step: step.weight)] if len(result.steps) > 1 else []


def _by_name(key: str, columns: Mapping[str, Mapping[str, float]], total: Mapping[str, float]) -> dict[str, Column]:
    table: dict[str, Column] = {key: list(total), "total_s": np.array(list(total.values()))}
    return {**table, **{name: np.array([values.get(n, 0.0) for n in total]) for name, values in columns.items()}}


def _steps(result: Result) -> dict[str, Column]:
    steps = result.steps
    return {
        "label": [s.step.label for s in steps],
        "phase": [s.step.phase for s in steps],
        "weight": np.array([s.weight for s in steps]),
        "new_tokens": np.array([s.step.tokens for s in steps]),
        "context_tokens": np.array([max(g.context_tokens for g in s.step.groups) for s in steps]),
        "duration_s": np.array([s.total_s for s in steps]),
        "transfer_hidden_s": np.array([s.transfer_hidden_s for s in steps]),
        "dynamic_energy_j": np.array([sum(s.energy_j.values()) for s in steps]) * result.chip.power.scale,
        **{f"{name}_s": np.array([s.segments_s[name] for s in steps]) for name in steps[0].segments_s},
    }


def _operations(result: Result) -> dict[str, Column]:
    """One row for each distinct operation; `runs` counts it over the whole run, `step` is the first that has it."""
    table, rows, costs = result.table, result.table.rows, result.table.costs
    counts = np.array([step.count for step in result.steps])
    weights = np.array([step.weight for step in result.steps])
    computed = rows.kind >= 0
    kinds = ("none", *(kind.name.lower() for kind in Kind))
    limits = {f"{name}_limit_s": costs.limits_s[:, column] for column, name in enumerate(LIMITS)}
    return {
        "name": list(rows.name),
        "step": np.argmax(counts > 0, axis=0),
        "owner": Choice(table.owner, result.soc.resources),
        "event_class": Choice(table.timeline.event_class, CLASSES),
        "kind": Choice(rows.kind + 1, kinds),
        "role": Choice(np.where(computed, rows.role + 1, 0), ("none", *ROLES)),
        "compute_format": Choice(np.where(computed, rows.compute_format + 1, 0), ("none", *FORMATS)),
        **{name: getattr(rows, name) for name in _SHAPE},
        "runs": weights @ counts,
        "duration_s": table.timeline.duration_s,
        "bound": Choice(np.where(computed, costs.bound + 1, 0), ("none", *LIMITS)),
        **limits,
        "mac": costs.mac,
        "vector_flop": costs.vector_flop,
        "events": costs.events,
        "cell_write_byte": costs.cell_write_byte,
        "weight_traffic_byte": costs.weight_traffic_byte,
        "kv_traffic_byte": costs.kv_traffic_byte,
        "activation_traffic_byte": costs.activation_traffic_byte,
        "written_byte": costs.written_byte,
        "buffer_byte": costs.buffer_read_byte + costs.buffer_write_byte,
        "utilisation": costs.utilisation,
        "dispatch_s": table.timeline.dispatch_s,
        "energy_j": sum(result.row_energy_j.values()),
    }


def timeline(result: Result, step: StepResult) -> dict[str, Column]:
    """Events of a step. `wait_s` is the gap on the resource before an event, `wait_cause` what ended it, and `wait_event`
    that event, or -1."""
    program, table = step.program, result.table
    start, end, wait = program.simulated.start_s, program.simulated.end_s, program.simulated.wait
    row = program.events.row
    owner, event_class = table.owner[row], table.timeline.event_class[row]
    waited = np.maximum(wait, 0)
    elsewhere = (wait >= 0) & (owner[waited] != owner)
    cause = np.where(elsewhere, event_class[waited] + CAUSES.index("compute"), CAUSES.index("none"))
    cause = np.where(wait == WAIT_DISPATCH, CAUSES.index("dispatch"), cause)
    return {
        "start_s": start,
        "end_s": end,
        "row": row,
        "resource": Choice(owner, result.soc.resources),
        "layer": program.layer,
        "event_class": Choice(event_class, CLASSES),
        "wait_s": start - _free_since(start, end, owner),
        "wait_cause": Choice(cause, CAUSES),
        "wait_event": np.where(elsewhere, wait, -1),
    }


def _free_since(start: Floats, end: Floats, owner: Ints) -> Floats:
    """End [s] of the event before on the same resource, 0 for the first; shape (events,)."""
    order = np.lexsort((start, owner))
    same = np.diff(owner[order], prepend=-1) == 0
    free = np.empty_like(start)
    free[order] = np.where(same, np.concatenate([[0.0], end[order][:-1]]), 0.0)
    return np.minimum(free, start)


def waits(result: Result, step: StepResult) -> dict[str, Column]:
    """Gaps of the units in a step, cut into pieces by what happened elsewhere meanwhile.

    A gap ends with an event of its unit. What that event waited for names the last piece, what this one waited for the
    piece before, and so on back to the start of the gap.
    """
    events, simulated, table = step.program.events, step.program.simulated, result.table
    start, end = simulated.start_s.tolist(), simulated.end_s.tolist()
    owner, event_class = table.owner[events.row], table.timeline.event_class[events.row]
    free = _free_since(simulated.start_s, simulated.end_s, owner)
    pieces: list[tuple[float, float, int, int]] = []
    for event in np.flatnonzero((owner < len(result.soc.units)) & (simulated.start_s > free)).tolist():
        low, now, current = float(free[event]), start[event], event
        while now > low:
            before, cause = int(simulated.wait[current]), CAUSES.index("none")
            if before == WAIT_DISPATCH:
                deps = events.dep[events.dep_start[current] : events.dep_start[current + 1]].tolist()
                before, cause = max(deps, key=lambda dep: end[dep], default=-1), CAUSES.index("dispatch")
            ended = end[before] if before >= 0 else low
            if ended < now:
                pieces.append((max(ended, low), now, int(owner[event]), cause))
            if before < 0:
                break
            if min(ended, now) > low:
                running = CAUSES.index("compute") + int(event_class[before])
                pieces.append((max(start[before], low), min(ended, now), int(owner[event]), running))
            now, current = min(now, start[before]), before
    columns = np.array(pieces).reshape(len(pieces), 4)
    return {
        "start_s": columns[:, 0],
        "end_s": columns[:, 1],
        "resource": Choice(columns[:, 2].astype(np.int64), result.soc.resources),
        "cause": Choice(columns[:, 3].astype(np.int64), CAUSES),
    }


def _power(result: Result, step: StepResult) -> dict[str, Column]:
    """Power of each block from one start or end of an event to the next, and static power; none after the last."""
    edges_s, power_w = step_power_w(result, step)
    return {"start_s": edges_s, **{f"{name}_w": np.append(watt, 0.0) for name, watt in power_w.items()}}


def _kept(result: Result, step: StepResult) -> dict[str, Column]:
    """Bytes of results that live with each unit from one instant on; weights and caches are in `residency`."""
    curves = {name: living.over_time() for name, living in lifetimes(result, step).items()}
    instants = np.unique(np.concatenate([np.zeros(1), *(time for time, _ in curves.values())]))
    values = {}
    for name, (time, byte) in curves.items():
        at = np.searchsorted(time, instants, side="right") - 1
        values[f"{name}_byte"] = np.where(at >= 0, np.append(byte, 0.0)[at], 0.0)
    return {"start_s": instants, **values}


def _residency(result: Result) -> dict[str, Column]:
    buffers = result.residency.buffers
    return {
        "tier": [b.tier for b in buffers],
        "what": [b.what for b in buffers],
        "resident_byte": np.array([b.byte for b in buffers]),
        "first_step": np.array([b.first_step for b in buffers]),
        "last_step": np.array([b.last_step for b in buffers]),
    }


def _shared(result: Result) -> dict[str, Column]:
    """Bandwidth of every tier and link, and capacity of tiers (0 for a link)."""
    names, residency = result.soc.shared, result.residency
    return {
        "name": list(names),
        "achievable_byte_per_s": result.soc.shared_byte_per_s,
        "mean_byte_per_s": np.array([result.bandwidth_byte_per_s[n] for n in names]),
        "traffic_byte": np.array([result.traffic_byte()[n] for n in names]),
        "utilisation": np.array([result.utilisation[n] for n in names]),
        "capacity_byte": np.array([residency.capacity_byte.get(n, 0.0) for n in names]),
        "used_byte": np.array([residency.used_byte(n) for n in names], dtype=float),
    }


def _peaks(result: Result) -> dict[str, Column]:
    """Matrix peak of each unit and format, with the bandwidth of the memory that the unit streams from."""
    soc: Any = result.soc
    peaks = [(unit, fmt, value) for unit, formats in soc.peaks_per_s().items() for fmt, value in formats.items()]
    memory = np.array([soc.path_byte_per_s(unit, soc.units[unit].memory) for unit, _, _ in peaks])
    return {
        "unit": [unit for unit, _, _ in peaks],
        "format": [fmt for _, fmt, _ in peaks],
        "peak_flop_per_s": np.array([value for _, _, value in peaks]),
        "memory_byte_per_s": memory,
    }
