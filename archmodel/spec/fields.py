"""Fields of specs: a type, a rule that the value keeps, and one line of documentation, all on the attrs class itself.

A value is converted and checked wherever a spec is made: read from a file, built in Python, or changed by `attrs.evolve`.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.units import FORMATS

#: what a value of the right type must still be, or "" where it keeps the rule
Rule = Callable[[Any], str]

_LONGEST = 80
_UNBOUNDED = 1e18
_SHARES_OFF = 1e-6  # of a sum of shares from 1, as people round them


def nearest(word: str, known: Iterable[str], sentence: str = ", did you mean {}?") -> str:
    """`sentence` with the known word most like `word`, or an empty string."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return sentence.format(names[close[0]]) if close else ""


def shown(value: Any) -> str:
    """`value` as it stands in a file, cut short."""
    try:
        words = json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):  # nested without end, or an integer of thousands of digits
        words = f"a {type(value).__name__}"
    return words if len(words) <= _LONGEST else words[: _LONGEST - 3] + "..."


def fitted(cls: type, field: attrs.Attribute[Any], raw: Any) -> tuple[Any, str]:
    """`raw` as the annotated type of a field of `cls`, and what it must be instead ("" where it fits)."""
    value, wanted = _as_annotated(raw, _hints(cls)[field.name])
    if wanted:
        return raw, f"must be {wanted}"
    rule: Rule = field.metadata["rule"]
    return value, rule(value)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _as_annotated(value: Any, hint: Any) -> tuple[Any, str]:
    """`value` as the annotated type, and what was wanted instead (empty if it fits)."""
    if hint in (int, float):
        fits = isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
        return (_number(value, hint), "") if fits else (value, "an integer" if hint is int else "a number")
    if hint in (bool, str):
        return value, "" if isinstance(value, hint) else "true or false" if hint is bool else "a string"
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if typing.get_origin(inner) is tuple:
            return _pairs(value)
        fits = isinstance(value, list | tuple) and all(isinstance(v, inner) and not isinstance(v, bool) for v in value)
        return (tuple(value), "") if fits else (value, "a list of " + ("strings" if inner is str else "integers"))
    if isinstance(value, Mapping):
        return {key: _as_annotated(number, float)[0] for key, number in value.items()}, ""
    return value, "a table"


def _pairs(value: Any) -> tuple[Any, str]:
    wanted = "a list of pairs of numbers"
    if not isinstance(value, list | tuple) or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
        return value, wanted
    found = [[_as_annotated(part, float) for part in pair] for pair in value]
    wrong = any(problem for pair in found for _, problem in pair)
    return (value, wanted) if wrong else (tuple((x, y) for (x, _), (y, _) in found), "")


def _number(value: Any, kind: type) -> Any:
    try:
        return kind(value)
    except OverflowError:  # an integer beyond the largest float
        return math.inf


def _field(rule: Rule, default: Any, doc: str) -> Any:
    return attrs.field(
        default=default,
        converter=attrs.Converter(_checked, takes_self=True, takes_field=True),
        metadata={"doc": doc, "rule": rule},
    )


def _checked(raw: Any, spec: Any, field: attrs.Attribute[Any]) -> Any:
    value, wrong = fitted(type(spec), field, raw)
    if wrong:
        raise SpecError(type(spec).__name__, [Problem(field.name, wrong, shown(raw))])
    return value


def number(
    doc: str,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float = _UNBOUNDED,
    default: Any = attrs.NOTHING,
) -> Any:
    """A finite number within bounds (int or float by the annotation)."""
    low = above if above is not None else at_least if at_least is not None else -at_most

    def rule(value: Any) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            return "must be finite"
        if value < low or value == above:
            return f"must be {'>=' if above is None else '>'} {low:g}"
        return f"must be at most {at_most:g}" if value > at_most else ""

    return _field(rule, default, doc)


def text(doc: str, *, default: Any = attrs.NOTHING, required: bool = False) -> Any:
    """A string; with `required` it may not be empty."""
    return _field(lambda value: "must not be empty" if required and not value.strip() else "", default, doc)


def flag(doc: str, *, default: Any = attrs.NOTHING) -> Any:
    """true or false."""
    return _field(lambda _: "", default, doc)


def choice(doc: str, *options: str, default: Any = attrs.NOTHING) -> Any:
    """One of a closed list of strings."""
    return _field(lambda value: "" if value in options else _one_of(value, options), default, doc)


