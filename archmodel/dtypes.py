"""Names of number formats as serving libraries and measured tables use them, and what each means for a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs
import numpy as np

from archmodel.units import element_bytes


@attrs.frozen
class Quantisation:
    """A kernel that goes over the 16-bit activations before the product: bytes [B] and operations an element."""

    read_byte: float
    write_byte: float
    flop: float


@attrs.frozen
class Dtype:
    """What a name of the column dtype stands for: formats of C = A B as the kernel sees them."""

    compute: tuple[str, ...]  # formats it may be computed in, best first
    a_byte: float  # [B/element]
    b_byte: float  # [B/element], scales included
    c_byte: float  # [B/element]
    before: tuple[Quantisation, ...] = ()
    vector_rows: float = np.inf  # largest m of its matrix-vector kernel, without any of `before`; above it k is not split


def _plain(number_format: str) -> Dtype:
    byte = element_bytes(number_format)
    return Dtype((number_format,), byte, byte, byte)


_AMAX = Quantisation(read_byte=2.0, write_byte=0.0, flop=2.0)  # absolute value, maximum
_SCALE = Quantisation(read_byte=2.0, write_byte=1.0, flop=2.0)  # multiply, convert
_AMAX_SCALE = Quantisation(read_byte=2.0, write_byte=1.0, flop=4.0)  # one pass where the scale is of a row or block
_SCALES = Quantisation(read_byte=0.0, write_byte=0.0, flop=0.0)  # set-up of scales and workspace: nothing but launches
_AMAX_SCALE_FP4 = Quantisation(read_byte=2.0, write_byte=element_bytes("nvfp4"), flop=4.0)
_HALF = element_bytes("bf16")

#: dtype -> meaning. Plain names have A, B and C in that format. The others are those of serving libraries, quantisation of
#: bf16 activations included: aiconfigurator 0.12.0, `gemm` tables (bf16 in and out; per-tensor scales for fp8, 128x128
#: blocks for fp8_block, SmoothQuant per token for sq, whose measured times hold no pass over the activations; weights only
#: for *_wo, int4 with one fp16 scale per 128 weights).
DTYPES: Mapping[str, Dtype] = MappingProxyType(
    {
        **{name: _plain(name) for name in ("fp64", "fp32", "tf32", "fp16", "bf16", "int16", "int8", "int4")},
        "fp8": Dtype(("fp8",), 1.0, 1.0, _HALF, (_AMAX, _SCALE)),
        "fp8_static": Dtype(("fp8",), 1.0, 1.0, _HALF),
        "fp8_block": Dtype(("fp8",), 1.0, 1.0 + 4.0 / 128**2, _HALF, (_AMAX_SCALE,), vector_rows=0.0),
        "nvfp4": Dtype(("fp4", "nvfp4"), element_bytes("nvfp4"), element_bytes("nvfp4"), _HALF, (_AMAX_SCALE_FP4,), 0.0),
        "sq": Dtype(("int8",), 1.0, 1.0, _HALF, (_SCALES,), vector_rows=4.0),
        "int8_wo": Dtype(("bf16", "fp16"), _HALF, 1.0, _HALF, (_SCALES,), vector_rows=0.0),
        "int4_wo": Dtype(("bf16", "fp16"), _HALF, 0.5 + 2.0 / 128, _HALF, (_SCALES,), vector_rows=0.0),
    }
)

#: format of scores and values -> it and the bytes of an element of Q and of the result
ATTENTION_DTYPES: Mapping[str, Dtype] = MappingProxyType(
    {**{name: _plain(name) for name in ("fp32", "fp16", "bf16")}, "fp8": Dtype(("fp8",), _HALF, 1.0, _HALF)}
)
CACHE_DTYPES = ("fp32", "fp16", "bf16", "fp8", "int8", "int4", "nvfp4")

ALIASES: Mapping[str, str] = MappingProxyType(
    {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "float64": "fp64",
     "double": "fp64", "fp8_e4m3": "fp8", "float8": "fp8", "smoothquant": "sq", "w8a8": "sq", "w8a16": "int8_wo",
     "w4a16": "int4_wo"}
)  # fmt: skip
