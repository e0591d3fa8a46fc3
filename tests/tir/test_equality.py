"""Equality up to names, and the digest that keys the tuning database."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.tir import te
from tilewright.tir.equality import structural_equal, structural_hash
from tilewright.tir.ir import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    Seq,
    Stmt,
    Var,
    const,
    load,
    seq,
    store,
)
from tilewright.tir.parser import parse
from tilewright.tir.visit import substitute_func

from ..differences import first_difference
from .random_programs import random_func

MATMUL = """
@tw.script
def matmul(A: T.Buffer((64, 32), "float32"), B: T.Buffer((32, 16), "float32"),
           C: T.Buffer((64, 16), "float32")):
    for i, j, r in T.grid(64, 16, 32):
        with T.block("C"):
            vi, vj, vr = T.axis.remap("SSR", [i, j, r])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vr] * B[vr, vj]
"""
EVERYTHING = """
@tw.script
def everything(
    A: T.Buffer((8, t), "int32", strides=(16, 1), constant=True, value_range=(-1, 5)),
    C: T.Buffer((8,), "float16"),
    s: T.float64,
    *,
    t: T.decision,
):
    T.func_attr({"note": ["x", 1, 2.5, None, {"y": True}]})
    T.inplace(C)
    B = T.alloc((8,), "float32", scope="shared")
    for i in T.parallel(t // 2, annotations={"pragma": 1}):
        for tx in T.thread("threadIdx.x", 4, dtype="int32"):
            with T.block("b"):
                v = T.axis.opaque(8, i * 2 + T.int64(tx))
                w = T.axis.reduce(t, i)
                T.where(i < 3)
                T.reads(A[v, 0:t], C[v])
                T.writes(B[v])
                T.block_attr({"k": "v"})
                with T.init():
                    B[v] = T.float32("-inf")
                x = T.float32(A[v, w]) + T.float32(0.1)
                B[v] = T.select(x > 0.0, T.maximum(x, B[v]), T.exp(-x) * T.float32(s))
    if s != T.float64("nan"):
        pass
    elif ~(s < -0.0):
        L = T.scratch((4,), "float32")
        T.store(L[T.ramp(0, 1, 4)], T.load(B[T.ramp(0, 2, 4)], mask=T.broadcast(True, 4)))
    else:
        for i in T.vectorized(8):
            C[i] = T.float16(B[i])
"""
DIGESTS = {
    MATMUL: "41b10b6935aaf407526049187cf5c692d7680e85e8fa3a579887524e01bea175",
    EVERYTHING: "d917bdd125e6901464dd755cb846458e12eff36c783199ccc2ae127bf6ed4d5e",
}


@pytest.mark.parametrize("text", DIGESTS, ids=["matmul", "everything"])
def test_digests_never_change(text: str) -> None:
    """Records in databases are found by these. Change `equality.VERSION` if they have to change."""
    assert structural_hash(parse(text)) == DIGESTS[text]


def test_digests_are_the_same_in_other_processes() -> None:
    code = (
        "import sys\n"
        "from tilewright.tir.parser import parse\n"
        "from tilewright.tir.equality import structural_hash\n"
        "print(structural_hash(parse(sys.stdin.read())))\n"
    )
    for seed, check in (("1", "0"), ("2", "1")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=EVERYTHING,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "TILEWRIGHT_CHECK": check},
        )
        assert done.stdout.strip() == DIGESTS[EVERYTHING]


NAMES = (
    ("matmul", "other"), ("A", "Q"), ("vi", "a"), ("for i, j, r", "for x, y, z"),
    ("[i, j, r]", "[x, y, z]"), ('T.block("C")', 'T.block("another")'),
)  # fmt: skip


def test_names_do_not_count() -> None:
    text = MATMUL
    for old, new in NAMES:
        text = text.replace(old, new)
    a, b = parse(MATMUL), parse(text)
    assert structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    assert first_difference(a, b) is None


CHANGES = (
    ("(8, t)", "(9, t)"),
    ('"int32", strides', '"int64", strides'),
    ("strides=(16, 1)", "strides=(17, 1)"),
    ("strides=(16, 1), ", ""),
    ("constant=True, ", ""),
    ("(-1, 5)", "(-1, 6)"),
    (", value_range=(-1, 5)", ""),
    ("s: T.float64", "s: T.float64, u: T.float64"),
    ('"note"', '"other"'),
    ("2.5", "2.25"),
    ('"y": True', '"y": 1'),
    ("T.inplace(C)", "T.inplace()"),
    ('"shared"', '"local"'),
    ("T.parallel", "T.unrolled"),
    ("t // 2,", "t // 3,"),
    ('"pragma": 1', '"pragma": 2'),
    ("threadIdx.x", "threadIdx.y"),
    ('4, dtype="int32"', '5, dtype="int32"'),
    ("axis.opaque", "axis.spatial"),
    ("axis.opaque(8", "axis.opaque(7"),
    ("i * 2 +", "i * 3 +"),
    ("i * 2 +", "2 * i +"),
    ("axis.reduce(t, i)", "axis.reduce(t, i + 1)"),
    ("i < 3", "i <= 3"),
    ("                T.where(i < 3)\n", ""),
    ("A[v, 0:t], C[v]", "A[v, 0:t]"),
    ("C[v])", "C[0:8])"),
    ("A[v, 0:t], C[v]", "C[v], A[v, 0:t]"),
    ("T.writes(B[v])", "T.writes()"),
    ('{"k": "v"}', '{"k": "w"}'),
    ('                with T.init():\n                    B[v] = T.float32("-inf")\n', ""),
    ('"-inf"', '"inf"'),
    ('"-inf"', '"nan"'),
    ("T.float32(0.1)", "T.float32(0.10000001)"),
    ("x > 0.0", "x > -0.0"),
    ("x > 0.0", "x >= 0.0"),
    ("T.maximum(x, B[v])", "T.maximum(B[v], x)"),
    ("T.exp", "T.sqrt"),
    ("-x)", "x)"),
    ("T.float32(s)", "T.float32(T.float32(s))"),
    ("    if s !=", "    C[0] = C[0]\n    if s !="),
    ('T.float64("nan")', "T.float64(0.0)"),
    ("        pass\n", "        C[0] = C[1]\n"),
    ("~(s < -0.0)", "s < -0.0"),
    ("s < -0.0", "s < 0.0"),
    ("T.scratch((4,)", "T.scratch((5,)"),
    ("ramp(0, 2, 4)", "ramp(0, 3, 4)"),
    (", mask=T.broadcast(True, 4)", ""),
    ("T.broadcast(True, 4)", "T.broadcast(False, 4)"),
    ("T.load(B[T.ramp(0, 2, 4)]", 'T.load(B[T.ramp(0, 2, 4)], dtype="float32x4"'),
    ("T.vectorized(8)", "T.vectorized(t)"),
    ("C[i] = T.float16(B[i])", "C[i] = T.float16(B[0])"),
    ("C[i] = T.float16(B[i])", "C[i] = T.float16(C[i])"),
    ("    else:\n        for i in T.vectorized(8):\n            C[i] = T.float16(B[i])\n", ""),
)
SAME = {'T.load(B[T.ramp(0, 2, 4)], dtype="float32x4"'}
"""Changes that say the same thing in other words."""


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_everything_else_counts(old: str, new: str) -> None:
    assert EVERYTHING.count(old) == 1
    a, b = parse(EVERYTHING), parse(EVERYTHING.replace(old, new))
    same = new in SAME
    assert structural_equal(a, b) is same
    assert (structural_hash(a) == structural_hash(b)) is same
    assert (first_difference(a, b) is None) is same


def test_parameter_order_counts() -> None:
    a = parse(MATMUL)
    assert structural_hash(a) != structural_hash(replace(a, params=a.params[::-1]))


def test_allocation_order_and_nesting_of_sequences_do_not_count() -> None:
    out, p, q, unused = (Buffer(n, (4,), "float32") for n in "ABCD")
    one, two, three = store(p, (0,), 1.0), store(q, (0,), 2.0), store(out, (0,), p[0] + q[0])
    wide = Buffer("E", (5,), "float32")

    def func(allocs: tuple[Buffer, ...], body: Stmt) -> Func:
        return Func("f", (out,), allocs, body)

    plain = func((p, q, unused, wide), seq(one, two, three))
    for allocs in ((q, p, wide, unused), (wide, unused, p, q)):
        assert structural_hash(plain) == structural_hash(func(allocs, plain.body))
    nested = Seq((Seq(()), Seq((one, Seq((two,)))), three))
    assert structural_hash(plain) == structural_hash(func(plain.allocs, nested))
    for others in ((p, q), (p, q, unused), (p, q, wide, wide)):
        assert structural_hash(plain) != structural_hash(func(others, plain.body))
    inner = func((p, unused, wide), Alloc(q, plain.body))
    assert structural_hash(plain) != structural_hash(inner)


def test_a_binder_used_twice_is_two_loops() -> None:
    out, i, j = Buffer("A", (4,), "int64"), Var("i"), Var("j")
    loop = For(i, 4, store(out, (i,), i))
    again = For(j, 4, store(out, (j,), j))
    twice, both = Seq((loop, loop)), Seq((loop, again))
    assert structural_hash(Func("f", (out,), (), twice)) == structural_hash(
        Func("f", (out,), (), both)
    )


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (Const(0.1, "float32"), Const(0.10000000149011612, "float32"), True),
        (Const(0.1, "float64"), Const(0.10000000149011612, "float64"), False),
        (Const(0.0, "float32"), Const(-0.0, "float32"), False),
        (Const(0.0, "bfloat16"), Const(-0.0, "bfloat16"), False),
        (Const(float("nan"), "float32"), Const(-float("nan"), "float32"), True),
        (Const(float("inf"), "float16"), Const(65520.0, "float16"), True),
        (Const(float("inf"), "float16"), Const(65519.0, "float16"), False),
        (Const(1, "float32"), Const(1.0, "float32"), True),
        (Const(1, "int32"), Const(1, "int64"), False),
        (Const(1, "bool"), Const(True, "bool"), True),
        (Const(1, "int64"), Const(True, "bool"), False),
    ],
)
def test_constants_are_the_bits_of_their_dtype(a: Const, b: Const, same: bool) -> None:
    assert structural_equal(a, b) is same


def test_free_variables_are_themselves() -> None:
    x, y, a, b = Var("x"), Var("x"), Buffer("A", (4,), "int64"), Buffer("A", (4,), "int64")
    pairs: list[tuple[Expr, Expr]] = [(x + 1, y + 1), (load(a, (x,)), load(b, (x,)))]
    for left, right in pairs:
        assert not structural_equal(left, right)
        assert structural_equal(left, right, match_free=True)
        assert structural_equal(left, left + const(0))
    assert not structural_equal(x + y, x + x, match_free=True)
    assert structural_equal(x + y, y + x, match_free=True)
    assert not structural_equal(x + y, y + x)
    assert not structural_equal(Var("x", "int32"), x, match_free=True)


def test_the_first_difference_is_shown_in_its_statement() -> None:
    a = parse(MATMUL)
    text = first_difference(a, parse(MATMUL.replace("+ A", "- A")))
    assert text is not None
    assert "- float32 in `C[vi, vj] - A[vi, vr] * B[vr, vj]` in `C[vi, vj] = " in text
    loop = a.body
    assert isinstance(loop, For)
    text = first_difference(a, replace(a, body=replace(loop, kind=ForKind.PARALLEL)))
    assert text is not None
    assert "for parallel int64" in text
    assert "`for i in T.parallel(64):`" in text


def test_functions_from_formulas_are_equal_when_built_twice() -> None:
    def build(name: str) -> Func:
        a = te.placeholder((8, 8), name=name)
        r = te.reduce_axis(8, name="r")
        e = te.compute((8, 8), lambda i, j: te.exp(a[i, j] - te.max(a[i, r], axis=r)), name="E")
        return te.func([a, e], name=name)

    assert structural_hash(build("A")) == structural_hash(build("X"))


@given(seed=st.integers(0, 10_000), other=st.integers(0, 10_000))
def test_random_programs_equal_their_copies_only(seed: int, other: int) -> None:
    a, b = random_func(seed), random_func(seed)
    assert structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    renamed = {
        p: Buffer("Z", p.shape, p.dtype, p.strides, p.scope, p.constant, p.value_range)
        for p in b.allocs
    }
    assert structural_equal(a, substitute_func(b, renamed))
    c = random_func(other)
    assert structural_equal(a, c) is (structural_hash(a) == structural_hash(c))
    assert (first_difference(a, c) is None) is structural_equal(a, c)
