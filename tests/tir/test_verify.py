"""The verifier refuses programs that break a rule, says why, and accepts those that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from operator import mul
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tilewright import ops
from tilewright.base.errors import ParseError, VerifyError
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import (
    Alloc,
    Binary,
    Block,
    Broadcast,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Iter,
    IterKind,
    Label,
    Let,
    Load,
    Op,
    Prefetch,
    Ramp,
    Range,
    Reduce,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    cast,
    const,
    select,
    seq,
    store,
)
from tilewright.tir.parser import parse
from tilewright.tir.regions import access_regions
from tilewright.tir.verify import verify
from tilewright.tir.wellformed import may_share

from ..long import examples
from .expressions import SEEDS, Maker

I, J, K, R = (Var(v) for v in "ijkr")  # noqa: E741
A = Buffer("A", (16,), "float32")
B = Buffer("B", (16,), "float32")
C = Buffer("C", (16,), "float32")
M = Buffer("M", (8, 16), "float32")


def func(body: Stmt, *params: Buffer | Var, allocs: tuple[Buffer, ...] = (), **more: Any) -> Func:
    return Func("f", params or (A, B), allocs, body, **more)


def block(
    body: Stmt, *iters: tuple[Var, int, IterKind, Expr], name: str = "block", **more: Any
) -> Block:
    """A block with the regions that its body touches."""
    reads, writes = access_regions(body, ranges={v: (0, n - 1) for v, n, _, _ in iters})
    made = tuple(Iter(*i) for i in iters)
    return Block(Label(name), made, more.pop("reads", reads), more.pop("writes", writes), body,
                 **more)  # fmt: skip


def copy(value: Expr, extent: int = 16, **more: Any) -> Block:
    v = Var("v")
    return block(store(B, (v,), A[v]), (v, extent, IterKind.SPATIAL, value), **more)


def refused(program: Func, *words: str) -> None:
    with pytest.raises(VerifyError) as found:
        verify(program)
    for word in words:
        assert word in str(found.value), str(found.value)


OPS: dict[str, Callable[[], Func]] = {
    "matmul": lambda: ops.matmul_func(7, 9, 5),
    "batched": lambda: ops.matmul_func(
        4, 3, 5, batch=2, transpose_a=True, bias=True, epilogue="relu"
    ),
    "conv2d": lambda: ops.conv2d_func(1, 4, 9, 7, 8, 3, 2, 1, 2, 2, bias=True),
    "conv2d_nhwc": lambda: ops.conv2d_func(1, 4, 7, 7, 4, layout="NHWC"),
    "depthwise": lambda: ops.depthwise_conv2d_func(1, 4, 7, 7),
    "pool": lambda: ops.pool2d_func("avg", 1, 2, 9, 9),
    "attention": lambda: ops.attention_func(1, 2, 6, 4, causal=True),
    "softmax": lambda: ops.softmax_func(4, 5),
    "layer_norm": lambda: ops.layer_norm_func(4, 5),
    "transpose": lambda: ops.transpose_func(3, 4),
    "argmax": lambda: ops.reduction_func("argmax", 4, 5),
    "prod": lambda: ops.reduction_func("prod", 4, 5, axis=0),
    "gelu": lambda: ops.activation_func(9, "gelu"),
    "empty": lambda: ops.matmul_func(0, 3, 2),
    "ones": lambda: ops.matmul_func(1, 1, 1),
}


@pytest.mark.parametrize("name", OPS)
def test_operators_are_right(name: str) -> None:
    verify(OPS[name]())


# Structure


def test_names_are_defined_and_unique() -> None:
    refused(func(For(I, 16, store(B, (J,), 0.0))), "variable j is not defined", "variables here: i")
    twice = seq(For(I, 16, store(B, (I,), 0.0)), For(I, 16, store(B, (I,), 1.0)))
    refused(func(twice), "variable i is bound twice", "a loop")
    refused(func(For(I, 16, store(C, (I,), 0.0))), "C is stored to and is neither a parameter")
    refused(func(Seq(()), A, A), "parameter appears twice")
    refused(func(Seq(()), allocs=(A,)), "A is declared twice")
    refused(func(Seq(()), inplace=(C,)), "C is in place and no parameter")


@pytest.mark.parametrize("numbers", [[2], [-1], [True], ["A"], 0, None])
def test_streamed_parameters_are_numbers(numbers: Any) -> None:
    fill = For(I, 16, store(B, (I,), 0.0))
    verify(replace(func(fill), annotations=(("stream", [1]),)))
    wrong = replace(func(fill), annotations=(("stream", numbers),))
    refused(wrong, f"stream is {numbers!r}; expected a list of the numbers", "of [0, 1]")


def test_blocks_see_only_their_own_variables() -> None:
    v = Var("v")
    inner = block(store(B, (I,), 0.0), (v, 16, IterKind.SPATIAL, I * 1))
    refused(func(For(I, 16, inner)), "block block", "variable i is used outside of what binds it",
            "only its iteration variables")  # fmt: skip
    label = Label("same")
    one, two = (replace(copy(v * 1), label=label) for v in (I, J))
    refused(func(seq(For(I, 16, one), For(J, 16, two))), "label appears twice")


def test_dtypes_fit() -> None:
    i32 = Var("x", "int32")
    wrong: list[tuple[Stmt, str]] = [
        (Store(B, (const(0),), const(1)), "value of int64 is stored to B of float32"),
        (Store(B, (const(0), const(0)), const(0.0, "float32")), "1 dimensions and is stored to"),
        (Store(B, (const(0, "int32"),), const(0.0, "float32")), "index of B has dtype int32"),
        (If(const(1), store(B, (0,), 0.0)), "condition has dtype int64; expected bool"),
        (Store(B, (const(0),), Load(A, (const(0),), "float64")), "load of float64 from A"),
        (For(i32, 4, store(B, (0,), 0.0)), "loop variable x has dtype int32"),
        (For(I, 4, store(B, (0,), 0.0), thread="threadIdx.x"), "has thread axis threadIdx.x"),
        (
            For(I, 4, store(B, (0,), 0.0), ForKind.THREAD, "threadIdx.q"),
            "bound to threadIdx.q; expected one of blockIdx.x",
        ),
        (For(I, -1, store(B, (0,), 0.0)), "extent of loop i is -1"),
        (Let(J, const(1, "int32"), store(B, (J,), 0.0)), "is bound to a value of int32"),
        (
            store(B, (Binary(Op.ADD, const(0), const(1, "int32"), "int64"),), 0.0),
            "+ of int64 and int32 gives int64",
        ),
        (
            Store(B, (const(0),), Reduce("sum", (A[0],), (), 0, "float32")),
            "a reduction expression is left (sum)",
        ),
    ]  # fmt: skip
    for body, words in wrong:
        refused(func(body), words)
    bad = Buffer("V", (4,), "float32x4")
    refused(func(Seq(()), bad), "elements of float32x4")
    refused(func(Seq(()), Buffer("S", (4, 4), "float32", strides=(4,))), "1 strides for 2")
    refused(func(Seq(()), Buffer("S", (4,), "float32", strides=(-1,))), "expected none negative")
    refused(func(Seq(()), Buffer("N", (-4,), "float32")), "negative shape")


def test_prefetches_are_of_memory_and_may_leave_it() -> None:
    verify(func(seq(For(I, 16, copy(I * 1)), Prefetch(A, (const(1 << 40),)))))
    held = Buffer("R", (4,), "float32", scope="register")
    refused(func(Prefetch(held, (const(0),)), allocs=(held,)), "R is prefetched and is held in")
    lanes = Ramp(const(0), const(1), 4, "int64x4")
    refused(func(Prefetch(A, (lanes,))), "A is prefetched at a vector of indices")
    refused(func(Prefetch(A, (const(0), const(0)))), "is prefetched with 2 indices")


def test_indices_of_prefetches_are_evaluated() -> None:
    far = Buffer("P", (4,), "int64")
    refused(func(Prefetch(A, (far[const(7)],)), far, A), "index 7 of P")
    refused(func(Prefetch(A, (const(1) // far[const(0)],)), far, A), "divisor P[0]")


def test_register_buffers_have_constant_indices() -> None:
    reg = Buffer("acc", (4,), "float32", scope="register")

    def program(kind: ForKind) -> Func:
        body = seq(For(I, 4, store(reg, (I,), 0.0), kind), For(J, 4, store(B, (J,), reg[J]), kind))
        return func(Alloc(reg, body))

    verify(program(ForKind.UNROLL))
    refused(program(ForKind.SERIAL), "index of register buffer acc depends on i", "unroll")


def test_extents_are_integers() -> None:
    """The parser gives a loop whose end varies its largest extent, under a condition."""
    refused(func(For(I, 4, For(J, I + 1, store(B, (J,), 0.0)))), "the extent of loop j is i + 1")
    axis = Iter(Var("v"), I + 1, IterKind.SPATIAL, J)
    block = Block(Label("b"), (axis,), (), (), Seq(()))
    refused(func(For(I, 4, For(J, 4, block))), "the extent of v is i + 1")


def test_nothing_but_loops_stands_around_a_block() -> None:
    """What a block reads is then told by its declared regions."""
    block = Block(Label("b"), (), (), (), Seq(()))
    asks = A[0] > 0.0
    refused(func(If(I > 2, block)), "a condition stands around a block")
    refused(func(For(I, 4, seq(If(I > 2, For(J, 4, block)), Seq(())))), "stands around a block")
    refused(func(Let(Var("v"), const(1), For(I, 4, block))), "v is bound around a block")
    refused(func(replace(block, predicate=asks)), "the predicate reads A", "in the body")


# Bounds


def test_accesses_are_in_bounds() -> None:
    refused(
        func(For(I, 16, store(B, (I,), A[I + 1]))),
        "index i + 1 of A in dimension 0 is known to lie in [1, 16]; expected 0 to 15",
        "te.select",
    )
    refused(func(For(I, 17, store(B, (I,), 0.0))), "index i of B", "[0, 16]", "shape [16]")
    refused(func(For(I, 4, store(B, (I - 1,), 0.0))), "[-1, 2]")
    verify(func(For(I, 4, store(M, (I, I * 5), 0.0)), M))
    refused(func(For(I, 4, store(M, (I * 3, I), 0.0)), M), "dimension 0", "shape [8, 16]")


def test_a_reduce_axis_that_is_too_long_is_named() -> None:
    x, r = te.placeholder((4, 5), name="X"), te.reduce_axis(9, name="r")
    y = te.compute((4,), lambda i: te.sum(x[i, r], axis=r), name="Y")
    refused(te.func([x, y], name="f"), "index vr of X", "vr is the reduce axis r of extent 9")


def test_paths_are_followed() -> None:
    inside = (I >= 2) & (I < 18)
    verify(func(For(I, 20, If(I < 16, store(B, (I,), select(inside, A[I - 2], 0.0))))))
    refused(
        func(For(I, 20, If(I < 16, store(B, (I,), select(I >= 1, A[I - 2], 0.0))))), "index i - 2"
    )
    refused(func(For(I, 20, If(I < 17, store(B, (I,), 0.0)))), "index i of B")
    other = If(I < 4, store(B, (I,), 0.0), store(B, (I - 4,), 0.0))
    verify(func(For(I, 20, other)))
    never = select(I > 16, A[I + 5], 0.0)
    verify(func(For(I, 16, store(B, (I,), never))))


def test_each_side_of_a_select_in_an_index_is_followed() -> None:
    wide = Buffer("wide", (20,), "float32")

    def program(index: Expr) -> Func:
        return func(For(I, 20, store(wide, (I,), A[index])), A, wide)

    reflected = select(I < 2, 2 - I, select(I < 18, I - 2, 32 - I))
    verify(program(reflected))
    verify(program(15 - reflected))
    verify(program(reflected // 2 + select(I < 8, 8, 0)))
    refused(program(select(I < 2, 2 - I, select(I < 19, I - 2, 32 - I))), "index T.select(i < 2")
    refused(program(select(I < 2, 2 - I, select(I < 18, I - 2, 36 - I))), "[-17, 36]")
    refused(program(select(I < 2, 1 - I, select(I < 18, I - 3, 32 - I))), "of A in dimension 0")


def test_lets_and_loops_of_no_iteration() -> None:
    verify(func(For(I, 4, Let(J, I * 4, For(K, 4, store(B, (J + K,), 0.0))))))
    refused(func(For(I, 5, Let(J, I * 4, For(K, 4, store(B, (J + K,), 0.0))))), "[0, 19]")
    verify(func(For(I, 0, store(B, (I + 99,), 0.0))))


def test_bindings_are_in_the_domain() -> None:
    verify(func(For(I, 2, For(J, 8, copy(I * 8 + J)))))
    tail = For(I, 3, For(J, 6, copy(I * 6 + J, predicate=I * 6 + J < 16)))
    verify(func(tail))
    refused(func(For(I, 3, For(J, 6, copy(I * 6 + J)))), "block block", "the value i * 6 + j of v",
            "[0, 17]", "predicate")  # fmt: skip
    refused(func(For(I, 3, For(J, 6, copy(I * 6 + J, predicate=I * 6 + J < 17)))), "where")


def test_gathers_need_a_declared_range() -> None:
    def program(index: Buffer) -> Func:
        return func(For(I, 16, store(B, (I,), A[cast("int64", index[I])])), A, B, index)

    verify(program(Buffer("index", (16,), "int32", value_range=(0, 16))))
    refused(program(Buffer("index", (16,), "int32")), "index", "of A",
            "the indices in index: value_range=(0, 16)")  # fmt: skip
    refused(program(Buffer("index", (16,), "int32", value_range=(0, 17))), "[0, 16]",
            "the indices in index: value_range=(0, 16); or pad")  # fmt: skip


def test_the_hint_for_an_index_that_is_computed_names_its_limits() -> None:
    index = Buffer("index", (16,), "int32")
    shifted = func(For(I, 16, store(B, (I,), A[cast("int64", index[I]) + 1])), A, B, index)
    refused(shifted, "computed from, value_range=(low, high), so that it lies in 0 to 15")


@pytest.mark.parametrize("shape", [(4,), (1, 4), (4, 4), (3, 5), (2, 3, 4), (0, 4)])
def test_elements_of_written_buffers_share_no_memory(shape: tuple[int, ...]) -> None:
    rank, counts = len(shape), {True: 0, False: 0}
    for strides in product((0, 1, 2, 3, 4, 5, 6, 12), repeat=rank):
        places = [sum(map(mul, at, strides)) for at in product(*map(range, shape))]
        shares = len(set(places)) < len(places)
        counts[shares] += 1
        assert may_share(shape, strides) is shares, strides
    assert counts[False] > 0
    assert (counts[True] == 0) is (0 in shape)


def test_written_buffers_with_shared_elements_are_refused() -> None:
    shared = Buffer("S", (8, 8), "float32", strides=(3, 2))
    written = For(I, 8, store(shared, (I, I), 1.0))
    refused(func(written, shared), r"S is written, and by its strides (3, 2)", "only read")
    refused(Func("f", (A,), (shared,), written, (A,)), "S is written")
    refused(func(Seq(()), shared, inplace=(shared,)), "S is written")
    verify(func(For(I, 8, store(A, (I,), shared[I, I])), A, shared))
    apart = Buffer("S", (3, 4), "float32", strides=(4, 3))
    verify(func(For(I, 3, store(apart, (I, I), 1.0)), apart))


def test_divisors_are_not_zero() -> None:
    n = Var("n", "int32")
    whole = Buffer("whole", (16,), "int32")

    def program(value: Expr) -> Func:
        return func(For(I, 16, store(whole, (I,), value)), whole, n)

    verify(program(n // 3))
    verify(program(select(binary(Op.NE, n, 0), n % n, n)))
    verify(program(select(n > 0, 7 // n, n)))
    verify(program(n // binary(Op.MAX, n, 1)))
    verify(program(cast("int32", I // (I + 1))))
    refused(program(7 // n), "the divisor n of 7 // n is not shown to differ from zero", "select")
    refused(program(select(n > -1, 7 // n, n)), "the divisor n")
    refused(program(cast("int32", I % (I - 3))), "the divisor i - 3")
    by_zero = Binary(Op.MOD, n, const(0, "int32"), "int32")
    refused(program(by_zero), "is zero")
    refused(program(select(n > 3, by_zero, n)), "is zero")
    never = binary(Op.NE, const(0, "int32"), const(0, "int32"))
    for condition in (never, (n > 5) & (n < 3)):
        verify(program(select(condition, by_zero, n)))


X, Y = (te.placeholder((16,), "int32", name=name) for name in "xy")
NARROW = te.placeholder((16,), "uint8", name="z")
GUARDED: list[Callable[[Any], Expr]] = [
    lambda i: select(Y[i] != 0, X[i] // Y[i], 0),
    lambda i: select(Y[i] != 0, X[i] % Y[i], 0),
    lambda i: select(binary(Op.EQ, Y[i], 0), 0, X[i] // Y[i]),
    lambda i: select(~binary(Op.EQ, Y[i], 0), X[i] // Y[i], 0),
    lambda i: select(Y[i] <= 0, 0, X[i] // Y[i]),
    lambda i: select(binary(Op.LT, 0, Y[i]), X[i] // Y[i], 0),
    lambda i: select((Y[i] < -2) | (Y[i] > 5), X[i] // Y[i], 0),
    lambda i: select((X[i] > 3) & (Y[i] >= 1), X[i] // Y[i], 0),
    lambda i: select((Y[i] < 1) | (X[i] > 3), 0, X[i] // Y[i]),
    lambda i: select(X[i] > 3, select(Y[i] != 0, X[i] // Y[i], 1), 0),
    lambda i: select(select(X[i] > 0, Y[i] != 0, Y[i] > 0), X[i] // Y[i], 0),
    lambda i: select(Y[i] > X[i], select(X[i] >= 0, X[i] // Y[i], 1), 0),
    lambda i: select(X[i] != Y[i], X[i] // (X[i] - Y[i]), 0),
    lambda i: select(X[i] - Y[i] != 0, X[i] // (Y[i] - X[i]), 0),
    lambda i: select(Y[i] != -1, X[i] // (Y[i] + 1), 0),
    lambda i: select((Y[i] > 0) & (Y[i] < 99), X[i] // (Y[i] * 2), 0),
    lambda i: select(Y[i] >= 4, X[i] // (Y[i] // 2), 0),
    lambda i: select(Y[i] % 3 != 0, X[i] // Y[i], 0),
    lambda i: select(te.abs(Y[i]) > 3, X[i] // -Y[i], 0),
    lambda i: select(te.minimum(X[i], Y[i]) > 0, X[i] // Y[i], 0),
    lambda i: select(cast("bool", Y[i]), X[i] // Y[i], 0),
    lambda i: select(cast("float32", Y[i]) != 0.0, X[i] // Y[i], 0),
    lambda i: select(cast("int64", Y[i]) > 2, X[i] // (Y[i] - 1), 0),
    lambda i: select(Y[i] * X[i] != 0, X[i] // Y[i], 0),
    lambda i: X[i] // select(binary(Op.EQ, Y[i], 0), 1, Y[i]),
    lambda i: X[i] // (Y[i] % 7 + 1),
    lambda i: X[i] // te.maximum(1, Y[i]),
    lambda i: X[i] // te.minimum(Y[i], -1),
    lambda i: X[i] // (Y[i] | 1),
    lambda i: cast("int32", select(NARROW[i] + 1 > 0, NARROW[i] // (NARROW[i] + 1), NARROW[i])),
    lambda i: select(i > 5, X[i] // cast("int32", i - 5), 0),
]
OPEN: list[Callable[[Any], Expr]] = [
    lambda i: X[i] // Y[i],
    lambda i: select(binary(Op.EQ, Y[i], 0), X[i] // Y[i], 0),
    lambda i: select(Y[i] != 0, 0, X[i] // Y[i]),
    lambda i: select(X[i] != 0, X[i] // Y[i], 0),
    lambda i: select(Y[i] >= 0, X[i] // Y[i], 0),
    lambda i: select((Y[i] != 0) | (X[i] > 3), X[i] // Y[i], 0),
    lambda i: select((Y[i] != 0) & (X[i] // Y[i] > 3), X[i], 0),
    lambda i: select(Y[i] != 0, X[i] // Y[i], 0) + X[i] % Y[i],
    lambda i: select(Y[i] != 0, X[i] // Y[15 - i], 0),
    lambda i: select(Y[i] != 0, X[i] // (Y[i] * 2), 0),
    lambda i: select(Y[i] > -1, X[i] // (Y[i] - 1), 0),
    lambda i: X[i] // (Y[i] % 7),
    lambda i: X[i] // te.maximum(Y[i], 0),
    lambda i: X[i] // te.abs(Y[i]),
    lambda i: cast("int32", NARROW[i] // (NARROW[i] + 1)),
    lambda i: select(i > 4, X[i] // cast("int32", i - 5), 0),
]
"""Of `OPEN`, some guards tell too little, and others are not on the way: `&` evaluates both."""


def quotients(value: Callable[[Any], Expr]) -> Func:
    result = te.compute((16,), value, name="C")
    assert result.stage is not None
    return te.func([*result.stage.inputs, result], name="quotients")


@pytest.mark.parametrize("value", GUARDED)
def test_guards_keep_divisors_from_zero(value: Callable[[Any], Expr]) -> None:
    verify(quotients(value))


@pytest.mark.parametrize("value", OPEN)
def test_other_guards_do_not(value: Callable[[Any], Expr]) -> None:
    refused(quotients(value), "is not shown to differ from zero", "select")


@pytest.mark.parametrize(
    ("body", "accepted"),
    [
        ("if y[i] != 0:\n x[i] = x[i] // y[i]", True),
        ("if y[i] == 0:\n x[i] = 1\nelse:\n x[i] = x[i] // y[i]", True),
        ("d = y[i]\nif d > 0:\n x[i] = x[i] // d", True),
        ("d = y[i] % 3\nif d > 0:\n x[i] = x[i] // y[i]", True),
        ("if x[i] != 0:\n x[i] = 7 // x[i]", True),
        ("if x[i] != 0:\n x[i] = x[i] - 1\n x[i] = 7 // x[i]", False),
        ("if x[i] != 0:\n for j in range(2):\n  x[i] = 7 // x[i]", False),
        ("d = x[i]\nx[i] = 5\nif x[i] != 0:\n x[i] = 7 // d", False),
        ("if x[i] != 0:\n y[i] = 0\n x[i] = 7 // x[i]", True),
        ("if y[i] != 0:\n x[i] = 1\nelse:\n x[i] = x[i] // y[i]", False),
    ],
)
def test_guards_of_statements(body: str, accepted: bool) -> None:
    """A condition on a value in memory says nothing of a value that is stored there since."""
    lines = "\n        ".join(body.split("\n"))
    program = parse(f"""
