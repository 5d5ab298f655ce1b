"""Rules between the blocks of a chip: names that exist, routes that are unique, shares that add up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.spec.chip import (
    Block,
    ChipSpec,
    CimSpec,
    ControlSpec,
    DramSpec,
    GpuSpec,
    HostSpec,
    LinkSpec,
    NeuromorphicSpec,
    NpuSpec,
    PeersSpec,
    SramSpec,
    Unit,
)
from archmodel.spec.power import DvfsSpec
from archmodel.spec.reader import nearest, shown
from archmodel.spec.workload import ROLES, PlacementSpec
from archmodel.units import BITS

#: name -> block; None stands for a block of the file that has problems of its own
Blocks = Mapping[str, Block | None]

_UNITS = (GpuSpec, NpuSpec, CimSpec, NeuromorphicSpec)
_TIERS = (SramSpec, DramSpec)


def routes(joins: Mapping[str, tuple[str, ...]], start: str) -> dict[str, list[tuple[str, ...]]]:
    """Shortest routes, as link names, from block `start` to every block that it reaches: two where there are more."""
    found: dict[str, list[tuple[str, ...]]] = {start: [()]}
    frontier = [start]
    while frontier:
        reached: dict[str, list[tuple[str, ...]]] = {}
        for block in frontier:
            for link, ends in joins.items():
                if block in ends:
                    for end in ends:
                        if end not in found:
                            ways = reached.setdefault(end, [])
                            ways += [(*route, link) for route in found[block]][: 2 - len(ways)]
        found.update(reached)
        frontier = list(reached)
    return found


def chip_problems(blocks: Blocks, placement: PlacementSpec) -> list[Problem]:
    """Everything wrong between the blocks of a chip. Routes are looked at once all else is fine."""
    problems = [*_link_problems(blocks), *_unit_problems(blocks), *_share_problems(blocks), *_voltage_problems(blocks)]
    problems += _placement_problems(blocks, placement)
    if problems or None in blocks.values():
        return problems
    return _route_problems(blocks, placement)


def boundary_problems(tables: Iterable[str]) -> list[Problem]:
    """What a boundary's table lacks inside it: of `tables` among board, server and facility."""
    inside = {"server": "board", "facility": "server"}
    return [Problem(name, f"needs [{inside[name]}] beside it, the boundary inside it") for name in tables
            if name in inside and inside[name] not in tables]  # fmt: skip


def _voltage_problems(blocks: Blocks) -> list[Problem]:
    """Clocks outside the voltage points of their block."""
    problems = []
    for name, block in blocks.items():
        if isinstance(block, DvfsSpec) and block.voltage_points:
            low, high = block.voltage_points[0][0], block.voltage_points[-1][0]
            for key in ("nominal_clock_ghz", "clock_ghz"):
                if not low <= (clock := getattr(block, key)) <= high:
                    rule = f"must lie within the clocks of {name}.voltage_points, {low:g} to {high:g} GHz"
                    problems.append(Problem(f"{name}.{key}", rule, f"{clock:g}"))
        elif isinstance(block, DvfsSpec) and (block.nominal_clock_ghz or block.clock_static_share):
            key = "nominal_clock_ghz" if block.nominal_clock_ghz else "clock_static_share"
            problems.append(Problem(f"{name}.{key}", f"means nothing without {name}.voltage_points"))
    return problems


def _of(blocks: Blocks, *kinds: type) -> list[str]:
    return [name for name, block in blocks.items() if isinstance(block, kinds)]


def _misses(blocks: Blocks, name: str, kinds: Iterable[type]) -> bool:
    """`name` is no block of the `kinds`; a block with problems of its own may become one."""
    return name not in blocks or not isinstance(blocks[name], (type(None), *kinds))


def _link_problems(blocks: Blocks) -> list[Problem]:
    problems = []
    links = {name: link for name, link in blocks.items() if isinstance(link, LinkSpec)}
    ends_of: dict[frozenset[str], str] = {}
    for name, link in links.items():
        key = f"{name}.joins"
        if len(link.joins) < 2:
            problems.append(Problem(key, "must join at least two blocks", shown(link.joins)))
        for end in link.joins:
            if end in links:
                problems.append(Problem(key, "must not join a link, or links form a cycle", shown(end)))
            elif end not in blocks:
                problems.append(Problem(key, "no such block" + nearest(end, blocks), shown(end)))
        if link.supply and _misses(blocks, link.supply, (DvfsSpec,)):
            known = nearest(link.supply, _of(blocks, DvfsSpec))
            problems.append(Problem(f"{name}.supply", f"must name a block with a clock{known}", shown(link.supply)))
        twin = ends_of.setdefault(frozenset(link.joins), name)
        if twin != name:
            problems.append(Problem(key, f"joins the same blocks as {twin}: add its lanes to that link"))
    return problems


def _unit_problems(blocks: Blocks) -> list[Problem]:
    problems = []
    if not _of(blocks, *_UNITS) and None not in blocks.values():
        problems.append(Problem("chip", "has no unit: add a [gpu], an [npu], a [cim] or a [neuromorphic]"))
    for name, unit in blocks.items():
        if isinstance(unit, Unit):
            problems += [*_memory_problems(blocks, name, unit), *_energy_problems(name, unit)]
    for kind, words in ((ControlSpec, "control core"), (HostSpec, "host"), (PeersSpec, "group of peers")):
        names = _of(blocks, kind)
        problems += [Problem(other, f"is a second {words} beside {names[0]}; a chip has one") for other in names[1:]]
    return problems


