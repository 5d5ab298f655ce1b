"""Measured serving runs of dense models, predicted as closed loops under the stack that served them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs
import numpy as np

from archmodel.operations import Floats
from archmodel.serving import served_precision, serving_point
from archmodel.spec.chip import ChipSpec, SoftwareSpec
from archmodel.spec.huggingface import read_config
from archmodel.spec.toml import load_chip, load_stack

#: (stack, model, device, precision) on which the two or three constants of a stack were fitted; "" is any
_FITTED = (
    ("vllm", "qwen3-32b", "h100_sxm", "bf16"),
    ("sglang", "qwen3-32b", "h100_sxm", "bf16"),
)

Run = tuple[str, str, str, str]


@attrs.frozen(eq=False, kw_only=True)
class Serving:
    """Runs of one model in one format under one stack on one device. Arrays have shape (runs,), times are [ms]."""

    device: str
    stack: str
    model: str
    precision: str
    measured_ms: Floats  # time per output token
    predicted_ms: Floats
    static_ms: Floats  # the prediction of a static batch, without the prompts of others

    @property
    def run(self) -> Run:
        return self.stack, self.model, self.device, self.precision

    @property
    def note(self) -> str:
        """`in the fit`, or empty for runs that no fit has seen."""
        return "in the fit" if any(_like(self.run, known) for known in _FITTED) else ""


def _like(run: Run, known: Run) -> bool:
    return all(want in ("", have) for have, want in zip(run, known, strict=True))


def serving_runs(root: Path) -> Iterator[Serving]:
    """Measured runs in the clone at `root`, by device, stack, model and format; nothing where there is no table."""
    path = root / "data/validation/serving.csv"
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    @cache
    def chip(name: str) -> ChipSpec:
        return load_chip(root / f"chips/{name}.toml")

    @cache
    def stack(name: str) -> SoftwareSpec:
        return load_stack(root / f"stacks/{name}.toml")

    models = {name: read_config(root / f"workloads/models/{name}.json") for name in {row["model"] for row in rows}}
    groups: dict[Run, list[tuple[float, float, float]]] = {}
    for row in rows:
        point = serving_point(
            chip(row["device"]), models[row["model"]], served_precision(row["precision"], row["kv_cache"]), int(row["tp"]),
            int(row["concurrency"]), int(row["isl"]), int(row["osl"]), stack(row["backend"]),
        )  # fmt: skip
        key = (row["backend"], row["model"], row["device"], row["precision"])
        groups.setdefault(key, []).append((float(row["tpot_ms"]), 1e3 * point.tpot_s, 1e3 * point.static_tpot_s))
    for key, times in sorted(groups.items(), key=lambda item: (item[0][1:], item[0][0])):
        backend, model, device, precision = key
        measured_ms, predicted_ms, static_ms = np.array(times).T
        yield Serving(
            device=device, stack=backend, model=model, precision=precision, measured_ms=measured_ms,
            predicted_ms=predicted_ms, static_ms=static_ms,
        )  # fmt: skip
