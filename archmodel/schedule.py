"""Placed operations -> costs per distinct row -> timeline of each step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import attrs
import numpy as np

from archmodel.components import memory, units
from archmodel.costs import LIMITS, Costs, Floats, Surroundings, empty_costs, place
from archmodel.kernels.timeline import (
    CLASS_COMPUTE,
    CLASS_CONVERSION,
    CLASS_TRANSFER,
    Dispatchers,
    Events,
    RowTable,
    Simulated,
    simulate,
    stages,
)
from archmodel.operations import Ints, Kind, Rows, rows_from
from archmodel.piece import Piece, result_byte
from archmodel.residency import Residency
from archmodel.soc import Soc
from archmodel.spec.chip import CAPABILITIES, SoftwareSpec
from archmodel.spec.system import member_of
from archmodel.template import DEFERRED, STREAM

_STALLS = (LIMITS.index("memory"), LIMITS.index("buffer"))
_WORK = tuple(LIMITS.index(name) for name in ("matrix", "vector", "feed"))


@attrs.frozen(eq=False)
class Table:
    """Every distinct row of a run with its costs. `byte` is (rows, shared): bytes at each tier and link."""

    rows: Rows
    owner: Ints  # index into Soc.resources
    costs: Costs
    byte: Floats
    written_byte: Floats  # (rows, shared): the part of `byte` that is written
    timeline: RowTable
    commands: Floats  # commands that the control core issues for the row
    active: Floats  # share of the cards of its owner's member that work while it runs; 1 on a chip
    lies: Ints  # unit that holds the row's result, as an index into Soc.resources; -1 where no unit does
    result_byte: Floats  # bytes of that result


@attrs.frozen(eq=False)
class Program:
    """One step as events, and what came of it."""

    events: Events
    simulated: Simulated
    layer: Ints  # layer of each event; -1 entry, `layers` exit

    @property
    def makespan_s(self) -> float:
        return float(self.simulated.end_s.max())


def tabulate(soc: Soc, residency: Residency, pieces: Sequence[Piece]) -> tuple[Table, list[Ints]]:
    """Costs of all records of `pieces`, and for each piece the row index of its records."""
    records = [record for piece in pieces for record in piece.records]
    offsets = np.cumsum([0] + [len(piece.records) for piece in pieces])
    index = [np.arange(offsets[i], offsets[i + 1]) for i in range(len(pieces))]
    rows = rows_from([{"kind": -1, **record} for record in records])
    owner = np.array([soc.resources.index(record["owner"]) for record in records], dtype=np.int64)
    costs = _unit_costs(soc, residency, rows, owner)
    fixed = np.array([record.get("duration_s", 0.0) for record in records])
    duration = np.where(rows.kind >= 0, costs.duration_s, fixed)
    byte, written = _traffic(soc, residency, rows, owner, costs, records)
    event_class = np.array([record["event_class"] for record in records], dtype=np.int64)
    # a full-duplex link is as busy as its busier direction
    duplex = np.array([name in soc.links and soc.links[name].duplex == "full" for name in soc.shared])
    busiest = np.where(duplex, np.maximum(byte - written, written), byte)
    with np.errstate(divide="ignore", invalid="ignore"):
        usage = np.where(duration[:, None] > 0.0, busiest / (duration[:, None] * soc.shared_byte_per_s), 0.0)
    dispatch, commands = _dispatch(soc, rows, owner, event_class, duration)
    timeline = RowTable(owner, duration, dispatch, event_class, *_shares(costs), np.minimum(usage, 1.0))
    active = np.array([record.get("active", 1.0) for record in records])
    lies = np.array([_index(soc, str(record["lies"])) for record in records], dtype=np.int64)
    results = np.array([result_byte(record) for record in records])
    return Table(rows, owner, costs, byte, written, timeline, commands, active, lies, results), index


def _index(soc: Soc, block: str) -> int:
    return soc.resources.index(block) if block in soc.units else -1


def _unit_costs(soc: Soc, residency: Residency, rows: Rows, owner: Ints) -> Costs:
    """Costs of the rows that units run, each unit's rows in one call of its component."""
    costs = empty_costs(len(rows))
    for number, (name, unit) in enumerate(soc.units.items()):
        mine = np.flatnonzero((owner == number) & (rows.kind >= 0))
        if not len(mine):
            continue
        part = rows.take(mine)
        around = Surroundings(
            buffer_byte=memory.capacity_byte(soc.tiers[unit.buffer]) * unit.buffer_share,
            buffer_byte_per_s=soc.path_byte_per_s(name, unit.buffer),
            memory_byte_per_s=_bandwidth(soc, residency, part, name),
            memory_latency_s=soc.path_latency_s(name, unit.memory),
            held_share=residency.held_share.get(name, 0.0),
        )
        place(costs, mine, units.costs(unit, part, around))
    return costs


