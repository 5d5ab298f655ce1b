"""Splits that somebody measured: the file of facts, both sides of each ratio, pools of GPUs and lists of products."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import attrs
import numpy as np
import pytest

from archmodel.components.collective import OPS, collectives
from archmodel.errors import MappingError, SpecError
from archmodel.predict import unit_costs
from archmodel.report.validation_hetero import section, summary_line
from archmodel.soc import Soc
from archmodel.spec.shape import ShapeSpec, expand
from archmodel.spec.toml import load_chip
from archmodel.spec.workload import PrecisionSpec
from archmodel.splitting.verdict import ERROR_FRACTION, ERROR_SOURCE
from archmodel.theory.pingpong import Stages, makespan_s
from archmodel.validation.hetero import Case, CaseSpec, Hetero, gain, hetero, read_facts
from archmodel.validation.pools import Pool, best
from archmodel.validation.products import Product, _rows, read_products, run_products

ROOT = Path(__file__).parents[1]
FILE = ROOT / "data/validation/hetero.toml"
CHIP = load_chip(ROOT / "chips/h100_sxm.toml")
MODEL = expand(
    ShapeSpec(
        name="small", layers=4, hidden=2048, heads=16, kv_heads=4, head_dim=128, intermediate=0, vocabulary=1024, experts=16,
        experts_per_token=2, expert_intermediate=1024, source="made up",
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def measured():
    return hetero(ROOT)


@pytest.fixture(scope="module")
def cases(measured):
    return measured.cases


# the cases


def test_the_answer_is_right_for_every_case(cases):
    assert [case.spec.name for case in cases if not case.sign_right] == []


def test_most_ratios_are_close(cases):
    close = [case.close for case in cases if case.spec.measured]
    assert len(close) >= 16
    assert sum(close) > 0.6 * len(close)


def test_a_verdict_expects_the_median_error(measured):
    assert pytest.approx(np.median(np.abs(measured.errors)), abs=0.005) == ERROR_FRACTION
    assert f"median of {len(measured.errors)} measured" in ERROR_SOURCE


def test_every_miss_says_why(cases):
    assert [case.spec.name for case in cases if case.spec.measured and not case.close and not case.spec.note] == []


@pytest.mark.parametrize(
    "system", ["KTransformers", "Step-3", "MegaScale-Infer", "FastAFD", "Orin", "llm.npu", "ANE-LM", "afd-plugin", "NorthPole"]
)
def test_the_systems_that_were_asked_for_are_there(cases, system):
    assert any(system in case.spec.system for case in cases)


def test_the_same_ratio_to_the_bit(cases):
    assert [case.predicted for case in hetero(ROOT).cases] == [case.predicted for case in cases]


@pytest.mark.parametrize(
    ("measured", "direction", "predicted", "right"),
    [
        (1.5, "", 1.06, True),
        (1.5, "", 1.04, False),
        (1.01, "", 0.8, True),  # neither gains
        (1.01, "", 1.2, False),
        (0.5, "", 0.99, True),
        (0.5, "", 1.01, False),  # a loss is no tie
        (0.0, "loss", 0.9, True),
        (0.0, "loss", 1.02, False),
        (0.0, "gain", 2.0, True),
        (0.0, "gain", 1.0, False),
    ],
)
def test_a_sign_is_right_where_both_gain_or_neither(measured, direction, predicted, right):
    assert made(measured, predicted, direction).sign_right is right


def made(measured, predicted, direction=""):
    spec = CaseSpec(name="n", system="s", split=["a"], baseline=["b"], measured=measured, direction=direction, source="x")
    return Case(spec=spec, predicted=predicted)


def test_an_error_is_relative_and_only_of_figures():
    assert made(2.0, 2.4).error == pytest.approx(0.2)
    assert made(2.0, 2.41).close is False
    assert math.isnan(made(0.0, 1.0, "loss").error)
    assert Hetero(cases=(made(2.0, 1.0), made(0.0, 1.0, "loss"))).errors.tolist() == [-0.5]


def test_the_largest_of_several_gains_counts():
    spec = attrs.evolve(made(1.0, 1.0).spec, split=("a", "c"), baseline=("b", "d"))
    assert gain(spec, {"a": 2.0, "b": 1.0, "c": 9.0, "d": 3.0}) == 3.0


# the file


def test_no_case_stands_twice_and_no_side_is_idle():
    facts = read_facts(FILE)
    named = [(case.system, case.name) for case in facts.cases]
    assert len(set(named)) == len(named)
    used = {name for case in facts.cases for name in (*case.split, *case.baseline)}
    assert used == set(facts.sides)
    assert {getattr(side, "model", "") for side in facts.sides.values()} - {""} == set(facts.models)


def test_all_that_is_wrong_with_a_file_comes_at_once(tmp_path):
    path = tmp_path / "hetero.toml"
    path.write_text("""