def _one_of(value: str, options: Iterable[str]) -> str:
    return f"must be one of {', '.join(options)}{nearest(value, options)}"


#: how the routings are called whose loads follow a power law; an exponent follows
POWER_LAW = "power_law_"


def routing(doc: str, *, default: Any = attrs.NOTHING) -> Any:
    """How tokens choose experts: `balanced`, `uniform` or `power_law_<exponent>`, the exponent above 0 and at most 10."""
    return _field(lambda value: "" if is_routing(value) else "must be uniform, balanced or power_law_<0..10>", default, doc)


def is_routing(value: str) -> bool:
    """Whether `value` names a routing."""
    found = re.fullmatch(POWER_LAW + r"(\d{1,2}(\.\d{1,6})?)", value)
    return value in ("balanced", "uniform") or (found is not None and 0.0 < float(found[1]) <= 10.0)


def number_format(doc: str, *, default: Any = attrs.NOTHING) -> Any:
    """The name of a number format."""
    return choice(doc, *FORMATS, default=default)


def by_format(doc: str, *, default: Any = attrs.NOTHING) -> Any:
    """A table from number format to a number above 0, for example `{fp16 = 64, fp8 = 128}`."""

    def rule(table: Any) -> str:
        if not table:
            return "must not be empty"
        for key, value in table.items():
            if key not in FORMATS:
                return f"{key} is no number format; {_one_of(str(key), FORMATS)}"
            if not isinstance(value, float) or not 0.0 < value < _UNBOUNDED:
                return f"{key} must be a finite number > 0"
        return ""

    return _field(rule, default, doc)


def by_name(doc: str, *options: str, default: Any = attrs.NOTHING) -> Any:
    """A table from names, of a closed list when one is given, to a number of at least 0: `{matmul = 24.0}`; may be empty."""

    def rule(table: Any) -> str:
        for key, value in table.items():
            if options and key not in options:
                return f"{key} is unknown; {_one_of(str(key), options)}"
            if not isinstance(value, float) or not 0.0 <= value < _UNBOUNDED:
                return f"{key} must be a finite number >= 0"
        return ""

    return _field(rule, default, doc)


def shares(doc: str, *options: str, default: Any = attrs.NOTHING) -> Any:
    """A table from some of a closed list of names to a table of shares above 0 that add up to 1; may be empty."""

    def rule(table: Any) -> str:
        for key, parts in table.items():
            if key not in options:
                return f"{key} is unknown; {_one_of(str(key), options)}"
            if not isinstance(parts, Mapping) or not all(isinstance(p, float | int) and 0 < p <= 1 for p in parts.values()):
                return f"{key} must be a table of shares in (0, 1], for example {{gpu = 0.3, npu = 0.7}}"
            if abs(sum(parts.values()) - 1.0) > _SHARES_OFF:
                return f"{key}: shares must add up to 1, not {sum(parts.values()):g}"
        return ""

    return _field(rule, default, doc)


def names(doc: str, *options: str, default: Any = attrs.NOTHING) -> Any:
    """A list of distinct strings, from a closed list when one is given."""

    def rule(value: Any) -> str:
        if not all(value) or len(set(value)) < len(value):
            return "must be distinct names"
        unknown = [name for name in value if options and name not in options]
        return f"{unknown[0]} is unknown; {_one_of(unknown[0], options)}" if unknown else ""

    return _field(rule, default, doc)


def curve(doc: str, *, default: Any = attrs.NOTHING) -> Any:
    """Points (x, y) of a curve above 0 that does not fall: at least two, x ascending, or none at all."""

    def rule(points: Any) -> str:
        if not points:
            return ""
        fine = len(points) > 1 and all(0.0 < part < _UNBOUNDED for point in points for part in point)
        if not fine:
            return "must be at least two points of finite numbers > 0"
        rises = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(points))
        return "" if rises else "must rise: each first number above the one before, no second number below it"

    return _field(rule, default, doc)


def ascending(doc: str, *, default: Any = attrs.NOTHING) -> Any:
    """A list of whole numbers above 0, each larger than the one before."""

    def rule(value: Any) -> str:
        fine = value and value[0] > 0 and value[-1] <= 1e6 and all(a < b for a, b in pairwise(value))
        return "" if fine else "must be ascending whole numbers > 0"

    return _field(rule, default, doc)