def _bandwidth(soc: Soc, residency: Residency, rows: Rows, unit: str) -> Floats:
    """Bandwidth [B/s] of the tier that each row streams from; spilled weights come from two tiers at once."""
    tier = soc.home(unit, "weights")
    spilled = residency.spilled.get(tier, 0.0)
    weights = soc.path_byte_per_s(unit, tier)
    if spilled:
        weights = 1.0 / max((1.0 - spilled) / weights, spilled / soc.path_byte_per_s(unit, residency.spill_tier))
    cache = soc.path_byte_per_s(unit, soc.home(unit, "kv_cache"))
    own = soc.path_byte_per_s(unit, soc.units[unit].memory)
    return np.select(
        [rows.kind == Kind.MATMUL, (rows.kind == Kind.ATTENTION) | (rows.kind == Kind.SCAN)], [weights, cache], own
    )


def _shares(costs: Costs) -> tuple[Floats, Floats]:
    """Shares of a row's time: work that endless bandwidth would leave, and fixed overhead; the rest waits for memory."""
    work, stall = costs.limits_s[:, _WORK].max(axis=1), costs.limits_s[:, _STALLS].max(axis=1)
    fixed = costs.limits_s[:, LIMITS.index("fixed")]
    with np.errstate(divide="ignore", invalid="ignore"):
        overhead = np.where(costs.duration_s > 0.0, np.minimum(fixed / costs.duration_s, 1.0), 0.0)
        share = np.where(costs.duration_s > 0.0, work / costs.duration_s, 1.0)
    return np.where(stall > work, np.minimum(share, 1.0 - overhead), 1.0 - overhead), overhead


def _traffic(
    soc: Soc, residency: Residency, rows: Rows, owner: Ints, costs: Costs, records: Sequence[dict[str, Any]]
) -> tuple[Floats, Floats]:
    """Bytes and written bytes, (rows, shared): at the tiers that rows use and at every link on the way."""
    byte = np.zeros((len(rows), len(soc.shared)))
    written = np.zeros_like(byte)

    def book(unit: str, tier: str, amount: Floats, writes: Floats, mine: Ints) -> None:
        for block in (tier, *soc.route(unit, tier)):
            users = soc.users(unit, block)
            byte[mine, soc.shared.index(block)] += amount * users
            written[mine, soc.shared.index(block)] += writes * users

    for number, (name, unit) in enumerate(soc.units.items()):
        mine = np.flatnonzero((owner == number) & (rows.kind >= 0))
        if not len(mine):
            continue
        weights, cache = costs.weight_traffic_byte[mine], costs.kv_traffic_byte[mine]
        activations, writes = costs.activation_traffic_byte[mine], costs.written_byte[mine]
        cache_writes = np.minimum(writes, cache)
        none = np.zeros_like(weights)
        tier = soc.home(name, "weights")
        spilled = residency.spilled.get(tier, 0.0)
        book(name, tier, weights * (1.0 - spilled), none, mine)
        if spilled:
            book(name, residency.spill_tier, weights * spilled, none, mine)
        book(name, soc.home(name, "kv_cache"), cache, cache_writes, mine)
        book(name, unit.memory, activations, writes - cache_writes, mine)
        reads, buffer_writes = costs.buffer_read_byte[mine], costs.buffer_write_byte[mine]
        book(name, unit.buffer, reads + buffer_writes, buffer_writes, mine)
    for row, record in enumerate(records):
        for link, amount in record.get("moved", {}).items():
            byte[row, soc.shared.index(link)] += amount
    return byte, written


