"""Memory tiers: bandwidth by access pattern, capacity, latency under load, row activations, energy.

`dram_standards.toml` gives a DRAM tier its timings; the spec gives channels, width and pin rate.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archmodel.kernels import dram
from archmodel.spec.chip import DramSpec, SramSpec
from archmodel.spec.standards import CONTROLLER, STANDARDS
from archmodel.units import GB, si

Floats = NDArray[np.float64]

_MB = 1e6
#: remark on a stacked tier whose peak is below this share of what stacks of its capacity bring
_FAR_BELOW = 0.5
#: remark on pins faster than the standard's nominal rate by more than this
_FAR_ABOVE = 1.5


@cache
def channel_timing(standard: str, data_rate_gbit_per_s: float) -> dram.DramTiming:
    """Timings of one channel in cycles of its command clock; the one place that turns datasheet ns into cycles.

    A time is rounded up to whole clocks, as a controller must. What is given in bursts scales with the pin.
    """
    s = STANDARDS[standard]
    clock_ghz = data_rate_gbit_per_s / s.bits_per_clock
    burst = s.burst_length / s.bits_per_clock

    def cycles(time_ns: float) -> float:
        return float(math.ceil(round(time_ns * clock_ghz, 6)))

    return dram.DramTiming(
        burst=burst,
        ccd_l=max(s.ccd_l_bursts * burst, cycles(s.t_ccd_l_ns)),
        rc=cycles(s.t_rc_ns),
        rcd=cycles(s.t_rcd_ns),
        rp=cycles(s.t_rp_ns),
        ras=cycles(s.t_ras_ns),
        rrd=cycles(s.t_rrd_ns),
        faw=cycles(s.t_faw_ns),
        cl=cycles(s.t_cl_ns),
        cwl=cycles(s.t_cwl_ns),
        rtp=cycles(s.t_rtp_ns),
        wr=cycles(s.t_wr_ns),
        wtr=cycles(s.t_wtr_ns),
        bus_gap=CONTROLLER.turnaround_cycles,
        refi=cycles(s.t_refi_ns),
        rfc=cycles(s.t_rfc_ns),
        rfc_bank=cycles(s.t_rfc_bank_ns),
        per_bank=float(s.refresh == "per_bank"),
        banks=float(s.banks),
        bank_groups=float(s.bank_groups),
        burst_byte=s.channel_bit * s.burst_length / 8.0,
        page_byte=float(s.page_byte),
        queue=float(CONTROLLER.queue_requests),
        write_batch=float(CONTROLLER.write_batch_bursts),
    )


def peak_byte_per_s(spec: DramSpec | SramSpec) -> float:
    """Bandwidth of all pins or banks [B/s], every cycle used."""
    if isinstance(spec, SramSpec):
        return spec.bandwidth_byte_per_cycle * spec.clock_ghz * GB
    return spec.channels * spec.channel_bit * spec.data_rate_gbit_per_s / 8.0 * GB


def stream_efficiency(spec: DramSpec | SramSpec) -> float:
    """Share of the peak [1] that one long sequential read gets: `spec.stream_efficiency` or else from the timings.

    The timings give what the DRAM itself allows; a chip's fabric and error correction take more (measured chips reach
    0.69 to 0.98), which is why a measured value in the spec goes first. SRAM gives its peak: bank conflicts are ignored.
    """
    if isinstance(spec, SramSpec):
        return 1.0
    if spec.stream_efficiency > 0.0:
        return spec.stream_efficiency
    timing = channel_timing(spec.standard, spec.data_rate_gbit_per_s)
    return float(dram.stream_byte_per_cycle(timing)) * timing.burst / timing.burst_byte


def stream_byte_per_s(spec: DramSpec | SramSpec) -> float:
    """Bandwidth of one long sequential read [B/s]."""
    return peak_byte_per_s(spec) * stream_efficiency(spec)


def pattern_byte_per_s(
    spec: DramSpec | SramSpec, granule_byte: ArrayLike, row_hit: ArrayLike = 0.0, write_share: ArrayLike = 0.0
) -> Floats:
    """Useful bandwidth [B/s] of scattered granules, never above the stream; shape of the arguments broadcast.

    `granule_byte` [B] are consecutive in one channel; a share `row_hit` of the granules finds its row open and a share
    `write_share` are writes. Model and limits: `kernels.dram.granule_cycles`.
    """
    granule, hit, write = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (granule_byte, row_hit, write_share)))
    stream = stream_byte_per_s(spec)
    if isinstance(spec, SramSpec):
        return np.full(granule.shape, stream)
    timing = channel_timing(spec.standard, spec.data_rate_gbit_per_s)
    cycles = dram.granule_cycles(timing, granule.ravel(), hit.ravel(), write.ravel()).reshape(granule.shape)
    efficiency = granule / cycles * timing.burst / timing.burst_byte
    return np.minimum(peak_byte_per_s(spec) * efficiency, stream)


def loaded_latency_s(spec: DramSpec | SramSpec, utilisation: ArrayLike) -> Floats:
    """Mean latency [s] of one burst at `utilisation` = demand / effective bandwidth, shape of `utilisation`.

    M/D/1 at each channel (`kernels.dram.loaded_latency`); SRAM has its own latency at any load.
    """
    load = np.asarray(utilisation, dtype=np.float64)
    unloaded = spec.latency_ns * 1e-9
    if isinstance(spec, SramSpec):
        return np.full(load.shape, unloaded)
    timing = channel_timing(spec.standard, spec.data_rate_gbit_per_s)
    channels = spec.channels * spec.channel_bit / STANDARDS[spec.standard].channel_bit
    service = timing.burst_byte * channels / stream_byte_per_s(spec)
    return np.asarray(dram.loaded_latency(unloaded, service, load.ravel(), timing.queue)).reshape(load.shape)


def capacity_byte(spec: DramSpec | SramSpec) -> float:
    """Capacity [B]."""
    return spec.capacity_mb * _MB if isinstance(spec, SramSpec) else spec.capacity_gb * GB


def row_activations(spec: DramSpec | SramSpec, byte: ArrayLike) -> Floats:
    """Rows opened to stream `byte` [B], shape of `byte`: one a page of a channel; none in SRAM."""
    byte = np.asarray(byte, dtype=np.float64)
    if isinstance(spec, SramSpec):
        return np.zeros_like(byte)
    return np.asarray(np.ceil(byte / STANDARDS[spec.standard].page_byte))


def energy_j(spec: DramSpec | SramSpec, read_byte: ArrayLike, write_byte: ArrayLike = 0.0) -> Floats:
    """Energy [J] of streaming `read_byte` in and `write_byte` out [B], row activations included, static power not."""
    read, write = np.asarray(read_byte, dtype=np.float64), np.asarray(write_byte, dtype=np.float64)
    if isinstance(spec, SramSpec):
        return np.asarray(8e-12 * (read * spec.read_energy_pj_per_bit + write * spec.write_energy_pj_per_bit))
    rows = row_activations(spec, read) + row_activations(spec, write)
    return np.asarray(8e-12 * (read + write) * spec.energy_pj_per_bit + 1e-9 * rows * spec.activation_energy_nj)


def remarks(name: str, spec: DramSpec | SramSpec) -> list[str]:
    """What a reader should know about the tier `name`: a bandwidth unlike its capacity, pins unlike its standard."""
    if isinstance(spec, SramSpec):
        return []
    s = STANDARDS[spec.standard]
    peak = peak_byte_per_s(spec)
    found = []
    if s.stack_gb > 0.0:
        stack = s.stack_channels * s.channel_bit * s.data_rate_gbit_per_s / 8.0 * GB
        usual = math.ceil(spec.capacity_gb / s.stack_gb) * stack
        if peak < _FAR_BELOW * usual:
            found.append(
                f"{name}: {spec.capacity_gb:g} GB of {spec.standard} in {s.stack_gb:g} GB stacks of {si(stack, 'B/s')} would "
                f"bring about {si(usual, 'B/s', 2)}; the stated {si(peak, 'B/s')} is kept"
            )
    if spec.data_rate_gbit_per_s > _FAR_ABOVE * s.data_rate_gbit_per_s:
        found.append(
            f"{name}: pins at {spec.data_rate_gbit_per_s:g} Gb/s, far above the {s.data_rate_gbit_per_s:g} Gb/s that "
            f"{spec.standard}'s timings were stated for"
        )
    if spec.channel_bit % s.channel_bit:
        found.append(
            f"{name}: channels of {spec.channel_bit} bits are no multiple of the {s.channel_bit} bits of {spec.standard}"
        )
    return found
