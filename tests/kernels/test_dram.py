"""The closed forms of a DRAM channel against a command-level simulation, and the timing rules of that simulation."""

import numpy as np
import pytest
from dram_oracle import Device, byte_per_cycle, granules, stream

from archmodel.components.memory import channel_timing
from archmodel.kernels.dram import granule_cycles, loaded_latency, stream_byte_per_cycle
from archmodel.spec.standards import STANDARDS

CHECKED = ("HBM2", "HBM3E", "DDR4", "DDR5", "GDDR6", "LPDDR5")


def timing(name):
    return channel_timing(name, STANDARDS[name].data_rate_gbit_per_s)


def closed_form(t, granule_byte, row_hit=0.0, write_share=0.0):
    one = np.ones(1)
    return granule_byte / granule_cycles(t, granule_byte * one, row_hit * one, write_share * one)[0]


def simulated(t, bursts, row_hit=0.0, write_share=0.0):
    """The same pattern, run for long enough to see refresh."""
    granule_byte = bursts * t.burst_byte
    cycles = t.refi * (1.0 if t.per_bank else 2.3)
    count = int(cycles * closed_form(t, granule_byte, row_hit, write_share) / granule_byte)
    return byte_per_cycle(
        t, granules(t, granule_byte, count, row_hit=row_hit, write_share=write_share), granule_byte, write_share=write_share
    )


# --- the oracle itself: a command is blocked one cycle before its rule allows it, and ready on that cycle


RULES = {
    "tRCD": ([("ACT", 0)], ("RD", 0), lambda t: t.rcd),
    "tRAS": ([("ACT", 0)], ("PRE", 0), lambda t: t.ras),
    "tRRD": ([("ACT", 0)], ("ACT", 1), lambda t: t.rrd),
    "tRC": ([("ACT", 0), ("PRE", 0)], ("ACT", 0), lambda t: max(t.rc, t.ras + t.rp)),
    "tFAW": ([("ACT", 0), ("ACT", 1), ("ACT", 2), ("ACT", 3)], ("ACT", 4), lambda t: max(t.faw, 4 * t.rrd)),
    "tCCD_S": ([("ACT", 0), ("ACT", 1), ("RD", 0)], ("RD", 1), lambda t: t.rcd + max(t.burst, t.rrd)),
    "tCCD_L": ([("ACT", 0), ("RD", 0)], ("RD", 0), lambda t: t.rcd + t.ccd_l),
    "tRTP": ([("ACT", 0), ("RD", 0)], ("PRE", 0), lambda t: max(t.ras, t.rcd + t.rtp)),
    "tWR": ([("ACT", 0), ("WR", 0)], ("PRE", 0), lambda t: max(t.ras, t.rcd + t.cwl + t.burst + t.wr)),
    "tWTR": ([("ACT", 0), ("WR", 0)], ("RD", 0), lambda t: t.rcd + t.cwl + t.burst + t.wtr),
    "read to write": ([("ACT", 0), ("RD", 0)], ("WR", 0), lambda t: t.rcd + t.cl + t.burst + t.bus_gap - t.cwl),
    "tRFC": ([("ACT", 0), ("PRE", 0), ("REFab", 0)], ("ACT", 5), lambda t: t.ras + t.rp + t.rfc),
    "tRFCpb": ([("ACT", 0), ("PRE", 0), ("REFpb", 0)], ("ACT", 0), lambda t: max(t.rc, t.ras + t.rp + t.rfc_bank)),
}


@pytest.mark.parametrize("name", STANDARDS)
@pytest.mark.parametrize("rule", RULES)
def test_oracle_blocks_at_t_minus_1_and_is_ready_at_t(name, rule):
    t = timing(name)
    before, (command, bank), expected = RULES[rule]
    device = Device(t)
    now = 0.0
    for earlier, at in before:
        now = max(now, device.earliest(earlier, at))
        device.issue(earlier, at, now)
    assert not device.ready(command, bank, expected(t) - 1)
    assert device.ready(command, bank, expected(t))


# --- the closed forms against the oracle


@pytest.mark.parametrize("name", ["HBM2", "HBM3E", "DDR5", "GDDR6", "LPDDR5"])
def test_stream_agrees_with_simulation(name):
    t = timing(name)
    set_cycles = t.banks * t.page_byte / t.burst_byte * t.burst
    rows = int(np.ceil((2.3 * t.refi if not t.per_bank else 5 * set_cycles) / set_cycles)) + 1
    assert stream_byte_per_cycle(t) == pytest.approx(byte_per_cycle(t, stream(t, rows), t.burst_byte), rel=0.015)


@pytest.mark.parametrize("bursts", [1, 4])
@pytest.mark.parametrize("name", ["HBM2", "HBM3E", "DDR4", "GDDR6", "LPDDR5"])
def test_random_granules_agree_with_simulation(name, bursts):
    t = timing(name)
    assert closed_form(t, bursts * t.burst_byte) == pytest.approx(simulated(t, bursts), rel=0.03)


