"""How many attention units to one FFN unit: the optimal ratio, the load that decides it, and what imbalance costs.

Source, unless said: Song et al., arXiv:2601.21351.
"""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import ArrayLike


@attrs.frozen(kw_only=True)
class LinearTimes:
    """Times of a decode step as straight lines: attention over KV tokens, transfer and FFN over sequences.

    `batch` is the sequences of one attention unit, `kv_tokens` the tokens in its cache, r the attention units to one FFN unit:
    attention [s] = a T + b, transfer [s] = a B + b, FFN [s] = a r B + b.
    """

    attention_s_per_token: float
    attention_s: float
    transfer_s_per_sequence: float
    transfer_s: float
    ffn_s_per_sequence: float
    ffn_s: float
    batch: float
    kv_tokens: float

    @property
    def attention_step_s(self) -> float:
        return self.attention_s_per_token * self.kv_tokens + self.attention_s

    @property
    def transfer_step_s(self) -> float:
        return self.transfer_s_per_sequence * self.batch + self.transfer_s

    def ffn_step_s(self, ratio: float) -> float:
        return self.ffn_s_per_sequence * ratio * self.batch + self.ffn_s

    def step_s(self, ratio: float) -> float:
        """The slowest of attention, transfer and FFN."""
        return max(self.attention_step_s, self.transfer_step_s, self.ffn_step_s(ratio))

    def tokens_per_s_per_unit(self, ratio: float) -> float:
        """Tokens/s of `ratio` attention units and one FFN unit, for each of those units."""
        return ratio * self.batch / ((ratio + 1.0) * self.step_s(ratio))


@attrs.frozen
class Ratios:
    """Attention units to one FFN unit at which the FFN takes as long as attention and as the transfer, the peak of an FFN-bound
    system, and the best of them. A negative one is never reached: the FFN is the slowest from the start."""

    attention_bound: float
    transfer_bound: float
    ffn_peak: float

    @property
    def best(self) -> float:
        return max(self.attention_bound, self.transfer_bound, self.ffn_peak)


def optimal_ratio(times: LinearTimes) -> Ratios:
    """Best real ratio of attention to FFN units, endless where the FFN takes no longer for more. Theorem 4.4 (v1, v2)."""
    slope_s = times.ffn_s_per_sequence * times.batch
    if slope_s <= 0.0:
        return Ratios(math.inf, math.inf, math.inf)
    return Ratios(
        (times.attention_step_s - times.ffn_s) / slope_s,
        (times.transfer_step_s - times.ffn_s) / slope_s,
        math.sqrt(times.ffn_s / slope_s),
    )


def best_whole_ratio(times: LinearTimes) -> int:
    """Best whole number of attention units to one FFN unit: throughput has one peak, so it is next to the real optimum."""
    below = max(1, math.floor(optimal_ratio(times).best))
    return max(below, below + 1, key=times.tokens_per_s_per_unit)


def kv_tokens_per_slot(prompt_tokens: ArrayLike, decode_steps: ArrayLike) -> tuple[float, float]:
    """Mean and variance of the KV tokens of a busy decode slot (renewal reward; theta of v3 and v4).

    Arrays of shape (requests,). A request of p prompt tokens and d steps holds p, p + 1, ..., p + d - 1 tokens, a step each;
    one of no steps holds no slot. Raises ValueError where no request decodes.
    """
    p, d = (np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in (prompt_tokens, decode_steps))
    steps = float(d.sum())
    if steps <= 0.0:
        raise ValueError("no request decodes")
    mean = float((d * p + d * (d - 1.0) / 2.0).sum()) / steps
    start = p - mean  # about the mean, so that nothing cancels
    squares = d * start**2 + start * d * (d - 1.0) + (d - 1.0) * d * (2.0 * d - 1.0) / 6.0
    return mean, float(squares.sum()) / steps


def imbalanced_experts_factor(attention_over_ffn: float, balance: float) -> float:
    """Throughput left of a colocated system whose expert-parallel load is uneven: (l + 1) / (l + 1/s).

    `attention_over_ffn` is the ratio of their times, `balance` the mean load of the expert units over the largest.
    Source: Liu et al., arXiv:2602.09721.
    """
    return (attention_over_ffn + 1.0) / (attention_over_ffn + 1.0 / balance)


def imbalanced_attention_factor(loads: ArrayLike) -> float:
    """Throughput left of a disaggregated system whose attention units carry uneven `loads`: mean over largest.

    The FFN units wait for the slowest attention unit, so that none of the imbalance is hidden. Source: Liu et al.
    """
    each = np.asarray(loads, dtype=np.float64)
    return float(each.mean() / each.max())


def disaggregation_speedup(
    batch_growth: float, attention_share: float, dense_share: float, micro_batches: int, attention_nodes: int, ffn_nodes: int
) -> float:  # fmt: skip
    """Tokens/s per node of a disaggregated decode over the colocated one, the experts hidden behind attention.

    Shares are those of the colocated step. The batch of an attention node grows by `batch_growth`; attention grows with it,
    dense layers read their weights once per micro-batch, and the FFN nodes add none. Source: FastAFD (Hao AI Lab, July 2026).
    """
    step = batch_growth * attention_share + micro_batches * dense_share
    return batch_growth / step * attention_nodes / (attention_nodes + ffn_nodes)


def hidden_experts_limit(expert_share: float) -> float:
    """Speed-up of a step from which the experts vanish: 1 / (1 - share). Source: Amdahl's law."""
    return 1.0 / (1.0 - expert_share)
