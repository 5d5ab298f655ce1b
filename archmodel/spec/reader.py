"""Tables to specs: every problem of a table is collected, with its key, value, rule and the nearest known key."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.spec.fields import Kept
from archmodel.units import unit_of

Spec = TypeVar("Spec")
Table = Mapping[str, Any]

_MAX_BYTES = 16 * 2**20  # a spec is a page or two; anything larger is not one


def read_text(path: str | Path) -> str:
    """Text of a UTF-8 file, with or without a byte order mark. Raises SpecError where it cannot be read."""
    file = Path(path)
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise SpecError(str(path), [Problem("file", f"larger than {_MAX_BYTES >> 20} MiB, which no spec is")])
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecError(str(path), [Problem("file", f"does not exist{_similar_file(file)}")]) from None
    except UnicodeDecodeError as error:
        raise SpecError(str(path), [Problem("file", f"is not UTF-8 text (byte {error.start})")]) from None
    except OSError as error:
        raise SpecError(str(path), [Problem("file", f"cannot be read: {error.strerror}")]) from None


def _similar_file(file: Path) -> str:
    if not file.parent.is_dir():
        return f"; there is no folder {file.parent}"
    return nearest(file.name, (entry.name for entry in file.parent.iterdir() if entry.is_file()), "; did you mean {}?")


def nearest(word: str, known: Iterable[str], sentence: str = ", did you mean {}?") -> str:
    """`sentence` with the known word most like `word`, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return sentence.format(close[0]) if close else ""


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def build(cls: type[Spec], table: Any, prefix: str, problems: list[Problem], **given: Any) -> Spec | None:
    """A spec from a table. `given` fields are already built. On any problem: None, and `problems` grows."""
    if not isinstance(table, Mapping):
        problems.append(Problem(prefix, "must be a table", repr(table)))
        return None
    before = len(problems)
    fields = {field.name: field for field in attrs.fields(cls) if field.name not in given}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            problems.append(Problem(f"{prefix}.{key}", "unknown key" + nearest(key, fields)))
    values: dict[str, Any] = dict(given)
    for name, field in fields.items():
        if name in table:
            _take(cls, field, table[name], f"{prefix}.{name}", values, problems)
        elif field.default is attrs.NOTHING:
            unit = unit_of(name)
            problems.append(Problem(f"{prefix}.{name}", f"missing: {field.metadata.get('doc', '')}"
                                    + (f" [{unit}]" if unit != "1" else "")))  # fmt: skip
    return None if len(problems) > before else cls(**values)


def _take(
    cls: type, field: attrs.Attribute[Any], raw: Any, key: str, values: dict[str, Any], problems: list[Problem]
) -> None:
    """Convert and check one value; either `values` or `problems` grows."""
    value, wanted = _convert(raw, _hints(cls)[field.name])
    rule = field.validator
    if wanted:
        problems.append(Problem(key, f"must be {wanted}", _shown(raw)))
    elif isinstance(rule, Kept) and not rule.test(value):
        problems.append(Problem(key, rule.text, _shown(raw)))
    else:
        values[field.name] = value


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _convert(value: Any, hint: Any) -> tuple[Any, str]:
    """`value` as the annotated type, and what was wanted instead (empty if it fits)."""
    if hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        return (float(value), "") if fits and abs(value) < 1e300 else (value, "") if value != value else (None, "a number")
    if hint is int:
        return (value, "") if isinstance(value, int) and not isinstance(value, bool) else (None, "an integer")
    if hint is bool:
        return (value, "") if isinstance(value, bool) else (None, "true or false")
    if hint is str:
        return (value, "") if isinstance(value, str) else (None, "a string")
    origin = typing.get_origin(hint)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        fits = isinstance(value, list | tuple) and all(isinstance(v, inner) and not isinstance(v, bool) for v in value)
        return (tuple(value), "") if fits else (None, "a list of " + ("strings" if inner is str else "integers"))
    if isinstance(value, Mapping):
        return dict(value), ""
    return None, "a table"
