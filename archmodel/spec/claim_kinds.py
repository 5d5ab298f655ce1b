"""The figures that each kind of claim rests on: one frozen class a kind, named in `KINDS`.

A figure without a default must be stated, by the claim, by the file or by its chip; where none of them does, the claim is
under-specified. A figure of 0 whose text says so is one that nobody stated, and the kind can do without.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from archmodel.spec.fields import ascending, by_format, flag, number, number_format, text


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
    """Copies of a model that a memory holds, and the KV cache that then still fits."""

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


@attrs.frozen(kw_only=True)
class Efficiency(Figures):
    """Tokens per joule are tokens a second per watt."""

    tokens_per_joule: float = number("efficiency that is claimed", above=0)
    rate_tokens_per_s: float = number("rate that is claimed with it", above=0)
    power_w: float = number("power that is stated with it; 0 is not stated", at_least=0, default=0.0)
    printed_unit: str = text("unit as it was printed", default="tokens/J")


@attrs.frozen(kw_only=True)
class EnergyFloor(Cache):
    """Tokens per joule against the energy of reading weights and cache and of the multiplications."""

    tokens_per_joule: float = number("efficiency that is claimed", above=0)
    active_parameters: float = number("parameters that one token is multiplied with", above=0)
    batch: float = number("sequences that share a reading of the weights", above=0)
    context_tokens: int = number("tokens cached of each sequence", at_least=0)
    memory_energy_pj_per_bit: float = number("energy of reading one bit", above=0)
    mac_energy_pj: float = number("energy of one MAC", above=0)


@attrs.frozen(kw_only=True)
class EfficiencyBaseline(Figures):
    """An efficiency said of other hardware, against its peak over its power and against what was measured."""

    lowest_tokens_per_joule: float = number("lower end of what is claimed", above=0)
    active_parameters: float = number("parameters that one token is multiplied with", above=0)
    baseline_peak_tops: float = number("dense peak of the other hardware", above=0)
    baseline_power_w: float = number("its power", above=0)
    measured_tokens_per_joule: float = number("what was measured on it; 0 is nothing", at_least=0, default=0.0)


@attrs.frozen(kw_only=True)
class GainAlgebra(Figures):
    """What follows from a gain in efficiency: cost of energy, models at equal power, and the baseline that it implies."""

    gain: float = number("times the baseline's efficiency", above=1)
    cost_cut_fraction: float = number("lower cost that is claimed; 0 is none", at_least=0, at_most=1, default=0.0)
    deployments: float = number("times the models at equal power that are claimed; 0 is none", at_least=0, default=0.0)
    tokens_per_joule: float = number("efficiency claimed for itself; 0 is none", at_least=0, default=0.0)
    lowest_tokens_per_joule: float = number("lower end of the baseline's; 0 is none", at_least=0, default=0.0)
    highest_tokens_per_joule: float = number("upper end of the baseline's; 0 is none", at_least=0, default=0.0)
    tolerance_fraction: float = number("difference that rounding explains", at_least=0, default=0.05)


@attrs.frozen(kw_only=True)
class Sparsity(Figures):
    """Event-driven work pays where few enough synapses are active."""

    sparsity_fraction: float = number("share of activations that are zero", at_least=0, at_most=1)
    synapse_energy_pj: float = number("energy of one synaptic operation", above=0)
    mac_energy_pj: float = number("energy of one MAC of the dense unit, as drawn at the card", above=0)


@attrs.frozen(kw_only=True)
class BreakEven(Figures):
    """A saving repays what it costs to make, from some size of the fleet on."""

    saving_fraction: float = number("share of the running cost that is saved", above=0, at_most=1)
    effort_usd_per_year: float = number("cost of keeping the more complex system, in USD a year", above=0)
    fleet_usd_per_year: float = number("running cost of the fleet, in USD a year; 0 is not stated", at_least=0, default=0.0)


@attrs.frozen(kw_only=True)
class FormatSpeedup(Figures):
    """Amdahl's law over number formats."""

    speedup: float = number("speed-up that is claimed", above=0)
    format_speed: Mapping[str, float] = by_format("times the speed of the slowest format")


@attrs.frozen(kw_only=True)
class LinkTransfer(Figures):
    """A transfer of hidden states at a rate: how long it takes, and how many tokens a second would sustain it."""

    used_gb_per_s: float = number("rate that is claimed", above=0)
    link_gb_per_s: float = number("payload that the link carries", above=0)
    tokens: int = number("tokens of one transfer", above=0)
    hidden: int = number("elements of a token", above=0)
    activations: str = number_format("elements as sent", default="fp16")
    rate_tokens_per_s: float = number("tokens a second that the chip claims", above=0)


