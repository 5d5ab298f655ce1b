"""Splitting a Transformer across units: links, crossings, synchronisation, layouts, schedules, numerics, uneven requests."""

from __future__ import annotations

import math

import numpy as np

from archmodel.audit.finding import Check, Figure, Finding, Flip
from archmodel.audit.rates import cache_byte_per_token, weight_byte
from archmodel.spec.claim_splits import (
    FormatSpeedup,
    GraphCrossings,
    LayoutGrowth,
    LinkTransfer,
    OutputTail,
    ScheduleBounds,
    SplitSync,
    TokenFlips,
    UnevenLengths,
)
from archmodel.units import GB, element_bytes

_ID_BYTE = 4.0  # a token id is a 32-bit integer


def format_speedup(claim: FormatSpeedup) -> Finding:
    """Amdahl over formats: 1 / sum(share / speed). The least share of the fastest format goes with the next fastest, the most
    work in the slowest with all else in the fastest."""
    speeds = sorted(claim.format_speed.items(), key=lambda item: -item[1])
    (fast, top), (middle, second), (slow, base) = speeds[0], speeds[min(1, len(speeds) - 1)], speeds[-1]
    wanted = 1.0 / claim.speedup

    def share(of: float, other: float) -> float:
        """Share of the work at speed `of`, the rest at `other`, that gives the speed-up."""
        return min(1.0, max(0.0, (1.0 / other - wanted) / (1.0 / other - 1.0 / of))) if of > other else 1.0

    least, most_slow = share(top, second), 1.0 - share(top, base)
    return Finding(
        checks=(
            Check("speed-up claimed", claim.speedup, f"all in {fast}", top),
            Check("speed-up claimed", claim.speedup, f"all in {middle}", second),
        ),
        figures=(Figure(f"least share in {fast}, the rest in {middle}", least),
                 Figure(f"most in {slow}, the rest in {fast}", most_slow)),
        flips=(Flip(f"share of MACs in {fast}", ">=", least),),
        partly=f"at least {least:.1%} of the MACs in {fast} and the rest in {middle}, "
               f"or {1.0 - most_slow:.1%} in {fast} beside {most_slow:.1%} in {slow}",
    )  # fmt: skip


def link_transfer(claim: LinkTransfer) -> Finding:
    """A burst of hidden states on the link, and the token rate that would keep the link as busy."""
    each = claim.hidden * element_bytes(claim.activations)
    rate, link = claim.used_gb_per_s * GB, claim.link_gb_per_s * GB
    burst_s = claim.tokens * each / rate
    return Finding(
        checks=(
            Check("rate claimed", rate, "link", link, "B/s"),
            Check("tokens a second that sustain it", rate / each, "tokens a second claimed", claim.rate_tokens_per_s,
                  "tokens/s"),
        ),
        figures=(
            Figure("bytes of one transfer", claim.tokens * each, "B"),
            Figure("time of one transfer", burst_s, "s"),
            Figure("share of the link", rate / link),
            Figure("tokens a second that sustain it", rate / each, "tokens/s"),
            Figure("that over the claimed", rate / each / claim.rate_tokens_per_s),
            Figure("the token ids alone", claim.tokens * _ID_BYTE, "B"),
        ),
        flips=(Flip("sustained rate", "<=", claim.rate_tokens_per_s * each / GB, "GB/s"),),
        partly=f"as a burst of {1e3 * burst_s:.3g} ms a prompt; as a sustained need it has no cause" if rate <= link else "",
    )  # fmt: skip


def output_tail(claim: OutputTail) -> Finding:
    """All logits of a batch over the host link against the limit; the step before it is named, since it is not in it."""
    link, limit_s = claim.link_gb_per_s * GB, 1e-3 * claim.limit_ms
    logits = claim.vocabulary * 2.0  # FP16
    tail_s = 1e-6 * claim.latency_us + claim.batch * logits / link
    step_s = weight_byte(claim) / (claim.bandwidth_gb_per_s * GB)
    fit = max(0, math.floor((limit_s - 1e-6 * claim.latency_us) * link / logits))
    return Finding(
        checks=(Check("latency and all FP16 logits", tail_s, "limit", limit_s, "s"),),
        figures=(
            Figure("latency and token ids", 1e-6 * claim.latency_us + claim.batch * _ID_BYTE / link, "s"),
            Figure("sequences whose FP16 logits fit", fit),
            Figure("the step before it, at least", step_s, "s"),
        ),
        flips=(Flip("batch that returns all logits", "<=", fit),),
    )


def graph_crossings(claim: GraphCrossings) -> Finding:
    """Crossings that data dependence forces: two a layer where the blocks follow each other, one round trip where they are
    parallel. Sending several layers together would need the later ones' inputs before they exist."""
    forced = claim.layers * (1.0 if claim.parallel_blocks else 2.0)
    joined = claim.layers * claim.crossings_per_layer / claim.joined_layers
    return Finding(
        checks=(
            Check("crossings forced", forced, "crossings claimed", claim.layers * claim.crossings_per_layer),
            Check("crossings forced", forced, f"crossings with {claim.joined_layers} layers joined", joined),
        ),
        figures=(Figure("crossings a step", forced),),
        partly="the count; joining layers does not lower it where attention and feed-forward follow each other",
    )


