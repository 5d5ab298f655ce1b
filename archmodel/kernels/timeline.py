"""Timeline of one step: in-order queues, serial dispatch, and bandwidth that running events share fluidly.

Discrete-event simulation. Every resource (unit, link, control core, host) runs its events one at a time in program order.
An event starts when its resource is free, its dependencies have ended and its command has been dispatched. Running events
draw on shared capacities (memory tiers, links): an event alone runs at full speed; where the sum of demands exceeds a
capacity, they share it fairly. It ignores preemption and out-of-order issue.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: why an event did not start earlier, where it was no other event
WAIT_NONE = -1  # nothing: it started as soon as the step did
WAIT_DISPATCH = -2  # its command had not been dispatched

#: segments after one compute segment per resource; see `Segments`
MEMORY, OVERHEAD, TRANSFER, CONVERSION, SYNCHRONISATION, DISPATCH, HOST, SEGMENTS = range(8)

#: what an event is, for its segment
CLASS_COMPUTE, CLASS_TRANSFER, CLASS_CONVERSION, CLASS_SYNCHRONISATION, CLASS_HOST = 0, 1, 2, 3, 4

_EPSILON = 1e-12  # of a duration: below it an event counts as ended


class Events(NamedTuple):
    """Events in program order, as indices into per-row tables. `dep_start` has shape (events + 1,)."""

    row: Ints
    dep_start: Ints
    dep: Ints


class RowTable(NamedTuple):
    """Per row: resource, full-speed duration [s], dispatch time [s], class, shares of compute and of fixed overhead
    (launch, fill, first byte) in the duration, the rest waiting for memory, and `usage`.

    `usage` has shape (rows, shared): the fraction of each shared capacity that the row takes at full speed.
    """

    resource: Ints
    duration_s: Floats
    dispatch_s: Floats
    event_class: Ints
    compute_share: Floats
    overhead_share: Floats
    usage: Floats


class Dispatchers(NamedTuple):
    """Who issues commands, each one at a time and in program order. `control` and `queue` have shape (dispatchers,): the
    resource that dispatches (-1: none is busy with it), and how many commands may wait ahead at a resource. `of` has shape
    (resources,): the dispatcher of the commands of each resource."""

    control: Ints
    queue: Ints
    of: Ints


class Simulated(NamedTuple):
    """`start_s`, `end_s`, `wait` per event (an event id or WAIT_*); `compute_s` per resource; `other_s` per segment.

    `compute_s` and `other_s` add up to the makespan: each instant is shared equally among the units that run then, and
    goes to transfer, synchronisation, dispatch or host only where no unit runs. `hidden_s` is transfer time under units.
    """

    start_s: Floats
    end_s: Floats
    wait: Ints
    compute_s: Floats
    other_s: Floats
    hidden_s: float


@kernel
def _speeds(running: Ints, count: int, usage: Floats, rows: Ints, speed: Floats) -> None:
    """Speeds of the `count` running events under dominant-resource fairness, by progressive filling.

    Every event is granted the same share of the capacity that it needs most of, and no more than it asks for, so that a
    light user is not slowed by heavy ones.
    """
    shared = usage.shape[1]
    frozen = np.zeros(count, np.bool_)
    taken = np.zeros(shared)
    dominant = np.zeros(count)
    left = count
    for i in range(count):
        for s in range(shared):
            dominant[i] = max(dominant[i], usage[rows[running[i]], s])
        if dominant[i] == 0.0:
            speed[i] = 1.0
            frozen[i] = True
            left -= 1
    while left > 0:
        level = np.inf
        tight = -1
        for s in range(shared):
            growth = 0.0
            for i in range(count):
                if not frozen[i]:
                    growth += usage[rows[running[i]], s] / dominant[i]
            if growth > 0.0 and (1.0 - taken[s]) / growth < level:
                level = (1.0 - taken[s]) / growth
                tight = s
        for i in range(count):
            if not frozen[i] and dominant[i] <= level:
                level = dominant[i]
                tight = -1
        for i in range(count):
            full = tight >= 0 and usage[rows[running[i]], tight] > 0.0
            if not frozen[i] and (full or (tight < 0 and dominant[i] <= level)):
                frozen[i] = True
                left -= 1
                speed[i] = min(1.0, level / dominant[i])
                for s in range(shared):
                    taken[s] += speed[i] * usage[rows[running[i]], s]


@kernel
def _ready(event: int, events: Events, end: Floats) -> tuple[bool, int]:
    """Whether every dependency of `event` has ended, and which ended last (-1: it has none)."""
    last = -1
    for i in range(events.dep_start[event], events.dep_start[event + 1]):
        dependency = events.dep[i]
        if end[dependency] < 0.0:
            return False, -1
        if last < 0 or end[dependency] > end[last]:
            last = dependency
    return True, last


@kernel
def _account(dt: float, running: Ints, speed: Floats, events: Events, table: RowTable, segments: Floats) -> float:
    """Book an interval of `dt`, in which the events `running` run, in `segments`; returns transfer under units [s]."""
    other = segments.shape[0] - SEGMENTS
    units = 0
    transfer = False
    rest = DISPATCH
    for event in running:
        kind = table.event_class[events.row[event]]
        if kind in (CLASS_COMPUTE, CLASS_CONVERSION):
            units += 1
        elif kind == CLASS_TRANSFER:
            transfer = True
        elif kind == CLASS_SYNCHRONISATION:
            rest = SYNCHRONISATION
        elif rest == DISPATCH:
            rest = HOST
    if units == 0:
        segments[other + (TRANSFER if transfer else rest)] += dt
        return 0.0
    for i, event in enumerate(running):
        row = events.row[event]
        kind = table.event_class[row]
        if kind == CLASS_CONVERSION:
            segments[other + CONVERSION] += dt / units
        elif kind == CLASS_COMPUTE:
            compute = dt / units * speed[i] * table.compute_share[row]
            segments[table.resource[row]] += compute
            overhead = dt / units * speed[i] * table.overhead_share[row]
            segments[other + OVERHEAD] += overhead
            segments[other + MEMORY] += dt / units - compute - overhead
    return dt if transfer else 0.0


@kernel
def _queues(events: Events, table: RowTable, resources: int) -> tuple[Ints, Ints]:
    """Each resource's events in program order as a linked list: heads (resources,), and who follows whom (events,)."""
    n = events.row.shape[0]
    first, following, tail = np.full(resources, n), np.full(n, n), np.full(resources, -1)
    for e in range(n):
        r = table.resource[events.row[e]]
        if tail[r] < 0:
            first[r] = e
        else:
            following[tail[r]] = e
        tail[r] = e
    return first, following


