"""Transfers against a packet-by-packet walk."""

import numpy as np
import pytest

from archmodel.kernels.transfer import Path, cut_through_s, store_and_forward_s


def random_path(rng, links):
    return Path(
        line_byte_per_s=rng.uniform(1e9, 100e9, links),
        overhead_byte=rng.uniform(0.0, 40.0, links),
        latency_s=rng.uniform(0.0, 1e-6, links),
        packet_byte=float(rng.choice([0.0, 64.0, 256.0, 4096.0])),
        setup_s=float(rng.uniform(0.0, 5e-6)),
    )


def walk(path, byte, piece_byte, overhead):
    """Every piece crosses every link in turn: a link takes it when it is there and the one before has left."""
    free = [0.0] * len(path.line_byte_per_s)
    arrived = 0.0
    for piece in [piece_byte] * int(byte // piece_byte) + ([byte % piece_byte] if byte % piece_byte else []):
        at = path.setup_s
        for k, rate in enumerate(path.line_byte_per_s):
            free[k] = max(at, free[k]) + (piece + overhead[k] * min(1.0, piece / piece_byte)) / rate
            at = free[k] + path.latency_s[k]
        arrived = at
    return arrived


def walk_packets(path, byte):
    """Store and forward: the pieces are whole packets, the last one shorter but with a full header."""
    free = [0.0] * len(path.line_byte_per_s)
    left, arrived = byte, 0.0
    while left > 0:
        payload = min(left, path.packet_byte or left)
        left -= payload
        arrived = path.setup_s
        for k, rate in enumerate(path.line_byte_per_s):
            free[k] = max(arrived, free[k]) + (payload + path.overhead_byte[k]) / rate
            arrived = free[k] + path.latency_s[k]
    return arrived


@pytest.mark.parametrize("seed", range(40))
def test_store_and_forward_is_the_packet_walk(seed):
    rng = np.random.default_rng(seed)
    path = random_path(rng, int(rng.integers(1, 5)))
    byte = np.array([1.0, 63.0, 64.0, 65.0, 300.0, 4096.0, 10_000.0])
    assert store_and_forward_s(path, byte) == pytest.approx([walk_packets(path, b) for b in byte], rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_cut_through_is_the_walk_of_small_flits(seed):
    """Flits of 1/4000 of the transfer, headers spread over them: what is left is a flit a link."""
    rng = np.random.default_rng(seed)
    path = random_path(rng, int(rng.integers(1, 5)))._replace(packet_byte=256.0)
    byte = 256.0 * 4000
    flits = walk(path, byte, 256.0, path.overhead_byte)
    assert cut_through_s(path, np.array([byte]))[0] == pytest.approx(flits, rel=2e-3)


@pytest.mark.parametrize("seed", range(20))
def test_laws(seed):
    rng = np.random.default_rng(seed)
    path = random_path(rng, int(rng.integers(1, 5)))
    byte = np.sort(rng.uniform(0.0, 1e8, 50))
    byte[0] = 0.0
    cut, store = cut_through_s(path, byte), store_and_forward_s(path, byte)
    assert cut[0] == store[0] == 0.0
    assert np.all(np.diff(cut) > 0)
    assert np.all(store >= cut * (1 - 1e-12))
    assert np.all(cut[1:] >= path.setup_s + path.latency_s.sum() + byte[1:] / path.line_byte_per_s.min())
    one = path._replace(
        line_byte_per_s=path.line_byte_per_s[:1], overhead_byte=path.overhead_byte[:1], latency_s=path.latency_s[:1]
    )
    assert cut_through_s(one, byte) == pytest.approx(store_and_forward_s(one, byte))


def test_the_largest_transfer_keeps_its_digits():
    path = Path(np.array([1e9]), np.array([24.0]), np.array([0.0]), 256.0, 0.0)
    assert cut_through_s(path, np.array([256.0 * 2**50]))[0] == pytest.approx(280.0 * 2**50 / 1e9, rel=1e-12)
