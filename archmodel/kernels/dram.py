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
def granule_cycles(t: DramTiming, granule_byte: Floats, row_hit: Floats, write_share: Floats) -> Floats:
    """Mean cycles between granules of `granule_byte` [B] that reach a busy channel, shape (n,) like all arguments.

    Each granule lies in one bank, any bank; a share `row_hit` of them finds its row open, the others open one row a page;
    a share `write_share` are writes, drained in batches. The slowest of four limits holds: the data bus with its
    turnarounds, the bank groups (tCCD_L), the banks (row cycle), and the activates (tRRD, tFAW). A controller that
    reorders `t.queue` requests hides the rest, per-bank refresh too, but for the bank time that refresh takes.
    Ignored: uneven load of the banks, command bus conflicts, rank switches.
    """
    cycles = np.empty_like(granule_byte)
    for i in range(granule_byte.size):
        write = write_share[i]
        bursts = np.ceil(granule_byte[i] / t.burst_byte)
        opens = (1.0 - row_hit[i]) * max(1.0, granule_byte[i] / t.page_byte)
        bus = bursts * t.burst
        if 0.0 < write < 1.0:
            bus += bursts * write / t.write_batch * (t.bus_gap + t.wtr + t.cl)
        columns = bursts * t.ccd_l
        closing = (1.0 - write) * t.rtp + write * (t.cwl + t.burst + t.wr) - t.ccd_l
        bank = max(opens * t.rc, columns + opens * (t.rcd + closing + t.rp)) / t.banks
        if t.per_bank > 0.0:
            bank /= 1.0 - t.rfc_bank / t.refi
        activates = opens * max(t.rrd, t.faw / 4.0)
        cycles[i] = max(bus, columns / t.bank_groups, bank, activates) / (1.0 - refresh_share(t))
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
