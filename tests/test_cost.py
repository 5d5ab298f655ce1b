"""Cost: textbook dies and yields, measured die areas, published manufacturing costs, sums, and laws."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from cost_oracle import run_usd, thrown_yield
from scenes import ROOT, random_chip, random_workload

from archmodel import evaluate, load_chip, load_workload
from archmodel.cli import main
from archmodel.economics.capital import Capital, capital
from archmodel.economics.costing import costing, run_cost
from archmodel.economics.die_area import areas_mm2, node_of
from archmodel.economics.fleet import carried, residents
from archmodel.economics.running import phase_j, running, service, wall_w
from archmodel.economics.silicon import Part, die_cost, dies_per_wafer, perfect_fraction, sellable_fraction
from archmodel.errors import SpecError
from archmodel.report.cost import as_dict
from archmodel.spec.cost import CostSpec
from archmodel.spec.economics import YIELD_MODELS, EconomicsSpec, WaferSpec
from archmodel.spec.economics_file import default_economics, load_economics

ANCHORS = Path(__file__).parent / "anchors"
PRICES = default_economics()
CHIP, LLM = str(ROOT / "chips/hetero_v1.toml"), str(ROOT / "workloads/llm_100b.toml")
BARE = WaferSpec(diameter_mm=300, edge_mm=0, scribe_mm=0, yield_model="poisson", cluster_alpha=1, source="test")


def rows(name: str) -> list[dict[str, str]]:
    with (ANCHORS / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def wafer(model: str, alpha: float = 10.0) -> WaferSpec:
    return attrs.evolve(BARE, yield_model=model, cluster_alpha=alpha)


def priced(chip: str, **overrides: Any) -> Capital:
    return capital(load_chip(ROOT / f"chips/{chip}.toml"), load_economics(None, overrides))


def site(prices: EconomicsSpec = PRICES, **fields: float) -> EconomicsSpec:
    return attrs.evolve(prices, site=attrs.evolve(prices.site, **fields))


@pytest.fixture(scope="module")
def hetero() -> Any:
    """Without a [server] of its own, so that the box of the prices is its server."""
    return evaluate(attrs.evolve(load_chip(CHIP), server=None), load_workload(LLM))


def test_a_chip_with_a_server_of_its_own_draws_what_that_says() -> None:
    chip = load_chip(CHIP)
    assert chip.server is not None
    result = evaluate(chip, load_workload(LLM))
    assert wall_w(result, result.power_w, PRICES.box) == pytest.approx(result.boundary_power_w["wall"], rel=1e-12)


# --- dies ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side_mm", "dies"), [(10.0, 640), (15.0, 270)])
def test_dies_of_a_wafer_as_in_hennessy_and_patterson(side_mm: float, dies: int) -> None:
    assert round(dies_per_wafer(side_mm**2, BARE)) == dies


@pytest.mark.parametrize(
    ("model", "alpha", "area_cm2", "density", "expected"),
    [
        ("poisson", 1, 2.3, 1.0, 0.10),  # Flynn, Computer Architecture, figure 2.20 and the example after it
        ("poisson", 1, 1.0, 1.0, 0.37),
        ("negative_binomial", 4, 2.25, 0.4, 0.44),  # Hennessy and Patterson, 4th edition, section 1.6
        ("negative_binomial", 4, 1.00, 0.4, 0.68),
        ("negative_binomial", 2, math.pi * 7.5**2 / 84, 0.020, 0.959),  # Patterson and Hennessy, 5th edition, exercise 1.10.1
        ("negative_binomial", 2, math.pi * 10.0**2 / 100, 0.031, 0.909),
        ("negative_binomial", 13.5, 2.25, 0.031 * 13.5, 0.40),  # Bose-Einstein with 13.5 layers, 5th edition of the former
        ("negative_binomial", 13.5, 1.00, 0.031 * 13.5, 0.66),
        ("murphy", 1, 1.0, 1.0, 0.40),  # ((1 - 1/e) / 1)^2
    ],
)
def test_yield_as_in_textbooks(model: str, alpha: float, area_cm2: float, density: float, expected: float) -> None:
    digits = len(str(expected)) - 2
    assert perfect_fraction(100.0 * area_cm2, density, wafer(model, alpha)) == pytest.approx(expected, abs=0.51 * 10**-digits)


@pytest.mark.parametrize("model", YIELD_MODELS)
@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0, 10.0, 1e4])
def test_one_spare_of_two_is_inclusion_and_exclusion(model: str, alpha: float) -> None:
    """At least one half works: twice the yield of a half, less the yield of the whole, which both have closed forms."""
    kind = wafer(model, alpha)
    for mean in (0.05, 0.8, 3.0):
        exact = 2.0 * perfect_fraction(50.0 * mean, 1.0, kind) - perfect_fraction(100.0 * mean, 1.0, kind)
        assert sellable_fraction([Part("half", 100.0 * mean, 2, 1)], 1.0, kind) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("model", YIELD_MODELS)
def test_yield_with_spares_is_that_of_dies_thrown_at_random(model: str) -> None:
    parts = [Part("cores", 450.0, 128, 108), Part("cache", 120.0, 50, 42), Part("stacks", 90.0, 6, 5), Part("rest", 160.0)]
    kind, dies = wafer(model, 2.0), 20000
    for density in (0.09, 0.4):
        found = sellable_fraction(parts, density, kind)
        thrown = thrown_yield(parts, density, kind, np.random.default_rng(7), dies)
        assert found == pytest.approx(thrown, abs=4.0 * math.sqrt(found * (1.0 - found) / dies))


def test_laws_of_dies() -> None:
    """A larger die, more defects or fewer spares are never cheaper, by any yield model; nor is any yield outside [0, 1]."""
    rng = np.random.default_rng(3)
    node = PRICES.nodes["7"]
    for _ in range(100):
        kind = attrs.evolve(PRICES.wafer, yield_model=str(rng.choice(YIELD_MODELS)), cluster_alpha=float(rng.uniform(0.3, 20)))
        units = int(rng.integers(2, 200))
        part = Part("cores", float(rng.uniform(5, 500)), units, int(rng.integers(1, units + 1)))
        parts = [part, Part("rest", float(rng.uniform(1, 200)))]
        here = die_cost(parts, node, kind)
        assert 0.0 <= here.perfect_fraction <= here.yield_fraction * (1.0 + 1e-9) <= 1.0 + 2e-9
        larger = [attrs.evolve(p, area_mm2=p.area_mm2 * rng.uniform(1.0, 1.5)) for p in parts]
        dirtier = attrs.evolve(node, defects_per_cm2=node.defects_per_cm2 * rng.uniform(1.0, 5.0))
        stricter = attrs.evolve(part, needed=min(units, part.needed + 1))
        for other in (die_cost(larger, node, kind), die_cost(parts, dirtier, kind), die_cost([stricter, parts[1]], node, kind)):
            assert other.usd >= here.usd * (1.0 - 1e-9)


# --- areas and bills ----------------------------------------------------------------------------------------------------


def modelled_mm2(row: dict[str, str]) -> float:
    def table(text: str) -> dict[str, float]:
        return {name: float(value) for name, value in (pair.split("=") for pair in text.split())}

    cost = CostSpec(
        source="test", made=table(row["made"]), area_mm2=table(row["known_mm2"]), other_area_mm2=float(row["other_mm2"])
    )
    chip = attrs.evolve(load_chip(ROOT / f"chips/{row['chip']}.toml"), cost=cost)
    node = node_of(chip, PRICES)
    assert node is not None
    return sum(areas_mm2(chip, PRICES, node).values())


@pytest.mark.parametrize("row", rows("die_areas.csv"), ids=lambda row: row["die"])
def test_area_of_a_die_from_its_parts(row: dict[str, str]) -> None:
    """GA100, which the constants come from, within 5%; dies of other makers and nodes, which they never saw, within 10%."""
    assert modelled_mm2(row) == pytest.approx(float(row["area_mm2"]), rel=0.05 if row["check"] == "fit" else 0.10)


def test_areas_of_dies_that_the_model_never_saw_are_6_percent_off_on_average() -> None:
    unseen = [row for row in rows("die_areas.csv") if row["check"] == "test"]
    assert np.mean([abs(modelled_mm2(row) / float(row["area_mm2"]) - 1.0) for row in unseen]) < 0.06


def test_parts_of_ga100_are_those_of_its_photograph() -> None:
    seen = {row["component"]: float(row["area_mm2"]) for row in rows("die_photographs.csv") if row["die"] == "GA100"}
    chip = load_chip(ROOT / "chips/a100_sxm.toml")
    node = node_of(chip, PRICES)
    assert node is not None
    found = areas_mm2(chip, PRICES, node)
    assert found["gpu"] == pytest.approx(seen["cores"], rel=0.02)
    assert found["l2"] == pytest.approx(seen["global_buffer"], rel=0.02)
    assert found["on-chip network"] == pytest.approx(seen["on_chip_interconnect"], rel=0.02)
    assert found["hbm"] == pytest.approx(seen["memory_phy"] + seen["memory_control"], rel=0.05)


@pytest.mark.parametrize("row", [row for row in rows("chip_costs.csv") if row["item"] == "total"], ids=lambda row: row["chip"])
def test_manufacturing_costs_are_those_that_analysts_publish(row: dict[str, str]) -> None:
    assert priced(row["chip"]).material_usd == pytest.approx(float(row["usd"]), rel=0.05 if row["chip"] == "h100_sxm" else 0.10)


@pytest.mark.parametrize("row", [row for row in rows("chip_costs.csv") if row["item"] != "total"],
                         ids=lambda row: f"{row['chip']} {row['item']}")  # fmt: skip
def test_items_of_a_bill_are_those_that_analysts_publish(row: dict[str, str]) -> None:
    """Within a quarter: the analysts' dies of B200 cost more than its wafers and defects explain."""
    assert priced(row["chip"]).bill_usd[row["item"]] == pytest.approx(float(row["usd"]), rel=0.25)


