"""The whole answer of `split`: strategies against a baseline, and what becomes of the best of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs

from archmodel.economics.costing import run_cost
from archmodel.economics.running import Running
from archmodel.errors import MappingError
from archmodel.evaluate import evaluate, evaluate_steps
from archmodel.lifetimes import arena, lifetimes
from archmodel.result import Result
from archmodel.spec.check import merged_placement
from archmodel.spec.chip import ChipSpec
from archmodel.spec.economics import EconomicsSpec
from archmodel.spec.economics_file import default_economics
from archmodel.spec.workload import WorkloadSpec
from archmodel.splitting.balance import Balance, balance
from archmodel.splitting.bounds import Bounds, bounds
from archmodel.splitting.breakeven import BreakEven, break_evens
from archmodel.splitting.compared import Compared, all_samples, elsewhere, gain, planned, rebatched
from archmodel.splitting.fallback import Fallback, Fallbacks
from archmodel.splitting.knobs import Rivals
from archmodel.splitting.ledger import Ledger, ledger
from archmodel.splitting.rest import freed_plan, idle_members, without_members
from archmodel.splitting.search import Exploration, explore
from archmodel.splitting.verdict import HOURS_PER_YEAR, Terms, Verdict, verdict
from archmodel.steps import Sample


@attrs.frozen(eq=False)
class Study:
    """Everything that a report of a split is made of.

    `best` is the fastest plan in which more than one unit works, or, where none runs, the fastest plan.
    """

    chip: ChipSpec
    workload: WorkloadSpec
    terms: Terms
    baseline: Compared
    strategies: tuple[Compared, ...]
    refused: tuple[tuple[str, str], ...]  # name and why it cannot run
    best: Compared
    economics: EconomicsSpec

    def cost(self, split: Compared) -> Running | None:
        """What a run costs; None where nothing is known of the chip's price."""
        return run_cost(split.result, self.economics)

    def verdict(self, split: Compared) -> Verdict:
        """The answer for one strategy, at the prices that the terms state, else at those that the chips come to."""
        old_usd = self.terms.old_usd_per_hour or _usd_per_hour(self.cost(self.baseline))
        new_usd = self.terms.new_usd_per_hour or _usd_per_hour(self.cost(split))
        terms = attrs.evolve(self.terms, old_usd_per_hour=old_usd, new_usd_per_hour=new_usd)
        if split.result is self.baseline.result:
            terms = attrs.evolve(terms, error_fraction=0.0)  # it is itself, whatever its time
        return verdict(gain(self.baseline.result, split.result), terms)

    def bounds(self, split: Compared) -> Bounds:
        return bounds(split.result)

    @cached_property
    def ledgers(self) -> Mapping[str, Ledger]:
        """Ledgers of the best plan, by phase and as a whole (`total`)."""
        old, new = self.baseline.result, self.best.result
        return {**{phase: ledger(old, new, phase) for phase in new.phases}, "total": ledger(old, new)}

    @cached_property
    def rivals(self) -> Rivals:
        """The best plan and the baseline, to be turned at."""
        return Rivals(self.chip, self.workload, self.baseline, self.best)

    @cached_property
    def break_evens(self) -> tuple[BreakEven, ...]:
        """Where the best plan stops paying, or begins to."""
        return tuple(break_evens(self.rivals, self.terms.min_gain))

    @cached_property
    def module(self) -> Compared | None:
        """The best plan with attention on one unit and the feed-forward part on another in every layer."""
        found = [s for s in self.strategies if s.granularity == "module" and len(s.result.plan.distinct()) == 1]
        return min(found, key=lambda split: split.result.total_s, default=None)

    @cached_property
    def balance(self) -> Balance | None:
        """How the units of the best module split share the work of a decode step."""
        return balance(self.chip, self.workload, self.module) if self.module else None

    @cached_property
    def kept(self) -> Mapping[str, tuple[float, float]]:
        """By unit, of the last step of the best plan: most bytes [B] of results at once, and the arena that holds them."""
        living = lifetimes(self.best.result, self.best.result.steps[-1])
        return {unit: (found.peak_byte, arena(found)[1]) for unit, found in living.items() if len(found.byte)}

    @cached_property
    def fusion(self) -> Mapping[str, Result]:
        """The best plan with vector operations fused into the kernel before, and with kernels of their own.

        Empty where the other of the two cannot run.
        """
        here, plan = self.best.result, self.best.result.plan
        other = {id(p): attrs.evolve(p, fusion=not p.fusion) for p in plan.distinct()}
        parts, decode = (
            tuple(attrs.evolve(part, placements=tuple(other[id(p)] for p in part.placements)) for part in parts)
            for parts in (plan.parts, plan.decode)
        )
        try:
            there = evaluate(here.chip, here.workload, plan=attrs.evolve(plan, parts=parts, decode=decode))
        except MappingError:
            return {}
        fused, apart = (here, there) if plan.parts[0].placements[0].fusion else (there, here)
        return {"fused": fused, "kernels of their own": apart}

    @cached_property
    def fallbacks(self) -> Mapping[str, tuple[Fallback, ...]]:
        """For each strategy, what is left when a unit that it uses is lost."""
        made = Fallbacks(self.chip, self.workload)
        return {split.name: tuple(made.of(split.result)) for split in self.strategies}


