"""Footprints of loops: counted element by element, and as columns for the rows of a sketch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import takewhile

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.model.cpu.footprints import Evaluated
from tilewright.autotune.model.loop_footprints import LoopFootprint, footprints, loop_bytes
from tilewright.autotune.model.profile import profile
from tilewright.base import dtypes
from tilewright.schedule.find import loops_in
from tilewright.tir.columns import Column, Number, Program, Tape
from tilewright.tir.ir import (
    ON_NUMBERS,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Load,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
)
from tilewright.tir.visit import children

TARGET = tw.Target.parse("cpu -mcpu=skylake-avx512 -threads=1")
Elements = dict[Buffer, set[tuple[int, ...]]]


def number(e: Expr | int, env: Mapping[Var, int]) -> int:
    match e:
        case int():
            return e
        case Const(value=value):
            return int(value)
        case Var():
            return env[e]
        case Binary(op=op, a=a, b=b):
            return int(ON_NUMBERS[op](number(a, env), number(b, env)))
        case _:
            raise TypeError(type(e))


class Counted:
    """What each iteration of each loop touches, by running the program's accesses."""

    def __init__(self, func: tw.Func) -> None:
        self.largest: dict[Var, dict[Buffer, int]] = defaultdict(lambda: defaultdict(int))
        self.around: dict[Buffer, list[Var]] = {}
        self.run(func.body, {}, [])

    def run(self, s: Stmt, env: dict[Var, int], loops: list[tuple[Var, Elements]]) -> None:
        match s:
            case For(var=var, extent=extent, body=body):
                for k in range(number(extent, env)):
                    touched: Elements = defaultdict(set)
                    self.run(body, {**env, var: k}, [*loops, (var, touched)])
                    for buffer, found in touched.items():
                        most = self.largest[var]
                        most[buffer] = max(most[buffer], len(found))
            case Seq(stmts=stmts):
                for inner in stmts:
                    self.run(inner, env, loops)
            case Block():
                if s.predicate is None or number(s.predicate, env):
                    values = {i.var: number(i.value, env) for i in s.iters}
                    self.touch(s.body, values, loops)
            case _:
                raise TypeError(type(s))

    def touch(self, node: object, env: dict[Var, int], loops: list[tuple[Var, Elements]]) -> None:
        if isinstance(node, (Load, Store)):
            at = tuple(number(i, env) for i in node.indices)
            for _, touched in loops:
                touched[node.buffer].add(at)
            names = [var for var, _ in loops]
            pairs = zip(self.around.setdefault(node.buffer, names), names, strict=False)
            self.around[node.buffer] = [a for a, b in takewhile(lambda p: p[0] is p[1], pairs)]
        if isinstance(node, (Select, If)) and not number(node.cond, env):
            self.touch(node.other, env, loops)
            return
        for child in children(node) if node is not None else ():
            self.touch(child, env, loops)


def counted(func: tw.Func) -> dict[Var, dict[Buffer, int]]:
    """Bytes by loop and buffer; internal buffers as large as they are while they live."""
    found = Counted(func)
    result: dict[Var, dict[Buffer, int]] = {}
    for loop, touched in found.largest.items():
        result[loop] = {}
        for buffer, count in touched.items():
            around = found.around[buffer]
            if buffer in func.allocs and loop in set(around):  # else it is used inside alone
                count = found.largest[around[-1]][buffer]
            result[loop][buffer] = count * dtypes.nbytes(buffer.dtype)
    return result


