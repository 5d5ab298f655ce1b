"""Links and networks: line rate, payload rate, transfer time and energy, for one link or a path of several.

Guide to the spec: PCIe Gen3 to Gen5 encode 128/130 and put 20 to 28 bytes around each packet, Gen6 is 242/256 flits
(encoding); an on-chip network has a header flit a packet and a latency a router (`hops`, `hop_ns`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archmodel.kernels import transfer
from archmodel.spec.chip import LinkSpec
from archmodel.units import GB

Floats = NDArray[np.float64]


def line_byte_per_s(spec: LinkSpec) -> float:
    """Bytes per second [B/s] on the line after encoding, one direction: lanes x rate x encoding / 8."""
    return spec.lanes * spec.lane_rate_gt_per_s * spec.encoding / 8.0 * GB


def payload_byte_per_s(spec: LinkSpec) -> float:
    """Payload bandwidth [B/s] of a long transfer, one direction: what packet headers leave of the line."""
    if spec.packet_payload_bytes == 0.0:
        return line_byte_per_s(spec)
    return line_byte_per_s(spec) * spec.packet_payload_bytes / (spec.packet_payload_bytes + spec.packet_overhead_bytes)


def latency_s(spec: LinkSpec) -> float:
    """One way [s], first bit, routers included, set-up not."""
    return (spec.latency_ns + spec.hops * spec.hop_ns) * 1e-9


def _path(specs: Sequence[LinkSpec], shares: Sequence[float]) -> transfer.Path:
    """The links as the kernel takes them: packets of the smallest payload, set-ups summed."""
    shares = shares or [1.0] * len(specs)
    payloads = [spec.packet_payload_bytes for spec in specs if spec.packet_payload_bytes > 0.0]
    return transfer.Path(
        line_byte_per_s=np.array([line_byte_per_s(spec) / share for spec, share in zip(specs, shares, strict=True)]),
        overhead_byte=np.array([spec.packet_overhead_bytes if spec.packet_payload_bytes > 0.0 else 0.0 for spec in specs]),
        latency_s=np.array([latency_s(spec) for spec in specs]),
        packet_byte=min(payloads, default=0.0),
        setup_s=sum((spec.setup_us for spec in specs), 0.0) * 1e-6,
    )


def path_transfer_s(
    specs: Sequence[LinkSpec], byte: ArrayLike, *, cut_through: bool = True, shares: Sequence[float] = ()
) -> Floats:
    """Time [s] to move `byte` [B] over links in a row, shape of `byte`: latencies add, the slowest link governs.

    `shares`: part of the bytes that each link carries, where there are several alike side by side; all, unless said.
    `cut_through=False` has every link wait for whole packets (store and forward). Other traffic is not counted.
    """
    amount = np.asarray(byte, dtype=np.float64)
    move = transfer.cut_through_s if cut_through else transfer.store_and_forward_s
    return np.asarray(move(_path(specs, shares), amount.ravel())).reshape(amount.shape)


def transfer_s(spec: LinkSpec, byte: ArrayLike) -> Floats:
    """Time [s] to move `byte` [B] in one direction: set-up + latency + packets, shape of `byte`; 0 bytes take no time."""
    return path_transfer_s((spec,), byte)


def exchange_s(spec: LinkSpec, forth_byte: ArrayLike, back_byte: ArrayLike) -> Floats:
    """Time [s] to move `forth_byte` and `back_byte` [B] at once: together on a full duplex link, in turn on a half one."""
    forth, back = transfer_s(spec, forth_byte), transfer_s(spec, back_byte)
    return np.maximum(forth, back) if spec.duplex == "full" else forth + back


def energy_j(spec: LinkSpec, byte: ArrayLike) -> Floats:
    """Energy [J] of moving `byte` [B] of payload, static power not included."""
    return np.asarray(np.asarray(byte, dtype=np.float64) * 8e-12 * spec.energy_pj_per_bit)
