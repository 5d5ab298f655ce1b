"""Time of transfers over links: packets, latency, paths of several links, and the ring all-reduce."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel

Floats = NDArray[np.float64]


class Path(NamedTuple):
    """Links in the order in which data cross them; arrays have shape (links,)."""

    line_byte_per_s: Floats  # [B/s] after encoding, one direction
    overhead_byte: Floats  # [B] header and framing of one packet
    latency_s: Floats  # one way, first bit
    packet_byte: float  # [B] largest payload; packets are cut once, for the whole path; 0: no packets
    setup_s: float  # software and DMA set-up of one transfer


@kernel
def cut_through_s(path: Path, byte: Floats) -> Floats:
    """Time [s] from the start of a transfer of `byte` [B] to its last bit, shape (n,); 0 for nothing to move.

    Set-up + latencies + the time on the slowest link, header bytes included: a router passes on a packet while it still
    arrives. No acknowledgement is waited for, so that latency counts once.
    """
    time = np.zeros_like(byte)
    for i in range(byte.size):
        if byte[i] <= 0.0:
            continue
        packets = np.ceil(byte[i] / path.packet_byte) if path.packet_byte > 0.0 else 1.0
        slowest = 0.0
        latency = 0.0
        for k in range(path.line_byte_per_s.size):
            slowest = max(slowest, (byte[i] + packets * path.overhead_byte[k]) / path.line_byte_per_s[k])
            latency += path.latency_s[k]
        time[i] = path.setup_s + latency + slowest
    return time


@kernel
def store_and_forward_s(path: Path, byte: Floats) -> Floats:
    """As `cut_through_s`, but every link waits for a whole packet before it passes it on.

    Exact for a line of links with equal packets and one shorter last packet: the last packet leaves link j when the
    full ones before it have passed the slowest of the links up to j, for the worst j.
    """
    time = np.zeros_like(byte)
    for i in range(byte.size):
        if byte[i] <= 0.0:
            continue
        packets = np.ceil(byte[i] / path.packet_byte) if path.packet_byte > 0.0 else 1.0
        full_byte = path.packet_byte if packets > 1.0 else byte[i]
        last_byte = byte[i] - (packets - 1.0) * full_byte
        tail = np.sum((last_byte + path.overhead_byte) / path.line_byte_per_s)  # the last packet alone, from link j on
        worst, head, slowest = tail, 0.0, 0.0
        for k in range(path.line_byte_per_s.size):
            one = (full_byte + path.overhead_byte[k]) / path.line_byte_per_s[k]
            head += one
            slowest = max(slowest, one)
            if packets > 1.0:
                worst = max(worst, head + (packets - 2.0) * slowest + tail)
            tail -= (last_byte + path.overhead_byte[k]) / path.line_byte_per_s[k]
        time[i] = path.setup_s + np.sum(path.latency_s) + worst
    return time
