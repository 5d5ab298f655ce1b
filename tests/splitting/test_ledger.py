"""The ledger adds up, the bounds hold, and a gain is possible only where the units do not wait for one memory."""

from __future__ import annotations

from itertools import pairwise

import attrs
import numpy as np
import pytest
from scenes import HETERO, ROOT, changed, random_chip, random_pair, random_workload, two_gpus

from archmodel.spec.toml import load_workload
from archmodel.spec.workload import RequestSpec
from archmodel.splitting.bounds import bounds
from archmodel.splitting.compared import gain
from archmodel.splitting.ledger import account, beside, ledger
from archmodel.splitting.search import explore

LLAMA = load_workload(ROOT / "workloads/llama3_8b.toml")


def outcomes(chip, workload):
    return [outcome.result for outcome in explore(chip, workload).outcomes if outcome.result is not None]


@pytest.fixture(scope="module", params=range(16))
def results(request):
    rng = np.random.default_rng(request.param)
    chip = random_pair(rng) if request.param % 2 else random_chip(rng)
    return outcomes(chip, random_workload(rng))


def test_entries_add_up_to_the_change_of_the_makespan(results):
    old = results[0]
    for new in results:
        for phase in ("", *new.phases):
            found = ledger(old, new, phase)
            before, after = (r.phase_s(phase) if phase else r.total_s for r in (old, new))
            assert sum(entry.change_s for entry in found.entries) == pytest.approx(after - before, rel=1e-9, abs=1e-9 * before)
            assert sum(entry.old_s for entry in found.entries) == pytest.approx(before, rel=1e-9)
            assert sum(entry.new_s for entry in found.entries) == pytest.approx(after, rel=1e-9)


def test_a_units_entries_are_its_busy_time_and_only_the_overlap_is_below_zero(results):
    for result in results:
        found = account(result)
        for unit, busy_s in result.busy_s().items():
            if unit in result.soc.units:
                assert sum(value for (_, name), value in found.items() if name == unit) == pytest.approx(busy_s, rel=1e-9)
        least = -1e-9 * result.total_s
        assert all(value >= least for (cause, _), value in found.items() if cause != "overlap")
        assert found["overlap", ""] <= -least
        assert all(value >= least for value in beside(result).values())


def sweep(step, units, owner):
    """Time in which each unit runs, any does, and each is idle while another runs: by all instants, one after the other."""
    program = step.program
    which = owner[program.events.row]
    start, end = program.simulated.start_s, program.simulated.end_s
    instants = np.unique(np.concatenate([start, end]))
    any_s, bubble_s = 0.0, np.zeros(units)
    for low, high in pairwise(instants):
        runs = set(which[(start < (low + high) / 2) & (end > (low + high) / 2)].tolist()) & set(range(units))
        if runs:
            any_s += high - low
            bubble_s[[u for u in range(units) if u not in runs]] += high - low
    return any_s, bubble_s


@pytest.mark.parametrize("seed", range(4))
def test_overlap_and_bubbles_are_those_of_a_sweep_over_all_instants(seed):
    rng = np.random.default_rng(seed)
    result = outcomes(random_pair(rng), random_workload(rng))[-1]
    units = len(result.soc.units)
    any_s, bubble_s = 0.0, np.zeros(units)
    for step in result.steps:
        once, idle = sweep(step, units, result.table.owner)
        any_s, bubble_s = any_s + step.weight * once, bubble_s + step.weight * idle
    busy_s = sum(result.busy_s()[unit] for unit in result.soc.units)
    assert account(result)["overlap", ""] == pytest.approx(any_s - busy_s, rel=1e-9, abs=1e-9 * any_s)
    found = beside(result)
    assert [found["bubble", unit] for unit in result.soc.units] == pytest.approx(bubble_s.tolist(), rel=1e-9, abs=1e-9 * any_s)


def test_the_simulated_gain_lies_between_the_bounds(results):
    old_s = results[0].total_s
    for result in results:
        for phase in ("", *result.phases):
            found, seconds = bounds(result, phase), result.phase_s(phase) if phase else result.total_s
            assert found.overlapped_s <= seconds * (1 + 1e-9)
            assert seconds <= found.serial_s * (1 + 1e-9)
        least, most = bounds(result).gains(old_s)
        assert least - 1e-9 <= gain(results[0], result) <= most + 1e-9


def memory_bound(batch):
    """One answer of a few sequences after a short prompt: weights are read for hardly any work."""
    return attrs.evolve(LLAMA, request=RequestSpec(batch=batch, input_tokens=16, output_tokens=64), precision=None)


def test_no_gain_for_units_that_wait_for_one_memory():
    # hetero_v1 with an eighth of its pins, whose kernels stream as well as memory can: both units read through the same pins
    chip = changed(HETERO, hbm={"channels": 22}, gpu={"matmul_stream_efficiency": 1.0, "attention_stream_efficiency": 1.0})
    alone, *others = outcomes(chip, memory_bound(2))
    assert alone.bottleneck("decode") == "memory:hbm"
    for split in others:
        found = bounds(split, "decode")
        assert found.slowest == "hbm"
        assert alone.decode_s / found.overlapped_s - 1.0 < 0.05, "not even a perfect overlap gains"
        assert alone.decode_s / split.decode_s - 1.0 < 0.05


def test_bandwidth_bound_units_gain_where_each_brings_its_own_memory():
    alone, *others = outcomes(two_gpus(link_lanes=4096), memory_bound(2))
    assert alone.bottleneck("decode") == "memory:hbm"
    best = max(alone.decode_s / split.decode_s - 1.0 for split in others)
    assert best > 0.5, "two memories hold half of the weights each"
