"""The NPU: bottleneck rule, traffic, attention, formats and errors."""

from __future__ import annotations

from itertools import pairwise

import attrs
import numpy as np
import pytest

from archmodel.components.npu import costs
from archmodel.costs import FIELDS, LIMITS, Surroundings
from archmodel.errors import MappingError
from archmodel.operations import Kind, rows_from
from archmodel.spec.chip import NpuSpec
from archmodel.units import FORMATS

INT8 = FORMATS.index("int8")


def make_spec(**changes):
    base = {
        "arrays": 4, "rows": 32, "cols": 32, "clock_ghz": 1.0, "macs_per_pe_per_cycle": {"int8": 1.0, "int4": 2.0},
        "dataflow": "ws", "vector_op_per_cycle": 512.0, "buffer": "sram", "memory": "dram", "source": "assumption: test",
        "double_buffered": True, "load_rows_per_cycle": 4,
    }  # fmt: skip
    return NpuSpec(**{**base, **changes})


def make_around(rows, buffer_byte=16e6, buffer_rate=1e30, memory_rate=1e12, latency_s=0.0):
    return Surroundings(
        buffer_byte=buffer_byte, buffer_byte_per_s=buffer_rate, memory_byte_per_s=np.full(len(rows), memory_rate),
        memory_latency_s=latency_s,
    )  # fmt: skip


def matmul(m, n, k, **more):
    base = {"name": "ffn_up", "kind": Kind.MATMUL, "m": m, "n": n, "k": k, "weight_byte": 1.0, "input_byte": 1.0}
    return rows_from([{**base, "output_byte": 1.0, "compute_format": INT8, **more}])


def attention(q_tokens, kv_tokens, **more):
    base = {
        "name": "attention", "kind": Kind.ATTENTION, "sequences": 1, "q_tokens": q_tokens, "kv_tokens": kv_tokens, "heads": 32,
        "kv_heads": 8, "qk_dim": 128, "v_dim": 128, "causal": 1, "kv_byte": 2.0, "input_byte": 2.0, "output_byte": 2.0,
        "compute_format": INT8,
    }  # fmt: skip
    return rows_from([{**base, **more}])


def run(spec, rows, resident=True, **around):
    return costs(spec, rows, make_around(rows, **around), resident=resident)


def limit(cost, name):
    return cost.limits_s[0, LIMITS.index(name)]


def test_the_slowest_level_is_the_duration_and_the_bottleneck():
    """100 bytes from memory at 5 B/cycle, 200 at the buffer (in and out) at 4 B/cycle, 10,000 operations at 1000 a cycle."""
    rows = rows_from([{"name": "norm", "kind": Kind.VECTOR, "flop": 10_000.0, "read_byte": 100.0}])
    cost = run(make_spec(vector_op_per_cycle=1000.0), rows, resident=False, buffer_rate=4e9, memory_rate=5e9)
    assert [limit(cost, name) * 1e9 for name in ("memory", "buffer", "vector")] == pytest.approx([20.0, 50.0, 10.0])
    assert cost.duration_s[0] * 1e9 == pytest.approx(50.0)
    assert LIMITS[cost.bound[0]] == "buffer"


def test_no_stall_at_infinite_bandwidth():
    for rows in (matmul(100, 300, 500), matmul(1, 4096, 4096), matmul(8, 64, 64, count=5.5)):
        cost = run(make_spec(), rows, resident=False, buffer_rate=np.inf, memory_rate=np.inf)
        assert cost.duration_s[0] == limit(cost, "matrix")


def test_time_doubles_at_half_the_bandwidth_when_memory_bound():
    rows = matmul(8, 14336, 4096)
    fast, slow = (run(make_spec(), rows, memory_rate=rate, buffer_byte=2e6) for rate in (100e9, 50e9))
    assert LIMITS[fast.bound[0]] == "memory"
    assert slow.duration_s[0] == 2.0 * fast.duration_s[0]
    narrow, narrower = (run(make_spec(), rows, buffer_rate=rate) for rate in (100e9, 50e9))
    assert LIMITS[narrow.bound[0]] == "buffer"
    assert limit(narrower, "buffer") == 2.0 * limit(narrow, "buffer")


