"""A way of placing a workload with what came of it, and the same way again under other numbers."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from archmodel.result import Result
from archmodel.spec.chip import ChipSpec
from archmodel.spec.workload import WorkloadSpec
from archmodel.steps import Sample, decode_step, first_step

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


def gain(old: Result, new: Result) -> float:
    """What `new` gains on `old`: throughput over throughput, less one."""
    return old.total_s / new.total_s - 1.0


def few_samples(workload: WorkloadSpec) -> list[Sample]:
    """The first step and one decode step for all others, in the middle: right where cost is linear in the context."""
    steps = workload.request.output_tokens - 1
    samples = [Sample(first_step(workload), 1.0, 0.0)]
    if steps < 1:
        return samples
    start = workload.request.input_tokens if workload.model.family == "decoder" else 1
    return [*samples, Sample(decode_step(workload, start + (steps - 1) // 2), float(steps), 0.0)]
