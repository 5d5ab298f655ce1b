"""Measured power of single kernels and of a roofline kernel, with what the chip files say."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.calibration.energy import static_w
from archmodel.components import gpu, power
from archmodel.costs import Surroundings
from archmodel.operation_power import OperationEvents, operation_events
from archmodel.operation_table import read_operations
from archmodel.operations import Floats, Kind, rows_from
from archmodel.soc import Soc
from archmodel.spec.chip import CAPABILITIES, GpuSpec
from archmodel.spec.toml import load_chip
from archmodel.units import FORMATS

Flags = NDArray[np.bool_]

#: beginning of a table's name after `energy_` -> title, largest mean error of energy [%]
KERNELS = {"gemm": ("GEMM", 10.0), "moe": ("MoE", 10.0), "attention": ("attention", 15.0)}

#: devices of the tables, in the order of the report
DEVICES = ("h200_sxm", "b200_sxm", "gb200")

#: largest GEMMs, whose energy an operation no attention kernel beats: it does the same products with more around them
_LARGE = 1e13  # MAC
_POSSIBLE = 0.9  # of that energy

#: elements of the roofline kernel: many times any cache
_ELEMENTS = 1e10


@attrs.frozen(eq=False, kw_only=True)
class KernelPower:
    """Kernels of one kind on one device. Arrays have shape (rows,)."""

    what: str
    device: str
    measured_w: Floats
    measured_s: Floats
    power_w: Floats  # at the measured time
    predicted_s: Floats
    predicted_j: Floats  # at the predicted time
    report: Flags  # of a family outside the fit
    limited: Flags  # within 3% of the power limit
    possible: Flags  # not below the energy an operation of the largest GEMMs

    @property
    def title(self) -> str:
        return KERNELS[self.what][0]

    @property
    def bar(self) -> float:
        return KERNELS[self.what][1]

    @property
    def measured_j(self) -> Floats:
        return self.measured_w * self.measured_s


def kernel_power(root: Path) -> Iterator[KernelPower]:
    """Every table of kernels in the clone at `root`, by device and kind."""
    for device in DEVICES:
        floor_j = np.inf
        for what in KERNELS:
            path = root / f"data/validation/energy_{what}_{device}.csv"
            if path.exists():
                found, mac = _kernels(root, device, what, path)
                large = mac > _LARGE
                if what == "gemm" and np.any(large):
                    floor_j = _POSSIBLE * float(np.median(found.measured_j[large] / mac[large]))
                possible = (
                    (found.measured_j >= floor_j * mac) if what == "attention" and np.isfinite(floor_j) else found.possible
                )
                yield attrs.evolve(found, possible=possible)


def _kernels(root: Path, device: str, what: str, path: Path) -> tuple[KernelPower, Floats]:
    """A table, and the MACs in bf16 of its rows (0 in other formats)."""
    soc = Soc(load_chip(root / f"chips/{device}.toml"))
    operations = read_operations(path)
    events = operation_events(soc, operations)
    measured_s = np.asarray(operations.measured_us) * 1e-6
    measured_w = np.array(operations.table.texts("power_w"), dtype=np.float64)
    dynamic_j = sum(events.energy_j(soc).values(), np.zeros(len(operations)))
    static, limit_w = static_w(soc.chip), soc.chip.power.limit_w
    predicted_s = events.predicted_s
    found = KernelPower(
        what=what, device=device, measured_w=measured_w, measured_s=measured_s, predicted_s=predicted_s,
        power_w=power.held_power_w(static + dynamic_j / measured_s, limit_w),
        predicted_j=predicted_s * power.held_power_w(static + dynamic_j / predicted_s, limit_w),
        report=np.array([part != "fit" for part in operations.table.texts("part")]),
        limited=measured_w >= 0.97 * limit_w, possible=np.ones(len(operations), dtype=bool),
    )  # fmt: skip
    return found, _bf16_mac(events)


def _bf16_mac(events: OperationEvents) -> Floats:
    mac = np.where(events.rows.compute_format == FORMATS.index("bf16"), events.costs.mac, 0.0)
    return np.asarray(np.bincount(events.owner, mac, events.operations), dtype=np.float64)


def roofline_power(root: Path) -> Iterator[tuple[str, Floats, Floats]]:
    """Device, measured and predicted power [W] of a kernel that streams and multiplies in FP32 at a set intensity."""
    path = root / "data/validation/energy_roofline.csv"
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for device in dict.fromkeys(row["device"] for row in rows):
        own = [row for row in rows if row["device"] == device]
        soc = Soc(load_chip(root / f"chips/{device}.toml"))
        byte_s, flop_s, measured_w = (
            np.array([float(row[name]) * unit for row in own])
            for name, unit in (("memory_gb_per_s", 1e9), ("gflop_per_s", 1e9), ("power_w", 1.0))
        )
        events = _streams(soc, flop_s / byte_s)
        time_s = _ELEMENTS / byte_s
        dynamic_j = sum(events.energy_j(soc).values(), np.zeros(len(own)))
        yield device, measured_w, power.held_power_w(static_w(soc.chip) + dynamic_j / time_s, soc.chip.power.limit_w)


def _streams(soc: Soc, flop_per_byte: Floats) -> OperationEvents:
    """One vector kernel for each intensity, which reads _ELEMENTS bytes."""
    name, unit = next((name, unit) for name, unit in soc.units.items() if isinstance(unit, GpuSpec))
    kernel = {
        "name": "stream", "kind": Kind.VECTOR, "capability": CAPABILITIES.index("residual"),
        "compute_format": FORMATS.index("fp32"), "read_byte": _ELEMENTS,
    }  # fmt: skip
    rows = rows_from([{**kernel, "flop": _ELEMENTS * float(intensity)} for intensity in flop_per_byte])
    around = Surroundings(
        buffer_byte=1.0, buffer_byte_per_s=soc.path_byte_per_s(name, unit.buffer),
        memory_byte_per_s=np.full(len(rows), soc.path_byte_per_s(name, unit.memory)), memory_latency_s=0.0,
    )  # fmt: skip
    costs = gpu.costs(unit, rows, around)
    return OperationEvents(unit=name, rows=rows, costs=costs, owner=np.arange(len(rows)), operations=len(rows))
