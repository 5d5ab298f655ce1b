"""An audit for people: markdown that stands alone, and a table for the terminal."""

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
from archmodel.report.summary import assumed, clauses
from archmodel.report.table import bullets, columns, heading
from archmodel.units import si, unit_of

_MEANING = {
    Verdict.HOLDS: "arithmetic does not exclude it",
    Verdict.CONDITIONAL: "it holds under the bound that is named, and not without it",
    Verdict.FAIL: "it needs more than there is, by the factor that is named: the largest of its inequalities",
    Verdict.UNDER_SPECIFIED: "a figure that decides is not stated; the readings show what each would mean",
    Verdict.DIMENSION: "its unit does not measure what it is about, so that it can only be read as something else",
    Verdict.INCONSISTENT: "it cannot be true together with the claims that are named",
}
#: units that read best with a prefix; others are printed as they are
_PREFIXED = ("B", "B/s", "OP/s", "s", "J", "W", "Hz", "b/s")


def quantity(value: float, unit: str) -> str:
    """A number with its unit, to three or four digits, or all of a whole number: 560 TOP/s, 4.191 billion, 28,356 tokens/s."""
    if unit in _PREFIXED:
        return si(value, unit)
    if not unit and abs(value) >= 1e7:
        return f"{value / 1e9:,.4g} billion"
    if math.isfinite(value) and value != int(value):
        value = float(f"{value:.4g}")
    return f"{value:,.10g} {unit}".strip()


def inequality(check: Check) -> str:
    """Both sides of a check with their numbers, and the relation that they really have."""
    left, right = quantity(check.needed, check.unit), quantity(check.available, check.unit)
    if check.holds and check.needed > check.available * (1.0 + 1e-9):
        sign = f"within {check.tolerance_fraction:.1%} of"
    else:
        sign = "<=" if check.holds else ">"
    return f"{left} ({check.needed_is}) {sign} {right} ({check.available_is})"


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
    if verdict == Verdict.INCONSISTENT and finding is not None:
        within = " and ".join(f"the {check.available_is}" for check in finding.checks if not check.holds)
        words += f" with {others or within}"
    elif verdict == Verdict.FAIL and others:
        words += f", and excludes {others}"
    return words


def words_of(judged: Judged) -> str:
    return verdict_words(judged.verdict, judged.base.finding, judged.bound, judged.claim.against)


def _reason(judged: Judged) -> str:
    """The inequality that decides, or what is missing."""
    if judged.base.missing:
        wanted = "not stated: " + "; ".join(word.partition(":")[0] for word in judged.base.missing)
        return "; ".join([wanted, *(f"{case.name}: {_decisive(case)}" for case in judged.readings)])
    failing = [case for case in judged.readings if case.verdict == Verdict.FAIL]
    if judged.base.verdict == Verdict.HOLDS and failing:
        return f"{_decisive(judged.base)}; but {failing[0].name}: {_decisive(failing[0])}"
    return _decisive(judged.base)


def _decisive(case: Case) -> str:
    """The check that fails by most, or that is closest to it; where there is none, the figures."""
    if case.finding is None:
        return "not stated: " + "; ".join(case.missing)
    if not case.finding.checks:
        return "; ".join(f"{figure.name}: {quantity(figure.value, figure.unit)}" for figure in case.finding.figures)
    broken = [check for check in case.finding.checks if not check.holds]
    return inequality(max(broken or case.finding.checks, key=lambda check: check.factor))


def flips_of(judged: Judged) -> list[str]:
    """Conditions that would flip the verdict, and the readings and changes of the file that do."""
    if judged.verdict == Verdict.HOLDS:
        return []
    by_figure = [condition(flip) for flip in judged.base.finding.flips] if judged.base.finding else []
    better = (Verdict.HOLDS,) if judged.verdict == Verdict.CONDITIONAL else (Verdict.HOLDS, Verdict.CONDITIONAL)
    return by_figure + [case.name for case in (*judged.readings, *judged.what_ifs) if case.verdict in better]


def _run_words(run: Run) -> str:
    value = run.refusal if run.value is None else quantity(run.value, unit_of(run.spec.metric))
    return f"{run.spec.name}: {run.spec.metric} {value}"


def table(audit: Audit) -> Group:
    """For the terminal: one row a claim, then what would flip each that does not hold."""
    rows = [[j.claim.name, words_of(j), j.claim.statement, _reason(j)] for j in audit.judged]
    parts: list[RenderableType] = [Text(audit.spec.title or f"Claims about {audit.spec.name}", style="bold"), Text("")]
    parts.append(columns(["claim", "<verdict", "<what is claimed", "<the numbers"], rows))
    lines = [f"{j.claim.name}: {'; or '.join(flips)}" for j in audit.judged if (flips := flips_of(j))]
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

    def write(part: Path) -> None:
        part.write_text(text, encoding="utf-8")

    write_whole({Path(path): write})


