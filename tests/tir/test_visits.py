"""Updates visit each point once, and reductions begin at their zero point, or are refused."""

from __future__ import annotations

import textwrap
from itertools import product
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import VerifyError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.survey import Survey
from tilewright.tir.verify import verify
from tilewright.tir.visits import check_visits

from ..long import examples
from ..refusals import refused

HEAD = """
def f(A: T.Buffer((17, 16), "float32"), X: T.Buffer((17,), "float32"),
      C: T.Buffer((17,), "float32")):
    T.inplace(C)
"""
SUM = "C[vi] = C[vi] + A[vi, vk]"
PART = f"""
with T.block("C"):
    vi, vk = T.axis.remap("SR", [i, k])
    with T.init():
        C[vi] = 0.0
    {SUM}
"""


def nest(
    loops: dict[str, int], axes: dict[str, str], body: str, init: str = "", *, name: str = "C"
) -> str:
    """The text of loops around a block; an axis is `kind extent value`."""
    lines = [f"for {v} in range({n}):" for v, n in loops.items()]
    depth = len(lines)
    lines.append(f'with T.block("{name}"):')
    inside = []
    for v, axis in axes.items():
        kind, extent, value = axis.split(" ", 2)
        inside.append(f"{v} = T.axis.{kind}({extent}, {value})")
    inside += [f"T.where({init[6:]})"] if init.startswith("where ") else []
    inside += ["with T.init():", f"    {init}"] if init and not init.startswith("where ") else []
    inside += body.split("\n")
    lines = ["    " * k + line for k, line in enumerate(lines)]
    lines += ["    " * (depth + 1) + line for line in inside]
    return "".join(f"    {line}\n" for line in lines)


def reduction(loops: dict[str, int], vi: str, vk: str) -> Func:
    axes = {"vi": f"spatial {vi}", "vk": f"reduce {vk}"}
    return parse(HEAD + nest(loops, axes, SUM, "C[vi] = 0.0"))


