"""Systems of several chips and cards: laws at random, what more cards do, and the systems that the repository ships."""

from __future__ import annotations

import json
from itertools import pairwise

import attrs
import numpy as np
import pytest
from scenes import BASELINE, HETERO, ROOT, changed, composed, counted, random_chip, random_system, random_workload

from archmodel import sizes
from archmodel.cli import main
from archmodel.components import dvfs
from archmodel.components import link as links
from archmodel.economics.costing import run_cost
from archmodel.errors import MappingError
from archmodel.evaluate import evaluate
from archmodel.operations import Kind
from archmodel.spec.chip import MemberSpec
from archmodel.spec.economics_file import default_economics
from archmodel.spec.shape import ShapeSpec, expand
from archmodel.spec.system import chip_of
from archmodel.spec.toml import load_chip, load_workload
from archmodel.spec.workload import PlacementSpec, RequestSpec
from archmodel.splitting.search import explore
from archmodel.splitting.strategies import by_experts, by_module, ground_of, one_side

H100 = load_chip(ROOT / "chips/h100_sxm.toml")
LLAMA = load_workload(ROOT / "workloads/llama3_8b.toml", {"request.output_tokens": 4, "request.batch": 16})
MOE = load_workload(ROOT / "workloads/llm_100b_moe.toml", {"request.output_tokens": 3, "request.batch": 16})
DEEPSEEK = load_workload(ROOT / "workloads/deepseek_v3_q4.toml", {"request.output_tokens": 2})
SHIPPED = {
    "hetero_v1": "llm_100b",
    "gpu_npu_pcie5": "llama3_8b",
    "gpu_cim": "llama3_8b",
    "cpu_gpu": "deepseek_v3_q4",
    "afd_17_1": "minimax_m2_5",
}
ONE_CARD = MemberSpec(chip="test", source="test")


def scene(seed):
    """Of a random system and workload; experts are a dozen, which one to four cards divide."""
    rng = np.random.default_rng(seed)
    system, workload = random_system(rng), random_workload(rng)
    kinds = [attrs.evolve(kind, moe=kind.moe and attrs.evolve(kind.moe, experts=12, experts_per_token=min(
        kind.moe.experts_per_token, 12))) for kind in workload.model.kinds]  # fmt: skip
    return system, attrs.evolve(workload, model=attrs.evolve(workload.model, kinds=tuple(kinds)))


@pytest.fixture(scope="module", params=range(30))
def result(request):
    return evaluate(*scene(request.param))


def whole(result, column, step):
    """Sum of a cost over all cards that work in a step."""
    table, soc = result.table, result.soc
    names = np.array(soc.resources)[table.owner]
    cards = np.array([soc.copies(name) for name in names]) * table.active
    return float((getattr(table.costs, column) * cards) @ step.count)


# ------------------------------------------------------------------------------------------------- laws, at random


def test_all_cards_together_do_the_work_of_the_model(result):
    """Matrix work of each step over all cards, against a count from the model alone; no card more than its share."""
    step, model = result.steps[1], result.workload.model
    matrix = result.table.rows.kind == Kind.MATMUL
    table = attrs.evolve(result.table, active=result.table.active * matrix)
    done = whole(attrs.evolve(result, table=table), "mac", step)
    flop = sizes.flops_per_token(model)
    assert 2.0 * done == pytest.approx(step.step.sequences * (flop.linear + flop.head), rel=1e-9)
    assert np.all((result.table.active > 0.0) & (result.table.active <= 1.0 + 1e-12))


def test_segments_and_energy_add_up(result):
    assert sum(result.segments_s.values()) == pytest.approx(result.total_s, rel=1e-9)
    assert sum(result.energy_j.values()) == pytest.approx(result.total_j, rel=1e-12)
    for name, block in result.chip.blocks.items():
        if getattr(block, "static_power_w", 0.0):
            cards = result.soc.copies(name)
            member = result.chip.members.get(name.partition(".")[0])
            watt = block.static_power_w * dvfs.static_factor(block) * cards * (member.power.scale if member else 1.0)
            assert result.energy_j[f"{name}_static"] == pytest.approx(watt * result.total_s, rel=1e-12)


def test_no_block_delivers_more_than_it_can(result):
    for step in result.steps:
        assert np.all(step.byte <= result.soc.shared_byte_per_s * step.total_s * 2 * (1 + 1e-9)), "two directions at most"
    assert all(0.0 <= value <= 1.0 for value in result.utilisation.values())


