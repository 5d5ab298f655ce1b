"""Predicted times of operations listed in a CSV file, on one unit of a chip.

A prediction is the time of the operation alone: its kernels one after another, with weights and KV cache in the unit's
memory, without gaps, dispatch or neighbours. All operations of a unit are one call of its component.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np

from archmodel.components import memory, units
from archmodel.components.collective import ALGORITHMS, OPS, collectives
from archmodel.components.units import matrix_rates
from archmodel.costs import LIMITS, Costs, Floats, Surroundings
from archmodel.dtypes import ATTENTION_DTYPES, DTYPES
from archmodel.errors import MappingError
from archmodel.kernels.systolic import DATAFLOWS, SystolicArray, scalesim3
from archmodel.operation_table import GEMM, OperationTable, read_operations, rows_of
from archmodel.operations import Ints, Kind, Rows
from archmodel.soc import WIDER, Soc
from archmodel.spec.chip import ChipSpec, GpuSpec, NpuSpec
from archmodel.units import FORMATS

#: most copies of the weights that a benchmark takes in turn, so that a small matrix does not stay in the cache for ever
#: (collector of aiconfigurator 0.12.0: min(5, ceil(cache / weights)) copies)
WEIGHT_COPIES = 5.0


@attrs.frozen(eq=False, kw_only=True)
class Prediction:
    """Operations with their predicted times; arrays have shape (rows,)."""

    operations: OperationTable
    chip: str
    predicted_us: Floats
    bound: tuple[str, ...]  # the largest of LIMITS; of a collective, its algorithm
    unit: tuple[str, ...]
    compute_format: tuple[str, ...]  # empty where an operation has no number format
    predicted_cycles: Ints | None = None  # as SCALE-Sim reports them
    mapping_efficiency: Floats | None = None  # in [0, 1]
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.operations)


def predict_file(chip: ChipSpec, path: str | Path, scalesim3: bool = False, *, repeated: bool = True) -> Prediction:
    """Predicted times of the operations in a CSV file; see `operation_table` for its columns and `dtypes` for its formats.

    A format runs on the first GPU that has it, else on the first other unit that has it, else on the first unit that has a
    format which holds all its values.

    Args:
        chip: the chip.
        path: the file.
        scalesim3: GEMMs only, as SCALE-Sim 3.0.0 counts their cycles on ONE array of the chip's first NPU, without stalls;
            number formats play no part.
        repeated: as benchmarks measure it: an operation is run again and again, so that a GPU's cache may still hold weights
            and KV cache from the time before. False: they always come from memory, as in a model larger than the cache.

    Raises:
        TableError: a file that cannot be read.
        MappingError: no unit for a format, no NPU in `scalesim3`, tiles that do not fit.
    """
    operations = read_operations(path, shapes_only=scalesim3)
    if operations.kind == Kind.COLLECTIVE:
        return _collectives(Soc(chip), operations)
    return _compatible(chip, operations) if scalesim3 else _physical(Soc(chip), operations, repeated)


def predict_operations(chip: ChipSpec, operations: OperationTable, *, repeated: bool = True) -> Prediction:
    """`predict_file` of operations that are read already: products or attention, not collectives."""
    return _physical(Soc(chip), operations, repeated)


def _physical(soc: Soc, operations: OperationTable, repeated: bool) -> Prediction:
    owners = assign(soc, operations)
    size = len(operations)
    limits_s, duration_s = np.zeros((size, len(LIMITS))), np.zeros(size)
    formats = np.array([FORMATS.index(name) for _, name in owners])[operations.dtype]
    for unit in dict.fromkeys(name for name, _ in owners):
        index = np.flatnonzero(np.array([name == unit for name, _ in owners])[operations.dtype])
        rows, owner = rows_of(operations, index, formats[index])
        try:
            costs = unit_costs(soc, unit, rows, owner if repeated else None)
        except MappingError as error:
            raise MappingError(f"{operations.table.file}: {error}") from None
        duration_s += np.bincount(owner, costs.duration_s, size)
        limits_s += np.stack([np.bincount(owner, limit_s, size) for limit_s in costs.limits_s.T], axis=1)
    remarks = [
        f"{'/'.join(key)} is computed in {name} on {unit}"
        for key, (unit, name) in zip(operations.dtypes, owners, strict=True)
        if name not in _meaning(operations, key)
    ]
    return Prediction(
        operations=operations,
        chip=soc.chip.name,
        predicted_us=duration_s * 1e6,
        bound=tuple(LIMITS[limit] for limit in np.argmax(limits_s, axis=1).tolist()),
        unit=tuple(owners[code][0] for code in operations.dtype.tolist()),
        compute_format=tuple(owners[code][1] for code in operations.dtype.tolist()),
        remarks=(*operations.remarks, *remarks),
    )


def _collectives(soc: Soc, operations: OperationTable) -> Prediction:
    """Collectives over the chip's link to its peers."""
    link, peers = soc.peer_link()
    op, direct = np.array([(OPS.index(name), way == "direct") for name, way in operations.dtypes])[operations.dtype].T
    ranks, byte = operations.size["num_gpus"], operations.size["message_bytes"]
    found = collectives(soc.links[link], peers, op, ranks, byte, direct)
    size = len(operations)
    return Prediction(
        operations=operations,
        chip=soc.chip.name,
        predicted_us=found[:, 0] * 1e6,
        bound=tuple(ALGORITHMS[code] for code in found[:, 2].astype(int).tolist()),
        unit=(link,) * size,
        compute_format=("",) * size,
        remarks=operations.remarks,
    )


