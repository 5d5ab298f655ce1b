"""The vector lanes beside arrays, macros or event-driven cores, and how such a unit's limits make its time.

A row takes the longest of its matrix part, vector lanes, buffer and memory, all overlapped by double-buffered DMA, after what
nothing can hide: decoding the command, the first byte's latency, loading the first tile and storing the last one.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from archmodel.costs import LIMITS, Costs, Floats, Surroundings
from archmodel.operations import Kind, Rows


class Lanes(Protocol):
    """What a spec says of its lanes and commands."""

    @property
    def clock_ghz(self) -> float: ...
    @property
    def vector_op_per_cycle(self) -> float: ...
    @property
    def command_cycles(self) -> float: ...


def vector(spec: Lanes, rows: Rows, around: Surroundings, resident: bool) -> Costs:
    """Element-wise work and scans; a fused row finds its operands in the row before and leaves its results in place."""
    alone = 1.0 - rows.fused
    read_byte, write_byte = alone * rows.read_byte, alone * rows.write_byte
    state_byte = np.where(rows.kind == Kind.SCAN, rows.kv_byte, 0.0)
    kept = resident & (read_byte + write_byte <= around.buffer_byte)
    loaded_byte, stored_byte = np.where(kept, 0.0, read_byte), np.where(kept, 0.0, write_byte)
    half_state_byte = state_byte / 2.0
    buffer_read_byte = read_byte + stored_byte + state_byte
    buffer_write_byte = write_byte + loaded_byte + state_byte
    stream_s = (buffer_read_byte + buffer_write_byte) / around.buffer_byte_per_s
    return finish(
        spec, around, np.zeros(len(rows)), stream_s, rows.flop + rows.exp,
        exposed_byte=np.zeros(len(rows)), peak_per_s=spec.vector_op_per_cycle * spec.clock_ghz * 1e9,
        command=alone, kv_traffic_byte=state_byte, activation_traffic_byte=loaded_byte + stored_byte,
        written_byte=stored_byte + half_state_byte, buffer_read_byte=buffer_read_byte, buffer_write_byte=buffer_write_byte,
    )  # fmt: skip


def finish(
    spec: Lanes,
    around: Surroundings,
    array_s: Floats,
    stream_s: Floats,
    vector_flop: Floats,
    *,
    exposed_byte: Floats | float,
    peak_per_s: Floats | float,
    command: Floats | float = 1.0,
    feed_s: Floats | float = 0.0,
    waiting_s: Floats | float = 0.0,
    **counts: Floats,
) -> Costs:
    """Costs from the counted work of a matrix part and of the lanes, shape (rows,).

    Args:
        spec: lanes and commands.
        around: what the unit sees.
        array_s: the matrix part alone [s].
        stream_s: it with what it cannot overlap [s].
        vector_flop: work of the lanes.
        exposed_byte: bytes whose loading or storing nothing hides [B].
        peak_per_s: of the matrix part [MAC/s], or of the lanes where there is none [1/s].
        command: commands of the row.
        feed_s: limit of what feeds the matrix part, within `stream_s` [s].
        waiting_s: further time that nothing hides [s].
        counts: other columns of the costs.
    """
    clock_hz = spec.clock_ghz * 1e9
    zero = np.zeros(len(array_s))
    columns = ("weight_traffic_byte", "kv_traffic_byte", "activation_traffic_byte", "written_byte", "mac")
    part = {**dict.fromkeys(columns, zero), **counts}
    memory_byte = part["weight_traffic_byte"] + part["kv_traffic_byte"] + part["activation_traffic_byte"]
    vector_s = vector_flop / (spec.vector_op_per_cycle * clock_hz)
    memory_s = memory_byte / around.memory_byte_per_s
    buffer_s = (part["buffer_read_byte"] + part["buffer_write_byte"]) / around.buffer_byte_per_s
    fixed_s = command * spec.command_cycles / clock_hz + np.where(memory_byte > 0, around.memory_latency_s, 0.0)
    fixed_s = fixed_s + exposed_byte / around.memory_byte_per_s + waiting_s
    limits = {"matrix": array_s, "vector": vector_s, "feed": feed_s + zero, "buffer": buffer_s, "memory": memory_s,
              "fixed": fixed_s}  # fmt: skip
    duration_s = fixed_s + np.maximum.reduce((stream_s, vector_s, memory_s))
    work = np.where(part["mac"] > 0, part["mac"], vector_flop)
    return Costs(
        limits_s=np.stack([limits[name] for name in LIMITS], axis=1),
        duration_s=duration_s,
        vector_flop=vector_flop,
        utilisation=np.divide(work, peak_per_s * duration_s, out=np.zeros_like(work), where=duration_s > 0),
        **part,
    )
