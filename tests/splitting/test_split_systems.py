"""Splits of systems of several cards: bounds, ledgers, what a baseline needs, and ratios tried out."""

from __future__ import annotations

import attrs
import pytest
from scenes import ROOT

from archmodel import load_chip, load_workload
from archmodel.spec.workload import RequestSpec
from archmodel.splitting.bounds import bounds
from archmodel.splitting.ledger import ledger
from archmodel.splitting.rest import cards, idle_members, without_members
from archmodel.splitting.study import study
from archmodel.splitting.verdict import Answer, Terms

SYSTEMS, WORKLOADS = ROOT / "chips/systems", ROOT / "workloads"
FILES = {
    "gpu_npu_pcie5": "llama3_8b", "cpu_gpu": "deepseek_v3_q4", "afd_17_1": "minimax_m2_5", "gpu_cim": "llama3_8b",
    "hetero_v1": "llama3_8b",
}  # fmt: skip


@pytest.fixture(scope="module", params=FILES)
def found(request):
    workload = load_workload(WORKLOADS / f"{FILES[request.param]}.toml")
    short = attrs.evolve(workload.request, output_tokens=4)
    return study(load_chip(SYSTEMS / f"{request.param}.toml"), attrs.evolve(workload, request=short), Terms())


def test_ledgers_add_up_and_gains_lie_between_the_bounds(found):
    old = found.baseline.result
    for split in found.strategies:
        entries = ledger(old, split.result).entries
        change_s = split.result.total_s - old.total_s
        assert sum(entry.change_s for entry in entries) == pytest.approx(change_s, rel=1e-9, abs=1e-9 * old.total_s)
        between = bounds(split.result)
        assert between.overlapped_s <= split.result.total_s * (1 + 1e-9)
        assert split.result.total_s <= between.serial_s * (1 + 1e-9)


def test_a_baseline_has_only_the_cards_that_work(found):
    whole = next(s for s in found.strategies if s.name == found.baseline.name)
    assert not idle_members(found.baseline.result)
    assert cards(found.baseline.result) <= cards(whole.result)
    assert found.baseline.result.total_s == pytest.approx(whole.result.total_s, rel=1e-9), "the others only stood by"
    if cards(found.baseline.result) < cards(whole.result):
        assert found.baseline.result.total_j < whole.result.total_j


def test_every_plan_has_a_fallback_for_each_side(found):
    for split in found.strategies:
        seconds = split.result.busy_s()
        lost = {fallback.lost for fallback in found.fallbacks[split.name]}
        assert lost == {unit for unit in split.result.soc.units if seconds[unit] > 0.0}
        for fallback in found.fallbacks[split.name]:
            assert fallback.why if fallback.ready_s is None else fallback.result.output_tokens_per_s > 0.0


def test_ratios_are_tried_with_as_many_sequences_a_card():
    workload = load_workload(WORKLOADS / "minimax_m2_5.toml")
    rack = study(load_chip(SYSTEMS / "afd_17_1.toml"), workload, Terms())
    tried = {n.attention_cards: n for n in rack.balance.tried}
    assert {34, 68, 136} <= set(tried)
    assert all(n.batch == n.attention_cards * 16 and n.ffn_cards == 4 for n in tried.values())
    assert tried[34].decode_s < tried[68].decode_s < tried[136].decode_s, "the experts serve more"
    best = max(tried.values(), key=lambda n: n.tokens_per_s_per_card)
    assert 0.5 <= best.attention_cards / (rack.balance.units_per_ffn * 4) <= 2.0, "next to what the formula says"


def test_more_cards_are_dearer():
    workload = attrs.evolve(load_workload(WORKLOADS / "minimax_m2_5.toml"),
                            request=RequestSpec(batch=1088, input_tokens=1024, output_tokens=4))  # fmt: skip
    rack = study(load_chip(SYSTEMS / "afd_17_1.toml"), workload, Terms())
    verdict = rack.verdict(rack.best)
    assert (cards(rack.best.result), cards(rack.baseline.result)) == (72, 4)
    assert verdict.answer is Answer.DOES_NOT_PAY, "72 cards that are not 18 times as fast as 4"
    assert "costs more" in verdict.because


def test_a_system_without_a_member_is_the_chip_of_the_other():
    pair = load_chip(SYSTEMS / "gpu_npu_pcie5.toml")
    rest = without_members(pair, {"npu_card"})
    assert list(rest.members) == ["gpu_card"]
    assert not any(name.startswith("npu_card.") for name in rest.blocks)
    assert rest.placement.feed_forward == ""
