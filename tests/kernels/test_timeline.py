"""Timeline kernel against a slow recursion where nothing is shared, by hand where it is, and by its laws at random."""

from __future__ import annotations

import numpy as np
import pytest

from archmodel.kernels.timeline import (
    CLASS_COMPUTE,
    CLASS_CONVERSION,
    CLASS_HOST,
    CLASS_SYNCHRONISATION,
    CLASS_TRANSFER,
    MEMORY,
    TRANSFER,
    WAIT_DISPATCH,
    Dispatchers,
    Events,
    RowTable,
    simulate,
)


def make(resource, duration, deps, *, dispatch=None, kind=None, share=None, usage=None):
    """Events that are their own rows."""
    n = len(resource)
    starts = np.concatenate([[0], np.cumsum([len(d) for d in deps])]).astype(np.int64)
    flat = np.array([i for d in deps for i in d], dtype=np.int64)
    table = RowTable(
        np.array(resource, dtype=np.int64),
        np.array(duration, dtype=float),
        np.array(dispatch if dispatch is not None else [0.0] * n, dtype=float),
        np.array(kind if kind is not None else [CLASS_COMPUTE] * n, dtype=np.int64),
        np.array(share if share is not None else [1.0] * n, dtype=float),
        np.zeros(n) if share is None else 0.5 * (1.0 - np.array(share)),
        np.array(usage if usage is not None else np.zeros((n, 1)), dtype=float),
    )
    return Events(np.arange(n), starts, flat), table


def dispatched_by(control, queue, resources):
    """One dispatcher for all resources."""
    return Dispatchers(np.array([control]), np.array([queue]), np.zeros(resources, dtype=np.int64))


def recursion(resource, duration, deps):
    """End times where nothing is shared and dispatch is free: each event after its resource and its dependencies."""
    end, free = [], {}
    for r, d, before in zip(resource, duration, deps, strict=True):
        start = max([free.get(r, 0.0), *(end[i] for i in before)], default=0.0)
        end.append(start + d)
        free[r] = end[-1]
    return np.array(end)


def random_graph(rng, n, resources):
    resource = rng.integers(0, resources, n).tolist()
    duration = rng.exponential(1.0, n).tolist()
    deps = [sorted(set(rng.integers(0, i, rng.integers(0, 3)).tolist())) if i else [] for i in range(n)]
    return resource, duration, deps


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_recursion_where_nothing_is_shared(seed):
    rng = np.random.default_rng(seed)
    resource, duration, deps = random_graph(rng, 60, 4)
    out = simulate(*make(resource, duration, deps), dispatched_by(-1, 0, 4))
    np.testing.assert_allclose(out.end_s, recursion(resource, duration, deps), rtol=1e-9)


def test_two_streams_share_a_tier_and_a_light_one_is_not_slowed():
    # two full-speed streams of 1 s on one tier end together at 2 s; a unit that takes a tenth of it ends at 1 s
    events, table = make([0, 1, 2], [1.0, 1.0, 1.0], [[], [], []], usage=[[1.0], [1.0], [0.1]])
    out = simulate(events, table, dispatched_by(-1, 0, 3))
    assert out.end_s[2] == pytest.approx(1.0)
    # 0.45 of full speed for 1 s, then the tier is halved: 1 + (1 - 0.45) / 0.5
    assert out.end_s[0] == pytest.approx(1.0 + 0.55 / 0.5)
    assert out.end_s[1] == pytest.approx(out.end_s[0])


def test_contention_is_memory_stall_not_compute():
    events, table = make([0, 1], [1.0, 1.0], [[], []], usage=[[1.0], [1.0]], share=[1.0, 1.0])
    out = simulate(events, table, dispatched_by(-1, 0, 2))
    assert out.compute_s.sum() == pytest.approx(1.0)
    assert out.other_s[MEMORY] == pytest.approx(1.0)


def test_dispatch_is_serial_and_runs_ahead_as_far_as_the_queue():
    deps = [[], [0], [1], [2]]
    slow = make([0] * 4, [1.0] * 4, deps, dispatch=[0.25] * 4)
    exposed = simulate(*slow, dispatched_by(1, 0, 2))
    assert exposed.end_s[-1] == pytest.approx(4 * 1.25)
    assert exposed.wait.tolist() == [WAIT_DISPATCH] * 4
    ahead = simulate(*slow, dispatched_by(1, 4, 2))
    assert ahead.end_s[-1] == pytest.approx(0.25 + 4.0)
    bound = make([0] * 4, [0.1] * 4, deps, dispatch=[0.25] * 4)
    assert simulate(*bound, dispatched_by(1, 4, 2)).end_s[-1] == pytest.approx(4 * 0.25 + 0.1)


