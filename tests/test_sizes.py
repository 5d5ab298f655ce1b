"""Counting: published figures, values that other tools got wrong (U.. numbers their reports), and slow oracles."""

import csv
import itertools
import math
from pathlib import Path
from typing import Any

import attrs
import pytest

from archmodel import sizes
from archmodel.matrices import Matrix, feed_forward_matrices, layer_matrices, mixer_matrices, scan_work
from archmodel.spec.huggingface import read_config
from archmodel.spec.model import (
    AttentionSpec,
    FeedForwardSpec,
    LayerSpec,
    LinearAttentionSpec,
    ModelSpec,
    MoeSpec,
    StateSpaceSpec,
)
from archmodel.spec.workload import PrecisionSpec

ANCHORS = Path(__file__).parent / "anchors" / "model_configs"
INDEX = list(csv.DictReader((ANCHORS / "index.csv").open()))
BF16 = PrecisionSpec()


def model(name: str) -> ModelSpec:
    return read_config(ANCHORS / f"{name}.json")


# --- cache -----------------------------------------------------------------------------------------------------------

PER_TOKEN = [
    ("Llama-3.1-8B", 131_072, {524_288}),  # U01: heads times head size of all query heads
    ("Qwen3-8B", 147_456, {589_824}),  # U02: embedding width
    ("DeepSeek-V3", 70_272, {124_928, 62_464, 1_748_992}),  # U04: factor 2 and no rope; no rope; MHA
    ("gpt-oss-20b", 49_152, {24_576}),  # U08: windowed layers dropped
    ("Jamba-v0.1", 16_384, {131_072}),  # U13: all layers
    ("Qwen3-30B-A3B", 98_304, {196_608}),  # U20: 4 read as the size of a group
    ("Gemma-2-9b", 344_064, {301_056}),  # U23: head_dim derived where it is declared
]


@pytest.mark.parametrize(("name", "right", "wrong"), PER_TOKEN)
def test_cache_of_a_token(name: str, right: int, wrong: set[int]) -> None:
    value = sizes.kv_cache_bytes_per_token(model(name), "bf16")
    assert value == right
    assert value not in wrong


def test_u01_cache_of_a_context_is_one_gib() -> None:
    assert sizes.kv_cache_bytes(model("Llama-3.1-8B"), "bf16", 8192) == 2**30


def test_u09_window_policy_is_named() -> None:
    gpt_oss = model("gpt-oss-20b")
    assert sizes.kv_cache_bytes(gpt_oss, "bf16", 8192, 32, "capped") == 6_543_114_240
    assert sizes.kv_cache_bytes(gpt_oss, "bf16", 8192, 32, "full") == 12 * 2**30
    with pytest.raises(ValueError, match="capped or full"):
        sizes.kv_cache_bytes(gpt_oss, "bf16", 8192, 32, "cap")


def test_u10_windowed_layers_with_heads_of_their_own() -> None:
    assert sizes.kv_cache_bytes(model("Gemma-4-26B-A4B"), "bf16", 131_072) == 2_894_069_760


def test_u13_recurrent_state_does_not_grow() -> None:
    assert sizes.state_bytes_per_sequence(model("Jamba-v0.1"), "bf16") == 9_175_040
    assert sizes.state_bytes_per_sequence(model("Llama-3.1-8B"), "bf16") == 0


def test_u16_cross_attention_follows_the_encoder() -> None:
    t5 = model("T5-base")
    assert sizes.cross_attention_bytes(t5, "bf16", 512) == 18_874_368
    assert sizes.kv_cache_bytes(t5, "bf16", 32) == 1_179_648
    assert sizes.cross_attention_bytes(model("Llama-2-7b"), "bf16", 512) == 0


def test_u18_cache_format_is_not_the_weights() -> None:
    llama = model("Llama-3.1-8B")
    assert sizes.kv_cache_bytes_per_token(llama, "int8") == 65_536
    assert sizes.kv_cache_bytes_per_token(llama, "fp16") == 131_072
    by_cache = [sizes.weight_bytes(llama, PrecisionSpec(weights="int8", kv_cache=kv)) for kv in ("int8", "fp16")]
    assert by_cache[0] == by_cache[1]


