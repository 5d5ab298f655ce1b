"""Errors of predictions against measured times, over all operations and by regime."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.operations import Floats, Kind
from archmodel.predict import Prediction

#: upper ends of the size regimes; the last one is open
EDGES = {"m": (16, 256, 2048), "kv_len": (512, 4096, 32768), "message_bytes": (65535, 2**20, 2**26),
         "num_tokens": (16, 128, 1024, 8192)}  # fmt: skip


@attrs.frozen
class Accuracy:
    """Relative errors |predicted - measured| / measured of `n` operations, and the signed mean of them (bias)."""

    regime: str  # what divides the operations: bound, dtype, m, ...; "all" for all of them
    value: str
    n: int
    mean_absolute_error_fraction: float
    median_absolute_error_fraction: float
    p90_absolute_error_fraction: float
    bias_fraction: float


def accuracies(prediction: Prediction) -> tuple[Accuracy, ...]:
    """Errors over all measured operations, then by regime; empty where nothing is measured."""
    operations = prediction.operations
    if operations.measured_us is None or not np.any(operations.measured_us > 0):
        return ()
    measured = operations.measured_us > 0  # false for NaN, an empty cell
    error = (prediction.predicted_us / operations.measured_us - 1.0)[measured]
    found = [accuracy_of("all", "", error)]
    for regime, labels in regimes(prediction).items():
        here = np.array(labels)[measured]
        found += [accuracy_of(regime, value, error[here == value]) for value in _ordered(regime, here.tolist())]
    return tuple(found)


def regimes(prediction: Prediction) -> dict[str, list[str]]:
    """What divides the operations -> the label of each."""
    operations = prediction.operations
    dtypes = ["/".join(key) for key in operations.dtypes]
    labels = {"bound": list(prediction.bound), "unit": list(prediction.unit)}
    if any(dtypes):
        labels["dtype"] = [dtypes[code] for code in operations.dtype.tolist()]
    if operations.kind == Kind.ATTENTION:
        labels["phase"] = np.where(operations.size["seq_q"] > 1, "context", "generation").tolist()
    if operations.kind == Kind.EXPERTS:
        labels["routing"] = np.where(operations.size["routing"] > 0.0, "skewed", "even").tolist()
    column = {Kind.ATTENTION: "kv_len", Kind.COLLECTIVE: "message_bytes", Kind.EXPERTS: "num_tokens"}.get(operations.kind, "m")
    ranges = np.array(size_labels(column))
    labels[column] = ranges[np.searchsorted(EDGES[column], operations.size[column])].tolist()
    return labels


def size_labels(column: str) -> list[str]:
    """`<= 16`, `17-256`, ... from small to large."""
    edges = EDGES[column]
    between = [f"{low + 1}-{high}" for low, high in pairwise(edges)]
    return [f"<= {edges[0]}", *between, f"> {edges[-1]}"]


def _ordered(regime: str, labels: Sequence[str]) -> list[str]:
    """Labels that occur: sizes from small to large, others with the commonest first."""
    if regime in EDGES:
        return [label for label in size_labels(regime) if label in labels]
    counts = {label: labels.count(label) for label in sorted(set(labels))}
    return sorted(counts, key=lambda label: -counts[label])


def accuracy_of(regime: str, value: str, error: Floats) -> Accuracy:
    """Errors of operations, shape (n,), as an Accuracy."""
    size: NDArray[np.float64] = np.abs(error)
    return Accuracy(
        regime=regime,
        value=value,
        n=len(error),
        mean_absolute_error_fraction=float(np.mean(size)),
        median_absolute_error_fraction=float(np.median(size)),
        p90_absolute_error_fraction=float(np.quantile(size, 0.9)),
        bias_fraction=float(np.mean(error)),
    )
