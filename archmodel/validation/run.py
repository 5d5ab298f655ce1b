"""Everything that the report on accuracy says, as one value."""

from __future__ import annotations

from pathlib import Path

import attrs

from archmodel.validation.energy import EnergyValidation, validate_energy
from archmodel.validation.hetero import Hetero
from archmodel.validation.hetero import hetero as measured_splits
from archmodel.validation.llmcompass import PeerPoints, layers, peer_points
from archmodel.validation.points import Points, Skipped, predicted
from archmodel.validation.scores import Noise, Score, noise, summary
from archmodel.validation.serving import Serving, serving_runs
from archmodel.validation.transfer import left_out


@attrs.frozen(eq=False, kw_only=True)
class Validation:
    """Measured rows with their predictions and the scores of them."""

    points: tuple[Points, ...]
    skipped: tuple[Skipped, ...]
    summary: tuple[Score, ...]  # what has a bar
    noise: tuple[Noise, ...]
    left_out: dict[tuple[str, str], Score]  # (device, donor of its constants); empty where not asked for
    peers: tuple[PeerPoints, ...]  # LLMCompass's own points
    layers: tuple[PeerPoints, ...]  # and its GPT-3 layer
    serving: tuple[Serving, ...]  # empty where not asked for
    energy: EnergyValidation | None  # None where not asked for
    hetero: Hetero  # splits that somebody measured; empty where not asked for
    findings: str  # what a person wrote beside the tables, in markdown


def validate(
    root: Path, *, transfer: bool = True, serving: bool = True, energy: bool = True, hetero: bool = True
) -> Validation:
    """Predict and score every measured table of a clone of the repository.

    Args:
        root: folder with `data/validation` (measured tables), `chips` (a file for each device), `stacks` and `workloads`.
        transfer: whether to predict each device with the constants of the others too.
        serving: whether to predict whole serving runs too.
        energy: whether to predict measured energy and power too.
        hetero: whether to predict splits over unlike hardware too.

    Raises:
        TableError: a folder without tables, or a table that is none.
    """
    data, chips, stacks = root / "data/validation", root / "chips", root / "stacks"
    found = tuple(predicted(data, chips))
    points = tuple(entry for entry in found if isinstance(entry, Points))
    return Validation(
        points=points,
        skipped=tuple(entry for entry in found if isinstance(entry, Skipped)),
        summary=tuple(summary(points)),
        noise=tuple(entry for entry in map(noise, points) if entry is not None),
        left_out=left_out(data, chips) if transfer else {},
        peers=tuple(peer_points(data, chips, stacks)),
        layers=tuple(layers(data, chips, stacks)),
        serving=tuple(serving_runs(root)) if serving else (),
        energy=validate_energy(root) if energy else None,
        hetero=measured_splits(root) if hetero else Hetero(),
        findings=_findings(data / "findings.md"),
    )


def _findings(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