def main(x: T.Buffer((16,), "int32"), y: T.Buffer((16,), "int32")):
    T.inplace(x{", y" if "y[i] =" in body.replace("==", "") else ""})
    for i in range(16):
        {lines}
""")
    if accepted:
        verify(program)
    else:
        refused(program, "is not shown to differ from zero")


def test_a_large_unsigned_index_is_negative() -> None:
    """Cast to an index, an unsigned integer of 64 bits wraps around."""
    index = Buffer("index", (16,), "uint64")
    at = cast("int64", index[I])

    def program(condition: Expr) -> Func:
        return func(For(I, 16, store(B, (I,), select(condition, A[at], 0.0))), A, B, index)

    refused(program(at < 16), "index", "of A")
    verify(program((at < 16) & (at >= 0)))
    verify(program(index[I] < 16))


def test_vectors() -> None:
    def ramp(base: Expr, lanes: int = 4) -> Ramp:
        return Ramp(base, const(1), lanes, f"int64x{lanes}")

    def program(base: Expr, mask: Expr | None = None) -> Func:
        index = ramp(base)
        load = Load(A, (index,), "float32x4", mask)
        return func(For(I, 4, Store(B, (index,), load, mask)))

    verify(program(I * 4))
    refused(program(I * 4 + 1), "[1, 16]")
    lanes = Broadcast(const(16), 4, "int64x4")
    verify(program(I * 5, binary(Op.LT, ramp(I * 5), lanes)))
    refused(program(I * 5 - 1, binary(Op.LT, ramp(I * 5 - 1), lanes)), "[-1, 17]")


@pytest.mark.parametrize("stored", ["B[0] = T.int64(1)", "C[1] = A[1]"])
def test_the_value_of_an_iteration_variable_reads_no_memory(stored: str) -> None:
    """Else it would be another one once the block has stored there."""
    program = parse(f"""
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((1,), "int64"), C: T.Buffer((4,), "float32")):
    {"T.inplace(B)" if stored[0] == "B" else "pass"}
    with T.block("C"):
        v0 = T.axis.opaque(4, T.minimum(T.maximum(B[0], 0), 3))
        {stored}
        C[0] = A[v0]
