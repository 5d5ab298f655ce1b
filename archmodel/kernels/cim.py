"""Compute in memory: cycles of products C[m,n] = A[m,k] B[k,n] whose weights B lie in the cells that multiply them.

A weight takes `slices` columns side by side, and k is cut into pieces of `rows` cells. A strip is what one output has in one
piece: `slices` columns of `rows` cells. The strips of an operation lie spread evenly over the macros, each once, so that

    strips  = count x ceil(k / rows) x n
    columns = ceil(strips / macros) x slices                                   of the busiest macro
    step    = max(ceil(columns / cols), ceil(columns / converters) / conversions per cycle) + pages opened x page cycles
    cycles  = ceil(m / lanes) x steps x step

Each of the m inputs passes over all weights, `lanes` of them at a time (1 in most designs: a batch shares nothing). A piece
of k that is not full costs as much time as a full one. Source: the schedule of bit-serial macros with shared ADCs (ISAAC,
ISCA 2016; digital ones: ISSCC 2021 16.4), and of bank units that read one access a cycle (GDDR6-AiM, ISSCC 2022).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel

Floats = NDArray[np.float64]

#: columns of the result of `cim_cycles`
CYCLES, CONVERSIONS, MACRO_BIT, CELL_BIT = 0, 1, 2, 3
COLUMNS = 4


class Macros(NamedTuple):
    """Alike macros, in cycles of their clock."""

    macros: float
    rows: float
    cols: float
    cell_bit: float
    lanes: float  # inputs that share a step
    converters: float
    conversions_per_cycle: float
    page_cols: float  # 0: no pages
    page_cycles: float


@kernel
def _step_cycles(columns: float, macros: Macros) -> float:
    """Cycles in which the busiest macro, with `columns` in use, takes one step of an input."""
    step = max(np.ceil(columns / macros.cols), np.ceil(columns / macros.converters) / macros.conversions_per_cycle)
    pages = np.ceil(columns / macros.page_cols) if macros.page_cols > 0.0 else 0.0
    return step + pages * macros.page_cycles  # type: ignore[no-any-return]


@kernel
def cim_cycles(shape: Floats, slices: Floats, steps: Floats, macros: Macros) -> Floats:
    """Cycles and events of batches of products.

    Args:
        shape: m, n, k and count, shape (rows, 4); a fractional m is the mean of several and rounded up, a fractional count is
            an expected number.
        slices: columns of one weight, shape (rows,).
        steps: steps of one input, shape (rows,).
        macros: the macros.

    Returns:
        shape (rows, COLUMNS): CYCLES [cycles]; CONVERSIONS, columns converted in all macros and steps; MACRO_BIT and CELL_BIT,
        bits [bit] of the cells that the weights take in the busiest macro and in all, empty rows of the last piece included.
    """
    result = np.zeros((len(shape), COLUMNS))
    for i in range(len(shape)):
        m, n, k, count = shape[i]
        strips = count * np.ceil(k / macros.rows) * n
        columns = np.ceil(strips / macros.macros) * slices[i]
        strip_bit = slices[i] * macros.rows * macros.cell_bit
        result[i, CYCLES] = np.ceil(m / macros.lanes) * steps[i] * _step_cycles(columns, macros) if columns > 0.0 else 0.0
        result[i, CONVERSIONS] = m * steps[i] * strips * slices[i]
        result[i, MACRO_BIT] = np.ceil(strips / macros.macros) * strip_bit
        result[i, CELL_BIT] = strips * strip_bit
    return result
