"""What `eval` looks for beside the run itself: clocks under a cap, clocks of least energy, work for a low-power unit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType

from archmodel.clocks import Capped, Sweep, capped, least_energy
from archmodel.light import Lightened, lightened
from archmodel.report import clocks, light
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import WorkloadSpec

Study = Capped | Sweep | Lightened


def studied(
    chip: ChipSpec, workload: WorkloadSpec, *, cap_w: float | None, min_energy: bool, period_s: float | None, every_token: bool
) -> Study | None:
    """The study that was asked for, one at most: the least energy, a power cap, or a low-power unit in the placement."""
    if min_energy:
        return least_energy(chip, workload, cap_w=cap_w, period_s=period_s, every_token=every_token)
    if cap_w is not None:
        return capped(chip, workload, cap_w, every_token=every_token)
    unit = workload.placement.get("light_unit", chip.placement.light_unit)
    return lightened(chip, workload, every_token=every_token) if unit else None


def tables(study: Study) -> Iterable[RenderableType]:
    """The tables of a study, after those of its result."""
    return light.tables(study) if isinstance(study, Lightened) else clocks.tables(study)


def as_dict(study: Study) -> dict[str, Any]:
    """The numbers of `tables`."""
    return light.as_dict(study) if isinstance(study, Lightened) else clocks.as_dict(study)
