"""Which layers of a decoder have a window, no attention at all, experts, or shared ones: one rule a function."""

from __future__ import annotations

from archmodel.spec.config import Config

MOST_LAYERS = 10_000


def full(_config: Config, _index: int) -> str:
    """Full attention in every layer."""
    return "full_attention"


def windowed(config: Config, _index: int) -> str:
    """A window in every layer, where the config gives one (Mistral)."""
    return "sliding_attention" if config.given("sliding_window") else "full_attention"


def windowed_above(config: Config, index: int) -> str:
    """A window from layer `max_window_layers` on, where it is switched on (Qwen)."""
    if not config.flag("use_sliding_window") or not config.given("sliding_window"):
        return "full_attention"
    return "sliding_attention" if index >= config.size("max_window_layers", low=0) else "full_attention"


def interleaved(config: Config, index: int) -> str:
    """Every n-th layer full, the others windowed (Gemma, gpt-oss)."""
    return "sliding_attention" if (index + 1) % config.size("sliding_window_pattern") else "full_attention"


def linear_between(config: Config, index: int) -> str:
    """Every n-th layer full attention, the others linear (Qwen3-Next)."""
    return "linear_attention" if (index + 1) % config.size("full_attention_interval") else "full_attention"


def attention_between(config: Config, index: int) -> str:
    """One attention layer in each period, the others Mamba (Jamba)."""
    at = index % config.size("attn_layer_period") == config.size("attn_layer_offset", low=0)
    return "full_attention" if at else "mamba"


def never(_config: Config, _index: int) -> bool:
    """No layer has experts."""
    return False


def always(_config: Config, _index: int) -> bool:
    """Every layer has experts."""
    return True


def sparse_step(config: Config, index: int) -> bool:
    """Experts in every n-th layer but those named dense (Qwen)."""
    dense = config.listed("mlp_only_layers", range(MOST_LAYERS)) or []
    return index not in dense and (index + 1) % config.size("decoder_sparse_step") == 0


def after_dense(config: Config, index: int) -> bool:
    """The first layers are dense (DeepSeek)."""
    return index >= config.size("first_k_dense_replace", low=0)


def expert_period(config: Config, index: int) -> bool:
    """One layer with experts in each period (Jamba); a single expert is a dense layer."""
    if config.size("num_experts") == 1:
        return False
    return index % config.size("expert_layer_period") == config.size("expert_layer_offset", low=0)


def no_shared(_config: Config) -> int:
    """No shared expert."""
    return 0


def shared_width(config: Config) -> int:
    """Shared expert of its own width (Qwen)."""
    return config.size("shared_expert_intermediate_size", low=0)


def shared_count(config: Config) -> int:
    """Several shared experts of the routed width (DeepSeek)."""
    if not config.given("n_shared_experts"):
        return 0
    return config.size("n_shared_experts", low=0) * config.size("moe_intermediate_size")