def test_sram_size_changes_traffic_and_time_down_to_compulsory():
    rows = matmul(4096, 4096, 4096)
    sizes = 2.0 ** np.arange(16, 27)  # 64 KiB .. 64 MiB
    found = [run(make_spec(), rows, resident=False, buffer_byte=size, memory_rate=10e9) for size in sizes]
    traffic = [cost.memory_byte[0] for cost in found]
    times = [cost.duration_s[0] for cost in found]
    assert all(later <= earlier for earlier, later in pairwise(traffic))
    assert all(later <= earlier for earlier, later in pairwise(times))
    assert len(set(traffic)) > 6
    assert traffic[-1] == 50_331_648.0


def test_half_of_the_buffer_is_for_tiles_on_their_way():
    m, n, k = 512, 8192, 2048
    slices = 32 * 32 + m * 32 * 4  # a slice of B, and partial sums, beside all of A
    once, more = (run(make_spec(), matmul(m, n, k), resident=False, buffer_byte=2.0 * (m * k + slices) - e) for e in (0, 1))
    assert once.memory_byte[0] == m * k + k * n + m * n
    assert more.memory_byte[0] > once.memory_byte[0]
    kept = run(make_spec(), matmul(m, 1024, k), buffer_byte=1.05 * (m * k + m * 1024))  # activations wait in both halves
    assert kept.memory_byte[0] == k * 1024


def test_gigabytes_are_not_gibibytes():
    spec = make_spec(arrays=64)
    decimal, binary = (run(spec, matmul(1, n, k), memory_rate=1e12) for n, k in ((125_000, 128_000), (131_072, 131_072)))
    assert limit(decimal, "memory") == pytest.approx(16.0e-3, rel=1e-12)
    assert limit(binary, "memory") == pytest.approx(17.179869184e-3, rel=1e-12)


def test_one_mac_is_two_operations_and_the_peak_follows():
    rows = matmul(1, 1, 1)
    assert run(make_spec(), rows).mac[0] == 1.0
    spec = make_spec(arrays=1, rows=128, cols=128, dataflow="os", load_rows_per_cycle=128)
    cost = run(spec, matmul(128, 12_800, 1_000_000), resident=False, memory_rate=np.inf, buffer_rate=np.inf)
    assert 2.0 * cost.mac[0] / cost.duration_s[0] == pytest.approx(32.768e12, rel=1e-4)
    assert 2.0 * cost.mac[0] / cost.duration_s[0] <= 32.768e12


def test_a_buffer_too_small_for_a_tile_is_refused_with_the_numbers():
    with pytest.raises(MappingError, match=r"ffn_up.*sram: 12,288 bytes needed, 12,287 there"):
        run(make_spec(), matmul(512, 512, 512), buffer_byte=12_287.0)
    assert run(make_spec(), matmul(512, 512, 512), buffer_byte=12_288.0).duration_s[0] > 0.0
    assert run(make_spec(), matmul(1, 8, 8), buffer_byte=300.0).duration_s[0] > 0.0  # a small matrix needs a small tile
    with pytest.raises(MappingError, match=r"attention.*sram"):
        run(make_spec(), attention(1, 512), buffer_byte=1000.0)


def test_a_format_that_the_arrays_lack_is_refused():
    for rows in (matmul(8, 8, 8, compute_format=FORMATS.index("bf16")), attention(1, 8, compute_format=FORMATS.index("bf16"))):
        with pytest.raises(MappingError, match=r"npu: (ffn_up|attention) computes in bf16; this unit has int8, int4"):
            run(make_spec(), rows)


def test_the_compute_format_sets_the_rate_and_the_storage_the_traffic():
    spec = make_spec(load_rows_per_cycle=32)
    int8 = run(spec, matmul(256, 4096, 4096, weight_byte=0.515625))
    int4 = run(spec, matmul(256, 4096, 4096, weight_byte=0.515625, compute_format=FORMATS.index("int4")))
    assert int8.weight_traffic_byte[0] == int4.weight_traffic_byte[0] == 0.515625 * 4096 * 4096
    assert limit(int4, "matrix") == pytest.approx(limit(int8, "matrix") / 2, rel=0.01)


