"""What a chip's silicon and package cost: facts of the chip alone. Prices of wafers, memory and power are in `economics`."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from archmodel.spec.fields import by_name, choice, number, text

#: how the dies and stacks of a chip are joined
PACKAGES = ("organic", "interposer")


@attrs.frozen(kw_only=True)
class CostSpec:
    """Dies and package of a chip. Areas are those of all dies of the package together, unless the name says die."""

    source: str = text("where the numbers come from", required=True)
    dies: int = number("alike compute dies in the package", above=0, at_most=1024, default=1)
    die_area_mm2: float = number("one die; 0 adds up the areas of its parts", at_least=0, at_most=1e5, default=0.0)
    area_mm2: Mapping[str, float] = by_name("known areas of blocks, in place of modelled ones", default={})
    other_area_mm2: float = number("silicon that no block of the chip stands for", at_least=0, at_most=1e5, default=0.0)
    made: Mapping[str, float] = by_name(
        "what is made of a block of which fewer are sold, so that some may be broken: cores or arrays of a unit, MB of SRAM, "
        "stacks of DRAM, lanes of a link", default={},
    )  # fmt: skip
    node_nm: float = number("node of the dies as the economics call it; 0 is the chip's own", at_least=0, default=0.0)
    package: str = choice("what carries the dies", *PACKAGES, default="organic")
    board_usd: float = number("board, regulators and cooling", at_least=0, default=0.0)
    volume: int = number("chips that share the cost of design and masks; 0 leaves that cost out", at_least=0, default=0)
    price_usd: float = number("price on the market; 0 is none, and the capital is the bill of materials", at_least=0,
                              default=0.0)  # fmt: skip
