"""Compute in memory: published macros, capacity and rewriting, energy, and what a user may ask of it."""

from __future__ import annotations

import csv

import attrs
import numpy as np
import pytest
from cim_oracle import Macro, walk
from scenes import HETERO, ROOT, changed, random_workload

from archmodel.components.cim import capacity_byte, costs, mac_energy_pj, remarks
from archmodel.costs import LIMITS, Surroundings
from archmodel.errors import MappingError, SpecError
from archmodel.evaluate import evaluate
from archmodel.operations import Kind, rows_from
from archmodel.soc import Soc
from archmodel.spec.chip import CimSpec
from archmodel.spec.toml import load_chip, load_workload
from archmodel.units import FORMATS

INT8, INT4 = FORMATS.index("int8"), FORMATS.index("int4")


def anchors():
    with (ROOT / "tests/anchors/in_memory.csv").open(encoding="utf-8") as lines:
        return {(row["what"], row["unit"]): float(row["value"]) for row in csv.DictReader(lines)}


ANCHORS = anchors()


def make_spec(**changes):
    base = {
        "macros": 256, "rows": 64, "cols": 64, "cell_bit": 1, "input_bit": 1, "clock_ghz": 1.0, "formats": ("int8", "int4"),
        "converters": 8, "conversion_ghz": 1.0, "write_bit_per_cycle": 64.0, "vector_op_per_cycle": 512.0,
        "buffer": "sram", "memory": "hbm", "source": "assumption: test", "cell_energy_pj": 0.001,
        "conversion_energy_pj": 0.1, "write_energy_pj_per_bit": 0.3, "buffer_share": 0.5,
    }  # fmt: skip
    return CimSpec(**{**base, **changes})


def matmul(m, n, k, **more):
    base = {"name": "ffn_up", "kind": Kind.MATMUL, "m": m, "n": n, "k": k, "weight_byte": 1.0, "input_byte": 1.0}
    return rows_from([{**base, "output_byte": 1.0, "compute_format": INT8, **more}])


def run(spec, rows, held=1.0, memory_rate=1e12, **around):
    base = {"buffer_byte": 16e6, "buffer_byte_per_s": 1e30, "memory_latency_s": 0.0}
    near = Surroundings(**{**base, **around}, memory_byte_per_s=np.full(len(rows), memory_rate), held_share=held)
    return costs(spec, rows, near)


def limit(cost, name):
    return cost.limits_s[0, LIMITS.index(name)]


def hetero(**changes):
    """hetero_v1 with compute in memory in place of its NPU."""
    return attrs.evolve(HETERO, blocks={**HETERO.blocks, "npu": make_spec(**changes)})


@pytest.mark.parametrize("seed", range(30))
def test_a_row_takes_what_the_walk_over_its_cells_takes(seed):
    rng = np.random.default_rng(seed)
    spec = make_spec(macros=int(rng.integers(1, 40)), cell_bit=int(rng.choice([1, 2, 4])), input_bit=int(rng.choice([1, 2])))
    m, n, k = (int(rng.integers(1, top)) for top in (9, 200, 300))
    fmt = int(rng.choice([INT8, INT4]))
    macro = Macro(spec.macros, spec.rows, spec.cols, spec.cell_bit, spec.input_bit, 1, spec.converters, 1.0, 0, 0.0)
    walked = walk(m, n, k, 1, 8 if fmt == INT8 else 4, macro)
    cost = run(spec, matmul(m, n, k, compute_format=fmt))
    assert cost.duration_s[0] == pytest.approx(walked.cycles * 1e-9, rel=1e-12)
    assert cost.events[0] == walked.conversions
    loaded = run(spec, matmul(m, n, k, compute_format=fmt), held=0.0, memory_rate=np.inf)
    assert loaded.cell_write_byte[0] == walked.cell_bit / 8
    assert limit(loaded, "feed") == pytest.approx(walked.macro_bit / 64e9)
    assert loaded.duration_s[0] == pytest.approx((walked.cycles + walked.macro_bit / 64) * 1e-9)


def test_published_peaks_and_capacities():
    """Peaks, capacity and bandwidth of one design follow from the same few numbers."""
    peak = {name: Soc(load_chip(ROOT / f"chips/{name}.toml")).peaks_per_s() for name in ("gddr6_aim", "hbm_pim", "cim_card")}
    assert peak["gddr6_aim"]["aim"]["bf16"] / 16e12 == pytest.approx(ANCHORS["SKhynix-GDDR6-AiM", "TFLOP/s"], rel=0.01)
    assert peak["hbm_pim"]["pim"]["fp16"] / 4e12 == pytest.approx(ANCHORS["Samsung-HBM-PIM", "TFLOP/s"], rel=0.01)
    for fmt in ("int8", "int4"):
        assert peak["cim_card"]["cim"][fmt] / 1e12 == pytest.approx(ANCHORS[f"dMatrix-Corsair-{fmt}", "TOP/s"], rel=0.01)
    aim = load_chip(ROOT / "chips/gddr6_aim.toml").blocks["aim"]
    card = load_chip(ROOT / "chips/cim_card.toml").blocks["cim"]
    for spec, parts, key in ((aim, 16, "SKhynix-GDDR6-AiM"), (card, 1, "dMatrix-Corsair")):
        read = spec.macros * spec.rows * spec.cell_bit / 8 * spec.converters * spec.conversion_ghz / 1e3
        assert read / parts == pytest.approx(ANCHORS[key, "TB/s"], rel=0.01)
    assert capacity_byte(card) / 1024 == ANCHORS["dMatrix-Corsair", "KiB"]