@kernel
def _commands(events: Events, table: RowTable, dispatchers: Dispatchers) -> tuple[Ints, Ints]:
    """Each dispatcher's commands in program order as a linked list: heads (dispatchers,), and who follows whom (events,)."""
    n, count = events.row.shape[0], dispatchers.control.shape[0]
    first, following, tail = np.full(count, n), np.full(n, n), np.full(count, -1)
    for e in range(n):
        row = events.row[e]
        if table.dispatch_s[row] > 0.0:
            d = dispatchers.of[table.resource[row]]
            if tail[d] < 0:
                first[d] = e
            else:
                following[tail[d]] = e
            tail[d] = e
    return first, following


@kernel
def stages(events: Events, unit: Ints) -> Ints:
    """How often the unit changes on the way to each event, shape (events,); `unit` runs it, -1 where none does.

    No event has fewer than what it depends on, so that programs whose events are sorted by it cannot wait for each other.
    """
    n = events.row.shape[0]
    stage, at = np.zeros(n, np.int64), unit.copy()
    for e in range(n):
        reached, there = 0, -1
        for i in range(events.dep_start[e], events.dep_start[e + 1]):
            d = events.dep[i]
            if stage[d] > reached or (stage[d] == reached and at[d] > there):
                reached, there = stage[d], at[d]
        stage[e] = reached + (unit[e] >= 0 and there >= 0 and unit[e] != there)
        if unit[e] < 0:
            at[e] = there
    return stage