def tiled_matmul() -> tw.Func:
    sch = tw.Schedule(ops.matmul_func(16, 24, 8))
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, factors=[None, 4])
    j0, j1 = sch.split(j, factors=[None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.vectorize(j1)
    return sch.func


def fused_loops() -> tw.Func:
    sch = tw.Schedule(ops.matmul_func(6, 8, 4))
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.split(sch.fuse(i, j), factors=[None, 8])
    return sch.func


def stencil() -> tw.Func:
    X = te.placeholder((30,), "float32", name="X")
    Y = te.compute((28,), lambda i: X[i] + X[i + 1] + X[i + 2], name="Y")
    sch = tw.Schedule(te.func([X, Y], name="stencil"))
    sch.split(sch.get_loops(sch.get_block("Y"))[0], factors=[None, 4])
    return sch.func


def far_apart() -> tw.Func:
    X = te.placeholder((200,), "float64", name="X")
    Y = te.compute((10, 10), lambda i, j: X[i * 10 + j] + X[i * 10 + j + 100], name="Y")
    return te.func([X, Y], name="far_apart")


def backward() -> tw.Func:
    X = te.placeholder((12, 5), "int8", name="X")
    Y = te.compute((12, 5), lambda i, j: X[11 - i, 4 - j], name="Y")
    return te.func([X, Y], name="backward")


def producer_inside() -> tw.Func:
    """A producer that is computed where it is used: four elements of it live at once."""
    X = te.placeholder((32,), "float32", name="X")
    Y = te.compute((32,), lambda i: X[i] * 2.0, name="Y")
    Z = te.compute((32,), lambda i: Y[i] + X[31 - i], name="Z")
    sch = tw.Schedule(te.func([X, Z], name="producer_inside"))
    outer, _ = sch.split(sch.get_loops(sch.get_block("Z"))[0], factors=[None, 4])
    sch.compute_at(sch.get_block("Y"), outer)
    return sch.func


def tail() -> tw.Func:
    X = te.placeholder((10,), "float32", name="X")
    Y = te.compute((10,), lambda i: X[i] + 1.0, name="Y")
    sch = tw.Schedule(te.func([X, Y], name="tail"))
    sch.split(sch.get_loops(sch.get_block("Y"))[0], factors=[None, 4])
    return sch.func


@pytest.mark.parametrize(
    "make", [tiled_matmul, fused_loops, stencil, far_apart, backward, producer_inside, tail]
)
def test_footprints_are_what_iterations_touch(make: Callable[[], tw.Func]) -> None:
    func = make()
    found = footprints(func, TARGET)
    sizes = {v: {b: f.bytes for b, f in buffers.items()} for v, buffers in found.items()}
    assert sizes == counted(func)


def test_indices_of_data_may_take_every_value() -> None:
    X = te.placeholder((40, 7), "float32", name="X")
    I = te.placeholder((10,), "int32", name="I", value_range=(0, 40))  # noqa: E741
    Y = te.compute((3, 10, 7), lambda r, i, j: X[I[i], j] + X[i * 4, j], name="Y")
    func = te.func([X, I, Y], name="gather")
    found = [
        next(f for b, f in footprints(func, TARGET)[s.var].items() if b is func.params[0])
        for s in loops_in(func.body)
    ]
    # All of X, though no more than 20 rows; a row for each of the two accesses; an element each.
    assert [f.bytes for f in found] == [40 * 7 * 4, 2 * 7 * 4, 2 * 4]


def test_the_memory_is_the_nearest_that_holds_it() -> None:
    func = ops.matmul_func(64, 512, 128)
    sch = tw.Schedule(func)
    i, j, k = sch.get_loops(sch.get_block("C"))
    found = {b.name: f for b, f in footprints(func, TARGET)[i].items()}
    assert found == {
        "C": LoopFootprint(512 * 4, "L1"),
        "A": LoopFootprint(128 * 4, "L1"),
        "B": LoopFootprint(128 * 512 * 4, "L2"),
    }
    assert set(footprints(func, TARGET)) == {i, j, k}
    assert TARGET.memory_for(1 << 40, "global") == "memory"


def test_registers_and_the_memories_of_gpus() -> None:
    sch = tw.Schedule(ops.matmul_func(64, 64, 64))
    c = sch.get_block("C")
    i, j, _ = sch.get_loops(c)
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    sch.reverse_compute_at(sch.cache_write(c, 0, "register"), j)
    a = sch.cache_read(c, 0, "shared")
    sch.compute_at(a, i)
    gpu = tw.Target.parse("cuda -arch=sm_90a")
    found = {b.scope: f for b, f in footprints(sch.func, gpu)[i].items()}
    assert found["register"] == LoopFootprint(4, "registers")
    assert found["shared"] == LoopFootprint(64 * 4, "shared")
    assert found["global"].memory == "global"


def test_columns_are_those_of_the_programs_of_the_rows() -> None:
    """What a slider shows of a symbolic sketch is what the concrete program has."""
    func = ops.matmul_func(64, 64, 64)

    symbolic = tw.Schedule(func, symbolic=True)
    i, j, k = symbolic.get_loops(symbolic.get_block("C"))
    i0, i1 = symbolic.split(i, factors=list(symbolic.sample_perfect_tile(i, 2, 16)))
    j0, j1 = symbolic.split(j, factors=list(symbolic.sample_perfect_tile(j, 2, 16)))
    symbolic.reorder(i0, j0, k, i1, j1)
    assert symbolic.space is not None
    tape = Tape()
    touched = loop_bytes(Evaluated(profile(symbolic.func, symbolic.space.bounds), tape))
    names: list[tuple[str, str]] = []
    numbers: list[Number] = []
    for loop, buffers in touched.items():
        for buffer, count in buffers.items():
            names.append((loop.name, buffer.name))
            numbers.append(count)
    assert any(isinstance(count, Column) for count in numbers)
    rows = np.array([[8, 16], [1, 8], [16, 1]])
    (_, columns), *_ = Program(tape, numbers).run(np.ascontiguousarray(rows.T), len(rows))
    for n, row in enumerate(rows.tolist()):
        concrete = symbolic.trace.with_row(row).apply(func).func
        expected = {
            (loop.name, buffer.name): f.bytes
            for loop, buffers in footprints(concrete, TARGET).items()
            for buffer, f in buffers.items()
        }
        shown = {
            name: int(np.broadcast_to(column, len(rows))[n])
            for name, column in zip(names, columns, strict=True)
        }
        assert shown == expected
