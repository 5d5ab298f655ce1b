"""How long results live, and what that takes on each side."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from scenes import HETERO, ROOT, random_chip, random_workload

from archmodel.evaluate import evaluate
from archmodel.lifetimes import arena, lifetimes
from archmodel.spec.toml import load_workload


def scene(seed):
    rng = np.random.default_rng(seed)
    return random_chip(rng), random_workload(rng)


@pytest.mark.parametrize("seed", range(12))
def test_peak_is_the_largest_sum_over_all_instants(seed):
    result = evaluate(*scene(400 + seed))
    for step in range(2):
        for living in lifetimes(result, result.steps[step]).values():
            sums = [float(living.byte[(living.start_s <= t) & (t < living.end_s)].sum()) for t in living.start_s]
            assert living.peak_byte == pytest.approx(max(sums, default=0.0), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_no_two_living_results_overlap_in_the_arena(seed):
    result = evaluate(*scene(500 + seed))
    for living in lifetimes(result, result.first).values():
        offset, size = arena(living)
        assert size >= living.peak_byte * (1 - 1e-12)
        for i in range(len(offset)):
            for j in range(i):
                apart = living.end_s[i] <= living.start_s[j] or living.end_s[j] <= living.start_s[i]
                assert apart or offset[i] + living.byte[i] <= offset[j] or offset[j] + living.byte[j] <= offset[i]


def test_a_result_lives_until_its_last_reader_ends():
    result = evaluate(HETERO, load_workload(ROOT / "workloads/llama3_8b.toml"))
    living = lifetimes(result, result.first)["gpu"]
    program = result.steps[0].program
    events, out = program.events, program.simulated
    for event, end in list(zip(living.event, living.end_s, strict=True))[:200]:
        readers = [e for e in range(len(events.row)) if event in events.dep[events.dep_start[e] : events.dep_start[e + 1]]]
        assert end == (max(out.end_s[e] for e in readers) if readers else program.makespan_s)


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_what_is_planned_holds_what_is_simulated(micro_batches):
    workload = load_workload(ROOT / "workloads/llm_100b.toml")
    chip = attrs.evolve(HETERO, placement=attrs.evolve(HETERO.placement, micro_batches=micro_batches))
    result = evaluate(chip, workload)
    planned = sum(b.byte for b in result.residency.buffers if b.what == "activations")
    assert sum(living.peak_byte for living in lifetimes(result, result.first).values()) <= planned * (1 + 1e-9)
