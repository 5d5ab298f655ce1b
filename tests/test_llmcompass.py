"""LLMCompass's measured operators, under the eager stack that measured them, beside LLMCompass's own predictions."""

from __future__ import annotations

import csv
from pathlib import Path

import attrs
import numpy as np
import pytest

from archmodel.eager import Call, call_s
from archmodel.errors import MappingError
from archmodel.spec.toml import load_chip, load_stack

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "data/validation"
STACKS = {"A100": ("a100_sxm", "eager_pytorch_a100"), "MI210": ("mi210", "eager_pytorch_mi210")}
CHIPS = {
    device: attrs.evolve(load_chip(ROOT / f"chips/{chip}.toml"), software=load_stack(ROOT / f"stacks/{stack}.toml"))
    for device, (chip, stack) in STACKS.items()
}


def rows(file, **wanted):
    with (MEASURED / file).open(encoding="utf-8") as lines:
        return [row for row in csv.DictReader(lines) if all(row[key] == value for key, value in wanted.items())]


def operator_call(row):
    vector = "fp32" if row["device"] == "MI210" else "fp16"
    number_format = "bf16" if row["op"] == "matmul" else vector
    m, n, k = (float(row[name] or 1) for name in "MNK")
    return Call(row["op"], m, n, k, number_format=number_format, devices=4)


def errors(device, op):
    """Ours and LLMCompass's absolute errors."""
    found = rows("llmcompass_operators.csv", device=device, op=op)
    measured, peer = (np.array([float(r[c]) for r in found]) for c in ("latency_s_measured", "latency_s_llmcompass"))
    ours = call_s(CHIPS[device[:4] if device == "A100x4" else device], [operator_call(r) for r in found])
    return np.abs(ours / measured - 1.0), np.abs(peer / measured - 1.0)


@pytest.mark.parametrize(
    ("device", "op", "bar"),
    [("A100", "matmul", 0.05), ("A100", "softmax", 0.09), ("A100", "layernorm", 0.08), ("A100", "gelu", 0.04),
     ("A100x4", "allreduce", 0.25), ("MI210", "matmul", 0.05), ("MI210", "softmax", 0.14), ("MI210", "layernorm", 0.25)],
)  # fmt: skip
def test_closer_than_llmcompass_on_its_own_points(device, op, bar):
    ours, peer = errors(device, op)
    assert np.mean(ours) < min(bar, np.mean(peer))


def test_the_only_operator_where_llmcompass_is_closer():
    ours, _ = errors("MI210", "gelu")
    assert np.mean(ours) < 0.04


def test_half_that_no_fit_saw():
    for device in CHIPS:
        assert np.mean(errors(device, "matmul")[0][1::2]) < 0.05


def layer_s(row):
    """Time of a row of the GPT-3 layer; three equal projections are three calls, products of a batch are one kernel."""
    chip, (m, n, k, batch) = CHIPS["A100"], (float(row[name] or 1) for name in ("M", "N", "K", "batch"))
    kind = row["op"].split("_")[0]
    if kind in ("softmax", "layernorm", "gelu", "allreduce"):
        return call_s(chip, [Call(kind, m, n, devices=4)])[0]
    if row["op"] in ("Q_mul_K", "A_mul_V"):
        return call_s(chip, [Call("matmul", m, n, k, count=batch)])[0]
    return batch * call_s(chip, [Call("matmul", m, n, k)])[0]


@pytest.mark.parametrize(("phase", "bar"), [("prefill", 0.02), ("decode", 0.08)])
def test_gpt3_layer_on_four_a100(phase, bar):
    found = rows("llmcompass_gpt3_layer.csv", phase=phase)
    assert len(found) == 12
    measured, peer = (sum(float(r[c]) for r in found) for c in ("latency_s_measured", "latency_s_llmcompass"))
    ours = sum(layer_s(row) for row in found)
    assert abs(ours / measured - 1.0) < min(bar, abs(peer / measured - 1.0))


def test_laws():
    """A call takes at least the work at the peak, and more cores never make it slower."""
    chip = CHIPS["A100"]
    calls = [Call("matmul", m, n, 4096.0) for m in (1.0, 100.0, 5000.0) for n in (64.0, 4096.0, 20000.0)]
    peak = 2.0 * 108 * 1024 * 1.41e9
    assert np.all(call_s(chip, calls) >= [2.0 * c.m * c.n * c.k / peak for c in calls])
    gpu = attrs.evolve(chip.blocks["gpu"], cores=216)
    assert np.all(call_s(attrs.evolve(chip, blocks={**chip.blocks, "gpu": gpu}), calls) <= call_s(chip, calls) * (1 + 1e-12))


def test_an_unknown_operator_is_refused():
    with pytest.raises(MappingError, match="no such operator"):
        call_s(CHIPS["A100"], [Call("convolution", 1.0)])
