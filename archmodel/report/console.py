"""Where results and progress go: results to standard output, a spinner to standard error on a terminal only."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from rich.console import Console

PIPED_WIDTH = 140


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def stdout() -> Console:
    """Console for results: no markup, for names are the user's; wide where no terminal sets the width."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(width=width, markup=False, highlight=False, emoji=False)


def working(what: str, quiet: bool) -> contextlib.AbstractContextManager[Any]:
    """A spinner on standard error while something runs; nothing where that is no terminal."""
    console = Console(stderr=True)
    return console.status(f"{what} ...") if console.is_terminal and not quiet else contextlib.nullcontext()
