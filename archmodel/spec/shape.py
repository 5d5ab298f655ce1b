"""A model written as a flat table: the sizes a person knows, expanded into a `ModelSpec`."""

from __future__ import annotations

import attrs

from archmodel.errors import Problem
from archmodel.spec.fields import choice, flag, number, text
from archmodel.spec.model import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec, MoeSpec


@attrs.frozen(kw_only=True)
class ShapeSpec:
    """`[model]` of a workload file, where it does not point to a `config.json`."""

    name: str = text("name of the model", required=True)
    family: str = choice("what the model does", "decoder", "encoder", default="decoder")
    layers: int = number("Transformer layers", above=0, at_most=1e5)
    hidden: int = number("width of the residual stream", above=0, at_most=1e7)
    heads: int = number("query heads", above=0, at_most=1e6)
    kv_heads: int = number("key/value heads (a count); 0 takes heads", at_least=0, at_most=1e6, default=0)
    head_dim: int = number("elements of a head; 0 takes hidden / heads", at_least=0, at_most=1e6, default=0)
    intermediate: int = number("inner width of the dense feed-forward part; 0 where every layer has experts", at_least=0,
                               at_most=1e8)  # fmt: skip
    gated: bool = flag("gate, up and down rather than up and down", default=True)
    vocabulary: int = number("rows of the embedding table; 0 for a vision encoder", at_least=0, at_most=1e8)
    tied_embedding: bool = flag("the output head is the embedding table", default=False)
    head: bool = flag("the model ends in an output head over the vocabulary", default=True)
    window_tokens: int = number("sliding window; 0 is full attention", at_least=0, at_most=1e9, default=0)
    rotary: bool = flag("queries and keys are rotated", default=True)
    bias: bool = flag("biases on every matrix", default=False)
    norm_bias: bool = flag("LayerNorm with bias", default=False)
    parallel: bool = flag("attention and feed-forward read the same input", default=False)
    positions: int = number("rows of learned position tables", at_least=0, at_most=1e8, default=0)
    experts: int = number("routed experts; 0 is dense", at_least=0, at_most=1e6, default=0)
    experts_per_token: int = number("routed experts that a token uses", at_least=0, at_most=1e6, default=0)
    expert_intermediate: int = number("inner width of one routed expert", at_least=0, at_most=1e8, default=0)
    shared_intermediate: int = number("summed inner width of shared experts", at_least=0, at_most=1e8, default=0)
    dense_layers: int = number("first layers that stay dense", at_least=0, at_most=1e5, default=0)
    patch_elements: int = number("elements of one input patch of a vision encoder; 0 takes token ids", at_least=0,
                                 at_most=1e8, default=0)  # fmt: skip
    classes: int = number("rows of a classification head, run once per sequence", at_least=0, at_most=1e8, default=0)
    extra_parameters: int = number("parameters outside the layers (pooler, class token)", at_least=0,
                                   default=0)  # fmt: skip
    source: str = text("where the sizes come from", required=True)


def shape_problems(shape: ShapeSpec) -> list[Problem]:
    """Rules between the fields of a shape."""
    experts, decoder = shape.experts > 0, shape.family == "decoder"
    dense = not experts or shape.dense_layers > 0
    rules = (
        ("kv_heads", shape.heads % (shape.kv_heads or shape.heads) == 0, f"must divide heads = {shape.heads}"),
        ("head_dim", shape.head_dim or shape.hidden % shape.heads == 0,
         f"must be given, as hidden = {shape.hidden} is no multiple of heads = {shape.heads}"),
        ("intermediate", shape.intermediate or not dense, "must be > 0 where a layer is dense"),
        ("intermediate", dense or not shape.intermediate,
         "must be 0 where every layer has experts, whose width is expert_intermediate"),
        ("expert_intermediate", shape.expert_intermediate or not experts, "must be > 0 where there are experts"),
        ("experts_per_token", 0 < shape.experts_per_token <= shape.experts or not experts,
         f"must be 1 to experts = {shape.experts}"),
        ("experts", experts or not (shape.experts_per_token or shape.expert_intermediate or shape.shared_intermediate
                                    or shape.dense_layers), "must be > 0 where other keys describe experts"),
        ("dense_layers", shape.dense_layers <= shape.layers, f"must be at most layers = {shape.layers}"),
        ("vocabulary", shape.vocabulary or not decoder, "must be > 0 for a decoder"),
        ("patch_elements", shape.vocabulary or shape.patch_elements or decoder, "must be > 0 where there is no vocabulary"),
    )  # fmt: skip
    return [Problem(f"model.{key}", rule, str(getattr(shape, key))) for key, kept, rule in rules if not kept]


def expand(shape: ShapeSpec) -> ModelSpec:
    """The model of a shape that has no problems."""
    attention = AttentionSpec(
        heads=shape.heads,
        kv_heads=shape.kv_heads or shape.heads,
        head_dim=shape.head_dim or shape.hidden // shape.heads,
        window_tokens=shape.window_tokens,
        causal=shape.family == "decoder",
        rotary=shape.rotary,
        qkv_bias=shape.bias,
        out_bias=shape.bias,
    )
    layer = LayerSpec(mixer=attention, norm_bias=shape.norm_bias, parallel=shape.parallel, norms=1 if shape.parallel else 2)
    kinds: list[LayerSpec] = []
    dense_layers = shape.dense_layers if shape.experts else shape.layers
    if dense_layers:
        dense = FeedForwardSpec(intermediate=shape.intermediate, gated=shape.gated, bias=shape.bias)
        kinds.append(attrs.evolve(layer, feed_forward=dense))
    if shape.experts:
        moe = MoeSpec(
            experts=shape.experts,
            experts_per_token=shape.experts_per_token,
            intermediate=shape.expert_intermediate,
            gated=shape.gated,
            bias=shape.bias,
            shared_intermediate=shape.shared_intermediate,
        )
        kinds.append(attrs.evolve(layer, moe=moe))
    return ModelSpec(
        name=shape.name,
        family=shape.family,
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        kinds=tuple(kinds),
        order=(0,) * dense_layers + (len(kinds) - 1,) * (shape.layers - dense_layers),
        tied_embedding=shape.tied_embedding,
        head=shape.head and shape.vocabulary > 0,
        classes=shape.classes,
        patch_elements=shape.patch_elements,
        positions=shape.positions,
        norm_bias=shape.norm_bias,
        extra_parameters=shape.extra_parameters,
        source=shape.source,
    )
