"""Compute in memory: the numbers of its macros. Behaviour is in `components/cim.py`."""

from __future__ import annotations

import attrs

from archmodel.spec.capabilities import HELD_WEIGHTS
from archmodel.spec.fields import flag, names, number, text
from archmodel.units import FORMATS


@attrs.frozen(kw_only=True)
class CimSpec:
    """Macros whose cells hold weights and multiply them, where they lie, by inputs that come a few bits at a time.

    The products of `rows` cells of a column are added up at once; `converters` of a macro take its columns in turn. In an
    analog macro they are ADCs, in a digital one adder trees, and near the bank of a DRAM one adder tree for all columns of
    the bank, where `rows` is the number of weights of one access and a column is one access. Only `input_lanes` above 1 lets a
    batch share a reading of the cells.
    """

    macros: int = number("macros, or banks with a unit beside them", above=0, at_most=1e7)
    rows: int = number("cells of a column that are added up at once", above=0, at_most=65536)
    cols: int = number("columns of a macro", above=0, at_most=1e9)
    cell_bit: int = number("bits of a weight that one cell holds", above=0, at_most=64)
    input_bit: int = number("bits of an input that a step takes", above=0, at_most=64)
    clock_ghz: float = number("clock; a step takes at least one cycle", above=0, at_most=20)
    formats: tuple[str, ...] = names("number formats of inputs and weights: a weight of b bits takes b / cell_bit columns and "
                                     "its input b / input_bit steps", *FORMATS)  # fmt: skip
    converters: int = number("ADCs or adder trees of a macro, which share its columns", above=0, at_most=1e9)
    conversion_ghz: float = number("columns that one converter takes per ns", above=0, at_most=1000)
    write_bit_per_cycle: float = number("bits that can be written into one macro in a cycle", above=0)
    vector_op_per_cycle: float = number("vector operations of the post-processing unit, all macros", above=0)
    buffer: str = text("SRAM block that holds inputs and results", required=True)
    memory: str = text("memory block that weights come from which do not fit the cells", required=True)
    source: str = text("where the numbers come from", required=True)
    input_lanes: int = number("inputs that one reading of the cells serves; 1: every input reads them all", above=0,
                              at_most=65536, default=1)  # fmt: skip
    write_hidden: bool = flag("macros are written while others multiply", default=False)
    reload_share: float = number("part of the cells that is rewritten in each step where the weights do not all fit", above=0,
                                 at_most=1, default=0.25)  # fmt: skip
    converter_bit: int = number("resolution of a converter; 0 adds up exactly. `show` remarks on a lossy one; no figure moves",
                                at_least=0, at_most=64, default=0)  # fmt: skip
    page_cols: int = number("columns after which another DRAM row must be opened; 0: the cells are always open", at_least=0,
                            at_most=1e9, default=0)  # fmt: skip
    page_cycles: float = number("cycles of opening it", at_least=0, default=0.0)
    pipeline_cycles: float = number("from the last step of an input to its result", at_least=0, default=0.0)
    command_cycles: float = number("decoding one command and starting the macros", at_least=0, default=0.0)
    buffer_share: float = number("part of the buffer that is this unit's", above=0, at_most=1, default=1.0)
    capabilities: tuple[str, ...] = names(
        "what it can run", *HELD_WEIGHTS, default=("matmul", "activation", "quantise", "convert")
    )
    layout: str = text("how it lays activations out in memory", default="blocked")
    cell_energy_pj: float = number("one cell in one step", at_least=0, default=0.0)
    conversion_energy_pj: float = number("one column in one step: conversion, shift and addition", at_least=0, default=0.0)
    write_energy_pj_per_bit: float = number("writing a cell", at_least=0, default=0.0)
    vector_energy_pj_per_flop: float = number("post-processing operation", at_least=0, default=0.2)
    operand_energy_pj_per_bit: float = number("buffer to macros: wires and drivers", at_least=0, default=0.1)
    static_power_w: float = number("leakage and clocks while powered", at_least=0, default=0.0)
