"""Attention on cores behind a shared cache: one tiled score/softmax/value pipeline for any number of new tokens.

The query heads that share a KV head are stacked: a head group has `group` x `q_tokens` query rows, cut into tiles that
each walk over the keys they see. With one new token that is KV streaming; then the keys are cut too, to fill the cores.
"""

from __future__ import annotations

from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel
from archmodel.kernels.limits import kept_fraction
from archmodel.kernels.matmul import BUFFER, DURATION, FEED, FIXED, MATRIX, MEMORY, PARTIAL_BYTE, VECTOR, Cores, Scalars, join

Floats = NDArray[np.float64]

#: FP32 operations on one score: scale and subtract the maximum (an FMA), maximum, sum, conversion
SCORE_FLOP = 5.0
#: keys that a core fetches at a time
KEY_STEP = 64.0
#: new tokens up to which the query heads that share a KV head are stacked in one tile (generation kernels)
PACKED_TOKENS = 8.0

#: columns of the result after the limits that it shares with matmul
(KV_READ, KV_WRITE, Q_BYTE, SCORE_BYTE, O_BYTE, BUFFER_READ, BUFFER_WRITE, MAC, EXP, TILE, SPLIT) = range(7, 18)
COLUMNS = 18


@kernel
def visible_keys(shape: Floats) -> float:
    """Scores of one head: keys that its `q_tokens` queries see, summed over them. A causal query sees itself."""
    q_tokens, kv_tokens, window, causal = shape[1], shape[2], shape[7], shape[8]
    cap = min(window, kv_tokens) if window > 0.0 else kv_tokens
    first = kv_tokens - q_tokens + 1.0 if causal > 0.0 else kv_tokens
    if causal <= 0.0 or first >= cap:
        return float(q_tokens * min(first, cap))
    rising = min(q_tokens, cap - first)  # queries that see fewer than `cap` keys
    return float(rising * first + 0.5 * rising * (rising - 1.0) + (q_tokens - rising) * cap)


@kernel
def tile_keys(shape: Floats, step: float, tiles: float) -> tuple[float, float]:
    """Keys that a tile of `step` tokens walks over: (mean over the `tiles` of a sequence, most).

    A tile that ends amid a token's heads walks over that token's keys too: one more, at most.
    """
    q_tokens, kv_tokens, window, causal, materialised = shape[1], shape[2], shape[7], shape[8], shape[10]
    if materialised > 0.0:
        return kv_tokens, kv_tokens
    ragged = 0.0 if step == floor(step) else 1.0
    cap = min(window + step - 1.0 + ragged, kv_tokens) if window > 0.0 else kv_tokens
    if causal <= 0.0:
        return cap, cap
    before = kv_tokens - q_tokens + ragged
    # tile i ends at key before + (i + 1) step, the last one at kv_tokens
    rising = float(min(tiles - 1.0, max(0.0, floor((cap - before) / step))))
    total = rising * before + 0.5 * rising * (rising + 1.0) * step + (tiles - rising) * cap
    return total / tiles, cap


