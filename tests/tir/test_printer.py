"""Programs as text: what it looks like. That it reads back is tested in `test_parser.py`."""

from __future__ import annotations

import pytest

from tilewright.tir import te
from tilewright.tir.expr_printer import ExprPrinter
from tilewright.tir.ir import (
    Alloc,
    Binary,
    Block,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Dot,
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
    Matmul,
    Op,
    Ramp,
    Range,
    Region,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
    call,
    cast,
    const,
    select,
    seq,
    store,
)
from tilewright.tir.names import Names, identifier
from tilewright.tir.printer import decisions, expr_text, func_text, listing, stmt_text

i, j, n = Var("i"), Var("j"), Var("n")
x, y = Var("x", "float32"), Var("y", "float32")
p, q = Var("p", "bool"), Var("q", "bool")
A = Buffer("A", (8, 8), "float32")
S = Buffer("S", (), "int32")


def f32(value: float) -> Const:
    return const(value, "float32")


EXPRESSIONS: list[tuple[Expr, str]] = [
    (i + j * n, "i + j * n"),
    ((i + j) * n, "(i + j) * n"),
    (i - (j - n), "i - (j - n)"),
    (i - j - n, "i - j - n"),
    (i // 4 % 8, "i // 4 % 8"),
    (i // (j % 8), "i // (j % 8)"),
    (i * 8 // 8, "i * 8 // 8"),
    (-i + -(j + n), "-i + -(j + n)"),
    (call("neg", -i), "-(-i)"),
    (~((i < j) & p), "~((i < j) & p)"),
    ((i < j) & (j <= n) | ~p, "(i < j) & (j <= n) | ~p"),
    ((i < j) & ((j <= n) | p), "(i < j) & ((j <= n) | p)"),
    (p ^ (q == p), "p ^ (q == p)"),
    ((i < j) == p, "(i < j) == p"),
    (i << 2 & 3, "i << 2 & 3"),
    (i + 1 << 2, "i + 1 << 2"),
    (i - 5, "i - 5"),
    (Binary(Op.ADD, i, const(-5), "int64"), "i + -5"),
    (Binary(Op.ADD, const(2), const(3), "int64"), "T.int64(2) + 3"),
    (x * 2.0 + 0.5, "x * 2.0 + 0.5"),
    (2.0 / x, "2.0 / x"),
    (x + float("inf"), 'x + T.float32("inf")'),
    (f32(0.1), "T.float32(0.1)"),
    (f32(0.1) + f32(2.0), "T.float32(0.1) + 2.0"),
    (const(7), "7"),
    (const(7, "uint8"), "T.uint8(7)"),
    (const(True, "bool"), "True"),
    (p & True, "p & True"),
    (const(float("nan"), "float64"), 'T.float64("nan")'),
    (const(-0.0, "float16"), "T.float16(-0.0)"),
    (const(1e-45, "float32"), "T.float32(1e-45)"),
    (const(16777217.0, "float32"), "T.float32(16777216.0)"),
    (const(0.1, "bfloat16"), "T.bfloat16(0.1)"),
    (const(0.3, "float8_e4m3fn"), "T.float8_e4m3fn(0.3)"),
    (const(1 / 3, "float64"), "T.float64(0.3333333333333333)"),
    (call("neg", f32(1.0)), "-T.float32(1.0)"),
    (call("exp", f32(1.0)), "T.exp(T.float32(1.0))"),
    (x**2.0, "x * x"),
    (x**0.5, "T.sqrt(x)"),
    (x**2.5, "T.pow(x, 2.5)"),
    (abs(x), "T.abs(x)"),
    (cast("float32", i), "T.float32(i)"),
    (Cast(const(3), "float32"), "T.float32(T.int64(3))"),
    (Binary(Op.MAX, x, f32(0.0), "float32"), "T.maximum(x, 0.0)"),
    (Binary(Op.MIN, i, j, "int64") * 2, "T.minimum(i, j) * 2"),
    (select(i < 4, A[i, j], 0.0), "T.select(i < 4, A[i, j], 0.0)"),
    (S[()], "S[()]"),
    (Ramp(i * 4, const(1), 4, "int64x4"), "T.ramp(i * 4, 1, 4)"),
    (Broadcast(f32(2.0), 4, "float32x4"), "T.broadcast(T.float32(2.0), 4)"),
    (
        Dot(
            f32(1.0),
            Broadcast(f32(2.0), 4, "float32x4"),
            A[i, Ramp(j, const(1), 4, "int64x4")],
            "float32",
        ),
        "T.dot(T.float32(1.0), T.broadcast(T.float32(2.0), 4), A[i, T.ramp(j, 1, 4)])",
    ),
    (
        Matmul(
            Broadcast(f32(1.0), 4, "float32x4"),
            Broadcast(f32(2.0), 8, "float32x8"),
            A[i, Ramp(j, const(1), 8, "int64x8")],
            2,
            2,
            "float32x4",
        ),
        "T.matmul(T.broadcast(T.float32(1.0), 4), T.broadcast(T.float32(2.0), 8), "
        "A[i, T.ramp(j, 1, 8)], 2, 2)",
    ),
    (
        Shuffle(
            Broadcast(f32(2.0), 2, "float32x2"),
            A[i, Ramp(j, const(1), 2, "int64x2")],
            (0, 3, 1),
            "float32x3",
        ),
        "T.shuffle(T.broadcast(T.float32(2.0), 2), A[i, T.ramp(j, 1, 2)], [0, 3, 1])",
    ),
    (Load(A, (i, j), "float32", i < 8), "T.load(A[i, j], mask=i < 8)"),
    (Load(A, (i, cast("int32", j)), "float32"), 'T.load(A[i, T.int32(j)], dtype="float32")'),
]


@pytest.mark.parametrize(("expr", "text"), EXPRESSIONS, ids=[t for _, t in EXPRESSIONS])
def test_expressions(expr: Expr, text: str) -> None:
    assert expr_text(expr) == text
    assert repr(expr) == text


def test_names_of_free_variables_are_told_apart() -> None:
    assert expr_text(Var("i") + Var("i") * Var("class") - Var("9 lives")) == (
        "i + i_1 * class_ - _9_lives"
    )


def test_tensor_expressions_print() -> None:
    a = te.placeholder((4, 4), name="A")
    r = te.reduce_axis(4, name="r")
    assert expr_text(te.sum(a[0, r], axis=r)) == "te.sum(A[0, r], axis=(r))"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a", "a"), ("a b", "a_b"), ("", "v"), ("1", "_1"), ("for", "for_"), ("ä", "_"), ("T", "T")],
)
def test_identifiers(name: str, expected: str) -> None:
    assert identifier(name) == expected


def test_names_are_free_again_after_their_scope() -> None:
    names = Names()
    first, second, third = object(), object(), object()
    assert [names.bind(first, "a"), names.bind(second, "a")] == ["a", "a_1"]
    names.release(first)
    assert names.bind(third, "a") == "a"
    assert names.bind(object(), "T") == "T_1"


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ((Range(i, 1), Range(j, 4)), "A[i, j:j + 4]"),
        ((Range(const(0), 8), Range(const(2), 4)), "A[0:8, 2:6]"),
        ((Range(i * 8, n), Range(const(0), n)), "A[i * 8:i * 8 + n, 0:n]"),
        ((Range(const(3), n + 1), Range(i + j, n + 1)), "A[3:3 + (n + 1), i + j:i + j + (n + 1)]"),
        ((Range(const(-4), 2), Range(i & j, 2)), "A[-4:-4 + 2, i & j:(i & j) + 2]"),
    ],
)
def test_regions(ranges: tuple[Range, ...], text: str) -> None:
    assert ExprPrinter(Names()).region(Region(A, ranges)) == text


def lowered() -> Stmt:
    """A program after lowering, with scopes that end before their suites and others that do not."""
    tmp, t = Buffer("tmp", (4,), "float32", scope="register"), Var("t", "float32")
    inner = For(j, 4, store(tmp, (j,), A[i, j]), ForKind.VECTOR)
    use = seq(inner, Let(t, tmp[0] + 1.0, store(A, (i, 0), t)), store(A, (i, 1), tmp[1]))
    body = seq(
        Store(A, (i, Ramp(n, const(1), 4, "int64x4")),
              Broadcast(x, 4, "float32x4"), Broadcast(const(True, "bool"), 4, "boolx4")),
        Alloc(tmp, use),
    )  # fmt: skip
    loop = For(i, 8, body, ForKind.PARALLEL, None, (("chunk", 2), ("note", "a")))
    branch = If(n > 0, If(n < 9, Seq(()), loop), If(n < -9, store(A, (0, 0), 1.0)))
    return Let(n, i + 1, branch)


LOWERED = """\
n = i + 1
if n > 0:
    if n < 9:
        pass
    else:
        for i_1 in T.parallel(8, annotations={"chunk": 2, "note": "a"}):
            T.store(A[i_1, T.ramp(n, 1, 4)], T.broadcast(x, 4), mask=T.broadcast(True, 4))
            tmp = T.scratch((4,), "float32", scope="register")
            for j in T.vectorized(4):
                tmp[j] = A[i_1, j]
            with T.let(tmp[0] + 1.0) as t:
                A[i_1, 0] = t
            A[i_1, 1] = tmp[1]
elif n < -9:
    A[0, 0] = 1.0"""


