"""evaluate(chip, workload) -> Result: steps, placement, costs, timelines, and their integral over the decode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np

from archmodel.components import link, memory, power
from archmodel.costs import Floats
from archmodel.errors import MappingError
from archmodel.kernels.timeline import CONVERSION, DISPATCH, HOST, MEMORY, OVERHEAD, SYNCHRONISATION, TRANSFER
from archmodel.layers import Group, Setting, Step, entry_template, exit_template, layer_template
from archmodel.operations import Ints
from archmodel.parallel import divided
from archmodel.partition import Piece, place, place_entry, place_exit
from archmodel.residency import Residency, plan_residency
from archmodel.schedule import Program, Table, run, tabulate
from archmodel.soc import Soc
from archmodel.spec.check import merged_placement
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import PrecisionSpec, WorkloadSpec
from archmodel.steps import Sample, decode_samples, first_step
from archmodel.units import element_bytes

_SEGMENTS = {
    MEMORY: "memory",
    OVERHEAD: "kernel_overhead",
    TRANSFER: "transfer_exposed",
    CONVERSION: "layout_conversion",
    SYNCHRONISATION: "synchronisation",
    DISPATCH: "dispatch",
    HOST: "host",
}


@attrs.frozen(eq=False)
class StepResult:
    """One simulated step. `weight` is the number of steps it stands for in the totals."""

    step: Step
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
        static = power.static_power_w(self.chip.blocks, self.chip.power)
        parts = {name: value * scale for name, value in dynamic.items()}
        return {**parts, **{f"{name}_static": watt * self.total_s * scale for name, watt in static.items() if watt > 0.0}}

    @cached_property
    def row_energy_j(self) -> dict[str, Floats]:
        """Dynamic energy [J] of one run of each row, by component; arrays of shape (rows,)."""
        scale = self.chip.power.scale * self.chips
        return {name: value * scale for name, value in _row_energy_j(self.soc, self.table).items()}

    @property
    def static_power_w(self) -> dict[str, float]:
        """Static power [W] by block, and of the chip as a whole under `chip`."""
        static = power.static_power_w(self.chip.blocks, self.chip.power)
        return {name: watt * self.chip.power.scale * self.chips for name, watt in static.items() if watt > 0.0}

    @property
    def total_j(self) -> float:
        return sum(self.energy_j.values())

    @property
    def power_w(self) -> float:
        return self.total_j / self.total_s

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
        if self.residency.spilled_fraction:
            notes.append(f"{self.residency.spilled_fraction:.1%} of the weights are spilled to {self.residency.spill_tier}")
        limit = self.chip.power.limit_w
        each_w = self.power_w / self.chips
        if limit and each_w > limit:
            notes.append(f"mean power {each_w:.0f} W is above the limit of {limit:.0f} W: a real chip would lower its clock")
        return tuple(notes)

    def bottleneck(self, phase: str) -> str:
        """The segment that takes most of a phase, and for memory the tier that is busiest."""
        segments = self.phase_segments_s(phase)
        name = max(segments, key=lambda key: segments[key])
        if name != "memory":
            return name
        byte, speed = self.traffic_byte(phase), dict(zip(self.soc.shared, self.soc.shared_byte_per_s, strict=True))
        return f"memory:{max(self.soc.shared, key=lambda block: byte[block] / speed[block])}"


def evaluate(chip: ChipSpec, workload: WorkloadSpec, *, every_token: bool = False) -> Result:
    """Run a workload on a chip. `every_token` simulates each decode step instead of integrating over samples.

    Pure: the same specs give the same result to the bit. Raises MappingError where the workload cannot run.
    """
    return evaluate_steps(chip, workload, [Sample(first_step(workload), 1.0, 0.0), *decode_samples(workload, every_token)])


def evaluate_steps(chip: ChipSpec, workload: WorkloadSpec, samples: Sequence[Sample]) -> Result:
    """As `evaluate`, of the given steps; the workload's request says what the memory must hold."""
    chip = merged_placement(chip, workload.placement)
    workload = _one_of_group(chip, workload)
    precision = workload.precision or chip.precision or PrecisionSpec()
    soc = Soc(chip)
    planned = [_chains(soc, workload, precision, sample.step) for sample in samples]
    pieces = [piece for chains in planned for piece in _distinct(chains)]
    stream = workload.model.hidden * element_bytes(precision.activations)
    living = [(piece, stream * sample.step.tokens) for sample, chains in zip(samples, planned, strict=True)
              for piece in _distinct(chains)]  # fmt: skip
    residency = plan_residency(soc, workload, precision, living)
    table, index = tabulate(soc, residency, pieces)
    at = {id(piece): rows for piece, rows in zip(pieces, index, strict=True)}
    energy = _row_energy_j(soc, table)
    steps = tuple(
        _step_result(soc, table, energy, sample, [[(p, at[id(p)], layer) for p, layer in chain] for chain in chains])
        for sample, chains in zip(samples, planned, strict=True)
    )
    error = _integration_error(samples, steps)
    widened = tuple(dict.fromkeys(change for piece in pieces for change in piece.widened))
    return Result(chip, workload, precision, soc, table, steps, residency, error, widened)


