"""Attention on cores behind a shared cache: the kernels that libraries use for many and for few new tokens.

Context (many new tokens): tiles of one head's queries walk over the keys that they see. Generation (few): the query heads
that share a KV head are stacked, and blocks of threads each walk over a part of the keys; without heads to stack, or with too
many, one query runs on the vector lanes of a block. All times are cycles of the unit's clock, all rates per cycle of it.
"""

from __future__ import annotations

from math import ceil, floor, hypot, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel
from archmodel.kernels.limits import missed_fraction
from archmodel.kernels.matmul import BUFFER, DURATION, FEED, FIXED, MATRIX, MEMORY, PARTIAL_BYTE, VECTOR, Scalars

Floats = NDArray[np.float64]

#: FP32 operations on one score: scale and subtract the maximum (an FMA), maximum, sum, conversion
SCORE_FLOP = 5.0
#: new tokens up to which generation kernels run
PACKED_TOKENS = 8.0
#: context tiles of one head that run on a core at a time and share what they load, one's products beside the other's
#: exponentials (FlashAttention-3)
PAIR = 2.0
#: query rows of the smallest matrix tile (m16n8k16)
STACK_ROWS = 16.0
#: keys that are not cut further, by blocks of stacked heads (TensorRT-LLM: kMinHistoryTokensPerBlock)
SPLIT_KEYS = 128.0
#: a sequence of n such parts is cut into sqrt(8 n) at most, lest adding them up dominate (TensorRT-LLM: computeMultiBlockCount)
SPLIT_SPREAD = 8.0
#: bytes of keys that are not cut further, by blocks on the vector lanes: eight loads of 16 bytes by each of 256 threads
LANE_SPLIT_BYTE = 32768.0
#: blocks on the vector lanes that share a core
LANE_BLOCKS = 2.0
#: ramps of a block that adding up the parts takes; on the vector lanes one block waits for all others
STACK_REDUCTION, LANE_REDUCTION = 0.5, 4.0

#: columns of the result after the limits that it shares with matmul
(KV_READ, KV_WRITE, Q_BYTE, SCORE_BYTE, O_BYTE, BUFFER_READ, BUFFER_WRITE, MAC, EXP, TILE, SPLIT) = range(7, 18)
COLUMNS = 18


class AttentionCores(NamedTuple):
    """A GPU as attention kernels see it; bandwidths in bytes a cycle, times in cycles."""

    cores: float
    tile: float  # query rows of a tile of context attention, and of stacked latent attention
    stacked_heads: float  # most query heads that share a load of keys and values
    split_waves: float  # waves of blocks up to which keys are cut
    matrix_efficiency: float
    vector_flop: float  # of one core
    exp: float  # of one core
    dequantise_flop: float  # for one element
    feed_byte: float  # cache to one core
    block_byte: float  # that one block of threads keeps in flight, from cache or memory
    cache_byte: float
    cache_partitions: float
    cache_byte_per_cycle: float
    latency: float  # first byte from memory
    floor: float  # shortest generation kernel
    context_floor: float  # shortest context kernel
    extra_floor: float  # each small kernel that follows it
    ramp: float  # prologue and epilogue of a block of stacked heads
    vector_ramp: float  # of a block on the vector lanes
    context_ramp: float  # of a context tile


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
    """Keys that a tile of `step` tokens walks over: (mean over the `tiles` of a sequence, most)."""
    q_tokens, kv_tokens, window, causal, materialised = shape[1], shape[2], shape[7], shape[8], shape[10]
    if materialised > 0.0:
        return kv_tokens, kv_tokens
    cap = min(window + step - 1.0, kv_tokens) if window > 0.0 else kv_tokens
    if causal <= 0.0:
        return cap, cap
    before = kv_tokens - q_tokens
    # tile i ends at key before + (i + 1) step, the last one at kv_tokens
    rising = float(min(tiles - 1.0, max(0.0, floor((cap - before) / step))))
    total = rising * before + 0.5 * rising * (rising + 1.0) * step + (tiles - rising) * cap
    return total / tiles, cap


