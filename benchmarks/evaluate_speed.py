"""Speed of the main job: `evaluate()` warm, and the whole command on its first and further runs.

    python benchmarks/evaluate_speed.py

Prints times beside the bars, and ratios to what other tools were measured to take for far less work.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from archmodel import evaluate, load_chip, load_workload
from archmodel.report.splitting import report
from archmodel.splitting.study import study
from archmodel.splitting.verdict import Terms

ROOT = Path(__file__).parents[1]
CHIP, WORKLOAD = ROOT / "chips/hetero_v1.toml", ROOT / "workloads/llm_100b.toml"
SCALESIM_512_CUBE_S = 35.6  # SCALE-Sim 3.0.0, 512 x 512 x 512 on a 32 x 32 array, CPU seconds
LLMCOMPASS_4096_CUBE_S = 78.0  # LLMCompass's mapper, one 4096 x 4096 x 4096


def warm_s(runs: int = 30) -> float:
    """Median wall seconds of `evaluate()` once its kernels are loaded."""
    chip, workload = load_chip(CHIP), load_workload(WORKLOAD)
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        evaluate(chip, workload)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def split_s(runs: int = 5) -> tuple[float, float]:
    """Median wall seconds of trying all strategies, and of the whole answer of `split`, once its kernels are loaded."""
    chip, workload = load_chip(CHIP), load_workload(WORKLOAD)
    tried, answered = [], []
    for _ in range(runs + 1):
        start = time.perf_counter()
        found = study(chip, workload, Terms())
        tried.append(time.perf_counter() - start)
        report(found, 118)
        answered.append(time.perf_counter() - start)
    return statistics.median(tried[1:]), statistics.median(answered[1:])


def command_s(cache: Path, output: Path, *settings: str) -> float:
    """Wall seconds of the whole command with its kernels cached in `cache`; `settings` are further arguments."""
    environment = {**os.environ, "ARCHMODEL_CACHE": str(cache)}
    command = [sys.executable, "-m", "archmodel", "eval", str(CHIP), str(WORKLOAD), "-o", str(output), *settings]
    start = time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, cwd=ROOT)
    return time.perf_counter() - start


def main() -> None:
    warm = warm_s()
    print(f"evaluate(), warm           {1e3 * warm:8.1f} ms   bar 20 ms, {0.020 / warm:.1f} x faster than it")
    print(f"  {SCALESIM_512_CUBE_S / warm:,.0f} times as fast as SCALE-Sim's one 512-cube, "
          f"{LLMCOMPASS_4096_CUBE_S / warm:,.0f} times as LLMCompass's one 4096-cube")  # fmt: skip
    tried, answered = split_s()
    print(f"split, all strategies      {tried:8.2f} s    bar 1 s, warm")
    print(f"split, the whole answer    {answered:8.2f} s    with break-evens, fusion on and off and fallbacks")
    with tempfile.TemporaryDirectory() as folder:
        cache, output = Path(folder) / "cache", Path(folder) / "reports"
        first = command_s(cache, output)
        changed = statistics.median(command_s(cache, output, "--set", f"gpu.clock_ghz=1.{i}") for i in range(1, 6))
        repeated = statistics.median(command_s(cache, output, "--set", "gpu.clock_ghz=1.5") for _ in range(5))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"command, very first run    {first:8.1f} s    bar 60 s, compilation included")
    print(f"command, another chip      {changed:8.1f} s    bar 3 s, half of it draws the figures")
    print(f"command, repeated          {repeated:8.1f} s    bar 3 s, the figures are kept")
    print(f"peak memory                {peak:8.0f} MiB  bar 500 MB")


if __name__ == "__main__":
    main()
