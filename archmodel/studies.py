"""Commands about many measurements or many claims: `audit`, `validate` and `calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archmodel.holdout import FIT_SHARE, SEED
from archmodel.options import AsJson, ChipFile, Quiet, Settings
from archmodel.report.console import print_json, stdout, working
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
