"""Area of the dies of a chip from its blocks, and the parts of one die that may be broken and still be sold.

Cores: MACs, vector lanes, registers and shared memory, control. Units and SRAM shrink with the node; pins, which DRAM and
links need, do not. A known area of a block, or of the die, takes the place of the modelled one. It leaves out what no block
of the chip stands for (media engines, host interfaces, test), but for a share of the rest.
"""

from __future__ import annotations

import math

from archmodel.economics.silicon import Part
from archmodel.spec.chip import Block, ChipSpec, DramSpec, GpuSpec, LinkSpec, NpuSpec, SramSpec, Unit
from archmodel.spec.cost import CostSpec
from archmodel.spec.cost_check import sold_units, stack_bits
from archmodel.spec.economics import DieAreaSpec, EconomicsSpec, NodeSpec

_MM2_PER_UM2 = 1e-6
_MB_PER_KIB = 1.024e-3
_FLOP_PER_FMA = 2.0
_MOST_UNITS = 4096  # that a part is divided into; finer ones are taken together


def node_of(chip: ChipSpec, economics: EconomicsSpec) -> NodeSpec | None:
    """The process node of a chip's dies, None where the economics have none of that name."""
    return economics.nodes.get(node_name(chip))


def node_name(chip: ChipSpec) -> str:
    return f"{cost_of(chip).node_nm or chip.process_nm:g}"


def cost_of(chip: ChipSpec) -> CostSpec:
    """`[cost]` of a chip that has one."""
    assert chip.cost is not None, chip.name
    return chip.cost


def areas_mm2(chip: ChipSpec, economics: EconomicsSpec, node: NodeSpec) -> dict[str, float]:
    """Area [mm2] by block of all dies together, as made, with the on-chip network and everything else."""
    cost, constants = cost_of(chip), economics.die_area
    cached = _caches(chip)
    out: dict[str, float] = {}
    shrinking = 0.0
    for name, block in chip.blocks.items():
        made = cost.made.get(name, sold_units(block))
        area = cost.area_mm2.get(name, made * _unit_mm2(block, constants, node, cache=name in cached))
        if area > 0.0:
            out[name] = area
            shrinking += area if isinstance(block, Unit | SramSpec) else 0.0
    out["on-chip network"] = constants.fabric_ratio * shrinking
    out["everything else"] = constants.other_ratio * sum(out.values()) + cost.other_area_mm2
    return out


def _caches(chip: ChipSpec) -> set[str]:
    """SRAM blocks that GPUs alone use."""
    users = {name: [unit for unit in chip.of_kind(GpuSpec, NpuSpec).values() if getattr(unit, "buffer", "") == name]
             for name in chip.of_kind(SramSpec)}  # fmt: skip
    return {name for name, units in users.items() if units and all(isinstance(unit, GpuSpec) for unit in units)}


def _unit_mm2(block: Block, area: DieAreaSpec, node: NodeSpec, *, cache: bool) -> float:
    """Area [mm2] of one of what `[cost] made` counts of a block."""
    pins = 1.0 + area.controller_ratio
    match block:
        case GpuSpec():
            lanes = block.vector_flop_per_core_per_cycle / _FLOP_PER_FMA
            macs = max((rate * area.mac_um2.get(fmt, 0.0) for fmt, rate in block.macs_per_core_per_cycle.items()), default=0.0)
            logic = (macs + lanes * area.lane_um2) * _MM2_PER_UM2 + area.core_control_mm2
            sram = (block.core_buffer_kib + block.accumulator_kib) * _MB_PER_KIB * area.core_sram_mm2_per_mb
            return logic * node.logic_area_ratio + sram * node.sram_area_ratio
        case NpuSpec():
            macs = max((rate * area.mac_um2.get(fmt, 0.0) for fmt, rate in block.macs_per_pe_per_cycle.items()), default=0.0)
            lanes = block.vector_op_per_cycle / _FLOP_PER_FMA / block.arrays
            return (block.rows * block.cols * macs + lanes * area.lane_um2) * _MM2_PER_UM2 * node.logic_area_ratio
        case SramSpec():
            return (area.cache_mm2_per_mb if cache else area.scratchpad_mm2_per_mb) * node.sram_area_ratio
        case DramSpec():
            return (area.stack_phy_mm2 if stack_bits(block) else area.dram_phy_mm2_per_bit) * pins
        case LinkSpec():
            return area.lane_phy_mm2.get(block.protocol, 0.0) * pins
    return 0.0


def die_parts(chip: ChipSpec, economics: EconomicsSpec, node: NodeSpec) -> tuple[Part, ...]:
    """Parts of one die; they add up to its area, which is the given one where the chip states it."""
    cost = cost_of(chip)
    areas = areas_mm2(chip, economics, node)
    modelled = sum(areas.values())
    scale = (cost.die_area_mm2 or modelled / cost.dies) / modelled if modelled else 0.0
    parts = []
    for name, area in areas.items():
        units, needed = 1, 1
        if name in cost.made:
            made, sold = cost.made[name] / cost.dies, sold_units(chip.blocks[name]) / cost.dies
            units = max(1, min(_MOST_UNITS, math.floor(made + 1e-9)))
            needed = min(units, math.ceil(sold / made * units - 1e-9))
        parts.append(Part(name, area * scale, units, needed))
    return tuple(parts)
