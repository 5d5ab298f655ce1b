"""Operations that several units run at once: a run of records of one template, cut into each unit's share.

By columns: a first product computes a part of its columns, what follows works on that part, and a last product, which
then has a part of its rows, yields a summand of the result. Heads of attention divide the same way. By rows: each unit takes
a part of the tokens and has all weights. (Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3, between unlike units.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from archmodel.errors import MappingError
from archmodel.operations import Kind
from archmodel.spec.workload import ROLES, PlacementSpec

Record = dict[str, Any]

_LINEAR = ("flop", "exp", "read_byte", "write_byte", "kv_byte")  # columns of vector work and scans that follow its size


@attrs.frozen(eq=False)
class SharedRun:
    """Records `start` <= index < `end` of a template, divided over units."""

    start: int
    end: int
    fractions: Mapping[str, float]  # unit -> its share, in whole columns, heads, sequences or tokens
    by_rows: bool
    summed: bool  # the units' results are summands of the whole, not parts of it
    whole_input: bool  # each unit needs all that enters, not its part


def fractions(shares: Mapping[str, float], quantity: float) -> dict[str, float]:
    """Shares of each unit in whole parts of `quantity`; a unit whose part rounds to nothing is left out."""
    out: dict[str, float] = {}
    reached, before = 0.0, 0
    for unit, share in shares.items():
        reached += share
        until = round(quantity * min(reached, 1.0)) if unit != list(shares)[-1] else round(quantity)
        if until > before:
            out[unit] = (until - before) / round(quantity)
        before = max(before, until)
    return out


def shared_run(records: Sequence[Record], start: int, placement: PlacementSpec, sequences: int) -> SharedRun | None:
    """The run of shared records that begins at `start`, if one does: neighbours of roles with the same shares."""
    role = ROLES[records[start]["role"]]
    shares = placement.shares.get(role)
    if not shares or records[start]["kind"] == Kind.COLLECTIVE:
        return None
    end = start + 1
    while end < len(records) and _continues(records[end], end, placement, shares, start):
        end += 1
    run = records[start:end]
    by_rows = role in placement.row_split
    products = [record for record in run if record["kind"] == Kind.MATMUL]
    quantity = _tokens(run, sequences) if by_rows else _columns(run, products)
    paired = not by_rows and len(products) > 1
    return SharedRun(start, end, fractions(shares, quantity), by_rows, paired, whole_input=not by_rows and bool(products))


def _continues(record: Record, index: int, placement: PlacementSpec, shares: Mapping[str, float], start: int) -> bool:
    """Whether a record takes only results of the run and is shared in the same way."""
    inside = all(start <= before < index for before in record["after"])
    return inside and record["kind"] != Kind.COLLECTIVE and placement.shares.get(ROLES[record["role"]]) == shares


def _tokens(run: Sequence[Record], sequences: int) -> float:
    if any(record.get("experts", 0.0) for record in run):
        raise MappingError("placement.row_split: the tokens of experts cannot be divided: share their columns instead")
    if sequences > 1:
        return float(sequences)
    if any(record["kind"] == Kind.ATTENTION for record in run):
        raise MappingError("placement.row_split: the attention of one sequence cannot be divided: share its heads instead")
    return max(1.0, *(float(record.get("m", 0.0)) for record in run))


def _columns(run: Sequence[Record], products: Sequence[Record]) -> float:
    """Whole columns or heads that a run divides into. Raises MappingError where it does not divide that way."""
    if len(products) > 2 or any(record["kind"] == Kind.SCAN or record.get("latent") for record in run):
        raise MappingError("placement.shares: this mixer does not divide by heads: share its tokens with placement.row_split")
    heads = [record["kv_heads"] for record in run if record["kind"] == Kind.ATTENTION]
    if heads:
        return float(min(heads))
    return float(products[-1]["k"] if len(products) > 1 else products[0]["n"] if products else 1.0)


def part_of(run: SharedRun, records: Sequence[Record], fraction: float) -> list[Record]:
    """The run's records as one unit with `fraction` of them computes them."""
    mine = records[run.start : run.end]
    products = [index for index, record in enumerate(mine) if record["kind"] == Kind.MATMUL]
    return [_scaled(record, fraction, run, last=run.summed and index == products[-1]) for index, record in enumerate(mine)]


def _scaled(record: Record, fraction: float, run: SharedRun, *, last: bool) -> Record:
    if record["kind"] == Kind.MATMUL:
        column = "m" if run.by_rows else "k" if last else "n"
        return {**record, column: record[column] * fraction}
    if record["kind"] == Kind.ATTENTION:
        if run.by_rows:
            return {**record, "sequences": record["sequences"] * fraction}
        return {**record, "heads": record["heads"] * fraction, "kv_heads": record["kv_heads"] * fraction}
    return {**record, **{column: record[column] * fraction for column in _LINEAR if column in record}}
