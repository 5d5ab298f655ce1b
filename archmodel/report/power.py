"""Panels of the timeline figure: power of the blocks, and results that units keep, while the events above them run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from archmodel.report.figure import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, quantities
from archmodel.report.trace import Trace

_COLOURS = (ORANGE, BLUE, GREEN, SKY, PINK)  # of the blocks that take most, from the static power upwards
_STATIC = "static"
_REST = "other"


def colours(trace: Trace, timelines: Sequence[str]) -> dict[str, str]:
    """Colour of what the panels stack, from the bottom: static power, the blocks that take most energy, all others."""
    energy: dict[str, float] = {}
    for name in timelines:
        table = name.replace("timeline/", "power/")
        length = np.diff(trace.numbers(table, "start_s"))
        for column in trace.tables[table]:
            if column.endswith("_w") and column != f"{_STATIC}_w":
                block = column.removesuffix("_w")
                energy[block] = energy.get(block, 0.0) + float(trace.numbers(table, column)[:-1] @ length)
    most = [block for block, joule in sorted(energy.items(), key=lambda item: -item[1]) if joule > 0.0]
    found = {_STATIC: GREY, **dict(zip(most, _COLOURS, strict=False))}
    return {**found, _REST: RED} if len(most) > len(_COLOURS) else found


def panel(axes: Axes, trace: Trace, name: str, span: tuple[float, float, int], colour: dict[str, str]) -> None:
    """Stacked power by block over `span` (from, to [s], first layer) of a step."""
    low, high, _ = span
    start = trace.numbers(name, "start_s")
    inside = np.flatnonzero((start[1:] > low) & (start[:-1] < high))
    time = np.concatenate([np.maximum(start[inside], low), [high]]) - low
    blocks = {column.removesuffix("_w"): trace.numbers(name, column)[inside] for column in trace.tables[name]
              if column.endswith("_w")}  # fmt: skip
    rest = np.sum([watt for block, watt in blocks.items() if block not in colour], axis=0)
    below = np.zeros(len(time))
    for block, fill in colour.items():
        watt = blocks.get(block, rest)
        top = below + np.append(watt, watt[-1:])
        axes.fill_between(time, below, top, step="post", facecolor=fill, linewidth=0)
        below = top
    axes.set_xlim(0, high - low)
    axes.set_ylim(0, 1.08 * float(below.max()))
    quantities(axes.xaxis, "s")
    quantities(axes.yaxis, "W")
    axes.set_ylabel("power")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.tick_params(axis="x", labelbottom=False)


def kept_panel(axes: Axes, trace: Trace, name: str, span: tuple[float, float, int], colour: dict[str, str]) -> None:
    """Bytes of results that live with each unit over `span` (from, to [s], first layer) of a step."""
    low, high, first = span
    start = trace.numbers(name, "start_s")
    begin = max(0, int(np.searchsorted(start, low, side="right")) - 1)
    end = int(np.searchsorted(start, high, side="left"))
    time = np.append(np.maximum(start[begin:end], low), high) - low
    for column in trace.tables[name]:
        if column.endswith("_byte"):
            byte = trace.numbers(name, column)[begin:end]
            axes.step(time, np.append(byte, byte[-1:]), where="post", linewidth=1.2, color=colour.get(column[:-5], BLACK))
    axes.set_xlim(0, high - low)
    axes.set_ylim(bottom=0)
    quantities(axes.xaxis, "s")
    quantities(axes.yaxis, "B")
    axes.set_ylabel("kept")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_xlabel(f"time since the start of layer {first}")
