"""Laws of units that hold weights in cells of their own, on seeded random chips and workloads."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from scenes import ROOT, changed, random_cell_chip, random_workload

from archmodel import sizes
from archmodel.components.units import cell_capacity_byte, held_alone, mac_energy_pj
from archmodel.errors import MappingError
from archmodel.evaluate import evaluate
from archmodel.operation_table import read_operations
from archmodel.operations import Kind, rows_from
from archmodel.predict import predict_operations, unit_costs
from archmodel.soc import Soc
from archmodel.spec.chip import CimSpec, NeuromorphicSpec
from archmodel.spec.toml import load_chip, load_workload
from archmodel.spec.workload import PrecisionSpec
from archmodel.splitting.search import explore
from archmodel.units import FORMATS

PRECISION = PrecisionSpec(weights="int8", attention="int8", feed_forward="int8", head="int8")


def scene(seed):
    rng = np.random.default_rng(seed)
    return random_cell_chip(rng), attrs.evolve(random_workload(rng), precision=PRECISION)


@pytest.fixture(scope="module", params=range(40))
def result(request):
    return evaluate(*scene(request.param))


def test_both_kinds_and_all_shares_are_drawn():
    chips = [scene(seed)[0].blocks["npu"] for seed in range(40)]
    assert {type(unit) for unit in chips} == {CimSpec, NeuromorphicSpec}
    shares = [evaluate(*scene(seed)).residency.held_share["npu"] for seed in range(40)]
    assert min(shares) < 0.2 < max(share for share in shares if share < 1.0)
    assert 1.0 in shares


def test_segments_and_energies_add_up(result):
    assert sum(result.segments_s.values()) == pytest.approx(result.total_s, rel=1e-9)
    assert sum(result.energy_j.values()) == pytest.approx(result.total_j, rel=1e-9)
    costs = result.table.costs
    assert np.all(costs.duration_s >= costs.limits_s.max(axis=1) * (1 - 1e-12))
    assert np.all((costs.utilisation >= 0.0) & (costs.utilisation <= 1.0 + 1e-12))
    assert all(0.0 <= value <= 1.0 + 1e-12 for value in result.utilisation.values())


def test_energy_is_counts_times_table(result):
    unit, costs, rows = result.chip.blocks["npu"], result.table.costs, result.table.rows
    count = sum(step.weight * step.count for step in result.steps) * result.chip.power.scale
    mine = result.table.owner == result.soc.resources.index("npu")
    table = mac_energy_pj(unit)
    mac = sum(
        float(costs.mac[i] * count[i]) * table[FORMATS[rows.compute_format[i]]] for i in np.flatnonzero(mine & (costs.mac > 0))
    )
    assert result.energy_j["npu_mac"] == pytest.approx(mac * 1e-12, rel=1e-9)
    events = float((costs.events * count)[mine].sum())
    each = unit.conversion_energy_pj if isinstance(unit, CimSpec) else unit.event_energy_pj
    assert result.energy_j["npu_conversion" if isinstance(unit, CimSpec) else "npu_event"] == pytest.approx(
        events * each * 1e-12
    )
    if isinstance(unit, CimSpec):
        written = float((costs.cell_write_byte * count).sum()) * 8 * unit.write_energy_pj_per_bit
        assert result.energy_j["npu_cell_write"] == pytest.approx(written * 1e-12)
    assert result.energy_j["npu_static"] == pytest.approx(result.total_s * result.chip.power.scale)


def test_all_weights_lie_somewhere_and_nothing_overflows(result):
    """One byte a parameter: what the unit holds is what the memory has not, and the host's table is on the host."""
    residency, model = result.residency, result.workload.model
    parameters = sizes.breakdown(model)
    parts = ["feed_forward", "experts", *(["mixers"] if result.chip.placement.projection == "npu" else [])]
    held = residency.held_share["npu"] * sum(parameters[part] for part in parts)
    in_memory = sum(b.byte for b in residency.buffers if b.what == "weights")
    assert in_memory + held + parameters["embedding"] == pytest.approx(sum(parameters.values()), abs=2.0)
    assert residency.used_byte("npu") >= held * (1 - 1e-12)
    assert residency.used_byte("npu") <= cell_capacity_byte(result.chip.blocks["npu"]) * (1 + 1e-12)


def test_weights_in_cells_cause_no_traffic_and_all_others_do(result):
    share = result.residency.held_share["npu"]
    costs, rows = result.table.costs, result.table.rows
    mine = (result.table.owner == result.soc.resources.index("npu")) & (rows.kind == Kind.MATMUL)
    once = rows.count * rows.n * rows.k * rows.weight_byte
    assert costs.weight_traffic_byte[mine] == pytest.approx((1.0 - share) * once[mine])
    assert np.all((costs.cell_write_byte[mine] > 0.0) == (share < 1.0))


