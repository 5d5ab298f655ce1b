"""Links: line and payload rates, transfer times and energy against published figures."""

import numpy as np
import pytest

from archmodel.components import link
from archmodel.spec.chip import LinkSpec


def make(**changes):
    base = {
        "joins": ("a", "b"),
        "protocol": "wire",
        "lanes": 8,
        "lane_rate_gt_per_s": 100.0,
        "latency_ns": 0.0,
        "source": "test",
    }
    return LinkSpec(**{**base, **changes})


def pcie(rate, payload=0.0, overhead=0.0, lanes=16, encoding=128 / 130):
    return make(
        protocol="pcie", lanes=lanes, lane_rate_gt_per_s=rate, encoding=encoding, packet_payload_bytes=payload,
        packet_overhead_bytes=overhead,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "encoding", "gb_per_s"),
    [(8.0, 128 / 130, 15.75), (16.0, 128 / 130, 31.5), (32.0, 128 / 130, 63.0), (64.0, 242 / 256, 121.0)],
)
def test_pcie_x16_line_rates(rate, encoding, gb_per_s):
    """Gen3 to Gen6 as in stas00/ml-engineering 744d01e, network."""
    assert link.line_byte_per_s(pcie(rate, encoding=encoding)) / 1e9 == pytest.approx(gb_per_s, rel=1e-3)


def test_pcie_gen4_x16_line_and_payload():
    """31.5077 GB/s on the line, 28.6027 GB/s of payload with 256 + 26 bytes a packet (NVIDIA/nccl issue 1206)."""
    assert link.line_byte_per_s(pcie(16.0)) / 1e9 == pytest.approx(31.5077, abs=5e-5)
    assert link.payload_byte_per_s(pcie(16.0, 256, 26)) / 1e9 == pytest.approx(28.6027, abs=5e-5)


@pytest.mark.parametrize(("payload", "efficiency"), [(128, 0.842), (256, 0.914), (512, 0.955)])
def test_pcie_packet_efficiency(payload, efficiency):
    """24 bytes around each packet, as in Intel AN708 (20 to 28)."""
    spec = pcie(16.0, payload, 24)
    assert link.payload_byte_per_s(spec) / link.line_byte_per_s(spec) == pytest.approx(efficiency, abs=5e-4)


def test_measured_transfers_stay_below_the_payload_rate():
    """Gen4 x16 DMA 24.4 GB/s (tt-isa-documentation 3930471), Gen3 x16 copy 12.35 GB/s (RRZE-HPC/gpu-benches 1038c5d)."""
    for rate, measured in ((16.0, 24.4e9), (8.0, 12.35e9)):
        assert 0.8 < measured / link.payload_byte_per_s(pcie(rate, 256, 26)) < 1.0


def test_set_up_makes_small_copies_slow():
    """Gen3 x16 copies: 30 us a copy and half of 12.35 GB/s near 300 kB (RRZE-HPC/gpu-benches 1038c5d, V100)."""
    spec = make(lanes=16, lane_rate_gt_per_s=8.0, encoding=12.35 / 16.0, setup_us=30.0)
    assert link.transfer_s(spec, 1e3) == pytest.approx(30e-6, rel=0.01)
    half_byte = 30e-6 * 12.35e9
    assert half_byte == pytest.approx(300e3, rel=0.25)
    assert half_byte / link.transfer_s(spec, half_byte) == pytest.approx(12.35e9 / 2)


def test_network_hops():
    """Ten by twelve torus of 9-cycle routers, 5 cycles in and out, 11 hops: 109 cycles (tt-isa-documentation 3930471)."""
    spec = make(protocol="noc", latency_ns=10.0, hops=11, hop_ns=9.0)
    assert link.latency_s(spec) == pytest.approx(109e-9)
    assert link.transfer_s(spec, 32.0) == pytest.approx(109e-9 + 32 / 100e9)


def test_network_header_flit():
    """One 32-byte header flit for at most 256 data flits of 32 bytes."""
    spec = make(protocol="noc", lanes=256, lane_rate_gt_per_s=1.0, packet_payload_bytes=8192, packet_overhead_bytes=32)
    assert link.transfer_s(spec, [32.0, 8192.0, 8224.0]) == pytest.approx([2e-9, 257e-9, 259e-9])


def test_latency_counts_once():
    """1 MB over 100 GB/s with 500 ns one way: 10.5 us (PrincetonUniversity/LLMCompass #2)."""
    assert link.transfer_s(make(latency_ns=500.0), 1e6) == pytest.approx(10.5e-6, rel=1e-12)


def test_gb_is_not_gib():
    """16 GB and 16 GiB over 1 TB/s (torchcomms issue 141)."""
    spec = make(lanes=80)
    assert link.transfer_s(spec, [16e9, 16 * 2.0**30]) == pytest.approx([16e-3, 17.179869184e-3], rel=1e-12)


def test_energy_of_a_die_to_die_link():
    """0.5 pJ/bit for 1e9 bytes: 4e-3 J (timeloop issue 91)."""
    assert link.energy_j(make(energy_pj_per_bit=0.5), 1e9) == pytest.approx(4e-3, rel=1e-12)


def test_duplex():
    full, half = make(latency_ns=100.0), make(latency_ns=100.0, duplex="half")
    forth, back = 3e6, 1e6
    assert link.exchange_s(full, forth, back) == pytest.approx(link.transfer_s(full, forth))
    assert link.exchange_s(half, forth, back) == pytest.approx(link.transfer_s(half, forth) + link.transfer_s(half, back))
    assert link.exchange_s(half, forth, 0.0) == pytest.approx(link.transfer_s(full, forth))


def test_path_of_links():
    """A slow link between two fast ones governs; latencies and set-ups add; packets wait only in store and forward."""
    fast = make(latency_ns=100.0, setup_us=1.0, packet_payload_bytes=4096, packet_overhead_bytes=0)
    slow = make(lanes=1, latency_ns=300.0, packet_payload_bytes=1024, packet_overhead_bytes=0)
    specs = (fast, slow, fast)
    assert link.path_transfer_s(specs, 1e6) == pytest.approx(2e-6 + 500e-9 + 1e6 / 12.5e9)
    waiting = link.path_transfer_s(specs, 1024.0 * 1000, cut_through=False)
    assert waiting == pytest.approx(2e-6 + 500e-9 + 1024e3 / 12.5e9 + 2 * 1024 / 100e9)


def test_long_transfers_approach_the_payload_rate():
    spec = pcie(16.0, 256, 26)
    assert 256e9 / link.transfer_s(spec, 256e9) == pytest.approx(link.payload_byte_per_s(spec), rel=1e-9)


def test_shapes_follow_the_bytes():
    assert link.transfer_s(make(), np.zeros((2, 3))).shape == (2, 3)
    assert link.transfer_s(make(), 1.0).shape == ()
