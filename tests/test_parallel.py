"""One chip of a group that divides a model: its part, what it exchanges, and the laws between group and chip."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from scenes import changed

from archmodel import sizes
from archmodel.errors import MappingError
from archmodel.evaluate import evaluate
from archmodel.parallel import divided
from archmodel.spec.toml import load_chip, load_stack, load_workload
from archmodel.spec.workload import PrecisionSpec

ROOT = Path(__file__).parents[1]
H100 = load_chip(ROOT / "chips/h100_sxm.toml")
LLAMA = load_workload(ROOT / "workloads/llama3_8b.toml", {"request.output_tokens": 3})
MOE = load_workload(ROOT / "workloads/llm_100b_moe.toml", {"request.output_tokens": 2, "request.batch": 4})


def run(chips, workload=LLAMA, chip=H100, **placement):
    return evaluate(changed(chip, placement={"tensor_parallel": chips, **placement}), workload)


def test_the_parts_add_up_to_the_model():
    model, precision = LLAMA.model, PrecisionSpec()
    whole = sizes.weight_bytes(model, precision)
    for chips in (2, 4, 8):
        part = sizes.weight_bytes(divided(model, chips), precision)
        assert whole <= chips * part <= whole * 1.001  # norms are copied
    assert sizes.kv_cache_bytes_per_token(divided(model, 4), "bf16") * 4 == sizes.kv_cache_bytes_per_token(model, "bf16")


def test_kv_heads_are_copied_beyond_their_number():
    assert divided(LLAMA.model, 16).kinds[0].mixer.kv_heads == 1
    assert divided(LLAMA.model, 16).kinds[0].mixer.heads == 2


def test_one_chip_is_the_model_itself():
    assert divided(LLAMA.model, 1) is LLAMA.model
    assert run(1).total_s == evaluate(H100, LLAMA).total_s
    assert "all_reduce" not in run(1).table.rows.name


@pytest.mark.parametrize("chips", [2, 8])
def test_each_layer_exchanges_twice_and_the_head_once(chips):
    result = run(chips)
    names = np.array(result.table.rows.name)
    count = result.steps[1].count
    assert count[names == "all_reduce"].sum() == 2 * len(LLAMA.model.order)
    assert count[names == "all_gather"].sum() == 1


def test_bytes_on_the_link():
    """A ring sends 2 (n - 1) / n of the message; peers that can neither read directly nor add up in the switch."""
    plain = changed(H100, peers={"in_network_share": 0.0})
    model, chips = LLAMA.model, 4
    batch = LLAMA.request.batch
    step = evaluate(changed(plain, placement={"tensor_parallel": chips}), LLAMA).steps[1]
    result = run(chips, chip=plain)
    column = result.soc.shared.index("nvlink")
    reduced = 2 * len(model.order) * 2 * (chips - 1) / chips * batch * model.hidden * 2.0
    gathered = (chips - 1) / chips * batch * model.vocabulary * 2.0
    assert step.byte[column] == pytest.approx(reduced + gathered, rel=1e-4)


def test_a_perfect_link_leaves_no_more_than_the_whole_and_no_less_than_a_share():
    free = {"floor_us": 0.0, "step_us": 0.0, "eager_share": 1.0, "bulk_us": 0.0}
    chip = changed(H100, peers=free, nvlink={"lane_rate_gt_per_s": 1000.0, "lanes": 10**6, "latency_ns": 0.0})
    one = run(1).total_s
    times = [run(chips, chip=chip).total_s for chips in (2, 4, 8)]
    assert all(one / chips < time for chips, time in zip((2, 4, 8), times, strict=True))
    assert times == sorted(times, reverse=True)
    assert times[0] < one


def test_a_slower_link_is_never_faster():
    slow = changed(H100, nvlink={"lanes": 2})
    assert run(8, chip=slow).total_s >= run(8).total_s


def test_a_large_model_fits_a_group_and_not_a_chip():
    large = load_workload(ROOT / "workloads/llama3_70b.toml", {"request.output_tokens": 2, "request.batch": 1})
    with pytest.raises(MappingError, match="does not fit"):
        run(1, large)
    assert run(4, large).residency.used_byte("hbm") < 85.9e9


def test_energy_and_power_are_those_of_the_group():
    result = run(4)
    assert sum(result.energy_j.values()) == pytest.approx(result.power_w * result.total_s)
    assert result.energy_j["chip_static"] == pytest.approx(4 * H100.power.static_power_w * result.total_s)
    assert any("one of 4 alike chips" in note for note in result.notes)
    assert sum(result.segments_s.values()) == pytest.approx(result.total_s)


def test_experts_and_shared_branches_are_added_before_the_exchange():
    result = run(8, MOE, chip=changed(H100, hbm={"capacity_gb": 2000.0}))
    names = np.array(result.table.rows.name)
    assert result.steps[1].count[names == "all_reduce"].sum() == 2 * len(MOE.model.order)


@pytest.mark.parametrize(
    ("chips", "chip", "words"),
    [(3, H100, "do not divide"), (16, H100, "at most 8"), (2, load_chip(ROOT / "chips/tpu_v4i.toml"), "has no .peers.")],
)
def test_what_cannot_be_divided_is_refused(chips, chip, words):
    with pytest.raises(MappingError, match=words):
        run(chips, chip=chip)


def test_direct_kernels_are_the_stacks():
    direct = attrs.evolve(H100, software=attrs.evolve(H100.software, direct_all_reduce=True))
    assert run(8, chip=direct).steps[1].total_s < run(8).steps[1].total_s


def test_eager_calls_make_the_unit_wait():
    """One sequence: kernels shorter than the host's call of them cost that call; a stack of graphs has none."""
    eager = attrs.evolve(H100, software=load_stack(ROOT / "stacks/eager_pytorch_a100.toml"))
    graphs = attrs.evolve(H100, software=load_stack(ROOT / "stacks/graph_replay.toml"))
    slow, fast = evaluate(eager, LLAMA), evaluate(graphs, LLAMA)
    assert slow.steps[1].total_s > 2 * fast.steps[1].total_s
    assert slow.segments_s["dispatch"] > 0.0 == fast.segments_s["dispatch"]
    assert fast.total_s == evaluate(H100, LLAMA).total_s
