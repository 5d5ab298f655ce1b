"""Neuromorphic units: the numbers of event-driven cores. Behaviour is in `components/neuromorphic.py`."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from archmodel.spec.capabilities import HELD_WEIGHTS
from archmodel.spec.fields import by_format, names, number, text


@attrs.frozen(kw_only=True)
class NeuromorphicSpec:
    """Event-driven cores that hold all their weights: an input that is zero causes no event, no operation and no energy.

    How many inputs are zero is a property of this unit's coding (threshold, differences, spikes) of a model trained for it,
    which is why it stands here; a dense unit beside it multiplies by zeros as by other numbers. Say in `source` of which
    model it was measured.
    """

    cores: int = number("cores", above=0, at_most=1e7)
    clock_ghz: float = number("clock of the cores", above=0, at_most=20)
    synapse_op_per_core_per_cycle: Mapping[str, float] = by_format("synaptic operations by number format")
    synapse_energy_pj: Mapping[str, float] = by_format("energy of one such operation by format, its weight's fetch included")
    sparsity_fraction: float = number("share of inputs that are zero in a time step and cause no event", at_least=0, at_most=1)
    core_weight_kib: float = number("weights that one core holds", above=0)
    vector_op_per_cycle: float = number("vector operations of all cores, neuron updates among them", above=0)
    buffer: str = text("SRAM block that holds activations between operations", required=True)
    memory: str = text("memory block of what is no weight", required=True)
    source: str = text("where the numbers come from", required=True)
    time_steps: int = number("steps in which an input is sent: 1 with graded events, more where a rate codes it", above=0,
                             at_most=65536, default=1)  # fmt: skip
    step_overhead_us: float = number("synchronising the cores, once a time step", at_least=0, default=0.0)
    neuron_flop: float = number("vector operations of one neuron's update in a time step", at_least=0, default=2.0)
    event_per_cycle: float = number("events that the network delivers, each to every core that needs it", above=0)
    event_energy_pj: float = number("delivering one event", at_least=0, default=0.0)
    command_cycles: float = number("starting an operation", at_least=0, default=0.0)
    buffer_share: float = number("part of the buffer that is this unit's", above=0, at_most=1, default=1.0)
    capabilities: tuple[str, ...] = names(
        "what it can run", *HELD_WEIGHTS, default=("matmul", "activation", "quantise", "convert")
    )
    layout: str = text("how it lays activations out in memory", default="row_major")
    vector_energy_pj_per_flop: float = number("vector operation", at_least=0, default=0.5)
    operand_energy_pj_per_bit: float = number("buffer to cores: wires", at_least=0, default=0.1)
    static_power_w: float = number("leakage and clocks while powered", at_least=0, default=0.0)
