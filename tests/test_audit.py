"""The audit of claims: 25 computed values as the oracle, verdicts, conditions that really flip them, and bad claims files."""

from __future__ import annotations

import csv
import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from test_bad_input import damaged, refusal

from archmodel.audit.finding import Check, Finding, Verdict
from archmodel.audit.given import chip_figures
from archmodel.audit.judge import JUDGES, Audit, Case, audit
from archmodel.cli import main
from archmodel.report.audit import markdown
from archmodel.report.audit_json import as_json
from archmodel.spec.claim_kinds import KINDS
from archmodel.spec.claims import load_claims

ROOT = Path(__file__).parents[1]
HETERO = ROOT / "chips/claims/hetero_v1.toml"
NORTHPOLE = ROOT / "chips/claims/northpole.toml"
ANCHORS = list(csv.DictReader((ROOT / "tests/anchors/claims_audit.csv").open(encoding="utf-8")))

VERDICTS = {
    "C01": "UNDER-SPECIFIED", "C02": "FAIL", "C03": "FAIL", "C04": "CONDITIONAL", "C05": "FAIL", "C06": "DIMENSION",
    "C07": "FAIL", "C08": "FAIL", "C09": "INCONSISTENT", "C10": "CONDITIONAL", "C11": "CONDITIONAL", "C12": "CONDITIONAL",
    "C13": "HOLDS", "C14": "FAIL", "C15": "FAIL", "C16": "CONDITIONAL", "C17": "CONDITIONAL", "C18": "HOLDS",
    "C19": "CONDITIONAL", "C20": "FAIL", "C21": "FAIL", "C22": "CONDITIONAL", "C23": "HOLDS", "C24": "CONDITIONAL",
    "C25": "CONDITIONAL",
}  # fmt: skip


@pytest.fixture(scope="module")
def hetero() -> Audit:
    return audit(load_claims(HETERO))


@pytest.fixture(scope="module")
def northpole() -> Audit:
    return audit(load_claims(NORTHPOLE))


def cases(found: Audit) -> dict[tuple[str, str], Case]:
    return {(j.claim.name, case.name): case for j in found.judged for case in (j.base, *j.readings, *j.what_ifs)}


def values(case: Case) -> dict[str, float]:
    """Every number of a finding by its name."""
    assert case.finding is not None
    sides = [side for c in case.finding.checks for side in ((c.needed_is, c.needed), (c.available_is, c.available))]
    others = [(item.name, item.value) for item in case.finding.figures]
    return {"factor": case.finding.factor, **{flip.what: flip.value for flip in case.finding.flips}, **dict([*others, *sides])}


@pytest.mark.parametrize("row", ANCHORS, ids=lambda row: f"{row['claim']}-{row['figure']}")
def test_computed_values(row: dict[str, str], hetero: Audit) -> None:
    """The earlier audit printed two digits or three, some of them of numbers that were rounded before."""
    found = values(cases(hetero)[row["claim"], row["case"]])
    assert found[row["figure"]] == pytest.approx(float(row["value"]), rel=0.025)


def test_every_claim_has_an_anchor_but_the_one_that_needs_a_trace() -> None:
    assert {row["claim"] for row in ANCHORS} == set(VERDICTS) - {"C23"}


def test_where_the_earlier_audit_is_wrong(hetero: Audit) -> None:
    """544 and 272 sequences miss the rate by arithmetic alone, and 585 logits take more than 3 ms."""
    by_case = cases(hetero)
    cache = 2 * 80 * 8 * 128 * 1024
    for case, weights, batch in (("as stated", 100e9, 545), ("INT4 weights", 50e9, 273)):
        assert (
            (batch - 1) * 0.82 * 1.2e12 / (weights + (batch - 1) * cache)
            < 2800
            <= batch * 0.82 * 1.2e12 / (weights + batch * cache)
        )
        assert values(by_case["C04", case])["batch needed"] == batch
    assert 2e-6 + 584 * 2 * 128256 / 50e9 < 3e-3 < 2e-6 + 585 * 2 * 128256 / 50e9
    assert values(by_case["C13", "as stated"])["sequences whose FP16 logits fit"] == 584
    assert values(by_case["C12", "as stated"])["share of the link"] == pytest.approx(
        20 / (64 * 128 / 130 * 256 / 282), rel=1e-2
    )
    assert math.isclose(1 / (8 / 9 / 4 + 1 / 9), 3.0)  # no FP8 at all, and FP16 in it
    assert values(by_case["C11", "as stated"])["most in fp16, the rest in int4"] == pytest.approx(1 / 9)


