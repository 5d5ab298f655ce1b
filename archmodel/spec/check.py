"""Rules between the blocks of a chip: names that exist, routes that are unique, shares that add up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from archmodel.errors import Problem
from archmodel.spec.chip import ChipSpec, ControlSpec, DramSpec, GpuSpec, HostSpec, LinkSpec, NpuSpec, SramSpec
from archmodel.spec.reader import nearest
from archmodel.spec.standards import STANDARDS
from archmodel.spec.workload import ROLES


def routes(joins: Mapping[str, tuple[str, ...]], start: str) -> dict[str, list[tuple[str, ...]]]:
    """All shortest routes, as link names, from block `start` to every block that it reaches."""
    found: dict[str, list[tuple[str, ...]]] = {start: [()]}
    frontier = [start]
    while frontier:
        reached: dict[str, list[tuple[str, ...]]] = {}
        for block in frontier:
            for link, ends in joins.items():
                if block in ends:
                    for end in ends:
                        if end not in found:
                            reached.setdefault(end, []).extend((*route, link) for route in found[block])
        found.update(reached)
        frontier = list(reached)
    return found


def chip_problems(chip: ChipSpec) -> list[Problem]:
    """Everything wrong between the blocks of a chip whose blocks are each fine."""
    problems = [*_link_problems(chip), *_unit_problems(chip), *_share_problems(chip), *_standard_problems(chip)]
    problems += placement_problems(chip)
    if not problems:
        problems = _route_problems(chip)
    return problems


def _link_problems(chip: ChipSpec) -> list[Problem]:
    problems = []
    links = {name: link for name, link in chip.blocks.items() if isinstance(link, LinkSpec)}
    ends_of: dict[frozenset[str], str] = {}
    for name, link in links.items():
        if len(link.joins) < 2:
            problems.append(Problem(f"{name}.joins", "must join at least two distinct blocks", repr(list(link.joins))))
        for end in link.joins:
            if end == name or end in links:
                problems.append(Problem(f"{name}.joins", "must not join a link, or links form a cycle", repr(end)))
            elif end not in chip.blocks:
                problems.append(Problem(f"{name}.joins", "no such block" + nearest(end, chip.blocks), repr(end)))
        twin = ends_of.setdefault(frozenset(link.joins), name)
        if twin != name:
            problems.append(Problem(f"{name}.joins", f"joins the same blocks as {twin}: add its lanes to that link"))
    return problems


def _unit_problems(chip: ChipSpec) -> list[Problem]:
    problems = []
    units = chip.of_kind(GpuSpec, NpuSpec)
    if not units:
        problems.append(Problem("chip", "has no unit: add a [gpu] or an [npu]"))
    for name, unit in units.items():
        assert isinstance(unit, GpuSpec | NpuSpec)
        for key, kinds, words in (("buffer", SramSpec, "an sram block"), ("memory", (SramSpec, DramSpec), "a memory block")):
            value = getattr(unit, key)
            if not isinstance(chip.blocks.get(value), kinds):
                known = [n for n, b in chip.blocks.items() if isinstance(b, kinds)]
                problems.append(Problem(f"{name}.{key}", f"must name {words}{nearest(value, known)}", repr(value)))
        rates = unit.macs_per_core_per_cycle if isinstance(unit, GpuSpec) else unit.macs_per_pe_per_cycle
        for fmt in rates:
            if fmt not in unit.mac_energy_pj:
                problems.append(Problem(f"{name}.mac_energy_pj.{fmt}", f"missing: energy of one {fmt} MAC [pJ]"))
    for kind, words in ((ControlSpec, "control core"), (HostSpec, "host")):
        names = list(chip.of_kind(kind))
        if len(names) > 1:
            problems.append(Problem(names[1], f"is a second {words}; a chip has one"))
    return problems


def _share_problems(chip: ChipSpec) -> list[Problem]:
    shares: dict[str, float] = {}
    for unit in chip.blocks.values():
        if isinstance(unit, GpuSpec | NpuSpec):
            shares[unit.buffer] = shares.get(unit.buffer, 0.0) + unit.buffer_share
    return [
        Problem(f"{name}.buffer_share", "of all units together must be at most 1", f"{share:g}")
        for name, share in shares.items()
        if share > 1.0 + 1e-9
    ]


def _standard_problems(chip: ChipSpec) -> list[Problem]:
    return [
        Problem(f"{name}.standard", "unknown DRAM standard" + nearest(block.standard, STANDARDS)
                + "; known: " + ", ".join(STANDARDS), repr(block.standard))
        for name, block in chip.blocks.items()
        if isinstance(block, DramSpec) and block.standard not in STANDARDS
    ]  # fmt: skip


def placement_problems(chip: ChipSpec) -> list[Problem]:
    """Names in the placement that are no unit, host or tier of the chip."""
    placement = chip.placement
    units = chip.of_kind(GpuSpec, NpuSpec)
    tiers = chip.of_kind(SramSpec, DramSpec)
    problems = []
    for role in ROLES:
        owner = getattr(placement, role)
        known = [*units, *(chip.of_kind(HostSpec) if role == "embedding" else ())]
        if owner and owner not in known:
            problems.append(Problem(f"placement.{role}", f"must name a unit{nearest(owner, known)}", repr(owner)))
    for key in ("weights", "kv_cache", "spill"):
        tier = getattr(placement, key)
        if tier and tier not in tiers:
            problems.append(Problem(f"placement.{key}", f"must name a memory block{nearest(tier, tiers)}", repr(tier)))
    return problems


def _route_problems(chip: ChipSpec) -> list[Problem]:
    joins = {name: link.joins for name, link in chip.blocks.items() if isinstance(link, LinkSpec)}
    problems = []
    for name, unit in chip.of_kind(GpuSpec, NpuSpec).items():
        assert isinstance(unit, GpuSpec | NpuSpec)
        problems += _reach(name, (unit.buffer, unit.memory, *_partners(chip, name)), routes(joins, name))
    return problems


def _partners(chip: ChipSpec, unit: str) -> Iterable[str]:
    placement = chip.placement
    named = [getattr(placement, role) for role in ROLES] + [placement.weights, placement.kv_cache, placement.spill]
    others = list(chip.of_kind(GpuSpec, NpuSpec))
    return (name for name in dict.fromkeys([*named, *others]) if name and name != unit)


def _reach(name: str, targets: Iterable[str], found: dict[str, list[tuple[str, ...]]]) -> list[Problem]:
    problems = []
    for target in dict.fromkeys(targets):
        ways = found.get(target, [])
        if not ways:
            problems.append(Problem(name, f"no link leads from it to {target}: no path between them"))
        elif len(ways) > 1:
            shown = " and ".join(" - ".join(way) for way in ways[:2])
            problems.append(Problem(name, f"links form a cycle: two equally short paths lead to {target}, {shown}"))
    return problems


def merged_placement(chip: ChipSpec, workload_placement: object | None) -> ChipSpec:
    """The chip with what a workload's placement sets laid over the chip's own."""
    if workload_placement is None:
        return chip
    fields = attrs.fields(type(chip.placement))
    set_here = {
        field.name: getattr(workload_placement, field.name)
        for field in fields
        if getattr(workload_placement, field.name) != field.default
    }
    return attrs.evolve(chip, placement=attrs.evolve(chip.placement, **set_here))
