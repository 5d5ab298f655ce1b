"""Collectives: textbook times, limits that no setting beats, and measured ones."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from archmodel.components.collective import ALGORITHMS, OPS, collectives
from archmodel.kernels import collective as k
from archmodel.soc import Soc
from archmodel.spec.toml import load_chip

ROOT = Path(__file__).parents[2]
PLAIN = k.Fabric(
    byte_per_s=100e9, fabric_byte_per_s=np.inf, island=1.0, floor_s=0.0, step_s=0.0, eager_share=1.0, bulk_s=0.0,
    bulk_step_s=0.0, bulk_share=1.0, copy_byte_per_s=1e30, tree=0.0, in_network_share=0.0, direct_floor_s=-1.0,
    direct_step_s=0.0, direct_share=1.0,
)  # fmt: skip

#: (operation, devices) whose NCCL rows no fit has seen, as `chips/*.toml` say; the pair of A100, H100 and H200 is the same
HELD = {"all_reduce 2", "all_reduce 4", "all_gather 8", "alltoall 2", "reduce_scatter 8"}
HELD_B200 = {"all_gather 4", "reduce_scatter 8"}


def run(fabric, op, ranks, byte, direct=False):
    array = np.atleast_1d(np.asarray(byte, dtype=np.float64))
    n = len(array)
    return k.collectives(fabric, np.full(n, OPS.index(op)), np.full(n, float(ranks)), array, np.full(n, direct))


@pytest.mark.parametrize(("op", "passes"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1), ("all_to_all", 1)])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_long_messages_take_the_textbook_time(op, passes, ranks):
    row = run(PLAIN, op, ranks, 1e9)[0]
    assert row[k.DURATION] == pytest.approx(passes * (ranks - 1) / ranks * 1e9 / 100e9)
    assert row[k.SENT_BYTE] == pytest.approx(passes * (ranks - 1) / ranks * 1e9)


def test_ring_steps_add_up():
    steps = {op: run(PLAIN._replace(step_s=1.0, bulk_s=1e9), op, 8, 1.0)[0, k.DURATION] for op in OPS}
    assert [round(steps[op]) for op in OPS] == [14, 7, 7, 1]


def ring(values, byte_per_s, latency_s, byte):
    """Devices in a ring pass chunks on, add, and pass on the sums; returns the time and what each device holds."""
    n = len(values)
    held = [list(np.array_split(v.copy(), n)) for v in values]
    time = 0.0
    for phase in ("add", "copy"):
        for step in range(n - 1):
            shift = 0 if phase == "add" else 1
            sent = [held[d][(d - step + shift) % n].copy() for d in range(n)]
            for d in range(n):
                chunk = (d - step + shift) % n
                to = (d + 1) % n
                held[to][chunk] = held[to][chunk] + sent[d] if phase == "add" else sent[d]
            time += byte / n / byte_per_s + latency_s
    return time, [np.concatenate(h) for h in held]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_a_ring_that_moves_every_block_takes_the_time_of_the_kernel(ranks):
    values = np.random.default_rng(ranks).integers(0, 100, (ranks, 48)).astype(float)
    time, held = ring(values, 50e9, 1e-7, 1e6)
    for sums in held:
        assert sums == pytest.approx(values.sum(axis=0))
    fabric = PLAIN._replace(byte_per_s=50e9, step_s=1e-7, bulk_s=1e9)
    assert run(fabric, "all_reduce", ranks, 1e6)[0, k.DURATION] == pytest.approx(time)


def test_u83_ring_all_reduce_of_the_textbook():
    """100 MB, 8 devices, 50 GB/s a link, 10 ns a step: 3.5 ms + 14 steps (astra-sim issue 296)."""
    fabric = PLAIN._replace(byte_per_s=50e9, step_s=10e-9, bulk_s=1e9)
    assert run(fabric, "all_reduce", 8, 1e8)[0, k.DURATION] == pytest.approx(3.50014e-3, rel=1e-12)


def test_a_tree_has_logarithmic_depth():
    row = run(PLAIN._replace(step_s=1.0, bulk_s=1e9, tree=1.0), "all_reduce", 64, 1.0)[0]
    assert ALGORITHMS[int(row[k.ALGORITHM])] == "tree"
    assert row[k.DURATION] == pytest.approx(12.0)


def test_the_switch_adds_up_for_more_than_two():
    fabric = PLAIN._replace(in_network_share=1.0)
    assert run(fabric, "all_reduce", 8, 1e9)[0, k.DURATION] == pytest.approx(1.125 * 1e9 / 100e9)
    assert ALGORITHMS[int(run(fabric, "all_reduce", 2, 1e9)[0, k.ALGORITHM])] != "in_network"


def test_one_shot_for_short_two_shot_for_longer_messages():
    fabric = PLAIN._replace(floor_s=1e-5, direct_floor_s=1e-6, direct_step_s=1e-6)
    names = [ALGORITHMS[int(code)] for code in run(fabric, "all_reduce", 8, [1e3, 1e5], direct=True)[:, k.ALGORITHM]]
    assert names == ["one_shot", "two_shot"]


def test_one_device_and_no_bytes_take_no_time():
    assert not run(PLAIN, "all_reduce", 1, 1e9).any()
    assert not run(PLAIN, "all_gather", 8, 0.0).any()


def test_laws():
    """Never faster than the bytes that must leave a device at its link's rate; a better link or fabric is never slower."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        share = rng.uniform(0.1, 1.0, 4)
        fabric = PLAIN._replace(
            floor_s=rng.uniform(0, 1e-5), step_s=rng.uniform(0, 1e-6), eager_share=share[0], bulk_s=rng.uniform(0, 3e-5),
            bulk_share=share[1], copy_byte_per_s=rng.uniform(1e11, 1e12), in_network_share=share[2] * rng.integers(2),
            tree=float(rng.integers(2)), direct_floor_s=rng.uniform(0, 1e-5), direct_share=share[3],
            fabric_byte_per_s=rng.uniform(1e10, 1e13), island=float(rng.integers(1, 9)),
        )  # fmt: skip
        byte = np.sort(rng.uniform(1, 1e9, 20))
        for op in OPS:
            ranks = int(rng.integers(2, 17))
            row = run(fabric, op, ranks, byte, direct=True)
            floor = np.minimum(row[:, k.SENT_BYTE], (ranks - 1) / ranks * byte) / fabric.byte_per_s
            assert np.all(row[:, k.DURATION] >= floor * (1 - 1e-12))
            assert np.all(np.diff(row[:, k.DURATION]) >= -1e-18)
            better = fabric._replace(byte_per_s=2 * fabric.byte_per_s, fabric_byte_per_s=2 * fabric.fabric_byte_per_s)
            assert np.all(run(better, op, ranks, byte, direct=True)[:, k.DURATION] <= row[:, k.DURATION])


