"""Collectives over the link from a chip to its peers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from archmodel.components.link import payload_byte_per_s
from archmodel.kernels import collective as kernel
from archmodel.kernels.collective import ALGORITHMS, OPS
from archmodel.kernels.transfer import Floats
from archmodel.spec.chip import LinkSpec, PeersSpec

__all__ = ["ALGORITHMS", "OPS", "collectives"]


def fabric(link: LinkSpec, peers: PeersSpec) -> kernel.Fabric:
    """Link and peers as the kernel takes them, in bytes and seconds."""
    return kernel.Fabric(
        byte_per_s=payload_byte_per_s(link),
        fabric_byte_per_s=peers.fabric_gb_per_s * 1e9 or np.inf,
        island=float(peers.island),
        floor_s=peers.floor_us * 1e-6,
        step_s=peers.step_us * 1e-6,
        eager_share=float(peers.eager_share),
        bulk_s=peers.bulk_us * 1e-6,
        bulk_step_s=peers.bulk_step_us * 1e-6,
        bulk_share=float(peers.bulk_share),
        copy_byte_per_s=peers.copy_gb_per_s * 1e9,
        tree=float(peers.tree),
        in_network_share=float(peers.in_network_share),
        direct_floor_s=peers.direct_floor_us * 1e-6 or -1.0,
        direct_step_s=peers.direct_step_us * 1e-6,
        direct_share=float(peers.direct_share),
    )


def collectives(
    link: LinkSpec, peers: PeersSpec, op: ArrayLike, ranks: ArrayLike, byte: ArrayLike, direct: ArrayLike = False
) -> Floats:
    """Time [s], bytes [B] that one chip sends and index into ALGORITHMS of each call, shape (n, 3).

    Args:
        link: from a chip to its peers.
        peers: the group.
        op: index into OPS.
        ranks: chips that take part.
        byte: message [B], as nccl-tests counts it.
        direct: whether the stack has one-shot and two-shot all-reduce kernels. All four broadcast to shape (n,).
    """
    shape = np.broadcast_shapes((1,), *(np.shape(column) for column in (op, ranks, byte, direct)))

    def column(values: ArrayLike, dtype: type) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(values, dtype=dtype), shape))

    return kernel.collectives(
        fabric(link, peers), column(op, np.int64), column(ranks, np.float64), column(byte, np.float64), column(direct, np.bool_)
    )