def _one_of_group(chip: ChipSpec, workload: WorkloadSpec) -> WorkloadSpec:
    """The workload of one chip of those that divide the model. Raises MappingError where the group is too small."""
    chips = chip.placement.tensor_parallel
    if chips > 1 and (largest := Soc(chip).peer_link()[1].devices) < chips:
        raise MappingError(f"{chip.name}: placement.tensor_parallel = {chips}, but a group has at most {largest} chips")
    return attrs.evolve(workload, model=divided(workload.model, chips))


Chain = list[tuple[Piece, int]]


def _distinct(chains: list[Chain]) -> list[Piece]:
    return list({id(piece): piece for chain in chains for piece, _ in chain}.values())


def _chains(soc: Soc, workload: WorkloadSpec, precision: PrecisionSpec, step: Step) -> list[Chain]:
    """Placed pieces in order, one chain per micro-batch; micro-batches of the same size share their pieces."""
    made: dict[tuple[Group, ...], Chain] = {}
    chains = []
    for groups in _micro_batches(step, soc.chip.placement.micro_batches):
        if groups not in made:
            made[groups] = _chain(soc, Setting(workload.model, precision, soc.chip.placement, step, groups))
        chains.append(made[groups])
    return chains


def _micro_batches(step: Step, parts: int) -> list[tuple[Group, ...]]:
    sequences = step.sequences
    parts = min(parts, sequences)
    if parts == 1 or len(step.groups) > 1:
        return [step.groups]
    only = step.groups[0]
    sizes = [sequences // parts + (i < sequences % parts) for i in range(parts)]
    return [(attrs.evolve(only, sequences=size),) for size in sizes]


def _chain(soc: Soc, setting: Setting) -> Chain:
    model = setting.model
    chain: Chain = [(place_entry(soc, setting, entry_template(setting)), -1)]
    if setting.step.encode_tokens:
        groups = tuple(Group(group.sequences, setting.step.encode_tokens, 0) for group in setting.groups)
        chain += _layers(soc, attrs.evolve(setting, groups=groups), model.encoder_order, "encoder")
    chain += _layers(soc, setting, model.order, "layer")
    chain.append((place_exit(soc, setting, exit_template(setting)), len(model.encoder_order) + len(model.order)))
    return chain


def _layers(soc: Soc, setting: Setting, order: tuple[int, ...], name: str) -> Chain:
    kinds = setting.model.kinds
    pieces = {
        kind: place(soc, setting, layer_template(kinds[kind], setting, f"{name}_{kind}", encoder=name == "encoder"))
        for kind in dict.fromkeys(order)
    }
    return [(pieces[kind], number) for number, kind in enumerate(order)]


def _row_energy_j(soc: Soc, table: Table) -> dict[str, Floats]:
    """Dynamic energy [J] of one run of each row, by component; arrays of shape (rows,)."""
    out: dict[str, Floats] = {}
    for number, (name, unit) in enumerate(soc.units.items()):
        mine = (table.owner == number).astype(float)
        for part, value in power.unit_energy_j(unit, table.costs, table.rows.compute_format).items():
            out[f"{name}_{part}"] = value * mine
    for column, name in enumerate(soc.shared):
        byte, written = table.byte[:, column], table.written_byte[:, column]
        if name in soc.tiers:
            out[name] = memory.energy_j(soc.tiers[name], byte - written, written)
        else:
            out[name] = link.energy_j(soc.links[name], byte)
    if soc.control:
        out[soc.control[0]] = power.control_energy_j(soc.control[1], table.commands)
    return out


def _step_result(
    soc: Soc, table: Table, energy: dict[str, Floats], sample: Sample, chains: list[list[tuple[Piece, Ints, int]]]
) -> StepResult:
    program = run(soc, table, chains)
    simulated, rows = program.simulated, program.events.row
    count = np.bincount(rows, minlength=len(table.rows)).astype(float)
    busy = np.bincount(table.owner[rows], simulated.end_s - simulated.start_s, minlength=len(soc.resources))
    segments = {f"compute_{name}": float(simulated.compute_s[number]) for number, name in enumerate(soc.units)}
    segments |= {name: float(simulated.other_s[code]) for code, name in _SEGMENTS.items()}
    return StepResult(
        step=sample.step,
        weight=sample.weight,
        program=program,
        segments_s=segments,
        transfer_hidden_s=float(simulated.hidden_s),
        busy_s=busy.astype(float),
        byte=count @ table.byte,
        energy_j={name: float(value @ count) for name, value in energy.items()},
        count=count,
    )


def _integration_error(samples: Sequence[Sample], steps: tuple[StepResult, ...]) -> float:
    """Estimate: the rule against the lower-order rule embedded in the same samples, relative to the decode time."""
    fine = sum(s.weight * r.total_s for s, r in zip(samples[1:], steps[1:], strict=True))
    coarse = sum(s.coarse_weight * r.total_s for s, r in zip(samples[1:], steps[1:], strict=True))
    return abs(fine - coarse) / fine if fine > 0.0 else 0.0
