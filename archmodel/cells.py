"""Weights that lie in cells of the unit that multiplies them: which share of them does, and what room they take."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from archmodel import sizes
from archmodel.components import units
from archmodel.errors import MappingError
from archmodel.matrices import Matrix
from archmodel.soc import Soc
from archmodel.spec.chip import NeuromorphicSpec
from archmodel.spec.model import ModelSpec
from archmodel.spec.workload import PrecisionSpec
from archmodel.units import si

#: role and compute format (a key of `PrecisionSpec`) of the matrices of each part of a model
_PARTS = {
    "mixers": ("projection", "attention"),
    "patches": ("projection", "attention"),
    "feed_forward": ("feed_forward", "feed_forward"),
    "experts": ("feed_forward", "feed_forward"),
    "router": ("router", "activations"),
    "head": ("head", "head"),
}


@attrs.frozen
class Held:
    """Weights of one unit in its own cells: share of all its weights, cells that they take, and bytes as memory would store
    them. All in [B]."""

    unit: str
    capacity_byte: float
    cell_byte: float
    stored_byte: float
    share: float


def held_weights(soc: Soc, model: ModelSpec, precision: PrecisionSpec) -> list[Held]:
    """Of each unit with cells of its own. Raises MappingError where one that cannot reload has too few."""
    holders = {name: unit for name, unit in soc.units.items() if units.cell_capacity_byte(unit) > 0.0}
    if not holders:
        return []
    needed, stored = dict.fromkeys(holders, 0.0), dict.fromkeys(holders, 0.0)
    for part, matrix, count in _owned(model):
        role, key = _PARTS[part]
        owner = soc.owner(role, "matmul")
        if owner in holders:
            each = _stored_byte(part, matrix, precision)
            wanted = soc.compute_format(owner, getattr(precision, key), matrix.name)
            needed[owner] += count * units.cell_byte(holders[owner], matrix.n, matrix.k, each / matrix.elements, wanted)
            stored[owner] += count * each * (not (part == "head" and model.tied_embedding))
    return [_held(soc, name, needed[name], stored[name]) for name in holders]


def _held(soc: Soc, name: str, needed: float, stored: float) -> Held:
    unit = soc.units[name]
    capacity = units.cell_capacity_byte(unit)
    if isinstance(unit, NeuromorphicSpec) and needed > capacity:
        wanted, there, short = (si(byte, "B", 4) for byte in (needed, capacity, needed - capacity))
        raise MappingError(
            f"{soc.chip.name}: the weights placed on {name} need {wanted} and its cores hold {there}: {short} short. "
            "Event-driven cores hold all their weights: use fewer bits, more cores, or place fewer roles on it"
        )
    share = units.held_share(unit, needed)
    return Held(name, capacity, needed * share, stored * share, share)


def _owned(model: ModelSpec) -> Iterator[tuple[str, Matrix, int]]:
    """Part, matrix and number of all that is multiplied; a tied head is a matrix of its own here."""
    for part, matrix, count in sizes.stored_matrices(model):
        part = "patches" if matrix.name == "patches" else part
        if part in _PARTS and matrix.elements:
            yield part, matrix, count
    if model.head and model.tied_embedding:
        yield "head", Matrix("head", model.vocabulary, model.hidden), 1


def _stored_byte(part: str, matrix: Matrix, precision: PrecisionSpec) -> float:
    """Bytes [B] of a matrix as stored."""
    if part in ("head", "router", "patches"):
        return float(sizes.element_bytes_exact(matrix.elements, precision.embedding or precision.weights))
    return float(sizes.matrix_bytes(matrix, precision))
