"""Measured operations, ready to be predicted again and again with other constants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel import holdout
from archmodel.calibration.constants import STAGES
from archmodel.dtypes import DTYPES
from archmodel.errors import TableError
from archmodel.operation_table import OperationTable, read_operations, rows_of
from archmodel.operations import NUMERIC, Floats, Ints, Kind, Rows
from archmodel.predict import assign, unit_costs
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec, GpuSpec
from archmodel.units import FORMATS

Mask = NDArray[np.bool_]

#: fewest rows and families on each side of the split
LEAST_ROWS, LEAST_FAMILIES = 20, 2


@attrs.frozen(eq=False)
class MeasuredTable:
    """A table of measured operations: what each row tells, its family, and whether the fit may see it. Shape (rows,)."""

    operations: OperationTable
    stage: Ints  # index into STAGES
    family: Ints
    seen: Mask

    @property
    def hidden(self) -> OperationTable:
        """The table with the measured times of the rows that the fit saw left out."""
        measured_us = np.asarray(self.operations.measured_us)
        return attrs.evolve(self.operations, measured_us=np.where(self.seen, np.nan, measured_us))


@attrs.frozen(eq=False)
class Sample:
    """Operations of one stage on one unit; all arrays but those of `rows` have shape (operations,)."""

    unit: str
    rows: Rows
    owner: Ints  # operation of each of `rows`
    measured_us: Floats
    family: Ints

    def __len__(self) -> int:
        return len(self.measured_us)

    def predicted_us(self, chip: ChipSpec) -> Floats:
        """Times with the constants of `chip`."""
        costs = unit_costs(Soc(chip), self.unit, self.rows, self.owner)
        return np.asarray(np.bincount(self.owner, costs.duration_s, len(self)) * 1e6, dtype=np.float64)


def read_measured(path: str | Path, seed: int, share: float) -> MeasuredTable:
    """A table of GEMMs or attentions with the column latency_us. Raises TableError."""
    operations = read_operations(path)
    what = {Kind.MATMUL: "gemm", Kind.ATTENTION: "attention"}.get(operations.kind)
    if what is None or not set(holdout.FAMILY[what]) <= set(operations.size):
        raise TableError(f"{path}: calibrate takes tables of GEMMs and of attention")
    if operations.measured_us is None or not np.any(operations.measured_us > 0):
        raise TableError(f"{path}: has no measured times; calibrate needs the column latency_us")
    seen = holdout.fit_mask(what, operations.size, seed=seed, share=share)
    keys = np.stack([operations.size[name] for name in holdout.FAMILY[what]], axis=1)
    family = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    for name, side in (("fit", seen), ("report", ~seen)):
        measured = side & (operations.measured_us > 0)
        families = len(np.unique(family[measured]))
        if measured.sum() < LEAST_ROWS or families < LEAST_FAMILIES:
            raise TableError(
                f"{path}: {measured.sum()} measured rows of {families} families ({', '.join(holdout.FAMILY[what])}) are left "
                f"for the {name}; each side of the split needs {LEAST_ROWS} rows of {LEAST_FAMILIES} families"
            )
    return MeasuredTable(operations, _stages(operations), family, seen)


def _stages(operations: OperationTable) -> Ints:
    """What each row tells, index into STAGES, shape (rows,)."""
    if operations.kind == Kind.ATTENTION:
        names = np.where(operations.size["seq_q"] > 1, "context attention", "generation attention")
        return np.array([STAGES.index(name) for name in names.tolist()])
    of_dtype = [STAGES.index(_stage_of(name)) for (name,) in operations.dtypes]
    return np.array(of_dtype)[operations.dtype]


def _stage_of(dtype: str) -> str:
    meaning = DTYPES[dtype]
    if meaning.before:
        return "quantised matmul"
    return "weight-only matmul" if meaning.b_byte < meaning.a_byte else "matmul"


def sample(chip: ChipSpec, tables: Sequence[MeasuredTable], stage: str, most: int, seed: int) -> Sample | None:
    """At most `most` rows of a stage that the fit may see, drawn by `seed`; None where there are too few.

    Raises TableError where another unit than a GPU runs them.
    """
    wanted = [
        np.flatnonzero(table.seen & (table.stage == STAGES.index(stage)) & (np.asarray(table.operations.measured_us) > 0))
        for table in tables
    ]
    size = sum(map(len, wanted))
    if size < LEAST_ROWS:
        return None
    chosen = np.zeros(size, dtype=bool)
    chosen[np.random.default_rng(seed).permutation(size)[:most]] = True
    masks = np.split(chosen, np.cumsum([len(index) for index in wanted])[:-1])
    soc = Soc(chip)
    parts = [
        _of_table(soc, table, index[mask], stage)
        for table, index, mask in zip(tables, wanted, masks, strict=True)
        if mask.any()
    ]
    if len({part.unit for part in parts}) > 1:
        raise TableError(f"{stage} runs on {' and '.join(sorted({p.unit for p in parts}))}; calibrate fits one GPU")
    firsts = np.cumsum([0, *(len(part) for part in parts)])
    families = np.cumsum([0, *(int(part.family.max()) + 1 for part in parts)])
    columns = {name: np.concatenate([getattr(part.rows, name) for part in parts]) for name in NUMERIC}
    return Sample(
        unit=parts[0].unit,
        rows=Rows(name=tuple(name for part in parts for name in part.rows.name), **columns),
        owner=np.concatenate([part.owner + first for part, first in zip(parts, firsts, strict=False)]),
        measured_us=np.concatenate([part.measured_us for part in parts]),
        family=np.concatenate([part.family + first for part, first in zip(parts, families, strict=False)]),
    )


def _of_table(soc: Soc, table: MeasuredTable, index: Ints, stage: str) -> Sample:
    """The rows `index` of one table."""
    operations = table.operations
    owners = assign(soc, operations)
    ways = [owners[code] for code in operations.dtype[index].tolist()]
    unit = ways[0][0]
    if not isinstance(soc.units[unit], GpuSpec) or any(name != unit for name, _ in ways):
        raise TableError(f"{operations.table.file}: {stage} runs on {unit}; calibrate fits the constants of one GPU")
    rows, owner = rows_of(operations, index, np.array([FORMATS.index(name) for _, name in ways]))
    measured_us = np.asarray(operations.measured_us)[index]
    return Sample(unit, rows, np.searchsorted(index, owner), measured_us, table.family[index])
