"""Tables in markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Cells = Sequence[str]


def markdown(header: Cells, rows: Iterable[Cells], texts: int = 1) -> str:
    """A table; the first `texts` columns are text, the others are numbers."""
    lines = [header, [*["---"] * texts, *["---:"] * (len(header) - texts)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