def test_weights_that_lie_on_a_card_are_read_in_every_step(result):
    """All but the embedding table, of which a step looks up a few rows, and vectors; of experts, those that are chosen."""
    model, parts = result.workload.model, sizes.breakdown(result.workload.model)
    held = sum(buffer.byte for buffer in result.residency.buffers if "weights" in buffer.what)
    table = 2.0 * parts["embedding"] * (not model.tied_embedding)
    if not parts["experts"]:
        for step in result.steps:
            assert float(result.table.costs.weight_traffic_byte @ step.count) >= held - table - 2.0 * parts["norms"] - 1.0


@pytest.mark.parametrize("seed", range(4))
def test_same_input_same_output_to_the_bit(seed):
    one, two = evaluate(*scene(seed)), evaluate(*scene(seed))
    assert (one.total_s, one.energy_j) == (two.total_s, two.energy_j)


# ------------------------------------------------------------------------------------ one card is the chip itself


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("parallel", ["data", "tensor", "expert"])
def test_a_system_of_one_card_is_the_chip(seed, parallel):
    rng = np.random.default_rng(seed)
    chip, workload = random_chip(rng), random_workload(rng)
    system, alone = evaluate(counted(chip, 1, parallel), workload), evaluate(chip, workload)
    assert system.total_s == alone.total_s
    assert list(system.segments_s.values()) == list(alone.segments_s.values())
    assert system.total_j == pytest.approx(alone.total_j, rel=1e-12)
    assert [b.byte for b in system.residency.buffers] == [b.byte for b in alone.residency.buffers]


def test_the_chip_of_a_member_is_the_chip():
    system = counted(HETERO, 3)
    chip = chip_of(system, "card")
    assert (chip.blocks, chip.power, chip.process_nm) == (HETERO.blocks, HETERO.power, HETERO.process_nm)


def test_the_shipped_system_of_one_card_is_the_chip():
    workload = load_workload(ROOT / "workloads/llm_100b.toml")
    system, alone = (evaluate(load_chip(ROOT / f), workload) for f in ("chips/systems/hetero_v1.toml", "chips/hetero_v1.toml"))
    assert system.total_s == alone.total_s
    assert system.total_j == pytest.approx(alone.total_j, rel=1e-12)


# --------------------------------------------------------------------------------------------------- several cards


@pytest.mark.parametrize("chip", [H100, BASELINE, HETERO], ids=lambda chip: chip.name)
def test_more_cards_are_never_slower_where_they_divide_sequences(chip):
    found = [evaluate(counted(chip, cards), LLAMA) for cards in (1, 2, 4, 16, 64)]
    times = [result.total_s for result in found]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(times)), times
    assert times[2] < 0.6 * times[0], "prefill of 16 prompts on 4 cards"
    mac = {sum(v for name, v in result.energy_j.items() if name.endswith("_mac")) for result in found}
    assert max(mac) == pytest.approx(min(mac), rel=1e-9), "the same work, wherever it is done"
    static = [sum(result.static_power_w.values()) / cards for result, cards in zip(found, (1, 2, 4, 16, 64), strict=True)]
    assert static == pytest.approx([static[0]] * 5, rel=1e-12)


def test_cards_beyond_the_sequences_stand_idle():
    few = attrs.evolve(LLAMA, request=RequestSpec(batch=3, input_tokens=64, output_tokens=4))
    three, eight = evaluate(counted(H100, 3), few), evaluate(counted(H100, 8), few)
    assert eight.first.total_s == three.first.total_s
    dynamic = [sum(v for name, v in r.energy_j.items() if not name.endswith("_static")) for r in (three, eight)]
    assert dynamic[1] == pytest.approx(dynamic[0], rel=1e-9)


def test_every_card_that_divides_sequences_has_all_weights_and_its_part_of_the_cache():
    one, four = (evaluate(counted(H100, cards), LLAMA).residency for cards in (1, 4))

    def held(residency, what):
        return sum(b.byte for b in residency.buffers if b.what == what)

    assert held(four, "weights") == held(one, "weights")
    assert held(four, "KV cache") * 4 == held(one, "KV cache")


@pytest.mark.parametrize("cards", [2, 4, 8])
def test_cards_that_divide_layers_are_chips_of_a_tensor_parallel_group(cards):
    """The one mechanism against the other: times to the bit, energies of all, weights but for what every card copies."""
    chip = attrs.evolve(H100, blocks={name: b for name, b in H100.blocks.items() if name not in ("host", "pcie")})
    system = evaluate(counted(chip, cards, "tensor"), LLAMA)
    group = evaluate(changed(chip, placement={"tensor_parallel": cards}), LLAMA)
    assert system.total_s == group.total_s
    assert system.total_j == pytest.approx(group.total_j, rel=1e-12)
    used = [sum(b.byte for b in result.residency.buffers if b.what == "weights") for result in (system, group)]
    assert used[0] == pytest.approx(used[1], rel=1e-4)