@kernel
def simulate(events: Events, table: RowTable, dispatchers: Dispatchers) -> Simulated:
    """Run the events of one step from time 0. See the module for the model. Raises ValueError on a circular wait.

    One function on purpose: its loop runs once an event, and handing the state on to others counts references to every
    array at each call, which makes it twenty times as slow.
    """
    n = events.row.shape[0]
    resources, cores = dispatchers.of.shape[0], dispatchers.control.shape[0]
    start, end, dispatched = np.full(n, -1.0), np.full(n, -1.0), np.full(n, -1.0)
    wait = np.full(n, WAIT_NONE)
    remaining = np.zeros(n)
    segments = np.zeros(resources + SEGMENTS)
    hidden = 0.0

    first, following = _queues(events, table, resources)
    to_dispatch, later = _commands(events, table, dispatchers)
    drives = np.full(resources, -1)  # dispatcher that a resource is busy with
    for d in range(cores):
        if dispatchers.control[d] >= 0:
            drives[dispatchers.control[d]] = d
    busy = np.full(resources, -1)  # event that runs on the resource
    queued = np.zeros(resources, np.int64)  # dispatched, not yet started
    previous_end = np.full(resources, -1)  # event that ended last on the resource
    dispatching = np.full(cores, -1)
    dispatch_end = np.zeros(cores)
    running = np.zeros(resources, np.int64)
    speed = np.ones(resources)
    count = 0
    now = 0.0
    done = 0
    while done < n:
        changed = False
        moved = True
        while moved:
            moved = False
            for r in range(resources):
                e = first[r]
                if e == n or busy[r] >= 0 or (drives[r] >= 0 and dispatching[drives[r]] >= 0):
                    continue
                row = events.row[e]
                if table.dispatch_s[row] > 0.0 and dispatched[e] < 0.0:
                    continue
                ready, last = _ready(e, events, end)
                if not ready:
                    continue
                start[e] = now
                cause = previous_end[r]
                if last >= 0 and (cause < 0 or end[last] >= end[cause]):
                    cause = last
                if now > 0.0 and (cause < 0 or end[cause] < now):
                    cause = WAIT_DISPATCH  # of its own command, or the control core was dispatching another
                wait[e] = cause
                if dispatched[e] >= 0.0:
                    queued[r] -= 1
                remaining[e] = table.duration_s[row]
                busy[r] = e
                first[r] = following[e]
                running[count] = e
                count += 1
                changed = moved = True
            for d in range(cores):
                e = to_dispatch[d]
                if e == n or dispatching[d] >= 0 or (dispatchers.control[d] >= 0 and busy[dispatchers.control[d]] >= 0):
                    continue
                r = table.resource[events.row[e]]
                if dispatchers.queue[d] > 0:
                    free = queued[r] < dispatchers.queue[d]
                else:
                    ready, _ = _ready(e, events, end)
                    free = ready and busy[r] < 0 and first[r] == e
                if free:
                    dispatching[d] = e
                    dispatch_end[d] = now + table.dispatch_s[events.row[e]]
                    to_dispatch[d] = later[e]
        if changed:
            if count == 1:
                speed[0] = 1.0
            else:
                _speeds(running, count, table.usage, events.row, speed)
        dt = np.inf
        for i in range(count):
            dt = min(dt, remaining[running[i]] / speed[i])
        for d in range(cores):
            if dispatching[d] >= 0:
                dt = min(dt, dispatch_end[d] - now)
        if not np.isfinite(dt):
            raise ValueError("timeline: events wait for each other")
        if dt > 0.0:
            hidden += _account(dt, running[:count], speed, events, table, segments)
        now += dt
        for d in range(cores):
            if dispatching[d] >= 0 and dispatch_end[d] <= now:
                dispatched[dispatching[d]] = now
                queued[table.resource[events.row[dispatching[d]]]] += 1
                dispatching[d] = -1
        kept = 0
        for i in range(count):
            e = running[i]
            remaining[e] -= dt * speed[i]
            if remaining[e] <= _EPSILON * table.duration_s[events.row[e]]:
                end[e] = now
                r = table.resource[events.row[e]]
                busy[r] = -1
                previous_end[r] = e
                done += 1
            else:
                running[kept] = e
                speed[kept] = speed[i]
                kept += 1
        if kept != count:
            count = kept
            if count == 1:
                speed[0] = 1.0
            elif count > 1:
                _speeds(running, count, table.usage, events.row, speed)
    return Simulated(start, end, wait, segments[:resources], segments[resources:], hidden)