def test_a_bill_adds_up_and_a_price_takes_its_place() -> None:
    for name in ("hetero_v1", "gpu_baseline", "a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "tpu_v4i"):
        bought = priced(name)
        assert sum(part.area_mm2 for part in bought.parts) == pytest.approx(bought.die.area_mm2, rel=1e-9)
        assert bought.material_usd == pytest.approx(sum(bought.bill_usd.values()), rel=1e-12)
        placed = sum(bought.bill_usd[item] for item in ("dies", "stacked memory", "package"))
        assert bought.bill_usd["lost in assembly"] == pytest.approx(placed / 0.95 - placed, rel=1e-9)
        assert bought.total_usd == (bought.price_usd or bought.material_usd) + 60000 / 8
        if bought.price_usd:
            assert bought.price_usd * (1.0 - bought.margin_fraction) == pytest.approx(bought.material_usd, rel=1e-9)


def test_design_is_shared_by_all_chips_that_are_made() -> None:
    chip = load_chip(CHIP)
    assert chip.cost is not None
    few, many = (capital(attrs.evolve(chip, cost=attrs.evolve(chip.cost, volume=n)), PRICES) for n in (10**4, 10**6))
    assert few.material_usd - many.material_usd == pytest.approx(298e6 * (1e-4 - 1e-6), rel=1e-9)


# --- tokens -------------------------------------------------------------------------------------------------------------


def test_a_run_costs_what_the_long_way_round_gives(hetero: Any) -> None:
    bought = capital(hetero.chip, PRICES)
    paid = running(hetero, bought, PRICES)
    for phase, found in paid.phases.items():
        expected = run_usd(
            hardware_usd=bought.total_usd, chips=1, chip_j=phase_j(hetero, phase), static_w=sum(hetero.static_power_w.values()),
            seconds=hetero.phase_s(phase), years=4, utilisation=0.6, maintenance=0.05, usd_per_kwh=0.0892, pue=1.56, psu=0.95,
            box_w_per_chip=2650 / 8,
        )  # fmt: skip
        for item, usd in expected.items():
            assert getattr(found, item) == pytest.approx(usd, rel=1e-9)


def test_sums_of_random_runs() -> None:
    """Phases add up to the energy and to the cost of the run; input and output tokens pay for all of it, to 1e-9."""
    rng = np.random.default_rng(11)
    for _ in range(12):
        chip, workload = random_chip(rng), random_workload(rng)
        result = evaluate(chip, workload)
        prices = site(utilisation=float(rng.uniform(0.1, 1.0)), pue=float(rng.uniform(1, 2)))
        paid = run_cost(result, prices)
        assert paid is not None
        assert sum(phase_j(result, phase) for phase in result.phases) == pytest.approx(result.total_j, rel=1e-9)
        assert sum(phase.wall_j for phase in paid.phases.values()) == pytest.approx(
            wall_w(result, result.power_w, prices.box) * result.total_s, rel=1e-9
        )
        tokens = paid.input_usd_per_million_tokens * paid.input_tokens
        tokens += (paid.output_usd_per_million_tokens or 0.0) * paid.output_tokens
        assert tokens / 1e6 == pytest.approx(paid.total_usd, rel=1e-9)
        assert paid.usd_per_request * paid.requests == pytest.approx(paid.total_usd, rel=1e-9)
        busy_s = paid.utilisation * 365.25 * 86400
        assert paid.usd_per_year == pytest.approx(paid.total_usd * busy_s / paid.total_s, rel=1e-9)
        assert 0.0 < paid.energy_usd_per_million_tokens < paid.usd_per_million_tokens


def test_laws_of_tokens(hetero: Any) -> None:
    """Longer books, a busier service, cheaper power and a cheaper chip never make a token dearer."""
    bought = capital(hetero.chip, PRICES)
    here = running(hetero, bought, PRICES)
    for better in (site(amortisation_years=6), site(utilisation=0.9), site(electricity_usd_per_kwh=0.05), site(pue=1.1)):
        found = running(hetero, bought, better)
        assert found.input_usd < here.input_usd
        assert found.output_usd < here.output_usd
    for worse in (site(amortisation_years=2), site(maintenance_ratio=0.2)):
        assert running(hetero, bought, worse).total_usd > here.total_usd
    assert running(hetero, attrs.evolve(bought, price_usd=1000.0), PRICES).total_usd < here.total_usd


def test_a_token_is_cheaper_where_more_of_them_leave_the_same_chip() -> None:
    chip = load_chip(ROOT / "chips/h100_sxm.toml")
    costs = []
    for batch in (1, 8, 64):
        workload = load_workload(ROOT / "workloads/llama3_8b.toml", {"request.batch": batch})
        paid = run_cost(evaluate(chip, workload), PRICES)
        assert paid is not None
        costs.append(paid.usd_per_million_tokens)
    assert costs[0] > 5.0 * costs[1] > 10.0 * costs[2]


def test_a_group_of_chips_pays_for_all_of_them() -> None:
    chip = load_chip(ROOT / "chips/h100_sxm.toml")
    workload = load_workload(ROOT / "workloads/llama3_70b.toml", {"placement.tensor_parallel": 4, "request.batch": 4})
    result = evaluate(chip, workload)
    paid = run_cost(result, PRICES)
    assert paid is not None
    capital_usd = sum(phase.capital_usd for phase in paid.phases.values())
    each = 35500.0 / (4 * 365.25 * 86400 * 0.6) * result.total_s
    assert (paid.chips, capital_usd) == (4, pytest.approx(4 * each, rel=1e-9))
    assert residents(result, PRICES).groups_per_server == 2


def test_a_service_has_as_many_groups_as_its_rate_needs(hetero: Any) -> None:
    bought = capital(hetero.chip, PRICES)
    each = 8 / hetero.total_s * 0.6
    for rate, groups in ((each * 0.01, 1), (each, 1), (each * 1.01, 2), (each * 7, 7)):
        found = service(hetero, bought, PRICES, rate)
        assert (found.groups, found.chips) == (groups, groups)
        assert found.running.utilisation * groups * 8 / hetero.total_s == pytest.approx(rate, rel=1e-9)
        assert found.usd_per_year == pytest.approx(found.running.usd_per_request * rate * 365.25 * 86400, rel=1e-9)
    assert service(hetero, bought, site(utilisation=1), each / 0.6 * 3).groups == 3
    assert service(hetero, bought, PRICES, each).usd_per_year == pytest.approx(running(hetero, bought, PRICES).usd_per_year)


# --- how much fits ------------------------------------------------------------------------------------------------------


def test_one_more_model_would_not_fit() -> None:
    chip = load_chip(ROOT / "chips/h100_sxm.toml")
    result = evaluate(chip, load_workload(ROOT / "workloads/llama3_8b.toml"))
    held, tier = residents(result, PRICES), result.residency
    own = sum(b.byte for b in tier.buffers if b.tier == "hbm" and b.what != "activations")
    there = tier.capacity_byte["hbm"] - sum(b.byte for b in tier.buffers if b.tier == "hbm" and b.what == "activations")
    assert held.limiting == "hbm"
    assert held.most * own <= there < (held.most + 1) * own
    assert held.per_server == 8 * held.most


def test_models_that_share_a_chip_share_its_rate() -> None:
    rng = np.random.default_rng(5)
    for _ in range(12):
        result = evaluate(random_chip(rng), random_workload(rng))
        for row in residents(result, PRICES).shared:
            assert row.each_in_turn_tokens_per_s * row.models == pytest.approx(row.all_in_turn_tokens_per_s, rel=1e-9)
            assert result.output_tokens_per_s == row.all_in_turn_tokens_per_s <= row.all_at_most_tokens_per_s
            for name, byte in result.traffic_byte().items():  # no tier or link moves more than it can
                runs_per_s = row.all_at_most_tokens_per_s / result.tokens
                speed = result.soc.shared_byte_per_s[result.soc.shared.index(name)]
                assert runs_per_s * byte <= speed * (1.0 + 1e-9) or row.models == 1


def test_what_a_power_budget_carries(hetero: Any) -> None:
    model = load_workload(LLM).model
    held = residents(hetero, PRICES)
    group_w = hetero.power_w / 0.95 + 2650 / 8
    for budget_w in (group_w * 0.99, group_w * 3.5, 1e5):
        found = carried(hetero, model, held, PRICES, budget_w)
        assert found.groups * group_w <= budget_w < (found.groups + 1) * group_w
        assert found.tokens_per_s == pytest.approx(found.groups * hetero.output_tokens_per_s)
        assert found.models == found.groups * held.most
    assert carried(hetero, model, held, PRICES, group_w * 0.99).parameters == 0


# --- files and the command ----------------------------------------------------------------------------------------------


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_command_prints_what_scripts_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "cost", CHIP, LLM, "--power-budget-w", "10000", "--requests-per-s", "2")
    assert sum(found["bill_usd"].values()) == pytest.approx(found["material_usd"], rel=1e-9)
    run = found["run"]
    assert sum(phase["total_usd"] for phase in run["phases"].values()) == pytest.approx(run["total_usd"], rel=1e-9)
    assert run["residents"]["most"] == 2
    assert run["power_budget"]["groups"] > 0
    assert run["service"]["groups"] > 1
    assert any(line.startswith("site: four years") for line in found["assumptions"])
    assert any(line.startswith("box: 60,000 USD") for line in found["assumptions"])
    assert any(line.startswith("cost: 100,000 chips") for line in found["assumptions"])


