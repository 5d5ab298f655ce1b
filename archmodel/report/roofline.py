"""Figure: operations under the roofs of their units; how much work a byte of memory traffic brings, and how fast it goes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archmodel.costs import Floats
from archmodel.report.figure import COLOURS, legend, quantities, title
from archmodel.report.trace import Trace
from archmodel.units import si

_NUMBERED = 10
_ROOFS = 7  # with more of them, those that the run does not use are left out
_LINES = ("-", "--", "-.", ":")
_MARKERS = {"prefill": "o", "encode": "o", "decode": "s"}


class Point(NamedTuple):
    """An operation of a phase on a unit: FLOP per byte at the memory tier, achieved FLOP/s, share of the run's time."""

    name: str
    unit: str
    phase: str
    intensity: float
    flop_per_s: float
    share: float


def draw(figure: Figure, trace: Trace) -> None:
    """One roof for each unit and format, one marker for each operation, and the names of those that cost most."""
    figure.set_size_inches(11, 6.5)
    title(figure, trace, "roofline at the memory tier")
    axes = figure.subplots(gridspec_kw={"left": 0.09, "right": 0.7, "top": 0.9, "bottom": 0.09})
    found = points(trace)
    units = list(dict.fromkeys(trace.words("peaks", "unit")))
    colours = {unit: COLOURS[i % len(COLOURS)] for i, unit in enumerate(units)}
    low, high = _range(trace, found)
    _roofs(axes, trace, colours, low, high)
    for unit, phase in dict.fromkeys((point.unit, point.phase) for point in found):
        group = [point for point in found if (point.unit, point.phase) == (unit, phase)]
        axes.scatter([p.intensity for p in group], [p.flop_per_s for p in group], s=[30 + 500 * p.share for p in group],
                     color=colours[unit], alpha=0.75, marker=_MARKERS.get(phase, "D"), edgecolor="black", linewidth=0.5,
                     zorder=3)  # fmt: skip
    _numbers(axes, found[:_NUMBERED])
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    axes.minorticks_off()
    axes.set_xlabel("arithmetic intensity [FLOP or OP per byte at the memory tier]")
    axes.set_ylabel("achieved [FLOP/s or OP/s]")
    quantities(axes.yaxis, "")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(color="#e5e5e5", linewidth=0.6)
    _legends(axes, found, colours)


def points(trace: Trace) -> list[Point]:
    """Operations of the first step and of the representative decode step that touch memory, those that cost most first."""
    columns = ("step", "mac", "vector_flop", "duration_s", "runs")
    step, mac, vector, duration, runs = (trace.numbers("operations", column) for column in columns)
    byte = np.sum([trace.numbers("operations", f"{name}_traffic_byte") for name in ("weight", "kv", "activation")], axis=0)
    work = np.where(mac > 0, 2 * mac, vector)
    names, owners = trace.words("operations", "name"), trace.words("operations", "owner")
    labels, phases = trace.words("steps", "label"), trace.words("steps", "phase")
    shown = {labels.index(name.removeprefix("timeline/")) for name in trace.tables if name.startswith("timeline/")}
    by_phase = _phase_time(trace, runs * duration)
    out = []
    for i in np.flatnonzero((work > 0) & (byte > 0) & (duration > 0)):
        if int(step[i]) in shown:
            phase = phases[int(step[i])]
            share = by_phase[names[i], owners[i], phase]
            out.append(Point(names[i], owners[i], phase, work[i] / byte[i], work[i] / duration[i], share))
    return sorted(out, key=lambda point: -point.share)


def _phase_time(trace: Trace, seconds: Floats) -> dict[tuple[str, str, str], float]:
    """Share of the run's time of all rows with the same name, owner and phase: the samples of a decode are one operation."""
    phases = trace.words("steps", "phase")
    total: dict[tuple[str, str, str], float] = {}
    rows = zip(trace.words("operations", "name"), trace.words("operations", "owner"), trace.numbers("operations", "step"),
               seconds / float(trace.numbers("summary", "total_s")), strict=True)  # fmt: skip
    for name, owner, step, share in rows:
        key = (name, owner, phases[int(step)])
        total[key] = total.get(key, 0.0) + float(share)
    return total


