"""Weights that lie in cells of the unit that multiplies them: which share of them does, and what room they take."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from archmodel import sizes
from archmodel.components import units
from archmodel.errors import MappingError
from archmodel.matrices import Matrix, layer_matrices
from archmodel.plan import Plan
from archmodel.residents import ROLE_OF, Buffer, Placed, merged, placed_weights
from archmodel.soc import Soc
from archmodel.spec.chip import NeuromorphicSpec
from archmodel.spec.model import ModelSpec
from archmodel.spec.workload import PrecisionSpec
from archmodel.units import si

#: key of `PrecisionSpec` in which each role computes
_COMPUTED = {"projection": "attention", "feed_forward": "feed_forward", "router": "activations", "head": "head"}


@attrs.frozen
class Held:
    """Weights of one unit in its own cells: share [1] of all its weights, and the bytes of cells [B] that they take."""

    unit: str
    capacity_byte: float
    cell_byte: float
    share: float


def held_weights(soc: Soc, model: ModelSpec, precision: PrecisionSpec, plan: Plan) -> list[Held]:
    """Of each unit with cells of its own. Of an operator that is split, a unit's share of the columns takes that share of the
    cells. Raises MappingError where a unit that cannot reload has too few."""
    needed = {name: 0.0 for name, unit in soc.units.items() if units.cell_capacity_byte(unit) > 0.0}
    if not needed:
        return []
    for placed in placed_weights(soc, model, precision, plan):
        for name in needed.keys() & placed.held.keys():
            whole = sum(_cell_byte(soc, name, placed, matrix, precision) for matrix in _matrices(model, placed))
            needed[name] += placed.times * float(placed.held[name]) * whole
    return [_held(soc, name, byte) for name, byte in needed.items()]


def in_cells(soc: Soc, weights: Iterable[Buffer], cells: Iterable[Held]) -> list[Buffer]:
    """Buffers of weights where those under a unit's name are divided into its cells and the tier that it works from."""
    held = {found.unit: found for found in cells}
    out = []
    for buffer in weights:
        if (found := held.get(buffer.tier)) is None:
            out.append(buffer)
            continue
        out.append(Buffer("weights in cells", found.unit, found.cell_byte))
        out.append(Buffer("weights", soc.home(found.unit, "weights"), (1.0 - found.share) * buffer.byte))
    return merged(out)


def _held(soc: Soc, name: str, needed: float) -> Held:
    unit = soc.units[name]
    capacity = units.cell_capacity_byte(unit)
    if isinstance(unit, NeuromorphicSpec) and needed > capacity:
        wanted, there, short = (si(byte, "B", 4) for byte in (needed, capacity, needed - capacity))
        raise MappingError(
            f"{soc.chip.name}: the weights placed on {name} need {wanted} and its cores hold {there}: {short} short. "
            "Event-driven cores hold all their weights: use fewer bits, more cores, or place fewer roles on it"
        )
    share = units.held_share(unit, needed)
    return Held(name, capacity, needed * share, share)


def _matrices(model: ModelSpec, placed: Placed) -> list[Matrix]:
    """What is multiplied of a part, each as often as a layer stores it; a tied head is the table of the embedding."""
    if placed.layer is not None:
        copies = placed.layer.moe.experts if placed.part == "experts" and placed.layer.moe else 1
        return layer_matrices(placed.layer, model.hidden).get(placed.part, []) * copies
    table = model.vocabulary if model.head and (placed.part == "embedding") == model.tied_embedding else 0
    rows = table + (model.classes if placed.part == "head" else 0)
    return [Matrix("head", rows, model.hidden)] if rows and placed.part in ("head", "embedding") else []


def _cell_byte(soc: Soc, name: str, placed: Placed, matrix: Matrix, precision: PrecisionSpec) -> float:
    """Bytes of the cells of a unit [B] that a matrix takes."""
    role = "head" if placed.layer is None else ROLE_OF[placed.part]
    if placed.part in ("head", "embedding", "router"):
        stored = float(sizes.element_bytes_exact(matrix.elements, precision.embedding or precision.weights))
    else:
        stored = float(sizes.matrix_bytes(matrix, precision))
    wanted = soc.compute_format(name, getattr(precision, _COMPUTED[role]), matrix.name)
    return units.cell_byte(soc.units[name], matrix.n, matrix.k, stored / matrix.elements, wanted)