def test_a_synchronisation_blocks_the_core_that_dispatches():
    # event 1 is a synchronisation of 1 s on the control core (resource 1); the dispatch of event 2 waits for it
    events, table = make(
        [0, 1, 0],
        [1.0, 1.0, 1.0],
        [[], [0], []],
        dispatch=[0.1, 0.0, 0.1],
        kind=[CLASS_COMPUTE, CLASS_SYNCHRONISATION, CLASS_COMPUTE],
    )
    out = simulate(events, table, dispatched_by(1, 1, 2))
    assert out.start_s[1] == pytest.approx(1.1)
    # dispatched while event 0 ran, before the synchronisation began
    assert out.start_s[2] == pytest.approx(1.1)


def test_transfers_under_a_unit_are_hidden_and_alone_are_exposed():
    events, table = make([0, 1, 1], [2.0, 1.0, 2.0], [[], [], []], kind=[CLASS_COMPUTE, CLASS_TRANSFER, CLASS_TRANSFER])
    out = simulate(events, table, dispatched_by(-1, 0, 2))
    assert out.hidden_s == pytest.approx(2.0)
    assert out.other_s[TRANSFER] == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(30))
def test_laws(seed):
    rng = np.random.default_rng(1000 + seed)
    n, resources, shared = 80, 5, 3
    resource, duration, deps = random_graph(rng, n, resources - 1)
    kinds = np.array([CLASS_COMPUTE, CLASS_CONVERSION, CLASS_TRANSFER, CLASS_HOST])[np.array(resource)]
    usage = rng.uniform(0.0, 1.0, (n, shared)) * (rng.uniform(size=(n, shared)) < 0.5)
    dispatch = rng.exponential(0.2, n) * (rng.uniform(size=n) < 0.7)
    events, table = make(resource, duration, deps, dispatch=dispatch, kind=kinds, share=rng.uniform(0, 1, n), usage=usage)
    queue = int(rng.integers(0, 4))
    out = simulate(events, table, dispatched_by(resources - 1, queue, resources))
    makespan = out.end_s.max()
    assert out.compute_s.sum() + out.other_s.sum() == pytest.approx(makespan, rel=1e-9)
    assert np.all(out.end_s - out.start_s >= np.array(duration) * (1 - 1e-9)), "sharing only slows down"
    for i, before in enumerate(deps):
        assert all(out.end_s[j] <= out.start_s[i] + 1e-12 for j in before)
    for r in range(resources - 1):
        mine = np.flatnonzero(np.array(resource) == r)
        assert np.all(out.start_s[mine][1:] >= out.end_s[mine][:-1] - 1e-12), "one event at a time, in order"
    # what a shared block delivers in all is never more than its capacity x time
    assert np.all((usage * np.array(duration)[:, None]).sum(axis=0) <= makespan * (1 + 1e-9))
    # dispatch is serial: the last command cannot start before all dispatches before it
    assert makespan >= dispatch.sum() * (1 - 1e-9)
    free = simulate(*make(resource, duration, deps), dispatched_by(-1, 0, resources))
    assert makespan >= free.end_s.max() * (1 - 1e-9)


def test_waiting_for_each_other_is_an_error_not_a_hang():
    events, table = make([0, 0], [1.0, 1.0], [[1], []])
    with pytest.raises(ValueError, match="wait for each other"):
        simulate(events, table, dispatched_by(-1, 0, 1))


def test_every_dispatcher_issues_its_own_commands():
    """Two units with a core each: neither waits for the commands of the other, as it does with one core for both."""
    alike = make([0, 1, 0, 1], [1.0] * 4, [()] * 4, dispatch=[0.5] * 4)
    own = simulate(*alike, Dispatchers(np.array([2, 3]), np.array([1, 1]), np.array([0, 1, 0, 1])))
    assert own.start_s.tolist() == [0.5, 0.5, 1.5, 1.5]
    one = simulate(*alike, Dispatchers(np.array([2]), np.array([1]), np.zeros(4, dtype=np.int64)))
    assert one.start_s.tolist() == [0.5, 1.0, 1.5, 2.0]
