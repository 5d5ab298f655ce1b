"""Ping-pong: micro-batches that go to and fro between attention units and FFN units, layer after layer.

Sources: MegaScale-Infer, arXiv:2504.02263, eq. 1-6; aiconfigurator sdk/inference_session.py for the three models of a
cycle; Step-3, arXiv:2507.19427, and Liu et al., arXiv:2602.09721, for the budgets. Stages take the same time in every
layer and for every micro-batch; each stage serves one micro-batch at a time, in order.
"""

from __future__ import annotations

import math
from typing import Literal

import attrs

#: how far transfers hide behind units: not at all, behind the unit that they leave, or wholly once there are enough parts
Overlap = Literal["serial", "conservative", "optimistic"]


@attrs.frozen
class Stages:
    """Times [s] of one micro-batch in one layer: attention, transfer out, FFN, transfer back."""

    attention_s: float
    out_s: float
    ffn_s: float
    back_s: float

    @property
    def round_s(self) -> float:
        """One micro-batch through one layer, alone."""
        return self.attention_s + self.out_s + self.ffn_s + self.back_s

    @property
    def unit_s(self) -> float:
        """The slower of the two units."""
        return max(self.attention_s, self.ffn_s)

    @property
    def transfer_s(self) -> float:
        """Both ways together."""
        return self.out_s + self.back_s

    @property
    def slowest_s(self) -> float:
        """The slowest stage, where each direction of the link is a stage of its own."""
        return max(self.unit_s, self.out_s, self.back_s)


def least_micro_batches(transfer_over_unit: float) -> int:
    """Fewest micro-batches that hide the transfers: ceil(2 (1 + Tc/Tf)), Tc one way, Tf the slower unit.

    Raises ValueError where a transfer takes as long as the slower unit: no number of micro-batches hides it then.
    Source: MegaScale-Infer eq. 3.
    """
    if transfer_over_unit >= 1.0:
        raise ValueError("a transfer as long as the slower unit is not hidden by any number of micro-batches")
    return math.ceil(2.0 * (1.0 + transfer_over_unit))


def hides_transfers(stages: Stages, micro_batches: int) -> bool:
    """Whether m Tf >= 2 (Tf + Tc) and Tc < Tf, with Tc the slower way. Source: MegaScale-Infer eq. 2-3."""
    way_s = max(stages.out_s, stages.back_s)
    return way_s < stages.unit_s and micro_batches * stages.unit_s >= 2.0 * (stages.unit_s + way_s)


def layer_period_s(stages: Stages, micro_batches: int) -> float:
    """Time [s] per layer in the steady state: the slowest stage serves all micro-batches, or one waits for its own return.

    Source: MegaScale-Infer eq. 4-5 with the link as a stage; light-llm-simulator's AFD page has the same two terms.
    """
    return max(micro_batches * stages.slowest_s, stages.round_s)


def makespan_s(stages: Stages, micro_batches: int, layers: int) -> float:
    """Time [s] of all micro-batches through all layers, exact for in-order stages.

    MegaScale-Infer eq. 6, (Ta + Te + 2 Tc) + Tf (m L - 1), where a micro-batch is back before its turn; otherwise every layer
    takes a whole round and the last micro-batch follows m - 1 stages later.
    """
    full = stages.round_s + stages.slowest_s * (micro_batches * layers - 1)
    waiting = layers * stages.round_s + stages.slowest_s * (micro_batches - 1)
    return max(full, waiting)


def utilisation(stages: Stages, micro_batches: int) -> tuple[float, float]:
    """Shares of the steady state in which the attention and the FFN units work."""
    period_s = layer_period_s(stages, micro_batches)
    return micro_batches * stages.attention_s / period_s, micro_batches * stages.ffn_s / period_s


def micro_batches_to_hide(stages: Stages) -> float:
    """Parts (not rounded) from which both ways together hide behind the slower unit: 2 + Tc/Tf. Source: aiconfigurator."""
    return 2.0 + stages.transfer_s / stages.unit_s


def cycle_s(stages: Stages, micro_batches: int, overlap: Overlap) -> float:
    """Time [s] between two micro-batches of a layer that leave the pipeline, by how far transfers overlap.

    "optimistic" lets both directions share one link, needs `micro_batches_to_hide` and is "conservative" below it;
    "conservative" lets a unit wait for what it sends and leaves out that the directions may meet on the link, so that it is the
    shorter one where transfers take longest. Source: aiconfigurator `_pipeline_tcycle`.
    """
    match overlap:
        case "serial":
            return stages.round_s
        case "optimistic" if micro_batches >= micro_batches_to_hide(stages):
            return max(stages.unit_s, stages.transfer_s)
        case "optimistic" | "conservative":
            return max(stages.attention_s + stages.out_s, stages.ffn_s + stages.back_s)
    raise ValueError(f"{overlap}: no way of overlapping")


def step_s(stages: Stages, micro_batches: int, layers: int, overlap: Overlap) -> float:
    """Time [s] of a step: the first micro-batch in full, then a cycle for each further one of each layer.

    Source: aiconfigurator `_pipeline_global_step_latency`.
    """
    return stages.round_s + cycle_s(stages, micro_batches, overlap) * (micro_batches * layers - 1)


def stage_budget_s(
    token_s: float, layers: int, stages: int, *, accepted_tokens: float = 1.0, outside_s: float = 0.0
) -> float:  # fmt: skip
    """Time [s] that a stage of a layer may take so that a token takes `token_s`.

    `accepted_tokens` of speculation come out of a step, `outside_s` of which passes outside the layers.
    Sources: Step-3 (three stages: attention, network, FFN); Liu et al. (three batches that overlap).
    """
    return (token_s * accepted_tokens - outside_s) / (layers * stages)


def longest_hidden_transfer_s(unit_s: float, micro_batches: int) -> float:
    """Longest one-way transfer [s] that `micro_batches` hide behind a unit of `unit_s`: m >= 2 (1 + Tc/Tf), solved for Tc."""
    return min((micro_batches / 2.0 - 1.0) * unit_s, unit_s)
