from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import ArgumentError, VerifyError
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import (
    Alloc,
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
    Ramp,
    Reduce,
    Select,
    Stmt,
    Store,
    Var,
    const,
    seq,
    store,
)

from ..refusals import refused

I, J = Var("i"), Var("j")  # noqa: E741
X, Y = Buffer("X", (8,), "float32"), Buffer("Y", (8,), "float32")
DATA = np.arange(8, dtype=np.float32)


def program(body: Stmt, *params: Buffer | Var, **fields: Any) -> Func:
    return Func("main", params, fields.pop("allocs", ()), body, **fields)


def run(func: Func, *arguments: Any, **options: Any) -> np.ndarray[Any, Any]:
    out = np.full(8, -1, np.float32)
    interpret(func, *arguments, out, **options)
    return out


def broadcast(value: Expr, lanes: int) -> Expr:
    return Broadcast(value, lanes, f"{value.dtype}x{lanes}")


def ramp(base: Expr | int, lanes: int, stride: int = 1) -> Ramp:
    start = const(base) if isinstance(base, int) else base
    return Ramp(start, const(stride), lanes, f"int64x{lanes}")


class TestStatements:
    def test_loop_and_branch(self) -> None:
        body = For(I, 8, If(I % 2 == 0, store(Y, (I,), X[I]), store(Y, (I,), 0.0)))
        assert run(program(body, X, Y), DATA).tolist() == [0, 0, 2, 0, 4, 0, 6, 0]

    def test_branch_without_an_alternative(self) -> None:
        body = For(I, 8, If(I < 2, store(Y, (I,), X[I])))
        assert run(program(body, X, Y), DATA).tolist() == [0, 1, -1, -1, -1, -1, -1, -1]

    def test_let_is_evaluated_once(self) -> None:
        t = Var("t", "float32")
        body = Let(t, X[0], seq(store(X, (0,), 5.0), store(X, (1,), t)))
        x = DATA.copy() + 1
        interpret(program(body, X, inplace=(X,)), x)
        assert x[:2].tolist() == [5, 1]

    def test_alloc_starts_unwritten_each_time(self) -> None:
        t = Buffer("t", (1,), "float32")
        good = For(I, 8, Alloc(t, seq(store(t, (0,), X[I]), store(Y, (I,), t[0] + 1.0))))
        np.testing.assert_array_equal(run(program(good, X, Y), DATA), DATA + 1)
        once = If(I == 0, store(t, (0,), X[I]))
        bad = For(I, 8, Alloc(t, seq(once, store(Y, (I,), t[0]))))
        with refused(VerifyError, "t", "outside of blocks"):
            run(program(bad, X, Y), DATA)

    def test_empty_loops_do_nothing(self) -> None:
        assert run(program(For(I, 0, store(Y, (I,), 1.0)), Y)).tolist() == [-1] * 8

    def test_extent_that_depends_on_an_outer_loop(self) -> None:
        body = For(I, 3, For(J, I + 1, store(Y, (I * 2 + J,), 1.0)))
        assert run(program(body, Y)).tolist() == [1, -1, 1, 1, 1, 1, 1, -1]

    def test_scalar_parameter(self) -> None:
        alpha = Var("alpha", "float32")
        body = For(I, 8, store(Y, (I,), X[I] * alpha))
        np.testing.assert_array_equal(run(program(body, X, alpha, Y), DATA, 2), DATA * 2)


class TestOrder:
    @pytest.mark.parametrize("kind", [ForKind.PARALLEL, ForKind.VECTOR, ForKind.THREAD])
    def test_a_carried_dependence_shows(self, kind: ForKind) -> None:
        body = For(I, 7, store(X, (I + 1,), X[I] + 1.0), kind)
        func = program(body, X, inplace=(X,))
        results = []
        for order in ("forward", "shuffled"):
            x = np.zeros(8, np.float32)
            interpret(func, x, order=order, seed=3)
            results.append(x.tolist())
        assert results[0] == list(range(8))
        assert results[1] != results[0]

    @pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.UNROLL])
    def test_ordered_loops_stay_in_order(self, kind: ForKind) -> None:
        body = For(I, 7, store(X, (I + 1,), X[I] + 1.0), kind)
        x = np.zeros(8, np.float32)
        interpret(program(body, X, inplace=(X,)), x, order="shuffled", seed=3)
        assert x.tolist() == list(range(8))

    def test_independent_iterations_agree(self) -> None:
        func = program(For(I, 8, store(Y, (I,), X[I] + 1.0), ForKind.PARALLEL), X, Y)
        np.testing.assert_array_equal(run(func, DATA, order="shuffled", seed=1), DATA + 1)


