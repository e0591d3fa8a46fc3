"""Call glue in machine code: a Python builtin that checks arrays and calls a kernel.

For each argument the code compares the fields of numpy's array object (type, dtype, rank, extents,
contiguity or strides, alignment, writability) with what the kernel was compiled for. It then checks
that outputs overlap with nothing, releases the GIL, checks the values of index arrays and calls.

The glue accepts exact matches only. Any other call goes, with its arguments, to the checked entry
in Python, which accepts it (DLPack, a subclass, memory that only seems to overlap) or raises the
error that explains it.

A workspace is taken from the end of the pool's list, and put back there after the call, both while
the GIL is held. If the list is empty, or the workspace too small, Python makes one.

There is no glue where numpy's array object has an unexpected layout (see `runtime.host_memory`).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from llvmlite import binding

from ...base import dtypes
from ...runtime.argument_checks import MAX_PAIRS
from ...runtime.host_memory import (
    C_CONTIGUOUS,
    DATA,
    DESCR,
    DIMENSIONS,
    FLAGS,
    HEADER,
    NDIM,
    STRIDES,
    TYPE,
    WRITEABLE,
    layout_is_known,
)
from ...runtime.ranges import checked_limits
from ...runtime.signature import Argument, Signature
from ...runtime.workspace import Pool
from ...target import CpuTarget
from .detection import host_target
from .glue_range import range_function
from .jit import load_object
from .llvm import initialize
from .llvm_text import memory_type

_METH_FASTCALL = 0x0080
_ENTRY = "tilewright_glue"
_FLOAT_VALUE = HEADER
_INFINITY = "0x7FF0000000000000"
_MINUS_INFINITY = "0xFFF0000000000000"


def make_glue(
    kernel_address: int,
    signature: Signature,
    fallback: Callable[..., None],
    fail: Callable[[int], None],
    pool: Pool | None = None,
) -> Callable[..., None] | None:
    """Returns a builtin function that calls the kernel at `kernel_address`, or `None`.

    It calls `fallback` with the arguments unless they exactly match `signature`, and `fail` with
    the status if the kernel returns one that is not 0. `pool` has the workspaces of a kernel that
    needs one. The caller keeps the kernel's code alive (through `fallback`). `None` for scalars of
    narrow floats, for many outputs, and if the interpreter's or numpy's objects have an unknown
    layout.
    """
    if not layout_is_known() or any(_is_narrow_scalar(a) for a in signature.arguments):
        return None
    written = sum(argument.written for argument in signature.arguments)
    if written * len(signature.arguments) > MAX_PAIRS:  # code that compares them compiles long
        return None
    arguments = tuple(replace(a, name="") for a in signature.arguments)
    code = _compile(arguments, signature.workspace_bytes, host_target())
    name = ctypes.c_char_p(signature.name.encode())
    method = _MethodDef(name, code.address, _METH_FASTCALL, None)
    address = kernel_address.to_bytes(8, sys.byteorder)
    state = (fallback, fail, address, pool, code, method, name)
    return _new_builtin(ctypes.addressof(method), state, None)  # type: ignore[no-any-return]


class _Code(NamedTuple):
    address: int
    owner: object


class _MethodDef(ctypes.Structure):
    """PyMethodDef."""


_MethodDef._fields_ = [
    ("name", ctypes.c_char_p),
    ("function", ctypes.c_void_p),
    ("flags", ctypes.c_int),
    ("doc", ctypes.c_char_p),
]

_new_builtin = ctypes.pythonapi.PyCFunction_NewEx
_new_builtin.restype = ctypes.py_object
_new_builtin.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)


def _is_narrow_scalar(argument: Argument) -> bool:
    facts = dtypes.info(argument.dtype)
    return argument.kind == "scalar" and facts.kind == "float" and facts.bits < 32


@lru_cache(maxsize=256)
def _compile(arguments: tuple[Argument, ...], workspace_bytes: int, host: CpuTarget) -> _Code:
    initialize()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=host.llvm_cpu, features=host.llvm_features, opt=1, reloc="pic"
    )
    text = _Emitter(workspace_bytes).text(arguments)
    loaded = load_object(machine.emit_object(binding.parse_assembly(text)), [_ENTRY], {})
    kept = (loaded.owner, [dtypes.to_numpy(a.dtype) for a in arguments])
    return _Code(loaded.addresses[0], kept)


class _Emitter:
    """Emits the function as LLVM text; every check that fails jumps to the block `slow`."""

    def __init__(self, workspace_bytes: int) -> None:
        self.workspace_bytes = workspace_bytes
        self.lines: list[str] = []
        self.above: dict[str, None] = {}
        self.count = 0

    def text(self, arguments: tuple[Argument, ...]) -> str:
        self.require(f"icmp eq i64 %nargs, {len(arguments)}")
        values = [
            self.tensor(i, a) if a.kind == "tensor" else self.scalar(i, a)
            for i, a in enumerate(arguments)
        ]
        self.overlaps(arguments, values)
        types = ["ptr" if a.kind == "tensor" else memory_type(a.dtype) for a in arguments]
        parameters = [f"{t} {v}" for t, v in zip(types, values, strict=True)]
        item, payload = tuple.__basicsize__, bytes.__basicsize__ - 1
        self.lines += [
            f"%box.p = getelementptr i8, ptr %self, i64 {item + 16}",
            "%box = load ptr, ptr %box.p",
            f"%kernel.p = getelementptr i8, ptr %box, i64 {payload}",
            "%kernel = load ptr, ptr %kernel.p, align 1",
        ]
        parameters.append(f"ptr {self.take(item + 24) if self.workspace_bytes else 'null'}")
        self.lines.append(f"%state = call ptr {_symbol('PyEval_SaveThread')}()")
        self.ranges(arguments, values)
        self.lines += [
            f"%status = call i32 %kernel({', '.join(parameters)})",
            f"call void {_symbol('PyEval_RestoreThread')}(ptr %state)",
            *self.give(),
            "%ok = icmp eq i32 %status, 0",
            "br i1 %ok, label %done, label %failed",
            "done:",
            f"call void {_symbol('Py_IncRef')}(ptr {_object(None)})",
            f"ret ptr {_object(None)}",
            "failed:",
            f"%fail.p = getelementptr i8, ptr %self, i64 {item + 8}",
            "%fail = load ptr, ptr %fail.p",
            "%wide = sext i32 %status to i64",
            f"%number = call ptr {_symbol('PyLong_FromLong')}(i64 %wide)",
            "%none = icmp eq ptr %number, null",
            "br i1 %none, label %error, label %raise",
            "raise:",
            "store ptr %number, ptr %cell",
            f"%raised = call ptr {_symbol('PyObject_Vectorcall')}"
            "(ptr %fail, ptr %cell, i64 1, ptr null)",
            f"call void {_symbol('Py_DecRef')}(ptr %number)",
            "ret ptr %raised",
            "error:",
            "ret ptr null",
            "outside:",
            f"call void {_symbol('PyEval_RestoreThread')}(ptr %state)",
            *self.give(),
            "br label %slow",
            "slow:",
            f"%fallback.p = getelementptr i8, ptr %self, i64 {item}",
            "%fallback = load ptr, ptr %fallback.p",
            f"%result = call ptr {_symbol('PyObject_Vectorcall')}"
            "(ptr %fallback, ptr %args, i64 %nargs, ptr null)",
            "ret ptr %result",
        ]
        body = "\n  ".join(self.lines)
        above = "".join(f"{text}\n" for text in self.above)
        return (
            f"{above}define ptr @{_ENTRY}(ptr %self, ptr %args, i64 %nargs) {{\n"
            f"entry:\n  %cell = alloca ptr\n  {body}\n}}\n"
        )

    def tensor(self, index: int, argument: Argument) -> str:
        """Checks of one array; the result is the pointer to its data."""
        value = self.load("ptr", "%args", 8 * index)
        self.equal("ptr", self.load("ptr", value, TYPE), _object(np.ndarray))
        self.equal("ptr", self.load("ptr", value, DESCR), _object(dtypes.to_numpy(argument.dtype)))
        self.equal("i32", self.load("i32", value, NDIM), str(len(argument.shape)))
        compact = argument.strides is None
        mask = (C_CONTIGUOUS if compact else 0) | (WRITEABLE if argument.written else 0)
        if mask:
            flags = self.let(f"and i32 {self.load('i32', value, FLAGS)}, {mask}")
            self.equal("i32", flags, str(mask))
        self.words(value, DIMENSIONS, dict(enumerate(argument.shape)))
        if argument.strides is not None and argument.size:
            strides = enumerate(zip(argument.shape, argument.strides, strict=True))
            self.words(value, STRIDES, {i: s * argument.itemsize for i, (n, s) in strides if n > 1})
        data = self.load("ptr", value, DATA)
        if argument.itemsize > 1 and argument.size:
            address = self.let(f"ptrtoint ptr {data} to i64")
            low = self.let(f"and i64 {address}, {argument.itemsize - 1}")
            self.equal("i64", low, "0")
        return data

    def words(self, value: str, field: int, expected: dict[int, int]) -> None:
        if expected:
            pointer = self.load("ptr", value, field)
            for i, number in expected.items():
                self.equal("i64", self.load("i64", pointer, 8 * i), str(number))

    def scalar(self, index: int, argument: Argument) -> str:
        """Checks of one number; the result is its C value."""
        value = self.load("ptr", "%args", 8 * index)
        kind = dtypes.info(argument.dtype).kind
        if kind == "bool":
            yes = self.let(f"icmp eq ptr {value}, {_object(True)}")
            no = self.let(f"icmp eq ptr {value}, {_object(False)}")
            self.require(f"or i1 {yes}, {no}")
            return self.let(f"zext i1 {yes} to i8")
        python_type = float if kind == "float" else int
        self.equal("ptr", self.load("ptr", value, TYPE), _object(python_type))
        if kind == "float":
            return self.float(self.load("double", value, _FLOAT_VALUE), argument.dtype)
        low, high = dtypes.int_limits(argument.dtype)
        if argument.value_range is not None:
            low, high = max(low, argument.value_range[0]), min(high, argument.value_range[1] - 1)
        number = self.let(
            f"call i64 {_symbol('PyLong_AsLongLongAndOverflow')}(ptr {value}, ptr %cell)"
        )
        self.equal("i32", self.load("i32", "%cell", 0), "0")
        self.require(f"icmp sge i64 {number}, {low}")
        self.require(f"icmp sle i64 {number}, {min(high, (1 << 63) - 1)}")
        bits = dtypes.info(argument.dtype).bits
        return number if bits == 64 else self.let(f"trunc i64 {number} to i{bits}")

    def float(self, number: str, dtype: str) -> str:
        if dtype == "float64":
            return number
        narrow = self.let(f"fptrunc double {number} to float")
        back = self.let(f"fpext float {narrow} to double")
        above = self.let(f"fcmp une double {back}, {_INFINITY}")
        below = self.let(f"fcmp une double {back}, {_MINUS_INFINITY}")
        finite = self.let(f"and i1 {above}, {below}")
        same = self.let(f"fcmp oeq double {back}, {number}")
        self.require(f"or i1 {finite}, {same}")
        return narrow

    def overlaps(self, arguments: tuple[Argument, ...], values: list[str]) -> None:
        tensors = [(a, v) for a, v in zip(arguments, values, strict=True) if a.kind == "tensor"]
        for (a, x), (b, y) in combinations(tensors, 2):
            if (a.written or b.written) and a.size and b.size:
                x_end = self.let(f"getelementptr i8, ptr {x}, i64 {a.span_bytes}")
                y_end = self.let(f"getelementptr i8, ptr {y}, i64 {b.span_bytes}")
                before = self.let(f"icmp ule ptr {x_end}, {y}")
                after = self.let(f"icmp ule ptr {y_end}, {x}")
                self.require(f"or i1 {before}, {after}")

    def take(self, place: int) -> str:
        """Take a workspace off the pool, which is at `place` of the state; its address."""
        self.lines += [
            f"%pool.p = getelementptr i8, ptr %self, i64 {place}",
            "%pool = load ptr, ptr %pool.p",
        ]
        count = self.let(f"call i64 {_symbol('PyList_Size')}(ptr %pool)")
        self.require(f"icmp sgt i64 {count}, 0")
        last = self.let(f"sub i64 {count}, 1")
        item = f"call ptr {_symbol('PyList_GetItem')}(ptr %pool, i64 {last})"
        self.lines.append(f"%workspace = {item}")
        found = self.load("i64", self.load("ptr", "%workspace", DIMENSIONS), 0)
        self.require(f"icmp sge i64 {found}, {self.workspace_bytes}")
        self.lines.append(f"call void {_symbol('Py_IncRef')}(ptr %workspace)")
        cut = f"call i32 {_symbol('PyList_SetSlice')}"
        removed = self.let(f"{cut}(ptr %pool, i64 {last}, i64 {count}, ptr null)")
        self.require(f"icmp eq i32 {removed}, 0", "error")
        return self.load("ptr", "%workspace", DATA)

    def give(self) -> list[str]:
        """Put the workspace back. Where the list cannot grow, it goes with its last reference."""
        if not self.workspace_bytes:
            return []
        return [
            f"call i32 {_symbol('PyList_Append')}(ptr %pool, ptr %workspace)",
            f"call void {_symbol('PyErr_Clear')}()",
            f"call void {_symbol('Py_DecRef')}(ptr %workspace)",
        ]

    def ranges(self, arguments: tuple[Argument, ...], values: list[str]) -> None:
        """Check the values of index arrays without the GIL, since that takes time."""
        for number, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            limits = checked_limits(argument)
            if limits is None:
                continue
            least, greatest = limits
            if least > greatest:
                self.require("icmp eq i1 true, false", "outside")
                continue
            name = f"in_range{number}"
            self.above |= dict.fromkeys(range_function(name, argument, least, greatest))
            self.require(f"call i1 @{name}(ptr {value})", "outside")

    def let(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def load(self, kind: str, pointer: str, offset: int) -> str:
        return self.let(
            f"load {kind}, ptr {self.let(f'getelementptr i8, ptr {pointer}, i64 {offset}')}"
        )

    def equal(self, kind: str, value: str, expected: str) -> None:
        self.require(f"icmp eq {kind} {value}, {expected}")

    def require(self, test: str, otherwise: str = "slow") -> None:
        holds = self.let(test)
        go = f"go{self.count}"
        self.lines += [f"br i1 {holds}, label %{go}, label %{otherwise}", f"{go}:"]


def _object(value: object) -> str:
    """The address of an object that outlives the code."""
    return f"inttoptr (i64 {id(value)} to ptr)"


@cache
def _symbol(name: str) -> str:
    """The address of a function of the interpreter."""
    function = getattr(ctypes.pythonapi, name)
    return f"inttoptr (i64 {ctypes.cast(function, ctypes.c_void_p).value} to ptr)"
