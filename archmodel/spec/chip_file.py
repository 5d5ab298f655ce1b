"""Chip files -> specs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archmodel.errors import Problem, SpecError
from archmodel.spec.check import boundary_problems, chip_problems
from archmodel.spec.chip import KINDS, Block, ChipSpec, PowerSpec, SoftwareSpec
from archmodel.spec.cost import CostSpec
from archmodel.spec.cost_check import cost_problems
from archmodel.spec.power import BoardSpec, FacilitySpec, ServerSpec
from archmodel.spec.reader import build, nearest, shown
from archmodel.spec.tables import laid_over, read_table, through
from archmodel.spec.workload import PlacementSpec, PrecisionSpec

#: tables of a chip that are no block
CHIP_TABLES = {"chip": ChipSpec, "placement": PlacementSpec, "precision": PrecisionSpec, "software": SoftwareSpec,
               "power": PowerSpec, "board": BoardSpec, "server": ServerSpec, "facility": FacilitySpec,
               "cost": CostSpec}  # fmt: skip
BOUNDARIES = ("board", "server", "facility")
OPTIONAL = ("precision", "cost", *BOUNDARIES)  # tables of a chip that are None where they are missing

BLOCK_NAME = re.compile(r"[^\W\d][\w-]*")
NAME_RULE = "must be a name of letters, digits, _ and -, and begin with a letter"


def chip_table(path: str | Path) -> dict[str, Any]:
    """The table of a chip file, laid over the file that its `chip.extends` names, if any."""
    file = Path(path)
    seen = [file.resolve()]
    table, base = _layer(file)
    while base is not None:
        if not isinstance(base, str) or not base:
            raise SpecError(str(path), [Problem("chip.extends", "must be the path of a chip file", shown(base))])
        file = file.parent / base
        if file.resolve() in seen:
            raise SpecError(str(path), [Problem("chip.extends", "must not lead back to a file that extends it", shown(base))])
        seen.append(file.resolve())
        try:
            below, base = _layer(file)
        except SpecError as error:
            raise SpecError(str(path), through("chip.extends", error)) from None
        table = laid_over(below, table)
    return table


def _layer(file: Path) -> tuple[dict[str, Any], Any]:
    """The table of one chip file without its `chip.extends`, and that."""
    table = read_table(file)
    head = table.get("chip")
    return table, head.pop("extends", None) if isinstance(head, dict) else None


def build_one_chip(table: Mapping[str, Any], file: str) -> ChipSpec:
    """The chip of an already read table; `file` names it in errors."""
    if "chip" not in table and "workload" in table:
        raise SpecError(file, [Problem("file", "is a workload, where a chip is wanted")])
    problems: list[Problem] = []
    blocks = {name: build_block(name, block, table, problems) for name, block in table.items() if name not in CHIP_TABLES}
    parts: dict[str, Any] = {
        name: build(cls, table.get(name, {}), name, problems)
        for name, cls in CHIP_TABLES.items()
        if name != "chip" and (name not in OPTIONAL or name in table)
    }
    parts = {"members": {}, **dict.fromkeys(OPTIONAL), **parts}
    chip = build(ChipSpec, table.get("chip", {}), "chip", problems, blocks=blocks, **parts)
    problems += boundary_problems([name for name in BOUNDARIES if name in table])
    problems += chip_problems(blocks, parts["placement"] or PlacementSpec())
    problems += cost_problems(blocks, parts["cost"])
    if problems or chip is None:
        raise SpecError(file, problems)
    return chip


def build_block(name: str, block: Any, table: Mapping[str, Any], problems: list[Problem]) -> Block | None:
    """One block of a chip `table`, or None and a problem."""
    if not isinstance(block, Mapping):
        problems.append(Problem(name, "must be a table such as [gpu]", shown(block)))
        return None
    kind = block.get("kind", name)
    if not isinstance(kind, str) or kind not in KINDS:
        words = ", ".join([*KINDS, *(["chip"] if "system" in table else [])])
        if "kind" in block:
            problems.append(Problem(f"{name}.kind", f"must be one of {words}{nearest(str(kind), KINDS)}", shown(kind)))
        else:
            known = nearest(name, [*KINDS, *CHIP_TABLES, *(other for other in table if other != name)])
            problems.append(Problem(name, f"unknown table{known or f', add kind = one of {words}'}"))
        return None
    if not BLOCK_NAME.fullmatch(name):
        problems.append(Problem(shown(name), NAME_RULE))
        return None
    return build(KINDS[kind], {key: value for key, value in block.items() if key != "kind"}, name, problems)