@kernel
def count_work(core: AttentionCores, shape: Floats, width: Floats, reuse_byte: float, out: Floats) -> float:
    """Fill what no kernel changes: traffic at memory by operand, MACs and exponentials. Returns the traffic [B]."""
    sequences, q_tokens, kv_tokens, heads, kv_heads, qk_dim, v_dim, window, _, latent, materialised, cached = shape
    span = min(kv_tokens, window + q_tokens - 1.0) if window > 0.0 else kv_tokens
    token_byte = sequences * kv_heads * (qk_dim if latent > 0.0 else qk_dim + v_dim) * width[1]
    rows = sequences * heads * q_tokens
    scores = rows * kv_tokens if materialised > 0.0 else sequences * heads * visible_keys(shape)
    q_byte, o_byte = rows * qk_dim * width[0], rows * v_dim * width[2]
    score_byte = 4.0 * scores * width[0] if materialised > 0.0 else 0.0  # scores and weights, each written and read
    footprint = q_byte + o_byte + 0.5 * score_byte
    missed = missed_fraction(footprint, core.cache_byte, core.cache_partitions)
    kv_missed = missed_fraction(footprint + reuse_byte, core.cache_byte, core.cache_partitions)
    out[KV_READ], out[KV_WRITE] = span * token_byte * kv_missed, cached * q_tokens * token_byte
    out[Q_BYTE], out[SCORE_BYTE], out[O_BYTE] = q_byte * missed, score_byte * missed, o_byte * missed
    out[MAC], out[EXP] = scores * (qk_dim + v_dim), scores
    return float(out[KV_READ] + out[KV_WRITE] + out[Q_BYTE] + out[SCORE_BYTE] + out[O_BYTE])


@kernel
def finish(core: AttentionCores, shape: Floats, width: Floats, plan: Scalars, out: Floats) -> None:
    """Fill the limits that all kernels share, and the time.

    `plan` is (bytes that cores fetch from the cache, parts that each output row is written in and most of them, cycles before
    the first wave, cycles of ramps, traffic at memory [B], memory bytes a cycle). Time is kept for most parts, so that more
    cores are not slower.
    """
    fetched, split, parts, start, ramps, traffic, bandwidth = plan
    rows, qk_dim, v_dim = shape[0] * shape[1] * shape[3], shape[5], shape[6]
    query_byte, part_byte = rows * (qk_dim * width[0] + v_dim * width[2]), rows * v_dim * PARTIAL_BYTE
    partial = split * part_byte if split > 1.0 else 0.0
    start += core.latency + (2.0 * core.extra_floor if shape[10] > 0.0 else 0.0)
    most = max(split, parts) * part_byte if parts > 1.0 else 0.0
    out[BUFFER] = (fetched + query_byte + 2.0 * most) / core.cache_byte_per_cycle
    out[MEMORY] = traffic / bandwidth
    out[FIXED] = start + ramps
    # exponentials wait for the scores of their own tile, so that they hide behind other tiles' products in part only
    work = max(hypot(out[MATRIX], out[VECTOR]), out[FEED])
    out[DURATION] = start + max(ramps + work, out[BUFFER], out[MEMORY])
    out[BUFFER_READ], out[BUFFER_WRITE] = fetched + query_byte + partial, partial


@kernel
def widen_flop(core: AttentionCores, shape: Floats, width: Floats) -> float:
    """Vector operations to widen the keys and values of one token from the cache's format to the one computed in."""
    elements = shape[5] if shape[9] > 0.0 else shape[5] + shape[6]
    return float(elements * core.dequantise_flop if width[1] < width[3] else 0.0)


@kernel
def walked_keys(shape: Floats) -> float:
    """Keys of one sequence that generation walks over: those in the windows of its tokens, or all where scores are stored."""
    q_tokens, kv_tokens, window, materialised = shape[1], shape[2], shape[7], shape[10]
    return float(min(kv_tokens, window + q_tokens - 1.0) if window > 0.0 and materialised <= 0.0 else kv_tokens)


