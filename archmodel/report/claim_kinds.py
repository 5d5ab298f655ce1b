"""The kinds of claims and their figures, for somebody who writes a claims file."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from rich.console import Group, RenderableType

from archmodel.report.table import columns, heading
from archmodel.spec.claim_kinds import KINDS
from archmodel.units import unit_of


def kinds() -> Group:
    """Each kind with its figures, their units and what stands in where nobody states them."""
    return Group(*_tables())


def _tables() -> Iterator[RenderableType]:
    for name, kind in KINDS.items():
        yield heading(name)
        yield str(kind.__doc__)
        rows = [
            [field.name, unit_of(field.name), _default(field.default), field.metadata["doc"]] for field in attrs.fields(kind)
        ]
        if rows:
            yield columns(["figure", "<unit", "<if not stated", "<what it is"], rows)


def _default(value: object) -> str:
    return "must be stated" if value is attrs.NOTHING else "" if value in ("", 0, False) else str(value)
