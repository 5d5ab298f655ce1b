"""Compute in memory: macros that multiply the weights in their cells, a buffer for activations, and vector lanes.

Weights that fit lie in the cells for good and cause no traffic. Where those of the chip's model do not all fit, a part of the
cells is rewritten in every step: the rest of the weights comes from memory and is written, at the rate of the slower of
memory and cells, before the macros multiply (or, with `write_hidden`, while they do). Every input passes over all weights, so
with one input lane a batch is no cheaper per sequence than one; a bank of a DRAM with a unit beside it does the same.

Weights narrower than the compute format are widened when they are written. Small matrices are not copied into idle cells.
Ignored: what a converter of low resolution rounds off, inputs read again for each round of rewriting, and the network that
adds up pieces of k that lie in different macros (its additions are part of the conversion's energy).
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from archmodel.components import lanes
from archmodel.costs import Costs, Floats, Surroundings, empty_costs, place
from archmodel.errors import MappingError
from archmodel.kernels import cim
from archmodel.operations import Kind, Rows
from archmodel.spec.cim import CimSpec
from archmodel.units import BITS, FORMATS


def costs(spec: CimSpec, rows: Rows, around: Surroundings, *, resident: bool = True) -> Costs:
    """Costs of matrix products and vector operations on compute in memory.

    Args:
        spec: the unit.
        rows: operations, all placed on it.
        around: what it sees; `held_share` of the weights lies in the cells.
        resident: activations may stay in the buffer between rows.

    Raises:
        MappingError: attention or a scan, whose operands are no weights, or a format that the macros do not have.
    """
    result = empty_costs(len(rows))
    for kind in np.unique(rows.kind):
        index = np.flatnonzero(rows.kind == kind)
        held = np.broadcast_to(around.held_share, len(rows))[index]
        near = attrs.evolve(around, memory_byte_per_s=around.memory_byte_per_s[index], held_share=held)
        part = rows.take(index)
        if kind == Kind.MATMUL:
            place(result, index, _matmul(spec, part, near, resident))
        elif kind == Kind.VECTOR:
            place(result, index, lanes.vector(spec, part, near, resident))
        else:
            raise MappingError(f"cim: {part.name[0]} has no weights that could lie in cells")
    return result


def slices(spec: CimSpec, number_format: str) -> int:
    """Columns that one weight of a format takes."""
    return math.ceil(BITS[number_format] / spec.cell_bit)


def steps(spec: CimSpec, number_format: str) -> int:
    """Steps in which one input of a format enters."""
    return math.ceil(BITS[number_format] / spec.input_bit)


def mac_per_cycle(spec: CimSpec) -> dict[str, float]:
    """Peak of one macro [MAC/cycle] by format: all columns in use, every converter busy."""
    columns = min(spec.cols, spec.converters * spec.conversion_ghz / spec.clock_ghz)
    macs = spec.rows * columns * spec.input_lanes
    return {name: macs / (slices(spec, name) * steps(spec, name)) for name in spec.formats}


def mac_energy_pj(spec: CimSpec) -> dict[str, float]:
    """Energy of the cells for one MAC [pJ] by format; conversions come beside it."""
    return {name: spec.cell_energy_pj * slices(spec, name) * steps(spec, name) for name in spec.formats}


def capacity_byte(spec: CimSpec) -> float:
    """Bytes of all cells [B]."""
    return float(spec.macros) * spec.rows * spec.cols * spec.cell_bit / 8.0


def cell_byte(spec: CimSpec, n: float, k: float, number_format: str) -> float:
    """Bytes of cells [B] that a matrix of n x k weights takes, empty rows of its last piece included."""
    return math.ceil(k / spec.rows) * spec.rows * n * slices(spec, number_format) * spec.cell_bit / 8.0


def held_share(spec: CimSpec, needed_byte: float) -> float:
    """Share [1] of weights taking `needed_byte` of cells that stays in them: all, or what the rewritten part leaves."""
    capacity = capacity_byte(spec)
    return 1.0 if needed_byte <= capacity else (1.0 - spec.reload_share) * capacity / needed_byte


def remarks(name: str, spec: CimSpec) -> list[str]:
    """What a reader should know of the unit `name`: converters that cannot hold every sum of a column."""
    exact = math.ceil(math.log2(spec.rows * (2.0**spec.cell_bit - 1.0) * (2.0**spec.input_bit - 1.0) + 1.0))
    if not 0 < spec.converter_bit < exact:
        return []
    return [
        f"{name}: sums of {spec.rows} cells need {exact} bits and a converter has {spec.converter_bit}: results are rounded, "
        "which no figure here shows"
    ]


def _by_format(table: dict[str, float], rows: Rows) -> Floats:
    """The number of each row's compute format, shape (rows,)."""
    found = np.array([table.get(name, 0.0) for name in FORMATS])[rows.compute_format]
    if not np.all(found):
        bad = int(np.argmin(found))
        wanted = FORMATS[rows.compute_format[bad]]
        raise MappingError(f"cim: {rows.name[bad]} computes in {wanted}; this unit has {', '.join(table)}")
    return np.asarray(found)


