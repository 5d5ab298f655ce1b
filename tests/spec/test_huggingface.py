"""Reading config.json: 38 published models, small variants of every family, and files that must be refused."""

import copy
import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from archmodel import sizes
from archmodel.errors import SpecError
from archmodel.spec.huggingface import MODEL_TYPES, model_from_config, read_config
from archmodel.spec.model import AttentionSpec, LinearAttentionSpec, ModelSpec

ANCHORS = Path(__file__).parents[1] / "anchors" / "model_configs"
INDEX = list(csv.DictReader((ANCHORS / "index.csv").open()))
VARIANTS = [json.loads(line) for line in (ANCHORS / "variants.jsonl").read_text().splitlines()]


def config(name: str) -> dict[str, Any]:
    return json.loads((ANCHORS / f"{name}.json").read_text())


def changed(name: str, **changes: Any) -> dict[str, Any]:
    """A copy with keys changed; `...` removes one."""
    table = {**config(name), **changes}
    return {key: value for key, value in table.items() if value is not ...}


def refused(table: Any) -> dict[str, str]:
    """Problems by key of a config that must be refused."""
    with pytest.raises(SpecError) as error:
        model_from_config(table, "x.json")
    assert str(error.value).startswith("x.json: ")
    return {problem.key: str(problem) for problem in error.value.problems}


def number(row: dict[str, str], column: str) -> int:
    return int(row[column] or 0)


@pytest.mark.parametrize("row", INDEX, ids=lambda row: row["name"])
def test_published_models_are_counted_exactly(row: dict[str, str]) -> None:
    model = read_config(ANCHORS / f"{row['name']}.json")
    assert model.name == row["name"]
    assert sizes.total_parameters(model) == number(row, "total_params")
    if row["active_params"]:
        assert sizes.active_parameters(model) == number(row, "active_params")
        table = model.vocabulary * model.hidden
        assert sizes.active_parameters(model) - table == number(row, "active_params_no_input_embedding")
    elif not model.towers:
        assert sizes.active_parameters(model) == sizes.total_parameters(model)
    all_layers = sizes.kv_cache_bytes_per_token(model, "bf16")
    unbounded = sizes.kv_cache_bytes_per_token_unbounded(model, "bf16")
    assert all_layers == number(row, "kv_bytes_per_token_bf16_all_layers")
    assert unbounded == number(row, "kv_bytes_per_token_bf16_unbounded")
    assert all_layers - unbounded == number(row, "windowed_layers_bytes_per_token_bf16")
    windows = {m.window_tokens for m in mixers(model) if isinstance(m, AttentionSpec)} - {0}
    assert windows == ({number(row, "window_tokens")} if row["window_tokens"] else set())
    assert sizes.state_bytes_per_sequence(model, "bf16") == number(row, "constant_state_bytes_per_sequence_bf16")


def mixers(model: ModelSpec) -> list[Any]:
    return [model.kinds[kind].mixer for kind in model.order]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant["name"])
def test_variants_match_the_reference_build(variant: dict[str, Any]) -> None:
    model = model_from_config(variant["config"], variant["name"])
    assert sizes.total_parameters(model) == variant["parameters"]


def test_every_model_type_has_an_anchor() -> None:
    covered = {row["model_type"] for row in INDEX} | {variant["config"]["model_type"] for variant in VARIANTS}
    assert set(MODEL_TYPES) - covered == {"xlm-roberta"}  # the same rules as roberta


def test_vision_transformer_base_with_its_class_head() -> None:
    labels = {str(i): f"LABEL_{i}" for i in range(1000)}
    table = {"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
             "intermediate_size": 3072, "image_size": 224, "patch_size": 16, "id2label": labels}  # fmt: skip
    model = model_from_config(table, "vit.json")
    assert sizes.total_parameters(model) == 86_567_656  # parameters that torchvision publishes for vit_b_16
    assert (model.family, model.vocabulary, model.positions, model.classes) == ("encoder", 0, 197, 1000)
    assert sizes.kv_cache_bytes_per_token(model, "bf16") == 0


def test_hybrid_linear_attention_keeps_a_constant_state() -> None:
    variant = next(v for v in VARIANTS if v["name"] == "qwen3_next")
    model = model_from_config(variant["config"], "x.json")
    assert [isinstance(mixer, LinearAttentionSpec) for mixer in mixers(model)] == [True, True, True, False] * 2
    assert sizes.kv_cache_bytes_per_token(model, "bf16") == 2 * 2 * 4 * 16 * 2
    convolved = 2 * 4 * 12 + 8 * 20
    assert sizes.state_bytes_per_sequence(model, "fp32") == 6 * 4 * (8 * 12 * 20 + convolved * 4)


