"""Make the tables `energy_*.csv` beside this file: `python data/validation/cut_energy.py ENERGY CHIPS`.

ENERGY is a folder with measured_op_power.csv and measured_llm_energy.csv, CHIPS one with gpu_roofline_power.csv.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

from archmodel.holdout import draw, family, is_fit

HERE = Path(__file__).parent
#: share of the rows of prefill attention, MoE and GEMM that is kept, by a hash of the row; of decode attention all
KEPT = 0.45
DEVICES = {
    "H200-SXM-141GB": "h200_sxm", "B200-SXM-180GB": "b200_sxm", "GB200": "gb200", "H100-SXM5-80GB": "h100_sxm",
    "H200 SXM": "h200_sxm", "A100-SXM4-40GB": "a100_sxm",
}  # fmt: skip
FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "mxfp4": "mxfp4"}
COLUMNS = {
    "gemm": "m,n,k",
    "moe": "num_tokens,hidden,inter,topk,experts,tp,ep,distribution",
    "attention": "batch,seq_q,kv_len,heads,kv_heads,head_dim,window",
}
#: models of the serving runs whose config.json is in workloads/models
MODELS = {
    "DeepSeek-R1-0528": "deepseek-v3", "Llama-3.1-405B-Instruct": "llama-3.1-405b",
    "Llama-3.1-405B-Instruct-FP8": "llama-3.1-405b",
    "Llama-3.1-70B-Instruct": "llama-3.1-70b", "Llama-3.3-70B-Instruct": "llama-3.1-70b",
    "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Qwen3-235B-A22B-Instruct-2507": "qwen3-235b-a22b", "Qwen3-235B-A22B-Thinking-2507": "qwen3-235b-a22b",
    "Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b", "Qwen3-30B-A3B-Thinking-2507": "qwen3-30b-a3b",
    "Qwen3-Coder-30B-A3B-Instruct": "qwen3-30b-a3b", "Qwen3-32B": "qwen3-32b", "Qwen3-8B": "qwen3-8b",
    "Qwen3-Coder-480B-A35B-Instruct-FP8": "qwen3-coder-480b-a35b", "gemma-3-12b-it": "gemma-3-12b",
    "gpt-oss-20b": "gpt-oss-20b",
    "gpt-j-6b": "gpt-j-6b", "Llama-2-70b-chat": "llama-2-70b",
}  # fmt: skip

Row = dict[str, str]


def kernels(source: Iterable[Row]) -> dict[str, list[list[str]]]:
    """Rows of each table of kernels, with its header first."""
    tables: dict[str, list[list[str]]] = {}
    for row in source:
        what = row["op"] if row["op"] in ("gemm", "moe") else "attention"
        decode = row["op"] == "decode_attention"
        if not decode and draw("energy:" + ",".join(row.values())) >= KEPT:
            continue
        row["num_tokens"], row["seq_q"] = row["m"], "1" if decode else row["kv_len"]
        formats = [FORMATS[name.removeprefix("kv_")] for name in row["dtype"].split("/")]
        names = COLUMNS[what].split(",")
        header = ["part", *(["attn_dtype", "kv_dtype"] if what == "attention" else ["dtype"]), *names, "latency_us", "power_w"]
        table = tables.setdefault(f"energy_{what}_{DEVICES[row['gpu']]}", [header])
        part = "fit" if is_fit(family(what, row)) else "report"
        measured = [f"{1e3 * float(row['latency_ms']):.5g}", f"{float(row['power_w']):.4g}"]
        table.append([part, *formats, *(row[name] for name in names), *measured])
    return tables


def serving(source: Iterable[Row]) -> dict[str, list[list[str]]]:
    """Runs of text models at the boards, and of servers at the wall."""
    boards = [
        ["device", "name", "model", "precision", "gpus", "workload", "concurrency", "output_tokens", "tokens_per_s", "power_w"]
    ]
    wall = [
        ["device", "box", "model", "precision", "gpus", "scenario", "input_tokens", "output_tokens", "tokens_per_s", "wall_w"]
    ]
    for row in source:
        model, device = MODELS.get(row["base_model"]), DEVICES.get(row["gpu"], "")
        if row["source"] == "mlenergy_v3" and row["tier"] == "A" and model:
            numbers = [f"{float(row[name]):.5g}" for name in ("concurrency_avg", "output_len", "out_tok_s", "power_per_gpu_w")]
            names = [device, row["base_model"], model, FORMATS[row["weight_precision"]], row["gpu_count"], row["workload"]]
            boards.append([*names, *numbers])
        if row["source"].startswith("mlperf_power") and model:
            precision = "fp8" if device == "h200_sxm" else "nvfp4"
            names = [device, row["note"].split(";")[0], model, precision, "8", row["workload"].split()[1]]
            wall.append([*names, *(row[name] for name in ("input_len", "output_len", "out_tok_s", "power_total_w"))])
    return {"energy_serving": boards, "energy_wall": wall}


def roofline(source: Iterable[Row]) -> dict[str, list[list[str]]]:
    """Runs of the roofline kernel on GPUs that hold their clock."""
    table = [["device", "flop_per_byte", "memory_gb_per_s", "gflop_per_s", "power_w"]]
    names = ("flop_per_byte", "dram_gbs", "gflops", "power_w")
    table += [[DEVICES[row["gpu"]], *(row[name] for name in names)] for row in source if row["gpu"] in DEVICES]
    return {"energy_roofline": table}


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    energy, chips = map(Path, sys.argv[1:])
    tables = kernels(read(energy / "measured_op_power.csv")) | serving(read(energy / "measured_llm_energy.csv"))
    for name, rows in (tables | roofline(read(chips / "gpu_roofline_power.csv"))).items():
        with (HERE / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