def test_cards_that_divide_layers_hold_copies_of_what_does_not_divide():
    """A single KV head lies on every card, as in a tensor-parallel group."""
    shape = ShapeSpec(name="one head", layers=3, hidden=512, heads=8, kv_heads=1, head_dim=64, intermediate=1024,
                      vocabulary=1000, source="test")  # fmt: skip
    workload = attrs.evolve(LLAMA, model=expand(shape))
    used = [sum(b.byte for b in evaluate(chip, workload).residency.buffers if b.what == "weights")
            for chip in (counted(H100, 4, "tensor"), changed(H100, placement={"tensor_parallel": 4}))]  # fmt: skip
    assert used[0] == pytest.approx(used[1], rel=1e-6)


def test_cards_that_divide_experts_hold_a_part_of_them_and_exchange_tokens_twice_a_layer():
    chip = changed(H100, hbm={"capacity_gb": 200.0})
    one, four = evaluate(counted(chip, 1), MOE), evaluate(counted(chip, 4, "expert"), MOE)
    names, step = np.array(four.table.rows.name), four.steps[1]
    layers = len(MOE.model.order)
    assert step.count[names == "all_to_all"].sum() == 2 * layers
    weights = [sum(b.byte for b in result.residency.buffers if b.what == "weights") for result in (one, four)]
    experts = sizes.breakdown(MOE.model)["experts"]  # INT8: a byte each
    assert weights[0] - weights[1] == pytest.approx(0.75 * experts, rel=1e-6)
    # 16 sequences, four of them on a card; a token goes to 4 (1 - 0.75^4) of the cards, three quarters of it over the link
    sent = 4 * 4 * (1 - 0.75**4) * MOE.model.hidden * 0.75
    link = four.soc.shared.index("card.nvlink")
    moved = four.table.byte[names == "all_to_all", link]
    assert {round(float(byte)) for byte in moved if byte < 1e6} == {round(sent * 1.0), round(sent * 2.0)}, (
        "INT8 there, FP16 back"
    )
    assert four.time_per_output_token_s < one.time_per_output_token_s


def test_experts_may_lie_apart_from_the_rest_of_the_feed_forward_part():
    """As KTransformers places them: a token crosses once, whatever number of experts it chose, and its sum comes back."""
    shared = attrs.evolve(MOE.model, kinds=tuple(
        attrs.evolve(kind, moe=attrs.evolve(kind.moe, shared_intermediate=640)) for kind in MOE.model.kinds))  # fmt: skip
    chip = changed(H100, hbm={"capacity_gb": 200.0})
    members = {"one": (attrs.evolve(ONE_CARD, drop=("host",)), chip), "other": (attrs.evolve(ONE_CARD, drop=("host",)), chip)}
    roles = dict.fromkeys(("attention", "projection", "feed_forward", "router", "vector", "head", "embedding"), "one.gpu")
    own = {"host": H100.blocks["host"]}

    def run(**changes):
        placement = PlacementSpec(**{**roles, **changes})
        return evaluate(composed("apart", members, own, placement=placement), attrs.evolve(MOE, model=shared))

    apart, together = run(experts="other.gpu"), run(feed_forward="other.gpu", experts="")
    held = {b.tier: b.byte for b in apart.residency.buffers if b.what == "weights"}
    parts = sizes.breakdown(shared)
    assert held["other.hbm"] == parts["experts"], "INT8, and nothing else"
    assert held["one.hbm"] > parts["feed_forward"] > 0
    names, step = np.array(apart.table.rows.name), apart.steps[1]
    there, back = names == "one.gpu_to_other.gpu", names == "other.gpu_to_one.gpu"
    layers, stream = len(shared.order), 16 * shared.hidden * 2
    pcie = apart.soc.shared.index("other.pcie")
    choices = 16 * 4 * 8
    assert (apart.table.byte[there, pcie] @ step.count[there]) == pytest.approx(layers * (stream + choices))
    assert (apart.table.byte[back, pcie] @ step.count[back]) == pytest.approx(layers * stream)
    assert together.chip.placement.experts == ""
    assert {b.tier for b in together.residency.buffers if b.what == "weights"} == {"one.hbm", "other.hbm"}


