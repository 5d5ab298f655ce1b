"""What `eval` shows of short operations on a low-power unit, as a table and as a dict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from rich.console import RenderableType

from archmodel.light import Lightened
from archmodel.report.table import columns, heading
from archmodel.units import si


def tables(study: Lightened) -> Iterator[RenderableType]:
    """One line for each role that was tried, and the run with and without those taken."""
    rows = [[trial.role, si(trial.saved_j, "J"), si(trial.cost_s, "s"), "taken" if trial.taken else "left where it is"]
            for trial in study.trials]  # fmt: skip
    saved_j, cost_s = study.without.total_j - study.result.total_j, study.result.total_s - study.without.total_s
    yield heading(f"Short operations on {study.unit}, against the same run without")
    yield columns(["role", "saves", "costs", "<"], rows, ["all taken", si(saved_j, "J"), si(cost_s, "s"), ""])


def as_dict(study: Lightened) -> dict[str, Any]:
    """The numbers of `tables`."""
    return {
        "light": {
            "unit": study.unit,
            "saved_j": study.without.total_j - study.result.total_j,
            "cost_s": study.result.total_s - study.without.total_s,
            "roles": [attrs.asdict(trial) for trial in study.trials],
        }
    }
