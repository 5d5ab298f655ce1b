"""NPU: systolic arrays with a post-processing (vector) unit, one operand buffer, and DMA from memory.

A row takes the longest of its arrays, vector unit, buffer and memory, all overlapped by double-buffered DMA, after what
nothing can hide: decoding the command, the first byte's latency, loading the first tile and storing the last one. Half of
the buffer holds the tiles in work, the other half the tiles on their way. Activations stay in the buffer from one row to the
next where they fit beside the smallest tiles, and else go through memory; weights and the KV cache always come from memory.

Ignored: banks of the buffer, and reuse of weights from one row or step to the next. A causal or windowed attention counts
the exact pairs of query and key as keys per query on average; tiles on the edge of the mask are not counted whole.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.components import lanes
from archmodel.costs import Costs, Surroundings, empty_costs, place
from archmodel.errors import MappingError
from archmodel.kernels.systolic import DATAFLOWS, SystolicArray, systolic_cycles
from archmodel.kernels.tiling import operand_passes
from archmodel.operations import Kind, Rows
from archmodel.spec.chip import NpuSpec
from archmodel.units import FORMATS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: vector operations of one attention score: scale, maximum, subtract, exponential, sum
SCORE_OPS = 5.0
#: how often a score that is not kept on chip crosses the memory: scores out and in, probabilities out and in
SCORE_CROSSINGS = 4.0


def costs(spec: NpuSpec, rows: Rows, around: Surroundings, *, resident: bool = True) -> Costs:
    """Costs of matrix products, attention, scans and vector operations on an NPU.

    Args:
        spec: the unit.
        rows: operations, all placed on it.
        around: what it sees; `buffer_byte` is all its room for operands.
        resident: activations may stay in the buffer between rows; False starts and ends every row in memory, as for a GEMM
            on its own.

    Raises:
        MappingError: a number format that the arrays do not have, or a buffer too small for the smallest tiles.
    """
    result = empty_costs(len(rows))
    kinds = {Kind.MATMUL: _matmul, Kind.ATTENTION: _attention, Kind.SCAN: lanes.vector, Kind.VECTOR: lanes.vector}
    for kind in np.unique(rows.kind):
        index = np.flatnonzero(rows.kind == kind)
        near = attrs.evolve(around, memory_byte_per_s=around.memory_byte_per_s[index])
        place(result, index, kinds[Kind(kind)](spec, rows.take(index), near, resident))
    return result


@attrs.frozen(eq=False, kw_only=True)
class _Gemms:
    """A batch of GEMMs on the arrays; arrays have shape (rows,) unless said."""

    shape: Ints  # m, n, k, shape (rows, 3)
    count: Floats
    element_byte: Floats  # of A, of B and of a partial sum [B], shape (rows, 3)
    rate: Floats  # MACs of one PE in a cycle
    tile: Ints  # smallest tile m, n, k, shape (rows, 3)

    @property
    def tile_byte(self) -> Floats:
        """Bytes of the smallest tiles of A, B and partial sums, shape (rows, 3)."""
        m, n, k = self.tile.T
        return np.stack((m * k, k * n, m * n), axis=1) * self.element_byte

    def run(self, spec: NpuSpec, around: Surroundings, other_byte: Floats) -> tuple[Floats, Floats, Floats]:
        """Seconds of the arrays, of the slower of arrays and buffer, and bytes read from the buffer, each shape (rows,)."""
        clock_hz = spec.clock_ghz * 1e9
        array = SystolicArray(
            arrays=spec.arrays,
            rows=spec.rows,
            cols=spec.cols,
            dataflow=DATAFLOWS.index(spec.dataflow),
            double_buffered=spec.double_buffered,
            load_rows_per_cycle=spec.load_rows_per_cycle,
            buffer_byte_per_cycle=around.buffer_byte_per_s / clock_hz,
        )
        operand_byte = self.element_byte[:, :2]
        cycles, stream_cycles, words = systolic_cycles(self.shape, self.count, self.rate, operand_byte, other_byte, array)
        return cycles / clock_hz, stream_cycles / clock_hz, np.sum(words[:, :2] * operand_byte, axis=1)


def _gemms(spec: NpuSpec, rows: Rows, sizes: tuple[Floats, ...], count: Floats, b_byte: Floats) -> _Gemms:
    """GEMMs of `sizes` m, n, k whose B elements take `b_byte`; the smallest tile is one fold, `rows` steps long."""
    rate = _rates(spec, rows)
    shape = np.ceil(np.stack(sizes, axis=1)).astype(np.int64)
    deep = np.ceil(spec.rows * np.maximum(rate, 1.0)).astype(np.int64)
    m_tile, n_tile = (spec.cols, spec.rows) if spec.dataflow == "is" else (spec.rows, spec.cols)
    tile = np.minimum(np.stack(np.broadcast_arrays(m_tile, n_tile, deep), axis=1), shape)
    element_byte = np.stack(np.broadcast_arrays(rows.input_byte, b_byte, spec.accumulator_byte), axis=1)
    return _Gemms(shape=shape, count=count, element_byte=element_byte, rate=rate, tile=tile)


def _rates(spec: NpuSpec, rows: Rows) -> Floats:
    """MACs of one PE in a cycle for the compute format of each row, shape (rows,)."""
    rate = np.array([spec.macs_per_pe_per_cycle.get(name, 0.0) for name in FORMATS])[rows.compute_format]
    if not np.all(rate):
        bad = int(np.argmin(rate))
        have = ", ".join(spec.macs_per_pe_per_cycle)
        raise MappingError(f"npu: {rows.name[bad]} computes in {FORMATS[rows.compute_format[bad]]}; this unit has {have}")
    return np.asarray(rate)


def _check_room(spec: NpuSpec, rows: Rows, around: Surroundings, tile_byte: Floats) -> None:
    """Raise unless two sets of the smallest tiles fit; `tile_byte` has shape (rows,)."""
    if np.any(2.0 * tile_byte > around.buffer_byte):
        bad = int(np.argmax(tile_byte))
        raise MappingError(
            f"npu: the smallest tiles of {rows.name[bad]}, double-buffered, do not fit in {spec.buffer}: "
            f"{2.0 * tile_byte[bad]:,.0f} bytes needed, {around.buffer_byte:,.0f} there"
        )


def _peak_mac_per_s(spec: NpuSpec, rate: Floats) -> Floats:
    return rate * (spec.arrays * spec.rows * spec.cols * spec.clock_ghz * 1e9)


def _matmul(spec: NpuSpec, rows: Rows, around: Surroundings, resident: bool) -> Costs:
    gemms = _gemms(spec, rows, (rows.m, rows.n, rows.k), rows.count, rows.weight_byte)
    tile_byte = gemms.tile_byte
    needed_byte = tile_byte.sum(axis=1)
    _check_room(spec, rows, around, needed_byte)
    a_byte, b_byte = rows.count * rows.m * rows.k * rows.input_byte, rows.count * rows.k * rows.n * rows.weight_byte
    c_byte = rows.count * rows.m * rows.n * rows.output_byte
    kept = resident & (a_byte + c_byte + 2.0 * needed_byte <= around.buffer_byte)
    passes = operand_passes(gemms.shape, gemms.element_byte, gemms.tile, 0.5 * around.buffer_byte)
    weight_byte = b_byte * np.where(kept, 1.0, passes[:, 1])
    loaded_byte = np.where(kept, 0.0, a_byte * passes[:, 0])
    stored_byte = np.where(kept, 0.0, c_byte)
    filled_byte = weight_byte + loaded_byte + c_byte
    array_s, stream_s, read_byte = gemms.run(spec, around, filled_byte + stored_byte)
    last_byte = gemms.tile[:, 0] * gemms.tile[:, 1] * rows.output_byte
    return lanes.finish(
        spec, around, array_s, stream_s, np.zeros(len(rows)),
        exposed_byte=tile_byte[:, 1] + np.where(kept, 0.0, tile_byte[:, 0] + last_byte),
        peak_per_s=_peak_mac_per_s(spec, gemms.rate),
        weight_traffic_byte=weight_byte, activation_traffic_byte=loaded_byte + stored_byte, written_byte=stored_byte,
        buffer_read_byte=read_byte + stored_byte, buffer_write_byte=filled_byte,
        mac=rows.count * rows.m * rows.n * rows.k,
    )  # fmt: skip


def _pairs(rows: Rows) -> tuple[Floats, Floats]:
    """Pairs of query and key of one sequence and head, and keys that at least one query sees, each shape (rows,)."""
    kv, q = rows.kv_tokens, rows.q_tokens
    most = np.where(rows.window > 0, np.minimum(rows.window, kv), kv)
    first = np.where(rows.causal > 0, kv - q + 1.0, kv)  # keys up to the first query
    short = np.maximum(most - first, 0.0)  # queries that see fewer than `most`, by 1, 2 ... short keys
    return q * most - short * (short + 1.0) / 2.0, np.minimum(kv, most + q - 1.0)


def _attention(spec: NpuSpec, rows: Rows, around: Surroundings, resident: bool) -> Costs:
    """Scores and values as GEMMs per sequence and KV head, whose queries are its group of heads; softmax in between."""
    kv_heads = np.where(rows.latent > 0, 1.0, rows.kv_heads)
    count, queries = rows.sequences * kv_heads, rows.q_tokens * rows.heads / kv_heads
    pairs, seen_tokens = _pairs(rows)
    keys = pairs / rows.q_tokens
    scores = _gemms(spec, rows, (queries, keys, rows.qk_dim), count, rows.kv_byte)
    values = _gemms(spec, rows, (queries, rows.v_dim, keys), count, rows.kv_byte)
    needed_byte = np.maximum(scores.tile_byte.sum(axis=1), values.tile_byte.sum(axis=1))
    _check_room(spec, rows, around, needed_byte)
    a_byte = rows.sequences * rows.q_tokens * rows.heads * rows.qk_dim * rows.input_byte
    c_byte = rows.sequences * rows.q_tokens * rows.heads * rows.v_dim * rows.output_byte
    kept = resident & (a_byte + c_byte + 2.0 * needed_byte <= around.buffer_byte)
    cached_dim = np.where(rows.latent > 0, rows.qk_dim, rows.qk_dim + rows.v_dim)
    read_kv_byte = count * seen_tokens * cached_dim * rows.kv_byte * _kv_passes(spec, rows, around, scores)
    new_kv_byte = rows.cached * count * rows.q_tokens * cached_dim * rows.kv_byte
    score_count = rows.sequences * rows.heads * pairs
    spilled_byte = rows.materialised * SCORE_CROSSINGS * score_count * rows.input_byte
    loaded_byte, stored_byte = np.where(kept, 0.0, a_byte), np.where(kept, 0.0, c_byte)
    fills_byte = read_kv_byte + loaded_byte + spilled_byte / 2.0
    score_byte = score_count * rows.input_byte
    score_s, score_stream_s, score_read_byte = scores.run(spec, around, fills_byte + spilled_byte / 2.0 + score_byte)
    value_s, value_stream_s, value_read_byte = values.run(spec, around, c_byte + stored_byte + new_kv_byte)
    tile_byte = scores.tile_byte
    last_byte = values.tile[:, 0] * values.tile[:, 1] * rows.output_byte
    return lanes.finish(
        spec, around, score_s + value_s, score_stream_s + value_stream_s, SCORE_OPS * score_count,
        exposed_byte=tile_byte[:, 1] + np.where(kept, 0.0, tile_byte[:, 0] + last_byte),
        peak_per_s=_peak_mac_per_s(spec, scores.rate),
        kv_traffic_byte=read_kv_byte + new_kv_byte, activation_traffic_byte=loaded_byte + stored_byte + spilled_byte,
        written_byte=new_kv_byte + stored_byte + spilled_byte / 2.0,
        buffer_read_byte=score_read_byte + value_read_byte + stored_byte + new_kv_byte + spilled_byte / 2.0,
        buffer_write_byte=fills_byte + score_byte + c_byte,
        mac=score_count * (rows.qk_dim + rows.v_dim),
    )  # fmt: skip


def _kv_passes(spec: NpuSpec, rows: Rows, around: Surroundings, scores: _Gemms) -> Floats:
    """How often keys and values come from memory: once if those of a head fit or all queries do, else once a query block."""
    tile_byte = scores.tile_byte
    room_byte = 0.5 * around.buffer_byte - tile_byte[:, 1]
    fits = scores.shape[:, 1] * (rows.qk_dim + rows.v_dim) * rows.kv_byte + tile_byte[:, 0] + tile_byte[:, 2] <= room_byte
    query_byte = rows.qk_dim * rows.input_byte + (rows.v_dim + scores.tile[:, 1]) * spec.accumulator_byte
    block = np.maximum(np.floor(room_byte / query_byte), scores.tile[:, 0])
    return np.where(fits, 1.0, np.ceil(scores.shape[:, 0] / block))
