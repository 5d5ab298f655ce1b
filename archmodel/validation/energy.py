"""Predicted energy and power against measured ones: kernels, serving runs, a roofline, servers at the wall, a chip on paper.

Power of serving runs is predicted with constants that are fitted here on the OTHER models: every model is unseen. Kernels, the
roofline and the wall are predicted with the constants of the chip files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.calibration.energy import energy, fitted_energies, with_energies
from archmodel.holdout import SEED
from archmodel.operations import Floats
from archmodel.spec.chip import ChipSpec
from archmodel.spec.toml import load_chip
from archmodel.validation.energy_kernels import KernelPower, kernel_power, roofline_power
from archmodel.validation.energy_runs import ServedRun, runs_design, served_runs
from archmodel.validation.energy_wall import CardRun, WallRun, card_runs, wall_runs

Flags = NDArray[np.bool_]

#: what the power of serving runs tells of a device; the static power of H100 is that of H200 at its roofline, the same die
TOLD = {
    "h100_sxm": ("active_power_w", "mac_energy_pj", "sampling_energy_mj_per_token"),
    "b200_sxm": ("static_power_w", "active_power_w", "mac_energy_pj"),
}

#: (device fitted, device predicted)
TRANSFER = ("h100_sxm", "b200_sxm")


@attrs.frozen
class EnergyScore:
    """Absolute errors [%] of `n` rows, their signed mean, what a constant (the mean of the rows) gives, and bars."""

    what: str
    device: str
    n: int
    mean: float
    median: float
    p90: float
    signed: float
    constant: float
    bar: float | None = None
    p90_bar: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether it is within its bars; None where there is none."""
        if self.bar is None:
            return None
        return self.mean <= self.bar and (self.p90_bar is None or self.p90 <= self.p90_bar)


@attrs.frozen(eq=False, kw_only=True)
class RunPower:
    """Serving runs of one device with what is predicted for them, each model by constants of the others. Shape (runs,)."""

    device: str
    runs: tuple[ServedRun, ...]
    power_w: Floats  # at the measured throughput
    end_to_end_w: Floats  # at the predicted throughput

    @property
    def measured_w(self) -> Floats:
        return np.array([run.measured_w for run in self.runs])

    @property
    def dense(self) -> Flags:
        return np.array([run.dense for run in self.runs])

    @property
    def measured_j_per_token(self) -> Floats:
        return np.array([run.measured_w * run.gpus / run.tokens_per_s for run in self.runs])

    @property
    def predicted_j_per_token(self) -> Floats:
        """With predicted time and predicted power."""
        group = np.array([run.gpus / run.predicted_tokens_per_s for run in self.runs])
        return np.asarray(self.end_to_end_w * group)


@attrs.frozen(eq=False, kw_only=True)
class EnergyValidation:
    """Everything that the report on energy says."""

    kernels: tuple[KernelPower, ...]
    runs: tuple[RunPower, ...]
    constants: dict[str, dict[str, float]]  # device -> those fitted on all dense models
    transferred_w: Floats  # the dense runs of TRANSFER's second device, with constants of the first
    roofline: tuple[tuple[str, Floats, Floats], ...]  # device, measured [W], predicted [W]
    wall: tuple[WallRun, ...]
    cards: tuple[CardRun, ...]


def validate_energy(root: Path) -> EnergyValidation:
    """Predict every measured energy of a clone; parts without a table are empty."""
    chips = root / "chips"
    runs = list(served_runs(root))
    found, constants = [], {}
    for device in TOLD:
        own = [run for run in runs if run.device == device]
        if own:
            power, constants[device] = _unseen(load_chip(chips / f"{device}.toml"), device, own)
            found.append(power)
    return EnergyValidation(
        kernels=tuple(kernel_power(root)), runs=tuple(found), constants=constants,
        transferred_w=_transferred(chips, constants, runs), roofline=tuple(roofline_power(root)),
        wall=tuple(wall_runs(root)), cards=tuple(card_runs(root)),
    )  # fmt: skip


