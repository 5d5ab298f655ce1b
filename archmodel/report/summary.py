"""Result -> a plain dict, the same that `eval --json` prints. Names end in their unit; what does not exist is None."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from archmodel.components import memory, units
from archmodel.components.boundary import BOUNDARIES
from archmodel.economics.costing import economics_sources, run_cost
from archmodel.economics.running import Running
from archmodel.result import Result
from archmodel.spec.chip import ChipSpec, ControlSpec, Tier, Unit
from archmodel.spec.economics import EconomicsSpec
from archmodel.spec.economics_file import default_economics
from archmodel.spec.system import member_of
from archmodel.spec.workload import WorkloadSpec

_POLICIES = {
    "capped": "capped: a layer with a window holds no more than its window",
    "full": "full: a layer with a window holds the whole sequence",
}


def summary(result: Result, trace_file: str | None = None) -> dict[str, Any]:
    """Everything about a run that is a number or a name. The values of `segments_s` add up to `total_s`, those of
    `energy_j` and of `energy_by_kind_j` to `total_j`, and for each unit `busy_s` + `stall_s` + `idle_s` is `total_s`."""
    times = unit_times_s(result)
    return {
        "chip": result.chip.name,
        "workload": result.workload.name,
        **headline(result),
        "segments_s": result.segments_s,
        "segments_by_phase_s": {phase: result.phase_segments_s(phase) for phase in result.phases},
        "transfer_hidden_s": result.transfer_hidden_s,
        "bottleneck": {phase: result.bottleneck(phase) for phase in result.phases},
        "energy_j": result.energy_j,
        "energy_by_kind_j": result.energy_by_kind_j,
        "utilisation": result.utilisation,
        "bandwidth_byte_per_s": result.bandwidth_byte_per_s,
        "achievable_byte_per_s": achievable_byte_per_s(result),
        "traffic_byte": result.traffic_byte(),
        "peaks": result.soc.peaks_per_s(),
        "busy_s": {name: busy for name, (busy, _, _) in times.items()},
        "stall_s": {name: stall for name, (_, stall, _) in times.items()},
        "idle_s": {name: idle for name, (_, _, idle) in times.items()},
        "capacity": capacity(result),
        "kv_cache_policy": _POLICIES[result.chip.placement.window_policy],
        "limits": limits(result),
        "cost": cost(result),
        "decode_integration_error_fraction": result.integration_error_fraction,
        "assumptions": run_assumptions(result),
        "notes": notes(result),
        "trace_file": trace_file,
    }


def headline(result: Result) -> dict[str, float | None]:
    """The figures of a run as a whole. An encoder puts out no tokens, so that its efficiency counts the tokens it reads."""
    request = result.workload.request
    return {
        "batch": request.batch,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
        "time_to_first_token_s": result.time_to_first_token_s,
        "time_per_output_token_s": result.time_per_output_token_s,
        "total_s": result.total_s,
        "output_tokens_per_s": result.output_tokens_per_s if request.output_tokens else None,
        "input_tokens_per_s": result.input_tokens_per_s,
        "sequences_per_s": request.batch / result.total_s,
        "power_w": result.power_w,
        "total_j": result.total_j,
        "tokens_per_joule": result.tokens_per_joule,
        "joules_per_token": result.total_j / result.tokens,
        "joules_per_sequence": result.total_j / request.batch,
        **_boundaries(result),
    }


def _boundaries(result: Result) -> dict[str, float | None]:
    """Mean power and tokens per joule at each boundary; None where the chip file does not describe it."""
    power_w = result.boundary_power_w
    out: dict[str, float | None] = {f"{name}_power_w": power_w.get(name) for name in BOUNDARIES}
    tokens_per_s = result.tokens / result.total_s
    return out | {f"{name}_tokens_per_joule": tokens_per_s / power_w[name] if name in power_w else None for name in BOUNDARIES}


def unit_times_s(result: Result) -> dict[str, tuple[float, float, float]]:
    """Busy, stalled and idle time [s] of every unit, the control core and the host; the three add up to the total.

    Busy: what a unit would take with endless bandwidth, launches included (for the control core, dispatching too).
    Stalled: the rest of the time in which it holds an operation, waiting for memory.
    """
    soc, table = result.soc, result.table
    count = sum(step.weight * step.count for step in result.steps)
    work = count * table.timeline.duration_s * (table.timeline.compute_share + table.timeline.overhead_share)
    by_owner = np.bincount(table.owner, work, minlength=len(soc.resources))
    held = result.busy_s()
    out = {}
    for name in (*soc.units, *soc.controls, *([soc.host[0]] if soc.host else [])):
        busy, holding = float(by_owner[soc.resources.index(name)]), held[name]
        if name in soc.controls:
            dispatching = result.dispatch_s(name)
            busy, holding = busy + dispatching, holding + dispatching
        out[name] = (busy, max(0.0, holding - busy), max(0.0, result.total_s - max(busy, holding)))
    return out


def achievable_byte_per_s(result: Result) -> dict[str, float]:
    """Bandwidth [B/s] that each tier and link can sustain."""
    return dict(zip(result.soc.shared, result.soc.shared_byte_per_s.tolist(), strict=True))


def capacity(result: Result) -> dict[str, dict[str, Any]]:
    """By tier: bytes used and there, and what is resident."""
    residency = result.residency
    return {
        tier: {
            "used_byte": residency.used_byte(tier),
            "capacity_byte": there,
            "resident": [{"what": b.what, "byte": b.byte} for b in residency.buffers if b.tier == tier],
        }
        for tier, there in residency.capacity_byte.items()
    }


def limits(result: Result) -> dict[str, dict[str, Any]]:
    """The limits that the workload sets, each with the value reached; `margin_fraction` < 0 where it is missed."""
    out = {}
    for name, (limit_s, value_s) in result.limits_s.items():
        margin = (limit_s - value_s) / limit_s
        out[name] = {"limit_s": limit_s, "value_s": value_s, "kept": value_s <= limit_s, "margin_fraction": margin}
    return out


def clauses(source: str) -> list[str]:
    """The clauses of a `source`; a semicolon in parentheses ends none."""
    return [clause.strip() for clause in re.split(r";(?![^(]*\))", source)]


def assumed(source: str) -> list[str]:
    """The clauses of a `source` that are assumptions: `"brief: x; assumption: y; assumption: z"` -> `["y", "z"]`."""
    return [clause.removeprefix("assumption:").strip() for clause in clauses(source) if clause.startswith("assumption:")]


def assumptions(parts: Iterator[tuple[str, str]]) -> list[str]:
    """`name: assumption` for every assumption in the sources of named parts."""
    return list(dict.fromkeys(f"{name}: {clause}" for name, source in parts for clause in assumed(source)))


def chip_sources(chip: ChipSpec) -> Iterator[tuple[str, str]]:
    """Name and source of the chip, its blocks, and its tables. Software counts only where no control core dispatches."""
    yield "system" if chip.members else "chip", chip.source
    for name, member in chip.members.items():
        yield name, member.source
        yield f"{name}.power", member.power.source
        yield f"{name}.cost", member.cost.source if member.cost else ""
        if not any(member_of(block) == name for block in chip.of_kind(ControlSpec)):
            yield f"{name}.software", member.software.source
    for name, block in chip.blocks.items():
        yield name, block.source
    yield "placement", chip.placement.source
    yield "power", chip.power.source
    for name in ("board", "server", "facility"):
        if table := getattr(chip, name):
            yield name, table.source
    if not chip.members and not chip.of_kind(ControlSpec):
        yield "software", chip.software.source
    if chip.cost:
        yield "cost", chip.cost.source


def workload_sources(workload: WorkloadSpec) -> Iterator[tuple[str, str]]:
    """Name and source of a workload's tables, its precision apart."""
    yield "workload", workload.source
    yield "model", workload.model.source
    yield "request", workload.request.source
    if any(getattr(workload.limits, name) for name in ("time_to_first_token_ms", "time_per_output_token_ms", "latency_ms")):
        yield "limits", workload.limits.source
    yield "placement", str(workload.placement.get("source", ""))


