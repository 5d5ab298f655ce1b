"""Short operations on a low-power unit: what moves, what stays, and what it saves and costs."""

from __future__ import annotations

import attrs
import pytest
from scenes import ROOT, changed

from archmodel import evaluate, load_chip, load_workload
from archmodel.errors import MappingError, SpecError
from archmodel.light import lightened

CHIP = load_chip(ROOT / "chips/hetero_v1_light.toml")
CHAT = load_workload(ROOT / "workloads/llama3_8b.toml")
MOE = load_workload(ROOT / "workloads/llm_100b_moe.toml")


def owners(result, name: str, phase: str) -> set[str]:
    """Units on which operations of a name run in a phase."""
    count = sum(step.count for step in result.steps if step.step.phase == phase)
    rows = [i for i, n in enumerate(result.table.rows.name) if n == name and count[i]]
    return {result.soc.resources[result.table.owner[i]] for i in rows}


def test_what_is_named_moves_with_its_energy():
    """Sampling leaves the GPU: its operations at 5.2 pJ there are the same operations at 1.3 pJ on the light core."""
    before = evaluate(CHIP, CHAT)
    after = evaluate(changed(CHIP, placement={"light": ("sampling",)}), CHAT)
    assert owners(before, "sampling", "decode") == {"gpu"}
    assert owners(after, "sampling", "decode") == {"lpu"}
    assert before.energy_j["lpu_vector"] == 0.0
    moved_j = before.energy_j["gpu_vector"] - after.energy_j["gpu_vector"]
    assert after.energy_j["lpu_vector"] / moved_j == pytest.approx(1.3 / 5.2, rel=1e-6)


def test_long_operations_stay():
    """The router of a prompt multiplies for 8,192 tokens, that of a decode step for 8."""
    result = evaluate(changed(CHIP, placement={"light": ("router",), "light_flop": 1e9}), MOE)
    assert owners(result, "router", "prefill") == {"gpu"}
    assert owners(result, "router", "decode") == {"lpu"}
    same = evaluate(changed(CHIP, placement={"light": ("router", "sampling", "vector"), "light_flop": 0.0}), MOE)
    none = evaluate(CHIP, MOE)
    assert (same.total_s, same.energy_j) == (none.total_s, none.energy_j)


def test_the_policy_takes_what_saves_and_leaves_what_does_not():
    assert all(not trial.taken for trial in lightened(CHIP, CHAT).trials)  # static power costs more than the work saves
    dear = changed(CHIP, gpu={"vector_energy_pj_per_flop": 1e5}, placement={"light_slowdown": 1.0})
    found = lightened(dear, CHAT)
    taken = {trial.role for trial in found.trials if trial.taken}
    assert "sampling" in taken
    assert "router" not in taken  # the model has none
    assert found.result.total_j < found.without.total_j
    saved_j = sum(trial.saved_j for trial in found.trials if trial.taken)
    assert saved_j == pytest.approx(found.without.total_j - found.result.total_j, rel=1e-9)
    patient = lightened(changed(dear, placement={"light_slowdown": 0.0}), CHAT)
    assert patient.result.total_s <= patient.without.total_s


def test_roles_that_the_placement_names_are_moved_whether_they_pay_or_not():
    found = lightened(changed(CHIP, placement={"light": ("sampling",)}), CHAT)
    assert [(trial.role, trial.taken) for trial in found.trials] == [("sampling", True)]
    assert found.result.total_j == evaluate(changed(CHIP, placement={"light": ("sampling",)}), CHAT).total_j


def test_an_unknown_light_unit_is_refused():
    with pytest.raises(SpecError, match=r"placement.light_unit: \"lpuu\", must name a unit, did you mean lpu"):
        load_chip(ROOT / "chips/hetero_v1_light.toml", {"placement.light_unit": "lpuu"})
    with pytest.raises(MappingError, match="names no unit"):
        lightened(attrs.evolve(CHIP, placement=attrs.evolve(CHIP.placement, light_unit="")), CHAT)
