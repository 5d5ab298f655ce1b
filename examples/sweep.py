"""Design space of hetero_v1: array size, SRAM and HBM bandwidth; which chips are on the front of tokens/s against tokens/J?

    python examples/sweep.py [OUT.h5]

Keeps every result in an HDF5 file and draws the Pareto front beside it.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import attrs
import h5py
import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.progress import track

from archmodel import evaluate, load_chip, load_workload
from archmodel.report.files import write_whole
from archmodel.spec.chip import ChipSpec

mpl.use("agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
ARRAY_EDGES = (16, 32, 64, 128)  # rows and columns of each NPU array
SRAM_MB = (32, 64, 128, 256)
HBM_TB_PER_S = (0.6, 1.2, 2.4, 4.8)
COLUMNS = ("array_edge", "sram_capacity_mb", "hbm_bandwidth_tb_per_s", "output_tokens_per_s", "tokens_per_joule", "power_w")
UNITS = ("1", "MB", "TB/s", "tokens/s", "tokens/J", "W")


def variant(chip: ChipSpec, edge: int, sram_mb: float, hbm_tb_per_s: float) -> ChipSpec:
    """The chip with other arrays, SRAM and HBM. Static power of what grows grows with it."""
    npu, sram, hbm = (chip.blocks[name] for name in ("npu", "sram", "hbm"))
    faster = hbm_tb_per_s / 1.2
    rate, static = hbm.data_rate_gbit_per_s * faster, hbm.static_power_w * faster
    blocks = {
        **chip.blocks,
        "npu": attrs.evolve(npu, rows=edge, cols=edge, static_power_w=npu.static_power_w * (edge / npu.rows) ** 2),
        "sram": attrs.evolve(sram, capacity_mb=sram_mb, static_power_w=sram.static_power_w * sram_mb / sram.capacity_mb),
        "hbm": attrs.evolve(hbm, data_rate_gbit_per_s=rate, static_power_w=static),
        "interposer": attrs.evolve(chip.blocks["interposer"], lanes=round(chip.blocks["interposer"].lanes * faster)),
    }
    return attrs.evolve(chip, name=f"hetero_{edge}_{sram_mb}_{hbm_tb_per_s}", blocks=blocks)


def pareto(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Points that no other beats in both, by rising x; indices."""
    best = [i for i in range(len(x)) if not np.any((x >= x[i]) & (y >= y[i]) & ((x > x[i]) | (y > y[i])))]
    return np.array(sorted(best, key=lambda i: x[i]))


def save(path: Path, table: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        for name, unit, column in zip(COLUMNS, UNITS, table.T, strict=True):
            file.create_dataset(name, data=column).attrs["unit"] = unit


def draw(path: Path, table: np.ndarray) -> None:
    speed, efficiency = table[:, 3], table[:, 4]
    front = pareto(speed, efficiency)
    figure, axes = plt.subplots(figsize=(8, 5.5), layout="constrained")
    dots = axes.scatter(speed, efficiency, c=np.log2(table[:, 0]), s=12 * table[:, 2] + 8, cmap="viridis", alpha=0.8)
    axes.plot(speed[front], efficiency[front], color="black", linewidth=1, label="Pareto front")
    bar = figure.colorbar(dots, ticks=np.log2(ARRAY_EDGES), label="edge of an NPU array")
    bar.set_ticklabels([str(edge) for edge in ARRAY_EDGES])
    axes.set(
        xlabel="throughput [tokens/s]", ylabel="efficiency [tokens/J]", title="hetero_v1 variants, larger dots: faster HBM"
    )
    axes.legend()
    figure.savefig(path, format="png", dpi=110)


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("sweep.h5")
    chip, workload = load_chip(ROOT / "chips/hetero_v1.toml"), load_workload(ROOT / "workloads/llm_100b.toml")
    points = list(itertools.product(ARRAY_EDGES, SRAM_MB, HBM_TB_PER_S))
    console = Console(stderr=True)
    rows = []
    for point in track(points, "chips", console=console, disable=not console.is_terminal):
        result = evaluate(variant(chip, *point), workload)
        rows.append((*point, result.output_tokens_per_s, result.tokens_per_joule, result.power_w))
    table = np.array(rows)
    write_whole({out: lambda path: save(path, table), out.with_suffix(".png"): lambda path: draw(path, table)})
    for row in table[pareto(table[:, 3], table[:, 4])]:
        print("  ".join(f"{name} {value:.4g}" for name, value in zip(COLUMNS, row, strict=True)))
    print(f"{len(table)} chips in {out}, front in {out.with_suffix('.png')}")


if __name__ == "__main__":
    main()