def test_u19_a_kv_head_is_never_split() -> None:
    llama = model("Llama-3.1-8B")
    per_die = [sizes.kv_cache_bytes_per_token(llama, "bf16", shards) for shards in (1, 2, 3, 8, 16, 32)]
    assert per_die == [131_072, 65_536, 3 * 16_384, 16_384, 16_384, 16_384]
    assert 16 * per_die[4] == 262_144
    assert sizes.kv_cache_bytes_per_token(model("DeepSeek-V3"), "bf16", 16) == 70_272  # the latent is copied


@pytest.mark.parametrize("tokens", [0, 1, 127, 128, 129, 4096])
def test_cache_grows_token_by_token(tokens: int) -> None:
    """Oracle: a list per layer that forgets what lies outside its window."""
    gpt_oss = model("gpt-oss-20b")
    kept = 0
    for kind in gpt_oss.order:
        mixer = gpt_oss.kinds[kind].mixer
        assert isinstance(mixer, AttentionSpec)
        held: list[int] = []
        for token in range(tokens):
            held = [*held, token][-(mixer.window_tokens or tokens) :]
        kept += len(held) * 2 * mixer.kv_heads * mixer.head_dim * 2
    assert sizes.kv_cache_bytes(gpt_oss, "bf16", tokens) == kept


def test_four_bit_cache_takes_half_a_byte() -> None:
    assert sizes.kv_cache_bytes_per_token(model("Llama-3.1-8B"), "int4") == 32_768
    assert sizes.kv_cache_bytes_per_token(model("Llama-3.1-8B"), "mxfp8") == 65_536 * 33 // 32


# --- parameters and their bytes --------------------------------------------------------------------------------------


def test_u25_u26_capacity_takes_all_experts_and_compute_the_chosen() -> None:
    mixtral, qwen = model("Mixtral-8x7B-v0.1"), model("Qwen1.5-MoE-A2.7B")
    assert sizes.total_parameters(mixtral) == 46_702_792_704
    assert sizes.active_parameters(mixtral) == 12_879_925_248
    int8 = PrecisionSpec(weights="int8")
    assert sizes.weight_bytes(qwen, int8) == 14_315_784_192
    assert sizes.active_parameters(qwen) == 2_689_173_504


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Qwen3-8B", 8_190_735_360), ("Qwen2.5-7B", 7_615_616_512), ("GPT-2", 124_439_808), ("Mistral-7B-v0.1", 7_241_732_096)],
)
def test_u27_counts_of_the_model_cards(name: str, parameters: int) -> None:
    assert sizes.total_parameters(model(name)) == parameters


def test_u29_tied_head_is_stored_once() -> None:
    llama = model("Llama-3.2-1B")
    assert sizes.total_parameters(llama) == 1_235_814_400
    assert sizes.weight_bytes(llama, BF16) == 2_471_628_800
    untied = attrs.evolve(llama, tied_embedding=False)
    assert sizes.total_parameters(untied) == 1_498_482_688


def test_u32_expert_width_is_the_expert_s_own() -> None:
    qwen = model("Qwen1.5-MoE-A2.7B")
    matrices = layer_matrices(qwen.kinds[0], qwen.hidden)
    assert sum(m.elements for m in matrices["experts"]) == 8_650_752
    shared = [m for m in matrices["feed_forward"] if m.name in ("shared_gate_up", "shared_down")]
    assert sum(m.elements for m in shared) == 34_603_008


def test_u37_experts_are_divided_and_the_rest_copied() -> None:
    mixtral = model("Mixtral-8x7B-v0.1")
    experts = sizes.breakdown(mixtral)["experts"]
    assert experts == 45_097_156_608
    assert sizes.parameters_per_expert_shard(mixtral, 8) == 7_242_780_672 == experts // 8 + 1_605_636_096
    assert sizes.parameters_per_expert_shard(mixtral, 1) == sizes.total_parameters(mixtral)
    assert sizes.parameters_per_expert_shard(mixtral, 3) == experts * 3 // 8 + 1_605_636_096
    assert sizes.parameters_per_expert_shard(model("Qwen3-8B"), 8) == 8_190_735_360