@kernel
def time_tile(core: Cores, shape: Floats, width: Floats, plan: Scalars, best: float, out: Floats) -> None:
    """Fill the limits of `out` for a candidate `plan` = (tile, split, packed heads, memory B/cycle, rate, traffic [B]).

    A tile of 0 rows is one query row on the vector lanes.
    """
    sequences, q_tokens, _, heads, _, qk_dim, v_dim, _, _, latent, materialised, _ = shape
    kv_byte, compute_byte = width[1], width[3]
    tile, split, packed, bandwidth, rate, traffic = plan
    scalar = tile == 0.0
    rows = q_tokens * packed
    used = 1.0 if scalar else min(tile, rows)
    stacks = sequences * heads / packed
    row_tiles = ceil(rows / used)
    mean_keys, most_keys = tile_keys(shape, min(q_tokens, max(tile, 1.0) / packed), row_tiles)
    tiles = row_tiles * stacks * split
    waves, active = ceil(tiles / core.cores), min(tiles, core.cores)
    # tiles of unlike length even out over the waves, but none ends before the longest of them
    keys = max(most_keys / split, waves * mean_keys / split)
    key_byte = (qk_dim if latent > 0.0 else qk_dim + v_dim) * kv_byte
    flop = used * SCORE_FLOP + (2.0 * (qk_dim + v_dim) if scalar else 0.0)
    flop += key_byte / kv_byte * core.dequantise_flop if kv_byte < compute_byte else 0.0
    query_byte = rows * (qk_dim * width[0] + v_dim * width[2]) * stacks
    partial = split * rows * v_dim * PARTIAL_BYTE * stacks if split > 1.0 else 0.0
    fetched = tiles * mean_keys / split * key_byte / core.multicast
    out[MATRIX] = keys * tile * (qk_dim + v_dim) / (rate * core.matrix_efficiency)
    out[VECTOR] = keys * max(used / core.exp, flop / core.vector_flop)
    out[FEED] = keys * key_byte / core.feed_byte
    out[BUFFER] = (fetched + query_byte + 2.0 * partial) / core.cache_byte_per_cycle
    out[MEMORY] = traffic / min(bandwidth, active * core.stream_byte)
    ramp = core.vector_ramp if scalar else core.ramp
    # the last core to finish a split row adds up the parts: one ramp more
    start = core.latency + core.floor + (2.0 if split > 1.0 else 1.0) * ramp
    start += 2.0 * core.extra_floor if materialised > 0.0 else 0.0
    out[FIXED] = start + (waves - 1.0) * ramp
    out[DURATION] = join(core, out, start, best)
    out[BUFFER_READ] = fetched + query_byte + partial
    out[BUFFER_WRITE] = partial
    out[TILE], out[SPLIT] = tile, split


@kernel
def count_work(core: Cores, shape: Floats, width: Floats, reuse_byte: float, out: Floats) -> None:
    """Fill what no tiling changes: traffic at memory by operand, MACs and exponentials."""
    sequences, q_tokens, kv_tokens, heads, kv_heads, qk_dim, v_dim, window, _, latent, materialised, cached = shape
    span = min(kv_tokens, window + q_tokens - 1.0) if window > 0.0 else kv_tokens
    token_byte = sequences * kv_heads * (qk_dim if latent > 0.0 else qk_dim + v_dim) * width[1]
    rows = sequences * heads * q_tokens
    scores = rows * kv_tokens if materialised > 0.0 else sequences * heads * visible_keys(shape)
    q_byte, o_byte = rows * qk_dim * width[0], rows * v_dim * width[2]
    score_byte = 4.0 * scores * width[0] if materialised > 0.0 else 0.0  # scores and weights, each written and read
    footprint = q_byte + o_byte + 0.5 * score_byte
    missed = 1.0 - kept_fraction(footprint, core.cache_byte)
    out[KV_READ] = span * token_byte * (1.0 - kept_fraction(footprint + reuse_byte, core.cache_byte))
    out[KV_WRITE] = cached * q_tokens * token_byte
    out[Q_BYTE], out[SCORE_BYTE], out[O_BYTE] = q_byte * missed, score_byte * missed, o_byte * missed
    out[MAC], out[EXP] = scores * (qk_dim + v_dim), scores


@kernel
def fits(core: Cores, tile: float, shape: Floats, width: Floats) -> bool:
    """Whether the output rows of a tile and two stages of keys and values fit one core; the smallest tile always runs."""
    stage = KEY_STEP * (shape[5] if shape[9] > 0.0 else shape[5] + shape[6]) * max(width[1], width[3])
    roomy = tile * shape[6] * PARTIAL_BYTE <= core.accumulator_byte and 2.0 * stage <= core.core_buffer_byte
    return bool(roomy or tile <= core.tile_sizes[0])


