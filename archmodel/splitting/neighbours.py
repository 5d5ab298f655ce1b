"""Neighbours of a strategy: more or fewer micro-batches, a moved cut, a moved share. What a local search tries next."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from archmodel.plan import Part, Plan
from archmodel.splitting.strategies import (
    Ground,
    Overlap,
    Strategy,
    alone,
    fitting,
    layer_split,
    module,
    operator_split,
    overlapped,
    request_split,
)

_LADDER = (1, 2, 3, 4, 8)  # micro-batches
_MOVES = (-0.1, -0.05, 0.05, 0.1)  # of a share


def spaced(ground: Ground, one: str, other: str, moved: int, overlap: Overlap) -> Strategy:
    """All on `one`, but the feed-forward part of `moved` layers, evenly spaced, on `other`."""
    layers = ground.layers
    split, whole = module(ground, one, other, overlap), alone(ground, one, overlap)
    chosen = [(i + 1) * moved // layers > i * moved // layers for i in range(layers)]
    name = f"all on {one}, but FFN of {moved} of {layers} layers on {other}" + overlapped(overlap)
    placements = tuple(split if here else whole for here in chosen)
    return Strategy(name, "module", Plan(name, (Part(ground.batch, placements),)))


def around(ground: Ground, strategy: Strategy) -> Iterator[Strategy]:
    """Neighbours of a strategy, of its own granularity."""
    parts = strategy.plan.parts
    if strategy.plan.decode:
        return
    ends = (p for part in parts for p in (part.placements[0], part.placements[-1]))
    owners = [ground.soc.owner("feed_forward", "matmul", p) for p in ends]
    if len(parts) > 1:
        yield from _moved_sequences(ground, strategy, owners[0], owners[-1])
        return
    yield from (_with_overlap(strategy, overlap) for overlap in fitting(_steps(strategy.overlap), ground.batch))
    if strategy.granularity == "layer" and len(strategy.plan.distinct()) == 2:
        yield from _moved_cut(ground, strategy, owners[0], owners[-1])
    if strategy.granularity == "operator":
        yield from _moved_share(ground, strategy)


def _steps(overlap: Overlap) -> Iterator[Overlap]:
    """One step more or less of the micro-batches of prefill, or of decode."""
    first, decode = (min(range(len(_LADDER)), key=lambda i: abs(_LADDER[i] - parts)) for parts in overlap)
    for move in (-1, 1):
        if 0 <= first + move < len(_LADDER):
            yield _LADDER[first + move], overlap[1]
        if 0 <= decode + move < len(_LADDER):
            yield overlap[0], _LADDER[decode + move]


def _with_overlap(strategy: Strategy, overlap: Overlap) -> Strategy:
    (part,) = strategy.plan.parts
    changed = {
        id(p): attrs.evolve(p, micro_batches=overlap[0], decode_micro_batches=overlap[1]) for p in strategy.plan.distinct()
    }
    name = strategy.name.removesuffix(overlapped(strategy.overlap)) + overlapped(overlap)
    placements = tuple(changed[id(p)] for p in part.placements)
    return Strategy(name, strategy.granularity, Plan(name, (attrs.evolve(part, placements=placements),)))


def _moved_sequences(ground: Ground, strategy: Strategy, first: str, second: str) -> Iterator[Strategy]:
    one, other = (part.sequences for part in strategy.plan.parts)
    for move in (-1, 1):
        if one + move > 0 and other - move > 0:
            yield request_split(ground, first, second, (one + move, other - move))


def _moved_cut(ground: Ground, strategy: Strategy, first: str, second: str) -> Iterator[Strategy]:
    placements = strategy.plan.parts[0].placements
    cut = sum(p is placements[0] for p in placements)
    if first != second and all(p is placements[0] for p in placements[:cut]):
        for move in (-2, -1, 1, 2):
            if 0 < cut + move < len(placements):
                yield layer_split(ground, first, second, cut + move, strategy.overlap)


def _moved_share(ground: Ground, strategy: Strategy) -> Iterator[Strategy]:
    placement = strategy.plan.parts[0].placements[0]
    roles = tuple(placement.shares)
    (first, _), (second, share) = placement.shares[roles[0]].items()
    for move in _MOVES:
        if 0.0 < share + move < 1.0:
            yield operator_split(ground, first, second, round(share + move, 4), roles, rows=bool(placement.row_split))
