"""Slow, obvious oracles of the GPU kernels: loops over tiles, waves and cores in plain Python.

They take the `Cores` of the kernels, enumerate every tile with its extent and its owner, and add up what each does.
"""

from __future__ import annotations

import math


def power_mean(values, exponent):
    top = max(values)
    return top * sum((value / top) ** exponent for value in values) ** (1 / exponent) if top else 0.0


def halves(limit, most):
    """1, 2, 4 ... while the doubled value is allowed; 1 always is."""
    split = 1
    while split == 1 or (split <= limit and split <= most):
        yield split
        split *= 2


def waves_of(tiles, cores):
    """Tiles dealt to cores, a wave at a time."""
    return [tiles[start : start + int(cores)] for start in range(0, len(tiles), int(cores))]


def still_cached(footprint, cache, partitions):
    """All while it fits each of the partitions; none at half as much again with two of them, at a tenth more with one."""
    over = footprint / (cache / partitions) - 1
    return 1.0 - min(1.0, max(0.0, over / max(0.1, (partitions - 1) / partitions)))


def kept(footprint, cache):
    return max(0.0, 1.0 - footprint / cache)


def matmul_memory(core, m, n, k, count, width, tile, split, tiles, reuse):
    """Bytes of A, B, C at memory: the cheaper of keeping a panel of A and of keeping one of B."""
    a, b, c = m * k * width[0], n * k * width[1], m * n * width[2]
    at_once = max(1.0, min(tiles, core.cores) / (split * count))
    tall = max(1.0, math.sqrt(at_once * tile[1] / tile[0]))
    half = core.cache_byte / 2
    rows_kept = max(tall * tile[0], half / (k * width[0]))
    cols_kept = max(at_once / tall * tile[1], half / (k * width[1]))
    hot = still_cached((a + c) * count, core.cache_byte, core.partitions)
    hot_b = still_cached((a + c) * count + reuse, core.cache_byte, core.partitions)
    ways = [
        (a * (1 - hot), b * (1 - hot_b) * max(1.0, m / rows_kept)),
        (a * (1 - hot) * max(1.0, n / cols_kept), b * (1 - hot_b)),
    ]
    return (*(count * byte for byte in min(ways, key=sum)), count * c * (1 - hot))


def matmul_candidate(core, shape, width, rate, bandwidth, reuse, tile, split):
    """Cycles in all of one candidate of `count` (whole) problems, tile by tile."""
    m, n, k, count = (int(value) for value in shape)
    depth = math.ceil(k / split / 64) * 64
    tiles = []
    for _ in range(count * split):
        for row in range(0, m, int(tile[0])):
            for col in range(0, n, int(tile[1])):
                tiles.append((min(tile[0], m - row), min(tile[1], n - col)))
    fetched = sum((rows * width[0] + cols * width[1]) * k / split for rows, cols in tiles) / core.multicast
    widest = (min(m, tile[0]), min(n, tile[1]))  # every wave waits for a whole tile
    matrix = vector = feed = 0.0
    ramps = []
    for _ in waves_of(tiles, core.cores):
        matrix += tile[0] * tile[1] * depth / (rate * core.matrix_efficiency)
        vector += widest[1] * depth * core.dequantise_flop / core.vector_flop if width[1] < width[3] else 0.0
        feed += (widest[0] * width[0] + widest[1] * width[1]) * depth / core.feed_byte
        ramps.append(core.ramp + widest[0] * widest[1] * width[2] / core.feed_byte)
    if matrix > core.boost:  # the power limit has lowered the clock
        matrix = core.boost + (matrix - core.boost) / core.sustained
    partial = 2 * 4 * split * m * n * count if split > 1 else 0.0
    buffer = (fetched + partial + m * n * width[2] * count) / core.cache_byte_per_cycle
    traffic = sum(matmul_memory(core, m, n, k, count, width, tile, split, len(tiles), reuse))
    memory = traffic / min(bandwidth, min(len(tiles), core.cores) * core.stream_byte)
    start = core.latency + core.floor + (core.extra_floor if split > 1 else 0.0) + ramps[0]
    busy = sum(ramps[1:]) + power_mean((matrix, vector, feed), core.overlap_exponent)
    return start + power_mean((busy, buffer, memory), core.overlap_exponent)


def matmul_cycles(core, shape, width, rate, bandwidth, reuse):
    """Fastest candidate: every pair of tile edges that fits and is not twice too big, every power of two of split."""
    m, n, k, count = shape
    best = math.inf
    smallest = min(core.tile_sizes)
    for rows in core.tile_sizes:
        for cols in core.tile_sizes:
            stage = 64 * (rows * width[0] + cols * max(width[1], width[3]))
            fits = rows * cols * 4 <= core.accumulator_byte and 2 * stage <= core.core_buffer_byte
            if not (fits or rows == cols == smallest):
                continue
            if any(edge > smallest and edge >= 2 * size for edge, size in ((rows, m), (cols, n))):
                continue
            tiles = math.ceil(m / rows) * math.ceil(n / cols) * count
            for split in halves(k / 128, 8 * core.cores / tiles):
                best = min(best, matmul_candidate(core, shape, width, rate, bandwidth, reuse, (rows, cols), split))
    return best