def _unseen(chip: ChipSpec, device: str, runs: Sequence[ServedRun]) -> tuple[RunPower, dict[str, float]]:
    """Power of each run by constants fitted on the dense runs of other models, and the constants of all dense runs."""
    chip = attrs.evolve(chip, software=runs[0].chip.software)
    names = TOLD[device]
    now, then = (runs_design(chip, names, runs, predicted=predicted) for predicted in (False, True))
    measured_w = np.array([run.measured_w for run in runs])
    models = np.array([run.model for run in runs])
    dense = np.array([run.dense for run in runs])
    family = np.unique(models, return_inverse=True)[1]
    power_w, end_to_end_w = np.empty(len(runs)), np.empty(len(runs))

    def numbers(rows: Flags) -> dict[str, float]:
        return fitted_energies(chip, now.take(rows), measured_w[rows], family[rows], seed=SEED)[0]

    everything = numbers(dense)
    for model in np.unique(models):
        own = models == model
        told = numbers(dense & ~own) if np.any(dense & own) else everything
        values = np.array([told[name] for name in names])
        power_w[own] = now.power_w(values)[own]
        end_to_end_w[own] = then.power_w(values)[own]
    return RunPower(device=device, runs=tuple(runs), power_w=power_w, end_to_end_w=end_to_end_w), everything


def _transferred(chips: Path, constants: dict[str, dict[str, float]], runs: Sequence[ServedRun]) -> Floats:
    """Dense runs of a device that lends its data sheet only.

    Energies a MAC and a bit are those fitted on the other, whose process is the same 4 nm; static and active power go with
    the power limits.
    """
    own = [run for run in runs if run.device == TRANSFER[1] and run.dense]
    if TRANSFER[0] not in constants or not own:
        return np.empty(0)
    donor = with_energies(load_chip(chips / f"{TRANSFER[0]}.toml"), constants[TRANSFER[0]])
    chip = load_chip(chips / f"{TRANSFER[1]}.toml")
    ratio = chip.power.limit_w / donor.power.limit_w
    values = {name: energy(donor, name) for name in ("mac_energy_pj", "path_energy_pj_per_bit", "operand_energy_pj_per_bit")}
    values |= {name: ratio * energy(donor, name) for name in ("static_power_w", "active_power_w")}
    there = with_energies(chip, values)
    return runs_design(there, (), own).power_w(np.empty(0))


def energy_score(what: str, device: str, predicted: Floats, measured: Floats, bar: float | None = None,
                 p90_bar: float | None = None, power: bool = True) -> EnergyScore:  # fmt: skip
    """Errors of predictions of positive quantities, shape (rows,); a constant is scored where they are `power`s."""
    error = 100.0 * (predicted / measured - 1.0)
    size = np.abs(error)
    constant = float(np.mean(np.abs(np.mean(measured) / measured - 1.0)) * 100.0) if power else float("nan")
    return EnergyScore(
        what, device, len(size), float(np.mean(size)), float(np.median(size)), float(np.quantile(size, 0.9)),
        float(np.mean(error)), constant, bar, p90_bar,
    )  # fmt: skip


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's coefficient of two arrays without ties worth counting."""
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def energy_scores(found: EnergyValidation) -> Iterator[EnergyScore]:
    """All scores that have a bar, in the order of the report."""
    for kernels in found.kernels:
        rows = kernels.report
        yield energy_score(
            f"{kernels.title}, energy at the measured time", kernels.device, kernels.power_w[rows], kernels.measured_w[rows],
            kernels.bar,
        )  # fmt: skip
    for runs in found.runs:
        yield energy_score(
            "serving, power at the measured rate", runs.device, runs.power_w[runs.dense], runs.measured_w[runs.dense], 6.0
        )
    dense = [runs for runs in found.runs if np.any(runs.dense)]
    if dense:
        predicted, measured = joules(dense)
        yield energy_score("serving, J per token end to end", "", predicted, measured, 12.0, 25.0, False)
    if len(found.transferred_w):
        target = next(runs for runs in found.runs if runs.device == TRANSFER[1])
        yield energy_score(
            "serving, power with constants of H100", TRANSFER[1], found.transferred_w, target.measured_w[target.dense], 15.0
        )
    for device, measured_w, predicted_w in found.roofline:
        yield energy_score("roofline kernel, power", device, predicted_w, measured_w, 3.0)
    if found.wall:
        predicted, measured = (np.array([getattr(run, name) for run in found.wall]) for name in ("predicted_w", "measured_w"))
        yield energy_score("server at the wall, tokens/J", "", measured / predicted, np.ones(len(measured)), 10.0, power=False)
    for card in found.cards:
        yield energy_score(
            "chip on paper, power", card.device, np.array([card.predicted_w]), np.array([card.measured_w]), 25.0, power=False
        )


def joules(dense: Sequence[RunPower]) -> tuple[Floats, Floats]:
    """Predicted and measured joules per token of dense runs of all devices."""
    return (
        np.concatenate([runs.predicted_j_per_token[runs.dense] for runs in dense]),
        np.concatenate([runs.measured_j_per_token[runs.dense] for runs in dense]),
    )