def test_the_published_7_nm_macro():
    """64 x 64 single-bit cells that multiply 4-bit weights by 4-bit inputs in one access of 5.5 ns."""
    ns = 5.5
    pj = 2.0 / ANCHORS["CIM-TSMC-7nm-8T", "TOPS/W"]  # of one MAC, half of it taken to be the flash ADCs'
    spec = make_spec(
        macros=1, input_bit=4, clock_ghz=1 / ns, converters=64, conversion_ghz=1 / ns, cell_energy_pj=pj / 8,
        conversion_energy_pj=64 * pj / 8,
    )  # fmt: skip

    def energy_pj_and_s(fmt, n):
        cost = run(spec, matmul(1, n, 64, compute_format=FORMATS.index(fmt)))
        return cost.mac[0] * mac_energy_pj(spec)[fmt] + cost.events[0] * spec.conversion_energy_pj, cost.duration_s[0]

    energy, seconds = energy_pj_and_s("int4", 16)
    assert 2 * 1024 / seconds / 1e12 == pytest.approx(ANCHORS["CIM-TSMC-7nm-8T", "TOP/s"], rel=1e-3)
    assert 2 * 1024 / energy == pytest.approx(ANCHORS["CIM-TSMC-7nm-8T", "TOPS/W"], rel=1e-9)
    wide, wide_s = energy_pj_and_s("int8", 8)
    assert (wide / 512) / (energy / 1024) == pytest.approx(ANCHORS["CIM-TSMC-7nm-8T", "x energy"])
    assert wide_s / 512 == pytest.approx(4 * seconds / 1024)


def test_a_bank_of_a_dram_reads_all_weights_for_every_input():
    """GDDR6-AiM: time of a GEMV is that of the weights at the inner bandwidth and the opening of rows; a batch shares none."""
    aim = load_chip(ROOT / "chips/gddr6_aim.toml").blocks["aim"]
    byte = 8192 * 4096 * 2.0
    bf16 = {"compute_format": FORMATS.index("bf16"), "weight_byte": 2.0}
    one, eight = (limit(run(aim, matmul(m, 8192, 4096, **bf16)), "matrix") for m in (1, 8))
    assert one == pytest.approx(byte / (512 * 32 * 1e9) * (1 + 30 / 64), rel=1e-9)
    assert eight == 8 * one
    flat = attrs.evolve(aim, page_cols=0)
    assert limit(run(flat, matmul(1, 8192, 4096, **bf16)), "matrix") == pytest.approx(byte / (512 * 32 * 1e9))


def test_input_lanes_share_a_reading():
    rows = [matmul(m, 512, 512) for m in (1, 16, 17)]
    spec = make_spec(input_lanes=16)
    one, sixteen, more = (limit(run(spec, row), "matrix") for row in rows)
    assert one == sixteen == more / 2


def test_weights_that_fit_are_never_read_again():
    rows = matmul(4, 4096, 4096)
    cost = run(make_spec(), rows)
    assert cost.weight_traffic_byte[0] == cost.cell_write_byte[0] == limit(cost, "feed") == 0.0
    half = run(make_spec(), rows, held=0.5)
    assert half.weight_traffic_byte[0] == 4096 * 4096 / 2
    assert half.cell_write_byte[0] == 4096 * 4096 / 2


def test_rewriting_before_or_while_multiplying():
    rows = matmul(64, 4096, 4096)
    serial, hidden = (run(make_spec(write_hidden=flag), rows, held=0.0, memory_rate=1e11) for flag in (False, True))
    array, feed, memory = (limit(serial, name) for name in ("matrix", "feed", "memory"))
    assert serial.duration_s[0] == pytest.approx(array + max(feed, memory))
    assert hidden.duration_s[0] == pytest.approx(max(array, feed, memory))
    slow = run(make_spec(write_hidden=True), rows, held=0.0, memory_rate=1e9)
    slower = run(make_spec(write_hidden=True), rows, held=0.0, memory_rate=5e8)
    assert slower.duration_s[0] == 2.0 * slow.duration_s[0]


def test_partly_filled_pieces_cost_time_and_cells():
    full, part = (run(make_spec(), matmul(1, 512, k)) for k in (128, 65))
    assert part.duration_s[0] == full.duration_s[0]
    assert part.utilisation[0] == pytest.approx(full.utilisation[0] * 65 / 128)
    assert 0.0 < part.utilisation[0] < full.utilisation[0] <= 1.0


