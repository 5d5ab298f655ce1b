"""Strategies: functions that return plans, at four granularities and none.

A *way* is a placement of one layer. One side: a unit takes all that it can. Module: attention on one unit and the
feed-forward part on another, in every layer. Layer: the first layers one way, the rest another. Request: whole
sequences one way or the other. Operator: columns, heads or tokens of one operation on both units at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Any

import attrs

from archmodel.errors import MappingError
from archmodel.plan import Part, Plan, layers_of, uniform_plan
from archmodel.soc import PRINCIPAL, Soc
from archmodel.spec.chip import ChipSpec
from archmodel.spec.model import ModelSpec
from archmodel.spec.workload import ROLES, PlacementSpec, PrecisionSpec, WorkloadSpec

#: micro-batches of the first step and of decode steps
Overlap = tuple[int, int]
ONE: Overlap = (1, 1)

GRANULARITIES = ("one side", "module", "layer", "request", "operator", "auto")

#: roles that go with attention, and with the feed-forward part, where a layer is split by module
ATTENTION_SIDE = ("attention", "projection", "router", "vector", "head", "embedding", "sampling")
FEED_FORWARD_SIDE = ("feed_forward",)


@attrs.frozen(eq=False)
class Strategy:
    """A plan with its granularity. Its name says who does what."""

    name: str
    granularity: str
    plan: Plan

    @property
    def overlap(self) -> Overlap:
        placement = self.plan.parts[0].placements[0]
        return placement.micro_batches, placement.decode_micro_batches or placement.micro_batches


@attrs.frozen(eq=False)
class Ground:
    """What strategies divide: a model and a batch of sequences, in some formats, over the units of a chip or system."""

    soc: Soc
    model: ModelSpec
    batch: int
    precision: PrecisionSpec

    @property
    def sides(self) -> tuple[str, ...]:
        """Units that a model can be split over: those that multiply matrices."""
        return tuple(name for name, unit in self.soc.units.items() if "matmul" in unit.capabilities)

    @property
    def layers(self) -> int:
        return len(layers_of(self.model))

    def can(self, unit: str, *roles: str) -> bool:
        """Whether a unit can run all `roles`, in the formats that they ask for or in wider ones."""
        return all(self._can(unit, role) for role in roles)

    def _can(self, unit: str, role: str) -> bool:
        if PRINCIPAL[role] not in self.soc.units[unit].capabilities:
            return False
        p = self.precision
        wanted = {"attention": p.attention, "projection": p.attention, "feed_forward": p.feed_forward, "head": p.head,
                  "router": p.activations}  # fmt: skip
        try:
            return role not in wanted or bool(self.soc.compute_format(unit, wanted[role], role))
        except MappingError:
            return False

    def way(self, owners: Mapping[str, Iterable[str]], micro_batches: tuple[int, int] = (1, 1)) -> PlacementSpec:
        """The chip's placement with roles given to `owners` (unit -> roles) where they can run them; else as it was."""
        placed = self.soc.chip.placement
        hosted = self.soc.host is not None and placed.embedding == self.soc.host[0]
        changed: dict[str, Any] = {"micro_batches": micro_batches[0], "decode_micro_batches": micro_batches[1], "shares": {}}
        changed["experts"] = ""  # with the other feed-forward matrices
        kept = ("experts", "embedding") if hosted else ("experts",)
        for unit, roles in owners.items():
            changed |= {role: unit for role in roles if self._can(unit, role) and role not in kept}
        return attrs.evolve(placed, **changed)


def ground_of(chip: ChipSpec, workload: WorkloadSpec) -> Ground:
    """What there is to divide of a run."""
    precision = workload.precision or chip.precision or PrecisionSpec()
    return Ground(Soc(chip), workload.model, workload.request.batch, precision)


def alone(ground: Ground, unit: str, micro_batches: Overlap = ONE) -> PlacementSpec:
    """Everything that a unit can run on it."""
    return ground.way({unit: ROLES}, micro_batches)


def module(ground: Ground, attention: str, feed_forward: str, micro_batches: Overlap = ONE) -> PlacementSpec:
    """Attention and all around it on one unit, the feed-forward part on another."""
    return ground.way({attention: ATTENTION_SIDE, feed_forward: FEED_FORWARD_SIDE}, micro_batches)


def shared(
    ground: Ground, first: str, shares: Mapping[str, float], roles: Iterable[str], *, rows: bool = False
) -> PlacementSpec:  # fmt: skip
    """All on unit `first` but `roles`, which units run at once, each its share of the columns and heads, or of the tokens."""
    roles = tuple(roles)
    each = {role: dict(shares) for role in roles}
    return attrs.evolve(alone(ground, first), shares=each, row_split=roles if rows else ())


