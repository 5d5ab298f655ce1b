"""GPU matmul: the tile-by-tile oracle, laws on random shapes and devices, edges."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_oracle import matmul_cycles

from archmodel.kernels import matmul as mm

CORES = mm.Cores(
    cores=16.0, tile_sizes=np.array([64.0, 128.0, 256.0]), context_tile=128.0, accumulator_byte=131072.0,
    core_buffer_byte=163 * 1024.0, matrix_efficiency=0.9, vector_flop=64.0, exp=8.0, dequantise_flop=4.0, feed_byte=64.0,
    multicast=2.0, stream_byte=20.0, cache_byte=2e6, cache_byte_per_cycle=500.0, overlap_exponent=4.0, floor=2000.0,
    extra_floor=1500.0, ramp=700.0, vector_ramp=300.0, latency=500.0,
)  # fmt: skip
LIMITS = [mm.MATRIX, mm.VECTOR, mm.FEED, mm.BUFFER, mm.MEMORY, mm.FIXED]
WIDTHS = ((2.0, 2.0, 2.0, 2.0), (1.0, 1.0, 2.0, 1.0), (2.0, 0.515625, 2.0, 2.0), (4.0, 4.0, 4.0, 4.0))
COLD = np.inf


def run(shapes, width=WIDTHS[0], core=CORES, rate=1024.0, bandwidth=200.0, reuse=COLD):
    shapes = np.atleast_2d(np.asarray(shapes, dtype=float))
    rows = len(shapes)
    widths = np.broadcast_to(np.asarray(width, dtype=float), (rows, 4)).copy()
    return mm.matmul(core, shapes, widths, np.full(rows, rate), np.full(rows, bandwidth), np.full(rows, reuse))


def random_shapes(seed, rows, largest=4096):
    rng = np.random.default_rng(seed)
    shapes = np.floor(np.exp(rng.uniform(0, np.log(largest), (rows, 4))))
    shapes[:, 3] = rng.integers(1, 5, rows)
    return shapes


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("reuse", "partitions"), [(COLD, 1.0), (3e5, 1.0), (3e5, 2.0)])
def test_kernel_equals_tile_by_tile_oracle(width, reuse, partitions):
    shapes = np.vstack((random_shapes(1, 25, 1500), [[1, 1, 1, 1], [1, 1500, 900, 1], [129, 65, 63, 3], [2, 3, 20000, 1]]))
    core = CORES._replace(partitions=partitions, boost=20_000.0, sustained=0.75)
    got = run(shapes, width, core=core, reuse=reuse)[:, mm.DURATION]
    want = [matmul_cycles(core, shape, width, 1024.0, 200.0, reuse) for shape in shapes]
    np.testing.assert_allclose(got, want, rtol=1e-9)


def test_duration_is_at_least_work_over_peak_on_every_resource():
    shapes = random_shapes(2, 2000)
    for width in WIDTHS:
        out = run(shapes, width)
        assert np.all(out[:, mm.DURATION] >= out[:, LIMITS].max(axis=1) * (1 - 1e-12))
        assert np.all(out[:, mm.MATRIX] >= shapes.prod(axis=1) / (1024.0 * CORES.cores))
        traffic = out[:, [mm.A_BYTE, mm.B_BYTE, mm.C_BYTE]].sum(axis=1)
        assert np.all(out[:, mm.MEMORY] >= traffic / 200.0 * (1 - 1e-12))
        assert np.all(out[:, mm.BUFFER] * CORES.cache_byte_per_cycle >= traffic / CORES.multicast * (1 - 1e-12))


def test_traffic_is_at_least_compulsory():
    shapes = random_shapes(3, 2000)
    m, n, k, count = shapes.T
    out = run(shapes)
    assert np.all(out[:, mm.B_BYTE] >= 2 * n * k * count * (1 - 1e-12))
    kept = 2 * (m * k + m * n) * count - out[:, mm.A_BYTE] - out[:, mm.C_BYTE]
    assert np.all(kept <= CORES.cache_byte)  # what never went to memory is in the cache
    nothing = run(shapes, core=CORES._replace(cache_byte=1.0))
    assert np.all(nothing[:, mm.A_BYTE] >= 2 * m * k * count * (1 - 1e-12))
    np.testing.assert_allclose(nothing[:, mm.C_BYTE], 2 * m * n * count, rtol=1e-12)


def test_bytes_out_of_memory_are_bytes_into_the_cache():
    out = run(random_shapes(4, 500))
    split = out[:, mm.SPLIT] > 1
    outputs = run(random_shapes(4, 500), core=CORES._replace(cache_byte=1.0))[:, mm.C_BYTE]
    partial = np.where(split, 2.0 * outputs * out[:, mm.SPLIT], 0.0)  # FP32 for 2-byte results
    np.testing.assert_allclose(out[:, mm.BUFFER_WRITE] - outputs - partial, out[:, mm.A_BYTE] + out[:, mm.B_BYTE], rtol=1e-6)


@pytest.mark.parametrize(
    "more",
    [
        {"cores": 17.0}, {"cores": 33.0}, {"cache_byte": 2.5e6}, {"cache_byte": 4e7}, {"cache_byte_per_cycle": 700.0},
        {"feed_byte": 80.0}, {"stream_byte": 30.0}, {"multicast": 3.0}, {"core_buffer_byte": 300e3},
        {"accumulator_byte": 262144.0}, {"matrix_efficiency": 1.0}, {"vector_flop": 100.0},
    ],
    ids=str,
)  # fmt: skip
def test_more_of_anything_is_never_slower(more):
    shapes = random_shapes(5, 3000)
    for width, reuse in zip(WIDTHS, (COLD, COLD, 1e6, 1e5), strict=True):
        before, after = run(shapes, width, reuse=reuse), run(shapes, width, core=CORES._replace(**more), reuse=reuse)
        assert np.all(after[:, mm.DURATION] <= before[:, mm.DURATION] * (1 + 1e-9))


def test_more_bandwidth_rate_and_fewer_bytes_are_never_slower():
    shapes = random_shapes(6, 3000)
    base = run(shapes)[:, mm.DURATION]
    for other in (run(shapes, bandwidth=300.0), run(shapes, rate=2048.0), run(shapes, width=WIDTHS[1]), run(shapes, reuse=1e4)):
        assert np.all(other[:, mm.DURATION] <= base * (1 + 1e-9))


def test_one_tile_too_many_is_a_second_wave():
    core = CORES._replace(tile_sizes=np.array([128.0]))
    full, over = run([[128 * 16, 128, 64, 1], [128 * 16 + 1, 128, 64, 1]], core=core)
    assert over[mm.MATRIX] == 2 * full[mm.MATRIX]


def test_split_k_fills_cores_that_tiles_leave_idle():
    out = run([[1, 64, 65536, 1], [4096, 4096, 4096, 1]])
    assert out[0, mm.SPLIT] > 1
    assert out[1, mm.SPLIT] == 1


def test_narrow_weights_move_their_stored_bytes_and_are_widened():
    wide, narrow = run([[8, 4096, 4096, 1]]), run([[8, 4096, 4096, 1]], width=WIDTHS[2])
    assert wide[0, mm.B_BYTE] == 2 * 4096 * 4096
    assert narrow[0, mm.B_BYTE] == 0.515625 * 4096 * 4096
    assert wide[0, mm.DEQUANTISED] == 0
    assert narrow[0, mm.DEQUANTISED] >= 4096 * 4096


def test_weights_that_stay_in_the_cache_do_not_come_from_memory():
    once, again, far = (run([[1, 512, 512, 1]], reuse=reuse)[0, mm.B_BYTE] for reuse in (0.0, 2.1e6, 2.3e6))
    assert once < 0.01 * 2 * 512 * 512
    assert once < again < far == 2 * 512 * 512


def test_count_may_be_an_expectation_and_grouped_problems_share_waves():
    part, one, many = run([[8, 256, 512, 0.4], [8, 256, 512, 1], [8, 256, 512, 8]])
    assert part[mm.B_BYTE] == 0.4 * one[mm.B_BYTE]
    assert part[mm.DURATION] <= one[mm.DURATION] < many[mm.DURATION] < 8 * one[mm.DURATION]


def test_empty_rows_cost_nothing_and_huge_ones_stay_finite():
    assert not run([[0, 5, 5, 1], [5, 0, 5, 1], [5, 5, 0, 1], [5, 5, 5, 0]]).any()
    huge = run([[2**24, 2**18, 2**17, 64]])
    assert np.isfinite(huge).all()
    assert huge[0, mm.MATRIX] >= 2.0**65 / (1024 * 16)
