"""Energy of operations alone, as a benchmark runs them: the events of `predict` x the energies of the blocks they pass."""

from __future__ import annotations

import attrs
import numpy as np

from archmodel.components import dvfs, link, memory, power
from archmodel.costs import Costs, Floats
from archmodel.operation_table import OperationTable, rows_of
from archmodel.operations import Ints, Kind, Rows
from archmodel.predict import assign, unit_costs
from archmodel.soc import Soc
from archmodel.units import FORMATS


@attrs.frozen(eq=False, kw_only=True)
class OperationEvents:
    """Counted events of operations on a unit. The arrays of `rows` and `costs` are of kernels, `owner` is their operation."""

    unit: str
    rows: Rows
    costs: Costs
    owner: Ints
    operations: int

    @property
    def predicted_s(self) -> Floats:
        """Predicted time, shape (operations,)."""
        return self._sum(self.costs.duration_s)

    def energy_j(self, soc: Soc) -> dict[str, Floats]:
        """Dynamic energy [J] of each operation by component, shape (operations,), with the energies of `soc`."""
        unit = soc.units[self.unit]
        factor = dvfs.energy_factors(soc.chip)
        own = power.unit_energy_j(unit, self.costs, self.rows)
        parts = {f"{self.unit}_{name}": value * factor[self.unit] for name, value in own.items()}
        memory_byte, read_byte = self.costs.memory_byte, self.costs.buffer_read_byte
        traffic = [
            (unit.memory, memory_byte - self.costs.written_byte, self.costs.written_byte),
            (unit.buffer, read_byte, self.costs.buffer_write_byte),
        ]
        for tier, read, written in traffic:
            parts[tier] = parts.get(tier, 0.0) + memory.energy_j(soc.tiers[tier], read, written) * factor[tier]
            for name in soc.route(self.unit, tier):
                parts[name] = parts.get(name, 0.0) + link.energy_j(soc.links[name], read + written) * factor[name]
        return {name: self._sum(value) for name, value in parts.items()}

    def _sum(self, value: Floats) -> Floats:
        return np.asarray(np.bincount(self.owner, value, self.operations), dtype=np.float64)


def operation_events(soc: Soc, operations: OperationTable) -> OperationEvents:
    """Events of operations that are repeated as a benchmark does, all on one unit.

    Of attention it is the attention kernel alone, without the one before it that rotates and appends to the cache.
    Raises MappingError where no unit has their formats, or where they need several units.
    """
    owners = assign(soc, operations)
    formats = np.array([FORMATS.index(name) for _, name in owners])[operations.dtype]
    rows, owner = rows_of(operations, np.arange(len(operations)), formats)
    if operations.kind == Kind.ATTENTION:
        kernels = np.flatnonzero(rows.kind == Kind.ATTENTION)
        rows, owner = rows.take(kernels), owner[kernels]
    unit = owners[0][0]
    return OperationEvents(
        unit=unit, rows=rows, owner=owner, operations=len(operations), costs=unit_costs(soc, unit, rows, owner)
    )