def one_side(ground: Ground) -> Iterator[Strategy]:
    """Each unit with all that it can run."""
    for unit in ground.sides:
        name = f"all on {unit}" if is_whole(ground, unit) else f"{unit} where it can"
        yield _uniform(ground, name, "one side", alone(ground, unit))


def is_whole(ground: Ground, unit: str) -> bool:
    """Whether a unit can run a whole model."""
    return ground.can(unit, "attention", "projection", "feed_forward", "head", "vector")


def _uniform(ground: Ground, name: str, granularity: str, placement: PlacementSpec) -> Strategy:
    return Strategy(name, granularity, uniform_plan(ground.model, ground.batch, placement, name))


def by_module(ground: Ground, overlaps: Iterable[Overlap] = (ONE, (2, 1), (4, 1), (2, 2))) -> Iterator[Strategy]:
    """Attention on one unit, the feed-forward part on another; with and without overlapping micro-batches."""
    for attention, other in permutations(ground.sides, 2):
        if ground.can(attention, "attention", "projection") and ground.can(other, "feed_forward"):
            for overlap in fitting(overlaps, ground.batch):
                name = f"attention on {attention}, FFN on {other}" + overlapped(overlap)
                yield _uniform(ground, name, "module", module(ground, attention, other, overlap))


def by_experts(ground: Ground, overlaps: Iterable[Overlap] = (ONE, (2, 1), (2, 2))) -> Iterator[Strategy]:
    """Routed experts on one unit, all else on another, shared experts and dense layers included (KTransformers, SOSP 2025)."""
    for rest, other in permutations(ground.sides if ground.model.has_experts else (), 2):
        if ground.can(rest, "attention", "projection", "feed_forward") and ground.can(other, "feed_forward"):
            for overlap in fitting(overlaps, ground.batch):
                name = f"routed experts on {other}, all else on {rest}" + overlapped(overlap)
                placement = attrs.evolve(alone(ground, rest, overlap), experts=other)
                yield _uniform(ground, name, "module", placement)


def layer_split(ground: Ground, first: str, second: str, cut: int, overlap: Overlap) -> Strategy:
    """Layers before `cut` on unit `first`, the rest on `second`; micro-batches make a pipeline of them."""
    name = f"layers 1-{cut} on {first}, {cut + 1}-{ground.layers} on {second}" + overlapped(overlap)
    before, after = alone(ground, first, overlap), alone(ground, second, overlap)
    plan = Plan(name, (Part(ground.batch, (before,) * cut + (after,) * (ground.layers - cut)),))
    return Strategy(name, "layer", plan)


def request_split(ground: Ground, first: str, second: str, sequences: tuple[int, int]) -> Strategy:
    """Whole sequences on one unit or the other, both with all weights."""
    name = f"{sequences[0]} sequences on {first}, {sequences[1]} on {second}"
    parts = tuple(
        Part(count, (alone(ground, unit),) * ground.layers) for unit, count in zip((first, second), sequences, strict=True)
    )
    return Strategy(name, "request", Plan(name, parts))


def operator_split(
    ground: Ground, first: str, second: str, share: float, roles: tuple[str, ...], *, rows: bool = False
) -> Strategy:  # fmt: skip
    """All on `first`, but `share` of `roles` on `second`, at the same time."""
    what = "tokens of the " if rows else "heads and columns of the " if "attention" in roles else "columns of the "
    name = f"{share:.0%} of the {what}{_called(roles)} on {second}, rest on {first}"
    placement = shared(ground, first, {first: 1.0 - share, second: share}, roles, rows=rows)
    return _uniform(ground, name, "operator", placement)


def _called(roles: tuple[str, ...]) -> str:
    return {("feed_forward",): "FFN", ("attention", "projection"): "attention"}.get(roles, "whole layer")


def overlapped(overlap: Overlap) -> str:
    """How a name says into how many micro-batches prefill and decode are cut."""
    first, decode = overlap
    if first == decode:
        return f", {first} micro-batches" if first > 1 else ""
    return f", {first} micro-batches in prefill" if decode == 1 else f", {first} micro-batches, {decode} in decode"


def fitting(overlaps: Iterable[Overlap], batch: int) -> list[Overlap]:
    """Those of `overlaps` that a batch can be cut into."""
    return [overlap for overlap in overlaps if max(overlap) <= batch]
