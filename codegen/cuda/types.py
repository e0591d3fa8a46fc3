"""The types of CUDA C++ for dtypes, and conversions between them."""

from __future__ import annotations

from ...base import dtypes

TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float8_e4m3fn": "unsigned char",
    "float8_e5m2": "unsigned char",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
}
"""Float8 is kept as its bits."""
HEADERS = {
    "float16": "cuda_fp16.h",
    "bfloat16": "cuda_bf16.h",
    "float8_e4m3fn": "cuda_fp8.h",
    "float8_e5m2": "cuda_fp8.h",
}
MOVES = {16: "uint4", 8: "uint2", 4: "unsigned int", 2: "unsigned short"}
"""The types that bytes are moved as."""
_WIDE_MOVES = {("float32", 4): "float4", ("float32", 2): "float2", ("float64", 2): "double2",
               ("int32", 4): "int4", ("int32", 2): "int2"}  # fmt: skip
_TO_FLOAT = {
    "float16": "__half2float({0})",
    "bfloat16": "__bfloat162float({0})",
    "float8_e4m3fn": "float8_to_float<__NV_E4M3>({0})",
    "float8_e5m2": "float8_to_float<__NV_E5M2>({0})",
}
_OF_FLOAT = {
    "float16": "__float2half_rn({0})",
    "bfloat16": "__float2bfloat16_rn({0})",
    "float8_e4m3fn": "float_to_float8<__NV_E4M3>({0})",
    "float8_e5m2": "float_to_float8<__NV_E5M2>({0})",
}
_OF_DOUBLE = {
    "float16": "__double2half({0})",
    "bfloat16": "__double2bfloat16({0})",
    "float8_e4m3fn": "double_to_float8<__NV_E4M3>({0})",
    "float8_e5m2": "double_to_float8<__NV_E5M2>({0})",
}
NARROW = frozenset(_TO_FLOAT)
"""Floats whose arithmetic is that of float32, rounded after each operation."""


def move_type(dtype: str, lanes: int) -> str:
    """The type of so many elements that are moved at once."""
    return _WIDE_MOVES.get((dtype, lanes)) or MOVES[lanes * dtypes.nbytes(dtype)]


def to_float(text: str, dtype: str) -> str:
    """A value of a narrow float as a float."""
    return _TO_FLOAT[dtype].format(text)


def converted(text: str, source: str, target: str) -> str:
    """The value of `text`, which is an atom, in another dtype."""
    x, y = dtypes.info(source), dtypes.info(target)
    if source in NARROW:
        text = to_float(text, source)
        source, x = "float32", dtypes.info("float32")
        if target == "float32":
            return text
    if target in NARROW:
        if source == "float64":
            return _OF_DOUBLE[target].format(text)
        return _OF_FLOAT[target].format(text if source == "float32" else f"(float){text}")
    if y.kind == "bool":
        return f"({text} != {'0.0f' if x.kind == 'float' else '0'})"
    if x.kind == "float" and y.kind != "float":
        return f"saturate<{TYPES[target]}>({text})"
    return f"({TYPES[target]}){text}"
