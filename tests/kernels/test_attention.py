"""GPU attention: oracles of the mask, the tiles and the blocks of each kernel; traffic by hand; laws."""

from __future__ import annotations

import numpy as np
import pytest
from attention_oracle import context_cycles, lane_cycles, score_count, stack_cycles, tile_keys

from archmodel.kernels import attention as attn

CORES = attn.AttentionCores(
    cores=16.0, tile=64.0, stacked_heads=32.0, split_waves=8.0, matrix_efficiency=0.6,
    vector_flop=64.0, exp=8.0, dequantise_flop=4.0, feed_byte=64.0, block_byte=12.0, cache_byte=2e6, cache_partitions=2.0,
    cache_byte_per_cycle=500.0, latency=500.0, floor=8000.0, context_floor=15000.0, extra_floor=3000.0, ramp=5000.0,
    vector_ramp=4000.0, context_ramp=3000.0,
)  # fmt: skip
LIMITS = [attn.MATRIX, attn.VECTOR, attn.FEED, attn.BUFFER, attn.MEMORY, attn.FIXED]
COLD = np.inf
BF16 = (2.0, 2.0, 2.0, 2.0)
NAMES = ("sequences", "q_tokens", "kv_tokens", "heads", "kv_heads", "qk_dim", "v_dim", "window", "causal", "latent",
         "materialised", "cached")  # fmt: skip
LLAMA = {"sequences": 1, "q_tokens": 1, "kv_tokens": 4096, "heads": 32, "kv_heads": 8, "qk_dim": 128, "v_dim": 128,
         "window": 0, "causal": 1, "latent": 0, "materialised": 0, "cached": 1}  # fmt: skip


def row(**changes):
    return np.array([{**LLAMA, **changes}[name] for name in NAMES], dtype=float)


def run(shapes, width=BF16, core=CORES, rate=1024.0, bandwidth=200.0, reuse=COLD):
    shapes = np.atleast_2d(shapes)
    rows = len(shapes)
    widths = np.broadcast_to(np.asarray(width, dtype=float), (rows, 4)).copy()
    return attn.attention(core, shapes, widths, np.full(rows, rate), np.full(rows, bandwidth), np.full(rows, reuse))


def random_rows(seed, rows):
    rng = np.random.default_rng(seed)
    shapes = []
    for _ in range(rows):
        q = int(np.exp(rng.uniform(0, 7))) if rng.random() < 0.6 else 1
        dim, kv_heads = int(rng.choice([64, 128, 256])), int(rng.choice([1, 2, 8]))
        shapes.append(
            row(
                sequences=int(np.exp(rng.uniform(0, 5))), q_tokens=q, kv_tokens=q + int(np.exp(rng.uniform(0, 9))),
                kv_heads=kv_heads, heads=kv_heads * int(rng.choice([1, 3, 4, 7, 20, 40])), qk_dim=dim, v_dim=dim,
                window=int(rng.choice([0, 0, 128, 1000])), materialised=int(rng.random() < 0.2), causal=int(rng.random() < 0.8),
            )
        )  # fmt: skip
    return np.array(shapes)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("window", [0, 1, 7, 40])
def test_scores_are_counted_pair_by_pair(causal, window):
    for q, kv in ((1, 1), (1, 30), (5, 5), (12, 30), (30, 31)):
        shape = row(q_tokens=q, kv_tokens=kv, window=window, causal=causal)
        assert attn.visible_keys(shape) == score_count(q, kv, window, bool(causal))


@pytest.mark.parametrize("window", [0, 5, 16, 33])
def test_tiles_walk_over_the_keys_that_their_tokens_see(window):
    for q, kv, step in ((64, 64, 16), (64, 100, 16), (48, 300, 16), (8, 9, 1), (16, 16, 16)):
        lengths = tile_keys(q, kv, window, step)
        mean, most = attn.tile_keys(row(q_tokens=q, kv_tokens=kv, window=window), float(step), float(len(lengths)))
        assert (mean, most) == (pytest.approx(np.mean(lengths)), max(lengths))


def test_context_equals_tile_by_tile_oracle():
    shapes = ((1, 256, 4, 4, 64), (2, 384, 8, 2, 128), (3, 100, 6, 1, 64), (1, 512, 40, 8, 128), (1, 9, 4, 4, 256))
    for sequences, q, heads, kv_heads, dim in shapes:
        got = run(row(sequences=sequences, q_tokens=q, kv_tokens=q, heads=heads, kv_heads=kv_heads, qk_dim=dim, v_dim=dim))
        want = context_cycles(CORES, sequences, q, heads, kv_heads, dim, 1024.0, 200.0)
        assert got[0, attn.DURATION] == pytest.approx(want, rel=1e-9)