def _memory_problems(blocks: Blocks, name: str, unit: Unit) -> Iterable[Problem]:
    for key, kinds, words in (("buffer", (SramSpec,), "an sram block"), ("memory", _TIERS, "a memory block")):
        value = getattr(unit, key)
        if _misses(blocks, value, kinds):
            yield Problem(f"{name}.{key}", f"must name {words}{nearest(value, _of(blocks, *kinds))}", shown(value))


def _energy_problems(name: str, unit: Unit) -> Iterable[Problem]:
    """Every format that a unit computes in has an energy; a weight of compute in memory fits into the columns of a macro."""
    match unit:
        case CimSpec():
            for fmt in unit.formats:
                if (columns := math.ceil(BITS[fmt] / unit.cell_bit)) > unit.cols:
                    yield Problem(f"{name}.cols", f"must be at least {columns}: one {fmt} weight takes as many", f"{unit.cols}")
            if not unit.formats:
                yield Problem(f"{name}.formats", "must not be empty", "[]")
            return
        case NeuromorphicSpec():
            rates, energy, key = unit.synapse_op_per_core_per_cycle, unit.synapse_energy_pj, "synapse_energy_pj"
        case NpuSpec():
            rates, energy, key = unit.macs_per_pe_per_cycle, unit.mac_energy_pj, "mac_energy_pj"
        case GpuSpec():
            rates, energy, key = unit.macs_per_core_per_cycle, unit.mac_energy_pj, "mac_energy_pj"
    for fmt in rates:
        if fmt not in energy:
            yield Problem(f"{name}.{key}.{fmt}", f"missing: energy of one {fmt} MAC [pJ]")


def _share_problems(blocks: Blocks) -> list[Problem]:
    shares: dict[str, float] = {}
    for unit in blocks.values():
        if isinstance(unit, Unit):
            shares[unit.buffer] = shares.get(unit.buffer, 0.0) + unit.buffer_share
    return [
        Problem(f"{name}", "buffer_share of all units that use it must add up to at most 1", f"{share:g}")
        for name, share in shares.items()
        if share > 1.0 + 1e-9
    ]


def _placement_problems(blocks: Blocks, placement: PlacementSpec) -> list[Problem]:
    """Names in the placement that are no unit, host or tier of the chip."""
    problems = []
    wanted: dict[str, tuple[tuple[type, ...], str]] = {role: (_UNITS, "a unit") for role in ROLES}
    wanted["light_unit"] = (_UNITS, "a unit")
    wanted["embedding"] = ((*_UNITS, HostSpec), "a unit or the host")
    wanted |= dict.fromkeys(("weights", "kv_cache", "spill"), (_TIERS, "a memory block"))
    for key, (kinds, words) in wanted.items():
        value = getattr(placement, key)
        if value and _misses(blocks, value, kinds):
            known = nearest(value, _of(blocks, *kinds))
            problems.append(Problem(f"placement.{key}", f"must name {words}{known}", shown(value)))
    return problems


def _route_problems(blocks: Blocks, placement: PlacementSpec) -> list[Problem]:
    """From each unit: to its memories, to what the placement names, to the other units, the control core and the host."""
    joins = {name: link.joins for name, link in blocks.items() if isinstance(link, LinkSpec)}
    named = [getattr(placement, key) for key in (*ROLES, "weights", "kv_cache", "spill")]
    common = [*named, *_of(blocks, *_UNITS, ControlSpec, HostSpec)]
    problems: list[Problem] = []
    for name, unit in blocks.items():
        if isinstance(unit, Unit):
            problems += _reach(name, (unit.buffer, unit.memory, *common), routes(joins, name))
    return problems


def _reach(name: str, targets: Iterable[str], found: Mapping[str, list[tuple[str, ...]]]) -> Iterable[Problem]:
    for target in dict.fromkeys(filter(None, targets)):
        ways = found.get(target, [])
        if not ways:
            yield Problem(name, f"no link leads from it to {target}: no path between them")
        elif len(ways) > 1:
            shown_ways = " and ".join(" - ".join(way) for way in ways)
            yield Problem(name, f"links form a cycle: two equally short paths lead to {target}, {shown_ways}")


def merged_placement(chip: ChipSpec, placement: Mapping[str, Any]) -> ChipSpec:
    """The chip with what a workload's placement sets laid over its own. Raises SpecError where that fits no block."""
    if placement:
        known = [field.name for field in attrs.fields(PlacementSpec)]
        unknown = [key for key in placement if key not in known]
        if unknown:
            raise SpecError(chip.name, [Problem(f"placement.{key}", "unknown key" + nearest(key, known)) for key in unknown])
        chip = attrs.evolve(chip, placement=attrs.evolve(chip.placement, **placement))
    if problems := chip_problems(chip.blocks, chip.placement):
        raise SpecError(chip.name, problems)
    return chip