def test_verdicts(hetero: Audit) -> None:
    assert {j.claim.name: str(j.verdict) for j in hetero.judged} == VERDICTS
    against = {j.claim.name: j.claim.against for j in hetero.judged if j.claim.against}
    assert against == {"C03": ("C02",), "C14": ("C02",), "C15": ("C04",)}


def test_uneven_lengths_against_a_simulation(hetero: Audit) -> None:
    lengths = next(j for j in hetero.judged if j.claim.name == "C23").base.figures.lengths_tokens  # type: ignore[union-attr]
    dice = random.Random(3)
    batches = [[dice.choice(lengths) for _ in range(8)] for _ in range(40_000)]
    longest = sum(max(batch) for batch in batches) / len(batches)
    found = values(cases(hetero)["C23", "as stated"])
    assert found["longest of a batch, on average"] == pytest.approx(longest, rel=5e-3)
    assert found["lost time"] == pytest.approx(1 - sum(lengths) / len(lengths) / longest, rel=1e-2)


def test_northpole(northpole: Audit) -> None:
    """Published figures agree with each other, but for the rack's peak: 115 POPS are not 288 times 419 TOPS."""
    verdicts = {j.claim.name: j.verdict for j in northpole.judged}
    odd = {name: str(verdict) for name, verdict in verdicts.items() if verdict != Verdict.HOLDS}
    assert odd == {"rack_peak": "FAIL", "users": "UNDER-SPECIFIED", "gain": "UNDER-SPECIFIED"}
    by_case = cases(northpole)
    assert values(by_case["efficiency", "as stated"])["rate over power"] == pytest.approx(28356 / 672)
    assert values(by_case["rate", "as stated"])["operations needed"] == pytest.approx(170.1e12, rel=1e-3)
    assert values(by_case["gain", "as stated"])["baseline that the gain means"] == pytest.approx(42.2 / 72.7)
    assert values(by_case["rack_peak", "as stated"])["parts add up to"] == pytest.approx(120.8e15, rel=1e-3)


#: conditions -> the figure that they are about, where it is one of the kind's
FIELD_OF = {
    "active parameters": "active_parameters", "peak": "peak_tops", "batch": "batch", "bandwidth": "bandwidth_gb_per_s",
    "capacity": "capacity_gb", "parameters read in a step": "parameters", "parameters of a model": "parameters",
    "sparsity": "sparsity_fraction", "energy of a synaptic operation": "synapse_energy_pj", "power": "power_w",
    "MACs of a unit in a cycle": "macs_per_unit_per_cycle", "clock": "highest_clock_ghz", "sequences": "sequences",
    "figure of each part": "each", "bandwidth of the second memory": "second_gb_per_s", "efficiency claimed":
    "lowest_tokens_per_joule", "running cost of the fleet": "fleet_usd_per_year", "input tokens": "input_tokens",
}  # fmt: skip


def test_conditions_flip_their_verdicts(hetero: Audit, northpole: Audit) -> None:
    """A claim that fails holds at each of its conditions, and still fails 1% short of it."""
    flipped = 0
    for case in [*cases(hetero).values(), *cases(northpole).values()]:
        if case.figures is None or case.finding is None or case.verdict != Verdict.FAIL:
            continue
        judge = JUDGES[next(name for name, kind in KINDS.items() if type(case.figures) is kind)]
        several = sum(not check.holds for check in case.finding.checks) > 1  # each condition mends one of them
        for flip in case.finding.flips:
            field = FIELD_OF.get(flip.what.partition(", at batch")[0])
            if field is None or several or not flip.value:
                continue
            slack = 1.0 if flip.relation == "=" else 1.0 + 1e-6 if flip.relation.startswith(">") else 1.0 - 1e-6
            kind = int if field == "input_tokens" else float
            at = judge(attrs.evolve(case.figures, **{field: kind(flip.value * slack + (0.5 if kind is int else 0.0))}))
            assert at.verdict in (Verdict.HOLDS, Verdict.CONDITIONAL), (case.name, flip)
            rounded = any(check.tolerance_fraction for check in case.finding.checks)
            if not rounded and field not in ("batch", "input_tokens"):
                short = 1.0 / 1.01 if flip.relation.startswith(">") else 1.01
                assert judge(attrs.evolve(case.figures, **{field: flip.value * short})).verdict == Verdict.FAIL, (
                    case.name,
                    flip,
                )
            flipped += 1
    assert flipped > 30


