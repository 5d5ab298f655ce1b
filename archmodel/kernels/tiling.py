"""Tiles of GEMMs in an operand memory: how often each operand comes from the memory behind it.

Three ways to keep something still while the rest streams past in slices of the smallest tile:

    an A block [m_tile, k] stays while B streams:         A once,                B ceil(m / m_tile) times
    a B block [k, n_tile] stays while A streams:          A ceil(n / n_tile),    B once
    a C block [m_tile, n_tile] stays while both stream:   A ceil(n / n_tile),    B ceil(m / m_tile)

C leaves once: partial sums stay in the buffer until they are complete. Ignored: reuse from one operation to the next
(that is for the caller), and orders that spill partial sums.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@kernel
def _block(room_byte: float, edge_byte: float, tile: int, size: int) -> int:
    """Longest block edge, in whole tiles unless it is all of `size`, at `edge_byte` per unit of edge; 0 if not one tile."""
    longest = np.floor(room_byte / edge_byte)
    if longest >= size:
        return size
    return int(max(longest, 0.0)) // tile * tile


@kernel
def _passes(m: int, n: int, m_tile: int, n_tile: int, passes: Floats, byte: tuple[float, float]) -> None:
    """Keep the passes of a C block [m_tile, n_tile] if they move fewer bytes; `byte` is the size of A and of B."""
    if m_tile > 0 and n_tile > 0:
        a, b = np.ceil(n / n_tile), np.ceil(m / m_tile)
        if a * byte[0] + b * byte[1] < passes[0] * byte[0] + passes[1] * byte[1]:
            passes[0], passes[1] = a, b


@kernel
def operand_passes(shape: Ints, element_byte: Floats, tile: Ints, buffer_byte: float) -> Floats:
    """How often A and B are read from memory under the best of the tilings above.

    Never more bytes for a larger buffer: a C block's m comes from a ladder of doublings that does not depend on it, and the
    other edges are the longest that fit. The ladder costs a few per cent over the best tiling.

    Args:
        shape: m, n, k, shape (gemms, 3), all >= 1.
        element_byte: bytes of an element of A, of B and of a partial sum [B], shape (gemms, 3).
        tile: smallest tile m, n, k, no larger than the shape, shape (gemms, 3).
        buffer_byte: room for one set of tiles [B]; the smallest tile must fit.

    Returns:
        passes over A and over B, shape (gemms, 2), >= 1.
    """
    best = np.zeros((len(shape), 2))
    for i in range(len(shape)):
        m, n, k = shape[i, 0], shape[i, 1], shape[i, 2]
        mt, nt, kt = tile[i, 0], tile[i, 1], tile[i, 2]
        a, b, partial = element_byte[i, 0], element_byte[i, 1], element_byte[i, 2]
        byte = (a * m * k, b * k * n)
        passes = best[i]
        passes[0], passes[1] = np.ceil(n / nt), np.ceil(m / mt)
        edge = _block(buffer_byte - kt * nt * b, k * a + nt * partial, mt, m)
        _passes(m, n, edge, n, passes, byte)
        edge = _block(buffer_byte - mt * kt * a, k * b + mt * partial, nt, n)
        _passes(m, n, m, edge, passes, byte)
        edge = mt
        while True:
            _passes(m, n, edge, _block(buffer_byte - edge * kt * a, kt * b + edge * partial, nt, n), passes, byte)
            if edge == m:
                break
            edge = min(2 * edge, m)
    return best
