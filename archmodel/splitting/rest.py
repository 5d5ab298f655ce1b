"""Parts of a chip or system: what is left without a unit, and the cards of a system that a run needs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs

from archmodel.plan import Plan
from archmodel.result import Result
from archmodel.soc import Soc
from archmodel.spec.chip import Block, ChipSpec, LinkSpec
from archmodel.spec.system import member_of
from archmodel.spec.workload import ROLES, PlacementSpec

_TIERS = ("weights", "kv_cache", "spill")


def without(chip: ChipSpec, unit: str) -> ChipSpec:
    """The chip with one unit gone, its roles given to the first unit that can, its memory left only to those that share it."""
    rest = _cut(chip, {unit})
    placement = freed(chip.placement, {unit} | lost_tiers(chip, unit))
    return attrs.evolve(rest, placement=placement)


def lost_tiers(chip: ChipSpec, unit: str) -> set[str]:
    """Tiers that fail with a unit: its memory and its buffer, unless another unit works with them."""
    units = Soc(chip).units
    others = {tier for name, spec in units.items() if name != unit for tier in (spec.memory, spec.buffer)}
    return {units[unit].memory, units[unit].buffer} - others


def idle_members(result: Result) -> set[str]:
    """Members of a system of which no unit works."""
    seconds = result.busy_s()
    return set(result.chip.members) - {member_of(unit) for unit in result.soc.units if seconds[unit] > 0.0}


def without_members(chip: ChipSpec, names: Collection[str]) -> ChipSpec:
    """The system without some of its members."""
    gone = {block for block in chip.blocks if member_of(block) in names}
    members = {name: member for name, member in chip.members.items() if name not in names}
    return attrs.evolve(_cut(chip, gone), members=members, placement=freed(chip.placement, gone))


def freed_plan(plan: Plan, chip: ChipSpec) -> Plan:
    """The plan with whatever it gives to blocks that a chip has not left to the chip."""
    made: dict[int, PlacementSpec] = {}
    for placement in plan.distinct():
        named = {getattr(placement, key) for key in (*ROLES, *_TIERS)}
        made[id(placement)] = freed(placement, named - set(chip.blocks))
    parts, decode = (
        tuple(attrs.evolve(part, placements=tuple(made[id(p)] for p in part.placements)) for part in some)
        for some in (plan.parts, plan.decode)
    )
    return attrs.evolve(plan, parts=parts, decode=decode)


def cards(result: Result) -> int:
    """Chips that a run needs: of a system, all cards of its members."""
    return sum(member.count for member in result.chip.members.values()) or result.chips


def freed(placement: PlacementSpec, gone: Collection[str]) -> PlacementSpec:
    """The placement without what it gives to blocks that are gone."""
    empty: dict[str, Any] = {key: "" for key in (*ROLES, *_TIERS) if getattr(placement, key) in gone}
    return attrs.evolve(placement, **empty)


def _cut(chip: ChipSpec, gone: Collection[str]) -> ChipSpec:
    joined = {name: _released(block, gone) for name, block in chip.blocks.items() if name not in gone}
    blocks = {name: block for name, block in joined.items() if not isinstance(block, LinkSpec) or len(block.joins) > 1}
    return attrs.evolve(chip, blocks=blocks)


def _released(block: Block, gone: Collection[str]) -> Block:
    """A block that joins what is gone no longer, and no longer has its clock."""
    changed: dict[str, Any] = {}
    if isinstance(block, LinkSpec):
        changed["joins"] = tuple(name for name in block.joins if name not in gone)
    if getattr(block, "supply", "") in gone:
        changed["supply"] = ""
    return attrs.evolve(block, **changed)
