"""The report on accuracy: `validation.md` and its figures, written together or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from archmodel.report.files import Writer, write_whole
from archmodel.report.markdown import markdown
from archmodel.report.names import name_of
from archmodel.report.validation_energy import energy_section
from archmodel.report.validation_hetero import section
from archmodel.validation.llmcompass import PeerPoints
from archmodel.validation.points import DEVICES, OPERATIONS, REGIMES, Points
from archmodel.validation.run import Validation
from archmodel.validation.scores import BARS, INSTEAD, SMALLEST_MESSAGE, Score, cached, regimes, scores
from archmodel.validation.transfer import NEXT_OF_KIN

#: what a table cannot say of its rows
REMARKS = {
    "gemm": """\
`fp8`, `sq` (8-bit integers) and `nvfp4` rows include the kernels that quantise the activations at run time; int8 and
int4 weights are widened to bf16 inside the kernel.""",
    "attn_generation": """\
On the A100, rows with several query heads for each key and value head (grouped) are in doubt. Where their cache is ten
times the L2 or larger, nine of ten would need more than the memory's peak (1.3 times it in the median, up to 1.7) if a
value had the 16 bits that the table says, even with an L2 full of them kept; so would one of ten rows without groups, and
none on any other device. The bar leaves out only the rows that beat the peak by themselves (see below); the other grouped
rows count.""",
    "mla": """\
The attention kernel alone: expanded in context, absorbed in generation (DeepSeek-V2). No constant was fitted to it.""",
    "quantise": """\
The two kernels before an fp8 product: `computescale` finds the largest value of a tensor, `scale_matrix` divides by it.""",
    "collectives": f"""\
