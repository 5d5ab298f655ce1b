"""Cost of a chip and of a run on it, as one value, and the sources that it rests on."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from archmodel.economics.capital import Capital, SystemCapital, run_capital
from archmodel.economics.die_area import areas_mm2, cost_of, node_name, node_of
from archmodel.economics.fleet import Carried, Residents, carried, residents
from archmodel.economics.running import Running, Service, running, service
from archmodel.errors import SpecError
from archmodel.result import Result
from archmodel.spec.chip import ChipSpec
from archmodel.spec.economics import EconomicsSpec
from archmodel.spec.model import ModelSpec
from archmodel.spec.system import chip_of


@attrs.frozen(eq=False)
class Run:
    """What a run costs: its result, the whole model that it ran, and what follows."""

    result: Result
    model: ModelSpec
    running: Running
    residents: Residents
    service: Service | None
    carried: Carried | None


@attrs.frozen(eq=False)
class Costing:
    """Everything that the cost of a chip comes to; `run` is None where no workload is given."""

    chip: ChipSpec
    economics: EconomicsSpec
    modelled_mm2: dict[str, float]  # by block, all dies, before a stated area takes their place; of a system nothing
    bought: Capital | SystemCapital
    run: Run | None


def costing(
    chip: ChipSpec,
    economics: EconomicsSpec,
    result: Result | None = None,
    model: ModelSpec | None = None,
    *,
    requests_per_s: float | None = None,
    power_budget_w: float | None = None,
) -> Costing:
    """Cost of a chip or system and of a run on it; `model` is the whole model, of which a chip of a group runs a part."""
    bought = run_capital(chip, economics)
    node = node_of(chip, economics) if chip.cost else None
    modelled = areas_mm2(chip, economics, node) if node else {}
    run = None
    if result is not None and model is not None:
        held = residents(result, economics)
        run = Run(
            result,
            model,
            running(result, bought, economics),
            held,
            service(result, bought, economics, requests_per_s) if requests_per_s else None,
            carried(result, model, held, economics, power_budget_w) if power_budget_w else None,
        )
    return Costing(chip, economics, modelled, bought, run)


def run_cost(result: Result, economics: EconomicsSpec) -> Running | None:
    """What a run costs; None where its chip has no `[cost]`, or the economics nothing for it."""
    if not result.chip.members and result.chip.cost is None:
        return None
    try:
        return running(result, run_capital(result.chip, economics), economics)
    except SpecError:
        return None


def economics_sources(chip: ChipSpec, economics: EconomicsSpec, *, runs: bool) -> Iterator[tuple[str, str]]:
    """Name and source of the tables of the economics that a cost of this chip or system uses."""
    for name in chip.members:
        yield from economics_sources(chip_of(chip, name), economics, runs=runs)
    if chip.members:
        return
    yield "wafer", economics.wafer.source
    yield f"nodes.{node_name(chip)}", economics.nodes[node_name(chip)].source
    yield "die_area", economics.die_area.source
    yield "memory_price", economics.memory_price.source
    yield f"packages.{cost_of(chip).package}", economics.packages[cost_of(chip).package].source
    yield "box", economics.box.source
    if runs:
        yield "site", economics.site.source
