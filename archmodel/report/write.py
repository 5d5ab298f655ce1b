"""The files of a run: its trace, and the figures made from the trace."""

from __future__ import annotations

from pathlib import Path

from archmodel.report.files import Writer, file_name, write_whole
from archmodel.report.trace import Trace, read_trace, write_trace
from archmodel.result import Result


def write_reports(result: Result, folder: Path, *, chip_text: str, workload_text: str, command: str) -> list[Path]:
    """Write `<chip>--<workload>.h5` and the figures drawn from it; all of them or none. The trace comes first.

    Raises OutputError where the folder cannot be written.
    """
    stem = f"{file_name(result.chip.name)}--{file_name(result.workload.name)}"
    written: list[Trace] = []

    def trace(path: Path) -> None:
        write_trace(result, path, chip_text=chip_text, workload_text=workload_text, command=command)
        written.append(read_trace(path))

    def figure(name: str) -> Writer:
        def write(path: Path) -> None:
            from archmodel.report.figure import draw  # matplotlib costs half a second

            draw(name, written[0], path)

        return write

    writers: dict[Path, Writer] = {folder / f"{stem}.h5": trace}
    writers |= {folder / f"{stem}.{name}.png": figure(name) for name in ("timeline", "breakdown", "roofline")}
    write_whole(writers)
    return list(writers)
