"""Systolic arrays: cycles and operand words of GEMMs C[m,n] = A[m,k] B[k,n], output, weight or input stationary.

An R x C array keeps one operand and streams the others past it, one register a cycle. A GEMM is cut into folds:

    dataflow   on rows   on columns   streamed T
    os         m         n            k             outputs grow in place, then shift out
    ws         k         n            m             weights shift in, then partial sums flow down
    is         k         m            n             inputs shift in, then partial sums flow down

A fold streams for R + C + T - 2 cycles (T steps and the skew of the array) and shifts for ceil(R / load_rows_per_cycle)
cycles, before the stream (ws, is) or after it (os). Serial folds pay both. With double-buffered registers the shift hides
behind the neighbouring fold and a fold starts every max(T, shift) cycles; fill and drain are paid once. A partly filled
fold costs as much as a full one, as in the hardware. Partial sums are added up in accumulators beside the array.

Source: the fold is the one of the SCALE-Sim paper (Samajdar et al., ISPASS 2020) with its drain; the double-buffered one
follows from registers (the tests move every operand). Ignored: a stall inside a fold, and the further fills when tiles in
memory cut the streamed dimension.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: names in the order of the codes in `SystolicArray.dataflow`
DATAFLOWS = ("os", "ws", "is")
OS, WS, IS = 0, 1, 2


class SystolicArray(NamedTuple):
    """Alike arrays that share one operand memory."""

    arrays: int
    rows: int
    cols: int
    dataflow: int  # index into DATAFLOWS
    double_buffered: bool
    load_rows_per_cycle: int  # rows that shift in or out in one cycle
    buffer_byte_per_cycle: float  # of the operand memory, all arrays; may be infinite


@kernel
def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@kernel
def _spatial(dataflow: int, m: int, n: int, k: int) -> tuple[int, int, int]:
    """Dimension on the rows, on the columns, and streamed."""
    if dataflow == OS:
        return m, n, k
    if dataflow == WS:
        return k, n, m
    if dataflow == IS:
        return k, m, n
    raise ValueError("unknown dataflow")


@kernel
def _rounds(count: float, groups: int) -> float:
    """Problems that the busiest of `groups` solves; a fractional count is the mean over the two whole ones beside it."""
    whole = np.floor(count)
    low = np.ceil(whole / groups)
    return low + (count - whole) * (np.ceil((whole + 1.0) / groups) - low)  # type: ignore[no-any-return]


@kernel
def _words(dataflow: int, shape: Ints, fold_rows: int, fold_cols: int, words: Floats) -> None:
    """Words read of A and B and written of C (partial sums included) for one problem."""
    m, n, k = float(shape[0]), float(shape[1]), float(shape[2])
    words[0] = m * k if dataflow == IS else fold_cols * m * k
    words[1] = k * n if dataflow == WS else (fold_rows if dataflow == OS else fold_cols) * k * n
    words[2] = m * n if dataflow == OS else fold_rows * m * n


@kernel
def _array_cycles(
    shape: Ints, rounds: float, rate: float, split: tuple[int, int], array: SystolicArray
) -> tuple[float, int, int]:
    """Cycles of one array for its share of the problems, and the folds of one problem over rows and columns."""
    k = int(np.ceil(shape[2] / max(rate, 1.0)))  # a PE with several MACs takes several k a step
    step = max(1.0, 1.0 / rate)  # a slow PE holds every operand longer
    sr, sc, t = _spatial(array.dataflow, _ceil_div(shape[0], split[0]), _ceil_div(shape[1], split[1]), k)
    fold_rows, fold_cols = _ceil_div(sr, array.rows), _ceil_div(sc, array.cols)
    folds = rounds * fold_rows * fold_cols
    shift = float(_ceil_div(array.rows, array.load_rows_per_cycle))
    fold = shift + np.ceil((array.rows + array.cols + t - 2) * step)
    period = max(np.ceil(t * step), shift) if array.double_buffered else fold
    return (folds - 1.0) * period + fold if folds > 0.0 and t > 0 else 0.0, fold_rows, fold_cols


@kernel
def systolic_cycles(
    shape: Ints, count: Floats, macs_per_pe_per_cycle: Floats, element_byte: Floats, other_byte: Floats, array: SystolicArray
) -> tuple[Floats, Floats, Floats]:
    """Cycles and operand words of batches of GEMMs on several arrays.

    The arrays work on one problem each, on one problem all together with n or m cut evenly, or in between (a power of
    two on each problem), whichever is fastest. An operand that several arrays need at once is read once (multicast).

    Args:
        shape: m, n, k, shape (gemms, 3).
        count: independent problems of that shape, shape (gemms,); a fraction is an expected number.
        macs_per_pe_per_cycle: rate of the number format [1/cycle], shape (gemms,). Above 1 it shortens k, below 1 it
            stretches every step.
        element_byte: bytes of an element of A and of B [B], shape (gemms, 2).
        other_byte: further bytes at the operand memory (fills, results) [B], shape (gemms,).
        array: the arrays.

    Returns:
        cycles [cycles], shape (gemms,): the arrays alone. stream_cycles [cycles], shape (gemms,): the larger of that and of
        the operand memory's time. words, shape (gemms, 3): elements read of A and B and written of C, partial sums
        included, over all problems. All exact up to 2**53.
    """
    size = len(shape)
    cycles, stream_cycles, words = np.zeros(size), np.zeros(size), np.zeros((size, 3))
    trial = np.zeros(3)
    for i in range(size):
        stream_cycles[i] = np.inf
        together = 1
        while True:
            rounds = _rounds(count[i], array.arrays // together)
            for split in ((1, together), (together, 1)):
                busy, fold_rows, fold_cols = _array_cycles(shape[i], rounds, macs_per_pe_per_cycle[i], split, array)
                _words(array.dataflow, shape[i], fold_rows, fold_cols, trial)
                read_byte = count[i] * (trial[0] * element_byte[i, 0] + trial[1] * element_byte[i, 1])
                stream = max(busy, (read_byte + other_byte[i]) / array.buffer_byte_per_cycle)
                if stream < stream_cycles[i] or (stream == stream_cycles[i] and busy < cycles[i]):
                    cycles[i], stream_cycles[i] = busy, stream
                    words[i] = trial * count[i]
            if together == array.arrays:
                break
            together = min(2 * together, array.arrays)
    return cycles, stream_cycles, words


@kernel
def scalesim3(shape: Ints, array: SystolicArray) -> tuple[Ints, Ints, Floats]:
    """What SCALE-Sim 3.0.0 reports for GEMMs on one array without stalls, its peculiarities included.

    It reports the index of the last cycle (one less than the length), has no drain in the os fold, counts
    `fold_rows * fold_cols * (R + C)` os output words too many (its issue 166), and divides the utilisation by a fold that is
    C - 1 too long for ws and is. Only `rows`, `cols` and `dataflow` of the array are used.

    Args:
        shape: m, n, k, shape (gemms, 3).
        array: the array.

    Returns:
        cycles [cycles], shape (gemms,). words, shape (gemms, 3): SRAM words of ifmap, filter and ofmap. ratios in [0, 1],
        shape (gemms, 3): mapping efficiency, utilisation over all cycles, compute utilisation.
    """
    size, r, c = len(shape), array.rows, array.cols
    cycles, words, ratios = np.zeros(size, np.int64), np.zeros((size, 3), np.int64), np.zeros((size, 3))
    exact = np.zeros(3)
    for i in range(size):
        m, n, k = shape[i, 0], shape[i, 1], shape[i, 2]
        sr, sc, t = _spatial(array.dataflow, m, n, k)
        fold_rows, fold_cols = _ceil_div(sr, r), _ceil_div(sc, c)
        skewed = r + c + t - 2
        folds = fold_rows * fold_cols
        cycles[i] = folds * (skewed if array.dataflow == OS else skewed + r) - 1
        _words(array.dataflow, shape[i], fold_rows, fold_cols, exact)
        words[i] = exact.astype(np.int64)
        words[i, 2] += folds * (r + c) if array.dataflow == OS else 0
        ratios[i, 0] = sr * sc / (folds * r * c)
        ratios[i, 1] = m * n * k / (max(cycles[i], 1) * r * c)
        ratios[i, 2] = ratios[i, 0] * t / (skewed if array.dataflow == OS else skewed + r + c - 1)
    return cycles, words, ratios
