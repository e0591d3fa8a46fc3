"""`online_softmax` of exponentials that a block keeps for several sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Dim, Func, Label
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import loops

INF = float("inf")


def kept(keys: int = 10, dtype: str = "float64", *, weights: Any = None) -> Func:
    """S and O: sums of exponentials E, and of these times V."""
    x = te.placeholder((3, keys), dtype, name="X")
    v = te.placeholder((keys, 2), dtype, name="V")
    k, r, t = (te.reduce_axis(keys, name=n) for n in "krt")
    most = te.compute((3,), lambda i: te.max(x[i, k], axis=k), name="M", axes=["i"])
    exps = te.compute((3, keys), lambda i, j: te.exp(x[i, j] - most[i]), name="E", axes=["i", "j"])
    total = te.compute((3,), lambda i: te.sum(exps[i, r], axis=r), name="S", axes=["i"])
    term = weights or (lambda e, v, i, d, t: e[i, t] * v[t, d])
    out = te.compute(
        (3, 2), lambda i, d: te.sum(term(exps, v, i, d, t), axis=t), name="O", axes=["i", "d"]
    )
    return te.func([x, v, most, total, out], name="kept")


def pieces(sch: Schedule, length: Dim, names: tuple[str, ...] = ("S", "O")) -> tuple[Label, ...]:
    """Take rows in pieces of `length`."""
    outer = [sch.split(loops(sch, n)[-1], factors=[None, length])[0] for n in names]
    return sch.online_softmax(outer[0], outer[1:])


def test_pieces_that_divide(golden: Golden) -> None:
    golden("online_softmax/kept", kept(), lambda s: pieces(s, 5))


def test_attention_in_pieces_of_keys(golden: Golden) -> None:
    """The scores and the exponentials of one piece are kept."""

    def script(sch: Schedule) -> None:
        sch.compute_inline(sch.get_block("Y_masked"))
        sch.compute_inline(sch.get_block("Y_weights"))
        sch.hoist_factor(sch.get_block("Y"))
        highest, _, total, product = pieces(sch, 4, ("Y_weights_sum", "Y"))
        b, h, i, number, _ = sch.get_loops(highest)
        sch.reorder(number, b, h, i)
        for label in (sch.get_block("Y_weights_exp"), total, product):
            sch.reverse_compute_at(label, number)
        sch.compute_at(sch.get_block("Y_scores"), number)

    golden("online_softmax/attention", ops.attention_func(1, 2, 10, 3), script)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("keys", "length"), [(7, 3), (24, 8), (5, 9)])
def test_meaning(dtype: str, keys: int, length: int) -> None:
    func = kept(keys, dtype)
    sch = Schedule(func)
    pieces(sch, length)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_one_sum_of_what_is_kept() -> None:
    text = str(kept())
    start = text.index("    for i, d, t in")
    func = parse(text[:start].replace('    V: T.Buffer((10, 2), "float64"),\n', "").replace(
        '    O: T.Buffer((3, 2), "float64"),\n', ""))  # fmt: skip
    sch = Schedule(func)
    assert len(pieces(sch, 4, ("S",))) == 3
    check_meaning(func, sch.func)


def test_more_than_two_sums() -> None:
    x = te.placeholder((3, 10), "float32", name="X")
    k, r = te.reduce_axis(10, name="k"), te.reduce_axis(10, name="r")
    most = te.compute((3,), lambda i: te.max(x[i, k], axis=k), name="M")
    exps = te.compute((3, 10), lambda i, j: te.exp(x[i, j] - most[i]), name="E")
    sums = [
        te.compute((3,), lambda i, n=n: te.sum(x[i, r] * (exps[i, r] * n), axis=r), name=f"S{n}")
        for n in (1, 2)
    ]
    total = te.compute((3,), lambda i: te.sum(exps[i, r], axis=r), name="S")
    func = te.func([x, total, *sums], name="moments")
    sch = Schedule(func)
    pieces(sch, 4, ("S", "S2", "S1"))
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_rows_in_any_order_and_loops() -> None:
    func = kept()
    sch = Schedule(func)
    i, k = loops(sch, "S")
    outer, inner = sch.split(k, factors=[None, 4])
    sch.reorder(outer, i, inner)
    sch.parallel(i)
    rows, d, t = loops(sch, "O")
    number, _, _ = sch.split(t, factors=[None, 2, 2])
    sch.reorder(number, d, rows)
    sch.online_softmax(outer, [number])
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_exponentials_of_numbers_that_are_cast() -> None:
    x = te.placeholder((2, 9), "float16", name="X")
    v = te.placeholder((9, 3), "float16", name="V")
    k, r, t = (te.reduce_axis(9, name=n) for n in "krt")
    most = te.compute((2,), lambda i: te.max(x[i, k], axis=k), name="M")

    def wide(e: Any) -> Any:
        return te.cast(e, "float32")

    exps = te.compute((2, 9), lambda i, j: te.exp(wide(x[i, j]) - wide(most[i])), name="E")
    total = te.compute((2,), lambda i: te.sum(exps[i, r], axis=r), name="S")
    out = te.compute((2, 3), lambda i, d: te.sum(exps[i, t] * wide(v[t, d]), axis=t), name="O")
    func = te.func([x, v, total, out], name="wide")
    sch = Schedule(func)
    pieces(sch, 4)
    check_meaning(func, sch.func)


@pytest.mark.parametrize(
    "row",
    [
        [1.0, 2.0, -INF, -INF, -INF, -INF, 3.0, -INF, 0.0],
        [-INF] * 9,
        [-INF, -INF, -INF, -INF, -INF, -INF, -INF, -INF, -1e300],
        [1.0, INF, 0.0, -INF, -INF, -INF, 0.0, 1.0, 2.0],
        [0.0, 1.0, 2.0, np.nan, 0.0, 0.0, -INF, -INF, -INF],
        [-700.0, -710.0, -750.0, 0.0, 1e300, 0.0, -1e300, -745.0, 0.0],
    ],
)
@pytest.mark.parametrize("value", [1.0, INF, np.nan])
def test_what_is_infinite_counts_as_it_did(row: list[float], value: float) -> None:
    """Also values that are infinite where exponentials are zero."""
    func = kept(9)
    sch = Schedule(func)
    pieces(sch, 3)
    x, v = np.array([row] * 3), np.ones((9, 2))
    v[4, 1] = value
    results = []
    for program in (func, sch.func):
        outputs = [np.zeros(3), np.zeros(3), np.zeros((3, 2))]
        interpret(program, x.copy(), v.copy(), *outputs)
        results.append(outputs)
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_errors_are_those_of_other_orders_of_a_sum() -> None:
    """Also where the maximum moves with each piece."""
    x = np.sort(np.random.default_rng(0).normal(0, 8, (3, 512))).astype(np.float32)
    v = np.random.default_rng(1).normal(size=(512, 2)).astype(np.float32)
    for values in (x, x[:, ::-1].copy()):
        sch = Schedule(kept(512, "float32"))
        pieces(sch, 8)
        found = np.zeros((3, 2), np.float32)
        interpret(sch.func, values, v, np.zeros(3, "f4"), np.zeros(3, "f4"), found)
        wide = values.astype(np.float64)
        exps = np.exp(wide - wide.max(axis=1, keepdims=True))
        error = np.abs(found - exps @ v) / (exps @ np.abs(v))
        assert np.max(error) < 16 * 2.0**-24


def test_pieces_of_sampled_length() -> None:
    func = kept(24)
    sch = Schedule(func, symbolic=True)
    pieces(sch, sch.sample_categorical([2, 4, 5, 8]))
    for size in (2, 4, 5, 8):
        check_meaning(func, sch.trace.with_row([size]).apply(func).func)


def test_exponentials_that_others_read() -> None:
    sch = Schedule(kept())
    with pytest.raises(ScheduleError):
        pieces(sch, 5, ("S",))
    sch = Schedule(ops.softmax_func(3, 10))
    with pytest.raises(ScheduleError):
        pieces(sch, 5, ("Y_sum",))


def test_a_block_given_twice() -> None:
    sch = Schedule(kept())
    outer = [sch.split(loops(sch, n)[-1], factors=[None, 5])[0] for n in "SO"]
    with pytest.raises(ScheduleError) as refusal:
        sch.online_softmax(outer[0], [outer[1], outer[1]])
    assert refusal.value.place.name == "O"


def test_other_sums_of_exponentials_that_are_not_kept() -> None:
    sch = Schedule(kept())
    sch.compute_inline(sch.get_block("E"))
    with pytest.raises(ScheduleError):
        pieces(sch, 5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda e, v, i, d, t: e[i, t] + v[t, d], "block O must sum elements of E, or products"),
        (lambda e, v, i, d, t: e[i, t] * v[t, d] * e[i, 0], "block O must sum elements of E"),
        (lambda e, v, i, d, t: v[t, d] / e[i, t], "block O must sum elements of E"),
        (lambda e, v, i, d, t: e[i, 9 - t] * v[t, d], "block O does not sum along the rows of E"),
        (lambda e, v, i, d, t: e[t % 3, t] * v[t, d], "block O does not sum along the rows of E"),
        (lambda e, v, i, d, t: e[i, i] * v[t, d], "block O does not sum along the rows of E"),
    ],
)
def test_sums_of_something_else(weights: Any, message: str) -> None:
    sch = Schedule(kept(weights=weights))
    with pytest.raises(ScheduleError, match=message):
        pieces(sch, 5)


def test_a_maximum_of_products() -> None:
    text = str(kept()).replace("O[vi, vd] = 0.0", "O[vi, vd] = 1.0")
    func = parse(text)
    sch = Schedule(func)
    pieces(sch, 5)  # whatever a sum starts from is not scaled
    check_meaning(func, sch.func)
    most = text.replace("O[vi, vd] + ", "T.maximum(O[vi, vd], ").replace("V[vt, vd]", "V[vt, vd])")
    sch = Schedule(parse(most))
    with pytest.raises(ScheduleError):
        pieces(sch, 5)


def test_exponentials_of_something_else() -> None:
    text = str(kept())
    for old, new, message in (
        ("X[vi, vj] - M", "X[vi, vj] * 2.0 - M", "is not the maximum of the elements"),
        ("vj] - M[vi]", "vj] - M[2 - vi]", "is not the maximum of the elements"),
        ("X[vi, vj] - M", "X[vi, vj] + M", "does not sum elements of exponentials"),
        ("E[vi, vr]", "E[2 - vi, vr]", "is not the maximum of the elements"),
        ("E[vi, vj] = ", "E[vi, 9 - vj] = ", "does not store exponentials in an internal buffer"),
    ):
        assert old in text
        sch = Schedule(parse(text.replace(old, new)))
        with pytest.raises(ScheduleError, match=message):
            pieces(sch, 5)


def test_exponentials_that_the_caller_gets() -> None:
    text = str(kept()).replace('    E = T.alloc((3, 10), "float64")\n', "")
    sch = Schedule(
        parse(text.replace("    O: T", '    E: T.Buffer((3, 10), "float64"),\n    O: T'))
    )
    with pytest.raises(ScheduleError):
        pieces(sch, 5)


def test_exponentials_under_a_guard() -> None:
    sch = Schedule(kept())
    sch.split(loops(sch, "E")[1], factors=[None, 4])
    with pytest.raises(ScheduleError):
        pieces(sch, 5)


@pytest.mark.parametrize(
    "changes",
    [
        [
            ("for i, j in T.grid(3, 10):", "for i, j, z in T.grid(3, 10, 2):"),
            ('vi, vj = T.axis.remap("SS", [i, j])', 'vi, vj, vz = T.axis.remap("SSS", [i, j, z])'),
        ],
        [
            ('E = T.alloc((3, 10), "float64")', 'E = T.alloc((3, 10, 10), "float64")'),
            ("E[vi, vj] = ", "E[vi, vj, 3] = "),
            ("E[vi, vr]", "E[vi, 0, vr]"),
            ("E[vi, vt]", "E[vi, vt, 3]"),
        ],
    ],
)
def test_exponentials_that_are_stored_in_another_way(changes: list[tuple[str, str]]) -> None:
    text = str(kept())
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        pieces(sch, 5)


def test_pieces_that_begin_before_the_row() -> None:
    text = str(kept())
    old = 'vi, vd, vt = T.axis.remap("SSR", [i, d, t])'
    assert old in text
    new = """vi, vd = T.axis.remap("SS", [i, d])
            vt = T.axis.reduce(10, t_0 * 5 + t_1 - 2)
            T.where((t_0 * 5 + t_1 - 2 >= 0) & (t_0 * 5 + t_1 - 2 < 10))"""
    text = text.replace(old, new).replace(
        "for i, d, t in T.grid(3, 2, 10):", "for i, d, t_0, t_1 in T.grid(3, 2, 3, 5):"
    )
    sch = Schedule(parse(text))
    a, _ = sch.split(loops(sch, "S")[-1], factors=[None, 5])
    with refused(ScheduleError, "t_0"):
        sch.online_softmax(a, [loops(sch, "O")[2]])


def test_a_loop_of_pieces_and_something_else() -> None:
    sch = Schedule(kept())
    a, _ = sch.split(loops(sch, "S")[-1], factors=[None, 5])
    _, d, t = loops(sch, "O")
    outer, _ = sch.split(t, factors=[2, None])
    sch.reorder(outer, d)
    with pytest.raises(ScheduleError):
        sch.online_softmax(a, [sch.fuse(outer, d)])


@pytest.mark.parametrize("name", ["M", "E", "S", "O"])
def test_nests_that_are_shared(name: str) -> None:
    sch = Schedule(kept())
    outer = [sch.split(loops(sch, n)[-1], factors=[None, 5])[0] for n in "SO"]
    other = {"M": "E", "E": "M", "S": "O", "O": "S"}[name]
    first, second = (n for n in "MESO" if n in (name, other))
    sch.merge(loops(sch, first)[0], loops(sch, second)[0])
    with pytest.raises(ScheduleError, match=r"block \w shares a nest with others"):
        sch.online_softmax(outer[0], outer[1:])


def test_pieces_of_other_lengths() -> None:
    sch = Schedule(kept())
    a, _ = sch.split(loops(sch, "S")[-1], factors=[None, 5])
    b, _ = sch.split(loops(sch, "O")[-1], factors=[None, 2])
    with pytest.raises(ScheduleError):
        sch.online_softmax(a, [b])


def test_sums_over_a_part_of_the_row() -> None:
    text = str(kept())
    text = text.replace("for i, k in T.grid(3, 10)", "for i, k in T.grid(3, 8)")
    text = text.replace("for i, r in T.grid(3, 10)", "for i, r in T.grid(3, 8)")
    for v in "kr":
        at = f'"SR", [i, {v}]'
        assert at in text
    func = parse(text)
    sch = Schedule(func)
    a, _ = sch.split(loops(sch, "S")[-1], factors=[None, 5])
    b, _ = sch.split(loops(sch, "O")[-1], factors=[None, 5])
    with pytest.raises(ScheduleError):
        sch.online_softmax(a, [b])


def test_loops_that_count_no_pieces() -> None:
    for factors, turned in (([None, 5], True), ([5, None], False)):
        sch = Schedule(kept())
        a, _ = sch.split(loops(sch, "S")[-1], factors=[None, 5])
        number, within = sch.split(loops(sch, "O")[-1], factors=factors)
        loop = within if turned else loops(sch, "O")[1]
        with pytest.raises(ScheduleError):
            sch.online_softmax(a, [loop])
        assert number is not loop


def test_pieces_of_one_element() -> None:
    sch = Schedule(kept())
    with pytest.raises(ScheduleError):
        sch.online_softmax(loops(sch, "S")[1], [loops(sch, "O")[2]])


def test_a_row_without_elements() -> None:
    sch = Schedule(parse(str(kept()).replace("10", "0")))
    outer = [sch.split(loops(sch, n)[-1], factors=[2, None])[0] for n in "SO"]
    with pytest.raises(ScheduleError) as refusal:
        sch.online_softmax(outer[0], outer[1:])
    assert refusal.value.place.name == "S"