def _sync_s(claim: SplitSync, byte_per_s: float, fixed_us: float, batch: float) -> float:
    """Time [s] of the 2 x layers crossings of a step: hidden states of the batch, and what each crossing costs."""
    byte = batch * claim.hidden * element_bytes(claim.activations)
    return 2.0 * claim.layers * (byte / byte_per_s + 1e-6 * fixed_us)


def split_sync(claim: SplitSync) -> Finding:
    """The claim is that the link decides: on the fast one a step keeps its saving, on the slow one it loses it."""
    saving_s = 1e-3 * claim.saving_ms
    fast_s = _sync_s(claim, claim.fast_gb_per_s * GB, claim.fast_us, claim.batch)
    slow_s = _sync_s(claim, claim.slow_gb_per_s * GB, claim.slow_us, claim.batch)
    each = claim.hidden * element_bytes(claim.activations)
    return Finding(
        checks=(
            Check("what the split saves", saving_s, "synchronising on the slow link", slow_s, "s"),
            Check("synchronising on the fast link", fast_s, "what the split saves", saving_s, "s"),
        ),
        figures=(
            Figure("crossings a step", 2.0 * claim.layers),
            Figure("synchronising on the fast link", fast_s, "s"),
            Figure("synchronising on the slow link", slow_s, "s"),
            Figure("batch below which latency outweighs bytes on the slow link",
                   1e-6 * claim.slow_us * claim.slow_gb_per_s * GB / each),
        ),
        flips=(Flip("saving of a step", "between", fast_s, "s"), Flip("saving of a step", "and", slow_s, "s")),
    )  # fmt: skip


def layout_growth(claim: LayoutGrowth) -> Finding:
    """Bytes converted when the context doubles: a prefill converts every token, a decode step only the new ones."""
    each = claim.hidden * element_bytes(claim.activations)
    prefill, decode = claim.context_tokens * each, claim.batch * each
    return Finding(
        checks=(
            Check("growth claimed for a context twice as long", 2.0, "growth in prefill", 2.0 * prefill / prefill),
            Check("growth claimed for a context twice as long", 2.0, "growth in decode", 1.0),
        ),
        figures=(
            Figure("bytes of a boundary in prefill", prefill, "B"),
            Figure("bytes of a boundary in a decode step", decode, "B"),
            Figure("bytes where the KV cache moves too", claim.context_tokens * cache_byte_per_token(claim), "B"),
        ),
        partly="in prefill; a decode step converts the same bytes at any context, unless the KV cache itself moves",
    )


def token_flips(claim: TokenFlips) -> Finding:
    """Runs still the same after n tokens, (1 - p)^n, against half of them; and noise that the layers add up."""
    same = (1.0 - claim.flip_probability) ** claim.tokens
    half = math.log(0.5) / math.log1p(-claim.flip_probability) if claim.flip_probability < 1.0 else 0.0
    return Finding(
        checks=(
            Check("runs still the same", same, "half of them", 0.5),
            Check("noise that would count as growth", claim.growth_db, "noise after all layers over one",
                  claim.layers_noise_db, "dB"),
        ),
        figures=(Figure("runs still the same", same), Figure("tokens after which half have parted", half, "tokens")),
        flips=(Flip("tokens", ">=", math.ceil(half)),),
        partly="by tokens that flip; not by noise that grows over the layers" if same <= 0.5
               else "by noise that grows over the layers; tokens flip too seldom",
    )  # fmt: skip


def uneven_lengths(claim: UnevenLengths) -> Finding:
    """Time lost by a batch that waits for its longest request, 1 - mean / E[longest], against what would matter.

    The longest of n independent draws from m equally likely lengths is at most the k-th with probability (k/m)^n. Arrivals are
    left out, and so is continuous batching, which refills the places.
    """
    lengths = np.array(claim.lengths_tokens, dtype=np.float64)
    below = (np.arange(lengths.size + 1) / lengths.size) ** claim.batch
    longest = float(lengths @ np.diff(below))
    loss = 1.0 - float(lengths.mean()) / longest
    return Finding(
        checks=(Check("lost time that matters", claim.loss_fraction, "lost time with uneven lengths", loss),),
        figures=(Figure("mean length", float(lengths.mean()), "tokens"),
                 Figure("longest of a batch, on average", longest, "tokens"), Figure("lost time", loss)),
    )  # fmt: skip


def schedule_bounds(claim: ScheduleBounds) -> Finding:
    """Speed-up with units one after another, base / (a + b + sync), and overlapped, base / max(a, b + sync).

    The claim is that the first is the speed-up.
    """
    serial = claim.base_ms / (claim.first_ms + claim.second_ms + claim.sync_ms)
    overlapped = claim.base_ms / max(claim.first_ms, claim.second_ms + claim.sync_ms)
    return Finding(
        checks=(
            Check("speed-up one after another", serial, "speed-up claimed, by the formula", serial),
            Check("speed-up with two micro-batches", overlapped, "speed-up claimed, by the formula", serial),
        ),
        figures=(Figure("speed-up one after another", serial), Figure("speed-up overlapped, at most", overlapped)),
        partly="with one micro-batch; with two or more it is a lower bound",
    )
