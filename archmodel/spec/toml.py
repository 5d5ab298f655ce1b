"""Chip and workload files <-> specs. All problems of a file come in one error."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.spec.check import boundary_problems, chip_problems
from archmodel.spec.chip import KINDS, Block, ChipSpec, PowerSpec, SoftwareSpec
from archmodel.spec.cost import CostSpec
from archmodel.spec.cost_check import cost_problems
from archmodel.spec.huggingface import read_config
from archmodel.spec.model import ModelSpec
from archmodel.spec.power import BoardSpec, FacilitySpec, ServerSpec
from archmodel.spec.reader import build, nearest, read_text, shown
from archmodel.spec.shape import ShapeSpec, expand, shape_problems
from archmodel.spec.workload import LimitsSpec, PlacementSpec, PrecisionSpec, RequestSpec, WorkloadSpec

Overrides = Mapping[str, Any]

_CHIP_TABLES = {"chip": ChipSpec, "placement": PlacementSpec, "precision": PrecisionSpec, "software": SoftwareSpec,
                "power": PowerSpec, "board": BoardSpec, "server": ServerSpec, "facility": FacilitySpec,
                "cost": CostSpec}  # fmt: skip
_BOUNDARIES = ("board", "server", "facility")
_OPTIONAL = ("precision", "cost", *_BOUNDARIES)  # tables of a chip that are None where they are missing
_RUN_TABLES = {"request": RequestSpec, "precision": PrecisionSpec, "limits": LimitsSpec, "placement": PlacementSpec}
WORKLOAD_TABLES = ("workload", "model", *_RUN_TABLES)

_MAX_DEPTH = 8  # tables and lists inside each other; a spec has three
_BLOCK_NAME = re.compile(r"[^\W\d][\w-]*")


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


def load_chip(path: str | Path, overrides: Overrides | None = None) -> ChipSpec:
    """The chip of a TOML file, with `overrides` (dotted key -> value) applied. Raises SpecError."""
    return build_chip(apply_overrides(chip_table(path), overrides or {}), str(path))


def chip_table(path: str | Path) -> dict[str, Any]:
    """The table of a chip file, laid over the file that its `chip.extends` names, if any."""
    file = Path(path)
    seen = [file.resolve()]
    table, base = _layer(file)
    while base is not None:
        if not isinstance(base, str) or not base:
            raise SpecError(str(path), [Problem("chip.extends", "must be the path of a chip file", shown(base))])
        file = file.parent / base
        if file.resolve() in seen:
            raise SpecError(str(path), [Problem("chip.extends", "must not lead back to a file that extends it", shown(base))])
        seen.append(file.resolve())
        try:
            below, base = _layer(file)
        except SpecError as error:
            raise SpecError(str(path), _through("chip.extends", error)) from None
        table = laid_over(below, table)
    return table


def _layer(file: Path) -> tuple[dict[str, Any], Any]:
    """The table of one chip file without its `chip.extends`, and that."""
    table = read_table(file)
    head = table.get("chip")
    return table, head.pop("extends", None) if isinstance(head, dict) else None


def _through(key: str, error: SpecError) -> list[Problem]:
    """Problems of a file to which `key` leads, as problems of the file that has the key."""
    return [Problem(key, str(problem), error.file) for problem in error.problems]


def laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def load_stack(path: str | Path) -> SoftwareSpec:
    """The software stack of a TOML file that holds a [software] table and nothing else. Raises SpecError."""
    table = read_table(path)
    problems = [Problem(name, "unknown table; a stack has [software]") for name in table if name != "software"]
    stack = build(SoftwareSpec, table.get("software", {}), "software", problems)
    if problems or stack is None:
        raise SpecError(str(path), problems)
    return stack


def build_chip(table: Mapping[str, Any], file: str) -> ChipSpec:
    """The chip of an already read table; `file` names it in errors."""
    if "chip" not in table and "workload" in table:
        raise SpecError(file, [Problem("file", "is a workload, where a chip is wanted")])
    problems: list[Problem] = []
    blocks = {name: _build_block(name, block, table, problems) for name, block in table.items() if name not in _CHIP_TABLES}
    parts = {
        name: build(cls, table.get(name, {}), name, problems)
        for name, cls in _CHIP_TABLES.items()
        if name != "chip" and (name not in _OPTIONAL or name in table)
    }
    parts = {**dict.fromkeys(_OPTIONAL), **parts}
    chip = build(ChipSpec, table.get("chip", {}), "chip", problems, blocks=blocks, **parts)
    problems += boundary_problems([name for name in _BOUNDARIES if name in table])
    problems += chip_problems(blocks, parts["placement"] or PlacementSpec())
    problems += cost_problems(blocks, parts["cost"])
    if problems or chip is None:
        raise SpecError(file, problems)
    return chip


def _build_block(name: str, block: Any, table: Mapping[str, Any], problems: list[Problem]) -> Block | None:
    """One block of a chip `table`, or None and a problem."""
    if not isinstance(block, Mapping):
        problems.append(Problem(name, "must be a table such as [gpu]", shown(block)))
        return None
    kind = block.get("kind", name)
    if not isinstance(kind, str) or kind not in KINDS:
        words = ", ".join(KINDS)
        if "kind" in block:
            problems.append(Problem(f"{name}.kind", f"must be one of {words}{nearest(str(kind), KINDS)}", shown(kind)))
        else:
            known = nearest(name, [*KINDS, *_CHIP_TABLES, *(other for other in table if other != name)])
            problems.append(Problem(name, f"unknown table{known or f', add kind = one of {words}'}"))
        return None
    if not _BLOCK_NAME.fullmatch(name):
        problems.append(Problem(shown(name), "must be a name of letters, digits, _ and -, and begin with a letter"))
        return None
    return build(KINDS[kind], {key: value for key, value in block.items() if key != "kind"}, name, problems)


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
    if "workload" not in table and "chip" in table:
        raise SpecError(str(path), [Problem("file", "is a chip, where a workload is wanted")])
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
        problems += _through("model.config", error)
        return None