def markdown(audit: Audit) -> Iterator[str]:
    """Lines of a report for somebody who knows neither the chip nor this program."""
    spec = audit.spec
    yield f"# {spec.title or f'Audit of the claims about {spec.name}'}\n"
    if spec.about:
        yield f"{spec.about}\n"
    yield f"What was read: {spec.source}. {_count(audit)}.\n"
    yield (
        "Each claim is turned into inequalities, what it needs against what there is, and judged by their numbers. An "
        "operation is a multiply or an add, so that a token costs two for each parameter it meets. GB is 1e9 bytes. "
        "Tokens per joule are tokens a second per watt. *Default* is a figure that nobody stated.\n"
    )
    yield from _cells(["verdict", "what it means"], [[str(verdict), words] for verdict, words in _MEANING.items()])
    yield "\n## All claims\n"
    yield from _cells(
        ["claim", "what is claimed", "verdict", "the numbers"],
        [
            [f"[{j.claim.name}](#{j.claim.name.lower()})", j.claim.statement, f"**{words_of(j)}**", _reason(j)]
            for j in audit.judged
        ],
    )
    yield from _together(audit)
    if spec.stated:
        yield f"Figures that several claims share: {_stated(spec.stated)}. Source: {spec.stated_source}.\n"
    if spec.chip is not None:
        yield f"Figures marked *chip* are from `{spec.chip_file}`; `python -m archmodel show` lists what it assumes.\n"
    yield "## One by one"
    for judged in audit.judged:
        yield from _section(judged)
    yield f"\nGenerated by `python -m archmodel audit {Path(spec.file).as_posix()}`."


def _together(audit: Audit) -> Iterator[str]:
    """Which claims can be true, and which not together."""
    by_verdict = {verdict: [j.claim.name for j in audit.judged if j.verdict == verdict] for verdict in Verdict}
    yield ""
    for verdict, words in ((Verdict.HOLDS, "Not excluded"), (Verdict.CONDITIONAL, "Not excluded under their bounds")):
        if by_verdict[verdict]:
            yield f"- {words}: {', '.join(by_verdict[verdict])}."
    broken = (Verdict.FAIL, Verdict.INCONSISTENT)
    pairs = [
        f"{j.claim.name} with {' and '.join(j.claim.against)}" for j in audit.judged if j.claim.against and j.verdict in broken
    ]
    if pairs:
        yield f"- Cannot be true together: {'; '.join(pairs)}."
    yield ""


def _stated(given: Any) -> str:
    return ", ".join(f"{key} = {_value(value)}" for key, value in given.items())


def _name(judged: Judged) -> str:
    return judged.claim.name


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
    claim = judged.claim
    yield f"\n### {claim.name}\n"
    yield f"{claim.statement}.\n"
    yield f"**{words_of(judged)}.** {claim.remark}".rstrip() + "\n"
    if judged.base.missing:
        yield from (f"- not stated: {word}" for word in judged.base.missing)
    finding = judged.base.finding
    if finding is not None:
        yield from (f"- {inequality(check)}" for check in finding.checks)
        yield from (f"- {figure.name}: {quantity(figure.value, figure.unit)}" for figure in finding.figures)
    if flips := flips_of(judged):
        yield f"- nearest conditions that would flip it: {'; or '.join(flips)}"
    yield from (f"- the model behind `eval`, {_run_words(run)}" for run in judged.runs)
    for title, cases in (("read as", judged.readings), ("if instead", judged.what_ifs)):
        if cases:
            yield ""
            yield from _cells([title, "verdict", "the numbers"], [_case_cells(other) for other in cases])
    yield ""
    yield from _basis(judged)


def _case_cells(case: Case) -> list[str]:
    return [case.name, verdict_words(case.verdict, case.finding, case.finding.partly if case.finding else ""), _decisive(case)]


def _basis(judged: Judged) -> Iterator[str]:
    """Where the claim and each of its figures are from, and what is assumed."""
    base = judged.base
    given = attrs.asdict(base.figures) if base.figures is not None else {}
    stated = {name: value for name, value in given.items() if value or name in base.origin}  # 0 is not stated
    figures = [f"{name} = {_value(value)} ({base.origin.get(name, 'default')})" for name, value in stated.items()]
    known = [clause for clause in clauses(judged.claim.source) if not clause.startswith("assumption:")]
    yield f"- sources: {'; '.join(known)}."
    if assumptions := assumed(judged.claim.source):
        yield f"- assumed: {'; '.join(assumptions)}."
    if figures:
        yield f"- figures: {', '.join(figures)}."
