"""Operations listed in a CSV file: GEMMs, attentions, mixtures of experts or collectives, as `Rows` that any component takes.

A collective table has op, num_gpus, message_bytes (as nccl-tests counts it) and may have lib, whose custom all-reduce is the
one-shot and two-shot kernel of a serving library. A GEMM table has the columns m, n, k, dtype; an attention table has batch,
seq_q, kv_len, heads, kv_heads, head_dim, window (0: none), attn_dtype, kv_dtype; `expert_table` has those of mixtures of
experts. All may have latency_us, the measured time [us], empty where nothing was measured. Attention is causal, as in a
decoder, and writes the keys and values of its seq_q new tokens to the cache; kv_len counts them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.dtypes import ALIASES, ATTENTION_DTYPES, CACHE_DTYPES, DTYPES, Dtype, Quantisation
from archmodel.expert_table import APART, check_experts, expert_rows, routing_columns
from archmodel.expert_table import SIZES as EXPERTS
from archmodel.kernels.attention import PACKED_TOKENS
from archmodel.kernels.collective import OPS
from archmodel.operations import NUMERIC, Floats, Ints, Kind, Rows
from archmodel.spec.chip import CAPABILITIES
from archmodel.spec.reader import nearest
from archmodel.spec.workload import ROLES
from archmodel.table_file import Problems, Rule, TableFile, missing_columns, numbers, read_table_file
from archmodel.units import FORMATS, element_bytes

#: operations to rotate an element of a query or key: two multiplications and an addition
ROTARY_FLOP = 3.0

#: columns of some rows; a number stands for all of them
Part = dict[str, "Floats | Ints | float"]

GEMM = ("m", "n", "k")
ATTENTION = ("batch", "seq_q", "kv_len", "heads", "kv_heads", "head_dim", "window")
COLLECTIVE = ("num_gpus", "message_bytes")

_LARGEST = 10**9
_MOST_MAC = 10**18  # of one operation: half an hour of the fastest GPU, and far from the end of 64-bit counters


def _whole(low: int) -> Rule:
    return Rule(
        f"must be a whole number from {low} to {_LARGEST:,}", lambda v: (v >= low) & (v <= _LARGEST) & (v == np.floor(v))
    )


_LATENCY = Rule(f"must be a number above 0 and at most {_LARGEST:,}", lambda v: (v > 0) & (v <= _LARGEST), empty=True)


@attrs.frozen(eq=False, kw_only=True)
class OperationTable:
    """Operations of a CSV file. Arrays have shape (rows,)."""

    table: TableFile
    kind: Kind  # MATMUL, ATTENTION, EXPERTS or COLLECTIVE
    size: Mapping[str, Floats]  # by column; of experts also what their texts say
    dtypes: tuple[tuple[str, ...], ...]  # distinct: (dtype,), (attn_dtype, kv_dtype) or (op, "library" or "direct")
    dtype: Ints  # index into `dtypes`
    measured_us: Floats | None  # NaN where the cell is empty; None without the column
    remarks: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.table)

    def first_line(self, dtype: int) -> int:
        """Line of the first row with that dtype."""
        return self.table.lines[int(np.argmax(self.dtype == dtype))]


def read_operations(path: str | Path, *, shapes_only: bool = False) -> OperationTable:
    """Operations of a CSV file; with `shapes_only` it must hold GEMMs, whose dtype may be missing.

    Raises TableError with all that is wrong.
    """
    problems = Problems(str(path))
    table = read_table_file(path, problems)
    titles = [title.lower() for title in table.header]
    listed = sum(name in titles for name in ATTENTION) > sum(name in titles for name in GEMM)
    kind = Kind.ATTENTION if listed and not shapes_only else Kind.MATMUL
    if {"topk", "experts"} <= set(titles) and not shapes_only:
        kind = Kind.EXPERTS
    if set(COLLECTIVE) <= set(titles) and not shapes_only:
        return _read_collectives(table, problems)
    shape = {Kind.ATTENTION: ATTENTION, Kind.EXPERTS: EXPERTS}.get(kind, GEMM)
    formats = ["attn_dtype", "kv_dtype"] if kind == Kind.ATTENTION else ["dtype"]
    if shapes_only and table.index("dtype") < 0:
        formats = []
    missing = missing_columns(table, (*shape, *formats), problems)
    size = {name: numbers(table, name, _whole(0 if name == "window" else 1), problems) for name in shape if name not in missing}
    names = [_dtype_names(table, name, problems) for name in formats if name not in missing]
    measured_us = numbers(table, "latency_us", _LATENCY, problems) if table.index("latency_us") >= 0 else None
    if kind == Kind.EXPERTS:
        size |= routing_columns(table, problems)
    if not missing:
        _check_sizes(table, kind, size, problems)
    problems.check()
    code: dict[tuple[str, ...], int] = {}
    keys = zip(*names, strict=True) if names else iter([()] * len(table))
    dtype = np.array([code.setdefault(key, len(code)) for key in keys], dtype=np.int64)
    return OperationTable(
        table=table, kind=kind, size=size, dtypes=tuple(code), dtype=dtype, measured_us=measured_us, remarks=_remarks(table)
    )


def _read_collectives(table: TableFile, problems: Problems) -> OperationTable:
    missing = missing_columns(table, (*COLLECTIVE, "op"), problems)
    most = Rule("must be a whole number from 1 to 10^15", lambda v: (v >= 1) & (v <= 1e15) & (v == np.floor(v)))
    rules = {"num_gpus": _whole(1), "message_bytes": most}
    size = {name: numbers(table, name, rule, problems) for name, rule in rules.items() if name not in missing}
    measured_us = numbers(table, "latency_us", _LATENCY, problems) if table.index("latency_us") >= 0 else None
    names = [] if "op" in missing else [cell.lower().replace("alltoall", "all_to_all") for cell in table.texts("op")]
    for line, name in zip(table.lines, names, strict=False):
        if name not in OPS:
            problems.add(line, "must be one of " + ", ".join(OPS), "op", name or "empty")
    problems.check()
    libs = table.texts("lib") if table.index("lib") >= 0 else ["library"] * len(table)
    keys = [(name, "direct" if "custom" in lib.lower() else "library") for name, lib in zip(names, libs, strict=True)]
    code: dict[tuple[str, ...], int] = {}
    return OperationTable(
        table=table, kind=Kind.COLLECTIVE, size=size, measured_us=measured_us, remarks=_remarks(table),
        dtype=np.array([code.setdefault(key, len(code)) for key in keys], dtype=np.int64), dtypes=tuple(code),
    )  # fmt: skip


def _remarks(table: TableFile) -> tuple[str, ...]:
    """A column that may have been meant as the measured time."""
    close = nearest("latency_us", [title.lower() for title in table.header], "{}")
    if table.index("latency_us") >= 0 or not close:
        return ()
    return (f"column {close} is passed through; errors are computed where there is a column latency_us",)


def _dtype_names(table: TableFile, column: str, problems: Problems) -> list[str]:
    """Names of a dtype column without aliases; unknown ones are problems."""
    known = {"dtype": tuple(DTYPES), "attn_dtype": tuple(ATTENTION_DTYPES), "kv_dtype": CACHE_DTYPES}[column]
    cells = table.texts(column)
    names = {cell: ALIASES.get(cell.lower(), cell.lower()) for cell in set(cells)}
    unknown = {cell for cell, name in names.items() if name not in known}
    if unknown:
        words = (*known, *(alias for alias, name in ALIASES.items() if name in known))
        hints = {cell: nearest(cell.lower(), words) or "; known are " + ", ".join(known) for cell in unknown}
        for line, cell in zip(table.lines, cells, strict=True):
            if cell in unknown:
                problems.add(line, f"unknown number format{hints[cell]}", column, cell or "empty")
    return [names[cell] for cell in cells]


def _check_sizes(table: TableFile, kind: Kind, size: dict[str, Floats], problems: Problems) -> None:
    """Rules that join columns. Cells that are no number break no rule here."""

    def refuse(bad: NDArray[np.bool_], columns: tuple[str, ...], rule: str) -> None:
        for row in np.flatnonzero(bad).tolist():
            value = " x ".join(f"{size[name][row]:.15g}" for name in columns)
            problems.add(table.lines[row], rule, ", ".join(columns), value)

    products = {Kind.MATMUL: GEMM, Kind.EXPERTS: ("num_tokens", "topk", "hidden", "inter")}
    product = products.get(kind, ("batch", "heads", "seq_q", "kv_len", "head_dim"))
    mac = np.prod([size[name] for name in product], axis=0)
    refuse(mac > _MOST_MAC, product, f"their product must be at most {_MOST_MAC:,}")
    if kind == Kind.EXPERTS:
        check_experts(table, size, problems)
    if kind == Kind.ATTENTION:
        refuse(size["kv_len"] < size["seq_q"], ("kv_len",), "must be at least seq_q, whose tokens it counts")
        refuse(np.fmod(size["heads"], size["kv_heads"]) > 0, ("kv_heads",), "must divide heads")


def rows_of(operations: OperationTable, index: Ints, compute_format: Ints) -> tuple[Rows, Ints]:
    """Rows of the operations at `index`, and the operation of each row: kernels before a product are rows of their own.

    Args:
        operations: the operations.
        index: which of them, shape (n,).
        compute_format: of each of them, index into FORMATS, shape (n,).
    """
    of_kind = {Kind.ATTENTION: _attentions, Kind.EXPERTS: _experts}.get(operations.kind, _gemms)
    parts = of_kind(operations, index, compute_format)
    owner = np.concatenate([of for _, of in parts])
    columns: dict[str, Any] = {
        name: np.concatenate([np.broadcast_to(part.get(name, float(name == "count")), len(of)) for part, of in parts])
        for name in NUMERIC
    }
    for name in ("kind", "role", "capability", "compute_format"):
        columns[name] = columns[name].astype(np.int64)
    return Rows(name=tuple(f"line {operations.table.lines[row]}" for row in owner.tolist()), **columns), owner


def _what(kind: Kind, role: str, capability: str) -> Part:
    return {"kind": float(kind), "role": float(ROLES.index(role)), "capability": float(CAPABILITIES.index(capability))}


def _attentions(operations: OperationTable, index: Ints, compute_format: Ints) -> list[tuple[Part, Ints]]:
    size = {name: column[index] for name, column in operations.size.items()}
    code = operations.dtype[index]
    meaning = [ATTENTION_DTYPES[name] for name, _ in operations.dtypes]
    part: Part = {
        **_what(Kind.ATTENTION, "attention", "attention"), "compute_format": compute_format, "causal": 1.0, "cached": 1.0,
        "sequences": size["batch"], "q_tokens": size["seq_q"], "kv_tokens": size["kv_len"], "window": size["window"],
        "heads": size["heads"], "kv_heads": size["kv_heads"], "qk_dim": size["head_dim"], "v_dim": size["head_dim"],
        "kv_byte": np.array([element_bytes(name) for _, name in operations.dtypes])[code],
        "input_byte": np.array([dtype.a_byte for dtype in meaning])[code],
        "output_byte": np.array([dtype.c_byte for dtype in meaning])[code],
    }  # fmt: skip
    many = size["seq_q"] > PACKED_TOKENS
    return [(part, index), (_appending({name: np.asarray(part[name])[many] for name in _APPENDED}), index[many])]


#: columns of an attention that say what its new tokens append to the cache
_APPENDED = ("sequences", "q_tokens", "heads", "kv_heads", "qk_dim", "v_dim", "input_byte", "kv_byte")


def _appending(of: Mapping[str, Floats]) -> Part:
    """The kernel before attention over many new tokens: rotates queries and keys, writes keys and values to the cache.

    Generation kernels do it themselves.
    """
    tokens = of["sequences"] * of["q_tokens"]
    queries, keys = tokens * of["heads"] * of["qk_dim"], tokens * of["kv_heads"] * of["qk_dim"]
    values = tokens * of["kv_heads"] * of["v_dim"]
    return {
        **_what(Kind.VECTOR, "vector", "convert"), "compute_format": float(FORMATS.index("bf16")),
        "flop": ROTARY_FLOP * (queries + keys), "read_byte": (queries + keys + values) * of["input_byte"],
        "write_byte": queries * of["input_byte"] + (keys + values) * of["kv_byte"],
    }  # fmt: skip


def _gemms(operations: OperationTable, index: Ints, compute_format: Ints) -> list[tuple[Part, Ints]]:
    code = operations.dtype[index]
    meaning = [DTYPES[name] for (name,) in operations.dtypes]
    product: Part = {
        **_what(Kind.MATMUL, "feed_forward", "matmul"), "compute_format": compute_format,
        **{name: operations.size[name][index] for name in GEMM},
        "input_byte": np.array([dtype.a_byte for dtype in meaning])[code],
        "weight_byte": np.array([dtype.b_byte for dtype in meaning])[code],
        "output_byte": np.array([dtype.c_byte for dtype in meaning])[code],
        "whole_k": _no_split(operations, index, meaning),
    }  # fmt: skip
    parts = [(product, index)]
    for number, dtype in enumerate(meaning):
        mine = index[code == number]
        if np.isfinite(dtype.vector_rows):
            mine = mine[operations.size["m"][mine] > dtype.vector_rows]
        elements = operations.size["m"][mine] * operations.size["k"][mine]
        parts += [(_quantising(kernel, elements), mine) for kernel in dtype.before]
    return parts


def _no_split(operations: OperationTable, index: Ints, meaning: list[Dtype]) -> Floats:
    """1 where the library has no kernel that splits k: above the rows of a matrix-vector kernel, if the dtype has one."""
    rows = np.array([dtype.vector_rows for dtype in meaning])[operations.dtype[index]]
    return (operations.size["m"][index] > rows).astype(np.float64)


def _experts(operations: OperationTable, index: Ints, compute_format: Ints) -> list[tuple[Part, Ints]]:
    """The kernels of `expert_rows`, and those that quantise: the tokens before they are permuted, or what a product takes."""
    size = {name: column[index] for name, column in operations.size.items()}
    names = [operations.dtypes[code][0] for code in operations.dtype[index].tolist()]
    kernels = expert_rows(size, names, compute_format)
    parts: list[tuple[Part, Ints]] = [(part, index) for part in kernels]
    tokens = size["num_tokens"] * size["hidden"]
    taken = [part["m"] * part["count"] * part["k"] for part in kernels if part["kind"] == Kind.MATMUL]
    for number, (name,) in enumerate(operations.dtypes):
        mine = operations.dtype[index] == number
        passes = [kernel for kernel in DTYPES[name].before[-1:] if kernel.read_byte > 0.0]
        for kernel in passes:  # one pass: scales are static, or of a row or block
            parts += [(_quantising(kernel, many[mine]), index[mine]) for many in (taken if name in APART else [tokens])]
    return parts


def _quantising(kernel: Quantisation, elements: Floats) -> Part:
    return {
        **_what(Kind.VECTOR, "vector", "quantise"), "compute_format": float(FORMATS.index("bf16")),
        "flop": kernel.flop * elements,
        "read_byte": kernel.read_byte * elements, "write_byte": kernel.write_byte * elements,
    }  # fmt: skip
