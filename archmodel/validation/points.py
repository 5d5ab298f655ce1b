"""Measured rows of `data/validation` with their predictions: one `Points` for each table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.errors import ArchmodelError, TableError
from archmodel.operations import Floats
from archmodel.predict import predict_file
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec
from archmodel.spec.toml import load_chip
from archmodel.table_file import TableFile
from archmodel.validation.kernels import kernel_times
from archmodel.validation.roofline import roofline

Texts = NDArray[np.str_]
Flags = NDArray[np.bool_]

#: measured devices, in the order of every table
DEVICES = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s")

#: beginning of a table's file name -> what it measures, in the order of the report
OPERATIONS = {
    "gemm": "GEMM",
    "attn_context": "attention, context",
    "attn_generation": "attention, generation",
    "mla": "attention, MLA",
    "moe": "MoE",
    "quantise": "quantisation kernel",
    "collectives": "collective",
}

#: column that divides an operation into regimes, its upper ends, and what to call it
REGIMES: dict[str, tuple[str, tuple[float, ...], str]] = {
    "gemm": ("m", (16, 128, 1024, 8192), "rows m"),
    "attn_context": ("kv_len", (128, 1024, 4096), "tokens of the prompt"),
    "attn_generation": ("kv_len", (512, 4096, 32768), "tokens in the cache"),
    "mla": ("kv_len", (512, 4096, 32768), "tokens in the cache"),
    "moe": ("num_tokens", (16, 128, 1024, 8192), "tokens"),
    "quantise": ("m", (16, 128, 1024, 8192), "rows m"),
    "collectives": ("message_bytes", (65535, 2**20, 2**24, 2**28), "bytes of the message"),
}

#: table whose grouped heads imply more than the memory's peak (median 1.3 times it where the cache is ten L2s or more): see
#: the report. They get a label of their own, and count against the bar all the same
DOUBTFUL = ("attn_generation", "a100_sxm")
GROUPED = "(grouped, in doubt)"

#: rows of this serving library were fitted; those of another one stand apart
STACK = "trtllm"
_NAMES = {"bfloat16": "bf16", "sglang": "SGLang", "int8_wo": "int8 weights", "int4_wo": "int4 weights"}


@attrs.frozen(eq=False, kw_only=True)
class Points:
    """Measured rows of one table with what is predicted for them. Arrays have shape (rows,)."""

    what: str  # key of OPERATIONS
    device: str
    table: TableFile
    measured_us: Floats
    predicted_us: Floats
    roofline_us: Floats  # the larger of FLOP / peak and bytes / bandwidth; NaN where there is none
    label: Texts  # number format, and what else is scored apart
    report: Flags  # of a family that no fit has seen
    beyond: Flags  # the memory's peak would take longer than measured for what does not stay in a cache by itself
    resident: Flags  # and it fits into the cache
    size: Floats  # what divides the operation into regimes

    def __len__(self) -> int:
        return len(self.measured_us)

    @property
    def error(self) -> Floats:
        """Predicted / measured - 1, shape (rows,)."""
        return self.predicted_us / self.measured_us - 1.0

    def take(self, rows: Flags) -> Points:
        """The rows that a mask selects; the table stays whole."""
        names = [field.name for field in attrs.fields(Points) if field.name not in ("what", "device", "table")]
        arrays = {name: getattr(self, name)[rows] for name in names}
        return attrs.evolve(self, **arrays)


@attrs.frozen
class Skipped:
    """A table that the model does not predict, and why."""

    what: str
    device: str
    reason: str


def tables(data: Path) -> list[tuple[str, str, Path]]:
    """What is measured, on which device, and the file, in the order of the report.

    Raises TableError where the folder holds no table.
    """
    found = [
        (what, path.stem.removeprefix(f"{what}_"), path)
        for what in OPERATIONS
        for path in sorted(data.glob(f"{what}_*.csv"), key=_order)
    ]
    if not found:
        raise TableError(f"{data}: no measured tables; validate runs in a clone of the repository, or with --root FOLDER")
    return found


def _order(path: Path) -> tuple[int, str]:
    """Devices in the order of DEVICES, then any other."""
    known = [number for number, device in enumerate(DEVICES) if path.stem.endswith(f"_{device}")]
    return (known[0] if known else len(DEVICES), path.stem)


def predicted(data: Path, chips: Path) -> Iterator[Points | Skipped]:
    """Every table with its predictions; a table that the model cannot take is skipped with the reason."""
    for what, device, path in tables(data):
        try:
            yield points(what, device, load_chip(chips / f"{device}.toml"), path)
        except ArchmodelError as error:
            yield Skipped(what, device, str(error).splitlines()[-1].strip())


def points(what: str, device: str, chip: ChipSpec, path: Path) -> Points:
    """Measured rows of one table, predicted for `chip`. Raises ArchmodelError where it cannot be."""
    soc = Soc(chip)
    if what in ("mla", "quantise"):
        table, predicted_us = kernel_times(soc, what, path)
    else:
        prediction = predict_file(chip, path)
        table, predicted_us = prediction.operations.table, prediction.predicted_us
    measured_us = np.array(table.texts("latency_us"), dtype=np.float64)
    roof = roofline(soc, what, table)
    beyond = roof.stream_us > measured_us
    column = REGIMES[what][0]
    return Points(
        what=what,
        device=device,
        table=table,
        measured_us=measured_us,
        predicted_us=predicted_us,
        roofline_us=roof.time_us,
        label=_labels(what, table, doubtful=(what, device) == DOUBTFUL),
        report=np.array([part != "fit" for part in _cells(table, "part")]),
        beyond=beyond,
        resident=beyond & (roof.stream_byte <= roof.cache_byte),
        size=np.array(table.texts(column), dtype=np.float64),
    )


def _cells(table: TableFile, column: str) -> list[str]:
    return table.texts(column) if table.index(column) >= 0 else [""] * len(table)


def _labels(what: str, table: TableFile, doubtful: bool = False) -> Texts:
    """Number format of each row; with the phase of MLA, the operation of a collective, and a library other than STACK.

    Rows with several heads for a key and value head are named so in a `doubtful` table.
    """
    match what:
        case "attn_context" | "attn_generation" | "mla":
            compute = _cells(table, "mla_dtype" if what == "mla" else "attn_dtype")
            formats = [_attention_format(a, b) for a, b in zip(compute, _cells(table, "kv_dtype"), strict=True)]
            phases = _cells(table, "phase")
            names = [f"{phase} {name}".strip() for phase, name in zip(phases, formats, strict=True)]
            if doubtful:
                grouped = [a != b for a, b in zip(_cells(table, "heads"), _cells(table, "kv_heads"), strict=True)]
                names = [f"{name} {GROUPED}" if of else name for name, of in zip(names, grouped, strict=True)]
        case "collectives":
            columns = zip(_cells(table, "op"), _cells(table, "lib"), _cells(table, "mode"), strict=True)
            names = [_collective(op, lib, mode) for op, lib, mode in columns]
        case "quantise":
            names = _cells(table, "op")
        case _:
            names = [_NAMES.get(name, name) for name in _cells(table, "dtype")]
    return np.array([_with_stack(name, stack) for name, stack in zip(names, _cells(table, "framework"), strict=True)])


def _collective(op: str, lib: str, mode: str) -> str:
    kernel = f" ({lib.split('_')[0]} kernel{', eager' if mode == 'eager' else ''})" if "custom" in lib else ""
    return op.replace("alltoall", "all_to_all") + kernel


def _attention_format(compute: str, cache: str) -> str:
    compute, cache = _NAMES.get(compute, compute), _NAMES.get(cache, cache)
    return compute if compute == cache else f"{compute}, {cache} cache"


def _with_stack(name: str, stack: str) -> str:
    return name if stack in ("", STACK) else f"{name} ({_NAMES.get(stack, stack)})"
