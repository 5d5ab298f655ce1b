"""Break-even: against times of a known form, against exhaustive search, and re-evaluated on real splits."""

from __future__ import annotations

from types import SimpleNamespace

import attrs
import numpy as np
import pytest
from scenes import HETERO, ROOT, two_gpus

from archmodel.errors import MappingError
from archmodel.evaluate import evaluate
from archmodel.plan import Part, Plan, uniform_plan
from archmodel.spec.toml import load_workload
from archmodel.spec.workload import RequestSpec
from archmodel.splitting.breakeven import break_even, break_evens
from archmodel.splitting.compared import elsewhere, few_samples, planned, rebatched
from archmodel.splitting.knobs import Knob, Rivals, knobs
from archmodel.splitting.strategies import alone, ground_of, module

LLAMA = load_workload(ROOT / "workloads/llama3_8b.toml")
WORKLOAD = attrs.evolve(LLAMA, request=RequestSpec(batch=8, input_tokens=256, output_tokens=16))


def stub(seconds, granularity="module"):
    return SimpleNamespace(granularity=granularity, again=lambda _, value: seconds(value))


def found(old, new, *, now, low, high, min_gain=0.0, **kind):
    """Break-even of times that are functions of the knob alone."""
    knob = Knob("x", now, low, high, lambda chip, _, value: (chip, value), **kind)
    return break_even(knob, Rivals(None, now, stub(old), stub(new)), min_gain)


@pytest.mark.parametrize("byte", [0.1, 1.0, 7.0])
def test_bandwidth_of_a_known_crossing(byte):
    # 1 + byte / x against 1.5: even at x = 2 byte; with a tenth of gain asked for at 1.1 (1 + byte / x) = 1.5
    even = found(lambda _: 1.5, lambda x: 1.0 + byte / x, now=100.0, low=1e-3, high=1e4, is_rate=True, better=1)
    assert even.pays_now
    assert even.above is None
    assert even.below == pytest.approx(2.0 * byte, rel=0.05)
    asked = found(lambda _: 1.5, lambda x: 1.0 + byte / x, now=100.0, low=1e-3, high=1e4, min_gain=0.1, is_rate=True, better=1)
    assert asked.below == pytest.approx(byte / (1.5 / 1.1 - 1.0), rel=0.05)


def test_latency_that_hides_at_first():
    even = found(lambda _: 2.0, lambda x: max(1.0, 0.5 + 1e6 * x), now=1e-9, low=1e-9, high=1e-3, better=-1)
    assert even.below is None
    assert even.above == pytest.approx(1.5e-6, rel=0.05)
    never = found(lambda _: 0.9, lambda x: max(1.0, 0.5 + 1e6 * x), now=1e-6, low=1e-9, high=1e-3, better=-1)
    assert (never.pays_now, never.span) == (False, None)


@pytest.mark.parametrize("seed", range(20))
def test_whole_numbers_are_exact_as_far_as_they_differ(seed):
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(0.5, 2.0, 3)
    old, new = (lambda x: a + 0.1 * x), (lambda x: b + c * 0.1 * x + 0.3)
    even = found(old, new, now=4.0, low=1.0, high=40.0, whole=True)
    pays = [x for x in range(1, 41) if old(x) >= new(x)]
    assert even.pays_now == (4 in pays)
    if even.span is not None:
        inside = [x for x in range(1, 41) if even.span[0] <= x <= even.span[1]]
        assert all(old(x) - new(x) >= -0.004 * new(x) for x in inside)
    for end in pays:  # whatever pays lies in the span, but for what is even
        assert even.span is not None
        assert even.span[0] <= end <= even.span[1] or abs(old(end) - new(end)) < 0.01 * new(end)


def test_a_range_ends_where_it_no_longer_fits():
    def full(x):
        if x > 50.0:
            raise MappingError("does not fit")
        return 1.0

    even = found(lambda _: 2.0, full, now=8.0, low=1.0, high=512.0, whole=True)
    assert 8.0 <= even.high <= 50.0
    assert even.above is None


def split_and_baseline(chip):
    ground = ground_of(chip, WORKLOAD)
    sides = ground.sides
    old = evaluate(chip, WORKLOAD, plan=uniform_plan(WORKLOAD.model, 8, alone(ground, sides[0])))
    new = evaluate(chip, WORKLOAD, plan=uniform_plan(WORKLOAD.model, 8, module(ground, sides[0], sides[1], (2, 1))))
    return planned("one", "one side", old), planned("split", "module", new)


@pytest.mark.parametrize("chip", [HETERO, two_gpus(link_lanes=64)], ids=["shared memory", "own memory"])
def test_re_evaluated_on_both_sides_of_the_break_even(chip):
    old, new = split_and_baseline(chip)
    rivals = Rivals(chip, WORKLOAD, old, new)
    by_name = {knob.name: knob for knob in knobs(WORKLOAD, new.result)}
    crossed = 0
    for even in break_evens(rivals, 0.0):
        for at, inside in ((even.below, 1.1), (even.above, 1 / 1.1)):
            if at is None or by_name[even.knob].whole:
                continue
            crossed += 1
            factor = inside if even.pays_now else 1 / inside
            gains = []
            for value in (at * factor, at / factor):
                specs = by_name[even.knob].turned(chip, WORKLOAD, value)
                before, after = (evaluate(*specs, plan=side.result.plan).total_s for side in (old, new))
                gains.append(before / after - 1.0)
            assert gains[0] > -0.003
            assert gains[1] < 0.003
    assert crossed


def test_few_samples_give_the_time_of_all():
    for chip in (HETERO, two_gpus()):
        for compared in split_and_baseline(chip):
            assert compared.again(chip, WORKLOAD) == pytest.approx(compared.result.total_s, rel=1e-3)
    assert len(few_samples(attrs.evolve(WORKLOAD, request=RequestSpec(batch=1, input_tokens=4, output_tokens=1)))) == 1


def test_a_chip_of_its_own_is_not_changed_by_the_system():
    other = two_gpus()
    baseline = elsewhere(other, evaluate(other, WORKLOAD))
    _, new = split_and_baseline(HETERO)
    rivals = Rivals(HETERO, WORKLOAD, baseline, new)
    by_name = {knob.name: knob for knob in knobs(WORKLOAD, new.result)}
    assert rivals.times_s((by_name["dispatch_s"], 1e-4))[0] == rivals.now_s[0]
    assert rivals.times_s((by_name["batch"], 16.0))[0] > rivals.now_s[0]


@pytest.mark.parametrize("batch", [1, 2, 5, 8, 13, 100])
def test_another_batch_is_divided_in_the_same_proportions(batch):
    part = Part(3, ())
    plan = rebatched(Plan("p", (part, attrs.evolve(part, sequences=1), attrs.evolve(part, sequences=4))), batch)
    counts = [p.sequences for p in plan.parts]
    assert sum(counts) == batch
    assert min(counts) >= 1
    if batch == 8:
        assert counts == [3, 1, 4]