def errors(device, kept):
    """|predicted / measured - 1| of anchor rows of 64 KiB and more that `kept` lets through."""
    soc = Soc(load_chip(ROOT / f"chips/{device}.toml"))
    link, peers = soc.peer_link()
    with (ROOT / "tests/anchors/collectives.csv").open(encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["device"] == device and int(r["message_bytes"]) >= 65536 and kept(r)]
    op = [OPS.index(r["op"].replace("alltoall", "all_to_all")) for r in rows]
    ranks, byte, us = (np.array([float(r[c]) for r in rows]) for c in ("num_gpus", "message_bytes", "latency_us"))
    found = collectives(soc.links[link], peers, op, ranks, byte, [r["lib"] != "nccl" for r in rows])
    return np.abs(found[:, k.DURATION] * 1e6 / us - 1.0)


@pytest.mark.parametrize("device", ["a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"])
def test_nvlink_collectives_that_no_fit_saw(device):
    held = HELD_B200 if device == "b200_sxm" else HELD
    error = errors(device, lambda r: r["lib"] == "nccl" and f"{r['op']} {r['num_gpus']}" in held)
    assert len(error) >= 14
    assert np.median(error) < 0.15


def test_pcie_without_peer_to_peer():
    assert np.median(errors("l40s", lambda r: r["lib"] == "nccl")) < 0.25


@pytest.mark.parametrize("device", ["a100_sxm", "h100_sxm", "h200_sxm"])
def test_custom_all_reduce(device):
    assert np.median(errors(device, lambda r: r["lib"] == "vllm_custom_allreduce")) < 0.15
