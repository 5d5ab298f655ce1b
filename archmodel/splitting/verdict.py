"""PAYS, DOES NOT PAY or UNDECIDED: a gain against what is asked for, within the model's error and the price of complexity."""

from __future__ import annotations

import math
from enum import StrEnum

import attrs

#: hours of a year, leap years included
HOURS_PER_YEAR = 8766.0

#: error of a ratio of two predicted times
ERROR_FRACTION = 0.15
ERROR_SOURCE = "median of 33 measured splits over unlike hardware, to which nothing was fitted (reports/validation.md)"


class Answer(StrEnum):
    PAYS = "PAYS"
    DOES_NOT_PAY = "DOES NOT PAY"
    UNDECIDED = "UNDECIDED"


@attrs.frozen(kw_only=True)
class Terms:
    """What makes a gain worth having. Prices of 0 are not stated."""

    min_gain: float = 0.10
    error_fraction: float = ERROR_FRACTION  # of a ratio of two predicted times
    error_source: str = ERROR_SOURCE
    engineering_usd_per_year: float = 0.0
    fleet_chips: float = 0.0  # baseline chips that serve the load
    old_usd_per_hour: float = 0.0  # one chip of the baseline, running
    new_usd_per_hour: float = 0.0  # one system with the split


@attrs.frozen
class Money:
    """What a split saves, less what keeping it up costs; `least_chips` is the fleet from which that is positive."""

    saved_usd_per_chip_year: float  # of the baseline
    saved_usd_per_year: float  # by the whole fleet
    net_usd_per_year: float
    least_chips: float  # infinite where it saves nothing at any size


@attrs.frozen
class Verdict:
    """`low` and `high` are the gain with the model's error against and for it; `money` is None where no price is known."""

    answer: Answer
    gain: float
    low: float
    high: float
    because: str
    money: Money | None


def money(gain: float, terms: Terms) -> Money | None:
    """Savings where 1 / (1 + gain) systems take the place of each chip of the baseline; None where a price is not known."""
    if min(terms.old_usd_per_hour, terms.new_usd_per_hour) <= 0.0:
        return None
    each = (terms.old_usd_per_hour - terms.new_usd_per_hour / (1.0 + gain)) * HOURS_PER_YEAR
    saved = each * terms.fleet_chips
    least = terms.engineering_usd_per_year / each if each > 0.0 else math.inf
    return Money(each, saved, saved - terms.engineering_usd_per_year, least)


def verdict(gain: float, terms: Terms) -> Verdict:
    """The answer for a gain (throughput over throughput, less one).

    It takes the least gain and, where prices are known, that the fleet saves more than engineering costs (without a fleet: that
    it saves at all). It is UNDECIDED where the error of the model leaves room for both answers.
    """
    low, high = ((1.0 + gain) * factor - 1.0 for factor in (1.0 - terms.error_fraction, 1.0 + terms.error_fraction))
    enough = [value >= terms.min_gain for value in (low, high)]
    worth = [_worth(value, terms) for value in (low, high)]
    earned = money(gain, terms)
    if all(enough) and all(worth):
        return Verdict(Answer.PAYS, gain, low, high, "the least gain is passed, whatever the model's error", earned)
    if not enough[1]:
        return Verdict(Answer.DOES_NOT_PAY, gain, low, high, "the least gain is missed, whatever the model's error", earned)
    if not worth[1]:
        return Verdict(Answer.DOES_NOT_PAY, gain, low, high, "it costs more than it saves, whatever the model's error", earned)
    asked = "the least gain" if not all(enough) else "the point where it saves as much as it costs"
    return Verdict(Answer.UNDECIDED, gain, low, high, f"the model's error is wider than the distance to {asked}", earned)


def _worth(gain: float, terms: Terms) -> bool:
    found = money(gain, terms)
    return found is None or (found.net_usd_per_year if terms.fleet_chips else found.saved_usd_per_chip_year) >= 0.0
