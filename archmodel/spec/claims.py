"""A claims file: what somebody states of a chip, and the figures that each claim rests on.

`[claims]` names the file and may name a chip and a workload, `[stated]` holds figures that several claims share, and every
other table is one claim. A figure is taken from the claim, else from `[stated]`, else from the chip and the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.spec.chip import ChipSpec
from archmodel.spec.claim_kinds import KINDS
from archmodel.spec.claim_rates import Figures
from archmodel.spec.fields import choice, fitted, names, nearest, number, shown, text
from archmodel.spec.reader import build
from archmodel.spec.toml import Overrides, apply_overrides, load_chip, load_workload, parse_overrides, read_table
from archmodel.spec.workload import WorkloadSpec

#: figures of a run of the model that a claim may be held against, in the unit that ends their name
METRICS = ("output_tokens_per_s", "input_tokens_per_s", "time_to_first_token_s", "time_per_output_token_s", "total_s",
           "tokens_per_joule", "power_w")  # fmt: skip

Read = TypeVar("Read")


@attrs.frozen(kw_only=True)
class RunSpec:
    """A run of the model behind `eval`, on the chip and the workload of the file."""

    name: str = text("what is run", required=True)
    metric: str = choice("figure of the run", *METRICS)
    settings: tuple[str, ...] = names("changes to chip and workload, as --set takes them", default=())
    at_least: float = number("what the figure must reach; 0 is no bound", at_least=0, default=0.0)
    at_most: float = number("what the figure may be; 0 is no bound", at_least=0, default=0.0)


@attrs.frozen(kw_only=True)
class CaseSpec:
    """A reading that the statement leaves open, or a change to it: figures that go over those of the claim."""

    name: str = text("how it is read, or what is changed", required=True)
    given: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class ClaimSpec:
    """One claim. `given` are its own figures, checked one by one; the kind says which it needs."""

    name: str
    kind: str
    statement: str = text("the claim, in words", required=True)
    source: str = text("who says so, and where every other figure comes from", required=True)
    remark: str = text("what a reader should know besides", default="")
    holds_as: str = text("what holds of it, where a part of it does", default="")
    against: tuple[str, ...] = names("other claims that it cannot be true with where it fails", default=())
    given: Mapping[str, Any]
    readings: tuple[CaseSpec, ...]
    what_ifs: tuple[CaseSpec, ...]
    runs: tuple[RunSpec, ...]


@attrs.frozen(kw_only=True)
class ClaimsSpec:
    """All claims of a file, with the chip and the workload that they are about, where it names any."""

    name: str = text("name of what is claimed about", required=True)
    source: str = text("where the claims were read", required=True)
    title: str = text("title of the report", default="")
    about: str = text("what the chip is, for a reader who does not know it", default="")
    file: str
    chip: ChipSpec | None
    workload: WorkloadSpec | None
    chip_file: str
    workload_file: str
    stated: Mapping[str, Any]
    stated_source: str
    claims: tuple[ClaimSpec, ...]


_HEAD = tuple(f.name for f in attrs.fields(ClaimSpec) if "doc" in f.metadata)
_CASES = ("reading", "what_if", "run")
_OF_ANY_KIND = {field.name: (kind, field) for kind in KINDS.values() for field in attrs.fields(kind)}
#: names of peaks to add up instead of a figure: `peaks = ["npu.int8", "gpu.fp16"]`
PEAKS = "peaks"


def load_claims(path: str | Path, overrides: Overrides | None = None) -> ClaimsSpec:
    """The claims of a TOML file, with `overrides` (dotted key -> value) applied. Raises SpecError with all problems."""
    table = apply_overrides(read_table(path), overrides or {})
    problems: list[Problem] = []
    head = table.get("claims")
    if not isinstance(head, Mapping):
        found = f"it has {', '.join(table)}" if table else "it is empty"
        raise SpecError(str(path), [Problem("file", f"must have a [claims] table and one table per claim; {found}")])
    chip_file, chip = _linked(head, "chip", load_chip, path, problems)
    workload_file, workload = _linked(head, "workload", load_workload, path, problems)
    stated_source, stated = _stated(table.get("stated", {}), problems)
    claims = [_claim(name, body, problems) for name, body in table.items() if name not in ("claims", "stated")]
    if not claims:
        problems.append(Problem("file", "must have at least one claim, such as [C01]"))
    names_of_claims = [name for name in table if name not in ("claims", "stated")]
    for claim in claims:
        if claim is not None:
            problems += _claim_problems(claim, names_of_claims, chip is not None and workload is not None)
    spec = build(
        ClaimsSpec, {key: value for key, value in head.items() if key not in ("chip", "workload")}, "claims", problems,
        file=str(path), chip=chip, workload=workload, chip_file=chip_file, workload_file=workload_file,
        stated=stated, stated_source=stated_source, claims=tuple(claim for claim in claims if claim is not None),
    )  # fmt: skip
    if problems or spec is None:
        raise SpecError(str(path), problems)
    return spec


def _linked(
    head: Mapping[str, Any], key: str, load: Callable[[Path], Read], path: str | Path, problems: list[Problem]
) -> tuple[str, Read | None]:
    """Name and content of the file that `claims.chip` or `claims.workload` names, relative to the claims file."""
    if key not in head:
        return "", None
    file = head[key]
    if not isinstance(file, str) or not file:
        problems.append(Problem(f"claims.{key}", f"must be the path of a {key} file", shown(file)))
        return "", None
    try:
        return file, load(Path(path).parent / file)
    except SpecError as error:
        problems += [Problem(f"claims.{key}: {error.file}, {p.key}", p.rule, p.value) for p in error.problems]
        return file, None


def _stated(table: Any, problems: list[Problem]) -> tuple[str, dict[str, Any]]:
    if not isinstance(table, Mapping):
        problems.append(Problem("stated", "must be a table", shown(table)))
        return "", {}
    figures = {key: value for key, value in table.items() if key != "source"}
    source = table.get("source", "")
    if figures and (not isinstance(source, str) or not source.strip()):
        problems.append(Problem("stated.source", "missing: who states these figures"))
    return str(source), _given(figures, None, "stated", problems)


def _given(table: Mapping[str, Any], kind: type[Figures] | None, prefix: str, problems: list[Problem]) -> dict[str, Any]:
    """Figures of a table, each checked by the rule of its field in `kind`, or in whichever kind knows it."""
    known = {f.name: (kind, f) for f in attrs.fields(kind)} if kind else _OF_ANY_KIND
    given: dict[str, Any] = {}
    for key, value in table.items():
        if key == PEAKS and "peak_tops" in known:
            if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
                problems.append(Problem(f"{prefix}.{key}", 'must be a list such as ["npu.int8", "gpu.fp16"]', shown(value)))
            else:
                given[key] = tuple(value)
        elif key not in known:
            able = nearest(key, known) or (f"; known: {', '.join(known)}" if kind else "; no kind of claim has it")
            problems.append(Problem(f"{prefix}.{key}", f"unknown key{able}"))
        else:
            given[key], wrong = fitted(known[key][0], known[key][1], value)
            if wrong:
                problems.append(Problem(f"{prefix}.{key}", wrong, shown(value)))
    return given


def _claim(name: str, body: Any, problems: list[Problem]) -> ClaimSpec | None:
    """One claim of its table, or None and problems."""
    if not isinstance(body, Mapping):
        problems.append(Problem(name, "must be a table, for a claim", shown(body)))
        return None
    kind = body.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        rule = f"must be one of {', '.join(KINDS)}{nearest(str(kind), KINDS)}"
        problems.append(Problem(f"{name}.kind", rule if "kind" in body else f"missing: {rule}", shown(kind) if kind else ""))
        return None
    before = len(problems)
    head = {key: value for key, value in body.items() if key in _HEAD}
    own = {key: value for key, value in body.items() if key not in (*_HEAD, *_CASES, "kind")}
    readings, what_ifs = (_cases(body, key, KINDS[kind], name, problems) for key in ("reading", "what_if"))
    runs = [build(RunSpec, run, f"{name}.run", problems) for run in _list(body, "run", name, problems)]
    given = _given(own, KINDS[kind], name, problems)
    claim = build(
        ClaimSpec, head, name, problems, name=name, kind=kind, given=given, readings=readings, what_ifs=what_ifs,
        runs=tuple(run for run in runs if run is not None),
    )  # fmt: skip
    return claim if len(problems) == before else None


def _list(body: Mapping[str, Any], key: str, name: str, problems: list[Problem]) -> list[Any]:
    value = body.get(key, [])
    if isinstance(value, list):
        return value
    problems.append(Problem(f"{name}.{key}", f"must be a list of tables, [[{name}.{key}]]", shown(value)))
    return []


def _cases(body: Mapping[str, Any], key: str, kind: type[Figures], name: str, problems: list[Problem]) -> tuple[CaseSpec, ...]:
    found = []
    for table in _list(body, key, name, problems):
        if not isinstance(table, Mapping):
            problems.append(Problem(f"{name}.{key}", "must be a table", shown(table)))
            continue
        given = _given({k: v for k, v in table.items() if k != "name"}, kind, f"{name}.{key}", problems)
        case = build(CaseSpec, {k: v for k, v in table.items() if k == "name"}, f"{name}.{key}", problems, given=given)
        found += [case] if case else []
    return tuple(found)


def _claim_problems(claim: ClaimSpec, others: list[str], runnable: bool) -> list[Problem]:
    """What is wrong with a claim beside the others: names of claims that are not there, runs without a chip."""
    problems = [
        Problem(f"{claim.name}.against", f"no such claim{nearest(other, others)}", shown(other))
        for other in claim.against
        if other not in others or other == claim.name
    ]
    if claim.runs and not runnable:
        problems.append(Problem(f"{claim.name}.run", "needs claims.chip and claims.workload"))
    if claim.kind == "evaluation" and not any(run.at_least or run.at_most for run in claim.runs):
        problems.append(
            Problem(f"{claim.name}.run", "missing: a run with at_least or at_most, which an evaluation is judged by")
        )
    for run in claim.runs:
        try:
            parse_overrides(run.settings)
        except SpecError as error:
            problems += [Problem(f"{claim.name}.run.settings", p.rule, shown(p.key)) for p in error.problems]
    return problems
