"""Bandwidth and latency of one DRAM channel by access pattern, in closed form, in cycles of the command clock."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel

Floats = NDArray[np.float64]


class DramTiming(NamedTuple):
    """Timings and organisation of one channel; times in [cycles] of the command clock, JEDEC names."""

    burst: float  # one column command on the data bus (tCCD_S)
    ccd_l: float
    rc: float
    rcd: float
    rp: float
    ras: float
    rrd: float
    faw: float
    cl: float
    cwl: float
    rtp: float
    wr: float
    wtr: float
    bus_gap: float  # idle clocks between read data and write data
    refi: float
    rfc: float
    rfc_bank: float
    per_bank: float  # 1: refresh bank by bank, 0: all banks at once
    banks: float
    bank_groups: float
    burst_byte: float  # [B]
    page_byte: float  # [B]
    queue: float  # requests that the controller reorders
    write_batch: float  # write bursts between two turnarounds


@kernel
def refresh_share(t: DramTiming) -> float:
    """Share of time that all-bank refresh takes, rows closed before and opened again after it; 0 bank by bank."""
    return 0.0 if t.per_bank > 0.0 else (t.rp + t.rfc + t.rcd) / t.refi


@kernel
def stream_byte_per_cycle(t: DramTiming) -> float:
    """Bytes per cycle [B/cycle] of one long sequential read, consecutive bursts spread over the banks in turn.

    All banks reach the end of their rows together. The first to finish closes and opens a row (tRTP + tRP + tRCD) while
    the others still deliver their last bursts; what is longer than that is a bubble on the data bus.
    """
    bursts = t.banks * t.page_byte / t.burst_byte
    bubble = max(0.0, t.rtp + t.rp + t.rcd - (t.banks - 1.0) * t.burst)
    activates = t.banks * max(t.rrd, t.faw / 4.0)
    cycles = max(bursts * t.burst + bubble, bursts * t.ccd_l / t.bank_groups, activates, t.rc)
    return bursts * t.burst_byte * (1.0 - refresh_share(t)) / cycles


@kernel
def bank_cycles(t: DramTiming, bursts: float, miss: float, write: float) -> float:
    """Mean cycles between granules of `bursts` that the banks allow, a share `miss` of them opening a row.

    The banks are parallel servers; requests fall on them at random, so that a queue of finite length leaves some of them
    idle. The idle share takes the form of a closed queueing network, queue / (queue + (banks - 1) (1 + cv^2)), cv being
    the coefficient of variation of a request's time in its bank; the factor is fitted to a command-level simulation.
    """
    hit_time = bursts * t.ccd_l
    closing = (1.0 - write) * t.rtp + write * (t.cwl + t.burst + t.wr)
    mean = max(miss * t.rc, hit_time + miss * (t.rcd + closing + t.rp - t.ccd_l))
    variance = (1.0 - miss) * (mean - hit_time) ** 2 / miss if miss > 0.0 else 0.0  # of two times with this mean
    idle = (t.banks - 1.0) * (1.0 + variance / mean**2) / t.queue
    refreshed = t.rfc_bank / t.refi if t.per_bank > 0.0 else 0.0
    return mean * (1.0 + idle) / (t.banks * (1.0 - refreshed))


@kernel
def granule_cycles(t: DramTiming, granule_byte: Floats, row_hit: Floats, write_share: Floats) -> Floats:
    """Mean cycles between granules of `granule_byte` [B] at a channel that is never idle; all arrays have shape (n,).

    A granule lies in one row of any bank (a larger one than a row is cut into rows); a share `row_hit` finds its row
    open; a share `write_share` are writes, drained in batches. The slowest limit holds: the data bus with its
    turnarounds, the bank groups (tCCD_L), the banks (row cycle), and the activates (tRRD, tFAW). Refresh bank by bank
    costs bank time, of all banks at once it costs everything. Ignored: command bus conflicts, rank switches.
    """
    cycles = np.empty_like(granule_byte)
    for i in range(granule_byte.size):
        write, miss = write_share[i], 1.0 - row_hit[i]
        rows = max(1.0, granule_byte[i] / t.page_byte)
        bursts = np.ceil(granule_byte[i] / rows / t.burst_byte)
        turns = bursts * min(write, 1.0 - write) / t.write_batch
        turnaround = turns * (t.bus_gap + t.wtr + t.cl)
        bus = bursts * t.burst + turnaround
        groups = bursts * t.ccd_l / t.bank_groups
        opening = max(bank_cycles(t, bursts, miss, write), miss * max(t.rrd, t.faw / 4.0))
        refill = turnaround + turns * miss * t.rcd  # rows of the other direction open after the turn
        cycles[i] = rows * max(bus, groups, opening + refill) / (1.0 - refresh_share(t))
    return cycles


@kernel
def loaded_latency(unloaded: float, service: float, utilisation: Floats, queue: float) -> Floats:
    """Mean latency at `utilisation` (demand / effective bandwidth), shape (n,); in the unit of `unloaded` and `service`.

    M/D/1: random arrivals wait service x u / (2 (1 - u)) for a server of fixed `service` time (Pollaczek-Khinchine);
    the wait ends at `queue` services, where a full queue holds the requester back.
    """
    latency = np.empty_like(utilisation)
    for i in range(utilisation.size):
        u = utilisation[i]
        wait = queue if u >= 1.0 else min(queue, 0.5 * u / (1.0 - u))
        latency[i] = unloaded + service * wait
    return latency
