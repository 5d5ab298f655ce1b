"""What a user can cause. Each error names file, key, value and rule; `str()` of it is the whole message."""

from __future__ import annotations

from collections.abc import Sequence

import attrs


class ArchmodelError(Exception):
    """Base of every error that a user's input can cause; the command line turns it into exit code 2."""


@attrs.frozen
class Problem:
    """One thing wrong with one key: `key: value, rule`."""

    key: str
    rule: str
    value: str = ""

    def __str__(self) -> str:
        words = f"{self.key}: {self.value}, {self.rule}" if self.value else f"{self.key}: {self.rule}"
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)  # one line, and no control codes


class SpecError(ArchmodelError):
    """A chip, workload or model file that cannot be used; holds all of its problems."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem{'' if len(self.problems) == 1 else 's'}"
        super().__init__("\n".join([f"{file}: {count}", *(f"  {problem}" for problem in self.problems)]))


class MappingError(ArchmodelError):
    """A workload that cannot run on a chip: no capable unit, no path, or not enough capacity."""


class TableError(ArchmodelError):
    """A CSV file of operations that cannot be read."""


class TraceError(ArchmodelError):
    """An HDF5 trace that is truncated, foreign or of another schema version."""


class OutputError(ArchmodelError):
    """A file that cannot be written where the user wants it."""
