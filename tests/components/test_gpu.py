"""The GPU component: measured kernels, single keys that must act, vector work, formats and errors."""

from __future__ import annotations

import csv
from pathlib import Path

import attrs
import numpy as np
import pytest

from archmodel.components import memory
from archmodel.components.gpu import costs
from archmodel.costs import FIELDS, LIMITS, Surroundings
from archmodel.errors import MappingError
from archmodel.experts import ExpertFormats, ExpertWork, expert_kernels
from archmodel.operations import Kind, rows_from
from archmodel.spec.chip import CAPABILITIES
from archmodel.spec.toml import load_chip
from archmodel.units import FORMATS

ROOT = Path(__file__).parents[2]
ANCHORS = ROOT / "tests" / "anchors"
BF16 = FORMATS.index("bf16")
MEMORY = LIMITS.index("memory")
FIXED = LIMITS.index("fixed")


@pytest.fixture(params=["h100_sxm", "a100_sxm"])
def chip(request):
    return load_chip(ROOT / "chips" / f"{request.param}.toml")


@pytest.fixture
def h100():
    return load_chip(ROOT / "chips" / "h100_sxm.toml")


def around(chip, rows, **changes):
    gpu, l2, hbm = chip.blocks["gpu"], chip.blocks["l2"], chip.blocks["hbm"]
    base = {
        "buffer_byte": l2.capacity_mb * 1e6 * gpu.buffer_share,
        "buffer_byte_per_s": l2.bandwidth_byte_per_cycle * l2.clock_ghz * 1e9,
        "memory_byte_per_s": np.full(len(rows), memory.stream_byte_per_s(hbm)),
        "memory_latency_s": hbm.latency_ns * 1e-9,
    }
    return Surroundings(**{**base, **changes})


def measured(name, device):
    lines = (line for line in (ANCHORS / name).read_text().splitlines() if not line.startswith("#"))
    return [row for row in csv.DictReader(lines) if row["device"] == device]


def matmul(m, n, k, **more):
    base = {"name": "up", "kind": Kind.MATMUL, "compute_format": BF16, "weight_byte": 2.0, "input_byte": 2.0}
    return {**base, "output_byte": 2.0, "m": float(m), "n": float(n), "k": float(k), **more}


def attention(**more):
    base = {"name": "attention", "kind": Kind.ATTENTION, "compute_format": BF16, "causal": 1, "cached": 1, "sequences": 1.0,
            "q_tokens": 1.0, "kv_tokens": 4096.0, "heads": 32.0, "kv_heads": 8.0, "qk_dim": 128.0, "v_dim": 128.0,
            "kv_byte": 2.0, "input_byte": 2.0, "output_byte": 2.0}  # fmt: skip
    return {**base, **more}


def vector(**more):
    return {"name": "norm", "kind": Kind.VECTOR, "flop": 4e8, "read_byte": 2e8, "write_byte": 2e8, **more}


def experts(tokens, inner, hidden, routing):
    """Kernels of 16 experts, of which a token picks 2."""
    work = ExpertWork(tokens=tokens, hidden=hidden, intermediate=inner, matrices=2.0, experts=16.0, chosen=2.0, ranks=1.0,
                      routing=routing)  # fmt: skip
    formats = ExpertFormats(activation_byte=2.0, operand_byte=2.0, written_byte=2.0, weight_byte=2.0, compute_format=BF16)
    return [{"name": name, **columns} for name, columns in expert_kernels(work, formats)]


def run(chip, *records, reuse_byte=None, **changes):
    rows = rows_from(list(records))
    return costs(chip.blocks["gpu"], rows, around(chip, rows, **changes), reuse_byte=reuse_byte)


def check_error(predicted_us, rows, mean, median):
    error = predicted_us / np.array([float(row["latency_us"]) for row in rows]) - 1
    assert len(error) >= 100
    assert np.mean(np.abs(error)) < mean
    assert np.median(np.abs(error)) < median
    assert abs(np.mean(error)) < mean / 2


def test_peak_is_the_data_sheet(chip):
    gpu = chip.blocks["gpu"]
    peak_tflops = gpu.cores * gpu.macs_per_core_per_cycle["bf16"] * 2 * gpu.clock_ghz / 1e3
    assert peak_tflops == pytest.approx({"h100_sxm": 989.4, "a100_sxm": 312.0}[chip.name], rel=1e-3)
    peak_gb_per_s = memory.peak_byte_per_s(chip.blocks["hbm"]) / 1e9
    assert peak_gb_per_s == pytest.approx({"h100_sxm": 3352, "a100_sxm": 2039}[chip.name], rel=1e-3)