""")
    refused(program, "block C: the value", "of v0 reads B", "read B in the body of the block")


@pytest.mark.parametrize(
    ("where", "init", "body", "reason"),
    [
        ("B[0] > 0", "C[vi] = 0.0", "B[0] = B[0] - 2", "reads B, which is stored to"),
        ("B[0] > 0", "B[0] = T.int64(0)", "C[vi] = 1.0", "reads B, which is stored to"),
        ("i < 2", "C[vi] = T.float32(B[0])", "B[0] = B[0] + 10", "its init reads B"),
    ],
)
def test_where_an_init_runs_is_seen_by_nobody(
    where: str, init: str, body: str, reason: str
) -> None:
    """Lowering lets it run for all `i` before the first sum."""
    text = f"""
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((1,), "int64"), C: T.Buffer((2,), "float32")):
    T.inplace(B, C)
    for k in range(4):
        for i in range(2):
            with T.block("C"):
                vk = T.axis.reduce(4, k)
                vi = T.axis.opaque(2, i)
                T.where({where})
                with T.init():
                    {init}
                C[vi] = C[vi] + A[vk]
                {body}
"""
    with pytest.raises((ParseError, VerifyError), match=reason):
        verify(parse(text))


def test_no_guard_makes_up_for_an_iteration_variable_of_memory() -> None:
    program = parse("""
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((1,), "int64"), C: T.Buffer((1,), "float32")):
    T.inplace(B)
    with T.block("C"):
        v0 = T.axis.opaque(1000000, T.minimum(T.maximum(B[0], 0), 999999))
        B[0] = T.int64(1)
        if T.minimum(T.maximum(B[0], 0), 999999) < 4:
            C[0] = A[v0]
