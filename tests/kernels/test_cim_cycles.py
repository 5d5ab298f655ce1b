"""Compute in memory: the closed form against a walk over cells, bits and columns, and laws."""

from __future__ import annotations

import numpy as np
import pytest
from cim_oracle import Macro, walk

from archmodel.kernels.cim import CELL_BIT, CONVERSIONS, CYCLES, MACRO_BIT, Macros, cim_cycles


def random_macro(rng) -> Macro:
    return Macro(
        macros=int(rng.integers(1, 9)), rows=int(rng.choice([1, 3, 8, 16, 64])), cols=int(rng.integers(8, 200)),
        cell_bit=int(rng.choice([1, 2, 3, 4, 8, 16])), input_bit=int(rng.choice([1, 2, 5, 8, 16])),
        lanes=int(rng.choice([1, 1, 2, 5])), converters=int(rng.integers(1, 40)),
        cycles_per_conversion=float(rng.choice([0.25, 0.5, 1.0, 3.0])), page_cols=int(rng.choice([0, 0, 7, 64])),
        page_cycles=float(rng.choice([0.0, 9.0])),
    )  # fmt: skip


def closed(m, n, k, count, bits, macro: Macro):
    macros = Macros(
        macros=float(macro.macros), rows=float(macro.rows), cols=float(macro.cols), cell_bit=float(macro.cell_bit),
        lanes=float(macro.lanes), converters=float(macro.converters),
        conversions_per_cycle=1.0 / macro.cycles_per_conversion, page_cols=float(macro.page_cols),
        page_cycles=macro.page_cycles,
    )  # fmt: skip
    shape = np.array([[m, n, k, count]], dtype=np.float64)
    slices, steps = (np.array([float(-(-bits // width))]) for width in (macro.cell_bit, macro.input_bit))
    return cim_cycles(shape, slices, steps, macros)[0]


@pytest.mark.parametrize("seed", range(200))
def test_closed_form_is_the_walk(seed):
    rng = np.random.default_rng(seed)
    macro = random_macro(rng)
    m, n, k, count = (int(rng.integers(1, top)) for top in (12, 70, 150, 4))
    bits = int(rng.choice([4, 8, 16]))
    found, walked = closed(m, n, k, count, bits, macro), walk(m, n, k, count, bits, macro)
    assert found[[CYCLES, CONVERSIONS, MACRO_BIT, CELL_BIT]] == pytest.approx(walked, rel=1e-12)


def test_a_macro_of_64_by_64_by_hand():
    """4-bit weights in single-bit cells: 16 weights a row of 64 columns. 4-bit inputs one bit at a time: 4 steps. 8 ADCs take
    64 columns in 8 turns. 128 inputs deep: 2 pieces of 64 rows, so 2 macros hold 128 x 16 and one input takes 4 x 8 cycles."""
    macro = Macro(2, 64, 64, 1, 1, 1, 8, 1.0, 0, 0.0)
    assert closed(1, 16, 128, 1, 4, macro).tolist() == [32.0, 512.0, 4096.0, 8192.0]
    assert closed(10, 16, 128, 1, 4, macro)[CYCLES] == 320.0
    assert closed(1, 16, 128, 1, 8, macro)[CYCLES] == 4 * 32.0  # twice the columns, twice the steps


@pytest.mark.parametrize("seed", range(30))
def test_more_is_never_slower_and_no_time_beats_the_peak(seed):
    rng = np.random.default_rng(500 + seed)
    macro = random_macro(rng)
    shape = tuple(int(rng.integers(1, top)) for top in (40, 3000, 5000, 9))
    before = closed(*shape, 8, macro)[CYCLES]
    for more in ({"macros": 2 * macro.macros}, {"rows": 2 * macro.rows}, {"converters": 2 * macro.converters},
                 {"lanes": 2 * macro.lanes}, {"cycles_per_conversion": macro.cycles_per_conversion / 2}):  # fmt: skip
        assert closed(*shape, 8, macro._replace(**more))[CYCLES] <= before
    slices, steps = -(-8 // macro.cell_bit), -(-8 // macro.input_bit)
    columns = min(macro.cols, macro.converters / macro.cycles_per_conversion)
    assert before >= np.prod(shape) * slices * steps / (macro.macros * macro.rows * columns * macro.lanes) * (1 - 1e-12)


def test_counters_of_the_largest_workload_are_finite():
    found = closed(2**20, 2**18, 2**16, 256, 16, Macro(1, 16, 64, 1, 1, 1, 1, 1.0, 0, 0.0))
    assert np.all(np.isfinite(found))
    assert np.all(found > 0)
