"""How unlike units share the work of a split: micro-batches that hide its transfers, and units of one side to the other."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs
import numpy as np

from archmodel.errors import ArchmodelError
from archmodel.kernels.timeline import CLASS_SYNCHRONISATION
from archmodel.operations import Kind
from archmodel.result import Result
from archmodel.spec.chip import ChipSpec
from archmodel.spec.system import member_of
from archmodel.spec.workload import WorkloadSpec
from archmodel.splitting.compared import Compared
from archmodel.splitting.knobs import links_between
from archmodel.steps import Sample, decode_step
from archmodel.theory import pingpong
from archmodel.theory.pingpong import Stages
from archmodel.theory.ratio import LinearTimes, optimal_ratio

_MANY = 16  # times the batch: how far the line of the FFN reaches


@attrs.frozen
class Tried:
    """A decode step with so many cards, each attention card with the sequences that it has now."""

    attention_cards: int
    ffn_cards: int
    batch: int
    decode_s: float

    @property
    def tokens_per_s_per_card(self) -> float:
        return self.batch / self.decode_s / (self.attention_cards + self.ffn_cards)


@attrs.frozen
class Balance:
    """A decode step of a split between two units.

    `stages` are the times of a micro-batch in a layer, `ideal_s` the layers of the step in a perfect ping-pong of
    `micro_batches`, `least_micro_batches` the fewest that hide the transfers (None: none does). `units_per_ffn` is the best
    real number of attention units to one FFN unit, and `tried` are other numbers of them where they are cards of a system.
    """

    attention: str
    ffn: str
    stages: Stages
    micro_batches: int
    simulated_s: float
    ideal_s: float
    least_micro_batches: int | None
    units_per_ffn: float
    tried: tuple[Tried, ...]


@attrs.frozen(eq=False)
class _Layers:
    """What the layers of a step keep busy: times [s] of the attention unit, the FFN unit and the crossings between them."""

    attention_s: float
    ffn_s: float
    crossing_s: float
    span_s: float
    layers: int


def sides(result: Result) -> tuple[str, str] | None:
    """Attention and FFN unit of a result in which two units work and one of them attends; else None."""
    names, step = list(result.soc.units), result.steps[-1]
    busy = [number for number in range(len(names)) if step.busy_s[number] > 0.0]
    attention = np.isin(result.table.rows.kind, (Kind.ATTENTION, Kind.SCAN)) & (step.count > 0)
    attends = sorted(set(result.table.owner[attention].tolist()))
    if len(busy) != 2 or len(attends) != 1:
        return None
    return names[attends[0]], next(names[number] for number in busy if number != attends[0])


def balance(chip: ChipSpec, workload: WorkloadSpec, split: Compared) -> Balance | None:
    """The balance of a split in the middle of its decode; None where it is not between two units, or nothing is decoded.

    The straight lines of `LinearTimes` go through this step and those of a larger batch and of a shorter context.
    """
    found = sides(split.result)
    if found is None or workload.request.output_tokens < 2:
        return None
    batch = workload.request.batch
    context = max(2, workload.request.input_tokens + workload.request.output_tokens // 2)
    here, many, short = (
        _layers(_decoded(chip, workload, split, *at), found)
        for at in ((batch, context), (batch * _MANY, 1), (batch, context // 2))
    )
    cards, ffn_cards = (split.result.soc.copies(unit) for unit in found)
    times = _lines(here, many, short, batch, context, cards)
    placement = split.result.plan.parts_of("decode")[0].placements[0]
    parts = min(batch, placement.decode_micro_batches or placement.micro_batches)
    each = 1.0 / (parts * here.layers)
    stages = Stages(here.attention_s * each, here.crossing_s * each / 2.0, here.ffn_s * each, here.crossing_s * each / 2.0)
    best = optimal_ratio(times).best
    tried = tuple(_tried(chip, workload, split, found, best)) if cards > 1 and math.isfinite(best) else ()
    ideal_s = pingpong.makespan_s(stages, parts, here.layers)
    return Balance(*found, stages, parts, here.span_s, ideal_s, _least(stages), best / ffn_cards, tried)


def _tried(chip: ChipSpec, workload: WorkloadSpec, split: Compared, found: tuple[str, str], best: float) -> Iterator[Tried]:
    """Numbers of attention cards around the present and the best one, where the memory allows."""
    now, ffn_cards = (split.result.soc.copies(unit) for unit in found)
    name = member_of(found[0])
    context = workload.request.input_tokens + workload.request.output_tokens // 2
    around = {round(count * factor) for count in (now, best) for factor in (0.5, 1.0, 2.0)}
    for count in sorted(count for count in around if count >= 1):
        members = {**chip.members, name: attrs.evolve(chip.members[name], count=count)}
        batch = max(1, round(workload.request.batch * count / now))
        try:
            result = _decoded(attrs.evolve(chip, members=members), workload, split, batch, context)
        except ArchmodelError:
            continue
        yield Tried(count, ffn_cards, batch, result.total_s)


def _least(stages: Stages) -> int | None:
    share = stages.out_s / stages.unit_s
    return pingpong.least_micro_batches(share) if share < 1.0 else None


def _decoded(chip: ChipSpec, workload: WorkloadSpec, split: Compared, batch: int, context: int) -> Result:
    request = attrs.evolve(workload.request, batch=batch, input_tokens=context, output_tokens=1)
    asked = attrs.evolve(workload, request=request)
    return split.run(chip, asked, [Sample(decode_step(asked, context), 1.0, 0.0)])


def _layers(result: Result, found: tuple[str, str]) -> _Layers:
    soc, step, table = result.soc, result.first, result.table
    program = step.program
    last = int(program.layer.max())  # the exit
    inside = (program.layer >= 0) & (program.layer < last)
    row, start_s, end_s = program.events.row[inside], program.simulated.start_s[inside], program.simulated.end_s[inside]
    busy = np.bincount(table.owner[row], end_s - start_s, minlength=len(soc.resources))
    crossing = sum(busy[soc.resources.index(name)] for name in links_between(result))
    waits = table.timeline.event_class[row] == CLASS_SYNCHRONISATION
    at_a, at_f = (soc.resources.index(name) for name in found)
    crossing += float((end_s - start_s)[waits].sum())
    return _Layers(float(busy[at_a]), float(busy[at_f]), float(crossing), float(end_s.max() - start_s.min()), last)


def _lines(here: _Layers, many: _Layers, short: _Layers, batch: int, context: int, cards: int) -> LinearTimes:
    """Lines through two points each; none falls. FFN and crossings do not depend on the context, `many` has hardly any.

    `cards` alike attention units divide the sequences: one of them has its part of the cache.
    """
    kv_tokens = batch * context / cards
    per_token = max(0.0, (here.attention_s - short.attention_s) / (batch * (context - context // 2) / cards))
    ffn, crossing = (
        max(0.0, (getattr(many, name) - getattr(here, name)) / (batch * (_MANY - 1))) for name in ("ffn_s", "crossing_s")
    )
    return LinearTimes(
        attention_s_per_token=per_token,
        attention_s=here.attention_s - per_token * kv_tokens,
        transfer_s_per_sequence=crossing * cards,
        transfer_s=here.crossing_s - crossing * batch,
        ffn_s_per_sequence=ffn,
        ffn_s=here.ffn_s - ffn * batch,
        batch=batch / cards,
        kv_tokens=kv_tokens,
    )
