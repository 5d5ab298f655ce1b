"""Costs of operations: time under each limit, traffic and events. They are values, and they add."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: limits on a row's time; the largest is its bottleneck
LIMITS = ("matrix", "vector", "feed", "buffer", "memory", "fixed")


@attrs.frozen(eq=False, kw_only=True)
class Surroundings:
    """What a unit sees around it. Bandwidths [B/s] include the links on the way."""

    buffer_byte: float  # [B] its share of the SRAM block
    buffer_byte_per_s: float  # SRAM bandwidth
    memory_byte_per_s: Floats  # shape (rows,): effective bandwidth of the tiers that each row streams from
    memory_latency_s: float  # first byte of a stream
    held_share: Floats | float = 0.0  # of the weights, that lie in cells of the unit's own


def _none(costs: Costs) -> Floats:
    """A column of things that the unit does not have."""
    return np.zeros(len(costs.duration_s))


_NONE: Any = attrs.Factory(_none, takes_self=True)


@attrs.frozen(eq=False, kw_only=True)
class Costs:
    """Cost of each row on its unit; arrays have shape (rows,) unless said.

    `duration_s` >= every entry of `limits_s`. Traffic counts bytes at the memory tier, by operand; `written_byte` is the
    part of it that is written. `buffer_*_byte` count bytes at the unit's SRAM block, `cell_write_byte` what is written into
    cells of the unit's own.
    """

    limits_s: Floats  # shape (rows, len(LIMITS))
    duration_s: Floats
    weight_traffic_byte: Floats
    kv_traffic_byte: Floats
    activation_traffic_byte: Floats
    written_byte: Floats
    buffer_read_byte: Floats
    buffer_write_byte: Floats
    mac: Floats  # done: an event-driven unit leaves out what is multiplied by zero
    vector_flop: Floats
    utilisation: Floats  # of the matrix units (or vector lanes) while the row runs, in [0, 1]
    events: Floats = _NONE  # columns converted (compute in memory), events delivered (neuromorphic)
    cell_write_byte: Floats = _NONE

    @property
    def memory_byte(self) -> Floats:
        """Bytes at the memory tier, shape (rows,)."""
        return self.weight_traffic_byte + self.kv_traffic_byte + self.activation_traffic_byte

    @property
    def bound(self) -> NDArray[np.intp]:
        """Index into `LIMITS` of the limit that binds, shape (rows,)."""
        return np.asarray(np.argmax(self.limits_s, axis=1))


FIELDS = tuple(field.name for field in attrs.fields(Costs))


def empty_costs(rows: int) -> Costs:
    """All-zero costs of `rows` rows, to be filled by `place`."""
    return Costs(**{name: np.zeros((rows, len(LIMITS)) if name == "limits_s" else rows) for name in FIELDS})


def place(into: Costs, index: NDArray[np.int64], part: Costs) -> None:
    """Write the costs `part` at the rows `index` of `into`."""
    for name in FIELDS:
        getattr(into, name)[index] = getattr(part, name)
