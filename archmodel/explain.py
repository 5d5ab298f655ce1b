"""The arithmetic behind a result: formulas with their numbers, each of which evaluates to the value beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from archmodel import sizes
from archmodel.components.units import matrix_rates, matrix_units
from archmodel.costs import LIMITS
from archmodel.operations import Kind
from archmodel.result import Result, StepResult
from archmodel.spec.chip import NeuromorphicSpec
from archmodel.spec.model import AttentionSpec, LatentAttentionSpec
from archmodel.units import BITS, FORMATS, element_bytes, si

_OPERATIONS = 6


@attrs.frozen
class Formula:
    """`name` = `symbols` = `expression` = `value` `unit`. The expression holds numbers only."""

    name: str
    symbols: str
    expression: str
    value: float
    unit: str


@attrs.frozen
class Topic:
    """Formulas that belong together, with a remark on what else bears on them."""

    title: str
    formulas: tuple[Formula, ...]
    remark: str = ""


def explanation(result: Result) -> list[Topic]:
    """Formulas of the run as a whole, then of the operations that cost most."""
    return [_run(result), _peaks(result), _weights(result), *_cache(result), *_operations(result)]


def plain(value: float) -> str:
    """A number as it stands in a formula: whole numbers in full, others to ten digits."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.10g}"


def _product(factors: Sequence[float]) -> str:
    return " * ".join(plain(factor) for factor in factors)


def _formula(name: str, value: float, unit: str, symbols: str, expression: str) -> Formula:
    return Formula(name, symbols, expression, float(value), unit)


def _run(result: Result) -> Topic:
    request = result.workload.request
    tokens = request.output_tokens or request.input_tokens
    total, energy = plain(result.total_s), plain(result.total_j)
    made = [
        _formula("total time", result.total_s, "s", "first step + further steps",
                 f"{plain(result.first.total_s)} + {plain(result.decode_s)}"),
        _formula("throughput", result.tokens / result.total_s, "tokens/s", "batch * tokens / total time",
                 f"{request.batch} * {tokens} / {total}"),
        _formula("power", result.power_w, "W", "energy / total time", f"{energy} / {total}"),
        _formula("efficiency", result.tokens_per_joule, "tokens/J", "batch * tokens / energy",
                 f"{request.batch} * {tokens} / {energy}"),
    ]  # fmt: skip
    if result.time_per_output_token_s is not None:
        made.insert(1, _formula("time per output token", result.time_per_output_token_s, "s",
                                "further steps / (output tokens - 1)",
                                f"{plain(result.decode_s)} / ({request.output_tokens} - 1)"))  # fmt: skip
    counted = "tokens are those put out" if request.output_tokens else "tokens are those read: an encoder puts out none"
    return Topic("The run", tuple(made), counted)


def _peaks(result: Result) -> Topic:
    made = []
    for name, unit in result.soc.units.items():
        for fmt, rate in matrix_rates(unit).items():
            value = result.soc.peaks_per_s()[name][fmt]
            made.append(_formula(f"{name} {fmt}", value, "OP/s" if fmt.startswith("int") else "FLOP/s",
                                 "units * MACs per clock * 2 * clock",
                                 _product([matrix_units(unit), rate, 2, unit.clock_ghz * 1e9])))  # fmt: skip
    return Topic("Peaks", tuple(made), "one MAC is two operations")


def _weights(result: Result) -> Topic:
    """Bytes of the stored weights, by number format."""
    model = result.workload.model
    stored = sizes.stored_elements(model, result.precision)
    symbols = " + ".join(f"{fmt} elements * {plain(BITS[fmt] / 8)} B" for fmt in stored)
    expression = " + ".join(_product([elements, BITS[fmt] / 8]) for fmt, elements in stored.items())
    value = sizes.weight_bytes(model, result.precision)
    return Topic("Weights", (_formula("weights", value, "B", symbols, expression),), "embedding included, wherever it lies")


