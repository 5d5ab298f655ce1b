"""Mixers of a `config.json`: attention in its kinds, Mamba and the gated delta rule."""

from __future__ import annotations

import attrs

from archmodel.spec.config import Config
from archmodel.spec.decoder import Family, on
from archmodel.spec.model import AttentionSpec, LatentAttentionSpec, LinearAttentionSpec, Mixer, StateSpaceSpec
from archmodel.spec.patterns import MOST_LAYERS


def head_dim(config: Config) -> int:
    """`head_dim`, or hidden / heads where neither the file nor its class gives one."""
    if config.given("head_dim"):
        return config.size("head_dim")
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    default = config.defaults.get("head_dim")
    if not config.good("hidden_size", "num_attention_heads"):
        return 1
    if hidden % heads:
        config.note("hidden_size", f"must be a multiple of num_attention_heads = {heads} where no head_dim is given")
    elif default not in (None, hidden // heads):
        config.note("head_dim", f"may mean {hidden // heads} = hidden / heads or the family's {default}; write the number")
    return max(1, hidden // heads)


def window(config: Config, layer_type: str) -> int:
    """Window of a layer; 0 is full attention, and so is a window that no sequence can outgrow."""
    if layer_type != "sliding_attention":
        return 0
    tokens, longest = config.size("sliding_window"), config.size_or("max_position_embeddings", 0)
    return 0 if 0 < longest <= tokens else tokens


def attention(config: Config, family: Family, layer_type: str, _index: int) -> AttentionSpec:
    """Multi-head, grouped or multi-query attention; `num_key_value_heads` is a count and null means all heads."""
    heads = config.size("num_attention_heads")
    kv_heads = config.size_or("num_key_value_heads", heads)
    if config.good("num_attention_heads", "num_key_value_heads") and heads % kv_heads:
        config.note("num_key_value_heads", f"must divide num_attention_heads = {heads}")
    return AttentionSpec(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim(config),
        window_tokens=window(config, layer_type),
        rotary=on(config, family.rotary),
        qkv_bias=on(config, family.qkv_bias),
        out_bias=on(config, family.out_bias),
        qk_norm=family.qk_norm if on(config, family.qk_norm_if) else "none",
        output_gate=family.output_gate,
        extra_parameters=heads if family.sinks else 0,
    )


def latent_attention(config: Config, _family: Family, _layer_type: str, _index: int) -> LatentAttentionSpec:
    """Multi-head latent attention (DeepSeek-V2 and V3); a null `q_lora_rank` means uncompressed queries."""
    bias = config.flag("attention_bias")
    return LatentAttentionSpec(
        heads=config.size("num_attention_heads"),
        q_lora_rank=config.size_or("q_lora_rank", 0),
        kv_lora_rank=config.size("kv_lora_rank"),
        qk_nope_head_dim=config.size("qk_nope_head_dim"),
        qk_rope_head_dim=config.size("qk_rope_head_dim"),
        v_head_dim=config.size("v_head_dim"),
        qkv_bias=bias,
        out_bias=bias,
    )


def falcon_attention(config: Config, family: Family, layer_type: str, index: int) -> AttentionSpec:
    """Falcon: `num_kv_heads` counts in the new block only; the old one has one KV head or all of them."""
    spec = attrs.evolve(attention(config, family, layer_type, index), rotary=not config.flag("alibi"))
    if config.flag("new_decoder_architecture"):
        return spec
    return attrs.evolve(spec, kv_heads=1 if config.flag("multi_query") else spec.heads)


def rotary_in_some(config: Config, family: Family, layer_type: str, index: int) -> AttentionSpec:
    """SmolLM3: every n-th layer, or each with a 0 in `no_rope_layers`, has no rotary embedding."""
    listed = config.listed("no_rope_layers", (0, 1), config.size("num_hidden_layers", most=MOST_LAYERS))
    rotary = bool(listed[index]) if listed else (index + 1) % config.size("no_rope_layer_interval") != 0
    return attrs.evolve(attention(config, family, layer_type, index), rotary=rotary)


def rotary_in_windows(config: Config, family: Family, layer_type: str, index: int) -> AttentionSpec:
    """Command-R7B: layers without a window have no rotary embedding."""
    return attrs.evolve(attention(config, family, layer_type, index), rotary=layer_type == "sliding_attention")


def gemma4_attention(config: Config, family: Family, layer_type: str, index: int) -> AttentionSpec:
    """Gemma 4: full layers have heads of their own size and number, and K and V may share a projection."""
    spec = attention(config, family, layer_type, index)
    if layer_type == "sliding_attention":
        return spec
    spec = attrs.evolve(spec, head_dim=config.size("global_head_dim"))
    if not config.flag("attention_k_eq_v"):
        return spec
    kv_heads = config.size_or("num_global_key_value_heads", spec.kv_heads)
    if config.good("num_attention_heads", "num_global_key_value_heads") and spec.heads % kv_heads:
        config.note("num_global_key_value_heads", f"must divide num_attention_heads = {spec.heads}")
    return attrs.evolve(spec, kv_heads=kv_heads, shared_kv_projection=True)


def jamba_mixer(config: Config, family: Family, layer_type: str, index: int) -> Mixer:
    """Jamba: Mamba blocks with attention between them; a `mamba_dt_rank` of "auto" is hidden / 16."""
    if layer_type != "mamba":
        return attention(config, family, layer_type, index)
    hidden = config.size("hidden_size")
    automatic = config.value("mamba_dt_rank") == "auto"
    return StateSpaceSpec(
        inner=config.size("mamba_expand") * hidden,
        state=config.size("mamba_d_state"),
        conv=config.size("mamba_d_conv"),
        dt_rank=-(-hidden // 16) if automatic else config.size("mamba_dt_rank"),
        conv_bias=config.flag("mamba_conv_bias"),
        projection_bias=config.flag("mamba_proj_bias"),
        inner_norms=True,
    )


def delta_mixer(config: Config, family: Family, layer_type: str, index: int) -> Mixer:
    """Qwen3-Next: gated delta rule with gated attention between."""
    if layer_type != "linear_attention":
        return attention(config, family, layer_type, index)
    key_heads, value_heads = config.size("linear_num_key_heads"), config.size("linear_num_value_heads")
    if config.good("linear_num_key_heads", "linear_num_value_heads") and value_heads % key_heads:
        config.note("linear_num_value_heads", f"must be a multiple of linear_num_key_heads = {key_heads}")
    return LinearAttentionSpec(
        key_heads=key_heads,
        value_heads=value_heads,
        key_head_dim=config.size("linear_key_head_dim"),
        value_head_dim=config.size("linear_value_head_dim"),
        conv=config.size("linear_conv_kernel_dim"),
    )
