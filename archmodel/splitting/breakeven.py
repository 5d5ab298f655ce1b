"""At which link, dispatch cost, batch and context a split stops paying: re-evaluation with one number changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import attrs

from archmodel.errors import ArchmodelError
from archmodel.splitting.knobs import Knob, Rivals, knobs

_NEAR = 0.05  # of a value: a break-even is told to this
_EVEN = 2e-3  # of a time: a difference that counts as none
_SEARCHES = 14  # evaluations that close in on one break-even
_SHRINKS = 6  # halvings (on a log scale) of a range whose end does not fit
_LEAST = 1e-12  # what a value of 0 counts as on a log scale


@attrs.frozen
class BreakEven:
    """Where between `low` and `high` the gain passes the threshold; None where it does not on that side of `now`."""

    knob: str
    now: float
    low: float
    high: float
    pays_now: bool
    below: float | None
    above: float | None

    @property
    def span(self) -> tuple[float, float] | None:
        """The values at which it pays next to `now`, as far as was searched; None where it pays at none of them."""
        if self.pays_now:
            return self.below or self.low, self.above or self.high
        if self.below is not None:
            return self.low, self.below
        return (self.above, self.high) if self.above is not None else None


def break_evens(rivals: Rivals, min_gain: float) -> Iterator[BreakEven]:
    """The break-even of every knob, where the gain passes `min_gain`."""
    for knob in knobs(rivals.workload, rivals.split.result):
        yield break_even(knob, rivals, min_gain)


def break_even(knob: Knob, rivals: Rivals, min_gain: float) -> BreakEven:
    """Where the gain passes `min_gain`, on both sides of the present value: told to 5 %, or to 0.2 % of the time.

    Each side is taken to have one such place at most. A range ends where memory does: what does not fit neither pays nor does
    not. Raises MappingError where the present value does not fit.
    """

    def point(value: float, old_s: float, new_s: float) -> Point:
        return Point(value, old_s - new_s * (1.0 + min_gain), new_s)

    def over(value: float) -> Point:
        return point(value, *rivals.times_s((knob, value)))

    here = point(knob.now, *rivals.now_s)
    found: list[float | None] = []
    ends: list[float] = []
    for side, end in ((-1, knob.low), (1, knob.high)):
        settled = _settled(rivals, knob, end, side if here.pays else -side)
        there = here if settled else _fitting(over, knob, end, here)
        ends.append(end if settled else there.value)
        found.append(_crossing(over, knob, here, there) if here.pays != there.pays else None)
    return BreakEven(knob.name, knob.now, ends[0], ends[1], here.pays, found[0], found[1])


def _settled(rivals: Rivals, knob: Knob, end: float, side: int) -> bool:
    """Whether nothing can change up to the end of a range: it is there, or the split can only do better (or, where it does not
    pay, worse) towards it, and the baseline does as before."""
    if end == knob.now:
        return True
    if knob.better != side:
        return False
    try:
        return abs(rivals.baseline_s((knob, end)) / rivals.now_s[0] - 1.0) < _EVEN
    except ArchmodelError:
        return False


class Point(NamedTuple):
    """A value of the knob, the time saved beyond what is asked for [s], and the time that this is seen against [s]."""

    value: float
    saved_s: float
    scale_s: float

    @property
    def pays(self) -> bool:
        return self.saved_s >= 0.0

    @property
    def even(self) -> bool:
        return abs(self.saved_s) < _EVEN * self.scale_s


Over = Callable[[float], Point]


def _fitting(over: Over, knob: Knob, end: float, here: Point) -> Point:
    """The end of the range, or the first place on the way back from it that fits."""
    for _ in range(_SHRINKS):
        try:
            return over(end)
        except ArchmodelError:
            end = _between(knob, knob.now, end)
    return here


def _between(knob: Knob, a: float, b: float) -> float:
    """In the middle of two values on a log scale."""
    value = math.sqrt(max(a, _LEAST) * max(b, _LEAST))
    return float(round(value)) if knob.whole else value


def _crossing(over: Over, knob: Knob, near: Point, far: Point) -> float:
    """The value where paying ends; of whole numbers the last that pays.

    Bisection on a log scale, in turn with a straight line through the last two points beyond, where time mostly is one in the
    knob (in a bandwidth: in what a byte takes).
    """
    beyond: Point | None = None
    for turn in range(_SEARCHES):
        middle = _between(knob, near.value, far.value)
        value = _root(knob, beyond or near, far) if turn % 2 else middle
        if not min(near.value, far.value) < value < max(near.value, far.value):
            value = middle
        if value in (near.value, far.value) or abs(math.log(max(near.value, _LEAST) / max(far.value, _LEAST))) < _NEAR:
            break
        point = over(value)
        if point.even:
            return point.value
        near, far, beyond = (point, far, beyond) if point.pays == near.pays else (near, point, far)
    if knob.whole:
        return near.value if near.pays else far.value
    return _between(knob, near.value, far.value)


def _root(knob: Knob, one: Point, other: Point) -> float:
    """Where the straight line through two points saves nothing."""
    if one.saved_s == other.saved_s:
        return one.value
    share = one.saved_s / (one.saved_s - other.saved_s)
    a, b = (1.0 / one.value, 1.0 / other.value) if knob.is_rate else (one.value, other.value)
    value = a + share * (b - a)
    if knob.is_rate:
        return 1.0 / value if value > 0.0 else math.inf
    return float(round(value)) if knob.whole else value
