"""A workload: the model, its number formats, the request, where operations run, and the limits that a user sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from archmodel.spec.fields import choice, flag, names, number, number_format, routing, shares, text
from archmodel.spec.model import ModelSpec
from archmodel.units import FORMATS


@attrs.frozen(kw_only=True)
class PrecisionSpec:
    """Number formats. The KV cache has its own format: it never follows the weights."""

    weights: str = number_format("weights as stored", default="bf16")
    activations: str = number_format("residual stream and what units exchange", default="bf16")
    attention: str = number_format("compute format of attention and its projections", default="bf16")
    feed_forward: str = number_format("compute format of the feed-forward part", default="bf16")
    head: str = number_format("compute format of the output head", default="bf16")
    kv_cache: str = number_format("KV cache as stored", default="bf16")
    embedding: str = choice("tables, head, router, norms and biases as stored; empty follows weights", "", *FORMATS, default="")
    state: str = number_format("recurrent state as stored", default="bf16")
    weight_group: int = number("weights that share one scale; 0 stores no scales", at_least=0, default=0)
    weight_scale: str = number_format("format of that scale", default="fp16")
    weight_zero_point: bool = flag("one zero point per group, in the format of the weights", default=False)
    source: str = text("where the formats come from", default="assumption: bf16 throughout")


@attrs.frozen(kw_only=True)
class RequestSpec:
    """A static batch of alike requests. An encoder has `output_tokens = 0`."""

    batch: int = number("sequences served together", above=0, at_most=1e6)
    input_tokens: int = number("prompt tokens of a sequence", above=0, at_most=1e8)
    output_tokens: int = number("tokens generated for a sequence; 1 is prefill only", at_least=0, at_most=1e8)
    encoder_tokens: int = number("encoder input of an encoder-decoder; 0 takes input_tokens", at_least=0, at_most=1e8,
                                 default=0)  # fmt: skip
    routing: str = routing("how tokens choose experts: uniform (independent), balanced (in turn) or power_law_<exponent>, by "
                           "which the loads of experts fall off", default="uniform")  # fmt: skip
    source: str = text("where the request comes from", default="assumption: chosen by the user")


@attrs.frozen(kw_only=True)
class LimitsSpec:
    """What the service must keep; 0 is no limit. The report says kept or missed, and by how much."""

    time_to_first_token_ms: float = number("limit on the first token", at_least=0, default=0.0)
    time_per_output_token_ms: float = number("limit on each further token", at_least=0, default=0.0)
    latency_ms: float = number("limit on the whole request", at_least=0, default=0.0)
    source: str = text("who asks for it", default="")


#: what a placement may assign; an empty owner takes the first unit of the chip that can
ROLES = ("attention", "projection", "feed_forward", "experts", "router", "head", "vector", "embedding", "sampling")

#: roles that several units may run at once: those with matrices or heads to divide
DIVISIBLE = ("attention", "projection", "feed_forward", "experts", "router", "head")


@attrs.frozen(kw_only=True)
class PlacementSpec:
    """Owner of each role, tier of each buffer, and how operations are joined. A chip carries a default one."""

    attention: str = text("unit for scores, softmax and values, or the recurrent scan", default="")
    projection: str = text("unit for the Q, K, V and output projections", default="")
    feed_forward: str = text("unit for the feed-forward matrices", default="")
    experts: str = text(
        "unit for routed experts, with sorting tokens to them; empty: that of the feed-forward matrices", default=""
    )
    router: str = text("unit for the router of experts", default="")
    head: str = text("unit for the output head", default="")
    vector: str = text("unit for norms, rotary and residual additions", default="")
    embedding: str = text("unit or host for the embedding lookup", default="")
    sampling: str = text("unit for sampling", default="")
    weights: str = text("tier that holds the weights", default="")
    kv_cache: str = text("tier that holds the KV cache", default="")
    spill: str = text("tier that takes what does not fit; empty refuses", default="")
    shares: Mapping[str, Mapping[str, float]] = shares(
        "roles that several units run at once, each its share: columns of feed-forward matrices, heads of attention",
        *DIVISIBLE, default={},
    )  # fmt: skip
    row_split: tuple[str, ...] = names(
        "roles whose shares divide the tokens, each unit with all weights", *DIVISIBLE, default=()
    )
    fusion: bool = flag("vector operations run inside the neighbouring kernel where it is on the same unit", default=True)
    fused_attention: bool = flag("scores stay on chip (FlashAttention) rather than going through memory", default=True)
    deferred_experts: bool = flag("routed experts are added up a layer later, while the next attention runs; changes what the "
                                  "model computes a little", default=False)  # fmt: skip
    micro_batches: int = number("parts of the batch that overlap on unlike units", above=0, at_most=64, default=1)
    decode_micro_batches: int = number("the same in decode steps; 0 takes micro_batches", at_least=0, at_most=64, default=0)
    tensor_parallel: int = number("alike chips that divide every layer, this one included", above=0, at_most=65536, default=1)
    light_unit: str = text("low-power unit that may take short operations from the owners above", default="")
    light: tuple[str, ...] = names("roles whose short operations it takes", *ROLES, default=())
    light_flop: float = number("work of one operation below which it is short", at_least=0, default=1e8)
    light_slowdown: float = number("most that the run may slow down where `eval` looks for the roles itself", at_least=0,
                                   at_most=10, default=0.01)  # fmt: skip
    window_policy: str = choice("KV of windowed layers", "capped", "full", default="capped")
    source: str = text("why so", default="")


@attrs.frozen(kw_only=True)
class WorkloadSpec:
    """One run to evaluate."""

    name: str = text("name of the workload", required=True)
    source: str = text("where the workload comes from", default="")
    model: ModelSpec
    request: RequestSpec
    precision: PrecisionSpec | None = None
    limits: LimitsSpec = attrs.field(factory=LimitsSpec)
    placement: Mapping[str, Any] = attrs.field(factory=dict)  # keys of `PlacementSpec` that this run sets otherwise
