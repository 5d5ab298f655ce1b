"""CSV files: a header and rows of cells, checked columns, and all problems of a file in one error.

Read alike: with or without a byte order mark, a final newline, blank lines, trailing commas, spaces around cells, any line
ending, and quotes. Lines before the header that begin with # are comments. Names of columns ignore case.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.errors import Problem, TableError
from archmodel.spec.reader import nearest

Floats = NDArray[np.float64]

#: problems that an error shows before it only counts
SHOWN = 20

_LINE_END = re.compile(r"\r\n|\r|\n")
_COMMENTS = re.compile(r"(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))*")


class Problems:
    """What is wrong with a file, collected in any order and reported by line."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[tuple[int, Problem]] = []

    def add(self, line: int, rule: str, column: str = "", value: str = "") -> None:
        """One problem; `line` counts from 1."""
        where = f"line {line}" + (f", column {column}" if column else "")
        self._found.append((line, Problem(where, rule, value if len(value) <= 60 else value[:57] + "...")))

    def check(self) -> None:
        """Raise TableError if there is any problem."""
        if not self._found:
            return
        found = [problem for _, problem in sorted(self._found, key=lambda pair: pair[0])]
        more = [f"  and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        count = f"{len(found)} problem{'' if len(found) == 1 else 's'}"
        raise TableError("\n".join([f"{self.file}: {count}", *(f"  {problem}" for problem in found[:SHOWN]), *more]))


@attrs.frozen(eq=False)
class TableFile:
    """A CSV file as text. `rows` are cells, as many as the header has; `lines` are the line numbers of the rows."""

    file: str
    header: tuple[str, ...]
    header_line: int
    rows: tuple[list[str], ...]
    lines: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def index(self, name: str) -> int:
        """Index of the column `name`, or -1."""
        return next((i for i, title in enumerate(self.header) if title.lower() == name), -1)

    def texts(self, name: str) -> list[str]:
        """Cells of an existing column, without spaces around them."""
        column = self.index(name)
        return [row[column].strip() for row in self.rows]


@attrs.frozen
class Rule:
    """What the numbers of a column keep. `text` says it; `test` maps numbers to booleans, false for NaN."""

    text: str
    test: Callable[[Floats], NDArray[np.bool_]]
    empty: bool = False  # cells may be empty, and are NaN then


def read_table_file(path: str | Path, problems: Problems) -> TableFile:
    """The cells of a CSV file; a row with a wrong number of fields is a problem and left out.

    Raises TableError where there is no use in reading on: no text, no CSV, no header.
    """
    text, comments = _without_comments(_read_text(path))
    records = _records(str(path), text, comments)
    first = next(records, None)
    if first is None:
        raise TableError(f"{path}: is empty: no header and no rows")
    header_line, header = first[0], _header(*first, problems)
    problems.check()
    found = list(records)
    whole = text.endswith(("\n", "\r"))
    for line, record in found:
        if len(record) > len(header) and not any(map(str.strip, record[len(header) :])):
            del record[len(header) :]
        if len(record) != len(header):
            cut = "; is the file truncated?" if line == found[-1][0] and not whole else ""
            hint = _separator_hint(record) or cut
            problems.add(line, f"must have {len(header)} fields, as the header; it has {len(record)}{hint}")
    if not found:
        problems.add(header_line, "a header without rows")
    good = [(line, record) for line, record in found if len(record) == len(header)]
    return TableFile(str(path), header, header_line, tuple(row for _, row in good), tuple(line for line, _ in good))


def numbers(table: TableFile, name: str, rule: Rule, problems: Problems) -> Floats:
    """Numbers of an existing column, shape (rows,); cells that break `rule` are NaN and added to `problems`."""
    cells = table.texts(name)
    values = _parse(cells)
    bad = ~rule.test(values)
    for row in np.flatnonzero(bad).tolist():
        if not (rule.empty and not cells[row]):
            problems.add(table.lines[row], rule.text, table.header[table.index(name)], cells[row] or "empty")
    values[bad] = math.nan
    return values


def missing_columns(table: TableFile, wanted: Sequence[str], problems: Problems) -> list[str]:
    """Names in `wanted` that the table lacks; each is a problem, with the column that looks most like it."""
    titles = [title.lower() for title in table.header]
    missing = [name for name in wanted if name not in titles]
    spare = [title for title in titles if title not in wanted]
    if len(missing) == len(wanted):
        names = f"must name the columns {', '.join(wanted)}; it names {', '.join(table.header)}"
        problems.add(table.header_line, f"the header {names}{_separator_hint(table.header)}")
        return missing
    for name in missing:
        problems.add(table.header_line, f"missing column {name}" + nearest(name, spare, ", is {} meant for it?"))
    return missing


def _read_text(path: str | Path) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror}") from None


def _without_comments(text: str) -> tuple[str, int]:
    """Text from the header on, and the number of lines before it."""
    head = _COMMENTS.match(text)
    end = head.end() if head else 0
    return text[end:], len(_LINE_END.findall(text, 0, end))


def _records(file: str, text: str, before: int) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each line that is not blank; `before` lines precede the text."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    start = 1
    try:
        for record in reader:
            if any(map(str.strip, record)):
                yield before + start, record
            start = reader.line_num + 1
    except csv.Error as error:
        open_quote = "unexpected end" in str(error)
        reason = "a quoted field that begins here does not end" if open_quote else f"is not CSV: {error}"
        raise TableError(f"{file}: line {before + start}: {reason}") from None


def _header(line: int, record: list[str], problems: Problems) -> tuple[str, ...]:
    """Titles of the columns, without empty ones at the end."""
    titles = [title.strip() for title in record]
    while titles and not titles[-1]:
        titles.pop()
    if not np.isnan(_parse(titles)).all():
        problems.add(line, "the first line must name the columns; this one holds numbers")
        return tuple(titles)
    names = [title.lower() for title in titles if title]  # spreadsheets leave the column of row numbers without a name
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            problems.add(line, f"is there {names.count(name)} times", name)
    return tuple(titles)


def _separator_hint(record: Sequence[str]) -> str:
    """What is behind a line that is one single field."""
    return "; fields are separated by commas" if len(record) == 1 and any(mark in record[0] for mark in ";\t|") else ""


def _parse(cells: list[str]) -> Floats:
    """Numbers of cells, NaN where a cell is none."""
    try:
        values = np.array(list(map(float, cells)))
    except ValueError:
        values = np.array([_number(cell) for cell in cells])
    if any("_" in cell for cell in cells):  # Python reads 1_000, no spreadsheet does
        values[["_" in cell for cell in cells]] = math.nan
    return values


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan
