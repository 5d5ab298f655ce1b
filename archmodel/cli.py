"""The command line: `eval`, `show`, `predict`, `cost`, `calibrate`, `validate`, `audit` and `split`.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import typer
from rich.console import Group, RenderableType

from archmodel import studies
from archmodel.errors import ArchmodelError, Problem, SpecError
from archmodel.inputs import inputs, is_json
from archmodel.options import AsJson, ChipFile, LatencyLimit, MinEnergy, Period, PowerCap, Quiet, Settings
from archmodel.report.console import print_json, stdout, working
from archmodel.spec.economics_file import ECONOMICS_TABLES, load_economics
from archmodel.spec.reader import read_text
from archmodel.spec.system import with_software
from archmodel.spec.toml import load_chip, load_stack, load_workload, parse_overrides, read_table

if TYPE_CHECKING:
    from archmodel.predict import Prediction
    from archmodel.report.study import Study
    from archmodel.result import Result
    from archmodel.spec.chip import ChipSpec
    from archmodel.spec.workload import WorkloadSpec

_USER_ERROR = 2
_INTERRUPTED = 130
_PREVIEW_ROWS = 20

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A cycle-approximate model of heterogeneous chips for Transformer inference.",
)


@app.command("eval")
def eval_command(
    chip_file: ChipFile,
    workload_file: Annotated[
        Path, typer.Argument(metavar="WORKLOAD", help="A workload (TOML) or a model's config.json.", show_default=False)
    ],
    settings: Settings = None,
    as_json: AsJson = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the formulas with their numbers.")] = False,
    batch: Annotated[int | None, typer.Option(help="Sequences served together.")] = None,
    input_tokens: Annotated[int | None, typer.Option(help="Prompt tokens of a sequence.")] = None,
    output_tokens: Annotated[int | None, typer.Option(help="Tokens generated for a sequence.")] = None,
    every_token: Annotated[bool, typer.Option("--every-token", help="Simulate every decode step.")] = False,
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder of the trace and the figures.")] = Path(
        "reports"
    ),
    stack: Annotated[
        Path | None, typer.Option(metavar="STACK.toml", help="A software stack, in place of the chip's.", show_default=False)
    ] = None,
    power_cap_w: PowerCap = None,
    min_energy: MinEnergy = False,
    latency_limit_ms: LatencyLimit = None,
    period_ms: Period = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no files.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a workload on a chip: latency, throughput, power, and where each of them comes from."""
    request = {"batch": batch, "input_tokens": input_tokens, "output_tokens": output_tokens}
    overrides = parse_overrides(settings or [])
    overrides |= {f"request.{name}": value for name, value in request.items() if value is not None}
    if latency_limit_ms is not None:
        overrides["limits.latency_ms"] = latency_limit_ms
    if period_ms is not None and not min_energy:
        raise SpecError("eval", [Problem("--period-ms", "needs --min-energy, which compares running slowly with idling")])
    with working("evaluating", quiet):
        chip, workload = inputs(chip_file, workload_file, overrides)
        if stack is not None:
            chip = with_software(chip, load_stack(stack))
        from archmodel.evaluate import evaluate  # numba costs half a second
        from archmodel.report.study import studied

        period_s = None if period_ms is None else period_ms * 1e-3
        study = studied(chip, workload, cap_w=power_cap_w, min_energy=min_energy, period_s=period_s, every_token=every_token)
        result = study.result if study else evaluate(chip, workload, every_token=every_token)
    files: list[Path] = []
    if not no_report:
        with working("writing the trace and figures", quiet):
            files = _write(result, chip_file, workload_file, output_dir)
    _print_result(result, files, as_json=as_json, explain=explain, study=study)


