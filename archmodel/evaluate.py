"""evaluate(chip, workload) -> Result: steps, placement, costs, timelines, and their integral over the decode."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from archmodel.costs import Floats
from archmodel.errors import MappingError
from archmodel.kernels.timeline import CONVERSION, DISPATCH, HOST, MEMORY, OVERHEAD, SYNCHRONISATION, TRANSFER
from archmodel.layers import entry_template, exit_template, layer_template
from archmodel.operations import Ints
from archmodel.parallel import divided
from archmodel.partition import Piece, place, place_entry, place_exit
from archmodel.residency import plan_residency
from archmodel.result import Result, StepResult, row_energy_j
from archmodel.schedule import Table, run, tabulate
from archmodel.soc import Soc
from archmodel.spec.check import merged_placement
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import PrecisionSpec, WorkloadSpec
from archmodel.steps import Group, Sample, Step, decode_samples, first_step
from archmodel.template import Setting
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
    energy = row_energy_j(soc, table)
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
    encoded = setting.step.encode_tokens
    looked_up = tuple(attrs.evolve(group, new_tokens=group.new_tokens + encoded) for group in setting.groups)
    entering = attrs.evolve(setting, groups=looked_up)
    chain: Chain = [(place_entry(soc, entering, entry_template(entering)), -1)]
    if encoded:
        groups = tuple(Group(group.sequences, encoded, 0) for group in setting.groups)
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
