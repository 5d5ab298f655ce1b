"""Result: everything that reports are made of, as sums over simulated steps."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np

from archmodel.components import boundary, dvfs, link, memory, power
from archmodel.costs import Floats
from archmodel.energy_kinds import by_kind_j
from archmodel.plan import Plan
from archmodel.residency import Residency
from archmodel.schedule import Program, Table
from archmodel.soc import Soc
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import PrecisionSpec, WorkloadSpec
from archmodel.steps import Step


def row_energy_j(soc: Soc, table: Table) -> dict[str, Floats]:
    """Dynamic energy [J] of one run of each row at the blocks' voltages, by component; arrays of shape (rows,)."""
    out: dict[str, Floats] = {}
    factor = dvfs.energy_factors(soc.chip)
    for number, (name, unit) in enumerate(soc.units.items()):
        mine = (table.owner == number).astype(float)
        for part, value in power.unit_energy_j(unit, table.costs, table.rows).items():
            out[f"{name}_{part}"] = value * mine * factor[name]
    for column, name in enumerate(soc.shared):
        byte, written = table.byte[:, column], table.written_byte[:, column]
        if name in soc.tiers:
            out[name] = memory.energy_j(soc.tiers[name], byte - written, written) * factor[name]
        else:
            out[name] = link.energy_j(soc.links[name], byte) * factor[name]
    if soc.chip.software.sampling_energy_mj_per_token > 0.0:
        out["sampling"] = power.sampling_energy_j(soc.chip.software, table.rows, soc.chip.placement.tensor_parallel)
    if soc.control:
        out[soc.control[0]] = power.control_energy_j(soc.control[1], table.commands) * factor[soc.control[0]]
    return out


@attrs.frozen(eq=False)
class StepResult:
    """One simulated step. `weight` is the number of steps it stands for in the totals; `soc` has the clocks that it ran at."""

    step: Step
    soc: Soc
    weight: float
    program: Program
    segments_s: dict[str, float]
    transfer_hidden_s: float
    busy_s: Floats  # (resources,): time in which the resource runs an event
    byte: Floats  # (shared,)
    energy_j: dict[str, float]  # dynamic, by component
    count: Floats  # (rows,): how often each row of the table runs

    @property
    def total_s(self) -> float:
        return self.program.makespan_s


