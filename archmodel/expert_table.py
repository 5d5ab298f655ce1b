"""Rows of a table of measured mixtures of experts: one rank's share of a fused layer, without the router's own product.

Columns: num_tokens (of all ranks, before each picks topk experts), hidden, inter, topk, experts, tp (divides inter), ep
(divides experts), dtype, distribution (balanced, uniform or power_law_<exponent>). `kernel`, where it is there and holds
"nongated", says that the experts have no gate; `framework`, where it is SGLang, that a rank also multiplies what it masks
(see `kernels/moe.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from archmodel.dtypes import DTYPES
from archmodel.experts import ExpertFormats, ExpertWork, expert_kernels, exponent
from archmodel.operations import Floats, Ints
from archmodel.spec.fields import is_routing
from archmodel.table_file import Problems, TableFile

#: dtypes whose scales belong to blocks of the permuted rows: kernels of their own find them (TensorRT-LLM on Hopper)
APART = ("fp8_block",)
SIZES = ("num_tokens", "hidden", "inter", "topk", "experts", "tp", "ep")


def routing_columns(table: TableFile, problems: Problems) -> dict[str, Floats]:
    """What the texts of a table say: `routing`, `matrices` of the first product and `masked`, each of shape (rows,)."""
    names = table.texts("distribution") if table.index("distribution") >= 0 else ["uniform"] * len(table)
    for line, name in zip(table.lines, names, strict=True):
        if not is_routing(name):
            problems.add(line, "must be uniform, balanced or power_law_<exponent>", "distribution", name or "empty")
    cells = {name: table.texts(name) if table.index(name) >= 0 else [""] * len(table) for name in ("kernel", "framework")}
    return {
        "routing": np.array([exponent(name) if is_routing(name) else np.nan for name in names]),
        "matrices": np.array([1.0 if "nongated" in kernel else 2.0 for kernel in cells["kernel"]]),
        "masked": np.array([float(framework.lower() == "sglang") for framework in cells["framework"]]),
    }


def check_experts(table: TableFile, size: dict[str, Floats], problems: Problems) -> None:
    """Rules between columns. Cells that are no number break no rule here."""
    rules = (
        (size["topk"] > size["experts"], "topk", "must be at most experts"),
        (np.fmod(size["experts"], size["ep"]) > 0, "ep", "must divide experts"),
        (np.fmod(size["inter"], size["tp"]) > 0, "tp", "must divide inter"),
    )
    for bad, column, rule in rules:
        for row in np.flatnonzero(bad).tolist():
            problems.add(table.lines[row], rule, column, f"{size[column][row]:.15g}")


def expert_rows(size: dict[str, Floats], names: Sequence[str], compute_format: Ints) -> list[dict[str, Any]]:
    """Columns of the kernels of each operation, one after another; arrays of shape (operations,).

    Args:
        size: columns of the operations.
        names: dtype of each operation.
        compute_format: index into FORMATS of each operation.
    """
    meaning, apart = [DTYPES[name] for name in names], np.isin(names, APART)
    work = ExpertWork(
        tokens=size["num_tokens"], hidden=size["hidden"], intermediate=size["inter"] / size["tp"], matrices=size["matrices"],
        experts=size["experts"], chosen=size["topk"], ranks=size["ep"], routing=size["routing"], masked=size["masked"],
    )  # fmt: skip
    formats = ExpertFormats(
        activation_byte=np.array([dtype.c_byte for dtype in meaning]),
        operand_byte=np.array([dtype.a_byte for dtype in meaning]),
        written_byte=np.where(apart, [dtype.c_byte for dtype in meaning], [dtype.a_byte for dtype in meaning]),
        weight_byte=np.array([dtype.b_byte for dtype in meaning]),
        compute_format=compute_format,
    )
    return [columns for _, columns in expert_kernels(work, formats)]
