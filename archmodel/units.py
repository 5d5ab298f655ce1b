"""Units: the closed list of suffixes, bytes per number format, and how quantities are printed.

GB is 1e9 bytes and GiB is 2**30 bytes; the name of every quantity says which. A name ends in its unit
(`bandwidth_gb_per_s`, `read_energy_pj_per_bit`); a name without a suffix from `SUFFIXES` is a plain count or ratio.
"""

from __future__ import annotations

import math
from typing import Final

GB: Final = 1e9
GIB: Final = float(2**30)
MIB: Final = float(2**20)
KIB: Final = float(2**10)

#: name suffix -> unit as printed and as stored in the `unit` attribute of a dataset
SUFFIXES: Final[dict[str, str]] = {
    "_pj_per_bit": "pJ/bit",
    "_pj_per_mac": "pJ/MAC",
    "_pj_per_flop": "pJ/FLOP",
    "_mj_per_token": "mJ/token",
    "_byte_per_core_per_cycle": "B/cycle/core",
    "_byte_per_cycle": "B/cycle",
    "_byte_per_token": "B/token",
    "_bytes_per_token": "B/token",
    "_bytes_per_sequence": "B/sequence",
    "_byte_per_s": "B/s",
    "_gb_per_s": "GB/s",
    "_gt_per_s": "GT/s",
    "_gbit_per_s": "Gb/s",
    "_tokens_per_s": "tokens/s",
    "_per_core_per_cycle": "1/cycle/core",
    "_per_cycle": "1/cycle",
    "_flop_per_s": "FLOP/s",
    "tokens_per_joule": "tokens/J",
    "_per_s": "1/s",
    "_cycles": "cycles",
    "_ghz": "GHz",
    "_gib": "GiB",
    "_mib": "MiB",
    "_kib": "KiB",
    "_gb": "GB",
    "_mb": "MB",
    "_bytes": "B",
    "_byte": "B",
    "_bit": "bit",
    "_ns": "ns",
    "_us": "us",
    "_ms": "ms",
    "_s": "s",
    "_pj": "pJ",
    "_nj": "nJ",
    "_j": "J",
    "_w": "W",
    "_v": "V",
    "_mm": "mm",
    "_mm2": "mm2",
    "_um2": "um2",
    "_per_cm2": "1/cm2",
    "_mm2_per_mb": "mm2/MB",
    "_mm2_per_bit": "mm2/bit",
    "_usd": "USD",
    "_usd_per_mm2": "USD/mm2",
    "_usd_per_gb": "USD/GB",
    "_usd_per_kwh": "USD/kWh",
    "_usd_per_million_tokens": "USD/million tokens",
    "_usd_per_request": "USD/request",
    "_usd_per_year": "USD/year",
    "_years": "years",
    "_nm": "nm",
    "_tops": "TOP/s",
    "_fraction": "1",
    "_tokens": "tokens",
}

#: number format -> bits an element takes in memory; block formats include their scales
BITS: Final[dict[str, float]] = {
    "fp64": 64.0,
    "fp32": 32.0,
    "tf32": 32.0,
    "fp16": 16.0,
    "bf16": 16.0,
    "fp8": 8.0,
    "int32": 32.0,
    "int16": 16.0,
    "int8": 8.0,
    "int4": 4.0,
    "fp4": 4.0,
    "mxfp8": 8.25,  # one 8-bit scale per 32 elements (OCP MX 1.0)
    "mxfp4": 4.25,  # one 8-bit scale per 32 elements (OCP MX 1.0)
    "nvfp4": 4.5,  # one 8-bit scale per 16 elements
}

FORMATS: Final[tuple[str, ...]] = tuple(BITS)


def element_bytes(number_format: str) -> float:
    """Bytes [B] that one element of `number_format` takes; 0.5 for 4-bit formats, never rounded to 0."""
    return BITS[number_format] / 8.0


def unit_of(name: str) -> str:
    """Unit of a quantity from the suffix of its name; "1" for a plain count or ratio."""
    best = max((suffix for suffix in SUFFIXES if name.endswith(suffix)), key=len, default="")
    return SUFFIXES[best] if best else "1"


_PREFIXES: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"),
                    (1e-9, "n"), (1e-12, "p"))  # fmt: skip


def si(value: float, unit: str, digits: int = 3) -> str:
    """`value` with a decimal prefix and `digits` significant digits, for people: 1.2e12, "B/s" -> "1.2 TB/s"."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g} {unit}".strip()
    scaled, chosen = value, ""
    for factor, prefix in _PREFIXES:
        scaled, chosen = float(f"{value / factor:.{digits}g}"), prefix
        if abs(scaled) >= 1.0:
            break
    return f"{scaled:g} {chosen}{unit}".strip()