@attrs.frozen(kw_only=True)
class OutputTail(Weights):
    """What follows the last layer: token ids, or all logits, over the host link."""

    limit_ms: float = number("latency that is claimed", above=0)
    link_gb_per_s: float = number("payload that the link carries", above=0)
    latency_us: float = number("latency of the link with its set-up", above=0)
    vocabulary: int = number("tokens of the vocabulary", above=0)
    batch: float = number("sequences served together", above=0)
    bandwidth_gb_per_s: float = number("bandwidth of the memory", above=0)


@attrs.frozen(kw_only=True)
class GraphCrossings(Figures):
    """Crossings between attention and feed-forward blocks on unlike units, and what joining layers changes."""

    layers: int = number("layers", above=0)
    crossings_per_layer: float = number("crossings a layer that are claimed", above=0)
    joined_layers: int = number("layers that are sent together to save crossings", above=0)
    parallel_blocks: bool = flag("attention and feed-forward read the same input", default=False)


@attrs.frozen(kw_only=True)
class SplitSync(Figures):
    """Time that a split by module spends on its boundary in a decode step, on a fast and on a slow link."""

    layers: int = number("layers", above=0)
    hidden: int = number("elements of a token", above=0)
    activations: str = number_format("elements as sent", default="fp16")
    batch: float = number("sequences served together", above=0)
    saving_ms: float = number("what the split saves in a step before it synchronises", above=0)
    fast_gb_per_s: float = number("payload of the fast link", above=0)
    fast_us: float = number("latency and dispatch of a crossing on it", at_least=0)
    slow_gb_per_s: float = number("payload of the slow link", above=0)
    slow_us: float = number("latency and dispatch of a crossing on it", at_least=0)


@attrs.frozen(kw_only=True)
class LayoutGrowth(Cache):
    """Bytes that change layout at a boundary, as the context grows."""

    hidden: int = number("elements of a token", above=0)
    activations: str = number_format("elements as converted", default="fp16")
    batch: float = number("sequences served together", above=0)
    context_tokens: int = number("tokens of context", above=0)


@attrs.frozen(kw_only=True)
class TokenFlips(Figures):
    """Two runs of unlike numerics part where one token flips; noise in the layers need not add up."""

    flip_probability: float = number("probability that a token differs", above=0, at_most=1)
    tokens: int = number("tokens generated", above=0)
    layers_noise_db: float = number("noise after all layers over that of one (negative is less)", at_most=1e3)
    growth_db: float = number("growth that would count as accumulation", above=0, default=3.0)


@attrs.frozen(kw_only=True)
class UnevenLengths(Figures):
    """A batch that waits for its longest request."""

    lengths_tokens: tuple[int, ...] = ascending("output lengths of equally likely requests")
    batch: int = number("requests that start together", above=0)
    loss_fraction: float = number("lost time that would matter", above=0, at_most=1, default=0.1)


@attrs.frozen(kw_only=True)
class ScheduleBounds(Figures):
    """Speed-up of a split: units one after another, or overlapped over micro-batches."""

    base_ms: float = number("time of the whole on one unit", above=0)
    first_ms: float = number("time of the first unit's part", above=0)
    second_ms: float = number("time of the second unit's part", above=0)
    sync_ms: float = number("time of synchronising", at_least=0)


@attrs.frozen(kw_only=True)
class Evaluation(Figures):
    """A claim that arithmetic does not settle: only its runs of the model judge it."""


#: kind of a claim, as a file names it -> the figures that it rests on
KINDS: dict[str, type[Figures]] = {
    "peak_identity": PeakIdentity,
    "compute_rate": ComputeRate,
    "prefill_latency": PrefillLatency,
    "memory_rate": MemoryRate,
    "latency_floor": LatencyFloor,
    "concurrency": Concurrency,
    "multiple": Multiple,
    "capacity": Capacity,
    "memory_technology": MemoryTechnology,
    "reuse": Reuse,
    "aggregate_bandwidth": AggregateBandwidth,
    "efficiency": Efficiency,
    "energy_floor": EnergyFloor,
    "efficiency_baseline": EfficiencyBaseline,
    "gain_algebra": GainAlgebra,
    "sparsity": Sparsity,
    "break_even": BreakEven,
    "format_speedup": FormatSpeedup,
    "link_transfer": LinkTransfer,
    "output_tail": OutputTail,
    "graph_crossings": GraphCrossings,
    "split_sync": SplitSync,
    "layout_growth": LayoutGrowth,
    "token_flips": TokenFlips,
    "uneven_lengths": UnevenLengths,
    "schedule_bounds": ScheduleBounds,
    "evaluation": Evaluation,
}
