"""The search over plans: never worse than a fixed strategy, and exact where it says so."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from scenes import random_pair, random_workload

from archmodel.errors import MappingError
from archmodel.evaluate import evaluate
from archmodel.splitting.search import explore
from archmodel.splitting.stages import assignments, best_chain, stages, ways_of
from archmodel.splitting.strategies import by_module, ground_of, one_side
from archmodel.steps import Sample, decode_samples, first_step


def scene(seed, layers=0):
    rng = np.random.default_rng(seed)
    chip, workload = random_pair(rng), random_workload(rng)
    if layers:
        model = attrs.evolve(workload.model, order=workload.model.order[:1] * layers)
        workload = attrs.evolve(workload, model=model)
    return chip, workload


@pytest.mark.parametrize("seeds", [range(n, n + 20) for n in range(0, 200, 20)], ids=lambda r: f"{r[0]}-{r[-1]}")
def test_auto_never_loses_to_a_fixed_strategy(seeds):
    """200 seeded random systems, against strategies evaluated here, outside the search."""
    for seed in seeds:
        chip, workload = scene(seed)
        ground = ground_of(chip, workload)
        auto = explore(chip, workload).best
        for strategy in (*one_side(ground), *by_module(ground)):
            try:
                fixed = evaluate(chip, workload, plan=strategy.plan)
            except MappingError:
                continue
            assert auto.result.total_s <= fixed.total_s * (1 + 1e-12), strategy.name


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_least_serial_pass_equals_exhaustive_search(seed, layers):
    """Every assignment of ways to layers, simulated, against the dynamic program. No command is dispatched ahead here."""
    chip, workload = scene(1000 + seed, layers)
    ground = ground_of(chip, workload)
    ways = ways_of(ground)
    samples = [Sample(first_step(workload), 1.0, 0.0), *decode_samples(workload, every_token=False)]
    least, _ = best_chain(stages(ground, ways.values(), samples), workload.model.order)
    every = [evaluate(chip, workload, plan=strategy.plan).total_s for strategy in assignments(ground, ways)]
    assert len(every) == len(ways) ** layers
    assert least == pytest.approx(min(every), rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_auto_equals_exhaustive_search_on_small_graphs(seed):
    chip, workload = scene(2000 + seed, layers=2)
    workload = attrs.evolve(workload, request=attrs.evolve(workload.request, batch=1))
    ground = ground_of(chip, workload)
    every = [evaluate(chip, workload, plan=strategy.plan).total_s for strategy in assignments(ground, ways_of(ground))]
    assert explore(chip, workload).best.result.total_s <= min(every) * (1 + 1e-12)


def test_objectives_differ():
    chip, workload = scene(7)
    fast, frugal = explore(chip, workload, "time").best.result, explore(chip, workload, "energy").best.result
    assert fast.total_s <= frugal.total_s
    assert frugal.total_j <= fast.total_j


def test_same_input_same_choice():
    one, two = explore(*scene(3)), explore(*scene(3))
    assert [o.strategy.name for o in one.outcomes] == [o.strategy.name for o in two.outcomes]
    assert one.best.result.total_s == two.best.result.total_s
