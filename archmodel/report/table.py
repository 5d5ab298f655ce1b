"""What `eval` prints for a person: tables of a result, each of which says what it adds up to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from archmodel.report.summary import achievable_byte_per_s, capacity, cost, limits, notes, run_assumptions, unit_times_s
from archmodel.result import Result
from archmodel.units import si

_WIDE = 120
_SEGMENT_WORDS = {
    "memory": "units waiting for memory or SRAM bandwidth",
    "kernel_overhead": "launching kernels, filling and draining units",
    "transfer_exposed": "moving results while no unit runs",
    "layout_conversion": "rewriting layouts between unlike units",
    "synchronisation": "completions and releases, no unit running",
    "dispatch": "commands on their way, nothing running",
    "host": "tokenising, embedding, bookkeeping",
}


_EXACT_PERCENT = 0.001  # an integration error below it is one of rounding


def heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def columns(header: Sequence[str], rows: Iterable[Sequence[str]], footer: Sequence[str] = ()) -> Table:
    """A plain table: names on the left, numbers on the right. A header that starts with "<" is left-aligned."""
    table = Table(box=box.SIMPLE_HEAD, show_footer=bool(footer), pad_edge=False, show_edge=False)
    for index, name in enumerate(header):
        text = name.startswith("<")
        style: Any = {"overflow": "fold", "min_width": 12} if text else {"overflow": "ellipsis", "no_wrap": True}
        table.add_column(name.removeprefix("<"), justify="left" if index == 0 or text else "right",
                         footer=footer[index] if footer else "", **style)  # fmt: skip
    for row in rows:
        table.add_row(*row)
    return table


def bullets(lines: Iterable[str]) -> Iterator[RenderableType]:
    for line in lines:
        grid = Table.grid(padding=(0, 1))
        grid.add_row("  -", line)
        yield grid


def percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def money(usd: float) -> str:
    """Dollars with cents where they matter."""
    if usd and abs(usd) < 1.0:
        return f"${usd:.3g}"
    return f"${usd:,.2f}" if abs(usd) < 1e3 else f"${usd:,.0f}"


def report(result: Result, width: int) -> Group:
    """All tables of a result, in the order in which questions come up, for a page of `width` letters."""
    parts: list[RenderableType] = [_title(result), *_headline(result), *_limits(result), *_segments(result, width)]
    parts += [*_units(result), *_bandwidth(result), *_capacity(result), *_energy(result), *_boundaries(result)]
    parts += [heading("Assumptions that this rests on"), *bullets(run_assumptions(result))]
    parts += [heading("Notes"), *bullets([_integration(result), *notes(result)])]
    return Group(*parts)


def _title(result: Result) -> Text:
    request = result.workload.request
    tokens = f"{request.input_tokens} tokens in" + (f", {request.output_tokens} out" if request.output_tokens else "")
    sequences = f"{request.batch} sequence{'s' if request.batch > 1 else ''}"
    return Text(f"{result.workload.name} on {result.chip.name}: {sequences} of {tokens}", style="bold")


def _headline(result: Result) -> Iterator[RenderableType]:
    grid = Table.grid(padding=(0, 3))
    grid.add_column()
    grid.add_column(justify="right")
    grid.add_column(style="dim")
    for row in _headline_rows(result):
        grid.add_row(*row)
    yield Padding(grid, (1, 0, 0, 0))


def _headline_rows(result: Result) -> Iterator[tuple[str, str, str]]:
    request, generates = result.workload.request, result.workload.request.output_tokens > 0
    first = "time to first token" if generates else "time of the whole pass"
    yield first, si(result.time_to_first_token_s, "s"), f"{si(result.input_tokens_per_s, 'tokens/s')} of input"
    if result.time_per_output_token_s is not None:
        yield "time per output token", si(result.time_per_output_token_s, "s"), "mean of those after the first"
    yield "total time", si(result.total_s, "s"), "of the whole batch"
    if generates:
        yield "throughput", si(result.output_tokens_per_s, "tokens/s"), "output tokens over total time"
    else:
        yield "throughput", si(request.batch / result.total_s, "sequences/s"), ""
    yield "power", si(result.power_w, "W"), "mean of chip and memory"
    counted = "output token, prefill included" if generates else "token read"
    yield "efficiency", f"{result.tokens_per_joule:.4g} tokens/J", "tokens per joule, which is tokens/s per watt"
    yield "energy per token", si(result.total_j / result.tokens, "J"), counted
    if paid := cost(result):
        words = "tokens read"
        if generates:
            apart = [money(paid[f"{kind}_usd_per_million_tokens"]) for kind in ("input", "output")]
            words = f"output tokens, prefill included; {apart[0]} input, {apart[1]} output"
        words += f"; energy alone {money(paid['energy_usd_per_million_tokens'])}"
        yield "cost per million", money(paid["usd_per_million_tokens"]), words
    for phase in result.phases:
        yield f"bottleneck of {phase}", result.bottleneck(phase), f"{percent(_largest(result, phase))} of {phase}"


def _largest(result: Result, phase: str) -> float:
    return max(result.phase_segments_s(phase).values()) / result.phase_s(phase)


def _limits(result: Result) -> Iterator[RenderableType]:
    found = limits(result)
    if not found:
        return
    yield heading("Limits of the workload")
    rows = []
    for name, limit in found.items():
        most, reached = limit["limit_s"], limit["value_s"]
        verdict = f"MISSED by {si(reached - most, 's')}, {reached / most:.2f} times the limit"
        if limit["kept"]:
            verdict = f"kept, {percent(limit['margin_fraction'])} to spare"
        rows.append([name.replace("_", " "), si(most, "s"), si(reached, "s"), verdict])
    yield columns(["limit", "at most", "reached", "<"], rows)


def _segments(result: Result, width: int) -> Iterator[RenderableType]:
    """Segments of each phase and of the run, in ms and percent, with their sums; on a wide page also what they are."""
    spans = {phase: (result.phase_segments_s(phase), result.phase_s(phase)) for phase in result.phases}
    if len(spans) > 1:
        spans["total"] = (result.segments_s, result.total_s)
    header = ["segment", *(word for name in spans for word in (f"{name} ms", "%"))]
    digits, wide = 3 if result.total_s < 1.0 else 1, width >= _WIDE
    rows = []
    for name, value in result.segments_s.items():
        if value > 0.0:
            cells = [cell for parts, whole in spans.values() for cell in _share(parts[name], whole, digits)]
            words = _SEGMENT_WORDS.get(name, f"{name.removeprefix('compute_')} computing")
            rows.append([name, *cells, *([words] if wide else [])])
    sums = [cell for parts, whole in spans.values() for cell in _share(sum(parts.values()), whole, digits)]
    yield heading("Where the time goes")
    yield columns([*header, *(["<what it is"] if wide else [])], rows, ["sum", *sums, *([""] if wide else [])])
    yield Text(f"Not in the sum: {si(result.transfer_hidden_s, 's')} of transfers hidden behind units that run.", style="dim")


def _share(value_s: float, whole_s: float, digits: int) -> tuple[str, str]:
    return f"{1e3 * value_s:,.{digits}f}", f"{100.0 * value_s / whole_s:.1f}"


def _units(result: Result) -> Iterator[RenderableType]:
    rows = []
    for name, times in unit_times_s(result).items():
        shares = [percent(value / result.total_s) for value in times]
        rows.append([name, *shares, si(sum(times), "s"), percent(result.utilisation[name])])
    yield heading("Units")
    yield columns(["unit", "busy", "stalled", "idle", "sum", "utilisation"], rows)
    yield Text("Busy computes, stalled waits for memory while it holds an operation; utilisation is useful work over the peak.",
               style="dim")  # fmt: skip
    for name, formats in result.soc.peaks_per_s().items():
        peaks = ", ".join(f"{fmt} {_peak(fmt, value)}" for fmt, value in formats.items())
        yield Text(f"Peak of {name}: {peaks}", style="dim")


def _peak(fmt: str, value: float) -> str:
    return si(value, "OP/s" if fmt.startswith("int") else "FLOP/s")


def _bandwidth(result: Result) -> Iterator[RenderableType]:
    achievable, traffic = achievable_byte_per_s(result), result.traffic_byte()
    phases = {phase: result.traffic_byte(phase) for phase in result.phases} if len(result.phases) > 1 else {}
    rows = []
    for name, mean in result.bandwidth_byte_per_s.items():
        used = [percent(byte[name] / result.phase_s(phase) / achievable[name]) for phase, byte in phases.items()]
        rows.append([name, si(traffic[name], "B"), si(mean, "B/s"), si(achievable[name], "B/s"),
                     percent(result.utilisation[name]), *used])  # fmt: skip
    yield heading("Memory and links")
    yield columns(["tier or link", "moved", "mean", "achievable", "used", *phases], rows)
    yield Text("Used is the share of what is achievable, over the run and in each phase.", style="dim")


def _capacity(result: Result) -> Iterator[RenderableType]:
    rows = []
    for tier, held in capacity(result).items():
        what = ", ".join(f"{part['what']} {si(part['byte'], 'B')}" for part in held["resident"])
        used, there = held["used_byte"], held["capacity_byte"]
        rows.append([tier, si(used, "B"), si(there, "B"), percent(used / there), what])
    yield heading("Capacity")
    yield columns(["tier", "used", "of", "", "<resident"], rows)


def _energy(result: Result) -> Iterator[RenderableType]:
    for words, parts in (("component", result.energy_j), ("kind of operation", result.energy_by_kind_j)):
        total = sum(parts.values())
        most = sorted(parts.items(), key=lambda part: -part[1])
        rows = [[name, f"{joule:,.4g}", percent(joule / total), si(joule / result.total_s, "W")]
                for name, joule in most if joule]  # fmt: skip
        yield heading(f"Energy by {words}")
        yield columns([words.split()[0], "J", "", "mean power"], rows,
                      ["sum", f"{total:,.4g}", "100.0 %", si(total / result.total_s, "W")])  # fmt: skip


def _boundaries(result: Result) -> Iterator[RenderableType]:
    """Power and tokens per joule at each boundary that the chip file describes, where that is more than the chip."""
    power_w = result.boundary_power_w
    if len(power_w) == 1:
        return
    tokens_per_s = result.tokens / result.total_s
    rows = []
    for name, parts in result.boundary_added_w.items():
        added = ", ".join(f"{part.replace('_', ' ')} {si(watt, 'W')}" for part, watt in parts.items() if watt)
        rows.append([name, si(power_w[name], "W"), f"{tokens_per_s / power_w[name]:.4g}", added])
    yield heading("Power by boundary")
    yield columns(["boundary", "mean power", "tokens/J", "<what it adds"], rows)
    yield Text("Each boundary holds the one above it; all other figures are those of the chip.", style="dim")


def _integration(result: Result) -> str:
    steps: Any = len(result.steps) - 1
    if steps < 1:
        return "nothing is decoded: the run is one pass"
    every = sum(step.weight for step in result.steps[1:])
    percentage = 100.0 * result.integration_error_fraction
    size = f"about {percentage:.2g} %" if percentage > _EXACT_PERCENT else f"under {_EXACT_PERCENT:g} %"
    return f"decode: {steps} of {every:.0f} steps simulated, integration error {size}"


def written(files: Sequence[Path]) -> Group:
    """Where the trace and the figures are."""
    return Group(heading("Files"), *bullets(str(file) for file in files))