@kernel
def time_context(core: AttentionCores, shape: Floats, width: Floats, speed: Scalars, out: Floats) -> None:
    """Tiles of one head's queries each walk over the keys that they see; `speed` is (rate, memory B/cycle, traffic [B])."""
    sequences, q_tokens, kv_tokens, heads, _, qk_dim, v_dim, _, _, latent, _, _ = shape
    rate, bandwidth, traffic = speed
    used = min(core.tile, q_tokens)
    row_tiles = ceil(q_tokens / core.tile)
    mean_keys, most_keys = tile_keys(shape, used, row_tiles)
    tiles = row_tiles * sequences * heads
    # tiles of unlike length even out over the cores, but none ends before the longest pair of them
    paired = min(PAIR, row_tiles)
    waves, keys = max(1.0, tiles / core.cores), max(paired * most_keys, tiles * mean_keys / core.cores)
    # keys of the new tokens are at hand in the format of the queries
    old = 1.0 - q_tokens / kv_tokens
    key_byte = (qk_dim if latent > 0.0 else qk_dim + v_dim) * (old * width[1] + (1.0 - old) * width[0])
    out[MATRIX] = keys * core.tile * (qk_dim + v_dim) / (rate * core.matrix_efficiency)
    flop = used * SCORE_FLOP + old * widen_flop(core, shape, width) / paired
    out[VECTOR] = keys * max(used / core.exp, flop / core.vector_flop)
    out[FEED] = keys * key_byte / (paired * core.feed_byte)
    # a tile's queries are loaded before its main loop and its result is stored after it
    edge = used * (qk_dim * width[0] + v_dim * width[2]) / (PAIR * core.block_byte)
    fetched = tiles * mean_keys * key_byte / paired
    ramps = waves * (core.context_ramp + edge)
    finish(core, shape, width, (fetched, 1.0, 1.0, core.context_floor, ramps, traffic, bandwidth), out)
    out[TILE], out[SPLIT] = core.tile, 1.0


@kernel
def time_stack(core: AttentionCores, shape: Floats, width: Floats, speed: Scalars, out: Floats) -> None:
    """Query heads that share a KV head are stacked; blocks each walk over a part of the keys, the window or not.

    Blocks whose keys lie outside the window end at once, but they are launched. A latent's many heads make blocks of `tile`
    rows; else a block walks over its keys once for every `STACK_ROWS` rows.
    """
    sequences, q_tokens, kv_tokens, heads, kv_heads, qk_dim, v_dim, window, _, latent, _, _ = shape
    rate, bandwidth, traffic = speed
    rows = q_tokens * heads / kv_heads
    block_rows = ceil(rows / STACK_ROWS) * STACK_ROWS
    if latent > 0.0:
        block_rows = min(block_rows, core.tile)
    stacks = sequences * kv_heads * (ceil(rows / block_rows) if latent > 0.0 else 1.0)
    walks = 1.0 if latent > 0.0 else block_rows / STACK_ROWS
    span = walked_keys(shape)
    parts = min(kv_tokens / SPLIT_KEYS, sqrt(SPLIT_SPREAD * kv_tokens / SPLIT_KEYS))
    split = max(1.0, min(parts, core.split_waves * core.cores / stacks))
    # blocks are launched as cores fall free, and the last of several waves is half empty
    whole, live = max(1.0, stacks * split / core.cores), min(kv_tokens / split, span)
    waves = whole + 0.5 * min(1.0, whole - 1.0)
    keys = max(live if window > 0.0 else waves * live, stacks * span / core.cores)
    key_byte = (qk_dim if latent > 0.0 else qk_dim + v_dim) * width[1]
    used = min(rows, block_rows)
    out[MATRIX] = keys * block_rows * (qk_dim + v_dim) / (rate * core.matrix_efficiency)
    flop = used * SCORE_FLOP + walks * widen_flop(core, shape, width)
    out[VECTOR] = keys * max(used / core.exp, flop / core.vector_flop)
    out[FEED] = keys * walks * key_byte / min(core.feed_byte, core.block_byte)
    start = core.floor + STACK_REDUCTION * core.ramp * min(1.0, max(0.0, parts - 1.0))
    fetched = stacks * walks * span * key_byte
    finish(core, shape, width, (fetched, split, parts, start, waves * core.ramp, traffic, bandwidth), out)
    out[TILE], out[SPLIT] = block_rows, split


