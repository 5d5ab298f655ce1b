"""Which measured rows a fit may see, and which only a report: whole families of shapes, drawn by a hash.

A row belongs to the family of its shape: (n, k) for a GEMM, the heads for an attention. A family is in the fit or in the
report as a whole, on every device, in every format and at every m or batch, so that an error in the report is that of shapes
the fit never saw. The hash is BLAKE2b, the same on every machine and for every version of Python (CRC-32 will not do:
it is linear, so that draws with two seeds are not independent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

SEED = 5
FIT_SHARE = 0.25

#: columns that make a family, by what is measured
FAMILY: Mapping[str, tuple[str, ...]] = {
    "gemm": ("n", "k"),
    "attention": ("heads", "kv_heads", "head_dim"),
    "mla": ("heads",),
    "moe": ("hidden", "inter", "topk", "experts"),
    "quantise": ("m",),
    "collective": ("op", "num_gpus"),
}


def family(what: str, row: Mapping[str, object]) -> str:
    """Family of a row (column -> cell) of a table of `what`, such as "n=4096,k=1024"; numbers without a decimal point."""
    return ",".join(f"{name}={_cell(row[name])}" for name in FAMILY[what])


def is_fit(family: str, *, seed: int = SEED, share: float = FIT_SHARE) -> bool:
    """Whether a fit may see that family: a `share` of all families, drawn by `seed`."""
    return draw(f"{seed}:{family}") < share


def fit_mask(what: str, columns: Mapping[str, Sequence[object] | NDArray[np.float64]], *, seed: int = SEED,
             share: float = FIT_SHARE) -> NDArray[np.bool_]:  # fmt: skip
    """Whether a fit may see each row of a table given by its columns, shape (rows,)."""
    cells = zip(*(columns[name] for name in FAMILY[what]), strict=True)
    seen: dict[tuple[object, ...], bool] = {}
    for key in (keys := list(cells)):
        if key not in seen:
            seen[key] = is_fit(family(what, dict(zip(FAMILY[what], key, strict=True))), seed=seed, share=share)
    return np.array([seen[key] for key in keys], dtype=bool)


def draw(text: str) -> float:
    """A number in [0, 1) that depends on nothing but `text`."""
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest()) / 2**48


def _cell(value: object) -> str:
    try:
        return f"{float(str(value)):.15g}"
    except ValueError:
        return str(value)