Messages of {SMALLEST_MESSAGE // 1024} KiB and more. The L40S has no NVLink and its node had no peer-to-peer transfers, so
that its figures are those of that node. Calls of a library without graphs (eager) carry its launch time, which the
model leaves to the software stack: no bar counts them.""",
}

#: largest median error [%] of bf16 GEMMs on a device left out of the fit
LEFT_OUT_BAR = 15.0


def write_validation(validation: Validation, folder: Path) -> list[Path]:
    """Write `validation.md` and its figures. Raises OutputError where the folder cannot be written."""
    from archmodel.report import scatter  # matplotlib costs half a second

    def text(path: Path) -> None:
        path.write_text(page(validation), encoding="utf-8")

    writers: dict[Path, Writer] = {
        folder / "validation.md": text,
        folder / "validation.scatter.png": lambda path: scatter.draw_scatter(validation.points, path),
        folder / "validation.regimes.png": lambda path: scatter.draw_regimes(validation.points, path),
    }
    write_whole(writers)
    return list(writers)


def summary_table(validation: Validation) -> Table:
    """Errors against the bars, for a terminal."""
    table = Table(title="Absolute error on shapes that no fit has seen [%]")
    for title in ("operation", "device", "n", "median", "mean", "p90", "signed", "roofline", "bar", ""):
        table.add_column(title, justify="left" if title in ("operation", "device", "") else "right")
    before = ""
    for entry in _ordered(validation.summary):
        operation = _operation(entry)
        if before not in ("", operation):
            table.add_section()
        table.add_row(
            "" if operation == before else operation, name_of(entry.device), f"{entry.n:,}", f"{entry.median:.1f}",
            f"{entry.mean:.1f}", f"{entry.p90:.1f}", f"{entry.signed:+.1f}", f"{entry.roofline_median:.0f}", _bar(entry),
            _verdict(entry),
        )  # fmt: skip
        before = operation
    return table


def accuracy_table(validation: Validation) -> str:
    """The README's table: median / mean error of each operation and format on each device, in markdown."""
    found = {(_key(entry), entry.device): entry for entry in validation.summary}
    rows = []
    for what, label in BARS:
        entries = [found.get(((what, label), device)) for device in DEVICES]
        roofs = [entry.roofline_median for entry in entries if entry]
        if roofs:
            errors = [f"{entry.median:.1f} / {entry.mean:.1f}" if entry else "" for entry in entries]
            name = f"{OPERATIONS[what]} {label}".strip().replace("GEMM fp8", "GEMM fp8 (A100: int8)")
            rows.append([name, *errors, f"{min(roofs):.0f} to {max(roofs):.0f}"])
    return markdown(("", *map(name_of, DEVICES), "roofline"), rows)


def left_out_medians(validation: Validation) -> tuple[float, float]:
    """Smallest and largest median error [%] of a device with the constants of the one nearest in design."""
    found = [validation.left_out[key].median for key in NEXT_OF_KIN.items() if key in validation.left_out]
    return min(found), max(found)


def serving_median(validation: Validation) -> tuple[int, float]:
    """Runs of Llama on H100 and H200 that no fit has seen, and the median error [%] of their time per output token."""
    own = [runs for runs in validation.serving if runs.model.startswith("llama") and runs.device in ("h100_sxm", "h200_sxm")]
    error = np.concatenate([runs.predicted_ms / runs.measured_ms - 1.0 for runs in own if not runs.note])
    return len(error), float(100.0 * np.median(np.abs(error)))


def page(validation: Validation) -> str:
    """The whole report in markdown."""
    parts = [
        _introduction(validation),
        _against_bars(validation),
        "![Predicted against measured time of every operation](validation.scatter.png)",
        "![Error by size of the operation](validation.regimes.png)",
        validation.findings,
        *_operations(validation.points),
        _cached(validation.points),
        _noise(validation),
        _left_out(validation),
        _peers(validation),
        _serving(validation),
        energy_section(validation.energy) if validation.energy else "",
        section(validation.hetero),
        _skipped(validation),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _introduction(validation: Validation) -> str:
    rows = sum(len(points) for points in validation.points)
    unseen = sum(int(points.report.sum()) for points in validation.points)
    devices = ", ".join(name_of(device) for device in DEVICES if any(p.device == device for p in validation.points))
    return f"""\
# How accurate the predictions are

*Generated by `python -m archmodel validate` from `data/validation`; do not edit.*

{rows:,} operations that others measured on real GPUs ({devices}) are predicted with the chip files
in `chips/`. One operation is one matrix product (GEMM), one attention, one layer of experts (MoE) or one collective; it
takes from a few microseconds to seconds. `data/validation/README.md` says who measured, how, and under which licence.

**How to read it.** The error of an operation is predicted / measured - 1. *Median*, *mean* and *p90* (nine of ten are
better) are of its absolute value; *signed* is the mean with its sign: below zero, the model is too fast. The chip files
hold constants that were fitted to about a quarter of the shapes; all figures here are of the other shapes
({unseen:,} rows). A shape, which is (n, k) of a matrix product or the heads of an attention, is in one of the two
parts as a whole. *Roofline* is the larger of FLOP / peak and bytes / bandwidth from the data sheet: what one gets on
paper."""


def _against_bars(validation: Validation) -> str:
    rows = [
        [_operation(e), name_of(e.device), f"{e.n:,}", f"{e.median:.1f} / {e.mean:.1f}", _bar(e), _verdict(e) or "no bar",
         f"{e.signed:+.1f}", _worst(validation.points, e), f"{e.roofline_median:.0f} / {e.roofline_mean:.0f}"]
        for e in _ordered(validation.summary)
    ]  # fmt: skip
    met = [entry.met for entry in validation.summary if entry.met is not None]
    header = ("operation", "device", "n", "median / mean [%]", "bar", "", "signed [%]", "worst size", "roofline [%]")
    return f"""\
## Against what was asked for

A bar is the largest median / mean that the project set itself; {sum(met)} of {len(met)} are met. *Worst size* is where the
error sits: the range of m, of tokens or of bytes with the largest median error (in brackets its signed mean).

{markdown(header, rows, texts=2)}"""


def _worst(all_points: Sequence[Points], entry: Score) -> str:
    """The range of sizes with the largest median error."""
    points = next(points for points in all_points if (points.what, points.device) == (entry.what, entry.device))
    label = "" if (entry.what, "") in BARS else entry.label
    name, found = max(regimes(points, label), key=lambda pair: pair[1].median)
    return f"{name}: {found.median:.0f} ({found.signed:+.0f})"


def _ordered(entries: Iterable[Score]) -> list[Score]:
    return sorted(entries, key=lambda entry: list(BARS).index(_key(entry)))


def _key(entry: Score) -> tuple[str, str]:
    """The bar that a score is held against, as in BARS."""
    stands_for = {(device, other): name for (device, name), other in INSTEAD.items()}
    return entry.what, stands_for.get((entry.device, entry.label), entry.label)


def _operations(all_points: Sequence[Points]) -> list[str]:
    """A section for each operation: every device and format."""
    found = []
    for what, title in OPERATIONS.items():
        rows = [
            [f"{name_of(e.device)} {e.label}", f"{e.n:,}", f"{e.median:.1f}", f"{e.mean:.1f}", f"{e.p90:.1f}",
             f"{e.signed:+.1f}", f"{e.roofline_median:.0f}"]
            for points in all_points
            if points.what == what
            for e in scores(points)
        ]  # fmt: skip
        if rows:
            header = ("device, format", "n", "median [%]", "mean [%]", "p90 [%]", "signed [%]", "roofline, median [%]")
            found.append("\n\n".join(part for part in (f"## {title}", REMARKS.get(what), markdown(header, rows)) if part))
    return found


def _cached(all_points: Sequence[Points]) -> str:
    rows = [
        [f"{name_of(entry.device)} {OPERATIONS[entry.what]}", entry.label, f"{entry.n:,}", f"{entry.median:.1f}",
         f"{entry.mean:.1f}", f"{entry.signed:+.1f}"]
        for points in all_points
        for entry in cached(points)
        if entry is not None
    ]  # fmt: skip
    if not rows:
        return ""
    return f"""\
## Served from the cache

A benchmark runs an operation again and again, so that small weights or a small KV cache may still lie in the L2. Rows
whose weights or KV cache would take longer than the measured time at the memory's full bandwidth are in none of the
tables above. Of data a little larger than the cache a part can have stayed; of data many times as large none can, and
the row itself is in doubt (A100, see above).

{markdown(("device, operation", "the data are", "n", "median [%]", "mean [%]", "signed [%]"), rows, texts=2)}"""


def _noise(validation: Validation) -> str:
    lines = [
        f"- {name_of(entry.device)}: {entry.n:,} {entry.label} GEMMs measured in both TensorRT-LLM and SGLang differ by "
        f"{entry.median:.1f}% (median; p90 {entry.p90:.1f}%)."
        for entry in validation.noise
    ]
    return "\n".join(["""\
## What no model can beat

The same operation on the same GPU takes another time in another serving library, which picks other kernels. Over the
devices of the source (aiconfigurator 0.12.0), bf16 GEMMs differ by 3-5% (median) between TensorRT-LLM, vLLM and SGLang,
and attention by 12-36%.
""", *lines]).rstrip()  # fmt: skip


def _left_out(validation: Validation) -> str:
    found = validation.left_out
    devices = [device for device in DEVICES if (device, device) in found]
    if len(devices) < 2:
        return ""
    rows = [
        [name_of(d), *(f"{found[d, o].median:.1f}{' *' if o == NEXT_OF_KIN[d] else ''}" for o in devices),
         f"{found[d, d].roofline_median:.0f}"]
        for d in devices
    ]  # fmt: skip
    low, high = left_out_medians(validation)
    return f"""\
## A device that nobody has measured

Chip files without measurements (`chips/rtx_4090.toml`, `chips/mi300x.toml` ...) take their fitted constants from a
measured chip of their class, and everything else from the data sheet. How wrong that is shows where the truth is known:
bf16 GEMMs of each measured GPU, predicted from its data sheet with the constants of another one. Median error [%]; on
the diagonal its own constants, * those of the device nearest in design.

{markdown(("device", *(f"constants of {name_of(o)}" for o in devices), "roofline"), rows)}

With the constants of the nearest design the median error is from {low:.0f}% where it is the same core to {high:.0f}%
where it is another generation: expect that of a chip file without measurements. The bar is 15%{_over(validation)}.
Constants of a core that feeds its matrix units in another way can be worse than the roofline. Two things do not come from
the donor as they are: multicast and partitions of the cache stay the device's (its architecture paper tells them), and the
feed of a core is scaled with its matrix rate. Both rules were made with this table in view."""


def _over(validation: Validation) -> str:
    """Devices that miss the bar of 15% with the constants of the nearest design."""
    found = {device: validation.left_out[device, donor].median for device, donor in NEXT_OF_KIN.items()}
    missed = [f"{name_of(device)} ({median:.0f}%)" for device, median in found.items() if median > LEFT_OUT_BAR]
    return f", which {' and '.join(missed)} miss{'es' if len(missed) == 1 else ''}" if missed else ""


def _peers(validation: Validation) -> str:
    if not validation.peers:
        return ""
    models = list(validation.peers[0].predicted_s)
    rows = [[peer.device, peer.op, f"{len(peer.measured_s)}", *_peer_errors(peer)] for peer in validation.peers]
    totals = [
        [phase.op, f"{1e3 * phase.measured_s.sum():.2f}"]
        + [f"{1e3 * t.sum():.2f} ({100 * (t.sum() / phase.measured_s.sum() - 1):+.1f}%)" for t in phase.predicted_s.values()]
        for phase in validation.layers
    ]
    return f"""\
## On LLMCompass's own points

LLMCompass (ISCA 2024) was tuned and validated on these operators, in eager PyTorch with launch and synchronisation
inside. Here they run under `stacks/eager_pytorch_*.toml`, whose launch times were fitted to every second point. Median /
mean absolute error [%]:

{markdown(("device", "operator", "n", *models), rows, texts=2)}

One layer of GPT-3 175B on four A100s, batch 8, the sum of its twelve operators [ms]:

{markdown(("phase", "measured", *models), totals)}"""


def _peer_errors(peer: PeerPoints) -> list[str]:
    sizes = [100.0 * np.abs(error) for error in peer.errors().values()]
    return ["" if np.isnan(size).any() else f"{np.median(size):.1f} / {np.mean(size):.1f}" for size in sizes]


def _serving(validation: Validation) -> str:
    rows = []
    for runs in validation.serving:
        error = 100.0 * (runs.predicted_ms / runs.measured_ms - 1.0)
        static = 100.0 * np.abs(runs.static_ms / runs.measured_ms - 1.0)
        names = [runs.model, name_of(runs.device), runs.stack, runs.precision, runs.note]
        median, mean = np.median(np.abs(error)), np.mean(np.abs(error))
        errors = [f"{median:.1f} / {mean:.1f}", f"{np.mean(error):+.1f}", f"{np.median(static):.1f}"]
        rows.append([*names, f"{len(error)}", *errors])
    if not rows:
        return ""
    count, median = serving_median(validation)
    header = ("model", "device", "stack", "format", "", "runs", "median / mean [%]", "signed [%]", "static batch [%]")
    return f"""\
## Whole serving runs

Time per output token of dense models on one to eight GPUs, under a fixed number of clients that each send the next request
when the last one is answered. The prediction adds the layers of a model, the collectives of tensor parallelism, the prompts
of other requests that run in between, and two or three constants of vLLM and of SGLang (`stacks/*.toml`); runs marked *in the
fit* gave those. TensorRT-LLM has none: constants fitted on Qwen3-32B and on B200 made its other runs worse and were dropped, a
choice made with those runs in view. *Static batch* is the median error without the prompts. Over the Llama runs on H100 and
H200 outside the fit, the median is {median:.1f}% ({count} runs; the bar is 10%). Llama-3.1-8B misses it on H200. vLLM's runs of
it in fp8 are close to a static batch, as if no prompt ran between the answers: disaggregated prefill or a prefix cache would do
that, but the source names neither, and the format of their KV cache is assumed. The time to the first token is not scored: in
these runs it is mostly queueing, which is not modelled.

{markdown(header, rows, texts=5)}"""


def skipped_lines(validation: Validation) -> list[str]:
    """A line for each kind of table that was measured, but is not predicted, with the reason."""
    devices: dict[tuple[str, str], list[str]] = {}
    for entry in validation.skipped:
        devices.setdefault((entry.what, entry.reason), []).append(name_of(entry.device))
    return [f"{OPERATIONS[what]} ({', '.join(names)}) is not predicted: {reason}" for (what, reason), names in devices.items()]


def _skipped(validation: Validation) -> str:
    lines = [f"- {line}" for line in skipped_lines(validation)]
    return "\n".join(["## Measured, but not predicted", "", *lines]) if lines else ""


def _operation(entry: Score) -> str:
    return f"{OPERATIONS[entry.what]} {entry.label}".strip()


def _bar(entry: Score) -> str:
    if entry.bar is None:
        return ""
    median, mean = entry.bar
    return f"{median:g} / {mean:g}" if mean else f"{median:g}"


def _verdict(entry: Score) -> str:
    return {None: "", True: "met", False: "missed"}[entry.met]


assert set(REMARKS) <= set(REGIMES)