def _meaning(operations: OperationTable, key: tuple[str, ...]) -> tuple[str, ...]:
    """Formats that a dtype asks to be computed in."""
    return (ATTENTION_DTYPES if operations.kind == Kind.ATTENTION else DTYPES)[key[0]].compute


def assign(soc: Soc, operations: OperationTable) -> list[tuple[str, str]]:
    """Unit and compute format of each distinct dtype. Raises MappingError that names all that have none."""
    capability = "attention" if operations.kind == Kind.ATTENTION else "matmul"
    able = {name: unit for name, unit in soc.units.items() if capability in unit.capabilities}
    units = sorted(able, key=lambda name: not isinstance(able[name], GpuSpec))
    if not units:
        raise MappingError(f"{soc.chip.name}: no unit can run {capability}")
    found, wrong = [], []
    for code, key in enumerate(operations.dtypes):
        wanted = _meaning(operations, key)
        formats = (*wanted, *WIDER.get(wanted[0], ()))
        ways = ((unit, name) for name in formats for unit in units if name in matrix_rates(able[unit]))
        if (way := next(ways, None)) is None:
            wrong.append(f"  line {operations.first_line(code)} and alike: {'/'.join(key)} needs {' or '.join(wanted)}")
        else:
            found.append(way)
    if wrong:
        have = "; ".join(f"{name} has {', '.join(matrix_rates(able[name]))}" for name in units)
        head = f"{operations.table.file}: number formats that {soc.chip.name} has not, nor wider ones ({have})"
        raise MappingError("\n".join([head, *wrong]))
    return found


def unit_costs(soc: Soc, name: str, rows: Rows, repeated: Ints | None) -> Costs:
    """Costs of rows on a unit; `repeated` is the operation of each row where operations are run again and again."""
    unit = soc.units[name]
    around = Surroundings(
        buffer_byte=memory.capacity_byte(soc.tiers[unit.buffer]) * unit.buffer_share,
        buffer_byte_per_s=soc.path_byte_per_s(name, unit.buffer),
        memory_byte_per_s=np.full(len(rows), soc.path_byte_per_s(name, unit.memory)),
        memory_latency_s=soc.path_latency_s(name, unit.memory),
        held_share=units.held_alone(unit, rows),
    )
    if not isinstance(unit, GpuSpec):
        return units.costs(unit, rows, around, resident=False)
    reuse_byte = None if repeated is None else _reuse_byte(rows, repeated, memory.capacity_byte(soc.tiers[unit.buffer]))
    return units.costs(unit, rows, around, reuse_byte=reuse_byte)


def _reuse_byte(rows: Rows, operation: Ints, cache_byte: float) -> Floats:
    """Data [B] touched between two uses of the same weights or KV cache in a benchmark, shape (rows,).

    The weights of a GEMM are taken in turn from several copies; the experts of a layer are there once.
    """
    weights = rows.count * rows.n * rows.k * rows.weight_byte
    copies = np.clip(np.ceil(cache_byte / np.maximum(weights, 1.0)), 1.0, WEIGHT_COPIES)
    layer = np.bincount(operation, weights)[operation]
    seen = np.where(rows.window > 0, np.minimum(rows.window + rows.q_tokens - 1.0, rows.kv_tokens), rows.kv_tokens)
    cache = rows.sequences * seen * rows.kv_heads * (rows.qk_dim + rows.v_dim) * rows.kv_byte
    return np.select([rows.kind == Kind.ATTENTION, rows.experts > 0], [cache, layer], copies * weights)


def _compatible(chip: ChipSpec, operations: OperationTable) -> Prediction:
    """What SCALE-Sim 3.0.0 reports; the time is its cycles at the NPU's clock."""
    name, spec = next(((n, b) for n, b in chip.blocks.items() if isinstance(b, NpuSpec)), ("", None))
    if spec is None:
        raise MappingError(f"{chip.name}: has no NPU, whose array SCALE-Sim's cycles need")
    array = SystolicArray(
        arrays=1, rows=spec.rows, cols=spec.cols, dataflow=DATAFLOWS.index(spec.dataflow), double_buffered=False,
        load_rows_per_cycle=1, buffer_byte_per_cycle=np.inf,
    )  # fmt: skip
    shape = np.stack([operations.size[column] for column in GEMM], axis=1).astype(np.int64)
    cycles, _, ratios = scalesim3(shape, array)
    size = len(operations)
    several = (f"SCALE-Sim has one array; {name} has {spec.arrays}, of which one is used",) if spec.arrays > 1 else ()
    return Prediction(
        operations=operations,
        chip=chip.name,
        predicted_us=cycles / (spec.clock_ghz * 1e3),
        bound=("matrix",) * size,
        unit=(name,) * size,
        compute_format=("",) * size,
        predicted_cycles=cycles,
        mapping_efficiency=ratios[:, 0],
        remarks=(*operations.remarks, *several),
    )
