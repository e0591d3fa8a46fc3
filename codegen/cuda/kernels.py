"""Print launches as kernels in CUDA C++.

The CUDA C++ of lowered functions: the kernels of each, and the parameters of their launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...base import dtypes
from ...base.errors import BuildError
from ...runtime.cuda_launch import KernelLaunch, KernelResources
from ...target import CudaTarget
from ...tir.equality import flat
from ...tir.ir import (
    Alloc,
    Barrier,
    BarrierScope,
    Buffer,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Ramp,
    Stmt,
    Store,
    Var,
    integers,
)
from ...tir.visit import walk
from ..generator import Part
from ..passes.arena import Arena, arena_of
from ..passes.intervals import Intervals
from ..passes.launches import Launch, launches_of
from ..passes.rewrite import origin, ranges_of
from .expressions import Expressions
from .prelude import Names, move_type, prelude

_BARRIERS = {BarrierScope.BLOCK: "__syncthreads();", BarrierScope.WARP: "__syncwarp();"}
_STEP = "  "


class Kernel(NamedTuple):
    """The text of a kernel, what it needs of the prelude, and the parameters of its launch.

    `arguments` are positions of the parameters of the function, and their number for the workspace.
    `loops` are the variables of the scheduled loops by the line, from 0, that each begins at.
    """

    symbol: str
    text: str
    headers: frozenset[str]
    functions: frozenset[str]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[int, ...]
    loops: Mapping[int, Var]


def kernel(launch: Launch, func: Func, symbol: str, workspace: Mapping[Buffer, int]) -> Kernel:
    """The kernel of a launch of a lowered function.

    `workspace` has the offsets of the function's internal buffers, in bytes.
    """
    printer = _Printer(launch, func, workspace)
    text = printer.kernel(symbol)
    return Kernel(
        symbol,
        text,
        frozenset(printer.expr.headers),
        frozenset(printer.expr.functions),
        launch.extents("blockIdx"),
        launch.extents("threadIdx"),
        printer.arena.bytes,
        tuple(printer.arguments),
        printer.loops,
    )


class _Printer:
    def __init__(self, launch: Launch, func: Func, workspace: Mapping[Buffer, int]) -> None:
        self.launch, self.func, self.workspace = launch, func, workspace
        self.names = Names()
        self.intervals = Intervals(ranges_of(launch.statement()))
        self.expr = Expressions(self.names, self.intervals)
        self.arena: Arena = arena_of(launch)
        self.used = {n for n in walk(launch.code) if type(n) in (Var, Buffer)}
        self.stored = {n.buffer for n in walk(launch.code) if type(n) is Store}
        self.moved = {
            b
            for n in walk(launch.code)
            if type(n) is Store and is_move(n)
            for b in (n.buffer, moved_from(n).buffer)
        }
        self.arguments: list[int] = []
        self.lines: list[str] = []
        self.loops: dict[int, Var] = {}

    def line(self, indent: int, text: str) -> None:
        self.lines.append(_STEP * indent + text)

    def kernel(self, symbol: str) -> str:
        parameters = self.parameters()
        bounds = f"__launch_bounds__({self.launch.thread_count})"
        self.line(0, f'extern "C" __global__ void {bounds} {symbol}(')
        for n, parameter in enumerate(parameters):
            self.line(2, parameter + (") {" if n == len(parameters) - 1 else ","))
        if not parameters:
            self.lines[-1] += ") {"
        for f in self.launch.axes:
            if f.var in self.used:
                name = self.names.bind(f.var, f.var.name)
                self.line(1, f"const {self.expr.type(f.var.dtype)} {name} = {f.thread};")
        self.shared()
        self.global_buffers()
        self.suite(self.launch.code, 1)
        self.line(0, "}")
        return "\n".join(self.lines) + "\n"

    def parameters(self) -> list[str]:
        found = list[str]()
        for n, p in enumerate(self.func.params):
            if p not in self.used:
                continue
            self.arguments.append(n)
            name = self.names.bind(p, p.name)
            kind = self.expr.type(p.dtype)
            if isinstance(p, Var):
                found.append(f"const {kind} {name}")
            else:
                const = "" if p in self.stored else "const "
                found.append(f"{const}{kind}* __restrict__ {name}")
        if any(b in self.used for b in self.workspace):
            self.arguments.append(len(self.func.params))
            found.append("unsigned char* __restrict__ workspace")
        return found

    def shared(self) -> None:
        """The shared buffers, in one array."""
        if not self.launch.shared:
            return
        size = self.arena.bytes
        self.line(1, f"extern __shared__ __align__(128) unsigned char shared_memory[];  // {size}")
        for b, offset in zip(self.launch.shared, self.arena.offsets, strict=True):
            self.pointer(b, "shared_memory", offset)

    def global_buffers(self) -> None:
        for b, offset in self.workspace.items():
            if b in self.used:
                self.pointer(b, "workspace", offset)

    def pointer(self, b: Buffer, base: str, offset: int) -> None:
        kind, name = self.expr.type(b.dtype), self.names.bind(b, b.name)
        at = f"{base} + {offset}" if offset else base
        self.line(1, f"{kind}* const {name} = reinterpret_cast<{kind}*>({at});")

    # Statements

    def suite(self, s: Stmt, indent: int) -> None:
        for n, child in enumerate(stmts := flat(s)):
            self.stmt(child, indent, last=n == len(stmts) - 1)

    def stmt(self, s: Stmt, indent: int, *, last: bool) -> None:
        match s:
            case For():
                self.loop(s, indent)
            case If():
                self.branch(s, indent)
            case Let() | Alloc():
                self.binding(s, indent, last=last)
            case Store() if is_move(s):
                self.move(s, indent)
            case Store():
                (index,) = s.indices
                place = self.expr.element(s.buffer, index)
                self.line(indent, f"{place} = {self.expr.text(s.value)};")
            case Barrier():
                self.line(indent, _BARRIERS[s.scope])
            case _:
                raise TypeError(f"no {type(s).__name__} is left in a lowered program")

    def loop(self, s: For, indent: int) -> None:
        if s.kind is ForKind.UNROLL:
            self.line(indent, "#pragma unroll")
        name, kind = self.names.bind(s.var, s.var.name), self.expr.type(s.var.dtype)
        self.loops[len(self.lines)] = origin(s.var)
        self.line(indent, f"for ({kind} {name} = 0; {name} < {s.extent}; ++{name}) {{")
        self.suite(s.body, indent + 1)
        self.line(indent, "}")
        self.names.release(s.var)

    def branch(self, s: If, indent: int) -> None:
        self.line(indent, f"if ({self.expr.text(s.cond)}) {{")
        self.suite(s.then, indent + 1)
        if s.other is not None:
            self.line(indent, "} else {")
            self.suite(s.other, indent + 1)
        self.line(indent, "}")

    def binding(self, s: Let | Alloc, indent: int, *, last: bool) -> None:
        """A variable or a buffer of the thread, in a scope of its own where more follows."""
        if not last:
            self.line(indent, "{")
        inside = indent + (not last)
        if isinstance(s, Let):
            text = self.expr.text(s.value)  # outside of the scope of the variable
            if not dtypes.is_float(s.value.dtype):
                self.intervals.ranges[s.var] = self.intervals(s.value)
            name = self.names.bind(s.var, s.var.name)
            self.line(inside, f"const {self.expr.type(s.var.dtype)} {name} = {text};")
            thing: Var | Buffer = s.var
        else:
            thing, size = s.buffer, integers(s.buffer.shape)[0]
            align = "alignas(16) " if thing in self.moved else ""
            name, kind = self.names.bind(thing, thing.name), self.expr.type(thing.dtype)
            self.line(inside, f"{align}{kind} {name}[{max(size, 1)}];")
        self.suite(s.body, inside)
        if not last:
            self.line(indent, "}")
        self.names.release(thing)

    def move(self, s: Store, indent: int) -> None:
        """So many bytes at once, from one buffer to another."""
        source = moved_from(s)
        kind = move_type(s.buffer.dtype, dtypes.info(source.dtype).lanes)
        target = self.start(s.buffer, s.indices, kind)
        value = self.start(source.buffer, source.indices, f"const {kind}")
        self.line(indent, f"{target} = {value};")

    def start(self, b: Buffer, indices: Sequence[object], kind: str) -> str:
        (index,) = indices
        assert isinstance(index, Ramp)
        return f"*reinterpret_cast<{kind}*>(&{self.expr.element(b, index.base)})"


def is_move(s: Store) -> bool:
    """Whether a store of a lowered program is a move of several elements."""
    return type(s.indices[0]) is Ramp


def moved_from(s: Store) -> Load:
    assert isinstance(s.value, Load)
    return s.value


_ALIGNMENT = 256
"""Bytes: of internal buffers in the workspace."""
_HEADER = "// {0} for {1}\n"


class EntryPoint(NamedTuple):
    """The kernels of one function, in order, and the bytes of its workspace."""

    symbol: str
    kernels: tuple[Kernel, ...]
    workspace_bytes: int

    def launches(self, resources: dict[str, KernelResources]) -> list[KernelLaunch]:
        """Their launches, with what the compiler reports of them."""
        return [
            KernelLaunch(
                k.symbol, k.grid, k.block, k.arguments, k.shared_bytes, resources.get(k.symbol)
            )
            for k in self.kernels
        ]


class Emitted(NamedTuple):
    """The text of all functions of a build.

    `loops` are the variables of the scheduled loops by the line, from 1, that each begins at.
    """

    text: str
    entry_points: tuple[EntryPoint, ...]
    strict_fp: bool
    loops: Mapping[int, Var]


def emit(parts: Sequence[Part], target: CudaTarget, *, strict_fp: bool) -> Emitted:
    """CUDA C++ of lowered functions.

    Raises `BuildError` for a launch that is beyond the limits of the target.
    """
    entry_points = tuple(_entry_point(part.func, part.signature.name, target) for part in parts)
    kernels = [k for entry in entry_points for k in entry.kernels]
    headers = frozenset[str]().union(*(k.headers for k in kernels))
    functions = frozenset[str]().union(*(k.functions for k in kernels))
    title = _HEADER.format(", ".join(e.symbol for e in entry_points), target)
    text = "\n".join(filter(None, [title, prelude(headers, functions)]))
    loops: dict[int, Var] = {}
    for k in kernels:
        text += "\n"
        first = text.count("\n") + 1
        loops |= {first + line: var for line, var in k.loops.items()}
        text += k.text
    return Emitted(text, entry_points, strict_fp, loops)


def workspace_of(func: Func) -> tuple[dict[Buffer, int], int]:
    """The offsets of a lowered function's internal buffers in its workspace, and its bytes."""
    offsets: dict[Buffer, int] = {}
    size = 0
    for b in func.allocs:
        offsets[b] = size
        size += -(-integers(b.shape)[0] * dtypes.nbytes(b.dtype) // _ALIGNMENT) * _ALIGNMENT
    return offsets, size


def _entry_point(func: Func, name: str, target: CudaTarget) -> EntryPoint:
    offsets, size = workspace_of(func)
    launches = launches_of(func)
    symbol = f"{name}_kernel"
    kernels = tuple(
        kernel(launch, func, symbol if len(launches) == 1 else f"{symbol}_{n}", offsets)
        for n, launch in enumerate(launches)
    )
    for k in kernels:
        _check_limits(k, target)
    return EntryPoint(name, kernels, size)


def _check_limits(k: Kernel, target: CudaTarget) -> None:
    """Raise `BuildError` unless devices of the target can launch a kernel."""
    limits = target.limits
    x, y, z = k.block
    threads = x * y * z
    if threads > limits.block_threads:
        raise BuildError(
            "{0} has {1} threads in a block; {2} allows {3}",
            k.symbol,
            threads,
            target,
            limits.block_threads,
            hint="split the loops that are bound to threadIdx, and bind the inner parts only",
        )
    if k.shared_bytes > limits.block_bytes:
        raise BuildError(
            "{0} takes {1} bytes of shared memory in a block; {2} allows {3}",
            k.symbol,
            k.shared_bytes,
            target,
            limits.block_bytes,
            hint="use smaller tiles or fewer stages, or compute the buffer in more steps",
        )
    for unit, found, allowed in (
        ("blockIdx", k.grid, limits.grid),
        ("threadIdx", k.block, limits.block),
    ):
        for axis, extent, most in zip("xyz", found, allowed, strict=True):
            if extent > most:
                raise BuildError(
                    "{0} has {1} iterations along {2}.{3}; {4} allows {5}",
                    k.symbol,
                    extent,
                    unit,
                    axis,
                    target,
                    most,
                    hint=f"bind the loop to {unit}.x, or split it and bind a part",
                )
