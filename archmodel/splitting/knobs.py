"""Numbers that a split depends on, one at a time: its slowest link, the cost of a command, the batch and the context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import attrs

from archmodel.components import link as links
from archmodel.result import Result
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec, LinkSpec, SoftwareSpec
from archmodel.spec.workload import WorkloadSpec
from archmodel.splitting.compared import OTHER_CHIP, Compared

_HERTZ = 1e9  # of 1 GHz
_MOST_GT_PER_S = 1000.0  # of a lane (see `LinkSpec`)
_REQUEST_RANGE = 64.0  # times more or less of the batch and the context

Both = tuple[ChipSpec, WorkloadSpec]


@attrs.frozen(eq=False)
class Knob:
    """One number in SI units with the range that is searched; `turned` gives specs another value of it."""

    name: str  # with its unit, as everywhere
    now: float
    low: float
    high: float
    turned: Callable[[ChipSpec, WorkloadSpec, float], Both]
    whole: bool = False
    is_rate: bool = False  # time goes with what a unit of it takes, not with the value
    better: int = 0  # 1: with more of it nothing is slower, -1: with less; 0: either may be
    of_workload: bool = False  # then a baseline on another chip depends on it as well


@attrs.frozen(eq=False)
class Rivals:
    """A split and its baseline on a chip with a workload, which may run again under other numbers."""

    chip: ChipSpec
    workload: WorkloadSpec
    baseline: Compared
    split: Compared

    @cached_property
    def now_s(self) -> tuple[float, float]:
        """Times [s] of baseline and split as things are."""
        return self.baseline.again(self.chip, self.workload), self.split.again(self.chip, self.workload)

    def times_s(self, *turned: tuple[Knob, float]) -> tuple[float, float]:
        """The same with some knobs turned. Raises MappingError or SpecError where that cannot be."""
        return self.baseline_s(*turned), self.split.again(*self._turned(turned))

    def baseline_s(self, *turned: tuple[Knob, float]) -> float:
        """Time [s] of the baseline with some knobs turned."""
        if self.baseline.granularity == OTHER_CHIP and not any(knob.of_workload for knob, _ in turned):
            return self.now_s[0]
        return self.baseline.again(*self._turned(turned))

    def _turned(self, turned: tuple[tuple[Knob, float], ...]) -> Both:
        both = self.chip, self.workload
        for knob, value in turned:
            both = knob.turned(*both, value)
        return both


def knobs(workload: WorkloadSpec, split: Result) -> list[Knob]:
    """All knobs of a split."""
    soc = split.soc
    found = [knob for name in links_between(split)[:1] for knob in link_knobs(name, soc.links[name])]
    return [*found, dispatch_knob(soc), *request_knobs(workload)]


def links_between(result: Result) -> list[str]:
    """Links on the ways between the units that a result uses, slowest first."""
    soc, seconds = result.soc, result.busy_s()
    busy = [name for name in soc.units if seconds[name] > 0.0]
    ways = dict.fromkeys(link for a in busy for b in busy if a != b for link in soc.route(a, b))
    return sorted(ways, key=lambda name: links.payload_byte_per_s(soc.links[name]))


def link_knobs(name: str, link: LinkSpec) -> Iterator[Knob]:
    """Payload bandwidth and line latency of a link."""

    def bandwidth(chip: ChipSpec, workload: WorkloadSpec, value: float) -> Both:
        old = _link(chip, name)
        rate = old.lane_rate_gt_per_s * value / links.payload_byte_per_s(old)
        return _with_block(chip, name, lane_rate_gt_per_s=min(rate, _MOST_GT_PER_S)), workload

    def latency(chip: ChipSpec, workload: WorkloadSpec, value: float) -> Both:
        return _with_block(chip, name, latency_ns=value * 1e9), workload

    byte_per_s, latency_s = links.payload_byte_per_s(link), link.latency_ns * 1e-9
    most = byte_per_s * min(1e2, _MOST_GT_PER_S / link.lane_rate_gt_per_s)
    yield Knob(f"{name}_byte_per_s", byte_per_s, byte_per_s * 1e-3, most, bandwidth, is_rate=True, better=1)
    yield Knob(f"{name}_latency_s", latency_s, min(latency_s, 1e-9), max(1e4 * latency_s, 1e-3), latency, better=-1)


def _link(chip: ChipSpec, name: str) -> LinkSpec:
    link = chip.blocks[name]
    assert isinstance(link, LinkSpec)
    return link


def _with_block(chip: ChipSpec, name: str, **fields: Any) -> ChipSpec:
    return attrs.evolve(chip, blocks={**chip.blocks, name: attrs.evolve(chip.blocks[name], **fields)})


def dispatch_knob(soc: Soc) -> Knob:
    """Time of a command on the slowest control core; without one, the gap between two kernels of every unit."""
    if not soc.controls:
        gaps_us = [software.kernel_gap_us for software in _stacks(soc.chip)]
        now = max(gaps_us) * 1e-6
        return Knob("kernel_gap_s", now, min(now, 1e-9), max(1e3 * now, 1e-3), _with_gap, better=-1)
    name, control = max(soc.controls.items(), key=lambda named: named[1].dispatch_cycles / named[1].clock_ghz)
    per_s = control.clock_ghz * _HERTZ
    now = control.dispatch_cycles / per_s

    def dispatch(chip: ChipSpec, workload: WorkloadSpec, value: float) -> Both:
        return _with_block(chip, name, dispatch_cycles=value * per_s), workload

    return Knob("dispatch_s", now, min(now, 1e-9), max(1e3 * now, 1e-3), dispatch, better=-1)


def _stacks(chip: ChipSpec) -> list[SoftwareSpec]:
    """The software stacks of a chip, or of the members of a system."""
    return [member.software for member in chip.members.values()] or [chip.software]


def _with_gap(chip: ChipSpec, workload: WorkloadSpec, value: float) -> Both:
    def slower(software: SoftwareSpec) -> SoftwareSpec:
        return attrs.evolve(software, kernel_gap_us=value * 1e6)

    members = {name: attrs.evolve(member, software=slower(member.software)) for name, member in chip.members.items()}
    return attrs.evolve(chip, software=slower(chip.software), members=members), workload


def request_knobs(workload: WorkloadSpec) -> Iterator[Knob]:
    """Batch and context."""
    for name in ("batch", "input_tokens"):

        def turned(chip: ChipSpec, workload: WorkloadSpec, value: float, name: str = name) -> Both:
            changed: dict[str, Any] = {name: round(value)}
            return chip, attrs.evolve(workload, request=attrs.evolve(workload.request, **changed))

        now = float(getattr(workload.request, name))
        least = float(max(1, round(now / _REQUEST_RANGE)))
        yield Knob(name, now, least, now * _REQUEST_RANGE, turned, whole=True, of_workload=True)