def test_a_system_costs_what_its_chips_cost():
    prices = default_economics()
    workload = attrs.evolve(LLAMA, request=attrs.evolve(LLAMA.request, batch=4))
    one = run_cost(evaluate(H100, workload), prices)
    system = run_cost(evaluate(counted(H100, 4), workload), prices)
    share = one.phases["decode"].capital_usd / one.phases["decode"].total_s
    assert system.phases["decode"].capital_usd / system.phases["decode"].total_s == pytest.approx(4 * share, rel=1e-9)
    assert (one.chips, system.chips) == (1, 4)
    assert run_cost(evaluate(load_chip(ROOT / "chips/systems/cpu_gpu.toml"), DEEPSEEK), prices) is None, "a CPU without [cost]"


def test_a_group_is_no_larger_than_its_peers():
    with pytest.raises(MappingError, match=r"card\.gpu has 16 cards, but a group has at most 8"):
        evaluate(counted(H100, 16, "tensor"), attrs.evolve(LLAMA, model=LLAMA.model))
    with pytest.raises(MappingError, match=r"has no \[peers\]"):
        evaluate(counted(BASELINE, 2, "tensor"), LLAMA)


def test_stages_of_a_pipeline_have_a_part_of_the_layers_each(tmp_path):
    text = (ROOT / "chips/systems/hetero_v1.toml").read_text().replace('"../', f'"{ROOT / "chips"}/')
    text = text.replace("hetero_v1.toml", "h100_sxm.toml")
    bus = """
    [bus]
    kind = "link"
    joins = ["card.gpu", "host"]
    protocol = "nvlink"
    lanes = 18
    lane_rate_gt_per_s = 200
    latency_ns = 500
    source = "test"
    [host]
    source = "test"
    [placement]
    attention = "card.gpu"
    micro_batches = 4
    """
    (tmp_path / "row.toml").write_text(
        text.replace('kind = "chip"', 'kind = "chip"\npipeline = 4\ndrop = ["host", "pcie"]') + bus
    )
    row = load_chip(tmp_path / "row.toml")
    assert row.placement.attention == "card_0.gpu"
    found, alone = evaluate(row, LLAMA), evaluate(H100, LLAMA)
    held = {b.tier: b.byte for b in found.residency.buffers if b.what == "weights"}
    layers = sizes.weight_bytes(LLAMA.model, found.precision) / 4
    assert list(held) == [f"card_{stage}.hbm" for stage in range(4)]
    assert held["card_1.hbm"] == pytest.approx(layers, rel=0.15)
    assert 0.25 * alone.first.total_s < found.first.total_s < 0.6 * alone.first.total_s, "four prompts at a time in four stages"
    names = np.array(found.table.rows.name)
    hops = np.array(["_to_card_" in name for name in names])
    assert found.first.count[hops].sum() == 4 * 3


def test_auto_keeps_what_the_file_says_where_nothing_is_better(tmp_path):
    """A pipeline of four stages, which no strategy makes."""
    text = (ROOT / "chips/systems/hetero_v1.toml").read_text().replace('"../', f'"{ROOT / "chips"}/')
    four = 'kind = "chip"\npipeline = 4\ndrop = ["host", "pcie"]'
    text = text.replace("hetero_v1.toml", "h100_sxm.toml").replace('kind = "chip"', four)
    bus = """
    [bus]
    kind = "link"
    joins = ["card.gpu"]
    protocol = "nvlink"
    lanes = 18
    lane_rate_gt_per_s = 200
    latency_ns = 500
    source = "test"
    [placement]
    attention = "card.gpu"
    micro_batches = 4
    decode_micro_batches = 1
    """
    (tmp_path / "row.toml").write_text(text + bus)
    row = load_chip(tmp_path / "row.toml")
    few = attrs.evolve(LLAMA, request=RequestSpec(batch=4, input_tokens=512, output_tokens=2))
    found = explore(row, few)
    assert found.best.result.total_s <= evaluate(row, few).total_s
    assert "as placed" in [outcome.strategy.name for outcome in found.outcomes]


def test_a_member_keeps_its_low_power_unit(tmp_path):
    text = (ROOT / "chips/systems/hetero_v1.toml").read_text().replace("../hetero_v1", f"{ROOT}/chips/hetero_v1_light")
    (tmp_path / "light.toml").write_text(text)
    system, chip = load_chip(tmp_path / "light.toml"), load_chip(ROOT / "chips/hetero_v1_light.toml")
    assert system.placement.light_unit == "card.lpu"
    one, two = (evaluate(each, LLAMA) for each in (chip, system))
    assert one.total_s == two.total_s


