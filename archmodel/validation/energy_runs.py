"""Measured power of serving runs: counted events at the measured throughput, and what the model says without it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import attrs
import numpy as np

from archmodel.calibration.energy import Design, design
from archmodel.operations import Floats
from archmodel.result import Result, row_energy_j
from archmodel.serving import point_of, served_precision, serving_steps
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec
from archmodel.spec.huggingface import read_config
from archmodel.spec.toml import load_chip, load_stack

#: mean prompt [tokens] by workload, which the source does not give. Where a run fills the KV cache, cache / sequences
#: is the mean prompt and what is answered so far: 520-820 tokens in lm-arena-chat with answers of 400-650, at most
#: about 1,200 in sourcegraph-fim with answers of 250. Questions of GPQA with their choices have about 250. They were
#: chosen by this, not by the error of power.
PROMPT_TOKENS = {"lm-arena-chat": 300, "gpqa": 250, "sourcegraph-fim": 1000}

#: models of experts, which no bar counts: the constant mean that the bars are set against is of dense models
EXPERTS = ("deepseek-v3", "qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-coder-480b-a35b", "gpt-oss-20b")

#: stack of the runs (vLLM 0.11.1) by device
STACKS = {"h100_sxm": "vllm", "b200_sxm": "vllm_b200"}

Row = dict[str, str]


@attrs.frozen(eq=False, kw_only=True)
class ServedRun:
    """One measured run. Counts are of kernels of its table in a second; power is of one GPU."""

    device: str
    name: str
    model: str
    workload: str
    gpus: int
    concurrency: float
    tokens_per_s: float  # measured, of all GPUs
    measured_w: float
    predicted_tokens_per_s: float
    chip: ChipSpec  # with the group of GPUs
    result: Result
    per_step: Floats  # kernels in a decode step and its part of the prompts, shape (rows,)
    batch: int

    @property
    def dense(self) -> bool:
        return self.model not in EXPERTS

    def energy_j(self, chip: ChipSpec) -> float:
        """Dynamic energy [J] of one GPU in a step that gives each sequence a token, with the energies of `chip`."""
        soc = Soc(attrs.evolve(chip, placement=self.chip.placement))
        return float(sum(value @ self.per_step for value in row_energy_j(soc, self.result.table).values()))


def served_runs(root: Path) -> Iterator[ServedRun]:
    """Measured runs in the clone at `root`; nothing where there is no table."""
    path = root / "data/validation/energy_serving.csv"
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    stack = cache(lambda device: load_stack(root / f"stacks/{STACKS[device]}.toml"))
    chip = cache(lambda name: load_chip(root / f"chips/{name}.toml"))
    model = cache(lambda name: read_config(root / f"workloads/models/{name}.json"))
    for row in rows:
        prompt, answer = PROMPT_TOKENS[row["workload"]], round(float(row["output_tokens"]))
        result = serving_steps(
            chip(row["device"]), model(row["model"]), served_precision(row["precision"]), int(row["gpus"]),
            max(1, round(float(row["concurrency"]))), prompt, answer, stack(row["device"]),
        )  # fmt: skip
        mixed, decode = result.steps
        batch = result.workload.request.batch
        point = point_of(result, answer)
        yield ServedRun(
            device=row["device"], name=row["name"], model=row["model"], workload=row["workload"], gpus=int(row["gpus"]),
            concurrency=float(row["concurrency"]), tokens_per_s=float(row["tokens_per_s"]), measured_w=float(row["power_w"]),
            predicted_tokens_per_s=batch / point.tpot_s, chip=result.chip, result=result, batch=batch,
            per_step=decode.count + (mixed.count - decode.count) * batch / answer,
        )  # fmt: skip


def runs_design(chip: ChipSpec, names: tuple[str, ...], runs: Sequence[ServedRun], *, predicted: bool = False) -> Design:
    """Power of runs on one device as a linear model, at their measured throughput or at the predicted one."""
    rate = [run.predicted_tokens_per_s if predicted else run.tokens_per_s for run in runs]
    chip = attrs.evolve(chip, software=runs[0].chip.software)
    step_s = np.array([run.batch for run in runs]) / np.array(rate)
    return design(chip, names, lambda there: np.array([run.energy_j(there) for run in runs]), step_s)
