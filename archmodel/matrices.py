"""What a model is made of: the weight matrices and the small vectors of each layer, in exact counts of elements.

Parameters, bytes and operations (`sizes.py`) and the operations of a step all follow from these lists.
"""

from __future__ import annotations

from typing import NamedTuple

from archmodel.spec.model import (
    AttentionSpec,
    LatentAttentionSpec,
    LayerSpec,
    LinearAttentionSpec,
    Mixer,
    ModelSpec,
    StateSpaceSpec,
)


class Matrix(NamedTuple):
    """A weight matrix of `n` outputs and `k` inputs."""

    name: str
    n: int
    k: int

    @property
    def elements(self) -> int:
        """Elements of the matrix."""
        return self.n * self.k


def mixer_matrices(mixer: Mixer, hidden: int) -> list[Matrix]:
    """Projections of a mixer, fused as engines run them: Q, K and V are one matrix, and so are gate and up.

    A latent mixer's `kv_up` is what the absorbed form applies to queries and outputs instead; the operations per
    query token are the same.
    """
    match mixer:
        case AttentionSpec():
            queries = mixer.heads * mixer.head_dim
            keys_values = mixer.kv_heads * mixer.head_dim * (1 if mixer.shared_kv_projection else 2)
            qkv = queries * (2 if mixer.output_gate else 1) + keys_values
            return [Matrix("qkv", qkv, hidden), Matrix("out", hidden, queries)]
        case LatentAttentionSpec():
            queries = mixer.heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
            up = mixer.heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
            rank = mixer.q_lora_rank
            return [
                *([Matrix("q_down", rank, hidden), Matrix("q_up", queries, rank)] if rank else [Matrix("q", queries, hidden)]),
                Matrix("kv_down", mixer.kv_lora_rank + mixer.qk_rope_head_dim, hidden),
                Matrix("kv_up", up, mixer.kv_lora_rank),
                Matrix("out", hidden, mixer.heads * mixer.v_head_dim),
            ]
        case StateSpaceSpec():
            return [
                Matrix("in", 2 * mixer.inner, hidden),
                Matrix("x", mixer.dt_rank + 2 * mixer.state, mixer.inner),
                Matrix("dt", mixer.inner, mixer.dt_rank),
                Matrix("out", hidden, mixer.inner),
            ]
        case LinearAttentionSpec():
            keys, values = mixer.key_heads * mixer.key_head_dim, mixer.value_heads * mixer.value_head_dim
            return [
                Matrix("qkvz", 2 * keys + 2 * values, hidden),
                Matrix("ba", 2 * mixer.value_heads, hidden),
                Matrix("out", hidden, values),
            ]
    raise TypeError(f"no such mixer: {mixer!r}")


def cross_attention_matrices(cross: AttentionSpec, hidden: int) -> list[Matrix]:
    """Projections of cross-attention: `q` and `out` see each new token, `kv` each encoder token once."""
    width = cross.heads * cross.head_dim
    return [
        Matrix("cross_q", width, hidden),
        Matrix("cross_kv", 2 * cross.kv_heads * cross.head_dim, hidden),
        Matrix("cross_out", hidden, width),
    ]


def _mlp(name: str, width: int, hidden: int, gated: bool) -> list[Matrix]:
    up = Matrix(f"{name}gate_up" if gated else f"{name}up", (1 + gated) * width, hidden)
    return [up, Matrix(f"{name}down", hidden, width)]


def feed_forward_matrices(layer: LayerSpec, hidden: int) -> list[Matrix]:
    """Dense part and shared experts of a layer: what every token passes."""
    matrices = []
    if layer.feed_forward is not None:
        matrices += _mlp("", layer.feed_forward.intermediate, hidden, layer.feed_forward.gated)
    if layer.moe is not None and layer.moe.shared_intermediate:
        matrices += _mlp("shared_", layer.moe.shared_intermediate, hidden, layer.moe.gated)
        if layer.moe.shared_gate:
            matrices.append(Matrix("shared_gate", 1, hidden))
    return matrices


def router_matrices(layer: LayerSpec, hidden: int) -> list[Matrix]:
    """The router of a layer with experts."""
    return [Matrix("router", layer.moe.experts, hidden)] if layer.moe is not None else []


def expert_matrices(layer: LayerSpec, hidden: int) -> list[Matrix]:
    """ONE routed expert of a layer."""
    return _mlp("expert_", layer.moe.intermediate, hidden, layer.moe.gated) if layer.moe is not None else []


def layer_matrices(layer: LayerSpec, hidden: int) -> dict[str, list[Matrix]]:
    """Weight matrices of a layer by part of the model; `experts` holds those of one expert."""
    cross = cross_attention_matrices(layer.cross_attention, hidden) if layer.cross_attention is not None else []
    return {
        "mixers": mixer_matrices(layer.mixer, hidden) + cross,
        "feed_forward": feed_forward_matrices(layer, hidden),
        "router": router_matrices(layer, hidden),
        "experts": expert_matrices(layer, hidden),
    }


def outer_matrices(model: ModelSpec) -> dict[str, list[Matrix]]:
    """Tables and matrices outside the layers as stored; a tied head is no matrix of its own."""
    hidden, head_rows = model.hidden, model.classes
    if model.head and not model.tied_embedding:
        head_rows += model.vocabulary
    patches = [Matrix("patches", hidden, model.patch_elements)] if model.patch_elements else []
    tables = [Matrix("tokens", model.vocabulary, hidden), Matrix("positions", model.positions, hidden)]
    return {"embedding": tables + patches, "head": [Matrix("head", head_rows, hidden)]}