def _usd_per_hour(paid: Running | None) -> float:
    return paid.usd_per_year / HOURS_PER_YEAR if paid else 0.0


def study(
    chip: ChipSpec,
    workload: WorkloadSpec,
    terms: Terms,
    baseline: ChipSpec | None = None,
    economics: EconomicsSpec | None = None,
) -> Study:
    """Try all strategies on a chip or system and hold them against a `baseline` chip, or against the best single unit.

    Prices are the default ones unless others are given. Raises MappingError where nothing can run, or nothing is there to
    compare with.
    """
    chip = merged_placement(chip, workload.placement)
    bare = attrs.evolve(workload, placement={})
    explored = explore(chip, bare)
    able = [
        planned(outcome.strategy.name, outcome.strategy.granularity, outcome.result)
        for outcome in explored.outcomes
        if outcome.result is not None
    ]
    refused = tuple((outcome.strategy.name, outcome.problem) for outcome in explored.outcomes if outcome.result is None)
    splits = [split for split in able if is_split(split.result)]
    best = min(splits or able, key=lambda split: split.result.total_s)
    against = _baseline(explored, able, workload, baseline)
    return Study(chip, bare, terms, against, tuple(able), refused, best, economics or default_economics())


def is_split(result: Result) -> bool:
    """Whether more than one unit works."""
    seconds = result.busy_s()
    return sum(seconds[unit] > 0.0 for unit in result.soc.units) > 1


def _baseline(explored: Exploration, able: list[Compared], workload: WorkloadSpec, chip: ChipSpec | None) -> Compared:
    if chip is not None:
        return elsewhere(chip, evaluate(chip, workload))
    alone = explored.alone
    if alone is None:
        raise MappingError("no single unit can run the whole model: name a chip to compare with by --baseline")
    found = next(split for split in able if split.result is alone.result)
    return _without_idle_cards(found, workload)


def _without_idle_cards(found: Compared, workload: WorkloadSpec) -> Compared:
    """The same on a system that has only the cards that work: nobody buys and powers the others for it."""
    idle = idle_members(found.result)
    if not idle:
        return found

    def run(chip: ChipSpec, workload: WorkloadSpec, samples: list[Sample]) -> Result:
        smaller = without_members(chip, idle)
        plan = rebatched(found.result.plan, workload.request.batch)
        return evaluate_steps(smaller, workload, samples, freed_plan(plan, smaller))

    return Compared(found.name, found.granularity, run(found.result.chip, workload, all_samples(workload)), run)
