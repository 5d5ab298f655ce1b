"""Serving points: time to the first token and per further token of a closed loop of requests with in-flight batching.

`concurrency` clients each send a request as soon as the one before is answered, so that a batch of that many sequences decodes
while, in the steady state, concurrency / osl requests arrive in every step, whose prompts run in between. A request then sees

    tpot = decode step + interference x concurrency / osl x (step with a prompt in it - decode step)
    ttft = step with a prompt in it + (1 - interference) x concurrency x (step with a prompt in it - decode step)

which is why a measured time per output token is above that of a static batch. The interference (`software.prompt_interference`)
is 1 where requests end at all times, and about a half where all start together and prompts go first: a request then waits for
the prompts before it and is stalled by those after it.

Queueing is not modelled: bursts, and a batch larger than the KV cache holds, make a measured time to the first token longer, up
to many times. Where the cache holds fewer sequences, as many as fit are served at once.
"""

from __future__ import annotations

import attrs

from archmodel import sizes
from archmodel.components import memory
from archmodel.errors import MappingError
from archmodel.evaluate import evaluate_steps
from archmodel.parallel import divided
from archmodel.result import Result
from archmodel.soc import Soc, default_tier
from archmodel.spec.chip import ChipSpec, SoftwareSpec
from archmodel.spec.model import ModelSpec
from archmodel.spec.workload import PrecisionSpec, RequestSpec, WorkloadSpec
from archmodel.steps import Group, Sample, Step


def served_precision(name: str, kv_cache: str = "bf16") -> PrecisionSpec:
    """Number formats of a dense model as libraries serve it, by the name of its checkpoint: bf16, fp8 or nvfp4.

    Quantised are the matrices of the layers; attention of the latter two computes in fp8. mxfp4 stores weights alone, which are
    multiplied in bf16. The cache is given apart, for it is an option of the library. Raises MappingError for another name.
    """
    narrow = {"bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp8", "mxfp4": "bf16"}
    if name not in narrow:
        raise MappingError(f"{name}: no such served format; known are {', '.join(narrow)}")
    weights = "fp8" if name == "fp8_block" else name
    return PrecisionSpec(
        weights=weights, embedding="bf16", attention=narrow[name], kv_cache=kv_cache,
        feed_forward="bf16" if name == "mxfp4" else weights,
        source=f"a checkpoint in {name}",
    )  # fmt: skip


@attrs.frozen(kw_only=True)
class ServingPoint:
    """What one client of a closed loop sees; all times [s]."""

    ttft_s: float  # time to the first token, without queueing
    tpot_s: float  # time per further token, prompts of the others included
    static_tpot_s: float  # the same of a static batch
    batch: int  # sequences decoded together: the concurrency, or what the KV cache holds


def serving_point(
    chip: ChipSpec,
    model: ModelSpec,
    precision: PrecisionSpec,
    tp: int,
    concurrency: int,
    isl: int,
    osl: int,
    stack: SoftwareSpec | None = None,
) -> ServingPoint:
    """A closed loop on `tp` alike chips: prompts of `isl` tokens, answers of `osl`, under `stack` (the chip's unless said).

    Raises MappingError where not one sequence fits.
    """
    return point_of(serving_steps(chip, model, precision, tp, concurrency, isl, osl, stack), osl)


def point_of(result: Result, osl: int) -> ServingPoint:
    """What a client sees of answers of `osl` tokens, from `serving_steps`."""
    batch = result.workload.request.batch
    with_prompt_s, decode_s = (step.total_s for step in result.steps)
    others_s = (batch - 1) * max(0.0, with_prompt_s - decode_s)  # the prompts of the others, once each
    share = result.chip.software.prompt_interference
    return ServingPoint(
        ttft_s=with_prompt_s + (1.0 - share) * others_s,
        tpot_s=decode_s + share * others_s / osl,
        static_tpot_s=decode_s,
        batch=batch,
    )


def serving_steps(
    chip: ChipSpec,
    model: ModelSpec,
    precision: PrecisionSpec,
    tp: int,
    concurrency: int,
    isl: int,
    osl: int,
    stack: SoftwareSpec | None = None,
) -> Result:
    """The two steps of such a loop: one with a prompt in it, and one that decodes only. Raises as `serving_point`."""
    placement = attrs.evolve(chip.placement, tensor_parallel=tp)
    chip = attrs.evolve(chip, placement=placement, software=stack or chip.software)
    batch = min(concurrency, sequences_that_fit(chip, model, precision, isl, osl))
    request = RequestSpec(batch=batch, input_tokens=isl, output_tokens=max(1, osl // 2))  # a mean sequence is half answered
    workload = WorkloadSpec(name=model.name, model=model, precision=precision, request=request)
    decoding = Group(batch, 1, isl + osl // 2)
    decode = Step("decode", "decode", (decoding,))
    others = (attrs.evolve(decoding, sequences=batch - 1),) if batch > 1 else ()
    mixed = Step("prefill", "prefill", (Group(1, isl, 0), *others))
    return evaluate_steps(chip, workload, [Sample(mixed, 1.0, 0.0), Sample(decode, 1.0, 1.0)])


def sequences_that_fit(chip: ChipSpec, model: ModelSpec, precision: PrecisionSpec, isl: int, osl: int) -> int:
    """Sequences whose cache of isl + osl / 2 tokens fits beside the weights into what the stack gives to both."""
    soc = Soc(chip)
    part = divided(model, chip.placement.tensor_parallel)
    tier = default_tier(soc, "kv_cache")
    room = chip.software.memory_share * memory.capacity_byte(soc.tiers[tier])
    if tier == default_tier(soc, "weights"):
        room -= sizes.weight_bytes(part, precision)
    each = sizes.kv_cache_bytes(part, precision.kv_cache, isl + osl // 2, 1, chip.placement.window_policy)
    fitting = int(room // each) if each else 1 << 30
    if fitting < 1:
        raise MappingError(f"{chip.name}: not one sequence of {isl} + {osl} tokens fits beside the weights of {model.name}")
    return fitting
