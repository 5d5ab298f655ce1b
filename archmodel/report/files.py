"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from archmodel.errors import OutputError

_LONGEST_BYTES = 100  # of a name inside a file name; file systems stop at 255 for all of it

Writer = Callable[[Path], None]


def file_name(name: str) -> str:
    """`name` as part of a file name: letters, digits and `-_.` of any script; everything else becomes `_`."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".") or "_"
    return safe.encode()[:_LONGEST_BYTES].decode(errors="ignore")


def write_whole(writers: Mapping[Path, Writer]) -> None:
    """Write every file beside its place and only then rename all of them.

    A writer gets the path to write to. A process that is killed leaves the old files or the new ones, and at most hidden
    leftovers that end in `.part`. Raises OutputError where the folder or a file cannot be written.
    """
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    parts = {path: path.with_name(f".{path.name}.{mark}.part") for path in writers}
    try:
        for path, write in writers.items():
            _make_folder(path.parent)
            if path.is_dir():
                raise OutputError(f"{path}: is a folder, where a file is to be written")
            write(parts[path])
            _to_disk(parts[path])
        for path, part in parts.items():
            part.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink()


def _make_folder(folder: Path) -> None:
    blocking = next((p for p in (folder, *folder.parents) if p.exists() and not p.is_dir()), None)
    if blocking is not None:
        raise OutputError(f"{blocking}: is a file, where a folder is needed")
    folder.mkdir(parents=True, exist_ok=True)


def _to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