def test_generation_equals_block_by_block_oracle():
    shapes = ((1, 1024, 8, 2, 128), (4, 512, 8, 4, 64), (64, 100, 32, 8, 128), (2, 4096, 40, 8, 256), (8, 2048, 96, 4, 128))
    for sequences, kv, heads, kv_heads, dim in shapes:
        got = run(row(sequences=sequences, kv_tokens=kv, heads=heads, kv_heads=kv_heads, qk_dim=dim, v_dim=dim))
        want = stack_cycles(CORES, sequences, kv, heads, kv_heads, dim, 1024.0, 200.0)
        assert got[0, attn.DURATION] == pytest.approx(want, rel=1e-9)


def test_heads_that_cannot_be_stacked_run_on_the_lanes():
    for sequences, kv, heads, kv_heads, dim in ((1, 64, 40, 1, 128), (32, 500, 80, 2, 64), (7, 90, 33, 1, 256)):
        got = run(row(sequences=sequences, kv_tokens=kv, heads=heads, kv_heads=kv_heads, qk_dim=dim, v_dim=dim))
        want = lane_cycles(CORES, sequences, kv, heads, kv_heads, dim, 200.0)
        assert got[0, attn.TILE] == 0
        assert got[0, attn.DURATION] == pytest.approx(want, rel=1e-9)


def test_a_window_saves_keys_but_not_the_blocks_beside_it():
    """XQA kernels launch a block for every part of the cache; those outside the window cost their ramp."""
    alone, windowed, whole = run([row(kv_tokens=128, sequences=4), row(window=128, sequences=4), row(sequences=4)])
    assert windowed[attn.MEMORY] == alone[attn.MEMORY]
    assert alone[attn.DURATION] + 3 * CORES.ramp < windowed[attn.DURATION] < whole[attn.DURATION]


def test_causal_flops_of_a_prefill():
    """Llama-2-7b, 2048 tokens: 4 x heads x dim x S (S + 1) / 2 FLOPs a layer, half of the full square."""
    out = run(row(q_tokens=2048, kv_tokens=2048, heads=32, kv_heads=32))
    assert 32 * 2 * out[0, attn.MAC] == 1_100_048_498_688
    assert 32 * 2 * run(row(q_tokens=2048, kv_tokens=2048, causal=0))[0, attn.MAC] == 2_199_023_255_552


def test_kv_traffic_is_by_kv_heads_fused_or_not():
    """Llama-3.1-8B, context 4096: 536,870,912 bytes read over 32 layers both ways."""
    for materialised in (0, 1):
        out = run(row(materialised=materialised))[0]
        assert 32 * out[attn.KV_READ] == 536_870_912
        assert out[attn.KV_WRITE] == 8 * 2 * 128 * 2
        assert out[attn.SCORE_BYTE] >= 0.0
    assert run(row(cached=0))[0, attn.KV_WRITE] == 0


def test_scores_that_do_not_fit_go_through_memory_four_times():
    shape = {"q_tokens": 4096, "sequences": 4}
    assert run(row(**shape))[0, attn.SCORE_BYTE] == 0
    assert run(row(materialised=1, **shape))[0, attn.SCORE_BYTE] == 4 * 2 * 4 * 32 * 4096.0**2
    assert run(row(materialised=1, **shape))[0, attn.DURATION] > run(row(**shape))[0, attn.DURATION]


def test_window_caps_what_is_read():
    assert run(row(window=128))[0, attn.KV_READ] == 128 * 8 * 2 * 128 * 2
    assert run(row(window=128, q_tokens=4))[0, attn.KV_READ] == 131 * 8 * 2 * 128 * 2


def test_latent_reads_one_vector_for_keys_and_values():
    mla = row(heads=128, kv_heads=1, qk_dim=576, v_dim=512, latent=1)
    out = run(mla)[0]
    assert out[attn.KV_READ] == 4096 * 576 * 2
    assert out[attn.MAC] == 128 * 4096 * (576 + 512)


def test_generation_splits_long_contexts_and_shares_loads():
    one = run(row(heads=8, kv_heads=2, kv_tokens=65536))[0]
    assert one[attn.SPLIT] > 1
    grouped, alone = run([row(sequences=64), row(sequences=64, kv_heads=32)])
    assert alone[attn.MEMORY] > 3.9 * grouped[attn.MEMORY]


