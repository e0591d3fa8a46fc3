from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import IRError, VerifyError
from tilewright.tir import te
from tilewright.tir.equality import structural_equal
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Block, Buffer, For, Func, IterKind, Let, Load, Var
from tilewright.tir.verify import verify
from tilewright.tir.visit import walk


def blocks(func: Func) -> dict[str, Block]:
    return {n.label.name: n for n in walk(func) if type(n) is Block}


def loops(func: Func) -> list[str]:
    return [n.var.name for n in walk(func) if type(n) is For]


def matmul(n: int = 2, m: int = 3, k: int = 4, dtype: str = "float32") -> Func:
    a = te.placeholder((n, k), dtype, name="A")
    b = te.placeholder((k, m), dtype, name="B")
    r = te.reduce_axis(k, name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.func([a, b, c], name="matmul")


class TestStructure:
    def test_one_block_with_named_loops_and_iteration_variables(self) -> None:
        func = matmul()
        assert [p.name for p in func.params] == ["A", "B", "C"]
        assert func.allocs == ()
        assert loops(func) == ["i", "j", "r"]
        block = blocks(func)["C"]
        assert [i.var.name for i in block.iters] == ["vi", "vj", "vr"]
        assert [i.kind for i in block.iters] == [
            IterKind.SPATIAL,
            IterKind.SPATIAL,
            IterKind.REDUCE,
        ]
        assert [i.extent for i in block.iters] == [2, 3, 4]

    def test_regions_are_the_elements_accessed(self) -> None:
        block = blocks(matmul())["C"]
        vi, vj, vr = (i.var for i in block.iters)
        reads = {r.buffer.name: tuple(x.min for x in r.ranges) for r in block.reads}
        assert reads.keys() == {"A", "B", "C"}
        assert all(x is y for x, y in zip(reads["A"], (vi, vr), strict=True))
        assert all(x is y for x, y in zip(reads["B"], (vr, vj), strict=True))
        assert [r.buffer.name for r in block.writes] == ["C"]

    def test_each_distinct_access_is_a_region(self) -> None:
        a = te.placeholder((4,), name="A")
        b = te.compute((3,), lambda i: a[i] + a[i + 1] + a[i], name="B")
        block = blocks(te.func([a, b]))["B"]
        assert len(block.reads) == 2

    def test_gather_reads_the_whole_dimension(self) -> None:
        a = te.placeholder((4,), name="A")
        index = te.placeholder((3,), "int32", name="I", value_range=(0, 4))
        b = te.compute((3,), lambda i: a[index[i]], name="B")
        func = te.func([a, index, b])
        (region,) = [r for r in blocks(func)["B"].reads if r.buffer.name == "A"]
        assert region.ranges[0].extent == 4

    def test_intermediate_is_internal_and_comes_first(self) -> None:
        a = te.placeholder((4,), name="A")
        b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((4,), lambda i: b[i] * 2.0, name="C")
        func = te.func([a, c])
        assert [x.name for x in func.allocs] == ["B"]
        assert list(blocks(func)) == ["B", "C"]

    def test_diamond_is_computed_once(self) -> None:
        a = te.placeholder((4,), name="A")
        b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((4,), lambda i: b[i] * 2.0, name="C")
        d = te.compute((4,), lambda i: b[i] - c[i], name="D")
        assert list(blocks(te.func([a, d]))) == ["B", "C", "D"]

    def test_equal_names_are_told_apart(self) -> None:
        a = te.placeholder((4,), name="T")
        b = te.compute((4,), lambda T: a[T] + 1.0, name="T")
        c = te.compute((4,), lambda T: b[T] + 1.0, name="T")
        func = te.func([a, c])
        assert [p.name for p in (*func.params, *func.allocs)] == ["T", "T_1", "T_2"]
        assert not {"T", "T_1", "T_2"} & set(loops(func))

    def test_variadic_functions_and_given_axes(self) -> None:
        a = te.placeholder((2, 3, 4), name="A")
        b = te.compute(a.extents, lambda i, *rest: a[(i, *rest)], name="B")
        c = te.compute(a.extents, lambda *i: b[i], name="C", axes=["x", "y", "z"])
        assert loops(te.func([a, c])) == ["i", "i1", "i2", "x", "y", "z"]

    def test_a_program_is_made_of_plain_buffers_and_variables(self) -> None:
        a = te.placeholder((4,), name="A")
        s = te.scalar("float32", "s")
        b = te.compute((4,), lambda i: a[i] * s, name="B")
        first, second = te.func([a, s, b]), te.func([a, s, b])
        for func in (first, second):
            assert [type(p) for p in func.params] == [Buffer, Var, Buffer]
            for n in walk(func):
                assert not isinstance(n, (te.Axis, te.Tensor))
        assert not set(first.params) & set(second.params)

    def test_scalar_shape(self) -> None:
        a = te.placeholder((), name="A")
        b = te.compute((), lambda: a[()] + 1.0, name="B")
        func = te.func([a, b])
        assert loops(func) == []
        out = np.zeros((), np.float32)
        interpret(func, np.array(2, np.float32), out)
        assert out == 3

    def test_placeholder_facts_reach_the_parameter(self) -> None:
        a = te.placeholder(
            (2, 3), "int8", name="A", strides=(4, 1), constant=True, value_range=(0, 9)
        )
        b = te.compute((2, 3), lambda i, j: a[i, j], name="B")
        param = te.func([a, b]).params[0]
        assert isinstance(param, Buffer)
        assert (param.strides, param.constant, param.value_range) == ((4, 1), True, (0, 9))

    def test_stage_chain_longer_than_the_recursion_limit(self) -> None:
        a = te.placeholder((1,), name="A")
        t = a
        for _ in range(1500):
            t = te.compute((1,), lambda i, t=t: t[i] + 1.0)
        assert len(te.func([a, t]).allocs) == 1499


class TestReductions:
    @pytest.mark.parametrize(
        ("dtype", "result"),
        [
            ("float64", "float64"),
            ("float32", "float32"),
            ("float16", "float32"),
            ("bfloat16", "float32"),
            ("int8", "int32"),
            ("uint16", "int32"),
            ("bool", "int32"),
            ("uint32", "uint32"),
            ("int64", "int64"),
        ],
    )
    def test_sums_accumulate_in_a_wide_dtype(self, dtype: str, result: str) -> None:
        a = te.placeholder((4,), dtype, name="A")
        r = te.reduce_axis(4)
        assert te.compute((), lambda: te.sum(a[r], axis=r)).dtype == result
        assert te.compute((), lambda: te.prod(a[r], axis=r)).dtype == result
        assert te.compute((), lambda: te.max(a[r], axis=r)).dtype == dtype

    def test_dtype_is_applied_on_the_way_in(self) -> None:
        a = te.placeholder((3,), "uint8", name="A")
        r = te.reduce_axis(3)
        b = te.compute((), lambda: te.sum(a[r], axis=r, dtype="uint8"), name="B")
        c = te.compute((), lambda: te.sum(a[r], axis=r, dtype="float64"), name="C")
        x, y = np.zeros((), np.uint8), np.zeros(())
        interpret(te.func([a, b, c]), np.array([200, 100, 7], np.uint8), x, y)
        assert x == (307 & 255)
        assert y == 307

    def test_nested_reduction_moves_out_over_what_it_depends_on(self) -> None:
        a = te.placeholder((2, 3), name="A")
        r = te.reduce_axis(3)
        b = te.compute((2, 3), lambda i, j: a[i, j] / te.sum(a[i, r], axis=r), name="B")
        func = te.func([a, b])
        assert [(t.name, t.shape) for t in func.allocs] == [("B_sum", (2,))]
        x = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
        y = np.zeros_like(x)
        interpret(func, x, y)
        np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-6)

    def test_equal_nested_reductions_are_one_stage(self) -> None:
        a = te.placeholder((2, 3), name="A")
        r = te.reduce_axis(3)

        def softmax(i: te.Expr, j: te.Expr) -> te.Expr:
            total = te.sum(te.exp(a[i, r] - te.max(a[i, r], axis=r)), axis=r)
            return te.exp(a[i, j] - te.max(a[i, r], axis=r)) / total

        func = te.func([a, te.compute((2, 3), softmax, name="S")])
        assert list(blocks(func)) == ["S_max", "S_sum", "S"]
        assert [t.shape for t in func.allocs] == [(2,), (2,)]

    def test_reduction_of_a_reduction(self) -> None:
        a = te.placeholder((2, 3), name="A")
        i, j = te.reduce_axis(2, "i"), te.reduce_axis(3, "j")
        b = te.compute((), lambda: te.max(te.sum(a[i, j], axis=j), axis=i), name="B")
        func = te.func([a, b])
        assert [t.shape for t in func.allocs] == [(2,)]
        x = np.array([[1, 2, 3], [4, -9, 4]], np.float32)
        out = np.zeros((), np.float32)
        interpret(func, x, out)
        assert out == 6

    def test_argmax_stores_its_results_together(self) -> None:
        a = te.placeholder((2, 5), name="A")
        r = te.reduce_axis(5)
        index, value = te.compute((2,), lambda i: te.argmax(a[i, r], axis=r), name="M")
        func = te.func([a, index, value])
        assert list(blocks(func)) == ["M"]
        assert any(type(n) is Let for n in walk(func))
        x = np.array([[1, 7, 7, 2, 0], [3, np.nan, 9, np.nan, 1]], np.float32)
        i, v = np.zeros(2, np.int64), np.zeros(2, np.float32)
        interpret(func, x, i, v)
        np.testing.assert_array_equal(i, x.argmax(1))
        np.testing.assert_array_equal(v, x.max(1))

    def test_argmin_over_two_axes_counts_in_row_major_order(self) -> None:
        a = te.placeholder((3, 4), "int32", name="A")
        r, s = te.reduce_axis(3), te.reduce_axis(4)
        index, value = te.compute((), lambda: te.argmin(a[r, s], axis=[r, s]), name="M")
        x = np.array([[5, 4, 3, 9], [2, 8, -1, 7], [-1, 0, 3, 3]], np.int32)
        i, v = np.zeros((), np.int64), np.zeros((), np.int32)
        interpret(te.func([a, index, value]), x, i, v)
        assert (int(i), int(v)) == (6, -1)

    def test_an_unwanted_result_becomes_internal(self) -> None:
        a = te.placeholder((5,), name="A")
        r = te.reduce_axis(5)
        index, _ = te.compute((), lambda: te.argmax(a[r], axis=r), name=("where", "what"))
        func = te.func([a, index])
        assert [t.name for t in func.allocs] == ["what"]
        alone = te.compute((), lambda: te.argmax(a[r], axis=r)[0], name="where")
        assert len(te.func([a, alone]).allocs) == 1

    def test_two_reductions_over_the_same_axes_share_a_block(self) -> None:
        a = te.placeholder((2, 3), name="A")
        r = te.reduce_axis(3)
        s, m = te.compute(
            (2,), lambda i: (te.sum(a[i, r], axis=r), te.max(a[i, r], axis=r)), name=("s", "m")
        )
        func = te.func([a, s, m])
        assert list(blocks(func)) == ["s"]
        x = np.array([[1, 2, 3], [4, 9, 4]], np.float32)
        y, z = np.zeros(2, np.float32), np.zeros(2, np.float32)
        interpret(func, x, y, z)
        assert y.tolist() == [6, 17]
        assert z.tolist() == [3, 9]

    def test_several_outputs_of_one_block(self) -> None:
        a = te.placeholder((3,), name="A")
        b, c = te.compute((3,), lambda i: (a[i] + 1.0, a[i] * 2.0), name="P")
        func = te.func([a, b, c])
        assert list(blocks(func)) == ["P"]
        x = np.array([1, 2, 3], np.float32)
        y, z = np.zeros_like(x), np.zeros_like(x)
        interpret(func, x, y, z)
        assert y.tolist() == [2, 3, 4]
        assert z.tolist() == [2, 4, 6]

    @pytest.mark.parametrize(
        ("reduce", "identity"),
        [(te.sum, 0), (te.prod, 1), (te.max, -np.inf), (te.min, np.inf)],
    )
    def test_over_no_element_it_is_the_identity(
        self, reduce: Callable[..., te.Expr], identity: float
    ) -> None:
        a = te.placeholder((2, 0), name="A")
        r = te.reduce_axis(0)
        b = te.compute((2,), lambda i: reduce(a[i, r], axis=r), name="B")
        out = np.full(2, np.nan, np.float32)
        interpret(te.func([a, b]), np.zeros((2, 0), np.float32), out)
        assert out.tolist() == [identity] * 2


