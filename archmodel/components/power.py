"""Energy account: counted events x energy per event, plus static power x time. Components add up to the total.

A GPU's energies are those of the whole path at full voltage, and a real device holds its power below a limit by lowering clock
and voltage: `held_power_w`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archmodel.components import dvfs
from archmodel.components.units import mac_energy_pj
from archmodel.costs import LIMITS, Costs, Floats
from archmodel.operations import Kind, Rows
from archmodel.spec.chip import (
    CAPABILITIES,
    Block,
    CimSpec,
    ControlSpec,
    GpuSpec,
    HostSpec,
    NeuromorphicSpec,
    PeersSpec,
    PowerSpec,
    SoftwareSpec,
    Unit,
)
from archmodel.units import FORMATS

_PJ = 1e-12
_NJ = 1e-9
_MJ = 1e-3
_BITS = 8.0
_MATRIX = LIMITS.index("matrix")
_SAMPLING = CAPABILITIES.index("sampling")

#: how gradually a limit is felt: phases of a run, and spikes within them, reach it before the mean does
_SHARPNESS = 8.0

Ints = NDArray[np.int64]


def unit_energy_j(unit: Unit, costs: Costs, rows: Rows) -> dict[str, Floats]:
    """Dynamic energy [J] of rows that run on `unit`, by part; each array has shape (rows,).

    `mac`: multiply-accumulates at their format; `vector`: element-wise operations; `operand`: bytes from the unit's
    SRAM to its lanes over wires, shared memory and registers. The SRAM array itself is the tier's. A GPU may add `active`, what
    its matrix units take while a kernel uses them; compute in memory adds `conversion` and `cell_write`, event-driven cores
    `event`.
    """
    energy = mac_energy_pj(unit)
    table = np.array([energy.get(name, 0.0) for name in FORMATS])
    parts = {
        "mac": _issued_mac(unit, costs, rows) * table[rows.compute_format] * _PJ,
        "vector": costs.vector_flop * unit.vector_energy_pj_per_flop * _PJ,
        "operand": costs.buffer_read_byte * _BITS * unit.operand_energy_pj_per_bit * _PJ,
    }
    if isinstance(unit, GpuSpec) and unit.active_power_w > 0.0:
        matrix = (rows.kind == Kind.MATMUL) | (rows.kind == Kind.ATTENTION)
        parts["active"] = np.where(matrix, costs.duration_s, 0.0) * unit.active_power_w * dvfs.clock_ratio(unit)
    if isinstance(unit, CimSpec):
        parts["conversion"] = costs.events * unit.conversion_energy_pj * _PJ
        parts["cell_write"] = costs.cell_write_byte * _BITS * unit.write_energy_pj_per_bit * _PJ
    if isinstance(unit, NeuromorphicSpec):
        parts["event"] = costs.events * unit.event_energy_pj * _PJ
    return parts


def _issued_mac(unit: Unit, costs: Costs, rows: Rows) -> Floats:
    """MACs that draw power, shape (rows,): those of the operation, and in a GPU's product in groups whole tiles.

    A tile of an expert with few tokens is multiplied whole; the time of the matrix units says how many there are.
    """
    if not isinstance(unit, GpuSpec) or not np.any(rows.experts > 0):
        return costs.mac
    rate = np.array([unit.macs_per_core_per_cycle.get(name, 0.0) for name in FORMATS])[rows.compute_format]
    share = unit.matrix_efficiency * unit.grouped_efficiency
    tiles = costs.limits_s[:, _MATRIX] * rate * unit.cores * unit.clock_ghz * 1e9 * share
    return np.where(rows.experts > 0, np.maximum(costs.mac, tiles), costs.mac)


def held_power_w(power_w: ArrayLike, limit_w: float) -> Floats:
    """Mean power [W] of a run whose events would take `power_w` at full voltage, on a device that holds `limit_w`.

    A smooth minimum, (p^-8 + limit^-8)^(-1/8). 0 is no limit. The time that the lower clock costs is not in it.
    """
    power = np.asarray(power_w, dtype=np.float64)
    if limit_w <= 0.0:
        return power
    return np.asarray(power * (1.0 + (power / limit_w) ** _SHARPNESS) ** (-1.0 / _SHARPNESS))


def sampling_energy_j(software: SoftwareSpec, rows: Rows, chips: int) -> Floats:
    """Energy [J] of a library's sampler beyond its counted work, shape (rows,): one of `chips` alike ones samples."""
    tokens = np.where(rows.capability == _SAMPLING, rows.sequences, 0.0) / chips
    return np.asarray(tokens * software.sampling_energy_mj_per_token * _MJ)


def control_energy_j(control: ControlSpec, commands: Floats) -> Floats:
    """Dynamic energy [J] of `commands` commands."""
    return np.asarray(commands * control.command_energy_nj * _NJ)


def static_power_w(blocks: Mapping[str, Block], power: PowerSpec) -> dict[str, float]:
    """Static power [W] by block at its clock, and of the chip as a whole under `chip`. The host is outside the chip."""
    static = {name: block.static_power_w * dvfs.static_factor(block) for name, block in blocks.items()
              if not isinstance(block, HostSpec | PeersSpec)}  # fmt: skip
    return {**static, "chip": power.static_power_w}
