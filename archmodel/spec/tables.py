"""TOML files as tables: reading, overriding single keys, and laying one table over another."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from archmodel.errors import Problem, SpecError
from archmodel.spec.reader import read_text, shown

Overrides = Mapping[str, Any]

_MAX_DEPTH = 8  # tables and lists inside each other; a spec has three


def read_table(path: str | Path) -> dict[str, Any]:
    """The table of a TOML file. Raises SpecError with line and column where it is no TOML."""
    text = read_text(path)
    too_deep = SpecError(str(path), [Problem("file", "is nested too deeply for a spec")])
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        raise SpecError(str(path), [Problem("file", f"is not valid TOML: {error}{_line_of(error, text)}")]) from None
    except RecursionError:
        raise too_deep from None
    if _is_deep(table):
        raise too_deep
    return table


def _line_of(error: ValueError, text: str) -> str:
    """The line that the parser names."""
    found = re.search(r"at line (\d+)", str(error))
    line = text.splitlines()[int(found[1]) - 1 :][:1] if found else []
    return f": {shown(line[0].strip())}" if line else ""


def _is_deep(value: Any, left: int = _MAX_DEPTH) -> bool:
    if not isinstance(value, dict | list):
        return False
    return left == 0 or any(_is_deep(inner, left - 1) for inner in (value.values() if isinstance(value, dict) else value))


def parse_overrides(settings: Iterable[str]) -> dict[str, Any]:
    """`["npu.clock_ghz=1.2"]` -> `{"npu.clock_ghz": 1.2}`; a value that is no TOML is taken as a string.

    Raises SpecError with every setting that is malformed.
    """
    overrides: dict[str, Any] = {}
    problems = []
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if equals and "." in key and all(part == part.strip() != "" for part in key.split(".")):
            overrides[key] = _parsed(value)
        else:
            problems.append(Problem(setting, "must look like table.key=value, for example npu.clock_ghz=1.2"))
    if problems:
        raise SpecError("--set", problems)
    return overrides


def _parsed(value: str) -> Any:
    try:
        table = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return value
    return table["value"] if len(table) == 1 else value


def apply_overrides(table: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """A copy of `table` with dotted keys set. Names that no spec knows are found when the specs are built."""
    result: dict[str, Any] = copy.deepcopy(dict(table))
    for dotted, value in overrides.items():
        *path, last = dotted.split(".")
        inner = result
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise SpecError("--set", [Problem(dotted, f"{part} is a value, not a table")])
        inner[last] = value
    return result


def laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def through(key: str, error: SpecError) -> list[Problem]:
    """Problems of a file to which `key` leads, as problems of the file that has the key."""
    return [Problem(key, str(problem), error.file) for problem in error.problems]