def test_command_without_a_workload_is_about_the_chip(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "cost", str(ROOT / "chips/b200_sxm.toml"))
    assert found["run"] is None
    assert found["die"]["dies"] == 2
    assert found["margin_fraction"] == pytest.approx(1.0 - found["material_usd"] / 40000, rel=1e-9)
    assert not any(line.startswith("site:") for line in found["assumptions"])
    assert main(["cost", str(ROOT / "chips/b200_sxm.toml")]) == 0
    assert "6 of 80" in capsys.readouterr().out  # of one die: 148 of 160 on both


def test_prices_are_laid_over_the_default_ones(capsys: pytest.CaptureFixture[str]) -> None:
    default = run_json(capsys, "cost", CHIP, LLM)
    operator = run_json(capsys, "cost", CHIP, LLM, "--economics", str(ROOT / "economics/large_operator.toml"))
    assert operator["bill_usd"] == default["bill_usd"]
    assert operator["run"]["usd_per_million_tokens"] < default["run"]["usd_per_million_tokens"]
    assert any("five years" in line for line in operator["assumptions"])
    dear = run_json(capsys, "cost", CHIP, LLM, "--set", "nodes.7.wafer_usd=93460", "--set", "cost.board_usd=0")
    assert dear["bill_usd"]["dies"] == pytest.approx(10.0 * default["bill_usd"]["dies"], rel=1e-9)
    assert dear["bill_usd"]["board"] == 0.0