def _cache(result: Result) -> list[Topic]:
    """Bytes of the KV cache at the end of the run: a term for each kind of layer."""
    model, request, fmt = result.workload.model, result.workload.request, result.precision.kv_cache
    if model.family == "encoder":
        return []
    tokens = request.output_tokens + (request.input_tokens if model.family == "decoder" else 0)
    policy = result.chip.placement.window_policy
    terms, symbols = [], []
    for number, kind in enumerate(model.kinds):
        layers, mixer = model.order.count(number), kind.mixer
        if not layers or not isinstance(mixer, AttentionSpec | LatentAttentionSpec):
            continue
        window = getattr(mixer, "window_tokens", 0) if policy == "capped" else 0
        held = min(tokens, window) if window else tokens
        if isinstance(mixer, AttentionSpec):
            symbols.append("batch * layers * 2 * KV heads * head dim * tokens * B")
            terms.append(_product([request.batch, layers, 2, mixer.kv_heads, mixer.head_dim, held, element_bytes(fmt)]))
        else:
            symbols.append("batch * layers * (latent + rotary key) * tokens * B")
            terms.append(f"{request.batch} * {layers} * ({mixer.kv_lora_rank} + {mixer.qk_rope_head_dim}) * "
                         f"{_product([held, element_bytes(fmt)])}")  # fmt: skip
    if not terms:
        return []
    value = sizes.kv_cache_bytes(model, fmt, tokens, request.batch, policy)
    return [
        Topic(
            "KV cache when the last token is out", (_formula("KV cache", value, "B", " + ".join(symbols), " + ".join(terms)),)
        )
    ]


def _operations(result: Result) -> Iterator[Topic]:
    """The operations that take most time over the whole run, shown in the first step or a representative one."""
    rows, table = result.table.rows, result.table
    shown = [result.first, *([max(result.steps[1:], key=lambda s: s.weight)] if len(result.steps) > 1 else [])]
    cost: dict[tuple[str, int, str], float] = {}
    for step in result.steps:
        seconds = step.weight * step.count * table.timeline.duration_s
        for row in np.flatnonzero((seconds > 0) & (rows.kind >= 0)).tolist():
            key = (rows.name[row], int(table.owner[row]), step.step.phase)
            cost[key] = cost.get(key, 0.0) + float(seconds[row])
    for name, owner, phase in sorted(cost, key=lambda key: -cost[key])[:_OPERATIONS]:
        step = next(step for step in shown if step.step.phase == phase)
        found = [r for r in np.flatnonzero(step.count > 0).tolist() if rows.name[r] == name and table.owner[r] == owner]
        if found:
            yield _operation(result, step, found[0], cost[name, owner, phase])


def _operation(result: Result, step: StepResult, row: int, seconds: float) -> Topic:
    table = result.table
    unit = result.soc.resources[table.owner[row]]
    kinds = {Kind.MATMUL: _matmul, Kind.ATTENTION: _attention}
    formulas = [*kinds.get(Kind(int(table.rows.kind[row])), _vector)(result, row), *_speed(result, unit, row)]
    limits = table.costs.limits_s[row]
    words = ", ".join(f"{name} {si(float(limits[i]), 's')}" for i, name in enumerate(LIMITS) if limits[i] > 0.0)
    title = (f"{table.rows.name[row]} on {unit} in {step.step.label}: {step.count[row]:.0f} times in the step, "
             f"{100.0 * seconds / result.total_s:.1f} % of the run")  # fmt: skip
    bound = LIMITS[int(table.costs.bound[row])]
    return Topic(title, tuple(formulas), f"takes {si(float(table.costs.duration_s[row]), 's')}, bound by {bound}; under each "
                                         f"limit alone: {words}")  # fmt: skip


def _matmul(result: Result, row: int) -> Iterator[Formula]:
    rows, costs = result.table.rows, result.table.costs
    count, m, n, k, byte = (float(getattr(rows, name)[row]) for name in ("count", "m", "n", "k", "weight_byte"))
    unit = result.soc.units[result.soc.resources[result.table.owner[row]]]
    symbols, factors = "2 * count * m * n * k", [2, count, m, n, k]
    if isinstance(unit, NeuromorphicSpec):
        symbols, factors = f"{symbols} * time steps * share not zero", [*factors, unit.time_steps, 1.0 - unit.sparsity_fraction]
    yield _formula("operations", 2 * costs.mac[row], "OP", symbols, _product(factors))
    once = count * n * k * byte
    times = float(costs.weight_traffic_byte[row]) / once if once else 0.0
    yield _formula("weights read", costs.weight_traffic_byte[row], "B", "count * n * k * B an element * times",
                   _product([count, n, k, byte, times]))  # fmt: skip


