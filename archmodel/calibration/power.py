"""The energies of a GPU from tables of measured operations with a column power_w: the mean power while each one repeats."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.accuracy import Accuracy, accuracy_of
from archmodel.calibration.energy import Design, design, fitted_energies, with_energies
from archmodel.calibration.fit import Fit, Floats
from archmodel.calibration.measured import MeasuredTable
from archmodel.errors import TableError
from archmodel.operation_power import operation_events
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec
from archmodel.table_file import Problems, Rule, numbers

COLUMN = "power_w"
#: energies that operations alone can tell: they never stop, so that static power and what a running kernel adds go together
NAMES = ("active_power_w", "mac_energy_pj")
_POWER = Rule("must be a number above 0 and at most 100,000", lambda v: (v > 0) & (v <= 1e5), empty=True)


@attrs.frozen(eq=False, kw_only=True)
class PowerFit:
    """Energies found, and what is left on rows that the fit never saw, per table: file, before, after."""

    chip: ChipSpec
    values: dict[str, float]
    fit: Fit
    rows: int
    errors: tuple[tuple[str, Accuracy, Accuracy], ...]


@attrs.frozen(eq=False)
class _Powers:
    """Rows of one table with a measured time and power."""

    file: str
    rows: Design
    power_w: Floats
    family: NDArray[np.int64]
    seen: NDArray[np.bool_]


def fit_power(before: ChipSpec, chip: ChipSpec, tables: Sequence[MeasuredTable], seed: int) -> PowerFit | None:
    """Fit the energies of `chip` to the seen rows of the tables that have powers, each table with as much weight; None without.

    Raises TableError for a cell that is no power.
    """
    measured = [part for table in tables if (part := _powers(chip, table)) is not None]
    if not measured:
        return None
    rng = np.random.default_rng(seed)
    most = min(int(part.seen.sum()) for part in measured)
    drawn = [np.sort(rng.permutation(np.flatnonzero(part.seen))[:most]) for part in measured]
    rows = Design(
        NAMES, np.concatenate([part.rows.columns[index] for part, index in zip(measured, drawn, strict=True)]),
        np.concatenate([part.rows.fixed_w[index] for part, index in zip(measured, drawn, strict=True)]), chip.power.limit_w,
    )  # fmt: skip
    power_w = np.concatenate([part.power_w[index] for part, index in zip(measured, drawn, strict=True)])
    family = np.concatenate([1_000_000 * i + part.family[drawn[i]] for i, part in enumerate(measured)])
    values, fit = fitted_energies(chip, rows, power_w, family, seed=seed)
    after = with_energies(chip, values)
    errors = []
    for part, table in zip(measured, [table for table in tables if table.operations.table.index(COLUMN) >= 0], strict=True):
        old, new = (_hidden(there, table, part) for there in (before, after))
        errors.append((part.file, old, new))
    return PowerFit(chip=after, values=values, fit=fit, rows=len(power_w), errors=tuple(errors))


def _powers(chip: ChipSpec, table: MeasuredTable) -> _Powers | None:
    operations = table.operations
    if operations.table.index(COLUMN) < 0:
        return None
    problems = Problems(str(operations.table.file))
    power_w = numbers(operations.table, COLUMN, _POWER, problems)
    problems.check()
    time_s = np.asarray(operations.measured_us) * 1e-6
    known = (power_w > 0) & (time_s > 0)
    if not np.any(known & table.seen) or not np.any(known & ~table.seen):
        raise TableError(f"{operations.table.file}: needs rows with {COLUMN} on both sides of the split")
    rows = _design(chip, table, np.where(known, time_s, 1.0), NAMES)
    return _Powers(str(operations.table.file), rows, np.where(known, power_w, np.nan), table.family, known & table.seen)


def _design(chip: ChipSpec, table: MeasuredTable, time_s: Floats, names: tuple[str, ...]) -> Design:
    events = operation_events(Soc(chip), table.operations)
    zero = np.zeros(len(table.operations))
    return design(chip, names, lambda there: sum(events.energy_j(Soc(there)).values(), zero), time_s)


def _hidden(chip: ChipSpec, table: MeasuredTable, part: _Powers) -> Accuracy:
    """Errors of the power that `chip` predicts for rows that no fit saw."""
    rows = ~table.seen & (part.power_w > 0)
    time_s = np.where(rows, np.asarray(table.operations.measured_us) * 1e-6, 1.0)
    power_w = _design(chip, table, time_s, ()).power_w(np.empty(0))
    return accuracy_of("power", "", (power_w / part.power_w - 1.0)[rows])
