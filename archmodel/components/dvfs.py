"""Voltage and frequency of a block: what another clock than the nominal one does to its energies and static power.

Energies of a block hold at `nominal_clock_ghz`. At another clock the block takes the voltage of its points, energy per event
goes with V^2 (charging a capacitance), static power with f V^2 in its clock tree and with V exp(k V) where it leaks. A block
without points keeps its energies and static power at any clock. Ignored: temperature, and time to change the voltage.
"""

from __future__ import annotations

import attrs
import numpy as np

from archmodel.errors import MappingError
from archmodel.spec.chip import Block, ChipSpec, GpuSpec, LinkSpec
from archmodel.spec.power import DvfsSpec

#: [1/V] of leakage current at a fixed temperature: ln(25.14 / 19.44) over the 0.1 V from 0.95 to 1.05 V, gates of a 65 nm
#: process at 80 degrees Celsius (Liao, He and Lepak, IEEE TCAD, July 2005); 2.3 at 100 and 2.9 at 60 degrees
_LEAKAGE_PER_V = 2.571


def scaled_blocks(chip: ChipSpec) -> dict[str, DvfsSpec]:
    """Blocks with voltage points, in file order."""
    return {name: b for name, b in chip.blocks.items() if isinstance(b, DvfsSpec) and b.voltage_points}


def voltage_v(block: DvfsSpec, clock_ghz: float) -> float:
    """Voltage [V] that `clock_ghz` needs. Raises MappingError outside the points."""
    clock, volt = np.array(block.voltage_points).T
    if not clock[0] <= clock_ghz <= clock[-1]:
        raise MappingError(f"clock_ghz = {clock_ghz:g} lies outside the voltage points, {clock[0]:g} to {clock[-1]:g} GHz")
    return float(np.interp(clock_ghz, clock, volt))


def _relative(block: Block) -> tuple[float, float, float] | None:
    """Clock and voltage of a block over its nominal ones, and the voltages' difference [V]; None where nothing changes."""
    if not isinstance(block, DvfsSpec) or not block.voltage_points:
        return None
    if block.clock_ghz == block.nominal_clock_ghz:
        return None
    now, nominal = voltage_v(block, block.clock_ghz), voltage_v(block, block.nominal_clock_ghz)
    return block.clock_ghz / block.nominal_clock_ghz, now / nominal, now - nominal


def clock_ratio(block: Block) -> float:
    """Clock of a block over its nominal one; exactly 1 there and without points."""
    relative = _relative(block)
    return 1.0 if relative is None else relative[0]


def energy_factors(chip: ChipSpec) -> dict[str, float]:
    """By block the energy of an event at its clock over that at its nominal clock; exactly 1 there and without points.

    A link follows the block that supplies it.
    """
    found = {}
    for name, block in chip.blocks.items():
        supplied = block.supply if isinstance(block, LinkSpec) else ""
        relative = _relative(chip.blocks[supplied] if supplied else block)
        found[name] = 1.0 if relative is None else relative[1] ** 2
    return found


def static_factor(block: Block) -> float:
    """Static power at the block's clock over that at its nominal clock; exactly 1 there and without points."""
    relative = _relative(block)
    if relative is None:
        return 1.0
    clock, voltage, difference_v = relative
    tree: float = block.clock_static_share  # type: ignore[union-attr]
    leakage = voltage * float(np.exp(_LEAKAGE_PER_V * difference_v))
    return tree * clock * voltage**2 + (1.0 - tree) * leakage


def clock_span(chip: ChipSpec) -> tuple[float, float]:
    """Lowest and highest factor on the clocks of the blocks with points; (1, 1) where there are none."""
    reach = [(b.voltage_points[0][0] / b.clock_ghz, b.voltage_points[-1][0] / b.clock_ghz)
             for b in scaled_blocks(chip).values()]  # fmt: skip
    return (min(low for low, _ in reach), max(high for _, high in reach)) if reach else (1.0, 1.0)


def clocked(chip: ChipSpec, factor: float) -> ChipSpec:
    """`chip` with `factor` on the clock of every block that has points, each kept within them.

    `sustained_clock_share` is the drop that was fitted on long matrix work at the board's own limit: such work runs at the
    lower of the two clocks, never at their product.
    """
    if factor == 1.0:
        return chip
    new: dict[str, Block] = dict(chip.blocks)
    for name, block in scaled_blocks(chip).items():
        (low, _), *_, (high, _) = block.voltage_points
        changed = attrs.evolve(block, clock_ghz=min(max(factor * block.clock_ghz, low), high))
        if isinstance(changed, GpuSpec):
            share = min(1.0, changed.sustained_clock_share * block.clock_ghz / changed.clock_ghz)
            changed = attrs.evolve(changed, sustained_clock_share=share)
        new[name] = changed  # type: ignore[assignment]
    return attrs.evolve(chip, blocks=new)


def operating_points(chip: ChipSpec) -> dict[str, tuple[float, float]]:
    """Clock [GHz] and voltage [V] of each block that has points."""
    return {name: (block.clock_ghz, voltage_v(block, block.clock_ghz)) for name, block in scaled_blocks(chip).items()}