def test_new_keys_need_no_widening():
    """A prompt's keys are at hand in the format of its queries; those of earlier prompts are in the cache's."""
    narrow = (2.0, 1.0, 2.0, 2.0)
    prompt = row(q_tokens=512, kv_tokens=512, cached=0)
    assert run(prompt, narrow)[0, attn.VECTOR] == run(prompt)[0, attn.VECTOR]
    later = row(q_tokens=512, kv_tokens=8192)
    slow = CORES._replace(dequantise_flop=400.0)
    assert run(later, narrow, core=slow)[0, attn.VECTOR] > run(later, core=slow)[0, attn.VECTOR]


def test_duration_is_at_least_work_over_peak_on_every_resource():
    shapes = random_rows(1, 1500)
    out = run(shapes)
    assert np.all(out[:, attn.DURATION] >= out[:, LIMITS].max(axis=1) * (1 - 1e-12))
    scalar = out[:, attn.TILE] == 0
    assert scalar.any()
    assert np.all((out[:, attn.MATRIX] * 1024.0 * CORES.cores >= out[:, attn.MAC] * (1 - 1e-9))[~scalar])
    assert np.all((out[:, attn.VECTOR] * CORES.vector_flop * CORES.cores >= 2 * out[:, attn.MAC] * (1 - 1e-9))[scalar])
    assert np.all(out[:, attn.VECTOR] * CORES.exp * CORES.cores >= out[:, attn.EXP] * (1 - 1e-9))
    traffic = out[:, [attn.KV_READ, attn.KV_WRITE, attn.Q_BYTE, attn.SCORE_BYTE, attn.O_BYTE]].sum(axis=1)
    assert np.all(out[:, attn.MEMORY] >= traffic / 200.0 * (1 - 1e-12))
    fused = out[shapes[:, NAMES.index("materialised")] == 0]
    moved = fused[:, attn.BUFFER_READ] + fused[:, attn.BUFFER_WRITE]
    assert np.all(moved <= fused[:, attn.DURATION] * (CORES.cache_byte_per_cycle + 2 * 200.0) * (1 + 1e-9))


MORE = [{"cores": 17.0}, {"cores": 40.0}, {"cores": 1000.0}, {"cache_byte": 1e8}, {"cache_byte_per_cycle": 700.0},
        {"feed_byte": 80.0}, {"block_byte": 30.0}, {"matrix_efficiency": 1.0},
        {"vector_flop": 100.0}, {"exp": 16.0}, {"cache_partitions": 1.0}, {"latency": 100.0}]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("more", MORE, ids=str)
def test_more_of_anything_is_never_slower(more, seed):
    rng = np.random.default_rng(90 + seed)
    core = CORES if seed == 0 else CORES._replace(
        **{name: getattr(CORES, name) * float(np.exp(rng.uniform(-2, 2))) for name in CORES._fields
           if name not in (*more, "tile", "cache_partitions", "matrix_efficiency", "cores")},
    )  # fmt: skip
    shapes = random_rows(2 + seed, 1500)
    before, after = run(shapes, core=core, reuse=1e6), run(shapes, core=core._replace(**more), reuse=1e6)
    assert np.all(after[:, attn.DURATION] <= before[:, attn.DURATION] * (1 + 1e-9))
    faster = run(shapes, core=core, bandwidth=300.0)
    assert np.all(faster[:, attn.DURATION] <= run(shapes, core=core)[:, attn.DURATION] * (1 + 1e-9))


@pytest.mark.parametrize("heads", [8, 32, 512])
@pytest.mark.parametrize("window", [0, 300])
def test_more_work_is_never_faster(heads, window):
    tokens = (1, 2, 17, 64, 65, 127, 128, 129, 500, 4096, 4097, 100_000, 10_000_000)
    for sequences in (1, 6):
        out = run([row(kv_tokens=count, heads=heads, window=window, sequences=sequences) for count in tokens])
        assert np.all(np.diff(out[:, attn.DURATION]) >= -1e-6)
        assert np.isfinite(out).all()
    batches = run([row(sequences=count, heads=heads, window=window) for count in (1, 2, 3, 15, 16, 17, 100, 128, 129, 5000)])
    assert np.all(np.diff(batches[:, attn.DURATION]) >= -1e-6)


def test_empty_rows_cost_nothing():
    assert not run([row(sequences=0), row(q_tokens=0), row(kv_tokens=0), row(heads=0)]).any()
