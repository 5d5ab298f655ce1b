"""Voltage and clocks, power caps, boundaries and power over time: against formulas written out here, and laws."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from scenes import HETERO, ROOT, changed, random_chip, random_workload

from archmodel import evaluate, load_chip, load_workload
from archmodel.clocks import capped, least_energy
from archmodel.components import boundary, dvfs
from archmodel.errors import ArchmodelError, MappingError, SpecError
from archmodel.report.profile import profile, step_power_w
from archmodel.spec.power import BoardSpec, FacilitySpec, ServerSpec
from archmodel.spec.shape import ShapeSpec, expand
from archmodel.spec.workload import LimitsSpec, PrecisionSpec, RequestSpec, WorkloadSpec

LLM = load_workload(ROOT / "workloads/llm_100b.toml")
CHAT = load_workload(ROOT / "workloads/llama3_8b.toml")

BARE = {"voltage_points": (), "nominal_clock_ghz": 0.0, "clock_static_share": 0.0}


def scenes(count: int, seed: int):
    """Random chips, whose blocks but the DRAM have voltage points in two chips of three, with random workloads that fit."""
    rng, found = np.random.default_rng(seed), 0
    while found < count:
        chip, workload = random_chip(rng), random_workload(rng)
        if rng.uniform() < 0.67:
            chip = changed(chip, **{name: points(rng, chip.blocks[name]) for name in ("gpu", "npu", "sram", "l2", "control")
                                    if name in chip.blocks})  # fmt: skip
        try:
            yield evaluate(chip, workload)
        except ArchmodelError:
            continue
        found += 1


def points(rng, block) -> dict[str, object]:
    clock = block.clock_ghz * np.array([0.3, 0.6, 1.0, 1.3])
    volt = 0.5 + np.cumsum(rng.uniform(0.0, 0.2, 4))
    nominal = float(rng.choice([clock[1], clock[2]]))
    return {
        "voltage_points": tuple(zip(clock.tolist(), volt.tolist(), strict=True)),
        "nominal_clock_ghz": nominal,
        "clock_static_share": float(rng.uniform()),
    }


def test_voltage_is_linear_between_points():
    """By hand: 1.3 GHz lies halfway between 1.0 GHz at 0.55 V and 1.6 GHz at 0.75 V."""
    gpu = HETERO.blocks["gpu"]
    assert dvfs.voltage_v(gpu, 1.3) == pytest.approx(0.65, rel=1e-12)
    assert [dvfs.voltage_v(gpu, clock) for clock in (0.2, 0.7, 1.0, 2.0)] == pytest.approx([0.55, 0.55, 0.55, 0.9])
    with pytest.raises(MappingError, match=r"clock_ghz = 2.1 lies outside the voltage points, 0.2 to 2 GHz"):
        dvfs.voltage_v(gpu, 2.1)


def test_energy_goes_with_the_square_of_the_voltage_and_time_with_the_clock():
    """The NPU of hetero_v1 at 1.0 GHz: 0.55 V against 0.7049 V at its nominal 1.4648 GHz."""
    nominal, slow = evaluate(HETERO, LLM), evaluate(changed(HETERO, npu={"clock_ghz": 1.0}), LLM)
    volt = 0.55 + (1.4648 - 1.0) / 0.6 * 0.2
    for part in ("npu_mac", "npu_vector"):
        assert slow.energy_j[part] / nominal.energy_j[part] == pytest.approx((0.55 / volt) ** 2, rel=1e-9)
    assert slow.energy_j["hbm"] == nominal.energy_j["hbm"]
    assert slow.energy_j["gpu_mac"] == pytest.approx(nominal.energy_j["gpu_mac"], rel=1e-12)
    leakage = 0.55 / volt * np.exp(np.log(25.14 / 19.44) / 0.1 * (0.55 - volt))
    static_w = 2.0 * (0.5 * (1.0 / 1.4648) * (0.55 / volt) ** 2 + 0.5 * leakage)
    assert slow.energy_j["npu_static"] / slow.total_s == pytest.approx(static_w, rel=1e-3)
    assert slow.segments_s["compute_npu"] / nominal.segments_s["compute_npu"] == pytest.approx(1.4648, rel=0.02)


def test_wires_on_the_die_follow_the_voltage_of_their_supply():
    """The network of hetero_v1 hangs on the GPU cores: 0.55 V at 1.0 GHz against 0.6833 V at 1.4."""
    nominal, slow = evaluate(HETERO, LLM), evaluate(changed(HETERO, gpu={"clock_ghz": 1.0}), LLM)
    per_byte = [run.energy_j["noc"] / run.traffic_byte()["noc"] for run in (slow, nominal)]
    assert per_byte[0] / per_byte[1] == pytest.approx((0.55 / (0.55 + 0.4 / 0.6 * 0.2)) ** 2, rel=1e-9)
    assert slow.energy_j["interposer"] == pytest.approx(nominal.energy_j["interposer"], rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_without_points_energies_hold_at_any_clock(seed):
    """Only the clock differs, so that energy does in the static part alone; at the nominal clock points change nothing."""
    bare = dict.fromkeys(("gpu", "npu", "sram"), BARE)
    rng = np.random.default_rng(seed)
    clock = float(rng.uniform(0.5, 1.3))
    chip = changed(HETERO, **bare)
    assert evaluate(chip, LLM).energy_j == evaluate(HETERO, LLM).energy_j
    slow = evaluate(changed(chip, gpu={"clock_ghz": clock}), LLM)
    assert slow.energy_j["gpu_mac"] == evaluate(chip, LLM).energy_j["gpu_mac"]
    assert slow.energy_j["gpu_static"] == pytest.approx(8.0 * slow.total_s, rel=1e-12)


def test_higher_voltage_never_takes_less_energy():
    rng = np.random.default_rng(5)
    for result in scenes(8, 6):
        name = next(iter(result.soc.units))
        block = result.chip.blocks[name]
        spread = points(rng, block)
        low = changed(result.chip, **{name: {**spread, "nominal_clock_ghz": spread["voltage_points"][1][0]}})
        raised = tuple((c, v * 1.1 if c > spread["voltage_points"][1][0] else v) for c, v in spread["voltage_points"])
        high = changed(low, **{name: {"voltage_points": raised}})
        cool, hot = evaluate(low, result.workload), evaluate(high, result.workload)
        assert hot.total_s == cool.total_s
        assert hot.total_j > cool.total_j


def test_sum_of_components_and_of_kinds_is_the_energy():
    for result in scenes(12, 7):
        assert sum(result.energy_j.values()) == pytest.approx(result.total_j, rel=1e-12)
        assert sum(result.energy_by_kind_j.values()) == pytest.approx(result.total_j, rel=1e-9)
        watt = sum(result.phase_power_w(phase) * result.phase_s(phase) for phase in result.phases)
        assert watt == pytest.approx(result.total_j, rel=1e-9)


def test_energy_by_kind_is_a_slow_sum():
    """Row by row, component by component, of the feed-forward part."""
    result = evaluate(HETERO, LLM)
    total, names = 0.0, {"ffn_up", "ffn_activation", "ffn_down"}
    for step in result.steps:
        for row in range(len(result.table.rows)):
            if result.table.rows.name[row] in names:
                joule = sum(float(values[row]) for name, values in result.row_energy_j.items() if name != "control")
                total += step.weight * step.count[row] * joule
    assert result.energy_by_kind_j["feed_forward"] == pytest.approx(total, rel=1e-9)


def test_power_over_time_integrates_to_the_energy():
    for result in (*scenes(8, 8), evaluate(HETERO, LLM), capped(HETERO, LLM, 50.0).result):
        found = profile(result)
        width = result.total_s / len(found.time_s)
        assert sum(watt.sum() for watt in found.power_w.values()) * width == pytest.approx(result.total_j, rel=1e-9)
        scale = result.chip.power.scale * result.chips
        total = 0.0
        for step in result.steps:
            edges_s, power_w = step_power_w(result, step)
            joule = sum(float(watt @ np.diff(edges_s)) for watt in power_w.values())
            static_j = sum(result.step_static_power_w(step).values()) * step.total_s
            assert joule == pytest.approx(sum(step.energy_j.values()) * scale + static_j, rel=1e-9)
            assert all(np.all(watt >= 0.0) for watt in power_w.values())
            total += step.weight * joule
        assert total == pytest.approx(result.total_j, rel=1e-9)


def test_a_cap_is_kept_and_a_lower_one_is_never_faster():
    for result in (*scenes(3, 9), evaluate(HETERO, LLM)):
        if not dvfs.scaled_blocks(result.chip):
            continue
        free_w = max(result.phase_power_w(phase) for phase in result.phases)
        lowest = evaluate(dvfs.clocked(result.chip, dvfs.clock_span(result.chip)[0]), result.workload)
        least_w = max(lowest.phase_power_w(phase) for phase in lowest.phases)
        before_s, before = 0.0, {}
        for cap_w in np.linspace(1.05 * free_w, 1.001 * least_w, 3):
            found = capped(result.chip, result.workload, float(cap_w))
            for phase, factor in found.factor.items():
                drawn_w = found.result.phase_power_w(phase)
                assert drawn_w <= cap_w * (1 + 1e-12)
                assert factor == 1.0 or drawn_w >= cap_w * (1 - 2e-3)
                assert factor <= before.get(phase, 1.0)
            assert found.result.total_s >= before_s * (1 - 1e-9)
            assert sum(found.result.energy_j.values()) == pytest.approx(found.result.power_w * found.result.total_s, rel=1e-9)
            before_s, before = found.result.total_s, found.factor


def test_a_cap_above_the_power_changes_nothing():
    found = capped(HETERO, LLM, 1000.0)
    assert found.factor == {"prefill": 1.0, "decode": 1.0}
    assert (found.result.total_s, found.result.energy_j) == (found.free.total_s, found.free.energy_j)


def test_a_cap_leaves_the_phase_alone_that_keeps_it():
    """hetero_v1's prefill computes at 42 W, its decode streams at 86 W: a cap between them slows the decode only."""
    found = capped(HETERO, LLM, 60.0)
    assert found.factor["prefill"] == 1.0
    assert found.factor["decode"] < 1.0
    assert found.result.time_to_first_token_s == found.free.time_to_first_token_s
    again = capped(HETERO, LLM, 60.0)
    assert (again.factor, again.result.total_j) == (found.factor, found.result.total_j)


