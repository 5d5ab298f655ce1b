"""The decoders that are known, by `model_type`. Each row holds the facts of a family; the rules are named functions."""

from __future__ import annotations

from typing import Any

import attrs

from archmodel.spec.config import Config
from archmodel.spec.decoder import Family
from archmodel.spec.mixers import (
    attention,
    delta_mixer,
    falcon_attention,
    gemma4_attention,
    jamba_mixer,
    latent_attention,
    rotary_in_some,
    rotary_in_windows,
)
from archmodel.spec.patterns import (
    after_dense,
    always,
    attention_between,
    expert_period,
    interleaved,
    linear_between,
    shared_count,
    shared_width,
    sparse_step,
    windowed,
    windowed_above,
)

TIED = {"tie_word_embeddings": True}


def _falcon(config: Config, family: Family) -> Family:
    """The new block always runs in parallel, by default with a norm for each half; the old one as flagged."""
    if config.flag("new_decoder_architecture"):
        return attrs.evolve(family, parallel=True, norms=config.size_or("num_ln_in_parallel_attn", 2))
    parallel = config.flag("parallel_attn")
    return attrs.evolve(family, parallel=parallel, norms=1 if parallel else 2)


def _opt(config: Config, family: Family) -> Family:
    """Norms after the halves of a layer (the 350m model) leave out the final one."""
    hidden = config.size("hidden_size")
    if config.size_or("word_embed_proj_dim", hidden) != hidden and config.good("hidden_size", "word_embed_proj_dim"):
        config.note("word_embed_proj_dim", f"must be hidden_size = {hidden}: projected embeddings are not supported")
    final = config.flag("do_layer_norm_before") and not config.flag("_remove_final_layer_norm")
    return attrs.evolve(family, norms_outside=1 if final else 0)


def _gemma4(config: Config, family: Family) -> Family:
    """Experts stand beside the dense part and bring three norms with them."""
    return attrs.evolve(family, norms=7, sparse=always) if config.flag("enable_moe_block") else family


