"""Sides of a measured comparison: what each of two systems reaches, computed. More is better, in all of them.

A side is data (`data/validation/hetero.toml`): a run of a model on a chip or a machine of unlike units, a decode on pools of
GPUs, or products on one unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import attrs

from archmodel.evaluate import evaluate
from archmodel.spec.chip import ChipSpec
from archmodel.spec.fields import choice, flag, names, number, number_format, text
from archmodel.spec.model import ModelSpec
from archmodel.spec.toml import load_chip, load_stack, parse_overrides
from archmodel.spec.workload import PrecisionSpec, RequestSpec, WorkloadSpec
from archmodel.validation.pools import Pool, best
from archmodel.validation.products import Product, read_products, run_products

#: what a run is scored by: tokens/s of the decode, of the prompt, the reciprocal [1/s] of the time to the first token and of
#: the whole decode, tokens/J of the whole run
METRICS = ("decode", "prefill", "first_token", "generation", "tokens_per_joule")


@attrs.frozen
class World:
    """Where sides find chips, stacks, tables and models."""

    root: Path
    models: Mapping[str, ModelSpec]

    def chip(self, name: str, stack: str = "", settings: tuple[str, ...] = ()) -> ChipSpec:
        chip = load_chip(self.root / f"chips/{name}.toml", parse_overrides(settings))
        return attrs.evolve(chip, software=load_stack(self.root / f"stacks/{stack}.toml")) if stack else chip


def formats(settings: tuple[str, ...]) -> PrecisionSpec:
    """Number formats of `key=value` settings; BF16 where they say nothing."""
    given = (setting.partition("=") for setting in settings)
    return PrecisionSpec(**{key: int(value) if value.isdigit() else value for key, _, value in given})  # type: ignore[arg-type]


def choices(doc: str, default: Any = attrs.NOTHING) -> Any:
    """Whole numbers above 0 to choose from."""
    return attrs.field(default=default, metadata={"doc": doc, "rule": _all_above_zero})


def _all_above_zero(value: Any) -> str:
    return "" if all(size > 0 for size in value) else "must be whole numbers > 0"


@attrs.frozen(kw_only=True)
class RunSide:
    """A static batch on a chip."""

    chip: str = text("chip file", required=True)
    model: str = text("model by its name", required=True)
    metric: str = choice("what counts", *METRICS)
    input_tokens: int = number("prompt tokens of a sequence", above=0)
    output_tokens: int = number("tokens generated for a sequence", above=0)
    batch: int = number("sequences", above=0, default=1)
    chips: int = number("alike chips in a row, each busy with its part of the model: their energies add up", above=0, default=1)
    stack: str = text("software stack; empty takes the chip's", default="")
    settings: tuple[str, ...] = names("numbers of the chip that the source or a named fact changes, key=value", default=())
    precision: tuple[str, ...] = names("number formats, key=value; empty takes the chip's", default=())
    source: str = text("where settings come from", required=True)

    def value(self, world: World) -> float:
        request = RequestSpec(batch=self.batch, input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        precision = formats(self.precision) if self.precision else None
        workload = WorkloadSpec(name=self.model, model=world.models[self.model], request=request, precision=precision)
        result = evaluate(world.chip(self.chip, self.stack, self.settings), workload)
        match self.metric:
            case "decode":
                return self.batch / (result.time_per_output_token_s or 1.0)
            case "prefill":
                return result.input_tokens_per_s
            case "first_token":
                return 1.0 / result.time_to_first_token_s
            case "generation":
                return 1.0 / result.decode_s
            case "tokens_per_joule":
                return result.tokens_per_joule / self.chips
        raise ValueError(f"{self.metric}: no such metric")


@attrs.frozen(kw_only=True)
class PoolSide:
    """A decode on GPUs: tokens/s for each unit of cost. Of several sizes the best is taken, as who measured it would."""

    chip: str = text("chip of attention, or of everything", required=True)
    model: str = text("model by its name", required=True)
    gpus: tuple[int, ...] = choices("GPUs of attention, or of everything")
    context_tokens: int = number("tokens in the cache of a sequence", above=0)
    link_gb_per_s: float = number("of a GPU to the others, one way, as achieved", above=0)
    link_us: float = number("start-up of an exchange", at_least=0)
    source: str = text("where the numbers come from", required=True)
    ffn_chip: str = text("chip of the experts; empty takes that of attention", default="")
    ffn_gpus: tuple[int, ...] = choices("GPUs of the experts; none puts all on the others", ())
    ffn_link_gb_per_s: float = number("of an expert GPU; 0 takes that of attention", at_least=0, default=0.0)
    tensor_parallel: tuple[int, ...] = choices("GPUs that divide attention", (1,))
    ffn_tensor_parallel: tuple[int, ...] = choices("GPUs that divide an expert", (1,))
    pipeline: int = number("groups that hold the layers in turn", above=0, default=1)
    micro_batches: tuple[int, ...] = choices("parts of the batch in flight", (1,))
    out_byte: float = number("of an element on the way to the experts", above=0, default=2.0)
    back_byte: float = number("and on the way back", above=0, default=2.0)
    sequences: int = number(
        "sequences of one attention GPU; 0 takes as many as memory and the limit allow", at_least=0, default=0
    )
    token_limit_ms: float = number("limit on a token's time; 0 is none", at_least=0, default=0.0)
    cost: float = number("of one GPU of attention", above=0, default=1.0)
    ffn_cost: float = number("of one GPU of the experts", above=0, default=1.0)
    memory_share: float = number("share of the memory for weights and cache", above=0, at_most=1, default=0.9)
    stack: str = text("software stack; empty takes the chip's", default="")
    precision: tuple[str, ...] = names("number formats, key=value; empty is bf16", default=())

    def value(self, world: World) -> float:
        chip = world.chip(self.chip, self.stack)
        ffn_chip = world.chip(self.ffn_chip, self.stack) if self.ffn_chip else chip
        precision = formats(self.precision)
        pools = [
            Pool(
                model=world.models[self.model], precision=precision, chip=chip, gpus=gpus,
                ffn_chip=ffn_chip, ffn_gpus=ffn_gpus, tensor_parallel=tp, ffn_tensor_parallel=ffn_tp,
                pipeline=self.pipeline, context_tokens=self.context_tokens, micro_batches=parts,
                link_gb_per_s=self.link_gb_per_s, ffn_link_gb_per_s=self.ffn_link_gb_per_s or self.link_gb_per_s,
                link_us=self.link_us, out_byte=self.out_byte, back_byte=self.back_byte, sequences=self.sequences,
                token_limit_s=self.token_limit_ms * 1e-3, memory_share=self.memory_share, cost=self.cost,
                ffn_cost=self.ffn_cost,
            )
            for gpus, tp, ffn_gpus, ffn_tp, parts in product(
                self.gpus, self.tensor_parallel, self.ffn_gpus or (0,), self.ffn_tensor_parallel, self.micro_batches
            )
            if gpus % (tp * self.pipeline) == 0
        ]  # fmt: skip
        return best(pools)


@attrs.frozen(kw_only=True)
class ProductsSide:
    """Products on one unit, or on several units side by side on one memory: per second, or per joule of unit and SRAM."""

    chip: str = text("chip file", required=True)
    units: tuple[str, ...] = names("units that run them, each as many as it can")
    number_format: str = number_format("of all operands")
    per: str = choice("what counts", "second", "joule")
    source: str = text("where the shapes come from", required=True)
    file: str = text("table of products of one image; empty takes m, n and k", default="")
    m: float = number("rows of a single product", at_least=0, default=0.0)
    n: float = number("columns", at_least=0, default=0.0)
    k: float = number("inner size", at_least=0, default=0.0)
    batches: tuple[int, ...] = choices("images at once, for each unit", (1,))
    shared: bool = flag("the units share the memory's bandwidth", default=True)

    def value(self, world: World) -> float:
        chip = world.chip(self.chip)
        products = read_products(world.root / "data/validation" / self.file) if self.file else [Product(self.m, self.n, self.k)]
        runs = [
            run_products(chip, unit, products, self.number_format, batch)
            for unit, batch in zip(self.units, self.batches, strict=True)
        ]
        rates = [batch / run.time_s for batch, run in zip(self.batches, runs, strict=True)]
        if self.per == "joule":
            return sum(rates) / sum(run.unit_j / run.time_s for run in runs)
        wanted = sum(run.memory_s / run.time_s for run in runs) if self.shared else 0.0
        return sum(rates) / max(1.0, wanted)


Side = RunSide | PoolSide | ProductsSide
KINDS: dict[str, type] = {"run": RunSide, "pool": PoolSide, "products": ProductsSide}
