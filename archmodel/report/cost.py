"""What `cost` prints: the die, the bill of materials, the cost of tokens, what a node holds and a power budget carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from rich.console import Group, RenderableType
from rich.text import Text

from archmodel.economics.capital import Capital, SystemCapital
from archmodel.economics.costing import Costing, Run, economics_sources
from archmodel.economics.die_area import cost_of, node_name
from archmodel.economics.running import Running
from archmodel.report.summary import assumptions, run_assumptions, running_dict
from archmodel.report.table import bullets, columns, heading, money, percent, plain
from archmodel.units import si

_SMALL_USD = 0.1


def cost_assumptions(found: Costing) -> list[str]:
    """What the figures rest on that nobody stated or measured."""
    if found.run:
        return run_assumptions(found.run.result, found.economics)
    used = economics_sources(found.chip, found.economics, runs=False)
    own = [("cost", found.chip.cost), *((f"{name}.cost", member.cost) for name, member in found.chip.members.items())]
    return assumptions(iter([*((name, cost.source) for name, cost in own if cost), *used]))


def as_dict(found: Costing) -> dict[str, Any]:
    """The numbers of `report` under names that end in their unit. `bill_usd` adds up to `material_usd`, the `total_usd` of
    the phases to that of the run."""
    bought = found.bought
    if isinstance(bought, SystemCapital):
        members = {name: {"count": count, **_capital_dict(each)} for name, (each, count) in bought.members.items()}
        made: dict[str, Any] = {"members": members, "capital_usd": bought.total_usd}
    else:
        parts = {part.name: part.area_mm2 for part in bought.parts}
        area = {"modelled_area_mm2": sum(found.modelled_mm2.values()) / bought.dies, "area_by_part_mm2": parts}
        words = {"yield_model": found.economics.wafer.yield_model, "node": node_name(found.chip)}
        made = {"die": {"dies": bought.dies, **attrs.asdict(bought.die), **area, **words}, **_capital_dict(bought)}
    run = _run_dict(found.run) if found.run else None
    return {"chip": found.chip.name, **made, "run": run, "assumptions": cost_assumptions(found)}


def _capital_dict(bought: Capital) -> dict[str, Any]:
    return {
        "bill_usd": dict(bought.bill_usd),
        "material_usd": bought.material_usd,
        "price_usd": bought.price_usd,
        "margin_fraction": bought.margin_fraction,
        "server_usd": bought.server_usd,
        "capital_usd": bought.total_usd,
    }


def _run_dict(run: Run) -> dict[str, Any]:
    paid = run.service
    return {
        "workload": run.result.workload.name,
        **running_dict(run.running),
        "residents": {**attrs.asdict(run.residents), "per_server": run.residents.per_server},
        "service": None if paid is None else {
            "requests_per_s": paid.requests_per_s, "groups": paid.groups, "chips": paid.chips,
            "usd_per_year": paid.usd_per_year, **running_dict(paid.running),
        },
        "power_budget": attrs.asdict(run.carried) if run.carried else None,
    }  # fmt: skip


def report(found: Costing) -> Group:
    """All tables of a cost."""
    bought = found.bought
    parts = [*_system(found.chip.name, bought)] if isinstance(bought, SystemCapital) else [*_die(found, bought), *_bill(bought)]
    if found.run:
        parts += [*_tokens(found.run), *_service(found.run), *_residents(found.run), *_carried(found.run)]
    parts += [heading("Assumptions that this rests on"), *bullets(cost_assumptions(found))]
    return Group(*parts)


def _system(name: str, bought: SystemCapital) -> Iterator[RenderableType]:
    rows = [[member, f"{count:,}", money(each.material_usd), money(each.chip_usd), money(each.server_usd),
             money(each.total_usd * count), percent(each.total_usd * count / bought.total_usd)]
            for member, (each, count) in bought.members.items()]  # fmt: skip
    cards = sum(count for _, count in bought.members.values())
    yield Text(f"Cost of {name}: {cards} card{'s' if cards > 1 else ''}", style="bold")
    yield heading("Capital, in USD")
    yield columns(["member", "cards", "bill of one", "chip", "its share of a server", "all of them", ""], rows,
                  ["sum", f"{cards:,}", "", "", "", money(bought.total_usd), "100.0 %"])  # fmt: skip
    yield Text("Chip: its price, or its bill of materials where it has none; `cost` of the chip's own file shows the bill.",
               style="dim")  # fmt: skip


def _die(found: Costing, bought: Capital) -> Iterator[RenderableType]:
    die, dies = bought.die, bought.dies
    yield Text(f"Cost of {found.chip.name}: {dies} die{'s' if dies > 1 else ''} at {node_name(found.chip)} nm", style="bold")
    modelled = sum(found.modelled_mm2.values())
    parts = {part.name: part for part in bought.parts}
    rows = [[name, f"{area / dies:.1f}", percent(area / modelled), _spares(parts[name].units, parts[name].needed)]
            for name, area in found.modelled_mm2.items()]  # fmt: skip
    yield heading("One die")
    yield columns(["part", "modelled mm2", "", "<may be broken"], rows, ["sum", f"{modelled / dies:.1f}", "100.0 %", ""])
    stated = cost_of(found.chip).die_area_mm2
    if stated:
        off = percent(modelled / dies / stated - 1.0)
        yield Text(f"The chip states {stated:g} mm2, which counts; the sum of the parts is {off} off.", style="dim")
    yield Text(
        f"{die.dies_per_wafer:.1f} dies a wafer x {percent(die.yield_fraction)} sold ({percent(die.perfect_fraction)} without "
        f"a defect, {found.economics.wafer.yield_model.replace('_', ' ')}): {money(die.usd)} each", style="dim",
    )  # fmt: skip


def _spares(units: int, needed: int) -> str:
    return f"{units - needed} of {units}" if units > needed else "-"


def _bill(bought: Capital) -> Iterator[RenderableType]:
    total = bought.material_usd
    rows = [[name, money(usd), percent(usd / total)] for name, usd in bought.bill_usd.items() if usd]
    yield heading("Bill of materials of one chip")
    yield columns(["item", "USD", ""], rows, ["sum", money(total), "100.0 %"])
    taken = "the bill is the capital"
    if bought.price_usd is not None and bought.margin_fraction is not None:
        margin = percent(bought.margin_fraction)
        taken = f"price {money(bought.price_usd)}, of which {margin} is not material; the price is the capital"
    yield Text(f"{taken}. With {money(bought.server_usd)} for its share of the server: {money(bought.total_usd)}.", style="dim")


def _tokens(run: Run) -> Iterator[RenderableType]:
    paid, request = run.running, run.result.workload.request
    scale, unit = (1e6, "millionths of a USD") if paid.total_usd < _SMALL_USD else (1.0, "USD")
    rows = []
    for name, phase in paid.phases.items():
        parts = (phase.capital_usd, phase.maintenance_usd, phase.energy_usd, phase.idle_usd, phase.total_usd)
        rows.append(
            [name, si(phase.total_s, "s"), *(plain(scale * usd) for usd in parts), percent(phase.total_usd / paid.total_usd)]
        )
    kinds = ("capital_usd", "maintenance_usd", "energy_usd", "idle_usd", "total_usd")
    sums = [sum(getattr(phase, kind) for phase in paid.phases.values()) for kind in kinds]
    footer = ["sum", si(paid.total_s, "s"), *(plain(scale * usd) for usd in sums), "100.0 %"]
    asked = f"{request.batch} x ({request.input_tokens} in, {request.output_tokens} out)"
    yield heading(f"Cost of {run.result.workload.name}, {asked}, in {unit}")
    yield columns(["phase", "time", "capital", "maintenance", "energy", "idle energy", "sum", ""], rows, footer)
    yield heading("Cost of tokens")
    yield columns(["figure", "USD", "<what it is"], [list(row) for row in _prices(paid)])


def _prices(paid: Running) -> Iterator[tuple[str, str, str]]:
    yield "million input tokens", money(paid.input_usd_per_million_tokens), f"cost of {paid.prompt} over input tokens"
    if paid.output_usd_per_million_tokens is not None:
        yield "million output tokens", money(paid.output_usd_per_million_tokens), "cost of the rest over output tokens"
        yield "the same, input included", money(paid.usd_per_million_tokens), "all of the cost over output tokens"
    drawn = f"{si(paid.facility_w, 'W')} at the site's meter while busy"
    yield "energy alone, of it", money(paid.energy_usd_per_million_tokens), drawn
    yield "one request", money(paid.usd_per_request), ""
    chips = "one chip" if paid.chips == 1 else f"a group of {paid.chips} chips"
    yield "a year", money(paid.usd_per_year), f"{chips}, busy {percent(paid.utilisation)} of the time"


def _service(run: Run) -> Iterator[RenderableType]:
    if run.service is None:
        return
    paid = run.service
    yield heading(f"A service of {paid.requests_per_s:g} requests a second")
    yield Text(
        f"{paid.groups:,} groups, {paid.chips:,} chips, busy {percent(paid.running.utilisation)}: {money(paid.usd_per_year)} a "
        f"year, {money(paid.running.usd_per_request)} a request"
    )


def _residents(run: Run) -> Iterator[RenderableType]:
    held = run.residents
    words = "system" if run.result.chip.members else "chip" if run.result.chips == 1 else "group"
    server = f"; {held.per_server:,} in a server" if held.per_server else ""
    yield heading(f"Models of this size at once, each with its own weights and caches: {held.most:,} in a {words}, full is "
                  f"{held.limiting}{server}")  # fmt: skip
    yield columns(
        ["busy models", "each, in turn", "all, in turn", "all, at most"],
        ([f"{row.models:,}", *(si(rate, "tokens/s") for rate in
         (row.each_in_turn_tokens_per_s, row.all_in_turn_tokens_per_s, row.all_at_most_tokens_per_s))] for row in held.shared),
    )  # fmt: skip
    yield Text(f"In turn: one at a time. At most: they overlap until {held.busiest} has no time left.", style="dim")


def _carried(run: Run) -> Iterator[RenderableType]:
    if run.carried is None:
        return
    found = run.carried
    yield heading(f"{si(found.budget_w, 'W')} at the plugs of servers")
    yield Text(
        f"{found.groups:,} groups of {si(found.group_w, 'W')} ({found.chips:,} chips) hold {found.models:,} models, "
        f"{si(float(found.parameters), 'parameters')}, and give {si(found.tokens_per_s, 'tokens/s')} in all"
    )
