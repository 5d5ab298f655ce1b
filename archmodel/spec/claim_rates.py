"""Figures of claims about rates, latencies and memories.

A figure without a default must be stated, by the claim, by the file or by its chip; where none of them does, the claim is
under-specified. A figure of 0 whose text says so is one that nobody stated, and the kind can do without.
"""

from __future__ import annotations

import attrs

from archmodel.spec.fields import number, number_format, text


@attrs.frozen(kw_only=True)
class Figures:
    """What all kinds have in common: nothing but being frozen."""


@attrs.frozen(kw_only=True)
class Weights(Figures):
    """Weights that a step reads."""

    parameters: float = number("parameters read in a step", above=0)
    weights: str = number_format("weights as stored", default="int8")


@attrs.frozen(kw_only=True)
class Cache(Weights):
    """Weights and the KV cache of a sequence: 2 x layers x kv_heads x head_dim elements a token."""

    layers: int = number("layers that keep a KV cache", above=0)
    kv_heads: int = number("KV heads (a count)", above=0)
    head_dim: int = number("elements of one head", above=0)
    kv_cache: str = number_format("KV cache as stored", default="int8")


@attrs.frozen(kw_only=True)
class PeakIdentity(Figures):
    """A peak follows from units, MACs and clock."""

    units: float = number("multiply units", above=0)
    macs_per_unit_per_cycle: float = number("MACs of one unit", above=0)
    peak_tops: float = number("peak that is claimed; a MAC is two operations", above=0)
    highest_clock_ghz: float = number("highest clock that the process and the power allow", above=0)


@attrs.frozen(kw_only=True)
class ComputeRate(Figures):
    """Tokens a second against the operations they need: the whole model, or the part of it that one unit runs."""

    rate_tokens_per_s: float = number("tokens a second that are claimed", above=0)
    active_parameters: float = number("parameters that one token is multiplied with", above=0)
    peak_tops: float = number("peak of the units that run them", above=0)
    utilisation_fraction: float = number("share of the peak that is reached", above=0, at_most=1, default=1.0)


@attrs.frozen(kw_only=True)
class PrefillLatency(Figures):
    """Time to first token against the operations of the prompt."""

    active_parameters: float = number("parameters that one token is multiplied with", above=0)
    input_tokens: int = number("prompt tokens", above=0)
    limit_ms: float = number("time to first token that is claimed", above=0)
    peak_tops: float = number("peak of the units that run it", above=0)
    utilisation_fraction: float = number("share of the peak that is reached", above=0, at_most=1, default=1.0)
    rate_tokens_per_s: float = number("rate claimed elsewhere, at which the prompt may also be read; 0 is none",
                                      at_least=0, default=0.0)  # fmt: skip


@attrs.frozen(kw_only=True)
class MemoryRate(Cache):
    """Tokens a second against the bytes that a step reads: the weights once, the cache of every sequence."""

    rate_tokens_per_s: float = number("tokens a second that are claimed", above=0)
    bandwidth_gb_per_s: float = number("bandwidth of the memory", above=0)
    utilisation_fraction: float = number("share of the bandwidth that is reached", above=0, at_most=1, default=1.0)
    context_tokens: int = number("tokens cached of each sequence", at_least=0)
    capacity_gb: float = number("capacity of the memory", above=0)
    batch: float = number("sequences served together; 0 is not stated", at_least=0, default=0.0)


@attrs.frozen(kw_only=True)
class LatencyFloor(Weights):
    """A step is no shorter than reading the weights once."""

    limit_ms: float = number("latency that is claimed", above=0)
    bandwidth_gb_per_s: float = number("bandwidth of the memory", above=0)
    utilisation_fraction: float = number("share of the bandwidth that is reached", above=0, at_most=1, default=1.0)


@attrs.frozen(kw_only=True)
class Concurrency(Figures):
    """Little's law of serving: tokens a second are sequences in flight over the time between two tokens of one."""

    rate_tokens_per_s: float = number("tokens a second that are claimed", above=0)
    sequences: float = number("sequences in flight", above=0)
    inter_token_ms: float = number("time between two tokens of a sequence", above=0)
    tolerance_fraction: float = number("difference that rounding explains", at_least=0, default=0.05)


@attrs.frozen(kw_only=True)
class Multiple(Figures):
    """A total is a number of alike parts."""

    total: float = number("total that is claimed", above=0)
    count: float = number("parts", above=0)
    each: float = number("figure of one part, in the unit of the total", above=0)
    unit: str = text("unit of both", default="")
    tolerance_fraction: float = number("difference that rounding explains", at_least=0, default=0.02)


@attrs.frozen(kw_only=True)
class Capacity(Cache):
    """Copies of a model that a memory holds, and the KV cache that then still fits, where its shape is stated."""

    layers: int = number("layers that keep a KV cache; 0 is not stated", at_least=0, default=0)
    kv_heads: int = number("KV heads (a count); 0 is not stated", at_least=0, default=0)
    head_dim: int = number("elements of one head; 0 is not stated", at_least=0, default=0)

    capacity_gb: float = number("capacity of the memory", above=0)
    copies: float = number("models held at once that are claimed", above=0)


@attrs.frozen(kw_only=True)
class MemoryTechnology(Figures):
    """Stacks of a memory bring capacity and bandwidth together."""

    capacity_gb: float = number("capacity that is claimed", above=0)
    bandwidth_gb_per_s: float = number("bandwidth that is claimed", above=0)
    stack_gb: float = number("capacity of one stack", above=0)
    stack_gb_per_s: float = number("bandwidth of one stack", above=0)
    stack_pins: float = number("data pins of one stack", above=0)
    within_factor: float = number("products differ by as much", above=1, default=2.0)


@attrs.frozen(kw_only=True)
class Reuse(Weights):
    """An on-chip memory raises the use of bandwidth by what it holds (hits), or by hiding latency (Little's law)."""

    sram_mb: float = number("capacity on chip", above=0)
    utilisation_before_fraction: float = number("share of the bandwidth before", above=0, at_most=1)
    utilisation_after_fraction: float = number("share of the bandwidth that is claimed", above=0, at_most=1)
    best_measured_fraction: float = number("highest share measured on any chip", above=0, at_most=1)
    bandwidth_gb_per_s: float = number("bandwidth of the memory", above=0)
    latency_ns: float = number("latency of the memory under load", above=0)


@attrs.frozen(kw_only=True)
class AggregateBandwidth(Figures):
    """Units with memories of their own add bandwidth; units that share one do not."""

    bandwidth_gb_per_s: float = number("bandwidth of the first unit's memory", above=0)
    second_gb_per_s: float = number("bandwidth that the second unit adds; 0 where it shares the first", at_least=0)
    highest_gain: float = number("largest gain that is claimed; 1 is none", above=0, default=1.0)
