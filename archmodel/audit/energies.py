"""Energy, efficiency and what they cost. Tokens per joule are tokens a second per watt."""

from __future__ import annotations

from archmodel.audit.finding import Check, Figure, Finding, Flip, Verdict
from archmodel.audit.rates import cache_byte_per_token, weight_byte
from archmodel.spec.claim_energies import (
    BreakEven,
    Efficiency,
    EfficiencyBaseline,
    EnergyFloor,
    GainAlgebra,
    Sparsity,
)

_PJ = 1e-12
#: units that mean tokens per joule; tokens per watt is no efficiency until a time is said
_PER_JOULE = ("tokens/J", "tokens per joule", "tokens/s/W", "tokens/s per watt", "tok/J", "tok/s/W")


def efficiency(claim: Efficiency) -> Finding:
    """Power that rate and efficiency mean together, against the stated one; DIMENSION where the unit is no efficiency and no
    power says what it was meant to be."""
    power_w = claim.rate_tokens_per_s / claim.tokens_per_joule
    figures = (
        Figure("power that the two mean", power_w, "W"),
        Figure("energy of a token", 1.0 / claim.tokens_per_joule, "J"),
    )
    if not claim.power_w:
        says = Verdict.UNDER_SPECIFIED if claim.printed_unit in _PER_JOULE else Verdict.DIMENSION
        return Finding(checks=(), figures=figures, says=says, flips=(Flip("power stated", "<=", power_w, "W"),))
    reached = claim.rate_tokens_per_s / claim.power_w
    return Finding(
        checks=(
            Check(
                "efficiency claimed", claim.tokens_per_joule, "rate over power", reached, "tokens/J", claim.tolerance_fraction
            ),
        ),
        figures=(*figures, Figure("rate over power", reached, "tokens/J")),
        flips=(Flip("power", "<=", power_w, "W"),),
    )


def energy_floor(claim: EnergyFloor) -> Finding:
    """Energy of a token, (W/B + K) x 8 x pJ/bit + parameters x pJ/MAC, against the one that the efficiency leaves.

    Static power, SRAM, wires, control and softmax are left out: the floor lies below any chip with these coefficients.
    """
    cache = cache_byte_per_token(claim) * claim.context_tokens
    per_byte = 8.0 * _PJ * claim.memory_energy_pj_per_bit
    weights_j, cache_j = weight_byte(claim) / claim.batch * per_byte, cache * per_byte
    macs_j = claim.active_parameters * _PJ * claim.mac_energy_pj
    floor_j, left_j = weights_j + cache_j + macs_j, 1.0 / claim.tokens_per_joule
    return Finding(
        checks=(Check("energy of a token at least", floor_j, "energy that the claim leaves", left_j, "J"),),
        figures=(
            Figure("tokens a joule at most", 1.0 / floor_j, "tokens/J"),
            Figure("reading weights", weights_j, "J"),
            Figure("reading the KV cache", cache_j, "J"),
            Figure("multiplications", macs_j, "J"),
        ),
        flips=(
            Flip("active parameters, the weights with them", "<=", claim.active_parameters * max(0.0, left_j - cache_j)
                 / (weights_j + macs_j)),
            Flip("energies of bit and MAC, times the stated", "<=", left_j / floor_j),
        ),
    )  # fmt: skip


def efficiency_baseline(claim: EfficiencyBaseline) -> Finding:
    """Lower end of what is said of other hardware, against peak / (2 parameters) / power and against a measurement."""
    bound = claim.baseline_peak_tops * 1e12 / (2.0 * claim.active_parameters) / claim.baseline_power_w
    low = claim.lowest_tokens_per_joule
    checks = [Check("efficiency claimed", low, "bound at the full peak", bound, "tokens/J")]
    if claim.measured_tokens_per_joule:
        checks.append(Check("efficiency claimed", low, "measured", claim.measured_tokens_per_joule, "tokens/J"))
    return Finding(
        checks=tuple(checks),
        figures=(Figure("bound at the full peak", bound, "tokens/J"),),
        flips=(Flip("efficiency claimed", "<=", min(check.available for check in checks), "tokens/J"),),
    )


