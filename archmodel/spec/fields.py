"""Fields of specs: a type, a rule that the value keeps, and one line of documentation, all on the attrs class itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from archmodel.units import FORMATS

Rule = Callable[[Any], bool]


@attrs.frozen
class Kept:
    """An attrs validator that a reader can also ask without building the object: `text` says the rule."""

    test: Rule
    text: str

    def __call__(self, _: object, field: attrs.Attribute[Any], value: Any) -> None:
        if not self.test(value):
            raise ValueError(f"{field.name}: {value!r}, {self.text}")


def _field(kept: Kept, default: Any, doc: str) -> Any:
    return attrs.field(default=default, validator=kept, metadata={"doc": doc})


def number(
    doc: str,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float = 1e18,
    default: Any = attrs.NOTHING,
) -> Any:
    """A finite number within bounds (int or float by the annotation)."""
    low = above if above is not None else at_least if at_least is not None else -at_most
    words = [f"must be > {above:g}"] if above is not None else [f"must be >= {low:g}"]
    words.append(f"at most {at_most:g}")
    text = words[0] if at_most == 1e18 else " and ".join(words)

    def test(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        return (value > low if above is not None else value >= low) and value <= at_most

    return _field(Kept(test, text + " and finite" if at_most == 1e18 else text), default, doc)


def text(doc: str, *, default: Any = attrs.NOTHING, required: bool = False) -> Any:
    """A string; with `required` it may not be empty."""
    return _field(Kept(lambda v: isinstance(v, str) and bool(v.strip() or not required), "must not be empty"), default, doc)


def flag(doc: str, *, default: Any = attrs.NOTHING) -> Any:
    return _field(Kept(lambda v: isinstance(v, bool), "must be true or false"), default, doc)


def choice(doc: str, *options: str, default: Any = attrs.NOTHING) -> Any:
    """One of a closed list of strings."""
    return _field(Kept(lambda v: v in options, "must be one of " + ", ".join(options)), default, doc)


def number_format(doc: str, *, default: Any = attrs.NOTHING) -> Any:
    return choice(doc, *FORMATS, default=default)


def by_format(doc: str, *, above: float = 0.0, default: Any = attrs.NOTHING) -> Any:
    """A table from number format to a positive number, for example `{fp16 = 64, fp8 = 128}`."""

    def test(table: Any) -> bool:
        return (
            isinstance(table, Mapping)
            and bool(table)
            and all(key in FORMATS for key in table)
            and all(
                isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) and v > above
                for v in table.values()
            )
        )

    text = f"must map number formats ({', '.join(FORMATS)}) to finite numbers > {above:g}"
    return _field(Kept(test, text), default, doc)


def names(doc: str, *options: str, default: Any = attrs.NOTHING) -> Any:
    """A list of distinct strings, from a closed list when one is given."""

    def test(value: Any) -> bool:
        return (
            isinstance(value, tuple)
            and all(isinstance(v, str) and bool(v) for v in value)
            and len(set(value)) == len(value)
            and (not options or set(value) <= set(options))
        )

    text = "must be distinct names" + (" from " + ", ".join(options) if options else "")
    return _field(Kept(test, text), default, doc)
