"""Economics: the defaults beside this file, a user's TOML laid over them, and `--set` over both."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from archmodel.errors import Problem, SpecError
from archmodel.spec.economics import BY_NAME, TABLES, EconomicsSpec
from archmodel.spec.reader import build, nearest, shown
from archmodel.spec.toml import Overrides, apply_overrides, laid_over, read_table

#: what `--set` may name in the economics
ECONOMICS_TABLES = (*TABLES, *BY_NAME)


@cache
def _defaults() -> dict[str, Any]:
    return tomllib.loads(files("archmodel.spec").joinpath("economics.toml").read_text(encoding="utf-8"))


@cache
def default_economics() -> EconomicsSpec:
    """The defaults alone."""
    return load_economics()


def load_economics(path: str | Path | None = None, overrides: Overrides | None = None) -> EconomicsSpec:
    """The defaults with the tables of the file and then `overrides` (dotted key -> value) laid over them.

    A table that changes a number says where its numbers come from. Raises SpecError with all problems.
    """
    own = {} if path is None else read_table(path)
    problems = [problem for name, table in own.items() for problem in _unsourced(name, table)]
    table = apply_overrides(laid_over(_defaults(), own), overrides or {})
    unknown = [name for name in table if name not in ECONOMICS_TABLES]
    problems += [Problem(name, "unknown table" + nearest(name, ECONOMICS_TABLES)) for name in unknown]
    parts: dict[str, Any] = {name: build(cls, table[name], name, problems) for name, cls in TABLES.items()}
    for name, cls in BY_NAME.items():
        inner = table[name]
        if not isinstance(inner, Mapping):
            problems.append(Problem(name, f"must hold tables such as [{name}.{next(iter(_defaults()[name]))}]", shown(inner)))
            continue
        parts[name] = {key: build(cls, value, f"{name}.{key}", problems) for key, value in inner.items()}
    if problems:
        raise SpecError("economics" if path is None else str(path), problems)
    return EconomicsSpec(**parts)


def _unsourced(name: str, table: Any) -> list[Problem]:
    """Tables of a user's file that state numbers, and no source."""
    if name not in ECONOMICS_TABLES or not isinstance(table, Mapping):
        return []  # found when it is built
    tables = {f"{name}.{key}": inner for key, inner in table.items()} if name in BY_NAME else {name: table}
    return [
        Problem(f"{key}.source", "missing: where the numbers come from")
        for key, inner in tables.items()
        if isinstance(inner, Mapping) and "source" not in inner
    ]
