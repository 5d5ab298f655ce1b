"""Gain over two numbers at once: where in the plane a split pays, and where it is dead."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import attrs
import numpy as np

from archmodel.costs import Floats
from archmodel.errors import ArchmodelError
from archmodel.splitting.knobs import Knob, Rivals, knobs

_POWERS = (-3, -2, -1, 0, 1, 2, 3)
_LEAST = 1e-9  # of a range that begins at 0


@attrs.frozen(eq=False)
class Zones:
    """Gain over two knobs, shape (y, x); NaN where the workload does not fit."""

    x: Knob
    y: Knob
    x_values: list[float]
    y_values: list[float]
    gain: Floats


def dead_zones(rivals: Rivals) -> Iterator[Zones]:
    """Context over batch, and latency over bandwidth of the slowest link of a split where it has one."""
    found = {knob.name: knob for knob in knobs(rivals.workload, rivals.split.result)}
    yield _zones(rivals, found["batch"], found["input_tokens"])
    for bandwidth in [knob for knob in found.values() if knob.is_rate]:
        latency = found[bandwidth.name.removesuffix("_byte_per_s") + "_latency_s"]
        yield _zones(rivals, bandwidth, latency)


def _zones(rivals: Rivals, x: Knob, y: Knob) -> Zones:
    xs, ys = _values(x), _values(y)
    gain = np.array([_gain(rivals, (x, at_x), (y, at_y)) for at_y, at_x in product(ys, xs)])
    return Zones(x, y, xs, ys, gain.reshape(len(ys), len(xs)))


def _values(knob: Knob) -> list[float]:
    """Whole numbers around the present one, by factors of two; of any others the whole range."""
    if knob.whole:
        return sorted({max(1.0, float(round(knob.now * 2.0**power))) for power in _POWERS})
    return [float(value) for value in np.geomspace(max(knob.low, _LEAST), knob.high, len(_POWERS))]


def _gain(rivals: Rivals, *turned: tuple[Knob, float]) -> float:
    try:
        old_s, new_s = rivals.times_s(*turned)
    except ArchmodelError:
        return float("nan")
    return old_s / new_s - 1.0
