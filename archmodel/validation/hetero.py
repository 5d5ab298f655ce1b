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


def hetero_cases(root: Path) -> tuple[Case, ...]:
    """Every case of the clone at `root`, predicted; nothing where there is no file. Raises SpecError where it is wrong."""
    path = root / "data/validation/hetero.toml"
    if not path.exists():
        return ()
    cases, sides, models = read_cases(path)
    world = World(root, models)
    values = {name: side.value(world) for name, side in sides.items()}
    return tuple(Case(spec=case, predicted=gain(case, values)) for case in cases)


def gain(case: CaseSpec, values: Mapping[str, float]) -> float:
    """Split over baseline; the largest where a case has several."""
    return max(values[split] / values[baseline] for split, baseline in zip(case.split, case.baseline, strict=True))


def errors(cases: tuple[Case, ...]) -> Floats:
    """Errors of the cases whose ratio was measured, shape (cases,)."""
    return np.array([case.error for case in cases if case.spec.measured])


def read_cases(path: Path) -> tuple[tuple[CaseSpec, ...], dict[str, Side], dict[str, ModelSpec]]:
    """Cases, sides and models of the file. Raises SpecError with all that is wrong."""
    table, file = read_table(path), str(path)
    problems = [Problem(name, "unknown table" + nearest(name, _TABLES)) for name in table if name not in _TABLES]
    models = {name: _model(name, entry, file, problems) for name, entry in table.get("models", {}).items()}
    sides = {name: _side(name, entry, problems) for name, entry in table.get("sides", {}).items()}
    cases = [build(CaseSpec, entry, f"cases[{index}]", problems) for index, entry in enumerate(table.get("cases", []))]
    for index, case in enumerate(cases):
        if case and len(case.split) != len(case.baseline):
            problems.append(Problem(f"cases[{index}].baseline", "must name as many sides as split"))
        for name in (*case.split, *case.baseline) if case else ():
            if name not in sides:
                problems.append(Problem(f"cases[{index}]", f"names no side{nearest(name, sides)}", name))
    for name, side in sides.items():
        if side and (model := getattr(side, "model", "")) and model not in models:
            problems.append(Problem(f"sides.{name}.model", f"names no model{nearest(model, models)}", model))
    if problems:
        raise SpecError(file, problems)
    return (
        tuple(case for case in cases if case),
        {name: side for name, side in sides.items() if side},
        {name: model for name, model in models.items() if model},
    )


_TABLES = ("models", "sides", "cases")


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
