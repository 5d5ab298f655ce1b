"""Numba kernels on arrays and one NamedTuple of parameters. They know no spec; this is the one place that calls numba."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def cache_folder() -> str:
    """Folder of the compiled kernels, named after a digest of every kernel's source.

    Numba only watches the file of the function itself, so a change in a callee in another file would bring back the
    old machine code; the digest makes that impossible. `ARCHMODEL_CACHE` names another parent folder; else it is the
    package's own, or a user folder where the package is read-only.
    """
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(here.glob("*.py")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    name = digest.hexdigest()[:16]
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    chosen = os.environ.get("ARCHMODEL_CACHE")
    parents = [here / "__pycache__", user / "archmodel", Path(tempfile.gettempdir()) / "archmodel"]
    for parent in [Path(chosen), *parents] if chosen else parents:
        folder = parent / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder)
    return ""


def kernel(function: Function) -> Function:
    """Compile `function` on first use and keep the machine code. A division by zero raises, as in Python."""
    config: Any = numba.config
    before = config.CACHE_DIR
    folder = cache_folder()
    try:
        config.CACHE_DIR = folder
        compiled: Any = numba.njit(cache=bool(folder), error_model="python")(function)
    finally:
        config.CACHE_DIR = before
    return compiled  # type: ignore[no-any-return]
