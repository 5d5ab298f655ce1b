"""An audit for scripts: the dict that `audit --json` prints."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import attrs

from archmodel.audit.judge import Audit, Case, Judged
from archmodel.report.audit import flips_of, words_of
from archmodel.report.summary import assumed


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
        "claims": [_json_claim(judged, spec.stated_source) for judged in audit.judged],
    }


def _json_claim(judged: Judged, stated_source: str) -> dict[str, Any]:
    claim = judged.claim
    return {
        "claim": claim.name,
        "kind": claim.kind,
        "statement": claim.statement,
        "verdict": str(judged.verdict),
        "in_words": words_of(judged),
        "bound": judged.bound or None,
        "against": list(claim.against),
        "flips_in_words": flips_of(judged),
        **_json_case(judged.base),
        "readings": [_json_case(case) for case in judged.readings],
        "what_ifs": [_json_case(case) for case in judged.what_ifs],
        "runs": [
            {"name": run.spec.name, "metric": run.spec.metric, "settings": list(run.spec.settings), "value": run.value,
             "refusal": run.refusal or None}
            for run in judged.runs
        ],
        "assumptions": assumed(claim.source) + (assumed(stated_source) if "stated" in judged.base.origin.values() else []),
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
