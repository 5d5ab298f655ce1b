"""Operations with shapes and formats; knows no hardware.

`Rows` is a struct of arrays with one row per DISTINCT operation; alike layers share rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Kind(IntEnum):
    """What a row is, and so which columns of `Rows` it fills."""

    MATMUL = 0  # m, n, k, count
    ATTENTION = 1  # m = sequences, q_tokens ... v_dim
    SCAN = 2  # recurrent state update: elements, flop, exp and the state as kv_byte traffic
    VECTOR = 3  # elements, flop, exp, read_byte, write_byte
    EXPERTS = 5  # a mixture of experts in a table: several rows of the kinds above
    COLLECTIVE = 4  # between chips of a group: no unit runs it, and it fills no column


_COLUMNS: dict[str, Any] = {"kind": np.int64, "role": np.int64, "capability": np.int64, "compute_format": np.int64}


@attrs.frozen(eq=False, kw_only=True)
class Rows:
    """Distinct operations, one row each; all arrays have shape (rows,). Columns a kind does not use are 0.

    Matmul: `count` independent problems C[m,n] = A[m,k] B[k,n]; B is the weight operand, `weight_byte` bytes an element. Where
    `experts` > 0 the problems are experts, `m` is their mean load and the columns of the routing say how loads differ.
    Attention: `sequences` x `heads` queries of `q_tokens` tokens against `kv_tokens` cached ones, new ones included
    (`window` > 0 limits them); `kv_heads` share a load; `latent` = 1 reads one cached vector of `qk_dim` elements for
    both K and V (MLA, absorbed). Vector and scan: `flop` and `exp` in all; sampling: `sequences`.
    """

    name: tuple[str, ...]
    kind: Ints
    role: Ints  # index into spec.workload.ROLES
    capability: Ints  # index into spec.chip.CAPABILITIES
    compute_format: Ints  # index into units.FORMATS
    m: Floats
    n: Floats
    k: Floats
    count: Floats
    weight_byte: Floats  # [B/element] of B, scales included
    input_byte: Floats  # [B/element] of A, or of Q
    output_byte: Floats  # [B/element] of C
    whole_k: Floats  # 1: the library has no kernel that splits k
    routed_tokens: Floats  # of all ranks, for a product in groups: one group for each expert that gets a token
    experts: Floats  # that tokens choose from, on all ranks; 0: no groups
    chosen: Floats  # experts of a token
    ranks: Floats  # that divide the experts
    routing: Floats  # balanced, uniform or the exponent of a power law: see kernels/moe.py
    masked: Floats  # 1: picks of experts of other ranks are multiplied as well
    sequences: Floats
    q_tokens: Floats
    kv_tokens: Floats
    heads: Floats
    kv_heads: Floats
    qk_dim: Floats
    v_dim: Floats
    window: Floats
    causal: Floats  # 1 or 0
    latent: Floats  # 1 or 0
    kv_byte: Floats  # [B/element] of the cache; [B] of state read and written for a scan
    cached: Floats  # 1: keys and values of the new tokens are written to the cache
    materialised: Floats  # 1: scores go through memory (attention is not fused)
    flop: Floats
    exp: Floats
    read_byte: Floats  # [B] activations read
    write_byte: Floats  # [B] activations written
    fused: Floats  # 1: runs inside a neighbouring kernel: no traffic, no launch of its own

    def __len__(self) -> int:
        return len(self.name)

    def take(self, index: Ints) -> Rows:
        """Rows at `index`, shape (n,)."""
        columns = {f.name: getattr(self, f.name)[index] for f in attrs.fields(Rows) if f.name != "name"}
        return Rows(name=tuple(self.name[i] for i in index), **columns)


#: columns of the routing, in the order that kernels/moe.py takes them
ROUTING = ("routed_tokens", "experts", "chosen", "ranks", "routing", "masked")
NUMERIC = tuple(field.name for field in attrs.fields(Rows) if field.name != "name")


def rows_from(records: Sequence[dict[str, Any]]) -> Rows:
    """Rows from one dict an operation; what a dict does not name is 0, `count` is 1."""
    columns = {
        name: np.array(
            [record.get(name, 1.0 if name == "count" else 0) for record in records], dtype=_COLUMNS.get(name, np.float64)
        )
        for name in NUMERIC
    }
    return Rows(name=tuple(str(record["name"]) for record in records), **columns)
