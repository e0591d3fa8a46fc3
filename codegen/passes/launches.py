"""Launches of a lowered program: what of a statement is blocks, shared memory, threads and code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import NamedTuple

from ...tir.equality import flat
from ...tir.ir import Alloc, Buffer, For, ForKind, Func, Stmt, Var, seq
from ...tir.visit import with_func_body
from .rewrite import allocated

BLOCK_AXES = ("blockIdx.z", "blockIdx.y", "blockIdx.x")
THREAD_AXES = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
AXES = (*BLOCK_AXES, *THREAD_AXES)
"""The axes of a launch, from outside; threads next to each other differ in the last one."""


class Launch(NamedTuple):
    """The loops over blocks and threads of a launch, from outside, and the code of a thread."""

    blocks: tuple[For, ...]
    shared: tuple[Buffer, ...]
    threads: tuple[For, ...]
    code: Stmt

    @property
    def axes(self) -> tuple[For, ...]:
        return (*self.blocks, *self.threads)

    @property
    def thread_vars(self) -> list[Var]:
        return [f.var for f in self.threads]

    @property
    def thread_count(self) -> int:
        return prod(_extent(f) for f in self.threads)

    def extent(self, axis: str) -> int:
        """The iterations of an axis; 1 of one that has no loop."""
        return next((_extent(f) for f in self.axes if f.thread == axis), 1)

    def extents(self, unit: str) -> tuple[int, int, int]:
        """The extents of `blockIdx` or `threadIdx`, in x, y and z."""
        x, y, z = (self.extent(f"{unit}.{axis}") for axis in "xyz")
        return x, y, z

    def statement(self) -> Stmt:
        body = self.code
        for f in reversed(self.threads):
            body = replace(f, body=body)
        body = allocated(self.shared, body)
        for f in reversed(self.blocks):
            body = replace(f, body=body)
        return body


def launch_of(stmt: Stmt) -> Launch:
    """The launch that a statement at the top of a lowered program is."""
    blocks, shared, threads = list[For](), list[Buffer](), list[For]()
    while True:
        if type(stmt) is For and stmt.kind is ForKind.THREAD:
            (blocks if stmt.thread in BLOCK_AXES else threads).append(stmt)
            stmt = stmt.body
        elif type(stmt) is Alloc and stmt.buffer.scope == "shared" and not threads:
            shared.append(stmt.buffer)
            stmt = stmt.body
        else:
            return Launch(tuple(blocks), tuple(shared), tuple(threads), stmt)


def launches_of(func: Func) -> tuple[Launch, ...]:
    """The launches of a lowered program, in order."""
    return tuple(map(launch_of, flat(func.body)))


def map_launches(func: Func, f: Callable[[Launch], Launch]) -> Func:
    """`func` with `f` applied to its launches."""

    def visit(stmt: Stmt) -> Stmt:
        old = launch_of(stmt)
        new = f(old)
        return stmt if new is old else new.statement()

    stmts = flat(func.body)
    new = [visit(stmt) for stmt in stmts]
    same = all(a is b for a, b in zip(stmts, new, strict=True))
    return func if same else with_func_body(func, seq(*new))


def with_code(launch: Launch, code: Stmt) -> Launch:
    """`launch` with other code; the same launch if it is the same code."""
    return launch if code is launch.code else launch._replace(code=code)


def _extent(f: For) -> int:
    assert isinstance(f.extent, int), "lowered programs are concrete"
    return f.extent
