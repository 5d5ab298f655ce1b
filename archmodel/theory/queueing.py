"""Queues with one server: textbook means and tails, and Little's law."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def _spare_per_s(arrivals_per_s: float, services_per_s: float) -> float:
    """Rate left over [1/s]. Raises ValueError where the queue grows without end."""
    if arrivals_per_s >= services_per_s:
        raise ValueError("requests arrive as fast as they are served: the queue grows without end")
    return services_per_s - arrivals_per_s


def mm1_sojourn_s(arrivals_per_s: float, services_per_s: float) -> float:
    """Mean time [s] in an M/M/1 queue, service included."""
    return 1.0 / _spare_per_s(arrivals_per_s, services_per_s)


def mm1_sojourn_quantile_s(arrivals_per_s: float, services_per_s: float, quantile: float) -> float:
    """Quantile (0.99 for the 99th percentile) of the time [s] in an M/M/1 queue, which is exponential."""
    return -math.log1p(-quantile) / _spare_per_s(arrivals_per_s, services_per_s)


def md1_wait_s(arrivals_per_s: float, services_per_s: float) -> float:
    """Mean time [s] before service in an M/D/1 queue (Pollaczek-Khinchine with services of one length)."""
    load = arrivals_per_s / services_per_s
    return load / (2.0 * _spare_per_s(arrivals_per_s, services_per_s))


def md1_sojourn_s(arrivals_per_s: float, services_per_s: float) -> float:
    """Mean time [s] in an M/D/1 queue, service included."""
    return md1_wait_s(arrivals_per_s, services_per_s) + 1.0 / services_per_s


def mean_in_system(arrival_s: ArrayLike, departure_s: ArrayLike) -> float:
    """Mean number of requests present between the first arrival and the last departure, by a sweep over both.

    Little's law says that it is the throughput times the mean time in the system. Arrays of shape (requests,).
    """
    arrival, departure = np.asarray(arrival_s, dtype=np.float64), np.asarray(departure_s, dtype=np.float64)
    when = np.concatenate([arrival, departure])
    change = np.repeat([1.0, -1.0], [len(arrival), len(departure)])
    order = np.argsort(when, kind="stable")
    present = np.cumsum(change[order])
    return float(present[:-1] @ np.diff(when[order])) / float(when.max() - when.min())


def little_in_system(arrival_s: ArrayLike, departure_s: ArrayLike) -> float:
    """The same number by Little's law, L = lambda W, over a finished run."""
    arrival, departure = np.asarray(arrival_s, dtype=np.float64), np.asarray(departure_s, dtype=np.float64)
    throughput_per_s = len(arrival) / float(departure.max() - arrival.min())
    return throughput_per_s * float((departure - arrival).mean())
