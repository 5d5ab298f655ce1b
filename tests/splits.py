"""Strategies for tests: every layer of every sequence alike, by a few owners; and a chip whose units bring their own memory."""

from __future__ import annotations

import attrs

from archmodel.evaluate import evaluate_steps
from archmodel.plan import uniform_plan
from archmodel.splitting.compared import Compared
from archmodel.steps import Sample, decode_samples, first_step

ON_GPU = dict.fromkeys(("attention", "projection", "feed_forward", "router", "head", "vector", "sampling"), "gpu")


def samples(workload):
    return [Sample(first_step(workload), 1.0, 0.0), *decode_samples(workload, False)]


def placed(chip, workload, name, granularity="module", **placement):
    """A strategy that changes the chip's placement."""

    def run(chip, workload, steps):
        plan = uniform_plan(workload.model, workload.request.batch, attrs.evolve(chip.placement, **placement), name)
        return evaluate_steps(chip, workload, steps, plan)

    return Compared(name, granularity, run(chip, workload, samples(workload)), run)


def one_side(chip, workload, **more):
    return placed(chip, workload, "all on gpu", "one side", **{**ON_GPU, **more})


def module(chip, workload, **more):
    return placed(chip, workload, "attention on gpu, FFN on npu", **{**ON_GPU, "feed_forward": "npu", **more})
