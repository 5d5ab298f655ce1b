"""Rate of `predict` on one core: reading a CSV file of GEMMs, predicting, writing the result.

    python benchmarks/predict_rate.py [gemms]

Times are CPU seconds of one core, compiled kernels loaded, the best of three. For scale, what others take for ONE GEMM:
SCALE-Sim 3.0.0 7 to 35 CPU seconds for 512 x 512 x 512 (by array size), the mapper of LLMCompass (ISCA 2024) 78 s for
4096 x 4096 x 4096.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from archmodel.predict import predict_file
from archmodel.report.predictions import write_csv
from archmodel.spec.chip import ChipSpec
from archmodel.spec.toml import load_chip

CHIPS = Path(__file__).parent.parent / "chips"
BAR_PER_S = 20_000
SCALESIM_S = (7.0, 35.0)
LLMCOMPASS_S = 78.0


def write_gemms(path: Path, count: int, dtype: str) -> None:
    """GEMMs with sizes even on a logarithmic scale, m to 32768 and n, k to 65536, as in tables of measured ones."""
    rng = np.random.default_rng(0)
    m = np.exp(rng.uniform(0, np.log(32768), count)).astype(int)
    n, k = np.exp(rng.uniform(np.log(256), np.log(65536), (2, count))).astype(int)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("m", "n", "k", "dtype"))
        writer.writerows(zip(m.tolist(), n.tolist(), k.tolist(), [dtype] * count, strict=True))


def rate_per_s(chip: ChipSpec, path: Path, scalesim3: bool) -> float:
    """GEMMs a CPU second, the best of three runs after one that loads the kernels."""
    best = 0.0
    for run in range(4):
        start = time.process_time()
        prediction = predict_file(chip, path, scalesim3)
        write_csv(prediction, path.with_suffix(".out.csv"))
        if run:
            best = max(best, len(prediction) / (time.process_time() - start))
    return best


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    cases = (
        ("GPU cores", "h100_sxm.toml", "bf16", False),
        ("systolic arrays", "hetero_v1.toml", "int8", False),
        ("SCALE-Sim's cycles", "hetero_v1.toml", "int8", True),
    )
    print(f"{count:,} GEMMs from CSV to CSV, CPU time of one core; the bar is {BAR_PER_S:,}/s")
    with tempfile.TemporaryDirectory() as folder:
        for name, chip, dtype, scalesim3 in cases:
            path = Path(folder) / f"{dtype}.csv"
            write_gemms(path, count, dtype)
            rate = rate_per_s(load_chip(CHIPS / chip), path, scalesim3)
            print(f"  {name:20} {rate:10,.0f} GEMMs/s   {rate / BAR_PER_S:6.1f} x the bar   {1e6 / rate:6.1f} us a GEMM")
            if scalesim3:
                low, high = (seconds * rate for seconds in SCALESIM_S)
                print(f"    {low:,.0f} to {high:,.0f} times the rate of SCALE-Sim 3.0.0 (7 to 35 s for one 512-cube)")
            elif dtype == "bf16":
                print(f"    {LLMCOMPASS_S * rate:,.0f} times the rate of LLMCompass's mapper (78 s for one 4096-cube)")


if __name__ == "__main__":
    main()
