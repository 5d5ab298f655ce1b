"""Event-driven cores: cycles of products C[m,n] = A[m,k] B[k,n] whose zero inputs cause nothing.

The outputs (neurons) are spread evenly over the cores, which hold their weights. In each of the time steps of an input

    events = (1 - sparsity) x k x count                              each of which a core multiplies by its neurons' weights
    step   = max(events of one product x ceil(n x count / cores) / rate, events / network rate)

and the m inputs follow one another. Events are counted as their mean: a core with more of them than another is ignored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel

Floats = NDArray[np.float64]

#: columns of the result of `event_cycles`
SYNAPSE_CYCLES, NETWORK_CYCLES, SYNAPSE_OPS, EVENTS, STEPS = 0, 1, 2, 3, 4
COLUMNS = 5


class Cores(NamedTuple):
    """Alike cores and the coding of their inputs."""

    cores: float
    time_steps: float
    active: float  # share of inputs that cause an event in a time step
    event_per_cycle: float  # of the network


@kernel
def event_cycles(shape: Floats, synapse_op_per_cycle: Floats, cores: Cores) -> Floats:
    """Cycles and events of batches of products.

    Args:
        shape: m, n, k and count, shape (rows, 4); a fractional m is rounded up, a fractional count is an expected number.
        synapse_op_per_cycle: of one core in the number format of each row, shape (rows,).
        cores: the cores.

    Returns:
        shape (rows, COLUMNS): SYNAPSE_CYCLES of the busiest core and NETWORK_CYCLES [cycles]; SYNAPSE_OPS, EVENTS and STEPS
        of the whole row.
    """
    result = np.zeros((len(shape), COLUMNS))
    for i in range(len(shape)):
        m, n, k, count = shape[i]
        steps = np.ceil(m) * cores.time_steps
        fan_in = cores.active * k
        result[i, SYNAPSE_CYCLES] = steps * fan_in * np.ceil(n * count / cores.cores) / synapse_op_per_cycle[i]
        result[i, NETWORK_CYCLES] = steps * fan_in * count / cores.event_per_cycle
        result[i, SYNAPSE_OPS] = m * cores.time_steps * fan_in * n * count
        result[i, EVENTS] = m * cores.time_steps * fan_in * count
        result[i, STEPS] = steps
    return result