def test_u39_scales_and_zero_points_are_stored() -> None:
    grouped = PrecisionSpec(weights="int4", weight_group=128, embedding="bf16")
    zero = attrs.evolve(grouped, weight_zero_point=True)
    weights = Matrix("x", 1, 128)
    per_weight = [sizes.matrix_bytes(weights, p) / 128 for p in (grouped, zero, PrecisionSpec(weights="int4"))]
    assert per_weight == [0.515625, 0.51953125, 0.5]  # U38: half a byte, never 0
    assert [70 * 10**9 * each for each in per_weight] == [36.09375e9, 36.3671875e9, 35e9]
    llama = model("Llama-2-7b")
    tables, norms = 2 * 32000 * 4096, 65 * 4096
    quantised = 6_738_415_616 - tables - norms
    assert sizes.weight_bytes(llama, grouped) == quantised * 0.515625 + 2 * (tables + norms)
    assert sizes.weight_bytes(llama, zero) == quantised * 0.51953125 + 2 * (tables + norms)


def test_last_group_of_a_row_has_a_scale_of_its_own() -> None:
    layer = LayerSpec(mixer=AttentionSpec(heads=1, kv_heads=1, head_dim=10), norms=0)
    small = ModelSpec(name="x", family="decoder", hidden=10, vocabulary=0, kinds=(layer,), order=(0,), norms_outside=0)
    precision = PrecisionSpec(weights="int4", weight_group=4)  # 40 rows of 10 weights: 3 groups each
    assert sizes.weight_bytes(small, precision) == 40 * 10 // 2 + 40 * 3 * 2


def test_u105_breakdown_says_what_holds_the_head() -> None:
    parts = sizes.breakdown(model("Llama-3.1-8B"))
    assert (parts["embedding"], parts["head"]) == (525_336_576, 525_336_576)
    assert sum(parts.values()) - parts["embedding"] - parts["head"] == 6_979_588_096
    tied = sizes.breakdown(model("Llama-3.2-1B"))
    assert (tied["embedding"], tied["head"]) == (128256 * 2048, 0)


@pytest.mark.parametrize("row", INDEX, ids=lambda row: row["name"])
def test_parts_add_up_and_weigh_two_bytes_each(row: dict[str, str]) -> None:
    spec = model(row["name"])
    parts = sizes.breakdown(spec)
    assert tuple(parts) == sizes.PARTS
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == int(row["total_params"])
    assert sizes.weight_bytes(spec, BF16) == 2 * int(row["total_params"])
    assert bool(parts["experts"]) == any(layer.moe is not None for layer in spec.kinds)


def test_vision_tower_is_resident_but_not_used_by_a_generated_token() -> None:
    gemma = model("Gemma-4-26B-A4B")
    (tower,) = gemma.towers
    assert sizes.total_parameters(tower) == 572_792_112  # the anchor's total less its language model
    experts = 30 * (128 - 8) * 3 * 2816 * 704
    assert sizes.active_parameters(gemma) == 25_805_933_872 - 572_792_112 - experts


# --- operations ------------------------------------------------------------------------------------------------------


def test_u31_tying_changes_no_operation() -> None:
    llama = model("Llama-3.2-1B")
    tied, untied = sizes.flops_per_token(llama), sizes.flops_per_token(attrs.evolve(llama, tied_embedding=False))
    assert tied == untied
    assert tied.head == 525_336_576
    assert tied.linear == 2 * (1_235_814_400 - 128256 * 2048 - 33 * 2048)  # no lookup, no norms


def test_u34_only_chosen_experts_compute() -> None:
    flops = sizes.flops_per_token(model("Mixtral-8x7B-v0.1"))
    assert flops.linear + flops.head == 25_497_174_016
    assert (flops.recurrent, flops.encoder) == (0, 0)


