"""A placed template: what one unit or another does of a layer, with what the owners make necessary in between."""

from __future__ import annotations

from typing import Any

import attrs

from archmodel.operations import Kind


@attrs.frozen(eq=False)
class Piece:
    """A placed template. Each record has `owner` (a resource of the Soc), `event_class` and `after`; its sizes are those of
    one card where its owner's member has several.

    Rows that no unit runs (transfers, syncs, host work) carry their `duration_s`, and `moved` bytes by link.
    """

    name: str
    records: tuple[dict[str, Any], ...]
    exit: int  # record whose end passes the residual stream on
    leaves: str  # unit on which it then lies
    deferred: int  # record whose result the next piece takes beside the stream; -1: none
    late: tuple[int, ...]  # records that are issued with the next piece, where they are taken, not to hold up what is between
    stream_byte: float  # bytes of that stream
    enters: str  # unit on which it lies before
    widened: tuple[tuple[str, str, str, str], ...] = ()  # operation, unit, format asked for, format computed in


#: pieces in the order in which a micro-batch passes them, each with its layer
Chain = list[tuple[Piece, int]]


def result_byte(record: dict[str, Any]) -> float:
    """Bytes [B] that a record's result takes where it lies, until the last record that takes it has ended."""
    kind = record.get("kind")
    if kind == Kind.MATMUL:
        return float(record["m"] * record["n"] * record.get("count", 1.0) * record["output_byte"])
    if kind == Kind.ATTENTION:
        scores = record["q_tokens"] * record["kv_tokens"] * record["materialised"] * record["input_byte"]
        outputs = record["q_tokens"] * record["v_dim"] * record["output_byte"]
        return float(record["sequences"] * record["heads"] * (outputs + scores))
    return 0.0 if record.get("fused") else float(record.get("write_byte", 0.0))
