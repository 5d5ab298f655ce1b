"""What `eval --explain` prints: formulas with their numbers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from archmodel.explain import Topic, explanation, plain
from archmodel.report.table import heading
from archmodel.result import Result
from archmodel.units import si

_PREFIXED = ("s", "B", "OP", "FLOP", "OP/s", "FLOP/s", "W")  # units that people write with a decimal prefix


def formulas(result: Result) -> Group:
    """Every topic of the explanation of a result, one after the other."""
    return Group(*(part for topic in explanation(result) for part in _topic(topic)))


def _topic(topic: Topic) -> Iterator[RenderableType]:
    yield heading(topic.title)
    grid = Table.grid(padding=(0, 1))
    for formula in topic.formulas:
        grid.add_row(Text(formula.name), Text(f"= {formula.symbols}", style="dim"))
        grid.add_row("", f"= {formula.expression}")
        unit = "" if formula.unit == "1" else f" {formula.unit}"
        readable = f"   ({si(formula.value, formula.unit)})" if formula.unit in _PREFIXED else ""
        grid.add_row("", Text(f"= {plain(formula.value)}{unit}{readable}", style="bold"))
    yield Padding(grid, (0, 0, 0, 2))
    if topic.remark:
        yield Padding(Text(topic.remark, style="dim"), (0, 0, 0, 2))
