"""How limits on one kernel's time join, and what a cache keeps."""

from __future__ import annotations

from archmodel.kernels import kernel

#: least share of the cache by which data used in turn must exceed it until none is kept (measured on an undivided one, L40S:
#: all are hits at its capacity, none is at 1.1 times that)
LEAST_FADE = 0.1


@kernel
def smooth_maximum(a: float, b: float, c: float, exponent: float) -> float:
    """Power mean of three limits >= 0 in one unit: never below the largest, close to it where one dominates.

    Pipelines that overlap hide the shorter ones only in part; a large `exponent` hides them fully.
    """
    top = max(a, b, c)
    if top <= 0.0:
        return 0.0
    total = 0.0
    for limit in (a, b, c):
        if limit > 0.0:
            total += (limit / top) ** exponent
    return float(top * total ** (1.0 / exponent))


@kernel
def missed_fraction(footprint_byte: float, cache_byte: float, partitions: float) -> float:
    """Share in [0, 1] of data that must come from memory again when `footprint_byte` [B] are used in turn.

    Each partition of the cache keeps what its own cores read: everything while that fits. Beyond it, copies of what another
    partition has go first: with two of them nothing is left at half as much again.
    """
    fade = max(1.0 - 1.0 / partitions, LEAST_FADE)
    return float(min(max((footprint_byte * partitions / cache_byte - 1.0) / fade, 0.0), 1.0))