def test_a_cap_that_no_clock_keeps_names_both_numbers():
    with pytest.raises(MappingError, match=r"prefill draws \d\d\.\d+ W at the lowest clocks .* power cap of 20 W"):
        capped(HETERO, LLM, 20.0)
    bare = changed(HETERO, **dict.fromkeys(("gpu", "npu", "sram"), BARE))
    with pytest.raises(MappingError, match=r"no block has voltage_points, more than the power cap of 20 W"):
        capped(bare, LLM, 20.0)


def test_the_fitted_drop_of_the_clock_is_not_applied_twice():
    """Long matrix work runs at the lower of the fitted clock and the capped one, never at their product."""
    chip = load_chip(ROOT / "chips/h100_sxm.toml")
    gpu = chip.blocks["gpu"]
    assert gpu.sustained_clock_share < 1.0
    sustained_ghz = gpu.clock_ghz * gpu.sustained_clock_share
    for factor in (1.0, 0.9, 0.826, 0.5):
        now = dvfs.clocked(chip, factor).blocks["gpu"]
        at_most = min(factor * gpu.clock_ghz, sustained_ghz)
        assert now.clock_ghz * now.sustained_clock_share == pytest.approx(at_most, rel=1e-12)


def test_caps_on_four_a100_come_near_what_was_measured():
    """LLaMA-65B on four A100 of 80 GB: Samsi et al., From Words to Watts (HPEC 2023), table III. Both rows
    were in view when the voltage at the top clock was chosen, so this anchors the curve; it is no blind check."""
    llama = ShapeSpec(name="llama_65b", layers=80, hidden=8192, heads=64, kv_heads=64, head_dim=128, intermediate=22016,
                      vocabulary=32000, gated=True, source="test")  # fmt: skip
    request = RequestSpec(batch=64, input_tokens=128, output_tokens=256)
    formats = dict.fromkeys(("weights", "activations", "attention", "feed_forward", "head", "kv_cache"), "fp16")
    workload = WorkloadSpec(name="llama_65b", model=expand(llama), request=request, precision=PrecisionSpec(**formats))
    chip = load_chip(ROOT / "chips/a100_sxm.toml", {"placement.tensor_parallel": 4})
    high = capped(chip, workload, 250.0).result
    for cap_w, energy, time in ((175.0, -0.2321, 0.067), (150.0, -0.34, 0.195)):
        low = capped(chip, workload, cap_w).result
        assert low.total_j / high.total_j - 1.0 == pytest.approx(energy, abs=0.08)
        assert low.total_s / high.total_s - 1.0 == pytest.approx(time, abs=0.05)


