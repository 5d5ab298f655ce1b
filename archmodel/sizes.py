"""What a model weighs and does: parameters, bytes of weights, cache and state, and operations of a token.

Counts are exact integers; bytes are rounded up to a whole byte once, at the end. An operation is a multiply or an
add, so that one MAC is 2.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from archmodel.kernels import moe
from archmodel.matrices import Matrix, layer_matrices, layer_vectors, outer_matrices, outer_vectors, scan_work
from archmodel.spec.model import AttentionSpec, LatentAttentionSpec, LayerSpec, ModelSpec
from archmodel.spec.workload import PrecisionSpec
from archmodel.units import BITS

#: parts of a model that `breakdown` names; they add up to the total
PARTS = ("embedding", "head", "mixers", "feed_forward", "experts", "router", "norms", "other")


class TokenFlops(NamedTuple):
    """Operations [FLOP] of one token, attention scores and values apart.

    `linear`: weight matrices in the layers (the patch projection included). `head`: output head, for a token that is
    sampled, so once per sequence in a prefill. `recurrent`: state updates and convolutions. `encoder`: one encoder
    token of an encoder-decoder, with its cross-attention keys and values.
    """

    linear: int
    head: int
    recurrent: int
    encoder: int


def element_bytes_exact(elements: int | Fraction, number_format: str) -> int:
    """Bytes [B] of `elements` in `number_format`, rounded up to a whole byte."""
    return math.ceil(elements * Fraction(BITS[number_format]) / 8)


def _layers(model: ModelSpec) -> list[tuple[LayerSpec, int]]:
    """Kinds of layers with the number of times that each occurs, encoder included."""
    counts = Counter((*model.order, *model.encoder_order))
    return [(model.kinds[kind], times) for kind, times in sorted(counts.items())]


def _copies(layer: LayerSpec, part: str) -> int:
    return layer.moe.experts if part == "experts" and layer.moe is not None else 1


def stored_matrices(model: ModelSpec) -> Iterator[tuple[str, Matrix, int]]:
    """Part, matrix and number of every stored matrix; towers are models of their own."""
    for part, matrices in outer_matrices(model).items():
        yield from ((part, matrix, 1) for matrix in matrices)
    for layer, times in _layers(model):
        for part, matrices in layer_matrices(layer, model.hidden).items():
            yield from ((part, matrix, times * _copies(layer, part)) for matrix in matrices)


def _vectors(model: ModelSpec) -> Iterator[tuple[str, int]]:
    """Part and elements of all parameters that are no matrix."""
    yield from outer_vectors(model).items()
    for layer, times in _layers(model):
        for part, elements in layer_vectors(layer, model.hidden).items():
            yield part, elements * times * _copies(layer, part)


def _expert_parameters(layer: LayerSpec, hidden: int) -> int:
    """Parameters of one routed expert."""
    return sum(m.elements for m in layer_matrices(layer, hidden)["experts"]) + layer_vectors(layer, hidden).get("experts", 0)


def breakdown(model: ModelSpec) -> dict[str, int]:
    """Parameters by part (`PARTS`); they add up to the total. A tied head is in `embedding` only.

    `embedding` holds tokens, positions and patches, `mixers` attention and recurrent blocks, `feed_forward` the dense
    part and shared experts, `experts` the routed ones, `other` what is outside all of them (pooler, vision tower).
    """
    parts = dict.fromkeys(PARTS, 0)
    for part, matrix, count in stored_matrices(model):
        parts[part] += matrix.elements * count
    for part, elements in _vectors(model):
        parts[part] += elements
    parts["other"] += sum(total_parameters(tower) for tower in model.towers)
    return parts


def total_parameters(model: ModelSpec) -> int:
    """Parameters that must be resident, each shared matrix once; biases, norms and towers included."""
    return sum(breakdown(model).values())


def active_parameters(model: ModelSpec) -> int:
    """Parameters that one token of the language model uses: the total less routed experts not chosen, and less towers."""
    idle = sum(total_parameters(tower) for tower in model.towers)
    for layer, times in _layers(model):
        if layer.moe is not None:
            unused = layer.moe.experts - layer.moe.experts_per_token
            idle += times * unused * _expert_parameters(layer, model.hidden)
    return total_parameters(model) - idle


def parameters_per_expert_shard(model: ModelSpec, shards: int) -> int:
    """Largest number of parameters on one of `shards` devices that divide the routed experts and copy the rest."""
    elsewhere = 0
    for layer, times in _layers(model):
        if layer.moe is not None:
            absent = layer.moe.experts - -(-layer.moe.experts // shards)
            elsewhere += times * absent * _expert_parameters(layer, model.hidden)
    return total_parameters(model) - elsewhere


def matrix_bytes(matrix: Matrix, precision: PrecisionSpec) -> Fraction:
    """Bytes [B] of a matrix of a layer as stored, with a scale (and zero point) for each group of weights.

    Groups lie along `k`; the last of a row may be short. A `weight_group` of 0 stores no scales: one for each matrix
    weighs nothing that matters. Block formats (mxfp4, ...) carry their scales in `BITS`.
    """
    bits = Fraction(BITS[precision.weights])
    total = matrix.elements * bits
    if precision.weight_group:
        groups = matrix.n * -(-matrix.k // precision.weight_group)
        total += groups * (Fraction(BITS[precision.weight_scale]) + (bits if precision.weight_zero_point else 0))
    return total / 8


def weight_bytes(model: ModelSpec, precision: PrecisionSpec) -> int:
    """Bytes [B] of the resident weights, towers included; `stored_elements` says in which formats."""
    bits = sum(elements * Fraction(BITS[fmt]) for fmt, elements in stored_elements(model, precision).items())
    return math.ceil(bits / 8)


@lru_cache(maxsize=256)
def layer_bits(layer: LayerSpec, hidden: int, precision: PrecisionSpec) -> Mapping[str, Fraction]:
    """Bits of the weights of one layer as stored, by part of the model."""
    plain = Fraction(BITS[precision.embedding or precision.weights])
    bits: dict[str, Fraction] = {}
    for part, matrices in layer_matrices(layer, hidden).items():
        stored = (m.elements * plain if part == "router" else 8 * matrix_bytes(m, precision) for m in matrices)
        bits[part] = sum(stored, Fraction(0)) * _copies(layer, part)
    for part, elements in layer_vectors(layer, hidden).items():
        bits[part] = bits.get(part, Fraction(0)) + elements * plain * _copies(layer, part)
    return bits


@lru_cache(maxsize=64)
def outer_bits(model: ModelSpec, precision: PrecisionSpec) -> Mapping[str, Fraction]:
    """Bits of the weights outside the layers as stored, by part of the model; a tied head is in `embedding` only."""
    plain = Fraction(BITS[precision.embedding or precision.weights])
    bits: Counter[str] = Counter({"other": sum(weight_bytes(tower, precision) * 8 for tower in model.towers)})
    for part, matrices in outer_matrices(model).items():
        bits[part] += sum(matrix.elements for matrix in matrices) * plain  # type: ignore[assignment]
    for part, elements in outer_vectors(model).items():
        bits[part] += elements * plain  # type: ignore[assignment]
    return {part: Fraction(value) for part, value in bits.items()}


def stored_elements(model: ModelSpec, precision: PrecisionSpec) -> dict[str, int]:
    """Elements of the resident weights by format, towers included; scales and zero points are elements too.

    Matrices of the layers are stored at `precision.weights` with their scales; tables, heads, routers, norms, biases
    and other vectors at `precision.embedding`, or at the weights' format too where that is empty.
    """
    plain = precision.embedding or precision.weights
    found: Counter[str] = Counter({plain: sum(elements for _, elements in _vectors(model))})
    for part, matrix, count in stored_matrices(model):
        quantised = part not in ("embedding", "head", "router")
        found[precision.weights if quantised else plain] += matrix.elements * count
        if quantised and precision.weight_group:
            groups = matrix.n * -(-matrix.k // precision.weight_group) * count
            found[precision.weight_scale] += groups
            found[precision.weights] += groups if precision.weight_zero_point else 0
    for tower in model.towers:
        found.update(stored_elements(tower, precision))
    return {fmt: elements for fmt, elements in found.items() if elements}


def _cache_elements(layer: LayerSpec, shards: int = 1) -> int:
    """Cached elements of one token in a layer, on one of `shards` devices that divide the KV heads."""
    match layer.mixer:
        case AttentionSpec(kv_heads=kv_heads, head_dim=head_dim):
            return 2 * -(-kv_heads // shards) * head_dim
        case LatentAttentionSpec(kv_lora_rank=rank, qk_rope_head_dim=rope):
            return rank + rope  # one latent and one rotary key for all heads: nothing to divide
    return 0


def _decoding(model: ModelSpec) -> list[LayerSpec]:
    """Layers that keep a cache from token to token: none in an encoder."""
    return [] if model.family == "encoder" else [model.kinds[kind] for kind in model.order]


def _window(layer: LayerSpec) -> int:
    return layer.mixer.window_tokens if isinstance(layer.mixer, AttentionSpec) else 0


def kv_cache_bytes_per_token(model: ModelSpec, number_format: str, shards: int = 1) -> int:
    """Growth [B/token] of the cache of all layers while the sequence is shorter than every window.

    With `shards`, that of one device of a group that divides the KV heads; a head is never split, so devices beyond
    the number of heads hold copies.
    """
    return element_bytes_exact(sum(_cache_elements(layer, shards) for layer in _decoding(model)), number_format)


def kv_cache_bytes_per_token_unbounded(model: ModelSpec, number_format: str) -> int:
    """The part [B/token] of that growth which no window ends."""
    return element_bytes_exact(sum(_cache_elements(layer) for layer in _decoding(model) if not _window(layer)), number_format)


def kv_cache_bytes(model: ModelSpec, number_format: str, tokens: int, batch: int = 1, policy: str = "capped") -> int:
    """Self-attention cache [B] of `batch` sequences of `tokens` tokens.

    By `policy`, a windowed layer holds its window only ("capped") or the whole length ("full", as engines with
    uniform pages do).
    """
    if policy not in ("capped", "full"):
        raise ValueError(f"policy: {policy!r}, must be capped or full")
    elements = 0
    for layer in _decoding(model):
        window = _window(layer) if policy == "capped" else 0
        elements += _cache_elements(layer) * (min(tokens, window) if window else tokens)
    return element_bytes_exact(elements * batch, number_format)


def layer_cache_elements(layer: LayerSpec, tokens: int, encoder_tokens: int, policy: str) -> tuple[int, int, int]:
    """Elements that one sequence keeps in a layer: self-attention cache, recurrent state, cross-attention cache."""
    window = _window(layer) if policy == "capped" else 0
    cross = layer.cross_attention
    crossed = 2 * cross.kv_heads * cross.head_dim * encoder_tokens if cross is not None else 0
    state = scan_work(layer.mixer).state_elements
    return _cache_elements(layer) * (min(tokens, window) if window else tokens), state, crossed


def cross_attention_bytes(model: ModelSpec, number_format: str, encoder_tokens: int) -> int:
    """Cross-attention keys and values [B/sequence] of an encoder-decoder: written once, for `encoder_tokens` tokens."""
    crosses = [layer.cross_attention for layer in _decoding(model) if layer.cross_attention is not None]
    return element_bytes_exact(sum(2 * c.kv_heads * c.head_dim for c in crosses) * encoder_tokens, number_format)


def state_bytes_per_sequence(model: ModelSpec, number_format: str) -> int:
    """Recurrent and convolution state [B/sequence] of all layers, whatever the length."""
    return element_bytes_exact(sum(scan_work(layer.mixer).state_elements for layer in _decoding(model)), number_format)


def flops_per_token(model: ModelSpec) -> TokenFlops:
    """Operations [FLOP] of one token in the weight matrices; only chosen experts count, and a lookup is none."""
    linear, recurrent, encoder = model.hidden * model.patch_elements, 0, 0
    for layer in (model.kinds[kind] for kind in model.order):
        once = sum(m.elements for m in layer_matrices(layer, model.hidden)["mixers"] if m.name == "cross_kv")
        linear += _used_weights(layer, model.hidden) - once
        encoder += once
        recurrent += scan_work(layer.mixer).flop_per_token
    encoder += sum(_used_weights(model.kinds[kind], model.hidden) for kind in model.encoder_order)
    rows = (model.vocabulary if model.head else 0) + model.classes
    return TokenFlops(linear=2 * linear, head=2 * model.hidden * rows, recurrent=recurrent, encoder=2 * encoder)


def _used_weights(layer: LayerSpec, hidden: int) -> int:
    """Elements of the matrices of a layer that a token is multiplied with."""
    chosen = layer.moe.experts_per_token if layer.moe is not None else 0
    parts = layer_matrices(layer, hidden).items()
    return sum(m.elements * (chosen if part == "experts" else 1) for part, matrices in parts for m in matrices)


def attended_pairs(new_tokens: int, context_tokens: int, window: int = 0, causal: bool = True) -> int:
    """Query-key pairs of `new_tokens` after `context_tokens`, each query seeing at most `window` keys with itself.

    Causal and exact: the diagonal counts, the half above it does not.
    """
    last = context_tokens + new_tokens
    if not causal:
        return new_tokens * last
    short = min(last, window) if window else last  # queries up to here see all before them
    triangle = short * (short + 1) // 2 - context_tokens * (context_tokens + 1) // 2
    return triangle + (last - short) * window if context_tokens <= short else new_tokens * window


def attention_flops(model: ModelSpec, new_tokens: int, context_tokens: int = 0, encoder_tokens: int = 0) -> int:
    """Operations [FLOP] of scores and values over all layers for one sequence; softmax is not among them.

    `new_tokens` queries attend to `context_tokens` cached ones and to each other, causally where the layer is causal,
    and in cross-attention to `encoder_tokens`; the encoder's own attention counts where `context_tokens` is 0. A
    latent mixer is counted in its expanded form.
    """
    flop = 0
    for kind in model.order:
        layer = model.kinds[kind]
        flop += _attention_layer_flop(layer, new_tokens, context_tokens)
        if layer.cross_attention is not None:
            flop += 4 * layer.cross_attention.heads * layer.cross_attention.head_dim * new_tokens * encoder_tokens
    if context_tokens == 0:
        flop += sum(_attention_layer_flop(model.kinds[kind], encoder_tokens, 0) for kind in model.encoder_order)
    return flop


def _attention_layer_flop(layer: LayerSpec, new_tokens: int, context_tokens: int) -> int:
    match layer.mixer:
        case AttentionSpec() as mixer:
            pairs = attended_pairs(new_tokens, context_tokens, mixer.window_tokens, mixer.causal)
            return 4 * mixer.heads * mixer.head_dim * pairs
        case LatentAttentionSpec() as mixer:
            width = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
            return 2 * mixer.heads * width * attended_pairs(new_tokens, context_tokens)
    return 0


def expected_distinct_experts(experts: int, chosen: int, tokens: int, routing: float = moe.UNIFORM) -> float:
    """Expected number of distinct experts that `tokens` tokens use, each choosing `chosen` of `experts`.

    E (1 - (1 - k/E)^tokens) where choices are uniform and independent. `routing` (see `kernels/moe.py`): in turn, they
    touch as many as they can; loads that fall off by a power law touch fewer. Within [k, min(E, k tokens)].
    """
    routed = np.array([[tokens, experts, chosen, 1.0, routing, 0.0]], dtype=np.float64)
    expected = float(moe.expert_loads(routed, np.empty(0))[0, moe.TOUCHED])
    return min(max(expected, float(chosen) if tokens else 0.0), float(min(experts, chosen * tokens)))
