"""An audit for people and for scripts: markdown that stands alone, a table for the terminal, and JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
from rich.console import Group, RenderableType
from rich.text import Text

from archmodel.audit.finding import Check, Finding, Flip, Verdict
from archmodel.audit.judge import Audit, Case, Judged, Run
from archmodel.report.files import write_whole
from archmodel.report.summary import assumed
from archmodel.report.table import bullets, columns, heading
from archmodel.units import si, unit_of

_MEANING = {
    Verdict.HOLDS: "arithmetic does not exclude it",
    Verdict.CONDITIONAL: "it holds under the bound that is named, and not without it",
    Verdict.FAIL: "it needs more than there is, by the factor that is named",
    Verdict.UNDER_SPECIFIED: "a figure that decides is not stated; the readings show what each would mean",
    Verdict.DIMENSION: "its unit is not one of what it is about",
    Verdict.INCONSISTENT: "it cannot be true together with the claims that are named",
}
#: units that read best with a prefix; others are printed as they are
_PREFIXED = ("B", "B/s", "OP/s", "s", "J", "W", "Hz", "b/s")


def quantity(value: float, unit: str) -> str:
    """A number with its unit, to four digits: 560 TOP/s, 4.191 billion, 2,800 tokens/s."""
    if unit in _PREFIXED:
        return si(value, unit)
    if not unit and abs(value) >= 1e7:
        return f"{value / 1e9:,.4g} billion"
    rounded = float(f"{value:.4g}") if math.isfinite(value) else value
    return f"{rounded:,.10g} {unit}".strip()


def inequality(check: Check) -> str:
    """Both sides of a check with their numbers, and the relation that they really have."""
    sign = "<=" if check.holds else ">"
    left, right = quantity(check.needed, check.unit), quantity(check.available, check.unit)
    return f"{check.needed_is} {left} {sign} {check.available_is} {right}"


def condition(flip: Flip) -> str:
    return f"{flip.what} {flip.relation} {quantity(flip.value, flip.unit)}"


def verdict_words(verdict: Verdict, finding: Finding | None, bound: str = "", against: Iterable[str] = ()) -> str:
    """The verdict with what belongs to it: a factor, a bound, or the claims that it contradicts."""
    words = str(verdict)
    if verdict == Verdict.FAIL and finding is not None and math.isfinite(finding.factor):
        factor = finding.factor
        words += f" by {factor:.0f}x" if factor >= 10.0 else f" by {factor:.3g}x"
    if verdict == Verdict.CONDITIONAL and bound:
        words += f": {bound}"
    others = ", ".join(against)
    if others and verdict in (Verdict.FAIL, Verdict.INCONSISTENT):
        words += f" with {others}" if verdict == Verdict.INCONSISTENT else f", and excludes {others}"
    return words


def _words(judged: Judged) -> str:
    finding = _deciding(judged).finding
    return verdict_words(judged.verdict, finding, judged.bound, judged.claim.against)


def _deciding(judged: Judged) -> Case:
    """The case that stands for a claim: as stated, or the reading that comes closest where nothing as stated can be judged."""
    if judged.base.finding is not None or not judged.readings:
        return judged.base
    found = [case for case in judged.readings if case.finding is not None]
    return min(found, key=lambda case: case.finding.factor if case.finding else math.inf, default=judged.base)


def _reason(judged: Judged) -> str:
    """The inequality that decides, or what is missing."""
    if judged.base.missing:
        return "not stated: " + "; ".join(word.partition(":")[0] for word in judged.base.missing)
    finding = judged.base.finding
    if finding is None:
        return ""
    if not finding.checks:
        return "; ".join(f"{figure.name}: {quantity(figure.value, figure.unit)}" for figure in finding.figures)
    broken = [check for check in finding.checks if not check.holds]
    return inequality(max(broken, key=lambda check: check.factor) if broken else finding.checks[0])


def _flips(judged: Judged) -> list[str]:
    """Conditions that would flip the verdict, and changes in the file that do."""
    if judged.verdict == Verdict.HOLDS:
        return []
    case = _deciding(judged)
    by_figure = [condition(flip) for flip in case.finding.flips] if case.finding else []
    good = (Verdict.HOLDS, Verdict.CONDITIONAL)
    return by_figure + [change.name for change in judged.what_ifs if change.verdict in good and case.verdict not in good]


def _run_words(run: Run) -> str:
    value = run.refusal if run.value is None else quantity(run.value, unit_of(run.spec.metric))
    return f"{run.spec.name}: {run.spec.metric} {value}"


def table(audit: Audit) -> Group:
    """For the terminal: one row a claim, then what would flip each that does not hold."""
    rows = [[j.claim.name, _words(j), j.claim.statement, _reason(j)] for j in audit.judged]
    parts: list[RenderableType] = [Text(audit.spec.title or f"Claims about {audit.spec.name}", style="bold"), Text("")]
    parts.append(columns(["claim", "<verdict", "<what is claimed", "<the numbers"], rows))
    lines = [f"{j.claim.name}: {'; or '.join(flips)}" for j in audit.judged if (flips := _flips(j))]
    runs = [f"{j.claim.name}: {_run_words(run)}" for j in audit.judged for run in j.runs]
    for title, found in (("What would flip a verdict", lines), ("What the model of eval says", runs)):
        if found:
            parts += [heading(title), *bullets(found)]
    return Group(*parts, Text(f"\n{_count(audit)}"))


def _count(audit: Audit) -> str:
    count = Counter(j.verdict for j in audit.judged)
    found = ", ".join(f"{count[verdict]} {verdict}" for verdict in Verdict if count[verdict])
    return f"{len(audit.judged)} claim{'s' if len(audit.judged) > 1 else ''}: {found}"


def write_markdown(audit: Audit, path: str | Path) -> None:
    """Write the report, whole or not at all. Raises OutputError where it cannot be written."""
    text = "\n".join(markdown(audit)) + "\n"
    write_whole({Path(path): lambda part: part.write_text(text, encoding="utf-8") and None})


def markdown(audit: Audit) -> Iterator[str]:
    """Lines of a report for somebody who knows neither the chip nor this program."""
    spec = audit.spec
    yield f"# {spec.title or f'Audit of the claims about {spec.name}'}\n"
    if spec.about:
        yield f"{spec.about}\n"
    yield f"What was read: {spec.source}. {_count(audit)}.\n"
    yield (
        "Each claim is turned into one inequality, what it needs against what there is, and judged by its two numbers. An operation "
        "is a multiply or an add, so that a token costs two operations for each parameter it is multiplied with. GB is 1e9 bytes. "
        "Tokens per joule are tokens a second per watt.\n"
    )
    yield from _cells(["verdict", "what it means"], [[str(verdict), words] for verdict, words in _MEANING.items()])
    yield "\n## All claims\n"
    yield from _cells(
        ["claim", "what is claimed", "verdict", "the numbers"],
        [
            [f"[{j.claim.name}](#{j.claim.name.lower()})", j.claim.statement, f"**{_words(j)}**", _reason(j)]
            for j in audit.judged
        ],
    )
    if spec.stated:
        yield f"\nFigures that several claims share: {_stated(spec.stated)}. Source: {spec.stated_source}.\n"
    if spec.chip is not None:
        yield f"Figures marked *chip* are those of `{spec.chip_file}`, whose own assumptions `python -m archmodel show` lists.\n"
    yield "## One by one"
    for judged in audit.judged:
        yield from _section(judged)
    yield f"\nGenerated by `python -m archmodel audit {Path(spec.file).as_posix()}`."


def _stated(given: Any) -> str:
    return ", ".join(f"{key} = {_value(value)}" for key, value in given.items())


def _value(value: Any) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return quantity(float(value), "")
    if isinstance(value, dict):
        return ", ".join(f"{key} {item:g}" for key, item in value.items())
    return ", ".join(str(item) for item in value) if isinstance(value, tuple) else str(value)


def _cells(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    for cells in (header, ["---"] * len(header), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _section(judged: Judged) -> Iterator[str]:
    """One claim: verdict, inequalities, figures, conditions, cases, runs, and what all of it rests on."""
    claim, case = judged.claim, _deciding(judged)
    yield f"\n### {claim.name}\n"
    yield f"{claim.statement}.\n"
    yield f"**{_words(judged)}.** {claim.remark}".rstrip() + "\n"
    if judged.base.missing:
        yield from (f"- not stated: {word}" for word in judged.base.missing)
    finding = judged.base.finding
    if finding is not None:
        yield from (f"- {inequality(check)}" for check in finding.checks)
        yield from (f"- {figure.name}: {quantity(figure.value, figure.unit)}" for figure in finding.figures)
    if flips := _flips(judged):
        of = "" if case is judged.base else f" (read as: {case.name})"
        yield f"- nearest conditions that would flip it{of}: {'; or '.join(flips)}"
    yield from (f"- the model behind `eval`, {_run_words(run)}" for run in judged.runs)
    for title, cases in (("read as", judged.readings), ("if instead", judged.what_ifs)):
        if cases:
            yield ""
            yield from _cells([title, "verdict", "the numbers"], [_case_cells(other) for other in cases])
    yield f"\nRests on: {_basis(judged, case)}"


def _case_cells(case: Case) -> list[str]:
    if case.finding is None:
        return [case.name, str(case.verdict), "not stated: " + "; ".join(case.missing)]
    words = verdict_words(case.verdict, case.finding, case.finding.partly)
    broken = [check for check in case.finding.checks if not check.holds]
    decisive = max(broken, key=lambda check: check.factor) if broken else next(iter(case.finding.checks), None)
    return [case.name, words, inequality(decisive) if decisive else ""]


def _basis(judged: Judged, case: Case) -> str:
    """The source of a claim, and each figure with where it is from."""
    given = attrs.asdict(case.figures) if case.figures is not None else {}
    figures = [f"{name} = {_value(value)} ({case.origin.get(name, 'default')})" for name, value in given.items()]
    return "; ".join([judged.claim.source, *([", ".join(figures)] if figures else [])]) + "."


def as_json(audit: Audit) -> dict[str, Any]:
    """The audit for scripts. A factor that is infinite is null; names of figures and of bounds are words, with their unit."""
    spec = audit.spec
    return {
        "name": spec.name,
        "source": spec.source,
        "file": spec.file,
        "chip": spec.chip_file or None,
        "workload": spec.workload_file or None,
        "counts": dict(Counter(str(j.verdict) for j in audit.judged)),
        "claims": [_json_claim(judged) for judged in audit.judged],
    }


def _json_claim(judged: Judged) -> dict[str, Any]:
    claim = judged.claim
    return {
        "claim": claim.name,
        "kind": claim.kind,
        "statement": claim.statement,
        "verdict": str(judged.verdict),
        "in_words": _words(judged),
        "bound": judged.bound or None,
        "against": list(claim.against),
        "flips_in_words": _flips(judged),
        **_json_case(judged.base),
        "readings": [_json_case(case) for case in judged.readings],
        "what_ifs": [_json_case(case) for case in judged.what_ifs],
        "runs": [
            {"name": run.spec.name, "metric": run.spec.metric, "settings": list(run.spec.settings), "value": run.value,
             "refusal": run.refusal or None}
            for run in judged.runs
        ],
        "assumptions": assumed(claim.source),
        "source": claim.source,
        "remark": claim.remark,
    }  # fmt: skip


def _json_case(case: Case) -> dict[str, Any]:
    finding = case.finding
    given = attrs.asdict(case.figures) if case.figures is not None else {}
    return {
        "case": case.name,
        "case_verdict": str(case.verdict),
        "factor": _finite(finding.factor) if finding and finding.checks else None,
        "missing": list(case.missing),
        "checks": [
            {**{key: _finite(value) for key, value in attrs.asdict(check).items()}, "holds": check.holds,
             "factor": _finite(check.factor)}
            for check in (finding.checks if finding else ())
        ],
        "figures": [{**attrs.asdict(f), "value": _finite(f.value)} for f in (finding.figures if finding else ())],
        "flips": [{**attrs.asdict(f), "value": _finite(f.value)} for f in (finding.flips if finding else ())],
        "given": {name: {"value": value, "from": case.origin.get(name, "default")} for name, value in given.items()},
    }  # fmt: skip


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
