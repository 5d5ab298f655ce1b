"""Encoders and encoder-decoders of a `config.json`: BERT, T5, ViT, and the vision towers beside a language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from archmodel.spec.config import Config
from archmodel.spec.decoder import refuse_others
from archmodel.spec.mixers import head_dim
from archmodel.spec.model import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec
from archmodel.spec.patterns import MOST_LAYERS


@attrs.frozen(kw_only=True)
class Encoder:
    """How a `model_type` that is no decoder is built; `defaults` and `only` as in `Family`."""

    build: Callable[[Config, str], ModelSpec]
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    only: Mapping[str, tuple[Any, ...]] = attrs.field(factory=dict)


def encoder(encoders: Mapping[str, Encoder], model_type: str, config: Config, name: str) -> ModelSpec:
    """The model of an encoder's config; what is wrong with it is noted in `config`."""
    refuse_others(config, encoders[model_type].only)
    return encoders[model_type].build(config, name)


def _layer(config: Config, *, bias: bool, qkv_bias: bool) -> LayerSpec:
    """A layer as in BERT and ViT: all heads, a plain feed-forward part, LayerNorm."""
    heads = config.size("num_attention_heads")
    return LayerSpec(
        mixer=AttentionSpec(
            heads=heads, kv_heads=heads, head_dim=head_dim(config), causal=False, rotary=False, qkv_bias=qkv_bias, out_bias=bias
        ),
        feed_forward=FeedForwardSpec(intermediate=config.size("intermediate_size"), gated=False, bias=bias),
        norm_bias=True,
    )


def _stack(config: Config) -> tuple[int, ...]:
    return (0,) * config.size("num_hidden_layers", most=MOST_LAYERS)


def bert(config: Config, name: str) -> ModelSpec:
    """BertModel with its pooler and without a language-model head; token types count as position rows."""
    hidden = config.size("hidden_size")
    return ModelSpec(
        name=name,
        family="encoder",
        hidden=hidden,
        vocabulary=config.size("vocab_size"),
        kinds=(_layer(config, bias=True, qkv_bias=True),),
        order=_stack(config),
        head=False,
        positions=config.size("max_position_embeddings") + config.size("type_vocab_size", low=0),
        norm_bias=True,
        extra_parameters=hidden * hidden + hidden,
    )


