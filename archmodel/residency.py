"""What lies where: weights, KV cache, state, activations and workspace in every tier, with lifetimes and spilling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import attrs

from archmodel import sizes
from archmodel.cells import held_weights
from archmodel.components import memory
from archmodel.errors import MappingError
from archmodel.operations import Kind
from archmodel.partition import Piece
from archmodel.soc import Soc, default_tier
from archmodel.spec.workload import PrecisionSpec, WorkloadSpec
from archmodel.template import STREAM


@attrs.frozen
class Buffer:
    """Bytes of one kind in one tier, alive from step `first_step` to `last_step` (-1: throughout)."""

    what: str
    tier: str
    byte: float
    first_step: int = 0
    last_step: int = -1


@attrs.frozen(eq=False)
class Residency:
    """All buffers of a run, by tier or by the unit in whose cells they lie.

    `spilled_fraction` is the share of the weights that lies in the spill tier.
    """

    buffers: tuple[Buffer, ...]
    capacity_byte: dict[str, float]
    weights_tier: str
    kv_tier: str
    spill_tier: str
    spilled_fraction: float
    held_share: Mapping[str, float] = attrs.field(factory=dict)  # by unit, of its weights that lie in cells of its own

    def used_byte(self, tier: str) -> float:
        return sum(buffer.byte for buffer in self.buffers if buffer.tier == tier)


def live_byte(piece: Piece, stream_byte: float) -> float:
    """Largest sum [B] of results alive at once in a piece, the residual stream included (interval sweep)."""
    last_use: dict[int, int] = {}
    for index, record in enumerate(piece.records):
        for before in record["after"]:
            if before != STREAM:
                last_use[before] = index
    change = [0.0] * (len(piece.records) + 1)
    for index, record in enumerate(piece.records):
        byte = _result_byte(record)
        change[index] += byte
        change[last_use.get(index, index) + 1] -= byte
    peak = max(accumulate(change), default=0.0)
    return peak + stream_byte


def _result_byte(record: dict[str, Any]) -> float:
    kind = record.get("kind")
    if kind == Kind.MATMUL:
        return float(record["m"] * record["n"] * record.get("count", 1.0) * record["output_byte"])
    if kind == Kind.ATTENTION:
        scores = record["q_tokens"] * record["kv_tokens"] * record["materialised"] * record["input_byte"]
        outputs = record["q_tokens"] * record["v_dim"] * record["output_byte"]
        return float(record["sequences"] * record["heads"] * (outputs + scores))
    return 0.0 if record.get("fused") else float(record.get("write_byte", 0.0))


def plan_residency(
    soc: Soc, workload: WorkloadSpec, precision: PrecisionSpec, pieces: Iterable[tuple[Piece, float]]
) -> Residency:
    """Buffers of a run. `pieces` come with the bytes of the residual stream of their step.

    Raises MappingError, with the arithmetic, where a tier overflows and the placement names no tier to spill to.
    """
    weights_tier, kv_tier = default_tier(soc, "weights"), default_tier(soc, "kv_cache")
    capacity = {name: memory.capacity_byte(tier) for name, tier in soc.tiers.items()}
    cells = held_weights(soc, workload.model, precision)
    buffers = [
        Buffer("weights", weights_tier, _weights_byte(soc, workload, precision) - sum(c.stored_byte for c in cells)),
        *(Buffer("weights in cells", c.unit, c.cell_byte) for c in cells),
        *_cache_buffers(soc, workload, precision, kv_tier),
    ]
    activations = max((live_byte(piece, stream) for piece, stream in pieces), default=0.0)
    buffers += _activation_buffers(soc, activations, capacity)
    capacity |= {c.unit: c.capacity_byte for c in cells}
    found = _fitted(soc, tuple(b for b in buffers if b.byte > 0.0), capacity, weights_tier, kv_tier)
    return attrs.evolve(found, held_share={c.unit: c.share for c in cells})


def _weights_byte(soc: Soc, workload: WorkloadSpec, precision: PrecisionSpec) -> float:
    """Weights on the chip; an embedding table that the host looks up stays on the host."""
    total = sizes.weight_bytes(workload.model, precision)
    model = workload.model
    on_host = soc.host is not None and soc.chip.placement.embedding == soc.host[0]
    if on_host and not model.tied_embedding:
        total -= sizes.element_bytes_exact(model.vocabulary * model.hidden, precision.embedding or precision.weights)
    return float(total)


def _cache_buffers(soc: Soc, workload: WorkloadSpec, precision: PrecisionSpec, tier: str) -> list[Buffer]:
    model, request = workload.model, workload.request
    decoded = request.output_tokens + (request.input_tokens if model.family == "decoder" else 0)
    kv = sizes.kv_cache_bytes(model, precision.kv_cache, decoded, request.batch, soc.chip.placement.window_policy)
    state = sizes.state_bytes_per_sequence(model, precision.state) * request.batch
    cross = sizes.cross_attention_bytes(model, precision.kv_cache, request.encoder_tokens or request.input_tokens)
    return [
        Buffer("KV cache", tier, float(kv)),
        Buffer("recurrent state", tier, float(state)),
        Buffer("cross-attention cache", tier, float(cross * request.batch)),
    ]


def _activation_buffers(soc: Soc, byte: float, capacity: dict[str, float]) -> list[Buffer]:
    """Activations stay in the SRAM of the unit that keeps the residual stream as far as its share reaches."""
    unit = soc.units[soc.owner("vector", "norm")]
    share = capacity[unit.buffer] * unit.buffer_share
    on_chip = byte if byte <= share else 0.0
    return [
        Buffer("activations", unit.buffer, on_chip, 0, 0),
        Buffer("activations", unit.memory, byte - on_chip, 0, 0),
    ]


def _fitted(soc: Soc, buffers: tuple[Buffer, ...], capacity: dict[str, float], weights_tier: str, kv_tier: str) -> Residency:
    """The residency with the overflow of the weights' tier spilled, if that is allowed and enough."""
    spill = soc.chip.placement.spill
    over = sum(b.byte for b in buffers if b.tier == weights_tier) - capacity[weights_tier]
    weights = sum(b.byte for b in buffers if b.what == "weights")
    fraction = 0.0
    if over > 0.0 and spill and spill != weights_tier and weights > 0.0:
        moved = min(over, weights)
        fraction = moved / weights
        buffers = (*(attrs.evolve(b, byte=b.byte - moved) if b.what == "weights" else b for b in buffers),
                   Buffer("spilled weights", spill, moved))  # fmt: skip
    result = Residency(buffers, capacity, weights_tier, kv_tier, spill if fraction else "", fraction)
    wrong = [_overflow(result, tier) for tier in capacity if result.used_byte(tier) > capacity[tier]]
    if wrong:
        advice = "use fewer bits, a smaller batch or shorter sequences"
        advice += "" if spill else ", name a larger tier in placement.spill"
        advice += ", or divide it over chips with placement.tensor_parallel" if soc.peers else ""
        raise MappingError(f"{soc.chip.name}: the model does not fit: " + "; ".join(wrong) + f"; {advice}")
    return result


def _overflow(residency: Residency, tier: str) -> str:
    parts = " + ".join(f"{b.what} {b.byte / 1e9:.2f}" for b in residency.buffers if b.tier == tier)
    used, there = residency.used_byte(tier), residency.capacity_byte[tier]
    return f"{tier} needs {parts} = {used / 1e9:.2f} GB and has {there / 1e9:.2f} GB, {(used - there) / 1e9:.2f} GB short"
