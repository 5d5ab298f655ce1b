"""What crosses between attention and FFN, and the link that it needs."""

from __future__ import annotations

import math

#: weights of 1 B are worth a multiplication and an addition a token
_FLOP_PER_WEIGHT_BYTE = 2.0


def crossing_byte_per_token(hidden: int, layers: int, out_byte: float, back_byte: float) -> float:
    """Bytes [B] that a token moves in all: every layer sends `hidden` elements out and takes them back (two crossings)."""
    return layers * hidden * (out_byte + back_byte)


def crossings_per_token(layers: int) -> int:
    """Crossings of a token: out and back in every layer."""
    return 2 * layers


def way_s(window_s: float, out_byte: float, back_byte: float) -> tuple[float, float]:
    """A window [s] of one link divided between the two ways by their bytes. Source: StepMesh, table 1."""
    share = out_byte / (out_byte + back_byte)
    return window_s * share, window_s * (1.0 - share)


def link_byte_per_s(byte: float, window_s: float, latency_s: float = 0.0) -> float:
    """Rate [B/s] that moves `byte` in `window_s`, of which `latency_s` is gone whatever the rate.

    Raises ValueError where the latency alone takes the whole window.
    """
    if latency_s >= window_s:
        raise ValueError("the latency alone is as long as the window: no rate will do")
    return byte / (window_s - latency_s)


def send_probability(experts: int, chosen: int, nodes: int) -> float:
    """Probability that a token must go to a given FFN node, its experts drawn without preference.

    1 - C(E - E/N, k) / C(E, k). Source: aiconfigurator operations/afd_transfer.py. Raises ValueError where the experts do not
    divide evenly over the nodes.
    """
    if experts % nodes:
        raise ValueError(f"{experts} experts do not divide evenly over {nodes} nodes")
    return 1.0 - math.comb(experts - experts // nodes, chosen) / math.comb(experts, chosen)


def least_active_share(
    hidden: int, layers: int, flop_per_s: float, memory_byte_per_s: float, network_byte_per_s: float, window_s: float,
    back_byte: float = 2.0,
) -> float:  # fmt: skip
    """Least share of active experts at which an FFN node can be compute-bound behind its network.

    A batch that fills the matrix units needs flop / (2 memory x share) tokens for 1 B weights; its results, `back_byte` an
    element, must fit through the network in `window_s` over all layers. Source: Step-3, arXiv:2507.19427 (the window is two
    thirds of a third of the time per token).
    """
    tokens_at_full_share = flop_per_s / (_FLOP_PER_WEIGHT_BYTE * memory_byte_per_s)
    return tokens_at_full_share * layers * hidden * back_byte / (network_byte_per_s * window_s)