@pytest.mark.parametrize("seed", range(12))
def test_same_input_same_output_to_the_bit(seed):
    one, two = evaluate(*scene(seed)), evaluate(*scene(seed))
    assert one.total_s == two.total_s
    assert one.energy_j == two.energy_j


#: what is doubled, in compute in memory and in event-driven cores
MORE = {
    "parts": ("macros", "cores"),
    "clock": ("clock_ghz", "clock_ghz"),
    "readers": ("converters", "event_per_cycle"),
    "lanes": ("vector_op_per_cycle", "vector_op_per_cycle"),
}


@pytest.mark.parametrize("what", MORE)
@pytest.mark.parametrize("seed", range(12))
def test_more_is_never_slower(seed, what):
    chip, workload = scene(100 + seed)
    unit = chip.blocks["npu"]
    key = MORE[what][isinstance(unit, NeuromorphicSpec)]
    after = changed(chip, npu={key: 2 * getattr(unit, key)})
    assert evaluate(after, workload).total_s <= evaluate(chip, workload).total_s * (1 + 1e-9)


def test_a_tied_head_has_cells_of_its_own_and_its_table_stays_in_memory():
    chip, workload = next(found for found in map(scene, range(40)) if isinstance(found[0].blocks["npu"], NeuromorphicSpec))
    model = attrs.evolve(workload.model, tied_embedding=True)
    chips = [changed(chip, placement={"head": head, "embedding": "gpu"}) for head in ("gpu", "npu")]
    plain, tied = (evaluate(placed, attrs.evolve(workload, model=model)).residency for placed in chips)
    assert tied.used_byte("npu") - plain.used_byte("npu") == model.vocabulary * model.hidden
    assert tied.used_byte("hbm") == plain.used_byte("hbm")


def test_operations_of_a_table_are_predicted_on_such_units(tmp_path):
    """Alone on the chip, weights that fit lie in the cells; event-driven cores refuse those that do not."""
    file = tmp_path / "gemm.csv"
    file.write_text("m,n,k,dtype\n8,4096,4096,int8\n", encoding="utf-8")
    card = load_chip(ROOT / "chips/cim_card.toml")
    alone = attrs.evolve(card, blocks={n: b for n, b in card.blocks.items() if n != "vector"})
    found = predict_operations(alone, read_operations(file))
    assert found.unit == ("cim",)
    assert found.predicted_us[0] * 1e-6 >= 2 * 8 * 4096 * 4096 / Soc(card).peaks_per_s()["cim"]["int8"]
    loihi = Soc(load_chip(ROOT / "chips/loihi2.toml"))
    base = {"name": "gemm", "kind": Kind.MATMUL, "m": 1, "weight_byte": 1.0, "compute_format": FORMATS.index("int8")}
    fits, huge = (rows_from([{**base, "n": n, "k": 4096}]) for n in (4096, 65536))
    assert held_alone(loihi.units["neuromorphic"], fits)[0] == 1.0
    assert unit_costs(loihi, "neuromorphic", fits, None).duration_s[0] > 0.0
    with pytest.raises(MappingError, match="weights of gemm do not lie in the cores"):
        unit_costs(loihi, "neuromorphic", huge, None)


@pytest.mark.parametrize("name", ["cim_card", "gddr6_aim", "hbm_pim"])
def test_shipped_cards_run_a_model(name):
    result = evaluate(load_chip(ROOT / f"chips/{name}.toml"), load_workload(ROOT / "workloads/chat_8b.toml"))
    assert 0.0 < max(result.residency.held_share.values()) <= 1.0
    assert result.total_s > 0.0


def test_a_unit_that_has_a_share_of_an_operator_holds_that_share():
    """Half of the columns on event-driven cores, which hold all they are given, and half on the GPU."""
    chip, workload = next(found for found in map(scene, range(40)) if isinstance(found[0].blocks["npu"], NeuromorphicSpec)
                          and found[1].model.kinds[0].feed_forward is not None)  # fmt: skip
    chip = changed(chip, placement={"projection": "gpu"})
    whole = evaluate(chip, workload).residency
    split = evaluate(changed(chip, placement={"shares": {"feed_forward": {"gpu": 0.5, "npu": 0.5}}}), workload).residency
    moved = whole.used_byte("npu") - split.used_byte("npu")
    assert moved == pytest.approx(0.5 * whole.used_byte("npu"), rel=0.02)
    weights = [sum(b.byte for b in found.buffers if b.what == "weights") for found in (whole, split)]
    assert weights[1] - weights[0] == pytest.approx(moved, abs=2.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_search_over_splits_takes_such_units_as_any_other(seed):
    chip, workload = scene(seed)
    placed = evaluate(chip, workload).total_s
    found = explore(chip, workload)
    assert found.best.result is not None
    assert found.best.result.total_s <= placed * (1 + 1e-9)
