"""Yield and run costs done slowly: dies thrown at random, and sums written out."""

from __future__ import annotations

import numpy as np

from archmodel.economics.silicon import Part
from archmodel.spec.economics import WaferSpec

SECONDS_PER_YEAR = 365.25 * 24 * 3600


def thrown_yield(parts: list[Part], defects_per_cm2: float, wafer: WaferSpec, rng: np.random.Generator, dies: int) -> float:
    """Share of `dies` random dies that can be sold: draw a density for each, then the defects of every unit."""
    scale = {
        "poisson": np.ones(dies),
        "murphy": rng.triangular(0.0, 1.0, 2.0, dies),
        "negative_binomial": rng.gamma(wafer.cluster_alpha, 1.0 / wafer.cluster_alpha, dies),
    }[wafer.yield_model]
    sold = np.ones(dies, dtype=bool)
    for part in parts:
        mean = scale[:, None] * defects_per_cm2 * part.area_mm2 / 100.0 / part.units
        sold &= (rng.poisson(np.broadcast_to(mean, (dies, part.units))) == 0).sum(axis=1) >= part.needed
    return float(sold.mean())


def run_usd(
    *, hardware_usd: float, chips: int, chip_j: float, static_w: float, seconds: float, years: float, utilisation: float,
    maintenance: float, usd_per_kwh: float, pue: float, psu: float, box_w_per_chip: float,
) -> dict[str, float]:  # fmt: skip
    """Cost of `seconds` of work by item: a year's bill, divided by the busy seconds of a year."""
    busy_s = SECONDS_PER_YEAR * utilisation
    share = seconds / busy_s
    busy_kwh = (chip_j / psu + chips * box_w_per_chip * seconds) / 3.6e6
    idle_kwh_a_year = (static_w / psu + chips * box_w_per_chip) * (SECONDS_PER_YEAR - busy_s) / 3.6e6
    return {
        "capital_usd": hardware_usd * chips / years * share,
        "maintenance_usd": hardware_usd * chips * maintenance * share,
        "energy_usd": busy_kwh * pue * usd_per_kwh,
        "idle_usd": idle_kwh_a_year * share * pue * usd_per_kwh,
    }
