"""Which blocks of a program are computed together, asked of a program alone."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tilewright import Schedule, TargetError, ops, te
from tilewright.autotune.rules import fusion_groups
from tilewright.autotune.rules.rule import GroupKind
from tilewright.codegen.detect import resolve
from tilewright.schedule.find import blocks_in
from tilewright.tir.ir import Expr, Func

from ..fuzz.rules import check_places
from ..refusals import refused
from ..schedule.random_cases import Tally, a_case, apply_random_steps
from .formulas import FORMULAS
from .selection import OPERATORS
from .spellings import ATTENTION

TARGET = resolve("cpu -mcpu=cascadelake -threads=2")
Told = list[tuple[str, str, list[str], list[str]]]


def told(func: Func) -> Told:
    """The groups by the names of their blocks."""
    return [
        (g.kind.name, g.anchor.name, [m.name for m in g.members], [b.name for b in g.inlined])
        for g in fusion_groups(func, TARGET).groups
    ]


def tensor(name: str, *shape: int) -> te.Tensor:
    return te.placeholder(shape, "float32", name=name)


def product(name: str, a: te.Tensor, b: te.Tensor, columns: int, depth: int) -> te.Tensor:
    """A product of 32 rows."""
    k = te.reduce_axis(depth, name="k")
    return te.compute((32, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name)


def test_a_contraction_takes_what_follows_it() -> None:
    func = ops.matmul_func(64, 64, 64, bias=True, epilogue="relu")
    assert told(func) == [("CONTRACTION", "C_sum", ["C_sum", "C"], [])]


def test_what_is_expensive_to_repeat_is_a_group_of_its_own() -> None:
    assert told(ops.conv2d_func(c=8, h=9, w=9, o=8, bias=True)) == [
        ("ELEMENTWISE", "Y_pad", ["Y_pad"], []),
        ("CONTRACTION", "Y_sum", ["Y_sum", "Y"], []),
    ]


def test_stages_that_read_windows_of_each_other_are_one_group() -> None:
    assert told(FORMULAS["clamped_stencils"]()) == [("PIPELINE", "Second", ["First", "Second"], [])]
    assert told(FORMULAS["opened_plane"]()) == [("PIPELINE", "Opened", ["Eroded", "Opened"], [])]
    members = ["Grey", "Ax", "Dn", "Y"]
    assert told(FORMULAS["edges_of_channels"]()) == [("PIPELINE", "Y", members, [])]


def test_windows_are_expressions_where_borders_bend_them() -> None:
    assert told(FORMULAS["mean_of_padded_windows"]()) == [
        ("ELEMENTWISE", "Y", ["Y"], ["Pad", "Total"])
    ]


def test_the_target_may_be_a_text() -> None:
    func = ops.softmax_func(64, 128)
    text = "cpu -mcpu=cascadelake -threads=2"
    assert tw.fusion_groups(func, text) == fusion_groups(func, TARGET)
    assert [g.kind for g in tw.fusion_groups(func).groups] == [GroupKind.ROWS]
    with refused(TargetError, "gpu"):
        tw.fusion_groups(func, "gpu")


def test_a_program_that_breaks_a_rule_is_refused() -> None:
    x = tensor("x", 4)
    with pytest.raises(tw.VerifyError, match="index .* of x in dimension 0"):
        tw.fusion_groups(te.func([x, te.compute((4,), lambda i: x[i + 1], name="y")]))


def test_rows_are_one_group() -> None:
    members = ["Y_max", "Y_exp", "Y_sum", "Y"]
    assert told(ops.softmax_func(64, 128)) == [("ROWS", "Y", members, [])]
    assert told(ops.layer_norm_func(64, 128)) == [
        ("ROWS", "Y", ["Y_sum", "Y_square", "Y"], ["Y_mean", "Y_scale"])
    ]


def test_attention_is_one_group() -> None:
    ((kind, anchor, members, inlined),) = told(ops.attention_func(1, 2, 64, 16, causal=True))
    assert (kind, anchor, inlined) == ("ATTENTION", "Y", ["Y_masked"])
    assert (members[0], members[-1]) == ("Y_scores", "Y")


@pytest.mark.parametrize("name", ["divided-result", "divided-terms", "weights-by-inverse"])
def test_attention_in_other_spellings_is_one_group(name: str) -> None:
    """Factors are hoisted to see that; the block which that makes is not the program's."""
    func = ATTENTION[name].func()
    ((kind, anchor, members, inlined),) = told(func)
    assert (kind, anchor) == ("ATTENTION", "Y")
    assert {*members, *inlined} == {b.label.name for b in blocks_in(func.body)}