def test_every_kind_has_a_judge_and_is_used(hetero: Audit, northpole: Audit) -> None:
    used = {j.claim.kind for found in (hetero, northpole) for j in found.judged}
    assert set(JUDGES) == set(KINDS) == used | {"evaluation"}
    assert all(judge.__doc__ and kind.__doc__ for judge, kind in zip(JUDGES.values(), KINDS.values(), strict=True))


def test_a_finding_without_checks_is_no_holds() -> None:
    assert Finding(checks=()).verdict == Verdict.UNDER_SPECIFIED
    good, bad = Check("a", 1.0, "b", 2.0), Check("a", 2.0, "b", 1.0)
    for checks, partly, verdict in (
        ((good,), "", "HOLDS"),
        ((bad,), "x", "FAIL"),
        ((good, bad), "", "FAIL"),
        ((good, bad), "x", "CONDITIONAL"),
    ):
        assert Finding(checks=checks, partly=partly).verdict == verdict


SMALL = """
[claims]
name = "x"
source = "somebody"
{head}
[stated]
source = "somebody"
rate_tokens_per_s = 100
{stated}
[A]
kind = "compute_rate"
statement = "fast"
source = "somebody"
{claim}
"""
LINKED = f'chip = "{(ROOT / "chips/hetero_v1.toml").as_posix()}"\nworkload = "{(ROOT / "workloads/chat_8b.toml").as_posix()}"'


def small(folder: Path, *, head: str = "", stated: str = "", claim: str = "") -> Path:
    file = folder / "claims.toml"
    file.write_text(SMALL.format(head=head, stated=stated, claim=claim), encoding="utf-8")
    return file


def test_a_figure_comes_from_the_claim_then_the_file_then_the_chip(tmp_path: Path) -> None:
    def base(**parts: str) -> Case:
        return audit(load_claims(small(tmp_path, **parts))).judged[0].base

    assert [word.partition(":")[0] for word in base().missing] == ["active_parameters", "peak_tops"]
    assert base().verdict == Verdict.UNDER_SPECIFIED
    linked = base(head=LINKED, stated='peaks = ["npu.int8"]')
    assert linked.figures.active_parameters == pytest.approx(8e9, rel=0.1)  # type: ignore[union-attr]
    assert linked.origin["active_parameters"] == "chip"
    assert linked.figures.peak_tops == pytest.approx(12, rel=1e-3)  # type: ignore[union-attr]
    own = base(
        head=LINKED, stated='peaks = ["npu.int8"]\nactive_parameters = 5e9', claim="active_parameters = 1e9\npeak_tops = 3"
    )
    assert (own.figures.active_parameters, own.figures.peak_tops) == (1e9, 3.0)  # type: ignore[union-attr]
    assert own.origin["peak_tops"] == own.origin["active_parameters"] == "claim"


def test_a_run_of_the_model_can_decide(tmp_path: Path) -> None:
    run = '[[A.run]]\nname = "batch {}"\nmetric = "output_tokens_per_s"\nsettings = ["request.batch={}"]\nat_least = {}'
    claim = "peak_tops = 1000\nactive_parameters = 8e9\n"
    for batch, bound, verdict in ((1, 0.1, "HOLDS"), (1, 1e6, "FAIL")):
        found = audit(load_claims(small(tmp_path, head=LINKED, claim=claim + run.format(batch, batch, bound)))).judged[0]
        assert found.verdict == verdict
        assert found.runs[0].value is not None
        assert found.runs[0].value > 0.1
    full = audit(load_claims(small(tmp_path, head=LINKED, claim=claim + run.format(100000, 100000, 0.1)))).judged[0]
    assert full.runs[0].value is None
    assert "hbm" in full.runs[0].refusal