@pytest.mark.parametrize("head_dim", [..., None, 128])
def test_head_dim_absent_null_or_declared(head_dim: Any) -> None:
    """U23: derived where the class derives it; never where it is declared."""
    model = model_from_config(changed("Llama-3.1-8B", head_dim=head_dim), "x.json")
    assert sizes.kv_cache_bytes_per_token(model, "bf16") == 131_072
    gemma = model_from_config(config("Gemma-2-9b"), "x.json")
    assert sizes.kv_cache_bytes_per_token(gemma, "bf16") == 344_064  # 3584 / 16 = 224 would give 301,056


def test_head_dim_of_the_class_is_never_replaced_by_a_guess() -> None:
    absent = model_from_config(changed("Gemma-2-9b", head_dim=...), "x.json")
    assert sizes.kv_cache_bytes_per_token(absent, "bf16") == 344_064
    assert "224" in refused(changed("Gemma-2-9b", head_dim=None))["head_dim"]


def test_kv_heads_absent_or_null_are_all_heads() -> None:
    for value in (..., None):
        model = model_from_config(changed("Llama-3.1-8B", num_key_value_heads=value), "x.json")
        assert sizes.kv_cache_bytes_per_token(model, "bf16") == 4 * 131_072


def test_window_that_no_sequence_outgrows_is_none() -> None:
    model = model_from_config(changed("Mistral-7B-v0.1", sliding_window=32768), "x.json")
    assert sizes.kv_cache_bytes_per_token_unbounded(model, "bf16") == 131_072
    model = model_from_config(changed("Mistral-7B-v0.1", sliding_window=None), "x.json")
    assert sizes.kv_cache_bytes_per_token_unbounded(model, "bf16") == 131_072


def test_qwen_windows_start_at_max_window_layers() -> None:
    table = changed("Qwen2.5-7B", use_sliding_window=True, sliding_window=4096, max_window_layers=21)
    model = model_from_config(table, "x.json")
    assert [m.window_tokens for m in mixers(model)] == [0] * 21 + [4096] * 7


def test_name_comes_from_the_file_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my model ü"
    folder.mkdir()
    text = json.dumps(config("Llama-3.2-1B"), indent=1).replace("\n", "\r\n")
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + text.encode())  # byte order mark and CRLF
    model = read_config(folder / "config.json")
    assert (model.name, sizes.total_parameters(model)) == ("my model ü", 1_235_814_400)


BROKEN: list[tuple[str, dict[str, Any], str, str]] = [
    ("Llama-3.1-8B", {"model_type": "lama"}, "model_type", '"lama", not supported, did you mean llama?'),
    ("Llama-3.1-8B", {"model_type": ...}, "model_type", "missing"),
    ("Llama-3.1-8B", {"model_type": ["llama"]}, "model_type", "must be a string"),
    ("Llama-3.1-8B", {"hidden_size": ...}, "hidden_size", "missing"),
    ("Llama-3.1-8B", {"hidden_size": None}, "hidden_size", "null, must be an integer"),
    ("Llama-3.1-8B", {"hidden_size": "4096"}, "hidden_size", '"4096", must be an integer'),
    ("Llama-3.1-8B", {"hidden_size": 4096.5}, "hidden_size", "must be an integer"),
    ("Llama-3.1-8B", {"hidden_size": float("nan")}, "hidden_size", "must be an integer"),
    ("Llama-3.1-8B", {"hidden_size": True}, "hidden_size", "must be an integer"),
    ("Llama-3.1-8B", {"hidden_size": 4100}, "hidden_size", "must be a multiple of num_attention_heads = 32"),
    ("Llama-3.1-8B", {"num_hidden_layers": 0}, "num_hidden_layers", "0, must be >= 1"),
    ("Llama-3.1-8B", {"num_hidden_layers": 10**12}, "num_hidden_layers", "must be <= 10000"),
    ("Llama-3.1-8B", {"vocab_size": -1}, "vocab_size", "-1, must be >= 1"),
    ("Llama-3.1-8B", {"num_key_value_heads": 5}, "num_key_value_heads", "5, must divide num_attention_heads = 32"),
    ("Llama-3.1-8B", {"num_key_value_heads": 0}, "num_key_value_heads", "0, must be >= 1"),
    ("Llama-3.1-8B", {"head_dim": -64}, "head_dim", "must be >= 1"),
    ("Llama-3.1-8B", {"tie_word_embeddings": "yes"}, "tie_word_embeddings", "must be true or false"),
    ("Llama-3.1-8B", {"n_embd": 2048}, "hidden_size", "disagrees with n_embd"),
    ("Llama-3.1-8B", {"add_cross_attention": True}, "add_cross_attention", "not supported"),
    ("GPT-2", {"n_embd": 0}, "n_embd", "0, must be >= 1"),
    ("Mixtral-8x7B-v0.1", {"num_experts_per_tok": 9}, "num_experts_per_tok", "must be at most num_experts = 8"),
    ("Mixtral-8x7B-v0.1", {"num_local_experts": ...}, "num_experts", "missing"),
    ("DeepSeek-V3", {"kv_lora_rank": 0}, "kv_lora_rank", "must be >= 1"),
    ("DeepSeek-V3", {"moe_layer_freq": 2}, "moe_layer_freq", "not supported"),
    ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "layer_types", "has 1 entries, must have 24"),
    ("gpt-oss-20b", {"layer_types": ["chunked_attention"] * 24}, "layer_types", '"chunked_attention", which is not supported'),
    ("gpt-oss-20b", {"layer_types": "full_attention"}, "layer_types", "must be a list"),
    ("gpt-oss-20b", {"sliding_window": None}, "sliding_window", "null, must be an integer"),
    ("OPT-6.7b", {"word_embed_proj_dim": 512}, "word_embed_proj_dim", "must be hidden_size = 4096"),
    ("DBRX", {"ffn_config": 3}, "ffn_config", "must be an object"),
    ("T5-base", {"d_kv": 0}, "d_kv", "must be >= 1"),
    ("T5-base", {"feed_forward_proj": 1}, "feed_forward_proj", "must be a string"),
    ("BERT-base-uncased", {"position_embedding_type": "relative_key"}, "position_embedding_type", "not supported"),
    ("Gemma-4-26B-A4B", {"text_config": ...}, "text_config", "missing"),
    ("Gemma-4-26B-A4B", {"audio_config": {"hidden_size": 8}}, "audio_config", "not supported"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "key", "rule"), BROKEN, ids=lambda value: str(value)[:40])