class TestInplace:
    def test_output_replaces_its_source(self) -> None:
        a = te.placeholder((3,), name="A")
        b = te.compute((3,), lambda i: a[i] * 2.0, name="B")
        func = te.func([a], inplace={b: a})
        assert func.inplace == func.params
        x = np.array([1, 2, 3], np.float32)
        interpret(func, x)
        assert x.tolist() == [2, 4, 6]

    def test_readers_before_it_are_fine(self) -> None:
        a = te.placeholder((2,), name="A")
        r = te.reduce_axis(2)
        b = te.compute((2,), lambda i: a[i] - te.sum(a[r], axis=r), name="B")
        x = np.array([1, 2], np.float32)
        interpret(te.func([a], inplace={b: a}), x)
        assert x.tolist() == [-2, -1]

    def test_results_of_one_stage_read_what_others_of_it_replace(self) -> None:
        a, b = te.placeholder((3,), name="A"), te.placeholder((3,), name="B")
        total, product, less = te.compute(
            (3,), lambda i: (a[i] + b[i], a[i] * b[i], b[i] - a[i]), name=("S", "P", "L")
        )
        x, y, out = np.arange(3, dtype="f4"), np.full(3, 2, "f4"), np.empty(3, "f4")
        interpret(te.func([a, b, less], inplace={total: a, product: b}), x, y, out)
        assert (x.tolist(), y.tolist(), out.tolist()) == ([2, 3, 4], [0, 2, 4], [2, 1, 0])

    def test_no_array_in_place_whose_elements_share_memory(self) -> None:
        a = te.placeholder((4, 4), strides=(3, 2))
        b = te.compute((4, 4), lambda i, j: a[i, j] + 1)
        with pytest.raises(IRError):
            te.func([a], inplace={b: a})

    def test_elements_read_after_they_are_replaced_are_refused(self) -> None:
        a = te.placeholder((3,), name="A")
        moved = te.compute((3,), lambda i: a[2 - i], name="B")
        with pytest.raises(IRError):
            te.func([a], inplace={moved: a})
        b = te.compute((3,), lambda i: a[i] + 1.0, name="B")
        later = te.compute((3,), lambda i: b[i] + a[i], name="D")
        with pytest.raises(IRError):
            te.func([a, later], inplace={b: a})
        r = te.reduce_axis(2, "r")
        total = te.compute((3,), lambda i: te.sum(a[i], axis=r), name="S")
        with pytest.raises(IRError):
            te.func([a], inplace={total: a})

    def test_shapes_and_lists_must_fit(self) -> None:
        a = te.placeholder((3,), name="A")
        b = te.compute((2,), lambda i: a[i], name="B")
        with pytest.raises(IRError):
            te.func([a], inplace={b: a})
        c = te.compute((3,), lambda i: a[i], name="C")
        with pytest.raises(IRError):
            te.func([a, c], inplace={c: a})
        with pytest.raises(IRError):
            te.func([a], inplace={a: a})
        d = te.placeholder((3,), name="D")
        with pytest.raises(IRError):
            te.func([a], inplace={c: d})