def _range(trace: Trace, found: list[Point]) -> tuple[float, float]:
    """Intensities [FLOP/B] to show: all operations and the ridges of all roofs, with room beside them."""
    ridges = trace.numbers("peaks", "peak_flop_per_s") / trace.numbers("peaks", "memory_byte_per_s")
    values = np.array([*ridges, *(point.intensity for point in found)])
    return float(values.min()) / 4.0, float(values.max()) * 4.0


def _roofs(axes: Axes, trace: Trace, colours: dict[str, str], low: float, high: float) -> None:
    """Roofs of all units and formats (where they are many: of those that the run computes in), named in a legend: their lines
    may lie on top of each other."""
    peaks, speeds = trace.numbers("peaks", "peak_flop_per_s"), trace.numbers("peaks", "memory_byte_per_s")
    used = set(zip(trace.words("operations", "owner"), trace.words("operations", "compute_format"), strict=True))
    styles = {fmt: _LINES[i % len(_LINES)] for i, fmt in enumerate(dict.fromkeys(trace.words("peaks", "format")))}
    for unit, fmt, peak, speed in zip(trace.words("peaks", "unit"), trace.words("peaks", "format"), peaks, speeds, strict=True):
        if len(peaks) > _ROOFS and (unit, fmt) not in used:
            continue
        words = f"{unit} {fmt}: {si(peak, 'OP/s' if fmt.startswith('int') else 'FLOP/s')}, {si(speed, 'B/s')}"
        axes.plot([low, peak / speed, high], [low * speed, peak, peak], color=colours[unit], linestyle=styles[fmt],
                  linewidth=1.6, label=words)  # fmt: skip
    legend(axes, axes.get_lines(), "roof: peak and bandwidth", bbox_to_anchor=(1.01, 1.02))


def _numbers(axes: Axes, found: list[Point]) -> None:
    """Number the markers; those that lie on one spot share a label."""
    spots: dict[tuple[int, int], list[int]] = {}
    for number, point in enumerate(found):
        spot = (round(20 * np.log10(point.intensity)), round(20 * np.log10(point.flop_per_s)))
        spots.setdefault(spot, []).append(number)
    for (x, y), numbers in spots.items():
        point = found[numbers[0]]
        crowded = any(abs(other_x - x) <= 4 and 0 < other_y - y <= 6 for other_x, other_y in spots)
        axes.annotate(",".join(str(n + 1) for n in numbers), (point.intensity, point.flop_per_s),
                      xytext=(0, -9 if crowded else 9), textcoords="offset points", ha="center",
                      va="top" if crowded else "bottom", fontsize=8, fontweight="bold", zorder=4)  # fmt: skip


def _legends(axes: Axes, found: list[Point], colours: dict[str, str]) -> None:
    phases = list(dict.fromkeys(point.phase for point in found))
    marks = [*(("s", colour, unit) for unit, colour in colours.items()), *((_MARKERS.get(p, "D"), "white", p) for p in phases)]
    handles = [Line2D([], [], linestyle="", marker=marker, markersize=8, markerfacecolor=colour, markeredgecolor="black",
                      label=label) for marker, colour, label in marks]  # fmt: skip
    legend(axes, handles, "operations of", bbox_to_anchor=(1.01, 0.72), ncols=2)
    lines = [f"{i + 1:>2}  {p.name}, {p.unit}, {p.phase}: {100 * p.share:.1f}%" for i, p in enumerate(found[:_NUMBERED])]
    axes.text(1.03, 0.5, "share of the run's time", transform=axes.transAxes, va="bottom")
    axes.text(1.03, 0.48, "\n".join(lines), transform=axes.transAxes, va="top", linespacing=1.6, fontsize=8)
