"""Commands about many measurements, claims or plans: `audit`, `validate`, `calibrate` and `split`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from archmodel.errors import Problem, SpecError
from archmodel.holdout import FIT_SHARE, SEED
from archmodel.inputs import inputs
from archmodel.options import AsJson, ChipFile, Quiet, Settings
from archmodel.report.console import print_json, stdout, working
from archmodel.spec.economics_file import load_economics
from archmodel.spec.toml import load_chip, parse_overrides


def _list_kinds(asked: bool) -> None:
    if asked:
        from archmodel.report.claim_kinds import kinds

        stdout().print(kinds())
        raise typer.Exit


def audit_command(
    claims_file: Annotated[Path, typer.Argument(metavar="CLAIMS", help="Claims about a chip (TOML).", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="REPORT.md", help="Write the report as markdown.")
    ] = None,
    list_kinds: Annotated[  # noqa: ARG001
        bool, typer.Option("--kinds", callback=_list_kinds, is_eager=True, help="List the kinds of claims with their figures.")
    ] = False,
    settings: Settings = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Judge what somebody claims of a chip: which of it can be true, by how much the rest fails, and what would change that."""
    from archmodel.spec.claims import load_claims

    claims = load_claims(claims_file, parse_overrides(settings or []))
    with working("auditing", quiet):
        from archmodel.audit.judge import audit
        from archmodel.report import audit as report
        from archmodel.report.audit_json import as_json as as_dict

        found = audit(claims)
    if output is not None:
        report.write_markdown(found, output)
    if as_json:
        print_json(as_dict(found))
    else:
        stdout().print(report.table(found))


def validate_command(
    quick: Annotated[bool, typer.Option("--quick", help="Print the table of errors and write nothing.")] = False,
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder of validation.md and its figures.")] = Path(
        "reports"
    ),
    root: Annotated[Path, typer.Option("--root", help="Clone with data/validation, chips and stacks.")] = Path("."),
    quiet: Quiet = False,
) -> None:
    """Predict what others measured on real GPUs and report the error: run it in a clone of the repository."""
    with working("predicting what was measured", quiet):
        from archmodel.report import validation as report
        from archmodel.validation.run import validate

        found = validate(root, transfer=not quick, serving=not quick, energy=not quick, hetero=not quick)
    files: list[Path] = []
    if not quick:
        with working("writing the report", quiet):
            files = report.write_validation(found, output_dir)
    stdout().print(report.summary_table(found), *report.skipped_lines(found), sep="\n")
    if found.energy:
        from archmodel.report.validation_energy import energy_table

        stdout().print(energy_table(found.energy))
    if found.hetero.cases:
        from archmodel.report.validation_hetero import summary_line

        stdout().print(summary_line(found.hetero))
    if files:
        from archmodel.report.table import written

        stdout().print(written(files))


def calibrate_command(
    chip_file: ChipFile,
    tables: Annotated[
        list[Path],
        typer.Argument(metavar="MEASURED.csv ...", help="Measured GEMMs or attention, as for predict.", show_default=False),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NEW.toml", help="The calibrated chip.", show_default=False)
    ],
    seed: Annotated[int, typer.Option(help="Draws the shape families that the fit sees.")] = SEED,
    fit_share: Annotated[float, typer.Option(help="Share of the families that the fit sees.", min=0.05, max=0.95)] = FIT_SHARE,
    settings: Settings = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit the constants of a chip's GPU to measured times, and show the error on shapes that the fit never saw."""
    chip = load_chip(chip_file, parse_overrides(settings or []))
    from archmodel.calibration.run import calibrate
    from archmodel.report import calibration as report

    with report.progress_bar(quiet) as progress:
        found = calibrate(chip, tables, seed=seed, share=fit_share, progress=progress)
    report.write_chip(found, chip_file, output)
    if as_json:
        print_json(report.as_json(found, output))
    else:
        stdout().print(report.report(found))


def split_command(
    system_file: Annotated[Path, typer.Argument(metavar="SYSTEM", help="A chip or a system (TOML).", show_default=False)],
    workload_file: Annotated[
        Path, typer.Argument(metavar="WORKLOAD", help="A workload (TOML) or a model's config.json.", show_default=False)
    ],
    baseline_file: Annotated[
        Path | None, typer.Option("--baseline", metavar="CHIP", help="Compare with this chip, not with the best single unit.")
    ] = None,
    min_gain: Annotated[float, typer.Option(help="Least gain in throughput that is worth a split.", min=0.0, max=100.0)] = 0.10,
    error: Annotated[
        float | None, typer.Option(help="Error of a predicted ratio of times; by default that of the validation.", min=0, max=1)
    ] = None,
    engineering_usd_per_year: Annotated[float, typer.Option(help="What keeping the split up costs.", min=0.0)] = 0.0,
    fleet_chips: Annotated[float, typer.Option(help="Baseline chips that serve the load.", min=0.0)] = 0.0,
    usd_per_hour: Annotated[float, typer.Option(help="Price of the running system, in place of a modelled one.", min=0)] = 0.0,
    baseline_usd_per_hour: Annotated[
        float, typer.Option(help="Price of a chip of the baseline, running; by default that of the system.", min=0.0)
    ] = 0.0,
    prices: Annotated[
        Path | None, typer.Option("--economics", metavar="PRICES.toml", help="Prices laid over the default ones.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", metavar="DIR", help="Write a heat map of where the split pays.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every strategy that was tried.")] = False,
    settings: Settings = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Does splitting a model over unlike units pay? All strategies against one side: the gain, its leaks, and a verdict."""
    stated = {"--min-gain": min_gain, "--error": error, "--engineering-usd-per-year": engineering_usd_per_year,
              "--fleet-chips": fleet_chips, "--usd-per-hour": usd_per_hour,
              "--baseline-usd-per-hour": baseline_usd_per_hour}  # fmt: skip
    wrong = [Problem(name, "must be finite", str(value)) for name, value in stated.items() if not math.isfinite(value or 0.0)]
    if wrong:
        raise SpecError("split", wrong)
    system, workload = inputs(system_file, workload_file, parse_overrides(settings or []))
    baseline = load_chip(baseline_file) if baseline_file is not None else None
    economics = load_economics(prices, {})
    with working("trying strategies", quiet):
        from archmodel.report import splitting as report
        from archmodel.splitting.study import study
        from archmodel.splitting.verdict import Terms

        known = {} if error is None else {"error_fraction": error, "error_source": "stated by the user"}
        terms = Terms(
            min_gain=min_gain, engineering_usd_per_year=engineering_usd_per_year, fleet_chips=fleet_chips,
            old_usd_per_hour=baseline_usd_per_hour or usd_per_hour, new_usd_per_hour=usd_per_hour, **known,  # type: ignore[arg-type]
        )  # fmt: skip
        found = study(system, workload, terms, baseline, economics)
        files: list[Path] = []
        if output_dir is not None:
            from archmodel.report.zones import write_zones

            files = write_zones(found, output_dir)
        console = stdout()
        shown = report.report(found, console.width, every=every) if not as_json else None
    if shown is None:
        from archmodel.report.splitting_json import as_json as as_dict

        print_json({**as_dict(found), "files": [str(file) for file in files]})
        return
    console.print(shown)
    if files:
        from archmodel.report.table import written

        console.print(written(files))