@pytest.mark.parametrize("expensive", [False, True])
def test_a_network_is_divided_into_kernels_that_can_run_in_order(expensive: bool) -> None:
    x, w, v = tensor("X", 32, 48), tensor("W", 48, 64), tensor("V", 64, 40)
    doubled = te.compute((32, 48), lambda i, j: x[i, j] * 2.0, name="doubled")
    hidden = product("hidden", doubled, w, 64, 48)
    relu = te.compute((32, 64), lambda i, j: te.maximum(hidden[i, j], 0.0), name="relu")
    gate = te.compute((32, 64), lambda i, j: te.exp(hidden[i, j]), name="gate")
    out = product("out", gate if expensive else relu, v, 40, 64)
    moved = te.compute((32, 40), lambda i, j: out[i, j] + x[i, j], name="moved")
    first, inlined = (["hidden", "gate"], []) if expensive else (["hidden"], ["relu"])
    assert told(te.func([x, w, v, moved], name="network")) == [
        ("CONTRACTION", "hidden", first, ["doubled"]),
        ("CONTRACTION", "out", ["out", "moved"], inlined),
    ]


def test_what_several_groups_read_is_inlined_in_each() -> None:
    x, w, v = tensor("X", 32, 48), tensor("W", 48, 64), tensor("V", 48, 40)
    doubled = te.compute((32, 48), lambda i, j: x[i, j] * 2.0, name="doubled")
    left, right = product("left", doubled, w, 64, 48), product("right", doubled, v, 40, 48)
    assert told(te.func([x, w, v, left, right], name="two")) == [
        ("CONTRACTION", "left", ["left"], ["doubled"]),
        ("CONTRACTION", "right", ["right"], ["doubled"]),
    ]


@pytest.mark.parametrize(
    "func",
    [
        *(getattr(ops, name)(**options) for name, options in OPERATORS),
        *(make() for make in FORMULAS.values()),
    ],
    ids=lambda func: func.name,
)
def test_each_block_has_one_place(func: Func) -> None:
    fusion = fusion_groups(func, TARGET)
    check_places(fusion)
    assert fusion.kept == ()
    assert all(len(g.members) > 1 or g.kind is not GroupKind.ATTENTION for g in fusion.groups)


@pytest.mark.parametrize("seed", range(24))
def test_each_block_of_a_scheduled_program_has_one_place(seed: int) -> None:
    rng = np.random.default_rng(seed)
    func, steps = a_case(lambda n: int(rng.integers(n)))
    sch, _ = apply_random_steps(
        Schedule(func, seed=seed), lambda n: int(rng.integers(n)), 6, Tally(), steps
    )
    check_places(fusion_groups(sch.func, TARGET))


def test_blocks_that_are_kept_compute_nothing_else() -> None:
    """A block that is cheap enough to be inlined is not, where its reader stays as written."""
    x = tensor("X", 37)
    doubled = te.compute((37,), lambda i: x[i] * 2.0, name="doubled")
    sch = Schedule(te.func([x, te.compute((37,), lambda i: doubled[i] + 1.0, name="Y")]))
    reader = sch.get_block(1)
    sch.split(sch.get_loops(reader)[0], factors=[None, 4])  # guarded: 4 does not divide 37
    fusion = fusion_groups(sch.func, TARGET)
    assert fusion.kept == (reader,)
    assert [[label.name for label in g.members] for g in fusion.groups] == [["doubled"]]


def test_a_program_that_never_runs_is_kept() -> None:
    func = ops.matmul_func(0, 4, 3)
    fusion = fusion_groups(func, TARGET)
    assert fusion.func is func
    assert fusion.groups == ()
    assert len(fusion.kept) == len(list(blocks_in(func.body)))


N, D, LENGTH = 64, 16, 96
"""Rows, columns and the length of a row of the programs that are nearly an attention."""


def summed(name: str, shape: tuple[int, int], extent: int, term: Callable[..., Expr]) -> te.Tensor:
    k = te.reduce_axis(extent, name="k")
    return te.compute(shape, lambda i, j: te.sum(term(i, j, k), axis=k), name=name)


