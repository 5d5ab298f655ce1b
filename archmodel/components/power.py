"""Energy account: counted events x energy per event, plus static power x time. Components add up to the total."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from archmodel.components import dvfs
from archmodel.components.units import mac_energy_pj
from archmodel.costs import Costs, Floats
from archmodel.spec.chip import Block, CimSpec, ControlSpec, HostSpec, NeuromorphicSpec, PeersSpec, PowerSpec, Unit
from archmodel.units import FORMATS

_PJ = 1e-12
_NJ = 1e-9
_BITS = 8.0

Ints = NDArray[np.int64]


def unit_energy_j(unit: Unit, costs: Costs, compute_format: Ints) -> dict[str, Floats]:
    """Dynamic energy [J] of rows that run on `unit`, by part; each array has shape (rows,).

    `mac`: multiply-accumulates at their format; `vector`: element-wise operations; `operand`: bytes from the unit's
    SRAM to its lanes over wires, shared memory and registers. The SRAM array itself is the tier's. Compute in memory adds
    `conversion` and `cell_write`, event-driven cores `event`.
    """
    energy = mac_energy_pj(unit)
    table = np.array([energy.get(name, 0.0) for name in FORMATS])
    parts = {
        "mac": costs.mac * table[compute_format] * _PJ,
        "vector": costs.vector_flop * unit.vector_energy_pj_per_flop * _PJ,
        "operand": costs.buffer_read_byte * _BITS * unit.operand_energy_pj_per_bit * _PJ,
    }
    if isinstance(unit, CimSpec):
        parts["conversion"] = costs.events * unit.conversion_energy_pj * _PJ
        parts["cell_write"] = costs.cell_write_byte * _BITS * unit.write_energy_pj_per_bit * _PJ
    if isinstance(unit, NeuromorphicSpec):
        parts["event"] = costs.events * unit.event_energy_pj * _PJ
    return parts


def control_energy_j(control: ControlSpec, commands: Floats) -> Floats:
    """Dynamic energy [J] of `commands` commands."""
    return np.asarray(commands * control.command_energy_nj * _NJ)


def static_power_w(blocks: Mapping[str, Block], power: PowerSpec) -> dict[str, float]:
    """Static power [W] by block at its clock, and of the chip as a whole under `chip`. The host is outside the chip."""
    static = {name: block.static_power_w * dvfs.static_factor(block) for name, block in blocks.items()
              if not isinstance(block, HostSpec | PeersSpec)}  # fmt: skip
    return {**static, "chip": power.static_power_w}