def test_u35_expected_distinct_experts() -> None:
    assert sizes.expected_distinct_experts(8, 2, 1) == 2.0
    assert sizes.expected_distinct_experts(8, 2, 3) == 4.625
    assert sizes.expected_distinct_experts(8, 2, 64) == pytest.approx(8.0, abs=1e-6)
    assert sizes.expected_distinct_experts(8, 8, 5) == 8.0
    for experts, chosen in ((8, 2), (60, 4), (256, 8), (384, 6)):
        series = [sizes.expected_distinct_experts(experts, chosen, tokens) for tokens in range(1, 400)]
        assert series == sorted(series)
        for tokens, value in enumerate(series, 1):
            assert chosen <= value <= min(experts, tokens * chosen)


def test_distinct_experts_by_enumeration() -> None:
    """Oracle: every way that three tokens choose 2 of 5."""
    choices = list(itertools.combinations(range(5), 2))
    ways = [len(set().union(*way)) for way in itertools.product(choices, repeat=3)]
    assert sizes.expected_distinct_experts(5, 2, 3) == pytest.approx(sum(ways) / len(ways), rel=1e-12)


def test_u40_head_of_one_position() -> None:
    head = sizes.flops_per_token(model("Llama-3.1-8B")).head
    assert head == 1_050_673_152
    assert 2048 * head == 2_151_778_615_296  # what charging every prompt token would give


def test_u41_causal_attention_is_half_a_square_and_the_diagonal() -> None:
    llama = model("Llama-2-7b")
    assert sizes.attention_flops(llama, 2048) == 1_100_048_498_688
    square = 4 * 32 * 4096 * 2048 * 2048
    assert square == 2_199_023_255_552
    layers = [attrs.evolve(k, mixer=attrs.evolve(k.mixer, causal=False)) for k in llama.kinds]
    assert sizes.attention_flops(attrs.evolve(llama, kinds=tuple(layers)), 2048) == square


def test_attention_in_steps_equals_attention_at_once() -> None:
    for name in ("Gemma-2-9b", "DeepSeek-V3", "gpt-oss-20b"):
        spec = model(name)
        in_steps = sizes.attention_flops(spec, 100) + sum(sizes.attention_flops(spec, 1, c) for c in range(100, 300))
        assert in_steps == sizes.attention_flops(spec, 300)


def test_encoder_decoder_attention() -> None:
    t5 = model("T5-base")
    width = 4 * 12 * 12 * 64
    first = sizes.attention_flops(t5, 1, 0, encoder_tokens=512)
    assert first == width * (1 + 512 + 512 * 512)
    assert sizes.attention_flops(t5, 1, 7, encoder_tokens=512) == width * (8 + 512)
    flops = sizes.flops_per_token(t5)
    decoder, encoder = 12 * (6 * 768 * 768 + 2 * 768 * 3072), 12 * (6 * 768 * 768 + 2 * 768 * 3072)
    assert (flops.linear, flops.encoder) == (2 * decoder, 2 * encoder)  # cross K and V move from one to the other


@pytest.mark.parametrize("window", [0, 1, 3, 8, 100])
@pytest.mark.parametrize("context", [0, 1, 5, 20])
def test_pairs_by_counting(window: int, context: int) -> None:
    for new in range(12):
        seen = [min(context + i + 1, window or 10**9) for i in range(new)]
        assert sizes.attended_pairs(new, context, window) == sum(seen)
        assert sizes.attended_pairs(new, context, causal=False) == new * (context + new)


def test_u44_projections_by_their_own_sizes() -> None:
    gemma = model("Gemma-2-9b")
    (qkv, out) = mixer_matrices(gemma.kinds[0].mixer, gemma.hidden)
    assert 2 * qkv.n * qkv.k == 58_720_256
    assert 2 * qkv.n * qkv.k != 6 * 3584**2
    assert (out.n, out.k) == (3584, 16 * 256)