def test_statements() -> None:
    assert stmt_text(lowered()) == LOWERED
    assert str(lowered()) == LOWERED
    first, *rest = LOWERED.split("\n")
    assert repr(lowered()) == f"{first}  # and {len(rest)} more lines"


def scheduled() -> Func:
    """A tiled reduction with a tail, a symbolic tile and every option of buffers and loops."""
    t, vi, vr, io, ii, r = Var("t"), Var("vi"), Var("vi"), Var("i"), Var("i"), Var("r", "int32")
    a = Buffer("A", (1021,), "float32", (2,), "global", True)
    index = Buffer("A", (t,), "int32", None, "global", False, (0, 9))
    out = Buffer("C", (1021,), "float32")
    tmp = Buffer("C.local", (t * 4,), "float32", None, "register")
    point = Region(out, (Range(vi, 1),))
    block = Block(
        Label("C"),
        (
            Iter(vi, 1021, IterKind.SPATIAL, io * t + ii),
            Iter(vr, 9, IterKind.REDUCE, cast("int64", r)),
        ),
        (point, Region(a, (Range(const(0), 1021),)), Region(tmp, (Range(const(0), t * 4),))),
        (point,),
        store(out, (vi,), out[vi] + a[index[vr]] * tmp[vi]),
        store(out, (vi,), 0.0),
        io * t + ii < 1021,
        (("pragma", {"deep": [1, None, True]}),),
    )
    loops: Stmt = For(r, 9, block, ForKind.UNROLL)
    loops = For(io, (t + 1020) // t, For(ii, t, loops, ForKind.THREAD, "threadIdx.x"))
    alpha = Var("alpha", "float32")
    return Func("main()", (a, index, out, alpha), (tmp,), loops, (out,), (("target", "cpu"),))


SCHEDULED = """\
@tw.script
def main__(
    A: T.Buffer((1021,), "float32", strides=(2,), constant=True),
    A_1: T.Buffer((t,), "int32", value_range=(0, 9)),
    C: T.Buffer((1021,), "float32"),
    alpha: T.float32,
    *,
    t: T.decision,
):
    T.func_attr({"target": "cpu"})
    T.inplace(C)
    C_local = T.alloc((t * 4,), "float32", scope="register")
    for i in range((t + 1020) // t):
        for i_1 in T.thread("threadIdx.x", t):
            for r in T.unrolled(9, dtype="int32"):
                with T.block("C"):
                    vi = T.axis.spatial(1021, i * t + i_1)
                    vi_1 = T.axis.reduce(9, T.int64(r))
                    T.where(i * t + i_1 < 1021)
                    T.reads(C[vi], A[0:1021], C_local[0:t * 4])
                    T.block_attr({"pragma": {"deep": [1, None, True]}})
                    with T.init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + A[T.int64(A_1[vi_1])] * C_local[vi]"""


def test_functions() -> None:
    func = scheduled()
    assert func_text(func) == SCHEDULED
    assert [v.name for v in decisions(func)] == ["t"]


def matmul() -> Func:
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    r = te.reduce_axis(8, name="r")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.func([a, b, c], name="matmul")


MATMUL = """\
@tw.script
def matmul(
    A: T.Buffer((8, 8), "float32"),
    B: T.Buffer((8, 8), "float32"),
    C: T.Buffer((8, 8), "float32"),
):
    for i, j, r in T.grid(8, 8, 8):
        with T.block("C"):
            vi, vj, vr = T.axis.remap("SSR", [i, j, r])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vr] * B[vr, vj]"""


def test_plain_loops_and_regions_are_short() -> None:
    assert str(matmul()) == MATMUL


def test_a_place_is_marked() -> None:
    func = matmul()
    outer = func.body
    assert isinstance(outer, For)
    middle = outer.body
    assert isinstance(middle, For)
    inner = middle.body
    assert isinstance(inner, For)
    block = inner.body
    assert isinstance(block, Block)
    assert block.init is not None
    marks: list[tuple[Var | Label | Stmt, str]] = [
        (outer, "for i, j, r in T.grid(8, 8, 8):"),
        (middle.var, "for j, r in T.grid(8, 8):"),
        (inner, "for r in range(8):"),
        (block, 'with T.block("C"):'),
        (block.label, 'with T.block("C"):'),
        (block.iters[1].var, 'vi, vj, vr = T.axis.remap("SSR", [i, j, r])'),
        (block.init, "C[vi, vj] = 0.0"),
        (block.body, "C[vi, vj] = C[vi, vj] + A[vi, vr] * B[vr, vj]"),
    ]
    for mark, line in marks:
        marked = [s.strip() for s in func_text(func, mark).split("\n") if "<--" in s]
        assert marked == [f"{line}  # <-- here"]
    assert "<--" not in func_text(func, Var("i"))
    first = stmt_text(Seq((store(A, (0, 0), 1.0), store(A, (0, 1), 1.0))), None)
    assert "<--" not in first


def test_a_marked_sequence_is_marked_at_its_start() -> None:
    sequence = Seq((store(A, (0, 0), 1.0), store(A, (0, 1), 1.0)))
    assert stmt_text(sequence, sequence) == "A[0, 0] = 1.0  # <-- here\nA[0, 1] = 1.0"


def test_long_sums_print_without_recursion() -> None:
    total: Expr = x
    for _ in range(5000):
        total = Binary(Op.ADD, total, y, "float32")
    assert expr_text(total).count("+ y") == 5000
    assert isinstance(call("exp", x), Call)


def test_listings_have_a_line_for_each_loop_and_say_what_it_is() -> None:
    store_ = store(A, (i, j), f32(0.0))
    inner = For(j, 8, store_)
    outer = For(i, 8, inner)
    func = Func("f", (A,), (Buffer("B", (4,), "int8"),), outer)
    lines, names = listing(func)
    assert "for i, j in T.grid(8, 8):" in func_text(func)
    assert [(line.text, line.loop) for line in lines] == [
        ("@tw.script", None),
        ('def f(A: T.Buffer((8, 8), "float32")):', None),
        ('    B = T.alloc((4,), "int8")', None),
        ("    for i in range(8):", outer),
        ("        for j in range(8):", inner),
        ("            A[i, j] = 0.0", None),
    ]
    assert names[i] == "i"
    assert names[A] == "A"


def test_listings_know_the_lines_of_blocks() -> None:
    block = Block(Label("b"), (), (), (), store(A, (const(0), const(0)), f32(0.0)))
    func = Func("f", (A,), (), block)
    assert [line.block for line in listing(func).lines][:3] == [None, None, block]
    assert listing(func, mark=block.label).lines[2].text.endswith("# <-- here")