A = te.placeholder((2, 3), name="A")
I8 = te.placeholder((4,), "int8", name="I")
R = te.reduce_axis(3, "r")
C = te.compute((2, 3), lambda i, j: A[i, j], name="C")
S = te.scalar("float32", "s")
PAIR = te.compute((2,), lambda i: te.argmax(A[i, R], axis=R), name="P")

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "too few indices": (lambda: te.compute((2,), lambda i: A[i]), "A has 2 dimensions, found 1"),
    "float index": (lambda: te.compute((2,), lambda i: A[i, 1.5]), "expected an integer"),
    "float tensor as index": (
        lambda: te.compute((2, 3), lambda i, j: A[A[i, j], j]),
        "index of A has dtype float32",
    ),
    "arity": (
        lambda: te.compute((2, 3), lambda i: A[i, 0]),
        r"1 parameter \(i\), and the shape \(2, 3\)",
    ),
    "too many parameters": (
        lambda: te.compute((2,), lambda i, j: A[i, j]),
        r"2 parameters \(i, j\), and the shape \(2,\) has 1 dimension\n.*lambda i: ",
    ),
    "a parameter of a number": (
        lambda: te.compute((), lambda i: A[i, 0]),
        r"1 parameter \(i\), and the shape \(\) has 0 dimensions\n.*lambda: ",
    ),
    "arguments of compute swapped": (
        lambda: te.compute(lambda i: A[i, 0], (2,)),  # type: ignore[call-overload]
        r"shape is <function .*\n.*te\.compute\(\(4, 8\), lambda",
    ),
    "a name before the shape of a compute": (
        lambda: te.compute("C", (2,), lambda i: A[i, 0]),  # type: ignore[call-overload]
        r"compute: found 3 arguments; expected at most 2 .shape, fn.,.*\n.*lambda i, j: .*name=",
    ),
    "a tensor for a function": (
        lambda: te.compute((2,), A),  # type: ignore[call-overload]
        r"is not a function of the indices\n.*te\.compute\(shape, lambda i: ",
    ),
    "no function": (
        lambda: te.compute((2, 3), 1.0),  # type: ignore[call-overload]
        r"1\.0 is not a function of the indices\n.*lambda i, j: ",
    ),
    "a function that returns nothing": (
        lambda: te.compute((2,), lambda i: None),  # type: ignore[arg-type, return-value]
        r"T: the function returned None; expected an expression\n.*lambda i: X\[i\]",
    ),
    "a function that returns a list": (
        lambda: te.compute((2,), lambda i: [i, i]),  # type: ignore[arg-type, return-value]
        r"T: the function returned a list; .*\n.*a tuple",
    ),
    "a name before the shape": (
        lambda: te.placeholder("x", (4,)),  # type: ignore[arg-type]
        r"shape is 'x'; expected a tuple of integers.*\n.*te\.placeholder\(\(4, 8\), .* name=",
    ),
    "a name for a dtype": (
        lambda: te.placeholder((4,), "x"),
        r"unknown dtype 'x'.*\n.*te\.placeholder\(\(4, 8\), \"float32\", name=",
    ),
    "a shape for a dtype": (
        lambda: te.placeholder((4,), (4,)),  # type: ignore[arg-type]
        r"\(4,\) is not a dtype; expected a name such as 'float32'",
    ),
    "a name by position": (
        lambda: te.placeholder((4,), "float32", "X"),  # type: ignore[call-arg]
        r"placeholder: found 3 arguments; expected at most 2 .shape, dtype.,.*\n.*name=",
    ),
    "a tensor for a shape": (
        lambda: te.placeholder(A),  # type: ignore[arg-type]
        r"shape is the tensor A; .*\n.*A\.extents is the shape of A",
    ),
    "no shape": (lambda: te.placeholder(None), "shape is None; expected a tuple of integers"),  # type: ignore[arg-type]
    "a float for a shape": (lambda: te.placeholder(4.5), "shape is 4.5; expected a tuple"),  # type: ignore[arg-type]
    "an open extent": (
        lambda: te.placeholder((None, 4)),  # type: ignore[arg-type]
        r"the extent of dimension 0 is None; .*\n.*one program for each size",
    ),
    "an open axis": (
        lambda: te.reduce_axis(None),  # type: ignore[arg-type]
        r"the extent of the axis is None; .*\n.*one program for each size",
    ),
    "a name before an extent": (
        lambda: te.reduce_axis("r", 4),  # type: ignore[arg-type]
        r"the extent of an axis is 'r'; .*\n.*te\.reduce_axis\(8, name=",
    ),
    "a name for the dtype of a scalar": (
        lambda: te.scalar("alpha"),
        r"unknown dtype 'alpha'.*\n.*te\.scalar\(\"float32\", name=",
    ),
    "the pair of argmax among arguments": (
        lambda: te.func([A, PAIR]),  # type: ignore[list-item]
        r"argument 1, a tuple of P_0, P_1, is not an argument; .*\n.*index, value = te\.compute",
    ),
    "the expressions of argmax among arguments": (
        lambda: te.func([A, te.argmax(A[0, R], axis=R)]),  # type: ignore[list-item]
        r"argument 1, a Pair of te\.argmax.*\n.*index, value = te\.compute\(shape, lambda",
    ),
    "an expression among arguments": (
        lambda: te.func([A, te.exp(A[0, 0])]),  # type: ignore[list-item]
        r"argument 1, T\.exp\(.*\n.*Y = te\.compute\(shape, lambda",
    ),
    "an argument for a list": (
        lambda: te.func(A),  # type: ignore[arg-type]
        r"found the tensor A; expected a list of arguments\n.*te\.func\(\[X, Y\]",
    ),
    "arguments by position": (
        lambda: te.func(A, C),  # type: ignore[call-arg, arg-type]
        r"func: found 2 arguments; expected at most 1 .args.,.*\n.*te\.func\(\[X, Y\]",
    ),
    "a product of tensors": (
        lambda: A @ C,  # type: ignore[operator]
        r"`@` is no product of tensors\n.*ops\.matmul\(A, B\).*te\.sum\(",
    ),
    "axes": (
        lambda: te.compute((2,), lambda i: A[i, 0], axes=["x", "y"]),
        r"2 names \(x, y\), and the shape \(2,\)",
    ),
    "shape": (lambda: te.placeholder(3), r"expected a tuple such as \(3,\)"),  # type: ignore[arg-type]
    "negative extent": (lambda: te.placeholder((2, -1)), "dimension 1 has the negative extent -1"),
    "float extent": (lambda: te.placeholder((2.0,)), "expected an integer"),  # type: ignore[arg-type]
    "bool extent": (lambda: te.reduce_axis(True), "expected an integer"),
    "dtype": (lambda: te.placeholder((2,), "float31"), "unknown dtype"),
    "lanes": (lambda: te.placeholder((2,), "float32x4"), "expected a scalar dtype"),
    "name": (lambda: te.placeholder((2,), name="a b"), "expected a Python identifier"),
    "keyword": (lambda: te.placeholder((2,), name="for"), "expected a Python identifier"),
    "no names": (lambda: te.compute((2,), lambda i: i, name=()), "expected a Python identifier"),
    "number for a name": (
        lambda: te.compute((2,), lambda i: i, name=3),  # type: ignore[call-overload]
        "3 is not a name",
    ),
    "number for axes": (
        lambda: te.compute((2,), lambda i: i, axes=3),  # type: ignore[call-overload]
        "axes is 3; expected a list of names",
    ),
    "text for axes": (lambda: te.compute((2,), lambda i: i, axes="x"), "axes is 'x'; expected"),
    "function of C": (lambda: te.compute((2,), max), "does not say what its parameters are"),
    "strides": (lambda: te.placeholder((2, 3), strides=(3,)), "one for each dimension"),
    "negative stride": (lambda: te.placeholder((2,), strides=(-1,)), "none negative"),
    "2**63": (lambda: te.placeholder((2**63,), "int8"), "expected at most 9223372036854775807"),
    "2**66 bytes": (lambda: te.placeholder((2**32, 2**32)), "takes 73786976294838206464 bytes"),
    "beside no elements": (lambda: te.placeholder((0, 2**63)), "takes 36893488147419103232 bytes"),
    "far strides": (lambda: te.placeholder((3,), strides=(2**62,)), r"shape \(3,\) takes"),
    "one element": (lambda: te.placeholder((2**32, 2**32), strides=(0, 0)), "takes 73786976294"),
    "large results": (lambda: te.compute((2**63,), lambda i: te.cast(i, "int8")), "takes"),
    "range of floats": (lambda: te.placeholder((2,), value_range=(0, 2)), "is for integers"),
    "empty range": (lambda: te.placeholder((2,), "int8", value_range=(2, 2)), "holds no value"),
    "no expression": (lambda: te.compute((2,), lambda i: "x"), "expected an expression"),  # type: ignore[arg-type, return-value]
    "no result": (lambda: te.compute((2,), lambda i: ()), "expected values"),
    "names": (lambda: te.compute((2,), lambda i: (i, i), name=("a",)), "1 names for 2 results"),
    "axis outside": (
        lambda: te.compute((2,), lambda i: A[i, R]),
        "reduce axis r is used outside of a reduction over it",
    ),
    "axis not listed": (
        lambda: te.compute((2,), lambda i: te.sum(A[i, R], axis=te.reduce_axis(2))),
        "reduce axis r is used outside of a reduction over it",
    ),
    "foreign index": (
        lambda: te.compute((2,), lambda i: te.compute((2,), lambda j: A[i, 0])[i]),
        "index variable i belongs to another compute",
    ),
    "not a reduce axis": (
        lambda: te.compute((2,), lambda i: te.sum(A[i, 0], axis=i)),
        "is not a reduce axis",
    ),
    "no axis": (lambda: te.sum(1.0, axis=[]), "no axis is given"),
    "axis twice": (lambda: te.sum(1.0, axis=[R, R]), "listed twice"),
    "argmax of nothing": (lambda: te.argmax(1.0, axis=te.reduce_axis(0, "z")), "no element"),
    "argmax as a float": (
        lambda: te.argmax(A[0, R], axis=R, dtype="float32"),
        "argmax: indices as float32; expected an integer dtype that holds 0 to 2",
    ),
    "indices that do not fit": (
        lambda: te.argmin(A[0, R], axis=[R, te.reduce_axis(43, "s")], dtype="int8"),
        "argmin: indices as int8; expected an integer dtype that holds 0 to 128",
    ),
    "sum as bool": (lambda: te.sum(I8[R], axis=R, dtype="bool"), "cannot be summed"),
    "reduction in a branch": (
        lambda: te.compute((2,), lambda i: te.select(i > 0, te.sum(A[i, R], axis=R), 0.0)),
        "in a branch of select",
    ),
    "foreign buffer": (
        lambda: te.compute((2,), lambda i: Load(Buffer("Z", (2,), "float32"), (i,), "float32")),
        "expected a tensor of te",
    ),
    "missing": (lambda: te.func([C]), "'A' is used but is not an argument"),
    "twin": (
        lambda: te.func([te.placeholder((4, 4), name="A"), C]),
        "another tensor named 'A' is an argument: use the one that the computation reads",
    ),
    "missing scalar": (
        lambda: te.func([I8, te.compute((4,), lambda i: I8[i] * S)]),
        "'s' is used but is not an argument",
    ),
    "unused": (lambda: te.func([A, I8, C]), "'I' is used by no computation"),
    "unused scalar": (lambda: te.func([A, S, C]), "'s' is used by no computation"),
    "twice": (lambda: te.func([A, C, A]), "'A' is given twice"),
    "no output": (lambda: te.func([A]), "expected at least one output"),
    "not an argument": (lambda: te.func([A, R, C]), "argument 1, r, is not an argument"),
    "exp of an integer": (lambda: te.exp(I8[0]), "exp does not take int8"),
    "condition": (lambda: te.select(I8[0], 1.0, 2.0), "must be bool"),
    "arithmetic on bool": (lambda: (I8[0] > 1) + (I8[0] > 2), "takes numbers"),
    "logic on floats": (lambda: A[0, 0] & A[0, 1], "takes integers or bool"),
    "max of two": (
        lambda: te.max(A[0, 0], 0.0),  # type: ignore[arg-type]
        r"0\.0 is not a reduce axis\n.*te\.maximum\(a, b\)",
    ),
    "min of two": (lambda: te.min(A[0, 0], A[0, 1]), r"not a reduce axis\n.*te\.minimum\(a, b\)"),  # type: ignore[arg-type]
    "sum over a name": (
        lambda: te.sum(A[0, 0], "r"),  # type: ignore[arg-type]
        r"'r' is not a reduce axis\n.*te\.reduce_axis",
    ),
    "value_range of one": (
        lambda: te.placeholder((4,), "int32", value_range=10),  # type: ignore[arg-type]
        r"value_range is 10; expected \(low, high\)",
    ),
    "value_range of three": (
        lambda: te.placeholder((4,), "int32", value_range=(0, 1, 2)),  # type: ignore[arg-type]
        r"value_range is \(0, 1, 2\); expected \(low, high\)",
    ),
    "numpy's gcd": (lambda: np.gcd(A[0, 0], 2), r"numpy\.gcd .*\n.*functions of te"),  # type: ignore[call-overload]
    "a call": (lambda: A(0, 1), r"A is a tensor, which is not called\n.*A\[0, 1\]"),  # type: ignore[operator]
    "an array": (lambda: np.ones(3) * A[0, 0], "of type ndarray is not an expression"),  # type: ignore[operator]
    "a tensor": (lambda: te.exp(A), r"works on elements\n.*te\.exp\(A\[i, j\]\)"),  # type: ignore[arg-type]
    "a slice": (lambda: te.compute((2,), lambda i: A[i, :]), "not X"),
    "constant": (lambda: I8[0] + 300, "300 does not fit int8"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    build, message = REFUSED[case]
    with pytest.raises(IRError, match=message):
        build()


def test_truth_of_an_expression_is_refused_with_a_hint() -> None:
    with pytest.raises(IRError):
        bool(A[0, 0] > 1)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8"])
def test_numbers_of_numpy_keep_their_dtype(dtype: str) -> None:
    x = te.placeholder((4,), "float32", name="X")
    value = np.dtype(dtype).type(3)
    wanted = np.promote_types(dtype, "float32").name
    assert te.compute((4,), lambda i: x[i] * value).dtype == wanted
    assert te.compute((4,), lambda i: te.maximum(value, x[i])).dtype == wanted
    assert te.compute((4,), lambda i: value * x[i]).dtype == wanted
    assert te.compute((4,), lambda i: value / x[i]).dtype == wanted
    assert structural_equal(value < x[0], te.const(3, dtype) < x[0])


@pytest.mark.parametrize(
    ("name", "hint"),
    [("clamp", r"write te\.clip\(x"), ("sigmoidd", "mean sigmoid")],
)
def test_a_name_that_te_does_not_have_comes_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; .*{hint}"):
        getattr(te, name)
    assert not hasattr(te, name)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: 1 - x,
        lambda x: x * x,
        lambda x: np.float32(2) * x,
        lambda x: np.ones((4, 5)) / x,
        lambda x: -x,
        abs,
        lambda x: x < 1,
        math.sqrt,
    ],
)
def test_operators_on_tensors_are_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(IRError) as error:
        use(te.placeholder((4, 5), name="X"))
    assert "te.compute(X.extents, lambda i, j: X[i, j] + 1)" in str(error.value)


