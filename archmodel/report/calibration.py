"""What a calibration found: its constants, its errors before and after, and the chip file that holds them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console, Group, RenderableType
from rich.progress import Progress as Bar
from rich.progress import TaskID
from rich.text import Text

from archmodel.calibration.edit import with_numbers
from archmodel.calibration.run import Calibration, FittedConstant, Progress
from archmodel.report.files import write_whole
from archmodel.report.table import columns
from archmodel.spec.reader import read_text
from archmodel.spec.toml import load_chip


def write_chip(found: Calibration, chip_file: Path, output: Path) -> None:
    """Write `chip_file` with the fitted numbers to `output`, whole or not at all.

    Raises SpecError where the result would be no valid chip, OutputError where it cannot be written.
    """
    text = _moved(read_text(chip_file), chip_file.parent, output.parent)
    sources = {name: block.source for name, block in found.chip.blocks.items()}
    text = with_numbers(text, found.values, sources, rows_of(found))

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")
        load_chip(path)

    write_whole({output: write})


@contextlib.contextmanager
def progress_bar(quiet: bool) -> Iterator[Progress]:
    """A bar on standard error, one for each stage; nothing where that is no terminal."""
    console = Console(stderr=True)
    with Bar(*Bar.get_default_columns(), console=console, disable=quiet or not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield tell


def rows_of(found: Calibration) -> str:
    """The rows of the fit, as the sources of the fitted blocks say it; no quotes, backslashes or semicolons."""
    files = ", ".join(re.sub(r'[;"\\\s]', "_", name) for name in found.files)
    return f"{found.rows} rows of {found.families} shape families of {files}, seed {found.seed}"


def _moved(text: str, source: Path, target: Path) -> str:
    """The text of a chip file as it must read in another folder: `extends` is relative to the file."""

    def there(match: re.Match[str]) -> str:
        path = Path(os.path.relpath((source / match[2]).resolve(), target.resolve())).as_posix()
        return f'{match[1]}"{path}"'

    return re.sub(r'^(\s*extends\s*=\s*)"([^"]+)"', there, text, count=1, flags=re.MULTILINE)


def report(found: Calibration) -> RenderableType:
    """Tables of errors and constants, and a line for each warning."""
    parts: list[RenderableType] = [_error_table(found), Text(""), _constant_table(found)]
    warned = [constant for constant in found.constants if constant.warning]
    if warned:
        parts += [Text("")] + [Text(f"warning: {constant.key}: {constant.warning}") for constant in warned]
    return Group(*parts)


def _error_table(found: Calibration) -> RenderableType:
    cells = []
    for file, old, new in found.errors:
        shares = [f"{_of(score, name):.1%}" for name in ("median", "mean", "p90") for score in (old, new)]
        cells.append([file, f"{old.regime} {old.value}".strip(), f"{old.n:,}", *shares, f"{new.bias_fraction:+.1%}"])
    head = ["unseen rows of", "<regime", "n", "median before", "after", "mean before", "after", "p90 before", "after", "bias"]
    return columns(head, cells)


def _of(score: Any, name: str) -> float:
    return float(getattr(score, f"{name}_absolute_error_fraction"))


def _constant_table(found: Calibration) -> RenderableType:
    cells = [
        [each.key, f"{each.before:.4g}", f"{each.after:.4g}", _range(each), each.stage, f"{each.rows:,}"]
        for each in found.constants
    ]
    return columns(["constant", "before", "after", "90% confidence", "told by", "rows"], cells)


def _range(constant: FittedConstant) -> str:
    return f"{constant.low:.4g} to {constant.high:.4g}" if constant.fitted else "not told"


def _constant_json(constant: FittedConstant) -> dict[str, Any]:
    known = constant.fitted
    limits = {"low": constant.low if known else None, "high": constant.high if known else None}
    return attrs.asdict(constant) | limits | {"fitted": known}


def as_json(found: Calibration, output: Path) -> dict[str, Any]:
    """The same as numbers."""
    return {
        "chip": found.chip.name,
        "file": str(output),
        "seed": found.seed,
        "rows": found.rows,
        "families": found.families,
        "constants": [_constant_json(constant) for constant in found.constants],
        "errors": [{"file": file, "before": attrs.asdict(old), "after": attrs.asdict(new)} for file, old, new in found.errors],
    }
