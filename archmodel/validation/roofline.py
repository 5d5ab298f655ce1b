"""The plain roofline of a measured row: the larger of FLOP / peak and bytes / bandwidth, from the data sheet alone.

It is what a reader can do on paper, and the yardstick that a model must beat: no floor, no waves, no cache.
"""

from __future__ import annotations

import attrs
import numpy as np

from archmodel.components import link, memory
from archmodel.dtypes import ALIASES, ATTENTION_DTYPES, DTYPES, Dtype
from archmodel.errors import MappingError
from archmodel.operations import Floats
from archmodel.soc import Soc
from archmodel.table_file import TableFile
from archmodel.units import element_bytes
from archmodel.validation.kernels import HEAD, LATENT, ROPE


@attrs.frozen(eq=False, kw_only=True)
class Roofline:
    """Arrays have shape (rows,); NaN where an operation has no roofline."""

    time_us: Floats
    stream_byte: Floats  # weights or KV cache, which a kernel reads from the cache only if it was left there
    stream_us: Floats  # the memory's peak for that
    cache_byte: float


@attrs.frozen(eq=False)
class _Work:
    flop: Floats
    byte: Floats
    stream_byte: Floats
    compute: list[tuple[str, ...]]  # formats that each row may be computed in, best first


def roofline(soc: Soc, what: str, table: TableFile) -> Roofline:
    """Roofline of every row of a table of `what` (a key of OPERATIONS) on the GPU of `soc`."""
    if what == "collectives":
        return _collectives(soc, table)
    name, unit = next(iter(soc.units.items()))
    work = {
        "gemm": _gemms, "attn_context": _attentions, "attn_generation": _attentions, "mla": _latent, "moe": _experts,
        "quantise": _quantisations,
    }[what](table)  # fmt: skip
    peaks = soc.peaks_per_s()[name]
    fastest = {key: max((peaks.get(fmt, 0.0) for fmt in key), default=0.0) or peaks["bf16"] for key in set(work.compute)}
    peak = np.array([fastest[key] for key in work.compute])
    bandwidth = memory.peak_byte_per_s(soc.tiers[unit.memory])
    return Roofline(
        time_us=1e6 * np.maximum(work.flop / peak, work.byte / bandwidth),
        stream_byte=work.stream_byte,
        stream_us=1e6 * work.stream_byte / bandwidth,
        cache_byte=memory.capacity_byte(soc.tiers[unit.buffer]),
    )


def _column(table: TableFile, name: str) -> Floats:
    return np.array(table.texts(name), dtype=np.float64)


def _meanings(table: TableFile, column: str, known: dict[str, Dtype]) -> list[Dtype]:
    return [known[ALIASES.get(cell, cell)] for cell in table.texts(column)]


def _gemms(table: TableFile) -> _Work:
    m, n, k = (_column(table, name) for name in ("m", "n", "k"))
    meaning = _meanings(table, "dtype", dict(DTYPES))
    a_byte, b_byte, c_byte = (np.array([getattr(d, f"{x}_byte") for d in meaning]) for x in "abc")
    weights = n * k * b_byte
    return _Work(2.0 * m * n * k, m * k * a_byte + weights + m * n * c_byte, weights, [d.compute for d in meaning])


def _attentions(table: TableFile) -> _Work:
    columns = ("batch", "seq_q", "kv_len", "heads", "kv_heads", "head_dim", "window")
    batch, seq_q, kv_len, heads, kv_heads, head_dim, window = (_column(table, name) for name in columns)
    meaning = _meanings(table, "attn_dtype", dict(ATTENTION_DTYPES))
    kept = np.where(window > 0, np.minimum(kv_len, window + seq_q - 1), kv_len)
    kv = 2.0 * batch * kept * kv_heads * head_dim * _cache_byte(table)
    q_and_result = batch * seq_q * heads * head_dim * np.array([d.a_byte + d.c_byte for d in meaning])
    flop = 4.0 * batch * heads * head_dim * _pairs(seq_q, kv_len, window)
    return _Work(flop, q_and_result + kv, np.where(seq_q > 1, 0.0, kv), [d.compute for d in meaning])


