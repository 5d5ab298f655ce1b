"""Loads of experts by routing, and products in groups: enumeration, laws on random shapes and devices, edges."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from archmodel.kernels import matmul as mm
from archmodel.kernels import moe

CORES = mm.Cores(
    cores=16.0, tile_sizes=np.array([64.0, 128.0, 256.0]), context_tile=128.0, accumulator_byte=131072.0,
    core_buffer_byte=163 * 1024.0, matrix_efficiency=0.9, vector_flop=64.0, exp=8.0, dequantise_flop=4.0, feed_byte=64.0,
    multicast=2.0, stream_byte=20.0, cache_byte=2e6, cache_byte_per_cycle=500.0, overlap_exponent=4.0, floor=2000.0,
    extra_floor=1500.0, ramp=700.0, vector_ramp=300.0, latency=500.0,
)  # fmt: skip
LIMITS = [mm.MATRIX, mm.VECTOR, mm.FEED, mm.BUFFER, mm.MEMORY, mm.FIXED]
ROUTINGS = (moe.BALANCED, moe.UNIFORM, 0.5, 1.0, 1.2, 3.0)


def loads(tokens, experts, chosen, ranks=1, routing=moe.UNIFORM, masked=0.0, edges=(64.0, 128.0, 256.0)):
    row = np.array([[tokens, experts, chosen, ranks, routing, masked]], dtype=float)
    return moe.expert_loads(row, np.array(edges))[0]


def run(found, n, k, core=CORES, width=(2.0, 2.0, 2.0, 2.0), rate=1024.0, bandwidth=200.0, reuse=np.inf):
    found = np.atleast_2d(found)
    rows = len(found)
    shape = np.broadcast_to(np.array([n, k], dtype=float), (rows, 2)).copy()
    widths = np.broadcast_to(np.array(width), (rows, 4)).copy()
    speed = np.broadcast_to(np.array([rate, bandwidth, reuse]), (rows, 3)).copy()
    return moe.grouped_matmul(core, shape, widths, speed, found, core.tile_sizes)


def random_loads(seed, rows):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(rows):
        experts = int(2 ** rng.integers(1, 7))
        found.append(loads(int(np.exp(rng.uniform(0, 9))), experts, int(rng.integers(1, experts + 1)),
                           int(2 ** rng.integers(0, int(math.log2(experts)) + 1)), rng.choice(ROUTINGS)))  # fmt: skip
    return np.array(found)


def test_uniform_loads_by_enumeration():
    """Every way in which 3 tokens pick 2 of 5 experts."""
    ways = list(itertools.product(itertools.combinations(range(5), 2), repeat=3))
    touched = sum(len(set().union(*way)) for way in ways) / len(ways)
    found = loads(3, 5, 2)
    assert found[moe.TOUCHED] == pytest.approx(touched, rel=1e-12)
    assert found[moe.ROUTED] == pytest.approx(6.0, rel=1e-12)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_u35_touched_experts_grow_within_their_bounds(routing):
    """U35: within [k, min(E, T k)] and never fewer for more tokens."""
    for experts, chosen in ((8, 2), (64, 6), (256, 8), (128, 1), (16, 16)):
        series = [loads(tokens, experts, chosen, routing=routing) for tokens in (*range(1, 200), 500, 1000, 9000)]
        touched = np.array([found[moe.TOUCHED] for found in series])
        tokens = np.array([found[moe.ROUTED] for found in series]) / chosen
        np.testing.assert_allclose(tokens[:199], np.arange(1, 200), rtol=1e-9)
        assert np.all(np.diff(touched) >= -1e-9)
        assert np.all(touched >= chosen * (1 - 1e-12))
        assert np.all(touched <= np.minimum(experts, chosen * tokens) * (1 + 1e-9))


def test_popularity_is_a_distribution_over_choices():
    for exponent in (0.0, 0.3, 1.0, 1.2, 5.0):
        for tokens, experts, chosen in ((1, 8, 2), (1000, 8, 8), (4096, 256, 8), (50, 64, 63)):
            picked = moe.popularity(float(tokens), experts, float(chosen), exponent)
            assert picked.sum() == pytest.approx(chosen, rel=1e-9)
            assert np.all((picked >= 0) & (picked <= 1 + 1e-12))
            assert np.all(np.diff(picked) <= 1e-12)


def test_balanced_choices_in_turn():
    assert loads(4, 32, 2, routing=moe.BALANCED)[:2].tolist() == [8.0, 8.0]
    assert loads(1, 64, 8, 16, moe.BALANCED)[:2].tolist() == [1.0, 1.0]
    assert loads(1024, 64, 8, 8, moe.BALANCED).tolist() == [8.0, 1024.0, 16.0, 8.0, 8.0]


def test_skewed_loads_touch_fewer_experts_and_burden_the_busiest_rank():
    tokens, experts, chosen, ranks = 512, 128, 4, 16
    even = loads(tokens, experts, chosen, ranks, moe.BALANCED)
    skewed = loads(tokens, experts, chosen, ranks, 1.2)
    assert skewed[moe.ROUTED] > 1.5 * even[moe.ROUTED]
    assert loads(16, experts, chosen, 1, 2.0)[moe.TOUCHED] < loads(16, experts, chosen)[moe.TOUCHED]
    assert skewed[moe.ROUTED] <= tokens * chosen


def test_tiles_hold_the_rows_and_more_ranks_never_carry_more():
    for found in random_loads(1, 300):
        for edge, tiles in zip((64.0, 128.0, 256.0), found[2:], strict=True):
            assert tiles >= max(found[moe.ROUTED] / edge, found[moe.TOUCHED]) * (1 - 1e-12)
            assert tiles <= found[moe.ROUTED] / edge + found[moe.TOUCHED] * (1 + 1e-12)
    for routing in (moe.BALANCED, moe.UNIFORM):
        rows = [loads(300, 64, 4, ranks, routing)[moe.ROUTED] for ranks in (1, 2, 4, 8, 16, 32, 64)]
        assert np.all(np.diff(rows) <= 0)


def test_masked_picks_are_multiplied_too():
    plain, masked = loads(4096, 256, 8, 8, moe.BALANCED), loads(4096, 256, 8, 8, moe.BALANCED, 1.0)
    assert masked[moe.ROUTED] == 8 * plain[moe.ROUTED]
    assert masked[moe.TOUCHED] == plain[moe.TOUCHED] + 1
    np.testing.assert_array_equal(loads(64, 16, 2, masked=1.0), loads(64, 16, 2))


def test_one_expert_costs_what_a_matmul_without_split_costs():
    core = CORES._replace(cache_byte=1.0)
    for m, n, k in ((64, 512, 512), (700, 4096, 1024), (5000, 333, 65)):
        found = np.array([1.0, m, *(math.ceil(m / edge) for edge in core.tile_sizes)])
        shape, width = np.array([[m, n, k, 1.0]], dtype=float), np.full((1, 4), 2.0)
        whole = mm.matmul(core, shape, width, np.array([1024.0]), np.array([200.0]), np.array([np.inf]))[0]
        if whole[mm.SPLIT] == 1:
            group = run(found, n, k, core)[0]
            assert group[mm.DURATION] == pytest.approx(whole[mm.DURATION], rel=0.02)
            assert group[mm.B_BYTE] >= whole[mm.B_BYTE] * (1 - 1e-12)


def test_duration_is_at_least_work_over_peak_and_traffic_at_least_compulsory():
    found = random_loads(2, 400)
    out = run(found, 700, 900, CORES._replace(cache_byte=1.0))
    assert np.all(out[:, mm.DURATION] >= out[:, LIMITS].max(axis=1) * (1 - 1e-12))
    assert np.all(out[:, mm.MATRIX] >= found[:, moe.ROUTED] * 700 * 900 / (1024.0 * CORES.cores) * (1 - 1e-12))
    assert np.all(out[:, mm.B_BYTE] >= 2 * 700 * 900 * found[:, moe.TOUCHED] * (1 - 1e-12))
    assert np.all(out[:, mm.A_BYTE] >= 2 * 900 * found[:, moe.ROUTED] * (1 - 1e-12))
    np.testing.assert_allclose(out[:, mm.C_BYTE], 2 * 700 * found[:, moe.ROUTED], rtol=1e-9)
    traffic = out[:, [mm.A_BYTE, mm.B_BYTE, mm.C_BYTE]].sum(axis=1)
    assert np.all(out[:, mm.MEMORY] >= traffic / 200.0 * (1 - 1e-12))


@pytest.mark.parametrize(
    "more",
    [{"cores": 17.0}, {"cache_byte": 2.5e6}, {"cache_byte": 4e8}, {"cache_byte_per_cycle": 700.0}, {"feed_byte": 80.0},
     {"stream_byte": 30.0}, {"multicast": 3.0}, {"matrix_efficiency": 1.0}, {"vector_flop": 100.0}, {"partitions": 0.5}],
    ids=str,
)  # fmt: skip
def test_more_of_anything_is_never_slower(more):
    found = random_loads(3, 400)
    for width, reuse in (((2.0, 2.0, 2.0, 2.0), np.inf), ((2.0, 0.515625, 2.0, 2.0), 1e6)):
        core = CORES._replace(partitions=1.0)
        before = run(found, 512, 2048, core, width, reuse=reuse)[:, mm.DURATION]
        after = run(found, 512, 2048, core._replace(**more), width, reuse=reuse)[:, mm.DURATION]
        assert np.all(after <= before * (1 + 1e-9))


def test_weights_that_fit_the_cache_are_not_read_again():
    found = loads(4, 4, 1, routing=moe.BALANCED)
    cold, hot = (run(found, 128, 128, reuse=reuse)[0, mm.B_BYTE] for reuse in (np.inf, 1e5))
    assert (cold, hot) == (4 * 2 * 128 * 128, 0)


def test_empty_rows_cost_nothing():
    assert not loads(0, 8, 2).any()
    assert not loads(5, 0, 2).any()
    assert not run(np.zeros(5), 64, 64).any()
