"""Fallback: what is left when a side fails, what must be reloaded, and that every shipped chip has an answer."""

from __future__ import annotations

import attrs
import pytest
from scenes import HETERO, ROOT, two_gpus

from archmodel.components import link
from archmodel.evaluate import evaluate
from archmodel.plan import uniform_plan
from archmodel.spec.shape import ShapeSpec, expand
from archmodel.spec.toml import load_chip, load_workload
from archmodel.spec.workload import RequestSpec, WorkloadSpec
from archmodel.splitting.fallback import Fallbacks
from archmodel.splitting.rest import without
from archmodel.splitting.strategies import ground_of, module

LLAMA = load_workload(ROOT / "workloads/llama3_8b.toml")
WORKLOAD = attrs.evolve(LLAMA, request=RequestSpec(batch=2, input_tokens=64, output_tokens=8))
SHAPE = ShapeSpec(
    name="tiny",
    layers=2,
    hidden=64,
    heads=2,
    kv_heads=2,
    head_dim=32,
    intermediate=128,
    vocabulary=256,
    source="fits all of them",
)
TINY = WorkloadSpec(name="tiny", model=expand(SHAPE), request=WORKLOAD.request)
SYSTEMS = sorted([*ROOT.glob("chips/*.toml"), *ROOT.glob("chips/systems/*.toml")])


def module_split(chip):
    ground = ground_of(chip, WORKLOAD)
    placement = module(ground, *ground.sides[:2])
    return evaluate(chip, WORKLOAD, plan=uniform_plan(WORKLOAD.model, 2, placement))


def with_host(chip):
    """two_gpus with a host on a link of its own to the first."""
    h100 = load_chip(ROOT / "chips/h100_sxm.toml")
    blocks = {name: h100.blocks[name] for name in ("host", "pcie")}
    return attrs.evolve(chip, blocks={**chip.blocks, **blocks})


def test_units_that_share_a_memory_serve_on_at_once():
    plan = module_split(HETERO)
    lost = {f.lost: f for f in Fallbacks(HETERO, WORKLOAD).of(plan)}
    assert set(lost) == {"gpu", "npu"}
    assert lost["npu"].ready_s == 0.0
    alone = evaluate(HETERO, attrs.evolve(WORKLOAD, placement=dict.fromkeys(("feed_forward",), "gpu")))
    assert lost["npu"].result.total_s == pytest.approx(alone.total_s, rel=1e-9)
    assert lost["gpu"].result is None
    assert lost["gpu"].ready_s is None
    assert "no unit can run" in lost["gpu"].why


def test_a_lost_memory_is_reloaded_over_the_link_from_the_host():
    chip = with_host(two_gpus())
    plan = module_split(chip)
    lost = {f.lost: f for f in Fallbacks(chip, WORKLOAD).of(plan)}
    ffn = 3 * WORKLOAD.model.hidden * 14336 * 32 * 2
    second = lost["gpu_b"]
    assert second.reload_byte == ffn, "the first GPU holds the rest"
    assert second.source == "host"
    assert second.reload_s == pytest.approx(ffn / link.payload_byte_per_s(chip.blocks["pcie"]), rel=1e-9)
    assert second.recompute_s == 0.0, "the cache is with the first"
    assert lost["gpu"].result is None, "the host hangs on the first GPU"
    assert "no path" in lost["gpu"].why


def test_a_lost_cache_costs_the_prompts_again():
    chip = with_host(two_gpus())
    host_of_second = attrs.evolve(chip.blocks["pcie"], joins=("host", "gpu_b"))
    chip = attrs.evolve(chip, blocks={**chip.blocks, "pcie_b": host_of_second})
    chip = attrs.evolve(chip, blocks={name: block for name, block in chip.blocks.items() if name != "between"})
    plan = module_split(chip)
    first = {f.lost: f for f in Fallbacks(chip, WORKLOAD).of(plan)}["gpu"]
    assert first.recompute_s == first.result.time_to_first_token_s > 0.0
    assert first.ready_s == pytest.approx(first.reload_s + first.recompute_s)


def test_without_takes_the_unit_out_of_links_and_roles():
    rest = without(HETERO, "npu")
    assert "npu" not in rest.blocks
    assert all("npu" not in getattr(block, "joins", ()) for block in rest.blocks.values())
    assert rest.placement.feed_forward == ""
    assert rest.placement.weights == "hbm", "the GPU works with it too"


@pytest.mark.parametrize("file", SYSTEMS, ids=lambda f: f.stem)
def test_every_shipped_system_has_a_fallback_for_each_unit(file):
    plan = evaluate(load_chip(file), TINY)
    found = list(Fallbacks(plan.chip, TINY).of(plan))
    assert [f.lost for f in found] == [unit for unit in plan.soc.units if plan.busy_s()[unit] > 0.0]
    for fallback in found:
        assert (fallback.result is None) == (fallback.ready_s is None) or fallback.why
        if fallback.ready_s is None:
            assert fallback.why
        else:
            assert fallback.result.total_s > 0.0
            assert fallback.ready_s >= 0.0
