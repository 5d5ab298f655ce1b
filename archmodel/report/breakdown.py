"""Figure: where the time of each phase and the energy of each block go."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archmodel.report.figure import (
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    YELLOW,
    boxes,
    margin,
    swatches,
    title,
)
from archmodel.report.trace import Trace
from archmodel.spec.system import member_of
from archmodel.units import si

_HATCHES = ("", "", "", "", "//", "//", "//", "//", "..", "..", "..", "..")
_NARROW = 0.045  # of the bar: below it a share is not written into its box
_ENERGY = {"mac": BLUE, "active": BLACK, "conversion": PINK, "event": RED, "cell_write": YELLOW, "vector": SKY,
           "operand": GREEN, "dynamic": ORANGE, "static": GREY}  # fmt: skip
_ENERGY_WORDS = {
    "mac": "multiply-accumulate",
    "active": "clocks and issue of matrix units",
    "conversion": "converters of compute in memory",
    "event": "events",
    "cell_write": "writing weights into cells",
    "vector": "vector operations",
    "operand": "operands from SRAM to lanes",
    "dynamic": "moving data, commands",
    "static": "static (leakage, clocks, refresh)",
}


def draw(figure: Figure, trace: Trace) -> None:
    """Stacked bars: segments of each phase in percent, and energy of each block by cause."""
    figure.set_size_inches(11, 7)
    title(figure, trace, "where time and energy go")
    blocks = _blocks(trace)
    phases = [f"{phase}_s" for phase in dict.fromkeys(trace.words("steps", "phase"))]
    phases = [*phases, "total_s"] if len(phases) > 1 else phases
    heights = [len(phases) + 1.5, len(blocks) + 1.5]
    time, energy = figure.subplots(
        2,
        1,
        height_ratios=heights,
        gridspec_kw={"left": margin(blocks, 0.11), "right": 0.76, "top": 0.88, "bottom": 0.08, "hspace": 0.3},
    )
    _time(time, trace, phases)
    _energy(energy, blocks)


def _time(axes: Axes, trace: Trace, phases: list[str]) -> None:
    names = trace.words("segments", "segment")
    values = np.array([trace.numbers("segments", phase) for phase in phases])
    shares = values / values.sum(axis=1, keepdims=True)
    left = np.zeros(len(phases))
    entries = []
    for i, name in enumerate(names):
        if not values[:, i].any():
            continue
        style = {"facecolor": COLOURS[i % len(COLOURS)], "hatch": _HATCHES[i % len(_HATCHES)], "edgecolor": "white"}
        boxes(axes, [(100 * left[row], row - 0.32, 100 * share, 0.64) for row, share in enumerate(shares[:, i])], **style)
        for row, share in enumerate(shares[:, i]):
            if share > _NARROW:
                axes.text(100 * (left[row] + share / 2), row, f"{100 * share:.0f}%", ha="center", va="center", color="black",
                          bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.5})  # fmt: skip
        left += shares[:, i]
        unit = name.removeprefix("compute_")
        entries.append((f"compute {unit}" if unit != name else name.replace("_", " "), style))
    axes.set_yticks(range(len(phases)), [f"{name.removesuffix('_s')}\n{si(value, 's')}" for name, value in
                                        zip(phases, values.sum(axis=1), strict=True)])  # fmt: skip
    axes.set(xlim=(0, 100), ylim=(len(phases) - 0.5, -0.5))
    axes.set_xlabel("share of the time of the phase [%]")
    axes.set_title("Time by segment")
    swatches(axes, entries, "segment", bbox_to_anchor=(1.02, 1.1))


def _blocks(trace: Trace) -> dict[str, dict[str, float]]:
    """Energy [J] of each block by cause, blocks that take none left out, most first."""
    owners = trace.tables["operations"]["owner"].names  # type: ignore[union-attr]
    known = {*owners, *trace.words("tiers_and_links", "name")}
    wholes = {f"{member_of(name)}.chip" for name in known if member_of(name)}
    names = sorted({*known, *wholes, "chip"}, key=len, reverse=True)
    blocks: dict[str, dict[str, float]] = {}
    for component, joule in zip(trace.words("energy", "component"), trace.numbers("energy", "energy_j"), strict=True):
        block = next((n for n in names if component == n or component.startswith(f"{n}_")), component)
        cause = component.removeprefix(block).removeprefix("_") or "dynamic"
        if joule > 0.0:
            blocks.setdefault(block, {})[cause] = float(joule)
    return dict(sorted(blocks.items(), key=lambda item: -sum(item[1].values())))


def _energy(axes: Axes, blocks: dict[str, dict[str, float]]) -> None:
    total = sum(sum(parts.values()) for parts in blocks.values())
    bars: dict[str, list[tuple[float, float, float, float]]] = {cause: [] for cause in _ENERGY}
    for row, parts in enumerate(blocks.values()):
        left = 0.0
        for cause in _ENERGY:
            share = 100 * parts.get(cause, 0.0) / total
            bars[cause].append((left, row - 0.32, share, 0.64))
            left += share
        axes.text(left, row, f"  {si(sum(parts.values()), 'J')}, {left:.1f}%", va="center")
    axes.set_yticks(range(len(blocks)), list(blocks))
    for cause, spans in bars.items():
        boxes(axes, spans, facecolor=_ENERGY[cause], edgecolor="white")
    largest = max(sum(parts.values()) for parts in blocks.values()) / total
    axes.set(xlim=(0, 120 * largest), ylim=(len(blocks) - 0.5, -0.5))
    axes.set_xlabel("share of the energy of the run [%]")
    axes.set_title(f"Energy by block, {si(total, 'J')} in all (chip: what no block owns)")
    used = [cause for cause in _ENERGY if any(cause in parts for parts in blocks.values())]
    swatches(axes, [(_ENERGY_WORDS[c], {"facecolor": _ENERGY[c]}) for c in used], "spent on",
             bbox_to_anchor=(1.02, 1.0))  # fmt: skip
