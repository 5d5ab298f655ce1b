"""Figures of claims about splitting a model across units; `claim_rates` says what a missing figure means."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from archmodel.spec.claim_rates import Cache, Figures, Weights
from archmodel.spec.fields import ascending, by_format, flag, number, number_format


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
