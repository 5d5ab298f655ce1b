"""What `split` prints for a person: the verdict in plain words, then the tables behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from archmodel.report.summary import notes, run_assumptions
from archmodel.report.table import bullets, columns, heading, money, percent, plain
from archmodel.result import Result
from archmodel.splitting.balance import Balance
from archmodel.splitting.breakeven import BreakEven
from archmodel.splitting.compared import Compared
from archmodel.splitting.fallback import Fallback
from archmodel.splitting.ledger import Entry, Ledger
from archmodel.splitting.rest import cards
from archmodel.splitting.study import Study
from archmodel.splitting.verdict import Answer, Verdict
from archmodel.units import si, unit_of

_WIDE = 130
_TOLD = 0.001  # of the time: entries below it are left out of the ledger's table
_REASONS = 4  # why strategies cannot run that are told
_COLOURS = {Answer.PAYS: "green", Answer.DOES_NOT_PAY: "red", Answer.UNDECIDED: "yellow"}
_CAUSES = {
    "compute": "{unit} computing",
    "memory": "{unit} waiting for its memory",
    "kernel_overhead": "{unit} launching and filling",
    "layout_conversion": "{unit} rewriting layouts",
    "contention": "{unit} slowed by others on its memory",
    "overlap": "units working at once",
    "transfer_exposed": "moving results while no unit works",
    "synchronisation": "synchronising while no unit works",
    "dispatch": "waiting for commands",
    "host": "host",
    "transfer_hidden": "transfers hidden behind units",
    "bubble": "{unit} idle while another unit works",
}


def report(study: Study, width: int, *, every: bool = False) -> Group:
    """All tables of a study, the answer first, for a page of `width` letters: the best of each kind, or `every` one."""
    parts: list[RenderableType] = [*_answer(study), *_strategies(study, width, every=every), *_ledger(study)]
    parts += [*_break_evens(study), *_balance(study.balance), *_fusion(study), *_kept(study), *_fallbacks(study)]
    parts += [heading("Assumptions that this rests on"), *bullets(run_assumptions(study.best.result, study.economics))]
    parts += _notes(study)
    return Group(*parts)


def signed_percent(value: float) -> str:
    return f"{100.0 * value:+.1f} %"


def words(entry: Entry) -> str:
    """What an entry of the ledger is, in words."""
    return _CAUSES[entry.cause].format(unit=entry.unit)


def sentences(study: Study) -> list[str]:
    """The answer in plain words."""
    best, old, found = study.best, study.baseline, study.verdict(study.best)
    if best.result is old.result:
        return [f"There is nothing to split: {old.name} is all that runs."]
    more = "faster" if found.gain >= 0.0 else "slower"
    error = f"{percent(found.low)} to {percent(found.high)} with the model's error of {percent(study.terms.error_fraction)}"
    lines = [
        f"The best split is: {plan_name(best)}.",
        f"It takes {si(best.result.total_s, 's')} where {old.name} takes {si(old.result.total_s, 's')}: "
        f"{percent(abs(found.gain))} {more} ({error}). At least {percent(study.terms.min_gain)} is asked for: {found.because}.",
    ]
    lines += _cards(study)
    if moves := _moves(study.ledgers["total"]):
        lines.append(moves)
    limits = ", ".join(f"in {phase} {best.result.bottleneck(phase)}" for phase in best.result.phases)
    lines.append(f"The busiest part is now {study.bounds(best).slowest}; most of the time goes to: {limits}.")
    return [*lines, *_money(study, found)]


def _cards(study: Study) -> Iterator[str]:
    """More or fewer cards than the baseline, where a system has several."""
    new, old = (cards(split.result) for split in (study.best, study.baseline))
    if new != old:
        both = (study.best, new), (study.baseline, old)
        each = [plain(split.result.output_tokens_per_s / count) for split, count in both]
        yield f"It takes {new} cards where {study.baseline.name} takes {old}: {each[0]} tokens/s a card against {each[1]}."


def plan_name(split: Compared) -> str:
    """Who does what in a strategy, without saying that a search found it."""
    return split.name.removeprefix("auto: ")


def _moves(ledger: Ledger) -> str:
    """The entries that save and that cost most."""
    told = [entry for entry in ledger.entries if abs(entry.change_s) > _TOLD * ledger.old_s]
    told.sort(key=lambda entry: entry.change_s)
    saved = [f"{words(entry)} ({si(-entry.change_s, 's')})" for entry in told if entry.change_s < 0.0][:3]
    cost = [f"{words(entry)} ({si(entry.change_s, 's')})" for entry in reversed(told) if entry.change_s > 0.0][:3]
    lines = [f"It saves by {', '.join(saved)}" if saved else "", f"it costs by {', '.join(cost)}" if cost else ""]
    text = "; ".join(line for line in lines if line)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _money(study: Study, found: Verdict) -> Iterator[str]:
    earned, terms = found.money, study.terms
    if earned is None or not (terms.engineering_usd_per_year or terms.fleet_chips):
        return
    fleet = f"a fleet of {earned.least_chips:,.0f} or more" if earned.least_chips < math.inf else "no fleet of any size"
    yield f"Engineering at {terms.engineering_usd_per_year:,.0f} USD a year is earned back by {fleet} (baseline chips)."
    if terms.fleet_chips:
        yield (f"{terms.fleet_chips:,.0f} of them save {earned.saved_usd_per_year:,.0f} USD a year, "
               f"{earned.net_usd_per_year:,.0f} after engineering.")  # fmt: skip


def _answer(study: Study) -> Iterator[RenderableType]:
    found = study.verdict(study.best)
    yield Text(f"{study.workload.name} on {study.chip.name}: does splitting pay?", style="bold")
    yield Text()
    yield Text(str(found.answer), style=f"bold {_COLOURS[found.answer]}")
    yield from bullets(sentences(study))


def _strategies(study: Study, width: int, *, every: bool) -> Iterator[RenderableType]:
    wide, priced = width >= _WIDE, study.cost(study.best) is not None
    header = ["<strategy", "total", *(["first token", "per token"] if wide else []), "tokens/s", "tokens/J",
              *(["USD/Mtok"] if priced else []), "gain", *(["gain between"] if wide else []), "<answer"]  # fmt: skip
    # what the search chose is one of the others
    found = sorted((s for s in study.strategies if s.granularity != "auto"), key=lambda s: s.result.total_s)
    yield heading(f"Strategies against {study.baseline.name} ({si(study.baseline.result.total_s, 's')})")
    first = {split.granularity: split for split in reversed(found)}
    shown = [s for s in found if every or s is first[s.granularity] or s.result is study.baseline.result]
    yield columns(header, [_strategy(study, split, wide=wide, priced=priced) for split in shown])
    if len(shown) < len(found):
        yield Text(f"The best of each kind; --all shows the {len(found) - len(shown)} others that were tried.", style="dim")
    if wide:
        yield Text("Gain between: nothing overlaps (serial bound), and all overlaps but the busiest part (overlapped bound).",
                   style="dim")  # fmt: skip


def _strategy(study: Study, split: Compared, *, wide: bool, priced: bool) -> list[str]:
    """A row of the table of strategies."""
    result, found, paid = split.result, study.verdict(split), study.cost(split)
    least, most = study.bounds(split).gains(study.baseline.result.total_s)
    return [
        f"{split.granularity}: {split.name}",
        si(result.total_s, "s"),
        *(_latencies(result) if wide else []),
        plain(result.output_tokens_per_s),
        f"{result.tokens_per_joule:.3g}",
        *([money(paid.usd_per_million_tokens) if paid else ""] if priced else []),
        signed_percent(found.gain),
        *([f"{100 * least:+.0f} … {100 * most:+.0f} %"] if wide else []),
        _answer_of(study, split),
    ]


def _answer_of(study: Study, split: Compared) -> str:
    if split.name != study.baseline.name:
        return str(study.verdict(split).answer)
    return "baseline" if cards(split.result) == cards(study.baseline.result) else "baseline, other cards idle"


def _latencies(result: Result) -> list[str]:
    each = result.time_per_output_token_s
    return [si(result.time_to_first_token_s, "s"), si(each, "s") if each is not None else ""]


def _ledger(study: Study) -> Iterator[RenderableType]:
    total = study.ledgers["total"]
    phases = {name: ledger for name, ledger in study.ledgers.items() if len(study.ledgers) > 2 or name == "total"}
    changes = {name: {entry.name: entry.change_s for entry in ledger.entries} for name, ledger in phases.items()}
    told = [entry for entry in total.entries if max(abs(entry.old_s), abs(entry.new_s)) > _TOLD * total.old_s]
    told.sort(key=lambda entry: entry.change_s)
    rows = [
        [words(entry), _ms(entry.old_s), _ms(entry.new_s), *(_change(parts.get(entry.name, 0.0)) for parts in changes.values())]
        for entry in told
    ]
    rest = [entry for entry in total.entries if entry not in told]
    others = [sum(parts.get(entry.name, 0.0) for entry in rest) for parts in changes.values()]
    rows.append(["all smaller ones", _ms(sum(e.old_s for e in rest)), _ms(sum(e.new_s for e in rest)), *map(_change, others)])
    sums = ["sum", _ms(total.old_s), _ms(total.new_s), *(_change(ledger.change_s) for ledger in phases.values())]
    yield heading(f"Where the gain of the best split comes from and leaks to, against {study.baseline.name}, in ms")
    yield columns(["", "before", "after", *(f"change {name}" for name in phases)], rows, sums)
    beside = [f"{words(entry)} {si(entry.new_s, 's')}" for entry in total.beside if entry.new_s > 0.0]
    if beside:
        yield Text(f"Not in the sum: {'; '.join(beside)}.", style="dim")


def _ms(value_s: float) -> str:
    return f"{round(1e3 * value_s, 1) + 0.0:,.1f}"


def _change(value_s: float) -> str:
    return f"{round(1e3 * value_s, 1) + 0.0:+,.1f}"


def _break_evens(study: Study) -> Iterator[RenderableType]:
    rows = [[_called(even.knob), _quantity(even, even.now), _span(even),
             f"{_quantity(even, even.low)} to {_quantity(even, even.high)}"] for even in study.break_evens]  # fmt: skip
    yield heading(f"Where the best split gains at least {percent(study.terms.min_gain)}, all else as it is")
    yield columns(["", "now", "<pays", "searched"], rows)


_UNITS = {"batch": "sequences", "input_tokens": "tokens"}
_NAMES = {"_byte_per_s": " bandwidth", "_latency_s": " latency"}


def _called(knob: str) -> str:
    for suffix, name in _NAMES.items():
        if knob.endswith(suffix):
            return knob.removesuffix(suffix) + name
    return {"dispatch_s": "a command", "kernel_gap_s": "gap between kernels", "input_tokens": "prompt"}.get(knob, knob)


def _quantity(even: BreakEven, value: float) -> str:
    if even.knob in _UNITS:
        unit = _UNITS[even.knob]
        return f"{value:,.0f} {unit.removesuffix('s') if round(value) == 1 else unit}"
    return si(value, unit_of(even.knob))


def _span(even: BreakEven) -> str:
    below, above = (_quantity(even, x) if x is not None else "" for x in (even.below, even.above))
    if even.pays_now:
        if below and above:
            return f"from {below} to {above}"
        return f"from {below}" if below else f"up to {above}" if above else "wherever it fits"
    if below or above:
        return " and ".join([*([f"up to {below}"] if below else []), *([f"from {above}"] if above else [])])
    return "nowhere in the range"


def _two(value: float) -> str:
    """Two digits: 4.5, 8,400."""
    return plain(float(f"{value:.2g}"))


def _balance(found: Balance | None) -> Iterator[RenderableType]:
    if found is None:
        return
    a, f, stages, ratio = found.attention, found.ffn, found.stages, found.units_per_ffn
    hide = "no number of micro-batches hides the transfers"
    if found.least_micro_batches is not None:
        hide = f"{found.least_micro_batches} micro-batches hide the transfers of units that are equally fast"
    best = f"1 {f} serves {_two(ratio)} {a}" if ratio >= 1.0 else f"1 {a} keeps {_two(1.0 / max(ratio, 1e-9))} {f} busy"
    parts = f"{found.micro_batches} micro-batch{'es' if found.micro_batches > 1 else ''}"
    yield heading(f"Balance of attention on {a} and FFN on {f}, in a decode step")
    yield from bullets([
        f"of a layer, {a} takes {si(stages.attention_s, 's')}, {f} {si(stages.ffn_s, 's')}, a crossing {si(stages.out_s, 's')}",
        f"{si(found.simulated_s, 's')} for all layers in {parts}; {si(found.ideal_s, 's')} in a perfect ping-pong; {hide}",
        f"best ratio of units: {best if ratio < math.inf else f'as many {a} to 1 {f} as there are'}",
    ])  # fmt: skip
    if found.tried:
        rows = [[f"{n.attention_cards:,}", f"{n.ffn_cards:,}", f"{n.batch:,}", si(n.decode_s, "s"),
                 plain(n.tokens_per_s_per_card)] for n in found.tried]  # fmt: skip
        yield columns([f"cards of {a}", f"of {f}", "sequences", "decode step", "tokens/s a card"], rows)


def _fusion(study: Study) -> Iterator[RenderableType]:
    """Time and traffic of the best plan with vector operations fused into their neighbours, and with kernels of their own."""
    if not study.fusion:
        return
    tiers = study.best.result.soc.tiers
    rows = [[name, si(result.total_s, "s"), *(si(result.traffic_byte()[tier], "B") for tier in tiers)]
            for name, result in study.fusion.items()]  # fmt: skip
    yield heading("Vector operations of the best split: time, and traffic of each tier")
    yield columns(["<", "total", *tiers], rows)


def _kept(study: Study) -> Iterator[RenderableType]:
    """Memory that each side needs for results, weights and caches apart."""
    rows = [[unit, si(peak, "B"), si(size, "B")] for unit, (peak, size) in study.kept.items()]
    yield heading(f"Results that each unit keeps in {study.best.result.steps[-1].step.label}, weights and caches apart")
    yield columns(["unit", "most at once", "room with a place for each"], rows)


def _fallbacks(study: Study) -> Iterator[RenderableType]:
    rows = []
    for fallback in study.fallbacks[study.best.name]:
        if fallback.result is None or fallback.ready_s is None:
            rows.append([fallback.lost, "out of service", "", "", "", fallback.why])
            continue
        result = fallback.result
        share = percent(study.best.result.total_s / result.total_s)
        rows.append([fallback.lost, _ready(fallback.ready_s), si(result.total_s, "s"), plain(result.output_tokens_per_s),
                     share, f"{result.plan.name}, {_reloaded(fallback)}"])  # fmt: skip
    yield heading("When the best split loses a unit")
    yield columns(["lost", "serves again after", "total", "tokens/s", "of the split", "<how"], rows)


def _ready(seconds: float) -> str:
    return si(seconds, "s") if seconds > 0.0 else "at once"


def _reloaded(fallback: Fallback) -> str:
    if fallback.reload_byte <= 0.0:
        return "weights are there"
    return f"{si(fallback.reload_byte, 'B')} of weights from {fallback.source}"


def _notes(study: Study) -> Iterator[RenderableType]:
    lines = [f"model's error on a ratio of two times: {study.terms.error_source}"]
    lines += [*notes(study.best.result), *_refused(study)]
    yield heading("Notes")
    yield from bullets(lines)


def _refused(study: Study) -> Iterator[str]:
    """Strategies that cannot run, those with one reason together."""
    together: dict[str, list[str]] = {}
    for name, problem in study.refused:
        together.setdefault(problem, []).append(name)
    for problem, names in list(together.items())[:_REASONS]:
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{names[0]}{others} cannot run: {problem}"
    if (left := len(together) - _REASONS) > 0:
        yield f"{left} more reasons why strategies cannot run are in --json"
