"""Figure: which resource does what when, for a few layers of each simulated phase, and what the units wait for."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archmodel.report import power
from archmodel.report.figure import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, YELLOW, boxes, swatches, title
from archmodel.report.trace import Trace
from archmodel.units import si

_LAYERS = 2
_LETTER = 0.0068  # of the axis: a bar that is wide enough carries the name of its operation
_VISIBLE = 0.002  # of the axis: a bar that is not has an edge in its own colour
_RUNS = {
    "attention": BLUE,
    "projection": SKY,
    "feed_forward": GREEN,
    "other computing": GREY,
    "layout_conversion": PINK,
    "transfer": ORANGE,
    "synchronisation": RED,
    "host": YELLOW,
}
_WAITS = {
    "none": GREY,
    "compute": GREEN,
    "transfer": ORANGE,
    "layout_conversion": PINK,
    "synchronisation": RED,
    "dispatch": BLACK,
    "host": YELLOW,
}
_WAIT_WORDS = {"none": "nothing", "compute": "another unit", "dispatch": "its command"}

Bars = dict[tuple[str, bool], list[tuple[float, float, float, float]]]  # kind, wide enough to see -> rectangles


def draw(figure: Figure, trace: Trace) -> None:
    """Three panels for each timeline of the trace. Bars are events, thin bars below them the gaps of units by cause; areas are
    the power of blocks at the time, stacked; lines the results that are kept with each unit."""
    shown = [name for name in trace.tables if name.startswith("timeline/")]
    shown.sort(key=lambda name: "decode" in name)
    figure.set_size_inches(11, 1.9 + 4.5 * len(shown))
    title(figure, trace, "timeline by resource, power, and results kept")
    height = figure.get_size_inches()[1]
    halves = figure.add_gridspec(len(shown), 1, left=0.1, right=0.985, top=1 - 0.75 / height, bottom=1.75 / height, hspace=0.3)
    runs: set[str] = set()
    waits: set[str] = set()
    colours = power.colours(trace, shown)
    for number, name in enumerate(shown):
        grid = halves[number].subgridspec(3, 1, height_ratios=(2.4, 0.9, 0.5), hspace=0.08)
        upper = figure.add_subplot(grid[0])
        middle, last = (figure.add_subplot(grid[row], sharex=upper) for row in (1, 2))
        span = _panel(upper, trace, name, runs, waits)
        power.panel(middle, trace, name.replace("timeline/", "power/"), span, colours)
        power.kept_panel(last, trace, name.replace("timeline/", "kept/"), span, colours)
    below = -1.2
    entries = [(key.replace("_", " "), {"facecolor": colour}) for key, colour in _RUNS.items() if key in runs]
    swatches(last, entries, "runs", bbox_to_anchor=(-0.06, below), ncols=(len(entries) + 1) // 2)
    entries = [(_WAIT_WORDS.get(key, key.replace("_", " ")), _gap_style(key)) for key in _WAITS if key in waits]
    swatches(last, entries, "unit idle, waiting for", bbox_to_anchor=(0.56, below), ncols=3)
    entries = [(key, {"facecolor": colour}) for key, colour in colours.items()]
    swatches(last, entries, "power of, and kept with", bbox_to_anchor=(-0.06, below - 1.3), ncols=len(entries))


def _gap_style(cause: str) -> dict[str, Any]:
    return {"facecolor": _WAITS[cause], "alpha": 0.6, "hatch": "////", "edgecolor": "white"}


def _panel(axes: Axes, trace: Trace, name: str, runs: set[str], idle: set[str]) -> tuple[float, float, int]:
    """Draw one timeline; the span [s] of the step that it shows, and the first layer in it."""
    start, end, layer = (trace.numbers(name, column) for column in ("start_s", "end_s", "layer"))
    low, high, first, last = _window(start, end, layer)
    inside = np.flatnonzero((end > low) & (start < high))
    resource = trace.words(name, "resource")
    lanes = [lane for lane in trace.tables[name]["resource"].names if any(resource[i] == lane for i in inside)]  # type: ignore[union-attr]
    kinds, row = _kinds(trace, name), trace.numbers(name, "row").astype(int)
    labels = trace.words("operations", "name")
    bars: Bars = {}
    for event in inside:
        left, width = _clip(start[event], end[event], low, high)
        y, label = lanes.index(resource[event]), labels[row[event]]
        bars.setdefault((kinds[event], width > _VISIBLE * (high - low)), []).append((left, y - 0.36, width, 0.52))
        if width > _LETTER * len(label) * (high - low):
            axes.text(left + width / 2, y - 0.1, label, ha="center", va="center", fontsize=7.5)
    for (kind, wide), spans in bars.items():
        runs.add(kind)
        boxes(axes, spans, facecolor=_RUNS[kind], linewidth=0.4 if wide else 0.8, edgecolor="white" if wide else _RUNS[kind])
    _waits(axes, trace, name.replace("timeline/", "waits/"), lanes, (low, high), idle)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.set_xlim(0, high - low)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    layers = f"layer {first}" if first == last else f"layers {first} and {last}"
    axes.set_title(f"{name.removeprefix('timeline/')}: {layers} of {int(layer.max())}, {si(high - low, 's')} "
                   f"of {si(float(end.max()), 's')}")  # fmt: skip
    axes.tick_params(axis="x", labelbottom=False)
    return low, high, first


def _waits(axes: Axes, trace: Trace, name: str, lanes: list[str], span: tuple[float, float], idle: set[str]) -> None:
    low, high = span
    start, end = trace.numbers(name, "start_s"), trace.numbers(name, "end_s")
    resource, causes = trace.words(name, "resource"), trace.words(name, "cause")
    bars: Bars = {}
    for i in np.flatnonzero((end > low) & (start < high)):
        if resource[i] in lanes:
            left, width = _clip(start[i], end[i], low, high)
            bars.setdefault((causes[i], True), []).append((left, lanes.index(resource[i]) + 0.2, width, 0.2))
    for (cause, _), spans in bars.items():
        idle.add(cause)
        boxes(axes, spans, linewidth=0, **_gap_style(cause))


def _clip(start: float, end: float, low: float, high: float) -> tuple[float, float]:
    """Left edge and width of an interval inside a span, relative to the span."""
    left = max(start, low)
    return left - low, min(end, high) - left


def _window(start: Any, end: Any, layer: Any) -> tuple[float, float, int, int]:
    """Span [s] of a few layers in the middle of a step, and the first and last of them."""
    first = max(0, (int(layer.max()) - _LAYERS) // 2)
    last = min(first + _LAYERS - 1, max(int(layer.max()) - 1, 0))
    chosen = (layer >= first) & (layer <= last)
    if not chosen.any():
        chosen[:] = True
    return float(start[chosen].min()), float(end[chosen].max()), first, last


def _kinds(trace: Trace, name: str) -> list[str]:
    """Key into `_RUNS` of each event."""
    roles = trace.words("operations", "role")
    out = []
    for row, kind in zip(trace.numbers(name, "row").astype(int), trace.words(name, "event_class"), strict=True):
        computing = roles[row] if roles[row] in _RUNS else "other computing"
        out.append(computing if kind == "compute" else kind)
    return out
