"""Mixture of experts as kernels: route, permute, up, activation, down, combine. Layers and measured tables share them.

Sizes are those of one rank of a group that divides the experts: the busiest. `intermediate` is already a rank's share where
tensor parallelism divides it.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from archmodel.kernels import moe
from archmodel.operations import ROUTING, Kind
from archmodel.spec.chip import CAPABILITIES
from archmodel.spec.fields import POWER_LAW
from archmodel.spec.workload import ROLES
from archmodel.units import FORMATS

Floats = NDArray[np.float64]
Number = Floats | float
Columns = dict[str, Any]

# operations per element of the usual formulations; an exponential counts apart
_ROUTE_FLOP, _COMBINE_FLOP, _GATED_FLOP, _PLAIN_FLOP = 3.0, 2.0, 3.0, 6.0
#: bytes [B] of a chosen expert's number and weight
_CHOICE_BYTE = 8.0


@attrs.frozen(eq=False, kw_only=True)
class ExpertWork:
    """Tokens that pass the routed experts of a layer; numbers, or arrays of one shape for several layers at once."""

    tokens: Number
    hidden: Number
    intermediate: Number  # of one expert on one rank
    matrices: Number  # of `intermediate` rows in the first product: 2 where it is gated
    experts: Number  # of all ranks
    chosen: Number
    ranks: Number
    routing: Number  # kernels.moe.BALANCED, UNIFORM or the exponent of a power law
    masked: Number = 0.0  # 1: picks of experts of other ranks are multiplied as well

    @property
    def routing_columns(self) -> Columns:
        """Columns of `Rows` from which the loads of the experts follow."""
        values = (self.tokens, self.experts, self.chosen, self.ranks, self.routing, self.masked)
        return dict(zip(ROUTING, values, strict=True))

    def loads(self) -> tuple[Number, Number]:
        """Expected experts that get a token, and rows that they get, on the busiest rank."""
        columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(c, dtype=np.float64)) for c in self.routing_columns.values()))
        found = moe.expert_loads(np.stack(columns, axis=-1), np.empty(0))
        touched, rows = found[:, moe.TOUCHED], found[:, moe.ROUTED]
        return (touched, rows) if np.ndim(self.tokens) else (float(touched[0]), float(rows[0]))


@attrs.frozen(eq=False, kw_only=True)
class ExpertFormats:
    """Bytes [B] of an element, and what the products compute in (index into FORMATS)."""

    activation_byte: Number  # residual stream and results
    operand_byte: Number  # activations as the products take them
    written_byte: Number  # and as they are written before; wider where kernels of their own quantise them
    weight_byte: Number
    compute_format: Any


def expert_kernels(work: ExpertWork, formats: ExpertFormats) -> list[tuple[str, Columns]]:
    """Kernels one after another, each with the columns of its row. The router's own product is not among them."""
    touched, rows = work.loads()
    a, narrow, hidden, inner = formats.activation_byte, formats.operand_byte, work.hidden, work.intermediate
    each = rows / np.maximum(touched, 1e-300)
    gated = work.matrices - 1.0
    flop = _PLAIN_FLOP + gated * (_GATED_FLOP - _PLAIN_FLOP)
    product = {
        **_what(Kind.MATMUL, "feed_forward", "matmul"), "m": each, "count": touched, "compute_format": formats.compute_format,
        "input_byte": narrow, "output_byte": a, "weight_byte": formats.weight_byte, **work.routing_columns,
    }  # fmt: skip
    written = formats.written_byte
    choices, inside = work.tokens * work.experts, rows * inner
    route = {"flop": choices * _ROUTE_FLOP, "exp": choices, "read_byte": choices * a,
             "write_byte": work.tokens * work.chosen * _CHOICE_BYTE}  # fmt: skip
    permute = {"read_byte": np.minimum(work.tokens, rows) * hidden * written, "write_byte": rows * hidden * written}
    activation = {"flop": inside * flop, "exp": inside, "read_byte": inside * work.matrices * a, "write_byte": inside * written}
    combine = {"flop": rows * hidden * _COMBINE_FLOP, "read_byte": rows * hidden * a, "write_byte": work.tokens * hidden * a}
    return [
        ("route", {**_vector("router", "router"), **work.routing_columns, **route}),
        ("permute", {**_vector("router", "router"), **permute}),
        ("experts_up", {**product, "n": work.matrices * inner, "k": hidden}),
        ("experts_activation", {**_vector("feed_forward", "activation"), **activation}),
        ("experts_down", {**product, "n": hidden, "k": inner}),
        ("combine", {**_vector("router", "router"), **combine}),
    ]


def exponent(routing: str) -> float:
    """What kernels take for a routing by name: balanced, uniform or power_law_<exponent>. Raises ValueError for others."""
    known = {"balanced": moe.BALANCED, "uniform": moe.UNIFORM}
    return known[routing] if routing in known else float(routing.removeprefix(POWER_LAW))


def _what(kind: Kind, role: str, capability: str) -> Columns:
    return {"kind": int(kind), "role": ROLES.index(role), "capability": CAPABILITIES.index(capability)}


def _vector(role: str, capability: str) -> Columns:
    return {**_what(Kind.VECTOR, role, capability), "compute_format": FORMATS.index("fp32")}
