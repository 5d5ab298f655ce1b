"""Laws that hold for every chip and workload, on seeded random ones."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from scenes import HETERO, ROOT, changed, random_chip, random_workload

from archmodel import sizes
from archmodel.components import dvfs
from archmodel.costs import LIMITS
from archmodel.evaluate import evaluate
from archmodel.experts import exponent
from archmodel.matrices import layer_matrices
from archmodel.operations import Kind
from archmodel.spec.chip import GpuSpec, NpuSpec
from archmodel.spec.toml import load_workload
from archmodel.spec.workload import PrecisionSpec, RequestSpec
from archmodel.units import FORMATS, element_bytes

SEEDS = range(40)


def scene(seed):
    rng = np.random.default_rng(seed)
    return random_chip(rng), random_workload(rng)


@pytest.fixture(scope="module", params=SEEDS)
def result(request):
    return evaluate(*scene(request.param))


def test_segments_add_up(result):
    assert sum(result.segments_s.values()) == pytest.approx(result.total_s, rel=1e-9)
    for phase in result.phases:
        assert sum(result.phase_segments_s(phase).values()) == pytest.approx(result.phase_s(phase), rel=1e-9)
    assert all(value >= -1e-12 for value in result.segments_s.values())
    assert sum(result.phase_s(phase) for phase in result.phases) == pytest.approx(result.total_s, rel=1e-9)


def test_no_row_beats_its_limits_or_a_peak(result):
    costs, rows = result.table.costs, result.table.rows
    real = rows.kind >= 0
    assert np.all(costs.duration_s[real] >= costs.limits_s[real].max(axis=1) * (1 - 1e-12))
    peaks = result.soc.peaks_per_s()
    for number, name in enumerate(result.soc.units):
        mine = np.flatnonzero((result.table.owner == number) & np.isin(rows.kind, [Kind.MATMUL, Kind.ATTENTION]))
        peak = np.array([peaks[name].get(FORMATS[f], np.inf) for f in rows.compute_format[mine]])
        assert np.all(costs.duration_s[mine] >= 2.0 * costs.mac[mine] / peak * (1 - 1e-9))


def test_no_block_delivers_more_than_it_can(result):
    for step in result.steps:
        assert np.all(step.byte <= result.soc.shared_byte_per_s * step.total_s * 2 * (1 + 1e-9)), "two directions at most"
        tiers = len(result.soc.tiers)
        assert np.all(step.byte[:tiers] <= result.soc.shared_byte_per_s[:tiers] * step.total_s * (1 + 1e-9))
    assert all(0.0 <= value <= 1.0 for value in result.utilisation.values())
    assert np.all((result.table.costs.utilisation >= 0.0) & (result.table.costs.utilisation <= 1.0 + 1e-12))


def test_macs_are_those_of_the_model(result):
    """Matrix work of a decode step, counted here from the model alone."""
    step, model = result.steps[1], result.workload.model
    rows = result.table.rows
    done = float(((rows.kind == Kind.MATMUL) * result.table.costs.mac) @ step.count)
    flop = sizes.flops_per_token(model)
    assert 2.0 * done == pytest.approx(step.step.sequences * (flop.linear + flop.head), rel=1e-9)


def test_weights_are_read_at_least_once_a_step(result):
    model, precision = result.workload.model, result.precision
    for step in result.steps:
        least = 0.0
        for kind in model.order:
            layer = model.kinds[kind]
            for part, matrices in layer_matrices(layer, model.hidden).items():
                stored = precision.embedding or precision.weights if part == "router" else precision.weights
                times = 1.0
                if part == "experts" and layer.moe is not None:
                    moe = layer.moe
                    routing = exponent(step.step.routing)
                    times = sizes.expected_distinct_experts(moe.experts, moe.experts_per_token, step.step.tokens, routing)
                least += times * element_bytes(stored) * sum(matrix.elements for matrix in matrices)
        read = float(result.table.costs.weight_traffic_byte @ step.count)
        assert read >= least * (1 - 1e-9)


def test_bytes_over_the_links_are_those_of_the_tiers_behind_them(result):
    byte = result.traffic_byte()
    if "interposer" in byte:
        assert byte["interposer"] == pytest.approx(byte["hbm"] + byte["ddr"], rel=1e-9)
        assert byte["noc"] >= (byte["sram"] + byte["interposer"]) * (1 - 1e-9)
    else:
        assert byte["fabric"] >= (byte["l2"] + byte["hbm"]) * (1 - 1e-9)


def test_energy_is_counts_times_table_and_static_times_time(result):
    chip, costs, energy = result.chip, result.table.costs, result.energy_j
    count = sum(step.weight * step.count for step in result.steps)
    rows = result.table.rows
    for number, (name, unit) in enumerate(result.soc.units.items()):
        mine = np.flatnonzero((result.table.owner == number) & (costs.mac > 0))
        plain = [i for i in mine if isinstance(unit, NpuSpec) or rows.experts[i] == 0]
        joule = {i: float(costs.mac[i]) * count[i] * unit.mac_energy_pj[FORMATS[rows.compute_format[i]]] for i in mine}
        found = energy[f"{name}_mac"] / dvfs.energy_factors(chip)[name]  # by hand in test_power.py
        if len(plain) == len(mine):
            assert found == pytest.approx(sum(joule.values()) * 1e-12 * chip.power.scale, rel=1e-9, abs=1e-15)
        else:  # tiles of experts are multiplied whole
            assert found >= sum(joule.values()) * 1e-12 * chip.power.scale * (1 - 1e-9)
    for name, block in chip.blocks.items():
        if getattr(block, "static_power_w", 0.0):
            assert energy[f"{name}_static"] == pytest.approx(
                block.static_power_w * dvfs.static_factor(block) * result.total_s * chip.power.scale, rel=1e-12
            )
    assert sum(energy.values()) == pytest.approx(result.total_j, rel=1e-9)


def test_units_fit_together(result):
    assert result.output_tokens_per_s / result.tokens_per_joule == pytest.approx(result.power_w, rel=1e-9)
    further = result.workload.request.output_tokens - 1
    if further:
        assert result.time_per_output_token_s * further + result.time_to_first_token_s == pytest.approx(result.total_s)
    else:
        assert result.time_per_output_token_s is None


def test_every_gap_has_a_cause(result):
    for step in result.steps:
        out = step.program.simulated
        for event in np.flatnonzero(out.start_s > 0.0):
            cause = out.wait[event]
            if cause >= 0:
                assert out.end_s[cause] == pytest.approx(out.start_s[event], abs=1e-12 + 1e-9 * out.start_s[event])
            else:
                assert cause == -2, "an event that waited for no event waited for its dispatch"


@pytest.mark.parametrize("seed", range(6))
def test_same_input_same_output_to_the_bit(seed):
    one, two = evaluate(*scene(seed)), evaluate(*scene(seed))
    assert one.total_s == two.total_s
    assert one.energy_j == two.energy_j
    assert all(
        np.array_equal(a.program.simulated.end_s, b.program.simulated.end_s) for a, b in zip(one.steps, two.steps, strict=True)
    )


MORE = {
    "bandwidth": lambda c: {"hbm": {"channels": c.blocks["hbm"].channels * 2}},
    "cores": lambda c: {"gpu": {"cores": c.blocks["gpu"].cores * 2}},
    "clock": lambda c: {
        "gpu": {
            "clock_ghz": c.blocks["gpu"].clock_ghz * 1.3,
            "voltage_points": (),
            "nominal_clock_ghz": 0.0,
            "clock_static_share": 0.0,
        }
    },
    "latency": lambda c: {"hbm": {"latency_ns": c.blocks["hbm"].latency_ns / 2}},
    "cache": lambda c: {c.blocks["gpu"].buffer: {"capacity_mb": c.blocks[c.blocks["gpu"].buffer].capacity_mb * 2}},
    "arrays": lambda c: {"npu": {"arrays": c.blocks["npu"].arrays * 2}} if "npu" in c.blocks else {},
    "dispatch": lambda c: {"control": {"dispatch_cycles": 0.0}} if "control" in c.blocks else {},
    "network": lambda c: {"noc": {"lanes": c.blocks["noc"].lanes * 2}} if "noc" in c.blocks else {},
}


@pytest.mark.parametrize("what", MORE)
@pytest.mark.parametrize("seed", range(12))
def test_more_is_never_slower(seed, what):
    chip, workload = scene(100 + seed)
    chip = changed(chip, placement={"micro_batches": 1})
    before = evaluate(chip, workload).total_s
    after = evaluate(changed(chip, **MORE[what](chip)), workload).total_s
    assert after <= before * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_no_memory_stall_at_endless_bandwidth(seed):
    chip, workload = scene(200 + seed)
    buffer = chip.blocks["gpu"].buffer
    wide = {"hbm": {"channels": 10**6, "data_rate_gbit_per_s": 1000.0}, buffer: {"bandwidth_byte_per_cycle": 1e12}}
    wide["gpu"] = {"stream_byte_per_core_per_cycle": 1e12, "vector_byte_per_core_per_cycle": 1e12}
    for link in ("noc", "interposer", "fabric"):
        if link in chip.blocks:
            wide[link] = {"lanes": 10**7, "lane_rate_gt_per_s": 1000.0, "packet_overhead_bytes": 0.0}
    result = evaluate(changed(chip, **wide), workload)
    assert result.segments_s["memory"] <= 1e-6 * result.total_s


@pytest.mark.parametrize("seed", range(8))
def test_fewer_samples_integrate_the_decode(seed):
    rng = np.random.default_rng(300 + seed)
    chip, workload = random_chip(rng), random_workload(rng)
    workload = attrs.evolve(workload, request=RequestSpec(batch=3, input_tokens=40, output_tokens=200))
    fast, full = evaluate(chip, workload), evaluate(chip, workload, every_token=True)
    assert fast.decode_s == pytest.approx(full.decode_s, rel=5e-3)
    assert fast.total_j == pytest.approx(full.total_j, rel=5e-3)


def test_main_job_integrates_within_half_a_percent():
    workload = load_workload(ROOT / "workloads/llm_100b.toml")
    fast, full = evaluate(HETERO, workload), evaluate(HETERO, workload, every_token=True)
    assert fast.decode_s == pytest.approx(full.decode_s, rel=5e-3)
    assert len(fast.steps) < 10 < len(full.steps)


def test_only_the_energy_table_changes_energy_and_nothing_else():
    workload = load_workload(ROOT / "workloads/llm_100b.toml")
    one = evaluate(HETERO, workload)
    two = evaluate(changed(HETERO, npu={"mac_energy_pj": {"int8": 0.2}}), workload)
    assert two.total_s == one.total_s
    assert two.energy_j["npu_mac"] == pytest.approx(2.0 * one.energy_j["npu_mac"], rel=1e-12)


def test_two_units_that_stream_at_once_slow_each_other():
    """Micro-batches overlap GPU and NPU; on a starved HBM the overlap costs both, on a wide one neither."""
    workload = load_workload(ROOT / "workloads/llm_100b_moe.toml")
    narrow = changed(HETERO, hbm={"channels": 44}, placement={"micro_batches": 2})

    def stretch(chip):
        step = evaluate(chip, workload).steps[1]
        out, rows = step.program.simulated, step.program.events.row
        alone = evaluate(chip, workload).table.timeline.duration_s[rows]
        return float(((out.end_s - out.start_s) / np.maximum(alone, 1e-15))[alone > 0].max())

    assert stretch(narrow) > 1.2
    assert stretch(changed(narrow, hbm={"channels": 44 * 64}, interposer={"lanes": 768 * 16})) < stretch(narrow)


def test_overlapping_micro_batches_can_pay_in_prefill():
    workload = load_workload(ROOT / "workloads/llm_100b.toml")
    serial = evaluate(HETERO, workload)
    overlapped = evaluate(changed(HETERO, placement={"micro_batches": 4}), workload)
    assert overlapped.time_to_first_token_s < 0.9 * serial.time_to_first_token_s
    assert overlapped.time_to_first_token_s >= max(serial.busy_s("prefill")["gpu"], serial.busy_s("prefill")["npu"]) * 0.98


def test_stacked_memory_takes_fifteen_percent_more_power_and_is_not_slower():
    from archmodel.spec.toml import load_chip

    workload = load_workload(ROOT / "workloads/llm_100b.toml")
    flat, stacked = evaluate(HETERO, workload), evaluate(load_chip(ROOT / "chips/hetero_v1_stacked.toml"), workload)
    assert stacked.total_s <= flat.total_s
    assert stacked.power_w == pytest.approx(1.15 * flat.power_w, rel=2e-3)


@pytest.mark.parametrize(
    "request_", [(1, 1, 1), (1, 1, 2), (1, 1000, 1), (7, 3, 5)], ids=lambda r: f"batch{r[0]}-in{r[1]}-out{r[2]}"
)
def test_smallest_requests(request_):
    batch, tokens, out = request_
    workload = load_workload(ROOT / "workloads/llama3_8b.toml")
    workload = attrs.evolve(workload, request=RequestSpec(batch=batch, input_tokens=tokens, output_tokens=out))
    result = evaluate(HETERO, workload)
    assert np.isfinite(result.total_s)
    assert (result.time_per_output_token_s is None) == (out == 1)


def test_u22_cache_traffic_is_the_same_fused_and_not():
    workload = load_workload(ROOT / "workloads/llama3_8b.toml")
    workload = attrs.evolve(workload, request=RequestSpec(batch=1, input_tokens=4096, output_tokens=2), precision=PrecisionSpec(
        weights="fp16", activations="fp16", attention="fp16", feed_forward="int8", head="fp16", kv_cache="fp16"))  # fmt: skip
    read = []
    for fused in (True, False):
        result = evaluate(changed(HETERO, placement={"fused_attention": fused}), workload)
        attention = result.table.rows.kind == Kind.ATTENTION
        read.append(float((result.table.costs.kv_traffic_byte * attention) @ result.steps[1].count) - 131_072)
    # 4096 tokens in the cache and the new one, 131,072 B a token; the new one is also written
    assert read == pytest.approx([4097 * 131_072] * 2, rel=1e-12)


def test_u48_latency_rises_with_the_prompt():
    workload = load_workload(ROOT / "workloads/llama3_8b.toml")
    times = []
    for tokens in (1, 64, 512, 2048):
        request = RequestSpec(batch=1, input_tokens=tokens, output_tokens=1)
        times.append(evaluate(HETERO, attrs.evolve(workload, request=request)).time_to_first_token_s)
    assert times == sorted(times)
    assert times[3] > 3.5 * times[2]


def test_u40_head_runs_on_the_last_token_only():
    workload = load_workload(ROOT / "workloads/llama3_8b.toml")
    workload = attrs.evolve(workload, request=RequestSpec(batch=1, input_tokens=2048, output_tokens=1))
    result = evaluate(HETERO, workload)
    head = result.table.rows.name.index("head")
    assert 2 * result.table.costs.mac[head] * result.steps[0].count[head] == 1_050_673_152


def test_u104_busy_and_idle_make_the_total(result):
    for name, busy in result.busy_s().items():
        assert 0.0 <= busy <= result.total_s * (1 + 1e-9), name


def test_limits_are_named_as_the_costs_are():
    assert LIMITS == ("matrix", "vector", "feed", "buffer", "memory", "fixed")
    assert isinstance(HETERO.blocks["gpu"], GpuSpec)
    assert isinstance(HETERO.blocks["npu"], NpuSpec)


def test_the_encoder_tokens_of_an_encoder_decoder_enter_the_chip_too():
    request = RequestSpec(batch=3, input_tokens=100, output_tokens=2)
    result = evaluate(HETERO, load_workload(ROOT / "tests/anchors/model_configs/T5-base.json", request=request))
    # embeddings of 100 encoder tokens and the first decoder token of three sequences, 768 wide, FP16
    assert result.steps[0].byte[result.soc.shared.index("pcie")] >= 3 * 101 * 768 * 2
