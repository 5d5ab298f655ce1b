"""Numbers that a split depends on, one at a time: its slowest link, the cost of a command, the batch and the context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from archmodel.components import link as links
from archmodel.result import Result
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec, LinkSpec
from archmodel.spec.workload import WorkloadSpec

_HERTZ = 1e9  # of 1 GHz
_BATCH_RANGE = 64.0  # times more or less of the batch and the context

Both = tuple[ChipSpec, WorkloadSpec]


@attrs.frozen(eq=False)
class Knob:
    """One number in SI units with the range that is searched; `turned` gives the specs that have another value."""

    name: str  # with its unit, as everywhere
    now: float
    low: float
    high: float
    turned: Callable[[float], Both]
    whole: bool = False
    is_rate: bool = False  # time goes with what a unit of it takes, not with the value
    better: int = 0  # 1: more of it never harms a split, -1: less; 0: either may
    of_workload: bool = False  # then a baseline on another chip depends on it as well


def knobs(chip: ChipSpec, workload: WorkloadSpec, split: Result) -> list[Knob]:
    """All knobs of a split."""
    slowest = links_between(split)[:1]
    found = [knob for name in slowest for knob in link_knobs(chip, workload, name)]
    return [*found, dispatch_knob(chip, workload, split.soc), *request_knobs(chip, workload)]


def links_between(result: Result) -> list[str]:
    """Links on the ways between the units that a result uses, slowest first."""
    soc, seconds = result.soc, result.busy_s()
    busy = [name for name in soc.units if seconds[name] > 0.0]
    ways = dict.fromkeys(link for a in busy for b in busy if a != b for link in soc.route(a, b))
    return sorted(ways, key=lambda name: links.payload_byte_per_s(soc.links[name]))


def _with_block(chip: ChipSpec, name: str, **fields: Any) -> ChipSpec:
    return attrs.evolve(chip, blocks={**chip.blocks, name: attrs.evolve(chip.blocks[name], **fields)})


def link_chip(chip: ChipSpec, name: str, byte_per_s: float, latency_s: float) -> ChipSpec:
    """The chip with a link of another payload bandwidth [B/s] and line latency [s]."""
    link = chip.blocks[name]
    assert isinstance(link, LinkSpec)
    factor = byte_per_s / links.payload_byte_per_s(link)
    lanes = max(1, round(link.lanes * factor))
    rate = link.lane_rate_gt_per_s * factor * link.lanes / lanes
    return _with_block(chip, name, lanes=lanes, lane_rate_gt_per_s=rate, latency_ns=latency_s * 1e9)


def link_knobs(chip: ChipSpec, workload: WorkloadSpec, name: str) -> Iterator[Knob]:
    """Payload bandwidth and latency of a link."""
    link = chip.blocks[name]
    assert isinstance(link, LinkSpec)
    byte_per_s, latency_s = links.payload_byte_per_s(link), link.latency_ns * 1e-9

    def bandwidth(value: float) -> Both:
        return link_chip(chip, name, value, latency_s), workload

    def latency(value: float) -> Both:
        return link_chip(chip, name, byte_per_s, value), workload

    yield Knob(f"{name}_byte_per_s", byte_per_s, byte_per_s * 1e-3, byte_per_s * 1e2, bandwidth, is_rate=True, better=1)
    yield Knob(f"{name}_latency_s", latency_s, min(latency_s, 1e-9), max(1e4 * latency_s, 1e-3), latency, better=-1)


def dispatch_knob(chip: ChipSpec, workload: WorkloadSpec, soc: Soc) -> Knob:
    """Time of a command on the control core; without one, the gap between two kernels."""
    if soc.control is None:
        now = chip.software.kernel_gap_us * 1e-6

        def gap(value: float) -> Both:
            return attrs.evolve(chip, software=attrs.evolve(chip.software, kernel_gap_us=value * 1e6)), workload

        return Knob("kernel_gap_s", now, min(now, 1e-9), max(1e3 * now, 1e-3), gap, better=-1)
    name, control = soc.control
    per_s = control.clock_ghz * _HERTZ
    now = control.dispatch_cycles / per_s

    def dispatch(value: float) -> Both:
        return _with_block(chip, name, dispatch_cycles=value * per_s), workload

    return Knob("dispatch_s", now, min(now, 1e-9), max(1e3 * now, 1e-3), dispatch, better=-1)


def request_knobs(chip: ChipSpec, workload: WorkloadSpec) -> Iterator[Knob]:
    """Batch and context."""
    for name in ("batch", "input_tokens"):
        now = float(getattr(workload.request, name))

        def turned(value: float, name: str = name) -> Both:
            changed: dict[str, Any] = {name: round(value)}
            return chip, attrs.evolve(workload, request=attrs.evolve(workload.request, **changed))

        least = float(max(1, round(now / _BATCH_RANGE)))
        yield Knob(name, now, least, now * _BATCH_RANGE, turned, whole=True, of_workload=True)
