"""Power at each boundary between a chip and the building that it stands in; what one adds to the one inside it.

chip: chip and memory at their supply pins. board: and what its regulators lose. wall: and the share of the server (host, fans,
supplies). facility: and cooling and distribution of the building. A boundary exists where the chip file describes it.
"""

from __future__ import annotations

from archmodel.spec.chip import ChipSpec

#: from the inside out
BOUNDARIES = ("chip", "board", "wall", "facility")


def added_power_w(chip: ChipSpec, chips: int, chip_power_w: float) -> dict[str, dict[str, float]]:
    """By boundary what it adds [W] to the one before, by part; `chip_power_w` [W] is that of all `chips` together."""
    added = {"chip": {"chip_and_memory": chip_power_w}}
    inside_w = chip_power_w
    if chip.board:
        added["board"] = {"regulators": inside_w * (1.0 / chip.board.vrm_efficiency - 1.0)}
        inside_w += added["board"]["regulators"]
    if chip.server:
        host_w = chip.server.host_power_w * chips / chip.server.chips_per_server
        fans_w = chip.server.fan_share * (inside_w + host_w)
        supplies_w = (inside_w + host_w + fans_w) * (1.0 / chip.server.psu_efficiency - 1.0)
        added["wall"] = {"host": host_w, "fans": fans_w, "power_supplies": supplies_w}
        inside_w += host_w + fans_w + supplies_w
    if chip.facility:
        added["facility"] = {"building": (chip.facility.pue - 1.0) * inside_w}
    return added


def boundary_power_w(added: dict[str, dict[str, float]]) -> dict[str, float]:
    """Power [W] at each boundary: the parts of all up to it."""
    total, out = 0.0, {}
    for name, parts in added.items():
        total += sum(parts.values())
        out[name] = total
    return out