def test_the_least_energy_is_that_of_a_fine_scan():
    found = least_energy(HETERO, CHAT)
    low, high = dvfs.clock_span(HETERO)
    scan = [evaluate(dvfs.clocked(HETERO, f), CHAT).total_j for f in np.linspace(low, high, 121)]
    assert found.best.total_j == pytest.approx(min(scan), rel=2e-3)
    assert found.best.total_j <= min(point.total_j for point in found.points)


def test_a_tighter_limit_never_takes_less_energy():
    free = least_energy(HETERO, LLM)
    before = free.best.total_j
    for share in (0.95, 0.85, 0.8):
        limits = LimitsSpec(latency_ms=1e3 * share * free.best.result.total_s)
        found = least_energy(HETERO, attrs.evolve(LLM, limits=limits))
        assert found.result.total_s <= share * free.best.result.total_s
        assert found.best.total_j >= before
        before = found.best.total_j
    with pytest.raises(MappingError, match=r"no clocks keep all limits; .* latency is .* above the limit of 10 ms"):
        least_energy(HETERO, attrs.evolve(LLM, limits=LimitsSpec(latency_ms=10.0)))


def test_idle_energy_fills_the_period():
    free = least_energy(HETERO, LLM)
    period_s = 1.5 * free.best.result.total_s
    found = least_energy(HETERO, LLM, period_s=period_s)
    for point in found.points:
        idle_s = max(0.0, period_s - point.result.total_s)
        assert point.total_j == pytest.approx(point.result.total_j + found.idle_power_w * idle_s, rel=1e-12)
        assert bool(point.wrong) == (point.result.total_s > period_s)
    assert found.idle_power_w < evaluate(HETERO, LLM).energy_j["hbm_static"] * 10
    assert found.best.factor <= free.best.factor  # to finish early saves no more than the idle power


