"""Compute in memory, walked through step by step: every weight is put into a cell, every input bit and every column in turn."""

from __future__ import annotations

from typing import NamedTuple


class Macro(NamedTuple):
    macros: int
    rows: int
    cols: int
    cell_bit: int
    input_bit: int
    lanes: int
    converters: int
    cycles_per_conversion: float
    page_cols: int
    page_cycles: float


class Walked(NamedTuple):
    cycles: float
    conversions: int
    macro_bit: int
    cell_bit: int


def walk(m: int, n: int, k: int, count: int, bits: int, macro: Macro) -> Walked:
    """A product of int weights of `bits` bits with m inputs of as many bits, `count` times with weights of their own."""
    slices = sum(1 for _ in range(0, bits, macro.cell_bit))
    used = [0] * macro.macros  # columns in use
    strip = 0
    for _problem in range(count):
        for _piece in range(0, k, macro.rows):
            for _output in range(n):
                used[strip % macro.macros] += slices
                strip += 1
    cycles, conversions = 0.0, 0
    for first in range(0, m, macro.lanes):
        served = min(macro.lanes, m - first)
        for _bit in range(0, bits, macro.input_bit):
            slowest = 0.0
            for columns in set(used):
                fills = len(range(0, columns, macro.cols))  # a matrix larger than the macro takes its columns more than once
                conversion = len(range(0, columns, macro.converters)) * macro.cycles_per_conversion
                pages = len(range(0, columns, macro.page_cols)) if macro.page_cols else 0
                slowest = max(slowest, max(fills, conversion) + pages * macro.page_cycles)
            cycles += slowest
            conversions += served * sum(used)
    per_column = macro.rows * macro.cell_bit
    return Walked(cycles, conversions, max(used) * per_column, sum(used) * per_column)
