"""Evaluate strategies, and search beyond them: a plan at least as good as every fixed one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations

import attrs
import numpy as np

from archmodel.errors import MappingError
from archmodel.evaluate import default_plan, evaluate
from archmodel.operations import Kind
from archmodel.plan import Plan
from archmodel.result import Result
from archmodel.spec.check import merged_placement
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import ROLES, WorkloadSpec
from archmodel.splitting import neighbours
from archmodel.splitting import strategies as known
from archmodel.splitting.stages import assignments, best_chain, chain, stages, ways_of
from archmodel.splitting.strategies import Ground, Strategy
from archmodel.steps import Sample, decode_samples, first_step

#: what is to be least; each a figure of a result
OBJECTIVES: dict[str, Callable[[Result], float]] = {
    "time": lambda result: result.total_s,
    "energy": lambda result: result.total_j,
}

_EXHAUSTIVE = 64  # plans up to which every assignment of layers is tried
_ROUNDS = 3  # times that the neighbours of the best plan are tried
_DIVIDED = (("feed_forward",), ("attention", "projection"), ("attention", "projection", "feed_forward"))


@attrs.frozen(eq=False)
class Outcome:
    """A strategy and what came of it; `problem` says why it cannot run, where it has no result."""

    strategy: Strategy
    result: Result | None
    problem: str = ""


@attrs.frozen(eq=False)
class Exploration:
    """Everything that was tried, in order. `best` is the one that `auto` chose, `alone` the best without a split."""

    ground: Ground
    outcomes: tuple[Outcome, ...]
    best: Outcome
    alone: Outcome | None


class Explorer:
    """Evaluates strategies of one chip and workload, each once, and knows the best."""

    def __init__(self, chip: ChipSpec, workload: WorkloadSpec, objective: str = "time") -> None:
        self.chip = merged_placement(chip, workload.placement)
        self.workload = attrs.evolve(workload, placement={})
        self.ground = known.ground_of(self.chip, self.workload)
        self.value = OBJECTIVES[objective]
        self.outcomes: dict[str, Outcome] = {}

    def try_all(self, strategies: Iterable[Strategy]) -> list[Outcome]:
        """Outcomes of `strategies`, in order."""
        return [self.attempt(strategy) for strategy in strategies]

    def attempt(self, strategy: Strategy) -> Outcome:
        """The outcome of one, evaluated unless it was before."""
        if strategy.name not in self.outcomes:
            try:
                found = Outcome(strategy, evaluate(self.chip, self.workload, plan=strategy.plan))
            except MappingError as error:
                found = Outcome(strategy, None, str(error))
            self.outcomes[strategy.name] = found
        return self.outcomes[strategy.name]

    def best(self, among: Iterable[Outcome] = ()) -> Outcome | None:
        """The best of `among`, or of all so far."""
        able = [outcome for outcome in (among or self.outcomes.values()) if outcome.result is not None]
        return min(able, key=lambda outcome: self.value(outcome.result)) if able else None  # type: ignore[arg-type]


def explore(chip: ChipSpec, workload: WorkloadSpec, objective: str = "time") -> Exploration:
    """Try the strategies of every granularity, then search around and beyond them.

    `auto` is never worse than any of them: it is the best of all that was tried. Raises MappingError where none can run.
    """
    explorer = Explorer(chip, workload, objective)
    ground = explorer.ground
    single = explorer.try_all(known.one_side(ground))
    explorer.try_all(_fixed(explorer, single))
    explorer.attempt(_as_placed(ground))
    explorer.try_all(_per_layer(explorer))
    explorer.try_all(_some_layers(explorer))
    for _ in range(_ROUNDS):
        if before := explorer.best():
            explorer.try_all(neighbours.around(ground, before.strategy))
            if explorer.best() is before:
                break
    explorer.try_all(_by_phase(explorer))
    best = explorer.best()
    if best is None:
        raise MappingError(f"{chip.name}: no strategy can run {workload.name}: {single[0].problem if single else 'no unit'}")
    chosen = attrs.evolve(best, strategy=attrs.evolve(best.strategy, name=f"auto: {best.strategy.name}", granularity="auto"))
    whole = [o for unit, o in zip(ground.sides, single, strict=True) if known.is_whole(ground, unit) and o.result is not None]
    return Exploration(ground, (*explorer.outcomes.values(), chosen), chosen, explorer.best(whole) if whole else None)


def _fixed(explorer: Explorer, single: Sequence[Outcome]) -> Iterator[Strategy]:
    """Strategies of each granularity with plain ratios: those at which both units would take the same time."""
    ground = explorer.ground
    yield from known.by_module(ground)
    yield from known.by_experts(ground)
    done = {unit: outcome.result for unit, outcome in zip(ground.sides, single, strict=True) if outcome.result is not None}
    for first, second in permutations(done, 2):
        share = done[second].total_s / (done[first].total_s + done[second].total_s)  # of the first
        if ground.layers > 1:
            cut = min(ground.layers - 1, max(1, round(ground.layers * share)))
            for overlap in known.fitting(((1, 1), (4, 1), (4, 4)), ground.batch):
                yield known.layer_split(ground, first, second, cut, overlap)
        if ground.sides.index(first) < ground.sides.index(second) and ground.batch > 1:
            count = min(ground.batch - 1, max(1, round(ground.batch * share)))
            yield known.request_split(ground, first, second, (count, ground.batch - count))
        for roles in _DIVIDED:
            if ground.can(first, "attention") and ground.can(second, *roles):
                theirs = _share(done[first], done[second], first, second, roles)
                yield known.operator_split(ground, first, second, theirs, roles)
        if ground.can(first, "attention") and ground.can(second, "feed_forward"):
            theirs = _share(done[first], done[second], first, second, _DIVIDED[0])
            yield known.operator_split(ground, first, second, theirs, _DIVIDED[0], rows=True)


def _as_placed(ground: Ground) -> Strategy:
    """What the placement of the chip or system says."""
    plan = default_plan(ground.soc, ground.model, ground.batch)
    return Strategy(plan.name, "layer" if len(plan.distinct()) > 1 else "module", plan)


def role_seconds(result: Result, unit: str, roles: Iterable[str]) -> float:
    """Time [s] of a run that a unit spends on operations of `roles`."""
    count = sum(step.weight * step.count for step in result.steps)
    rows, number = result.table.rows, list(result.soc.units).index(unit)
    mine = (result.table.owner == number) & np.isin(rows.role, [ROLES.index(role) for role in roles])
    mine &= (rows.kind >= 0) & (rows.kind != Kind.COLLECTIVE)
    return float((result.table.timeline.duration_s * mine) @ count)


def _share(one: Result, other: Result, first: str, second: str, roles: tuple[str, ...]) -> float:
    """Share of `roles` at which both units take the same time over them, in twentieths."""
    mine, theirs = role_seconds(one, first, roles), role_seconds(other, second, roles)
    return min(0.95, max(0.05, round(20.0 * mine / (mine + theirs)) / 20.0)) if mine + theirs > 0.0 else 0.5


def _per_layer(explorer: Explorer) -> Iterator[Strategy]:
    """The best way for each layer: every assignment of a small model, else the least serial pass."""
    ground, workload = explorer.ground, explorer.workload
    ways = ways_of(ground)
    if len(ways) ** ground.layers <= _EXHAUSTIVE:
        yield from assignments(ground, ways)
    elif not workload.model.encoder_order:
        samples = [Sample(first_step(workload), 1.0, 0.0), *decode_samples(workload, every_token=False)]
        try:
            _, path = best_chain(stages(ground, ways.values(), samples), workload.model.order)
        except MappingError:
            return  # a layer cannot go one of the ways: the fixed strategies say why
        if len(set(path)) > 1:
            yield chain(ground, ways, path)


def _some_layers(explorer: Explorer) -> Iterator[Strategy]:
    """The feed-forward part of evenly spaced layers on another unit, as many as keep both units equally busy."""
    ground, layers = explorer.ground, explorer.ground.layers
    for one, other in permutations(ground.sides, 2):
        whole, split = (explorer.outcomes.get(name) for name in (f"all on {one}", f"attention on {one}, FFN on {other}"))
        if whole is None or split is None or whole.result is None or split.result is None or ground.batch < 2:
            continue
        busy = whole.result.busy_s()[one]
        ffn, theirs = role_seconds(whole.result, one, _DIVIDED[0]), role_seconds(split.result, other, _DIVIDED[0])
        moved = round(layers * busy / (ffn + theirs)) if ffn + theirs > 0.0 else 0
        if 0 < moved < layers:
            for overlap in known.fitting(((2, 1), (4, 1), (2, 2)), ground.batch):
                yield neighbours.spaced(ground, one, other, moved, overlap)


def _by_phase(explorer: Explorer) -> Iterator[Strategy]:
    """The best plan for the first step and the best for decode steps as one, where both keep the cache in one place."""
    able = [(o.strategy, o.result) for o in explorer.outcomes.values() if o.result is not None]
    if not able or explorer.workload.request.output_tokens < 2:
        return
    first, _ = min(able, key=lambda pair: pair[1].first.total_s)
    decode, _ = min(able, key=lambda pair: pair[1].decode_s)
    if first is not decode:
        name = f"prefill: {first.name}; decode: {decode.name}"
        yield Strategy(name, first.granularity, Plan(name, first.plan.parts, decode.plan.parts))
