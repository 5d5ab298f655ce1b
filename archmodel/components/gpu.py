"""GPU: cores with matrix and vector lanes behind a shared cache, streaming from memory.

Matrix products and attention are timed by tiles and waves (`kernels/matmul.py`, `kernels/attention.py`), vector work by the
slowest of lanes, cache and memory. Activations stay in the cache as far as they fit, since the neighbouring operation has
them there; weights, the KV cache and recurrent state come from memory unless `reuse_byte` says that they are still cached.

Ignored: clocks that fall under a power cap (`clocks.py` finds them), and cores left idle by vector work of few elements.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.costs import LIMITS, Costs, Surroundings, empty_costs, place
from archmodel.errors import MappingError
from archmodel.kernels import attention as attn
from archmodel.kernels import matmul as mm
from archmodel.kernels import moe
from archmodel.kernels.limits import LEAST_FADE
from archmodel.operations import ROUTING, Kind, Rows
from archmodel.spec.chip import CAPABILITIES, GpuSpec
from archmodel.units import BITS, FORMATS, KIB

Floats = NDArray[np.float64]

#: vector work that goes once over its operands, element by element; the rest gathers, reduces or evaluates functions along rows
_COPIES = [CAPABILITIES.index(name) for name in ("residual", "quantise", "convert")]
_QUANTISE = CAPABILITIES.index("quantise")
_FORMAT_BYTE = np.array([BITS[name] / 8.0 for name in FORMATS])


def costs(spec: GpuSpec, rows: Rows, around: Surroundings, *, reuse_byte: Floats | None = None) -> Costs:
    """Costs of matrix products, attention, scans and vector operations on a GPU.

    Args:
        spec: the unit.
        rows: operations, all placed on it.
        around: what it sees; `buffer_byte` is the part of the cache that keeps data for the next use.
        reuse_byte: shape (rows,) [B], data touched between two uses of the same weights or KV cache, as in a benchmark that
            repeats one operation. None: they always come from memory, as in a model larger than the cache.

    Raises:
        MappingError: a number format that the cores do not compute in.
    """
    result = empty_costs(len(rows))
    distance = np.full(len(rows), np.inf) if reuse_byte is None else reuse_byte
    kinds = {Kind.MATMUL: _matmul, Kind.ATTENTION: _attention, Kind.SCAN: _vector, Kind.VECTOR: _vector}
    for kind in np.unique(rows.kind):
        index = np.flatnonzero(rows.kind == kind)
        near = attrs.evolve(around, memory_byte_per_s=around.memory_byte_per_s[index])
        place(result, index, kinds[Kind(kind)](spec, rows.take(index), near, distance[index]))
    return result


def _rates(spec: GpuSpec, rows: Rows) -> Floats:
    """MACs of one core in a cycle for the compute format of each row, shape (rows,)."""
    rate = np.array([spec.macs_per_core_per_cycle.get(name, 0.0) for name in FORMATS])[rows.compute_format]
    if not np.all(rate):
        bad = int(np.argmin(rate))
        have = ", ".join(spec.macs_per_core_per_cycle)
        raise MappingError(f"gpu: {rows.name[bad]} computes in {FORMATS[rows.compute_format[bad]]}; this unit has {have}")
    return np.asarray(rate)


def _cores(spec: GpuSpec, around: Surroundings, *, efficiency: float, floor_us: float, ramp_us: float) -> mm.Cores:
    """The unit in cycles of its clock, with the constants of one kind of kernel."""
    clock_hz = spec.clock_ghz * 1e9
    return mm.Cores(
        cores=float(spec.cores),
        tile_sizes=np.array(spec.tile_sizes, dtype=np.float64),
        context_tile=float(spec.attention_tile),
        accumulator_byte=spec.accumulator_kib * KIB,
        core_buffer_byte=spec.core_buffer_kib * KIB,
        matrix_efficiency=float(efficiency),
        vector_flop=spec.vector_flop_per_core_per_cycle * spec.vector_efficiency,
        exp=spec.exp_per_core_per_cycle * spec.vector_efficiency,
        dequantise_flop=float(spec.dequantise_flop),
        feed_byte=float(spec.feed_byte_per_core_per_cycle),
        multicast=float(spec.multicast),
        stream_byte=float(spec.stream_byte_per_core_per_cycle),
        cache_byte=float(around.buffer_byte),
        cache_byte_per_cycle=around.buffer_byte_per_s / clock_hz,
        overlap_exponent=float(spec.overlap_exponent),
        floor=floor_us * 1e-6 * clock_hz,
        extra_floor=spec.split_floor_us * 1e-6 * clock_hz,
        ramp=ramp_us * 1e-6 * clock_hz,
        vector_ramp=spec.attention_vector_ramp_us * 1e-6 * clock_hz,
        latency=around.memory_latency_s * clock_hz,
        partitions=float(spec.buffer_partitions),
        boost=spec.boost_us * 1e-6 * clock_hz,
        sustained=float(spec.sustained_clock_share),
    )


def _limits_s(spec: GpuSpec, result: Floats) -> tuple[Floats, Floats]:
    """Seconds under each limit, shape (rows, limits), and in all, shape (rows,): the one place that leaves cycles."""
    columns = [mm.MATRIX, mm.VECTOR, mm.FEED, mm.BUFFER, mm.MEMORY, mm.FIXED]
    cycle_s = 1e-9 / spec.clock_ghz
    return result[:, columns] * cycle_s, result[:, mm.DURATION] * cycle_s


def _share(work: Floats, peak_per_s: Floats | float, duration_s: Floats) -> Floats:
    return np.asarray(np.divide(work, peak_per_s * duration_s, out=np.zeros_like(work), where=duration_s > 0))


def _matmul(spec: GpuSpec, rows: Rows, around: Surroundings, reuse_byte: Floats) -> Costs:
    rate = _rates(spec, rows)
    core = _cores(spec, around, efficiency=spec.matrix_efficiency, floor_us=spec.kernel_floor_us, ramp_us=spec.kernel_ramp_us)
    computed = _FORMAT_BYTE[rows.compute_format]
    bandwidth = around.memory_byte_per_s * spec.matmul_stream_efficiency / (spec.clock_ghz * 1e9)
    width = np.stack((rows.input_byte, rows.weight_byte, rows.output_byte, computed), axis=1)
    result = _products(spec, core, rows, width, np.stack((rate, bandwidth, reuse_byte), axis=1))
    limits_s, duration_s = _limits_s(spec, result)
    mac = rows.m * rows.n * rows.k * rows.count
    return Costs(
        limits_s=limits_s,
        duration_s=duration_s,
        weight_traffic_byte=result[:, mm.B_BYTE],
        kv_traffic_byte=np.zeros(len(rows)),
        activation_traffic_byte=result[:, mm.A_BYTE] + result[:, mm.C_BYTE],
        written_byte=result[:, mm.C_BYTE],
        buffer_read_byte=result[:, mm.BUFFER_READ],
        buffer_write_byte=result[:, mm.BUFFER_WRITE],
        mac=mac,
        vector_flop=result[:, mm.DEQUANTISED] * spec.dequantise_flop,
        utilisation=_share(mac, rate * spec.cores * spec.clock_ghz * 1e9, duration_s),
    )


def _products(spec: GpuSpec, core: mm.Cores, rows: Rows, width: Floats, speed: Floats) -> Floats:
    """Results of `mm.matmul`, of `moe.grouped_matmul` where the problems of a row are experts; `speed` as of the latter."""
    result = np.zeros((len(rows), mm.COLUMNS))
    shape = np.stack((rows.m, rows.n, rows.k, rows.count), axis=1)
    for whole_k, floor in ((0.0, core.extra_floor), (1.0, np.inf)):
        index = np.flatnonzero((rows.experts == 0) & (rows.whole_k == whole_k))
        if len(index):
            plain = core._replace(extra_floor=floor)
            result[index] = mm.matmul(plain, shape[index], width[index], *np.ascontiguousarray(speed[index].T))
    index = np.flatnonzero(rows.experts > 0)
    if len(index):
        routing = np.stack([getattr(rows, name)[index] for name in ROUTING], axis=1)
        edges = np.union1d(moe.SMALL_EDGES, core.tile_sizes)
        loads = moe.expert_loads(routing, edges)
        shape = np.stack((rows.n, rows.k), axis=1)[index]
        core = core._replace(matrix_efficiency=core.matrix_efficiency * spec.grouped_efficiency)
        result[index] = moe.grouped_matmul(core, shape, width[index], speed[index], loads, edges)
    return result


def _attention_cores(spec: GpuSpec, around: Surroundings) -> attn.AttentionCores:
    """The unit in cycles of its clock, with the constants of its attention kernels."""
    clock_hz = spec.clock_ghz * 1e9
    us = clock_hz * 1e-6
    return attn.AttentionCores(
        cores=float(spec.cores),
        tile=float(spec.attention_tile),
        stacked_heads=float(spec.attention_stacked_heads),
        split_waves=float(spec.attention_split_waves),
        matrix_efficiency=float(spec.attention_efficiency),
        vector_flop=float(spec.vector_flop_per_core_per_cycle),
        exp=float(spec.exp_per_core_per_cycle),
        dequantise_flop=float(spec.dequantise_flop),
        feed_byte=float(spec.feed_byte_per_core_per_cycle),
        block_byte=float(spec.attention_block_byte_per_cycle),
        cache_byte=float(around.buffer_byte),
        cache_partitions=float(spec.buffer_partitions),
        cache_byte_per_cycle=around.buffer_byte_per_s / clock_hz,
        latency=around.memory_latency_s * clock_hz,
        floor=spec.attention_floor_us * us,
        context_floor=spec.attention_context_floor_us * us,
        extra_floor=spec.kernel_floor_us * us,
        ramp=spec.attention_ramp_us * us,
        vector_ramp=spec.attention_vector_ramp_us * us,
        context_ramp=spec.attention_context_ramp_us * us,
    )


def _attention(spec: GpuSpec, rows: Rows, around: Surroundings, reuse_byte: Floats) -> Costs:
    rate = _rates(spec, rows)
    kv_heads = np.where(rows.latent > 0, 1.0, rows.kv_heads)
    shape = (rows.sequences, rows.q_tokens, rows.kv_tokens, rows.heads, kv_heads, rows.qk_dim, rows.v_dim, rows.window,
             rows.causal, rows.latent, rows.materialised, rows.cached)  # fmt: skip
    result = attn.attention(
        _attention_cores(spec, around),
        np.stack(shape, axis=1),
        np.stack((rows.input_byte, rows.kv_byte, rows.output_byte, _FORMAT_BYTE[rows.compute_format]), axis=1),
        rate,
        around.memory_byte_per_s * spec.attention_stream_efficiency / (spec.clock_ghz * 1e9),
        reuse_byte,
    )
    limits_s, duration_s = _limits_s(spec, result)
    mac, exp, score_byte = result[:, attn.MAC], result[:, attn.EXP], result[:, attn.SCORE_BYTE]
    return Costs(
        limits_s=limits_s,
        duration_s=duration_s,
        weight_traffic_byte=np.zeros(len(rows)),
        kv_traffic_byte=result[:, attn.KV_READ] + result[:, attn.KV_WRITE],
        activation_traffic_byte=result[:, attn.Q_BYTE] + result[:, attn.O_BYTE] + score_byte,
        written_byte=result[:, attn.KV_WRITE] + result[:, attn.O_BYTE] + 0.5 * score_byte,
        buffer_read_byte=result[:, attn.BUFFER_READ],
        buffer_write_byte=result[:, attn.BUFFER_WRITE],
        mac=mac,
        vector_flop=exp * (attn.SCORE_FLOP + 1.0),
        utilisation=_share(mac, rate * spec.cores * spec.clock_ghz * 1e9, duration_s),
    )


def _vector(spec: GpuSpec, rows: Rows, around: Surroundings, reuse_byte: Floats) -> Costs:
    """Element-wise work and scans. A fused row has its operands in registers: it takes lanes, but no traffic and no launch."""
    alone = 1.0 - rows.fused
    state_byte = np.where(rows.kind == Kind.SCAN, rows.kv_byte, 0.0)
    read_byte, write_byte = alone * rows.read_byte, alone * rows.write_byte
    footprint = read_byte + write_byte
    missed = _missed(spec, footprint, around.buffer_byte)
    state_missed = _missed(spec, footprint + reuse_byte, around.buffer_byte)
    loaded, stored, state = read_byte * missed, write_byte * missed, state_byte * state_missed
    per_s = spec.cores * spec.clock_ghz * 1e9 * spec.vector_efficiency
    vector_s = np.maximum(
        rows.flop / (per_s * spec.vector_flop_per_core_per_cycle), rows.exp / (per_s * spec.exp_per_core_per_cycle)
    )
    zero = np.zeros(len(rows))
    kept = np.where(np.isin(rows.capability, _COPIES), 1.0, spec.row_stream_efficiency)
    in_flight_byte_per_s = spec.cores * spec.vector_byte_per_core_per_cycle * spec.clock_ghz * 1e9
    buffer_s = (footprint + state_byte) / (kept * min(around.buffer_byte_per_s, in_flight_byte_per_s))
    memory_s = (loaded + stored + state) / (kept * np.minimum(around.memory_byte_per_s, in_flight_byte_per_s))
    reducing = (rows.capability == _QUANTISE) & (write_byte == 0.0)
    in_flight_s = (loaded * around.memory_latency_s + (read_byte - loaded) * 1e-9 * spec.buffer_latency_ns) / (
        spec.cores * spec.reduction_byte_in_flight
    )
    memory_s = np.where(reducing, np.maximum(memory_s, in_flight_s), memory_s)
    fixed_s = alone * (around.memory_latency_s + 1e-6 * np.where(reducing, spec.reduction_floor_us, spec.vector_floor_us))
    fixed_s += np.where(rows.experts > 0, 1e-6 * spec.routing_floor_us, 0.0)
    limits = {"matrix": zero, "vector": vector_s, "feed": zero, "buffer": buffer_s, "memory": memory_s, "fixed": fixed_s}
    duration_s = fixed_s + _power_mean((vector_s, buffer_s, memory_s), spec.overlap_exponent)
    vector_flop = rows.flop + rows.exp
    return Costs(
        limits_s=np.stack([limits[name] for name in LIMITS], axis=1),
        duration_s=duration_s,
        weight_traffic_byte=zero,
        kv_traffic_byte=state,
        activation_traffic_byte=loaded + stored,
        written_byte=stored + 0.5 * state,
        buffer_read_byte=read_byte + stored + 0.5 * (state_byte + state),
        buffer_write_byte=write_byte + loaded + 0.5 * (state_byte + state),
        mac=zero,
        vector_flop=vector_flop,
        utilisation=_share(vector_s * spec.vector_efficiency, 1.0, duration_s),
    )


def _missed(spec: GpuSpec, footprint_byte: Floats, cache_byte: float) -> Floats:
    """Share in [0, 1] of vector operands that the cache no longer has, shape (rows,).

    `kernels.limits.missed_fraction` on arrays.
    """
    fade = max(1.0 - 1.0 / spec.buffer_partitions, LEAST_FADE)
    return np.asarray(np.clip((footprint_byte * spec.buffer_partitions / cache_byte - 1.0) / fade, 0.0, 1.0))


def _power_mean(limits: tuple[Floats, ...], exponent: float) -> Floats:
    """`kernels.limits.smooth_maximum` on arrays."""
    top = np.maximum.reduce(limits)
    scale = np.where(top > 0.0, top, 1.0)
    return np.asarray(top * np.add.reduce([(limit / scale) ** exponent for limit in limits]) ** (1.0 / exponent))
