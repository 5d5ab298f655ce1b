"""Chip and workload files <-> specs. All problems of a file come in one error."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.spec.check import chip_problems
from archmodel.spec.chip import KINDS, Block, ChipSpec, PowerSpec, SoftwareSpec
from archmodel.spec.huggingface import read_config
from archmodel.spec.model import ModelSpec
from archmodel.spec.reader import build, nearest, read_text
from archmodel.spec.shape import ShapeSpec, expand, shape_problems
from archmodel.spec.workload import LimitsSpec, PlacementSpec, PrecisionSpec, RequestSpec, WorkloadSpec

Overrides = Mapping[str, Any]

_CHIP_TABLES = ("chip", "placement", "precision", "software", "power")
WORKLOAD_TABLES = ("workload", "model", "request", "precision", "limits", "placement")


def read_table(path: str | Path) -> dict[str, Any]:
    """The table of a TOML file. Raises SpecError with line and column where it is no TOML."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise SpecError(str(path), [Problem("file", f"is not valid TOML: {error}")]) from None


def parse_overrides(settings: list[str]) -> dict[str, Any]:
    """`["npu.clock_ghz=1.2"]` -> `{"npu.clock_ghz": 1.2}`; a value that is no TOML is taken as a string."""
    overrides: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or "." not in key.strip() or not all(key.strip().split(".")):
            raise SpecError("--set", [Problem(setting, "must look like table.key=value, for example npu.clock_ghz=1.2")])
        try:
            overrides[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            overrides[key.strip()] = value.strip()
    return overrides


def apply_overrides(table: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    """A copy of `table` with dotted keys set. Names that no spec knows are found when the specs are built."""
    result = copy.deepcopy(table)
    for dotted, value in overrides.items():
        *path, last = dotted.split(".")
        inner = result
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise SpecError("--set", [Problem(dotted, f"{part} is a value, not a table")])
        inner[last] = value
    return result


def load_chip(path: str | Path, overrides: Overrides | None = None) -> ChipSpec:
    """The chip of a TOML file, with `overrides` (dotted key -> value) applied. Raises SpecError."""
    return build_chip(apply_overrides(chip_table(path), overrides or {}), str(path))


def chip_table(path: str | Path) -> dict[str, Any]:
    """The table of a chip file, laid over the file that its `chip.extends` names, if any."""
    seen: list[str] = []
    table: dict[str, Any] = {}
    file = Path(path)
    while True:
        layer = read_table(file)
        seen.append(str(file.resolve()))
        head = layer.get("chip")
        base = head.pop("extends", None) if isinstance(head, dict) else None
        table = _laid_over(layer, table)
        if base is None:
            return table
        file = file.parent / str(base)
        if str(file.resolve()) in seen:
            raise SpecError(str(path), [Problem("chip.extends", "must not lead back to the file itself", repr(base))])


def _laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = _laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def build_chip(table: Mapping[str, Any], file: str) -> ChipSpec:
    """The chip of an already read table; `file` names it in errors."""
    problems: list[Problem] = []
    blocks: dict[str, Block] = {}
    for name, block in table.items():
        if name in _CHIP_TABLES:
            continue
        built = _build_block(name, block, problems)
        if built is not None:
            blocks[name] = built
    parts = {
        "placement": build(PlacementSpec, table.get("placement", {}), "placement", problems),
        "software": build(SoftwareSpec, table.get("software", {}), "software", problems),
        "power": build(PowerSpec, table.get("power", {}), "power", problems),
        "precision": build(PrecisionSpec, table["precision"], "precision", problems) if "precision" in table else None,
    }
    chip = build(ChipSpec, table.get("chip", {}), "chip", problems, blocks=blocks, **parts)
    if problems or chip is None:
        raise SpecError(file, problems)
    if problems := chip_problems(chip):
        raise SpecError(file, problems)
    return chip


def _build_block(name: str, table: Any, problems: list[Problem]) -> Block | None:
    if not isinstance(table, Mapping):
        problems.append(Problem(name, "must be a table such as [gpu]", repr(table)))
        return None
    kind = table.get("kind", name)
    if kind not in KINDS:
        words = ", ".join(KINDS)
        if "kind" in table:
            problems.append(Problem(f"{name}.kind", f"must be one of {words}", repr(kind)))
        else:
            known = nearest(name, [*KINDS, *_CHIP_TABLES])
            problems.append(Problem(name, f"unknown table{known or f', add kind = one of {words}'}"))
        return None
    cls = KINDS[kind]
    return build(cls, {key: value for key, value in table.items() if key != "kind"}, name, problems)


def load_workload(path: str | Path, overrides: Overrides | None = None, request: RequestSpec | None = None) -> WorkloadSpec:
    """The workload of a TOML file, or of a model's `config.json` with `request`. Raises SpecError."""
    if Path(path).suffix.lower() == ".json":
        workload = WorkloadSpec(
            name=Path(path).stem,
            model=read_config(path),
            request=request or RequestSpec(batch=1, input_tokens=1024, output_tokens=256),
        )
        return _override_json(workload, overrides or {}, str(path))
    workload = build_workload(apply_overrides(read_table(path), overrides or {}), path)
    return attrs.evolve(workload, request=request) if request else workload


def _override_json(workload: WorkloadSpec, overrides: Overrides, file: str) -> WorkloadSpec:
    """Overrides of `[precision]`, `[request]`, `[limits]` and `[placement]` on a workload that has no TOML."""
    table = apply_overrides({}, overrides)
    problems: list[Problem] = []
    changed: dict[str, Any] = {}
    classes = {"precision": PrecisionSpec, "request": RequestSpec, "limits": LimitsSpec, "placement": PlacementSpec}
    for name, values in table.items():
        if name not in classes:
            problems.append(Problem(name, "cannot be set on a config.json; " + ", ".join(classes) + " can"))
            continue
        now = getattr(workload, name)
        base = attrs.asdict(now) if now is not None else {}
        changed[name] = build(classes[name], {**base, **values}, name, problems)
    if problems:
        raise SpecError(file, problems)
    return attrs.evolve(workload, **changed)


def build_workload(table: Mapping[str, Any], path: str | Path) -> WorkloadSpec:
    """The workload of an already read table; `path` names it in errors and anchors a relative `model.config`."""
    problems: list[Problem] = []
    for name in table:
        if name not in WORKLOAD_TABLES:
            problems.append(Problem(name, "unknown table" + nearest(name, WORKLOAD_TABLES)))
    parts = {
        "request": build(RequestSpec, table.get("request", {}), "request", problems),
        "limits": build(LimitsSpec, table.get("limits", {}), "limits", problems),
        "precision": build(PrecisionSpec, table["precision"], "precision", problems) if "precision" in table else None,
        "placement": build(PlacementSpec, table["placement"], "placement", problems) if "placement" in table else None,
    }
    model = _build_model(table.get("model", {}), Path(path), problems)
    workload = build(WorkloadSpec, table.get("workload", {}), "workload", problems, model=model, **parts)
    if problems or workload is None:
        raise SpecError(str(path), problems)
    if problems := _workload_problems(workload):
        raise SpecError(str(path), problems)
    return workload


def _workload_problems(workload: WorkloadSpec) -> list[Problem]:
    request, model = workload.request, workload.model
    if model.family != "encoder" and request.output_tokens < 1:
        return [Problem("request.output_tokens", f"must be >= 1 for a {model.family}; 1 is prefill only", "0")]
    if model.family == "encoder" and request.output_tokens > 0:
        return [Problem("request.output_tokens", "must be 0 for an encoder, which generates nothing",
                        str(request.output_tokens))]  # fmt: skip
    return []


def _build_model(table: Any, path: Path, problems: list[Problem]) -> ModelSpec | None:
    if isinstance(table, Mapping) and "config" in table:
        for key in table:
            if key != "config":
                problems.append(Problem(f"model.{key}", "must not stand beside model.config, which gives the whole shape"))
        config = table["config"]
        if not isinstance(config, str) or not config:
            problems.append(Problem("model.config", "must be the path of a config.json", repr(config)))
            return None
        return read_config(path.parent / config)
    shape = build(ShapeSpec, table, "model", problems)
    if shape is None:
        return None
    wrong = shape_problems(shape)
    problems.extend(wrong)
    return None if wrong else expand(shape)
