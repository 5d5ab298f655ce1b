"""Event-driven cores: the closed form against counting every event of every time step, and laws."""

from __future__ import annotations

import numpy as np
import pytest

from archmodel.kernels.neuromorphic import EVENTS, NETWORK_CYCLES, STEPS, SYNAPSE_CYCLES, SYNAPSE_OPS, Cores, event_cycles


def closed(shape, rate=1.0, **cores):
    base = {"cores": 4.0, "time_steps": 1.0, "active": 1.0, "event_per_cycle": 1.0}
    return event_cycles(np.array([shape], dtype=np.float64), np.array([rate]), Cores(**{**base, **cores}))[0]


def counted(m, n, k, count, zero_of_ten, cores, time_steps, rate):
    """Every event, delivered to every core, which multiplies it by the weight of each of its neurons."""
    neurons = [0] * cores
    for neuron in range(n * count):
        neurons[neuron % cores] += 1
    synapse = events = operations = 0
    for _input in range(m):
        for _step in range(time_steps):
            active = [i for i in range(k) if i % 10 >= zero_of_ten]
            events += len(active) * count
            synapse += len(active) * max(neurons)
            operations += sum(len(active) * n for _problem in range(count))
    return synapse / rate, events, operations


@pytest.mark.parametrize("seed", range(60))
def test_closed_form_counts_every_event(seed):
    rng = np.random.default_rng(seed)
    m, n, count, cores, steps = (int(rng.integers(1, top)) for top in (6, 90, 4, 12, 5))
    k, zero, rate = 10 * int(rng.integers(1, 9)), int(rng.integers(0, 10)), float(rng.choice([0.5, 1, 3]))
    found = closed((m, n, k, count), rate, cores=float(cores), time_steps=float(steps), active=1.0 - zero / 10,
                   event_per_cycle=2.0)  # fmt: skip
    synapse, events, operations = counted(m, n, k, count, zero, cores, steps, rate)
    assert found[[SYNAPSE_CYCLES, EVENTS, SYNAPSE_OPS]] == pytest.approx([synapse, events, operations], rel=1e-9)
    assert found[NETWORK_CYCLES] == pytest.approx(events / 2.0, rel=1e-9)
    assert found[STEPS] == m * steps


def test_no_zero_is_the_dense_count_and_all_zero_is_no_work():
    dense = closed((3, 100, 70, 2))
    assert dense[SYNAPSE_OPS] == 3 * 100 * 70 * 2
    silent = closed((3, 100, 70, 2), active=0.0)
    assert silent[[SYNAPSE_CYCLES, NETWORK_CYCLES, SYNAPSE_OPS, EVENTS]].tolist() == [0.0] * 4
    assert silent[STEPS] == dense[STEPS]
    for share in (0.75, 0.5, 0.1):
        assert closed((3, 100, 70, 2), active=share)[SYNAPSE_OPS] == pytest.approx(share * dense[SYNAPSE_OPS], rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_more_is_never_slower_and_no_time_beats_the_peak(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.integers(1, top)) for top in (20, 3000, 3000, 5))
    cores, active = float(rng.integers(1, 200)), float(rng.uniform())
    before = closed(shape, 2.0, cores=cores, active=active)
    assert before[SYNAPSE_CYCLES] >= before[SYNAPSE_OPS] / (2.0 * cores) * (1 - 1e-12)
    assert closed(shape, 2.0, cores=2 * cores, active=active)[SYNAPSE_CYCLES] <= before[SYNAPSE_CYCLES]
    assert closed(shape, 4.0, cores=cores, active=active)[SYNAPSE_CYCLES] == before[SYNAPSE_CYCLES] / 2
    assert closed(shape, 2.0, cores=cores, active=active / 2)[SYNAPSE_CYCLES] <= before[SYNAPSE_CYCLES]
