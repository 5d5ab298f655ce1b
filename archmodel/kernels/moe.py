"""Mixture of experts: how routing spreads tokens over experts, and products in groups, one for each expert, in one kernel.

A token picks `chosen` of `experts` experts, which `ranks` devices divide evenly. What a kernel sees is the load of each
expert: padding to whole tiles and the weights that must come from memory follow from it. Figures are those of the busiest
rank, for which the others wait.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import kernel
from archmodel.kernels.matmul import (
    A_BYTE,
    B_BYTE,
    BUFFER,
    BUFFER_READ,
    BUFFER_WRITE,
    C_BYTE,
    COLUMNS,
    DEQUANTISED,
    DURATION,
    FEED,
    FIXED,
    K_STEP,
    MATRIX,
    MEMORY,
    SPLIT,
    TILE_M,
    TILE_N,
    VECTOR,
    Cores,
    fits,
    join,
    memory_traffic,
    sustained_cycles,
)

Floats = NDArray[np.float64]
Scalars = tuple[float, ...]

#: routing: choices in turn, so that loads differ by one at most; independent uniform choices; above 0: power law exponents
BALANCED, UNIFORM = -1.0, 0.0

#: rows of tiles below the candidates of plain products: those of the matrix instruction and twice that (PTX mma m16n8k16;
#: where the instruction's rows are 64, operands are swapped)
SMALL_EDGES = (16.0, 32.0)

#: columns of a routing and of the loads that follow from it; tiles for each edge come after those two
TOKENS, EXPERTS, CHOSEN, RANKS, EXPONENT, MASKED = range(6)
TOUCHED, ROUTED = range(2)

#: busiest over rarest expert of a power law: this share of the tokens, and where there are fewer choices than experts this
#: ratio (collector of aiconfigurator 0.12.0, whose benchmark the exponent is named in)
LARGEST_LOAD = 0.8
FEW_SPREAD = 200.0
#: random divisions of the experts over ranks that are averaged
DIVISIONS = 16


@kernel
def popularity(tokens: float, experts: int, chosen: float, exponent: float) -> Floats:
    """Probability in [0, 1] that a token picks each expert, descending, shape (experts,); they add up to `chosen`.

    Mid-quantiles of a density x^-exponent; what exceeds certainty goes to the others.
    """
    spread = max(1.0, LARGEST_LOAD * tokens if tokens * chosen > experts else FEW_SPREAD)
    share = np.ones(experts)
    power = 1.0 - exponent
    for i in range(experts):
        u = 1.0 - (i + 0.5) / experts
        if exponent > 0.0:
            share[i] = spread**u if abs(power) < 1e-9 else (1.0 + u * (spread**power - 1.0)) ** (1.0 / power)
    certain, rest = 0, share.sum()
    while certain < experts and share[certain] * (chosen - certain) >= rest:
        rest -= share[certain]
        share[certain] = 1.0
        certain += 1
    if certain < experts:
        share[certain:] *= (chosen - certain) / max(rest, 1e-300)
    return share


@kernel
def expert_tiles(load: float, touched: float, edge: float) -> float:
    """Expected tiles of `edge` rows of an expert with `load` expected rows, used at all with probability `touched`.

    The last tile of an expert with many is half full on average; one that is used has at least one.
    """
    return float(max(touched, load / edge + 0.5 * touched)) if touched > 0.0 else 0.0


@kernel
def draw(state: int) -> int:
    """Next state of a 31-bit linear congruential generator; its upper bits serve as random numbers."""
    return (state * 1103515245 + 12345) % 2147483648


@kernel
def add_busiest(load: Floats, ranks: int, edges: Floats, state: int, out: Floats) -> int:
    """Divide the experts over `ranks` by chance and add the loads of the busiest to `out`; returns the generator's state.

    An expected `load` is rounded up or down by chance, so that experts without a token and with several both occur.
    """
    here = np.empty(len(load))
    for i in range(len(load)):  # inside-out shuffle
        state = draw(state)
        j = (state >> 8) % (i + 1)
        state = draw(state)
        here[i] = here[j]
        here[j] = np.floor(load[i] + (state >> 8) / 8388608.0)
    size = len(load) // ranks
    first = 0
    for rank in range(1, ranks):
        if here[rank * size : (rank + 1) * size].sum() > here[first : first + size].sum():
            first = rank * size
    for i in range(first, first + size):
        out[TOUCHED] += here[i] > 0.0
        out[ROUTED] += here[i]
        for e in range(len(edges)):
            out[2 + e] += ceil(here[i] / edges[e])
    return state


@kernel
def skewed(routing: Floats, edges: Floats, out: Floats) -> None:
    """Fill `out` (2 + edges,): expected loads of all experts, or of a rank: any one if choices are uniform, else the busiest.

    Independent uniform choices leave some experts without a token; loads that follow a power law are what they are.
    """
    tokens, experts, ranks = routing[TOKENS], int(routing[EXPERTS]), int(routing[RANKS])
    load = tokens * popularity(tokens, experts, routing[CHOSEN], routing[EXPONENT])
    out[:] = 0.0
    if ranks > 1 and routing[EXPONENT] > 0.0:
        state = 1
        for _ in range(DIVISIONS):
            state = add_busiest(load, ranks, edges, state, out)
        out /= DIVISIONS
        return
    for i in range(experts):
        touched = min(1.0, load[i]) if routing[EXPONENT] > 0.0 else 1.0 - (1.0 - load[i] / tokens) ** tokens
        out[TOUCHED] += touched / ranks
        out[ROUTED] += load[i] / ranks
        for e in range(len(edges)):
            out[2 + e] += expert_tiles(load[i], touched, edges[e]) / ranks


@kernel
def balanced(routing: Floats, edges: Floats, out: Floats) -> None:
    """Fill `out` (2 + edges,) where experts are picked in turn."""
    mine, load = routing[EXPERTS] / routing[RANKS], routing[TOKENS] * routing[CHOSEN] / routing[EXPERTS]
    touched = min(mine, ceil(mine * min(1.0, load)))
    out[TOUCHED], out[ROUTED] = touched, max(touched, mine * load)
    for e in range(len(edges)):
        out[2 + e] = touched * ceil(out[ROUTED] / touched / edges[e])


@kernel
def expert_loads(routing: Floats, edges: Floats) -> Floats:
    """Loads of the busiest rank, one row each.

    Args:
        routing: (rows, 6): tokens of all ranks, experts of all ranks, experts that a token picks, ranks, which divide the
            experts, BALANCED, UNIFORM or the exponent of a power law, and 1 where a rank also multiplies the picks of experts
            elsewhere of the tokens that it has, by one further expert (MASKED; SGLang does), else 0.
        edges: rows of a tile for which tiles are counted, shape (edges,).

    Returns:
        (rows, 2 + edges): expected experts that get a token (TOUCHED), rows that they get (ROUTED), and for each edge the
        tiles that these rows fill, each expert's last one padded. Rows without tokens or experts are all zero.
    """
    result = np.zeros((len(routing), 2 + len(edges)))
    for row in range(len(routing)):
        tokens, experts, chosen, ranks = routing[row, : RANKS + 1]
        if tokens * experts * chosen <= 0.0:
            continue
        if routing[row, EXPONENT] >= 0.0:
            skewed(routing[row], edges, result[row])
        else:
            balanced(routing[row], edges, result[row])
        elsewhere = min(tokens, result[row, ROUTED]) * min(chosen, experts / ranks) - result[row, ROUTED]
        if routing[row, MASKED] > 0.0 and ranks > 1.0 and elsewhere > 0.0:
            result[row, TOUCHED] += 1.0
            result[row, ROUTED] += elsewhere
            for e in range(len(edges)):
                result[row, 2 + e] += ceil(elsewhere / edges[e])
    return result


@kernel
def time_group(core: Cores, shape: Floats, width: Floats, plan: Scalars, out: Floats) -> None:
    """Fill `out` (COLUMNS,) for one `plan` = (tile_m, tile_n, tiles of tile_m rows, memory bytes a cycle, reuse, rate)."""
    rows, n, k, experts = shape
    input_byte, weight_byte, output_byte, compute_byte = width
    tile_m, tile_n, down, bandwidth, reuse_byte, rate = plan
    a_byte, b_byte, c_byte = rows * k * input_byte, n * k * weight_byte * experts, rows * n * output_byte
    across, depth = ceil(n / tile_n), ceil(k / K_STEP) * K_STEP
    tiles = down * across
    waves, active = max(1.0, ceil(tiles / core.cores)), min(max(tiles, 1.0), core.cores)
    used_m = min(rows / down, tile_m)  # of an average tile; the rest is padding that is computed but not fetched
    out[MATRIX] = sustained_cycles(core, waves * tile_m * tile_n * depth / (rate * core.matrix_efficiency))
    dequantised = min(n, tile_n) * depth if weight_byte < compute_byte else 0.0
    out[VECTOR] = waves * dequantised * core.dequantise_flop / core.vector_flop
    out[FEED] = waves * (used_m * input_byte + min(n, tile_n) * weight_byte) * depth / core.feed_byte
    fetched = (a_byte * across + b_byte * down / experts) / core.multicast
    out[BUFFER] = (fetched + c_byte) / core.cache_byte_per_cycle
    resident = max(1.0, active / experts)
    size = (rows / experts, n, a_byte / experts, b_byte / experts, c_byte / experts, a_byte + c_byte)
    a_each, b_each, c_each = memory_traffic(core, size, (tile_m, tile_n), resident, reuse_byte)
    a_traffic, b_traffic, c_traffic = a_each * experts, b_each * experts, c_each * experts
    out[MEMORY] = (a_traffic + b_traffic + c_traffic) / min(bandwidth, active * core.stream_byte)
    drain = used_m * min(n, tile_n) * output_byte / core.feed_byte
    start = core.latency + core.floor + core.ramp + drain
    out[FIXED] = start + (waves - 1.0) * (core.ramp + drain)
    out[DURATION] = join(core, out, start, np.inf)
    out[A_BYTE], out[B_BYTE], out[C_BYTE] = a_traffic, b_traffic, c_traffic
    out[BUFFER_READ], out[BUFFER_WRITE] = fetched + c_traffic, c_byte + a_traffic + b_traffic
    out[DEQUANTISED] = tiles * dequantised
    out[TILE_M], out[TILE_N], out[SPLIT] = tile_m, tile_n, 1.0


@kernel
def grouped_matmul(core: Cores, shape: Floats, width: Floats, speed: Floats, loads: Floats, edges: Floats) -> Floats:
    """Time and traffic of products in groups: each expert multiplies the rows routed to it by its own weights.

    One persistent kernel walks over the tiles of all experts, so that waves are shared and only the last tile of each expert
    is padded. Parts of k are not split: the experts fill the cores.

    Args:
        core: the unit; see `Cores`.
        shape: (rows, 2): n and k of one expert.
        width: (rows, 4): bytes an element [B] of A, of B as stored, of C, and of the format computed in.
        speed: (rows, 3): multiply-accumulates of one core a cycle, memory [B/cycle], and bytes [B] touched between two uses
            of the weights; see `matmul.matmul`.
        loads: of `expert_loads` for `edges`.
        edges: candidate rows of a tile; its columns are those of `core.tile_sizes`.

    Returns:
        (rows, COLUMNS) as of `matmul.matmul`. Rows without work are all zero.
    """
    result = np.zeros((len(shape), COLUMNS))
    trial, problem = np.zeros(COLUMNS), np.zeros(4)
    for row in range(len(shape)):
        problem[0], problem[1], problem[2], problem[3] = loads[row, ROUTED], shape[row, 0], shape[row, 1], loads[row, TOUCHED]
        if problem.prod() <= 0.0:
            continue
        best, smallest = np.inf, core.tile_sizes[0]
        for i in range(len(edges)):
            for tile_n in core.tile_sizes:
                tile_m = edges[i]
                if not fits(core, tile_m, tile_n, width[row]) or (tile_n >= 2.0 * problem[1] and tile_n > smallest):
                    continue
                plan = (tile_m, tile_n, loads[row, 2 + i], speed[row, 1], speed[row, 2], speed[row, 0])
                time_group(core, problem, width[row], plan, trial)
                if trial[DURATION] < best:
                    best = trial[DURATION]
                    result[row] = trial
    return result
