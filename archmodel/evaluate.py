"""evaluate(chip, workload) -> Result: steps, placement, costs, timelines, and their integral over the decode."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from archmodel.cards import divided_setting
from archmodel.costs import Floats
from archmodel.doors import place_entry, place_exit
from archmodel.errors import MappingError, SpecError
from archmodel.kernels.timeline import CONVERSION, DISPATCH, HOST, MEMORY, OVERHEAD, SYNCHRONISATION, TRANSFER
from archmodel.layers import entry_template, exit_template, layer_template
from archmodel.operations import Ints
from archmodel.parallel import divided
from archmodel.partition import place
from archmodel.piece import Chain, Piece
from archmodel.plan import Part, Plan, check_plan, staged_plan, uniform_plan
from archmodel.residency import plan_residency
from archmodel.residents import cache_layout
from archmodel.result import Result, StepResult, row_energy_j
from archmodel.schedule import Table, run, tabulate
from archmodel.soc import Soc
from archmodel.spec.check import chip_problems, merged_placement
from archmodel.spec.chip import ChipSpec
from archmodel.spec.model import ModelSpec
from archmodel.spec.system import pipelines
from archmodel.spec.workload import PlacementSpec, PrecisionSpec, WorkloadSpec
from archmodel.steps import Group, Sample, Step, decode_samples, first_step
from archmodel.template import Setting

_SEGMENTS = {
    MEMORY: "memory",
    OVERHEAD: "kernel_overhead",
    TRANSFER: "transfer_exposed",
    CONVERSION: "layout_conversion",
    SYNCHRONISATION: "synchronisation",
    DISPATCH: "dispatch",
    HOST: "host",
}


def evaluate(chip: ChipSpec, workload: WorkloadSpec, *, plan: Plan | None = None, every_token: bool = False) -> Result:
    """Run a workload on a chip, placed by `plan`, or alike in every layer by the placement of chip and workload.

    `every_token` simulates each decode step instead of integrating over samples. Pure: the same specs give the same
    result to the bit. Raises MappingError where the workload cannot run.
    """
    samples = [Sample(first_step(workload), 1.0, 0.0), *decode_samples(workload, every_token)]
    return evaluate_steps(chip, workload, samples, plan)


def evaluate_steps(chip: ChipSpec, workload: WorkloadSpec, samples: Sequence[Sample], plan: Plan | None = None) -> Result:
    """As `evaluate`, of the given steps; the workload's request says what the memory must hold."""
    chip = merged_placement(chip, workload.placement)
    workload = _one_of_group(chip, workload)
    precision = workload.precision or chip.precision or PrecisionSpec()
    soc = Soc(chip)
    plan = _checked(soc, workload, plan)
    planned = [_chains(soc, workload, precision, sample.step, plan) for sample in samples]
    pieces = [piece for chains in planned for piece in _distinct(chains)]
    residency = plan_residency(soc, workload, precision, plan, planned)
    table, index = tabulate(soc, residency, pieces)
    at = {id(piece): rows for piece, rows in zip(pieces, index, strict=True)}
    energy = row_energy_j(soc, table)
    steps = tuple(
        _step_result(soc, table, energy, sample, [[(p, at[id(p)], layer) for p, layer in chain] for chain in chains])
        for sample, chains in zip(samples, planned, strict=True)
    )
    error = _integration_error(samples, steps)
    widened = tuple(dict.fromkeys(change for piece in pieces for change in piece.widened))
    return Result(chip, workload, precision, plan, soc, table, steps, residency, error, widened)


def default_plan(soc: Soc, model: ModelSpec, batch: int) -> Plan:
    """The plan that the placement of the chip or system says."""
    if pipelines(soc.chip.members):
        return staged_plan(soc.chip, model, batch, soc.explicit(soc.chip.placement))
    return uniform_plan(model, batch, soc.chip.placement)


def _checked(soc: Soc, workload: WorkloadSpec, plan: Plan | None) -> Plan:
    """The plan, or the one that places all alike; checked against model, batch and blocks."""
    model, batch = workload.model, workload.request.batch
    if plan is None:
        return default_plan(soc, model, batch)
    check_plan(plan, model, batch)
    for placement in plan.distinct():
        if problems := chip_problems(soc.chip.blocks, placement):
            raise SpecError(f"plan {plan.name}", problems)
    if plan.decode and cache_layout(soc, model, plan.parts) != cache_layout(soc, model, plan.decode):
        raise MappingError(f"plan {plan.name}: decode steps attend where the first step wrote no cache")
    return plan