def test_eval_shows_the_same_cost(capsys: pytest.CaptureFixture[str]) -> None:
    alone, whole = (run_json(capsys, *words) for words in (("eval", CHIP, LLM, "--no-report"), ("cost", CHIP, LLM)))
    assert alone["cost"] == {key: whole["run"][key] for key in alone["cost"]}
    assert set(whole["assumptions"]) == set(alone["assumptions"])
    assert (
        run_json(capsys, "eval", str(ROOT / "chips/l4.toml"), str(ROOT / "workloads/chat_8b.toml"), "--no-report")["cost"]
        is None
    )


BAD = [
    ([str(ROOT / "chips/l4.toml")], ("l4: 1 problem", "cost: missing: a [cost] table")),
    ([CHIP, "--power-budget-w", "nan"], ("--power-budget-w: nan, must be a number from 1e-9 to 1e15", "needs a workload")),
    ([CHIP, LLM, "--requests-per-s", "0", "--power-budget-w", "-1"], ("cost: 2 problems", "-1, must be a number")),
    ([CHIP, "--set", "site.pue=0.5", "--set", "wafer.rim=1"], ("economics: 2 problems", "site.pue: 0.5, must", "wafer.rim")),
    ([CHIP, "--set", "nodes.7.wafer_usd=0"], ("nodes.7.wafer_usd: 0, must be > 0",)),
    ([CHIP, "--set", "cost.node_nm=8"], ("cost.node_nm: 8, has no table in the economics' nodes, which are 3, 4",)),
    ([CHIP, "--set", "cost.die_area_mm2=90000"], ("cost.die_area_mm2: 9e+04, must fit a wafer",)),
    ([CHIP, "--set", "nodes.7.defects_per_cm2=1000", "--set", "wafer.yield_model=poisson"], ("no die of 496 mm2 is good",)),
    ([CHIP, "--economics", "missing.toml"], ("missing.toml: 1 problem", "does not exist")),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=lambda value: value[-1] if isinstance(value, list) else "")