@pytest.mark.parametrize("number", [float, int, complex, math.sqrt])
def test_an_expression_is_no_number(number: Callable[[Any], Any]) -> None:
    x = te.placeholder((4,), name="X")
    with pytest.raises(IRError):
        number(x[0])


@pytest.mark.parametrize("reduce", [te.sum, te.prod, te.max, te.min, te.argmax, te.argmin])
def test_a_reduction_says_that_it_takes_an_axis(reduce: Callable[[Any], Any]) -> None:
    x = te.placeholder((4,), name="X")
    with pytest.raises(IRError):
        reduce(x[0])


def test_an_index_that_is_divided() -> None:
    x = te.placeholder((4,), name="X")
    with pytest.raises(IRError):
        te.compute((4,), lambda i: x[i / 2])


HINTS: dict[str, tuple[Callable[[], Any], str]] = {
    "a row": (lambda: te.compute((2,), lambda i: A[i]), "A[i, j] is an element"),
    "f32": (lambda: te.placeholder((2,), "f32"), "did you mean float32?"),
    "double": (lambda: te.placeholder((2,), "double"), "did you mean float64?"),
    "misspelt dtype": (lambda: te.placeholder((2,), "flaot32"), "did you mean float32?"),
    "a range": (lambda: te.reduce_axis((2, 8)), "te.reduce_axis(6)"),  # type: ignore[arg-type]
    "select": (lambda: te.select(A[0, 0] > 0, A[0, 0]), "te.select(condition, a, b)"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("case", HINTS)
def test_hints(case: str) -> None:
    call, hint = HINTS[case]
    with pytest.raises(IRError) as error:
        call()
    assert str(error.value).endswith(f"hint: {hint}")


def test_a_function_of_numpy_is_no_misspelling() -> None:
    with pytest.raises(AttributeError):
        te.unwrap  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        te.maximun  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["rint", "ones", "mod"])
def test_short_names_are_like_none(name: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(te, name)
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(("operation", "depth"), [("sin", 1000), ("add", 1000), ("add", 3000)])
def test_an_expression_that_is_nested_too_deeply_is_refused(operation: str, depth: int) -> None:
    a = te.placeholder((4,), name="A")

    def element(i: Any) -> Any:
        value: Any = a[i]
        for n in range(depth):
            value = te.sin(value) if operation == "sin" else value + float(n)
        return value

    with pytest.raises(IRError) as refused:
        te.compute((4,), element, name="B")
    assert "stages of their own" in str(refused.value)


def test_a_program_that_is_nested_too_deeply_is_not_verified(
    request: pytest.FixtureRequest,
) -> None:
    limit = sys.getrecursionlimit()
    request.addfinalizer(lambda: sys.setrecursionlimit(limit))
    sys.setrecursionlimit(20 * limit)
    a = te.placeholder((4,), name="A")

    def element(i: Any) -> Any:
        value: Any = a[i]
        for _ in range(1000):
            value = te.sin(value)
        return value

    b = te.compute((4,), element, name="B")
    func = te.func([a, b], name="sines")
    sys.setrecursionlimit(limit)
    with pytest.raises(VerifyError) as refused:
        verify(func)
    assert "stages of their own" in str(refused.value)
