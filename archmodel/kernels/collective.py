"""Time of collectives inside one group of alike devices, each with one link of the same rate into a switch or a ring.

A call moves `byte` [B] as nccl-tests counts it: the buffer of one device for all_reduce and all_to_all, the gathered (to be
scattered) one for all_gather and reduce_scatter. The library takes the fastest of its algorithms for each message.

Source of the terms: Thakur et al., "Optimization of Collective Communication Operations in MPICH" (2005), for ring and tree;
Hu et al., "Demystifying NCCL" (arXiv 2507.04786), for its low-latency and bulk protocols and NVLS; the one-shot and two-shot
kernels of TensorRT-LLM and vLLM. Ignored: other traffic on the links, unlike devices, congestion of all_to_all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = range(4)

ALGORITHMS = ("none", "ring", "ring_bulk", "tree", "in_network", "one_shot", "two_shot")
NONE, RING, RING_BULK, TREE, IN_NETWORK, ONE_SHOT, TWO_SHOT = range(7)

#: columns of the result: time [s], bytes [B] that one device sends, index into ALGORITHMS
COLUMNS = 3
DURATION, SENT_BYTE, ALGORITHM = range(COLUMNS)


class Fabric(NamedTuple):
    """What joins the devices, and how the library uses it. Rates are of one device, one direction."""

    byte_per_s: float  # [B/s] payload rate of the link
    fabric_byte_per_s: float  # [B/s] of all devices together, beyond an island; infinite behind a full switch
    island: float  # devices that reach each other without that fabric
    floor_s: float  # shortest call
    step_s: float  # one step of the low-latency protocol
    eager_share: float  # share of the rate that it reaches
    bulk_s: float  # further start-up of the bulk protocol
    bulk_step_s: float  # one step of it
    bulk_share: float  # share of the rate that it reaches
    copy_byte_per_s: float  # [B/s] at which it copies a device's own part, between steps
    tree: float  # 1: the library has a tree of logarithmic depth
    in_network_share: float  # share of the rate where the switch adds up; 0: it cannot
    direct_floor_s: float  # shortest one-shot kernel; negative: there is none
    direct_step_s: float  # barrier between the two halves of the two-shot kernel
    direct_share: float  # share of the rate when a device reads its peers' memory


@kernel
def keep_faster(row: Floats, time: float, sent_byte: float, algorithm: int) -> None:
    """Put an algorithm into one row of the result if it is faster than what stands there."""
    if time < row[DURATION]:
        row[DURATION] = time
        row[SENT_BYTE] = sent_byte
        row[ALGORITHM] = algorithm


@kernel
def library_call(fabric: Fabric, op: int, ranks: float, byte: float, row: Floats) -> None:
    """Ring, tree and in-network algorithms of a library call, the fastest into `row`."""
    rate = fabric.byte_per_s
    if ranks > fabric.island:
        rate = min(rate, fabric.fabric_byte_per_s / ranks)
    passes = 2.0 if op == ALL_REDUCE else 1.0
    steps = 1.0 if op == ALL_TO_ALL else passes * (ranks - 1.0)
    sent = passes * (ranks - 1.0) / ranks * byte
    eager = fabric.floor_s + steps * fabric.step_s
    keep_faster(row, eager + sent / (rate * fabric.eager_share), sent, RING)
    bulk = fabric.floor_s + fabric.bulk_s
    copied = byte / ranks / fabric.copy_byte_per_s
    keep_faster(row, bulk + steps * fabric.bulk_step_s + sent / (rate * fabric.bulk_share) + copied, sent, RING_BULK)
    if op != ALL_REDUCE:
        return
    if fabric.tree > 0.0:
        depth = 2.0 * np.ceil(np.log2(ranks))
        keep_faster(row, fabric.floor_s + depth * fabric.step_s + 2.0 * byte / (rate * fabric.eager_share), 2.0 * byte, TREE)
    if fabric.in_network_share > 0.0 and ranks > 2.0:
        sent = byte * (1.0 + 1.0 / ranks)  # up to the switch once, and the own sum to all
        keep_faster(row, bulk + 2.0 * fabric.bulk_step_s + sent / (rate * fabric.in_network_share), sent, IN_NETWORK)


@kernel
def direct_call(fabric: Fabric, ranks: float, byte: float, row: Floats) -> None:
    """All-reduce by reading the peers' memory, in one kernel: everything from everyone, or a part each and then the sums."""
    rate = fabric.byte_per_s * fabric.direct_share
    if ranks > fabric.island:
        rate = min(rate, fabric.fabric_byte_per_s / ranks * fabric.direct_share)
    sent = (ranks - 1.0) * byte
    keep_faster(row, fabric.direct_floor_s + sent / rate, sent, ONE_SHOT)
    sent = 2.0 * (ranks - 1.0) / ranks * byte
    keep_faster(row, fabric.direct_floor_s + fabric.direct_step_s + sent / rate, sent, TWO_SHOT)


@kernel
def collectives(fabric: Fabric, op: Ints, ranks: Floats, byte: Floats, direct: NDArray[np.bool_]) -> Floats:
    """Collectives of a group, one a row.

    Args:
        fabric: the links and the library.
        op: (rows,) index into OPS.
        ranks: (rows,) devices of the group; one has nothing to do.
        byte: (rows,) [B] of the message.
        direct: (rows,) whether the library may use one-shot and two-shot kernels.

    Returns:
        (rows, COLUMNS): time [s], bytes [B] that one device sends, and the algorithm taken.
    """
    result = np.zeros((byte.size, COLUMNS))
    for i in range(byte.size):
        if byte[i] <= 0.0 or ranks[i] < 2.0:
            continue
        result[i, DURATION] = np.inf
        library_call(fabric, op[i], ranks[i], byte[i], result[i])
        if direct[i] and op[i] == ALL_REDUCE and fabric.direct_floor_s >= 0.0:
            direct_call(fabric, ranks[i], byte[i], result[i])
    return result
