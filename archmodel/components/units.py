"""What every unit answers, by the class of its spec: costs of operations, peaks, energies and what its own cells hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from archmodel.components import cim, gpu, neuromorphic, npu
from archmodel.costs import Costs, Floats, Surroundings
from archmodel.operations import Rows
from archmodel.spec.chip import CimSpec, GpuSpec, NeuromorphicSpec, NpuSpec, Unit
from archmodel.units import FORMATS

#: the component of each kind of unit
COSTS: dict[type, Callable[..., Costs]] = {
    GpuSpec: gpu.costs,
    NpuSpec: npu.costs,
    CimSpec: cim.costs,
    NeuromorphicSpec: neuromorphic.costs,
}


def costs(unit: Unit, rows: Rows, around: Surroundings, **options: Any) -> Costs:
    """Costs of rows that are all placed on `unit`; `options` are its component's. Raises MappingError."""
    return COSTS[type(unit)](unit, rows, around, **options)


def matrix_rates(unit: Unit) -> dict[str, float]:
    """MACs (synaptic operations) per cycle of one core, processing element or macro, by format."""
    match unit:
        case GpuSpec():
            return dict(unit.macs_per_core_per_cycle)
        case NpuSpec():
            return dict(unit.macs_per_pe_per_cycle)
        case CimSpec():
            return cim.mac_per_cycle(unit)
        case NeuromorphicSpec():
            return dict(unit.synapse_op_per_core_per_cycle)
    raise TypeError(f"no such unit: {unit!r}")


def matrix_parts(unit: Unit) -> str:
    """The cores, processing elements or macros, in words."""
    match unit:
        case NpuSpec():
            return f"{unit.arrays} x {unit.rows} x {unit.cols}"
        case CimSpec():
            return f"{unit.macros} macros"
    return f"{unit.cores} cores"


def matrix_units(unit: Unit) -> int:
    """Cores, processing elements of all arrays, or macros."""
    match unit:
        case NpuSpec():
            return unit.arrays * unit.rows * unit.cols
        case CimSpec():
            return unit.macros
    return unit.cores


def mac_energy_pj(unit: Unit) -> Mapping[str, float]:
    """Energy of one MAC (synaptic operation) [pJ] by format; of compute in memory that of the cells alone."""
    match unit:
        case CimSpec():
            return cim.mac_energy_pj(unit)
        case NeuromorphicSpec():
            return unit.synapse_energy_pj
    return unit.mac_energy_pj


def cell_capacity_byte(unit: Unit) -> float:
    """Bytes of weights [B] that the unit holds where it multiplies them; 0: it streams them."""
    match unit:
        case CimSpec():
            return cim.capacity_byte(unit)
        case NeuromorphicSpec():
            return neuromorphic.capacity_byte(unit)
    return 0.0


def held_alone(unit: Unit, rows: Rows) -> Floats:
    """Share of the weights of each row that its unit's cells hold where it is alone on the chip, shape (rows,)."""
    if not cell_capacity_byte(unit):
        return np.zeros(len(rows))
    sizes = zip(rows.n.tolist(), rows.k.tolist(), rows.weight_byte.tolist(), rows.compute_format.tolist(), strict=True)
    needed = rows.count * np.array([cell_byte(unit, n, k, byte, FORMATS[code]) for n, k, byte, code in sizes])
    return np.array([held_share(unit, byte) for byte in needed.tolist()])


def cell_byte(unit: Unit, n: float, k: float, weight_byte: float, number_format: str) -> float:
    """Bytes of the unit's own cells [B] that a matrix takes, stored at `weight_byte` and computed in a format."""
    return cim.cell_byte(unit, n, k, number_format) if isinstance(unit, CimSpec) else n * k * weight_byte


def held_share(unit: Unit, needed_byte: float) -> float:
    """Share [1] of weights taking `needed_byte` of cells that stays there; 0 where the unit streams, or refuses, them."""
    if isinstance(unit, CimSpec):
        return cim.held_share(unit, needed_byte)
    return float(isinstance(unit, NeuromorphicSpec) and needed_byte <= neuromorphic.capacity_byte(unit))


def remarks(name: str, unit: Unit) -> list[str]:
    """What a reader should know of the unit `name`."""
    return cim.remarks(name, unit) if isinstance(unit, CimSpec) else []
