"""ChipSpec -> wired blocks: routes, bandwidths as seen from a unit, owners of roles, derived peaks."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np

from archmodel.components import link as links
from archmodel.components import memory
from archmodel.components.units import matrix_rates, matrix_units
from archmodel.costs import Floats
from archmodel.errors import MappingError
from archmodel.spec.check import routes
from archmodel.spec.chip import (
    ChipSpec,
    ControlSpec,
    DramSpec,
    HostSpec,
    LinkSpec,
    PeersSpec,
    SramSpec,
    Tier,
    Unit,
)
from archmodel.spec.workload import ROLES, PlacementSpec

#: capability that a role needs at least
PRINCIPAL = {
    "attention": "attention",
    "projection": "matmul",
    "feed_forward": "matmul",
    "router": "matmul",
    "head": "matmul",
    "vector": "norm",
    "embedding": "embedding",
    "sampling": "sampling",
}

#: formats that hold every value of a format, narrowest first: a unit without the format computes in the next it has
WIDER = {
    "int4": ("int8", "int16", "fp16", "bf16", "tf32", "fp32", "fp64"),
    "int8": ("int16", "fp16", "bf16", "tf32", "fp32", "fp64"),
    "int16": ("int32", "fp32", "fp64"),
    "fp4": ("mxfp4", "nvfp4", "fp8", "fp16", "bf16", "tf32", "fp32", "fp64"),
    "mxfp4": ("nvfp4", "fp8", "bf16", "tf32", "fp32", "fp64"),
    "nvfp4": ("fp8", "bf16", "tf32", "fp32", "fp64"),
    "fp8": ("fp16", "bf16", "tf32", "fp32", "fp64"),
    "mxfp8": ("bf16", "tf32", "fp32", "fp64"),
    "fp16": ("tf32", "fp32", "fp64"),
    "bf16": ("tf32", "fp32", "fp64"),
    "tf32": ("fp32", "fp64"),
    "fp32": ("fp64",),
}


@attrs.frozen(eq=False)
class Soc:
    """A chip with its blocks wired. Cheap to build; holds no result."""

    chip: ChipSpec

    @cached_property
    def units(self) -> dict[str, Unit]:
        return {n: b for n, b in self.chip.blocks.items() if isinstance(b, Unit)}

    @cached_property
    def tiers(self) -> dict[str, Tier]:
        return {n: b for n, b in self.chip.blocks.items() if isinstance(b, SramSpec | DramSpec)}

    @cached_property
    def links(self) -> dict[str, LinkSpec]:
        return {n: b for n, b in self.chip.blocks.items() if isinstance(b, LinkSpec)}

    @cached_property
    def control(self) -> tuple[str, ControlSpec] | None:
        return next(((n, b) for n, b in self.chip.blocks.items() if isinstance(b, ControlSpec)), None)

    @cached_property
    def host(self) -> tuple[str, HostSpec] | None:
        return next(((n, b) for n, b in self.chip.blocks.items() if isinstance(b, HostSpec)), None)

    @cached_property
    def peers(self) -> tuple[str, PeersSpec] | None:
        return next(((n, b) for n, b in self.chip.blocks.items() if isinstance(b, PeersSpec)), None)

    def peer_link(self, unit: str = "") -> tuple[str, PeersSpec]:
        """Slowest link from a unit (the first unless said) to the chip's peers, and those. Raises MappingError without."""
        if self.peers is None:
            raise MappingError(f"{self.chip.name}: has no [peers] and no link to them, which a group of chips needs")
        way = self.route(unit or next(iter(self.units)), self.peers[0])
        return min(way, key=lambda name: links.payload_byte_per_s(self.links[name])), self.peers[1]

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Blocks that run events, in the order of the timeline's indices."""
        others = [named[0] for named in (self.control, self.host) if named]
        return (*self.units, *self.links, *others)

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Blocks whose bandwidth running events share."""
        return (*self.tiers, *self.links)

    @cached_property
    def shared_byte_per_s(self) -> Floats:
        """Achievable bandwidth [B/s] of each of `shared`."""
        tiers = [memory.stream_byte_per_s(tier) for tier in self.tiers.values()]
        return np.array(tiers + [links.payload_byte_per_s(link) for link in self.links.values()])

    @cached_property
    def _routes(self) -> dict[str, dict[str, tuple[str, ...]]]:
        joins = {name: link.joins for name, link in self.links.items()}
        return {
            block: {end: ways[0] for end, ways in routes(joins, block).items()}
            for block in self.chip.blocks
            if block not in joins
        }

    def route(self, start: str, end: str) -> tuple[str, ...]:
        """Links from block to block. Raises MappingError where there is no path."""
        if end not in self._routes[start]:
            raise MappingError(f"{self.chip.name}: no link leads from {start} to {end}: no path between them")
        return self._routes[start][end]

    def path_byte_per_s(self, unit: str, tier: str) -> float:
        """Bandwidth [B/s] at which a unit streams from a tier: the slowest of the tier and the links on the way."""
        names = (tier, *self.route(unit, tier))
        return float(min(self.shared_byte_per_s[self.shared.index(name)] for name in names))

    def path_latency_s(self, unit: str, tier: str) -> float:
        """First-byte latency [s]: a miss in the unit's buffer, one way over each link, and the tier's own."""
        passed = {self.units[unit].buffer, tier}
        ways = sum(links.latency_s(self.links[name]) for name in self.route(unit, tier))
        return ways + 1e-9 * sum(self.tiers[name].latency_ns for name in passed)

    def owner(self, role: str, capability: str, placement: PlacementSpec | None = None) -> str:
        """Block that runs operations of `role` which need `capability`, by the chip's placement unless another is given.

        Raises MappingError where none can.
        """
        placement = placement or self.chip.placement
        placed = getattr(placement, role)
        if placed in self.units:
            if capability in self.units[placed].capabilities:
                return str(placed)
            if PRINCIPAL[role] == capability:
                raise MappingError(
                    f"{self.chip.name}: placement.{role} = {placed}, which cannot run {capability}; "
                    f"it can run {', '.join(self.units[placed].capabilities)}"
                )
        elif placed and self.host and placed == self.host[0]:
            return str(placed)
        vector = placement.vector
        for name in ([vector] if vector in self.units else []) + list(self.units):
            if capability in self.units[name].capabilities:
                return name
        raise MappingError(f"{self.chip.name}: no unit can run {capability}, which the role {role} needs")

    def home(self, unit: str, key: str) -> str:
        """Tier of the `weights` or the `kv_cache` that a unit works with: as placed, else the unit's own memory."""
        return getattr(self.chip.placement, key) or self.units[unit].memory

    def compute_format(self, unit: str, wanted: str, operation: str) -> str:
        """Format in which `unit` computes what asks for `wanted`: it, or the narrowest that holds all its values."""
        rates = matrix_rates(self.units[unit])
        for candidate in (wanted, *WIDER.get(wanted, ())):
            if candidate in rates:
                return candidate
        raise MappingError(
            f"{self.chip.name}: {operation} wants {wanted}, which {unit} has not, nor a format that holds it; it has "
            f"{', '.join(rates)}. Set [precision] in the workload or --set precision.<role>=<format>"
        )

    def peaks_per_s(self) -> dict[str, dict[str, float]]:
        """Derived peaks [FLOP/s or OP/s] by unit and format: units x MACs per cycle x 2 x clock."""
        return {
            name: {fmt: 2.0 * rate * matrix_units(unit) * unit.clock_ghz * 1e9 for fmt, rate in matrix_rates(unit).items()}
            for name, unit in self.units.items()
        }


def default_tier(soc: Soc, key: str) -> str:
    """Tier of `placement.weights` or `.kv_cache`: as placed, else the memory of the unit that uses it most."""
    role, capability = ("feed_forward", "matmul") if key == "weights" else ("attention", "attention")
    return str(getattr(soc.chip.placement, key)) or soc.home(soc.owner(role, capability), key)


assert set(PRINCIPAL) == set(ROLES)
