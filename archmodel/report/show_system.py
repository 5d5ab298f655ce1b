"""What `show` prints of a system beside the blocks: its members, who joins them, and the lanes that its host has left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from rich.console import RenderableType

from archmodel.components import link as links
from archmodel.report.table import columns, heading
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec
from archmodel.spec.system import host_lanes, member_of
from archmodel.units import si

_DIVISIONS = {"data": "sequences", "tensor": "every layer", "expert": "experts, attention by sequences"}


def as_dict(chip: ChipSpec) -> dict[str, Any]:
    """Members with their chip files, and the PCIe links of the host with lanes and number; empty of a single chip."""
    soc = Soc(chip)
    if not chip.members:
        return {}
    members = {name: attrs.asdict(member) for name, member in chip.members.items()}
    return {"members": members, "pcie_lanes": {name: list(lanes) for name, lanes in _lanes(soc).items()}}


def report(chip: ChipSpec) -> Iterator[RenderableType]:
    """Tables of the members, of the links between them, and of the host's PCIe lanes; nothing of a single chip."""
    if not chip.members:
        return
    soc = Soc(chip)
    yield heading("Members: blocks below are those of one card")
    yield columns(["member", "<chip", "cards", "<which divide", "<dropped"], (
        [name, m.chip, str(m.count), _DIVISIONS[m.parallel] if m.count > 1 else "-", ", ".join(m.drop) or "-"]
        for name, m in chip.members.items()
    ))  # fmt: skip
    joining = {name: spec for name, spec in soc.links.items() if not member_of(name)}
    if joining:
        yield heading("Links between members, one direction")
        yield columns(["link", "payload of one", "of them", "together", "latency", "<joins"], (
            [name, si(links.payload_byte_per_s(s), "B/s"), str(soc.copies(name)),
             si(links.payload_byte_per_s(s) * soc.copies(name), "B/s"), si(links.latency_s(s), "s"), ", ".join(s.joins)]
            for name, s in joining.items()
        ))  # fmt: skip
    lanes = _lanes(soc)
    if soc.host and lanes:
        used = sum(width * cards for width, cards in lanes.values())
        there = soc.host[1].pcie_lanes
        yield heading(f"PCIe lanes of {soc.host[0]}")
        yield columns(["link", "lanes", "cards", "together"], (
            [name, str(width), str(cards), str(width * cards)] for name, (width, cards) in lanes.items()
        ), ["sum", "", "", f"{used} of {there or 'a number that nobody states'}"])  # fmt: skip


def _lanes(soc: Soc) -> dict[str, tuple[int, int]]:
    return host_lanes(soc.host[0], soc.chip.blocks, soc.chip.members) if soc.host else {}