def test_measured_matmuls_of_families_never_fitted(chip):
    rows = [row for row in measured("gpu_gemm.csv", chip.name) if row["dtype"] == "bf16"]
    cache_byte = chip.blocks["l2"].capacity_mb * 1e6
    weight_byte = np.array([2.0 * float(row["n"]) * float(row["k"]) for row in rows])
    rotated_byte = weight_byte * np.minimum(5, np.ceil(cache_byte / weight_byte))
    part = run(chip, *(matmul(row["m"], row["n"], row["k"]) for row in rows), reuse_byte=rotated_byte)
    check_error(part.duration_s * 1e6, rows, *{"h100_sxm": (0.06, 0.045), "a100_sxm": (0.08, 0.055)}[chip.name])


def test_duration_covers_every_limit_and_utilisation_is_a_share(chip):
    rng = np.random.default_rng(3)
    shapes = np.floor(np.exp(rng.uniform(0, 9, (300, 3))))
    part = run(
        chip, *(matmul(*shape) for shape in shapes), *(attention(q_tokens=q, kv_tokens=q + 100) for q in shapes[:100, 0]),
        *(vector(flop=f, exp=f, fused=i % 2) for i, f in enumerate(shapes[:100, 0])),
    )  # fmt: skip
    assert np.all(part.duration_s >= part.limits_s.max(axis=1) * (1 - 1e-12))
    assert np.all((part.utilisation >= 0) & (part.utilisation <= 1))
    assert np.all(part.written_byte <= part.memory_byte + 1e-9)
    for name in FIELDS:
        assert np.all(np.isfinite(getattr(part, name)))
        assert np.all(getattr(part, name) >= 0)


def test_costs_do_not_depend_on_the_batch_they_are_computed_in(h100):
    records = [matmul(17, 4096, 512), attention(), vector(), matmul(1, 4096, 512), attention(q_tokens=512.0)]
    together = run(h100, *records)
    for index, record in enumerate(records):
        alone = run(h100, record)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(together, name)[index], getattr(alone, name)[0])


def test_half_the_memory_bandwidth_doubles_a_memory_bound_decode(h100):
    """U58: time doubles with HBM at half its bandwidth."""
    records = [matmul(1, 65536, 65536), attention(sequences=256.0, kv_tokens=65536.0)]
    full_byte_per_s = memory.stream_byte_per_s(h100.blocks["hbm"])
    whole = run(h100, *records)
    half = run(h100, *records, memory_byte_per_s=np.full(2, full_byte_per_s / 2))
    np.testing.assert_allclose(half.limits_s[:, MEMORY], 2 * whole.limits_s[:, MEMORY], rtol=1e-12)
    np.testing.assert_allclose(half.duration_s, 2 * whole.duration_s, rtol=0.01)
    assert list(whole.bound) == [MEMORY, MEMORY]


def test_latency_and_cache_bandwidth_act(h100):
    """U58: no key of the memory is without effect."""
    base = run(h100, matmul(1, 4096, 4096), matmul(8192, 8192, 8192))
    later = run(h100, matmul(1, 4096, 4096), matmul(8192, 8192, 8192), memory_latency_s=1.344e-6)
    np.testing.assert_allclose(later.duration_s - base.duration_s, 1e-6, rtol=1e-9)
    np.testing.assert_allclose(later.limits_s[:, FIXED] - base.limits_s[:, FIXED], 1e-6, rtol=1e-9)
    assert run(h100, matmul(8192, 8192, 8192), buffer_byte_per_s=3e12).duration_s[0] > base.duration_s[1]


