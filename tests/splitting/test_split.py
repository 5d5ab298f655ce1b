"""The whole of `split`: its answer, tables, JSON and heat map, from Python and from the command line."""

from __future__ import annotations

import json
import math
import re

import attrs
import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from scenes import HETERO, ROOT, changed, random_chip, random_pair, random_workload, two_gpus

from archmodel import load_chip, load_workload
from archmodel.cli import main
from archmodel.errors import MappingError
from archmodel.lifetimes import lifetimes
from archmodel.report.splitting import report, sentences
from archmodel.report.splitting_json import as_json
from archmodel.report.zones import write_zones
from archmodel.spec.workload import RequestSpec
from archmodel.splitting.dead_zones import dead_zones
from archmodel.splitting.study import is_split, study
from archmodel.splitting.verdict import Answer, Terms

CHIPS, WORKLOADS = ROOT / "chips", ROOT / "workloads"
LLAMA = load_workload(WORKLOADS / "llama3_8b.toml")
EIGHT_LAYERS = attrs.evolve(LLAMA.model, order=LLAMA.model.order[:8])
SMALL = attrs.evolve(LLAMA, model=EIGHT_LAYERS, request=RequestSpec(batch=4, input_tokens=128, output_tokens=8))
TERMS = Terms()


@pytest.fixture(scope="module")
def found():
    return study(HETERO, SMALL, TERMS)


def shown(study_, width=140, *, every=False):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(report(study_, width, every=every))
    return console.export_text()


def test_the_best_split_is_held_against_the_best_single_unit(found):
    assert found.baseline.name == "all on gpu"
    assert is_split(found.best.result)
    assert not is_split(found.baseline.result)
    assert found.best.result.total_s == min(s.result.total_s for s in found.strategies if is_split(s.result))
    assert {s.granularity for s in found.strategies} >= {"one side", "module", "layer", "request", "operator", "auto"}


def test_the_first_lines_answer(found):
    text = shown(found, 240, every=True)
    first = text.splitlines()
    assert "does splitting pay?" in first[0]
    assert first[2].strip() == str(found.verdict(found.best).answer)
    for words in ("Where the gain of the best split", "Where the best split gains", "When the best split loses a unit"):
        assert words in text
    for strategy in found.strategies:
        if strategy.granularity != "auto":
            assert strategy.name.split(",")[0] in text


def test_the_best_of_each_kind_is_shown_and_the_rest_counted(found):
    text, every = shown(found, 240), shown(found, 240, every=True)
    kinds = {s.granularity for s in found.strategies} - {"auto"}
    for kind in kinds:
        best = min((s for s in found.strategies if s.granularity == kind), key=lambda s: s.result.total_s)
        assert f"{kind}: {best.name.split(',')[0]}" in text
    assert len(text) < len(every)
    assert "--all shows the" in text
    assert "--all shows the" not in every


def test_assumptions_and_notes_are_those_of_the_best_run(found):
    text, data = shown(found, 400), as_json(found)
    assert data["assumptions"]
    assert data["notes"]
    assert [line for line in (*data["assumptions"], *data["notes"]) if line not in text] == []


def test_no_figure_has_an_exponent_or_a_negative_zero(found):
    assert re.search(r"\de[+-]\d|-0\.0\b", shown(found, 120, every=True)) is None


def test_the_memory_that_each_side_keeps_is_shown(found):
    result = found.best.result
    for unit, living in lifetimes(result, result.steps[-1]).items():
        if len(living.byte):
            peak, size = found.kept[unit]
            assert peak == living.peak_byte
            assert size >= peak * (1 - 1e-12)
    assert "most at once" in shown(found, 120)


def test_fusion_is_shown_both_ways(found):
    fused, apart = found.fusion.values()
    assert fused.total_s <= apart.total_s
    assert sum(fused.traffic_byte().values()) < sum(apart.traffic_byte().values())
    assert any(result is found.best.result for result in (fused, apart))
    assert "kernels of their own" in shown(found, 120)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_pages_of_any_width(found, width):
    assert max(len(line.rstrip()) for line in shown(found, width).splitlines()) <= width


def test_the_sums_of_the_ledger_are_the_times(found):
    for phase, ledger in found.ledgers.items():
        of_phase = {"total": lambda r: r.total_s}.get(phase, lambda r, p=phase: r.phase_s(p))
        assert ledger.new_s == of_phase(found.best.result)
        assert sum(entry.change_s for entry in ledger.entries) == pytest.approx(ledger.change_s, abs=1e-9 * ledger.old_s)


def test_strict_json_holds_what_the_study_holds(found):
    data = as_json(found)
    again = json.loads(json.dumps(data, allow_nan=False))
    assert again["answer"] == str(found.verdict(found.best).answer)
    assert [s["name"] for s in again["strategies"]] == [s.name for s in found.strategies]
    for strategy, entry in zip(found.strategies, again["strategies"], strict=True):
        assert entry["serial_bound_gain_fraction"] <= entry["gain_fraction"] + 1e-9
        assert entry["gain_fraction"] <= entry["overlapped_bound_gain_fraction"] + 1e-9
        seconds = strategy.result.busy_s()
        assert [f["lost"] for f in entry["fallbacks"]] == [u for u in strategy.result.soc.units if seconds[u] > 0.0]
    assert {even["knob"] for even in again["break_even"]} == {
        "noc_byte_per_s", "noc_latency_s", "dispatch_s", "batch", "input_tokens",
    }  # fmt: skip


