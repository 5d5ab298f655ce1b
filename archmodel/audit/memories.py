"""Capacity, technology, reuse and bandwidth of memories."""

from __future__ import annotations

import math

from archmodel.audit.finding import Check, Figure, Finding, Flip
from archmodel.audit.rates import cache_byte_per_token, weight_byte
from archmodel.spec.claim_rates import AggregateBandwidth, Capacity, MemoryTechnology, Reuse
from archmodel.units import GB

_MB = 1e6


def capacity(claim: Capacity) -> Finding:
    """Bytes of the copies against the capacity; the rest holds KV cache. Activations and fragmentation are left out."""
    each, there = weight_byte(claim), claim.capacity_gb * GB
    fit = math.floor(there / each)
    rest = there - fit * each
    figures = [Figure("copies that fit", fit), Figure("left for the KV cache", rest, "B")]
    if cache := cache_byte_per_token(claim):
        figures.append(Figure("tokens that the rest caches", rest / cache, "tokens"))
    return Finding(
        checks=(Check(f"{claim.copies:g} x the weights", claim.copies * each, "capacity", there, "B"),),
        figures=tuple(figures),
        flips=(
            Flip("bits of a weight", "<=", 8.0 * there / claim.copies / claim.parameters, "bit"),
            Flip("parameters of a model", "<=", there / claim.copies / (each / claim.parameters)),
        ),
    )


def memory_technology(claim: MemoryTechnology) -> Finding:
    """Bandwidth of the stacks that the capacity takes, against the claimed one, which may differ by a product's factor.

    It fails upwards (pins faster than there are) and downwards (a memory that is not what its name says, or an error).
    """
    stacks = math.ceil(claim.capacity_gb / claim.stack_gb - 1e-9)
    usual, stated = stacks * claim.stack_gb_per_s * GB, claim.bandwidth_gb_per_s * GB
    pin_bit_per_s = 8.0 * stated / (stacks * claim.stack_pins)
    low = stated < usual
    brought, claimed = ("bandwidth that its stacks bring", usual), ("bandwidth claimed", stated)
    larger, smaller = (brought, claimed) if low else (claimed, brought)
    return Finding(
        checks=(Check(*larger, *smaller, "B/s", claim.within_factor - 1.0),),
        figures=(
            Figure("stacks", stacks),
            Figure("bandwidth that they bring", usual, "B/s"),
            Figure("that over the claimed", usual / stated),
            Figure("data rate of a pin as claimed", pin_bit_per_s, "b/s"),
            Figure("bandwidth over capacity as claimed", stated / (claim.capacity_gb * GB), "1/s"),
        ),
        flips=(
            Flip("capacity in such stacks", "<=" if low else ">=",
                 claim.stack_gb * stated / GB / claim.stack_gb_per_s * (claim.within_factor if low else 1.0), "GB"),
            Flip("bandwidth", ">=" if low else "<=", usual / GB / claim.within_factor if low
                 else usual / GB * claim.within_factor, "GB/s"),
        ),
    )  # fmt: skip


def reuse(claim: Reuse) -> Finding:
    """Three ways to a higher use of bandwidth: hits in the SRAM, reads in flight, and what anybody has measured.

    As a cache the SRAM would have to serve 1 - before/after of the reads, but a step passes over all weights, so that it hits
    SRAM / weights at best. As a buffer it needs bandwidth x latency in flight (Little's law).
    """
    hit = min(1.0, claim.sram_mb * _MB / weight_byte(claim))
    gain = claim.utilisation_after_fraction / claim.utilisation_before_fraction
    served = 1.0 - 1.0 / gain
    in_flight = claim.bandwidth_gb_per_s * claim.latency_ns
    hits = Check("share of reads that the SRAM would have to serve", served, "share of the weights it holds", hit)
    held = Check("bytes in flight", in_flight, "SRAM", claim.sram_mb * _MB, "B")
    seen = Check("use of bandwidth claimed", claim.utilisation_after_fraction, "best measured", claim.best_measured_fraction)
    return Finding(
        checks=(hits, held, seen),
        figures=(Figure("share of the weights in SRAM", hit), Figure("gain claimed", gain),
                 Figure("bytes in flight", in_flight, "B")),
        flips=(Flip("weights read in a step", "<=", claim.sram_mb * _MB / served, "B"),) if served > 0.0 else (),
        partly="as a gain of prefetching into the SRAM; not as hits in it" if held.holds and seen.holds else "",
    )  # fmt: skip


def aggregate_bandwidth(claim: AggregateBandwidth) -> Finding:
    """Gain bound of two units in a phase that bandwidth limits: (a + b) / a. The claim is that there is none above its own."""
    bound = (claim.bandwidth_gb_per_s + claim.second_gb_per_s) / claim.bandwidth_gb_per_s
    return Finding(
        checks=(Check("gain that two memories allow", bound, "gain claimed at most", claim.highest_gain),),
        figures=(Figure("gain that two memories allow", bound),),
        flips=(Flip("bandwidth of the second memory", "<=", (claim.highest_gain - 1.0) * claim.bandwidth_gb_per_s, "GB/s"),),
    )
