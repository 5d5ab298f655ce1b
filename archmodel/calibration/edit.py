"""New numbers in the text of a chip file; comments, order and all other tables stay as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping

_EARLIER = re.compile(r"(?:; (?:\\\n)?)?fitted: by calibrate[^;\"]*")


def with_numbers(text: str, values: Mapping[str, float | Mapping[str, float]], sources: Mapping[str, str], rows: str) -> str:
    """`text` with the numbers at the keys block.name replaced, or added at the end of the block.

    The source of each block touched gains `fitted: by calibrate: <its numbers> on <rows>`, in place of an earlier such;
    `sources` has the source of blocks that inherit theirs.
    """
    lines = text.splitlines(keepends=True)
    for block in dict.fromkeys(key.split(".")[0] for key in values):
        start, end = _extent(lines, block)
        if start < 0:
            lines += ["" if not lines or lines[-1].endswith("\n") else "\n", "\n", f"[{block}]\n"]
            start = end = len(lines)
        body = "".join(lines[start:end])
        for key, value in values.items():
            owner, name = key.split(".")
            if owner == block:
                body = _with_number(body, name, value)
        names = ", ".join(key.split(".")[1] for key in values if key.split(".")[0] == block)
        lines[start:end] = _with_source(body, f"{names} on {rows}", sources[block]).splitlines(keepends=True)
    return "".join(lines)


def _extent(lines: list[str], block: str) -> tuple[int, int]:
    """First line after the header of a table, and one after its last; (-1, -1) where there is none."""
    quoted = False
    start = end = -1
    for number, line in enumerate(lines):
        if not quoted and re.match(r"\s*\[", line):
            if start >= 0:
                return start, number
            if re.match(rf"\s*\[\s*{re.escape(block)}\s*\]", line):
                start = number + 1
        quoted ^= line.count('"""') % 2 == 1
        end = number + 1
    return (start, end) if start >= 0 else (-1, -1)


def _with_number(body: str, name: str, value: float | Mapping[str, float]) -> str:
    number = f"{value:.4g}" if isinstance(value, float) else f"{{ {', '.join(f'{k} = {v:.4g}' for k, v in value.items())} }}"
    pattern = re.compile(rf"^(\s*{re.escape(name)}\s*=\s*)(?:\{{[^}}]*\}}|[^\s#]+)", re.MULTILINE)
    if pattern.search(body):
        return pattern.sub(rf"\g<1>{number}", body, count=1)
    last = max((found.end() for found in re.finditer(r"^[^\S\n]*[^\s#].*(?:\n|\Z)", body, re.MULTILINE)), default=0)
    return f"{body[:last]}{name} = {number}\n{body[last:]}"


def _with_source(body: str, clause: str, inherited: str) -> str:
    """The table with the clause at the end of its source, whose quotes may be one or three."""
    added = f"fitted: by calibrate: {clause}"
    found = re.search(r'^\s*source\s*=\s*("""|")', body, re.MULTILINE)
    if not found:
        escaped = _EARLIER.sub("", inherited).replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        return f'source = "{escaped}; {added}"\n{body}' if escaped else f'source = "{added}"\n{body}'
    close = body.index(found[1], found.end())
    while found[1] == '"' and body[close - 1] == "\\":
        close = body.index('"', close + 1)
    old = _EARLIER.sub("", body[found.end() : close])
    return f"{body[: found.end()]}{old}{'; ' if old.strip() else ''}{added}{body[close:]}"
