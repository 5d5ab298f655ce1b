"""A study of a split as a plain dict, the same that `split --json` prints. Names end in their unit; what is endless is None."""

from __future__ import annotations

import math
from typing import Any

import attrs

from archmodel.report.splitting import plan_name, sentences
from archmodel.report.summary import notes, run_assumptions
from archmodel.splitting.balance import Balance
from archmodel.splitting.breakeven import BreakEven
from archmodel.splitting.compared import Compared
from archmodel.splitting.fallback import Fallback
from archmodel.splitting.ledger import Entry, Ledger
from archmodel.splitting.rest import cards
from archmodel.splitting.study import Study


def as_json(study: Study) -> dict[str, Any]:
    """Everything about a study that is a number or a name."""
    return {
        "system": study.chip.name,
        "workload": study.workload.name,
        "answer": str(study.verdict(study.best).answer),
        "sentences": sentences(study),
        "terms": attrs.asdict(study.terms),
        "baseline": {"name": study.baseline.name, "granularity": study.baseline.granularity, **_figures(study, study.baseline)},
        "best": plan_name(study.best),
        "strategies": [_strategy(study, split) for split in study.strategies],
        "refused": [{"name": name, "problem": problem} for name, problem in study.refused],
        "ledger": {phase: _ledger(ledger) for phase, ledger in study.ledgers.items()},
        "break_even": [_break_even(even) for even in study.break_evens],
        "balance": _balance(study.balance),
        "kept": {unit: {"peak_byte": peak, "arena_byte": size} for unit, (peak, size) in study.kept.items()},
        "fusion": {
            name: {"total_s": result.total_s, "traffic_byte": {tier: result.traffic_byte()[tier] for tier in result.soc.tiers}}
            for name, result in study.fusion.items()
        },
        "assumptions": run_assumptions(study.best.result, study.economics),
        "notes": notes(study.best.result),
    }


def _figures(study: Study, split: Compared) -> dict[str, float | None]:
    result, paid = split.result, study.cost(split)
    return {
        "total_s": result.total_s,
        "time_to_first_token_s": result.time_to_first_token_s,
        "time_per_output_token_s": result.time_per_output_token_s,
        "output_tokens_per_s": result.output_tokens_per_s,
        "tokens_per_joule": result.tokens_per_joule,
        "power_w": result.power_w,
        "cards": cards(result),
        "usd_per_million_tokens": paid.usd_per_million_tokens if paid else None,
    }


def _strategy(study: Study, split: Compared) -> dict[str, Any]:
    found, bound = study.verdict(split), study.bounds(split)
    least, most = bound.gains(study.baseline.result.total_s)
    return {
        "name": split.name,
        "granularity": split.granularity,
        **_figures(study, split),
        "answer": str(found.answer),
        "because": found.because,
        "gain_fraction": found.gain,
        "gain_low_fraction": found.low,
        "gain_high_fraction": found.high,
        "serial_bound_s": bound.serial_s,
        "overlapped_bound_s": bound.overlapped_s,
        "serial_bound_gain_fraction": least,
        "overlapped_bound_gain_fraction": most,
        "busiest": bound.slowest,
        "bottleneck": {phase: split.result.bottleneck(phase) for phase in split.result.phases},
        "money": _finite(attrs.asdict(found.money)) if found.money else None,
        "fallbacks": [_fallback(fallback) for fallback in study.fallbacks[split.name]],
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()}


def _ledger(ledger: Ledger) -> dict[str, Any]:
    return {
        "old_s": ledger.old_s,
        "new_s": ledger.new_s,
        "change_s": ledger.change_s,
        "entries": [_entry(entry) for entry in ledger.entries],
        "beside": [_entry(entry) for entry in ledger.beside],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {**attrs.asdict(entry), "change_s": entry.change_s}


def _break_even(even: BreakEven) -> dict[str, Any]:
    return {**attrs.asdict(even), "span": even.span}


def _balance(found: Balance | None) -> dict[str, Any] | None:
    if found is None:
        return None
    tried = [{**attrs.asdict(n), "tokens_per_s_per_card": n.tokens_per_s_per_card} for n in found.tried]
    return {**_finite(attrs.asdict(found)), "tried": tried}


def _fallback(fallback: Fallback) -> dict[str, Any]:
    result = fallback.result
    return {
        "lost": fallback.lost,
        "why": fallback.why,
        "plan": result.plan.name if result else None,
        "reload_byte": fallback.reload_byte,
        "source": fallback.source,
        "reload_s": fallback.reload_s,
        "recompute_s": fallback.recompute_s,
        "ready_s": fallback.ready_s,
        **({name: None for name in ("total_s", "output_tokens_per_s")} if result is None else
           {"total_s": result.total_s, "output_tokens_per_s": result.output_tokens_per_s}),
    }  # fmt: skip