def _one_of_group(chip: ChipSpec, workload: WorkloadSpec) -> WorkloadSpec:
    """The workload of one chip of those that divide the model. Raises MappingError where the group is too small."""
    chips = chip.placement.tensor_parallel
    if chips > 1 and (largest := Soc(chip).peer_link()[1].devices) < chips:
        raise MappingError(f"{chip.name}: placement.tensor_parallel = {chips}, but a group has at most {largest} chips")
    return attrs.evolve(workload, model=divided(workload.model, chips))


def _distinct(chains: list[Chain]) -> list[Piece]:
    return list({id(piece): piece for chain in chains for piece, _ in chain}.values())


def _chains(soc: Soc, workload: WorkloadSpec, precision: PrecisionSpec, step: Step, plan: Plan) -> list[Chain]:
    """Placed pieces in order, one chain per micro-batch of each part; alike micro-batches share their pieces."""
    chains: list[Chain] = []
    for part, groups in zip(plan.parts_of(step.phase), _parts(step, plan), strict=True):
        made: dict[tuple[Group, ...], Chain] = {}
        placement = part.placements[0]
        decode = placement.decode_micro_batches if step.phase == "decode" else 0
        for few in _micro_batches(groups, decode or placement.micro_batches):
            if few not in made:
                made[few] = _chain(soc, Setting(workload.model, precision, placement, step, few), part)
            chains.append(made[few])
    return chains


def _parts(step: Step, plan: Plan) -> list[tuple[Group, ...]]:
    """Groups of each part of the plan; a batch of several groups is not divided."""
    parts = plan.parts_of(step.phase)
    if len(parts) == 1:
        return [step.groups]
    only, *more = step.groups
    if more:
        raise MappingError(f"plan {plan.name}: a step of several groups of sequences cannot be divided into parts")
    return [(attrs.evolve(only, sequences=part.sequences),) for part in parts]


def _micro_batches(groups: tuple[Group, ...], parts: int) -> list[tuple[Group, ...]]:
    only = groups[0]
    parts = min(parts, only.sequences)
    if parts == 1 or len(groups) > 1:
        return [groups]
    sizes = [only.sequences // parts + (i < only.sequences % parts) for i in range(parts)]
    return [(attrs.evolve(only, sequences=size),) for size in sizes]


def _chain(soc: Soc, setting: Setting, part: Part) -> Chain:
    model = setting.model
    encoded = setting.step.encode_tokens
    looked_up = tuple(attrs.evolve(group, new_tokens=group.new_tokens + encoded) for group in setting.groups)
    entering = attrs.evolve(setting, groups=looked_up)
    chain: Chain = [(place_entry(soc, entering, entry_template(entering)), -1)]
    before = len(model.encoder_order)
    if encoded:
        groups = tuple(Group(group.sequences, encoded, 0) for group in setting.groups)
        encoding = attrs.evolve(setting, groups=groups)
        chain += _layers(soc, encoding, model.encoder_order, part.placements[:before], chain[-1][0], encoder=True)
    chain += _layers(soc, setting, model.order, part.placements[before:], chain[-1][0], encoder=False)
    leaving = divided_setting(soc, attrs.evolve(setting, placement=part.placements[-1]))
    last = place_exit(soc, leaving, exit_template(leaving), chain[-1][0].leaves)
    chain.append((last, before + len(model.order)))
    return chain


def _layers(
    soc: Soc, setting: Setting, order: tuple[int, ...], placements: tuple[PlacementSpec, ...], before: Piece, *, encoder: bool
) -> Chain:  # fmt: skip
    """Pieces of the layers; layers of the same kind and placement, entered from the same unit, share one."""
    made: dict[tuple[int, int, str], Piece] = {}
    chain: Chain = []
    name = "encoder" if encoder else "layer"
    for number, (kind, placement) in enumerate(zip(order, placements, strict=True)):
        key = (kind, id(placement), before.leaves)
        if key not in made:
            here = divided_setting(soc, attrs.evolve(setting, placement=placement))
            template = layer_template(here.model.kinds[kind], here, f"{name}_{kind}", encoder=encoder)
            made[key] = place(soc, here, template, before.leaves)
        before = made[key]
        chain.append((before, number))
    return chain


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
        soc=soc,
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
