"""Mixtures of experts from a table and in a layer: measured times, the one mechanism, routing in a workload, errors."""

from __future__ import annotations

import csv
from pathlib import Path

import attrs
import numpy as np
import pytest

from archmodel import evaluate, load_chip, load_workload, sizes
from archmodel.accuracy import accuracies
from archmodel.errors import SpecError, TableError
from archmodel.experts import exponent
from archmodel.kernels import moe
from archmodel.operations import Kind
from archmodel.predict import predict_file
from archmodel.spec.workload import PrecisionSpec

ROOT = Path(__file__).parents[1]
HEADER = "num_tokens,hidden,inter,topk,experts,tp,ep,dtype,distribution"
DEVICES = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s")


def chip(name):
    return load_chip(ROOT / "chips" / f"{name}.toml")


def table(path, *rows, header=HEADER):
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def errors(device, dtype):
    """Relative errors on measured rows of families that no constant was fitted on."""
    path = ROOT / "data" / "validation" / f"moe_{device}.csv"
    found = predict_file(chip(device), path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    mine = np.array([row["part"] == "report" and row["dtype"] == dtype for row in rows])
    assert mine.sum() >= 100
    return (found.predicted_us / found.operations.measured_us - 1.0)[mine]


@pytest.mark.parametrize("device", DEVICES)
def test_measured_layers_of_families_never_fitted(device):
    error = errors(device, "bfloat16")
    assert np.median(np.abs(error)) < 0.18
    assert abs(np.median(error)) < 0.12


@pytest.mark.parametrize("device", DEVICES[1:])
def test_measured_fp8_layers_whose_format_was_never_fitted(device):
    assert np.median(np.abs(errors(device, "fp8"))) < 0.18


def test_regimes_of_the_report(tmp_path):
    rows = [f"{tokens},2048,768,8,128,1,1,bf16,{how},{50 + tokens}" for tokens in (1, 64, 4096)
            for how in ("balanced", "power_law_1.2")]  # fmt: skip
    found = predict_file(chip("h100_sxm"), table(tmp_path / "moe.csv", *rows, header=HEADER + ",latency_us"))
    labels = {(a.regime, a.value): a.n for a in accuracies(found)}
    assert labels["routing", "skewed"] == labels["routing", "even"] == 3
    assert labels["num_tokens", "<= 16"] == 2
    assert found.operations.kind == Kind.EXPERTS


def test_parallel_ranks_and_tokens_act_as_they_should(tmp_path):
    rows = [f"{tokens},4096,1536,8,128,{tp},{ep},bf16,balanced"
            for tokens, tp, ep in ((1, 1, 1), (64, 1, 1), (4096, 1, 1), (4096, 8, 1), (4096, 1, 8))]  # fmt: skip
    one, some, many, narrow, few = predict_file(chip("h200_sxm"), table(tmp_path / "moe.csv", *rows)).predicted_us
    assert one < some < many
    assert narrow < many / 2
    assert few < many / 3


def test_predicted_and_evaluated_layers_are_the_same_kernels(tmp_path):
    workload = load_workload(ROOT / "workloads" / "llm_100b_moe.toml")
    layer = next(kind for kind in workload.model.kinds if kind.moe is not None)
    model = attrs.evolve(workload.model, kinds=(layer,), order=(0, 0))
    request = attrs.evolve(workload.request, batch=32, input_tokens=1, output_tokens=1)
    h100 = chip("h100_sxm")
    unfused = attrs.evolve(h100, placement=attrs.evolve(h100.placement, fusion=False))
    result = evaluate(unfused, attrs.evolve(workload, model=model, request=request, precision=PrecisionSpec(), placement=None))
    kernels = ("route", "permute", "experts_up", "experts_activation", "experts_down", "combine")
    names = result.table.rows.name
    evaluated_s = sum(result.table.costs.duration_s[names.index(name)] for name in kernels)
    row = f"32,{model.hidden},{layer.moe.intermediate},{layer.moe.experts_per_token},{layer.moe.experts},1,1,bf16,uniform"
    predicted = predict_file(unfused, table(tmp_path / "moe.csv", row), repeated=False)
    assert 1e6 * evaluated_s == pytest.approx(predicted.predicted_us[0], rel=1e-9)


def test_skewed_routing_of_a_workload_touches_fewer_experts():
    workload = load_workload(ROOT / "workloads" / "llm_100b_moe.toml")
    times = {}
    for routing in ("uniform", "balanced", "power_law_2.5"):
        request = attrs.evolve(workload.request, routing=routing, output_tokens=2)
        result = evaluate(chip("hetero_v1"), attrs.evolve(workload, request=request))
        times[routing] = result.steps[-1].total_s
    assert times["power_law_2.5"] < times["uniform"] < times["balanced"]


def test_u35_skewed_experts_of_a_step():
    for experts, chosen in ((8, 2), (256, 8)):
        for tokens in (1, 3, 64, 1000):
            most = sizes.expected_distinct_experts(experts, chosen, tokens, moe.BALANCED)
            for routing in (0.0, 2.0, 4.0):
                found = sizes.expected_distinct_experts(experts, chosen, tokens, routing)
                assert chosen <= found <= most == min(experts, chosen * tokens)


def test_routing_names():
    assert [exponent(name) for name in ("balanced", "uniform", "power_law_1.2")] == [-1.0, 0.0, 1.2]
    request = load_workload(ROOT / "workloads" / "llm_100b_moe.toml").request
    for wrong in ("zipf", "power_law_", "power_law_0", "power_law_-1", "power_law_99", "power_law_nan", ""):
        with pytest.raises(SpecError, match="power_law"):
            attrs.evolve(request, routing=wrong)


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("1,64,64,9,8,1,1,bf16,balanced", "topk: 9, must be at most experts"),
        ("1,64,64,2,8,1,3,bf16,balanced", "ep: 3, must divide experts"),
        ("1,64,64,2,8,7,1,bf16,balanced", "tp: 7, must divide inter"),
        ("0,64,64,2,8,1,1,bf16,balanced", "num_tokens"),
        ("1,64,64,2,8,1,1,bf16,zipf", "distribution"),
        ("1,64,64,2,8,1,1,bf17,balanced", "dtype"),
        ("1000000000,1000000,1000000,8,8,1,1,bf16,balanced", "product"),
    ],
)
def test_broken_rows_are_named(tmp_path, row, rule):
    with pytest.raises(TableError, match=rule):
        predict_file(chip("h100_sxm"), table(tmp_path / "moe.csv", row))
