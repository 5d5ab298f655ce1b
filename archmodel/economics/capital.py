"""Capital of one chip: its bill of materials or its price, and its share of the server."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from archmodel.economics.die_area import areas_mm2, cost_of, die_parts, node_name, node_of
from archmodel.economics.silicon import DieCost, Part, die_cost
from archmodel.errors import Problem, SpecError
from archmodel.spec.chip import ChipSpec, DramSpec, Unit
from archmodel.spec.cost_check import sold_units, stack_bits
from archmodel.spec.economics import EconomicsSpec, PackageSpec
from archmodel.spec.system import chip_of


@attrs.frozen
class Capital:
    """What one chip costs [USD]. `bill_usd` by item adds up to the bill of materials; a price takes its place."""

    dies: int
    die: DieCost
    parts: tuple[Part, ...]  # of one die
    bill_usd: Mapping[str, float]
    price_usd: float | None
    server_usd: float

    @property
    def material_usd(self) -> float:
        return sum(self.bill_usd.values())

    @property
    def chip_usd(self) -> float:
        return self.material_usd if self.price_usd is None else self.price_usd

    @property
    def total_usd(self) -> float:
        return self.chip_usd + self.server_usd

    @property
    def margin_fraction(self) -> float | None:
        """Share of the price that is not material; None where there is no price."""
        return None if self.price_usd is None else 1.0 - self.material_usd / self.price_usd


def capital(chip: ChipSpec, economics: EconomicsSpec) -> Capital:
    """Capital of one chip and its share of a server. Raises SpecError where the chip or the economics lack what it takes."""
    if problems := _missing(chip, economics):
        raise SpecError(chip.name, problems)
    cost, node = cost_of(chip), node_of(chip, economics)
    assert node is not None
    parts = die_parts(chip, economics, node)
    die = die_cost(parts, node, economics.wafer)
    if not (math.isfinite(die.usd) and math.isfinite(die.dies_per_wafer)):
        raise SpecError(chip.name, [_unsellable(die)])
    stacks, on_board = _memory_usd(chip, economics, stacked=True), _memory_usd(chip, economics, stacked=False)
    package = economics.packages[cost.package]
    carrier = _carrier_usd(chip, die.area_mm2, economics, package)
    placed = cost.dies * die.usd + stacks + carrier
    bill = {
        "dies": cost.dies * die.usd,
        "stacked memory": stacks,
        "package": carrier,
        "lost in assembly": placed * (1.0 / package.bond_yield - 1.0),
        "test and finishing": placed * package.finish_ratio,
        "memory on the board": on_board,
        "board": cost.board_usd,
        "design and masks": node.design_usd / cost.volume if cost.volume else 0.0,
    }
    share = economics.box.price_usd / economics.box.chips
    return Capital(cost.dies, die, parts, bill, cost.price_usd or None, share)


@attrs.frozen
class SystemCapital:
    """What the chips of a system cost [USD], each with its share of a server, and how many there are of each."""

    members: Mapping[str, tuple[Capital, int]]

    @property
    def total_usd(self) -> float:
        return sum(bought.total_usd * count for bought, count in self.members.values())


def run_capital(chip: ChipSpec, economics: EconomicsSpec) -> Capital | SystemCapital:
    """Capital of what runs: a chip, or all chips of a system. Raises SpecError as `capital` does."""
    if not chip.members:
        return capital(chip, economics)
    return SystemCapital({n: (capital(chip_of(chip, n), economics), member.count) for n, member in chip.members.items()})


def _missing(chip: ChipSpec, economics: EconomicsSpec) -> list[Problem]:
    if chip.cost is None:
        return [Problem("cost", "missing: a [cost] table says what the dies and the package are")]
    problems = []
    if not chip.process_nm and not chip.cost.node_nm:
        problems.append(Problem("cost.node_nm", "missing: the node of the dies, where chip.process_nm is not given [nm]"))
    elif node_of(chip, economics) is None:
        known = ", ".join(economics.nodes)
        key = "cost.node_nm" if chip.cost.node_nm else "chip.process_nm"
        problems.append(Problem(key, f"has no table in the economics' nodes, which are {known}", node_name(chip)))
    priced = economics.memory_price.usd_per_gb
    problems += [
        Problem(f"{name}.standard", "has no price in the economics' memory_price.usd_per_gb", block.standard)
        for name, block in chip.blocks.items()
        if isinstance(block, DramSpec) and block.standard not in priced
    ]
    if node := node_of(chip, economics):
        areas = areas_mm2(chip, economics, node)
        rule = "missing: area of a unit of a kind that has no model [mm2]"
        problems += [Problem(f"cost.area_mm2.{name}", rule) for name, block in chip.blocks.items()
                     if isinstance(block, Unit) and name not in areas]  # fmt: skip
    if chip.cost.package not in economics.packages:
        problems.append(Problem("cost.package", "has no table in the economics' packages", chip.cost.package))
    return problems


def _unsellable(die: DieCost) -> Problem:
    """Why no die can be sold."""
    if 0.0 < die.dies_per_wafer < math.inf:
        return Problem("cost", f"no die of {die.area_mm2:.0f} mm2 is good at the defect density of its node")
    return Problem("cost.die_area_mm2", "must fit a wafer", f"{die.area_mm2:.4g}")


def _memory_usd(chip: ChipSpec, economics: EconomicsSpec, *, stacked: bool) -> float:
    """DRAM in stacks, or on the board."""
    drams = (block for block in chip.blocks.values() if isinstance(block, DramSpec))
    price = economics.memory_price.usd_per_gb
    return sum(dram.capacity_gb * price[dram.standard] for dram in drams if (stack_bits(dram) > 0) == stacked)


def _carrier_usd(chip: ChipSpec, die_mm2: float, economics: EconomicsSpec, package: PackageSpec) -> float:
    """Substrate or interposer under the dies and stacks, with places for stacks that are not sold."""
    cost = cost_of(chip)
    drams = ((name, block) for name, block in chip.blocks.items() if isinstance(block, DramSpec) and stack_bits(block))
    stacks = sum(cost.made.get(name, sold_units(block)) for name, block in drams)
    on_it = cost.dies * die_mm2 + stacks * economics.memory_price.stack_footprint_mm2
    return package.usd_per_mm2 * package.area_ratio * on_it
