"""Neuromorphic: event-driven cores that hold all weights, a network that delivers events, a buffer and vector lanes.

Only inputs that are not zero cause work: an event for each, a synaptic operation for each of its outputs. What does not shrink
with them are the neurons' updates, the synchronisation of the cores in every time step, and static power. Whether sparsity
pays against a dense unit is a question of `(1 - sparsity) x time steps x energy of a synaptic operation` against the energy
of a MAC with its operands' delivery; nothing here decides it.

Neurons of one operation lie spread over all cores; operations follow one another, so the network's pipelining of layers over
successive inputs is counted as work conserved and not as overlap of the synchronisation. Weights are never reloaded: a model
that does not fit is refused. Ignored: cores with more events than others, and the recording of events for learning.
"""

from __future__ import annotations

import attrs
import numpy as np

from archmodel.components import lanes
from archmodel.costs import Costs, Surroundings, empty_costs, place
from archmodel.errors import MappingError
from archmodel.kernels import neuromorphic as kernel
from archmodel.operations import Kind, Rows
from archmodel.spec.neuromorphic import NeuromorphicSpec
from archmodel.units import FORMATS, KIB


def costs(spec: NeuromorphicSpec, rows: Rows, around: Surroundings, *, resident: bool = True) -> Costs:
    """Costs of matrix products and vector operations on event-driven cores; `mac` counts synaptic operations.

    Args:
        spec: the unit.
        rows: operations, all placed on it.
        around: what it sees.
        resident: activations may stay in the buffer between rows.

    Raises:
        MappingError: attention or a scan, whose operands are no weights; a format that the cores do not have; weights that do
            not lie in the cores.
    """
    result = empty_costs(len(rows))
    held = np.broadcast_to(around.held_share, len(rows))
    for kind in np.unique(rows.kind):
        index = np.flatnonzero(rows.kind == kind)
        near = attrs.evolve(around, memory_byte_per_s=around.memory_byte_per_s[index])
        part = rows.take(index)
        if kind == Kind.VECTOR:
            place(result, index, lanes.vector(spec, part, near, resident))
            continue
        if kind != Kind.MATMUL:
            raise MappingError(f"neuromorphic: {part.name[0]} has no weights that could lie in cores")
        if np.any(held[index] < 1.0):
            raise MappingError(f"neuromorphic: the weights of {part.name[int(np.argmin(held[index]))]} do not lie in the cores")
        place(result, index, _matmul(spec, part, near, resident))
    return result


def capacity_byte(spec: NeuromorphicSpec) -> float:
    """Bytes of weights that all cores hold [B]."""
    return spec.cores * spec.core_weight_kib * KIB


def _matmul(spec: NeuromorphicSpec, rows: Rows, around: Surroundings, resident: bool) -> Costs:
    clock_hz = spec.clock_ghz * 1e9
    rate = np.array([spec.synapse_op_per_core_per_cycle.get(name, 0.0) for name in FORMATS])[rows.compute_format]
    if not np.all(rate):
        bad = int(np.argmin(rate))
        have = ", ".join(spec.synapse_op_per_core_per_cycle)
        raise MappingError(
            f"neuromorphic: {rows.name[bad]} computes in {FORMATS[rows.compute_format[bad]]}; this unit has {have}"
        )
    cores = kernel.Cores(
        cores=float(spec.cores), time_steps=float(spec.time_steps), active=1.0 - spec.sparsity_fraction,
        event_per_cycle=float(spec.event_per_cycle),
    )  # fmt: skip
    found = kernel.event_cycles(np.stack((rows.m, rows.n, rows.k, rows.count), axis=1), rate, cores)
    synapse_s, network_s = found[:, kernel.SYNAPSE_CYCLES] / clock_hz, found[:, kernel.NETWORK_CYCLES] / clock_hz
    a_byte, c_byte = rows.count * rows.m * rows.k * rows.input_byte, rows.count * rows.m * rows.n * rows.output_byte
    kept = resident & (a_byte + c_byte <= around.buffer_byte)
    loaded_byte, stored_byte = np.where(kept, 0.0, a_byte), np.where(kept, 0.0, c_byte)
    read_byte, filled_byte = a_byte + stored_byte, c_byte + loaded_byte
    buffer_s = (read_byte + filled_byte) / around.buffer_byte_per_s
    return lanes.finish(
        spec, around, synapse_s, np.maximum.reduce((synapse_s, network_s, buffer_s)),
        rows.count * rows.m * rows.n * spec.time_steps * spec.neuron_flop,
        exposed_byte=0.0, peak_per_s=rate * spec.cores * clock_hz, feed_s=network_s,
        waiting_s=found[:, kernel.STEPS] * spec.step_overhead_us * 1e-6,
        activation_traffic_byte=loaded_byte + stored_byte, written_byte=stored_byte,
        buffer_read_byte=read_byte, buffer_write_byte=filled_byte, mac=found[:, kernel.SYNAPSE_OPS],
        events=found[:, kernel.EVENTS],
    )  # fmt: skip
