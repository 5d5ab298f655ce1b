"""The HDF5 trace of a run: written from a Result, read back into the same tables. Plain h5py and h5web read it too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import h5py
import numpy as np

import archmodel
from archmodel.errors import TraceError
from archmodel.report.record import Choice, Column, Tables, record
from archmodel.result import Result
from archmodel.units import unit_of

SCHEMA = "archmodel trace"
SCHEMA_VERSION = 1

_TEXT = h5py.string_dtype("utf-8")
_CODES = 127  # that one byte holds
_SMALL_BYTES = 2048  # below it, compression costs more than it saves
#: what h5py raises on files that are no longer what they were
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, MemoryError)


@attrs.frozen(eq=False)
class Trace:
    """A trace that was read: attributes of the file, and its tables by name (`timeline/prefill` is one)."""

    path: Path
    attributes: dict[str, Any]
    tables: Tables

    def numbers(self, table: str, column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.asarray(self.tables[table][column], dtype=np.float64)

    def words(self, table: str, column: str) -> list[str]:
        values = self.tables[table][column]
        return values.words() if isinstance(values, Choice) else [str(value) for value in values]


def write_trace(result: Result, path: Path, *, chip_text: str, workload_text: str, command: str) -> None:
    """Write the trace of `result`, with the text of both input files and the command that made it."""
    with h5py.File(path, "w", libver=("v108", "v110")) as file:
        file.attrs["schema"] = SCHEMA
        file.attrs["schema_version"] = SCHEMA_VERSION
        file.attrs["archmodel_version"] = archmodel.__version__
        file.attrs["chip"] = result.chip.name
        file.attrs["workload"] = result.workload.name
        file.attrs["chip_toml"] = chip_text
        file.attrs["workload_toml"] = workload_text
        file.attrs["chip_resolved_json"] = _as_json(result.chip)
        file.attrs["workload_resolved_json"] = _as_json(result.workload)
        file.attrs["command"] = command
        for name, table in record(result).items():
            _write_table(file.create_group(name, track_order=True), table)


def _as_json(spec: Any) -> str:
    return json.dumps(attrs.asdict(spec), ensure_ascii=False, allow_nan=False)


def _write_table(group: h5py.Group, table: dict[str, Column]) -> None:
    for name, values in table.items():
        unit = unit_of(name)
        if unit == "1" and group.name.startswith("/over_time/"):
            unit = unit_of(group.name)
        _dataset(group, name, values).attrs["unit"] = unit
    if group.name.startswith("/over_time/"):  # so that h5web draws the curves at once
        curves = [name for name in table if name != "time_s"]
        group.attrs.update({"NX_class": "NXdata", "signal": curves[0], "axes": "time_s"})
        group.attrs.create("auxiliary_signals", curves[1:], dtype=_TEXT)


def _dataset(group: h5py.Group, name: str, values: Column) -> h5py.Dataset:
    data: Any = values.codes if isinstance(values, Choice) else values
    if isinstance(values, Choice):
        codes = {word: code for code, word in enumerate(values.names)}
        dtype = h5py.enum_dtype(codes, basetype="i2" if len(codes) > _CODES else "i1")
    else:
        dtype = _TEXT if isinstance(values, list) else np.asarray(values).dtype
    small = np.ndim(data) == 0 or len(data) * dtype.itemsize < _SMALL_BYTES
    options = {} if small else {"compression": "gzip", "shuffle": True}
    return group.create_dataset(name, data=data, dtype=dtype, **options)


def read_trace(path: str | Path) -> Trace:
    """The trace of a file. Raises TraceError where it is missing, truncated, foreign or of another schema version."""
    try:
        with h5py.File(path, "r") as file:
            _check(file, path)
            tables: Tables = {}
            _read_group(tables, file)
            return Trace(Path(path), {name: _plain(value) for name, value in file.attrs.items()}, tables)
    except FileNotFoundError:
        raise TraceError(f"{path}: does not exist") from None
    except _DAMAGE as error:
        raise TraceError(f"{path}: is truncated, damaged or no HDF5 file: {error}") from None


def _check(file: h5py.File, path: str | Path) -> None:
    if file.attrs.get("schema") != SCHEMA:
        raise TraceError(f"{path}: is an HDF5 file of something else, no trace of archmodel")
    version = file.attrs.get("schema_version")
    if version != SCHEMA_VERSION:
        raise TraceError(f"{path}: has schema version {version}; this archmodel reads version {SCHEMA_VERSION}: run eval again")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _read_group(tables: Tables, group: h5py.Group) -> None:
    for name, item in group.items():
        if isinstance(item, h5py.Dataset):
            tables.setdefault(group.name.strip("/"), {})[name] = _read_column(item)
        else:
            _read_group(tables, item)


def _read_column(item: h5py.Dataset) -> Column:
    if h5py.check_string_dtype(item.dtype) is not None:
        return list(item.asstr()[()])
    names = h5py.check_enum_dtype(item.dtype)
    if names is not None:
        return Choice(item[()].astype(np.int64), tuple(sorted(names, key=lambda word: names[word])))
    column: Column = item[()]
    return column
