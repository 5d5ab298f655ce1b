"""Rules between `[cost]` and the blocks of its chip."""

from __future__ import annotations

from collections.abc import Mapping

from archmodel.errors import Problem
from archmodel.spec.chip import (
    Block,
    CimSpec,
    DramSpec,
    GpuSpec,
    HostSpec,
    LinkSpec,
    NeuromorphicSpec,
    NpuSpec,
    PeersSpec,
    SramSpec,
)
from archmodel.spec.cost import CostSpec
from archmodel.spec.reader import nearest, shown
from archmodel.spec.standards import STANDARDS

_MOST_MADE = 1e7


def cost_problems(blocks: Mapping[str, Block | None], cost: CostSpec | None) -> list[Problem]:
    """Names in `[cost]` that are no silicon of the chip, and parts of which fewer are made than it has."""
    if cost is None:
        return []
    silicon = [name for name, block in blocks.items() if not isinstance(block, HostSpec | PeersSpec)]
    problems = [
        Problem(f"cost.{key}.{name}", f"must name a unit, memory or link of the chip{nearest(name, silicon)}", shown(value))
        for key, given in (("area_mm2", cost.area_mm2), ("made", cost.made))
        for name, value in given.items()
        if name not in silicon
    ]
    problems += [
        Problem(f"cost.area_mm2.{name}", "missing: area of a unit that holds weights, which is not modelled [mm2]")
        for name, block in blocks.items()
        if isinstance(block, CimSpec | NeuromorphicSpec) and name not in cost.area_mm2
    ]
    for name, made in cost.made.items():
        block = blocks.get(name)
        if name in silicon and block is not None:
            least = sold_units(block)
            if not least * (1.0 - 1e-9) <= made <= _MOST_MADE:
                problems.append(Problem(f"cost.made.{name}", f"must be {least:g}, which the chip has, or more", shown(made)))
    return problems


def sold_units(block: Block) -> float:
    """What `[cost] made` counts, as the chip has it: cores, arrays, MB of SRAM, stacks (or bits) of DRAM, lanes; else 1."""
    match block:
        case GpuSpec():
            return block.cores
        case NpuSpec():
            return block.arrays
        case CimSpec():
            return block.macros
        case NeuromorphicSpec():
            return block.cores
        case SramSpec():
            return block.capacity_mb
        case DramSpec():
            return block.channels * block.channel_bit / (stack_bits(block) or 1)
        case LinkSpec():
            return block.lanes
    return 1.0


def stack_bits(dram: DramSpec) -> int:
    """Data pins of one stack; 0 where the standard is not stacked."""
    standard = STANDARDS[dram.standard]
    return standard.stack_channels * standard.channel_bit