def gain_algebra(claim: GainAlgebra) -> Finding:
    """What a gain in efficiency means elsewhere: the energy's cost falls by 1 - 1/gain, models at equal power grow by the gain,
    and the baseline is the claimed efficiency over the gain. INCONSISTENT where another claimed figure says otherwise."""
    cut, within = 1.0 - 1.0 / claim.gain, claim.tolerance_fraction
    checks: list[Check] = []
    figures: list[Figure] = []
    if claim.cost_cut_fraction:
        figures.append(Figure("cost cut that the gain means", cut))
        checks.append(Check("cost cut claimed", claim.cost_cut_fraction, "cut that the gain means", cut, "", within))
    if claim.deployments:
        checks.append(Check("models at equal power claimed", claim.deployments, "gain claimed", claim.gain, "", within))
        figures.append(Figure("models over gain", claim.deployments / claim.gain))
    if claim.tokens_per_joule:
        implied = claim.tokens_per_joule / claim.gain
        figures.append(Figure("baseline that the gain means", implied, "tokens/J"))
        if claim.lowest_tokens_per_joule:
            low = claim.lowest_tokens_per_joule
            checks.append(Check("baseline claimed at least", low, "baseline that the gain means", implied, "tokens/J", within))
        if claim.highest_tokens_per_joule:
            high = claim.highest_tokens_per_joule
            checks.append(Check("baseline that the gain means", implied, "baseline claimed at most", high, "tokens/J", within))
    agree = all(check.holds for check in checks)
    return Finding(
        checks=tuple(checks),
        figures=tuple(figures),
        flips=(Flip("gain", ">=", claim.deployments),) if claim.deployments > claim.gain else (),
        says=None if agree else Verdict.INCONSISTENT,
    )


def sparsity(claim: Sparsity) -> Finding:
    """Energy of the active synapses of a dense MAC's worth, (1 - s) x pJ/SOp, against the MAC. Fetching weights is left out."""
    events_pj = (1.0 - claim.sparsity_fraction) * claim.synapse_energy_pj
    return Finding(
        checks=(Check("events for one MAC", events_pj * _PJ, "the MAC", claim.mac_energy_pj * _PJ, "J"),),
        figures=(Figure("gain", claim.mac_energy_pj / events_pj if events_pj else 0.0),
                 Figure("sparsity at break-even", max(0.0, 1.0 - claim.mac_energy_pj / claim.synapse_energy_pj))),
        flips=(
            Flip("sparsity", ">=", max(0.0, 1.0 - claim.mac_energy_pj / claim.synapse_energy_pj)),
            Flip("energy of a synaptic operation", "<=", claim.mac_energy_pj / (1.0 - claim.sparsity_fraction)
                 if claim.sparsity_fraction < 1.0 else claim.synapse_energy_pj, "pJ"),
        ),
    )  # fmt: skip


def break_even(claim: BreakEven) -> Finding:
    """The claim is that a saving does not repay its effort: saving x fleet <= effort. Without a fleet it is a threshold."""
    fleet = claim.effort_usd_per_year / claim.saving_fraction
    figures = (Figure("fleet at break-even", fleet, "USD/year"),)
    flips = (Flip("running cost of the fleet", "<=", fleet, "USD/year"),)
    if not claim.fleet_usd_per_year:
        partly = f"the fleet costs less than {fleet:,.0f} USD a year to run"
        return Finding(checks=(), figures=figures, flips=flips, says=Verdict.CONDITIONAL, partly=partly)
    saved = claim.saving_fraction * claim.fleet_usd_per_year
    check = Check("saving", saved, "effort", claim.effort_usd_per_year, "USD/year")
    return Finding(checks=(check,), figures=(Figure("saving", saved, "USD/year"), *figures), flips=flips)
