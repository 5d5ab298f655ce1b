"""What `eval` shows of a power cap and of the search for the least energy, as tables and as a dict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from archmodel.clocks import Capped, Point, Sweep
from archmodel.components import dvfs
from archmodel.report.table import columns, heading
from archmodel.result import Result
from archmodel.units import si


def tables(study: Capped | Sweep) -> Iterator[RenderableType]:
    """The tables of a study, after those of its result."""
    yield from _capped(study) if isinstance(study, Capped) else _sweep(study)


def as_dict(study: Capped | Sweep) -> dict[str, Any]:
    """The numbers of `tables`; names end in their unit."""
    if isinstance(study, Capped):
        phases = {
            phase: {
                "clock_factor": study.factor[phase],
                "blocks": _blocks(study.result, phase),
                "power_w": study.result.phase_power_w(phase),
                "uncapped_power_w": study.free.phase_power_w(phase),
                "duration_s": study.result.phase_s(phase),
                "uncapped_duration_s": study.free.phase_s(phase),
            }
            for phase in study.result.phases
        }
        lost_s = study.result.total_s - study.free.total_s
        return {"power_cap": {"cap_w": study.cap_w, "phases": phases, "lost_s": lost_s}}
    found = {"best": _point(study.best), "period_s": study.period_s, "idle_power_w": study.idle_power_w}
    return {"least_energy": {**found, "curve": [_point(point) for point in study.points]}}


def operating_points(result: Result, phase: str) -> dict[str, tuple[float, float]]:
    """Clock [GHz] and voltage [V] by block in a phase, of the blocks that have voltage points."""
    step = next(step for step in result.steps if step.step.phase == phase)
    return dvfs.operating_points(step.soc.chip)


def _blocks(result: Result, phase: str) -> dict[str, dict[str, float]]:
    return {name: {"clock_ghz": clock, "voltage_v": volt} for name, (clock, volt) in operating_points(result, phase).items()}


def _point(point: Point) -> dict[str, Any]:
    return {
        "clock_factor": point.factor,
        "blocks": _blocks(point.result, point.result.phases[0]),
        "total_s": point.result.total_s,
        "power_w": point.result.power_w,
        "total_j": point.total_j,
        "joules_per_token": point.joules_per_token,
        "missed": point.wrong or None,
    }


def _clocks(result: Result, phase: str) -> str:
    return ", ".join(f"{name} {clock:.4g} GHz {volt:.3f} V" for name, (clock, volt) in operating_points(result, phase).items())


def _capped(study: Capped) -> Iterator[RenderableType]:
    rows = []
    for phase in study.result.phases:
        now_s, free_s = study.result.phase_s(phase), study.free.phase_s(phase)
        free_w, now_w = study.free.phase_power_w(phase), study.result.phase_power_w(phase)
        rows.append([phase, si(free_w, "W"), si(now_w, "W"), si(free_s, "s"), si(now_s, "s"),
                     f"{100.0 * (now_s / free_s - 1.0):.1f} %", _clocks(study.result, phase)])  # fmt: skip
    of = " of each chip" if study.result.chips > 1 else ""
    yield heading(f"Power cap of {study.cap_w:g} W{of}: chip and memory, mean of each phase")
    yield columns(["phase", "free", "capped", "free", "capped", "slower", "<sustained clocks"], rows)
    lost_s = study.result.total_s - study.free.total_s
    more = study.result.total_j / study.free.total_j - 1.0
    energy = f"{100.0 * abs(more):.1f} % {'more' if more > 0.0 else 'less'} energy"
    yield Text(f"The cap costs {si(lost_s, 's')} on top of {si(study.free.total_s, 's')}, and the run takes {energy}.",
               style="dim")  # fmt: skip


def _sweep(study: Sweep) -> Iterator[RenderableType]:
    shown = sorted({*study.points, study.best}, key=lambda point: point.factor)
    idles = study.period_s is not None
    rows = []
    for point in shown:
        phase = point.result.phases[0]
        first_clock, first_volt = next(iter(operating_points(point.result, phase).values()))
        verdict = "least" if point is study.best else point.wrong and "misses a limit"
        rows.append([f"{first_clock:.4g} GHz", f"{first_volt:.3f} V", si(point.result.total_s, "s"),
                     si(point.result.power_w, "W"), si(point.joules_per_token, "J"), verdict])  # fmt: skip
    name = next(iter(operating_points(study.result, study.result.phases[0])))
    per_token = "J/token with idle" if idles else "J/token"
    yield heading("Least energy within the limits, one factor on all clocks")
    yield columns([name, "voltage", "total time", "mean power", per_token, "<"], rows)
    yield Text(f"At the least: {_clocks(study.result, study.result.phases[0])}.", style="dim")
    if idles:
        yield Text(_race(study), style="dim")


def _race(study: Sweep) -> str:
    kept = [point for point in study.points if not point.wrong]
    slow, fast = kept[0], kept[-1]
    return (
        f"Every {si(study.period_s or 0.0, 's')} one run, idle at {si(study.idle_power_w, 'W')} between them: racing to idle "
        f"takes {si(fast.joules_per_token, 'J')} a token, the slowest that keeps up {si(slow.joules_per_token, 'J')}, "
        f"the least {si(study.best.joules_per_token, 'J')}."
    )