def test_matrices_of_a_layer_cover_dense_shared_and_expert_parts() -> None:
    moe = MoeSpec(experts=4, experts_per_token=2, intermediate=10, shared_intermediate=7, shared_gate=True)
    mixer = AttentionSpec(heads=2, kv_heads=1, head_dim=8)
    layer = LayerSpec(mixer=mixer, feed_forward=FeedForwardSpec(intermediate=20, gated=False), moe=moe)
    dense = [tuple(m) for m in feed_forward_matrices(layer, 16)]
    assert dense == [
        ("up", 20, 16),
        ("down", 16, 20),
        ("shared_gate_up", 14, 16),
        ("shared_down", 16, 7),
        ("shared_gate", 1, 16),
    ]
    assert [tuple(m) for m in layer_matrices(layer, 16)["experts"]] == [("expert_gate_up", 20, 16), ("expert_down", 16, 10)]
    assert [tuple(m) for m in layer_matrices(layer, 16)["router"]] == [("router", 4, 16)]


class Counted:
    """A number that counts the operations done with it."""

    flop = 0
    exp = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def _with(self, other: "Counted", value: float) -> "Counted":
        assert isinstance(other, Counted)
        Counted.flop += 1
        return Counted(value)

    def __add__(self, other: "Counted") -> "Counted":
        return self._with(other, self.value + other.value)

    def __sub__(self, other: "Counted") -> "Counted":
        return self._with(other, self.value - other.value)

    def __mul__(self, other: "Counted") -> "Counted":
        return self._with(other, self.value * other.value)

    def exponential(self) -> "Counted":
        Counted.exp += 1
        return Counted(math.exp(self.value))


def fresh(*shape: int) -> Any:
    return [fresh(*shape[1:]) for _ in range(shape[0])] if shape else Counted(0.5)


def counted(step: Any) -> tuple[int, int]:
    Counted.flop = Counted.exp = 0
    step()
    return Counted.flop, Counted.exp


def convolve(taps: int) -> Counted:
    total = Counted(0.1)  # bias, or the empty sum
    for weight, column in zip(fresh(taps), fresh(taps), strict=True):
        total = total + weight * column
    return total.exponential()  # SiLU


def test_mamba_step_by_counting() -> None:
    spec = StateSpaceSpec(inner=5, state=3, conv=4, dt_rank=2)

    def step() -> None:
        b, c = fresh(spec.state), fresh(spec.state)
        for _ in range(spec.inner):
            x, dt, gate = convolve(spec.conv), fresh().exponential(), fresh().exponential()
            assert gate.value > 0
            y, scaled = Counted(0.0), dt * x
            for n in range(spec.state):
                state = fresh() * (dt * fresh()).exponential() + scaled * b[n]
                y = y + c[n] * state
            y = y + fresh() * x

    work = scan_work(spec)
    assert counted(step) == (work.flop_per_token, work.exp_per_token)
    assert (work.state_elements, work.output_elements) == (5 * (3 + 4), 5)


def test_gated_delta_step_by_counting() -> None:
    spec = LinearAttentionSpec(key_heads=2, value_heads=4, key_head_dim=3, value_head_dim=5, conv=4)

    def step() -> None:
        for _ in range(2 * 2 * 3 + 4 * 5):
            convolve(4)
        for _ in range(4):
            decay, beta = fresh().exponential().exponential(), fresh().exponential()  # softplus inside the decay; sigmoid
            for _ in range(5):
                fresh().exponential()  # SiLU of the output gate
                key, query, state = fresh(3), fresh(3), [s * decay for s in fresh(3)]
                seen = Counted(0.0)
                for k, s in zip(key, state, strict=True):
                    seen = seen + k * s
                delta = beta * (fresh() - seen)
                out = Counted(0.0)
                for q, k, s in zip(query, key, state, strict=True):
                    out = out + q * (s + k * delta)

    work = scan_work(spec)
    assert counted(step) == (work.flop_per_token, work.exp_per_token)
    assert work.state_elements == 4 * 3 * 5 + (2 * 2 * 3 + 4 * 5) * 4


def test_recurrence_is_counted_for_recurrent_layers_only() -> None:
    jamba = sizes.flops_per_token(model("Jamba-v0.1"))
    assert jamba.recurrent == 28 * 8192 * (6 * 16 + 3 + 2 * 4)
    assert sizes.flops_per_token(model("GPT-2")).recurrent == 0