def _norm_elements(layer: LayerSpec, hidden: int) -> int:
    """Weights and biases of the norms of a layer, those of queries and keys included."""
    elements = layer.norms * hidden * (1 + layer.norm_bias)
    for mixer in (layer.mixer, layer.cross_attention):
        match mixer:
            case AttentionSpec(qk_norm="head"):
                elements += 2 * mixer.head_dim
            case AttentionSpec(qk_norm="full"):
                elements += (mixer.heads + mixer.kv_heads) * mixer.head_dim
            case LatentAttentionSpec():
                elements += mixer.q_lora_rank + mixer.kv_lora_rank
            case StateSpaceSpec(inner_norms=True):
                elements += mixer.dt_rank + 2 * mixer.state
            case LinearAttentionSpec():
                elements += mixer.value_head_dim
    return elements


def _mixer_vectors(mixer: Mixer, hidden: int) -> int:
    """Biases, convolutions and other small parameters of a mixer, norms apart."""
    rows = {matrix.name: matrix.n for matrix in mixer_matrices(mixer, hidden)}
    match mixer:
        case AttentionSpec():
            biases = mixer.qkv_bias * rows["qkv"] + mixer.out_bias * rows["out"]
            return biases + mixer.extra_parameters
        case LatentAttentionSpec():
            down = rows["kv_down"] + rows.get("q_down", 0)
            return mixer.qkv_bias * down + mixer.out_bias * rows["out"]
        case StateSpaceSpec():
            # A and D, the bias of the time step, the convolution
            per_channel = mixer.state + 1 + 1 + mixer.conv + mixer.conv_bias
            return mixer.inner * per_channel + mixer.projection_bias * (rows["in"] + rows["out"])
        case LinearAttentionSpec():
            convolved = 2 * mixer.key_heads * mixer.key_head_dim + mixer.value_heads * mixer.value_head_dim
            return convolved * mixer.conv + 2 * mixer.value_heads  # decay and bias of the time step
    raise TypeError(f"no such mixer: {mixer!r}")


def layer_vectors(layer: LayerSpec, hidden: int) -> dict[str, int]:
    """Parameters of a layer that are no matrix, by part of the model; `experts` holds those of one expert."""
    mixers = _mixer_vectors(layer.mixer, hidden)
    if layer.cross_attention is not None:
        mixers += _mixer_vectors(layer.cross_attention, hidden)
    parts = {"mixers": mixers, "norms": _norm_elements(layer, hidden), "other": layer.extra_parameters}
    if layer.feed_forward is not None and layer.feed_forward.bias:
        parts["feed_forward"] = (1 + layer.feed_forward.gated) * layer.feed_forward.intermediate + hidden
    if layer.moe is not None:
        parts["router"] = layer.moe.router_bias * layer.moe.experts + layer.moe.extra_parameters
        parts["experts"] = layer.moe.bias * ((1 + layer.moe.gated) * layer.moe.intermediate + hidden)
    return parts


def outer_vectors(model: ModelSpec) -> dict[str, int]:
    """Parameters outside the layers that are no matrix, by part of the model."""
    rows = (model.vocabulary if model.head else 0) + model.classes
    return {
        "head": model.head_bias * rows,
        "norms": model.norms_outside * model.hidden * (1 + model.norm_bias),
        "other": model.extra_parameters,
    }


class ScanWork(NamedTuple):
    """Work of one token in a recurrent mixer, in operations [FLOP], exponentials and elements."""

    flop_per_token: int
    exp_per_token: int
    state_elements: int
    input_elements: int
    output_elements: int


def scan_work(mixer: Mixer) -> ScanWork:
    """Work of one token in the recurrence and causal convolution of a mixer; all zero for attention.

    Mamba, for each channel and state element: dt A, dt x B, h exp(dt A) + dt x B (2), C h (2); for each channel dt x,
    D x (2). Gated delta rule, for each element of the state: decay, k S (2), S + k d (2), q S (2), and for each value
    d = beta (v - k S) (2). Exponentials include the SiLU of convolution and gate, and softplus. The state of the
    convolution has as many columns as it has taps; some engines keep one less.
    """
    match mixer:
        case StateSpaceSpec(inner=inner, state=state, conv=conv):
            return ScanWork(
                flop_per_token=inner * (6 * state + 3 + 2 * conv),
                exp_per_token=inner * (state + 3),
                state_elements=inner * (state + conv),
                input_elements=3 * inner + 2 * state,
                output_elements=inner,
            )
        case LinearAttentionSpec(key_head_dim=key_dim, conv=conv, value_heads=heads):
            values = heads * mixer.value_head_dim
            convolved = 2 * mixer.key_heads * key_dim + values
            return ScanWork(
                flop_per_token=values * (7 * key_dim + 2) + 2 * convolved * conv,
                exp_per_token=convolved + values + 3 * heads,
                state_elements=values * key_dim + convolved * conv,
                input_elements=convolved + values + 2 * heads,
                output_elements=values,
            )
    return ScanWork(0, 0, 0, 0, 0)
