"""Tables to specs: every problem of a table is collected, with its key, value, rule and the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.spec.fields import fitted, nearest, shown
from archmodel.units import unit_of

__all__ = ["build", "nearest", "read_text", "shown"]

Spec = TypeVar("Spec")

_MAX_BYTES = 16 * 2**20  # a spec is a page or two; anything larger is not one


def read_text(path: str | Path) -> str:
    """Text of a UTF-8 file, with or without a byte order mark. Raises SpecError where it cannot be read."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise SpecError(str(file), [Problem("file", f"is larger than {_MAX_BYTES >> 20} MiB, which no spec is")])
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecError(str(file), [Problem("file", f"does not exist{_similar_file(file)}")]) from None
    except UnicodeDecodeError as error:
        raise SpecError(str(file), [Problem("file", f"is not UTF-8 text (byte {error.start})")]) from None
    except OSError as error:
        raise SpecError(str(file), [Problem("file", f"cannot be read: {error.strerror}")]) from None
    except ValueError as error:  # a path with a null character
        raise SpecError(shown(str(file)), [Problem("file", f"cannot be read: {error}")]) from None


def _similar_file(file: Path) -> str:
    if not file.parent.is_dir():
        return f"; there is no folder {file.parent}"
    try:
        return nearest(file.name, (entry.name for entry in file.parent.iterdir() if entry.is_file()), "; did you mean {}?")
    except OSError:  # a folder that may be entered, but not listed
        return ""


def build(cls: type[Spec], table: Any, prefix: str, problems: list[Problem], **given: Any) -> Spec | None:
    """A spec from a table. `given` fields are already built. On any problem: None, and `problems` grows."""
    if not isinstance(table, Mapping):
        problems.append(Problem(prefix, "must be a table", shown(table)))
        return None
    before = len(problems)
    fields = {field.name: field for field in attrs.fields(cls) if field.name not in given}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            known = nearest(key, fields) or f"; known: {', '.join(fields)}"
            problems.append(Problem(f"{prefix}.{key}", f"unknown key{known}"))
    values: dict[str, Any] = dict(given)
    for name, field in fields.items():
        key = f"{prefix}.{name}"
        if name in table:
            values[name], wrong = fitted(cls, field, table[name])
            if wrong:
                problems.append(Problem(key, wrong, shown(table[name])))
        elif field.default is attrs.NOTHING:
            unit = unit_of(name)
            problems.append(Problem(key, f"missing: {field.metadata['doc']}" + (f" [{unit}]" if unit != "1" else "")))
    return None if len(problems) > before else cls(**values)
