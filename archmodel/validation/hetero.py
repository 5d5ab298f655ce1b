"""Splits over unlike hardware that somebody measured: both sides of each ratio computed from facts, and the errors.

Nothing is fitted to a ratio. What a side rests on stands with it in `data/validation/hetero.toml`, sources and assumptions too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from archmodel.errors import Problem, SpecError
from archmodel.operations import Floats
from archmodel.spec.fields import choice, names, number, text
from archmodel.spec.huggingface import model_from_config
from archmodel.spec.model import ModelSpec
from archmodel.spec.reader import build, nearest
from archmodel.spec.shape import ShapeSpec, expand, shape_problems
from archmodel.spec.toml import read_table
from archmodel.validation.sides import KINDS, Side, World

#: least gain that is one: what is nearer to 1 lies in the noise of such measurements
LEAST_GAIN = 0.05
#: error of a ratio that the table counts as met
CLOSE = 0.20


@attrs.frozen(kw_only=True)
class CaseSpec:
    """One measured comparison."""

    name: str = text("what was compared", required=True)
    system: str = text("who measured it on what", required=True)
    split: tuple[str, ...] = names("side with the split; several where the largest of their gains was published")
    baseline: tuple[str, ...] = names("side that it is held against, one for each split")
    measured: float = number("gain: split over baseline; 0 where only a direction was published", at_least=0)
    direction: str = choice("of the gain, where no figure was published", "", "gain", "loss", default="")
    source: str = text("where the figures were read", required=True)
    note: str = text("why a ratio is missed, or what to know of it", default="")


@attrs.frozen(kw_only=True)
class LeftOut:
    """Measured, but not computed, and why."""

    system: str = text("who measured what", required=True)
    why: str = text("what is missing", required=True)


@attrs.frozen(kw_only=True)
class Case:
    """A measured comparison beside its prediction."""

    spec: CaseSpec
    predicted: float

    @property
    def error(self) -> float:
        """Predicted / measured - 1; NaN where only a direction was measured."""
        return self.predicted / self.spec.measured - 1.0 if self.spec.measured else math.nan

    @property
    def close(self) -> bool:
        return abs(self.error) <= CLOSE

    @property
    def sign_right(self) -> bool:
        """Whether the prediction gives the same answer: a gain or none; and where it was a loss, no gain at all."""
        measured = self.spec.measured or {"gain": math.inf, "loss": 0.0, "": 1.0}[self.spec.direction]
        same = (self.predicted > 1.0 + LEAST_GAIN) == (measured > 1.0 + LEAST_GAIN)
        return same and (measured >= 1.0 - LEAST_GAIN or self.predicted < 1.0)


@attrs.frozen(kw_only=True)
class Facts:
    """What the file holds."""

    cases: tuple[CaseSpec, ...]
    sides: Mapping[str, Side]
    models: Mapping[str, ModelSpec]
    left_out: tuple[LeftOut, ...]


@attrs.frozen(kw_only=True)
class Hetero:
    """Cases with their predictions, and what else was measured."""

    cases: tuple[Case, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def errors(self) -> Floats:
        """Errors of the cases whose ratio was measured, shape (cases,)."""
        return np.array([case.error for case in self.cases if case.spec.measured])


def hetero(root: Path) -> Hetero:
    """Every case of the clone at `root`, predicted; nothing where there is no file. Raises SpecError where it is wrong."""
    path = root / "data/validation/hetero.toml"
    if not path.exists():
        return Hetero()
    facts = read_facts(path)
    world = World(root, facts.models)
    values = {name: side.value(world) for name, side in facts.sides.items()}
    found = tuple(Case(spec=case, predicted=gain(case, values)) for case in facts.cases)
    return Hetero(cases=found, left_out=facts.left_out)


def gain(case: CaseSpec, values: Mapping[str, float]) -> float:
    """Split over baseline; the largest where a case has several."""
    return max(values[split] / values[baseline] for split, baseline in zip(case.split, case.baseline, strict=True))


def read_facts(path: Path) -> Facts:
    """Cases, sides and models of the file. Raises SpecError with all that is wrong."""
    table, file = read_table(path), str(path)
    problems = [Problem(name, "unknown table" + nearest(name, _TABLES)) for name in table if name not in _TABLES]
    models = {name: _model(name, entry, file, problems) for name, entry in table.get("models", {}).items()}
    sides = {name: _side(name, entry, problems) for name, entry in table.get("sides", {}).items()}
    cases = [build(CaseSpec, entry, f"cases[{index}]", problems) for index, entry in enumerate(table.get("cases", []))]
    others = [build(LeftOut, entry, f"left_out[{index}]", problems) for index, entry in enumerate(table.get("left_out", []))]
    problems += [problem for index, case in enumerate(cases) if case for problem in _unnamed(f"cases[{index}]", case, sides)]
    for name, side in sides.items():
        if side and (model := getattr(side, "model", "")) and model not in models:
            problems.append(Problem(f"sides.{name}.model", f"names no model{nearest(model, models)}", model))
    if problems:
        raise SpecError(file, problems)
    return Facts(
        cases=tuple(case for case in cases if case),
        sides={name: side for name, side in sides.items() if side},
        models={name: model for name, model in models.items() if model},
        left_out=tuple(entry for entry in others if entry),
    )


def _unnamed(key: str, case: CaseSpec, sides: Mapping[str, Side | None]) -> list[Problem]:
    """Sides that a case names and that are not there."""
    rule = "must name as many sides as split"
    problems = [Problem(f"{key}.baseline", rule)] if len(case.split) != len(case.baseline) else []
    missing = [name for name in (*case.split, *case.baseline) if name not in sides]
    return problems + [Problem(key, f"names no side{nearest(name, sides)}", name) for name in missing]


_TABLES = ("models", "sides", "cases", "left_out")


def _model(name: str, table: Mapping[str, Any], file: str, problems: list[Problem]) -> ModelSpec | None:
    """A model by the keys of its `config.json`, or by its shape; `source` says where they were read."""
    if not table.get("source"):
        problems.append(Problem(f"models.{name}.source", "missing: where the sizes were read"))
    if "model_type" in table:
        config = {key: value for key, value in table.items() if key != "source"}
        return attrs.evolve(model_from_config(config, file), name=name)
    shape = build(ShapeSpec, {"name": name, **table}, f"models.{name}", problems)
    wrong = shape_problems(shape) if shape else []
    problems += wrong
    return expand(shape) if shape and not wrong else None


def _side(name: str, table: Mapping[str, Any], problems: list[Problem]) -> Side | None:
    kind = table.get("kind")
    if kind not in KINDS:
        problems.append(Problem(f"sides.{name}.kind", f"must be one of {', '.join(KINDS)}", str(kind)))
        return None
    rest = {key: value for key, value in table.items() if key != "kind"}
    return build(KINDS[kind], rest, f"sides.{name}", problems)