@kernel
def candidate(core: Cores, index: int, shape: Floats, width: Floats, packed: float) -> float:
    """Rows of the `index`-th tile to try, 0 for the vector lanes, or -1 for none.

    A lone query row may run on the vector lanes; stacked rows try every tile; other queries have one tile size.
    """
    rows, smallest = shape[1] * packed, core.tile_sizes[0]
    if index == 0:
        return 0.0 if rows <= 1.0 else -1.0
    if shape[1] > PACKED_TOKENS and packed <= 1.0:
        chosen = core.context_tile if fits(core, core.context_tile, shape, width) else smallest
        return chosen if index == 1 else -1.0
    tile = core.tile_sizes[index - 1]
    if (tile >= 2.0 * rows and tile > smallest) or not fits(core, tile, shape, width):
        return -1.0
    return float(tile)


@kernel
def attention(core: Cores, shape: Floats, width: Floats, rate: Floats, bandwidth: Floats, reuse_byte: Floats) -> Floats:
    """Time and traffic of attention, one row each.

    Args:
        core: the unit, with the efficiency and floor of its attention kernels; see `matmul.Cores`.
        shape: (rows, 12): sequences, q_tokens, kv_tokens (new ones included), heads, kv_heads, qk_dim, v_dim, window (0:
            none), causal, latent (one cached vector of qk_dim elements gives K and V), materialised (the scores go
            through memory, as the full rectangle and in three kernels), cached (keys and values of the new tokens are
            written to the cache).
        width: (rows, 4): bytes an element [B] of Q, of the cache, of the output, and of the format computed in.
        rate: (rows,) multiply-accumulates of one core a cycle in that format.
        bandwidth: (rows,) of the memory [B/cycle].
        reuse_byte: (rows,) bytes [B] touched between two uses of the cached keys and values; infinite when they always
            come from memory.

    Returns:
        (rows, COLUMNS): cycles in all (DURATION) and under each limit, FIXED being what no bandwidth shortens; bytes at
        memory by operand and at the cache, MACs, exponentials, and the tile and split chosen. Empty rows are all zero.

    Source: Dao, "FlashAttention-2" (2023) for the context pipeline, "Flash-Decoding" (2023) for the split along KV.
    Keys and values cross memory once, whatever the number of tiles. Ignored: rotary embedding (a row of its own), rounding
    of the keys to blocks, uneven sequences, and the kernels of vendors that do not share a KV head among over 32 queries.
    """
    result = np.zeros((shape.shape[0], COLUMNS))
    trial = np.zeros(COLUMNS)
    for row in range(shape.shape[0]):
        size = shape[row]
        if size[0] * size[1] * size[2] * size[3] * size[4] <= 0.0:
            continue
        count_work(core, size, width[row], reuse_byte[row], trial)
        traffic = trial[KV_READ] + trial[KV_WRITE] + trial[Q_BYTE] + trial[SCORE_BYTE] + trial[O_BYTE]
        packed = size[3] / size[4] if size[1] <= PACKED_TOKENS or size[9] > 0.0 else 1.0
        best = np.inf
        for index in range(core.tile_sizes.size + 1):
            tile = candidate(core, index, size, width[row], packed)
            if tile < 0.0:
                continue
            split, units = 1.0, ceil(size[1] * packed / max(tile, 1.0)) * size[0] * size[3] / packed
            most = size[2] / (2.0 * KEY_STEP) if size[1] <= PACKED_TOKENS or size[9] > 0.0 else 0.0
            while split == 1.0 or (split <= most and units * split <= 8.0 * core.cores):
                time_tile(core, size, width[row], (tile, split, packed, bandwidth[row], rate[row], traffic), best, trial)
                if trial[DURATION] < best:
                    best = trial[DURATION]
                    result[row] = trial
                split *= 2.0
        result[row, BUFFER_READ] += result[row, KV_WRITE] + result[row, O_BYTE]
        result[row, BUFFER_WRITE] += traffic - result[row, KV_WRITE] - result[row, O_BYTE]
    return result
