"""What things cost: wafers, memory, packages, servers, power. Numbers only; `economics.toml` beside this file has defaults."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from archmodel.spec.fields import by_format, by_name, choice, number, text
from archmodel.spec.standards import STANDARDS

YIELD_MODELS = ("poisson", "murphy", "negative_binomial")


@attrs.frozen(kw_only=True)
class NodeSpec:
    """A process node."""

    wafer_usd: float = number("a processed wafer", above=0)
    defects_per_cm2: float = number("defects that break a circuit", at_least=0, at_most=1e3)
    logic_area_ratio: float = number("area of the same logic over that at 7 nm", above=0, at_most=1e3)
    sram_area_ratio: float = number("area of the same SRAM over that at 7 nm", above=0, at_most=1e3)
    design_usd: float = number("design, verification, software and masks of one chip", at_least=0)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class WaferSpec:
    """The wafer, and how defects lie on it."""

    diameter_mm: float = number("diameter", above=0, at_most=1e3)
    edge_mm: float = number("rim without dies", at_least=0, at_most=1e3)
    scribe_mm: float = number("lane between dies", at_least=0, at_most=10)
    yield_model: str = choice("how the defect density varies between dies", *YIELD_MODELS)
    cluster_alpha: float = number("of negative_binomial: large is Poisson, 1 is Seeds", at_least=0.01, at_most=1e6)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class DieAreaSpec:
    """Areas of the parts of a die at 7 nm. Logic and SRAM shrink with the node; what drives pins does not."""

    mac_um2: Mapping[str, float] = by_format("one MAC by format; the format that needs most counts, for formats share it")
    lane_um2: float = number("one FP32 vector lane (a fused multiply-add), its exponentials included", at_least=0)
    core_control_mm2: float = number("scheduling and fetch of one GPU core", at_least=0)
    core_sram_mm2_per_mb: float = number("registers and shared memory of cores", at_least=0)
    cache_mm2_per_mb: float = number("SRAM that GPUs alone use, with tags and crossbar", at_least=0)
    scratchpad_mm2_per_mb: float = number("other SRAM", at_least=0)
    stack_phy_mm2: float = number("pins and drivers for one stack of DRAM", at_least=0)
    dram_phy_mm2_per_bit: float = number("pins and drivers for one data bit of DRAM on the board", at_least=0)
    lane_phy_mm2: Mapping[str, float] = by_name(
        "pins and drivers of one lane of a link, both directions", "ucie", "pcie", "nvlink", "ethernet"
    )
    controller_ratio: float = number("controllers over pins and drivers", at_least=0)
    fabric_ratio: float = number("on-chip network over units and SRAM", at_least=0)
    other_ratio: float = number("everything else over all of that", at_least=0)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class MemoryPriceSpec:
    """DRAM."""

    usd_per_gb: Mapping[str, float] = by_name("price by standard", *STANDARDS)
    stack_footprint_mm2: float = number("of one stack on the interposer", at_least=0)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class PackageSpec:
    """A way to package dies: what carries them, and the share of packages that survives it."""

    usd_per_mm2: float = number("carrier and bonding", at_least=0)
    area_ratio: float = number("carrier over dies and stacks on it", at_least=1, at_most=1e3)
    bond_yield: float = number("packages that survive assembly; the others lose what is on them", at_least=0.001, at_most=1)
    finish_ratio: float = number("test and finishing over dies, stacks and carrier", at_least=0)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class BoxSpec:
    """The server around the chips."""

    chips: int = number("chips of one server", above=0, at_most=1e6)
    price_usd: float = number("all of it but the chips, network included", at_least=0)
    power_w: float = number("all of it but the chips, at the plug", at_least=0)
    psu_efficiency: float = number("share of the power at the plug that reaches the chips", at_least=0.01, at_most=1)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class SiteSpec:
    """Where it runs and how it is paid for."""

    electricity_usd_per_kwh: float = number("price of energy", at_least=0)
    pue: float = number("power of the site over power of its servers", at_least=1, at_most=100)
    amortisation_years: float = number("life of the hardware in the books", at_least=0.01, at_most=1e3)
    utilisation: float = number("share of the time in which the service is busy", at_least=1e-12, at_most=1)
    maintenance_ratio: float = number("yearly repairs, staff and space over the capital", at_least=0)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class EconomicsSpec:
    """All prices; nodes by their size [nm] as text, packages by name."""

    nodes: Mapping[str, NodeSpec]
    packages: Mapping[str, PackageSpec]
    wafer: WaferSpec
    die_area: DieAreaSpec
    memory_price: MemoryPriceSpec
    box: BoxSpec
    site: SiteSpec


#: table -> class; those of `BY_NAME` hold one table a name
TABLES: Mapping[str, type] = {
    "wafer": WaferSpec,
    "die_area": DieAreaSpec,
    "memory_price": MemoryPriceSpec,
    "box": BoxSpec,
    "site": SiteSpec,
}
BY_NAME: Mapping[str, type] = {"nodes": NodeSpec, "packages": PackageSpec}