def test_experts_scale_with_their_expected_number():
    one, many = run(make_spec(arrays=1), matmul(3, 1408, 2048)), run(make_spec(arrays=1), matmul(3, 1408, 2048, count=4.625))
    for name in ("weight_traffic_byte", "mac", "buffer_read_byte"):
        assert getattr(many, name)[0] == pytest.approx(4.625 * getattr(one, name)[0])
    assert limit(many, "matrix") == pytest.approx(4.625 * limit(one, "matrix"), rel=0.02)


def test_activations_stay_in_the_buffer_when_they_fit():
    kept, spilled = (run(make_spec(), matmul(512, 2048, 2048), buffer_byte=size) for size in (4e6, 2e6))
    assert (kept.activation_traffic_byte[0], kept.weight_traffic_byte[0]) == (0.0, 2048**2)
    assert spilled.activation_traffic_byte[0] >= 2 * 512 * 2048
    assert spilled.written_byte[0] == 512 * 2048
    assert kept.duration_s[0] <= spilled.duration_s[0]


@pytest.mark.parametrize("materialised", [0, 1])
def test_decode_reads_keys_and_values_once_a_group(materialised):
    cost = run(make_spec(), attention(1, 4096, materialised=materialised))
    assert 32 * cost.kv_traffic_byte[0] == 536_870_912.0  # 32 layers; query heads would give 2,147,483,648
    assert cost.activation_traffic_byte[0] == materialised * 4 * 32 * 4096 * 2.0
    assert cost.mac[0] == 32 * 4096 * 256


def test_attention_counts_the_pairs_that_the_mask_leaves():
    for q, kv, window, causal in [
        (2048, 2048, 0, 1),
        (7, 20, 0, 1),
        (7, 20, 5, 1),
        (7, 20, 15, 1),
        (1, 20, 8, 1),
        (9, 9, 0, 0),
    ]:
        seen = np.zeros((q, kv), bool)
        for i in range(q):
            last = kv - q + i if causal else kv - 1
            seen[i, max(0, last - (window or kv) + 1) : last + 1] = True
        cost = run(make_spec(), attention(q, kv, window=window, causal=causal))
        assert cost.mac[0] == pytest.approx(32 * seen.sum() * 256, rel=1e-12)
        assert cost.kv_traffic_byte[0] == np.any(seen, axis=0).sum() * 8 * 256 * 2.0
    prefill = run(make_spec(), attention(2048, 2048, kv_heads=32))
    assert 2 * 32 * prefill.mac[0] == 1_100_048_498_688  # Llama-2-7b, 32 layers, exact causal half


def test_latent_attention_reads_one_vector_and_new_tokens_are_written():
    cost = run(make_spec(), attention(1, 1000, heads=128, kv_heads=1, qk_dim=576, v_dim=512, latent=1, cached=1))
    assert cost.kv_traffic_byte[0] == 1000 * 576 * 2.0 + 576 * 2.0
    assert cost.written_byte[0] == 576 * 2.0


def test_long_context_rereads_keys_and_values_when_neither_they_nor_the_queries_fit():
    roomy, tight = (run(make_spec(), attention(8192, 8192), buffer_byte=size) for size in (64e6, 1e6))
    once = 8192 * 8 * 256 * 2.0
    assert roomy.kv_traffic_byte[0] == once
    assert tight.kv_traffic_byte[0] > 2 * once
    assert tight.kv_traffic_byte[0] % once == 0.0


def test_fused_vector_work_costs_vector_time_only():
    record = {"name": "norm", "kind": Kind.VECTOR, "flop": 4e6, "exp": 1e6, "read_byte": 1e6, "write_byte": 1e6}
    spec = make_spec(command_cycles=100.0)
    alone, fused = (run(spec, rows_from([{**record, "fused": f}]), buffer_rate=1e9, latency_s=1e-6) for f in (0.0, 1.0))
    assert fused.duration_s[0] == pytest.approx(5e6 / 512 / 1e9)
    assert fused.memory_byte[0] == fused.buffer_read_byte[0] == limit(fused, "fixed") == 0.0
    assert alone.duration_s[0] == pytest.approx(100e-9 + 2e6 / 1e9)
    assert alone.memory_byte[0] == 0.0
    spilled = run(spec, rows_from([record]), buffer_byte=1e6, latency_s=1e-6)
    assert (spilled.activation_traffic_byte[0], spilled.written_byte[0]) == (2e6, 1e6)
    assert limit(spilled, "fixed") == pytest.approx(100e-9 + 1e-6)


