"""A robust fit of positive numbers: logarithmic errors by reweighted, damped Gauss-Newton steps.

Errors count by their size while they are small, and ever less beyond a few per cent, where a library chose another kernel.

The model has kinks (the best of many tiles), so that derivatives are differences over a few per cent, and several starts are
tried. Confidence comes from the spread of whole families, not of rows, since rows of a family err alike.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Residuals = Callable[[Floats], Floats]  # logarithms of numbers -> log(predicted / measured), shape (rows,)

_DIFFERENCE = 0.03  # of a logarithm, for derivatives
_SMALLEST = 0.02  # errors below it count alike: the noise of measurements
_LARGE = 0.05  # errors beyond it count as their logarithm
_TAIL = 0.03  # weight of the root mean square beside that
_PRIOR = 1e-4  # what moving a number by a factor e from its start may cost in loss: settles what the rows leave open
_LONGEST = 0.4  # step of a logarithm
_TRIALS = 48  # starts that are scored
_SPREAD = 0.5  # of their logarithms
_STARTS = 3  # of them that are followed
_SCOUTING = 8  # steps from each; the best goes on


@attrs.frozen(eq=False)
class Fit:
    """Logarithms found, shape (numbers,), with their loss, standard errors and the effect of 10% of each on the rows."""

    at: Floats
    loss: float
    error: Floats  # standard error of each logarithm; inf where nothing tells it
    effect: Floats  # mean absolute change of a row's logarithm when the number grows by 10%


def fit(residuals: Residuals, family: NDArray[np.int64], start: Floats, low: Floats, high: Floats, *, seed: int, steps: int,
        tick: Callable[[], None]) -> Fit:  # fmt: skip
    """Fit numbers given by their logarithms.

    Args:
        residuals: the model.
        family: of each row, shape (rows,).
        start: logarithms to start from, shape (numbers,); `low` and `high` bound them.
        seed: of the further starts.
        steps: most Gauss-Newton steps after the starts have been compared.
        tick: called after each step and trial; there are `ticks(steps)` at most.
    """
    rng = np.random.default_rng(seed)
    trials = [np.clip(start, low, high)]
    trials += [np.clip(start + rng.normal(0.0, _SPREAD, len(start)), low, high) for _ in range(_TRIALS - 1)]
    scored: list[tuple[float, int]] = []
    for trial in trials:
        scored.append((loss(residuals(trial), trial - start), len(scored)))
        tick()
    first = [trials[0], *(trials[index] for _, index in sorted(scored) if index)][:_STARTS]
    bounds = (low, high)
    scouts = [descend(residuals, at, start, bounds, _SCOUTING, tick) for at in first]
    found = descend(residuals, min(scouts, key=lambda pair: pair[1])[0], start, bounds, steps, tick)
    return Fit(*found, *confidence(residuals, found[0], family, bounds))


def ticks(steps: int) -> int:
    """Most calls of `tick` in one fit."""
    return _TRIALS + _STARTS * _SCOUTING + steps


def loss(error: Floats, moved: Floats) -> float:
    """What a fit makes small: errors of the rows, and a little of how far the logarithms `moved` from their start."""
    robust = _LARGE * np.log1p(np.abs(error) / _LARGE)
    return float(np.mean(robust) + _TAIL * np.sqrt(np.mean(error**2)) + _PRIOR * np.sum(moved**2))


def weights(error: Floats) -> Floats:
    """Weights that make squares of errors pull as `loss` does, shape (rows,)."""
    size = np.abs(error)
    return np.asarray(_LARGE / (_LARGE + size) / np.maximum(size, _SMALLEST))


def jacobian(residuals: Residuals, at: Floats, error: Floats, bounds: tuple[Floats, Floats]) -> Floats:
    """Derivatives, shape (rows, numbers)."""
    low, high = bounds
    columns = np.empty((len(error), len(at)))
    for j in range(len(at)):
        step = _DIFFERENCE if at[j] + _DIFFERENCE <= high[j] else -_DIFFERENCE
        moved = at.copy()
        moved[j] = max(at[j] + step, low[j])
        columns[:, j] = (residuals(moved) - error) / (moved[j] - at[j]) if moved[j] != at[j] else 0.0
    return columns


def descend(residuals: Residuals, at: Floats, prior: Floats, bounds: tuple[Floats, Floats], steps: int,
            tick: Callable[[], None]) -> tuple[Floats, float]:  # fmt: skip
    """Damped Gauss-Newton steps from `at`: the place found and its loss. `prior` is where numbers are drawn to."""
    error = residuals(at)
    best, damping = loss(error, at - prior), 0.1
    pull = 2.0 * _PRIOR * len(error)
    for _ in range(steps):
        slope = jacobian(residuals, at, error, bounds)
        weight = weights(error)
        square = slope.T @ (weight[:, None] * slope) + pull * np.eye(len(at))
        down = slope.T @ (weight * error) + pull * (at - prior)
        before = best
        for _ in range(6):
            scale = np.diag(np.diag(square) + 1e-6 * np.trace(square) + 1e-12)
            step = np.clip(-np.linalg.solve(square + damping * scale, down), -_LONGEST, _LONGEST)
            there = np.clip(at + step, *bounds)
            trial = residuals(there)
            if (reached := loss(trial, there - prior)) < best:
                at, error, best, damping = there, trial, reached, max(damping / 5.0, 1e-3)
                break
            damping = min(damping * 5.0, 1e6)
        tick()
        if before - best < 1e-5:
            break
    return at, best


def confidence(residuals: Residuals, at: Floats, family: NDArray[np.int64],
               bounds: tuple[Floats, Floats]) -> tuple[Floats, Floats]:  # fmt: skip
    """Standard error of each logarithm (sandwich over families) and effect of 10% of each number, shape (numbers,)."""
    error = residuals(at)
    slope = jacobian(residuals, at, error, bounds)
    effect = np.mean(np.abs(slope), axis=0) * np.log(1.1)
    told = np.flatnonzero(effect > 0.0)
    found = np.full(len(at), np.inf)
    if len(told):
        weight = weights(error)
        pull = slope[:, told] * (weight * error)[:, None]
        group = np.unique(family, return_inverse=True)[1]
        sums = np.stack([np.bincount(group, column) for column in pull.T], axis=1)
        square = slope[:, told].T @ (weight[:, None] * slope[:, told])
        inverse = np.linalg.pinv(square, rcond=1e-12)
        found[told] = np.sqrt(np.diag(inverse @ (sums.T @ sums) @ inverse))
    return found, effect