def test_links_of_several_cards_carry_a_part_each():
    """A transfer from four cards to one: each sends a quarter, and the one port at the other end takes all of it."""
    port = links.payload_byte_per_s(H100.blocks["pcie"])
    own = {"host": attrs.evolve(H100.blocks["host"], tokenise_us_per_token=0.0, step_us=0.0)}
    members = {
        "many": (attrs.evolve(ONE_CARD, count=4, drop=("host",)), H100),
        "one": (attrs.evolve(ONE_CARD, drop=("host",)), H100),
    }
    roles = {role: "many.gpu" for role in ("attention", "projection", "vector", "head", "embedding", "sampling")}
    placement = PlacementSpec(**roles, feed_forward="one.gpu")
    found = evaluate(composed("many to one", members, own, placement=placement), LLAMA)
    row = found.table.rows.name.index("many.gpu_to_one.gpu")
    byte = found.table.byte[row]
    stream = 16 * 1024 * LLAMA.model.hidden * 2
    assert byte[found.soc.shared.index("many.pcie")] == pytest.approx(stream / 4)
    assert byte[found.soc.shared.index("one.pcie")] == pytest.approx(stream)
    assert found.table.timeline.duration_s[row] == pytest.approx(stream / port, rel=1e-2)


def test_cards_share_what_the_system_has_once():
    """Weights in the memory of the host: all cards stream them over links of their own, but from one memory."""
    ddr = BASELINE.blocks["ddr"]
    bus = attrs.evolve(BASELINE.blocks["ddr_bus"], joins=("host", "ddr"), lanes=10**6)
    own = {"host": H100.blocks["host"], "ddr": ddr, "ddr_bus": bus}

    def time(cards):
        members = {"card": (attrs.evolve(ONE_CARD, count=cards, drop=("host",)), changed(H100, pcie={"lanes": 10**5}))}
        return evaluate(composed("shared", members, own, placement=PlacementSpec(weights="ddr")), LLAMA)

    one, four = time(1), time(4)
    assert four.time_per_output_token_s > 3.5 * one.time_per_output_token_s
    assert four.traffic_byte("decode")["ddr"] == pytest.approx(4 * one.traffic_byte("decode")["ddr"], rel=1e-2)


# ------------------------------------------------------------------------------------------- a search among systems


@pytest.mark.parametrize("seed", range(8))
def test_auto_never_loses_to_a_fixed_strategy(seed):
    """On cards that divide sequences or experts, against strategies evaluated here."""
    chip, workload = scene(300 + seed)
    ground, auto = ground_of(chip, workload), explore(chip, workload).best
    for strategy in (*one_side(ground), *by_module(ground), *by_experts(ground)):
        try:
            fixed = evaluate(chip, workload, plan=strategy.plan)
        except MappingError:
            continue
        assert auto.result.total_s <= fixed.total_s * (1 + 1e-12), strategy.name


def test_auto_finds_the_experts_on_the_cpu():
    chip = load_chip(ROOT / "chips/systems/cpu_gpu.toml")
    found = explore(chip, DEEPSEEK)
    assert found.best.strategy.name == "auto: routed experts on cpu.cores, all else on gpu_card.gpu"
    assert found.best.result.total_s == evaluate(chip, DEEPSEEK).total_s, "the placement of the file"


# -------------------------------------------------------------------------------------------------- shipped systems


def test_every_system_of_the_repository_is_tested_here():
    assert {file.stem for file in (ROOT / "chips/systems").glob("*.toml")} == set(SHIPPED)


@pytest.mark.parametrize(("name", "workload"), SHIPPED.items())
def test_shipped_systems_evaluate(name, workload, capsys, tmp_path):
    arguments = [str(ROOT / f"chips/systems/{name}.toml"), str(ROOT / f"workloads/{workload}.toml")]
    assert main(["eval", *arguments, "--json", "--quiet", "--output-dir", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["segments_s"].values()) == pytest.approx(found["total_s"], rel=1e-9)
    assert all(tier["used_byte"] <= tier["capacity_byte"] for tier in found["capacity"].values())
    assert len(list(tmp_path.iterdir())) == 4
    cards = load_chip(arguments[0]).members
    assert [note for note in found["notes"] if "cards: times" in note] == [
        f"{member}: {spec.count} cards: times, traffic, capacity and utilisation are of the one with most to do, "
        f"energy and power of all {spec.count}"
        for member, spec in cards.items()
        if spec.count > 1
    ]