class TestBlocks:
    def sums(self, value: Expr, predicate: Expr | None = None, extent: int = 4) -> Func:
        """Y[i] = sum over r of X[i * 4 + r], with `value` for the reduce variable."""
        vi, vr = Var("vi"), Var("vr")
        block = Block(
            Label("S"),
            (Iter(vi, 2, IterKind.SPATIAL, I), Iter(vr, 4, IterKind.REDUCE, value)),
            (),
            (),
            store(Y, (vi,), Y[vi] + X[vi * 4 + vr]),
            store(Y, (vi,), 0.0),
            predicate,
        )
        return program(For(I, 2, For(J, extent, block)), X, Y)

    def test_init_runs_where_reduce_variables_are_zero(self) -> None:
        assert run(self.sums(J), DATA)[:2].tolist() == [6, 22]

    def test_without_the_first_visit_there_is_nothing_to_read(self) -> None:
        with refused(VerifyError, "Y", "in block 'S'"):
            run(self.sums(3 - J), DATA)

    def test_visits_off_the_predicate_do_nothing(self) -> None:
        assert run(self.sums(J, J < 4, 6), DATA)[:2].tolist() == [6, 22]

    def test_variables_stay_within_their_extents(self) -> None:
        with refused(VerifyError, "in block 'S'", "vr", "4"):
            run(self.sums(J, None, 6), DATA)


class TestChecks:
    @pytest.mark.parametrize("index", [8, -1])
    def test_store_out_of_bounds(self, index: int) -> None:
        with refused(VerifyError, "Y", f"[{index}]", "(8,)"):
            run(program(store(Y, (index,), 1.0), Y))

    @pytest.mark.parametrize("shape", [(8,), (2, 4), (2, 2, 2)])
    def test_load_out_of_bounds_in_each_dimension(self, shape: tuple[int, ...]) -> None:
        x = Buffer("X", shape, "float32")
        for d, extent in enumerate(shape):
            at = [0] * len(shape)
            at[d] = extent
            body = store(Y, (0,), x[tuple(at)])
            with pytest.raises(VerifyError):
                run(program(body, x, Y), DATA.reshape(shape))

    def test_outputs_cannot_be_read_before_they_are_written(self) -> None:
        body = store(Y, (0,), Y[0] + 1.0)
        with refused(VerifyError, "Y", "[0]"):
            run(program(body, Y))
        assert run(program(body, Y, inplace=(Y,)))[0] == 0

    def test_internal_buffers_start_unwritten(self) -> None:
        t = Buffer("t", (2, 2), "float32")
        body = seq(store(t, (0, 1), 1.0), store(Y, (0,), t[1, 0]))
        with refused(VerifyError, "t", "[1, 0]"):
            run(program(body, Y, allocs=(t,)))

    def test_outputs_stay_as_they_were_after_an_error(self) -> None:
        out = np.full(8, -1, np.float32)
        with pytest.raises(VerifyError):
            interpret(program(seq(store(Y, (0,), 1.0), store(Y, (9,), 1.0)), Y), out)
        assert out.tolist() == [-1] * 8

    def test_unbound_variables_and_foreign_nodes(self) -> None:
        with pytest.raises(VerifyError):
            run(program(store(Y, (J,), 1.0), Y))
        with pytest.raises(VerifyError):
            run(program(store(Y, (J + 1,), 1.0), Y))
        total = Reduce("sum", (const(1.0, "float32"),), (), 0, "float32")
        with pytest.raises(VerifyError):
            run(program(store(Y, (0,), total), Y))

    def test_symbolic_shapes(self) -> None:
        t = Buffer("t", (I + 1,), "float32")
        with pytest.raises(VerifyError):
            run(program(store(Y, (0,), 1.0), Y, allocs=(t,)))