def test_same_input_same_answer():
    one, two = (json.dumps(as_json(study(HETERO, SMALL, TERMS))) for _ in range(2))
    assert one == two


def test_units_with_a_memory_each_pay_and_the_sentence_says_by_how_much():
    paid = study(two_gpus(link_lanes=4096), SMALL, TERMS)
    verdict = paid.verdict(paid.best)
    assert verdict.answer is Answer.PAYS
    assert f"{100 * verdict.gain:.1f} % faster" in " ".join(sentences(paid))
    strict = attrs.evolve(TERMS, min_gain=5.0)
    assert study(two_gpus(link_lanes=4096), SMALL, strict).verdict(paid.best).answer is Answer.DOES_NOT_PAY


def test_one_unit_has_nothing_to_split():
    alone = study(load_chip(CHIPS / "h100_sxm.toml"), SMALL, TERMS)
    assert alone.verdict(alone.best).answer is Answer.DOES_NOT_PAY
    assert "nothing to split" in shown(alone)


def test_another_chip_as_baseline():
    other = load_chip(CHIPS / "gpu_baseline.toml")
    against = study(HETERO, SMALL, TERMS, other)
    assert against.baseline.name == "gpu_baseline"
    assert against.baseline.result.chip.name == "gpu_baseline"
    assert sum(e.change_s for e in against.ledgers["total"].entries) == pytest.approx(
        against.best.result.total_s - against.baseline.result.total_s, rel=1e-9
    )


def test_nothing_to_compare_with_is_said():
    able = tuple(c for c in HETERO.blocks["gpu"].capabilities if c != "matmul")
    owners = dict.fromkeys(("projection", "router", "head"), "npu")
    formats = {"macs_per_pe_per_cycle": {"int8": 1.0, "fp16": 0.5}, "mac_energy_pj": {"int8": 0.1, "fp16": 0.4}}
    no_unit_alone = changed(HETERO, gpu={"capabilities": able}, npu=formats, placement=owners)
    with pytest.raises(MappingError, match="--baseline"):
        study(no_unit_alone, SMALL, TERMS)
    assert study(no_unit_alone, SMALL, TERMS, HETERO).baseline.name == "hetero_v1"


@pytest.mark.parametrize("seed", range(6))
def test_random_systems_get_an_answer(seed):
    rng = np.random.default_rng(seed)
    chip = random_pair(rng) if seed % 2 else random_chip(rng)
    found = study(chip, random_workload(rng), TERMS)
    json.dumps(as_json(found), allow_nan=False)
    assert shown(found)


def test_the_heat_map_is_what_re_evaluation_gives(found, tmp_path):
    zones = list(dead_zones(found.rivals))
    assert [(z.x.name, z.y.name) for z in zones] == [("batch", "input_tokens"), ("noc_byte_per_s", "noc_latency_s")]
    request = zones[0]
    x, y = request.x_values.index(4.0), request.y_values.index(128.0)
    assert request.gain[y, x] == pytest.approx(found.verdict(found.best).gain, rel=0.01)
    assert all(math.isnan(g) or g > -1.0 for z in zones for g in z.gain.ravel())
    (path,) = write_zones(found, tmp_path)
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.shape[0] > 300
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 50


def test_command(tmp_path, capsys):
    arguments = ["split", str(CHIPS / "hetero_v1.toml"), str(WORKLOADS / "llama3_8b.toml"), "--set", "request.batch=2",
                 "--set", "request.output_tokens=8"]  # fmt: skip
    assert main(arguments) == 0
    assert "does splitting pay?" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    priced = ["--json", "-o", str(tmp_path), "--engineering-usd-per-year", "5e5", "--fleet-chips", "10", "--usd-per-hour", "1"]
    assert main([*arguments, *priced]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["terms"]["fleet_chips"] == 10.0
    assert data["strategies"][0]["money"]["net_usd_per_year"] <= 0.0
    assert [str(file) for file in tmp_path.iterdir()] == data["files"]


def test_command_takes_prices(capsys):
    paid = []
    for setting in ([], ["--set", "site.electricity_usd_per_kwh=5"]):
        assert main(["split", str(CHIPS / "hetero_v1.toml"), str(WORKLOADS / "llama3_8b.toml"), "--json", *setting]) == 0
        paid.append(json.loads(capsys.readouterr().out)["baseline"]["usd_per_million_tokens"])
    assert paid[1] > 2.0 * paid[0]


def test_command_refuses_what_it_cannot_use(tmp_path, capsys):
    chip, workload = str(CHIPS / "hetero_v1.toml"), str(WORKLOADS / "llama3_8b.toml")
    assert main(["split", chip, str(CHIPS / "hetero_v1.toml"), "-o", str(tmp_path)]) == 2
    assert main(["split", chip, workload, "--baseline", str(tmp_path / "none.toml"), "-o", str(tmp_path)]) == 2
    assert main(["split", chip, workload, "--min-gain", "-1", "-o", str(tmp_path)]) == 2
    assert main(["split", chip, workload, "--fleet-chips", "nan", "--min-gain", "inf", "-o", str(tmp_path)]) == 2
    assert main(["split", chip, workload, "--set", "request.batch=4096", "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err
    assert not list(tmp_path.iterdir())
