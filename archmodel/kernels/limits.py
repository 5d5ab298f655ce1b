"""How limits on one kernel's time join, and what a cache keeps."""

from __future__ import annotations

from archmodel.kernels import kernel

#: how fast data that are used in turn stop being kept once they exceed the cache: none is at 1 + 1/FADE times its capacity
FADE = 2.0


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
def kept_fraction(footprint_byte: float, cache_byte: float) -> float:
    """Share in [0, 1] of data still cached when `footprint_byte` [B] are touched between two uses of it.

    Falls linearly to none at the capacity: real caches, hashed and pseudo-random, lose data before they are full.
    """
    if footprint_byte >= cache_byte:
        return 0.0
    return 1.0 - footprint_byte / cache_byte


@kernel
def missed_fraction(footprint_byte: float, cache_byte: float, partitions: float) -> float:
    """Share in [0, 1] of data that must come from memory again when `footprint_byte` [B] are used in turn.

    Each partition of the cache keeps what its own cores read: everything while that fits, nothing at half as much again.
    """
    return float(min(max((footprint_byte * partitions / cache_byte - 1.0) * FADE, 0.0), 1.0))