@kernel
def time_lanes(core: AttentionCores, shape: Floats, width: Floats, speed: Scalars, cut: bool, out: Floats) -> None:
    """Each query of each head is a block on the vector lanes, or is `cut` along its keys so that every core has a block."""
    sequences, q_tokens, kv_tokens, heads, _, qk_dim, v_dim, _, _, latent, _, _ = shape
    _, bandwidth, traffic = speed
    queries = sequences * q_tokens * heads
    span = walked_keys(shape)
    parts = kv_tokens * qk_dim * width[3] / LANE_SPLIT_BYTE
    split = max(1.0, min(parts, ceil(core.cores / queries))) if cut else 1.0
    live = min(kv_tokens / split, span)
    slots = LANE_BLOCKS * core.cores
    waves, keys = max(1.0, queries * split / slots), max(live, queries * span / slots)
    key_byte = (qk_dim if latent > 0.0 else qk_dim + v_dim) * width[1]
    flop = 2.0 * (qk_dim + v_dim) + SCORE_FLOP + widen_flop(core, shape, width)
    out[MATRIX] = 0.0
    out[VECTOR] = max(live, queries * span / core.cores) * max(1.0 / core.exp, flop / core.vector_flop)
    out[FEED] = keys * key_byte / min(core.feed_byte / LANE_BLOCKS, core.block_byte)
    start = core.floor + (LANE_REDUCTION * core.vector_ramp if cut else 0.0)
    plan = (queries * span * key_byte, split, parts if cut else 1.0, start, waves * core.vector_ramp, traffic, bandwidth)
    finish(core, shape, width, plan, out)
    out[TILE], out[SPLIT] = 0.0, split


@kernel
def attention(
    core: AttentionCores, shape: Floats, width: Floats, rate: Floats, bandwidth: Floats, reuse_byte: Floats
) -> Floats:
    """Time and traffic of attention, one row each; where two kernels can run it, the faster one does.

    Args:
        core: the unit.
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

    Source: Dao, "FlashAttention-2" (2023) for context, "Flash-Decoding" (2023) for the split along keys; how a library cuts
    keys and stacks heads: TensorRT-LLM 1.3 (XQA, masked multi-head attention; Apache-2.0). Keys and values cross memory once.
    Ignored: rotary embedding (a row of its own), uneven sequences, and that TensorRT-LLM leaves few short sequences with
    grouped heads to its slower kernel for single heads.
    """
    result = np.zeros((shape.shape[0], COLUMNS))
    trial = np.zeros(COLUMNS)
    for row in range(shape.shape[0]):
        size = shape[row]
        if size[0] * size[1] * size[2] * size[3] * size[4] <= 0.0:
            continue
        traffic = count_work(core, size, width[row], reuse_byte[row], trial)
        speed = (rate[row], bandwidth[row], traffic)
        group, best = size[3] / size[4], np.inf
        stacked = size[9] > 0.0 or group <= core.stacked_heads
        for way in range(4):
            if size[1] > PACKED_TOKENS:
                if way > 0:
                    continue
                time_context(core, size, width[row], speed, trial)
            elif way == 1 and stacked:
                time_stack(core, size, width[row], speed, trial)
            elif way >= 2 and (group == 1.0 or not stacked):
                time_lanes(core, size, width[row], speed, way == 3, trial)
            else:
                continue
            if trial[DURATION] < best:
                best = trial[DURATION]
                result[row] = trial
        result[row, BUFFER_READ] += result[row, KV_WRITE] + result[row, O_BYTE]
        result[row, BUFFER_WRITE] += traffic - result[row, KV_WRITE] - result[row, O_BYTE]
    return result
