"""Serving points: laws of the closed loop, and measured times per output token of models that no stack was fitted on."""

from __future__ import annotations

import csv
from pathlib import Path

import attrs
import numpy as np
import pytest

from archmodel.errors import MappingError, SpecError
from archmodel.serving import sequences_that_fit, served_precision, serving_point
from archmodel.spec.huggingface import read_config
from archmodel.spec.toml import load_chip, load_stack

ROOT = Path(__file__).parents[1]
CHIPS = {name: load_chip(ROOT / f"chips/{name}.toml") for name in ("h100_sxm", "h200_sxm", "b200_sxm")}
STACKS = {name: load_stack(ROOT / f"stacks/{name}.toml") for name in ("vllm", "trtllm", "sglang")}
MODELS = {name: read_config(ROOT / f"workloads/models/{name}.json") for name in ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b")}
ROWS = list(csv.DictReader((ROOT / "tests/anchors/serving.csv").open(encoding="utf-8")))


def point(row, **changes):
    row = {**row, **changes}
    stack = row.get("stack") or STACKS[row["backend"]]
    return serving_point(
        CHIPS[row["device"]], MODELS[row["model"]], served_precision(row["precision"], row["kv_cache"]), int(row["tp"]),
        int(row["concurrency"]), int(row["isl"]), int(row["osl"]), stack,
    )  # fmt: skip


def some(count=20, **wanted):
    found = [row for row in ROWS if all(row[key] == value for key, value in wanted.items())]
    order = np.random.default_rng(5).permutation(len(found))
    return [found[i] for i in order[:count]]


def tpot_errors(rows):
    return np.array([point(row).tpot_s * 1e3 / float(row["tpot_ms"]) - 1.0 for row in rows])


@pytest.mark.parametrize(
    ("model", "device", "backend", "precision", "bar"),
    [("llama-3.1-70b", "h200_sxm", "trtllm", "fp8", 0.10), ("llama-3.1-70b", "h200_sxm", "vllm", "fp8", 0.10),
     ("llama-3.1-70b", "h100_sxm", "vllm", "fp8", 0.12), ("llama-3.1-8b", "h100_sxm", "trtllm", "bf16", 0.10),
     ("llama-3.1-70b", "b200_sxm", "vllm", "fp8", 0.10), ("llama-3.1-8b", "h200_sxm", "sglang", "fp8", 0.25)],
)  # fmt: skip
def test_time_per_output_token_of_models_that_no_stack_was_fitted_on(model, device, backend, precision, bar):
    rows = some(model=model, device=device, backend=backend, precision=precision)
    assert len(rows) == 20
    assert np.median(np.abs(tpot_errors(rows))) < bar


def test_a_static_batch_is_too_fast_where_answers_are_short():
    """What the interference of prompts is there for."""
    rows = some(model="llama-3.1-8b", device="h100_sxm", osl="128")
    static = np.array([point(row).static_tpot_s * 1e3 / float(row["tpot_ms"]) - 1.0 for row in rows])
    assert np.median(static) < -0.4
    assert abs(np.median(tpot_errors(rows))) < 0.15


ROW = {"model": "llama-3.1-8b", "device": "h100_sxm", "backend": "vllm", "precision": "bf16", "kv_cache": "bf16", "tp": "1",
       "concurrency": "16", "isl": "1024", "osl": "256"}  # fmt: skip


def test_one_client_sees_a_static_batch():
    alone = point(ROW, concurrency="1")
    assert alone.tpot_s == alone.static_tpot_s


def test_more_clients_and_shorter_answers_cost_time():
    times = [point(ROW, concurrency=str(c)).tpot_s for c in (1, 4, 16, 64)]
    assert times == sorted(times)
    assert point(ROW, osl="64").tpot_s > point(ROW, osl="512").tpot_s
    assert point(ROW).tpot_s > point(ROW).static_tpot_s


def test_the_host_work_of_a_step_adds():
    plain = attrs.evolve(STACKS["vllm"], step_us=0.0, sequence_us=0.0)
    more = attrs.evolve(plain, step_us=1000.0, sequence_us=10.0)
    difference = point(ROW, stack=more).static_tpot_s - point(ROW, stack=plain).static_tpot_s
    assert difference == pytest.approx((1000 + 16 * 10) * 1e-6)


def test_the_batch_is_what_the_cache_holds():
    chip, model, precision = CHIPS["h100_sxm"], MODELS["llama-3.1-8b"], served_precision("bf16")
    each = 2 * 8 * 128 * 2 * 32 * (8192 + 512)  # K and V, heads, elements, bytes, layers, tokens
    room = 0.9 * 85.899e9 - 16.06e9
    assert sequences_that_fit(chip, model, precision, 8192, 1024) == int(room // each)
    assert point(ROW, concurrency="500", isl="8192", osl="1024").batch == int(room // each)


def test_what_cannot_be_served_is_refused():
    with pytest.raises(MappingError, match="not one sequence"):
        point(ROW, model="llama-3.1-70b")
    with pytest.raises(MappingError, match="no such served format"):
        served_precision("fp3")


def test_prompts_stall_others_or_are_waited_for():
    """What an interference below 1 takes from the answers it adds to the wait for the first token."""
    half = attrs.evolve(STACKS["vllm"], prompt_interference=0.5)
    full, some_wait = point(ROW), point(ROW, stack=half)
    osl = int(ROW["osl"])
    assert some_wait.tpot_s < full.tpot_s
    assert some_wait.ttft_s - full.ttft_s == pytest.approx((full.tpot_s - some_wait.tpot_s) * osl)


def test_a_stack_file_holds_software_and_nothing_else(tmp_path):
    file = tmp_path / "stack.toml"
    file.write_text("[software]\nlaunch_us = { matmull = 3.0 }\nstep_us = -1\n[gpu]\ncores = 3\n", encoding="utf-8")
    with pytest.raises(SpecError) as error:
        load_stack(file)
    assert all(word in str(error.value) for word in ("matmull", "step_us", "gpu"))
