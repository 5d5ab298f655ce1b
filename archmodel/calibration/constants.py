"""The constants of a device that measured times can tell, each with its range and the rows that tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from archmodel.spec.chip import ChipSpec, GpuSpec

#: what a row of a table is, and so which constants it can tell, in the order of the fits
STAGES = ("matmul", "quantised matmul", "weight-only matmul", "context attention", "generation attention")


@attrs.frozen
class Constant:
    """One number of a chip file. It is fitted on a logarithmic scale between `low` and `high`."""

    stage: str
    block: str  # "gpu", or which of its tiers: "buffer" or "memory"
    name: str
    low: float
    high: float

    def key(self, unit: str, spec: GpuSpec) -> str:
        """Its place in the chip's file, such as gpu.kernel_floor_us."""
        return f"{ {'gpu': unit, 'buffer': spec.buffer, 'memory': spec.memory}[self.block] }.{self.name}"


def _of(stage: str, block: str, **ranges: tuple[float, float]) -> tuple[Constant, ...]:
    return tuple(Constant(stage, block, name, *bounds) for name, bounds in ranges.items())


CONSTANTS: tuple[Constant, ...] = (
    *_of(
        "matmul", "gpu", feed_byte_per_core_per_cycle=(8, 512), stream_byte_per_core_per_cycle=(2, 128),
        overlap_exponent=(1, 12), matrix_efficiency=(0.2, 1), matmul_stream_efficiency=(0.2, 1), kernel_floor_us=(0.05, 100),
        kernel_ramp_us=(0.01, 20), split_floor_us=(0.05, 50), sustained_clock_share=(0.4, 1),
    ),
    *_of("matmul", "buffer", bandwidth_byte_per_cycle=(100, 1e5)),
    *_of("quantised matmul", "gpu", reduction_floor_us=(0.05, 100), reduction_byte_in_flight=(100, 1e5)),
    *_of("weight-only matmul", "gpu", dequantise_flop=(0.05, 100)),
    *_of(
        "context attention", "gpu", attention_efficiency=(0.05, 1), attention_context_floor_us=(0.05, 100),
        attention_context_ramp_us=(0.01, 50),
    ),
    *_of(
        "generation attention", "gpu", attention_stream_efficiency=(0.2, 1), attention_block_byte_per_cycle=(1, 500),
        attention_floor_us=(0.05, 100), attention_ramp_us=(0.01, 50), attention_vector_ramp_us=(0.01, 50),
    ),
)  # fmt: skip


def constants_of(stage: str) -> tuple[Constant, ...]:
    """Constants that rows of `stage` tell."""
    return tuple(constant for constant in CONSTANTS if constant.stage == stage)


def value(chip: ChipSpec, key: str) -> float:
    """The number at `key` = block.name."""
    block, name = key.split(".")
    return float(getattr(chip.blocks[block], name))


def with_values(chip: ChipSpec, values: Mapping[str, float]) -> ChipSpec:
    """The chip with the numbers at the keys block.name replaced."""
    blocks = dict(chip.blocks)
    for key, number in values.items():
        block, name = key.split(".")
        spec: Any = blocks[block]
        blocks[block] = attrs.evolve(spec, **{name: number})
    return attrs.evolve(chip, blocks=blocks)
