"""What lies where: weights, KV cache, state and activations in every tier, with lifetimes and spilling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import attrs

from archmodel.cells import held_weights, in_cells
from archmodel.components import memory
from archmodel.errors import MappingError
from archmodel.piece import Chain, Piece, result_byte
from archmodel.plan import Plan
from archmodel.residents import Buffer, merged, resident_caches, resident_weights
from archmodel.soc import Soc
from archmodel.spec.workload import PrecisionSpec, WorkloadSpec


@attrs.frozen(eq=False)
class Residency:
    """All buffers of a run, by tier or by the unit in whose cells they lie.

    `spilled` is the share of a tier's weights that lies in the spill tier instead.
    """

    buffers: tuple[Buffer, ...]
    capacity_byte: dict[str, float]
    spill_tier: str
    spilled: dict[str, float]
    held_share: Mapping[str, float] = attrs.field(factory=dict)  # by unit, of its weights that lie in cells of its own

    def used_byte(self, tier: str) -> float:
        return sum(buffer.byte for buffer in self.buffers if buffer.tier == tier)


def live_byte(piece: Piece) -> dict[str, float]:
    """Largest sum [B] of results alive at once in a piece, residual stream included, by the unit where they lie.

    An interval sweep in program order: a result lives from the record that yields it to the last that takes it.
    """
    last_use: dict[int, int] = {}
    for index, record in enumerate(piece.records):
        for before in record["after"]:
            if before >= 0:
                last_use[before] = index
    change: dict[str, list[float]] = {}
    for index, record in enumerate(piece.records):
        steps = change.setdefault(str(record["lies"]), [0.0] * (len(piece.records) + 1))
        byte = result_byte(record)
        steps[index] += byte
        steps[last_use.get(index, index) + 1] -= byte
    peak = {unit: max(accumulate(steps)) for unit, steps in change.items()}
    return {**peak, piece.leaves: peak.get(piece.leaves, 0.0) + piece.stream_byte}


def plan_residency(
    soc: Soc, workload: WorkloadSpec, precision: PrecisionSpec, plan: Plan, steps: Iterable[Sequence[Chain]]
) -> Residency:
    """Buffers of a run. `steps` holds, for each step, the chains of pieces that run side by side in it.

    Raises MappingError, with the arithmetic, where a tier overflows and the placement names no tier to spill to.
    """
    capacity = {name: memory.capacity_byte(tier) for name, tier in soc.tiers.items()}
    cells = held_weights(soc, workload.model, precision, plan)
    buffers = [
        *in_cells(soc, resident_weights(soc, workload.model, precision, plan), cells),
        *resident_caches(soc, workload, precision, plan),
        *_activation_buffers(soc, steps, capacity),
    ]
    found = _fitted(soc, tuple(b for b in buffers if b.byte > 0.0), capacity | {c.unit: c.capacity_byte for c in cells})
    return attrs.evolve(found, held_share={c.unit: c.share for c in cells})


def _activation_buffers(soc: Soc, steps: Iterable[Sequence[Chain]], capacity: dict[str, float]) -> list[Buffer]:
    """Activations stay in the SRAM of the unit on which they lie as far as its share reaches."""
    peak: dict[str, float] = {}
    for chains in steps:
        live: dict[str, float] = {}
        for chain in chains:
            found = [live_byte(piece) for piece in {id(piece): piece for piece, _ in chain}.values()]
            for name in {name for piece in found for name in piece}:
                live[name] = live.get(name, 0.0) + max(piece.get(name, 0.0) for piece in found)
        peak = {name: max(peak.get(name, 0.0), live.get(name, 0.0)) for name in (*peak, *live)}
    out = []
    for name, unit in soc.units.items():
        byte = peak.get(name, 0.0)
        tier = unit.buffer if byte <= capacity[unit.buffer] * unit.buffer_share else unit.memory
        out.append(Buffer("activations", tier, byte, 0, 0))
    return merged(out)


def _fitted(soc: Soc, buffers: tuple[Buffer, ...], capacity: dict[str, float]) -> Residency:
    """The residency with the overflow of weights spilled, if that is allowed and enough."""
    spill = soc.chip.placement.spill
    spilled: dict[str, float] = {}
    for tier in [b.tier for b in buffers if b.what == "weights" and spill and b.tier != spill]:
        weights = sum(b.byte for b in buffers if b.what == "weights" and b.tier == tier)
        moved = min(sum(b.byte for b in buffers if b.tier == tier) - capacity[tier], weights)
        if moved > 0.0:
            spilled[tier] = moved / weights
            buffers = (*(attrs.evolve(b, byte=b.byte - moved) if (b.what, b.tier) == ("weights", tier) else b for b in buffers),
                       Buffer("spilled weights", spill, moved * soc.copies(tier) / soc.copies(spill)))  # fmt: skip
    result = Residency(buffers, capacity, spill if spilled else "", spilled)
    wrong = [_overflow(result, tier) for tier in capacity if result.used_byte(tier) > capacity[tier]]
    if wrong:
        advice = "use fewer bits, a smaller batch or shorter sequences"
        advice += "" if spill else ", name a larger tier in placement.spill"
        if soc.chip.members:
            advice += ", or give a member more cards with count and parallel"
        elif soc.peers:
            advice += ", or divide it over chips with placement.tensor_parallel"
        raise MappingError(f"{soc.chip.name}: the model does not fit: " + "; ".join(wrong) + f"; {advice}")
    return result


def _overflow(residency: Residency, tier: str) -> str:
    parts = " + ".join(f"{b.what} {b.byte / 1e9:.2f}" for b in residency.buffers if b.tier == tier)
    used, there = residency.used_byte(tier), residency.capacity_byte[tier]
    return f"{tier} needs {parts} = {used / 1e9:.2f} GB and has {there / 1e9:.2f} GB, {(used - there) / 1e9:.2f} GB short"
