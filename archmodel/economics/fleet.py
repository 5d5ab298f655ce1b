"""How many models a group of chips and a server hold at once, and how much model a power budget carries."""

from __future__ import annotations

import math

import attrs

from archmodel import sizes
from archmodel.economics.running import wall_w
from archmodel.result import Result
from archmodel.spec.economics import EconomicsSpec
from archmodel.spec.model import ModelSpec

_TRANSIENT = ("activations",)  # what one model at a time needs
_MOST = 10**6  # models of a few bytes


@attrs.frozen
class Shared:
    """`models` alike models that are busy at once in one group of chips. Their rates are of generated (or read) tokens.

    In turn: one model runs at a time. At most: they overlap until the busiest unit, memory or link has no time left.
    """

    models: int
    each_in_turn_tokens_per_s: float
    all_in_turn_tokens_per_s: float
    all_at_most_tokens_per_s: float


@attrs.frozen
class Residents:
    """Models of this size, each with its own weights and the caches of its batch, that one group of chips holds."""

    most: int
    limiting: str  # tier that is full then
    busiest: str  # what overlapping models share until it is full
    shared: tuple[Shared, ...]
    groups_per_server: int

    @property
    def per_server(self) -> int:
        return self.most * self.groups_per_server


@attrs.frozen
class Carried:
    """What a power budget at the plug carries: groups of chips that are busy throughout, and the models that they hold."""

    budget_w: float
    group_w: float
    groups: int
    chips: int
    models: int
    parameters: int
    tokens_per_s: float


def residents(result: Result, economics: EconomicsSpec) -> Residents:
    """How many models one group holds and a server holds; rates for 1, 2, 4 ... and the most."""
    held, kept = result.residency, {}
    for tier, there in held.capacity_byte.items():
        transient = sum(b.byte for b in held.buffers if b.tier == tier and b.what in _TRANSIENT)
        own = held.used_byte(tier) - transient
        kept[tier] = math.floor((there - transient) / own * (1.0 + 1e-12)) if own > 0.0 else _MOST
    limiting = min(kept, key=lambda tier: kept[tier])
    most = max(1, min(_MOST, kept[limiting]))
    busiest = max(result.utilisation, key=lambda name: result.utilisation[name])
    counts = sorted({*(2**n for n in range(most.bit_length())), most})
    rows = tuple(_shared(result, count, result.utilisation[busiest]) for count in counts)
    return Residents(most, limiting, busiest, rows, economics.box.chips // result.cards)


def _shared(result: Result, models: int, utilisation: float) -> Shared:
    rate = result.output_tokens_per_s
    overlapped = min(float(models), 1.0 / utilisation) if utilisation > 0.0 else float(models)
    return Shared(models, rate / models, rate, rate * max(1.0, overlapped))


def carried(result: Result, model: ModelSpec, held: Residents, economics: EconomicsSpec, budget_w: float) -> Carried:
    """What `budget_w` at the servers' plugs carries of a whole `model`, at the power of the run."""
    group_w = wall_w(result, result.power_w, economics.box)
    groups = math.floor(budget_w / group_w)
    models = groups * held.most
    return Carried(
        budget_w=budget_w,
        group_w=group_w,
        groups=groups,
        chips=groups * result.cards,
        models=models,
        parameters=models * sizes.total_parameters(model),
        tokens_per_s=groups * result.output_tokens_per_s,
    )
