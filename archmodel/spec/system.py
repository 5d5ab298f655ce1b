"""Systems: several chips as one larger chip, whose blocks are called `<member>.<block>`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import attrs

from archmodel.errors import Problem
from archmodel.spec.chip import Block, ChipSpec, HostSpec, LinkSpec, MemberSpec, SoftwareSpec, Unit
from archmodel.spec.reader import nearest, shown
from archmodel.spec.workload import ROLES, PlacementSpec

#: by the name of the member: how it takes part, and its chip
Members = Mapping[str, tuple[MemberSpec, ChipSpec]]


def member_of(block: str) -> str:
    """Member that a block belongs to: `gpu_card` of `gpu_card.hbm`; empty for a block of the system itself or of a chip."""
    member, dot, _ = block.partition(".")
    return member if dot else ""


def stages(name: str, member: MemberSpec) -> tuple[str, ...]:
    """Members that a member of the file stands for: itself, or the stages of its pipeline."""
    return (name,) if member.pipeline == 1 else tuple(f"{name}_{stage}" for stage in range(member.pipeline))


def pipelines(members: Mapping[str, MemberSpec]) -> dict[str, tuple[str, ...]]:
    """Pipelines by their name in the file: the members that are their stages, in order."""
    names = {name.rpartition("_")[0]: member for name, member in members.items() if member.pipeline > 1}
    return {name: stages(name, member) for name, member in names.items()}


def renamed(placement: PlacementSpec, rename: Callable[[str], str]) -> PlacementSpec:
    """The placement with every block that it names renamed."""
    named = {key: getattr(placement, key) for key in (*ROLES, "weights", "kv_cache", "spill", "light_unit")}
    changed: dict[str, Any] = {key: rename(block) for key, block in named.items() if block}
    changed["shares"] = {
        role: {rename(unit): share for unit, share in parts.items()} for role, parts in placement.shares.items()
    }
    return attrs.evolve(placement, **changed)


def at_stages(placement: PlacementSpec, at: Mapping[tuple[str, ...], int], members: Mapping[str, MemberSpec]) -> PlacementSpec:
    """The placement with blocks of pipelines, named as in the file or by the first stage, at the stage of each `at`."""
    there = {name: row[at[row]] for pipeline, row in pipelines(members).items() for name in (pipeline, row[0])}
    return renamed(placement, lambda block: _moved(block, there))


def _moved(block: str, there: Mapping[str, str]) -> str:
    member, dot, name = block.partition(".")
    return f"{there.get(member, member)}{dot}{name}"


def holder(name: str, block: Block | None, members: Mapping[str, MemberSpec]) -> str:
    """Member whose cards have a block each, or empty. A link of the system that joins members is there once for each card of
    the smallest of them: every card has its own."""
    ends = block.joins if isinstance(block, LinkSpec) and not member_of(name) else (name,)
    joined = [member_of(end) for end in ends if member_of(end) in members]
    return min(joined, key=lambda member: members[member].count, default="")


def copies(name: str, block: Block | None, members: Mapping[str, MemberSpec]) -> int:
    """How many of a block there are."""
    member = holder(name, block, members)
    return members[member].count if member else 1


def flattened(own: Mapping[str, Block | None], members: Members) -> dict[str, Block | None]:
    """All blocks under the names that they have in the system: those of the members, then its `own`.

    `members` are those after `stages`; a link of the system that joins a block of a pipeline by the name in the file joins
    the blocks of all its stages.
    """
    blocks: dict[str, Block | None] = {}
    for name, (member, chip) in members.items():
        blocks |= _renamed(name, member, chip, own)
    return {**blocks, **{name: _spread(block, members) for name, block in own.items()}}


def _spread(block: Block | None, members: Members) -> Block | None:
    if not isinstance(block, LinkSpec):
        return block
    rows = pipelines({name: member for name, (member, _) in members.items()})
    ends = [[f"{stage}.{end.partition('.')[2]}" for stage in rows.get(member_of(end), ())] or [end] for end in block.joins]
    return attrs.evolve(block, joins=tuple(chain.from_iterable(ends)))


def _renamed(name: str, member: MemberSpec, chip: ChipSpec, own: Mapping[str, Block | None]) -> dict[str, Block]:
    """Blocks of a member with what they refer to renamed; a dropped block is the system's of that name, or none."""
    blocks: dict[str, Block] = {}
    for key, block in chip.blocks.items():
        if key in member.drop:
            continue
        if isinstance(block, LinkSpec):
            ends = tuple(_new_name(name, member, own, end) for end in block.joins if end not in member.drop or end in own)
            if len(ends) < 2 <= len(block.joins):
                continue  # it led to what was dropped
            supply = block.supply and _new_name(name, member, own, block.supply)
            block = attrs.evolve(block, joins=ends, supply=supply)
        elif isinstance(block, Unit):
            block = attrs.evolve(block, buffer=_new_name(name, member, own, block.buffer),
                                 memory=_new_name(name, member, own, block.memory))  # fmt: skip
        blocks[f"{name}.{key}"] = block
    return blocks