def _patches(config: Config) -> tuple[int, int]:
    """Patches of the square image, and elements of one patch."""
    image, patch = config.size("image_size"), config.size("patch_size")
    if config.good("image_size", "patch_size") and image % patch:
        config.note("image_size", f"must be a multiple of patch_size = {patch}")
    return (image // patch) ** 2, config.size("num_channels") * patch * patch


def vit(config: Config, name: str) -> ModelSpec:
    """Vision Transformer with its classification head; tokens are the patches and one class token."""
    hidden = config.size("hidden_size")
    patches, elements = _patches(config)
    labels = config.value("id2label")
    classes = len(labels) if isinstance(labels, Mapping) else config.size("num_labels")
    return ModelSpec(
        name=name,
        family="encoder",
        hidden=hidden,
        vocabulary=0,
        kinds=(_layer(config, bias=True, qkv_bias=config.flag("qkv_bias")),),
        order=_stack(config),
        head=False,
        classes=classes,
        head_bias=True,
        patch_elements=elements,
        positions=patches + 1,
        norm_bias=True,
        extra_parameters=2 * hidden,  # class token, bias of the patch projection
    )


def siglip_tower(config: Config, hidden: int) -> ModelSpec:
    """SigLIP encoder of Gemma 3 with the projection into the language model's `hidden` width."""
    width = config.size("hidden_size")
    patches, elements = _patches(config)
    return ModelSpec(
        name="vision tower",
        family="encoder",
        hidden=width,
        vocabulary=0,
        kinds=(_layer(config, bias=True, qkv_bias=True),),
        order=_stack(config),
        head=False,
        patch_elements=elements,
        positions=patches,
        norm_bias=True,
        extra_parameters=width + width * hidden + width,  # bias of the patches; projection and its norm
    )


def gemma4_tower(config: Config, hidden: int) -> ModelSpec:
    """Vision encoder of Gemma 4 (gated, RMS norms around each half) with its projection; positions by row and column."""
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    bias = config.flag("attention_bias")
    refuse_others(config, {"use_clipped_linears": (False,)})
    layer = LayerSpec(
        mixer=AttentionSpec(
            heads=heads,
            kv_heads=config.size_or("num_key_value_heads", heads),
            head_dim=head_dim(config),
            causal=False,
            qkv_bias=bias,
            out_bias=bias,
            qk_norm="head",
        ),
        feed_forward=FeedForwardSpec(intermediate=config.size("intermediate_size")),
        norms=4,
    )
    return ModelSpec(
        name="vision tower",
        family="encoder",
        hidden=width,
        vocabulary=0,
        kinds=(layer,),
        order=_stack(config),
        head=False,
        patch_elements=3 * config.size("patch_size") ** 2,
        positions=2 * config.size("position_embedding_size"),
        norms_outside=0,
        extra_parameters=width * hidden,
    )


def t5(config: Config, name: str) -> ModelSpec:
    """T5: RMS norms, no biases, one table of relative positions for each stack."""
    heads, buckets = config.size("num_attention_heads"), config.size("relative_attention_num_buckets")
    activation = config.value("feed_forward_proj")
    if not isinstance(activation, str):
        config.note("feed_forward_proj", "must be a string such as relu or gated-gelu")
    gated = str(activation).startswith("gated-")
    attention = AttentionSpec(heads=heads, kv_heads=heads, head_dim=config.size("head_dim"), rotary=False)
    feed_forward = FeedForwardSpec(intermediate=config.size("intermediate_size"), gated=gated)
    encoding = LayerSpec(mixer=attrs.evolve(attention, causal=False), feed_forward=feed_forward)
    cross = attrs.evolve(attention, causal=False)
    decoding = LayerSpec(mixer=attention, feed_forward=feed_forward, cross_attention=cross, norms=3)
    layers = config.size("num_hidden_layers", most=MOST_LAYERS)
    return ModelSpec(
        name=name,
        family="encoder-decoder",
        hidden=config.size("hidden_size"),
        vocabulary=config.size("vocab_size"),
        kinds=(decoding, encoding),
        order=(0,) * (config.size("num_decoder_layers", most=MOST_LAYERS) if config.given("num_decoder_layers") else layers),
        encoder_order=(1,) * layers,
        tied_embedding=config.flag("tie_word_embeddings"),
        norms_outside=2,
        extra_parameters=2 * buckets * heads,
    )


_BERT = Encoder(
    build=bert,
    defaults={"max_position_embeddings": 512, "type_vocab_size": 2},
    only={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "pruned_heads": ({}, []),
    },
)
_T5 = Encoder(
    build=t5,
    defaults={"tie_word_embeddings": True, "feed_forward_proj": "relu", "relative_attention_num_buckets": 32, "head_dim": 64},
)

ENCODERS: dict[str, Encoder] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "t5": _T5,
    "vit": Encoder(
        build=vit, defaults={"qkv_bias": True, "num_channels": 3, "image_size": 224, "patch_size": 16, "num_labels": 2}
    ),
}

_SIGLIP: dict[str, Any] = {"num_channels": 3, "image_size": 224, "patch_size": 16}
_GEMMA4_VISION: dict[str, Any] = {"patch_size": 16, "position_embedding_size": 10240}

#: model_type of a wrapper -> (decoder of its `text_config`, builder of the tower in its `vision_config`, defaults)
WRAPPERS: dict[str, tuple[str, Callable[[Config, int], ModelSpec], dict[str, Any]]] = {
    "gemma3": ("gemma3_text", siglip_tower, _SIGLIP),
    "gemma4": ("gemma4_text", gemma4_tower, _GEMMA4_VISION),
}
