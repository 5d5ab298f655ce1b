"""Dies: dies per wafer, the yield of a die that may have broken parts, and what a sellable die costs.

Every yield model here is a Poisson one whose defect density varies from die to die (Murphy, 1964): not at all (Poisson), by
a triangle from 0 to twice the mean (Murphy), or by a gamma distribution of shape alpha (negative binomial; Stapper, 1983).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import attrs
import numpy as np

from archmodel.costs import Floats
from archmodel.spec.economics import NodeSpec, WaferSpec

_POINTS = 64  # of the integral over the defect density: its error is below 1e-9 up to 8 alpha defects a die
_MM2_PER_CM2 = 100.0


@attrs.frozen
class Part:
    """A part of one die: `units` alike ones are made, and a die is sold where `needed` of them work."""

    name: str
    area_mm2: float  # of all its units
    units: int = 1
    needed: int = 1


@attrs.frozen
class DieCost:
    """One die. `yield_fraction` counts those that are sold, `perfect_fraction` those without any defect."""

    area_mm2: float
    dies_per_wafer: float
    yield_fraction: float
    perfect_fraction: float
    usd: float


def dies_per_wafer(area_mm2: float, wafer: WaferSpec) -> float:
    """Whole square dies of a wafer: pi d^2 / 4S - pi d / sqrt(2S), S being a die with its scribe lanes, d the wafer without
    its rim (Hennessy and Patterson, Computer Architecture, section 1.6). At least 0; a mean, so not rounded."""
    d = wafer.diameter_mm - 2.0 * wafer.edge_mm
    s = (math.sqrt(area_mm2) + wafer.scribe_mm) ** 2
    return max(0.0, math.pi * d * d / (4.0 * s) - math.pi * d / math.sqrt(2.0 * s)) if d > 0.0 else 0.0


def perfect_fraction(area_mm2: float, defects_per_cm2: float, wafer: WaferSpec) -> float:
    """Share of dies without a defect, in closed form."""
    mean = area_mm2 / _MM2_PER_CM2 * defects_per_cm2
    match wafer.yield_model:
        case "poisson":
            return math.exp(-mean)
        case "murphy":
            return (-math.expm1(-mean) / mean) ** 2 if mean > 0.0 else 1.0
        case "negative_binomial":
            return math.exp(-wafer.cluster_alpha * math.log1p(mean / wafer.cluster_alpha))
    raise AssertionError(wafer.yield_model)


def sellable_fraction(parts: Sequence[Part], defects_per_cm2: float, wafer: WaferSpec) -> float:
    """Share of dies of which enough units of every part work. Parts of one die share its defect density."""
    if all(part.needed == part.units for part in parts):
        return perfect_fraction(sum(part.area_mm2 for part in parts), defects_per_cm2, wafer)
    scale, weight = _densities(wafer)
    alive = np.ones_like(scale)
    for part in parts:
        mean = part.area_mm2 / part.units / _MM2_PER_CM2 * defects_per_cm2 * scale
        alive *= _enough(part, mean)
    return float(weight @ alive)


def _enough(part: Part, mean: Floats) -> Floats:
    """Probability that enough units work where each has `mean` defects on average; shape of `mean`."""
    spare = part.units - part.needed
    broken = np.arange(spare + 1)
    ways = np.cumsum(np.log(np.concatenate([[1.0], (part.units - broken[:-1]) / (broken[1:])])))
    out = np.zeros_like(mean)
    for number, defects in enumerate(mean.tolist()):
        if defects == 0.0:
            out[number] = 1.0
            continue
        dead = math.log(-math.expm1(-defects))
        out[number] = min(1.0, float(np.exp(ways + broken * dead - (part.units - broken) * defects).sum()))
    return out


def _densities(wafer: WaferSpec) -> tuple[Floats, Floats]:
    """Defect densities over their mean, and how likely each is."""
    match wafer.yield_model:
        case "poisson":
            return np.ones(1), np.ones(1)
        case "murphy":
            x, w = np.polynomial.legendre.leggauss(_POINTS)
            x, w = (x + 1.0) / 2.0, w / 2.0  # of the rising half, [0, 1]; the falling half is its mirror
            return np.concatenate([x, 2.0 - x]), np.concatenate([w * x, w * x])
        case "negative_binomial":
            return _gamma(wafer.cluster_alpha)
    raise AssertionError(wafer.yield_model)


@cache
def _gamma(alpha: float) -> tuple[Floats, Floats]:
    """Gauss-Laguerre rule for a gamma distribution of mean 1 and shape `alpha` (Golub and Welsch, 1969)."""
    n = np.arange(_POINTS, dtype=float)
    off = np.sqrt(n[1:] * (n[1:] + alpha - 1.0))
    points, vectors = np.linalg.eigh(np.diag(2.0 * n + alpha) + np.diag(off, 1) + np.diag(off, -1))
    return points / alpha, vectors[0] ** 2


def die_cost(parts: Sequence[Part], node: NodeSpec, wafer: WaferSpec) -> DieCost:
    """Cost of a sellable die of these parts: the wafer over the dies of it that are sold. Infinite where none fits."""
    area = sum(part.area_mm2 for part in parts)
    count = dies_per_wafer(area, wafer)
    sold = sellable_fraction(parts, node.defects_per_cm2, wafer)
    usd = node.wafer_usd / (count * sold) if count * sold > 0.0 else math.inf
    return DieCost(area, count, sold, perfect_fraction(area, node.defects_per_cm2, wafer), usd)
