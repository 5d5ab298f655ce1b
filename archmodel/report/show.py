"""What `show` prints: the resolved numbers of a chip or of a workload's model, as tables and as a dict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from archmodel import sizes
from archmodel.components import link as links
from archmodel.components import memory
from archmodel.components.units import cell_capacity_byte, matrix_parts, matrix_rates
from archmodel.report.summary import assumptions, chip_sources, remarks, workload_sources
from archmodel.report.table import bullets, columns, heading
from archmodel.soc import Soc
from archmodel.spec.chip import KINDS, Block, ChipSpec
from archmodel.spec.model import LayerSpec
from archmodel.spec.workload import PrecisionSpec, WorkloadSpec
from archmodel.units import si, unit_of


def as_dict(spec: ChipSpec | WorkloadSpec) -> dict[str, Any]:
    """The numbers of `report` under names that end in their unit."""
    return _chip_dict(spec) if isinstance(spec, ChipSpec) else _workload_dict(spec)


def report(spec: ChipSpec | WorkloadSpec) -> Group:
    """Tables of a chip or a workload."""
    return Group(*(_chip(spec) if isinstance(spec, ChipSpec) else _workload(spec)))


def _chip_dict(chip: ChipSpec) -> dict[str, Any]:
    """`bandwidth_byte_per_s` is the peak of each tier, `achievable_byte_per_s` what a long stream gets of it."""
    soc = Soc(chip)
    return {
        "kind": "chip",
        "name": chip.name,
        "process_nm": chip.process_nm,
        "peaks": soc.peaks_per_s(),
        "bandwidth_byte_per_s": {name: memory.peak_byte_per_s(tier) for name, tier in soc.tiers.items()},
        "achievable_byte_per_s": {name: memory.stream_byte_per_s(tier) for name, tier in soc.tiers.items()},
        "capacity_byte": {name: memory.capacity_byte(tier) for name, tier in soc.tiers.items()},
        "cell_capacity_byte": {name: byte for name, unit in soc.units.items() if (byte := cell_capacity_byte(unit))},
        "line_byte_per_s": {name: links.line_byte_per_s(link) for name, link in soc.links.items()},
        "payload_byte_per_s": {name: links.payload_byte_per_s(link) for name, link in soc.links.items()},
        "routes": {unit: {tier: list(soc.route(unit, tier)) for tier in _reached(soc, unit)} for unit in soc.units},
        "blocks": {name: {"kind": _kind(block), **attrs.asdict(block)} for name, block in chip.blocks.items()},
        "placement": attrs.asdict(chip.placement),
        "precision": attrs.asdict(chip.precision) if chip.precision else None,
        "cost": attrs.asdict(chip.cost) if chip.cost else None,
        "remarks": remarks(chip),
        "assumptions": assumptions(_chip_sources(chip)),
    }


def _chip_sources(chip: ChipSpec) -> Iterator[tuple[str, str]]:
    yield from chip_sources(chip)
    if chip.precision:
        yield "precision", chip.precision.source


def _reached(soc: Soc, unit: str) -> list[str]:
    """Tiers that a unit works with."""
    spec, placement = soc.units[unit], soc.chip.placement
    return [t for t in soc.tiers if t in (spec.buffer, spec.memory, placement.weights, placement.kv_cache, placement.spill)]


def _kind(block: Block) -> str:
    return next(kind for kind, cls in KINDS.items() if isinstance(block, cls))


def _chip(chip: ChipSpec) -> Iterator[RenderableType]:
    soc = Soc(chip)
    node = f", {chip.process_nm:g} nm" if chip.process_nm else ""
    yield Text(f"{chip.name}{node}: {chip.source.partition(';')[0]}", style="bold")
    yield heading("Peaks = units x MACs per clock x 2 x clock")
    yield columns(["unit", "<format", "<units x MACs/clock x 2 x clock", "peak"], _peaks(soc))
    yield heading("Memory")
    yield columns(["tier", "peak", "achievable", "", "capacity", "latency"], (
        [name, si(memory.peak_byte_per_s(t), "B/s"), si(memory.stream_byte_per_s(t), "B/s"),
         f"{100.0 * memory.stream_efficiency(t):.1f} %", si(memory.capacity_byte(t), "B"), f"{t.latency_ns:g} ns"]
        for name, t in soc.tiers.items()
    ))  # fmt: skip
    if holders := {name: byte for name, unit in soc.units.items() if (byte := cell_capacity_byte(unit))}:
        yield heading("Weights that units hold where they multiply them")
        yield columns(["unit", "capacity"], ([name, si(byte, "B")] for name, byte in holders.items()))
    if soc.links:
        yield heading("Links, one direction")
        yield columns(["link", "line", "payload", "latency", "<joins"], (
            [name, si(links.line_byte_per_s(s), "B/s"), si(links.payload_byte_per_s(s), "B/s"), si(links.latency_s(s), "s"),
             ", ".join(s.joins)] for name, s in soc.links.items()
        ))  # fmt: skip
        yield heading("Routes")
        yield columns(["unit", "<tier", "<over", "bandwidth", "latency"], (
            [unit, tier, " - ".join(soc.route(unit, tier)), si(soc.path_byte_per_s(unit, tier), "B/s"),
             si(soc.path_latency_s(unit, tier), "s")] for unit in soc.units for tier in _reached(soc, unit)
        ))  # fmt: skip
    for name, block in chip.blocks.items():
        yield heading(f"[{name}] {_kind(block)}")
        yield columns(["key", "<value", "<unit", "<what it is"], _fields(block))
    yield heading("[placement]")
    yield columns(["key", "<value", "<what it is"], ([k, v, d] for k, v, _, d in _fields(chip.placement) if v not in ("", "-")))
    if chip.cost:
        yield heading("[cost]")
        yield columns(["key", "<value", "<unit", "<what it is"], _fields(chip.cost))
    yield from _lines("Remarks", remarks(chip))
    yield from _lines("Assumptions", assumptions(_chip_sources(chip)))


def _peaks(soc: Soc) -> Iterator[list[str]]:
    for name, unit in soc.units.items():
        parts = matrix_parts(unit)
        for fmt, rate in matrix_rates(unit).items():
            word = "OP/s" if fmt.startswith("int") else "FLOP/s"
            peak = soc.peaks_per_s()[name][fmt]
            yield [name, fmt, f"{parts} x {rate:g} x 2 x {unit.clock_ghz:g} GHz", si(peak, word, 4)]


def _fields(spec: Any) -> Iterator[list[str]]:
    """Name, value, unit and meaning of every field but the source."""
    for field in attrs.fields(type(spec)):
        if field.name == "source":
            continue
        value = getattr(spec, field.name)
        if isinstance(value, tuple):
            shown = ", ".join(str(part) for part in value)
        elif isinstance(value, float):
            shown = f"{value:g}"
        elif hasattr(value, "items"):
            shown = ", ".join(f"{key} {number:g}" for key, number in value.items())
        else:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
        unit = unit_of(field.name)
        yield [field.name, shown or "-", "" if unit == "1" else unit, field.metadata.get("doc", "")]


def _lines(title: str, lines: list[str]) -> Iterator[RenderableType]:
    if lines:
        yield heading(title)
        yield from bullets(lines)


def _workload_dict(workload: WorkloadSpec) -> dict[str, Any]:
    model, request, precision = workload.model, workload.request, workload.precision or PrecisionSpec()
    cached = request.output_tokens + (request.input_tokens if model.family == "decoder" else 0)
    source_tokens = request.encoder_tokens or request.input_tokens
    flops = sizes.flops_per_token(model)
    return {
        "kind": "workload",
        "name": workload.name,
        "model": model.name,
        "family": model.family,
        "layers": len(model.order) + len(model.encoder_order),
        "hidden": model.hidden,
        "vocabulary": model.vocabulary,
        "total_parameters": sizes.total_parameters(model),
        "active_parameters": sizes.active_parameters(model),
        "parameters": sizes.breakdown(model),
        "weight_bytes": sizes.weight_bytes(model, precision),
        "kv_cache_bytes_per_token": sizes.kv_cache_bytes_per_token(model, precision.kv_cache),
        "kv_cache_bytes_per_token_unbounded": sizes.kv_cache_bytes_per_token_unbounded(model, precision.kv_cache),
        "kv_cache_bytes": sizes.kv_cache_bytes(model, precision.kv_cache, cached, request.batch),
        "state_bytes_per_sequence": sizes.state_bytes_per_sequence(model, precision.state),
        "cross_attention_bytes_per_sequence": sizes.cross_attention_bytes(model, precision.kv_cache, source_tokens),
        "token_flop": {**flops._asdict(), "attention": _attention_flop(workload)},
        "precision": attrs.asdict(precision),
        "request": attrs.asdict(request),
        "limits": attrs.asdict(workload.limits),
        "assumptions": assumptions(_workload_sources(workload)),
    }


def _workload_sources(workload: WorkloadSpec) -> Iterator[tuple[str, str]]:
    yield from workload_sources(workload)
    yield "precision", (workload.precision or PrecisionSpec()).source


def _attention_flop(workload: WorkloadSpec) -> int:
    """Scores and values of one more token after the prompt, for a decoder; of all tokens of a sequence, for an encoder."""
    tokens = workload.request.input_tokens
    if workload.model.family == "decoder":
        return sizes.attention_flops(workload.model, 1, tokens)
    source = workload.request.encoder_tokens or tokens
    return sizes.attention_flops(workload.model, tokens if workload.model.family == "encoder" else 1, 0, source)


def _workload(workload: WorkloadSpec) -> Iterator[RenderableType]:
    numbers, model, request = _workload_dict(workload), workload.model, workload.request
    precision = workload.precision or PrecisionSpec()
    yield Text(
        f"{workload.name}: {model.name}, {model.family} of {numbers['layers']} layers, hidden {model.hidden}", style="bold"
    )
    yield heading("Model")
    grid = Table.grid(padding=(0, 3))
    grid.add_column()
    grid.add_column(justify="right")
    for row in _sizes(numbers, precision, request.batch):
        grid.add_row(*row)
    yield grid
    yield heading("Layers")
    orders = (*model.order, *model.encoder_order)
    yield columns(["times", "<mixer", "<feed-forward"], (
        [str(orders.count(number)), _mixer(kind), _feed_forward(kind)] for number, kind in enumerate(model.kinds)
        if orders.count(number)
    ))  # fmt: skip
    yield heading("Parameters by part")
    total = numbers["total_parameters"]
    parts = [[part, f"{n:,}", f"{100 * n / total:.2f}"] for part, n in numbers["parameters"].items() if n]
    yield columns(["part", "parameters", "%"], parts, ["sum", f"{total:,}", "100.00"])
    yield heading("Operations of one token")
    yield columns(["part", "FLOP"], ([part, f"{n:,}"] for part, n in numbers["token_flop"].items() if n))
    yield heading("[request]")
    yield columns(["key", "value", "<unit", "<what it is"], _fields(request))
    yield heading("[precision]" + ("" if workload.precision else " is not given, so that the chip's counts; here the default"))
    yield columns(["key", "<value", "<what it is"], ([key, value, doc] for key, value, _, doc in _fields(precision)))
    if any(value not in ("0", "-") for _, value, _, _ in _fields(workload.limits)):
        yield heading("[limits]")
        yield columns(["key", "value", "<unit", "<what it is"], _fields(workload.limits))
    yield from _lines("Assumptions", numbers["assumptions"])


def _sizes(numbers: dict[str, Any], precision: PrecisionSpec, batch: int) -> Iterator[list[str]]:
    yield ["total parameters", f"{numbers['total_parameters']:,}", "all that must be resident, each shared matrix once"]
    yield ["active parameters", f"{numbers['active_parameters']:,}", "used by one token: chosen experts only"]
    yield ["weights", si(numbers["weight_bytes"], "B"), f"layers in {precision.weights}, {numbers['weight_bytes']:,} B"]
    per_token, unbounded = numbers["kv_cache_bytes_per_token"], numbers["kv_cache_bytes_per_token_unbounded"]
    if per_token:
        yield ["KV cache per token", f"{per_token:,} B", f"all layers, in {precision.kv_cache}, while no window is full"]
        if unbounded != per_token:
            yield ["of it without a window", f"{unbounded:,} B", "layers whose cache grows for ever"]
        yield ["KV cache of the request", si(numbers["kv_cache_bytes"], "B"), f"batch of {batch} at its end, windows capped"]
    if numbers["state_bytes_per_sequence"]:
        yield ["recurrent state", f"{numbers['state_bytes_per_sequence']:,} B", "per sequence, whatever its length"]
    if numbers["cross_attention_bytes_per_sequence"]:
        yield ["cross-attention cache", f"{numbers['cross_attention_bytes_per_sequence']:,} B", "per sequence, written once"]


def _mixer(kind: LayerSpec) -> str:
    numbers = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value, _, _ in _fields(kind.mixer) if value not in
                        ("0", "false", "none", "true"))  # fmt: skip
    return f"{type(kind.mixer).__name__.removesuffix('Spec')}: {numbers}"


def _feed_forward(kind: LayerSpec) -> str:
    parts = []
    if kind.feed_forward is not None:
        parts.append(f"{kind.feed_forward.intermediate}{', gated' if kind.feed_forward.gated else ''}")
    if kind.moe is not None:
        shared = f", shared {kind.moe.shared_intermediate}" if kind.moe.shared_intermediate else ""
        parts.append(f"{kind.moe.experts_per_token} of {kind.moe.experts} experts of {kind.moe.intermediate}{shared}")
    return " + ".join(parts) or "-"