def test_a_run_that_fails_goes_over_a_bound(tmp_path: Path) -> None:
    """Arithmetic finds a batch; the model, asked for the same rate, does not reach it."""
    figures = "bandwidth_gb_per_s = 1200\ncapacity_gb = 256\ncontext_tokens = 1024\n"
    run = '[[A.run]]\nname = "batch 8"\nmetric = "output_tokens_per_s"\nsettings = ["request.batch=8"]\nat_least = 1e9'
    for claim, verdict in ((figures, "CONDITIONAL"), (figures + run, "FAIL")):
        file = small(tmp_path, head=LINKED, claim=claim)
        file.write_text(file.read_text().replace('"compute_rate"', '"memory_rate"').replace("= 100\n", "= 1000\n"))
        assert audit(load_claims(file)).judged[0].verdict == verdict


@pytest.mark.parametrize(
    ("claim", "figures", "verdict"),
    [
        ("C10", {"best_measured_fraction": 0.8}, "FAIL"),  # more than anybody measured is no gain of prefetching
        ("C10", {"latency_ns": 4e5}, "FAIL"),  # nor is one whose bytes in flight do not fit
        ("C10", {"sram_mb": 2e5}, "HOLDS"),
        ("C11", {"speedup": 5.0}, "FAIL"),
        ("C11", {"speedup": 1.9}, "HOLDS"),
        ("C12", {"used_gb_per_s": 60.0}, "FAIL"),
        ("C12", {"used_gb_per_s": 0.05}, "HOLDS"),
        ("C18", {"saving_ms": 100.0}, "FAIL"),
        ("C18", {"saving_ms": 0.1}, "FAIL"),
        ("C22", {"flip_probability": 1e-6}, "FAIL"),
        ("C22", {"flip_probability": 1e-6, "layers_noise_db": 20.0}, "CONDITIONAL"),
        ("C22", {"layers_noise_db": 20.0}, "HOLDS"),
        ("C05", {"bandwidth_gb_per_s": 40000.0}, "FAIL"),
        ("C05", {"bandwidth_gb_per_s": 6000.0}, "HOLDS"),
        ("C09", {"deployments": 2.3}, "HOLDS"),
        ("C09", {"lowest_tokens_per_joule": 17.0}, "INCONSISTENT"),
        ("C06", {"power_w": 80.0}, "HOLDS"),
        ("C06", {"power_w": 100.0}, "FAIL"),
        ("C06", {"printed_unit": "tokens/J"}, "UNDER-SPECIFIED"),
        ("C25", {"sync_ms": 1e6}, "CONDITIONAL"),
    ],
)
def test_other_figures_give_other_verdicts(claim: str, figures: dict[str, Any], verdict: str, hetero: Audit) -> None:
    judged = next(j for j in hetero.judged if j.claim.name == claim)
    assert JUDGES[judged.claim.kind](attrs.evolve(judged.base.figures, **figures)).verdict == verdict