""")
    refused(program, "of v0 reads B")


# Declared regions


def test_declared_regions_cover_accesses() -> None:
    narrow = (Region(A, (Range(const(0), 8),)),)
    refused(
        func(For(I, 16, copy(I * 1, reads=narrow))), "block block", "reads A[v]", "do not cover"
    )
    refused(func(For(I, 16, copy(I * 1, writes=()))), "stores to B[v]", "declared writes")
    wide = (Region(A, (Range(const(0), 16),)),)
    verify(func(For(I, 16, copy(I * 1, reads=wide))))


def test_a_whole_buffer_covers_what_a_guard_and_data_keep_inside() -> None:
    verify(
        parse("""
@tw.script
def main(
    A: T.Buffer((15,), "float32"),
    D: T.Buffer((16,), "int32", value_range=(0, 3)),
    B: T.Buffer((16,), "float32"),
):
    for i in range(16):
        with T.block("B"):
            v = T.axis.spatial(16, i)
            B[v] = T.select(v < 15, A[v // 3 * 3 + T.int64(D[v])], 0.0)
""")
    )


def test_declared_regions_of_quotients_and_remainders() -> None:
    """The accesses of an iteration of `i` lie within 8 elements, which integer sets alone show."""
    text = """
@tw.script
def main(B: T.Buffer((32,), "float32")):
    for i, j in T.grid(3, 2):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads()
            T.writes(B[vi // 2 * 16 + vj * 8:vi // 2 * 16 + vj * 8 + SIZE])
            for x, y in T.grid(2, 2):
                B[(vi * 2 + x) // 4 * 16 + vj * 8 + y * 4 + (vi * 2 + x) % 4] = 0.0
"""
    verify(parse(text.replace("SIZE", "8")))
    refused(parse(text.replace("SIZE", "7")), "stores to B[", "do not cover")


# Initialised data


def reduction(init: bool, value: Expr, extent: int = 8, **more: Any) -> Block:
    v, r = Var("v"), Var("r")
    body = store(B, (v,), B[v] + M[r, v])
    start = store(B, (v,), 0.0) if init else None
    return block(body, (v, 16, IterKind.SPATIAL, I * 1), (r, extent, IterKind.REDUCE, value),
                 init=start, **more)  # fmt: skip


def test_reductions_need_an_init() -> None:
    verify(func(For(I, 16, For(R, 8, reduction(True, R * 1))), M, B))
    verify(func(For(R, 8, For(I, 16, reduction(True, R * 1))), M, B))
    refused(func(For(I, 16, For(R, 8, reduction(False, R * 1))), M, B), "reads B[i]", "initialise")
    verify(func(For(I, 16, For(R, 8, reduction(False, R * 1))), M, B, inplace=(B,)))
    separate = seq(For(J, 16, store(B, (J,), 0.0)), For(I, 16, For(R, 8, reduction(False, R * 1))))
    verify(func(separate, M, B))
    late = For(I, 16, For(R, 7, reduction(True, R + 1)))
    refused(func(late, M, B), "reads B[i]", "not shown")


def two_stages(first: Stmt, second: Stmt) -> Func:
    return func(seq(first, second), A, B, allocs=(C,))


def test_stages_read_what_was_written() -> None:
    fill = For(I, 16, store(C, (I,), A[I]))
    use = For(J, 16, store(B, (J,), C[J]))
    verify(two_stages(fill, use))
    refused(two_stages(use, fill), "reads C[j]", "not shown to be stored by then")
    refused(two_stages(For(I, 15, store(C, (I,), A[I])), use), "reads C[j]")
    refused(two_stages(For(I, 8, store(C, (I * 2,), A[I])), use), "reads C[j]")
    refused(two_stages(Seq(()), use), "reads C[j]", "nothing is stored to it")
    halves = seq(For(I, 8, store(C, (I,), A[I])), For(K, 8, store(C, (K + 8,), A[K])))
    verify(two_stages(halves, use))
    strided = For(I, 8, For(K, 2, store(C, (I * 2 + K,), A[I])))
    verify(two_stages(strided, use))
    odd = seq(For(I, 8, store(C, (I * 2,), A[I])), For(K, 8, store(C, (K * 2 + 1,), A[K])))
    verify(two_stages(odd, use))
    guarded = For(I, 16, If(A[I] > 0.0, store(C, (I,), A[I])))
    refused(two_stages(guarded, use), "reads C[j]")


def test_a_choice_of_data_is_within_its_bounds() -> None:
    """Every second element is stored, and read at a place that is chosen or read itself."""
    index = Buffer("index", (16,), "int64", value_range=(0, 8))
    fill = For(I, 8, store(C, (I * 2 + 1,), A[I]))

    def reads(place: Expr) -> Func:
        use = For(J, 16, store(B, (J,), C[place * 2 + 1]))
        return func(seq(fill, use), A, B, index, allocs=(C,))

    verify(reads(index[J]))
    verify(reads(select(J < 15, index[J], 7)))
    verify(reads(select(J < 8, J, 7)))
    even = For(J, 16, store(B, (J,), C[select(J < 15, index[J], 7) * 2]))
    refused(func(seq(fill, even), A, B, index, allocs=(C,)), "reads C[", "not shown")


def test_fused_and_split_loops_cover() -> None:
    rows = Buffer("rows", (6, 7), "float32")
    fused = For(I, 42, store(rows, (I // 7, I % 7), 0.0))
    use = For(J, 6, For(K, 7, store(B, (J,), rows[J, K])))
    verify(func(seq(fused, use), B, allocs=(rows,)))
    short = For(I, 41, store(rows, (I // 7, I % 7), 0.0))
    refused(func(seq(short, use), B, allocs=(rows,)), "reads rows[j, k]")
    v = Var("v")
    tail = block(store(C, (v,), A[v]), (v, 16, IterKind.SPATIAL, I * 6 + K),
                 predicate=I * 6 + K < 16)  # fmt: skip
    verify(two_stages(For(I, 3, For(K, 6, tail)), For(J, 16, store(B, (J,), C[J]))))


def test_producers_in_the_loops_of_consumers() -> None:
    def program(first: int, count: int) -> Func:
        fill = For(K, count, store(C, (I * 4 + K + first,), A[I]))
        use = For(J, 4, store(B, (I * 4 + J,), C[I * 4 + J]))
        return func(For(I, 4, seq(fill, use)), A, B, allocs=(C,))

    verify(program(0, 4))
    refused(program(0, 3), "reads C[i * 4 + j]")
    carried = seq(
        If(binary(Op.EQ, I, 0), store(C, (I,), 0.0)),
        If(I > 0, store(C, (I,), C[I - 1])),
        store(B, (I,), C[I]),
    )
    verify(func(For(I, 16, carried), A, B, allocs=(C,)))
    refused(func(For(I, 16, carried, ForKind.PARALLEL), A, B, allocs=(C,)), "reads C[i - 1]")


def test_earlier_iterations_of_several_loops() -> None:
    """A row is made from the one before, backwards; loops that tell nothing stand in between."""
    grid = Buffer("grid", (4, 6), "float32")

    def program(value: Expr, kinds: tuple[ForKind, ForKind]) -> Func:
        first = If(binary(Op.EQ, I, 0), store(grid, (I, J), 0.0))
        body = seq(first, If(I > 0, store(grid, (I, J), value)), store(B, (J,), grid[I, J]))
        around = For(J, 6, For(Var("again"), 3, body), kinds[1])
        return func(For(I, 4, For(Var("twice"), 2, around), kinds[0]), B, allocs=(grid,))

    serial, parallel = ForKind.SERIAL, ForKind.PARALLEL
    verify(program(grid[I - 1, 5 - J], (serial, serial)))
    refused(program(grid[I - 1, 5 - J], (parallel, serial)), "reads grid[i - 1, 5 - j]")
    refused(program(grid[I, 5 - J], (serial, serial)), "reads grid[i, 5 - j]")
    refused(program(grid[I - 1, binary(Op.MIN, J + 1, 5)], (parallel, serial)), "reads grid[")
    verify(program(grid[I - 1, binary(Op.MIN, J + 1, 5)], (serial, serial)))


def test_places_that_mix_digits_of_iterations() -> None:
    """Two copies of three neighbours take turns, and lie side by side."""

    def program(copied: str, stages: int) -> Func:
        at = f"vax0 % {stages} + vax0 % 6 * {stages}"
        return parse(f"""
@tw.script
def f(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4, 6), "float32")):
    S = T.alloc(({6 * stages}, 4), "float32")
    for ax0, ax1 in T.grid(3, 1):
        with T.block("start"):
            v0, v1 = T.axis.remap("SS", [ax0, ax1])
            T.where(ax0 - 1 >= 0)
            S[v1 * {stages}, v0 - 1] = A[v0 - 1, v1]
    for ax0 in range(23):
        for ax1, ax2 in T.grid(3, 1):
            with T.block("copy"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                T.where(((ax0 + 1) // 6 + ax1 - 1 >= 0) & ({copied}))
                S[(v0 + 1) % {stages} + {stages} * ((v0 + 1) % 6 + v2), (v0 + 1) // 6 + v1 - 1] = (
                    A[(v0 + 1) // 6 + v1 - 1, (v0 + 1) % 6 + v2]
                )
        with T.block("read"):
            vax0 = T.axis.spatial(23, ax0)
            B[vax0 // 6, vax0 % 6] = (
                T.select(vax0 // 6 > 0, S[{at}, vax0 // 6 - 1], 0.0)
                + S[{at}, vax0 // 6]
                - T.select(vax0 // 6 < 3, S[{at}, vax0 // 6 + 1], 0.0)
            )
    with T.block("end"):
        B[3, 5] = S[{23 % stages + 5 * stages}, 2] + S[{23 % stages + 5 * stages}, 3]
""")

    for stages in (2, 3):
        verify(program("(ax0 + 1) // 6 + ax1 < 5", stages))
        with pytest.raises(VerifyError):
            verify(program("(ax0 + 1) // 6 + ax1 < 4", stages))


# Independence


def test_parallel_loops_carry_nothing() -> None:
    for kind in (ForKind.PARALLEL, ForKind.VECTOR):
        verify(func(For(I, 16, copy(I * 1), kind)))
        refused(func(For(I, 16, store(B, (0,), A[I]), kind)), "loop i", "elements of B")
        refused(func(For(I, 8, For(J, 2, store(B, (I + J,), 0.0)), kind)), "loop i")
        verify(func(For(I, 8, For(J, 2, store(B, (I * 2 + J,), 0.0)), kind)))
        shift = store(B, (I,), B[I + 1])
        refused(func(For(I, 15, shift, kind), A, B, inplace=(B,)), f"{kind.value} loop i")
        verify(func(For(I, 15, shift), A, B, inplace=(B,)))
        verify(func(For(I, 1, store(B, (0,), A[I]), kind)))


def test_reductions_are_not_parallel() -> None:
    update = For(R, 8, For(I, 16, reduction(True, R * 1)), ForKind.PARALLEL)
    refused(func(update, M, B), "parallel loop r drives the reduction over r of block", "rfactor")
    verify(func(For(I, 16, For(R, 8, reduction(True, R * 1)), ForKind.PARALLEL), M, B))


def test_buffers_used_in_one_loop_are_private() -> None:
    def program(kind: ForKind, also: Stmt) -> Func:
        fill = For(K, 4, store(C, (K,), A[I]))
        use = For(J, 4, store(M, (I, J), C[J]))
        return func(seq(For(I, 8, seq(fill, use), kind), also), A, B, M, allocs=(C,))

    later = For(R, 4, store(B, (R,), C[R]))
    verify(program(ForKind.PARALLEL, Seq(())))
    verify(program(ForKind.SERIAL, later))
    refused(program(ForKind.PARALLEL, later), "loop i", "elements of C")


@pytest.mark.parametrize("kind", [ForKind.PARALLEL, ForKind.THREAD])
def test_private_buffers_keep_nothing_between_iterations_of_loops_around(kind: ForKind) -> None:
    def program(first: Stmt, place: Expr) -> Func:
        use = store(M, (R, I), C[place])
        thread = "threadIdx.x" if kind is ForKind.THREAD else None
        return func(For(R, 8, For(I, 4, seq(first, use), kind, thread=thread)), A, M, allocs=(C,))

    def once(place: Expr) -> Stmt:
        return If(binary(Op.EQ, R, 0), store(C, (place,), A[I]))

    verify(program(once(I), I))
    verify(program(store(C, (const(0),), A[I]), const(0)))
    refused(program(once(const(0)), const(0)), "loop i", "elements of C")


def test_fused_parallel_loops() -> None:
    rows = Buffer("rows", (6, 7), "float32")
    verify(func(For(I, 42, store(rows, (I // 7, I % 7), 0.0), ForKind.PARALLEL), rows))
    refused(func(For(I, 42, store(rows, (I // 7, I % 6), 0.0), ForKind.PARALLEL), rows), "rows")


@given(SEEDS)
@settings(max_examples=examples(120))
def test_what_is_accepted_runs(seed: int) -> None:
    """No program that is accepted reads or writes out of bounds, or reads what is not written."""
    maker = Maker(seed, (I, J))
    size = maker.pick([4, 6])
    a, b, c = (Buffer(x, (size,), "int64") for x in "abc")
    other = Maker(seed + 1, (K,))
    first = For(I, size, For(J, 2, store(c, (_index(maker, size),), a[_index(maker, size)])))
    second = For(K, maker.pick([2, size]), store(b, (K,), c[_index(other, size)]))
    program = Func("random", (a, b), (c,), seq(first, second))
    try:
        verify(program)
    except VerifyError:
        return
    interpret(program, np.arange(size), np.zeros(size, np.int64))


def _index(maker: Maker, size: int) -> Expr:
    v = maker.variables[0]
    return maker.pick(
        [v, v % size, (v * 2) % size, binary(Op.MIN, v + 1, size - 1), size - 1 - v, v - 1,
         v // 2 * 2 + v % 2, maker.integer(2), binary(Op.MAX, maker.integer(2), 0) % size]
    )  # fmt: skip


WRAPPING = """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((5,), "float32")):
    S = T.alloc((5,), "float32")
    for i in range(8):
        S[(i * {factor}) % 5] = A[i]
    for j in range(5):
        C[j] = S[j]
"""


def test_stores_at_wrapping_indices_are_taken_for_what_they_are() -> None:
    """4 * i takes all values modulo 5, which i * 2**62 as int64 does not: 3 is never stored."""
    verify(parse(WRAPPING.format(factor=4)))
    wrapped = {((i * 2**62 + 2**63) % 2**64 - 2**63) % 5 for i in range(8)}
    assert wrapped == {0, 1, 2, 4}
    with pytest.raises(VerifyError):
        verify(parse(WRAPPING.format(factor=2**62)))


@pytest.mark.parametrize(
    "place",
    [
        "({0} + 1) % -255 % 5",
        "({0} + 1) // -255 % 5",
        "({0} - 9223372036854775807) // -9223372036854775807 % 5",
    ],
)
def test_a_read_at_what_was_stored_in_the_same_iteration(place: str) -> None:
    """Divisors may be negative."""
    verify(
        parse(f"""
def f(A: T.Buffer((5,), "float32"), C: T.Buffer((5,), "float32")):
    S = T.alloc((5,), "float32")
    for i in range(5):
        for j_0, j_1 in T.grid(1, 8):
            if j_0 * 8 + j_1 < 1:
                S[{place.format("i")} + j_0 * 8 + j_1] = A[i]
        C[i] = S[{place.format("i")}]
""")
    )


def test_a_remainder_of_what_wraps_around_is_below_its_divisor() -> None:
    verify(
        parse("""
def f(A: T.Buffer((5,), "float32"), P: T.Buffer((1,), "int64"), C: T.Buffer((5,), "float32")):
    S = T.alloc((11,), "float32")
    for j in range(5):
        S[j * 2 + 1] = A[j]
    for i in range(5):
        C[i] = S[(i * P[0] - 7) % 5 * 2 + 1]
""")
    )


def test_conditions_on_floats_say_nothing_of_indices() -> None:
    with pytest.raises(VerifyError):
        verify(
            parse("""
def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    S = T.alloc((4,), "float32")
    for i in range(4):
        if A[i] > T.float32("-inf"):
            S[i] = A[i]
        C[i] = S[i]
""")
        )


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        ("{guarded}S[(i * {k}) % 5 + j + m * 8] = A[i]; C[i] = S[(i * {k}) % 5]", True),
        ("{guarded}S[(i * {k}) % 5 + j + m * 8] = A[i]; C[i] = S[(i * {k} + 1) % 5]", False),
        ("C[i] = S[(i * {k}) % 5]; {guarded}S[(i * {k}) % 5 + j + m * 8] = A[i]", False),
    ],
    ids=["the same", "another", "of an earlier iteration"],
)
def test_wrapping_indices_are_equal_in_one_iteration(body: str, holds: bool) -> None:
    guarded = "for m, j in T.grid(1, 8):\n            if j + m * 8 < 1:\n                "
    lines = body.format(k=2**62, guarded=guarded).split("; ")
    func = parse(f"""
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    S = T.alloc((5,), "float32")
    for i in range(8):
        {lines[0]}
        {lines[1]}
""")
    if holds:
        verify(func)
    else:
        with pytest.raises(VerifyError):
            verify(func)


def test_threads_that_read_what_others_store_are_told_of_phases() -> None:
    text = """
@tw.script
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    S = T.alloc((64,), "float32", scope="shared")
    for t in T.thread("threadIdx.x", 64):
        with T.block("S"):
            v = T.axis.spatial(64, t)
            S[v] = A[v]
        with T.block("B"):
            v = T.axis.spatial(64, t)
            B[v] = S[63 - v]
"""
    with pytest.raises(VerifyError) as caught:
        verify(parse(text))
    assert caught.value.hint == (
        "what another iteration of thread loop t stores is there in the next phase: close the loop "
        "after block S, and read in one of its own"
    )


@pytest.mark.parametrize("scope", ["local", "register", "shared"])
def test_a_parameter_is_memory_of_the_caller(scope: str) -> None:
    with pytest.raises(VerifyError) as error:
        verify(func(For(I, 16, store(B, (I,), 0.0)), replace(B, scope=scope)))
    assert error.value.arguments[1:] == ("B", scope)
