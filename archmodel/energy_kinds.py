"""Kinds of operations that energy is booked on: roles of the model, and what the chip adds to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from archmodel.costs import Floats
from archmodel.kernels.timeline import CLASS_CONVERSION, CLASS_HOST, CLASS_SYNCHRONISATION, CLASS_TRANSFER
from archmodel.operations import Ints
from archmodel.schedule import Table
from archmodel.spec.workload import ROLES

_OTHERS = {
    CLASS_TRANSFER: "transfer",
    CLASS_CONVERSION: "layout_conversion",
    CLASS_SYNCHRONISATION: "synchronisation",
    CLASS_HOST: "host",
}
#: roles, then what no role has asked for
KINDS = (*ROLES, *_OTHERS.values())


def row_kinds(table: Table) -> Ints:
    """Index into `KINDS` of each row, shape (rows,)."""
    code = np.where(table.rows.kind >= 0, table.rows.role, 0)
    for event_class, name in _OTHERS.items():
        code = np.where(table.timeline.event_class == event_class, KINDS.index(name), code)
    return np.asarray(code, dtype=np.int64)


def by_kind_j(table: Table, energies_j: Iterable[Floats], runs: Floats) -> Mapping[str, float]:
    """Energy [J] of rows that run `runs` times, by kind; all arrays have shape (rows,), energies are of one run."""
    total = np.asarray(sum(energies_j)) * runs
    sums = np.bincount(row_kinds(table), total, len(KINDS))
    return {name: float(joule) for name, joule in zip(KINDS, sums, strict=True) if joule > 0.0}
