"""Seeded random chips and workloads that evaluate in milliseconds."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np

from archmodel.spec.chip import ChipSpec, CimSpec, GpuSpec, LinkSpec, NeuromorphicSpec
from archmodel.spec.shape import ShapeSpec, expand
from archmodel.spec.toml import load_chip
from archmodel.spec.workload import RequestSpec, WorkloadSpec

ROOT = Path(__file__).parents[1]
HETERO = load_chip(ROOT / "chips/hetero_v1.toml")
BASELINE = load_chip(ROOT / "chips/gpu_baseline.toml")


def changed(chip: ChipSpec, **blocks: dict[str, object]) -> ChipSpec:
    """`chip` with fields of blocks (or of placement, power) replaced: `changed(chip, npu={"rows": 64})`."""
    new = dict(chip.blocks)
    for name, fields in blocks.items():
        if name in new:
            new[name] = attrs.evolve(new[name], **fields)
        else:
            chip = attrs.evolve(chip, **{name: attrs.evolve(getattr(chip, name), **fields)})
    return attrs.evolve(chip, blocks=new)


def random_chip(rng: np.random.Generator) -> ChipSpec:
    """hetero_v1 or the conventional GPU with other sizes, clocks and bandwidths."""
    gpu = {
        "cores": int(rng.integers(1, 80)),
        "clock_ghz": float(rng.uniform(0.5, 2.0)),
        "feed_byte_per_core_per_cycle": float(rng.choice([16, 64, 128])),
    }
    hbm = {"channels": int(rng.integers(32, 512)), "latency_ns": float(rng.uniform(50, 600))}
    if rng.uniform() < 0.3:
        return changed(BASELINE, gpu=gpu, hbm=hbm)
    npu = {
        "rows": int(rng.integers(4, 130)),
        "cols": int(rng.integers(4, 130)),
        "arrays": int(rng.integers(1, 9)),
        "dataflow": str(rng.choice(["os", "ws", "is"])),
        "double_buffered": bool(rng.integers(2)),
        "load_rows_per_cycle": int(rng.integers(1, 5)),
    }
    control = {"dispatch_cycles": float(rng.uniform(0, 4000)), "queue_commands": int(rng.integers(0, 9))}
    placement = {"fusion": bool(rng.integers(2)), "micro_batches": int(rng.integers(1, 4))}
    sram = {"capacity_mb": float(rng.uniform(4, 256))}
    return changed(HETERO, gpu=gpu, npu=npu, hbm=hbm, control=control, sram=sram, placement=placement)


def random_cell_chip(rng: np.random.Generator) -> ChipSpec:
    """hetero_v1 with a unit that holds its weights in cells of its own in place of the NPU: compute in memory, whose cells
    hold all, some or almost nothing of a random workload, or event-driven cores, which hold all."""
    common = {"clock_ghz": float(rng.uniform(0.2, 2.0)), "vector_op_per_cycle": 512.0, "buffer": "sram", "buffer_share": 0.5,
              "memory": "hbm", "source": "random"}  # fmt: skip
    if rng.uniform() < 0.5:
        unit: CimSpec | NeuromorphicSpec = CimSpec(
            **common, macros=int(2.0 ** rng.uniform(2, 16)), rows=int(rng.choice([1, 16, 64, 256])),
            cols=int(rng.integers(16, 1000)), cell_bit=int(rng.choice([1, 2, 4])), input_bit=int(rng.choice([1, 2, 8])),
            formats=("int8",), converters=int(rng.integers(1, 65)), conversion_ghz=float(rng.uniform(0.1, 2.0)),
            input_lanes=int(rng.choice([1, 1, 4])), write_bit_per_cycle=float(rng.uniform(1, 128)),
            write_hidden=bool(rng.integers(2)), reload_share=float(rng.uniform(0.1, 1.0)),
            pipeline_cycles=float(rng.integers(0, 50)), cell_energy_pj=0.002, conversion_energy_pj=0.5,
            write_energy_pj_per_bit=0.3, static_power_w=1.0,
        )  # fmt: skip
    else:
        unit = NeuromorphicSpec(
            **common, cores=int(rng.integers(100, 20000)), synapse_op_per_core_per_cycle={"int8": float(rng.choice([1, 4]))},
            synapse_energy_pj={"int8": 2.0}, sparsity_fraction=float(rng.uniform()), core_weight_kib=16384.0,
            event_per_cycle=float(rng.uniform(0.5, 100)), time_steps=int(rng.integers(1, 5)), event_energy_pj=5.0,
            step_overhead_us=float(rng.uniform(0, 2)), static_power_w=1.0,
        )  # fmt: skip
    placement = {"projection": str(rng.choice(["gpu", "npu"]))}
    gpu = {"macs_per_core_per_cycle": {"bf16": 128.0, "int8": 256.0}, "mac_energy_pj": {"bf16": 0.59, "int8": 0.1}}
    chip = changed(HETERO, gpu=gpu, placement=placement)
    return attrs.evolve(chip, blocks={**chip.blocks, "npu": unit})


def random_shape(rng: np.random.Generator) -> ShapeSpec:
    """A small decoder with dimensions that are no multiples of anything; dense or with experts, windowed or not."""
    kv_heads = int(rng.choice([1, 2, 3]))
    moe = bool(rng.uniform() < 0.3)
    experts = int(rng.integers(2, 17)) if moe else 0
    return ShapeSpec(
        name="random",
        layers=int(rng.integers(1, 5)),
        hidden=int(rng.integers(33, 1500)),
        heads=kv_heads * int(rng.integers(1, 5)),
        kv_heads=kv_heads,
        head_dim=int(rng.choice([40, 64, 100, 128])),
        intermediate=0 if moe else int(rng.integers(50, 4000)),
        gated=bool(rng.integers(2)),
        vocabulary=int(rng.integers(100, 5000)),
        window_tokens=int(rng.choice([0, 0, 70])),
        parallel=bool(rng.uniform() < 0.2),
        experts=experts,
        experts_per_token=int(rng.integers(1, experts + 1)) if moe else 0,
        expert_intermediate=int(rng.integers(30, 700)) if moe else 0,
        shared_intermediate=int(rng.choice([0, 200])) if moe else 0,
        source="random",
    )


def random_workload(rng: np.random.Generator) -> WorkloadSpec:
    request = RequestSpec(
        batch=int(rng.integers(1, 10)), input_tokens=int(rng.integers(1, 200)), output_tokens=int(rng.integers(2, 30))
    )
    model = expand(random_shape(rng))
    routing = str(rng.choice(["uniform", "balanced", "power_law_1.2", "power_law_0.5"]))
    return WorkloadSpec(name="random", model=model, request=attrs.evolve(request, routing=routing))


def two_gpus(link_lanes: int = 16) -> ChipSpec:
    """Two H100s as one chip: `gpu` with `hbm`, `gpu_b` with `hbm_b`, joined by a PCIe-like link of their own."""
    chip = load_chip(ROOT / "chips/h100_sxm.toml")
    mine = {name: block for name, block in chip.blocks.items() if name not in ("host", "pcie", "peers", "nvlink")}
    theirs = {}
    for name, block in mine.items():
        match block:
            case GpuSpec():
                theirs[f"{name}_b"] = attrs.evolve(block, buffer=f"{block.buffer}_b", memory=f"{block.memory}_b")
            case LinkSpec():
                theirs[f"{name}_b"] = attrs.evolve(block, joins=tuple(f"{end}_b" for end in block.joins))
            case _:
                theirs[f"{name}_b"] = block
    between = attrs.evolve(chip.blocks["pcie"], joins=("gpu", "gpu_b"), lanes=link_lanes)
    placement = attrs.evolve(chip.placement, weights="", kv_cache="", embedding="")
    return attrs.evolve(chip, name="two_gpus", blocks={**mine, **theirs, "between": between}, placement=placement)


def random_pair(rng: np.random.Generator) -> ChipSpec:
    """Two unlike units, each with a memory of its own, a link of any speed between them, and no control core.

    The second is a GPU or systolic arrays that can only multiply and quantise.
    """
    chip = two_gpus(link_lanes=int(rng.choice([1, 4, 16, 256, 4096])))
    chip = changed(chip, between={"setup_us": float(rng.uniform(0, 20)), "latency_ns": float(rng.uniform(10, 2000))},
                   gpu={"cores": int(rng.integers(4, 140))}, gpu_b={"cores": int(rng.integers(4, 140))},
                   hbm={"channels": int(rng.integers(8, 100))}, hbm_b={"channels": int(rng.integers(8, 100))})  # fmt: skip
    if rng.uniform() < 0.5:
        arrays = attrs.evolve(
            HETERO.blocks["npu"], buffer="l2_b", memory="hbm_b", rows=int(rng.integers(8, 129)), cols=int(rng.integers(8, 129)),
            arrays=int(rng.integers(1, 65)), macs_per_pe_per_cycle={"bf16": 1.0}, mac_energy_pj={"bf16": 0.4},
        )  # fmt: skip
        chip = attrs.evolve(chip, blocks={**chip.blocks, "gpu_b": arrays})
    return chip
