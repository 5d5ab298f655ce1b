"""Attention on five GPUs against measured times of heads that no constant was fitted on; what its constants mean."""

from __future__ import annotations

import csv
from pathlib import Path

import attrs
import numpy as np
import pytest

from archmodel.components.gpu import costs
from archmodel.costs import Surroundings
from archmodel.holdout import fit_mask
from archmodel.operations import Kind, rows_from
from archmodel.predict import predict_file
from archmodel.soc import Soc
from archmodel.spec.chip import GpuSpec
from archmodel.spec.toml import load_chip
from archmodel.units import FORMATS

ROOT = Path(__file__).parents[2]
CHIPS = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s")
COLUMNS = ("batch", "seq_q", "kv_len", "heads", "kv_heads", "head_dim", "window", "attn_dtype", "kv_dtype", "latency_us")
LLAMA = {"batch": 1, "seq_q": 1, "kv_len": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "window": 0,
         "attn_dtype": "bf16", "kv_dtype": "bf16", "latency_us": ""}  # fmt: skip


def anchors(device, phase):
    lines = (ROOT / "tests/anchors/gpu_attention.csv").read_text().splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return [row for row in rows if row["device"] == device and (int(row["seq_q"]) > 1) == (phase == "context")]


def times_us(tmp_path, chip, rows, repeated=True):
    path = tmp_path / "attention.csv"
    lines = [",".join(COLUMNS), *(",".join(str(row[name]) for name in COLUMNS) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return predict_file(chip, path, repeated=repeated).predicted_us


@pytest.mark.parametrize("phase", ["context", "generation"])
@pytest.mark.parametrize("device", CHIPS)
def test_measured_times_of_heads_never_fitted(device, phase, tmp_path):
    """The bars, and a quarter more since these are a small sample of the rows."""
    rows = anchors(device, phase)
    assert len(rows) >= 100
    assert not fit_mask("attention", {name: [row[name] for row in rows] for name in ("heads", "kv_heads", "head_dim")}).any()
    error = np.abs(
        times_us(tmp_path, load_chip(ROOT / f"chips/{device}.toml"), rows) / [float(r["latency_us"]) for r in rows] - 1
    )
    bars = {"context": {"l40s": (0.10, 0.15)}, "generation": {"l40s": (0.12, 0.20), "a100_sxm": (0.10, 0.15)}}
    median, mean = bars[phase].get(device, {"context": (0.08, 0.12), "generation": (0.08, 0.13)}[phase])
    assert np.median(error) < 1.25 * median
    assert np.mean(error) < 1.25 * mean


@pytest.mark.parametrize("device", CHIPS)
def test_no_time_beats_memory_or_matrix_units(device, tmp_path):
    chip = load_chip(ROOT / f"chips/{device}.toml")
    gpu, hbm = chip.blocks["gpu"], chip.blocks["hbm"]
    rows = [row for phase in ("context", "generation") for row in anchors(device, phase) if row["window"] == "0"]
    batch, q, kv, heads, kv_heads, dim = (np.array([float(row[name]) for row in rows]) for name in COLUMNS[:6])
    time_s = times_us(tmp_path, chip, rows, repeated=False) * 1e-6
    cache_byte = np.array([1 if row["kv_dtype"] == "fp8" else 2 for row in rows]) * 2 * batch * kv * kv_heads * dim
    assert np.all(time_s >= cache_byte / (hbm.channels * hbm.channel_bit / 8 * hbm.data_rate_gbit_per_s * 1e9))
    scores = batch * heads * np.where(q > 1, q * (q + 1) / 2, kv)
    assert np.all(time_s[q > 1] >= (4 * dim * scores / (gpu.cores * 2 * gpu.clock_ghz * 1e9))[q > 1]
                  / gpu.macs_per_core_per_cycle["bf16"])  # fmt: skip


def changed(chip, **constants):
    blocks = {name: attrs.evolve(b, **constants) if isinstance(b, GpuSpec) else b for name, b in chip.blocks.items()}
    return attrs.evolve(chip, blocks=blocks)


def test_keys_cached_from_the_last_time_save_memory_time(tmp_path):
    """Keys and values that fit the L2 of 96 MB stay there between repetitions: 67 MB do, 537 MB do not."""
    chip = load_chip(ROOT / "chips/l40s.toml")
    rows = [{**LLAMA, "batch": count} for count in (4, 32)]
    hot, cold = times_us(tmp_path, chip, rows), times_us(tmp_path, chip, rows, repeated=False)
    assert hot[0] < 0.6 * cold[0]
    assert hot[1] == pytest.approx(cold[1], rel=1e-9)


def test_heads_are_stacked_up_to_a_limit(tmp_path):
    """The 32 query heads of one KV head share its load; 33 do not, and run on the vector lanes as 33 loads."""
    chip = load_chip(ROOT / "chips/h100_sxm.toml")
    rows = [{**LLAMA, "batch": 64, "kv_heads": 1, "heads": heads} for heads in (32, 33)]
    stacked, alone = times_us(tmp_path, chip, rows)
    assert alone > 3 * stacked
    assert times_us(tmp_path, changed(chip, attention_stacked_heads=64), rows)[1] == pytest.approx(stacked, rel=0.6)


def test_few_waves_of_parts_leave_blocks_beside_the_window_out(tmp_path):
    """Hopper's kernels launch eight waves of blocks over a long cache with a window, Blackwell's one."""
    rows = [{**LLAMA, "batch": 16, "head_dim": 64, "window": 128, "kv_len": kv} for kv in (128, 65536)]
    hopper, blackwell = (times_us(tmp_path, load_chip(ROOT / f"chips/{name}.toml"), rows) for name in ("h100_sxm", "b200_sxm"))
    assert hopper[1] > 2 * hopper[0]
    assert blackwell[1] < 1.3 * blackwell[0]


def test_latent_attention_is_faster_absorbed_in_generation_and_expanded_in_a_prompt():
    """DeepSeek's 128 heads of 128 + 64 and 128 over one latent of 512 + 64: one cached vector for all heads, or keys and values
    of every head. Measured on H200 (aiconfigurator-core 0.12.0, Apache-2.0): 914 us for 64 x 32768 tokens."""
    chip = load_chip(ROOT / "chips/h200_sxm.toml")
    absorbed = {"kv_heads": 1.0, "qk_dim": 576.0, "v_dim": 512.0, "latent": 1.0, "cached": 1.0}
    expanded = {"kv_heads": 128.0, "qk_dim": 192.0, "v_dim": 128.0, "latent": 0.0, "cached": 0.0}
    both = {"name": "mla", "kind": Kind.ATTENTION, "compute_format": FORMATS.index("bf16"), "heads": 128.0, "causal": 1.0,
            "kv_byte": 2.0, "input_byte": 2.0, "output_byte": 2.0}  # fmt: skip
    sizes = [
        {"sequences": 64.0, "q_tokens": 1.0, "kv_tokens": 32768.0},
        {"sequences": 2.0, "q_tokens": 4096.0, "kv_tokens": 4096.0},
    ]
    rows = rows_from([{**both, **form, **size} for size in sizes for form in (absorbed, expanded)])
    soc = Soc(chip)
    around = Surroundings(
        buffer_byte=52e6, buffer_byte_per_s=soc.path_byte_per_s("gpu", "l2"),
        memory_byte_per_s=np.full(4, soc.path_byte_per_s("gpu", "hbm")), memory_latency_s=344e-9,
    )  # fmt: skip
    time_us = costs(chip.blocks["gpu"], rows, around).duration_s * 1e6
    assert time_us[0] < time_us[1] / 10
    assert time_us[3] < time_us[2] / 2
    assert time_us[0] == pytest.approx(914.38, rel=0.35)
