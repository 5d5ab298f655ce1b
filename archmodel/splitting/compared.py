"""A way of placing a workload with what came of it, and the same way again under other numbers."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from archmodel.evaluate import evaluate_steps
from archmodel.plan import Part, Plan
from archmodel.result import Result
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import WorkloadSpec
from archmodel.steps import Sample, decode_samples, decode_step, first_step

#: granularity of a baseline that is a chip of its own
OTHER_CHIP = "other chip"

Run = Callable[[ChipSpec, WorkloadSpec, list[Sample]], Result]


@attrs.frozen(eq=False)
class Compared:
    """One strategy: its result, and `run`, which repeats it with another chip, workload or steps."""

    name: str
    granularity: str  # one side, module, layer, request, operator, auto, or OTHER_CHIP
    result: Result
    run: Run

    def again(self, chip: ChipSpec, workload: WorkloadSpec) -> float:
        """Time [s] of the whole run under other numbers, of few steps. Raises MappingError where it cannot run."""
        return self.run(chip, workload, few_samples(workload)).total_s


def planned(name: str, granularity: str, result: Result) -> Compared:
    """A strategy by its plan, which another batch divides in the same proportions."""

    def run(chip: ChipSpec, workload: WorkloadSpec, samples: list[Sample]) -> Result:
        return evaluate_steps(chip, workload, samples, rebatched(result.plan, workload.request.batch))

    return Compared(name, granularity, result, run)


def elsewhere(chip: ChipSpec, result: Result) -> Compared:
    """A baseline on a chip of its own, as that chip places it: no number of the system changes it."""

    def run(_: ChipSpec, workload: WorkloadSpec, samples: list[Sample]) -> Result:
        return evaluate_steps(chip, workload, samples)

    return Compared(chip.name, OTHER_CHIP, result, run)


def gain(old: Result, new: Result) -> float:
    """What `new` gains on `old`: throughput over throughput, less one."""
    return old.total_s / new.total_s - 1.0


def all_samples(workload: WorkloadSpec) -> list[Sample]:
    """The steps that `evaluate` takes."""
    return [Sample(first_step(workload), 1.0, 0.0), *decode_samples(workload, every_token=False)]


def few_samples(workload: WorkloadSpec) -> list[Sample]:
    """The first step and one decode step for all others, in the middle: right where cost is linear in the context."""
    steps = workload.request.output_tokens - 1
    samples = [Sample(first_step(workload), 1.0, 0.0)]
    if steps < 1:
        return samples
    start = workload.request.input_tokens if workload.model.family == "decoder" else 1
    return [*samples, Sample(decode_step(workload, start + (steps - 1) // 2), float(steps), 0.0)]


def rebatched(plan: Plan, batch: int) -> Plan:
    """The plan for another batch, whose parts keep their proportions as far as whole sequences allow."""
    return attrs.evolve(plan, parts=_resized(plan.parts, batch), decode=_resized(plan.decode, batch))


def _resized(parts: tuple[Part, ...], batch: int) -> tuple[Part, ...]:
    total, reached, out = sum(part.sequences for part in parts), 0, []
    for part in parts:
        before = round(batch * reached / total)
        reached += part.sequences
        if (count := round(batch * reached / total) - before) > 0:
            out.append(attrs.evolve(part, sequences=count))
    return tuple(out)
