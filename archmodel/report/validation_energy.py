"""The part of the report on accuracy that is about energy and power."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from archmodel.report.markdown import markdown
from archmodel.report.names import name_of
from archmodel.validation.energy import (
    TOLD,
    TRANSFER,
    EnergyScore,
    EnergyValidation,
    RunPower,
    energy_score,
    energy_scores,
    joules,
    rank_correlation,
)
from archmodel.validation.energy_kernels import KernelPower
from archmodel.validation.energy_runs import PROMPT_TOKENS

#: ranks of joules per token that must agree (Spearman)
RANK_BAR = 0.97

#: what others state or reach, each for its own task
PEERS = (
    ("AccelWattch (MICRO 2021)", "kernels on a V100 that it was tuned on; recomputed from its artifact", "9.1"),
    ("AccelWattch", "the same kernels, untuned GPUs of other generations", "11-13"),
    ("AccelWattch", "16 workloads on a V100, tested by others (arXiv 2603.26435)", "32"),
    ("Wattchmen (ICS 2026)", "applications on V100, A100, H100; measured counters", "11-15"),
    ("EnergAIzer (arXiv 2604.20105)", "AI kernels, Ampere; forecast for H100", "8; 7"),
    ("Cavagna et al. (arXiv 2602.05695)", "LLMs on H100, fitted for each model", "1.8"),
    ("LLMCompass, SCALE-Sim v3", "no energy model, or none against silicon", ""),
)

_CONSTANT_NAMES = {
    "static_power_w": ("static", "W"),
    "active_power_w": ("active", "W"),
    "mac_energy_pj": ("MAC in bf16", "pJ"),
    "sampling_energy_mj_per_token": ("sampling", "mJ/token"),
}


def energy_table(found: EnergyValidation) -> Table:
    """Errors of energy and power against the bars, for a terminal."""
    table = Table(title="Absolute error of energy and power [%]")
    for title in ("what", "device", "n", "mean", "median", "p90", "signed", "constant", "bar", ""):
        table.add_column(title, justify="left" if title in ("what", "device", "") else "right")
    for score in energy_scores(found):
        table.add_row(*_cells(score))
    return table


def energy_section(found: EnergyValidation) -> str:
    """The section in markdown; empty where nothing was measured."""
    scores = list(energy_scores(found))
    if not scores:
        return ""
    parts = [_summary(found, scores), _kernels(found.kernels), _serving(found), _wall(found), _others()]
    return "\n\n".join(part for part in parts if part)


def _cells(score: EnergyScore) -> list[str]:
    bar = "" if score.bar is None else f"{score.bar:g}" + (f", p90 {score.p90_bar:g}" if score.p90_bar else "")
    constant = f"{score.constant:.0f}" if np.isfinite(score.constant) else ""
    return [
        score.what, name_of(score.device) if score.device else "", f"{score.n:,}", f"{score.mean:.1f}", f"{score.median:.1f}",
        f"{score.p90:.1f}", f"{score.signed:+.1f}", constant, bar, {None: "", True: "met", False: "missed"}[score.met],
    ]  # fmt: skip


def _summary(found: EnergyValidation, scores: Sequence[EnergyScore]) -> str:
    header = ("what", "device", "n", "mean [%]", "median [%]", "p90 [%]", "signed [%]", "constant [%]", "bar on the mean", "")
    dense = [runs for runs in found.runs if np.any(runs.dense)]
    rank = f"{rank_correlation(*joules(dense)):.3f}" if dense else "none"
    met = sum(score.met is True for score in scores)
    return f"""\
## Energy and power

Energy is counted events times energies of the chip file, and static power times time. {met} of {len(scores)} bars are
met. *Constant* is the mean error of the one power that fits the same rows best on average: what knowing nothing gives.
Kernels are of families outside the fit, serving runs of models outside it. Above, time was predicted; here **the
measured time or rate is given**, so that the error is that of power alone, except where it says *end to end*: there
time and power are both predicted.

{markdown(header, [_cells(score) for score in scores], texts=2)}

Joules per token of dense models keep their order: rank correlation {rank} (bar {RANK_BAR})."""


def _kernels(kernels: Sequence[KernelPower]) -> str:
    rows = []
    for found in kernels:
        own = found.report
        free = own & ~found.limited
        at_time = energy_score("", "", found.power_w[own], found.measured_w[own])
        end = energy_score("", "", found.predicted_j[own], found.measured_j[own])
        cells = [f"{name_of(found.device)} {found.title}", f"{np.sum(own):,}", f"{at_time.mean:.1f}"]
        cells += [f"{100 * np.mean(found.limited[own]):.0f}", _mean(found, free), _mean(found, own & found.possible)]
        rows.append([*cells, f"{end.mean:.1f}", f"{end.median:.1f}", f"{end.signed:+.1f}"])
    if not rows:
        return ""
    header = ("device, kernel", "n", "mean [%]", "at the limit [%]", "the rest [%]", "possible [%]", "end to end: mean [%]",
              "median [%]", "signed [%]")  # fmt: skip
    return f"""\
### Kernels

A device at its power limit draws the limit whatever it does, so that a low error there says little: *the rest* is the
mean error of the rows below 97% of it. *End to end* takes the predicted time as well. Its error is that of the times:
the chip files were fitted to short runs of TensorRT-LLM at a full clock, these are of vLLM, a second long and mostly
throttled, and FP8 throttles more than the constant for BF16 knows.