def _cache_byte(table: TableFile) -> Floats:
    return np.array([element_bytes(ALIASES.get(cell, cell)) for cell in table.texts("kv_dtype")])


def _pairs(seq_q: Floats, kv_len: Floats, window: Floats) -> Floats:
    """Pairs of a query and a key that a causal mask and a window leave, for one head of one sequence."""
    full = seq_q * (kv_len - seq_q) + seq_q * (seq_q + 1.0) / 2.0
    short = np.minimum(window, kv_len)  # the first queries see less than a window
    ramp = np.clip(short - (kv_len - seq_q), 0.0, seq_q)
    first = ramp * (kv_len - seq_q) + ramp * (ramp + 1.0) / 2.0
    return np.where(window > 0, first + (seq_q - ramp) * short, full)


def _latent(table: TableFile) -> _Work:
    """Expanded in context (keys of 128 + 64, values of 128 a head), absorbed in generation (one latent for all heads)."""
    batch, seq_q, kv_len, heads = (_column(table, name) for name in ("batch", "seq_q", "kv_len", "heads"))
    context = np.array([phase == "context" for phase in table.texts("phase")])
    meaning = _meanings(table, "mla_dtype", dict(ATTENTION_DTYPES))
    width = np.where(context, 2.0 * HEAD + ROPE, 2.0 * LATENT + ROPE)
    kv = batch * kv_len * (LATENT + ROPE) * _cache_byte(table)
    queries = np.where(context, seq_q, 1.0)
    moved = 2.0 * batch * queries * heads * width
    flop = 2.0 * batch * heads * width * np.where(context, _pairs(seq_q, kv_len, np.zeros_like(kv_len)), kv_len)
    return _Work(flop, moved + kv, np.where(context, 0.0, kv), [d.compute for d in meaning])


def _experts(table: TableFile) -> _Work:
    """As many experts as tokens can reach; with skewed routing they reach fewer, so that no bytes are certain to stream."""
    columns = ("num_tokens", "hidden", "inter", "topk", "experts", "tp", "ep")
    tokens, hidden, inter, topk, experts, tp, ep = (_column(table, name) for name in columns)
    gated = np.array([0.0 if "nongated" in kernel else 1.0 for kernel in table.texts("kernel")])
    meaning = _meanings(table, "dtype", dict(DTYPES))
    element = (2.0 + gated) * hidden * inter / tp
    weights = np.minimum(experts, tokens * topk) / ep * element * np.array([d.b_byte for d in meaning])
    flop = 2.0 * tokens * topk / ep * element
    return _Work(flop, weights + 4.0 * tokens * hidden, np.zeros(len(table)), [d.compute for d in meaning])


def _quantisations(table: TableFile) -> _Work:
    elements = _column(table, "m") * _column(table, "k")
    byte = np.array([2.0 if op == "computescale" else 3.0 for op in table.texts("op")])
    zero = np.zeros(len(table))
    return _Work(zero, elements * byte, zero, [("bf16",)] * len(table))


def _collectives(soc: Soc, table: TableFile) -> Roofline:
    """Bytes that a ring sends over the rate of one chip's link."""
    try:
        name, _ = soc.peer_link()
    except MappingError:
        missing = np.full(len(table), np.nan)
        return Roofline(time_us=missing, stream_byte=missing, stream_us=missing, cache_byte=0.0)
    ranks, byte = _column(table, "num_gpus"), _column(table, "message_bytes")
    passes = np.array([2.0 if op == "all_reduce" else 1.0 for op in table.texts("op")])
    time_us = 1e6 * passes * (ranks - 1.0) / ranks * byte / link.payload_byte_per_s(soc.links[name])
    zero = np.zeros(len(table))
    return Roofline(time_us=time_us, stream_byte=zero, stream_us=zero, cache_byte=0.0)
