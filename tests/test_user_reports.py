"""Faults that users reported against other tools, end to end: the small check of each report and its right value.

Reports that belong to one part are tested with that part (parameters and cache in test_sizes.py, arrays in
kernels/test_systolic.py and components/test_npu.py, memory and links in theirs, files in test_bad_input.py).
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import attrs
import pytest
from scenes import BASELINE, HETERO, ROOT, changed

from archmodel.components import link, memory
from archmodel.evaluate import evaluate
from archmodel.result import Result
from archmodel.spec.shape import ShapeSpec, expand
from archmodel.spec.toml import load_workload
from archmodel.spec.workload import PrecisionSpec, RequestSpec, WorkloadSpec

LLAMA = load_workload(ROOT / "workloads/llama3_8b.toml")
MAIN = load_workload(ROOT / "workloads/llm_100b.toml")


def one_matrix(fmt: str, hidden: int, intermediate: int) -> WorkloadSpec:
    """A model that is almost only one pair of matrices, decoded at batch 1."""
    shape = ShapeSpec(name="wide", layers=1, hidden=hidden, heads=1, head_dim=1, intermediate=intermediate, gated=False,
                      vocabulary=1, source="test")  # fmt: skip
    precision = PrecisionSpec(
        weights=fmt, activations="fp16", attention="fp16", feed_forward="fp16", head="fp16", kv_cache="fp16"
    )
    request = RequestSpec(batch=1, input_tokens=1, output_tokens=2)
    return WorkloadSpec(name="wide", model=expand(shape), request=request, precision=precision)


def weight_bound_chip(gb_per_s: float):
    """The conventional GPU with endless compute and exactly `gb_per_s` of memory bandwidth."""
    return changed(
        BASELINE,
        gpu={
            "clock_ghz": 20.0, "cores": 512, "matrix_efficiency": 1.0, "matmul_stream_efficiency": 1.0, "dequantise_flop": 0.0,
            "kernel_floor_us": 0.0, "kernel_ramp_us": 0.0, "overlap_exponent": 64.0, "stream_byte_per_core_per_cycle": 1e6,
            "feed_byte_per_core_per_cycle": 1e6,
        },
        hbm={"channels": 1000, "channel_bit": 8, "data_rate_gbit_per_s": gb_per_s / 1000.0, "stream_efficiency": 1.0,
             "latency_ns": 0.0},
        l2={"bandwidth_byte_per_cycle": 1e9, "latency_ns": 0.0},
        fabric={"lanes": 10**7, "lane_rate_gt_per_s": 1000.0, "latency_ns": 0.0},
    )  # fmt: skip


def matrix_s(result, name: str) -> float:
    row = max(i for i, n in enumerate(result.table.rows.name) if n == name)
    return float(result.table.timeline.duration_s[row])


def test_u38_four_bit_weights_take_half_a_byte_and_the_time_of_half_a_byte():
    # 70e9 parameters of 4 bits over 3.35e12 B/s take 10.4478 ms; a thousandth of that here
    model = one_matrix("int4", hidden=10_000, intermediate=7_000)
    result = evaluate(weight_bound_chip(3350.0), model)
    assert matrix_s(result, "ffn_up") == pytest.approx(10.4478e-6, rel=0.03)


def test_u58_half_the_bandwidth_doubles_the_time_of_a_memory_bound_decode():
    model = one_matrix("fp16", hidden=16_384, intermediate=65_536)
    whole, half = (matrix_s(evaluate(weight_bound_chip(gb), model), "ffn_up") for gb in (1000.0, 500.0))
    assert half == pytest.approx(2.0 * whole, rel=1e-3)


def test_u79_gb_and_gib_are_told_apart():
    tier = weight_bound_chip(1000.0).blocks["hbm"]
    assert 16e9 / memory.stream_byte_per_s(tier) == pytest.approx(16.000e-3, rel=1e-9)
    assert 16 * 2**30 / memory.stream_byte_per_s(tier) == pytest.approx(17.179869184e-3, rel=1e-9)


def test_u64_mac_energy_is_the_table_times_the_macs():
    result = evaluate(HETERO, MAIN)
    macs = sum(step.weight * float((result.table.costs.mac * (result.table.owner == 1)) @ step.count) for step in result.steps)
    assert result.energy_j["npu_mac"] == pytest.approx(macs * 0.1e-12, rel=1e-12)


def test_u66_links_and_static_power_are_in_the_total():
    result = evaluate(HETERO, MAIN)
    interposer = HETERO.blocks["interposer"]
    assert result.energy_j["interposer"] == pytest.approx(float(link.energy_j(interposer, result.traffic_byte()["interposer"])))
    assert sum(result.energy_j.values()) == pytest.approx(result.total_j, rel=1e-9)
    assert result.energy_j["hbm_static"] == pytest.approx(12.0 * result.total_s)


def test_u69_u70_power_is_energy_over_time_and_time_knows_no_energy():
    base, dear = evaluate(HETERO, MAIN), evaluate(changed(HETERO, hbm={"energy_pj_per_bit": 36.0}), MAIN)
    assert base.power_w == pytest.approx(base.total_j / base.total_s, rel=1e-12)
    assert dear.total_s == base.total_s
    assert dear.power_w > base.power_w


def test_u75_tokens_per_watt_are_tokens_per_joule():
    result = evaluate(HETERO, MAIN)
    assert result.output_tokens_per_s / result.power_w == pytest.approx(result.tokens_per_joule, rel=1e-12)
    assert result.tokens_per_joule == pytest.approx(8 * 256 / result.total_j, rel=1e-12)


def test_u86_one_output_token_is_prefill_only():
    result = evaluate(HETERO, attrs.evolve(LLAMA, request=RequestSpec(batch=1, input_tokens=64, output_tokens=1)))
    assert result.time_per_output_token_s is None
    assert result.total_s == result.time_to_first_token_s
    assert result.phases == ("prefill",)


def test_u09_the_policy_of_windowed_layers_is_named_and_counts():
    path = ROOT / "tests/anchors/model_configs/gpt-oss-20b.json"
    workload = load_workload(path, request=RequestSpec(batch=32, input_tokens=8191, output_tokens=1))
    workload = attrs.evolve(workload, precision=PrecisionSpec(weights="int8", activations="fp16", attention="fp16",
                            feed_forward="int8", head="fp16", kv_cache="fp16", state="fp16"))  # fmt: skip
    held = []
    for policy in ("capped", "full"):
        result = evaluate(changed(HETERO, placement={"window_policy": policy}), workload)
        held.append(next(b.byte for b in result.residency.buffers if b.what == "KV cache"))
    assert held == [6_543_114_240, 12_884_901_888]


def power_of(tokens: int, total_s: float, total_j: float) -> tuple[float, float, float]:
    """Mean power [W], tokens/s and tokens/J as a result has them."""
    run = SimpleNamespace(tokens=tokens, total_s=total_s, total_j=total_j)
    return Result.power_w.fget(run), Result.output_tokens_per_s.fget(run), Result.tokens_per_joule.fget(run)


def test_u69_mean_power_is_energy_over_time_not_over_cycles():
    # 2.11793e7 pJ in 10,000 cycles of 0.63 ns are 3361.79 mW
    assert power_of(1, 10_000 * 0.63e-9, 2.11793e7 * 1e-12)[0] == pytest.approx(3.36179, rel=1e-5)


def test_u69_twice_the_clock_is_twice_the_power_of_the_same_work():
    # no voltage points, so that the energy of an event stays; the arrays alone limit a prompt
    endless = {"hbm": {"channels": 10**5, "latency_ns": 0.0}, "sram": {"bandwidth_byte_per_cycle": 1e7, "latency_ns": 0.0}}
    bare = {"voltage_points": (), "nominal_clock_ghz": 0.0, "clock_static_share": 0.0}
    power_w = []
    for clock in (0.5, 1.0):
        chip = changed(HETERO, npu={**bare, "clock_ghz": clock}, gpu={**bare}, **endless)
        result = evaluate(changed(chip, sram={**bare}), attrs.evolve(MAIN, request=RequestSpec(batch=8, input_tokens=1024,
                                                                                              output_tokens=1)))  # fmt: skip
        power_w.append(result.energy_j["npu_mac"] / result.segments_s["compute_npu"])
    assert power_w[1] / power_w[0] == pytest.approx(2.0, rel=0.01)


def test_u70_energy_tables_leave_the_time_alone():
    dear = changed(
        HETERO,
        gpu={"mac_energy_pj": {fmt: 10.0 * pj for fmt, pj in HETERO.blocks["gpu"].mac_energy_pj.items()}},
        npu={"mac_energy_pj": {"int8": 1.0}, "operand_energy_pj_per_bit": 2.0},
        hbm={"energy_pj_per_bit": 36.0},
    )
    cheap, costly = evaluate(HETERO, MAIN), evaluate(dear, MAIN)
    assert (costly.total_s, costly.segments_s) == (cheap.total_s, cheap.segments_s)
    assert costly.energy_j["npu_mac"] == pytest.approx(10.0 * cheap.energy_j["npu_mac"])
    assert costly.total_j > cheap.total_j


def test_u70_latency_is_cycles_over_the_clock():
    # 1,000,000 cycles at 1 GHz take 1.000 ms: a control core that spends them on each exception, once a step
    control = {"exceptions_per_step": 1.0, "clock_ghz": 1.0}
    none = evaluate(changed(HETERO, control={**control, "exception_cycles": 0.0}), LLAMA)
    some = evaluate(changed(HETERO, control={**control, "exception_cycles": 1e6}), LLAMA)
    assert some.time_to_first_token_s - none.time_to_first_token_s == pytest.approx(1e-3, rel=1e-6)


def test_u75_tokens_a_second_a_watt_are_tokens_a_joule():
    # 100 tokens/s at 25 W: 4 tokens/s/W, 4 tokens/J, 0.25 J/token, 14,400 tokens/Wh
    watt, tokens_per_s, tokens_per_joule = power_of(100, 1.0, 25.0)
    assert (watt, tokens_per_s, tokens_per_joule) == (25.0, 100.0, 4.0)
    assert tokens_per_s / watt == tokens_per_joule
    assert 1.0 / tokens_per_joule == 0.25
    assert tokens_per_joule * 3600.0 == 14_400.0
    result = evaluate(HETERO, MAIN)
    assert result.output_tokens_per_s / result.power_w == pytest.approx(result.tokens_per_joule, rel=1e-12)
    assert {name: result.tokens / result.total_s / power_w for name, power_w in result.boundary_power_w.items()}["chip"] == (
        pytest.approx(result.tokens_per_joule, rel=1e-12)
    )


def peak_mib(tokens: int) -> int:
    """Peak resident memory of a process that evaluates a prompt of `tokens` with kernels already compiled."""
    program = (
        "import resource\n"
        "from archmodel import evaluate, load_chip, load_workload\n"
        f"chip = load_chip({str(ROOT / 'chips/hetero_v1.toml')!r})\n"
        f"workload = load_workload({str(ROOT / 'workloads/llm_100b.toml')!r}, {{'request.input_tokens': {tokens}}})\n"
        "evaluate(chip, workload)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return int(run.stdout)


def test_u55_memory_does_not_grow_with_the_prompt():
    evaluate(HETERO, MAIN)  # compiles what is not compiled yet
    short, long = peak_mib(4096), peak_mib(32768)
    assert long < 1.2 * short