@pytest.mark.parametrize(
    ("name", "bursts", "row_hit", "write_share"),
    [
        ("HBM2", 1, 0.5, 0.0), ("HBM3E", 2, 0.5, 0.0), ("GDDR6", 1, 0.5, 0.0), ("LPDDR5", 1, 0.9, 0.0),
        ("HBM2", 1, 0.0, 0.5), ("HBM3E", 4, 0.0, 0.5), ("GDDR6", 4, 0.0, 0.5), ("DDR5", 2, 0.0, 0.5),
        ("HBM3E", 4, 0.5, 0.2), ("LPDDR5", 1, 0.0, 1.0), ("HBM3E", 1, 0.0, 1.0),
    ],
)  # fmt: skip
def test_row_hits_and_writes_agree_with_simulation(name, bursts, row_hit, write_share):
    t = timing(name)
    modelled = closed_form(t, bursts * t.burst_byte, row_hit, write_share)
    assert modelled == pytest.approx(simulated(t, bursts, row_hit, write_share), rel=0.1)


@pytest.mark.parametrize(("name", "write_share"), [("HBM2", 0.5), ("HBM3E", 0.2), ("HBM3E", 0.5), ("GDDR6", 0.2)])
def test_turnarounds_in_open_rows_agree_with_simulation(name, write_share):
    t = timing(name)
    assert closed_form(t, t.burst_byte, 1.0, write_share) == pytest.approx(simulated(t, 1, 1.0, write_share), rel=0.03)


def test_few_banks_bind_on_the_row_cycle():
    """One bank serves one granule a row cycle, whatever else the channel could do."""
    t = timing("DDR4")._replace(banks=1.0, bank_groups=1.0, per_bank=1.0, rfc_bank=0.0)
    assert closed_form(t, t.burst_byte) == pytest.approx(t.burst_byte / t.rc)
    assert simulated(t, 1) == pytest.approx(t.burst_byte / t.rc, rel=0.01)


# --- laws


@pytest.mark.parametrize("name", STANDARDS)
def test_never_above_the_peak_and_better_with_locality(name):
    t = timing(name)
    peak = t.burst_byte / t.burst
    assert stream_byte_per_cycle(t) <= peak
    size = t.burst_byte * 2.0 ** np.arange(9)
    hit = np.linspace(0.0, 1.0, 21)
    sizes, hits = (axis.ravel() for axis in np.meshgrid(size, hit, indexing="ij"))
    for write in (0.0, 0.3, 1.0):
        rate = (sizes / granule_cycles(t, sizes, hits, np.full_like(sizes, write))).reshape(size.size, hit.size)
        assert rate.max() <= peak
        assert np.all(np.diff(rate, axis=0) >= -1e-9), "larger granules are never slower"
        assert np.all(np.diff(rate, axis=1) >= -1e-9), "more row hits are never slower"


@pytest.mark.parametrize("name", STANDARDS)
def test_part_of_a_burst_costs_a_whole_one(name):
    t = timing(name)
    assert closed_form(t, t.burst_byte / 4) == pytest.approx(closed_form(t, t.burst_byte) / 4)


@pytest.mark.parametrize("field", ["rc", "rcd", "rp", "faw", "rrd", "ccd_l", "rfc", "rfc_bank", "wtr", "cl", "wr"])
@pytest.mark.parametrize("name", CHECKED)
def test_a_longer_timing_is_never_faster(name, field):
    t = timing(name)
    slower = t._replace(**{field: getattr(t, field) * 1.5})
    assert stream_byte_per_cycle(slower) <= stream_byte_per_cycle(t)
    for bursts, row_hit, write_share in ((1, 0.0, 0.0), (4, 0.5, 0.0), (1, 0.8, 0.5), (2, 0.0, 1.0)):
        size = bursts * t.burst_byte
        assert closed_form(slower, size, row_hit, write_share) <= closed_form(t, size, row_hit, write_share) + 1e-12


def test_all_bank_refresh_by_hand():
    """DDR4-3200: closing, refresh and opening take 22 + 560 + 22 of 12,480 clocks."""
    t = timing("DDR4")
    assert stream_byte_per_cycle(t) * t.burst / t.burst_byte == pytest.approx(1 - 604 / 12480)


def test_random_reads_are_bound_by_the_activate_window_by_hand():
    """HBM3 at 6.4 Gb/s: 4 activates in 24 clocks, 32 bytes each, of 16 bytes a clock at the peak."""
    t = timing("HBM3")
    assert closed_form(t, 32.0) == pytest.approx(4 * 32 / 24)


# --- latency under load


def test_loaded_latency_agrees_with_a_simulated_queue():
    rng = np.random.default_rng(11)
    service, load = 10.0, np.array([0.1, 0.5, 0.8, 0.9])
    for utilisation, modelled in zip(load, loaded_latency(100.0, service, load, 1e9), strict=True):
        wait = total = 0.0
        gaps = rng.exponential(service / utilisation, 200_000)
        for gap in gaps:
            wait = max(0.0, wait + service - gap)
            total += wait
        assert modelled == pytest.approx(100.0 + total / gaps.size, rel=0.03)


def test_loaded_latency_ends_at_a_full_queue():
    latency = loaded_latency(100.0, 10.0, np.array([0.0, 0.999999, 1.0, 3.0]), 64.0)
    assert latency == pytest.approx([100.0, 740.0, 740.0, 740.0])