def test_boundaries_hold_each_other():
    """By hand: 450 W of chip, 500 W of board; eight, a host of 909 W, 10 % fans and 0.9 of supplies: 750 W a chip; PUE 1.2."""
    tables = {
        "board": BoardSpec(vrm_efficiency=0.9, source="test"),
        "server": ServerSpec(chips_per_server=8, host_power_w=909.0909090909, psu_efficiency=0.9, fan_share=0.1, source="test"),
        "facility": FacilitySpec(pue=1.2, source="test"),
    }
    added = boundary.added_power_w(attrs.evolve(HETERO, **tables), 1, 450.0)
    power_w = boundary.boundary_power_w(added)
    assert power_w == pytest.approx({"chip": 450.0, "board": 500.0, "wall": 750.0, "facility": 900.0})
    eight = boundary.boundary_power_w(boundary.added_power_w(attrs.evolve(HETERO, **tables), 8, 8 * 450.0))
    assert eight == pytest.approx({name: 8.0 * watt for name, watt in power_w.items()})


def test_sum_of_what_boundaries_add_is_the_outermost():
    for file in ("hetero_v1", "h100_sxm"):
        result = evaluate(load_chip(ROOT / f"chips/{file}.toml", {"facility.pue": 1.3, "facility.source": "test"}), CHAT)
        power_w = result.boundary_power_w
        parts = sum(sum(parts.values()) for parts in result.boundary_added_w.values())
        assert parts == pytest.approx(power_w["facility"], rel=1e-12)
        assert list(power_w.values()) == sorted(power_w.values())
        assert power_w["chip"] == result.power_w


def test_only_described_boundaries_exist():
    bare = evaluate(load_chip(ROOT / "chips/gpu_baseline.toml"), CHAT)
    assert list(bare.boundary_power_w) == ["chip"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("gpu.voltage_points", [[1.0, 0.6]], "at least two points"),
        ("gpu.voltage_points", [[1.0, 0.6], [0.9, 0.7]], "must rise"),
        ("gpu.voltage_points", [[1.0, 0.7], [2.0, 0.6]], "must rise"),
        ("gpu.voltage_points", [[1.0, "x"], [2.0, 0.6]], "a list of pairs of numbers"),
        ("gpu.voltage_points", [1.0, 2.0], "a list of pairs of numbers"),
        ("gpu.clock_ghz", 2.5, "must lie within the clocks of gpu.voltage_points, 0.2 to 2 GHz"),
        ("gpu.nominal_clock_ghz", 0.1, "must lie within the clocks of gpu.voltage_points, 0.2 to 2 GHz"),
        ("control.nominal_clock_ghz", 1.0, "means nothing without control.voltage_points"),
        ("noc.supply", "gpuu", "must name a block with a clock, did you mean gpu"),
        ("noc.supply", "hbm", "must name a block with a clock"),
        ("board.vrm_efficiency", 1.2, "must be at most 1"),
        ("facility.pue", 0.9, "must be >= 1"),
    ],
)
def test_bad_points_and_boundaries_are_refused(key, value, words):
    with pytest.raises(SpecError, match=words):
        load_chip(ROOT / "chips/hetero_v1.toml", {key: value, **({"facility.source": "test"} if "facility" in key else {})})


def test_a_server_needs_a_board():
    with pytest.raises(SpecError, match=r"server: needs \[board\] beside it"):
        load_chip(ROOT / "chips/gpu_baseline.toml", {"server.chips_per_server": 8, "server.host_power_w": 500.0,
                                                     "server.psu_efficiency": 0.9, "server.source": "test"})  # fmt: skip
