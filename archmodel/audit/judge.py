"""A claims file -> verdicts. What arithmetic alone cannot settle is a run of the same model as `eval`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from archmodel.audit import energies, memories, rates, splits
from archmodel.audit.finding import Check, Finding, Verdict
from archmodel.audit.given import chip_figures, peak_tops
from archmodel.errors import MappingError, Problem, SpecError
from archmodel.evaluate import evaluate
from archmodel.spec.claim_kinds import KINDS, Evaluation
from archmodel.spec.claim_rates import Figures
from archmodel.spec.claims import PEAKS, CaseSpec, ClaimSpec, ClaimsSpec, RunSpec
from archmodel.spec.toml import WORKLOAD_TABLES, load_chip, load_workload, parse_overrides
from archmodel.units import unit_of


def evaluation(_: Evaluation) -> Finding:
    """No arithmetic: the runs of the claim are its checks."""
    return Finding(checks=())


#: kind of a claim -> its judge
JUDGES: dict[str, Callable[[Any], Finding]] = {
    "peak_identity": rates.peak_identity,
    "compute_rate": rates.compute_rate,
    "prefill_latency": rates.prefill_latency,
    "memory_rate": rates.memory_rate,
    "latency_floor": rates.latency_floor,
    "concurrency": rates.concurrency,
    "multiple": rates.multiple,
    "capacity": memories.capacity,
    "memory_technology": memories.memory_technology,
    "reuse": memories.reuse,
    "aggregate_bandwidth": memories.aggregate_bandwidth,
    "efficiency": energies.efficiency,
    "energy_floor": energies.energy_floor,
    "efficiency_baseline": energies.efficiency_baseline,
    "gain_algebra": energies.gain_algebra,
    "sparsity": energies.sparsity,
    "break_even": energies.break_even,
    "format_speedup": splits.format_speedup,
    "link_transfer": splits.link_transfer,
    "output_tail": splits.output_tail,
    "graph_crossings": splits.graph_crossings,
    "split_sync": splits.split_sync,
    "layout_growth": splits.layout_growth,
    "token_flips": splits.token_flips,
    "uneven_lengths": splits.uneven_lengths,
    "schedule_bounds": splits.schedule_bounds,
    "evaluation": evaluation,
}
assert set(JUDGES) == set(KINDS)


@attrs.frozen(kw_only=True)
class Case:
    """A claim as stated, or one reading or change of it. `origin` says where each figure is from; where figures are `missing`
    there is no finding."""

    name: str
    figures: Figures | None
    origin: Mapping[str, str]
    missing: tuple[str, ...]
    finding: Finding | None

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict if self.finding else Verdict.UNDER_SPECIFIED


@attrs.frozen(kw_only=True)
class Run:
    """A run of the model: the value of its metric, or why there is none."""

    spec: RunSpec
    value: float | None
    refusal: str
    check: Check | None


@attrs.frozen(kw_only=True)
class Judged:
    """One claim with its verdict, and the words of a bound where it is CONDITIONAL."""

    claim: ClaimSpec
    verdict: Verdict
    bound: str
    base: Case
    readings: tuple[Case, ...]
    what_ifs: tuple[Case, ...]
    runs: tuple[Run, ...]


@attrs.frozen(kw_only=True)
class Audit:
    """All claims of a file, judged."""

    spec: ClaimsSpec
    judged: tuple[Judged, ...]


def audit(spec: ClaimsSpec) -> Audit:
    """Judge every claim. Raises SpecError for peaks that the chip has not and for settings that no run can take."""
    from_chip = chip_figures(spec)
    problems: list[Problem] = []
    judged = [_judge(claim, spec, from_chip, problems) for claim in spec.claims]
    if problems:
        raise SpecError(spec.file, list(dict.fromkeys(problems)))
    return Audit(spec=spec, judged=tuple(judged))


def _judge(claim: ClaimSpec, spec: ClaimsSpec, from_chip: Mapping[str, Any], problems: list[Problem]) -> Judged:
    layers = [("chip", from_chip), ("stated", spec.stated), ("claim", claim.given)]
    runs = tuple(_run(run, claim, spec, problems) for run in claim.runs)
    checks = tuple(run.check for run in runs if run.check is not None)

    def other(case: CaseSpec) -> Case:
        return _case(case.name, claim, spec, [*layers, ("case", case.given)], (), problems)

    base = _case("as stated", claim, spec, layers, checks, problems)
    readings, what_ifs = tuple(map(other, claim.readings)), tuple(map(other, claim.what_ifs))
    verdict = _verdict(base, readings)
    bound = _bound(claim, base, readings) if verdict == Verdict.CONDITIONAL else ""
    return Judged(claim=claim, verdict=verdict, bound=bound, base=base, readings=readings, what_ifs=what_ifs, runs=runs)


def _case(
    name: str,
    claim: ClaimSpec,
    spec: ClaimsSpec,
    layers: list[tuple[str, Mapping[str, Any]]],
    checks: tuple[Check, ...],
    problems: list[Problem],
) -> Case:
    """The figures of a kind from the last of the layers that has each, judged where none is missing."""
    kind = KINDS[claim.kind]
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for where, given in layers:
        if PEAKS in given and "peak_tops" in attrs.fields_dict(kind) and "peak_tops" not in given:
            found = peak_tops(spec, given[PEAKS], claim.name, problems)
            if found is not None:
                values["peak_tops"], origin["peak_tops"] = found, f"chip, {' and '.join(given[PEAKS])}"
        fitting = {key: value for key, value in given.items() if key in attrs.fields_dict(kind)}
        values |= fitting
        origin |= dict.fromkeys(fitting, where)
    missing = tuple(
        f"{field.name}: {field.metadata['doc']}" + (f" [{unit_of(field.name)}]" if unit_of(field.name) != "1" else "")
        for field in attrs.fields(kind)
        if field.default is attrs.NOTHING and field.name not in values
    )
    if missing:
        return Case(name=name, figures=None, origin=origin, missing=missing, finding=None)
    try:
        figures = kind(**values)
    except SpecError as error:  # figures of a file that a kind bounds more tightly than the first that knows them
        problems += [Problem(f"{claim.name}.{p.key}", p.rule, p.value) for p in error.problems]
        return Case(name=name, figures=None, origin=origin, missing=(), finding=None)
    finding = JUDGES[claim.kind](figures)
    says = finding.says if all(check.holds for check in checks) else finding.says or Verdict.FAIL
    finding = attrs.evolve(finding, checks=(*finding.checks, *checks), says=says)
    return Case(name=name, figures=figures, origin=origin, missing=(), finding=finding)


def _verdict(base: Case, readings: tuple[Case, ...]) -> Verdict:
    """That of the claim as stated, or where it leaves readings open, what they agree on; CONDITIONAL where they do not."""
    said = {case.verdict for case in readings} | ({base.verdict} if base.finding else set())
    if not said or base.verdict in (Verdict.DIMENSION, Verdict.INCONSISTENT):
        return base.verdict
    if len(said) == 1:
        return said.pop()
    return Verdict.CONDITIONAL if base.finding and said & {Verdict.HOLDS, Verdict.CONDITIONAL} else base.verdict


def _bound(claim: ClaimSpec, base: Case, readings: tuple[Case, ...]) -> str:
    if claim.holds_as:
        return claim.holds_as
    if base.finding and base.finding.partly:
        return base.finding.partly
    return " or ".join(case.name for case in (base, *readings) if case.verdict in (Verdict.HOLDS, Verdict.CONDITIONAL))


def _run(run: RunSpec, claim: ClaimSpec, spec: ClaimsSpec, problems: list[Problem]) -> Run:
    """Evaluate the chip and the workload of the file with the settings of a run; its bounds become checks."""
    overrides = parse_overrides(run.settings)
    of_workload = {key: value for key, value in overrides.items() if _is_of_workload(key)}
    of_chip = {key: value for key, value in overrides.items() if not _is_of_workload(key)}
    folder = Path(spec.file).parent
    try:
        chip = load_chip(folder / spec.chip_file, of_chip)
        workload = load_workload(folder / spec.workload_file, of_workload)
    except SpecError as error:
        problems += [Problem(f"{claim.name}.run.settings: {p.key}", p.rule, p.value) for p in error.problems]
        return Run(spec=run, value=None, refusal="its settings are wrong", check=None)
    try:
        value = getattr(evaluate(chip, workload), run.metric)
    except MappingError as error:
        return Run(spec=run, value=None, refusal=" ".join(str(error).split()), check=None)
    if value is None:
        return Run(spec=run, value=None, refusal="nothing is decoded, so that there is no such time", check=None)
    words, unit = f"the model: {run.name}", unit_of(run.metric)
    check = None
    if run.at_least:
        check = Check("claimed", run.at_least, words, value, unit)
    elif run.at_most:
        check = Check(words, value, "claimed", run.at_most, unit)
    return Run(spec=run, value=value, refusal="", check=check)


def _is_of_workload(key: str) -> bool:
    """Whether a setting is for the workload; placements are the chip's."""
    table = key.partition(".")[0]
    return table in WORKLOAD_TABLES and table != "placement"
