"""Systolic cycles and tiles against registers that move, loops that are walked, and SCALE-Sim."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from systolic_oracle import simulate, tilings

from archmodel.kernels.systolic import DATAFLOWS, SystolicArray, scalesim3, systolic_cycles
from archmodel.kernels.tiling import operand_passes

ANCHOR = Path(__file__).parent.parent / "anchors" / "scalesim_v3_gemm.csv"


def make_array(dataflow="ws", rows=32, cols=32, arrays=1, double_buffered=False, load=1, byte_per_cycle=np.inf):
    return SystolicArray(arrays, rows, cols, DATAFLOWS.index(dataflow), double_buffered, load, byte_per_cycle)


def run(shape, array, count=1.0, rate=1.0, byte=1.0, other=0.0):
    """Cycles, stream cycles and words of one GEMM."""
    out = systolic_cycles(
        np.array([shape], np.int64), np.array([count]), np.array([rate]), np.full((1, 2), byte), np.array([other]), array
    )
    return tuple(part[0] for part in out)


def test_scalesim3_reproduces_all_366_rows():
    with ANCHOR.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 366
    for row in rows:
        array = make_array(row["dataflow"], int(row["rows"]), int(row["cols"]))
        cycles, words, ratios = scalesim3(np.array([[int(row[key]) for key in "MNK"]]), array)
        assert cycles[0] == int(row["total_cycles"])
        assert list(words[0]) == [int(row[f"sram_{name}"]) for name in ("ifmap_reads", "filter_reads", "ofmap_writes")]
        percent = [float(row[f"{name}_pct"]) for name in ("mapping_eff", "utilization", "compute_util")]
        assert 100.0 * ratios[0] == pytest.approx(percent, rel=1e-12)


@pytest.mark.parametrize("double_buffered", [False, True])
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_cycles_and_words_equal_an_array_that_moves_every_operand(dataflow, double_buffered):
    rng = np.random.default_rng(DATAFLOWS.index(dataflow) + 10 * double_buffered)
    for trial in range(40):
        rows, cols = (int(edge) for edge in rng.integers(1, 6, 2))
        m, n, k = (int(size) for size in rng.integers(1, 12, 3))
        m = 1 if trial % 4 == 0 else m
        load, depth = int(rng.integers(1, 5)), int(rng.integers(1, 3))
        a, b = rng.integers(-5, 6, (m, k)), rng.integers(-5, 6, (k, n))
        seen = simulate(dataflow, a, b, rows, cols, load_rows=load, depth=depth, double_buffered=double_buffered)
        assert np.array_equal(seen.result, a @ b)
        cycles, _, words = run((m, n, k), make_array(dataflow, rows, cols, 1, double_buffered, load), rate=depth)
        assert (cycles, *words) == (seen.cycles, *seen.words)


@pytest.mark.parametrize(("edge", "k", "last"), [(4, 4, 10), (2, 2, 4), (1, 1, 1)])
def test_last_mac_of_an_os_fold_fires_in_cycle_r_c_k_minus_2(edge, k, last):
    a = np.ones((edge, k))
    assert simulate("os", a, a.T, edge, edge).last_mac_cycle == last
    cycles, _, _ = run((edge, edge, k), make_array("os", edge, edge))
    assert cycles - edge == last  # the drain of `edge` rows comes on top


def test_one_weight_stationary_fold_by_hand():
    assert run((8, 32, 32), make_array("ws"))[0] == 32 + (8 + 31 + 31)
    assert run((8, 32, 32), make_array("ws", load=4))[0] == 8 + (8 + 31 + 31)
    assert run((8, 320, 32), make_array("ws", double_buffered=True, load=4))[0] == 8 + 9 * 8 + (8 + 31 + 31)
    assert run((8, 320, 32), make_array("ws", double_buffered=True))[0] == 32 + 9 * 32 + (8 + 31 + 31)


def test_slow_and_fast_formats():
    base = run((8, 32, 64), make_array("ws", load=32))[0]
    assert run((8, 32, 64), make_array("ws", load=32), rate=2.0)[0] == base / 2  # two k a cycle: half the folds
    assert run((8, 32, 64), make_array("ws", load=32), rate=0.25)[0] == 2 * (1 + 4 * (8 + 62))  # each step takes four


@pytest.mark.parametrize(("dataflow", "shape"), [("os", (96, 1024, 200)), ("ws", (96, 1024, 200)), ("is", (1024, 96, 200))])
def test_arrays_divide_the_cycles_of_an_even_split(dataflow, shape):
    one = run(shape, make_array(dataflow))
    for arrays in (2, 4, 8):
        assert run(shape, make_array(dataflow, arrays=arrays))[0] == one[0] / arrays


def test_independent_problems_fill_the_arrays():
    array, one = make_array("ws", arrays=4), make_array("ws")
    alone = run((16, 32, 32), one)[0]
    assert run((16, 32, 32), array, count=4.0)[0] == alone
    assert run((16, 32, 32), array, count=5.0)[0] == 2 * alone
    assert run((16, 32, 32), array, count=4.5)[0] == 1.5 * alone
    assert run((16, 32, 32), one, count=4.625)[0] == 4.625 * alone
    assert run((16, 32, 32), one, count=4.625)[2] == pytest.approx(4.625 * run((16, 32, 32), one)[2])


def random_case(rng):
    shape = tuple(int(size) for size in np.exp(rng.uniform(0, np.log(3000), 3)).astype(int))
    array = make_array(
        str(rng.choice(DATAFLOWS)), int(rng.integers(1, 65)), int(rng.integers(1, 65)), int(rng.integers(1, 20)),
        bool(rng.integers(2)), int(rng.integers(1, 9)), float(np.exp(rng.uniform(0, 8))),
    )  # fmt: skip
    return shape, array, float(rng.choice([1.0, 3.0, 4.625, 17.0])), float(rng.choice([0.25, 0.5, 1.0, 2.0]))


def test_laws_of_the_array():
    rng = np.random.default_rng(7)
    for _ in range(400):
        shape, array, count, rate = random_case(rng)
        cycles, stream, words = run(shape, array, count, rate, other=1000.0)
        m, n, k = shape
        assert cycles >= count * m * n * k / (array.arrays * array.rows * array.cols * rate)
        assert stream >= cycles
        assert np.all(words >= count * np.array([m * k, k * n, m * n]) * (1 - 1e-12))
        assert run(shape, array._replace(buffer_byte_per_cycle=np.inf), count, rate)[1] <= stream
        for better in (
            array._replace(arrays=array.arrays + int(rng.integers(1, 20))),
            array._replace(load_rows_per_cycle=array.load_rows_per_cycle + 1),
            array._replace(double_buffered=True),
            array._replace(buffer_byte_per_cycle=array.buffer_byte_per_cycle * 1.5),
        ):
            assert run(shape, better, count, rate, other=1000.0)[1] <= stream


def test_no_counter_wraps_at_the_largest_gemm():
    size = 100_000
    for dataflow in DATAFLOWS:
        for edge in (1, 128):
            cycles, _, words = run((size, size, size), make_array(dataflow, edge, edge))
            folds = (-(-size // edge)) ** 2
            assert cycles == folds * (edge + 2 * edge + size - 2)
            assert np.all(words >= float(size) ** 2)
    cycles, words, _ = scalesim3(np.array([[size, size, size]]), make_array("ws", 1, 1))
    assert cycles[0] == size**2 * (size + 1) - 1
    assert words[0, 0] == size**3


def test_decode_keeps_a_fast_loading_array_busy():
    array = make_array("ws", arrays=4, double_buffered=True, load=4)
    cycles, _, _ = run((8, 14336, 4096), array)
    assert 8 * 14336 * 4096 / (4 * 32 * 32) / cycles > 0.99


def passes(shape, byte, tile, room):
    return operand_passes(np.array([shape]), np.array([byte]), np.array([tile]), float(room))[0]


def test_tiles_are_among_those_that_loops_reach_and_close_to_the_best():
    rng = np.random.default_rng(3)
    ratios = []
    for _ in range(60):
        shape = tuple(int(size) for size in rng.integers(1, 24, 3))
        tile = tuple(min(int(edge), size) for edge, size in zip(rng.integers(1, 4, 3), shape, strict=True))
        byte = (float(rng.choice([0.5, 1.0, 2.0])), float(rng.choice([0.5, 1.0, 2.0])), 4.0)
        (m, n, k), (mt, nt, kt) = shape, tile
        least = mt * kt * byte[0] + kt * nt * byte[1] + mt * nt * byte[2]
        room = least * float(np.exp(rng.uniform(0, 3)))
        found = passes(shape, byte, tile, room)
        reachable = {pair: pair[0] * m * k * byte[0] + pair[1] * k * n * byte[1] for pair in tilings(shape, tile, byte, room)}
        assert tuple(found) in reachable
        ratios.append(reachable[tuple(found)] / min(reachable.values()))
    assert max(ratios) < 1.5
    assert np.mean(ratios) < 1.03


def test_traffic_falls_with_the_buffer_down_to_compulsory():
    size, tile = 4096, (32, 32, 32)
    rooms = 2.0 ** np.arange(15, 26, 0.25)  # half of 64 kB .. 64 MB and beyond
    traffic = [passes((size,) * 3, (1.0, 1.0, 4.0), tile, room).sum() * size**2 + size**2 for room in rooms]
    assert all(later <= earlier for earlier, later in pairwise(traffic))
    assert traffic[0] > 10 * 3 * size**2
    assert traffic[-1] == 3 * size**2 == 50_331_648


def test_traffic_never_rises_with_the_buffer_for_random_shapes():
    rng = np.random.default_rng(5)
    for _ in range(100):
        shape = np.exp(rng.uniform(0, 9, 3)).astype(int)
        tile = np.minimum(shape, 32)
        byte = (1.0, float(rng.choice([0.515625, 1.0, 2.0])), 4.0)
        m, n, k = shape
        before = np.inf
        for room in 7000.0 * 1.3 ** np.arange(30):
            a, b = passes(shape, byte, tile, room)
            bytes_now = a * m * k * byte[0] + b * k * n * byte[1]
            assert m * k * byte[0] + k * n * byte[1] <= bytes_now <= before
            before = bytes_now
