"""Predictions as CSV, as a table of errors for people, and as JSON."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
from rich.table import Table

from archmodel.accuracy import Accuracy, accuracies
from archmodel.predict import Prediction
from archmodel.report.files import write_whole


def added_columns(prediction: Prediction) -> dict[str, list[str]]:
    """What a prediction adds to the table: title -> cells."""
    columns = {
        "predicted_us": [f"{value:.7g}" for value in prediction.predicted_us.tolist()],
        "bound": list(prediction.bound),
        "unit": list(prediction.unit),
        "compute_format": list(prediction.compute_format),
    }
    if prediction.predicted_cycles is not None:
        columns["predicted_cycles"] = [str(cycles) for cycles in prediction.predicted_cycles.tolist()]
    if prediction.mapping_efficiency is not None:
        columns["mapping_efficiency"] = [repr(value) for value in prediction.mapping_efficiency.tolist()]
    return columns


def write_csv(prediction: Prediction, path: str | Path) -> None:
    """Write the table with its added columns, whole or not at all. A column that is there already gets the new values.

    Raises OutputError where the file cannot be written.
    """
    added = added_columns(prediction)
    table = prediction.operations.table
    kept = [index for index, title in enumerate(table.header) if title.lower() not in added]
    header = [table.header[index] for index in kept] + list(added)
    cells = zip(*added.values(), strict=True)
    if len(kept) == len(table.header):
        rows = ([*row, *new] for row, new in zip(table.rows, cells, strict=True))
    else:
        rows = ([*(row[index] for index in kept), *new] for row, new in zip(table.rows, cells, strict=True))

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    write_whole({Path(path): write})


def statistics_table(prediction: Prediction) -> Table | None:
    """Errors against measured times, overall and by regime; None where nothing is measured."""
    found = accuracies(prediction)
    if not found:
        return None
    table = Table(title=f"{prediction.chip}: predicted against measured time, {prediction.operations.table.file}")
    for title in ("operations", "", "n", "mean |error|", "median |error|", "p90 |error|", "bias"):
        table.add_column(title, justify="left" if title in ("operations", "") else "right")
    for before, entry in zip((None, *found), found, strict=False):
        new = before is None or before.regime != entry.regime
        if new and before is not None:
            table.add_section()
        table.add_row(f"by {entry.regime}" if new and before else entry.regime if new else "", entry.value, *_cells(entry))
    return table


def _cells(entry: Accuracy) -> list[str]:
    absolute = (
        entry.mean_absolute_error_fraction,
        entry.median_absolute_error_fraction,
        entry.p90_absolute_error_fraction,
    )
    return [f"{entry.n:,}", *(f"{100 * value:.1f} %" for value in absolute), f"{100 * entry.bias_fraction:+.1f} %"]


def statistics_json(prediction: Prediction) -> dict[str, Any]:
    """File, chip, counts by unit and bound, and the errors: `overall` (null where nothing is measured) and `regimes`."""
    found = [
        (entry, attrs.asdict(entry, filter=lambda field, _: field.name not in ("regime", "value")))
        for entry in accuracies(prediction)
    ]
    regimes: dict[str, dict[str, Any]] = {}
    for entry, numbers in found[1:]:
        regimes.setdefault(entry.regime, {})[entry.value] = numbers
    return {
        "file": prediction.operations.table.file,
        "chip": prediction.chip,
        "operation": prediction.operations.kind.name.lower(),
        "operations": len(prediction),
        "unit": dict(Counter(prediction.unit)),
        "bound": dict(Counter(prediction.bound)),
        "overall": found[0][1] if found else None,
        "regimes": regimes,
        "remarks": list(prediction.remarks),
    }