[models.m]
layers = 1
[sides.a]
kind = "walk"
[sides.b]
kind = "run"
chip = "h100_sxm"
model = "n"
metric = "decode"
input_tokens = 1
output_tokens = 2
source = "x"
[[cases]]
name = "c"
system = "s"
split = ["a"]
baseline = ["b", "b"]
measured = -1
source = "x"
[extra]
""", encoding="utf-8")  # fmt: skip
    with pytest.raises(SpecError) as caught:
        read_facts(path)
    text = str(caught.value)
    for part in ("extra: unknown table", "models.m.source", "sides.a.kind", "sides.b.model", "cases[0].measured"):
        assert part in text


def test_nothing_to_predict_without_a_file(tmp_path):
    assert hetero(tmp_path) == Hetero()


# pools


def pool(**given):
    values = {
        "model": MODEL, "precision": PrecisionSpec(), "chip": CHIP, "gpus": 4, "ffn_chip": CHIP, "ffn_gpus": 0,
        "tensor_parallel": 1, "ffn_tensor_parallel": 1, "pipeline": 1, "context_tokens": 1024, "micro_batches": 1,
        "link_gb_per_s": 50.0, "ffn_link_gb_per_s": 50.0, "link_us": 10.0, "out_byte": 2.0, "back_byte": 2.0, "sequences": 0,
        "token_limit_s": 0.0, "memory_share": 0.9, "cost": 1.0, "ffn_cost": 1.0,
    }  # fmt: skip
    return Pool(**{**values, **given})


def test_what_crosses_is_each_token_once_for_every_group_that_has_one_of_its_experts():
    """Against all choices of two experts, which may be the same one: 16 experts on 4 GPUs."""
    reached = np.mean([len({a // 4, b // 4}) for a, b in itertools.product(range(16), repeat=2)])
    moe = MODEL.kinds[0].moe
    assert pool(ffn_gpus=4)._copies(moe) == pytest.approx(reached)
    assert pool()._copies(moe) == pytest.approx(reached * 3 / 4)  # a quarter stays at home


def test_pools_apart_step_as_a_ping_pong_of_their_parts():
    apart = pool(ffn_gpus=2, micro_batches=3)
    sequences, layers = 8, len(MODEL.order)
    parts = (
        apart._attention(sequences).time_s, apart._exchange_s(sequences, 2.0), apart._ffn(4 * sequences).time_s,
        apart._exchange_s(sequences, 2.0),
    )  # fmt: skip
    assert apart.step_s(sequences) == makespan_s(Stages(*(part / layers for part in parts)), 3, layers)


def test_a_slow_side_of_the_link_governs():
    fast, slow = pool(ffn_gpus=2), pool(ffn_gpus=2, ffn_link_gb_per_s=5.0)
    assert slow._exchange_s(64, 2.0) > fast._exchange_s(64, 2.0)
    start_s = 4 * 10e-6
    # four senders to two receivers of a tenth of the rate
    assert slow._exchange_s(64, 2.0) - start_s == pytest.approx(10 * (fast._exchange_s(64, 2.0) - start_s))


def test_gpus_that_divide_an_expert_share_tokens_and_add_up():
    """Both collectives by themselves, once a layer; on the way where experts have GPUs of their own."""
    soc = Soc(CHIP)
    link, peers = soc.peer_link()

    def once_s(op, elements, byte):
        return float(collectives(soc.links[link], peers, OPS.index(op), 2, elements * byte, True)[0, 0])

    apart, together = pool(ffn_gpus=2, ffn_tensor_parallel=2), pool(tensor_parallel=2, ffn_tensor_parallel=2)
    all_tokens = 256 * MODEL.hidden  # one group of two GPUs has every expert
    expected = [4 * once_s("all_gather", all_tokens, 2.0), 4 * once_s("reduce_scatter", all_tokens, 2.0)]
    assert apart._share_s(256) == pytest.approx(expected)
    half = 128 * MODEL.hidden  # two groups of two
    assert together._share_s(256) == pytest.approx([0.0, 4 * once_s("all_reduce", half, 2.0)])
    assert pool(ffn_gpus=2)._share_s(256) == (0.0, 0.0)


@pytest.mark.parametrize("ffn_gpus", [0, 2])
def test_more_sequences_take_longer_and_a_limit_is_kept(ffn_gpus):
    free = pool(ffn_gpus=ffn_gpus)
    times = [free.step_s(n) for n in (1, 16, 256)]
    assert times == sorted(times)
    limited = pool(ffn_gpus=ffn_gpus, token_limit_s=times[1])
    number = limited._most_sequences()
    assert limited.step_s(number) <= times[1] < limited.step_s(number + max(1, number // 32) + 1)
    assert limited.tokens_per_s_per_cost() < free.tokens_per_s_per_cost()


def test_twice_the_cost_is_half_the_value():
    one = pool(ffn_gpus=2)
    assert pool(ffn_gpus=2, cost=2.0, ffn_cost=2.0).tokens_per_s_per_cost() == pytest.approx(one.tokens_per_s_per_cost() / 2)


def test_experts_elsewhere_leave_room_for_the_cache():
    wide = attrs.evolve(MODEL, kinds=(attrs.evolve(MODEL.kinds[0], moe=attrs.evolve(MODEL.kinds[0].moe, experts=512)),))
    assert pool(model=wide, ffn_gpus=4)._sequences_that_fit() > pool(model=wide)._sequences_that_fit() > 0


def test_a_host_that_calls_each_kernel_bounds_a_step():
    eager = attrs.evolve(CHIP, software=attrs.evolve(CHIP.software, call_us={"matmul": 500.0, "activation": 500.0}))
    plain, bound = pool(chip=CHIP), pool(chip=eager)
    kernels = plain._ffn(4).unit_s, bound._ffn(4).host_s
    assert bound._ffn(4).unit_s == kernels[0]
    assert bound.step_s(1) >= bound._attention(1).host_s + bound._ffn(4).host_s > plain.step_s(1)


def test_no_pool_that_serves_is_an_error():
    with pytest.raises(MappingError, match="not one sequence"):
        best([pool(token_limit_s=1e-9)])


# products


def test_the_layers_of_resnet_50_add_up():
    """4.09e9 multiply-accumulates and 25.5e6 weights an image (He et al. 2015; torchvision)."""
    products = read_products(ROOT / "data/validation/resnet50_products.csv")
    assert sum(p.m * p.n * p.k * p.count for p in products) == pytest.approx(4.089e9, rel=1e-3)
    assert sum(p.n * p.k * p.count for p in products) == pytest.approx(25.50e6, rel=1e-3)


def test_a_product_takes_what_its_unit_takes():
    run = run_products(CHIP, "gpu", [Product(512, 4096, 4096, count=3.0)], "bf16")
    rows = _rows([Product(512, 4096, 4096)], "bf16", 1.0)
    assert run.time_s == pytest.approx(3.0 * unit_costs(Soc(CHIP), "gpu", rows, None).duration_s[0])
    assert 0.0 < run.memory_s <= run.time_s


def test_a_unit_or_format_that_is_not_there_is_named():
    with pytest.raises(MappingError, match="no unit npu"):
        run_products(CHIP, "npu", [Product(1, 1, 1)], "bf16")


# the report


def test_the_section_holds_every_case_and_counts_them(measured):
    cases, text = measured.cases, section(measured)
    assert text.count("| right |") + text.count("| wrong |") == len(cases)
    assert all(case.spec.note in text for case in cases)
    assert summary_line(measured).startswith(f"{len(cases)} measured comparisons")
    assert all(entry.why in text for entry in measured.left_out)
    assert section(Hetero()) == ""
