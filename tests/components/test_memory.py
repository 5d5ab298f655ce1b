"""Memory tiers: peaks, streams against measured chips, capacity, activations, energy and remarks."""

import numpy as np
import pytest

from archmodel.components import memory
from archmodel.spec.chip import DramSpec, SramSpec
from archmodel.spec.standards import STANDARDS


def dram(standard, channels, channel_bit, rate, **changes):
    base = {"capacity_gb": 16.0, "latency_ns": 300.0, "source": "test"}
    return DramSpec(
        standard=standard, channels=channels, channel_bit=channel_bit, data_rate_gbit_per_s=rate, **{**base, **changes}
    )


def sram(**changes):
    base = {"capacity_mb": 24.0, "bandwidth_byte_per_cycle": 512.0, "clock_ghz": 1.5, "latency_ns": 5.0, "source": "test"}
    return SramSpec(**{**base, **changes})


@pytest.mark.parametrize(
    ("spec", "gb_per_s"),
    [
        (dram("DDR4", 1, 64, 2.4), 19.2), (dram("HBM2", 8, 128, 1.0), 128.0), (dram("HBM2", 8, 128, 2.0), 256.0),
        (dram("HBM3", 16, 64, 6.4), 819.2), (sram(), 768.0),
    ],
)  # fmt: skip
def test_peaks(spec, gb_per_s):
    """Channels x width x rate (ramulator2 issue 82)."""
    assert memory.peak_byte_per_s(spec) == pytest.approx(gb_per_s * 1e9, rel=1e-12)


@pytest.mark.parametrize(("name", "gb_per_s"), [("HBM2", 307), ("HBM2E", 461), ("HBM3", 819), ("HBM3E", 1229), ("HBM4", 2048)])
def test_stack_rates(name, gb_per_s):
    """One stack of each standard (stas00/ml-engineering 744d01e)."""
    s = STANDARDS[name]
    assert memory.peak_byte_per_s(dram(name, s.stack_channels, s.channel_bit, s.data_rate_gbit_per_s)) == pytest.approx(
        gb_per_s * 1e9, rel=2e-3
    )


# best streaming kernel of each chip as a share of its peak: RRZE-HPC/gpu-benches 1038c5d (gpu-stream, gpu-l2-cache) and
# tenstorrent/tt-isa-documentation 3930471; measured numbers only
MEASURED = [
    ("V100", dram("HBM2", 32, 128, 1.754), 0.965), ("A100-40", dram("HBM2", 40, 128, 2.43), 0.965),
    ("A100-80", dram("HBM2E", 40, 128, 3.186), 0.880), ("H100-PCIe", dram("HBM2E", 40, 128, 3.186), 0.952),
    ("GH200", dram("HBM3", 96, 64, 5.237), 0.941), ("MI210", dram("HBM2E", 32, 128, 3.2), 0.853),
    ("MI300X", dram("HBM3", 128, 64, 5.2), 0.792), ("H200", dram("HBM3E", 96, 64, 6.25), 0.810),
    ("L40", dram("GDDR6", 24, 16, 18.0), 0.978), ("Wormhole", dram("GDDR6", 12, 16, 12.0), 0.931),
]  # fmt: skip


@pytest.mark.parametrize(("chip", "spec", "measured"), MEASURED)
def test_the_timings_allow_what_chips_reach(chip, spec, measured):
    """The timings bound the stream from above: no chip beats them, and none falls more than a quarter below."""
    assert measured <= memory.stream_efficiency(spec) <= 1.0, chip
    assert measured >= 0.75 * memory.stream_efficiency(spec), chip


def test_a_measured_stream_efficiency_goes_first():
    spec = dram("HBM3", 16, 64, 6.4, stream_efficiency=0.8)
    assert memory.stream_byte_per_s(spec) == pytest.approx(0.8 * 819.2e9)
    assert memory.pattern_byte_per_s(spec, 1e6) == pytest.approx(0.8 * 819.2e9)
    assert memory.pattern_byte_per_s(spec, 32) == pytest.approx(memory.pattern_byte_per_s(dram("HBM3", 16, 64, 6.4), 32))


def test_random_bursts_by_hand():
    """HBM2 at 2.4 Gb/s: one 32-byte burst an activate, an activate every 5 clocks of 1.2 GHz, 16 pseudo-channels."""
    spec = dram("HBM2", 8, 128, 2.4)
    assert memory.pattern_byte_per_s(spec, 32) == pytest.approx(16 * 32 * 1.2e9 / 5)


def test_patterns_broadcast_and_stay_below_the_stream():
    spec = dram("LPDDR5", 4, 16, 6.4)
    rate = memory.pattern_byte_per_s(spec, 2.0 ** np.arange(3, 16)[:, None], np.linspace(0, 1, 5))
    assert rate.shape == (13, 5)
    assert np.all(rate <= memory.stream_byte_per_s(spec))
    assert memory.pattern_byte_per_s(sram(), np.ones((2, 1)), np.ones(3)).shape == (2, 3)


