"""System files -> one chip: the chips of all members, with what the system lays over them, and the system's own blocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.spec.check import boundary_problems, chip_problems
from archmodel.spec.chip import Block, ChipSpec, MemberSpec, PowerSpec, SoftwareSpec
from archmodel.spec.chip_file import (
    BLOCK_NAME,
    BOUNDARIES,
    CHIP_TABLES,
    NAME_RULE,
    OPTIONAL,
    build_block,
    build_one_chip,
    chip_table,
)
from archmodel.spec.reader import build, shown
from archmodel.spec.system import Members, at_stages, first_placement, flattened, member_problems, of_chip, pipelines, stages
from archmodel.spec.tables import laid_over, through
from archmodel.spec.workload import PlacementSpec


def build_system(table: Mapping[str, Any], path: Path) -> ChipSpec:
    """The system of a table, as one chip whose blocks are those of all members and its own."""
    problems: list[Problem] = []
    cards = {name: block for name, block in table.items() if isinstance(block, Mapping) and block.get("kind") == "chip"}
    read = {name: _build_member(name, card, table, path, problems) for name, card in cards.items()}
    members: Members = {stage: pair for name, pair in read.items() if pair for stage in stages(name, pair[0])}
    named = [stage for name, pair in read.items() if pair for stage in stages(name, pair[0])]
    problems += [Problem(name, "is a stage of a pipeline as well") for name in cards if named.count(name) > 1]
    if not cards:
        problems.append(Problem("system", 'has no member: add a table with kind = "chip" and chip = the path of its file'))
    own = {name: build_block(name, block, table, problems) for name, block in table.items()
           if name not in cards and name not in ("system", *CHIP_TABLES)}  # fmt: skip
    blocks = flattened(own, members)
    specs = {name: member for name, (member, _) in members.items()}
    laid = _system_parts(table, own, members if len(cards) == 1 else {}, problems)
    if laid["placement"]:
        laid["placement"] = at_stages(laid["placement"], dict.fromkeys(pipelines(specs).values(), 0), specs)
    if members and laid["software"]:
        below = attrs.asdict(next(iter(specs.values())).software)
        laid["software"] = build(SoftwareSpec, {**below, **table.get("software", {})}, "software", [])
    system = build(ChipSpec, table["system"], "system", problems, blocks=blocks, members=specs, **laid)
    problems += [*member_problems(members), *boundary_problems([name for name in BOUNDARIES if name in table])]
    if all(read.values()) and cards:
        problems += chip_problems(blocks, laid["placement"] or PlacementSpec(), specs)
    if problems or system is None:
        raise SpecError(str(path), problems)
    return system


def _system_parts(
    table: Mapping[str, Any], own: Mapping[str, Block | None], only: Members, problems: list[Problem]
) -> dict[str, Any]:
    """Placement, precision, software and power of a system: its own, laid over those of its only member, if any."""
    for name, rule in (("chip", "whose head is [system]"), ("cost", "which costs what its members do")):
        if name in table:
            problems.append(Problem(name, f"must not stand in a system, {rule}"))
    below: dict[str, Any] = {}
    if only:
        precision = next(iter(only.values()))[1].precision
        below = {"placement": attrs.asdict(first_placement(own, only))}
        below |= {"precision": attrs.asdict(precision)} if precision else {}
    parts: dict[str, Any] = dict.fromkeys(OPTIONAL)
    for name in ("placement", "precision", "software", "power", *BOUNDARIES):
        given = table.get(name, {})
        laid = {**below.get(name, {}), **given} if isinstance(given, Mapping) else given
        if laid or name not in OPTIONAL:
            parts[name] = build(CHIP_TABLES[name], laid, name, problems)
    return parts


def _build_member(
    name: str, card: Mapping[str, Any], table: Mapping[str, Any], path: Path, problems: list[Problem]
) -> tuple[MemberSpec, ChipSpec] | None:
    """A member and its chip, with the tables that the system lays over it; None where `problems` grows."""
    if not BLOCK_NAME.fullmatch(name):
        problems.append(Problem(shown(name), NAME_RULE))
        return None
    inner = {key: value for key, value in card.items() if isinstance(value, Mapping)}
    own = {key: value for key, value in card.items() if key not in inner and key != "kind"}
    later = {"software": SoftwareSpec(), "power": PowerSpec(), "cost": None, "process_nm": 0.0}
    member = build(MemberSpec, own, name, problems, **later)
    if member is None:
        return None
    file = path.parent / member.chip
    try:
        below = chip_table(file)
        if "system" in below:
            raise SpecError(str(file), [Problem("file", "is a system, where a chip is wanted")])
        software = {"software": table["software"]} if isinstance(table.get("software"), Mapping) else {}
        chip = build_one_chip(laid_over(laid_over(below, software), inner), str(file))
    except SpecError as error:
        problems += through(f"{name}.chip", error)
        return None
    return of_chip(member, chip), chip