def test_broken_config_names_key_and_rule(name: str, changes: dict[str, Any], key: str, rule: str) -> None:
    assert rule in refused(changed(name, **changes))[key]


def test_nested_problem_names_its_path() -> None:
    table = config("Gemma-4-26B-A4B")
    table["text_config"]["num_kv_shared_layers"] = 20
    table["vision_config"]["patch_size"] = 0
    assert set(refused(table)) == {"text_config.num_kv_shared_layers", "vision_config.patch_size"}


def test_all_problems_come_at_once_and_without_followers() -> None:
    table = changed("Mixtral-8x7B-v0.1", hidden_size=..., num_attention_heads=-1, num_experts_per_tok=99, vocab_size="x")
    assert set(refused(table)) == {"hidden_size", "num_attention_heads", "num_experts_per_tok", "vocab_size"}


TEXTS = {
    "truncated": (b'{"model_type": "llama", "hidden_size": 40', "is not valid JSON"),
    "empty": (b"", "is not valid JSON"),
    "duplicate": (b'{"model_type": "llama", "hidden_size": 1, "hidden_size": 2}', "hidden_size: stands twice"),
    "nan": (b'{"model_type": "llama", "hidden_size": NaN}', "holds NaN"),
    "infinity": (b'{"model_type": "llama", "hidden_size": -Infinity}', "holds -Infinity"),
    "overflow": (b'{"model_type": "llama", "hidden_size": 1e999}', "hidden_size: Infinity, must be an integer"),
    "digits": (b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}", "file: "),
    "list": (b'[{"model_type": "llama"}]', "must hold one JSON object"),
    "binary": (b"\xff\xfe\x00{", "is not UTF-8"),
    "deep": (b"[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_text_that_is_no_config_is_refused(tmp_path: Path, case: str) -> None:
    text, rule = TEXTS[case]
    file = tmp_path / "config.json"
    file.write_bytes(text)
    with pytest.raises(SpecError) as error:
        read_config(file)
    assert rule in str(error.value)
    assert str(file) in str(error.value)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(SpecError):
            read_config(path)


def test_any_single_wrong_value_is_read_or_refused_never_a_crash() -> None:
    """Seeded fuzz: a random leaf of a random config becomes a random wrong value."""
    rng = random.Random(7)
    wrong = [None, 0, -1, 1, 3, 10**30, 0.5, float("inf"), "", "x", True, False, [], [None], [[]], {}, {"a": 1}]
    tables = [config(row["name"]) for row in INDEX] + [variant["config"] for variant in VARIANTS]
    outcomes = {True: 0, False: 0}
    for _ in range(1500):
        table = copy.deepcopy(rng.choice(tables))
        inner = table
        key = rng.choice(list(inner))
        while isinstance(inner[key], dict) and inner[key] and rng.random() < 0.8:
            inner = inner[key]
            key = rng.choice(list(inner))
        inner[key] = rng.choice(wrong)
        try:
            read = sizes.total_parameters(model_from_config(table, "x.json")) > 0
        except SpecError:
            read = False
        outcomes[read] += 1
    assert min(outcomes.values()) > 100
