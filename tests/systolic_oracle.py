"""Slow, obvious oracles for the systolic array and its tiles.

The array is a grid of registers. Every cycle each operand moves by one register and every PE does at most one multiply
step; the product comes out of the registers, and the machine stops with `Collision` when a weight is late, a register is
overwritten before its use, or two results meet. A schedule is right if the product is, and as short as can be if a start one
cycle earlier collides. Nothing here knows a formula for cycles.
"""

from __future__ import annotations

from itertools import count, product
from typing import NamedTuple

import numpy as np

BUBBLE = -1


class Collision(Exception):
    """A register was needed before it was ready or free."""


class Run(NamedTuple):
    result: np.ndarray  # the product
    cycles: int  # until the last result has left
    last_mac_cycle: int  # counted from 1
    words: tuple[int, int, int]  # read of A and B, written of C (partial sums included)


def _folds(matrix_rows: int, matrix_cols: int, rows: int, cols: int) -> list[tuple[slice, slice]]:
    row_cuts = [slice(i, min(i + rows, matrix_rows)) for i in range(0, matrix_rows, rows)]
    col_cuts = [slice(j, min(j + cols, matrix_cols)) for j in range(0, matrix_cols, cols)]
    return list(product(row_cuts, col_cuts))


def _grid(block: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """`block` in the upper left corner of an array of zeros: the PEs outside it idle on zeros."""
    grid = np.zeros((rows, cols, *block.shape[2:]))
    grid[: block.shape[0], : block.shape[1]] = block
    return grid


def _stationary(streams: list[np.ndarray], held: list[np.ndarray], starts: list[int], chain: int) -> tuple[list, int, int]:
    """Weight (or input) stationary machine.

    streams: per fold, [T, rows, p] values that enter row i at start + t + i and move right. held: per fold,
    [rows, cols, p] values to be shifted in, in chains of `chain` rows, into shadow registers; a PE takes its shadow over when
    the first value of the fold reaches it, and a chain reloads from then on. Returns results [T, cols] per fold, the cycles,
    and the cycle of the last MAC.
    """
    rows, cols, depth = held[0].shape
    steps = len(streams[0])
    active, shadow = np.zeros((rows, cols, depth)), np.zeros((rows, cols, depth))
    shadow_fold = np.full((rows, cols), BUBBLE)
    value, fold, step = np.zeros((rows, cols, depth)), np.full((rows, cols), BUBBLE), np.full((rows, cols), BUBBLE)
    partial = np.zeros((rows, cols))
    tops = range(0, rows, chain)
    loads = {(top, j): (0, 0) for top in tops for j in range(cols)}  # chain -> (fold being loaded, shifts done)
    results = [np.full((steps, cols), np.nan) for _ in streams]
    last_mac = end = 0
    for cycle in range(starts[-1] + steps + rows + cols):
        for register in (value, fold, step):
            register[:, 1:] = register[:, :-1].copy()
        for i in range(rows):
            fold[i, 0] = step[i, 0] = BUBBLE
            for f, start in enumerate(starts):
                if 0 <= cycle - start - i < steps:
                    fold[i, 0], step[i, 0], value[i, 0] = f, cycle - start - i, streams[f][cycle - start - i, i]
        partial[1:] = partial[:-1].copy()
        partial[0] = 0.0
        for i, j in product(range(rows), range(cols)):
            if fold[i, j] == BUBBLE:
                continue
            if step[i, j] == 0:
                if shadow_fold[i, j] != fold[i, j]:
                    raise Collision("weight late or lost")
                active[i, j] = shadow[i, j]
                if (i, j) in loads:
                    loads[i, j] = (int(fold[i, j]) + 1, 0)
            partial[i, j] += active[i, j] @ value[i, j]
            last_mac = cycle + 1
            if i == rows - 1:
                results[fold[i, j]][step[i, j], j] = partial[i, j]
                end = cycle + 1
        for (top, j), (f, done) in loads.items():
            if f == len(held) or done == chain:
                continue
            block = range(top, min(top + chain, rows))
            for i in reversed(block[1 : done + 1]):  # the front of the new values moves one row down, never what waits below
                shadow[i, j], shadow_fold[i, j] = shadow[i - 1, j], shadow_fold[i - 1, j]
            source = top + chain - 1 - done
            if source in block:
                shadow[top, j] = held[f][source, j]
            shadow_fold[top, j] = f
            loads[top, j] = (f, done + 1)
    return results, end, last_mac


def _output(a: list[np.ndarray], b: list[np.ndarray], starts: list[int], chain: int) -> tuple[list, int, int]:
    """Output stationary machine.

    a: per fold, [T, rows, p] entering row i at start + t + i; b: [T, cols, p] entering column j at start + t + j. A finished
    sum moves into the PE's drain register; a chain of `chain` rows shifts out, one row a cycle, once its bottom one has
    finished.
    """
    rows, cols, depth = a[0].shape[1], b[0].shape[1], a[0].shape[2]
    steps = len(a[0])
    right, down = np.zeros((rows, cols, depth)), np.zeros((rows, cols, depth))
    fold, step = np.full((rows, cols), BUBBLE), np.full((rows, cols), BUBBLE)
    total, drain, origin = np.zeros((rows, cols)), np.zeros((rows, cols)), np.full((rows, cols), BUBBLE)
    results = [np.full((rows, cols), np.nan) for _ in a]
    bottoms = list(range(rows - 1, -1, -chain))
    shifts: dict[tuple[int, int], int] = {}
    last_mac = end = 0
    for cycle in range(starts[-1] + steps + 3 * rows + cols):
        for register in (right, fold, step):
            register[:, 1:] = register[:, :-1].copy()
        down[1:] = down[:-1].copy()
        fold[:, 0] = step[:, 0] = BUBBLE
        for f, start in enumerate(starts):
            for i in range(rows):
                if 0 <= cycle - start - i < steps:
                    fold[i, 0], step[i, 0], right[i, 0] = f, cycle - start - i, a[f][cycle - start - i, i]
            for j in range(cols):
                if 0 <= cycle - start - j < steps:
                    down[0, j] = b[f][cycle - start - j, j]
        for (bottom, j), done in list(shifts.items()):
            top = max(bottom - chain + 1, 0)
            f, source = divmod(int(origin[bottom, j]), rows)
            if np.isfinite(results[f][source, j]):
                raise Collision("a result left twice")
            results[f][source, j] = drain[bottom, j]
            end = cycle + 1
            for i in range(bottom, top + done, -1):
                drain[i, j], origin[i, j] = drain[i - 1, j], origin[i - 1, j]
            origin[top + done, j] = BUBBLE
            shifts[bottom, j] = done + 1
            if top + done == bottom:
                del shifts[bottom, j]
        for i, j in product(range(rows), range(cols)):
            if fold[i, j] == BUBBLE:
                continue
            total[i, j] = right[i, j] @ down[i, j] + (total[i, j] if step[i, j] else 0.0)
            last_mac = cycle + 1
            if step[i, j] == steps - 1:
                if origin[i, j] != BUBBLE:
                    raise Collision("drain register not free")
                drain[i, j], origin[i, j] = total[i, j], fold[i, j] * rows + i
                if i in bottoms:
                    shifts[i, j] = 0
    return results, end, last_mac


def _earliest(machine, first, second, folds: int, chain: int, double_buffered: bool) -> tuple[list, int, int]:
    """Run the folds at the earliest start and the shortest period that do not collide, or one after another."""
    for start in count():
        try:
            alone = machine(first[:1], second[:1], [start], chain)
            break
        except Collision:
            continue
    if not double_buffered:
        runs = [machine(first[f : f + 1], second[f : f + 1], [start], chain) for f in range(folds)]
        return [run[0][0] for run in runs], sum(run[1] for run in runs), sum(run[1] for run in runs[:-1]) + runs[-1][2]
    if folds == 1:
        return alone
    for period in count(len(first[0])):
        try:
            return machine(first, second, [start + f * period for f in range(folds)], chain)
        except Collision:
            continue
    raise AssertionError


def simulate(dataflow: str, a: np.ndarray, b: np.ndarray, rows: int, cols: int, *, load_rows: int = 1, depth: int = 1,
             double_buffered: bool = False) -> Run:  # fmt: skip
    """a[m, k] @ b[k, n] on a rows x cols array whose PEs multiply `depth` pairs a cycle."""
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    padded = -(-k // depth) * depth
    a3 = np.pad(a, ((0, 0), (0, padded - k))).reshape(m, -1, depth)
    b3 = np.pad(b.T, ((0, 0), (0, padded - k))).reshape(n, -1, depth)
    chain = -(-rows // load_rows)
    if dataflow == "os":
        cuts = _folds(m, n, rows, cols)
        first = [_grid(a3[i], rows, a3.shape[1]).swapaxes(0, 1) for i, _ in cuts]
        second = [_grid(b3[j], cols, b3.shape[1]).swapaxes(0, 1) for _, j in cuts]
        results, cycles, last = _earliest(_output, first, second, len(cuts), chain, double_buffered)
        out = np.zeros((m, n))
        for (i, j), block in zip(cuts, results, strict=True):
            out[i, j] = block[: i.stop - i.start, : j.stop - j.start]
        words = (sum((i.stop - i.start) * k for i, _ in cuts), sum((j.stop - j.start) * k for _, j in cuts), m * n)
        return Run(out, cycles, last, words)
    held, streamed = (b3, a3) if dataflow == "ws" else (a3, b3)
    cuts = _folds(held.shape[1], held.shape[0], rows, cols)
    first = [np.pad(streamed[:, i], ((0, 0), (0, rows - (i.stop - i.start)), (0, 0))) for i, _ in cuts]
    second = [_grid(held[j, i].swapaxes(0, 1), rows, cols) for i, j in cuts]
    results, cycles, last = _earliest(_stationary, first, second, len(cuts), chain, double_buffered)
    out = np.zeros((len(streamed), len(held)))
    for (_, j), block in zip(cuts, results, strict=True):
        out[:, j] += block[:, : j.stop - j.start]
    deep = [min(i.stop * depth, k) - i.start * depth for i, _ in cuts]
    stream_words = sum(d * len(streamed) for d in deep)
    held_words = sum(d * (j.stop - j.start) for d, (_, j) in zip(deep, cuts, strict=True))
    written = sum(len(streamed) * (j.stop - j.start) for _, j in cuts)
    if dataflow == "ws":
        return Run(out, cycles, last, (stream_words, held_words, written))
    return Run(out.T, cycles, last, (held_words, stream_words, written))


def tilings(shape: tuple[int, int, int], tile: tuple[int, int, int], byte: tuple[float, float, float],
            room: float) -> set[tuple[int, int]]:  # fmt: skip
    """Passes over A and B of every tiling that fits in `room`, counted by walking its loops.

    An operand is cut into pieces of one element; a loop fetches the pieces that it needs and does not hold.
    """
    (m, n, k), (mt, nt, kt), (a, b, partial) = shape, tile, byte
    found = set()
    for m_edge, n_edge in product({*range(mt, m + 1, mt), m}, {*range(nt, n + 1, nt), n}):
        options = (
            (m_edge * k * a + kt * nt * b + m_edge * nt * partial, "a", m_edge, nt),
            (k * n_edge * b + mt * kt * a + mt * n_edge * partial, "b", mt, n_edge),
            (m_edge * n_edge * partial + m_edge * kt * a + kt * n_edge * b, "c", m_edge, n_edge),
        )
        for needed, stays, outer, inner in options:
            if needed <= room:
                found.add(_walk(shape, stays, outer, inner))
    return found


def _walk(shape: tuple[int, int, int], stays: str, m_edge: int, n_edge: int) -> tuple[int, int]:
    """Times that each row of A and each column of B is fetched; `stays` says which operand's block is held throughout."""
    m, n, _ = shape
    a_fetches, b_fetches = np.zeros(m, int), np.zeros(n, int)
    blocks = [(i, j) for i in range(0, m, m_edge) for j in range(0, n, n_edge)]
    if stays == "b":
        blocks.sort(key=lambda block: (block[1], block[0]))
    held: int | None = None
    for i, j in blocks:
        if stays != "a" or held != i:
            a_fetches[i : i + m_edge] += 1
        if stays != "b" or held != j:
            b_fetches[j : j + n_edge] += 1
        held = {"a": i, "b": j, "c": None}[stays]
    return int(a_fetches.max()), int(b_fetches.max())
