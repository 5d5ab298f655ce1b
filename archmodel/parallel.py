"""Tensor parallelism: a model -> the part of it that one chip of a group of alike ones holds and computes.

Query heads, the inner width of the feed-forward part and of every expert, and the rows of the vocabulary are divided; KV heads
too, down to one, beyond which chips hold copies. Norms, routers, latent compressions and vision towers are copied. What the
chips must exchange is in `layers.py`: an all-reduce after each row-parallel product, an all-gather of the logits.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from archmodel.errors import MappingError
from archmodel.spec.model import (
    AttentionSpec,
    FeedForwardSpec,
    LatentAttentionSpec,
    LayerSpec,
    LinearAttentionSpec,
    Mixer,
    ModelSpec,
    MoeSpec,
)


class Degrees(NamedTuple):
    """Chips that divide each part of a model; 1: none does."""

    mixer: int = 1
    feed_forward: int = 1
    experts: int = 1
    head: int = 1


UNDIVIDED = Degrees()


def divided(model: ModelSpec, chips: int | Degrees) -> ModelSpec:
    """The part of `model` on one of `chips`, of all or by part; the largest where a width does not divide evenly.

    Raises MappingError where the heads do not divide: no engine splits a head.
    """
    degrees = chips if isinstance(chips, Degrees) else Degrees(*[chips] * 4)
    if degrees == UNDIVIDED:
        return model
    return attrs.evolve(
        model,
        kinds=tuple(divided_layer(kind, degrees) for kind in model.kinds),
        vocabulary=-(-model.vocabulary // degrees.head),
    )


def divided_layer(layer: LayerSpec, chips: Degrees) -> LayerSpec:
    """As `divided`, of one layer."""
    cross = layer.cross_attention
    return attrs.evolve(
        layer,
        mixer=_mixer(layer.mixer, chips.mixer),
        cross_attention=None if cross is None else _attention(cross, chips.mixer),
        feed_forward=None if layer.feed_forward is None else _dense(layer.feed_forward, chips.feed_forward),
        moe=None if layer.moe is None else _experts(layer.moe, chips),
    )


def _mixer(mixer: Mixer, chips: int) -> Mixer:
    if isinstance(mixer, AttentionSpec):
        return _attention(mixer, chips)
    if isinstance(mixer, LatentAttentionSpec):
        return attrs.evolve(mixer, heads=_whole(mixer.heads, chips, "heads"))
    if isinstance(mixer, LinearAttentionSpec):
        key, value = _whole(mixer.key_heads, chips, "key heads"), _whole(mixer.value_heads, chips, "value heads")
        return attrs.evolve(mixer, key_heads=key, value_heads=value)
    return attrs.evolve(mixer, inner=_whole(mixer.inner, chips, "channels"))


def _attention(mixer: AttentionSpec, chips: int) -> AttentionSpec:
    if chips % mixer.kv_heads and mixer.kv_heads % chips:
        raise MappingError(f"tensor parallelism: {chips} chips and {mixer.kv_heads} KV heads do not divide each other")
    heads = _whole(mixer.heads, chips, "heads")
    return attrs.evolve(mixer, heads=heads, kv_heads=max(1, mixer.kv_heads // chips))


def _dense(ffn: FeedForwardSpec, chips: int) -> FeedForwardSpec:
    return attrs.evolve(ffn, intermediate=-(-ffn.intermediate // chips))


def _experts(moe: MoeSpec, chips: Degrees) -> MoeSpec:
    shared = -(-moe.shared_intermediate // chips.feed_forward)
    return attrs.evolve(moe, intermediate=-(-moe.intermediate // chips.experts), shared_intermediate=shared)


def _whole(number: int, chips: int, what: str) -> int:
    if number % chips:
        raise MappingError(f"tensor parallelism: {chips} chips do not divide {number} {what}")
    return number // chips