def _dispatch(soc: Soc, rows: Rows, owner: Ints, event_class: Ints, duration_s: Floats) -> tuple[Floats, Floats]:
    """Dispatch time [s] and commands of each row: one command for every kernel and transfer, none where fused. Units without a
    control core have the gaps of their software instead."""
    on_unit = ((event_class == CLASS_COMPUTE) | (event_class == CLASS_CONVERSION)) & (rows.fused == 0)
    command = on_unit | (event_class == CLASS_TRANSFER)
    seconds, commands = np.zeros(len(rows)), np.zeros(len(rows))
    for block, software, control in soc.dispatched:
        mine = owner == soc.resources.index(block)
        if control:
            each = (control.dispatch_cycles + control.completion_cycles) / (control.clock_ghz * 1e9)
            seconds[mine & command], commands[mine & command] = each, 1.0
        elif block in soc.units:
            waits_s = np.maximum(software.kernel_gap_us * 1e-6, _call_s(software, rows) - duration_s)
            seconds = np.where(mine & on_unit, waits_s, seconds)
    return seconds, commands


def _call_s(software: SoftwareSpec, rows: Rows) -> Floats:
    """Host time [s] of calling each kernel, shape (rows,): a unit waits where its kernel is shorter. None with graphs."""
    call_us = software.call_us
    vector = np.where(rows.capability == CAPABILITIES.index("norm"), call_us.get("norm", 0.0), call_us.get("activation", 0.0))
    product = (rows.kind == Kind.MATMUL) | (rows.kind == Kind.ATTENTION)
    return np.asarray(np.where(product, call_us.get("matmul", 0.0), vector) * 1e-6)


Chain = Sequence[tuple[Piece, Ints, int]]


def run(soc: Soc, table: Table, chains: Sequence[Chain]) -> Program:
    """Timeline of a step. `chains` holds, for each micro-batch, its pieces in order with their rows and layer."""
    unit = np.where(table.owner < len(soc.units), table.owner, -1)
    made: dict[tuple[int, ...], _Chained] = {}  # by pieces: micro-batches of one size share theirs
    keys = [tuple(id(piece) for piece, _, _ in chain) for chain in chains]
    for key, chain in zip(keys, chains, strict=True):
        if key not in made:
            made[key] = _chained(unit, chain)
    parts = [made[key] for key in keys]
    events, layer = parts[0].events, parts[0].layer
    if len(parts) > 1:
        events, layer = _interleaved(parts)
    simulated = simulate(events, table.timeline, _dispatchers(soc))
    return Program(events, simulated, layer)


def _dispatchers(soc: Soc) -> Dispatchers:
    """One dispatcher for each control core, and one for each chip or member without."""
    cores = [soc.dispatcher(block) or member_of(block) for block in soc.resources]
    names = list(dict.fromkeys(cores))
    specs = [soc.controls.get(name) for name in names]
    return Dispatchers(
        np.array([soc.resources.index(name) if spec else -1 for name, spec in zip(names, specs, strict=True)]),
        np.array([spec.queue_commands if spec else 0 for spec in specs]),
        np.array([names.index(core) for core in cores]),
    )


@attrs.frozen(eq=False)
class _Chained:
    """Events of one micro-batch in order; `stage` counts the changes of unit before each."""

    events: Events
    layer: Ints
    stage: Ints


