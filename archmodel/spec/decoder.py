"""Decoders of a `config.json`: what a layer is made of, as rules that a `Family` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from archmodel.spec.config import Config
from archmodel.spec.model import FeedForwardSpec, LayerSpec, Mixer, ModelSpec, MoeSpec
from archmodel.spec.patterns import MOST_LAYERS, full, never, no_shared
from archmodel.spec.reader import shown

MASKS = ("full_attention", "sliding_attention")

Switch = bool | str  # a fact of the family, or the name of the flag in the config that says so


#: keys that change the shape of any decoder, with the values that do not
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, [], None),
}


def _as_is(_config: Config, family: Family) -> Family:
    return family


@attrs.frozen(kw_only=True)
class Family:
    """How a `model_type` fills the layers of a decoder.

    `defaults` are those of the configuration class in transformers 5.24, for keys that a file leaves out; width,
    depth, heads and vocabulary have none here: a file that lacks them is refused. `only` holds the keys that would
    change the shape in a way that is not modelled, with the values that are. `adapt` gives the facts that hang on
    several keys at once.
    """

    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    only: Mapping[str, tuple[Any, ...]] = attrs.field(factory=dict)
    nested: tuple[str, ...] = ()  # tables of the file whose keys count as its own
    adapt: Callable[[Config, Family], Family] = _as_is
    mixer: Callable[[Config, Family, str, int], Mixer]
    layer_type: Callable[[Config, int], str] = full
    layer_types: tuple[str, ...] = MASKS
    qkv_bias: Switch = False
    out_bias: Switch = False
    qk_norm: str = "none"
    qk_norm_if: Switch = True
    rotary: Switch = True
    output_gate: bool = False
    sinks: bool = False
    norms: int = 2
    norm_bias: bool = False
    parallel: bool = False
    gated: bool = True
    feed_forward_bias: Switch = False
    feed_forward_width: int = 0  # times the hidden width, where the config does not say
    sparse: Callable[[Config, int], bool] = never
    dense_beside_experts: bool = False
    expert_width: str = "moe_intermediate_size"
    expert_bias: bool = False
    router_bias: Switch = False
    router_scales: bool = False
    shared: Callable[[Config], int] = no_shared
    shared_gate: bool = False
    norms_outside: int = 1
    positions_beyond: int | None = None  # rows of a learned position table beyond the longest sequence; None: no table
    head_bias: Switch = False


def on(config: Config, switch: Switch) -> bool:
    """Whether `switch` is on in `config`."""
    return config.flag(switch) if isinstance(switch, str) else switch


def refuse_others(config: Config, modelled: Mapping[str, tuple[Any, ...]]) -> None:
    """Note every key of `modelled` that holds another value than those listed for it."""
    for key, values in modelled.items():
        if config.names(key) and config.value(key) not in values:
            config.note(key, f"changes the shape in a way that is not supported; {shown(values[0])} is")


def experts(config: Config, family: Family) -> MoeSpec:
    """The expert block of a layer."""
    count, chosen = config.size("num_experts"), config.size("num_experts_per_tok")
    if config.good("num_experts", "num_experts_per_tok") and chosen > count:
        config.note("num_experts_per_tok", f"must be at most num_experts = {count}")
    return MoeSpec(
        experts=count,
        experts_per_token=chosen,
        intermediate=config.size(family.expert_width),
        gated=family.gated,
        bias=family.expert_bias,
        router_bias=on(config, family.router_bias),
        shared_intermediate=family.shared(config),
        shared_gate=family.shared_gate,
        extra_parameters=config.size("hidden_size") + count if family.router_scales else 0,
    )


def dense(config: Config, family: Family) -> FeedForwardSpec:
    """The dense feed-forward part of a layer."""
    width = family.feed_forward_width * config.size("hidden_size")
    return FeedForwardSpec(
        intermediate=config.size_or("intermediate_size", width) if width else config.size("intermediate_size"),
        gated=family.gated,
        bias=on(config, family.feed_forward_bias),
    )


def decoder(config: Config, family: Family, name: str) -> ModelSpec:
    """The model of a decoder's config; what is wrong with it is noted in `config`."""
    config = config.flattened(*family.nested)
    family = family.adapt(config, family)
    refuse_others(config, {**PLAIN, **family.only})
    count = config.size("num_hidden_layers", most=MOST_LAYERS)
    types = config.listed("layer_types", family.layer_types, count)
    sparse = config.listed("mlp_layer_types", ("dense", "sparse"), count)
    layers = []
    for index in range(count):
        layer_type = types[index] if types else family.layer_type(config, index)
        moe = sparse[index] == "sparse" if sparse else family.sparse(config, index)
        layers.append(
            LayerSpec(
                mixer=family.mixer(config, family, layer_type, index),
                feed_forward=dense(config, family) if family.dense_beside_experts or not moe else None,
                moe=experts(config, family) if moe else None,
                norms=family.norms,
                norm_bias=family.norm_bias,
                parallel=family.parallel,
            )
        )
    kinds = tuple(dict.fromkeys(layers))
    place = {kind: index for index, kind in enumerate(kinds)}
    beyond = family.positions_beyond
    return ModelSpec(
        name=name,
        family="decoder",
        hidden=config.size("hidden_size"),
        vocabulary=config.size("vocab_size"),
        kinds=kinds,
        order=tuple(place[layer] for layer in layers),
        tied_embedding=config.flag("tie_word_embeddings"),
        head_bias=on(config, family.head_bias),
        positions=0 if beyond is None else config.size("max_position_embeddings") + beyond,
        norms_outside=family.norms_outside,
        norm_bias=family.norm_bias,
    )
