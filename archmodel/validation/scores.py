"""Errors of predictions on families that no fit has seen, by device, operation and format, and the bars to meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from archmodel.operations import Floats
from archmodel.validation.points import DEVICES, GROUPED, OPERATIONS, REGIMES, STACK, Flags, Points

#: largest (median, mean) of the absolute error [%] by operation and format, for each of DEVICES; a mean of 0 is no bar
BARS: dict[tuple[str, str], tuple[tuple[float, float], ...]] = {
    ("gemm", "bf16"): ((4.5, 6.5), (3.5, 5.5), (4.0, 6.0), (5.0, 7.5), (6.0, 10.0)),
    ("gemm", "fp8"): ((6.0, 9.0), (4.5, 7.0), (4.5, 7.0), (5.0, 8.0), (7.0, 11.0)),
    ("attn_context", "bf16"): ((8.0, 12.0), (8.0, 12.0), (8.0, 12.0), (8.0, 12.0), (10.0, 15.0)),
    ("attn_generation", "bf16"): ((10.0, 15.0), (8.0, 13.0), (8.0, 13.0), (8.0, 13.0), (12.0, 20.0)),
    ("moe", ""): ((18.0, 0.0),) * 5,
    ("collectives", ""): ((15.0, 0.0),) * 4,  # NVLink, so not on L40S
}
#: format that stands for fp8 where a device has none
INSTEAD = {("a100_sxm", "fp8"): "sq"}
#: collectives are scored from this message [B] on: below it a call is all start-up
SMALLEST_MESSAGE = 65536


@attrs.frozen
class Score:
    """Absolute errors [%] of `n` rows, their signed mean, and what the plain roofline makes of the same rows."""

    what: str
    device: str
    label: str
    n: int
    median: float
    mean: float
    p90: float
    signed: float
    roofline_median: float
    roofline_mean: float
    bar: tuple[float, float] | None = None

    @property
    def met(self) -> bool | None:
        """Whether it is within its bar; None where there is none."""
        if self.bar is None:
            return None
        median, mean = self.bar
        return self.median <= median and (mean == 0.0 or self.mean <= mean)


def score(points: Points, label: str, rows: Flags, bar: tuple[float, float] | None = None) -> Score | None:
    """Errors of the rows that a mask selects; None where it selects none."""
    if not np.any(rows):
        return None
    error = 100.0 * points.error[rows]
    roof = 100.0 * np.abs(points.roofline_us[rows] / points.measured_us[rows] - 1.0)
    size = np.abs(error)
    return Score(
        points.what, points.device, label, len(error), *_statistics(size), float(np.mean(error)),
        float(np.median(roof)), float(np.mean(roof)), bar,
    )  # fmt: skip


def _statistics(size: Floats) -> tuple[float, float, float]:
    return float(np.median(size)), float(np.mean(size)), float(np.quantile(size, 0.9))


def fair(points: Points) -> Flags:
    """Rows that the main tables score: unseen, not served from the cache, and for collectives not small."""
    large = points.size >= SMALLEST_MESSAGE if points.what == "collectives" else np.ones(len(points), dtype=bool)
    return points.report & ~points.beyond & large


def scores(points: Points) -> list[Score]:
    """One score for each label of a table, the reference library's first, then by number of rows."""
    rows = fair(points)
    names, counts = np.unique(points.label[rows], return_counts=True)
    order = sorted(zip(names.tolist(), counts.tolist(), strict=True), key=lambda pair: ("(" in pair[0], -pair[1], pair[0]))
    found = (score(points, name, rows & (points.label == name), _bar(points, name)) for name, _ in order)
    return [entry for entry in found if entry is not None]


def summary(all_points: Iterable[Points]) -> list[Score]:
    """Scores against the bars: one for each operation and format that has a bar, on each device."""
    found = []
    for points in all_points:
        for what, name in BARS:
            if what != points.what or points.device not in DEVICES:
                continue
            label = INSTEAD.get((points.device, name), name)
            rows = fair(points) & (of_label(points, label))
            found.append(score(points, label, rows, bar_of(what, name, points.device)))
    return [entry for entry in found if entry is not None]


def of_label(points: Points, label: str) -> Flags:
    """Rows of a label, doubtful ones too; "" is all rows of operations that were measured as a serving library runs them."""
    names = points.label.tolist()
    return np.array([name in (label, f"{label} {GROUPED}") if label else "eager" not in name for name in names], dtype=bool)


def bar_of(what: str, name: str, device: str) -> tuple[float, float] | None:
    """The bar of an operation and format on a device."""
    bars = BARS.get((what, name), ())
    index = DEVICES.index(device) if device in DEVICES else len(bars)
    return bars[index] if index < len(bars) else None


def _bar(points: Points, label: str) -> tuple[float, float] | None:
    names = [name for name in ("bf16", "fp8") if INSTEAD.get((points.device, name), name) == label]
    return bar_of(points.what, names[0], points.device) if names else None


def cached(points: Points) -> tuple[Score | None, Score | None]:
    """Errors of unseen rows that beat the memory's peak: those whose data fit into the cache, and those whose do not."""
    rows = points.report & points.beyond
    return (
        score(points, "in the cache", rows & points.resident),
        score(points, "larger than the cache", rows & ~points.resident),
    )


def regimes(points: Points, label: str) -> list[tuple[str, Score]]:
    """Errors of a label's unseen rows by size, small to large: the range and the score."""
    _, edges, _ = REGIMES[points.what]
    rows = points.report & ~points.beyond & of_label(points, label)
    index = np.searchsorted(edges, points.size)
    found = []
    for number, name in enumerate(ranges(edges)):
        entry = score(points, label, rows & (index == number))
        if entry is not None:
            found.append((name, entry))
    return found


def ranges(edges: Sequence[float]) -> list[str]:
    """Names of the ranges between edges, such as `<= 16`, `<= 128`, `> 128`."""
    return [f"≤ {_short(edge)}" for edge in edges] + [f"> {_short(edges[-1])}"]


def _short(value: float) -> str:
    """1024 -> 1 Ki, 16 -> 16."""
    value = value + 1 if value % 2 and value > 1 else value  # 65535 is the last size below 64 Ki
    for unit, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if value >= factor and value % factor == 0:
            return f"{value / factor:.0f} {unit}"
    return f"{value:.0f}"


@attrs.frozen
class Noise:
    """How far two serving libraries are apart on the same GEMM, GPU and format [%]."""

    device: str
    label: str
    n: int
    median: float
    p90: float


def noise(points: Points) -> Noise | None:
    """Difference between the rows of STACK and those of another library; None where only one was measured."""
    if points.what != "gemm":
        return None
    shape = np.stack([np.array(points.table.texts(column), dtype=np.float64) for column in ("m", "n", "k")], axis=1)
    dtype, stack = points.table.texts("dtype"), points.table.texts("framework")
    times: dict[tuple[object, ...], dict[str, float]] = {}
    for key, name, library, time in zip(shape.tolist(), dtype, stack, points.measured_us.tolist(), strict=True):
        times.setdefault((*key, name), {})[library] = time
    both = [entry for entry in times.values() if len(entry) > 1 and STACK in entry]
    if not both:
        return None
    size = np.array([100.0 * abs(next(t for s, t in entry.items() if s != STACK) / entry[STACK] - 1.0) for entry in both])
    return Noise(points.device, "bf16", len(size), float(np.median(size)), float(np.quantile(size, 0.9)))


assert {what for what, _ in BARS} <= set(OPERATIONS)
