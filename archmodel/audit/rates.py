"""Rates and latencies against peaks: units, operations, bytes, sequences in flight.

An operation is a multiply or an add, so that a token costs 2 operations a parameter. Attention scores, softmax and vector work
are left out throughout: a claim that fails here fails by at least as much on the chip.
"""

from __future__ import annotations

import math

from archmodel.audit.finding import Check, Figure, Finding, Flip
from archmodel.spec.claim_rates import (
    Cache,
    ComputeRate,
    Concurrency,
    LatencyFloor,
    MemoryRate,
    Multiple,
    PeakIdentity,
    PrefillLatency,
    Weights,
)
from archmodel.units import GB, element_bytes

_TERA = 1e12


def weight_byte(claim: Weights) -> float:
    """Weights [B]."""
    return claim.parameters * element_bytes(claim.weights)


def cache_byte_per_token(claim: Cache) -> float:
    """KV cache of one token [B/token]: keys and values of every layer."""
    return 2.0 * claim.layers * claim.kv_heads * claim.head_dim * element_bytes(claim.kv_cache)


def peak_identity(claim: PeakIdentity) -> Finding:
    """Clock [GHz] that units x MACs x 2 needs for the peak, against the highest that there is."""
    per_cycle = 2.0 * claim.units * claim.macs_per_unit_per_cycle
    clock_ghz = claim.peak_tops * _TERA / per_cycle / GB
    return Finding(
        checks=(Check("clock needed for the peak", clock_ghz * GB, "highest clock", claim.highest_clock_ghz * GB, "Hz"),),
        figures=(
            Figure("clock needed", clock_ghz, "GHz"),
            Figure("peak at the highest clock", per_cycle * claim.highest_clock_ghz * GB, "OP/s"),
        ),
        flips=(
            Flip("MACs of a unit in a cycle", ">=", claim.macs_per_unit_per_cycle * clock_ghz / claim.highest_clock_ghz),
            Flip("clock", ">=", clock_ghz, "GHz"),
        ),
    )


def compute_rate(claim: ComputeRate) -> Finding:
    """Operations a second that the rate needs, 2 x parameters x rate, against the peak that is reached."""
    work = 2.0 * claim.active_parameters
    needed, reached = work * claim.rate_tokens_per_s, claim.peak_tops * _TERA * claim.utilisation_fraction
    return Finding(
        checks=(Check("operations needed", needed, "operations available", reached, "OP/s"),),
        figures=(
            Figure("tokens a second that the units carry", reached / work, "tokens/s"),
            Figure("peak that the utilisation would need", needed / claim.utilisation_fraction, "OP/s"),
        ),
        flips=(
            Flip("active parameters", "<=", reached / 2.0 / claim.rate_tokens_per_s),
            Flip("peak", ">=", needed / claim.utilisation_fraction / _TERA, "TOP/s"),
            Flip("clock or units, times the stated", ">=", needed / reached),
        ),
    )


def prefill_latency(claim: PrefillLatency) -> Finding:
    """Operations of the prompt within the limit, against the peak that is reached; one sequence, alone on the chip."""
    work = 2.0 * claim.active_parameters * claim.input_tokens
    limit_s, reached = 1e-3 * claim.limit_ms, claim.peak_tops * _TERA * claim.utilisation_fraction
    checks = [Check("operations needed", work / limit_s, "operations available", reached, "OP/s")]
    flips = [
        Flip("active parameters", "<=", limit_s * reached / 2.0 / claim.input_tokens),
        Flip("peak", ">=", work / limit_s / claim.utilisation_fraction / _TERA, "TOP/s"),
        Flip("input tokens", "<=", math.floor(limit_s * reached / 2.0 / claim.active_parameters)),
    ]
    if claim.rate_tokens_per_s:
        at_rate_s = claim.input_tokens / claim.rate_tokens_per_s
        checks.append(Check("prompt at the claimed token rate", at_rate_s, "limit", limit_s, "s"))
        if not checks[-1].holds:
            flips.append(Flip("rate of input tokens, besides", ">=", claim.input_tokens / limit_s, "tokens/s"))
    return Finding(
        checks=tuple(checks),
        figures=(Figure("time on the stated units", work / reached, "s"),),
        flips=tuple(flips),
    )


