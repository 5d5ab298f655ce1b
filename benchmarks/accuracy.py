"""Print the README's part on accuracy: errors against measured times, from the rows in `data/validation`.

    python benchmarks/accuracy.py
"""

from __future__ import annotations

from pathlib import Path

from archmodel.report.validation import accuracy_table
from archmodel.validation.run import validate

ROOT = Path(__file__).parents[1]


def main() -> None:
    found = validate(ROOT, transfer=False, serving=False)
    rows = sum(int(points.report.sum()) for points in found.points)
    met = [entry.met for entry in found.summary if entry.met is not None]
    print(f"""\
Absolute error of the predicted time against {rows:,} measured operations, of shapes that no fit has seen: median / mean [%].
*Roofline* is the median error of max(FLOP / peak, bytes / bandwidth), from the best device to the worst.

{accuracy_table(found)}

{sum(met)} of {len(met)} of the project's own bars are met. `python -m archmodel validate` repeats this from the rows in
`data/validation` in half a minute and writes [reports/validation.md](reports/validation.md): every format, errors by size,
chips that nobody measured, LLMCompass on its own points, and where the rest of the error sits.""")


if __name__ == "__main__":
    main()