def test_bad_input_is_refused(
    arguments: list[str], words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["cost", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert [word for word in words if word not in printed.err] == [], printed.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_prices_is_checked_whole(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('siet = 1\nnodes = 3\n[site]\npue = "x"\n[memory_price]\nsource = "test"\nusd_per_gb = {HBM9 = 1}\n')
    with pytest.raises(SpecError) as caught:
        load_economics(file)
    message = str(caught.value)
    for word in ("siet: unknown table, did you mean site?", "nodes: 3, must hold tables", 'site.pue: "x", must be a number',
                 "site.source: missing", "memory_price.usd_per_gb:", "HBM9 is unknown"):  # fmt: skip
        assert word in message


def test_a_missing_price_of_memory_is_named() -> None:
    prices = attrs.evolve(PRICES, memory_price=attrs.evolve(PRICES.memory_price, usd_per_gb={"HBM3": 15.0}))
    with pytest.raises(SpecError, match=r"ddr.standard: DDR5, has no price"):
        capital(load_chip(CHIP), prices)


def test_a_unit_without_an_area_is_named() -> None:
    nothing = attrs.evolve(PRICES.die_area, lane_um2=0, core_control_mm2=0, core_sram_mm2_per_mb=0, mac_um2={"fp64": 1})
    with pytest.raises(SpecError, match=r"cost.area_mm2.gpu: missing(.|\n)*cost.area_mm2.npu: missing"):
        capital(load_chip(CHIP), attrs.evolve(PRICES, die_area=nothing))


def test_costing_is_a_function(hetero: Any) -> None:
    first, again = (as_dict(costing(hetero.chip, PRICES, hetero, load_workload(LLM).model)) for _ in range(2))
    assert first == again


def test_eval_of_a_chip_without_a_price_for_its_node_goes_on() -> None:
    chip = attrs.evolve(load_chip(CHIP), process_nm=8)
    assert run_cost(evaluate(chip, load_workload(LLM)), PRICES) is None


def test_command_shows_what_the_members_of_a_system_cost(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(ROOT / "chips/systems/afd_17_1.toml"), str(ROOT / "workloads/minimax_m2_5.toml")]
    assert main(["cost", *files, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["cost", str(ROOT / "chips/gb200.toml"), "--json"]) == 0
    chip_usd = json.loads(capsys.readouterr().out)["capital_usd"]
    assert {name: member["count"] for name, member in found["members"].items()} == {"attention": 68, "ffn": 4}
    assert [member["capital_usd"] for member in found["members"].values()] == pytest.approx([chip_usd] * 2)
    assert found["capital_usd"] == pytest.approx(72 * chip_usd)
    assert main(["eval", *files, "--json", "--no-report"]) == 0
    run = json.loads(capsys.readouterr().out)["cost"]
    assert found["run"]["usd_per_million_tokens"] == pytest.approx(run["usd_per_million_tokens"])
    assert main(["cost", *files, "--requests-per-s", "200", "--power-budget-w", "1e6"]) == 0
    shown = capsys.readouterr().out
    assert "Cost of afd_17_1: 72 cards" in shown
    assert "3 groups, 216 chips" in shown
    assert "(1,512 chips)" in shown


def test_a_member_without_a_cost_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", str(ROOT / "chips/systems/gpu_npu_pcie5.toml")]) == 2
    assert "gpu_npu_pcie5.npu_card: 1 problem\n  cost: missing: a [cost] table" in capsys.readouterr().err