def test_every_constant_of_the_unit_acts(chip):
    gpu = chip.blocks["gpu"]
    rng = np.random.default_rng(5)
    shapes = [np.floor(np.exp(rng.uniform(2, 9, 3))) for _ in range(60)]
    rows = rows_from(
        [matmul(*shape) for shape in (*shapes, (32768, 32768, 16384))] + [matmul(*shape, weight_byte=0.5) for shape in shapes]
        + [vector(read_byte=b, write_byte=0.0, capability=CAPABILITIES.index("quantise")) for b in (1e4, 1e7, 1e9)]
        + [attention(q_tokens=q[0], kv_tokens=q[0], kv_heads=kv) for q in shapes for kv in (8.0, 32.0)]
        + [attention(kv_tokens=q[0], kv_heads=kv) for q in shapes for kv in (1.0, 8.0, 32.0)]
        + [attention(sequences=32.0, kv_tokens=300.0), vector(), vector(exp=1e12)]
        + [{**vector(read_byte=b, write_byte=b), "capability": 0} for b in (1e4, 1e7, 3e7, 1e9)]
        + [kernel for shape in shapes for routing in (-1.0, 0.0, 1.2) for kernel in experts(*shape, routing)]
    )  # fmt: skip
    base = costs(gpu, rows, around(chip, rows)).duration_s
    skip = {"macs_per_core_per_cycle", "buffer", "memory", "source", "buffer_share", "capabilities", "layout",
            "voltage_points", "nominal_clock_ghz", "clock_static_share"}  # fmt: skip
    for field in attrs.fields(type(gpu)):
        value = getattr(gpu, field.name)
        if field.name in skip or "energy" in field.name or "power" in field.name:
            continue
        other = (64,) if field.name == "tile_sizes" else max(1, value // 4) if type(value) is int else value / 4
        if field.name in {"multicast", "overlap_exponent", "buffer_partitions"} or value == 0:
            other = value + 1.0
        changed = costs(attrs.evolve(gpu, **{field.name: other}), rows, around(chip, rows)).duration_s
        assert not np.allclose(changed, base, rtol=1e-6), field.name


def test_prefill_takes_longer_with_more_tokens(chip):
    """U48: 1, 64, 512 and 2048 tokens differ, and the work scales exactly."""
    tokens = np.array([1.0, 64.0, 512.0, 2048.0])
    linear = run(chip, *(matmul(t, 14336, 4096) for t in tokens))
    assert np.all(np.diff(linear.duration_s) > 0)
    np.testing.assert_array_equal(linear.mac / linear.mac[0], tokens)
    mixer = run(chip, *(attention(q_tokens=t, kv_tokens=t) for t in tokens))
    assert np.all(np.diff(mixer.duration_s) > 0)


def test_kv_traffic_is_the_same_fused_and_not(h100):
    """U22: Llama-3.1-8B, context 4096: 536,870,912 bytes of KV over 32 layers, by KV heads, both ways."""
    part = run(h100, attention(cached=0), attention(cached=0, materialised=1), attention())
    np.testing.assert_array_equal(32 * part.kv_traffic_byte[:2], 536_870_912)
    assert part.kv_traffic_byte[2] - part.kv_traffic_byte[0] == 8 * 2 * 128 * 2  # the new token, written
    assert part.duration_s[1] > part.duration_s[0]


def test_vector_row_by_hand(h100):
    copy, row = (vector(capability=CAPABILITIES.index(name)) for name in ("residual", "norm"))
    part = run(h100, copy, row)
    gpu = h100.blocks["gpu"]
    memory_s = 4e8 / memory.stream_byte_per_s(h100.blocks["hbm"])
    in_flight = gpu.cores * gpu.clock_ghz * 1e9 * gpu.vector_byte_per_core_per_cycle
    buffer_s = 4e8 / min(around(h100, part.mac).buffer_byte_per_s, in_flight)
    fixed_s = 1e-6 * gpu.vector_floor_us + 344e-9
    e = gpu.overlap_exponent
    lanes_s = part.limits_s[0, LIMITS.index("vector")]
    together = (memory_s**e + buffer_s**e + lanes_s**e) ** (1 / e)
    assert part.limits_s[0, MEMORY] == pytest.approx(memory_s, rel=1e-12)
    assert part.limits_s[1, MEMORY] == pytest.approx(memory_s / gpu.row_stream_efficiency, rel=1e-12)
    assert part.duration_s[0] == pytest.approx(fixed_s + together, rel=1e-9)
    assert (part.activation_traffic_byte[0], part.written_byte[0]) == (4e8, 2e8)


def test_fused_vector_row_takes_lanes_only(h100):
    part = run(h100, vector(fused=1))
    gpu = h100.blocks["gpu"]
    lanes = gpu.cores * gpu.clock_ghz * 1e9 * gpu.vector_flop_per_core_per_cycle * gpu.vector_efficiency
    assert part.duration_s[0] == pytest.approx(4e8 / lanes, rel=1e-12)
    assert part.memory_byte[0] == part.buffer_read_byte[0] == part.buffer_write_byte[0] == part.limits_s[0, FIXED] == 0


def test_activations_that_fit_stay_in_the_cache(h100):
    small, large = run(h100, vector(read_byte=1e5, write_byte=1e5), vector()).activation_traffic_byte
    assert small < 0.01 * 2e5
    assert large == 4e8


def test_scan_moves_its_state(h100):
    part = run(h100, {"name": "scan", "kind": Kind.SCAN, "flop": 1e6, "kv_byte": 1e9})
    assert part.kv_traffic_byte[0] == 1e9
    assert part.written_byte[0] == 5e8
    assert part.duration_s[0] > 1e9 / memory.peak_byte_per_s(h100.blocks["hbm"])


def test_narrow_formats_are_faster_where_compute_binds_and_where_weights_do(h100):
    fp8 = {"compute_format": FORMATS.index("fp8"), "weight_byte": 1.0, "input_byte": 1.0}
    for shape in ((8192, 8192, 8192), (1, 16384, 16384)):
        wide, narrow = run(h100, matmul(*shape), matmul(*shape, **fp8)).duration_s
        assert 1.6 < wide / narrow < 2.001


def test_unknown_format_is_refused_by_name(h100):
    with pytest.raises(MappingError, match=r"gpu: up computes in int4; this unit has bf16, fp16"):
        run(h100, matmul(1, 8, 8), matmul(1, 8, 8, compute_format=FORMATS.index("int4")))
