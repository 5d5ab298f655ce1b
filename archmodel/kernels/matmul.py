"""Matrix multiplication on cores behind a shared cache: tiles, waves, split-K and the limits on each.

C[m,n] = A[m,k] B[k,n]. Every candidate (tile rows x tile columns x parts of k) is timed and the fastest is taken, as a
vendor's library would. All times are cycles of the unit's clock, all rates are per cycle of it.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel
from archmodel.kernels.limits import missed_fraction, smooth_maximum

Floats = NDArray[np.float64]
Scalars = tuple[float, ...]

#: elements of k that a core fetches at a time: one 128-byte line of a 16-bit format
K_STEP = 64.0
#: bytes of a partial sum of split-K (FP32)
PARTIAL_BYTE = 4.0

#: columns of the result
(DURATION, MATRIX, VECTOR, FEED, BUFFER, MEMORY, FIXED, A_BYTE, B_BYTE, C_BYTE, BUFFER_READ, BUFFER_WRITE,
 DEQUANTISED, TILE_M, TILE_N, SPLIT) = range(16)  # fmt: skip
COLUMNS = 16


class Cores(NamedTuple):
    """A GPU as kernels see it; bandwidths in bytes a cycle, times in cycles."""

    cores: float
    tile_sizes: Floats  # ascending candidate edges of an output tile
    context_tile: float  # query rows of a tile of context attention
    accumulator_byte: float  # of one core, for the FP32 output tile
    core_buffer_byte: float  # of one core, for operand tiles in flight
    matrix_efficiency: float
    vector_flop: float  # of one core
    exp: float  # of one core
    dequantise_flop: float  # for one element
    feed_byte: float  # cache to one core
    multicast: float  # cores served by one fetch
    stream_byte: float  # memory traffic that one core keeps in flight
    cache_byte: float
    cache_byte_per_cycle: float
    overlap_exponent: float
    floor: float  # one kernel
    extra_floor: float  # each small kernel that follows it, such as a reduction
    ramp: float  # one wave of tiles
    vector_ramp: float  # one wave of tiles of a kernel on the vector lanes
    latency: float  # first byte from memory
    partitions: float = 1.0  # of the cache, each of which keeps what its own cores read
    boost: float = np.inf  # matrix work of one kernel before the power limit lowers the clock
    sustained: float = 1.0  # share of the clock that is left then


@kernel
def memory_traffic(core: Cores, size: Scalars, tile: Scalars, resident: float, reuse_byte: float) -> tuple[float, float, float]:
    """Bytes [B] of A, B and C at memory for one problem of `size` = (m, n, A [B], B [B], C [B], A and C of all [B]).

    `resident` tiles run at once, in a block as square as can be; what they share is read once, and so is a panel of
    A or B that half of the cache holds. The panel that stays is A's or B's, whichever moves fewer bytes.
    """
    m, n, a_byte, b_byte, c_byte, footprint = size
    tile_m, tile_n = tile
    tall = max(1.0, sqrt(resident * tile_n / tile_m))
    panel_m = max(tall * tile_m, 0.5 * core.cache_byte * m / a_byte)
    panel_n = max(resident / tall * tile_n, 0.5 * core.cache_byte * n / b_byte)
    missed = missed_fraction(footprint, core.cache_byte, core.partitions)
    missed_b = missed_fraction(footprint + reuse_byte, core.cache_byte, core.partitions)
    a_once, b_once = a_byte * missed, b_byte * missed_b
    a_again, b_again = a_once * max(1.0, n / panel_n), b_once * max(1.0, m / panel_m)
    if a_once + b_again <= a_again + b_once:
        return a_once, b_again, c_byte * missed
    return a_again, b_once, c_byte * missed


@kernel
def sustained_cycles(core: Cores, cycles: float) -> float:
    """Cycles of the full clock that `cycles` of matrix work take: the power limit lowers the clock when `boost` is over."""
    return float(min(cycles, core.boost) + max(cycles - core.boost, 0.0) / core.sustained)


@kernel
def join(core: Cores, limits: Floats, start: float, best: float) -> float:
    """Cycles of a kernel from its `limits`: the cores fill and drain between waves; cache and memory stream meanwhile.

    A candidate whose plain maximum is not below `best` cannot win, and gets that instead of the dearer power means.
    """
    gaps, buffer, memory = limits[FIXED] - start, limits[BUFFER], limits[MEMORY]
    least = start + max(gaps + max(limits[MATRIX], limits[VECTOR], limits[FEED]), buffer, memory)
    if least >= best:
        return float(least)
    work = smooth_maximum(limits[MATRIX], limits[VECTOR], limits[FEED], core.overlap_exponent)
    return float(start + smooth_maximum(gaps + work, buffer, memory, core.overlap_exponent))


@kernel
def time_tile(core: Cores, shape: Floats, width: Floats, plan: Scalars, best: float, out: Floats) -> None:
    """Fill `out` (COLUMNS,) for one candidate `plan` = (tile_m, tile_n, split, memory bytes a cycle, reuse, rate)."""
    m, n, k, count = shape
    input_byte, weight_byte, output_byte, compute_byte = width
    tile_m, tile_n, split, bandwidth, reuse_byte, rate = plan
    a_byte, b_byte, c_byte = m * k * input_byte, n * k * weight_byte, m * n * output_byte
    across, down = ceil(n / tile_n), ceil(m / tile_m)
    depth = ceil(k / split / K_STEP) * K_STEP
    tiles = across * down * split * count
    waves, active = ceil(tiles / core.cores), min(tiles, core.cores)
    out[MATRIX] = sustained_cycles(core, waves * tile_m * tile_n * depth / (rate * core.matrix_efficiency))
    out[DURATION] = core.latency + core.floor + waves * core.ramp + out[MATRIX]
    if out[DURATION] >= best:  # cannot win
        return
    dequantised = min(n, tile_n) * depth if weight_byte < compute_byte else 0.0
    partial = split * m * n * PARTIAL_BYTE * count if split > 1.0 else 0.0
    fetched = (a_byte * across + b_byte * down) * count / core.multicast
    resident = max(1.0, active / (split * count))
    size = (m, n, a_byte, b_byte, c_byte, (a_byte + c_byte) * count)
    a_traffic, b_traffic, c_traffic = memory_traffic(core, size, (tile_m, tile_n), resident, reuse_byte)
    traffic = (a_traffic + b_traffic + c_traffic) * count
    out[VECTOR] = waves * dequantised * core.dequantise_flop / core.vector_flop
    out[FEED] = waves * (min(m, tile_m) * input_byte + min(n, tile_n) * weight_byte) * depth / core.feed_byte
    out[BUFFER] = (fetched + 2.0 * partial + c_byte * count) / core.cache_byte_per_cycle
    out[MEMORY] = traffic / min(bandwidth, active * core.stream_byte)
    # a tile's result leaves after its main loop, and a second kernel adds up the parts of a split k
    drain = min(m, tile_m) * min(n, tile_n) * output_byte / core.feed_byte
    start = core.latency + core.floor + (core.extra_floor if split > 1.0 else 0.0) + core.ramp + drain
    out[FIXED] = start + (waves - 1.0) * (core.ramp + drain)
    out[DURATION] = join(core, out, start, best)
    out[A_BYTE], out[B_BYTE], out[C_BYTE] = a_traffic * count, b_traffic * count, c_traffic * count
    out[BUFFER_READ] = fetched + partial + c_traffic * count
    out[BUFFER_WRITE] = c_byte * count + partial + (a_traffic + b_traffic) * count
    out[DEQUANTISED] = tiles * dequantised
    out[TILE_M], out[TILE_N], out[SPLIT] = tile_m, tile_n, split


@kernel
def fits(core: Cores, tile_m: float, tile_n: float, width: Floats) -> bool:
    """Whether the accumulators and two stages of operands of a tile fit one core; the smallest tile always runs."""
    stage = K_STEP * (tile_m * width[0] + tile_n * max(width[1], width[3]))
    roomy = tile_m * tile_n * PARTIAL_BYTE <= core.accumulator_byte and 2.0 * stage <= core.core_buffer_byte
    return bool(roomy or tile_m + tile_n <= 2.0 * core.tile_sizes[0])


@kernel
def matmul(core: Cores, shape: Floats, width: Floats, rate: Floats, bandwidth: Floats, reuse_byte: Floats) -> Floats:
    """Time and traffic of matrix multiplications, one row each.

    Args:
        core: the unit; see `Cores`.
        shape: (rows, 4): m, n, k and `count` independent problems (a float: expected experts).
        width: (rows, 4): bytes an element [B] of A, of B as stored, of C, and of the format computed in. A narrower B is
            widened on the vector lanes, inside the kernel.
        rate: (rows,) multiply-accumulates of one core a cycle in that format.
        bandwidth: (rows,) of the memory [B/cycle].
        reuse_byte: (rows,) bytes [B] touched between two uses of B; infinite when the weights always come from memory.
            A and C stay in the cache as far as they fit: the neighbouring operations have them there.

    Returns:
        (rows, COLUMNS): cycles in all (DURATION) and under each limit, FIXED being what no bandwidth shortens; bytes at memory
        and at the cache, and the tile chosen. Rows with an empty dimension are all zero.

    Source: wave quantisation and tiling as in NVIDIA's "Matrix Multiplication Background" guide (2023). Ignored: bank
    conflicts, partitions of the cache, write-back of split-K partial sums to memory, and stream-K.
    """
    result = np.zeros((shape.shape[0], COLUMNS))
    trial = np.zeros(COLUMNS)
    for row in range(shape.shape[0]):
        m, n, k, count = shape[row]
        if m * n * k * count <= 0.0:
            continue
        smallest, best = core.tile_sizes[0], np.inf
        for tile_m in core.tile_sizes:
            for tile_n in core.tile_sizes:
                too_big = (tile_m >= 2.0 * m and tile_m > smallest) or (tile_n >= 2.0 * n and tile_n > smallest)
                if too_big or not fits(core, tile_m, tile_n, width[row]):
                    continue
                split = 1.0
                while split == 1.0 or (
                    k >= 2.0 * K_STEP * split and ceil(m / tile_m) * ceil(n / tile_n) * count * split <= 8.0 * core.cores
                ):
                    plan = (tile_m, tile_n, split, bandwidth[row], reuse_byte[row], rate[row])
                    time_tile(core, shape[row], width[row], plan, best, trial)
                    if trial[DURATION] < best:
                        best = trial[DURATION]
                        result[row] = trial
                    split *= 2.0
    return result