IK = {"i": 16, "k": 16}
BROKEN: dict[str, tuple[dict[str, int], str, str, dict[str, int], list[dict[str, int]]]] = {
    "reversed": (IK, "16 i", "16 15 - k", {"vi": 0}, [{"i": 0, "k": 0}]),
    "one loop for both": ({"i": 16}, "16 i", "16 i", {"vi": 1}, [{"i": 1}]),
    "permuted": (IK, "16 i", "16 (k * 5 + 3) % 16", {"vi": 0}, [{"i": 0, "k": 0}]),
    "a step of two": ({"i": 16, "k": 8}, "16 i", "16 k * 2", {"vi": 0, "vk": 1}, [{}]),
    "half": ({"i": 16, "k": 8}, "16 i", "16 k", {"vi": 0, "vk": 8}, [{}]),
    "the second half": ({"i": 16, "k": 8}, "16 i", "16 k + 8", {"vi": 0}, [{"i": 0, "k": 0}]),
    "each twice": (IK, "16 i", "8 k // 2", {"vi": 0, "vk": 0},
                   [{"i": 0, "k": 0}, {"i": 0, "k": 1}]),
    "the last again": (IK, "16 i", "10 T.minimum(k, 9)", {"vi": 0, "vk": 9},
                       [{"i": 0, "k": 9}, {"i": 0, "k": 10}]),
    "an unused inner loop": ({**IK, "r": 3}, "16 i", "16 k", {"vi": 0, "vk": 0},
                             [{"i": 0, "k": 0, "r": 0}, {"i": 0, "k": 0, "r": 1}]),
    "elements twice, terms outside": ({"k": 16, "i": 16}, "8 i // 2", "16 k", {"vi": 0, "vk": 0},
                                      [{"k": 0, "i": 0}, {"k": 0, "i": 1}]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_reduction_that_skips_repeats_or_begins_late_is_refused(name: str) -> None:
    loops, vi, vk, point, visits = BROKEN[name]
    with pytest.raises(VerifyError) as error:
        verify(reduction(loops, vi, vk))
    assert error.value.arguments[0] == "C"
    assert error.value.data == {"visits": visits, "point": point}
    assert ", ".join(f"{v}={n}" for v, n in point.items()) in str(error.value)


@pytest.mark.parametrize(
    ("count", "value", "visits", "point"),
    [
        (8, "k", [{}], {"vk": 8}),
        (16, "15 - k", [{"k": 0}], {}),
        (16, "k // 2", [{"k": 0}, {"k": 1}], {"vk": 0}),
    ],
)
def test_a_sum_of_one_element_is_no_other(
    count: int, value: str, visits: list[dict[str, int]], point: dict[str, int]
) -> None:
    body, init = "C[3] = C[3] + A[0, vk]", "C[3] = 0.0"
    with pytest.raises(VerifyError) as error:
        verify(parse(HEAD + nest({"k": count}, {"vk": f"reduce 16 {value}"}, body, init)))
    assert error.value.data == {"visits": visits, "point": point}
    assert error.value.example is not None
    verify(parse(HEAD + nest({"k": 16}, {"vk": "reduce 16 k"}, body, init)))


WHOLE: dict[str, tuple[dict[str, int], str, str]] = {
    "loops of their own": (IK, "16 i", "16 k"),
    "terms outside": ({"k": 16, "i": 16}, "16 i", "16 k"),
    "elements from the last": (IK, "16 15 - i", "16 k"),
    "elements by steps": ({"i": 8, "k": 16}, "16 i * 2 + 1", "16 k"),
    "elements permuted": (IK, "16 (i * 5 + 3) % 16", "16 k"),
    "split": ({"i": 16, "k0": 4, "k1": 4}, "16 i", "16 k0 * 4 + k1"),
    "split and reordered": ({"k1": 4, "i": 16, "k0": 4}, "16 i", "16 k0 * 4 + k1"),
    "fused": ({"f": 256}, "16 f // 16", "16 f % 16"),
    "fused the other way": ({"f": 256}, "16 f % 16", "16 f // 16"),
    "fused and split": ({"f0": 128, "f1": 2}, "16 (f0 * 2 + f1) // 16", "16 (f0 * 2 + f1) % 16"),
    "anew in each iteration outside": ({"r": 3, **IK}, "16 i", "16 k"),
    "overlapping elements, terms inside": (
        {"o": 3, "i": 6, "k": 16}, "16 o * 5 + i", "16 k"),
    "anew in a fused loop": ({"f": 48}, "4 f // 4 % 4", "4 f % 4"),
    "overlapping elements in a fused loop": (
        {"o": 3, "f": 96}, "16 o * 5 + f // 16", "16 f % 16"),
    "overlapping elements, all fused": (
        {"f": 288}, "16 f // 96 * 5 + f // 16 % 6", "16 f % 16"),
    "loops of one iteration": ({"i": 1, "k": 1}, "1 i", "1 k"),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_reduction_that_begins_at_zero_is_right(name: str) -> None:
    verify(reduction(*WHOLE[name]))


AGAIN: dict[str, tuple[dict[str, int], str, list[dict[str, int]]]] = {
    "i // 2": ({"i": 16}, "8 i // 2", [{"i": 0}, {"i": 1}]),
    "i % 8": ({"i": 16}, "8 i % 8", [{"i": 0}, {"i": 8}]),
    "an unused loop": ({"r": 3, "i": 8}, "8 i", [{"r": 0, "i": 0}, {"r": 1, "i": 0}]),
    "overlap": ({"o": 4, "j": 3}, "9 o * 2 + j", [{"o": 0, "j": 2}, {"o": 1, "j": 0}]),
}


@pytest.mark.parametrize("name", AGAIN)
def test_an_update_in_place_that_visits_a_point_again_is_refused(name: str) -> None:
    loops, axis, visits = AGAIN[name]
    again = {"vi": f"spatial {axis}"}
    with pytest.raises(VerifyError) as error:
        verify(parse(HEAD + nest(loops, again, "C[vi] = C[vi] + X[vi]")))
    assert error.value.data["visits"] == visits
    verify(parse(HEAD + nest(loops, again, "C[vi] = X[vi] + X[vi]")))


def test_a_guard_may_leave_one_visit_of_each_point() -> None:
    loops, axes = {"r": 3, "o": 4, "j": 5}, {"vi": "spatial 17 o * 5 + j"}
    body = "C[vi] = C[vi] + X[vi]"
    with pytest.raises(VerifyError) as error:
        verify(parse(HEAD + nest(loops, axes, body, "where o * 5 + j < 17")))
    assert error.value.data["point"] == {"vi": 0}
    verify(parse(HEAD + nest(loops, axes, body, "where (o * 5 + j < 17) & (r == 1)")))


def test_a_sum_that_goes_on_in_each_iteration_of_time_is_refused() -> None:
    """Without an init, what is updated has to be stored in each iteration."""
    axes = {"vi": "spatial 16 i", "vk": "reduce 16 k"}
    updates = nest({"i": 16, "k": 16}, axes, SUM)
    start = nest({"j": 16}, {"vj": "spatial 16 j"}, "C[vj] = 1.0", name="start")
    timed = "    for t in range(3):\n"
    inside = "".join(f"    {line}\n" for line in updates.splitlines())
    begun = "".join(f"    {line}\n" for line in start.splitlines())
    verify(parse(HEAD + updates))
    verify(parse(HEAD + timed + begun + inside))
    for text in (timed + inside, start + timed + inside, timed + inside + begun):
        with pytest.raises(VerifyError) as error:
            verify(parse(HEAD + text))
        assert error.value.data["visits"] == [{"t": 0, "i": 0, "k": 0}, {"t": 1, "i": 0, "k": 0}]


@pytest.mark.parametrize("kind", ["opaque", "spatial"])
def test_loops_around_an_update_are_axes(kind: str) -> None:
    """Steps cut loops of opaque iterations in parts, and give axes to those that have none."""
    loops, axes = {"r": 3, "i": 8}, {"vi": f"{kind} 17 i + 5"}
    update = "C[vi] = C[vi] + X[vi]"
    nothing: dict[str, str] = {}
    for text, point in (
        (nest(loops, axes, update), {"vi": 5}),
        (nest(loops, nothing, "C[7] = C[7] + X[7]"), {}),
    ):
        with pytest.raises(VerifyError) as error:
            verify(parse(HEAD + text))
        assert error.value.data["point"] == point
    verify(parse(HEAD + nest(loops, axes, "C[vi] = X[vi] + X[vi]")))
    verify(parse(HEAD + nest(loops, {"vr": "opaque 3 r", **axes}, update)))


@pytest.mark.parametrize(("value", "once"), [("7 - i", True), ("i // 2", False), ("i % 4", False)])
def test_opaque_iterations_do_not_come_again(value: str, once: bool) -> None:
    func = parse(HEAD + nest({"i": 8}, {"vi": f"opaque 8 {value}"}, "C[vi] = C[vi] * 2.0 + X[vi]"))
    if once:
        verify(func)
    else:
        with pytest.raises(VerifyError):
            verify(func)


def test_a_block_with_fewer_loops_restarts_nothing() -> None:
    start = nest({"j": 1}, {"vj": "spatial 1 j"}, "C[vj] = 1.0", name="start")
    loops, axes = {"t": 2, "i": 8}, {"vi": "spatial 8 i"}
    with pytest.raises(VerifyError):
        verify(parse(HEAD + start + nest(loops, axes, "C[vi] = C[vi] + X[vi]")))


def test_elements_of_other_places_are_no_update_in_place() -> None:
    verify(
        parse("""
def f(S: T.Buffer((2, 8), "float32")):
    T.inplace(S)
    for t in range(4):
        for i in range(8):
            with T.block("next"):
                vi = T.axis.spatial(8, i)
                S[1, vi] = S[0, vi] + 1.0
        for i in range(8):
            with T.block("back"):
                vi = T.axis.spatial(8, i)
                S[0, vi] = S[1, vi]
""")
    )


@pytest.mark.parametrize("condition", ["vk < 8", "(vk < 8) & (A[vi, 0] > 0.0)", "vk <= vi"])
def test_terms_that_the_body_leaves_out_need_no_visit(condition: str) -> None:
    axes = {"vi": "spatial 8 i", "vk": "reduce 16 k"}
    body = f"if {condition}:\n    {SUM}"
    verify(parse(HEAD + nest({"i": 8, "k": 8}, axes, body, "C[vi] = 0.0")))
    with pytest.raises(VerifyError) as error:
        verify(parse(HEAD + nest({"i": 8, "k": 7}, axes, body, "C[vi] = 0.0")))
    example = error.value.data["point"]
    assert (example is None) is ("A" in condition)  # data may leave it out, too
    assert example is None or example["vk"] == 7


def test_parts_of_a_reduction_continue_it() -> None:
    first = nest({"k": 10}, {"vi": "spatial 8 i", "vk": "reduce 16 k"}, SUM, "C[vi] = 0.0")
    last = first.replace("range(10)", "range(6)")
    last = last.replace("reduce(16, k)", "reduce(16, k + 10)").replace('"C"', '"tail"')
    short = last.replace("range(6)", "range(5)")

    def program(*parts: str) -> Func:
        lines = [f"    {line}\n" for part in parts for line in part.splitlines()]
        return parse(HEAD + "    for i in range(8):\n" + "".join(lines))

    verify(program(first, last))
    for parts, point in (
        ((first, short), {"vi": 0, "vk": 15}),
        ((first,), {"vi": 0, "vk": 10}),
        ((last, first), {"vi": 0}),
    ):
        with pytest.raises(VerifyError) as error:
            verify(program(*parts))
        assert error.value.data["point"] == point


def steps_of_a_tail(sch: Any) -> None:
    i, k = sch.get_loops("C")
    k0, _ = sch.split(k, factors=[None, 5])
    sch.loop_partition(k0)
    sch.parallel(i)


def steps_of_fused_loops(sch: Any) -> None:
    i, k = sch.get_loops("C")
    outer, _ = sch.split(sch.fuse(i, k), factors=[None, 7])
    sch.add_unit_loop(outer)


def steps_of_partial_results(sch: Any) -> None:
    _, k = sch.get_loops("C")
    k0, _ = sch.split(k, factors=[None, 3])
    sch.rfactor(k0, 0)


def steps_of_a_moved_start(sch: Any) -> None:
    i, k = sch.get_loops("C")
    i0, i1 = sch.split(i, factors=[None, 5])
    sch.reorder(i0, k, i1)
    sch.decompose_reduction("C", k)


@pytest.mark.parametrize(
    "steps",
    [steps_of_a_tail, steps_of_fused_loops, steps_of_partial_results, steps_of_a_moved_start],
)
def test_steps_keep_the_visits_of_a_reduction(steps: Any) -> None:
    sch: Any = Schedule(reduction(IK, "16 i", "16 k"))
    steps(sch)
    for programs in sch.history:
        for func in programs:
            verify(func)


def test_rows_that_are_computed_again_are_summed_anew() -> None:
    """Sums that `compute_at` has put into overlapping rows, also with the start of their own."""
    sch: Any = Schedule(
        parse("""
def f(A: T.Buffer((17, 16), "float32"), D: T.Buffer((15,), "float32")):
    C = T.alloc((17,), "float32")
    for i, k in T.grid(17, 16):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0.0
            C[vi] = C[vi] + A[vi, vk]
    for i in range(15):
        with T.block("D"):
            vi = T.axis.spatial(15, i)
            D[vi] = C[vi] + C[vi + 2]
""")
    )
    (i,) = sch.get_loops("D")
    outer, _ = sch.split(i, factors=[None, 4])
    sch.compute_at("C", outer)
    verify(sch.func)
    _, _, k = sch.get_loops("C")
    sch.decompose_reduction("C", k)
    verify(sch.func)


BINDINGS = (
    "{a}", "{a} + 1", "{a} * 2", "{a} // 2", "{a} % 2", "{a} * 2 + {b}", "({a} * 3 + {b}) // 2",
    "({a} * 3 + {b}) % 4", "T.minimum({a}, 1)", "2 - {a}", "{a} * 3 + {b}", "0", "{a} + {b}",
)  # fmt: skip


MINIMUM = type("T", (), {"minimum": min})


def is_right(loops: dict[str, int], vi: str, vk: str, extent: int) -> tuple[bool, bool]:
    """Whether the terms of each element begin with 0 and are all there, again and again.

    The second is whether that is so in each iteration of some outer loops, apart from others.
    """
    at = []
    for point in product(*map(range, loops.values())):
        values: dict[str, Any] = {"T": MINIMUM, **dict(zip(loops, point, strict=True))}
        at.append((point, eval(vi, {}, values), eval(vk, {}, values)))

    def terms(depth: int) -> list[list[int]]:
        rounds: dict[object, list[int]] = {}
        for point, i, k in at:
            rounds.setdefault((point[:depth], i), []).append(k)
        return list(rounds.values())

    def once(ks: list[int]) -> bool:
        return ks[0] == 0 and sorted(ks) == list(range(extent))

    def again(ks: list[int]) -> bool:
        return all(once(ks[n : n + extent]) for n in range(0, len(ks), extent))

    by_loops = any(all(map(once, terms(d))) for d in range(len(loops) + 1))
    return all(map(again, terms(0))), by_loops


def test_reductions_are_refused_where_visits_are_wrong() -> None:
    rng = np.random.default_rng(5)
    counts = {True: 0, False: 0}
    for _ in range(examples(600)):
        names = ["a", "b", "c"][: int(rng.integers(1, 4))]
        loops = {v: int(rng.integers(1, 5)) for v in names}
        vi, vk = (
            str(rng.choice(BINDINGS)).format(a=rng.choice(names), b=rng.choice(names))
            for _ in range(2)
        )
        values = [
            eval(vk, {"T": MINIMUM}, dict(zip(names, p, strict=True)))
            for p in product(*map(range, loops.values()))
        ]
        extent = max(*values, 0, 0) + 1
        axes = {"vi": f"spatial 17 T.minimum(16, T.maximum(0, {vi}))", "vk": f"reduce 16 {vk}"}
        text = nest(loops, axes, SUM, "C[vi] = 0.0").replace("reduce(16", f"reduce({extent}")
        text = text.replace(f"T.minimum(16, T.maximum(0, {vi}))", vi)
        if min(values) < 0:
            continue
        right, by_loops = is_right(loops, vi, vk, extent)
        counts[right] += 1
        survey = Survey(parse(HEAD + text))
        if by_loops:
            check_visits(survey)
        elif not right:
            with pytest.raises(VerifyError):
                check_visits(survey)
    assert min(counts.values()) > 10


def test_parts_may_have_their_axes_in_other_orders() -> None:
    sch = Schedule(
        parse(
            f"@tw.script\n{HEAD}    for i, k in T.grid(17, 16):\n" + textwrap.indent(PART, " " * 8)
        )
    )
    _, k = sch.get_loops(sch.get_block("C"))
    _, tails = sch.loop_partition(k, at=4)
    sch.reorder_block_iter_var(tails[0], new_order=[1, 0])
    verify(sch.func)


def test_a_reduction_that_has_elements_has_iterations() -> None:
    text = """
@tw.script
def f(Y: T.Buffer(({0}, {1}), "int64"), Z: T.Buffer(({0},), "int64")):
    for i, j in T.grid({0}, {1}):
        with T.block("Z"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                Z[vi] = 4
            Z[vi] = T.minimum(Z[vi], Y[vi, vj])
"""
    for sizes in ((0, 3), (0, 0), (2, 1)):
        verify(parse(text.format(*sizes)))
    with refused(VerifyError, "Z", "vj"):
        verify(parse(text.format(2, 0)))


def test_parts_may_have_their_terms_in_blocks() -> None:
    nest = "    for i, k in T.grid(17, 16):\n" + textwrap.indent(PART, " " * 8)
    sch = Schedule(parse(f"@tw.script\n{HEAD}{nest}"))
    _, k = sch.get_loops(sch.get_block("C"))
    k0, _ = sch.split(k, factors=[None, 2])
    sch.loop_partition(k0, at=1)
    sch.blockize(k0)
    verify(sch.func)


PARTS = """
for i, k in T.grid({0}, 4):
    with T.block("C0"):
        vi = T.axis.spatial(17, i)
        vk = T.axis.reduce(16, k)
        with T.init():
            C[{1}] = 0.0
        C[{1}] = C[{1}] + A[{1}, vk]
for i, k in T.grid(17, 12):
    with T.block("C4"):
        vi = T.axis.spatial(17, i)
        vk = T.axis.reduce(16, k + 4)
        with T.init():
            C[vi] = 0.0
        C[vi] = C[vi] + A[vi, vk]
"""


def test_parts_begin_the_elements_that_others_continue() -> None:
    def parts(rows: int, element: str) -> Func:
        text = textwrap.indent(PARTS.format(rows, element), "    ")
        return parse(f"@tw.script\n{HEAD}{text}")

    verify(parts(17, "vi"))
    for rows, element in ((3, "vi"), (17, "16 - vi"), (3, "16 - vi")):
        with refused(VerifyError, "C4", "vk"):
            verify(parts(rows, element))
