"""Text to programs: the inverse of printing, and errors that say where and why."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import T
from tilewright.base import dtypes
from tilewright.base.errors import IRError, ParseError
from tilewright.tir import language
from tilewright.tir.equality import structural_equal, structural_hash
from tilewright.tir.expr_parser import _SPECIAL, ExprParser
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import (
    FUNCTIONS,
    Alloc,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    IterKind,
    Let,
    Seq,
    Store,
    Var,
    const,
)
from tilewright.tir.parser import DIRECTIVES, parse
from tilewright.tir.printer import expr_text, func_text
from tilewright.tir.source import Source, syntax_tree
from tilewright.tir.visit import walk

from ..differences import first_difference
from ..long import examples
from .random_programs import Programs, random_func


def parse_expr(text: str, names: Mapping[str, Expr | Buffer | int | float]) -> Expr:
    """The expression of a text, in which `names` are known; numbers come from outside."""
    source = Source(text, "<expression>")
    (line,) = syntax_tree(source).body
    assert isinstance(line, ast.Expr)
    scope = {k: v for k, v in names.items() if not isinstance(v, (int, float))}
    return ExprParser(source, scope, names.__getitem__).expr(line.value)


def check_round_trip(func: Func) -> None:
    text = func_text(func)
    back = parse(text)
    assert first_difference(func, back) is None
    assert structural_hash(back) == structural_hash(func)
    assert func_text(back) == text


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 1 << 40))
def test_every_program_reads_back(seed: int) -> None:
    check_round_trip(random_func(seed))


@given(seed=st.integers(0, 1 << 40))
def test_every_expression_reads_back(seed: int) -> None:
    programs = Programs(seed)
    programs.vars = [Var(f"x{k}", d) for k, d in enumerate(dtypes.SCALARS)]
    kinds = ("float32", "int64", "bool")
    programs.buffers = [Buffer(f"B{k}", (4, 4), d) for k, d in enumerate(kinds)]
    names: dict[str, Expr | Buffer | int | float] = {v.name: v for v in programs.vars}
    names |= {b.name: b for b in programs.buffers}
    expr = programs.expr(programs.pick(dtypes.SCALARS), 5)
    assert structural_equal(parse_expr(expr_text(expr), names), expr)


@pytest.mark.parametrize("dtype", dtypes.SCALARS)
def test_constants_read_back_in_their_dtype(dtype: str) -> None:
    kind = np.finfo if dtype in ("float64", "float32", "float16") else None
    values: list[float] = [0, 1]
    if dtypes.is_float(dtype):
        values = [0.0, -0.0, 0.1, 1 / 3, float("inf"), float("-inf"), float("nan")]
        if kind is not None:
            facts = kind(dtype)
            values += [float(facts.max), float(facts.tiny), float(facts.smallest_subnormal)]
    elif dtypes.is_integer(dtype):
        values += list(dtypes.int_limits(dtype))
    for value in values:
        c = Const(value, dtype)
        back = parse_expr(expr_text(c), {})
        assert isinstance(back, Const)
        assert structural_equal(back, c)


# -- decorated functions


def axpy(n: int, dtype: str, factor: float) -> Func:
    @tw.script
    def axpy(
        X: T.Buffer = T.Buffer((n,), dtype),  # noqa: B008
        Y: T.Buffer = T.Buffer((n,), dtype),  # noqa: B008
    ) -> None:
        """Adds X, scaled, to Y."""
        T.inplace(Y)
        for i in range(n):
            with T.block("Y"):
                v = T.axis.spatial(n, i)
                Y[v] = Y[v] + X[v * n // n] * factor

    return axpy


AXPY = """\
@tw.script
def axpy(X: T.Buffer((8,), "float64"), Y: T.Buffer((8,), "float64")):
    T.inplace(Y)
    for i in range(8):
        with T.block("Y"):
            v = T.axis.spatial(8, i)
            Y[v] = Y[v] + X[v * 8 // 8] * 2.5"""


RANGES = ["1, 7", "0, 8", "2, 2", "5, 1", "0, 8, 3", "7, 0, -2", "7, -1, -1", "-3, 3, 2"]


@pytest.mark.parametrize("bounds", RANGES)
def test_ranges_are_those_of_python(bounds: str) -> None:
    """A loop from 0 on, whose name stands for the value of Python's."""
    text = f"""
@tw.script
def visited(A: T.Buffer((16,), "int64"), B: T.Buffer((16,), "int64")):
    T.inplace(A, B)
    for i in range({bounds}):
        A[i + 4] = A[i + 4] * 10 + i
        B[3 + i] = 1
"""
    func = tw.script(text)
    assert structural_equal(tw.script(func_text(func)), func)
    found, marked = np.zeros(16, np.int64), np.zeros(16, np.int64)
    interpret(func, found, marked)
    values = list(range(*map(int, bounds.split(","))))
    wanted = np.zeros(16, np.int64)
    for i in values:
        wanted[i + 4] = wanted[i + 4] * 10 + i
    np.testing.assert_array_equal(found, wanted)
    assert np.flatnonzero(marked).tolist() == sorted(3 + i for i in values)
    loop = func.body
    assert isinstance(loop, For)
    assert loop.extent == len(values)


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unrolled"])
def test_loops_of_all_kinds_take_a_range(kind: str) -> None:
    text = """
@tw.script
def double(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    T.inplace(B)
    for i in {}:
        B[i] = A[i] * 2.0"""
    found = func_text(tw.script(text.format(f"T.{kind}(1, 63, 2)")))
    assert found.splitlines()[-2:] == [
        f"    for i in {'range' if kind == 'serial' else f'T.{kind}'}(31):",
        "        B[i * 2 + 1] = A[i * 2 + 1] * 2.0",
    ]
    with pytest.raises(ParseError):
        tw.script(text.format(f"T.{kind}(1.5, 63)"))


def test_what_a_range_adds_folds_in_indices() -> None:
    text = """
@tw.script
def blur(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    T.inplace(B)
    for i in range(1, 63):
        B[i] = A[i - 1] + A[i] + A[i + 1]"""
    lines = func_text(tw.script(text)).splitlines()
    assert lines[3:] == [
        "    for i in range(62):",
        "        B[i + 1] = A[i] + A[i + 1] + A[i + 2]",
    ]
    block = """
@tw.script
def copy(A: T.Buffer((62,), "float32"), B: T.Buffer((62,), "float32")):
    for i in range(1, 63):
        with T.block("B"):
            vi = T.axis.spatial(62, i - 1)
            B[vi] = A[vi]"""
    plain = block.replace("range(1, 63)", "range(62)").replace("i - 1", "i")
    assert structural_equal(tw.script(block), tw.script(plain))
    with pytest.raises(ParseError, match=r"write vi = T\.axis\.spatial\(extent, i\)"):
        tw.script(block.replace("T.axis.spatial(62, i - 1)", 'T.axis.remap("S", [i])'))


def test_integers_of_different_signs_are_compared_as_integers() -> None:
    text = """
@tw.script
def f(A: T.Buffer((4,), "int64"), B: T.Buffer((4,), "uint64"), C: T.Buffer((4,), "bool")):
    for i in range(4):
        C[i] = A[i] < B[i]
"""
    func = tw.script(text)
    assert "float64" not in func_text(func)
    assert structural_equal(tw.script(func_text(func)), func)


def test_decorated_functions_know_the_python_around_them() -> None:
    assert func_text(axpy(8, "float64", 2.5)) == AXPY
    assert structural_equal(tw.script(AXPY), axpy(8, "float64", 2.5))
    folded = func_text(axpy(1, "float32", 2))
    assert "Y[v] = Y[v] + X[v] * 2.0" in folded


SHAPE = (4, np.int64(6))


def test_annotations_may_be_calls() -> None:
    @tw.script
    def copy(
        A: T.Buffer(SHAPE, "int32"),  # type: ignore[valid-type]
        B: T.Buffer(SHAPE, "int32"),  # type: ignore[valid-type]
        s: T.int32,
    ) -> None:
        for i, j in T.grid(SHAPE0, 6):
            B[i, j] = A[i, j] + s

    assert [p.shape for p in copy.params if isinstance(p, Buffer)] == [(4, 6), (4, 6)]
    check_round_trip(copy)


SHAPE0 = SHAPE[0]


def test_the_body_never_runs() -> None:
    ran: list[int] = []
    with pytest.raises(ParseError, match=r"\.py:\d+:13: found ran\.append\(1\)"):

        @tw.script
        def program(A: T.Buffer = T.Buffer((1,), "int64")) -> None:  # noqa: B008
            ran.append(1)
            A[0] = 1

    assert ran == []


@pytest.mark.parametrize("program", [3, print, lambda: None], ids=["int", "builtin", "lambda"])
def test_what_is_no_function_is_refused(program: object) -> None:
    with pytest.raises(ParseError):
        tw.script(program)  # type: ignore[arg-type]


def test_functions_without_source_are_refused() -> None:
    scope: dict[str, object] = {}
    exec("def f(): pass", scope)
    with pytest.raises(ParseError):
        tw.script(scope["f"])  # type: ignore[arg-type]


def test_the_namespace_has_every_word_of_the_grammar() -> None:
    words = {*_SPECIAL, *FUNCTIONS, *dtypes.SCALARS, *ForKind, *DIRECTIVES} - {"neg", "not"}
    words |= {"Buffer", "alloc", "scratch", "store", "grid", "block", "init", "let", "decision"}
    words |= {"func_attr", "inplace", "axis"}
    public = {n for n, v in vars(language).items() if getattr(v, "__module__", "") != "typing"}
    assert words <= public
    assert all(hasattr(language.axis, k) for k in (*IterKind, "remap"))
    for word in sorted(words - {"Buffer", "alloc", "scratch", "axis", "decision", "init"}):
        with pytest.raises((IRError, TypeError)):
            getattr(language, word)(1)


def test_the_grammar_is_written_down() -> None:
    """The docstring of the parser names every word."""
    import tilewright.tir.parser as module

    assert module.__doc__ is not None
    for word in (*ForKind, *DIRECTIVES, *_SPECIAL, "grid", "remap", "scratch", "alloc", "inplace"):
        assert f"T.{word}" in module.__doc__ or f"T.axis.{word}" in module.__doc__


# -- what text means


def program(*lines: str, params: str = 'A: T.Buffer((4, 4), "float32")') -> str:
    return f"@tw.script\ndef f({params}):\n" + "".join(f"    {line}\n" for line in lines)


def test_numbers_are_weak() -> None:
    func = parse(program("A[0, 1] = A[1, 0] * 2 + 1 - 4 * 2"))
    body = func.body
    assert isinstance(body, Store)
    constants = [n for n in walk(body.value) if isinstance(n, Const) and n.dtype == "float32"]
    assert [c.value for c in constants] == [2.0, 1.0, 8.0]


def test_nothing_is_folded() -> None:
    i = Var("i")
    for text in ("i * 1 + 0", "i // 1", "0 + i", "T.int64(2) * 3", "-T.int64(3)", "T.abs(-3)"):
        assert expr_text(parse_expr(text, {"i": i})) == text


def test_narrow_indices_are_cast_and_floats_refused() -> None:
    func = parse(program('for i in T.serial(4, dtype="int32"):', "    A[i, 0] = A[i, 1]"))
    assert "A[T.int64(i), 0] = A[T.int64(i), 1]" in func_text(func)
    with pytest.raises(ParseError, match="must be integers"):
        parse(program("A[A[0, 0], 0] = 1.0"))


def test_scopes_of_bindings() -> None:
    body = parse(program(
        "with T.let(A[0, 0]) as x:",
        "    A[0, 1] = x",
        "x = A[0, 2]",
        "B = T.scratch((4,), \"float32\")",
        "B[0] = x",
        "A[0, 3] = B[0]",
    )).body  # fmt: skip
    assert isinstance(body, Seq)
    first, second = body.stmts
    assert isinstance(first, Let)
    assert isinstance(first.body, Store)
    assert isinstance(second, Let)
    assert isinstance(second.body, Alloc)
    assert isinstance(second.body.body, Seq)


def test_regions_left_out_are_those_of_the_accesses() -> None:
    text = program(
        "for i, j in T.grid(4, 4):",
        "    with T.block(\"b\"):",
        "        v, w = T.axis.remap(\"SS\", [i, j])",
        "        A[v, w] = A[w, v] + A[w, v] + A[v, T.int64(A[v, 0])]",
    )  # fmt: skip
    explicit = text.replace(
        "        A[v, w] =",
        "        T.reads(A[w, v], A[v, :], A[v, 0])\n            T.writes(A[v, w])\n"
        "            A[v, w] =",
    )
    assert structural_equal(parse(text), parse(explicit))


def test_regions_left_out_cover_loops_in_a_block() -> None:
    body = parse(program(
        "for i in range(2):",
        "    with T.block(\"b\"):",
        "        v = T.axis.spatial(2, i)",
        "        for j in range(4):",
        "            A[v * 2, j] = A[v * 2 + 1, j]",
    )).body  # fmt: skip
    assert isinstance(body, For)
    block = body.body
    assert isinstance(block, Block)
    (read,), (write,) = block.reads, block.writes
    v = block.iters[0].var
    names = {"v": v}
    assert structural_equal(read.ranges[0].min, parse_expr("v * 2 + 1", names))
    assert structural_equal(write.ranges[0].min, parse_expr("v * 2", names))
    assert [r.extent for r in (*read.ranges, *write.ranges)] == [1, 4, 1, 4]


def test_remap_of_a_loop_that_begins_at_1() -> None:
    with pytest.raises(ParseError) as error:
        parse(program(
            "for i in range(1, 4):",
            '    with T.block("b"):',
            '        vi = T.axis.remap("S", [i])',
            "        A[vi, 0] = 1.0",
        ))  # fmt: skip
    assert "loop i does not begin at 0 with a step of 1, as T.axis.remap requires" in str(
        error.value
    )
    assert "hint: write vi = T.axis.spatial(extent, i), where" in str(error.value)


def test_expressions_know_given_names() -> None:
    i = Var("i")
    assert parse_expr("i", {"i": i}) is i
    assert structural_equal(parse_expr("i * n", {"i": i, "n": 4}), i * 4)
    assert structural_equal(parse_expr("n - 1", {"n": 4}), const(3))
    with pytest.raises(ParseError, match="j is not known here"):
        parse_expr("i + j", {"i": i})


# -- errors

BLOCK = ('with T.block("b"):', "    v = T.axis.spatial(4, 0)")
ERRORS: list[tuple[tuple[str, ...], int, int, str]] = [
    (("A[0, 0] = x",), 3, 15, "x is not known here"),
    (("for ii in range(4):", "    A[0, 0] = A[i, 0]"), 4, 21, "ii is in scope"),
    (("A[0] = 1.0",), 3, 5, "A has 2 dimensions, found 1 indices"),
    (("A[0, 0:2] = 1.0",), 3, 5, "slices stand in T.reads"),
    (("A[0, 0] = A",), 3, 15, "found A, expected a number or an expression"),
    (("A[0, 0] = T.int32(3)",), 3, 15, "write T.float32(value)"),
    (("A[0, 0] = A[0, 0] and 1",), 3, 15, "combine conditions with & and |"),
    (("A[0, 0] = 1.0 if 1 < 2 else 2.0",), 3, 15, "T.select"),
    (("A[0, 0] = 1 < A[0, 0] < 2",), 3, 15, "comparisons do not chain"),
    (("A[0, 0] = A[0, 0] ** 2",), 3, 15, "T.pow"),
    (("A[0, 0] = A[0, 0] @ 2",), 3, 15, "expected one of + - *"),
    (("A[0, 0] = A[0, 0] in 2",), 3, 15, "expected one of == !="),
    (("A[0, 0] = A[0, 0] & 2",), 3, 15, "& takes integers or bool, found float32"),
    (("A[0, 0] = not A[0, 0]",), 3, 15, "write ~condition"),
    (("A[0, 0] = exp(1.0)",), 3, 15, "found exp, expected a function of T"),
    (("A[0, 0] = T.exq(1.0)",), 3, 15, "did you mean T.exp?"),
    (("A[0, 0] = T.exp(1)",), 3, 15, "exp does not take int64"),
    (("A[0, 0] = T.exp(1.0, 2.0)",), 3, 15, "T.exp takes 1 argument by position, found 2"),
    (("A[0, 0] = T.load(A[0, 0], lanes=4)",), 3, 15, "found lanes by keyword"),
    (("A[0, 0] = T.select(1, 2.0, 3.0)",), 3, 24, "expected a condition (bool)"),
    (("A[0, 0] = T.float31(1)",), 3, 15, "did you mean T.float32?"),
    (("A[0, 0] = T.float32x1(1)",), 3, 15, "unknown dtype"),
    (("A[0, 0] = T.float32(\"x\")",), 3, 25, "\"nan\", \"inf\""),
    (("A[0, T.uint8(256)] = 1.0",), 3, 18, "256 does not fit uint8"),
    (("A[0, 0] = 1 // 0",), 3, 15, "1 // 0"),
    (("A[0, 0] = \"1\"",), 3, 15, "expected a number or an expression"),
    (("A[0, 0] += 1.0",), 3, 5, "write A[i] = A[i] + x"),
    (("x: T.int32 = 1",), 3, 5, "write x = T.int32(..)"),
    (("x = y = 1",), 3, 5, "one name is bound at a time"),
    (("x = 1", "x = 2"), 4, 5, "x is bound already"),
    (("A = 1",), 3, 5, "A is bound already"),
    (("T = 1",), 3, 5, "T has a meaning of its own"),
    (("while 1: pass",), 3, 5, "loops are `for i in range(n)`"),
    (("return A",), 3, 5, "outputs are parameters"),
    (("for i in range(): pass",), 3, 14, "range takes 1 to 3 arguments by position, found 0"),
    (("for i in range(1, 2, 3, 4): pass",), 3, 14, "range(first, end) or range(first, end, st"),
    (("for i in range(stop=4): pass",), 3, 14, "write range(n), range(first, end) or range("),
    (("for i in range(*A): pass",), 3, 20, "expected arguments one by one"),
    (("for i in T.parallel(): pass",), 3, 14, "T.parallel takes 1 to 3 arguments by position"),
    (("for i in T.thread(\"threadIdx.x\"): pass",), 3, 14, "T.thread(axis, first, end, step)"),
    (("A[0, 0] = T.max_value(\"int32\")",), 3, 15, "T.max_value is not a function of values"),
    (("for i in range(0, 4, 0): pass",), 3, 26, "expected a step other than 0"),
    (("for i in range(1, 1.0): pass",), 3, 14, "expected integers"),
    (("for i in range(2):", "    for j in range(1.0 * i, 4): pass"), 4, 18, "expected integers"),
    (("for i in range(1, 9000000000000000000): pass",), 3, 14, "expected a range of int64"),
    (("for i in range(-1): pass",), 3, 20, "expected an extent"),
    (("for i in range(1.0): pass",), 3, 20, "expected an extent"),
    (("for i in range(T.int32(4)): pass",), 3, 20, "an extent has dtype int64, found int32"),
    (("for i in A: pass",), 3, 14, "expected range(n)"),
    (("for i in T.spiral(4): pass",), 3, 14, "T.parallel, T.vectorized"),
    (("for i in T.grid(4, 4): pass",), 3, 9, "found 1 names for 2 loops"),
    (("for i, j in T.grid(range(1, 4), 4): pass",), 3, 24, "such as `for i in range(1, 4):`"),
    (("for i, i in T.grid(4, 4): pass",), 3, 12, "i is bound already"),
    (("for i in range(4): pass", "else: pass"), 4, 11, "a loop has no else"),
    (("with T.block(4): pass",), 3, 18, "the name of the block, in quotes"),
    (('with T.block("a\\nb"): pass',), 3, 18, "a line without control characters"),
    (('with T.block("a\\x1b[2J"): pass',), 3, 18, "a line without control characters"),
    (("with T.block(\"b\") as b: pass",), 3, 10, "T.let(value) as x"),
    (("with open(\"b\"): pass",), 3, 10, "expected T.block"),
    (("v = T.axis.spatial(4, 0)",), 3, 5, "is allowed only at the top of a block"),
    (("A[0, 0] = 1.0", "B = T.alloc((4,), \"float32\")"), 4, 5, "only at the top of the function"),
    (("A[0, 0] = 1.0", "T.inplace(A)"), 4, 5, "stands at the top of the function"),
    (("T.inplace(A)", "T.inplace(A)"), 4, 5, "T.inplace(X, Y)"),
    (("T.where(1 < 2)",), 3, 5, "T.where stands in a block"),
    ((*BLOCK, "    A[v, 0] = 1.0", "    T.where(v < 2)"), 6, 9, "before the first statement"),
    ((*BLOCK, "    T.where(v < 2)", "    T.where(v < 2)"), 6, 9, "T.where is given twice"),
    ((*BLOCK, *["    with T.init(): pass"] * 2), 6, 9, "a block has one T.init"),
    ((*BLOCK, "    T.reads(A)"), 5, 17, "a region such as A[i, 0:16]"),
    ((*BLOCK, "    T.reads(A[v])"), 5, 17, "A has 2 dimensions, found 1 ranges"),
    ((*BLOCK, "    T.reads(A[v, v:4])"), 5, 22, "with low spelled the same twice"),
    ((*BLOCK, "    T.reads(A[v, 2:1])"), 5, 22, "low : low + extent"),
    ((*BLOCK, "    T.reads(A[v, 0:4:2])"), 5, 22, "low : low + extent"),
    ((*BLOCK, "    T.reads(A[v, T.int32(1)])"), 5, 22, "found an index of int32"),
    ((*BLOCK, "    w = T.axis.remap(\"S\", [v])"), 5, 32, "the variable of a loop around"),
    ((*BLOCK, "    w = T.axis.remap(\"X\", [v])"), 5, 13, "1 letters of SRO"),
    ((*BLOCK, "    w = T.axis.other(4, 0)"), 5, 13, "T.axis.spatial"),
    ((*BLOCK, "    T.block_attr({1: 2})"), 5, 22, "names in quotes"),
    ((*BLOCK, "    T.block_attr({\"a\": 1, \"a\": 2})"), 5, 31, "a is given twice"),
    ((*BLOCK, "    T.block_attr({\"a\": v})"), 5, 28, "a JSON value"),
    ((*BLOCK, "    T.block_attr({\"a\": -1e999})"), 5, 28, "a JSON value"),
    ((*BLOCK, "    T.block_attr(1)"), 5, 22, "a dict such as"),
    (("B = T.alloc(4, \"float32\")",), 3, 17, "a shape such as (16, 16)"),
    (("B = T.alloc((4,), \"float32x4\")",), 3, 23, "a buffer has a scalar dtype"),
    (("B = T.alloc((4,), \"float32\", strides=(1, 2))",), 3, 42, "one stride per dimension"),
    (("B = T.alloc((4,), \"float32\", constant=1)",), 3, 43, "True or False"),
    (("B = T.alloc((4,), \"float32\", size=1)",), 3, 9, "found size by keyword"),
    (("def g(): pass",), 3, 5, "a program is one function"),
    (("A[0, 0] = 1.0 +",), 3, 20, "not valid Python"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "line", "column", "message"), ERRORS)
def test_errors_say_where_and_why(
    lines: tuple[str, ...], line: int, column: int, message: str
) -> None:
    with pytest.raises(ParseError) as caught:
        parse(program(*lines))
    text = str(caught.value)
    assert message in text
    assert (caught.value.data["line"], caught.value.data["column"]) == (line, column)
    assert text.startswith(f"<text>:{line}:{column}: ")
    assert program(*lines).split("\n")[line - 1] in text


@pytest.mark.parametrize(
    ("first", "statement", "dtype"),
    [
        ((), "acc += A[i, 0]", "float32"),
        (("acc = 0.0",), "acc += A[i, 0]", "float32"),
        (("acc = 0.0",), "acc = acc + A[i, 0]", "float32"),
        (("acc = T.int32(0)",), "acc = acc + T.int32(A[i, 0])", "int32"),
    ],
)
def test_the_hint_for_a_sum_in_a_name_parses(
    first: tuple[str, ...], statement: str, dtype: str
) -> None:
    with pytest.raises(ParseError) as caught:
        parse(program(*first, "for i in range(4):", f"    {statement}"))
    alloc = f'acc = T.alloc((1,), "{dtype}")'
    change = "acc[0] = acc[0] + x"
    assert str(caught.value).endswith(
        f"hint: what changes is an element of a buffer: {alloc} at the top of the function, "
        f"then {change}"
    )
    change = change.replace("x", f"T.{dtype}(A[i, 0])")
    parse(program(alloc, "acc[0] = 0", "for i in range(4):", f"    {change}"))


def test_the_hint_for_a_buffer_that_is_bound_again_is_an_element() -> None:
    for statement in ("A = 1.0", "A += 1.0"):
        with pytest.raises(ParseError):
            parse(program(statement))


def test_the_hint_for_a_buffer_without_dimensions_parses() -> None:
    line = 'Z = T.alloc((), "float32")'
    with pytest.raises(ParseError):
        parse(program(line, "Z = 1.0"))
    parse(program(line, "Z[()] = 1.0"))


def test_the_hint_for_a_sum_adds_something_else() -> None:
    with pytest.raises(ParseError):
        parse(program("x = 0.0", "x += 1.0"))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("A", "the parameter A has no type"),
        ("A: int", "the parameter A has no type"),
        ("A: T.Buffer", "the parameter A has no type"),
        ("A: T.int32 = 3", "the parameter A has no type"),
        ("A: T.int32, A: T.int32", "A is bound already"),
        ("*A", "a parameter is NAME"),
        ("**A", "a parameter is NAME"),
        ("A: T.int32, /", "a parameter is NAME"),
        ("*, t: T.int32", "expected NAME: T.decision"),
        ('A: T.Buffer((t,), "int32")', "t is not known here"),
    ],
)
def test_parameters_have_types(params: str, message: str) -> None:
    with pytest.raises(ParseError, match=message.replace("(", r"\(")):
        parse(program("pass", params=params))


