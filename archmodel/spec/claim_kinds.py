"""The kinds of claims: the name that a file uses, and the figures that a claim of the kind rests on."""

from __future__ import annotations

import attrs

from archmodel.spec.claim_energies import BreakEven, Efficiency, EfficiencyBaseline, EnergyFloor, GainAlgebra, Sparsity
from archmodel.spec.claim_rates import (
    AggregateBandwidth,
    Capacity,
    ComputeRate,
    Concurrency,
    Figures,
    LatencyFloor,
    MemoryRate,
    MemoryTechnology,
    Multiple,
    PeakIdentity,
    PrefillLatency,
    Reuse,
)
from archmodel.spec.claim_splits import (
    FormatSpeedup,
    GraphCrossings,
    LayoutGrowth,
    LinkTransfer,
    OutputTail,
    ScheduleBounds,
    SplitSync,
    TokenFlips,
    UnevenLengths,
)


@attrs.frozen(kw_only=True)
class Evaluation(Figures):
    """A claim that arithmetic does not settle: only its runs of the model judge it."""


#: kind of a claim, as a file names it -> the figures that it rests on
KINDS: dict[str, type[Figures]] = {
    "peak_identity": PeakIdentity,
    "compute_rate": ComputeRate,
    "prefill_latency": PrefillLatency,
    "memory_rate": MemoryRate,
    "latency_floor": LatencyFloor,
    "concurrency": Concurrency,
    "multiple": Multiple,
    "capacity": Capacity,
    "memory_technology": MemoryTechnology,
    "reuse": Reuse,
    "aggregate_bandwidth": AggregateBandwidth,
    "efficiency": Efficiency,
    "energy_floor": EnergyFloor,
    "efficiency_baseline": EfficiencyBaseline,
    "gain_algebra": GainAlgebra,
    "sparsity": Sparsity,
    "break_even": BreakEven,
    "format_speedup": FormatSpeedup,
    "link_transfer": LinkTransfer,
    "output_tail": OutputTail,
    "graph_crossings": GraphCrossings,
    "split_sync": SplitSync,
    "layout_growth": LayoutGrowth,
    "token_flips": TokenFlips,
    "uneven_lengths": UnevenLengths,
    "schedule_bounds": ScheduleBounds,
    "evaluation": Evaluation,
}
