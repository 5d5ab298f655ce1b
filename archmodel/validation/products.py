"""Lists of matrix products on one unit, as a convolutional network or a benchmark of single products runs them.

A convolution is the product of its output pixels by its weights (im2col), whose operand is read once, not once for each tap.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np

from archmodel.components import memory, power, units
from archmodel.costs import Costs, Surroundings
from archmodel.errors import MappingError
from archmodel.operations import Kind, Rows, rows_from
from archmodel.soc import Soc
from archmodel.spec.chip import CAPABILITIES, ChipSpec
from archmodel.spec.workload import ROLES
from archmodel.units import FORMATS, element_bytes


@attrs.frozen
class Product:
    """C[m,n] = A[m,k] B[k,n], `count` times one after another; A holds `inputs` elements, m x k unless they overlap."""

    m: float
    n: float
    k: float
    count: float = 1.0
    inputs: float = 0.0


def read_products(path: Path) -> list[Product]:
    """Products of one image or prompt in a CSV file with the columns m, n, k, count and inputs."""
    with path.open(encoding="utf-8", newline="") as file:
        return [Product(*(float(row[name]) for name in ("m", "n", "k", "count", "inputs"))) for row in csv.DictReader(file)]


@attrs.frozen
class Run:
    """Time [s] and energy [J] of a list of products; the energy is that of the unit and its SRAM, as a rail measures it.

    `memory_s` is the time that the memory alone would need for its bytes.
    """

    time_s: float
    unit_j: float
    memory_s: float


def run_products(chip: ChipSpec, unit: str, products: Sequence[Product], number_format: str, batch: float = 1.0) -> Run:
    """`products` one after another on `unit`, all operands in `number_format`, for `batch` images at once.

    Raises MappingError where the chip has no such unit, or the unit no such format.
    """
    soc = Soc(chip)
    if unit not in soc.units or number_format not in units.matrix_rates(soc.units[unit]):
        raise MappingError(f"{chip.name}: has no unit {unit} that computes in {number_format}")
    rows = _rows(products, number_format, batch)
    costs = _costs(soc, unit, rows)
    times = np.array([product.count for product in products])
    spec = soc.units[unit]
    time_s = float(times @ costs.duration_s)
    dynamic = sum(power.unit_energy_j(spec, costs, rows).values())
    sram = memory.energy_j(soc.tiers[spec.buffer], costs.buffer_read_byte, costs.buffer_write_byte)
    static_w = spec.static_power_w + soc.tiers[spec.buffer].static_power_w
    memory_s = float(times @ costs.memory_byte) / soc.path_byte_per_s(unit, spec.memory)
    return Run(time_s, float(times @ (dynamic + sram)) + static_w * time_s, memory_s)


def _rows(products: Sequence[Product], number_format: str, batch: float) -> Rows:
    byte = element_bytes(number_format)
    return rows_from([
        {"name": "product", "kind": int(Kind.MATMUL), "role": ROLES.index("feed_forward"),
         "capability": CAPABILITIES.index("matmul"), "compute_format": FORMATS.index(number_format), "m": batch * p.m, "n": p.n,
         "k": p.k, "weight_byte": byte, "output_byte": byte, "input_byte": byte * (p.inputs or p.m * p.k) / (p.m * p.k)}
        for p in products
    ])  # fmt: skip


def _costs(soc: Soc, name: str, rows: Rows) -> Costs:
    """Costs on a unit whose neighbouring operations leave their results in its SRAM where they fit."""
    unit = soc.units[name]
    around = Surroundings(
        buffer_byte=memory.capacity_byte(soc.tiers[unit.buffer]) * unit.buffer_share,
        buffer_byte_per_s=soc.path_byte_per_s(name, unit.buffer),
        memory_byte_per_s=np.full(len(rows), soc.path_byte_per_s(name, unit.memory)),
        memory_latency_s=soc.path_latency_s(name, unit.memory),
        held_share=units.held_alone(unit, rows),
    )
    return units.costs(unit, rows, around)