def test_a_scan_moves_its_state():
    cost = run(make_spec(), rows_from([{"name": "scan", "kind": Kind.SCAN, "flop": 1e3, "kv_byte": 4096.0, "read_byte": 10.0}]))
    assert (cost.kv_traffic_byte[0], cost.written_byte[0], cost.activation_traffic_byte[0]) == (4096.0, 2048.0, 0.0)


def random_rows(rng, number):
    records = []
    for _ in range(number):
        m, n, k = np.exp(rng.uniform(0, 8, 3)).astype(int)
        heads = int(rng.choice([1, 2, 8]))
        q = int(rng.choice([1, 5, 100]))
        records.append(
            {
                "name": "row", "kind": Kind(rng.integers(4)), "m": m, "n": n, "k": k,
                "count": float(rng.choice([1.0, 2.5, 8.0])),
                "weight_byte": 0.5, "input_byte": 1.0, "output_byte": 2.0, "compute_format": INT8, "sequences": 3,
                "q_tokens": q, "kv_tokens": q + int(rng.integers(0, 3000)), "heads": 8, "kv_heads": heads, "qk_dim": 64,
                "v_dim": 64, "window": int(rng.choice([0, 64])), "causal": 1, "kv_byte": 1.0, "cached": 1,
                "materialised": int(rng.integers(2)), "flop": 1e5, "exp": 1e4, "read_byte": 1e6 * rng.random(),
                "write_byte": 1e6 * rng.random(), "fused": int(rng.integers(2)),
            }
        )  # fmt: skip
    return rows_from(records)


@pytest.mark.parametrize("dataflow", ["os", "ws", "is"])
def test_laws_of_the_npu(dataflow):
    rng = np.random.default_rng(11)
    for trial in range(25):
        spec = make_spec(
            dataflow=dataflow, arrays=int(rng.integers(1, 9)), rows=int(rng.integers(4, 65)), cols=int(rng.integers(4, 65)),
            double_buffered=bool(trial % 2), load_rows_per_cycle=int(rng.integers(1, 9)), command_cycles=50.0,
        )  # fmt: skip
        rows = random_rows(rng, 24)
        buffer_byte, rate = 2.0 * 64 * 64 * 8 * np.exp(rng.uniform(0, 6)), float(np.exp(rng.uniform(23, 28)))
        around = make_around(rows, buffer_byte, rate, float(rng.choice([0.1, 10.0])) * rate, 1e-7)
        cost = costs(spec, rows, around)
        fixed_s, others_s = cost.limits_s[:, -1], cost.limits_s[:, :-1].max(axis=1)
        assert np.all(cost.duration_s >= (fixed_s + others_s) * (1 - 1e-12))
        assert np.all((cost.utilisation >= 0.0) & (cost.utilisation <= 1.0 + 1e-12))
        assert np.all(cost.written_byte <= cost.memory_byte * (1 + 1e-12))
        assert np.all(np.isfinite(np.concatenate([getattr(cost, name).ravel() for name in FIELDS])))
        assert np.all(cost.buffer_write_byte >= (cost.memory_byte - cost.written_byte) * (1 - 1e-12))
        better = [
            (attrs.evolve(spec, arrays=spec.arrays + 1), around),
            (attrs.evolve(spec, load_rows_per_cycle=spec.load_rows_per_cycle + 1), around),
            (attrs.evolve(spec, double_buffered=True), around),
            (spec, attrs.evolve(around, buffer_byte=1.7 * around.buffer_byte)),
            (spec, attrs.evolve(around, buffer_byte_per_s=1.7 * around.buffer_byte_per_s)),
            (spec, attrs.evolve(around, memory_byte_per_s=1.7 * around.memory_byte_per_s)),
        ]
        for faster, near in better:
            assert np.all(costs(faster, rows, near).duration_s <= cost.duration_s * (1 + 1e-12))
        again = costs(spec, rows, around)
        assert all(np.array_equal(getattr(again, name), getattr(cost, name)) for name in FIELDS)
