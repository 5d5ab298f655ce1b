"""A request -> steps: the first pass, and the decode steps at which the growing context is sampled."""

from __future__ import annotations

from itertools import pairwise

import attrs
import numpy as np

from archmodel.spec.model import AttentionSpec
from archmodel.spec.workload import WorkloadSpec

_POINTS = 3  # Gauss-Legendre points in each stretch of context; exact for cost polynomials up to degree 5


@attrs.frozen
class Group:
    """Sequences that take the same pass: `new_tokens` each on top of `context_tokens` already cached."""

    sequences: int
    new_tokens: int
    context_tokens: int


@attrs.frozen
class Step:
    """One pass of the model over a batch. `encode_tokens` > 0 runs an encoder-decoder's encoder in the same step."""

    label: str
    phase: str
    groups: tuple[Group, ...]
    encode_tokens: int = 0
    cross_tokens: int = 0
    routing: str = "uniform"

    @property
    def tokens(self) -> int:
        return sum(group.sequences * group.new_tokens for group in self.groups)

    @property
    def sequences(self) -> int:
        return sum(group.sequences for group in self.groups)


@attrs.frozen
class Sample:
    """A step, the number of steps it stands for, and the same by the embedded lower-order rule."""

    step: Step
    weight: float
    coarse_weight: float


def first_step(workload: WorkloadSpec) -> Step:
    """Prefill of a decoder; the whole pass of an encoder; encoding and the first token of an encoder-decoder."""
    request, family = workload.request, workload.model.family
    if family == "encoder-decoder":
        source = request.encoder_tokens or request.input_tokens
        return Step("encode", "encode", (Group(request.batch, 1, 0),), encode_tokens=source, cross_tokens=source,
                    routing=request.routing)  # fmt: skip
    phase = "prefill" if family == "decoder" else "encode"
    return Step(phase, phase, (Group(request.batch, request.input_tokens, 0),), routing=request.routing)


def decode_step(workload: WorkloadSpec, context: int) -> Step:
    """One token for every sequence on top of `context` cached ones."""
    request = workload.request
    source = request.encoder_tokens or request.input_tokens if workload.model.family == "encoder-decoder" else 0
    groups = (Group(request.batch, 1, context),)
    return Step(f"decode@{context}", "decode", groups, cross_tokens=source, routing=request.routing)


def decode_samples(workload: WorkloadSpec, every_token: bool) -> list[Sample]:
    """Steps after the first token, with weights that add up to their number.

    Between sliding windows the cost of a step is close to piecewise linear in the context, so each stretch between
    windows is integrated by a Gauss-Legendre rule over the integers of the stretch.
    """
    request = workload.request
    steps = request.output_tokens - 1
    if steps < 1:
        return []
    start = request.input_tokens if workload.model.family == "decoder" else 1
    contexts = np.arange(start, start + steps)
    if every_token:
        return [Sample(decode_step(workload, int(c)), 1.0, 1.0) for c in contexts]
    samples: list[Sample] = []
    for low, high in _stretches(workload, start, start + steps):
        samples += _sampled(workload, low, high)
    return samples


def _stretches(workload: WorkloadSpec, start: int, end: int) -> list[tuple[int, int]]:
    """[start, end) cut where a layer's window fills, beyond which its cost no longer grows."""
    mixers = [kind.mixer for kind in workload.model.kinds]
    windows = {mixer.window_tokens for mixer in mixers if isinstance(mixer, AttentionSpec) and mixer.window_tokens}
    cuts = sorted({start, end, *(w for w in windows if start < w < end)})
    return list(pairwise(cuts))


def _sampled(workload: WorkloadSpec, low: int, high: int) -> list[Sample]:
    """Samples of the contexts low <= c < high: all of them if few, else Gauss-Legendre points rounded to integers."""
    length = high - low
    if length <= _POINTS:
        return [Sample(decode_step(workload, c), 1.0, 1.0) for c in range(low, high)]
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    contexts = np.rint(low + (nodes + 1.0) / 2.0 * (length - 1)).astype(int)
    return [
        Sample(decode_step(workload, int(c)), float(w) / 2.0 * length, float(length if i == _POINTS // 2 else 0.0))
        for i, (c, w) in enumerate(zip(contexts, weights, strict=True))
    ]
