"""Operators as a framework without graphs runs them: the host calls one, launches its kernel and waits until it is done.

The time of a call is the longer of the host's own work (`software.call_us`) and of the kernel behind its launch
(`software.launch_us`). Buffers are those of the call before, as in a benchmark's loop, so that the cache may hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from archmodel.components import gpu, memory
from archmodel.components.collective import OPS, collectives
from archmodel.costs import LIMITS, Floats, Surroundings
from archmodel.errors import MappingError
from archmodel.operations import Kind, rows_from
from archmodel.soc import Soc
from archmodel.spec.chip import CAPABILITIES, ChipSpec, GpuSpec
from archmodel.units import FORMATS, element_bytes

_OTHER = {"matmul": "matmul", "allreduce": "collective"}
_STREAMING = CAPABILITIES.index("convert")  # a framework's kernel of one operator streams as a copy does
_HARD = [LIMITS.index(name) for name in ("matrix", "memory")]  # no library is faster than these

#: operator -> entry of `software.launch_us`; arithmetic and exponentials an element of the usual formulations
_VECTOR = {"softmax": ("softmax", 3.0, 1.0), "layernorm": ("norm", 7.0, 0.0), "gelu": ("activation", 6.0, 1.0)}


@attrs.frozen
class Call:
    """One operator: a matmul C[m,n] = A[m,k] B[k,n], `count` of them in one kernel; a softmax or layernorm over the last
    dimension of [m,n]; a gelu of m x n elements; an all-reduce of m bytes over `devices`."""

    op: str
    m: float
    n: float = 1.0
    k: float = 1.0
    count: float = 1.0
    devices: int = 1
    number_format: str = "bf16"


def call_s(chip: ChipSpec, calls: Sequence[Call]) -> Floats:
    """Time [s] of each call on the chip's first GPU under its software stack, shape (calls,).

    Raises MappingError for an operator that is not known or that the chip cannot run.
    """
    soc, software = Soc(chip), chip.software
    kernel_s = np.zeros(len(calls))
    reduced = np.array([call.op == "allreduce" for call in calls])
    for index, of in ((np.flatnonzero(~reduced), _unit_s), (np.flatnonzero(reduced), _all_reduce_s)):
        if len(index):
            kernel_s[index] = of(soc, [calls[i] for i in index.tolist()])
    names = [_VECTOR[call.op][0] if call.op in _VECTOR else _OTHER[call.op] for call in calls]
    launch_us, call_us = (
        np.array([table.get(name, 0.0) for name in names]) for table in (software.launch_us, software.call_us)
    )
    return np.asarray(np.maximum(call_us * 1e-6, kernel_s + launch_us * 1e-6))


def _unit_s(soc: Soc, calls: Sequence[Call]) -> Floats:
    name, unit = next(((n, u) for n, u in soc.units.items() if isinstance(u, GpuSpec)), ("", None))
    if unit is None:
        raise MappingError(f"{soc.chip.name}: has no GPU, whose kernels a framework calls")
    rows = rows_from([_record(soc, call) for call in calls])
    around = Surroundings(
        buffer_byte=memory.capacity_byte(soc.tiers[unit.buffer]) * unit.buffer_share,
        buffer_byte_per_s=soc.path_byte_per_s(name, unit.buffer),
        memory_byte_per_s=np.full(len(rows), soc.path_byte_per_s(name, unit.memory)),
        memory_latency_s=soc.path_latency_s(name, unit.memory),
    )
    touched = rows.m * rows.k * rows.input_byte + rows.k * rows.n * rows.weight_byte + rows.m * rows.n * rows.output_byte
    costs = gpu.costs(unit, rows, around, reuse_byte=touched * rows.count)
    matmul_s = np.maximum(costs.duration_s * soc.chip.software.matmul_time, costs.limits_s[:, _HARD].max(axis=1))
    return np.where(rows.kind == Kind.MATMUL, matmul_s, costs.duration_s)


def _record(soc: Soc, call: Call) -> dict[str, Any]:
    byte = element_bytes(call.number_format)
    if call.op == "matmul":
        return {"name": "matmul", "kind": Kind.MATMUL, "m": call.m, "n": call.n, "k": call.k, "count": call.count,
                "compute_format": FORMATS.index(soc.compute_format(next(iter(soc.units)), call.number_format, "matmul")),
                "input_byte": byte, "weight_byte": byte, "output_byte": byte}  # fmt: skip
    if call.op not in _VECTOR:
        raise MappingError(f"{call.op}: no such operator; known are matmul, allreduce, {', '.join(_VECTOR)}")
    _, flop, exp = _VECTOR[call.op]
    elements = call.m * call.n * call.count
    passes = soc.chip.software.softmax_passes if call.op == "softmax" else 1.0
    return {"name": call.op, "kind": Kind.VECTOR, "capability": _STREAMING, "compute_format": FORMATS.index("fp32"),
            "flop": elements * flop, "exp": elements * exp, "read_byte": passes * elements * byte,
            "write_byte": elements * byte}  # fmt: skip


def _all_reduce_s(soc: Soc, calls: Sequence[Call]) -> Floats:
    link, peers = soc.peer_link()
    ranks, byte = [call.devices for call in calls], [call.m for call in calls]
    direct = soc.chip.software.direct_all_reduce
    return collectives(soc.links[link], peers, OPS.index("all_reduce"), ranks, byte, direct)[:, 0]
