"""Times that no arrangement can beat."""

from __future__ import annotations


def decode_floor_s(weight_byte: float, memory_byte_per_s: float) -> float:
    """Least time [s] of a decode step on one device: every weight is read once, whatever the batch. KV cache left out."""
    return weight_byte / memory_byte_per_s