def _matmul(spec: CimSpec, rows: Rows, around: Surroundings, resident: bool) -> Costs:
    clock_hz = spec.clock_ghz * 1e9
    macros = cim.Macros(
        macros=float(spec.macros), rows=float(spec.rows), cols=float(spec.cols), cell_bit=float(spec.cell_bit),
        lanes=float(spec.input_lanes), converters=float(spec.converters),
        conversions_per_cycle=spec.conversion_ghz / spec.clock_ghz, page_cols=float(spec.page_cols),
        page_cycles=float(spec.page_cycles),
    )  # fmt: skip
    shape = np.stack((rows.m, rows.n, rows.k, rows.count), axis=1)
    slice_count = _by_format({name: float(slices(spec, name)) for name in spec.formats}, rows)
    step_count = _by_format({name: float(steps(spec, name)) for name in spec.formats}, rows)
    found = cim.cim_cycles(shape, slice_count, step_count, macros)
    mac = rows.count * rows.m * rows.n * rows.k
    written = 1.0 - around.held_share
    weight_byte = written * rows.count * rows.k * rows.n * rows.weight_byte
    array_s = found[:, cim.CYCLES] / clock_hz
    write_s = written * found[:, cim.MACRO_BIT] / (spec.write_bit_per_cycle * clock_hz)
    reload_s = np.maximum(write_s, weight_byte / around.memory_byte_per_s)
    a_byte, c_byte = rows.count * rows.m * rows.k * rows.input_byte, rows.count * rows.m * rows.n * rows.output_byte
    kept = resident & (a_byte + c_byte <= around.buffer_byte)
    loaded_byte, stored_byte = np.where(kept, 0.0, a_byte), np.where(kept, 0.0, c_byte)
    read_byte, filled_byte = a_byte + stored_byte, c_byte + loaded_byte
    buffer_s = (read_byte + filled_byte) / around.buffer_byte_per_s
    busy_s = np.maximum(array_s, reload_s) if spec.write_hidden else array_s + reload_s
    return lanes.finish(
        spec, around, array_s, np.maximum(busy_s, buffer_s), np.zeros(len(rows)),
        exposed_byte=0.0, peak_per_s=_by_format(mac_per_cycle(spec), rows) * spec.macros * clock_hz,
        feed_s=write_s, waiting_s=np.where(array_s > 0.0, spec.pipeline_cycles / clock_hz, 0.0),
        weight_traffic_byte=weight_byte, activation_traffic_byte=loaded_byte + stored_byte, written_byte=stored_byte,
        buffer_read_byte=read_byte, buffer_write_byte=filled_byte, mac=mac, events=found[:, cim.CONVERSIONS],
        cell_write_byte=written * found[:, cim.CELL_BIT] / 8.0,
    )  # fmt: skip