BAD: list[tuple[str, dict[str, str], tuple[str, ...]]] = [
    ("typo in a figure", {"claim": "peak_top = 1"}, ("A.peak_top: unknown key, did you mean peak_tops?",)),
    ("figure of another kind", {"claim": "sram_mb = 1"}, ("A.sram_mb: unknown key; known: rate_tokens_per_s",)),
    ("figure of no kind", {"stated": "colour = 1"}, ("stated.colour: unknown key; no kind of claim has it",)),
    ("typo in a shared figure", {"stated": "capcity_gb = 1"}, ("stated.capcity_gb: unknown key, did you mean capacity_gb?",)),
    ("zero", {"claim": "peak_tops = 0"}, ("A.peak_tops: 0, must be > 0",)),
    ("text for a number", {"claim": 'peak_tops = "12"'}, ('A.peak_tops: "12", must be a number',)),
    ("infinity", {"claim": "peak_tops = inf"}, ("A.peak_tops: Infinity, must be finite",)),
    ("unknown format", {"stated": 'weights = "int9"'}, ('stated.weights: "int9", must be one of', "did you mean int8?")),
    ("two at once", {"claim": "peak_tops = 0", "stated": "x = 1"}, ("2 problems", "A.peak_tops", "stated.x")),
    ("unknown kind", {"claim": "\n[B]\nkind = 'compute_rat'"}, ('B.kind: "compute_rat", must be one of', "compute_rate?")),
    ("no kind", {"claim": "\n[B]\nstatement = 'x'"}, ("B.kind: missing: must be one of peak_identity",)),
    ("no statement", {"claim": "\n[B]\nkind = 'multiple'"}, ("B.statement: missing", "B.source: missing")),
    (
        "no table",
        {"claim": "", "head": "", "stated": "[B]\n[[C]]"},
        ("B.kind: missing", "C: [{}], must be a table, for a claim"),
    ),
    ("against nobody", {"claim": 'against = ["a"]'}, ('A.against: "a", no such claim, did you mean A?',)),
    ("against itself", {"claim": 'against = ["A"]'}, ('A.against: "A", no such claim',)),
    ("case without a name", {"claim": "[[A.what_if]]\npeak_tops = 1"}, ("A.what_if.name: missing",)),
    ("typo in a case", {"claim": "[[A.reading]]\nname = 'x'\npeak_top = 1"}, ("A.reading.peak_top: unknown key, did you",)),
    ("cases are a table", {"claim": "[A.reading]\nname = 'x'"}, ("A.reading:", "must be a list of tables, [[A.reading]]")),
    ("run without a chip", {"claim": "[[A.run]]\nname = 'x'\nmetric = 'power_w'"}, ("A.run: needs claims.chip and",)),
    ("unknown metric", {"claim": "[[A.run]]\nname = 'x'\nmetric = 'power'"}, ('A.run.metric: "power", must be one of',)),
    (
        "setting without a table",
        {"head": LINKED, "claim": "[[A.run]]\nname = 'x'\nmetric = 'power_w'\nsettings = ['batch=1']"},
        ('A.run.settings: "batch=1", must look like table.key=value',),
    ),
    (
        "setting of nothing",
        {"head": LINKED, "claim": "[[A.run]]\nname = 'x'\nmetric = 'power_w'\nsettings = ['npu.rowz=1']"},
        ("A.run.settings: npu.rowz: unknown key, did you mean rows?",),
    ),
    ("evaluation of nothing", {"claim": "\n[B]\nkind='evaluation'\nstatement='x'\nsource='x'"}, ("B.run: missing: a run",)),
    ("peaks of no chip", {"claim": 'peaks = ["npu.int8"]'}, ('A.peaks: "npu.int8", needs claims.chip',)),
    ("no such peak", {"head": LINKED, "claim": 'peaks = ["npu.int4"]'}, ('A.peaks: "npu.int4", no such peak, did you mean',)),
    ("peaks are text", {"claim": 'peaks = "npu.int8"'}, ('A.peaks: "npu.int8", must be a list such as',)),
    ("no such chip", {"head": 'chip = "none.toml"'}, ("claims.chip: ", "none.toml, file: does not exist")),
    ("chip is a number", {"head": "chip = 3"}, ("claims.chip: 3, must be the path of a chip file",)),
    ("chip is a workload", {"head": LINKED.splitlines()[1].replace("workload =", "chip =")}, ("is a workload, where a chip",)),
    ("unknown key of the file", {"head": 'titel = "x"'}, ("claims.titel: unknown key, did you mean title?",)),
]


