"""What a plan keeps in memory throughout: weights with every unit that a part of the plan gives them to, and the caches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import NamedTuple

import attrs

from archmodel import sizes
from archmodel.cards import kept_cache, kept_weights
from archmodel.components import units
from archmodel.plan import Part, Plan, layers_of
from archmodel.sharing import fractions
from archmodel.soc import PRINCIPAL, Soc
from archmodel.spec.model import AttentionSpec, LayerSpec, ModelSpec
from archmodel.spec.workload import PlacementSpec, PrecisionSpec, WorkloadSpec

#: who holds each part of a model (see `sizes.PARTS`)
ROLE_OF = {
    "embedding": "embedding",
    "head": "head",
    "mixers": "projection",
    "feed_forward": "feed_forward",
    "experts": "feed_forward",
    "router": "router",
    "norms": "vector",
    "other": "vector",
}

#: roles whose weights can lie in cells of the unit that multiplies them
MULTIPLIED = ("projection", "feed_forward", "experts", "router", "head")

Shares = dict[str, Fraction]  # tier -> share of something that lies there


@attrs.frozen
class Buffer:
    """Bytes of one kind in one tier, alive from step `first_step` to `last_step` (-1: throughout)."""

    what: str
    tier: str
    byte: float
    first_step: int = 0
    last_step: int = -1


def merged(buffers: Iterable[Buffer]) -> list[Buffer]:
    """Buffers of one kind, tier and lifetime as one."""
    total: dict[Buffer, float] = {}
    for buffer in buffers:
        key = attrs.evolve(buffer, byte=0.0)
        total[key] = total.get(key, 0.0) + buffer.byte
    return [attrs.evolve(key, byte=byte) for key, byte in total.items()]


class Placed(NamedTuple):
    """A part of the weights: the layer that has it (None: outside of all), its bits as stored, how often it occurs, and its
    share in each tier, or under the name of a unit that holds it in cells of its own."""

    layer: LayerSpec | None
    part: str
    bit: Fraction
    times: int
    held: Shares


def resident_weights(soc: Soc, model: ModelSpec, precision: PrecisionSpec, plan: Plan) -> list[Buffer]:
    """Weights [B] by tier: once in each tier from which a unit of the plan works. The bytes of the host are not counted."""
    bits: Shares = {}
    for placed in placed_weights(soc, model, precision, plan):
        _add(bits, placed.held, placed.bit * placed.times)
    return [Buffer("weights", tier, float(math.ceil(value / 8))) for tier, value in bits.items()]


def placed_weights(soc: Soc, model: ModelSpec, precision: PrecisionSpec, plan: Plan) -> Iterator[Placed]:
    """All weights of a model, part by part."""
    order = layers_of(model)
    parts = (*plan.parts, *plan.decode)
    alike = Counter(zip(order, *(map(id, part.placements) for part in parts), strict=True))
    by_id = {id(placement): placement for placement in plan.distinct()}
    kept = partial(kept_weights, soc, hidden=model.hidden, precision=precision)
    for (kind, *ids), times in alike.items():
        layer = model.kinds[kind]
        for part, weight in sizes.layer_bits(layer, model.hidden, precision).items():
            held = _held(soc, [by_id[i] for i in ids], ROLE_OF[part], part, layer, kept)
            yield Placed(layer, part, weight, times, held)
    for part, weight in sizes.outer_bits(model, precision).items():
        ends = [whole.placements[-1 if part == "head" else 0] for whole in parts]
        tied = part == "embedding" and model.tied_embedding
        held = _held(soc, ends, "head" if tied else ROLE_OF[part], part, None, kept)
        if tied and any(holder in soc.units for holder in held):  # nobody looks up what lies in cells
            held |= _held(soc, ends, "embedding", part, None, kept)
        yield Placed(None, part, weight, 1, held)


def _add(total: Shares, held: Mapping[str, Fraction], weight: Fraction | int) -> None:
    for tier, share in held.items():
        total[tier] = total.get(tier, Fraction(0)) + share * weight


def _held(
    soc: Soc, placements: Iterable[PlacementSpec], role: str, part: str, layer: LayerSpec | None, kept: Callable[..., Fraction]
) -> Shares:  # fmt: skip
    """Share of the weights of a part of the model in each tier; ways that work from one tier share what lies there."""
    held: Shares = {}
    columns = _columns(layer, part) if layer else 0
    kept = partial(kept, part=part, layer=layer)
    for placement in placements:
        holder = "experts" if part == "experts" and placement.experts else role
        for tier, share in _tiers(soc, placement, holder, columns, "weights", kept).items():
            held[tier] = max(held.get(tier, Fraction(0)), share)
    return held


def _tiers(
    soc: Soc, placement: PlacementSpec, role: str, columns: int, key: str, kept: Callable[[str], Fraction]
) -> Shares:  # fmt: skip
    """Share of the `weights` or of the `kv_cache` of a role in each tier, for one placement: in the memory of one card, which
    has the share `kept` of what its unit keeps, or in what all cards share."""
    out: Shares = {}
    for unit, share in _units(soc, placement, role, columns, copied=key == "weights" and role in placement.row_split):
        if unit in soc.units:
            in_cells = key == "weights" and role in MULTIPLIED and units.cell_capacity_byte(soc.units[unit]) > 0.0
            tier = unit if in_cells else soc.home(unit, key)
            share *= kept(unit) * Fraction(soc.copies(unit), soc.copies(tier))
            out[tier] = min(out.get(tier, Fraction(0)) + share, Fraction(1))
    return out


def _units(soc: Soc, placement: PlacementSpec, role: str, columns: int, *, copied: bool) -> Iterator[tuple[str, Fraction]]:
    """Units that run a role, each with its share of what the role keeps."""
    shares = placement.shares.get(role)
    if not shares:
        yield soc.owner(role, PRINCIPAL[role], placement), Fraction(1)
        return
    for unit, share in (fractions(shares, columns) if columns and not copied else dict(shares)).items():
        yield unit, Fraction(1) if copied else Fraction(share)


def _columns(layer: LayerSpec, part: str) -> int:
    """Whole columns or heads into which a part of a layer divides; 0 where it is not divided by them."""
    moe, dense = layer.moe, layer.feed_forward
    match part:
        case "mixers":
            return layer.mixer.kv_heads if isinstance(layer.mixer, AttentionSpec) else 0
        case "experts":
            return moe.intermediate if moe else 0
        case "feed_forward":
            return dense.intermediate if dense else moe.shared_intermediate if moe else 0
    return 0


def resident_caches(soc: Soc, workload: WorkloadSpec, precision: PrecisionSpec, plan: Plan) -> list[Buffer]:
    """KV cache, recurrent state and cross-attention cache [B] of the last step, by tier: each with its attention unit."""
    model, request = workload.model, workload.request
    if model.family == "encoder":
        return []
    decoded = request.output_tokens + (request.input_tokens if model.family == "decoder" else 0)
    source = request.encoder_tokens or request.input_tokens
    policy = soc.chip.placement.window_policy
    caches: dict[str, Shares] = {"KV cache": {}, "recurrent state": {}, "cross-attention cache": {}}
    for (kind, tier), sequences in cache_shares(soc, model, plan.parts).items():
        kept = sizes.layer_cache_elements(model.kinds[kind], decoded, source, policy)
        for what, elements in zip(caches, kept, strict=True):
            _add(caches[what], {tier: sequences}, elements)
    formats = (precision.kv_cache, precision.state, precision.kv_cache)
    return [
        Buffer(what, tier, float(sizes.element_bytes_exact(elements, number_format)))
        for (what, held), number_format in zip(caches.items(), formats, strict=True)
        for tier, elements in held.items()
    ]


def _cache_columns(layer: LayerSpec, placement: PlacementSpec, part: Part) -> int:
    """Heads, or sequences, into which the cache of a layer divides; 0 where it is not divided by them."""
    return part.sequences if "attention" in placement.row_split else _columns(layer, "mixers")


#: sequences in a row whose caches lie alike: how many, and the tiers in the order of the heads, each with its share
Runs = list[tuple[int, tuple[tuple[str, float], ...]]]


def cache_layout(soc: Soc, model: ModelSpec, parts: Iterable[Part]) -> list[Runs]:
    """Where the cache of every layer of the decoder lies, sequence by sequence."""
    parts, before = tuple(parts), len(model.encoder_order)
    return [_cache_runs(soc, model.kinds[kind], parts, number) for number, kind in enumerate(model.order, before)]


def _cache_runs(soc: Soc, layer: LayerSpec, parts: Iterable[Part], number: int) -> Runs:
    runs: Runs = []
    for part in parts:
        placement = part.placements[number]
        units = _units(soc, placement, "attention", _cache_columns(layer, placement, part), copied=False)
        held = [(soc.home(unit, "kv_cache"), float(share)) for unit, share in units]
        found: Runs = [(round(share * part.sequences), ((tier, 1.0),)) for tier, share in held]
        if "attention" not in placement.row_split or not placement.shares.get("attention"):
            alike = groupby(held, key=lambda each: each[0])
            found = [(part.sequences, tuple((tier, round(sum(share for _, share in each), 9)) for tier, each in alike))]
        for sequences, tiers in found:
            before = runs.pop()[0] if runs and runs[-1][1] == tiers else 0
            runs.append((before + sequences, tiers))
    return runs


def cache_shares(soc: Soc, model: ModelSpec, parts: Iterable[Part]) -> dict[tuple[int, str], Fraction]:
    """Sequences whose cache lies in a tier, summed over the layers of a kind: (kind, tier) -> sequences."""
    total: Counter[tuple[int, str]] = Counter()
    for part in parts:
        placements = part.placements[len(model.encoder_order) :]
        by_id = {id(placement): placement for placement in placements}
        for (kind, number), times in Counter(zip(model.order, map(id, placements), strict=True)).items():
            layer, placement = model.kinds[kind], by_id[number]
            held = _tiers(soc, placement, "attention", _cache_columns(layer, placement, part), "kv_cache",
                          partial(kept_cache, soc, layer=layer, sequences=part.sequences))  # fmt: skip
            for tier, share in held.items():
                total[kind, tier] += share * part.sequences * times  # type: ignore[assignment]
    return {key: Fraction(value) for key, value in total.items()}
