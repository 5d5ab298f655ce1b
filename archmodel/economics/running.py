"""Cost of a run: capital, maintenance and energy for the time that it takes, prefill and decode apart.

A chip that is busy for a share of the time (`site.utilisation`) earns its capital and its idle power in that share. Prompt
tokens pay for the first step, generated tokens for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from archmodel.components.boundary import added_power_w, boundary_power_w
from archmodel.economics.capital import Capital, SystemCapital
from archmodel.result import Result
from archmodel.spec.economics import BoxSpec, EconomicsSpec

_YEAR_S = 365.25 * 86400.0
_J_PER_KWH = 3.6e6
_MILLION = 1e6


@attrs.frozen
class PhaseCost:
    """One phase of a run [USD]. `energy_usd` is that of the busy time, `idle_usd` the energy of the idle time it pays for."""

    total_s: float
    wall_j: float
    capital_usd: float
    maintenance_usd: float
    energy_usd: float
    idle_usd: float

    @property
    def total_usd(self) -> float:
        return self.capital_usd + self.maintenance_usd + self.energy_usd + self.idle_usd


@attrs.frozen
class Running:
    """Cost of one run of the batch, by phase; `prompt` names the phase that reads the input."""

    phases: Mapping[str, PhaseCost]
    prompt: str
    requests: int
    input_tokens: int  # of all requests
    output_tokens: int
    chips: int
    utilisation: float
    facility_w: float  # mean at the meter of the site while busy

    @property
    def total_s(self) -> float:
        return sum(phase.total_s for phase in self.phases.values())

    @property
    def total_usd(self) -> float:
        return sum(phase.total_usd for phase in self.phases.values())

    @property
    def input_usd(self) -> float:
        return self.phases[self.prompt].total_usd

    @property
    def output_usd(self) -> float:
        return sum(phase.total_usd for name, phase in self.phases.items() if name != self.prompt)

    @property
    def input_usd_per_million_tokens(self) -> float:
        return _MILLION * self.input_usd / self.input_tokens

    @property
    def output_usd_per_million_tokens(self) -> float | None:
        """None where nothing is put out."""
        return _MILLION * self.output_usd / self.output_tokens if self.output_tokens else None

    @property
    def usd_per_million_tokens(self) -> float:
        """All of the cost over output tokens; of an encoder, over the tokens that it reads."""
        return _MILLION * self.total_usd / (self.output_tokens or self.input_tokens)

    @property
    def usd_per_request(self) -> float:
        return self.total_usd / self.requests

    @property
    def all_energy_usd(self) -> float:
        return sum(phase.energy_usd + phase.idle_usd for phase in self.phases.values())

    @property
    def energy_usd_per_million_tokens(self) -> float:
        """Energy alone, idle time included, as `usd_per_million_tokens` counts."""
        return _MILLION * self.all_energy_usd / (self.output_tokens or self.input_tokens)

    @property
    def usd_per_year(self) -> float:
        return self.total_usd / self.total_s * self.utilisation * _YEAR_S


@attrs.frozen
class Service:
    """As many groups of chips as a rate of requests needs, over a year."""

    requests_per_s: float
    groups: int
    running: Running  # at the utilisation that the rate brings about

    @property
    def chips(self) -> int:
        return self.groups * self.running.chips

    @property
    def usd_per_year(self) -> float:
        return self.groups * self.running.usd_per_year


def wall_w(result: Result, chip_w: float, box: BoxSpec) -> float:
    """Power [W] at the server's plug where the chips of a run draw `chip_w` together: that of the chip's own [server], and
    where the chip says nothing of one, of the box: supply losses, and a share of the rest. Every cost and every power
    budget takes it from here."""
    if result.chip.server:
        return boundary_power_w(added_power_w(result.chip, result.cards, chip_w))["wall"]
    return chip_w / box.psu_efficiency + result.cards * box.power_w / box.chips


def phase_j(result: Result, phase: str) -> float:
    """Energy [J] of the chips in one phase, dynamic and static; phases add up to `result.total_j`."""
    return result.phase_power_w(phase) * result.phase_s(phase)


def running(result: Result, bought: Capital | SystemCapital, economics: EconomicsSpec) -> Running:
    """Cost of a run on chips that cost `bought` each, or on a system that does."""
    request = result.workload.request
    phases = {phase: _phase(result, phase, bought, economics) for phase in result.phases}
    wall = sum(phase.wall_j for phase in phases.values()) / result.total_s
    return Running(
        phases=phases,
        prompt=result.first.step.phase,
        requests=request.batch,
        input_tokens=request.batch * request.input_tokens,
        output_tokens=request.batch * request.output_tokens,
        chips=result.cards,
        utilisation=economics.site.utilisation,
        facility_w=wall * economics.site.pue,
    )


def _phase(result: Result, phase: str, bought: Capital | SystemCapital, economics: EconomicsSpec) -> PhaseCost:
    site, seconds = economics.site, result.phase_s(phase)
    wall_j = wall_w(result, phase_j(result, phase) / seconds, economics.box) * seconds if seconds else 0.0
    idle_w = wall_w(result, sum(result.static_power_w.values()), economics.box)
    idle_s = seconds * (1.0 / site.utilisation - 1.0)
    usd_per_j = site.electricity_usd_per_kwh / _J_PER_KWH * site.pue
    capital_usd = bought.total_usd * result.chips
    return PhaseCost(
        total_s=seconds,
        wall_j=wall_j,
        capital_usd=capital_usd / (site.amortisation_years * _YEAR_S * site.utilisation) * seconds,
        maintenance_usd=capital_usd * site.maintenance_ratio / (_YEAR_S * site.utilisation) * seconds,
        energy_usd=wall_j * usd_per_j,
        idle_usd=idle_w * idle_s * usd_per_j,
    )


def service(result: Result, bought: Capital | SystemCapital, economics: EconomicsSpec, requests_per_s: float) -> Service:
    """Groups of chips that serve `requests_per_s` (above 0) and are busy no more than `site.utilisation` of the time."""
    each = result.workload.request.batch / result.total_s
    groups = max(1, math.ceil(requests_per_s / (each * economics.site.utilisation) * (1.0 - 1e-12)))
    busy = min(economics.site.utilisation, requests_per_s / (each * groups))
    site = attrs.evolve(economics.site, utilisation=busy)
    return Service(requests_per_s, groups, running(result, bought, attrs.evolve(economics, site=site)))
