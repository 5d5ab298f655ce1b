"""Measured kernels that no table of `predict` holds: latent attention (MLA) by phase, and the two that quantise to fp8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from archmodel.components import gpu, memory
from archmodel.costs import Surroundings
from archmodel.dtypes import ALIASES, DTYPES
from archmodel.errors import MappingError
from archmodel.operations import Floats, Kind, rows_from
from archmodel.soc import Soc
from archmodel.spec.chip import CAPABILITIES, GpuSpec
from archmodel.table_file import Problems, TableFile, read_table_file
from archmodel.units import FORMATS, element_bytes

#: DeepSeek-V2, table 1: compressed keys and values, the part with positions, and one head of the expanded form
LATENT, ROPE, HEAD = 512.0, 64.0, 128.0

Record = dict[str, Any]


def kernel_times(soc: Soc, what: str, path: Path) -> tuple[TableFile, Floats]:
    """The table at `path`, of "mla" or "quantise", and the predicted time [us] of each row, repeated as a benchmark does.

    Raises TableError, and MappingError where the chip has no GPU.
    """
    problems = Problems(str(path))
    table = read_table_file(path, problems)
    problems.check()
    name, unit = next(((n, u) for n, u in soc.units.items() if isinstance(u, GpuSpec)), ("", None))
    if unit is None:
        raise MappingError(f"{soc.chip.name}: has no GPU")
    record: Callable[[dict[str, str]], Record] = {"mla": _latent_attention, "quantise": _quantisation}[what]
    rows = rows_from([record(dict(zip(table.header, cells, strict=True))) for cells in table.rows])
    around = Surroundings(
        buffer_byte=memory.capacity_byte(soc.tiers[unit.buffer]) * unit.buffer_share,
        buffer_byte_per_s=soc.path_byte_per_s(name, unit.buffer),
        memory_byte_per_s=np.full(len(rows), soc.path_byte_per_s(name, unit.memory)),
        memory_latency_s=soc.path_latency_s(name, unit.memory),
    )
    cached_byte = rows.sequences * rows.kv_tokens * rows.kv_heads * rows.qk_dim * rows.kv_byte
    return table, 1e6 * gpu.costs(unit, rows, around, reuse_byte=cached_byte).duration_s


def _latent_attention(row: dict[str, str]) -> Record:
    """Expanded in context, where keys and values are bf16 tensors; absorbed in generation, against one cached latent."""
    context = row["phase"] == "context"
    cache = element_bytes(ALIASES.get(row["kv_dtype"], row["kv_dtype"]))
    heads = float(row["heads"])
    return {
        "name": row["phase"], "kind": Kind.ATTENTION, "capability": CAPABILITIES.index("attention"),
        "compute_format": FORMATS.index("bf16"), "sequences": float(row["batch"]), "heads": heads, "causal": 1.0,
        "q_tokens": float(row["seq_q"]) if context else 1.0, "kv_tokens": float(row["kv_len"]),
        "kv_heads": heads if context else 1.0, "latent": float(not context), "cached": float(not context),
        "qk_dim": HEAD + ROPE if context else LATENT + ROPE, "v_dim": HEAD if context else LATENT,
        "input_byte": 2.0, "output_byte": 2.0, "kv_byte": 2.0 if context else cache,
    }  # fmt: skip


def _quantisation(row: dict[str, str]) -> Record:
    """The two kernels before an fp8 product: the largest absolute value of a tensor, and the division by it."""
    kernel = DTYPES["fp8"].before[0 if row["op"] == "computescale" else 1]
    elements = float(row["m"]) * float(row["k"])
    return {
        "name": row["op"], "kind": Kind.VECTOR, "capability": CAPABILITIES.index("quantise"),
        "compute_format": FORMATS.index("bf16"), "flop": kernel.flop * elements, "read_byte": kernel.read_byte * elements,
        "write_byte": kernel.write_byte * elements,
    }  # fmt: skip
