"""Systems: several chips as one larger chip, whose blocks are called `<member>.<block>`."""

from __future__ import annotations

from collections.abc import Mapping
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
    ends: list[str] = []
    for end in block.joins:
        rows = [name for name, (member, _) in members.items() if member.pipeline > 1 and _stage_of(name) == member_of(end)]
        ends += [f"{name}.{end.partition('.')[2]}" for name in rows] or [end]
    return attrs.evolve(block, joins=tuple(ends))


def _stage_of(name: str) -> str:
    return name.rpartition("_")[0]


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
            block = attrs.evolve(block, joins=ends)
        elif isinstance(block, Unit):
            block = attrs.evolve(block, buffer=_new_name(name, member, own, block.buffer),
                                 memory=_new_name(name, member, own, block.memory))  # fmt: skip
        blocks[f"{name}.{key}"] = block
    return blocks


def _new_name(name: str, member: MemberSpec, own: Mapping[str, Block | None], block: str) -> str:
    return block if block in member.drop and block in own else f"{name}.{block}"


def renamed_placement(own: Mapping[str, Block | None], members: Members) -> PlacementSpec:
    """The placement that a system starts from: that of its member where it has one only, else an empty one."""
    if len(members) != 1:
        return PlacementSpec()
    ((name, (member, chip)),) = members.items()
    placed = {key: getattr(chip.placement, key) for key in (*ROLES, "weights", "kv_cache", "spill")}
    new: dict[str, Any] = {key: _new_name(name, member, own, block) for key, block in placed.items() if block}
    new["shares"] = {
        role: {_new_name(name, member, own, unit): share for unit, share in parts.items()}
        for role, parts in chip.placement.shares.items()
    }
    return attrs.evolve(chip.placement, **new)


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


def with_software(chip: ChipSpec, software: SoftwareSpec) -> ChipSpec:
    """The chip or system with another software stack, on all its members."""
    members = {name: attrs.evolve(member, software=software) for name, member in chip.members.items()}
    return attrs.evolve(chip, software=software, members=members)
