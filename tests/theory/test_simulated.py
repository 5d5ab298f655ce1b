"""The closed forms against what they are forms of: the simulated timeline, simulated queues, and enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from archmodel.kernels.timeline import CLASS_COMPUTE, CLASS_TRANSFER, Dispatchers, Events, RowTable, simulate
from archmodel.theory import pingpong, queueing, ratio, traffic
from archmodel.theory.pingpong import Stages

ATTENTION, OUT, FFN, BACK = range(4)


def timeline(stages, micro_batches, layers, *, duplex=True):
    """Simulated ping-pong: start and end [s] of each stage, shape (layers, micro-batches, stages)."""
    link = (OUT, BACK) if duplex else (OUT, OUT)
    resource = np.array([ATTENTION, link[0], FFN, link[1]])
    seconds = np.array([stages.attention_s, stages.out_s, stages.ffn_s, stages.back_s])
    kinds = np.array([CLASS_COMPUTE, CLASS_TRANSFER, CLASS_COMPUTE, CLASS_TRANSFER])
    table = RowTable(resource, seconds, np.zeros(4), kinds, np.ones(4), np.zeros(4), np.zeros((4, 1)))
    # in order of (layer, hop between micro-batches), each micro-batch a stage behind the one before: what a link shares
    nodes = [(layer, m, stage) for layer in range(layers) for m in range(micro_batches) for stage in range(4)]
    nodes.sort(key=lambda node: (4 * node[0] + node[2] + 2 * node[1], node[1]) if not duplex else node)
    at = {node: number for number, node in enumerate(nodes)}
    before = [at.get((layer, m, stage - 1) if stage else (layer - 1, m, BACK), -1) for layer, m, stage in nodes]
    starts = np.concatenate([[0], np.cumsum([b >= 0 for b in before])]).astype(np.int64)
    events = Events(np.array([stage for _, _, stage in nodes]), starts, np.array([b for b in before if b >= 0], np.int64))
    nobody = Dispatchers(np.array([-1]), np.array([0]), np.zeros(4, np.int64))
    out = simulate(events, table, nobody)
    shape = (layers, micro_batches, 4)
    start, end = np.zeros(shape), np.zeros(shape)
    for node, number in at.items():
        start[node], end[node] = out.start_s[number], out.end_s[number]
    return start, end


def drawn(rng):
    stages = Stages(*rng.exponential(1.0, 4))
    return stages, int(rng.integers(1, 7)), int(rng.integers(2, 12))


@pytest.mark.parametrize("seed", range(40))
def test_makespan_is_the_simulated_one(seed):
    stages, m, layers = drawn(np.random.default_rng(seed))
    _, end = timeline(stages, m, layers)
    assert pingpong.makespan_s(stages, m, layers) == pytest.approx(end.max(), rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_period_and_utilisation_are_those_of_the_steady_state(seed):
    stages, m, _ = drawn(np.random.default_rng(100 + seed))
    start, _ = timeline(stages, m, 60)
    period = (start[50, 0, ATTENTION] - start[20, 0, ATTENTION]) / 30
    assert pingpong.layer_period_s(stages, m) == pytest.approx(period, rel=1e-9)
    for share, unit_s in zip(pingpong.utilisation(stages, m), (stages.attention_s, stages.ffn_s), strict=True):
        assert share == pytest.approx(m * unit_s / period, rel=1e-9)
        assert share <= 1.0 + 1e-12


@pytest.mark.parametrize("ratio_of_transfer", [0.0, 0.25, 0.5, 0.51, 0.75, 0.99])
def test_least_micro_batches_keep_balanced_units_busy_and_one_fewer_does_not(ratio_of_transfer):
    stages = Stages(1.0, ratio_of_transfer, 1.0, ratio_of_transfer)
    least = pingpong.least_micro_batches(ratio_of_transfer)
    for m, busy in ((least, True), (least - 1, False)):
        _, end = timeline(stages, m, 20)
        assert (pingpong.utilisation(stages, m)[0] > 1.0 - 1e-9) == busy
        assert (end.max() < (stages.round_s + stages.unit_s * (m * 20 - 1)) * (1 + 1e-9)) == busy


def test_no_number_of_micro_batches_hides_a_transfer_as_long_as_the_slower_unit():
    with pytest.raises(ValueError, match="not hidden"):
        pingpong.least_micro_batches(1.0)
    assert not pingpong.hides_transfers(Stages(1.0, 1.0, 0.5, 0.2), 1000)


@pytest.mark.parametrize("seed", range(40))
def test_a_half_duplex_link_lies_between_its_slowest_stage_and_the_serial_step(seed):
    stages, m, layers = drawn(np.random.default_rng(200 + seed))
    _, end = timeline(stages, m, layers, duplex=False)
    slowest = max(stages.unit_s, stages.transfer_s)
    assert end.max() <= pingpong.step_s(stages, m, layers, "serial") * (1 + 1e-9)
    assert end.max() >= m * layers * slowest * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_a_transfer_of_the_longest_hidden_time_is_hidden_and_a_longer_one_is_not(seed):
    rng = np.random.default_rng(300 + seed)
    unit, m = rng.exponential(1.0), int(rng.integers(3, 6))
    way = pingpong.longest_hidden_transfer_s(unit, m)
    for factor, busy in ((0.999, True), (1.001, False)):
        share = pingpong.utilisation(Stages(unit, way * factor, unit, way * factor), m)[0]
        assert (share > 1.0 - 1e-9) == busy


@pytest.mark.parametrize("seed", range(10))
def test_little(seed):
    """Micro-batches in flight of a simulated split: each layer of each is a customer."""
    stages, m, layers = drawn(np.random.default_rng(400 + seed))
    start, end = timeline(stages, m, layers)
    arrive, leave = start[:, :, ATTENTION].ravel(), end[:, :, BACK].ravel()
    inside = queueing.mean_in_system(arrive, leave)
    assert inside == pytest.approx(queueing.little_in_system(arrive, leave), rel=1e-9)
    assert inside <= m * (1 + 1e-12)


def sojourns(rng, load_per_s, service):
    """Time [s] of each of many requests at one server, first come first served."""
    arrive = np.cumsum(rng.exponential(1.0 / load_per_s, len(service)))
    leave = np.empty_like(arrive)
    free = 0.0
    for i, at in enumerate(arrive):
        free = max(free, at) + service[i]
        leave[i] = free
    return leave - arrive


@pytest.mark.parametrize("load", [2.0, 5.0])
def test_queues_are_those_that_a_simulation_shows(load):
    rng = np.random.default_rng(9)
    n, rate = 200_000, 8.0
    times = sojourns(rng, load, rng.exponential(1.0 / rate, n))
    assert queueing.mm1_sojourn_s(load, rate) == pytest.approx(times.mean(), rel=0.02)
    assert queueing.mm1_sojourn_quantile_s(load, rate, 0.99) == pytest.approx(np.quantile(times, 0.99), rel=0.05)
    even = sojourns(rng, load, np.full(n, 1.0 / rate))
    assert queueing.md1_sojourn_s(load, rate) == pytest.approx(even.mean(), rel=0.02)
    with pytest.raises(ValueError, match="without end"):
        queueing.mm1_sojourn_s(rate, rate)


@pytest.mark.parametrize("seed", range(20))
def test_best_ratio_is_the_best_of_all(seed):
    rng = np.random.default_rng(500 + seed)
    a, b, c = rng.exponential([1e-3, 0.02, 0.1]), rng.exponential([50.0, 20.0, 100.0]), rng.integers(16, 300)
    times = ratio.LinearTimes(
        attention_s_per_token=a[0], attention_s=b[0], transfer_s_per_sequence=a[1], transfer_s=b[1], ffn_s_per_sequence=a[2],
        ffn_s=b[2], batch=float(c), kv_tokens=float(c * rng.integers(100, 4000)),
    )  # fmt: skip
    whole = ratio.best_whole_ratio(times)
    assert times.tokens_per_s_per_unit(whole) >= max(times.tokens_per_s_per_unit(r) for r in range(1, 3000))
    best = ratio.optimal_ratio(times).best
    assert all(times.tokens_per_s_per_unit(best) >= times.tokens_per_s_per_unit(best * f) for f in (0.5, 0.99, 1.01, 2.0))


def test_tokens_of_a_slot_are_those_of_all_its_steps():
    rng = np.random.default_rng(6)
    prompt, steps = rng.integers(0, 3000, 200), rng.integers(0, 400, 200)
    held = np.concatenate([p + np.arange(d) for p, d in zip(prompt, steps, strict=True)])
    assert ratio.kv_tokens_per_slot(prompt, steps) == pytest.approx((held.mean(), held.var()), rel=1e-12)
    with pytest.raises(ValueError, match="decodes"):
        ratio.kv_tokens_per_slot([10], [0])


def test_send_probability_is_that_of_all_choices():
    choices = list(combinations(range(12), 3))
    sent = sum(any(expert < 4 for expert in chosen) for chosen in choices)
    assert traffic.send_probability(12, 3, 3) == pytest.approx(sent / len(choices), rel=1e-12)
    with pytest.raises(ValueError, match="evenly"):
        traffic.send_probability(10, 2, 3)


def test_a_link_that_is_only_late_carries_nothing():
    with pytest.raises(ValueError, match="latency"):
        traffic.link_byte_per_s(1.0, 1e-6, 1e-6)
