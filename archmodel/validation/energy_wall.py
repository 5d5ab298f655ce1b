"""Whole servers at the meter, and cards of a chip that nobody fitted."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np

from archmodel.calibration.energy import static_w
from archmodel.components.power import held_power_w
from archmodel.evaluate import evaluate_steps
from archmodel.result import row_energy_j
from archmodel.serving import served_precision, serving_steps
from archmodel.soc import Soc
from archmodel.spec.huggingface import model_from_config, read_config
from archmodel.spec.toml import load_chip, load_stack
from archmodel.spec.workload import RequestSpec, WorkloadSpec
from archmodel.steps import Group, Sample, Step

#: what MLPerf's logs do not say. GPUs of a group: the fewest whose memory holds weights and cache. Sequences of a group: what
#: an offline run keeps in flight. Prompt [tokens] of CNN/DailyMail, which the source leaves out: recall
GROUP = {"gpt-j-6b": 1, "llama-2-70b": 1, "llama-3.1-405b": 4}
SEQUENCES = 512
PROMPT_TOKENS = 870

#: one of the 14 layers of the 3B model (layers shaped as in Granite 8B Code), without tables
CARD_LAYER = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 1, "vocab_size": 256, "hidden_act": "silu", "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
CARD_CONTEXT = 2048


@attrs.frozen(kw_only=True)
class WallRun:
    """A run of a whole server. The overhead of its box is the mean of the box's OTHER runs."""

    device: str
    box: str
    model: str
    scenario: str
    tokens_per_s: float
    measured_w: float  # at the wall
    boards_w: float  # predicted, all GPUs
    overhead_w: float

    @property
    def predicted_w(self) -> float:
        return self.boards_w + self.overhead_w


@attrs.frozen(kw_only=True)
class CardRun:
    """Accelerator cards that run a model; the prediction is the chip file's, bottom up."""

    device: str
    measured_w: float
    predicted_w: float


def wall_runs(root: Path) -> Iterator[WallRun]:
    """Measured servers in the clone at `root`, whose box has two runs or more; nothing where there is no table."""
    path = root / "data/validation/energy_wall.csv"
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    boards = [_boards_w(root, row) for row in rows]
    excess = [float(row["wall_w"]) - board for row, board in zip(rows, boards, strict=True)]
    for index, (row, board) in enumerate(zip(rows, boards, strict=True)):
        others = [e for j, e in enumerate(excess) if j != index and rows[j]["box"] == row["box"]]
        if not others:
            continue
        yield WallRun(
            device=row["device"], box=row["box"], model=row["model"], scenario=row["scenario"],
            tokens_per_s=float(row["tokens_per_s"]), measured_w=float(row["wall_w"]), boards_w=board,
            overhead_w=float(np.mean(others)),
        )  # fmt: skip


def _boards_w(root: Path, row: dict[str, str]) -> float:
    """Power [W] of all GPUs of a server at the measured rate."""
    chip = load_chip(root / f"chips/{row['device']}.toml")
    model = read_config(root / f"workloads/models/{row['model']}.json")
    group, gpus = GROUP[row["model"]], int(row["gpus"])
    answer = round(float(row["output_tokens"]))
    prompt = round(float(row["input_tokens"] or PROMPT_TOKENS))
    precision, stack = served_precision(row["precision"], "fp8"), load_stack(root / "stacks/trtllm.toml")
    result = serving_steps(chip, model, precision, group, SEQUENCES, prompt, answer, stack)
    mixed, decode = result.steps
    batch = result.workload.request.batch
    counts = decode.count + (mixed.count - decode.count) * batch / answer
    step_j = sum(float(value @ counts) for value in row_energy_j(Soc(result.chip), result.table).values())
    steps_per_s = float(row["tokens_per_s"]) * group / gpus / batch
    return gpus * float(held_power_w(static_w(chip) + step_j * steps_per_s, chip.power.limit_w))


def card_runs(root: Path) -> Iterator[CardRun]:
    """NorthPole's appliance (HPEC 2024, abstract): 16 cards, a 3B model with 4-bit weights, 28,356 tokens/s, 672 W.

    A card holds a layer, through which every token passes; sequences go through one by one, half way to the longest context.
    """
    path = root / "chips/northpole.toml"
    if not path.exists():
        return
    chip = load_chip(path)
    request = RequestSpec(batch=1, input_tokens=CARD_CONTEXT, output_tokens=2)
    workload = WorkloadSpec(
        name="layer", model=model_from_config(CARD_LAYER, "layer"), precision=chip.precision, request=request
    )
    step = Step("decode", "decode", (Group(1, 1, CARD_CONTEXT),))
    result = evaluate_steps(chip, workload, [Sample(step, 1.0, 0.0)])
    token_j = sum(result.first.energy_j.values())
    yield CardRun(device="northpole", measured_w=672.0 / 16.0, predicted_w=static_w(chip) + token_j * 28356.0)
