"""What a unit may be able to run."""

from __future__ import annotations

CAPABILITIES = (
    "matmul",
    "attention",
    "scan",
    "norm",
    "rotary",
    "activation",
    "residual",
    "quantise",
    "convert",
    "router",
    "embedding",
    "sampling",
)

#: what a unit can run that multiplies by the weights that it holds, and by nothing else
HELD_WEIGHTS = tuple(name for name in CAPABILITIES if name not in ("attention", "scan"))
