"""The energies of a device that measured power can tell.

Power is linear in them: each is worth its events a second, so that a fit is a small regression on counted events, up to the
power limit (`components.power.held_power_w`). What is told apart is little: events of a kernel go together. The energy of the
path from memory, in particular, is told by a kernel that does little else, and is given here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.calibration.fit import Fit, Floats, fit
from archmodel.components.power import held_power_w, static_power_w
from archmodel.spec.chip import ChipSpec, GpuSpec, LinkSpec

#: energies that rows of measured operations or runs may tell, with their largest value
LARGEST: Mapping[str, float] = {
    "static_power_w": 1000.0,
    "active_power_w": 1000.0,
    "mac_energy_pj": 20.0,  # in bf16; other formats keep their ratio to it
    "operand_energy_pj_per_bit": 20.0,
    "vector_energy_pj_per_flop": 50.0,
    "sampling_energy_mj_per_token": 500.0,
    "path_energy_pj_per_bit": 50.0,
}
_LEAST = 1e-3  # of the largest
_STEPS = 25

#: dynamic energy [J] and time [s] of each row under the energies of a chip
EnergyOf = Callable[[ChipSpec], Floats]


@attrs.frozen(eq=False)
class Design:
    """Measured rows as a linear model of power: fixed_w + columns @ numbers, shape (rows,), held below the limit."""

    names: tuple[str, ...]  # of LARGEST
    columns: Floats  # (rows, names): W of each number at 1
    fixed_w: Floats  # (rows,): what the numbers that are not fitted take
    limit_w: float

    def power_w(self, numbers: Floats) -> Floats:
        """Mean power [W] with the given numbers, shape (rows,)."""
        return held_power_w(self.fixed_w + self.columns @ numbers, self.limit_w)

    def take(self, rows: NDArray[np.bool_]) -> Design:
        """The rows that a mask selects."""
        return attrs.evolve(self, columns=self.columns[rows], fixed_w=self.fixed_w[rows])


def gpu_of(chip: ChipSpec) -> tuple[str, GpuSpec]:
    """Name and numbers of the chip's first GPU."""
    return next((name, block) for name, block in chip.blocks.items() if isinstance(block, GpuSpec))


def energy(chip: ChipSpec, name: str) -> float:
    """An energy of LARGEST as the chip has it; of static power and of the path the whole."""
    _, gpu = gpu_of(chip)
    match name:
        case "static_power_w":
            return static_w(chip)
        case "path_energy_pj_per_bit":
            return sum(getattr(chip.blocks[block], "energy_pj_per_bit", 0.0) for block in _path(chip))
        case "mac_energy_pj":
            return gpu.mac_energy_pj["bf16"]
        case "sampling_energy_mj_per_token":
            return chip.software.sampling_energy_mj_per_token
        case _:
            return float(getattr(gpu, name))


def with_energies(chip: ChipSpec, values: Mapping[str, float]) -> ChipSpec:
    """The chip with energies of LARGEST replaced. MACs of all formats move together; the path's link takes its change."""
    for name, value in values.items():
        unit, gpu = gpu_of(chip)
        changes: dict[str, Any]
        if name == "sampling_energy_mj_per_token":
            chip = attrs.evolve(chip, software=attrs.evolve(chip.software, sampling_energy_mj_per_token=value))
            continue
        match name:
            case "static_power_w":
                block, changes = unit, {name: gpu.static_power_w + value - static_w(chip)}
            case "path_energy_pj_per_bit":
                *_, block = _path(chip)
                changes = {"energy_pj_per_bit": chip.blocks[block].energy_pj_per_bit + value - energy(chip, name)}  # type: ignore[union-attr]
            case "mac_energy_pj":
                share = value / gpu.mac_energy_pj["bf16"]
                block, changes = unit, {name: {key: pj * share for key, pj in gpu.mac_energy_pj.items()}}
            case _:
                block, changes = unit, {name: value}
        spec: Any = chip.blocks[block]
        chip = attrs.evolve(chip, blocks={**chip.blocks, block: attrs.evolve(spec, **changes)})
    return chip


def static_w(chip: ChipSpec) -> float:
    """Static power [W] of all blocks of a chip and of the chip as a whole."""
    return sum(static_power_w(chip.blocks, chip.power).values())


def _path(chip: ChipSpec) -> list[str]:
    """The GPU's memory and the links that join the two."""
    unit, gpu = gpu_of(chip)
    links = [
        name for name, block in chip.blocks.items() if isinstance(block, LinkSpec) and set(block.joins) == {unit, gpu.memory}
    ]
    return [gpu.memory, *links]


def design(chip: ChipSpec, names: Sequence[str], energy_j: EnergyOf, time_s: Floats) -> Design:
    """The linear model of rows that take `time_s` [s], whose dynamic energy [J] under a chip's energies is `energy_j`."""
    static = static_w(chip)
    base_j = energy_j(chip)
    fixed_w = base_j / time_s + static
    columns = np.empty((len(time_s), len(names)))
    for j, name in enumerate(names):
        now = energy(chip, name)
        if name == "static_power_w":
            columns[:, j] = 1.0
        else:
            step = max(now, 0.1)
            columns[:, j] = (energy_j(with_energies(chip, {name: now + step})) - base_j) / (step * time_s)
        fixed_w = fixed_w - columns[:, j] * now
    return Design(tuple(names), columns, np.maximum(fixed_w, 0.0), chip.power.limit_w)


def fitted_energies(
    start: ChipSpec, rows: Design, power_w: Floats, family: NDArray[np.int64], *, seed: int
) -> tuple[dict[str, float], Fit]:
    """Energies by name that make the power of the rows that of `power_w` [W], shape (rows,); robust, none below zero."""
    high = np.log([LARGEST[name] for name in rows.names])
    low = high + np.log(_LEAST)
    at = np.clip(np.log([max(energy(start, name), 1e-9) for name in rows.names]), low, high)

    def residuals(numbers: Floats) -> Floats:
        return np.asarray(np.log(rows.power_w(np.exp(numbers)) / power_w))

    found = fit(residuals, family, at, low, high, seed=seed, steps=_STEPS, tick=lambda: None)
    return {name: float(f"{value:.4g}") for name, value in zip(rows.names, np.exp(found.at), strict=True)}, found
