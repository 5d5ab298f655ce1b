"""Slow, obvious oracles of GPU attention: every pair of query and key, every tile and every block, in plain Python."""

from __future__ import annotations

import math

SCORE_FLOP = 5.0


def sees(query, key, q_tokens, kv_tokens, window, causal):
    """Whether new token `query` sees cached token `key`."""
    position = kv_tokens - q_tokens + query
    if not causal:
        return not window or key < window
    return key <= position and (not window or key > position - window)


def score_count(q_tokens, kv_tokens, window, causal):
    """Pairs of query and key of one head, counted one by one."""
    return sum(sees(query, key, q_tokens, kv_tokens, window, causal) for query in range(q_tokens) for key in range(kv_tokens))


def tile_keys(q_tokens, kv_tokens, window, step):
    """Keys that each tile of `step` tokens of a causal sequence walks over."""
    lengths = []
    for first in range(0, q_tokens, step):
        queries = range(first, min(first + step, q_tokens))
        lengths.append(sum(any(sees(q, key, q_tokens, kv_tokens, window, True) for q in queries) for key in range(kv_tokens)))
    return lengths


def missed(footprint, core):
    """Nothing is missed while each partition of the cache holds the footprint, everything at half as much again."""
    return min(max(2.0 * (footprint * core.cache_partitions / core.cache_byte - 1.0), 0.0), 1.0)


def slowest(core, start, ramps, compute, feed, fetched, traffic, bandwidth):
    return core.latency + start + max(ramps + max(compute, feed), fetched / core.cache_byte_per_cycle, traffic / bandwidth)


def context_cycles(core, sequences, q_tokens, heads, kv_heads, dim, rate, bandwidth):
    """Causal context attention in a 2-byte format: tiles of every head, in pairs, shared out evenly over the cores."""
    tile = int(core.tile)
    used = min(tile, q_tokens)
    lengths = tile_keys(q_tokens, q_tokens, 0, tile) * sequences * heads
    paired = min(2, math.ceil(q_tokens / tile))
    keys = max(paired * max(lengths), sum(lengths) / core.cores)
    matrix = keys * tile * 2 * dim / (rate * core.matrix_efficiency)
    vector = keys * used * max(1 / core.exp, SCORE_FLOP / core.vector_flop)
    feed = keys * 4 * dim / (paired * core.feed_byte)
    query_byte = 4 * sequences * heads * q_tokens * dim
    new_byte = 4 * sequences * kv_heads * q_tokens * dim
    ramps = max(1.0, len(lengths) / core.cores) * (core.context_ramp + used * 4 * dim / (2 * core.block_byte))
    fetched = sum(lengths) * 4 * dim / paired + query_byte
    traffic = 2 * new_byte + query_byte * missed(query_byte, core)
    return slowest(core, core.context_floor, ramps, math.hypot(matrix, vector), feed, fetched, traffic, bandwidth)


def parts_of(kv_tokens):
    """Parts of a sequence that blocks of stacked heads would take on a machine without end."""
    return min(kv_tokens / 128, math.sqrt(8 * kv_tokens / 128))


def stack_cycles(core, sequences, kv_tokens, heads, kv_heads, dim, rate, bandwidth):
    """Generation with grouped heads: every part of every KV head is a block, dealt to the cores in waves."""
    group = heads // kv_heads
    walks = math.ceil(group / 16)
    stacks = sequences * kv_heads
    parts = parts_of(kv_tokens)
    split = max(1.0, min(parts, core.split_waves * core.cores / stacks))
    assert split == int(split), "whole parts only, so that blocks can be counted"
    blocks = [kv_tokens / split] * (stacks * int(split))
    full = max(1.0, len(blocks) / core.cores)
    waves = full + min(1.0, full - 1.0) / 2  # the last one is half empty
    keys, ramps = waves * max(blocks), waves * core.ramp
    matrix = keys * walks * 16 * 2 * dim / (rate * core.matrix_efficiency)
    vector = keys * group * max(1 / core.exp, SCORE_FLOP / core.vector_flop)
    feed = keys * walks * 4 * dim / min(core.feed_byte, core.block_byte)
    query_byte = 4 * sequences * heads * dim
    partial = 2 * 4 * max(split, parts) * sequences * heads * dim if parts > 1 else 0
    kv_byte = 4 * stacks * kv_tokens * dim
    start = core.floor + 0.5 * core.ramp * min(1.0, max(0.0, parts - 1.0))
    fetched = kv_byte * walks + query_byte + partial
    traffic = kv_byte + 4 * stacks * dim + query_byte * missed(query_byte, core)
    return slowest(core, start, ramps, math.hypot(matrix, vector), feed, fetched, traffic, bandwidth)


def lane_cycles(core, sequences, kv_tokens, heads, kv_heads, dim, bandwidth):
    """Generation on the vector lanes, keys not cut: every query of every head is a block, two of them on a core."""
    queries = sequences * heads
    slots = 2 * core.cores
    keys = max(kv_tokens, queries * kv_tokens / slots)
    flop = 2 * 2 * dim + SCORE_FLOP
    vector = max(kv_tokens, queries * kv_tokens / core.cores) * max(1 / core.exp, flop / core.vector_flop)
    feed = keys * 4 * dim / min(core.feed_byte / 2, core.block_byte)
    query_byte = 4 * queries * dim
    ramps = core.vector_ramp * max(1.0, queries / slots)
    traffic = 4 * sequences * kv_heads * (kv_tokens + 1) * dim + query_byte * missed(query_byte, core)
    fetched = 4 * queries * kv_tokens * dim + query_byte
    return slowest(core, core.floor, ramps, vector, feed, fetched, traffic, bandwidth)
