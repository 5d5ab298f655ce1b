"""Figures of the report on accuracy: measured against predicted time, and error by size of the operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from archmodel.report.figure import BLUE, GREEN, GREY, ORANGE, PINK, RED, quantities, save
from archmodel.report.names import name_of
from archmodel.validation.points import DEVICES, OPERATIONS, REGIMES, Points
from archmodel.validation.scores import fair, of_label, ranges, regimes

_COLOURS = dict(zip(DEVICES, (ORANGE, BLUE, GREEN, RED, PINK), strict=True))
_MOST_POINTS = 700  # of one device in one panel: more only hide each other
_COLUMNS = 4


def draw_scatter(all_points: Sequence[Points], path: Path) -> None:
    """One panel for each operation: predicted over measured time of rows that no fit has seen, with lines of 20% error."""

    def panel(axes: Axes, what: str) -> None:
        own = [points for points in all_points if points.what == what and fair(points).any()]
        for points in own:
            rows = np.flatnonzero(fair(points) & of_label(points, ""))
            rows = rows[:: max(1, len(rows) // _MOST_POINTS)]
            seconds = points.measured_us[rows] * 1e-6, points.predicted_us[rows] * 1e-6
            axes.scatter(*seconds, s=3, alpha=0.5, linewidths=0, color=_COLOURS.get(points.device, GREY))
        times = np.concatenate([points.measured_us[fair(points)] for points in own]) * 1e-6
        ends = np.array([times.min() / 1.5, times.max() * 1.5])
        axes.plot(ends, ends, color="black", lw=0.8)
        for factor in (0.8, 1.2):
            axes.plot(ends, factor * ends, color=GREY, lw=0.6, ls="--")
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured", title=OPERATIONS[what])
        axes.set_ylabel("predicted")
        quantities(axes.xaxis, "s")
        quantities(axes.yaxis, "s")

    heading = "Predicted against measured time of operations that no fit has seen; dashed: 20% off"
    _panels([what for what in OPERATIONS if any(p.what == what and fair(p).any() for p in all_points)], panel, heading, path)


def draw_regimes(all_points: Sequence[Points], path: Path) -> None:
    """One panel for each operation: median error of each device by size, bf16 where there are several formats."""

    def panel(axes: Axes, what: str) -> None:
        own = [points for points in all_points if points.what == what and fair(points).any()]
        _, edges, title = REGIMES[what]
        names = ranges(edges)
        width = 0.8 / len(own)
        for number, points in enumerate(own):
            found = dict(regimes(points, _label(points)))
            heights = [found[name].median if name in found else 0.0 for name in names]
            places = np.arange(len(names)) + (number - (len(own) - 1) / 2) * width
            axes.bar(places, heights, width, color=_COLOURS.get(points.device, GREY))
        axes.set_xticks(range(len(names)), names)
        axes.set(xlabel=title, ylabel="median |error| [%]", title=f"{OPERATIONS[what]}{_formats(own)}")
        axes.grid(axis="y", lw=0.4)

    heading = "Median error by size of the operation, on shapes that no fit has seen"
    _panels([what for what in OPERATIONS if any(p.what == what and fair(p).any() for p in all_points)], panel, heading, path)


def _label(points: Points) -> str:
    return "bf16" if "bf16" in points.label.tolist() else ""


def _formats(own: Sequence[Points]) -> str:
    return ", bf16" if any(_label(points) for points in own) else ""


def _panels(operations: Sequence[str], panel: Callable[[Axes, str], None], heading: str, path: Path) -> None:
    rows = -(-len(operations) // _COLUMNS)

    def draw(figure: Figure) -> None:
        height = 0.7 + 3.7 * rows
        figure.set_size_inches(16.0, height)
        grid = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
        for axes in grid[len(operations) :]:
            axes.remove()
        for axes, what in zip(grid, operations, strict=False):
            panel(axes, what)
        handles = [Patch(color=colour, label=name_of(device)) for device, colour in _COLOURS.items()]
        figure.legend(handles=handles, ncols=len(handles), loc="upper right")
        figure.suptitle(heading, x=0.012, ha="left", fontsize=11, fontweight="bold")
        figure.tight_layout(rect=(0.0, 0.0, 1.0, 1.0 - 0.2 / height))

    save(draw, path)
