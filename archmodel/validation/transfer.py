"""Leave one device out: a GPU predicted from its data sheet and the fitted constants of another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from archmodel.errors import MappingError
from archmodel.spec.chip import ChipSpec, DramSpec, GpuSpec, SramSpec
from archmodel.spec.toml import load_chip
from archmodel.validation.points import DEVICES, Flags, Points, points
from archmodel.validation.scores import Score, fair, score

#: what a data sheet and the architecture's paper say of a GPU; all else of its block is fitted or measured on the device,
#: its tile sizes too, and is the donor's
DATA_SHEET = (
    "buffer_partitions", "multicast",
    "cores", "clock_ghz", "macs_per_core_per_cycle", "vector_flop_per_core_per_cycle", "exp_per_core_per_cycle",
    "core_buffer_kib", "accumulator_kib", "buffer", "memory", "source", "capabilities", "layout", "mac_energy_pj",
    "vector_energy_pj_per_flop", "operand_energy_pj_per_bit", "static_power_w",
    "voltage_points", "nominal_clock_ghz", "clock_static_share",
)  # fmt: skip

#: the device nearest in design, whose constants stand in for those of a device that nobody measured
NEXT_OF_KIN = {
    "a100_sxm": "h100_sxm", "h100_sxm": "h200_sxm", "h200_sxm": "h100_sxm", "b200_sxm": "h200_sxm", "l40s": "a100_sxm",
}  # fmt: skip


def with_constants(chip: ChipSpec, donor: ChipSpec) -> ChipSpec:
    """`chip` with the fitted constants of `donor`; the cache's bytes a cycle go with the number of cores, a core's
    operand feed with its matrix rate: whoever designs a core balances the two.

    Raises MappingError where one of them has no GPU.
    """
    name, gpu = _gpu(chip)
    _, other = _gpu(donor)
    fitted = {f.name: getattr(other, f.name) for f in attrs.fields(GpuSpec) if f.name not in DATA_SHEET}
    mine, theirs = (max(unit.macs_per_core_per_cycle.get(key, 0.0) for key in ("bf16", "fp16")) for unit in (gpu, other))
    if mine and theirs:
        fitted["feed_byte_per_core_per_cycle"] = other.feed_byte_per_core_per_cycle * mine / theirs
    cache, memory = chip.blocks[gpu.buffer], chip.blocks[gpu.memory]
    other_cache, other_memory = donor.blocks[other.buffer], donor.blocks[other.memory]
    blocks = {**chip.blocks, name: attrs.evolve(gpu, **fitted)}
    if isinstance(cache, SramSpec) and isinstance(other_cache, SramSpec):
        per_core = other_cache.bandwidth_byte_per_cycle / other.cores
        blocks[gpu.buffer] = attrs.evolve(cache, bandwidth_byte_per_cycle=per_core * gpu.cores)
    if isinstance(memory, DramSpec) and isinstance(other_memory, DramSpec):
        blocks[gpu.memory] = attrs.evolve(memory, stream_efficiency=other_memory.stream_efficiency)
    return attrs.evolve(chip, blocks=blocks)


def _gpu(chip: ChipSpec) -> tuple[str, GpuSpec]:
    for name, block in chip.blocks.items():
        if isinstance(block, GpuSpec):
            return name, block
    raise MappingError(f"{chip.name}: has no GPU")


def left_out(data: Path, chips: Path, devices: Iterable[str] = DEVICES) -> dict[tuple[str, str], Score]:
    """(device, donor of the constants) -> errors of bf16 GEMMs on unseen families; the diagonal is the device's own fit."""
    specs: Mapping[str, ChipSpec] = {device: load_chip(chips / f"{device}.toml") for device in devices}
    found = {}
    for device, chip in specs.items():
        for donor, other in specs.items():
            own = points("gemm", device, with_constants(chip, other), data / f"gemm_{device}.csv")
            entry = score(own, "bf16", _bf16(own))
            if entry is not None:
                found[device, donor] = entry
    return found


def _bf16(gemms: Points) -> Flags:
    rows: Flags = fair(gemms) & (gemms.label == "bf16")
    return rows