def test_residency_counts_cells_and_the_memory_holds_the_rest():
    workload = load_workload(ROOT / "workloads/llama3_8b.toml")
    feed_forward = 3 * 14336 * 4096 * 32
    all_weights = sum(b.byte for b in evaluate(HETERO, workload).residency.buffers if b.what == "weights")
    seconds = []
    for macros in (2**18, 2**21, 2**22):
        result = evaluate(hetero(macros=macros, cols=256), workload)
        seconds.append(result.total_s)
        held = {b.tier: b.byte for b in result.residency.buffers if b.what == "weights in cells"}
        capacity = macros * 64 * 256 / 8
        share = result.residency.held_share["npu"]
        assert share == (1.0 if feed_forward <= capacity else pytest.approx(0.75 * capacity / feed_forward))
        assert held["npu"] == pytest.approx(share * feed_forward)
        assert result.residency.used_byte("npu") <= capacity
        weights = sum(b.byte for b in result.residency.buffers if b.what == "weights")
        written = result.table.costs.cell_write_byte @ result.steps[1].count
        assert written == pytest.approx((1.0 - share) * feed_forward)
        assert (result.energy_j["npu_cell_write"] == 0.0) == (share == 1.0)
        assert weights == pytest.approx(all_weights - share * feed_forward)
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[2] < seconds[1] < seconds[0]


@pytest.mark.parametrize("seed", range(10))
def test_laws_on_random_workloads(seed):
    rng = np.random.default_rng(seed)
    workload = random_workload(rng)
    changes = {
        "macros": int(rng.integers(16, 20000)), "cell_bit": int(rng.choice([1, 2, 4])), "converters": int(rng.integers(1, 65)),
        "write_hidden": bool(rng.integers(2)), "reload_share": float(rng.uniform(0.1, 1.0)),
    }  # fmt: skip
    result = evaluate(hetero(**changes), workload)
    table = result.table
    assert np.all(table.costs.duration_s >= table.costs.limits_s.max(axis=1) * (1 - 1e-12))
    assert np.all((table.costs.utilisation >= 0.0) & (table.costs.utilisation <= 1.0 + 1e-12))
    assert sum(result.segments_s.values()) == pytest.approx(result.total_s, rel=1e-9)
    assert evaluate(hetero(**changes), workload).energy_j == result.energy_j
    for more in ({"macros": 2 * changes["macros"]}, {"converters": 2 * changes["converters"]}, {"write_bit_per_cycle": 128.0}):
        assert evaluate(hetero(**{**changes, **more}), workload).total_s <= result.total_s * (1 + 1e-9)


@pytest.mark.parametrize(("key", "component"), [
    ("cell_energy_pj", "npu_mac"), ("conversion_energy_pj", "npu_conversion"), ("write_energy_pj_per_bit", "npu_cell_write"),
])  # fmt: skip
def test_a_doubled_energy_doubles_its_component_and_nothing_else(key, component):
    workload = load_workload(ROOT / "workloads/llama3_8b.toml")
    one, two = (evaluate(hetero(**{key: factor * getattr(make_spec(), key)}), workload) for factor in (1, 2))
    assert two.energy_j[component] == pytest.approx(2.0 * one.energy_j[component], rel=1e-12)
    assert {k: v for k, v in two.energy_j.items() if k != component} == {
        k: v for k, v in one.energy_j.items() if k != component
    }
    assert two.total_s == one.total_s


def test_energy_is_linear_in_inputs():
    one, ten = (run(make_spec(), matmul(m, 500, 300)) for m in (1, 10))
    assert ten.events[0] == 10 * one.events[0]
    assert ten.mac[0] == 10 * one.mac[0]


def test_what_has_no_weights_is_refused():
    row = {"name": "attention", "kind": Kind.ATTENTION, "compute_format": INT8}
    with pytest.raises(MappingError, match=r"cim: attention has no weights"):
        run(make_spec(), rows_from([row]))
    with pytest.raises(MappingError, match=r"cim: ffn_up computes in bf16; this unit has int8, int4"):
        run(make_spec(), matmul(1, 8, 8, compute_format=FORMATS.index("bf16")))
    with pytest.raises(SpecError, match="attention is unknown"):
        make_spec(capabilities=("matmul", "attention"))


def test_a_converter_that_rounds_is_remarked():
    assert remarks("cim", make_spec(converter_bit=7)) == []  # 64 products of single bits: 0 to 64
    assert "need 7 bits and a converter has 4" in remarks("cim", make_spec(converter_bit=4))[0]
    assert remarks("cim", make_spec()) == []


def test_changed_scene_is_the_unit_that_runs():
    chip = changed(hetero(), npu={"clock_ghz": 2.0})
    assert isinstance(chip.blocks["npu"], CimSpec)
    result = evaluate(chip, load_workload(ROOT / "workloads/llama3_8b.toml"))
    owners = {result.soc.resources[o] for o, n in zip(result.table.owner, result.table.rows.name, strict=True) if n == "ffn_up"}
    assert owners == {"npu"}