def nearly_attention(change: str) -> Func:
    """An attention without a scale, but for one change."""
    q, k, v = tensor("Q", N, D), tensor("K", LENGTH, D), tensor("V", LENGTH, D)
    first = summed("S", (N, LENGTH), D, lambda i, j, d: q[i, d] * k[j, d])
    r = te.reduce_axis(LENGTH, name="r")
    most = te.compute((N,), lambda i: te.max(first[i, r], axis=r), name="M")

    def exponent(i: Expr, j: Expr) -> Expr:
        return first[i, j] - most[N - 1 - i if change == "other row" else i]

    e = te.compute((N, LENGTH), lambda i, j: te.exp(exponent(i, j)), name="E")
    t = te.reduce_axis(LENGTH, name="t")
    total = te.compute((N,), lambda i: te.sum(e[i, t], axis=t), name="L")
    w = te.compute((N, LENGTH), lambda i, j: e[i, j] / total[i], name="W")
    outputs: list[te.Tensor] = []
    if change == "reduces columns":
        x = tensor("X", N, D)
        y = summed("Y", (LENGTH, D), N, lambda i, c, j: w[j, i] * x[j, c])
        return te.func([q, k, x, y], name="nearly")
    if change == "reduces no row":
        x, z = tensor("X", N, D), tensor("Z", D, LENGTH)
        y = summed("Y", (N, LENGTH), D, lambda i, j, c: w[i, j] * x[i, c] * z[c, j])
        return te.func([q, k, x, z, y], name="nearly")
    if change == "two weights":
        u = te.compute((N, LENGTH), lambda i, j: te.sqrt(e[i, j]) / total[i], name="U")
        y = summed("Y", (N, D), LENGTH, lambda i, c, j: (w[i, j] + u[i, j]) * v[j, c])
    else:
        y = summed("Y", (N, D), LENGTH, lambda i, c, j: w[i, j] * v[j, c])
    if change == "scores returned":
        outputs = [first]
    if change == "weights returned":
        outputs = [w]
    if change == "sums read":
        outputs = [te.compute((N,), lambda i: te.log(total[i]), name="Log")]
    if change == "scores read":
        a = te.reduce_axis(N, name="a")
        outputs = [te.compute((LENGTH,), lambda j: te.max(first[a, j], axis=a), name="C")]
    return te.func([q, k, v, *outputs, y], name="nearly")


def kinds(func: Func) -> list[str]:
    return [group.kind.name for group in fusion_groups(func, TARGET).groups]


def test_the_attention_that_others_are_nearly() -> None:
    assert kinds(nearly_attention("nothing")) == ["ATTENTION"]


@pytest.mark.parametrize(
    "change",
    [
        "other row", "reduces columns", "reduces no row", "two weights", "scores returned",
        "weights returned", "sums read", "scores read",
    ],
)  # fmt: skip
def test_what_is_nearly_an_attention_is_none(change: str) -> None:
    assert "ATTENTION" not in kinds(nearly_attention(change))


def test_a_contraction_that_has_a_follower_begins_no_attention() -> None:
    """Its follower would be computed twice, in its group and in the chain of the attention."""
    x, w, v = tensor("X", N, D), tensor("W", D, LENGTH), tensor("V", LENGTH, D)
    c = te.reduce_axis(D, name="c")
    norm = te.compute((N,), lambda i: te.sum(x[i, c] * x[i, c], axis=c), name="norm")
    hidden = summed("hidden", (N, LENGTH), D, lambda i, j, k: x[i, k] * w[k, j])
    gate = te.compute((N, LENGTH), lambda i, j: te.exp(hidden[i, j]) * norm[i], name="gate")
    out = summed("out", (N, D), LENGTH, lambda i, j, k: gate[i, k] * v[k, j])
    assert told(te.func([x, w, v, out], name="gated")) == [
        ("ROWS", "norm", ["norm"], []),
        ("CONTRACTION", "hidden", ["hidden", "gate"], []),
        ("CONTRACTION", "out", ["out"], []),
    ]


def layers(count: int) -> Func:
    """Products, each followed by a maximum."""
    args = [y := tensor("X", 32, 32)]
    for n in range(count):
        args.append(w := tensor(f"W{n}", 32, 32))
        p = product(f"P{n}", y, w, 32, 32)
        y = te.compute((32, 32), lambda i, j, p=p: te.maximum(p[i, j] * 0.5, 0.0), name=f"R{n}")
    return te.func([*args, y], name="layers")


def calls(action: Callable[[], object]) -> int:
    """The number of calls of functions in an action."""
    count = 0

    def profiler(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def test_many_layers_take_little_more_than_in_proportion() -> None:
    short, long = layers(12), layers(48)
    fusion_groups(layers(1), TARGET)  # what is loaded and decided once
    work = calls(lambda: fusion_groups(long, TARGET)) / calls(lambda: fusion_groups(short, TARGET))
    assert work < 8
    assert len(fusion_groups(long, TARGET).groups) == 48