def _attention(result: Result, row: int) -> Iterator[Formula]:
    rows, costs = result.table.rows, result.table.costs
    sequences, heads, kv_heads, q, kv, qk, v, window, byte = (
        float(getattr(rows, name)[row])
        for name in ("sequences", "heads", "kv_heads", "q_tokens", "kv_tokens", "qk_dim", "v_dim", "window", "kv_byte")
    )
    symbols, pairs = _pairs(q, kv - q, window, bool(rows.causal[row]))
    value = sizes.attended_pairs(int(q), int(kv - q), int(window), bool(rows.causal[row]))
    yield _formula("pairs", value, "pairs", symbols, pairs)
    yield _formula("operations", 2 * costs.mac[row], "OP", "2 * sequences * heads * pairs * (QK dim + V dim)",
                   f"{_product([2, sequences, heads, value])} * ({plain(qk)} + {plain(v)})")  # fmt: skip
    width = f"{plain(qk)}" if rows.latent[row] else f"({plain(qk)} + {plain(v)})"
    element = sequences * kv_heads * (qk if rows.latent[row] else qk + v) * byte
    held = "latent" if rows.latent[row] else "(K dim + V dim)"
    new = float(rows.cached[row]) * q
    read = float(costs.kv_traffic_byte[row]) / element - new
    yield _formula("KV cache moved", costs.kv_traffic_byte[row], "B",
                   f"sequences * KV heads * {held} * B an element * (tokens read + tokens written)",
                   f"{_product([sequences, kv_heads])} * {width} * {plain(byte)} * ({plain(read)} + {plain(new)})")  # fmt: skip


def _pairs(q: float, context: float, window: float, causal: bool) -> tuple[str, str]:
    """Pairs of query and key of one sequence and head: symbols and expression."""
    last = q + context
    if not causal:
        return "queries * keys", _product([q, last])
    short = min(last, window) if window else last
    if context > short:
        return "queries * window", _product([q, window])
    symbols = "short * (short + 1) / 2 - context * (context + 1) / 2"
    triangle = f"{plain(short)} * ({plain(short)} + 1) / 2 - {plain(context)} * ({plain(context)} + 1) / 2"
    if last == short:
        return symbols.replace("short", "keys"), triangle
    return f"{symbols} + (keys - short) * window", f"{triangle} + ({plain(last)} - {plain(short)}) * {plain(window)}"


def _vector(result: Result, row: int) -> Iterator[Formula]:
    rows, costs = result.table.rows, result.table.costs
    yield _formula("operations", costs.vector_flop[row], "FLOP", "arithmetic + exponentials",
                   f"{plain(float(rows.flop[row]))} + {plain(float(costs.vector_flop[row] - rows.flop[row]))}")  # fmt: skip


def _speed(result: Result, unit: str, row: int) -> Iterator[Formula]:
    """Time at the matrix peak and at the bandwidth of the memory, which no model can beat, and the share of the peak."""
    rows, costs, soc = result.table.rows, result.table.costs, result.soc
    kind = int(rows.kind[row])
    tiers = {Kind.MATMUL: soc.home(unit, "weights"), Kind.ATTENTION: soc.home(unit, "kv_cache")}
    tier = tiers.get(Kind(kind), soc.units[unit].memory)
    byte, speed = float(costs.memory_byte[row]), soc.path_byte_per_s(unit, tier)
    yield _formula("memory traffic", byte, "B", "weights + KV cache + activations",
                   " + ".join(plain(float(part[row])) for part in (costs.weight_traffic_byte, costs.kv_traffic_byte,
                                                                  costs.activation_traffic_byte)))  # fmt: skip
    yield _formula(f"time at {tier} bandwidth", byte / speed, "s", "memory traffic / achievable bandwidth",
                   f"{plain(byte)} / {plain(speed)}")  # fmt: skip
    if costs.mac[row] > 0:
        fmt = FORMATS[rows.compute_format[row]]
        peak, work = soc.peaks_per_s()[unit][fmt], 2.0 * float(costs.mac[row])
        yield _formula(f"time at {fmt} peak", work / peak, "s", "operations / peak", f"{plain(work)} / {plain(peak)}")
        yield _formula("share of the peak", costs.utilisation[row], "1", "operations / (time * peak)",
                       f"{plain(work)} / ({plain(float(costs.duration_s[row]))} * {plain(peak)})")  # fmt: skip
