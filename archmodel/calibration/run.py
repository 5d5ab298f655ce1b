"""Calibrate a chip: fit its constants stage by stage, and score it before and after on rows that no fit saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np

from archmodel.accuracy import Accuracy, accuracies
from archmodel.calibration.constants import STAGES, Constant, constants_of, value, with_values
from archmodel.calibration.energy import energy, gpu_of
from archmodel.calibration.fit import Fit, fit, ticks
from archmodel.calibration.measured import MeasuredTable, Sample, read_measured, sample
from archmodel.calibration.power import PowerFit, fit_power
from archmodel.errors import MappingError, TableError
from archmodel.holdout import FIT_SHARE, SEED
from archmodel.operations import Floats
from archmodel.predict import predict_operations
from archmodel.spec.chip import ChipSpec, GpuSpec

#: rows of a stage that a fit looks at, and its steps once a start is chosen
MOST_ROWS = 1500
STEPS = 25
#: a constant is told by the rows if 10% of it move them by this much on average
LEAST_EFFECT = 0.0005
#: a 90% range beyond this factor either way is a warning
LARGEST_SPREAD = 1.6

Progress = Callable[[str, int, int], None]  # stage, steps done, steps in all


@attrs.frozen(kw_only=True)
class FittedConstant:
    """A constant before and after; `low` and `high` hold it with 90% confidence, as far as families differ by chance."""

    key: str
    stage: str
    before: float
    after: float
    low: float
    high: float
    rows: int
    warning: str  # why it was not fitted, or what to know; "" where all is well

    @property
    def fitted(self) -> bool:
        return self.low > 0.0


@attrs.frozen(kw_only=True)
class Calibration:
    """A calibrated chip. `errors` pairs what `accuracy` finds before and after, on rows that no fit saw, per file."""

    chip: ChipSpec
    constants: tuple[FittedConstant, ...]
    errors: tuple[tuple[str, Accuracy, Accuracy], ...]
    files: tuple[str, ...]
    rows: int  # that the fits looked at
    families: int
    seed: int

    @property
    def values(self) -> dict[str, float | Mapping[str, float]]:
        """Fitted numbers by key, rounded as they are written; of a table by format the whole of it."""
        found: dict[str, float | Mapping[str, float]] = {}
        for constant in self.constants:
            if constant.fitted:
                block, name = constant.key.split(".")
                table = getattr(self.chip.blocks[block], name)
                found[constant.key] = dict(table) if isinstance(table, Mapping) else constant.after
        return found


def calibrate(chip: ChipSpec, paths: Sequence[str | Path], *, seed: int = SEED, share: float = FIT_SHARE,
              progress: Progress | None = None) -> Calibration:  # fmt: skip
    """Fit the constants of a chip's GPU that the measured tables at `paths` can tell.

    Args:
        chip: where the fit starts; what no row tells stays as it is.
        paths: CSV files of GEMMs or attention with latency_us, as `predict` reads them.
        seed: draws the families that the fit sees.
        share: of the families.
        progress: told after each step.

    Raises:
        TableError: a file that cannot be read, holds no measured times, or too few rows for a fit and a report.
        MappingError: a number format that no unit has.
    """
    if not any(isinstance(block, GpuSpec) for block in chip.blocks.values()):
        raise MappingError(f"{chip.name}: has no GPU; calibrate fits the constants of one")
    tables = [read_measured(path, seed, share) for path in paths]
    fitted, constants = chip, list[FittedConstant]()
    samples = {stage: sample(chip, tables, stage, MOST_ROWS, seed) for stage in STAGES}
    for stage, part in samples.items():
        if part is not None:
            fitted, found = _stage(fitted, stage, part, seed, progress or _silent)
            constants += found
    powers = fit_power(chip, fitted, tables, seed)
    if powers is not None:
        constants += _power_constants(fitted, powers)
        fitted = powers.chip
    if not constants:
        raise TableError(f"{', '.join(map(str, paths))}: no rows that tell a constant of {chip.name}")
    used = [part for part in samples.values() if part is not None]
    return Calibration(
        chip=fitted, constants=tuple(constants), errors=(*_errors(chip, fitted, tables), *(powers.errors if powers else ())),
        files=tuple(Path(path).name for path in paths), rows=sum(map(len, used)),
        families=sum(len(np.unique(part.family)) for part in used), seed=seed,
    )  # fmt: skip


def _silent(stage: str, done: int, total: int) -> None:
    """No progress."""


def _stage(chip: ChipSpec, stage: str, part: Sample, seed: int, progress: Progress) -> tuple[ChipSpec, list[FittedConstant]]:
    """The chip with the constants of one stage fitted; those that do not move the rows stay as they are."""
    spec = chip.blocks[part.unit]
    assert isinstance(spec, GpuSpec)
    constants = {constant.key(part.unit, spec): constant for constant in constants_of(stage)}
    done, total = 0, ticks(STEPS)

    def tick() -> None:
        nonlocal done
        done += 1
        progress(stage, done, total)

    found = _fit(chip, part, constants, seed, tick)
    progress(stage, total, total)
    values = {key: float(f"{np.exp(found.at[i]):.4g}") for i, key in enumerate(constants) if found.effect[i] >= LEAST_EFFECT}
    report = []
    for index, (key, constant) in enumerate(constants.items()):
        after = values.get(key, value(chip, key))
        spread = float(np.exp(min(1.645 * found.error[index], 100.0))) if key in values else np.inf
        report.append(
            FittedConstant(key=key, stage=stage, before=value(chip, key), after=after, low=after / spread, high=after * spread,
                           rows=len(part), warning=_warning(constant, after, spread))
        )  # fmt: skip
    return with_values(chip, values), report


def _power_constants(chip: ChipSpec, found: PowerFit) -> list[FittedConstant]:
    """The energies that measured power told; of the MACs that in bf16, the other formats move with it."""
    unit, _ = gpu_of(chip)
    report = []
    for index, (name, after) in enumerate(found.values.items()):
        told = found.fit.effect[index] >= LEAST_EFFECT
        spread = float(np.exp(min(1.645 * found.fit.error[index], 100.0))) if told else np.inf
        warning = f"is hardly told by these rows: a factor of {spread:.3g} either way fits nearly as well"
        report.append(
            FittedConstant(key=f"{unit}.{name}", stage="power", before=energy(chip, name), after=after, low=after / spread,
                           high=after * spread, rows=found.rows, warning=warning if spread > LARGEST_SPREAD else "")
        )  # fmt: skip
    return report


def _fit(chip: ChipSpec, part: Sample, constants: Mapping[str, Constant], seed: int, tick: Callable[[], None]) -> Fit:
    low, high = (np.log([getattr(constant, end) for constant in constants.values()]) for end in ("low", "high"))
    start = np.clip(np.log([max(value(chip, key), 1e-9) for key in constants]), low, high)

    def residuals(at: Floats) -> Floats:
        there = with_values(chip, dict(zip(constants, np.exp(at).tolist(), strict=True)))
        return np.asarray(np.log(part.predicted_us(there) / part.measured_us))

    return fit(residuals, part.family, start, low, high, seed=seed, steps=STEPS, tick=tick)


def _warning(constant: Constant, after: float, spread: float) -> str:
    """What to know of a fitted constant whose 90% range is a factor `spread` either way; "" where all is well."""
    if np.isinf(spread):
        return "cannot be told from these rows, whose times it hardly changes; left as it was"
    if spread > LARGEST_SPREAD:
        return f"is hardly told by these rows: a factor of {spread:.3g} either way fits nearly as well"
    if not constant.low * 1.001 < after < constant.high * 0.999:
        return "lies on its bound, so that other limits take the rest"
    return ""


def _errors(before: ChipSpec, after: ChipSpec, tables: Sequence[MeasuredTable]) -> tuple[tuple[str, Accuracy, Accuracy], ...]:
    found = []
    for table in tables:
        hidden = table.hidden
        scores = [
            {(a.regime, a.value): a for a in accuracies(predict_operations(chip, hidden)) if a.regime not in ("bound", "unit")}
            for chip in (before, after)
        ]
        found += [(Path(hidden.table.file).name, old, scores[1][key]) for key, old in scores[0].items()]
    return tuple(found)
