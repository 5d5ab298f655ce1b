"""The files of a run: its trace, and the figures made from the trace."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from archmodel.report.files import Writer, file_name, write_whole
from archmodel.report.trace import read_trace, write_trace
from archmodel.result import Result

FIGURES = ("timeline", "breakdown", "roofline")

_DRAWING = ("figure.py", "gantt.py", "power.py", "breakdown.py", "roofline.py")


def write_reports(result: Result, folder: Path, *, chip_text: str, workload_text: str, command: str) -> list[Path]:
    """Write `<chip>--<workload>.h5` and the figures drawn from it; all of them or none. The trace comes first.

    A figure that was drawn from the very same trace is kept: a run that is repeated does not load the plotting library.
    Raises OutputError where the folder cannot be written.
    """
    stem = f"{file_name(result.chip.name)}--{file_name(result.workload.name)}"
    traces: list[Path] = []

    def trace(path: Path) -> None:
        write_trace(result, path, chip_text=chip_text, workload_text=workload_text, command=command)
        traces.append(path)

    def figure(name: str) -> Writer:
        def write(path: Path) -> None:
            mark, old = _mark(traces[0]), folder / f"{stem}.{name}.png"
            if old.is_file() and mark.encode() in old.read_bytes():
                shutil.copyfile(old, path)
                return
            from archmodel.report.figure import draw  # matplotlib costs half a second

            draw(name, read_trace(traces[0]), path, mark)

        return write

    writers: dict[Path, Writer] = {folder / f"{stem}.h5": trace}
    writers |= {folder / f"{stem}.{name}.png": figure(name) for name in FIGURES}
    write_whole(writers)
    return list(writers)


def _mark(trace: Path) -> str:
    """Digest of a trace and of the code that draws it, which each figure carries."""
    digest = hashlib.sha256(trace.read_bytes())
    for name in _DRAWING:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()
