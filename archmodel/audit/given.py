"""Figures of claims that the chip and the model of the file give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from archmodel import sizes
from archmodel.components import link, memory
from archmodel.errors import Problem
from archmodel.soc import Soc, default_tier
from archmodel.spec.chip import ChipSpec, SramSpec
from archmodel.spec.claims import PEAKS, ClaimsSpec
from archmodel.spec.fields import nearest, shown
from archmodel.spec.model import AttentionSpec
from archmodel.spec.workload import WorkloadSpec
from archmodel.units import GB

_MB = 1e6


def chip_figures(spec: ClaimsSpec) -> dict[str, Any]:
    """Figures by the names that kinds of claims use; those of the model go over none of the chip's, for no name is in both."""
    figures: dict[str, Any] = {}
    if spec.chip is not None:
        figures |= _of_chip(spec.chip)
    if spec.workload is not None:
        figures |= _of_workload(spec.workload)
    return figures


def _of_chip(chip: ChipSpec) -> dict[str, Any]:
    """Bandwidth, latency and capacity of the memory that holds the weights, SRAM in all, payload of the link to the host."""
    soc = Soc(chip)
    tier = soc.tiers[default_tier(soc, "weights")]
    figures: dict[str, Any] = {
        "bandwidth_gb_per_s": memory.peak_byte_per_s(tier) / GB,
        "capacity_gb": memory.capacity_byte(tier) / GB,
        "latency_ns": tier.latency_ns,
    }
    sram = [memory.capacity_byte(block) for block in soc.tiers.values() if isinstance(block, SramSpec)]
    if sram:
        figures["sram_mb"] = sum(sram) / _MB
    if soc.host:
        links = [spec for spec in soc.links.values() if soc.host[0] in spec.joins]
        if links:
            figures["link_gb_per_s"] = link.payload_byte_per_s(links[0]) / GB
    return figures


def _of_workload(workload: WorkloadSpec) -> dict[str, Any]:
    """Sizes of the model, its formats, and the tokens of the request."""
    model = workload.model
    figures: dict[str, Any] = {
        "parameters": float(sizes.total_parameters(model)),
        "active_parameters": float(sizes.active_parameters(model)),
        "layers": len(model.order),
        "hidden": model.hidden,
        "input_tokens": workload.request.input_tokens,
    }
    if model.vocabulary:
        figures["vocabulary"] = model.vocabulary
    if workload.precision is not None:
        formats = workload.precision
        figures |= {"weights": formats.weights, "kv_cache": formats.kv_cache, "activations": formats.activations}
    mixers = {layer.mixer for layer in model.kinds}
    if len(mixers) == 1 and isinstance(mixer := mixers.pop(), AttentionSpec):
        figures |= {"kv_heads": mixer.kv_heads, "head_dim": mixer.head_dim}
    return figures


def peak_tops(spec: ClaimsSpec, names: Iterable[str], claim: str, problems: list[Problem]) -> float | None:
    """Sum [TOP/s] of peaks named `unit.format`; None and problems where the chip has not all of them."""
    peaks = {} if spec.chip is None else Soc(spec.chip).peaks_per_s()
    known = {f"{unit}.{fmt}": value / 1e12 for unit, formats in peaks.items() for fmt, value in formats.items()}
    names = tuple(names)
    for name in names:
        if name not in known:
            rule = f"no such peak{nearest(name, known)}; the chip has {', '.join(known)}" if known else "needs claims.chip"
            problems.append(Problem(f"{claim}.{PEAKS}", rule, shown(name)))
    return sum(known[name] for name in names) if all(name in known for name in names) else None