The power readings of attention disagree among themselves: on H200 the same kernel at the same rate is listed between
300 and 690 W, and readings fall where the rate is highest. *Possible* leaves out rows that state less energy a MAC than
0.9 of what the largest GEMMs of the device take, which do nothing else. No model of events can follow the rest of that
scatter, and a constant does as well there.

{markdown(header, rows)}"""


def _mean(found: KernelPower, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> str:
    if not np.any(rows):
        return ""
    score = energy_score("", "", found.power_w[rows], found.measured_w[rows])
    return f"{score.mean:.1f} ({score.n:,})"


def _serving(found: EnergyValidation) -> str:
    rows = [cells for runs in found.runs for cells in _models(runs)]
    if not rows:
        return ""
    header = (
        "device",
        "model",
        "",
        "runs",
        "power: mean [%]",
        "signed [%]",
        "J/token: mean [%]",
        "signed [%]",
        "rate: mean [%]",
    )
    prompts = ", ".join(f"{name} {tokens}" for name, tokens in PROMPT_TOKENS.items())
    told = "\n".join(
        f"- {name_of(device)}: {_constants(found.constants[device])}." for device in TOLD if device in found.constants
    )
    return f"""\
### Serving runs

Runs of vLLM 0.11.1 measured at the boards (ML.ENERGY v3). Each model is predicted with constants fitted on the dense
models of the other names only. Prompt lengths are not in the source and assumed, in tokens: {prompts}; they were chosen
by what fills the KV cache (`archmodel/validation/energy_runs.py`), not by the error of power. The form of the model
(which energies there are, FP8 at 0.9 of BF16) was settled with these runs in view; its constants for each model were
not. The bars are on dense models, of which the constant mean of 12% and 27% was computed; the models of experts stand
beside them and were in no fit.

{markdown(header, rows, texts=3)}

Fitted on all dense runs, as the chip files and `stacks/vllm.toml` have them:

{told}

What is missed: Qwen3-Coder-480B takes four times as long as predicted and yet draws the limit, so that it does work
that is not counted here (its attention is data parallel, its experts pad what they exchange); models of experts on
several GPUs wait for each other at full power. Two models of one shape, Llama 3.1 and 3.3 70B, differ by 7% in power at
the same rate on H100: no model can be better than half of that. Predicted with what H100 tells alone,
{name_of(TRANSFER[1])} keeps within its bar: energies a MAC and a bit as they are, since both are made in a 4 nm
process, static and active power in proportion to the power limits."""


def _models(runs: RunPower) -> list[list[str]]:
    names = np.array([run.model for run in runs.runs])
    rate = np.array([run.predicted_tokens_per_s / run.tokens_per_s for run in runs.runs])
    rows = []
    for dense in (True, False):
        for model in dict.fromkeys(names[runs.dense == dense].tolist()):
            own = names == model
            power = energy_score("", "", runs.power_w[own], runs.measured_w[own])
            energy = energy_score("", "", runs.predicted_j_per_token[own], runs.measured_j_per_token[own])
            kind = "dense" if dense else "experts"
            cells = [name_of(runs.device), model, kind, f"{power.n}", f"{power.mean:.1f}", f"{power.signed:+.1f}"]
            rows.append([*cells, f"{energy.mean:.1f}", f"{energy.signed:+.1f}", f"{100 * np.mean(np.abs(rate[own] - 1)):.0f}"])
    return rows


def _constants(values: dict[str, float]) -> str:
    return ", ".join(f"{_CONSTANT_NAMES[name][0]} {value:.3g} {_CONSTANT_NAMES[name][1]}" for name, value in values.items())


def _wall(found: EnergyValidation) -> str:
    rows = [
        [run.box, run.model, run.scenario, f"{run.measured_w:,.0f}", f"{run.boards_w:,.0f}", f"{run.overhead_w:,.0f}",
         f"{100 * (run.measured_w / run.predicted_w - 1):+.1f}"]
        for run in found.wall
    ]  # fmt: skip
    if not rows:
        return ""
    header = ("box", "model", "scenario", "wall [W]", "boards, predicted [W]", "overhead of its other runs [W]", "tokens/J [%]")
    cards = "\n".join(
        f"{name_of(card.device)}, a card of sixteen with a 3B model at 28,356 tokens/s: {card.predicted_w:.1f} W predicted, "
        f"{card.measured_w:.1f} W published. Four fifths of it are static power, taken from another 12 nm chip by area."
        " The rest is counted events."
        for card in found.cards
    )
    return f"""\
### At the wall, and on paper

MLPerf's power runs: what the boards take at the measured rate, and one overhead for each box (processors, switches,
fans, supplies), which is the mean of what the box's other runs leave. The H200 box was measured under a power cap that
its log does not state, which the prediction does not know: its overhead comes out too low for Llama and too high for
GPT-J, and GPT-J's server run misses 10% by itself. Sequences in flight and groups of GPUs are assumed
(`archmodel/validation/energy_wall.py`).

{markdown(header, rows, texts=3)}

{cards}"""


def _others() -> str:
    header = ("who", "for what", "mean error [%]")
    return f"""\
### What others reach

None of these is the same task as the ones above.

{markdown(header, [list(row) for row in PEERS], texts=2)}"""
