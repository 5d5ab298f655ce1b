"""Names of devices as people write them."""

from __future__ import annotations

NAMES = {"a100_sxm": "A100", "h100_sxm": "H100", "h200_sxm": "H200", "b200_sxm": "B200", "l40s": "L40S", "mi210": "MI210",
         "gb200": "GB200", "northpole": "NorthPole"}  # fmt: skip


def name_of(device: str) -> str:
    """Name of a device by the name of its chip file."""
    return NAMES.get(device, device)
