"""Templates: operations of one layer, or of a step's entry or exit, as records; and what builds them.

The residual stream enters a template at index `STREAM` and leaves it with its last operation.
"""

from __future__ import annotations

from typing import Any

import attrs

from archmodel import sizes
from archmodel.matrices import Matrix
from archmodel.operations import Kind
from archmodel.parallel import UNDIVIDED, Degrees
from archmodel.spec.chip import CAPABILITIES
from archmodel.spec.model import ModelSpec
from archmodel.spec.workload import ROLES, PlacementSpec, PrecisionSpec
from archmodel.steps import Group, Step
from archmodel.units import FORMATS, element_bytes

STREAM = -1  # dependency on what enters the template
DEFERRED = -2  # dependency on what the layer before left to be added up here; on nothing where it left none

#: operations per element of the usual formulations; an exponential counts apart
FLOP = {"norm": 4, "norm_bias": 7, "rotary": 3, "residual": 1, "gated": 3, "plain": 6}


@attrs.frozen(eq=False)
class Template:
    """Operations of one layer as records for `rows_from`; `after` holds indices into the template, or STREAM."""

    name: str
    records: tuple[dict[str, Any], ...]
    deferred: int = -1  # operation whose result the next layer adds up instead of this one; -1: none


@attrs.frozen
class Setting:
    """What the operations of a step need to know beside the layer."""

    model: ModelSpec
    precision: PrecisionSpec
    placement: PlacementSpec
    step: Step
    groups: tuple[Group, ...]
    degrees: Degrees = UNDIVIDED  # chips that divide the parts of the model, of which `model` holds one of each

    @property
    def tokens(self) -> int:
        return sum(group.sequences * group.new_tokens for group in self.groups)

    @property
    def sequences(self) -> int:
        return sum(group.sequences for group in self.groups)

    @property
    def activation_byte(self) -> float:
        return element_bytes(self.precision.activations)

    @property
    def stored_byte(self) -> float:
        """Bytes of an element of what is not a matrix of a layer: tables, head, router."""
        return element_bytes(self.precision.embedding or self.precision.weights)


class Builder:
    """Collects the records of one template."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.records: list[dict[str, Any]] = []

    def add(self, name: str, kind: Kind, role: str, capability: str, after: tuple[int, ...], **columns: Any) -> int:
        record = {"name": name, "kind": kind, "role": ROLES.index(role), "capability": CAPABILITIES.index(capability)}
        self.records.append({**record, "after": after, **columns})
        return len(self.records) - 1

    def record(self, name: str, after: tuple[int, ...], columns: dict[str, Any]) -> int:
        """Append a record whose columns say what it is."""
        self.records.append({"name": name, "after": after, **columns})
        return len(self.records) - 1

    def matmul(self, matrix: Matrix, role: str, after: int, m: float, number_format: str, **columns: Any) -> int:
        """C[m,n] = A[m,k] B[k,n] with stored weights B = `matrix`; `number_format` is what it computes in."""
        a = self.setting.activation_byte
        each = Matrix(matrix.name, matrix.n, matrix.k)
        weight = columns.pop("weight_byte", float(sizes.matrix_bytes(each, self.setting.precision)) / each.elements)
        return self.add(
            matrix.name, Kind.MATMUL, role, "matmul", (after,), m=m, n=matrix.n, k=matrix.k,
            compute_format=FORMATS.index(number_format), weight_byte=weight, input_byte=a, output_byte=a, **columns,
        )  # fmt: skip

    def vector(
        self,
        name: str,
        role: str,
        capability: str,
        after: tuple[int, ...],
        elements: float,
        flop: float,
        exp: float = 0.0,
        reads: float = 1.0,
        writes: float = 1.0,
        sequences: float = 0.0,
    ) -> int:
        """Element-wise work; `flop`, `exp`, `reads` and `writes` are per element of the output stream."""
        a = self.setting.activation_byte
        return self.add(
            name, Kind.VECTOR, role, capability, after, compute_format=FORMATS.index("fp32"), flop=elements * flop,
            exp=elements * exp, read_byte=elements * reads * a, write_byte=elements * writes * a,
            sequences=sequences,
        )  # fmt: skip

    def norm(self, name: str, after: int, bias: bool) -> int:
        return self.vector(name, "vector", "norm", (after,), self.setting.tokens * self.setting.model.hidden,
                           FLOP["norm_bias" if bias else "norm"])  # fmt: skip

    def residual(self, name: str, after: tuple[int, ...]) -> int:
        return self.vector(name, "vector", "residual", after, self.setting.tokens * self.setting.model.hidden,
                           FLOP["residual"] * (len(after) - 1), reads=len(after))  # fmt: skip

    def collective(self, op: str, after: int, elements: float, chips: int) -> int:
        """Exchange of `elements` activations between `chips` that divide what came before; nothing on one chip."""
        if chips == 1:
            return after
        byte = elements * self.setting.activation_byte
        return self.add(op, Kind.COLLECTIVE, "vector", "residual", (after,), read_byte=byte, write_byte=byte, chips=chips)

    def reduced(self, branches: tuple[int, ...], chips: int) -> tuple[int, ...]:
        """Branches of which each of `chips` holds a summand, added up over them in one exchange."""
        if chips == 1:
            return branches
        one = self.residual("partial_sum", branches) if len(branches) > 1 else branches[0]
        return (self.collective("all_reduce", one, self.setting.tokens * self.setting.model.hidden, chips),)

    def template(self, name: str, deferred: int = -1) -> Template:
        return Template(name, tuple(self.records), deferred)
