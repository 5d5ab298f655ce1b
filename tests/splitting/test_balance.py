"""Balance of a split between two units: its stages make up the simulated step, and it knows where there is none."""

from __future__ import annotations

import attrs
import pytest
from scenes import HETERO, ROOT, changed, two_gpus

from archmodel.evaluate import evaluate
from archmodel.plan import uniform_plan
from archmodel.spec.toml import load_workload
from archmodel.spec.workload import RequestSpec
from archmodel.splitting.balance import balance, sides
from archmodel.splitting.compared import planned
from archmodel.splitting.strategies import alone, ground_of, module

REQUEST = RequestSpec(batch=8, input_tokens=512, output_tokens=32)
WORKLOAD = attrs.evolve(load_workload(ROOT / "workloads/llama3_8b.toml"), request=REQUEST)


def split(chip, overlap=(1, 1), workload=WORKLOAD):
    ground = ground_of(chip, workload)
    placement = module(ground, ground.sides[0], ground.sides[1], overlap)
    plan = uniform_plan(workload.model, workload.request.batch, placement)
    return planned("split", "module", evaluate(chip, workload, plan=plan))


@pytest.mark.parametrize("chip", [HETERO, two_gpus(link_lanes=256)], ids=["shared memory", "own memory"])
def test_stages_in_turn_are_the_simulated_step(chip):
    found = balance(chip, WORKLOAD, split(chip))
    assert (found.attention, found.ffn) == ("gpu", "npu" if "npu" in chip.blocks else "gpu_b")
    # without micro-batches nothing overlaps but the dispatch of commands
    assert found.simulated_s == pytest.approx(32 * found.stages.round_s, rel=0.02)
    assert found.ideal_s == pytest.approx(32 * found.stages.round_s, rel=1e-9)
    assert found.stages.unit_s > found.stages.out_s > 0.0


def test_micro_batches_come_close_to_the_perfect_ping_pong():
    chip = two_gpus(link_lanes=4096)
    found = balance(chip, WORKLOAD, split(chip, (1, 2)))
    assert found.micro_batches == 2
    assert found.ideal_s * (1 - 1e-9) <= found.simulated_s <= 1.25 * found.ideal_s
    assert found.least_micro_batches >= 3


def test_a_slow_link_cannot_be_hidden():
    chip = changed(two_gpus(link_lanes=1), between={"setup_us": 5000.0})
    assert balance(chip, WORKLOAD, split(chip)).least_micro_batches is None


def test_twice_the_ffn_units_serve_about_twice_the_attention_units():
    # arrays twice as many: the FFN takes half as long in a batch that fills them
    wide = attrs.evolve(WORKLOAD, request=attrs.evolve(REQUEST, batch=64))
    few, many = (changed(HETERO, npu={"arrays": arrays}) for arrays in (8, 16))
    one, two = (balance(chip, wide, split(chip, workload=wide)).units_per_ffn for chip in (few, many))
    assert two / one == pytest.approx(2.0, rel=0.15)


def test_no_balance_without_two_sides_or_without_decode():
    ground = ground_of(HETERO, WORKLOAD)
    plan = uniform_plan(WORKLOAD.model, 8, alone(ground, "gpu"))
    one = planned("one", "one side", evaluate(HETERO, WORKLOAD, plan=plan))
    assert sides(one.result) is None
    assert balance(HETERO, WORKLOAD, one) is None
    prefill = attrs.evolve(WORKLOAD, request=attrs.evolve(REQUEST, output_tokens=1))
    assert balance(HETERO, prefill, split(HETERO, workload=prefill)) is None