def run_assumptions(result: Result, economics: EconomicsSpec | None = None) -> list[str]:
    """What a result rests on that nobody stated or measured, prices included where it has a cost (None: the default ones)."""
    parts = [*chip_sources(result.chip), *workload_sources(result.workload), ("precision", result.precision.source)]
    prices = economics or default_economics()
    if run_cost(result, prices):
        parts += economics_sources(result.chip, prices, runs=True)
    return assumptions(iter(parts))


def cost(result: Result) -> dict[str, Any] | None:
    """What the run costs at the default prices; None where the chip does not say what it is made of."""
    paid = run_cost(result, default_economics())
    return running_dict(paid) if paid else None


def running_dict(paid: Running) -> dict[str, Any]:
    """Cost of a run; the `total_usd` of its phases add up to its own."""
    return {
        "chips": paid.chips,
        "utilisation": paid.utilisation,
        "input_usd_per_million_tokens": paid.input_usd_per_million_tokens,
        "output_usd_per_million_tokens": paid.output_usd_per_million_tokens,
        "usd_per_million_tokens": paid.usd_per_million_tokens,
        "energy_usd_per_million_tokens": paid.energy_usd_per_million_tokens,
        "usd_per_request": paid.usd_per_request,
        "group_usd_per_year": paid.usd_per_year,
        "facility_w": paid.facility_w,
        "total_usd": paid.total_usd,
        "phases": {name: {**attrs.asdict(phase), "total_usd": phase.total_usd} for name, phase in paid.phases.items()},
    }


def remarks(chip: ChipSpec) -> list[str]:
    """What a reader of a chip should know: its own remarks, and what its units and memory blocks give away."""
    found = list(chip.remarks)
    for name, block in chip.blocks.items():
        if isinstance(block, Tier):
            found += memory.remarks(name, block)
        elif isinstance(block, Unit):
            found += units.remarks(name, block)
    return found


def notes(result: Result) -> list[str]:
    """What happened on the way that a reader might not expect, and the remarks of the chip."""
    outside = ["power and energy are those of the chip and its memory, unless a boundary further out is named; the host's are "
               "not in them"] if result.soc.host else []  # fmt: skip
    return [*result.notes, *_placement_notes(result), *outside, *remarks(result.chip)]


def _placement_notes(result: Result) -> Iterator[str]:
    """What the placement changes in the model itself, and what it asks for in vain."""
    placement, model, batch = result.chip.placement, result.workload.model, result.workload.request.batch
    if placement.deferred_experts and model.has_experts:
        yield "routed experts are added up a layer later (placement.deferred_experts): the model computes something else"
    vain = {key: "the model has no routed experts" for key in ("deferred_experts", "experts")
            if getattr(placement, key) and not model.has_experts}  # fmt: skip
    if placement.light and not placement.light_unit:
        vain["light"] = "there is no placement.light_unit"
    if whole := [role for role in placement.row_split if role not in placement.shares]:
        vain["row_split"] = f"placement.shares does not divide {', '.join(whole)}"
    vain |= {key: f"the batch has {batch} sequence{'s' if batch > 1 else ''}, in as many parts at most"
             for key in ("micro_batches", "decode_micro_batches") if getattr(placement, key) > batch}  # fmt: skip
    yield from (f"placement.{key} does less than it says: {why}" for key, why in vain.items())
