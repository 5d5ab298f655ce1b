"""Plans: layers, sequences and operations divided over units, with what lies where."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from scenes import HETERO, ROOT, changed, two_gpus

from archmodel import sizes
from archmodel.errors import MappingError, SpecError
from archmodel.evaluate import evaluate
from archmodel.operations import Kind
from archmodel.plan import Part, Plan, uniform_plan
from archmodel.residency import live_byte
from archmodel.sharing import fractions
from archmodel.soc import Soc
from archmodel.spec.shape import ShapeSpec, expand
from archmodel.spec.toml import load_workload
from archmodel.spec.workload import RequestSpec
from archmodel.splitting.strategies import alone, ground_of, layer_split, module, operator_split, request_split

REQUEST = RequestSpec(batch=6, input_tokens=300, output_tokens=4)
WORKLOAD = attrs.evolve(load_workload(ROOT / "workloads/llama3_8b.toml"), request=REQUEST)
ATTENTION = ("attention", "projection")
PAIR, WIDE = two_gpus(), two_gpus(link_lanes=4096)


def ground(chip=PAIR, workload=WORKLOAD):
    return ground_of(chip, workload)


def macs(result):
    return [float(result.table.costs.mac @ step.count) for step in result.steps]


def resident(result, what):
    return {b.tier: b.byte for b in result.residency.buffers if b.what == what}


def test_the_plan_that_places_all_alike_is_the_placement():
    workload = load_workload(ROOT / "workloads/llm_100b.toml")
    plan = uniform_plan(workload.model, workload.request.batch, HETERO.placement)
    one, two = evaluate(HETERO, workload), evaluate(HETERO, workload, plan=plan)
    assert one.total_s == two.total_s
    assert one.energy_j == two.energy_j
    assert one.residency.buffers == two.residency.buffers


def test_layers_divide_weights_cache_and_time():
    whole = evaluate(PAIR, WORKLOAD, plan=uniform_plan(WORKLOAD.model, 6, alone(ground(), "gpu")))
    split = evaluate(PAIR, WORKLOAD, plan=layer_split(ground(), "gpu", "gpu_b", 8, (1, 1)).plan)
    assert macs(split) == pytest.approx(macs(whole), rel=1e-12)
    weights, cache = resident(split, "weights"), resident(split, "KV cache")
    assert set(weights) == set(cache) == {"hbm", "hbm_b"}
    assert sum(weights.values()) == pytest.approx(sizes.weight_bytes(WORKLOAD.model, split.precision), abs=2)
    assert cache["hbm"] * 3 == cache["hbm_b"], "8 of 32 layers against 24"
    # alike units: only the crossings are added
    assert whole.total_s < split.total_s < whole.total_s * 1.05
    assert split.segments_s["transfer_exposed"] > whole.segments_s["transfer_exposed"]


def test_module_split_crosses_twice_a_layer_and_keeps_weights_with_their_units():
    split = evaluate(PAIR, WORKLOAD, plan=uniform_plan(WORKLOAD.model, 6, module(ground(), "gpu", "gpu_b")))
    step = split.steps[1]
    moved = [n for n, name in enumerate(split.table.rows.name) if name in ("gpu_to_gpu_b", "gpu_b_to_gpu")]
    assert sum(step.count[moved]) == 2 * 32
    hidden, layers = WORKLOAD.model.hidden, 32
    assert float(split.table.rows.read_byte[moved] @ step.count[moved]) == 2 * layers * 6 * hidden * 2
    ffn = 3 * hidden * 14336 * layers * 2
    assert resident(split, "weights")["hbm_b"] == ffn
    assert set(resident(split, "KV cache")) == {"hbm"}


def test_requests_divide_the_cache_and_copy_the_weights():
    split = evaluate(PAIR, WORKLOAD, plan=request_split(ground(), "gpu", "gpu_b", (4, 2)).plan)
    weights, cache = resident(split, "weights"), resident(split, "KV cache")
    assert weights["hbm"] == weights["hbm_b"] == sizes.weight_bytes(WORKLOAD.model, split.precision)
    assert cache["hbm"] == 2 * cache["hbm_b"]
    lone = evaluate(PAIR, attrs.evolve(WORKLOAD, request=attrs.evolve(WORKLOAD.request, batch=4)))
    assert split.time_to_first_token_s == pytest.approx(lone.time_to_first_token_s, rel=0.02), "both sides work at once"


@pytest.mark.parametrize("roles", [("feed_forward",), ("attention", "projection"), ("attention", "projection", "feed_forward")])
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_shared_operations_do_the_same_work(roles, share):
    whole = evaluate(PAIR, WORKLOAD, plan=uniform_plan(WORKLOAD.model, 6, alone(ground(), "gpu")))
    split = evaluate(PAIR, WORKLOAD, plan=operator_split(ground(), "gpu", "gpu_b", share, roles).plan)
    assert macs(split) == pytest.approx(macs(whole), rel=1e-12)
    weights = resident(split, "weights")
    assert sum(weights.values()) == pytest.approx(sizes.weight_bytes(WORKLOAD.model, split.precision), abs=2)
    cache = resident(split, "KV cache")
    if "attention" in roles:
        assert cache["hbm_b"] == pytest.approx(share * sum(cache.values()))
        wide = evaluate(WIDE, WORKLOAD, plan=split.plan)
        assert wide.time_to_first_token_s < whole.time_to_first_token_s < split.time_to_first_token_s, "the link decides"
    else:
        assert set(cache) == {"hbm"}


def test_shared_tokens_copy_the_weights():
    whole = evaluate(PAIR, WORKLOAD, plan=uniform_plan(WORKLOAD.model, 6, alone(ground(), "gpu")))
    split = evaluate(PAIR, WORKLOAD, plan=operator_split(ground(), "gpu", "gpu_b", 0.5, ("feed_forward",), rows=True).plan)
    assert macs(split) == pytest.approx(macs(whole), rel=1e-12)
    ffn = 3 * WORKLOAD.model.hidden * 14336 * 32 * 2
    assert resident(split, "weights")["hbm_b"] == ffn
    assert resident(split, "weights")["hbm"] == sizes.weight_bytes(WORKLOAD.model, split.precision)
    assert split.time_to_first_token_s < whole.time_to_first_token_s


def test_units_that_share_one_memory_hold_weights_once():
    workload = load_workload(ROOT / "workloads/llm_100b.toml")
    split = operator_split(ground(HETERO, workload), "gpu", "npu", 0.5, ("feed_forward",), rows=True)
    one, two = evaluate(HETERO, workload), evaluate(HETERO, workload, plan=split.plan)
    assert resident(one, "weights") == resident(two, "weights")


def test_first_step_and_decode_may_go_different_ways():
    prefill, decode = (layer_split(ground(), "gpu", "gpu_b", 16, overlap).plan for overlap in ((2, 1), (1, 1)))
    both = evaluate(PAIR, WORKLOAD, plan=Plan("both", prefill.parts, decode.parts))
    assert both.first.total_s == evaluate(PAIR, WORKLOAD, plan=prefill).first.total_s
    assert both.decode_s == evaluate(PAIR, WORKLOAD, plan=decode).decode_s


def test_decode_cannot_attend_where_no_cache_was_written():
    here, there = (uniform_plan(WORKLOAD.model, 6, alone(ground(), unit)) for unit in ("gpu", "gpu_b"))
    with pytest.raises(MappingError, match="attend where the first step wrote no cache"):
        evaluate(PAIR, WORKLOAD, plan=Plan("moved", here.parts, there.parts))


@pytest.mark.parametrize(("prefill", "decode"), [
    (lambda g: layer_split(g, "gpu", "gpu_b", 16, (1, 1)), lambda g: layer_split(g, "gpu_b", "gpu", 16, (1, 1))),
    (lambda g: request_split(g, "gpu", "gpu_b", (3, 3)), lambda g: request_split(g, "gpu_b", "gpu", (3, 3))),
    (lambda g: request_split(g, "gpu", "gpu_b", (3, 3)), lambda g: operator_split(g, "gpu", "gpu_b", 0.5, ATTENTION)),
], ids=["other layers", "other sequences", "heads instead of sequences"])  # fmt: skip
def test_decode_cannot_attend_to_as_much_of_the_cache_that_is_another_part_of_it(prefill, decode):
    plan = Plan("moved", prefill(ground()).plan.parts, decode(ground()).plan.parts)
    with pytest.raises(MappingError, match="attend where the first step wrote no cache"):
        evaluate(PAIR, WORKLOAD, plan=plan)


def test_sequences_divide_the_cache_of_a_single_key_value_head():
    """With one KV head there are no heads to divide, but sequences are: as many tokens attend on a unit as its cache holds."""
    shape = ShapeSpec(name="one head", layers=3, hidden=512, heads=8, kv_heads=1, head_dim=64, intermediate=1024,
                      vocabulary=1000, source="test")  # fmt: skip
    one_head = attrs.evolve(WORKLOAD, model=expand(shape))
    plan = operator_split(ground(PAIR, one_head), "gpu", "gpu_b", 1 / 3, ATTENTION, rows=True).plan
    split = evaluate(PAIR, one_head, plan=plan)
    cache, weights = resident(split, "KV cache"), resident(split, "weights")
    assert cache["hbm"] == 2 * cache["hbm_b"] > 0
    names = np.array(split.table.rows.name)
    attended = {n: split.table.rows.sequences[(split.table.owner == n) & (names == "attention")].max() for n in (0, 1)}
    assert attended == pytest.approx({0: 4.0, 1: 2.0})
    mixers = sizes.breakdown(one_head.model)["mixers"] * 2
    assert weights == {"hbm": sizes.weight_bytes(one_head.model, split.precision), "hbm_b": mixers}


def test_deferred_experts_wait_for_nothing_that_waits_for_them():
    """Micro-batches on two units, each with experts that are added up a layer later."""
    moe = expand(ShapeSpec(name="moe", layers=4, hidden=512, heads=8, kv_heads=2, head_dim=64, intermediate=0, vocabulary=1000,
                           experts=16, experts_per_token=2, expert_intermediate=256, source="test"))  # fmt: skip
    workload = attrs.evolve(WORKLOAD, model=moe)
    later = changed(PAIR, placement={"deferred_experts": True})

    def run(chip, overlap):
        return evaluate(chip, workload, plan=uniform_plan(moe, 6, module(ground(chip, workload), "gpu", "gpu_b", overlap)))

    for overlap in ((1, 1), (2, 2), (3, 3)):
        assert macs(run(later, overlap)) == pytest.approx(macs(run(PAIR, overlap)), rel=1e-12)
        assert run(later, overlap).total_s < run(PAIR, overlap).total_s * 1.05


def test_plans_that_do_not_fit_are_refused():
    placement = alone(ground(), "gpu")
    with pytest.raises(MappingError, match="each of the 32 layers"):
        evaluate(PAIR, WORKLOAD, plan=Plan("short", (Part(6, (placement,) * 31),)))
    with pytest.raises(MappingError, match="hold 5 sequences, the batch has 6"):
        evaluate(PAIR, WORKLOAD, plan=uniform_plan(WORKLOAD.model, 5, placement))
    with pytest.raises(SpecError, match="must name a unit"):
        evaluate(PAIR, WORKLOAD, plan=uniform_plan(WORKLOAD.model, 6, attrs.evolve(placement, head="hbm")))


def test_fractions_are_whole_parts_that_add_up():
    for quantity in (1, 3, 8, 14336):
        for share in (0.01, 0.3, 0.5, 0.95):
            found = fractions({"a": share, "b": 1 - share}, quantity)
            assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
            assert all(abs(part * quantity - round(part * quantity)) < 1e-9 for part in found.values())
    assert fractions({"a": 0.3, "b": 0.7}, 1) == {"b": 1.0}


def test_peak_memory_is_the_largest_sum_of_living_results():
    """Against every instant of every lifetime, counted one by one."""
    from archmodel.evaluate import _chains
    from archmodel.steps import first_step

    workload = load_workload(ROOT / "workloads/llm_100b.toml")
    plan = uniform_plan(workload.model, 8, HETERO.placement)
    (chain,) = _chains(Soc(HETERO), workload, workload.precision, first_step(workload), plan)
    for piece in {id(p): p for p, _ in chain}.values():
        born = dict(enumerate(piece.records))
        dies = {i: max([i] + [j for j, r in enumerate(piece.records) if i in r["after"]]) for i in born}
        for unit, peak in live_byte(piece).items():
            sums = []
            for now in born:
                alive = [piece.records[i] for i in born if i <= now <= dies[i] and piece.records[i]["lies"] == unit]
                sums.append(sum(_byte(record) for record in alive))
            assert peak == pytest.approx(max(sums) + (piece.stream_byte if unit == piece.leaves else 0.0), rel=1e-12)


def _byte(record):
    if record.get("kind") == Kind.MATMUL:
        return record["m"] * record["n"] * record.get("count", 1.0) * record["output_byte"]
    if record.get("kind") == Kind.ATTENTION:
        return record["sequences"] * record["heads"] * record["q_tokens"] * record["v_dim"] * record["output_byte"]
    return 0.0 if record.get("fused") else record.get("write_byte", 0.0)


def test_segments_add_up_in_every_plan():
    for strategy in (request_split(ground(), "gpu", "gpu_b", (4, 2)), layer_split(ground(), "gpu", "gpu_b", 10, (3, 2))):
        result = evaluate(PAIR, WORKLOAD, plan=strategy.plan)
        assert sum(result.segments_s.values()) == pytest.approx(result.total_s, rel=1e-9)
        assert sum(result.energy_j.values()) == pytest.approx(result.total_j, rel=1e-9)
        for step in result.steps:
            assert np.all(step.byte[: len(result.soc.tiers)] <= result.soc.shared_byte_per_s[: len(result.soc.tiers)]
                          * step.total_s * (1 + 1e-9))  # fmt: skip


def test_deferred_experts_run_beside_the_next_attention():
    """Attention of the next layer overlaps the experts, where both have a unit, and all work is done."""
    workload = load_workload(ROOT / "workloads/llm_100b_moe.toml")
    plain = attrs.evolve(HETERO.placement, micro_batches=1)
    prompt, late = (evaluate(HETERO, workload, plan=uniform_plan(workload.model, workload.request.batch, placement))
                    for placement in (plain, attrs.evolve(plain, deferred_experts=True)))  # fmt: skip
    assert macs(late) == pytest.approx(macs(prompt), rel=1e-12)
    assert late.decode_s < 0.95 * prompt.decode_s
    busy = late.busy_s("decode")
    assert late.decode_s >= max(busy["gpu"], busy["npu"]) * (1 - 1e-9)
    assert resident(late, "weights") == resident(prompt, "weights")
    # on one unit nothing can run beside anything: only the further addition at the end is left of it
    alone_plan = uniform_plan(workload.model, workload.request.batch, attrs.evolve(plain, feed_forward="gpu"))
    late_alone = attrs.evolve(plain, feed_forward="gpu", deferred_experts=True)
    deferred = uniform_plan(workload.model, workload.request.batch, late_alone)
    one, two = (evaluate(HETERO, workload, plan=plan).decode_s for plan in (alone_plan, deferred))
    assert one <= two * (1 + 1e-9)
    assert two < one * 1.02


def test_every_layer_takes_what_the_one_before_deferred():
    workload = load_workload(ROOT / "workloads/llm_100b_moe.toml")
    placement = attrs.evolve(HETERO.placement, deferred_experts=True)
    result = evaluate(HETERO, workload, plan=uniform_plan(workload.model, workload.request.batch, placement))
    program, names = result.steps[1].program, result.table.rows.name
    events = program.events
    taken = 0
    for event, row in enumerate(events.row):
        if names[row] == "ffn_residual":
            before = events.dep[events.dep_start[event] : events.dep_start[event + 1]]
            late = [e for e in before if program.layer[e] == program.layer[event] - 1 and names[events.row[e]] == "combine"]
            taken += len(late)
    assert taken == len(workload.model.order), "each layer's experts are added up once, a layer later"