@pytest.mark.parametrize("text", ["", "x = 1", "@tw.script\nclass A: pass", "import os", "1; 2"])
def test_text_is_one_function(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


def test_other_decorators_are_refused() -> None:
    with pytest.raises(ParseError):
        parse("@evil()\n" + program("pass").partition("\n")[2])


HOSTILE = {
    "unary": "A[0, 0] = " + "-" * 100_000 + "1",
    "parentheses": "A[0, 0] = " + "(" * 100_000 + "1" + ")" * 100_000,
    "sum": "A[0, 0] = " + "+".join(["A[0, 0]"] * 20_000),
    "deep sum": "A[0, 0] = " + "+".join(["A[0, 0]"] * 500),
    "inversions": "A[0, 0] = " + "-" * 400 + "A[0, 0]",
    "attributes": "A[0, 0] = T" + ".a" * 5_000,
    "lambdas": "A[0, 0] = " + "lambda:" * 5_000 + "1",
    "power": "A[0, 0] = 9 ** 9 ** 9 ** 9",
    "shift": "A[0, 0] = 1 << 10000000000",
    "product": "A[0, 0] = " + " * ".join(["9999999999"] * 50),
    "digits": "A[0, 0] = " + "9" * 10_000,
    "hexadecimal": "A[0, 0] = 0x" + "9" * 1_000_000,
    "extent": "for i in range(1 + 0xffffffffffffffff): pass",
    "lanes": "A[0, 0] = T.broadcast(1, 1000000000)",
    "dtype": "A[0, 0] = T.float32x99999999(1)",
    "grid": f"for {','.join(f'i{k}' for k in range(500))} in T.grid({'1,' * 500}): A[0, 0] = 1.0",
    "bindings": "\n    ".join(f"x{k} = A[0, 0]" for k in range(500)),
    "import": "__import__('os').system('false')",
    "walrus": "A[(x := 0), 0] = 1.0",
    "comprehension": "A[0, 0] = [c for c in ().__class__.__bases__]",
    "format": 'A[0, 0] = f"{exit()}"',
    "null": "\0",
    "surrogate": "A[0, 0] = '\ud800'",
    "long": "pass\n    " * 500_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused(name: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(program(HOSTILE[name]))
    assert len(str(caught.value)) < 1000


def mutated(text: str, rng: np.random.Generator) -> str:
    """`text` with one to three words or signs replaced by others of it, doubled or cut."""
    words = re.findall(r"\w+|\s+|\W", text)
    places = [k for k, word in enumerate(words) if word.isidentifier() or word.isdecimal()]
    if rng.integers(4) == 0:
        places = list(range(len(words)))
    for _ in range(int(rng.integers(1, 4))):
        k, other = (places[int(n)] for n in rng.integers(0, len(places), 2))
        words[k] = (words[other], words[other], words[k] * 2, "")[int(rng.integers(4))]
    return "".join(words)


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 1 << 40))
def test_damaged_text_is_read_or_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = mutated(func_text(random_func(int(rng.integers(50)))), rng)
    try:
        func = parse(text)
    except ParseError:
        return
    assert first_difference(func, parse(func_text(func))) is None


def test_the_text_of_every_program_is_python() -> None:
    for seed in range(20):
        module = ast.parse(func_text(random_func(seed)))
        assert isinstance(module.body[0], ast.FunctionDef)