def _new_name(name: str, member: MemberSpec, own: Mapping[str, Block | None], block: str) -> str:
    return block if block in member.drop and block in own else f"{name}.{block}"


def first_placement(own: Mapping[str, Block | None], members: Members) -> PlacementSpec:
    """The placement that a system starts from: that of its first member."""
    name, (member, chip) = next(iter(members.items()))
    return renamed(chip.placement, lambda block: _new_name(name, member, own, block))


def member_problems(members: Members) -> list[Problem]:
    """Names to drop that are no block of the member's chip."""
    problems = []
    for name, (member, chip) in members.items():
        unknown = [block for block in member.drop if block not in chip.blocks]
        problems += [
            Problem(f"{name}.drop", f"no such block in {member.chip}{nearest(b, chip.blocks)}", shown(b)) for b in unknown
        ]
    return problems


def lane_problems(blocks: Mapping[str, Block | None], members: Mapping[str, MemberSpec]) -> list[Problem]:
    """A host whose PCIe links, all cards together, have more lanes than it offers."""
    problems = []
    for name, host in blocks.items():
        if isinstance(host, HostSpec) and host.pcie_lanes:
            parts = host_lanes(name, blocks, members)
            used = sum(lanes * cards for lanes, cards in parts.values())
            if used > host.pcie_lanes:
                sums = " + ".join(f"{link} {lanes} x {cards}" for link, (lanes, cards) in parts.items())
                problems.append(Problem(f"{name}.pcie_lanes", f"must be at least {sums} = {used}", str(host.pcie_lanes)))
    return problems


def host_lanes(host: str, blocks: Mapping[str, Block | None], members: Mapping[str, MemberSpec]) -> dict[str, tuple[int, int]]:
    """Lanes and number of each PCIe link of a host."""
    links = {name: link for name, link in blocks.items() if isinstance(link, LinkSpec)}
    return {
        name: (link.lanes, copies(name, link, members))
        for name, link in links.items()
        if link.protocol == "pcie" and host in link.joins
    }


def of_chip(member: MemberSpec, chip: ChipSpec) -> MemberSpec:
    """The member with what belongs to its chip as a whole."""
    return attrs.evolve(member, software=chip.software, power=chip.power, cost=chip.cost, process_nm=chip.process_nm)


def chip_of(system: ChipSpec, name: str) -> ChipSpec:
    """The chip of a member, its blocks under their own names; what the system has in place of a block is not in it."""
    member, prefix = system.members[name], f"{name}."
    blocks: dict[str, Block] = {}
    for key, block in system.blocks.items():
        if isinstance(block, LinkSpec):
            ends = tuple(end.removeprefix(prefix) for end in block.joins)
            block = attrs.evolve(block, joins=ends, supply=block.supply.removeprefix(prefix))
        elif isinstance(block, Unit):
            block = attrs.evolve(block, buffer=block.buffer.removeprefix(prefix), memory=block.memory.removeprefix(prefix))
        if member_of(key) == name:
            blocks[key.removeprefix(prefix)] = block
    return ChipSpec(name=f"{system.name}.{name}", source=member.source, blocks=blocks, software=member.software,
                    power=member.power, cost=member.cost, process_nm=member.process_nm)  # fmt: skip


def with_software(chip: ChipSpec, software: SoftwareSpec) -> ChipSpec:
    """The chip or system with another software stack, on all its members."""
    members = {name: attrs.evolve(member, software=software) for name, member in chip.members.items()}
    return attrs.evolve(chip, software=software, members=members)
