"""The registry of instructions: those of this package and those that users register."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from ..errors import IRError
from .instruction import TensorIntrin
from .ir import Func, Matmul
from .parser import parse
from .visit import walk

_REGISTERED: dict[str, TensorIntrin] = {}


def register_intrin(name: str, semantics: Func, implementation: Func) -> TensorIntrin:
    """Make an instruction known to `tensorize`.

    Raises `IRError` where the name is taken, and where `TensorIntrin` does.
    """
    if name in intrin_names():
        raise IRError("an instruction named {0} exists already", name)
    _REGISTERED[name] = TensorIntrin(name, semantics, implementation)
    return _REGISTERED[name]


def find_intrin(name: str) -> TensorIntrin | None:
    """The instruction of that name; one of this package is checked when it is first asked for."""
    if name not in _REGISTERED and name in _BUILTIN:
        _REGISTERED[name] = _BUILTIN[name](name)
    return _REGISTERED.get(name)


def intrin_names() -> tuple[str, ...]:
    """The names of all instructions."""
    return tuple(sorted({*_BUILTIN, *_REGISTERED}))


@cache
def multiplies_matrices(name: str) -> bool:
    """Whether the instruction of that name is a product of matrices."""
    found = find_intrin(name)
    return found is not None and any(type(n) is Matmul for n in walk(found.implementation.body))


def _dot(name: str, *, dtypes: tuple[str, str, str], lanes: int, group: int) -> TensorIntrin:
    """C[j] += sum over k of A[k] * B[j, k]: groups of `group` products, added to `lanes` sums."""
    a, b, c = dtypes
    count = lanes * group
    signature = f'C: T.Buffer(({lanes},), "{c}")'
    semantics = f"""
def {name}(A: T.Buffer(({group},), "{a}"), B: T.Buffer(({lanes}, {group}), "{b}"), {signature}):
    T.inplace(C)
    for j, k in T.grid({lanes}, {group}):
        with T.block("C"):
            vj, vk = T.axis.remap("SR", [j, k])
            C[vj] = C[vj] + T.{c}(A[vk]) * T.{c}(B[vj, vk])
"""
    sums = f"C[T.ramp(0, 1, {lanes})]"
    implementation = f"""
def {name}(A: T.Buffer(({group},), "{a}"), B: T.Buffer(({count},), "{b}"), {signature}):
    T.inplace(C)
    {sums} = T.dot({sums}, A[T.ramp(0, 1, {group})], B[T.ramp(0, 1, {count})])
"""
    return TensorIntrin(name, parse(semantics), parse(implementation))


def _outer(name: str, *, rows: int, lanes: int) -> TensorIntrin:
    """C[i, j] += A[i] * B[j] in float32, `rows` vectors of `lanes`: a fused multiply-add each."""
    head = (
        f'A: T.Buffer(({rows},), "float32"), B: T.Buffer(({lanes},), "float32"), '
        f'C: T.Buffer(({rows}, {lanes}), "float32")'
    )
    semantics = f"""
