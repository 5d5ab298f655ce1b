"""The points that LLMCompass (ISCA 2024) was validated on, under the stack that measured them, beside its own predictions."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np

from archmodel.eager import Call, call_s
from archmodel.operations import Floats
from archmodel.spec.chip import ChipSpec
from archmodel.spec.toml import load_chip, load_stack

#: device of the tables -> chip file, stack, format of its vector operators (as LLMCompass takes them), devices of an all-reduce
_DEVICES = {
    "A100": ("a100_sxm", "eager_pytorch_a100", "fp16", 1),
    "A100x4": ("a100_sxm", "eager_pytorch_a100", "fp16", 4),
    "MI210": ("mi210", "eager_pytorch_mi210", "fp32", 1),
}
_MODELS = {"LLMCompass": "latency_s_llmcompass", "its roofline": "latency_s_llmcompass_roofline"}

Row = dict[str, str]


@attrs.frozen(eq=False, kw_only=True)
class PeerPoints:
    """Operators of one kind on one device. Arrays have shape (n,); LLMCompass has no roofline of an all-reduce (NaN)."""

    device: str
    op: str
    measured_s: Floats
    predicted_s: dict[str, Floats]  # by model: archmodel, LLMCompass, its roofline

    def errors(self) -> dict[str, Floats]:
        """Relative errors by model."""
        return {name: time_s / self.measured_s - 1.0 for name, time_s in self.predicted_s.items()}


def peer_points(data: Path, chips: Path, stacks: Path) -> Iterator[PeerPoints]:
    """LLMCompass's single operators, by device and operator. Nothing where the tables or chips are not there."""
    rows = _rows(data / "llmcompass_operators.csv")
    for key in dict.fromkeys((row["device"], row["op"]) for row in rows):
        own = [row for row in rows if (row["device"], row["op"]) == key]
        chip, number_format, devices = _chip(key[0], chips, stacks)
        yield _points(*key, own, call_s(chip, [_call(row, row["op"], number_format, devices) for row in own]))


def layers(data: Path, chips: Path, stacks: Path) -> Iterator[PeerPoints]:
    """The operators of one GPT-3 layer on four A100s; `op` is the phase."""
    rows = _rows(data / "llmcompass_gpt3_layer.csv")
    for phase in dict.fromkeys(row["phase"] for row in rows):
        own = [row for row in rows if row["phase"] == phase]
        chip, number_format, devices = _chip("A100x4", chips, stacks)
        once = call_s(chip, [_call(row, _kind(row["op"]), number_format, devices) for row in own])
        times = [float(row["batch"]) if "3 matmuls" in row["op"] else 1.0 for row in own]
        yield _points("A100x4", phase, own, once * np.array(times))


def _rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _chip(device: str, chips: Path, stacks: Path) -> tuple[ChipSpec, str, int]:
    """Chip under its stack, format of its vector operators, devices of an all-reduce."""
    chip, stack, number_format, devices = _DEVICES[device]
    spec = load_chip(chips / f"{chip}.toml")
    return attrs.evolve(spec, software=load_stack(stacks / f"{stack}.toml")), number_format, devices


def _kind(op: str) -> str:
    """Operator of a row of the layer: QKV_proj(3 matmuls) -> matmul."""
    first = op.split("_")[0]
    return first if first in ("softmax", "layernorm", "gelu", "allreduce") else "matmul"


def _call(row: Row, op: str, number_format: str, devices: int) -> Call:
    m, n, k, batch = (float(row[name] or 1) for name in ("M", "N", "K", "batch"))
    if op != "matmul":
        return Call(op, m, n, number_format=number_format, devices=devices)
    count = 1.0 if "3 matmuls" in row["op"] else batch  # three calls, where the products of a batch are one kernel
    return Call(op, m, n, k, count=count, number_format="bf16")


def _points(device: str, op: str, rows: Sequence[Row], ours_s: Floats) -> PeerPoints:
    others = {name: np.array([float(row[column] or "nan") for row in rows]) for name, column in _MODELS.items()}
    measured_s = np.array([float(row["latency_s_measured"]) for row in rows])
    return PeerPoints(device=device, op=op, measured_s=measured_s, predicted_s={"archmodel": ours_s, **others})