@pytest.mark.parametrize("name", STANDARDS)
def test_datasheet_times_become_whole_clocks(name):
    """Rounded up and by less than one clock, at the nominal rate and on a pin of 0.852 Gb/s."""
    s = STANDARDS[name]
    for rate in (s.data_rate_gbit_per_s, 0.852):
        t = memory.channel_timing(name, rate)
        clock_ghz = rate / s.bits_per_clock
        for cycles, time_ns in ((t.rc, s.t_rc_ns), (t.faw, s.t_faw_ns), (t.refi, s.t_refi_ns), (t.wtr, s.t_wtr_ns)):
            assert cycles == int(cycles)
            assert time_ns - 1e-6 <= cycles / clock_ghz < time_ns + 1 / clock_ghz
        assert t.burst / clock_ghz == pytest.approx(s.burst_length / rate)


@pytest.mark.parametrize(
    ("name", "rate", "expected"),
    [
        ("HBM3", 6.4, {"cl": 20, "rcd": 32, "rp": 27, "ras": 45, "rc": 72, "faw": 24, "rrd": 4, "burst": 2, "ccd_l": 4}),
        ("DDR4", 3.2, {"cl": 22, "rcd": 22, "rp": 22, "rc": 74, "burst": 4, "ccd_l": 8, "refi": 12480}),
        ("DDR5", 4.8, {"cl": 34, "rcd": 34, "rp": 34, "rc": 111, "burst": 8, "ccd_l": 12}),
    ],
)
def test_clocks_of_the_speed_bins(name, rate, expected):
    """As printed in the standards' tables; HBM3's tRCD and tRP, given to 0.1 ns, come out one clock above 31 and 26."""
    t = memory.channel_timing(name, rate)
    assert {key: getattr(t, key) for key in expected} == expected


def test_a_slow_pin_hides_the_core():
    """The core's ns stay, the burst takes longer: at 0.852 Gb/s HBM3 streams and scatters at its peak."""
    spec = dram("HBM3", 176, 64, 0.852, capacity_gb=256.0)
    assert memory.peak_byte_per_s(spec) == pytest.approx(1.1996e12, rel=1e-4)
    assert memory.stream_efficiency(spec) == pytest.approx(1.0)
    assert memory.pattern_byte_per_s(spec, 32.0) == pytest.approx(memory.peak_byte_per_s(spec))


def test_latency_under_load():
    spec = dram("HBM3", 16, 64, 6.4)
    latency = memory.loaded_latency_s(spec, [0.0, 0.5, 0.9, 2.0])
    assert latency[0] == pytest.approx(300e-9)
    assert np.all(np.diff(latency) > 0)
    burst_s = 32 * 32 / memory.stream_byte_per_s(spec)
    assert latency[1] == pytest.approx(300e-9 + 0.5 * burst_s)
    assert memory.loaded_latency_s(sram(), [0.0, 0.9]) == pytest.approx([5e-9, 5e-9])


def test_capacity_is_decimal():
    assert memory.capacity_byte(dram("DDR5", 2, 32, 4.8, capacity_gb=64.0)) == 64e9
    assert memory.capacity_byte(sram()) == 24e6


def test_activations_and_energy():
    spec = dram("HBM2", 8, 128, 2.0, energy_pj_per_bit=4.0, activation_energy_nj=1.0)
    assert memory.row_activations(spec, [0.0, 1.0, 1024.0, 1025.0]) == pytest.approx([0, 1, 1, 2])
    assert memory.row_activations(sram(), 1e6) == 0.0
    assert memory.energy_j(spec, 1024e3) == pytest.approx(1024e3 * 8 * 4e-12 + 1000 * 1e-9)
    assert memory.energy_j(spec, 1024e3, 1024e3) == pytest.approx(2 * memory.energy_j(spec, 1024e3))
    assert memory.energy_j(sram(read_energy_pj_per_bit=0.1, write_energy_pj_per_bit=0.2), 1e9, 1e9) == pytest.approx(2.4e-3)


def test_remarks():
    low = dram("HBM3", 176, 64, 0.852, capacity_gb=256.0)
    assert memory.remarks("hbm", low) == [
        "hbm: 256 GB of HBM3 in 24 GB stacks of 819 GB/s would bring about 9 TB/s; the stated 1.2 TB/s is kept"
    ]
    for chip, spec, _ in MEASURED:
        assert memory.remarks(chip, spec) == []
    assert "far above" in memory.remarks("ddr", dram("DDR4", 2, 64, 24.0))[0]
    assert "no multiple" in memory.remarks("ddr", dram("DDR4", 2, 32, 2.4))[0]
    assert memory.remarks("sram", sram()) == []