_LLAMA = Family(mixer=attention, qkv_bias="attention_bias", out_bias="attention_bias", feed_forward_bias="mlp_bias")
_MISTRAL = Family(mixer=attention, layer_type=windowed, defaults={"num_key_value_heads": 8, "sliding_window": 4096})
_QWEN_EXPERTS: dict[str, Any] = {"decoder_sparse_step": 1, "mlp_only_layers": []}
_QWEN2 = Family(
    mixer=attention, layer_type=windowed_above, qkv_bias=True,
    defaults={"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28},
)  # fmt: skip
_QWEN3 = attrs.evolve(
    _QWEN2, qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head",
    defaults={**_QWEN2.defaults, "head_dim": 128},
)  # fmt: skip
_GEMMA = Family(
    mixer=attention, qkv_bias="attention_bias", out_bias="attention_bias",
    defaults={**TIED, "num_key_value_heads": 16, "head_dim": 256},
)  # fmt: skip
_GEMMA2 = attrs.evolve(
    _GEMMA, layer_type=interleaved, norms=4,
    defaults={**_GEMMA.defaults, "num_key_value_heads": 4, "sliding_window": 4096, "sliding_window_pattern": 2},
)  # fmt: skip
_GEMMA3 = attrs.evolve(_GEMMA2, qk_norm="head", defaults={**_GEMMA2.defaults, "sliding_window_pattern": 6})
_GLM = Family(
    mixer=attention, qkv_bias="attention_bias",
    defaults={"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True},
)  # fmt: skip
_DEEPSEEK2 = Family(
    mixer=latent_attention, sparse=after_dense, shared=shared_count,
    only={"moe_layer_freq": (1,), "mlp_bias": (False,)},
    defaults={"first_k_dense_replace": 0, "n_shared_experts": 2, "q_lora_rank": 1536},
)  # fmt: skip
_COHERE = Family(
    mixer=attention, qkv_bias="attention_bias", out_bias="attention_bias", norms=1, parallel=True,
    qk_norm="full", qk_norm_if="use_qk_norm", defaults=TIED,
)  # fmt: skip
_OLMO2 = Family(mixer=attention, qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="full")
_GPT = Family(
    mixer=attention, rotary=False, qkv_bias=True, out_bias=True, norm_bias=True, gated=False, feed_forward_bias=True,
    feed_forward_width=4, defaults=TIED,
)  # fmt: skip

DECODERS: dict[str, Family] = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "mistral": _MISTRAL,
    "mixtral": attrs.evolve(
        _MISTRAL, sparse=always, expert_width="intermediate_size", defaults={"num_key_value_heads": 8}
    ),
    "qwen2": _QWEN2,
    "qwen2_moe": attrs.evolve(
        _QWEN2, qkv_bias="qkv_bias", sparse=sparse_step, shared=shared_width, shared_gate=True,
        defaults={**_QWEN2.defaults, **_QWEN_EXPERTS, "num_key_value_heads": 16, "qkv_bias": True},
    ),
    "qwen3": _QWEN3,
    "qwen3_moe": attrs.evolve(
        _QWEN3, sparse=sparse_step, defaults={**_QWEN2.defaults, **_QWEN_EXPERTS, "num_key_value_heads": 4},
    ),
    "qwen3_next": Family(
        mixer=delta_mixer, layer_type=linear_between, layer_types=("full_attention", "linear_attention"),
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", output_gate=True,
        sparse=sparse_step, shared=shared_width, shared_gate=True,
        defaults={**_QWEN_EXPERTS, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
                  "linear_conv_kernel_dim": 4},
    ),
    "deepseek_v2": _DEEPSEEK2,
    "deepseek_v3": attrs.evolve(
        _DEEPSEEK2, router_bias=True, only={"moe_layer_freq": (1,)},
        defaults={"first_k_dense_replace": 3, "n_shared_experts": 1, "q_lora_rank": 1536},
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "gemma4_text": attrs.evolve(
        _GEMMA3, mixer=gemma4_attention, adapt=_gemma4, dense_beside_experts=True, router_scales=True,
        only={"num_kv_shared_layers": (0,), "hidden_size_per_layer_input": (0, None), "use_double_wide_mlp": (False,)},
        defaults={**_GEMMA3.defaults, "sliding_window": 512, "hidden_size_per_layer_input": 256, "global_head_dim": 512},
    ),
    "phi3": Family(
        mixer=attention, layer_type=windowed,
        only={"attention_bias": (False,), "mlp_bias": (False,), "lm_head_bias": (False,)},
    ),
    "falcon": attrs.evolve(
        _GPT, mixer=falcon_attention, adapt=_falcon, qkv_bias="bias", out_bias="bias", feed_forward_bias="bias",
        defaults={**TIED, "multi_query": True, "parallel_attn": True},
    ),
    "gpt2": attrs.evolve(_GPT, positions_beyond=0, defaults={**TIED, "max_position_embeddings": 1024}),
    "gptj": attrs.evolve(
        _GPT, rotary=True, qkv_bias=False, out_bias=False, norms=1, parallel=True, head_bias=True, defaults={},
    ),
    "opt": attrs.evolve(
        _GPT, adapt=_opt, qkv_bias="enable_bias", out_bias="enable_bias", feed_forward_bias="enable_bias",
        feed_forward_width=0, positions_beyond=2, only={"layer_norm_elementwise_affine": (True,)},
        defaults={**TIED, "enable_bias": True, "do_layer_norm_before": True, "max_position_embeddings": 2048},
    ),
    "bloom": attrs.evolve(_GPT, norms_outside=2),
    "gpt_oss": Family(
        mixer=attention, layer_type=interleaved, qkv_bias="attention_bias", out_bias="attention_bias", sinks=True,
        sparse=always, expert_width="intermediate_size", expert_bias=True, router_bias=True,
        defaults={"num_key_value_heads": 8, "head_dim": 64, "attention_bias": True, "sliding_window": 128,
                  "sliding_window_pattern": 2},
    ),
    "glm": _GLM,
    "glm4": attrs.evolve(_GLM, norms=4),
    "glm4_moe": attrs.evolve(
        _GLM, sparse=after_dense, shared=shared_count, router_bias=True, qk_norm="head", qk_norm_if="use_qk_norm",
        defaults={"num_key_value_heads": 8, "first_k_dense_replace": 1, "n_shared_experts": 1},
    ),
    "minimax_m2": Family(
        mixer=attention, qk_norm="full", qk_norm_if="use_qk_norm", sparse=always, expert_width="intermediate_size",
        router_bias="use_routing_bias", only={"shared_intermediate_size": (0,), "qk_norm_type": ("per_layer",)},
        defaults={"num_key_value_heads": 8, "head_dim": 128, "use_qk_norm": True, "use_routing_bias": True},
    ),
    "jamba": Family(
        mixer=jamba_mixer, layer_type=attention_between, layer_types=("full_attention", "mamba"), rotary=False,
        sparse=expert_period, expert_width="intermediate_size",
        defaults={"num_key_value_heads": 8, "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1,
                  "expert_layer_period": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
                  "mamba_dt_rank": "auto", "mamba_conv_bias": True},
    ),
    "starcoder2": attrs.evolve(
        _GPT, rotary=True, layer_type=windowed, qkv_bias="use_bias", out_bias="use_bias", feed_forward_bias="use_bias",
        feed_forward_width=0, only={"mlp_type": ("default",), "norm_type": ("layer_norm",)},
        defaults={**TIED, "num_key_value_heads": 2, "use_bias": True},
    ),
    "cohere": _COHERE,
    "cohere2": attrs.evolve(
        _COHERE, mixer=rotary_in_windows, layer_type=interleaved, qk_norm="none",
        defaults={**TIED, "sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "olmo2": _OLMO2,
    "olmo3": attrs.evolve(
        _OLMO2, layer_type=interleaved, defaults={"sliding_window": 4096, "sliding_window_pattern": 4}
    ),
    "dbrx": Family(
        mixer=attention, nested=("attn_config", "ffn_config"), sparse=always, expert_width="intermediate_size",
        defaults={"num_key_value_heads": 1},
    ),
    "smollm3": attrs.evolve(
        _LLAMA, mixer=rotary_in_some, only={"use_sliding_window": (False,)},
        defaults={**TIED, "num_key_value_heads": 4, "no_rope_layer_interval": 4},
    ),
}  # fmt: skip