def memory_rate(claim: MemoryRate) -> Finding:
    """Batch that the rate needs: a step reads weights once and every cache, rate = B bw / (W + B K).

    B = (rate W / bw) / (1 - rate K / bw), rounded up; there is none where the caches alone take more than the bandwidth. What
    the step then holds must fit. A stated batch is judged as it is.
    """
    held, each = weight_byte(claim), cache_byte_per_token(claim) * claim.context_tokens
    reached = claim.bandwidth_gb_per_s * GB * claim.utilisation_fraction
    rate, capacity = claim.rate_tokens_per_s, claim.capacity_gb * GB
    single, most = reached / (held + each), reached / each if each else math.inf
    figures = [Figure("tokens a second of one sequence", single, "tokens/s")]
    if each:
        figures.append(Figure("tokens a second at any batch", most, "tokens/s"))
    if rate >= most:
        check = Check("tokens a second claimed", rate, "reached at any batch, for the caches alone", most, "tokens/s")
        flips = (Flip("KV cache of a sequence, at most", "<", reached / rate, "B"), *_wider(claim, held, each))
        return Finding(checks=(check,), figures=tuple(figures), flips=flips)
    exact = rate * held / reached / (1.0 - rate * each / reached)
    batch = max(1.0, math.ceil(exact - 1e-9))
    used = claim.batch or batch
    byte = held + used * each
    figures += [
        Figure("batch needed, not rounded", exact),
        Figure("batch needed", batch),
        Figure("weights and caches then held", byte, "B"),
        Figure("time between two tokens of a sequence", byte / reached, "s"),
    ]
    fits = Check("weights and caches", byte, "capacity", capacity, "B")
    enough = Check("tokens a second claimed", rate, f"reached at batch {used:g}", used * reached / byte, "tokens/s")
    alone = Check("tokens a second claimed", rate, "reached by one sequence", single, "tokens/s")
    open_batch = not claim.batch and fits.holds and batch > 1
    flips = () if fits.holds else (Flip("capacity", ">=", byte / GB, "GB"),)
    if held + batch * each <= capacity:
        flips = (Flip("batch", ">=", batch), *flips)
    return Finding(
        checks=(alone, enough, fits) if open_batch else (enough, fits),
        figures=tuple(figures),
        partly=f"batch >= {batch:g}, which the capacity holds" if open_batch else "",
        flips=flips if open_batch else (*flips, *_wider(claim, held, each)),
    )


def _wider(claim: MemoryRate, held: float, each: float) -> tuple[Flip, ...]:
    """Bandwidth at which the stated batch reaches the rate, or the largest that the capacity holds; none where none fits."""
    room = claim.capacity_gb * GB - held
    largest = math.floor(room / each) if each and room > 0.0 else 0.0
    batch = claim.batch or largest
    if batch < 1.0 or held + batch * each > claim.capacity_gb * GB:
        return ()
    byte_per_s = claim.rate_tokens_per_s * (held / batch + each) / claim.utilisation_fraction
    return (Flip(f"bandwidth, at batch {batch:g}", ">=", byte_per_s / GB, "GB/s"),)


def latency_floor(claim: LatencyFloor) -> Finding:
    """Time of one step against reading the weights once."""
    reached = claim.bandwidth_gb_per_s * GB * claim.utilisation_fraction
    limit_s, held = 1e-3 * claim.limit_ms, weight_byte(claim)
    return Finding(
        checks=(Check("time to read the weights", held / reached, "limit", limit_s, "s"),),
        flips=(
            Flip("bits of a weight", "<=", 8.0 * limit_s * reached / claim.parameters, "bit"),
            Flip("parameters read in a step", "<=", limit_s * reached / element_bytes(claim.weights)),
            Flip("bandwidth", ">=", held / limit_s / claim.utilisation_fraction / GB, "GB/s"),
        ),
    )


def concurrency(claim: Concurrency) -> Finding:
    """Claimed rate against sequences in flight over the time between their tokens."""
    rate = claim.sequences / (1e-3 * claim.inter_token_ms)
    return Finding(
        checks=(Check("tokens a second claimed", claim.rate_tokens_per_s, "sequences over inter-token time", rate, "tokens/s",
                      claim.tolerance_fraction),),
        figures=(Figure("sequences over inter-token time", rate, "tokens/s"),),
        flips=(Flip("sequences", ">=", claim.rate_tokens_per_s * 1e-3 * claim.inter_token_ms),),
    )  # fmt: skip


def multiple(claim: Multiple) -> Finding:
    """Claimed total against parts x the figure of each, equal within rounding."""
    product = claim.count * claim.each
    larger, smaller = max(product, claim.total), min(product, claim.total)
    names = ("total claimed", "parts") if claim.total >= product else ("parts", "total claimed")
    return Finding(
        checks=(Check(names[0], larger, names[1], smaller, claim.unit, claim.tolerance_fraction),),
        figures=(Figure("parts add up to", product, claim.unit), Figure("total over parts", claim.total / product)),
        flips=(Flip("figure of each part", "=", claim.total / claim.count, claim.unit),),
    )
