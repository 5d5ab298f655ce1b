"""Decode of a mixture of experts on a pool of GPUs: everything on each of them, or attention and experts on GPUs of their own.

What one GPU computes comes from `evaluate` (attention, norms, head) and from the kernels of experts and dense products; the
pipeline of both pools is that of `theory.pingpong`. A pool serves the largest batch that its memory and the limit on a token's
time allow, as whoever measured it did.

Ignored: uneven loads of attention GPUs, the router's own product, and the host's work between steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np

from archmodel import sizes
from archmodel.components import memory
from archmodel.components.collective import OPS, collectives
from archmodel.errors import MappingError
from archmodel.evaluate import evaluate_steps
from archmodel.experts import ExpertFormats, ExpertWork, expert_kernels, exponent
from archmodel.operations import Floats, Ints, Kind, rows_from
from archmodel.parallel import divided
from archmodel.predict import unit_costs
from archmodel.soc import Soc
from archmodel.spec.chip import CAPABILITIES, ChipSpec
from archmodel.spec.model import LayerSpec, ModelSpec, MoeSpec
from archmodel.spec.workload import ROLES, PrecisionSpec, RequestSpec, WorkloadSpec
from archmodel.steps import Group, Sample, Step
from archmodel.theory.pingpong import Stages, makespan_s
from archmodel.units import FORMATS, element_bytes

_FINE = 64  # the largest batch is found to this part of it
_MOST = 1 << 15  # sequences of one group


@attrs.frozen
class _Work:
    """Seconds of the GPU's kernels, and of the host that calls them one by one without waiting; none with graphs."""

    unit_s: float
    host_s: float

    @property
    def time_s(self) -> float:
        return max(self.unit_s, self.host_s)