@app.command("show")
def show_command(
    file: Annotated[
        Path, typer.Argument(help="A chip, system or workload (TOML), or a model's config.json.", show_default=False)
    ],
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Resolved numbers of a chip or system (peaks, bandwidths, capacities) or of a workload (weights, FLOPs, KV cache)."""
    overrides = parse_overrides(settings or [])
    spec: ChipSpec | WorkloadSpec
    spec = load_chip(file, overrides) if _kind(file) == "chip" else load_workload(file, overrides)
    from archmodel.report import show

    if as_json:
        print_json(show.as_dict(spec))
    else:
        stdout().print(show.report(spec))


@app.command("predict")
def predict_command(
    chip_file: ChipFile,
    operations_file: Annotated[Path, typer.Argument(metavar="OPS.csv", help="Operations, one a row.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT.csv", help="Write the table with the predictions.")
    ] = None,
    scalesim3: Annotated[bool, typer.Option("--scalesim3", help="Cycles as SCALE-Sim 3.0.0 counts them.")] = False,
    settings: Settings = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict the time of each operation in a CSV, and the error where it holds measured times."""
    chip = load_chip(chip_file, parse_overrides(settings or []))
    with working("predicting", quiet):
        from archmodel.predict import predict_file
        from archmodel.report import predictions

        prediction = predict_file(chip, operations_file, scalesim3=scalesim3)
    if output is not None:
        predictions.write_csv(prediction, output)
    if as_json:
        print_json(predictions.statistics_json(prediction))
        return
    statistics = predictions.statistics_table(prediction)
    if statistics is not None:
        stdout().print(statistics)
    if output is None:
        stdout().print(_preview(prediction))


@app.command("cost")
def cost_command(
    chip_file: ChipFile,
    workload_file: Annotated[
        Path | None,
        typer.Argument(metavar="[WORKLOAD]", help="A workload (TOML) or a model's config.json.", show_default=False),
    ] = None,
    economics: Annotated[
        Path | None, typer.Option(metavar="PRICES.toml", help="Prices laid over the default ones.", show_default=False)
    ] = None,
    requests_per_s: Annotated[
        float | None, typer.Option(metavar="RATE", help="Size a service for so many requests a second.", show_default=False)
    ] = None,
    power_budget_w: Annotated[
        float | None, typer.Option(metavar="WATT", help="Show what so much power at the plug carries.", show_default=False)
    ] = None,
    settings: Settings = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """What a chip costs to make, and what its tokens cost: dies, memory, package, server, energy."""
    overrides = parse_overrides(settings or [])
    prices = load_economics(economics, {key: value for key, value in overrides.items() if _is_price(key)})
    rest = {key: value for key, value in overrides.items() if not _is_price(key)}
    wanted = {"--requests-per-s": requests_per_s, "--power-budget-w": power_budget_w}
    problems = [Problem(name, "must be a number from 1e-9 to 1e15", f"{value:g}")
                for name, value in wanted.items() if value is not None and not 1e-9 <= value <= 1e15]  # fmt: skip
    if workload_file is None:
        problems += [Problem(name, "needs a workload") for name, value in wanted.items() if value is not None]
    if problems:
        raise SpecError("cost", problems)
    result, model = None, None
    with working("evaluating", quiet):
        if workload_file is None:
            chip = load_chip(chip_file, rest)
        else:
            chip, workload = inputs(chip_file, workload_file, rest)
            from archmodel.evaluate import evaluate

            result, model = evaluate(chip, workload), workload.model
        from archmodel.economics.costing import costing
        from archmodel.report import cost as report

        found = costing(chip, prices, result, model, requests_per_s=requests_per_s, power_budget_w=power_budget_w)
    if as_json:
        print_json(report.as_dict(found))
    else:
        stdout().print(report.report(found))


def _is_price(key: str) -> bool:
    return key.partition(".")[0] in ECONOMICS_TABLES


def _preview(prediction: Prediction) -> RenderableType:
    """The first rows of a table of operations with what was predicted."""
    from archmodel.report.predictions import added_columns
    from archmodel.report.table import columns

    table, added = prediction.operations.table, added_columns(prediction)
    cells = zip(table.rows[:_PREVIEW_ROWS], *added.values(), strict=False)
    rest = len(prediction) - _PREVIEW_ROWS
    shown = columns([*table.header, *added], [[*row, *new] for row, *new in cells])
    return Group(shown, f"and {rest:,} more; -o OUT.csv writes them all") if rest > 0 else shown


def _kind(file: Path) -> str:
    """ "chip" or "workload", by the tables of the file."""
    if is_json(file):
        return "workload"
    table = read_table(file)
    if "chip" in table or "system" in table:
        return "chip"
    if "workload" in table or "model" in table:
        return "workload"
    found = f"it has {', '.join(table)}" if table else "it is empty"
    raise SpecError(str(file), [Problem("file", f"must have a [chip] or [system] table, or [workload] and [model]; {found}")])


def _write(result: Result, chip_file: Path, workload_file: Path, folder: Path) -> list[Path]:
    from archmodel.report.write import write_reports

    command = shlex.join(["python", "-m", "archmodel", *sys.argv[1:]]).encode("utf-8", "backslashreplace").decode()
    return write_reports(
        result, folder, chip_text=read_text(chip_file), workload_text=read_text(workload_file), command=command
    )


def _print_result(result: Result, files: list[Path], *, as_json: bool, explain: bool, study: Study | None) -> None:
    from archmodel.report import study as studies_of

    if as_json:
        from archmodel.report.summary import summary

        found = summary(result, str(files[0]) if files else None) | (studies_of.as_dict(study) if study else {})
        if explain:
            from archmodel.explain import explanation

            found["explanation"] = [attrs.asdict(topic) for topic in explanation(result)]
        print_json(found)
        return
    from archmodel.report import table

    console = stdout()
    console.print(table.report(result, console.width), *(studies_of.tables(study) if study else ()), sep="\n")
    if explain:
        from archmodel.report.formulas import formulas

        console.print(formulas(result))
    if files:
        console.print(table.written(files))


app.command("calibrate")(studies.calibrate_command)
app.command("validate")(studies.validate_command)
app.command("audit")(studies.audit_command)
app.command("split")(studies.split_command)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for what the user can mend, 130 when interrupted."""
    if sys.stdout is None:  # the caller closed it
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        app(args=arguments, prog_name="archmodel")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except ArchmodelError as error:
        print(f"error: {error}", file=sys.stderr)
        code = _USER_ERROR
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except OSError as error:
        code = _unwritable(error)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or _unwritable(error)
    return code


def _unwritable(error: OSError) -> int:
    """Exit code where standard output takes no more, and nothing is left that could fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # the reader has gone, as in `| head`: nobody is left to tell
        return 0
    print(f"error: standard output: {error.strerror or error}", file=sys.stderr)
    return _USER_ERROR
