"""Figure: dead zones of a split, as heat maps of its gain over two numbers at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from archmodel.report.figure import BLACK, GREY, save
from archmodel.report.files import file_name, write_whole
from archmodel.report.splitting import plan_name
from archmodel.splitting.dead_zones import Zones, dead_zones
from archmodel.splitting.knobs import Knob
from archmodel.splitting.study import Study
from archmodel.units import si, unit_of

_COLOURS = "RdBu"  # red loses, blue gains: told apart with any common colour blindness
_NAMES = {"batch": "sequences", "input_tokens": "prompt tokens"}
_LARGEST = 1.0  # gain at which the colours end


def write_zones(study: Study, folder: Path) -> list[Path]:
    """Write `<system>--<workload>.zones.png`. Raises OutputError where the folder cannot be written."""
    path = folder / f"{file_name(study.chip.name)}--{file_name(study.workload.name)}.zones.png"
    found = list(dead_zones(study.rivals))
    write_whole({path: lambda part: save(lambda figure: _draw(figure, study, found), part)})
    return [path]


def _draw(figure: Figure, study: Study, found: list[Zones]) -> None:
    figure.set_size_inches(6.2 * len(found), 5.4)
    margins = {"left": 0.12 / len(found) + 0.01, "right": 0.98, "top": 0.8, "bottom": 0.15, "wspace": 0.3}
    panels = figure.subplots(1, len(found), squeeze=False, gridspec_kw=margins)[0]
    figure.text(0.012, 0.975, f"{study.workload.name} on {study.chip.name}: gain over {study.baseline.name} [%]", fontsize=11,
                fontweight="bold", va="top")  # fmt: skip
    figure.text(0.012, 0.925, plan_name(study.best), fontsize=8.5, va="top")
    legend = f"hatched: below the {100 * study.terms.min_gain:g} % asked for; grey: does not fit; box: as it is"
    figure.text(0.012, 0.885, legend, fontsize=8.5, va="top", color="#555555")
    for axes, zones in zip(panels, found, strict=True):
        _panel(axes, zones, study.terms.min_gain)


def _panel(axes: Axes, zones: Zones, min_gain: float) -> None:
    limit = float(np.clip(np.nanmax(np.abs(zones.gain), initial=0.1), 0.1, _LARGEST))
    axes.set_facecolor(GREY)
    axes.imshow(zones.gain, cmap=_COLOURS, norm=TwoSlopeNorm(0.0, -limit, limit), origin="lower", aspect="auto")
    for (y, x), value in np.ndenumerate(zones.gain):
        if np.isnan(value):
            continue
        if value < min_gain:
            cell = Rectangle((x - 0.5, y - 0.5), 1.0, 1.0, fill=False, hatch="////", edgecolor="#00000055", linewidth=0)
            axes.add_patch(cell)
        shade: Any = "white" if abs(value) > 0.6 * limit else BLACK
        axes.text(x, y, f"{100 * value:+.0f}", ha="center", va="center", fontsize=8, color=shade)
    _now(axes, zones)
    axes.set_xticks(range(len(zones.x_values)), [_tick(zones.x, value) for value in zones.x_values], rotation=30)
    axes.set_yticks(range(len(zones.y_values)), [_tick(zones.y, value) for value in zones.y_values])
    axes.set_xlabel(_name(zones.x))
    axes.set_ylabel(_name(zones.y))


def _now(axes: Axes, zones: Zones) -> None:
    """A box around the cell next to the present values."""
    x, y = (int(np.argmin(np.abs(np.log(np.array(values) / max(knob.now, values[0])))))
            for knob, values in ((zones.x, zones.x_values), (zones.y, zones.y_values)))  # fmt: skip
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1.0, 1.0, fill=False, edgecolor=BLACK, linewidth=2))


def _name(knob: Knob) -> str:
    for suffix, word in (("_byte_per_s", "bandwidth"), ("_latency_s", "latency")):
        if knob.name.endswith(suffix):
            return f"{word} of {knob.name.removesuffix(suffix)}"
    return _NAMES[knob.name]


def _tick(knob: Knob, value: float) -> str:
    return f"{value:,.0f}" if knob.whole else si(value, unit_of(knob.name), 2)