@pytest.mark.parametrize(("parts", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_claims_file(
    parts: dict[str, str], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, report = small(tmp_path, **parts), tmp_path / "out/report.md"
    assert main(["audit", str(file), "-o", str(report)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert not report.parent.exists()
    assert re.match(rf"error: {re.escape(str(file))}: \d+ problems?\n  ", printed.err)
    assert [word for word in words if word not in printed.err] == [], printed.err


def test_a_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(ROOT / "chips/hetero_v1.toml")]) == 2
    assert "file: must have a [claims] table and one table per claim; it has chip, gpu" in capsys.readouterr().err
    (tmp_path / "x.toml").write_text('[claims]\nname = "x"\nsource = "x"\n')
    assert main(["audit", str(tmp_path / "x.toml")]) == 2
    assert "must have at least one claim, such as [C01]" in capsys.readouterr().err


@pytest.mark.parametrize("good", [HETERO, NORTHPOLE], ids=["hetero_v1", "northpole"])
def test_random_damage_is_judged_or_refused(good: Path, tmp_path: Path) -> None:
    """Runs are taken out, which cost a second each; everything else is damaged."""
    text = re.sub(r"\[\[\w+\.run\]\]\n(?:[^\[\n].*\n)+", "", good.read_text(encoding="utf-8"))
    text = text.replace('"../', f'"{(ROOT / "chips").as_posix()}/')
    dice, file, refusals = random.Random(21), tmp_path / "damaged.toml", 0
    judge: Callable[[], object] = lambda: as_json(audit(load_claims(file)))  # noqa: E731
    for _ in range(200):
        data = text.encode()
        for _ in range(dice.randint(1, 3)):
            data = damaged(dice, data) or b"\n"
        file.write_bytes(data)
        message = refusal(judge)
        refusals += bool(message)
        assert not message or str(file) in message
    assert 60 < refusals < 200


def test_the_command_prints_and_writes(hetero: Audit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "deep/report.md"
    assert main(["audit", str(NORTHPOLE), "-o", str(report)]) == 0
    printed = capsys.readouterr().out
    assert "13 claims: 10 HOLDS, 1 FAIL, 2 UNDER-SPECIFIED" in printed
    assert "28,356" in report.read_text(encoding="utf-8")
    assert main(["audit", str(NORTHPOLE), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert found["counts"] == {"HOLDS": 10, "FAIL": 1, "UNDER-SPECIFIED": 2}
    rate = next(claim for claim in found["claims"] if claim["claim"] == "rate")
    assert rate["given"]["rate_tokens_per_s"] == {"value": 28356.0, "from": "stated"}
    assert json.dumps(as_json(hetero), allow_nan=False)


def test_settings_change_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """The rack's peak holds at the figure of a card that it means; 8B parameters fail twice, for want of capacity."""
    assert main(["audit", str(NORTHPOLE), "--set", "rack_peak.each=399.3e12", "--set", "stated.parameters=8e9"]) == 0
    assert "13 claims: 9 HOLDS, 2 FAIL, 2 UNDER-SPECIFIED" in capsys.readouterr().out
    assert main(["audit", str(NORTHPOLE), "--set", "rack_peak.eech=1"]) == 2
    assert "rack_peak.eech: unknown key, did you mean each?" in capsys.readouterr().err


#: least bandwidth [GB/s] and capacity [GB] of a phone, and of chips whose memory beside the cells is small, by their files
LITTLE = {
    "northpole": (100, 0.1), "gddr6_aim": (100, 1), "loihi2": (100, 0.06), "tianjic": (100, 0.06), "spinnaker2": (10, 2),
    "snapdragon_8_gen3": (60, 8),
}  # fmt: skip


@pytest.mark.parametrize("chip", sorted((ROOT / "chips").glob("*.toml")), ids=lambda file: file.stem)
def test_every_chip_and_workload_gives_figures(chip: Path, tmp_path: Path) -> None:
    for workload in (ROOT / "workloads").glob("*.toml"):
        head = f'chip = "{chip.as_posix()}"\nworkload = "{workload.as_posix()}"'
        found = chip_figures(load_claims(small(tmp_path, head=head, claim="peak_tops = 1")))
        bandwidth, capacity = LITTLE.get(chip.stem, (100, 8))
        assert found["bandwidth_gb_per_s"] > bandwidth
        assert found["capacity_gb"] >= capacity
        assert found["parameters"] >= found["active_parameters"] > 1e7


def test_kinds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--kinds"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in (*KINDS, "memory_energy_pj_per_bit", "pJ/bit", "must be stated") if name not in printed] == []


def test_the_report_in_the_repository_is_current(hetero: Audit) -> None:
    """All but the figures of runs, which move when the model does."""

    def settled(text: str) -> list[str]:
        return [line for line in text.splitlines() if "the model behind `eval`" not in line and "Generated by" not in line]

    written = (ROOT / "reports/claims_audit.md").read_text(encoding="utf-8")
    assert settled(written) == settled("\n".join(markdown(hetero)))
