"""Print the README's part on accuracy: errors against measured times, from the rows in `data/validation`.

python benchmarks/accuracy.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from archmodel.report.markdown import markdown
from archmodel.report.names import name_of
from archmodel.report.validation import accuracy_table, left_out_medians, serving_median
from archmodel.report.validation_hetero import summary_line
from archmodel.validation.energy import EnergyValidation, energy_scores
from archmodel.validation.run import validate

ROOT = Path(__file__).parents[1]


def energy_lines(found: EnergyValidation) -> str:
    """Mean error of energy and power of each kind of measurement, with what a constant gives and the bar."""
    header = ("energy and power", "device", "n", "mean [%]", "a constant gives [%]", "bar")
    rows = [
        (s.what, name_of(s.device) if s.device else "", f"{s.n:,}", f"{s.mean:.1f}",
         f"{s.constant:.0f}" if np.isfinite(s.constant) else "", "" if s.bar is None else f"{s.bar:g}")
        for s in energy_scores(found)
    ]  # fmt: skip
    return markdown(header, rows, texts=2)


def main() -> None:
    found = validate(ROOT)
    rows = sum(int(points.report.sum()) for points in found.points)
    runs, median = serving_median(found)
    low, high = left_out_medians(found)
    met = [entry.met for entry in found.summary if entry.met is not None]
    print(f"""\
Absolute error of the predicted time against {rows:,} measured operations, of shapes that no fit has seen: median / mean
[%]. *Roofline* is the median error of max(FLOP / peak, bytes / bandwidth), from the best device to the worst.

{accuracy_table(found)}

- {sum(met)} of the project's own {len(met)} bars are met; [reports/validation.md](reports/validation.md) says which,
  and where the rest of the error sits.
- Time per output token of Llama 3.1 (8B and 70B) on H100 and H200, under load in three serving stacks: {median:.0f}%
  median over {runs} measured runs.
- A GPU that nobody has measured, with the constants of the measured one nearest in design: {low:.0f}% to {high:.0f}%
  median on bf16 GEMMs. That is what to expect of `chips/mi300x.toml`, `chips/rtx_4090.toml` and the like.
- {summary_line(found.hetero)}

Energy and power, mean absolute error on models and shapes that no fit saw, at the measured time unless said:

{energy_lines(found.energy)}

`python -m archmodel validate` repeats all of this from the rows in `data/validation`, in under a minute.""")


if __name__ == "__main__":
    main()
