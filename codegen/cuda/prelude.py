"""Functions that kernels call: what CUDA C++ has not, or has with another meaning.

The text of a kernel starts with those that it calls.

Names in CUDA C++: those of the program, unless they mean something there.

The types of CUDA C++ for dtypes, and conversions between them.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ...base import dtypes
from ...runtime.signature import is_function_name
from ...tir.ir import FLOAT_FUNCTIONS
from ...tir.names import unique

FUNCTIONS: dict[str, str] = {
    "nan_min": """\
// The smaller of two floats; NaN if one of them is.
__device__ __forceinline__ float nan_min(float a, float b) {
#ifdef __CUDA_ARCH__
  float c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#else
  return a <= b || a != a ? a : b;
#endif
}
__device__ __forceinline__ double nan_min(double a, double b) {
  return a <= b || a != a ? a : b;
}
""",
    "nan_max": """\
// The larger of two floats; NaN if one of them is.
__device__ __forceinline__ float nan_max(float a, float b) {
#ifdef __CUDA_ARCH__
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#else
  return a >= b || a != a ? a : b;
#endif
}
__device__ __forceinline__ double nan_max(double a, double b) {
  return a >= b || a != a ? a : b;
}
""",
    "floor_div": """\
// The quotient of integers, rounded down.
template <typename T>
__device__ __forceinline__ T floor_div(T a, T b) {
  if (b == (T)-1) return (T)(0 - (unsigned long long)a);
  const T q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
""",
    "floor_mod": """\
// The remainder of integers, with the sign of the divisor.
template <typename T>
__device__ __forceinline__ T floor_mod(T a, T b) {
  if (b == (T)-1) return 0;
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
""",
    "shift_left": """\
// An integer shifted left by any count; all bits are moved out by one that is not below the width.
template <typename T>
__device__ __forceinline__ T shift_left(T a, T b) {
  return (unsigned long long)b < 8 * sizeof(T) ? (T)((unsigned long long)a << b) : (T)0;
}
""",
    "shift_right": """\
// An integer shifted right by any count; only its sign stays where that is not below the width.
template <typename T>
__device__ __forceinline__ T shift_right(T a, T b) {
  return (unsigned long long)b < 8 * sizeof(T) ? (T)(a >> b) : a < 0 ? (T)-1 : (T)0;
}
""",
    "wrapping_abs": """\
// The absolute value of an integer; the least one has none, and stays as it is.
template <typename T>
__device__ __forceinline__ T wrapping_abs(T a) {
  return a < 0 ? (T)(0 - (unsigned long long)a) : a;
}
""",
    "floor_mod_float": """\
// The remainder of floats, with the sign of the divisor.
template <typename T>
__device__ __forceinline__ T floor_mod_float(T a, T b) {
  const T r = fmod(a, b);
  if (r == 0) return copysign((T)0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
""",
    "floor_div_float": """\
// The quotient of floats, rounded down.
template <typename T>
__device__ __forceinline__ T floor_div_float(T a, T b) {
  if (b == 0) return a / b;
  const T r = fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  if (q == 0) return copysign((T)0, a / b);
  const T down = floor(q);
  return q - down > (T)0.5 ? down + 1 : down;
}
""",
    "saturate": """\
// A float as an integer: the nearest there is towards zero, and 0 for NaN.
template <typename T, typename F>
__device__ __forceinline__ T saturate(F x) {
  const T low = (T)-1 < 0 ? (T)(1ull << (8 * sizeof(T) - 1)) : (T)0;
  const T high = (T)~low;
  if (!(x == x)) return 0;
  if (x <= (F)low) return low;
  return x >= (F)high ? high : (T)x;
}
""",
    "sigmoid": """\
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
""",
    "float8_to_float": """\
template <__nv_fp8_interpretation_t kind>
__device__ __forceinline__ float float8_to_float(unsigned char x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x, kind)));
}
""",
    "float_to_float8": """\
template <__nv_fp8_interpretation_t kind>
__device__ __forceinline__ unsigned char float_to_float8(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_NOSAT, kind);
}
""",
    "double_to_float8": """\
template <__nv_fp8_interpretation_t kind>
__device__ __forceinline__ unsigned char double_to_float8(double x) {
  return __nv_cvt_double_to_fp8(x, __NV_NOSAT, kind);
}
""",
}
_ORDER = tuple(FUNCTIONS)


def prelude(headers: Collection[str], functions: Collection[str]) -> str:
    """The text before kernels that use these headers and functions."""
    lines = [f"#include <{name}>\n" for name in sorted(headers)]
    texts = [FUNCTIONS[name] for name in _ORDER if name in functions]
    return "\n".join(["".join(lines), *texts] if lines else texts)


_MACROS = re.compile(
    r"[A-Z][A-Z0-9_]{2,}|(M|L|P|FP|HUGE|SNAN|NV|IF|SM)_\w*|cuda\w*|CUDA\w*|SNAN\w*|MAXFLOAT"
    r"|(ht|be|le)\d*(to)?(be|le|h)?\d*|is\w+|to\w+|str\w+|std\w+|assert\w*|alloca|offsetof"
    r"|math_errhandling"
)
"""Names that macros of the compiler's headers may have."""
_USED = frozenset(
    (
        *("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "min", "max", "fmod"),
        *("copysign", "shared_memory", "workspace"),
        *(f"{kind}{lanes}" for kind in ("float", "double", "int", "uint") for lanes in (2, 4)),
        *(
            f"{fn}{suffix}"
            for fn in (*FLOAT_FUNCTIONS, "abs", "fabs", "rint")
            for suffix in ("", "f")
        ),
        *FUNCTIONS,
    )
)
"""Names that kernels use themselves."""


class Names:
    """Names of variables and buffers of one kernel, each free again after its scope."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._taken: set[str] = set(_USED)

    def bind(self, thing: object, name: str) -> str:
        """A name for `thing`, like `name` and different from those in use."""
        clean = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("_") or "v"
        if clean[0].isdigit():
            clean = f"v{clean}"
        clean = re.sub("__+", "_", clean)
        if not is_function_name(clean) or _MACROS.fullmatch(clean):
            clean = f"{clean}_"
        fresh = self._names[thing] = unique(clean, self._taken)
        return fresh

    def release(self, thing: object) -> None:
        """The scope of `thing` has ended."""
        self._taken.discard(self._names[thing])

    def of(self, thing: object) -> str:
        return self._names[thing]


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
