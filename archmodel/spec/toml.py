"""Chip, system and workload files <-> specs. All problems of a file come in one error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.spec.chip import ChipSpec, SoftwareSpec
from archmodel.spec.chip_file import build_one_chip, chip_table
from archmodel.spec.huggingface import read_config
from archmodel.spec.model import ModelSpec
from archmodel.spec.reader import build, nearest, shown
from archmodel.spec.shape import ShapeSpec, expand, shape_problems
from archmodel.spec.system_file import build_system
from archmodel.spec.tables import Overrides, apply_overrides, laid_over, parse_overrides, read_table, through
from archmodel.spec.workload import LimitsSpec, PlacementSpec, PrecisionSpec, RequestSpec, WorkloadSpec

__all__ = [
    "WORKLOAD_TABLES", "Overrides", "apply_overrides", "build_chip", "build_workload", "chip_table", "laid_over", "load_chip",
    "load_stack", "load_workload", "parse_overrides", "read_table",
]  # fmt: skip

_RUN_TABLES = {"request": RequestSpec, "precision": PrecisionSpec, "limits": LimitsSpec, "placement": PlacementSpec}
WORKLOAD_TABLES = ("workload", "model", *_RUN_TABLES)


def load_chip(path: str | Path, overrides: Overrides | None = None) -> ChipSpec:
    """The chip or system of a TOML file, with `overrides` (dotted key -> value) applied. Raises SpecError."""
    return build_chip(apply_overrides(chip_table(path), overrides or {}), str(path))


def build_chip(table: Mapping[str, Any], file: str) -> ChipSpec:
    """The chip or system of an already read table; `file` names it in errors and anchors the paths of members."""
    return build_system(table, Path(file)) if "system" in table else build_one_chip(table, file)


def load_stack(path: str | Path) -> SoftwareSpec:
    """The software stack of a TOML file that holds a [software] table and nothing else. Raises SpecError."""
    table = read_table(path)
    problems = [Problem(name, "unknown table; a stack has [software]") for name in table if name != "software"]
    stack = build(SoftwareSpec, table.get("software", {}), "software", problems)
    if problems or stack is None:
        raise SpecError(str(path), problems)
    return stack


def load_workload(path: str | Path, overrides: Overrides | None = None, request: RequestSpec | None = None) -> WorkloadSpec:
    """The workload of a TOML file, or of a model's `config.json`; `request` replaces the one that it has.

    Without either, a `config.json` is asked for one sequence of 1024 tokens in and 256 out. Raises SpecError.
    """
    if Path(path).suffix.lower() == ".json":
        return _json_workload(path, overrides or {}, request)
    table = read_table(path)
    if request:
        table["request"] = attrs.asdict(request)
    return build_workload(apply_overrides(table, overrides or {}), path)


def _json_workload(path: str | Path, overrides: Overrides, request: RequestSpec | None) -> WorkloadSpec:
    """A workload without TOML: overrides reach all but its model and its name."""
    model = read_config(path)
    generated = 0 if model.family == "encoder" else 256
    request = request or RequestSpec(batch=1, input_tokens=1024, output_tokens=generated)
    table = apply_overrides({"request": attrs.asdict(request)}, overrides)
    able = ", ".join(_RUN_TABLES)
    problems = [Problem(name, f"cannot be set on a config.json; {able} can") for name in table if name not in _RUN_TABLES]
    return _assembled({"workload": {"name": model.name}, **table}, model, str(path), problems)


def build_workload(table: Mapping[str, Any], path: str | Path) -> WorkloadSpec:
    """The workload of an already read table; `path` names it in errors and anchors a relative `model.config`."""
    if "workload" not in table and (kind := next((head for head in ("chip", "system") if head in table), "")):
        raise SpecError(str(path), [Problem("file", f"is a {kind}, where a workload is wanted")])
    problems = [
        Problem(name, "unknown table" + nearest(name, WORKLOAD_TABLES)) for name in table if name not in WORKLOAD_TABLES
    ]
    model = _build_model(table.get("model", {}), Path(path), problems)
    return _assembled(table, model, str(path), problems)


def _assembled(table: Mapping[str, Any], model: ModelSpec | None, file: str, problems: list[Problem]) -> WorkloadSpec:
    """The workload of its tables and its model; raises SpecError with what is wrong with them and with `problems`."""
    parts = {
        name: build(cls, table.get(name, {}), name, problems) if name in table or name in ("request", "limits") else None
        for name, cls in _RUN_TABLES.items()
    }
    parts["placement"] = table.get("placement", {})  # laid over the chip's when both are known
    workload = build(WorkloadSpec, table.get("workload", {}), "workload", problems, model=model, **parts)
    request = parts["request"]
    if model is not None and isinstance(request, RequestSpec):
        problems += _request_problems(request, model.family)
    if problems or workload is None:
        raise SpecError(file, problems)
    return workload


def _request_problems(request: RequestSpec, family: str) -> list[Problem]:
    key, value = "request.output_tokens", request.output_tokens
    if family == "encoder":
        return [Problem(key, "must be 0 for an encoder, which generates nothing", str(value))] if value else []
    return [] if value else [Problem(key, f"must be >= 1 for a {family}; 1 is prefill only", "0")]


def _build_model(table: Any, path: Path, problems: list[Problem]) -> ModelSpec | None:
    """The model of `[model]`: a shape, or what its `config` names. None where `problems` grows."""
    if not isinstance(table, Mapping) or "config" not in table:
        shape = build(ShapeSpec, table, "model", problems)
        wrong = shape_problems(shape) if shape else []
        problems += wrong
        return None if wrong or shape is None else expand(shape)
    rule = "must not stand beside model.config, which gives the whole shape"
    problems += [Problem(f"model.{key}", rule) for key in table if key != "config"]
    config = table["config"]
    if not isinstance(config, str) or not config:
        problems.append(Problem("model.config", "must be the path of a config.json", shown(config)))
        return None
    try:
        return read_config(path.parent / config)
    except SpecError as error:
        problems += through("model.config", error)
        return None
