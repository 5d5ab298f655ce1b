"""Figures drawn from a trace: `draw` picks one by name and saves it as PNG. Style shared by all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from archmodel.report.trace import Trace
from archmodel.units import si

_DPI = 110
_STYLE: Final[Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.5,
    "text.parse_math": False,  # names are the user's, and a "$" in one is no formula
}

#: distinguishable with any common colour blindness (Okabe and Ito, 2008)
BLUE, ORANGE, GREEN, RED, SKY, PINK, YELLOW, GREY, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#999999", "#000000",
)  # fmt: skip
COLOURS: Final[tuple[str, ...]] = (BLUE, ORANGE, GREEN, RED, SKY, PINK, YELLOW, GREY)


def draw(name: str, trace: Trace, path: Path, mark: str = "") -> None:
    """Draw the figure `name` (timeline, breakdown or roofline) of a trace and save it as PNG, which carries `mark`."""
    from archmodel.report import breakdown, gantt, roofline

    drawings: dict[str, Callable[[Figure, Trace], None]] = {
        "timeline": gantt.draw,
        "breakdown": breakdown.draw,
        "roofline": roofline.draw,
    }
    save(lambda figure: drawings[name](figure, trace), path, mark)


def save(drawing: Callable[[Figure], None], path: Path, mark: str = "") -> None:
    """Save as PNG what `drawing` puts on a figure, in the style of all of them; `mark` goes into its metadata."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
        figure = Figure(dpi=_DPI)
        FigureCanvasAgg(figure)
        drawing(figure)
        # packing harder costs more time than drawing
        figure.savefig(path, format="png", pil_kwargs={"compress_level": 2}, metadata={"Source": mark} if mark else None)


def title(figure: Figure, trace: Trace, text: str) -> None:
    """One line on top: what is shown, of which workload on which chip."""
    name = f"{trace.attributes['workload']} on {trace.attributes['chip']}"
    figure.text(0.012, 0.975, f"{name}: {text}", fontsize=11, fontweight="bold", va="top")


def margin(labels: Iterable[str], least: float) -> float:
    """Left edge of axes, as a share of an 11 inch figure, that leaves room for tick labels."""
    return max(least, 0.022 + 0.0068 * max(map(len, labels), default=0))


def quantities(axis: Any, unit: str) -> None:
    """Tick labels with decimal prefixes, such as 10 ms."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: si(value, unit)))


def boxes(axes: Axes, rectangles: Sequence[tuple[float, float, float, float]], **style: Any) -> None:
    """Rectangles (left, bottom, width, height) in one style. Limits of the axes are the caller's: a bar at a time with its
    own autoscaling takes most of the time of a figure."""
    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in rectangles]
    axes.add_collection(PolyCollection(corners, **style), autolim=False)


def swatches(axes: Axes, entries: Sequence[tuple[str, dict[str, Any]]], heading: str, **where: Any) -> None:
    """A legend of filled boxes; `entries` are labels with the properties of their boxes."""
    handles = [Patch(label=label, **style) for label, style in entries]
    legend(axes, handles, heading, handlelength=1.4, handleheight=0.9, **where)


def legend(axes: Axes, handles: Sequence[Artist], heading: str, **where: Any) -> None:
    """A further legend; `axes.legend` would replace the one before."""
    labels = [str(handle.get_label()) for handle in handles]
    axes.add_artist(Legend(axes, handles, labels, title=heading, alignment="left", loc="upper left", **where))