class TestVectors:
    def test_vector_load_and_store(self) -> None:
        value = Load(X, (ramp(0, 4, 2),), "float32x4") + 1.0
        body = Store(Y, (ramp(4, 4),), value)
        assert run(program(body, X, Y), DATA)[4:].tolist() == [1, 3, 5, 7]

    def test_vector_reads_all_before_it_writes(self) -> None:
        body = Store(X, (ramp(1, 7),), Load(X, (ramp(0, 7),), "float32x7"))
        x = DATA.copy()
        interpret(program(body, X, inplace=(X,)), x)
        assert x.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]

    def test_masked_lanes_are_neither_read_nor_written(self) -> None:
        index = ramp(6, 4)
        mask = index < broadcast(const(8), 4)
        value = Load(X, (index,), "float32x4", mask)
        out = run(program(Store(Y, (index,), value, mask), X, Y), DATA)
        assert out.tolist() == [-1] * 6 + [6, 7]

    def test_lanes_off_in_the_mask_of_a_load_are_zero(self) -> None:
        index = ramp(6, 4)
        value = Load(X, (index,), "float32x4", index < broadcast(const(8), 4))
        out = run(program(Store(Y, (ramp(0, 4),), value), X, Y), DATA)
        assert out[:4].tolist() == [6, 7, 0, 0]

    def test_unmasked_lanes_are_checked(self) -> None:
        index = ramp(6, 4)
        body = Store(Y, (ramp(0, 4),), Load(X, (index,), "float32x4"))
        with refused(VerifyError, "X", "[8]"):
            run(program(body, X, Y), DATA)

    def test_select_evaluates_the_side_that_each_lane_takes(self) -> None:
        index = ramp(-2, 4)
        cond = index >= broadcast(const(0), 4)
        load = Load(X, (index,), "float32x4")
        value = Select(cond, load, broadcast(const(9.0, "float32"), 4), "float32x4")
        out = run(program(Store(Y, (ramp(0, 4),), value), X, Y), DATA)
        assert out[:4].tolist() == [9, 9, 0, 1]

    def test_vector_variables(self) -> None:
        v = Var("v", "float32x4")
        body = Let(
            v,
            Load(X, (ramp(0, 4),), "float32x4"),
            seq(Store(X, (ramp(0, 4),), v * 2.0), Store(X, (ramp(4, 4),), v)),
        )
        x = DATA + 1
        interpret(program(body, X, inplace=(X,)), x)
        assert x.tolist() == [2, 4, 6, 8, 1, 2, 3, 4]

    def test_gather(self) -> None:
        index = Buffer("index", (4,), "int64")
        where = Load(index, (ramp(0, 4),), "int64x4")
        body = Store(Y, (ramp(0, 4),), Load(X, (where,), "float32x4"))
        out = run(program(body, X, index, Y), DATA, np.array([7, 0, 3, 3]))
        assert out[:4].tolist() == [7, 0, 3, 3]


def scaled() -> Func:
    a = te.placeholder((2,), "int8", name="A", value_range=(0, 5))
    s = te.scalar("int8", "s")
    return te.func([a, s, te.compute((2,), lambda i: a[i] * s, name="B")], name="f")


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((np.zeros(2, np.int8),), r"takes 3 arguments \(A, s, B\), found 1"),
            (([1, 2], 1, np.zeros(2, np.int8)), "A is a list, expected a numpy array"),
            ((np.zeros(3, np.int8), 1, np.zeros(2, np.int8)), r"A has shape \(3,\), expected"),
            ((np.zeros(2, np.int16), 1, np.zeros(2, np.int8)), "A has dtype int16, expected int8"),
            ((np.full(2, 5, np.int8), 1, np.zeros(2, np.int8)), r"expected \[0, 5\)"),
            ((np.zeros(2, np.int8), 1.5, np.zeros(2, np.int8)), "s is 1.5, expected int8"),
            ((np.zeros(2, np.int8), True, np.zeros(2, np.int8)), "s is True, expected int8"),
            ((np.zeros(2, np.int8), 200, np.zeros(2, np.int8)), "out of range of int8"),
        ],
    )
    def test_refused(self, arguments: tuple[Any, ...], message: str) -> None:
        with pytest.raises(ArgumentError, match=message):
            interpret(scaled(), *arguments)

    def test_outputs_overlap_nothing(self) -> None:
        x = np.zeros(3, np.int8)
        with pytest.raises(ArgumentError):
            interpret(scaled(), x[:2], 1, x[1:])

    def test_any_strides_are_taken(self) -> None:
        x = np.arange(4, dtype=np.int8)[::2]
        out = np.zeros(4, np.int8)
        interpret(scaled(), x, 3, out[::-2])
        assert out.tolist() == [0, 6, 0, 0]

    def test_zero_size(self) -> None:
        a = te.placeholder((0, 3), name="A")
        b = te.compute((0, 3), lambda i, j: a[i, j], name="B")
        interpret(te.func([a, b]), np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))


def test_zeros_of_different_sign_are_different_constants() -> None:
    zeros = [const(0.0, "float32"), const(-0.0, "float32")]
    body = seq(*(store(Y, (k,), z) for k, z in enumerate([*zeros, *zeros])))
    assert np.signbit(run(program(body, Y))[:4]).tolist() == [False, True, False, True]