@attrs.frozen(eq=False, kw_only=True)
class Pool:
    """GPUs that decode one model. `ffn_gpus` = 0 puts everything on the attention GPUs."""

    model: ModelSpec
    precision: PrecisionSpec
    chip: ChipSpec  # of attention; of everything where there are no FFN GPUs
    gpus: int
    ffn_chip: ChipSpec
    ffn_gpus: int
    tensor_parallel: int  # GPUs of one node that divide attention
    ffn_tensor_parallel: int  # GPUs that divide each expert
    pipeline: int  # groups of GPUs that hold the layers one after another
    context_tokens: int
    micro_batches: int
    link_gb_per_s: float  # of a GPU to the others, one way, as achieved
    ffn_link_gb_per_s: float  # of a GPU of the experts
    link_us: float  # of one exchange
    out_byte: float  # of an element on the way to the experts
    back_byte: float
    sequences: int  # of one attention GPU, all micro-batches together; 0 takes as many as memory and limit allow
    token_limit_s: float  # 0: none
    memory_share: float
    cost: float  # of one attention GPU
    ffn_cost: float

    @property
    def colocated(self) -> bool:
        return self.ffn_gpus == 0

    @property
    def expert_gpus(self) -> int:
        return self.gpus // self.pipeline if self.colocated else self.ffn_gpus

    def step_s(self, sequences: int) -> float:
        """Time [s] of a token where every attention group of `tensor_parallel` GPUs has `sequences` in each micro-batch."""
        groups = self.gpus // (self.tensor_parallel * self.pipeline)
        attention, ffn = self._attention(sequences), self._ffn(sequences * groups)
        out_s, back_s = self._exchange_s(sequences, self.out_byte), self._exchange_s(sequences, self.back_byte)
        gather_s, scatter_s = self._share_s(sequences * groups)
        layers = len(self.model.order)
        if not self.colocated:
            ways = (attention.time_s, out_s + gather_s, ffn.time_s, back_s + scatter_s)
            return makespan_s(Stages(*(way_s / layers for way_s in ways)), self.micro_batches, layers)
        both = _Work(attention.unit_s + ffn.unit_s + gather_s + scatter_s, attention.host_s + ffn.host_s)
        link_s = out_s + back_s
        return max(self.micro_batches * max(both.time_s, link_s), both.time_s + link_s)

    def tokens_per_s_per_cost(self) -> float:
        """Largest throughput within memory and the limit on a token, 0 where not one sequence fits or keeps the limit."""
        groups = self.gpus // (self.tensor_parallel * self.pipeline)
        number = self._most_sequences()
        served = number * self.micro_batches * self.pipeline * groups
        spent = self.gpus * self.cost + self.ffn_gpus * self.ffn_cost
        return served / self.step_s(number) / spent if number else 0.0

    def _most_sequences(self) -> int:
        """Sequences of one attention group and micro-batch."""
        if self.sequences:
            return max(1, self.sequences * self.tensor_parallel // self.micro_batches)
        low, high = 0, self._sequences_that_fit()
        if high < 1 or not self.token_limit_s or self.step_s(high) <= self.token_limit_s:
            return high
        while high - low > max(1, low // _FINE):
            middle = (low + high) // 2
            low, high = (middle, high) if self.step_s(middle) <= self.token_limit_s else (low, middle)
        return low

    def _sequences_that_fit(self) -> int:
        """Sequences of one attention group and micro-batch whose cache fits; 0 where the experts do not."""
        part = divided(self.model, self.tensor_parallel)
        experts = sum(_expert_byte(kind, self.model.hidden, self.precision) for kind in self._layers())
        all_weights = float(sizes.weight_bytes(self.model, self.precision))
        share = experts / self.expert_gpus / (1 if not self.colocated else self.pipeline)
        held = (all_weights - experts) / self.tensor_parallel / self.pipeline + (share if self.colocated else 0.0)
        if not self.colocated and share > self.memory_share * _capacity_byte(self.ffn_chip):
            return 0
        room = self.memory_share * _capacity_byte(self.chip) - held
        each = sizes.kv_cache_bytes(part, self.precision.kv_cache, self.context_tokens) / self.pipeline
        in_flight = self.micro_batches * self.pipeline
        return int(min(_MOST, room // (each * in_flight))) if room > 0 else 0

    def _layers(self) -> list[LayerSpec]:
        return [self.model.kinds[kind] for kind in self.model.order]

    @cached_property
    def _attention_only(self) -> ModelSpec:
        bare = tuple(attrs.evolve(kind, moe=None, feed_forward=None, norms=1) for kind in self.model.kinds)
        return attrs.evolve(self.model, kinds=bare)

    def _attention(self, sequences: int) -> _Work:
        """All layers without their feed-forward parts, with the head."""
        placement = attrs.evolve(self.chip.placement, tensor_parallel=self.tensor_parallel)
        chip = attrs.evolve(self.chip, placement=placement, software=attrs.evolve(self.chip.software, call_us={}))
        request = RequestSpec(batch=sequences, input_tokens=1, output_tokens=1)
        workload = WorkloadSpec(name=self.model.name, model=self._attention_only, precision=self.precision, request=request)
        step = Step("decode", "decode", (Group(sequences, 1, self.context_tokens),))
        result = evaluate_steps(chip, workload, [Sample(step, 1.0, 1.0)])
        rows = result.table.rows
        calls_s = np.where((rows.kind >= 0) & (rows.fused == 0), _call_s(self.chip, rows.kind), 0.0)
        return _Work(result.first.total_s, float(result.first.count @ calls_s))

    def _ffn(self, sequences: int) -> _Work:
        """The feed-forward parts of all layers on one GPU of those that share `sequences` tokens."""
        soc = Soc(self.ffn_chip if not self.colocated else self.chip)
        unit = next(iter(soc.units))
        records, times = [], []
        for kind, count in Counter(self.model.order).items():
            found = self._ffn_records(soc, unit, self.model.kinds[kind], sequences)
            records += found
            times += [count] * len(found)
        rows, repeated = rows_from(records), np.array(times)
        return _Work(
            float(repeated @ unit_costs(soc, unit, rows, None).duration_s), float(repeated @ _call_s(soc.chip, rows.kind))
        )

    def _share_s(self, sequences: int) -> tuple[float, float]:
        """Time [s] in which the GPUs that divide experts gather the tokens of all layers, and add up their results.

        Where experts have GPUs of their own, both are part of the way there and back, as other micro-batches compute
        meanwhile; where not, tokens are there already and one all-reduce adds up.
        """
        tp = self.ffn_tensor_parallel
        if tp == 1:
            return 0.0, 0.0
        soc = Soc(self.ffn_chip if not self.colocated else self.chip)
        link, peers = soc.peer_link()
        elements = sequences * tp / self.expert_gpus * self.model.hidden
        ops = ("all_gather", "reduce_scatter") if not self.colocated else ("all_reduce", "all_reduce")
        byte = (elements * self.out_byte if not self.colocated else 0.0, elements * self.back_byte)
        found = collectives(soc.links[link], peers, [OPS.index(op) for op in ops], tp, byte, True)[:, 0] * len(self.model.order)
        return (float(found[0]), float(found[1])) if not self.colocated else (0.0, float(found[1]))

    def _ffn_records(self, soc: Soc, unit: str, layer: LayerSpec, tokens: int) -> list[dict[str, object]]:
        gpus, tp, hidden = self.expert_gpus, self.ffn_tensor_parallel, self.model.hidden
        compute = soc.compute_format(unit, self.precision.feed_forward, "experts")
        narrow = min(element_bytes(compute), element_bytes(self.precision.activations))
        byte = element_bytes(self.precision.activations)
        code, weight = FORMATS.index(compute), element_bytes(self.precision.weights)
        records: list[dict[str, object]] = []
        if layer.moe is not None:
            work = ExpertWork(
                tokens=float(tokens), hidden=float(hidden), intermediate=layer.moe.intermediate / tp,
                matrices=2.0 if layer.moe.gated else 1.0, experts=float(layer.moe.experts),
                chosen=float(layer.moe.experts_per_token), ranks=gpus / tp, routing=exponent("uniform"),
            )  # fmt: skip
            formats = ExpertFormats(activation_byte=byte, operand_byte=narrow, written_byte=narrow, weight_byte=weight,
                                    compute_format=code)  # fmt: skip
            records += [{"name": name, **columns} for name, columns in expert_kernels(work, formats)]
            if layer.moe.shared_intermediate:
                mine = max(1.0, tokens * tp / gpus)
                records += _dense(mine, hidden, layer.moe.shared_intermediate / tp, code, narrow, byte, weight)
        if layer.feed_forward is not None:
            split = tp if self.colocated else gpus
            mine = max(1.0, tokens * split / gpus)
            records += _dense(mine, hidden, layer.feed_forward.intermediate / split, code, narrow, byte, weight)
        return records

    def _exchange_s(self, sequences: int, byte: float) -> float:
        """Time [s] in which one attention GPU sends its tokens to their experts in all layers, or gets them back."""
        each_byte = sequences / self.tensor_parallel * self.model.hidden * byte
        copies = [self._copies(layer.moe) for layer in self._layers() if layer.moe is not None]
        moved = [each_byte * number for number in copies if number]
        senders = self.gpus / self.pipeline
        fan_in = senders / self.ffn_gpus if self.ffn_gpus else 0.0
        s_per_byte = max(1.0 / self.link_gb_per_s, fan_in / self.ffn_link_gb_per_s) * 1e-9
        return sum(self.link_us * 1e-6 + byte * s_per_byte for byte in moved)

    def _copies(self, moe: MoeSpec) -> float:
        """Copies of a token that leave its GPU: one for each group of GPUs with an expert that it chose, its own left out."""
        ranks = self.expert_gpus / self.ffn_tensor_parallel
        reached = ranks * (1.0 - (1.0 - 1.0 / ranks) ** moe.experts_per_token)
        return reached * (1.0 - 1.0 / ranks) if self.colocated else reached


def best(pools: Sequence[Pool]) -> float:
    """Largest throughput for a unit of cost among pools of one system. Raises MappingError where none serves a sequence."""
    found = max((pool.tokens_per_s_per_cost() for pool in pools), default=0.0)
    if not found:
        raise MappingError(f"{pools[0].model.name if pools else 'pool'}: not one sequence fits or keeps the limit")
    return found


def _call_s(chip: ChipSpec, kind: Ints) -> Floats:
    """Host time [s] of calling each kernel; none with graphs. Shape (rows,)."""
    call_us = chip.software.call_us
    product = (kind == Kind.MATMUL) | (kind == Kind.ATTENTION)
    return np.where(product, call_us.get("matmul", 0.0), call_us.get("activation", 0.0)) * 1e-6


def _dense(
    m: float, hidden: float, inner: float, code: int, narrow: float, byte: float, weight: float
) -> list[dict[str, object]]:
    """Gate and up, activation and down of a dense part."""
    common = {"kind": int(Kind.MATMUL), "role": ROLES.index("feed_forward"), "capability": CAPABILITIES.index("matmul"),
              "compute_format": code, "m": m, "input_byte": narrow, "output_byte": byte, "weight_byte": weight}  # fmt: skip
    activation = {
        "kind": int(Kind.VECTOR), "role": ROLES.index("feed_forward"), "capability": CAPABILITIES.index("activation"),
        "compute_format": FORMATS.index("fp32"), "flop": 3.0 * m * inner, "exp": m * inner, "read_byte": 2.0 * m * inner * byte,
        "write_byte": m * inner * narrow,
    }  # fmt: skip
    return [
        {"name": "gate_up", **common, "n": 2.0 * inner, "k": hidden},
        {"name": "activation", **activation},
        {"name": "down", **common, "n": hidden, "k": inner},
    ]


def _expert_byte(layer: LayerSpec, hidden: int, precision: PrecisionSpec) -> float:
    """Bytes of the routed experts of a layer."""
    if layer.moe is None:
        return 0.0
    matrices = 3 if layer.moe.gated else 2
    return layer.moe.experts * matrices * hidden * layer.moe.intermediate * element_bytes(precision.weights)


def _capacity_byte(chip: ChipSpec) -> float:
    soc = Soc(chip)
    return memory.capacity_byte(soc.tiers[next(iter(soc.units.values())).memory])
