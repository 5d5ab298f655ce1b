"""Verdicts: the least gain, the error band, and the price of keeping a split up."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest

from archmodel.splitting.verdict import Answer, Terms, money, verdict

TERMS = Terms(min_gain=0.10, error_fraction=0.05, error_source="a test")


@pytest.mark.parametrize(
    ("gain", "answer"),
    [
        (0.30, Answer.PAYS),
        (0.16, Answer.PAYS),  # 1.16 x 0.95 = 1.102
        (0.15, Answer.UNDECIDED),  # 1.15 x 0.95 = 1.0925
        (0.10, Answer.UNDECIDED),
        (0.05, Answer.UNDECIDED),  # 1.05 x 1.05 = 1.1025
        (0.04, Answer.DOES_NOT_PAY),  # 1.04 x 1.05 = 1.092
        (-0.50, Answer.DOES_NOT_PAY),
    ],
)
def test_least_gain_and_error_band(gain, answer):
    assert verdict(gain, TERMS).answer is answer


def test_without_error_there_is_nothing_undecided_and_the_threshold_itself_pays():
    exact = attrs.evolve(TERMS, error_fraction=0.0)
    assert verdict(0.10, exact).answer is Answer.PAYS
    assert verdict(0.0999, exact).answer is Answer.DOES_NOT_PAY


def test_sign_is_undecided_where_any_gain_counts():
    terms = attrs.evolve(TERMS, min_gain=0.0)
    assert [verdict(g, terms).answer for g in (-0.1, -0.02, 0.02, 0.1)] == [
        Answer.DOES_NOT_PAY, Answer.UNDECIDED, Answer.UNDECIDED, Answer.PAYS,
    ]  # fmt: skip


def test_complexity_is_paid_by_the_fleet():
    # 1,000 chips at 2 USD/h; a gain of a quarter needs 800: 200 x 2 x 8,766 = 3,506,400 USD a year
    terms = attrs.evolve(TERMS, engineering_usd_per_year=1e6, fleet_chips=1000.0, old_usd_per_hour=2.0,
                         new_usd_per_hour=2.0)  # fmt: skip
    found = money(0.25, terms)
    assert found.saved_usd_per_year == pytest.approx(3_506_400.0)
    assert found.net_usd_per_year == pytest.approx(2_506_400.0)
    assert found.least_chips == pytest.approx(1e6 / 3506.4)
    assert verdict(0.25, terms).answer is Answer.PAYS
    few = attrs.evolve(terms, fleet_chips=100.0)
    assert verdict(0.25, few).answer is Answer.DOES_NOT_PAY
    # at the fleet that just earns it back, the model's error decides
    assert verdict(0.25, attrs.evolve(terms, fleet_chips=found.least_chips)).answer is Answer.UNDECIDED


def test_a_dearer_system_may_save_nothing():
    terms = attrs.evolve(TERMS, fleet_chips=10.0, old_usd_per_hour=2.0, new_usd_per_hour=3.0, engineering_usd_per_year=1.0)
    assert money(0.4, terms).least_chips == math.inf
    assert verdict(0.4, terms).answer is Answer.DOES_NOT_PAY
    assert money(0.4, attrs.evolve(terms, old_usd_per_hour=0.0)) is None, "no price, no money"


def test_a_dearer_token_does_not_pay_whatever_the_fleet():
    # a system at twice the price of the chip must more than double the throughput
    terms = attrs.evolve(TERMS, old_usd_per_hour=2.0, new_usd_per_hour=4.0)
    assert verdict(0.8, terms).answer is Answer.DOES_NOT_PAY
    assert verdict(1.0, terms).answer is Answer.UNDECIDED
    assert verdict(1.2, terms).answer is Answer.PAYS
    assert money(1.2, terms).saved_usd_per_chip_year == pytest.approx((2.0 - 4.0 / 2.2) * 8766.0)


def test_a_larger_gain_never_makes_it_worse():
    order = [Answer.DOES_NOT_PAY, Answer.UNDECIDED, Answer.PAYS]
    rng = np.random.default_rng(7)
    for _ in range(100):
        terms = Terms(
            min_gain=rng.uniform(0, 0.5), error_fraction=rng.uniform(0, 0.3), error_source="drawn",
            engineering_usd_per_year=rng.uniform(0, 1e6), fleet_chips=rng.uniform(0, 300), old_usd_per_hour=rng.uniform(0, 5),
            new_usd_per_hour=rng.uniform(0, 8),
        )  # fmt: skip
        found = [order.index(verdict(g, terms).answer) for g in np.linspace(-0.5, 2.0, 26)]
        assert found == sorted(found)
