"""At which link, dispatch cost, batch and context a split stops paying: re-evaluation with one number changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import attrs

from archmodel.components import link as links
from archmodel.errors import MappingError
from archmodel.result import Result
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec, LinkSpec
from archmodel.spec.workload import WorkloadSpec
from archmodel.splitting.compared import OTHER_CHIP, Compared

_NEAR = 0.02  # of a value: a break-even is told to this
_SEARCHES = 14  # evaluations that close in on one break-even
_SHRINKS = 6  # halvings (on a log scale) of a range whose end does not fit
_LEAST = 1e-12  # what a value of 0 counts as on a log scale
_CYCLES_PER_S = 1e9  # of 1 GHz

Both = tuple[ChipSpec, WorkloadSpec]


@attrs.frozen(eq=False)
class Knob:
    """One number that a split depends on, in SI units, with the range that is searched; `turned` gives specs that have it."""

    name: str  # with its unit, as everywhere
    now: float
    low: float
    high: float
    turned: Callable[[float], Both]
    whole: bool = False
    of_workload: bool = False  # then the baseline, too, depends on it


@attrs.frozen
class BreakEven:
    """Where between `low` and `high` the gain passes the threshold; None where it does not on that side of `now`."""

    knob: str
    now: float
    low: float
    high: float
    pays_now: bool
    below: float | None
    above: float | None

    @property
    def span(self) -> tuple[float, float] | None:
        """The values at which it pays next to `now`, as far as was searched; None where it pays at none of them."""
        if self.pays_now:
            return self.below or self.low, self.above or self.high
        if self.below is not None:
            return self.low, self.below
        return (self.above, self.high) if self.above is not None else None


def links_between(result: Result) -> list[str]:
    """Links on the ways between the units that a result uses, slowest first."""
    soc = result.soc
    busy = [name for name in soc.units if result.busy_s()[name] > 0.0]
    ways = {link for a in busy for b in busy if a != b for link in soc.route(a, b)}
    return sorted(ways, key=lambda name: links.payload_byte_per_s(soc.links[name]))


def knobs(chip: ChipSpec, workload: WorkloadSpec, split: Result) -> list[Knob]:
    """What a split depends on: its slowest link, the cost of a command, the batch and the context."""
    return [*_link_knobs(chip, workload, split), *_dispatch_knobs(chip, workload, split.soc), *_request_knobs(chip, workload)]


def with_block(chip: ChipSpec, name: str, **fields: object) -> ChipSpec:
    """The chip with some numbers of one block changed."""
    return attrs.evolve(chip, blocks={**chip.blocks, name: attrs.evolve(chip.blocks[name], **fields)})  # type: ignore[arg-type]


def link_chip(chip: ChipSpec, name: str, byte_per_s: float, latency_s: float) -> ChipSpec:
    """The chip with a link of another payload bandwidth [B/s] and latency of the line [s]."""
    link = chip.blocks[name]
    assert isinstance(link, LinkSpec)
    rate = link.lane_rate_gt_per_s * byte_per_s / links.payload_byte_per_s(link)
    return with_block(chip, name, lane_rate_gt_per_s=rate, latency_ns=latency_s * 1e9)


def _link_knobs(chip: ChipSpec, workload: WorkloadSpec, split: Result) -> Iterator[Knob]:
    for name in links_between(split)[:1]:
        link = split.soc.links[name]
        byte_per_s, latency_s = links.payload_byte_per_s(link), link.latency_ns * 1e-9
        yield Knob(f"{name}_byte_per_s", byte_per_s, byte_per_s * 1e-3, byte_per_s * 1e3,
                   lambda x: (link_chip(chip, name, x, latency_s), workload))  # fmt: skip
        yield Knob(f"{name}_latency_s", latency_s, min(latency_s, 1e-9), max(1e4 * latency_s, 1e-3),
                   lambda x: (link_chip(chip, name, byte_per_s, x), workload))  # fmt: skip


def _dispatch_knobs(chip: ChipSpec, workload: WorkloadSpec, soc: Soc) -> Iterator[Knob]:
    """Seconds that a command takes: of the control core, or else the gap between two kernels."""
    if soc.control:
        name, control = soc.control
        per_s = control.clock_ghz * _CYCLES_PER_S
        now = control.dispatch_cycles / per_s
        yield Knob("dispatch_s", now, min(now, 1e-9), max(1e3 * now, 1e-3),
                   lambda x: (with_block(chip, name, dispatch_cycles=x * per_s), workload))  # fmt: skip
        return
    now = chip.software.kernel_gap_us * 1e-6
    yield Knob("kernel_gap_s", now, min(now, 1e-9), max(1e3 * now, 1e-3),
               lambda x: (attrs.evolve(chip, software=attrs.evolve(chip.software, kernel_gap_us=x * 1e6)), workload))  # fmt: skip


def _request_knobs(chip: ChipSpec, workload: WorkloadSpec) -> Iterator[Knob]:
    for name in ("batch", "input_tokens"):
        now = getattr(workload.request, name)

        def turned(x: float, name: str = name) -> Both:
            return chip, attrs.evolve(workload, request=attrs.evolve(workload.request, **{name: round(x)}))

        yield Knob(name, float(now), max(1.0, now / 64.0), now * 64.0, turned, whole=True, of_workload=True)


def break_even(knob: Knob, baseline: Compared, split: Compared, min_gain: float = 0.0) -> BreakEven:
    """Where the gain passes `min_gain`, on both sides of the present value, each told to 2 %.

    Each side is taken to have one such place at most. A range ends where memory does: what does not fit neither pays nor does
    not. Raises MappingError where the present value does not fit.
    """
    elsewhere = baseline.granularity == OTHER_CHIP and not knob.of_workload
    fixed_s = baseline.again(*knob.turned(knob.now)) if elsewhere else None

    def over(value: float) -> float:
        both = knob.turned(value)
        return (fixed_s or baseline.again(*both)) / split.again(*both) - 1.0 - min_gain

    here = knob.now, over(knob.now)
    ends = [_fitting(over, knob, end) if end != knob.now else here for end in (knob.low, knob.high)]
    below, above = (_crossing(over, knob, here, end) if _pays(here) != _pays(end) else None for end in ends)
    return BreakEven(knob.name, knob.now, ends[0][0], ends[1][0], _pays(here), below, above)


Point = tuple[float, float]  # value of the knob, gain above the least one


def _pays(point: Point) -> bool:
    return point[1] >= 0.0


def _fitting(over: Callable[[float], float], knob: Knob, end: float) -> Point:
    """The end of the range, or the first place on the way back from it that fits."""
    for _ in range(_SHRINKS):
        try:
            return end, over(end)
        except MappingError:
            end = _between(knob, knob.now, end)
    return knob.now, over(knob.now)


def _between(knob: Knob, a: float, b: float, share: float = 0.5) -> float:
    """Between two values on a log scale."""
    value = math.exp((1.0 - share) * math.log(max(a, _LEAST)) + share * math.log(max(b, _LEAST)))
    return float(round(value)) if knob.whole else value


def _crossing(over: Callable[[float], float], knob: Knob, near: Point, far: Point) -> float:
    """The value where paying ends: false position on a log scale, in turn with bisection. A whole one is the last that pays."""
    for turn in range(_SEARCHES):
        share = near[1] / (near[1] - far[1]) if turn % 2 == 0 else 0.5
        value = _between(knob, near[0], far[0], min(max(share, 0.02), 0.98))
        if value in (near[0], far[0]):
            value = _between(knob, near[0], far[0])
        if value in (near[0], far[0]) or abs(math.log(max(near[0], _LEAST) / max(far[0], _LEAST))) < _NEAR:
            break
        point = value, over(value)
        near, far = (point, far) if _pays(point) == _pays(near) else (near, point)
    if knob.whole:
        return near[0] if _pays(near) else far[0]
    return _between(knob, near[0], far[0])