def {name}({head}):
    T.inplace(C)
    for i, j in T.grid({rows}, {lanes}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = C[vi, vj] + A[vi] * B[vj]
"""
    vector = f"T.ramp(0, 1, {lanes})"
    lines = "\n".join(
        f"    C[{i}, {vector}] = C[{i}, {vector}] + T.broadcast(A[{i}], {lanes}) * B[{vector}]"
        for i in range(rows)
    )
    implementation = f"""
def {name}({head}):
    T.inplace(C)
{lines}
"""
    return TensorIntrin(name, parse(semantics), parse(implementation))


def _matmul(name: str, *, dtypes: tuple[str, str, str], group: int) -> TensorIntrin:
    """C[i, j] += sum over k, s of A[i, k, s] * B[k, j, s]: tiles of 16 rows of 64 bytes each."""
    a, b, c = dtypes
    count = 256 * group
    semantics = f"""
def {name}(A: T.Buffer((16, 16, {group}), "{a}"), B: T.Buffer((16, 16, {group}), "{b}"),
           C: T.Buffer((16, 16), "{c}")):
    T.inplace(C)
    for i, j, k, s in T.grid(16, 16, 16, {group}):
        with T.block("C"):
            vi, vj, vk, vs = T.axis.remap("SSRR", [i, j, k, s])
            C[vi, vj] = C[vi, vj] + T.{c}(A[vi, vk, vs]) * T.{c}(B[vk, vj, vs])
"""
    operands = f"C[T.ramp(0, 1, 256)], A[T.ramp(0, 1, {count})], B[T.ramp(0, 1, {count})]"
    implementation = f"""
def {name}(A: T.Buffer(({count},), "{a}"), B: T.Buffer(({count},), "{b}"),
           C: T.Buffer((256,), "{c}")):
    T.inplace(C)
    C[T.ramp(0, 1, 256)] = T.matmul({operands}, 16, {group})
"""
    return TensorIntrin(name, parse(semantics), parse(implementation))


def _zero(name: str, *, dtype: str) -> TensorIntrin:
    """C[i, j] = 0, for a tile of 16 rows of 64 bytes."""
    semantics = f"""
def {name}(C: T.Buffer((16, 16), "{dtype}")):
    for i, j in T.grid(16, 16):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.{dtype}(0)
"""
    implementation = f"""
def {name}(C: T.Buffer((256,), "{dtype}")):
    C[T.ramp(0, 1, 256)] = T.broadcast(T.{dtype}(0), 256)
"""
    return TensorIntrin(name, parse(semantics), parse(implementation))


def _copy(name: str, *, dtype: str) -> TensorIntrin:
    """B[i, j] = A[i, j], for a tile of 16 rows of 64 bytes."""
    semantics = f"""
def {name}(A: T.Buffer((16, 16), "{dtype}"), B: T.Buffer((16, 16), "{dtype}")):
    for i, j in T.grid(16, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""
    implementation = f"""
def {name}(A: T.Buffer((256,), "{dtype}"), B: T.Buffer((256,), "{dtype}")):
    B[T.ramp(0, 1, 256)] = A[T.ramp(0, 1, 256)]
"""
    return TensorIntrin(name, parse(semantics), parse(implementation))


_INT8 = ("uint8", "int8", "int32")
_BFLOAT16 = ("bfloat16", "bfloat16", "float32")
_BUILTIN: dict[str, Callable[[str], TensorIntrin]] = {
    "dot_16x4_vnni": partial(_dot, dtypes=_INT8, lanes=16, group=4),
    "dot_8x4_vnni": partial(_dot, dtypes=_INT8, lanes=8, group=4),
    "dot_16x2_bf16": partial(_dot, dtypes=_BFLOAT16, lanes=16, group=2),
    "dot_8x2_bf16": partial(_dot, dtypes=_BFLOAT16, lanes=8, group=2),
    "matmul_u8s8_amx": partial(_matmul, dtypes=_INT8, group=4),
    "matmul_s8u8_amx": partial(_matmul, dtypes=("int8", "uint8", "int32"), group=4),
    "matmul_s8s8_amx": partial(_matmul, dtypes=("int8", "int8", "int32"), group=4),
    "matmul_u8u8_amx": partial(_matmul, dtypes=("uint8", "uint8", "int32"), group=4),
    "matmul_bf16_amx": partial(_matmul, dtypes=_BFLOAT16, group=2),
    "zero_int32_amx": partial(_zero, dtype="int32"),
    "zero_float32_amx": partial(_zero, dtype="float32"),
    "copy_int32_amx": partial(_copy, dtype="int32"),
    "copy_float32_amx": partial(_copy, dtype="float32"),
    "outer_4x16_fma": partial(_outer, rows=4, lanes=16),
    "outer_4x8_fma": partial(_outer, rows=4, lanes=8),
}
