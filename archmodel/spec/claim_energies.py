"""Figures of claims about energy, efficiency and cost; `claim_rates` says what a missing figure means."""

from __future__ import annotations

import attrs

from archmodel.spec.claim_rates import Cache, Figures
from archmodel.spec.fields import number, text


@attrs.frozen(kw_only=True)
class Efficiency(Figures):
    """Tokens per joule are tokens a second per watt."""

    tokens_per_joule: float = number("efficiency that is claimed", above=0)
    rate_tokens_per_s: float = number("rate that is claimed with it", above=0)
    power_w: float = number("power that is stated with it; 0 is not stated", at_least=0, default=0.0)
    printed_unit: str = text("unit as it was printed", default="tokens/J")
    tolerance_fraction: float = number("difference that rounding explains", at_least=0, default=0.005)


@attrs.frozen(kw_only=True)
class EnergyFloor(Cache):
    """Tokens per joule against the energy of reading weights and cache and of the multiplications."""

    tokens_per_joule: float = number("efficiency that is claimed", above=0)
    active_parameters: float = number("parameters that one token is multiplied with", above=0)
    batch: float = number("sequences that share a reading of the weights", above=0)
    context_tokens: int = number("tokens cached of each sequence", at_least=0)
    memory_energy_pj_per_bit: float = number("energy of reading one bit", above=0)
    mac_energy_pj: float = number("energy of one MAC", above=0)


@attrs.frozen(kw_only=True)
class EfficiencyBaseline(Figures):
    """An efficiency said of other hardware, against its peak over its power and against what was measured."""

    lowest_tokens_per_joule: float = number("lower end of what is claimed", above=0)
    active_parameters: float = number("parameters that one token is multiplied with", above=0)
    baseline_peak_tops: float = number("dense peak of the other hardware", above=0)
    baseline_power_w: float = number("its power", above=0)
    measured_tokens_per_joule: float = number("what was measured on it; 0 is nothing", at_least=0, default=0.0)


@attrs.frozen(kw_only=True)
class GainAlgebra(Figures):
    """What follows from a gain in efficiency: cost of energy, models at equal power, and the baseline that it implies."""

    gain: float = number("times the baseline's efficiency", above=1)
    cost_cut_fraction: float = number("lower cost that is claimed; 0 is none", at_least=0, at_most=1, default=0.0)
    deployments: float = number("times the models at equal power that are claimed; 0 is none", at_least=0, default=0.0)
    tokens_per_joule: float = number("efficiency claimed for itself; 0 is none", at_least=0, default=0.0)
    lowest_tokens_per_joule: float = number("lower end of the baseline's; 0 is none", at_least=0, default=0.0)
    highest_tokens_per_joule: float = number("upper end of the baseline's; 0 is none", at_least=0, default=0.0)
    tolerance_fraction: float = number("difference that rounding explains", at_least=0, default=0.05)


@attrs.frozen(kw_only=True)
class Sparsity(Figures):
    """Event-driven work pays where few enough synapses are active."""

    sparsity_fraction: float = number("share of activations that are zero", at_least=0, at_most=1)
    synapse_energy_pj: float = number("energy of one synaptic operation", above=0)
    mac_energy_pj: float = number("energy of one MAC of the dense unit, as drawn at the card", above=0)


@attrs.frozen(kw_only=True)
class BreakEven(Figures):
    """A saving repays what it costs to make, from some size of the fleet on."""

    saving_fraction: float = number("share of the running cost that is saved", above=0, at_most=1)
    effort_usd_per_year: float = number("cost of keeping the more complex system, in USD a year", above=0)
    fleet_usd_per_year: float = number("running cost of the fleet, in USD a year; 0 is not stated", at_least=0, default=0.0)