@attrs.frozen(eq=False)
class Result:
    """Everything that reports are made of. All times in s, energies in J, of the whole batch."""

    chip: ChipSpec
    workload: WorkloadSpec
    precision: PrecisionSpec
    plan: Plan
    soc: Soc
    table: Table
    steps: tuple[StepResult, ...]
    residency: Residency
    integration_error_fraction: float
    widened: tuple[tuple[str, str, str, str], ...]  # operation, unit, format asked for, format computed in

    @property
    def first(self) -> StepResult:
        return self.steps[0]

    @property
    def time_to_first_token_s(self) -> float:
        return self.first.total_s

    @cached_property
    def decode_s(self) -> float:
        return sum(step.weight * step.total_s for step in self.steps[1:])

    @property
    def total_s(self) -> float:
        return self.first.total_s + self.decode_s

    @property
    def time_per_output_token_s(self) -> float | None:
        """None where nothing is decoded after the first token."""
        further = self.workload.request.output_tokens - 1
        return self.decode_s / further if further > 0 else None

    @property
    def limits_s(self) -> dict[str, tuple[float, float]]:
        """The limits that the workload sets [s], each with what was reached [s]."""
        values = {
            "time_to_first_token": self.time_to_first_token_s,
            "time_per_output_token": self.time_per_output_token_s,
            "latency": self.total_s,
        }
        limits = {name: getattr(self.workload.limits, f"{name}_ms") * 1e-3 for name in values}
        return {name: (limits[name], value) for name, value in values.items() if limits[name] > 0.0 and value is not None}

    @property
    def tokens(self) -> int:
        """What throughput and efficiency count: generated tokens; of an encoder, the tokens that it reads."""
        request = self.workload.request
        return request.batch * (request.output_tokens or request.input_tokens)

    @property
    def output_tokens_per_s(self) -> float:
        """`tokens` over the whole time, prefill included."""
        return self.tokens / self.total_s

    @property
    def input_tokens_per_s(self) -> float:
        """Prompt (or encoder, or patch) tokens over the time of the first step."""
        return self.workload.request.batch * self.workload.request.input_tokens / self.first.total_s

    @cached_property
    def segments_s(self) -> dict[str, float]:
        return self._sum(lambda step: step.segments_s)

    def phase_segments_s(self, phase: str) -> dict[str, float]:
        """Segments of one phase; they add up to its time."""
        return self._sum(lambda step: step.segments_s, phase)

    @cached_property
    def transfer_hidden_s(self) -> float:
        return sum(step.weight * step.transfer_hidden_s for step in self.steps)

    def _sum(self, of: object, phase: str = "") -> dict[str, float]:
        total: dict[str, float] = {}
        for step in self.steps:
            if not phase or step.step.phase == phase:
                for name, value in of(step).items():  # type: ignore[operator]
                    total[name] = total.get(name, 0.0) + step.weight * value
        return total

    @property
    def chips(self) -> int:
        """Alike chips that divide the model. Energy and power are those of all of them; time, traffic and bytes of one."""
        return self.chip.placement.tensor_parallel

    @cached_property
    def energy_j(self) -> dict[str, float]:
        """Energy [J] by component, dynamic and static; the values add up to the total."""
        scale = self.chip.power.scale * self.chips
        dynamic = self._sum(lambda step: step.energy_j)
        parts = {name: value * scale for name, value in dynamic.items()}
        return {**parts, **{f"{name}_static": joule * scale for name, joule in self._static_j.items() if joule > 0.0}}

    @cached_property
    def row_energy_j(self) -> dict[str, Floats]:
        """Dynamic energy [J] of one run of each row, by component; arrays of shape (rows,)."""
        scale = self.chip.power.scale * self.chips
        out = {name: value * scale for name, value in row_energy_j(self.soc, self.table).items()}
        for soc in dict.fromkeys(step.soc for step in self.steps if step.soc is not self.soc):
            mine = sum(step.count for step in self.steps if step.soc is soc) > 0
            for name, value in row_energy_j(soc, self.table).items():
                out[name] = np.where(mine, value * scale, out[name])
        return out

    @cached_property
    def energy_by_kind_j(self) -> dict[str, float]:
        """Energy [J] by kind of operation, of commands (`control`) and `static`; the values add up to the total."""
        runs = np.asarray(sum(step.weight * step.count for step in self.steps))
        control = self.soc.control[0] if self.soc.control else ""
        parts = by_kind_j(self.table, (v for name, v in self.row_energy_j.items() if name != control), runs)
        static_j = sum(self._static_j.values()) * self.chip.power.scale * self.chips
        others = {"control": self.energy_j.get(control, 0.0), "static": static_j}
        return {**parts, **{name: joule for name, joule in others.items() if joule > 0.0}}

    def step_static_power_w(self, step: StepResult) -> dict[str, float]:
        """Static power [W] of all `chips` in a step by block, and of the chip as a whole under `chip`."""
        static = power.static_power_w(step.soc.chip.blocks, step.soc.chip.power)
        return {name: watt * self.chip.power.scale * self.chips for name, watt in static.items() if watt > 0.0}

    @property
    def static_power_w(self) -> dict[str, float]:
        """Mean static power [W] of all `chips` over the run, by block, and of the chip as a whole under `chip`."""
        scale = self.chip.power.scale * self.chips / self.total_s
        return {name: joule * scale for name, joule in self._static_j.items() if joule > 0.0}

    def phase_power_w(self, phase: str) -> float:
        """Mean power [W] of all `chips` in a phase."""
        scale = self.chip.power.scale * self.chips
        steps = [step for step in self.steps if step.step.phase == phase]
        dynamic_j = sum(step.weight * sum(step.energy_j.values()) for step in steps) * scale
        static_j = sum(step.weight * step.total_s * sum(self.step_static_power_w(step).values()) for step in steps)
        return (dynamic_j + static_j) / self.phase_s(phase)

    @property
    def _static_j(self) -> dict[str, float]:
        """Static energy [J] of one chip by block, before `power.scale`."""
        time_s: dict[Soc, float] = {}
        for step in self.steps:
            time_s[step.soc] = time_s.get(step.soc, 0.0) + step.weight * step.total_s
        if len(time_s) == 1:
            time_s = {self.first.soc: self.total_s}
        parts = [(power.static_power_w(soc.chip.blocks, soc.chip.power), span_s) for soc, span_s in time_s.items()]
        return {name: sum(watt[name] * span_s for watt, span_s in parts) for name in parts[0][0]}

    @property
    def total_j(self) -> float:
        return sum(self.energy_j.values())

    @property
    def power_w(self) -> float:
        return self.total_j / self.total_s

    @cached_property
    def boundary_added_w(self) -> dict[str, dict[str, float]]:
        """Mean power [W] that each boundary adds to the one inside it, by part; of all `chips`."""
        return boundary.added_power_w(self.chip, self.chips, self.power_w)

    @property
    def boundary_power_w(self) -> dict[str, float]:
        """Mean power [W] at each boundary that the chip file describes: chip, board, wall, facility; of all `chips`."""
        return boundary.boundary_power_w(self.boundary_added_w)

    @property
    def tokens_per_joule(self) -> float:
        return self.tokens / self.total_j

    @property
    def phases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.step.phase for step in self.steps))

    def phase_s(self, phase: str) -> float:
        return sum(step.weight * step.total_s for step in self.steps if step.step.phase == phase)

    def busy_s(self, phase: str = "") -> dict[str, float]:
        """Time [s] in which each unit, link, control core and the host runs something."""
        total = sum(s.weight * s.busy_s for s in self.steps if not phase or s.step.phase == phase)
        return dict(zip(self.soc.resources, np.atleast_1d(total).tolist(), strict=True))

    def traffic_byte(self, phase: str = "") -> dict[str, float]:
        """Bytes at each tier and link."""
        total = sum(s.weight * s.byte for s in self.steps if not phase or s.step.phase == phase)
        return dict(zip(self.soc.shared, np.atleast_1d(total).tolist(), strict=True))

    @cached_property
    def bandwidth_byte_per_s(self) -> dict[str, float]:
        """Mean bandwidth [B/s] of each tier and link over the whole run."""
        return {name: byte / self.total_s for name, byte in self.traffic_byte().items()}

    @cached_property
    def utilisation(self) -> dict[str, float]:
        """Units: useful MACs over peak x total time. Tiers and links: bytes over achievable bandwidth x total time."""
        out = {name: self._unit_utilisation(number) for number, name in enumerate(self.soc.units)}
        speed = dict(zip(self.soc.shared, self.soc.shared_byte_per_s.tolist(), strict=True))
        for name, bandwidth in self.bandwidth_byte_per_s.items():
            out[name] = min(1.0, bandwidth / speed[name])
        busy = self.busy_s()
        if self.soc.control:
            out[self.soc.control[0]] = (busy[self.soc.control[0]] + self.dispatch_s) / self.total_s
        if self.soc.host:
            out[self.soc.host[0]] = busy[self.soc.host[0]] / self.total_s
        return out

    @cached_property
    def dispatch_s(self) -> float:
        """Time [s] in which commands are dispatched, hidden or not."""
        return sum(step.weight * float(step.count @ self.table.timeline.dispatch_s) for step in self.steps)

    def _unit_utilisation(self, number: int) -> float:
        seconds = self.table.costs.utilisation * self.table.timeline.duration_s * (self.table.owner == number)
        return min(1.0, sum(step.weight * float(seconds @ step.count) for step in self.steps) / self.total_s)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about this run: substitutions, spilling, limits passed."""
        notes = [f"{name} asks for {wanted}, which {unit} has not: computed in {taken}"
                 for name, unit, wanted, taken in self.widened]  # fmt: skip
        if self.chips > 1:
            notes.append(
                f"one of {self.chips} alike chips that divide the model: times, traffic, capacity and utilisation are of one "
                f"chip, tokens of the group, energy and power of all {self.chips}"
            )
        for tier, fraction in self.residency.spilled.items():
            notes.append(f"{fraction:.1%} of the weights of {tier} are spilled to {self.residency.spill_tier}")
        limit_w = self.chip.power.limit_w
        for phase in self.phases:
            if limit_w and (each_w := self.phase_power_w(phase) / self.chips) > limit_w:
                notes.append(
                    f"mean power of {phase}, {each_w:.0f} W, is above the limit of {limit_w:.0f} W: a real chip would lower "
                    f"its clock (--power-cap-w {limit_w:g} finds it where blocks have voltage points)"
                )
        return tuple(notes)

    def bottleneck(self, phase: str) -> str:
        """The segment that takes most of a phase, and for memory the tier that is busiest."""
        segments = self.phase_segments_s(phase)
        name = max(segments, key=lambda key: segments[key])
        if name != "memory":
            return name
        byte, speed = self.traffic_byte(phase), dict(zip(self.soc.shared, self.soc.shared_byte_per_s, strict=True))
        return f"memory:{max(self.soc.shared, key=lambda block: byte[block] / speed[block])}"
