"""The section of the report on accuracy about splits over unlike hardware that somebody measured."""

from __future__ import annotations

import numpy as np

from archmodel.report.markdown import markdown
from archmodel.validation.hetero import CLOSE, LEAST_GAIN, Hetero


def section(hetero: Hetero) -> str:
    """Every case with both gains, in markdown; empty without cases."""
    if not hetero.cases:
        return ""
    rows = [
        [case.spec.system, case.spec.name, _gain(case.spec.measured) or case.spec.direction, _gain(case.predicted),
         f"{100.0 * case.error:+.0f}" if case.spec.measured else "", "right" if case.sign_right else "wrong"]
        for case in hetero.cases
    ]  # fmt: skip
    notes = [f"- {case.spec.system}, {case.spec.name}: {case.spec.note}." for case in hetero.cases if case.spec.note]
    others = [f"- {entry.system}: {entry.why}." for entry in hetero.left_out]
    return f"""\
## Splits that somebody measured

{summary_line(hetero)} A gain is what the split (or the first of the two systems) reaches over what its baseline reaches, more
being better. Both sides are computed from facts of the hardware, of the model and of named software; none was fitted to a
gain. `data/validation/hetero.toml` says on what each side rests, with sources and assumptions. *Sign* is right where
measurement and prediction agree on whether there is a gain of more than {100 * LEAST_GAIN:.0f}%.

{markdown(("measured by", "what", "gain measured", "gain predicted", "error [%]", "sign"), rows, texts=2)}

What to know of single rows:

{chr(10).join(notes)}

Measured as well, but not computed:

{chr(10).join(others)}"""


def summary_line(hetero: Hetero) -> str:
    """One sentence on all cases."""
    found = 100.0 * np.abs(hetero.errors)
    within = sum(case.close for case in hetero.cases)
    signs = sum(case.sign_right for case in hetero.cases)
    return (
        f"{len(hetero.cases)} measured comparisons of splits over unlike hardware: the sign is right in {signs}; of the "
        f"{len(found)} with a figure {within} are within {100 * CLOSE:.0f}%, the median error is {np.median(found):.0f}%."
    )


def _gain(value: float) -> str:
    return f"{value:.3g}" if value else ""