def _chained(unit: Ints, chain: Chain) -> _Chained:
    """The events of `chain`; `unit` is that of each row, -1 where none runs it."""
    rows, counts, deps, layers, places = [], [], [], [], []
    offset, last, held = 0, STREAM, STREAM
    local = {id(piece): _local(piece) for piece in {id(piece): piece for piece, _, _ in chain}.values()}
    runs = [list(alike) for _, alike in groupby(chain, key=lambda link: id(link[0]))]
    for alike, after in zip(runs, [*runs[1:], runs[-1]], strict=True):  # layers that share a piece, placed in one go
        piece, index, _ = alike[0]
        count, dep = local[id(piece)]
        starts = offset + len(index) * np.arange(len(alike))[:, None]
        before = np.concatenate([[last], starts[:-1, 0] + piece.exit])[:, None]
        late = starts[:, 0] + piece.deferred if piece.deferred >= 0 else np.full(len(starts), STREAM)
        deferred = np.concatenate([[held], late[:-1]])[:, None]
        rows.append(np.tile(index, len(alike)))
        counts.append(np.tile(count, len(alike)))
        deps.append(np.where(dep == STREAM, before, np.where(dep == DEFERRED, deferred, dep + starts)).ravel())
        layers.append(np.repeat([layer for _, _, layer in alike], len(index)))
        last, held = int(starts[-1, 0]) + piece.exit, int(late[-1])
        places.append(_places(piece, after[0][0], starts, len(index)))
        offset += len(index) * len(alike)
    events = _events(rows, counts, deps)
    chained = _Chained(events, np.concatenate(layers), stages(events, unit[events.row]))
    if not any(piece.late for piece, _, _ in chain):
        return chained
    order = np.argsort(np.concatenate(places), kind="stable")
    return _Chained(_reordered(chained.events, order), chained.layer[order], chained.stage[order])


def _places(piece: Piece, after: Piece, starts: Ints, length: int) -> Floats:
    """Program order of the events of alike pieces; what is issued late comes where the piece after it takes it."""
    place = (starts + np.arange(length)).astype(float)
    if piece.late:
        taken = np.full(starts.shape, _taken(piece))
        taken[-1] = _taken(after)
        place[:, list(piece.late)] = starts + length + taken - 0.5
    return place.ravel()


def _taken(piece: Piece) -> int:
    """Record of a piece that first takes what the one before deferred."""
    return next((i for i, record in enumerate(piece.records) if DEFERRED in record["after"]), 0)


def _reordered(events: Events, order: Ints) -> Events:
    """The same events in another program order."""
    place_of = np.empty_like(order)
    place_of[order] = np.arange(len(order))
    counts, starts = np.diff(events.dep_start), events.dep_start[:-1]
    dep_start = np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64)
    taken = np.arange(len(events.dep)) + np.repeat(starts[order] - dep_start[:-1], counts[order])
    return Events(events.row[order], dep_start, place_of[events.dep[taken]])


def _events(rows: Sequence[Ints], counts: Sequence[Ints], deps: Sequence[Ints]) -> Events:
    """Events from parts in order; a dependency on nothing (STREAM at the start) is dropped."""
    row, dep, count = np.concatenate(rows), np.concatenate(deps), np.concatenate(counts)
    real = dep >= 0
    kept = np.bincount(np.repeat(np.arange(len(row)), count)[real], minlength=len(row))
    return Events(row, np.concatenate([[0], np.cumsum(kept)]).astype(np.int64), dep[real])


def _local(piece: Piece) -> tuple[Ints, Ints]:
    """Of a piece: dependencies per record, and the dependencies one after the other."""
    counts = np.array([len(record["after"]) for record in piece.records], dtype=np.int64)
    return counts, np.array([i for record in piece.records for i in record["after"]], dtype=np.int64)


def _interleaved(parts: Sequence[_Chained]) -> tuple[Events, Ints]:
    """One program of all micro-batches, each a stage behind the one before, so that unlike units work at once."""
    number = np.repeat(np.arange(len(parts)), [len(part.layer) for part in parts])
    stage = np.concatenate([part.stage for part in parts])
    order = np.lexsort((np.arange(len(number)), -number, stage + number))
    offsets = np.cumsum([0] + [len(part.layer) for part in parts[:-1]])
    row = np.concatenate([part.events.row for part in parts])
    dep = np.concatenate([part.events.dep + offset for part, offset in zip(parts, offsets, strict=True)])
    counts = np.concatenate([np.diff(part.events.dep_start) for part in parts])
    events = Events(row, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), dep)
    return _reordered(events, order), np.concatenate([part.layer for part in parts])[order]
