"""A model's architecture: layers in order, each a mixer (attention or a recurrent block) and a feed-forward part.

Frozen values without behaviour; `sizes.py` counts parameters, bytes and operations from them.
"""

from __future__ import annotations

import attrs

from archmodel.spec.fields import choice, flag, number, text


@attrs.frozen(kw_only=True)
class AttentionSpec:
    """Multi-head attention: MHA, grouped (GQA) or multi-query by `kv_heads`, the COUNT of KV heads (never the group size)."""

    heads: int = number("query heads", above=0)
    kv_heads: int = number("key/value heads (a count)", above=0)
    head_dim: int = number("elements of one head", above=0)
    window_tokens: int = number("sliding window; 0 is full attention", at_least=0, default=0)
    causal: bool = flag("a query sees itself and what is before it", default=True)
    rotary: bool = flag("queries and keys are rotated", default=True)
    qkv_bias: bool = flag("bias on the Q, K and V projections", default=False)
    out_bias: bool = flag("bias on the output projection", default=False)
    qk_norm: str = choice("norm of queries and keys", "none", "head", "full", default="none")
    shared_kv_projection: bool = flag("one projection gives both K and V; the cache still holds both", default=False)
    output_gate: bool = flag("the Q projection also gives a gate on the output, as wide as the queries", default=False)
    extra_parameters: int = number("further parameters, such as sinks or position buckets", at_least=0, default=0)


@attrs.frozen(kw_only=True)
class LatentAttentionSpec:
    """Multi-head latent attention (MLA, DeepSeek-V2): the cache holds one latent and one rotary key per token."""

    heads: int = number("query heads", above=0)
    q_lora_rank: int = number("rank of the query compression; 0 is none", at_least=0)
    kv_lora_rank: int = number("latent elements per token", above=0)
    qk_nope_head_dim: int = number("unrotated elements of a query head", above=0)
    qk_rope_head_dim: int = number("rotated elements of a query head", above=0)
    v_head_dim: int = number("elements of a value head", above=0)
    qkv_bias: bool = flag("bias on the compressions", default=False)
    out_bias: bool = flag("bias on the output projection", default=False)


@attrs.frozen(kw_only=True)
class StateSpaceSpec:
    """Mamba (selective state space) block: constant state per sequence instead of a cache that grows."""

    inner: int = number("channels", above=0)
    state: int = number("state elements per channel", above=0)
    conv: int = number("convolution taps", above=0)
    dt_rank: int = number("rank of the time-step projection", above=0)
    conv_bias: bool = flag("bias on the convolution", default=True)
    projection_bias: bool = flag("bias on the in and out projections", default=False)
    inner_norms: bool = flag("norms on dt, B and C (Jamba)", default=False)


@attrs.frozen(kw_only=True)
class LinearAttentionSpec:
    """Gated delta rule (linear attention): a constant key x value state per value head, a gate on the output, and a
    causal convolution over queries, keys and values."""

    key_heads: int = number("heads of queries and keys", above=0)
    value_heads: int = number("heads of values", above=0)
    key_head_dim: int = number("elements of a key head", above=0)
    value_head_dim: int = number("elements of a value head", above=0)
    conv: int = number("convolution taps; 0 is none", at_least=0, default=0)


Mixer = AttentionSpec | LatentAttentionSpec | StateSpaceSpec | LinearAttentionSpec


@attrs.frozen(kw_only=True)
class FeedForwardSpec:
    """Dense feed-forward part: two matrices, or three when gated."""

    intermediate: int = number("inner width", above=0)
    gated: bool = flag("gate, up and down (SwiGLU, GeGLU) rather than up and down", default=True)
    bias: bool = flag("bias on every matrix", default=False)


@attrs.frozen(kw_only=True)
class MoeSpec:
    """Mixture of experts: a router picks `experts_per_token` of `experts`; shared experts always run."""

    experts: int = number("routed experts", above=0)
    experts_per_token: int = number("routed experts that a token uses", above=0)
    intermediate: int = number("inner width of one routed expert", above=0)
    gated: bool = flag("gate, up and down rather than up and down", default=True)
    bias: bool = flag("bias on every expert matrix", default=False)
    router_bias: bool = flag("one bias per expert on the router", default=False)
    shared_intermediate: int = number("summed inner width of the shared experts; 0 is none", at_least=0, default=0)
    shared_gate: bool = flag("one gate vector on the shared expert", default=False)
    extra_parameters: int = number("further parameters of the block", at_least=0, default=0)


@attrs.frozen(kw_only=True)
class LayerSpec:
    """One kind of layer. `feed_forward` and `moe` may both be present (Gemma 4), or both absent."""

    mixer: Mixer
    feed_forward: FeedForwardSpec | None = None
    moe: MoeSpec | None = None
    cross_attention: AttentionSpec | None = None
    norms: int = number("norms of the hidden width in the layer", at_least=0, default=2)
    norm_bias: bool = flag("LayerNorm with bias, or with weight only", default=False)
    parallel: bool = flag("attention and feed-forward read the same input (GPT-J, Falcon, Command-R)", default=False)
    extra_parameters: int = number("further parameters of the layer", at_least=0, default=0)


@attrs.frozen(kw_only=True)
class ModelSpec:
    """A Transformer or a hybrid of it, as layer kinds in order.

    `kinds` are the distinct layers and `order` gives, for each layer from the input on, its index in `kinds`; the
    encoder of an encoder-decoder is `encoder_order` over the same `kinds`. Alike layers are one kind, so that their
    costs are computed once.
    """

    name: str = text("name of the model", required=True)
    family: str = choice("what the model does", "decoder", "encoder", "encoder-decoder")
    hidden: int = number("width of the residual stream", above=0)
    vocabulary: int = number("rows of the embedding table; 0 is none (a vision encoder)", at_least=0)
    kinds: tuple[LayerSpec, ...]
    order: tuple[int, ...]
    encoder_order: tuple[int, ...] = ()
    tied_embedding: bool = flag("the output head is the embedding table", default=False)
    head: bool = flag("the model ends in an output head over the vocabulary", default=True)
    classes: int = number("rows of a classification head, run once per sequence; 0 is none", at_least=0, default=0)
    head_bias: bool = flag("bias on the output or classification head", default=False)
    patch_elements: int = number("elements of one input patch (a vision encoder); 0 is none", at_least=0, default=0)
    positions: int = number("rows of learned position tables", at_least=0, default=0)
    norms_outside: int = number("norms outside the layers (final, embedding)", at_least=0, default=1)
    norm_bias: bool = flag("those norms have a bias", default=False)
    extra_parameters: int = number("further parameters outside the layers (pooler, class token)", at_least=0, default=0)
    towers: tuple[ModelSpec, ...] = ()  # encoders stored with the model (vision) that a generated token does not pass
    source: str = text("where the shape was read", default="")

    @property
    def has_experts(self) -> bool:
        return any(kind.moe is not None for kind in self.kinds)
