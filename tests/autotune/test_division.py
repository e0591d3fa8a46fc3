"""Which kernels a program becomes, and that these compute what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tilewright import Schedule, ops, te
from tilewright.autotune.rules import division, user_rules
from tilewright.autotune.rules.division import Piece, pieces_of
from tilewright.autotune.rules.draft import Draft
from tilewright.autotune.rules.rule import SketchRule
from tilewright.autotune.tasks import Kernels, Task
from tilewright.codegen.detect import resolve
from tilewright.schedule.find import blocks_in
from tilewright.tir.ir import Buffer, Func, integers
from tilewright.tir.verify import verify

from ..layers import (
    LAYERS,
    arguments,
    interpreted,
    layer_norm,
    mlp,
    operand,
    pointwise,
    product,
    random_layers,
    relu,
)

TARGET = resolve("cpu -mcpu=cascadelake -threads=2")


def told(func: Func) -> list[str]:
    """The blocks of each kernel."""
    pieces = pieces_of(func, TARGET)
    return [" ".join(b.label.name for b in blocks_in(p.func.body)) for p in pieces]


KERNELS = {
    "two_layers": ["M0 B0 H0", "M1 B1"],
    "three_layers": ["M0 B0 H0", "M1 B1 H1", "M2 B2"],
    "block": ["N_sum N_mean N_squares N", "M G", "P Y"],
    "inplace": ["N_sum N_mean N_squares N", "M G", "P Y"],
    "softmax_between": ["S", "P_max P_exp P_sum P", "Y"],
    "self_attention": ["Q", "K", "V", "S E P_max P_exp P_sum P A", "Y"],
    "several_outputs": ["H R", "Y"],
    "one_weight": ["H", "Y"],
    "gated": ["A", "B G", "Y"],
    "scalar": ["H R", "Y"],
    "known_ahead": ["T H", "P C Y"],
    "convolutions": ["P0 C0 R0", "P1 C1 R1"],
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_kernel_has_one_product_with_what_follows_it(name: str) -> None:
    assert told(LAYERS[name]()) == KERNELS[name]


def run(pieces: tuple[Piece, ...], func: Func, given: list[object]) -> list[object]:
    """The arguments after the kernels have run one after the other."""
    values = dict(zip(func.params, given, strict=True))
    for piece in pieces:
        for own in piece.operands:
            if isinstance(own, Buffer) and own not in values:
                values[own] = np.full(integers(own.shape), np.nan, own.dtype)
        after = interpreted(piece.func, [values[o] for o in piece.operands])
        values.update(zip(piece.operands, after, strict=True))
    return [values[p] for p in func.params]


def check(func: Func) -> int:
    """Compare the kernels of a program with it; returns how many there are."""
    pieces, given = pieces_of(func, TARGET), arguments(func)
    for piece in pieces:
        verify(piece.func)
    found = run(pieces, func, given) if pieces else interpreted(func, given)
    for one, other in zip(found, interpreted(func, given), strict=True):
        assert np.array_equal(one, other)
    return len(pieces)


@pytest.mark.parametrize("name", LAYERS)
def test_kernels_compute_what_the_program_does(name: str) -> None:
    assert check(LAYERS[name]()) == len(KERNELS[name])


def test_random_programs_are_divided_right() -> None:
    """Kernels in the order of their products never need each other."""
    counts: list[int] = []
    for seed in range(40):
        func = random_layers(np.random.default_rng(seed))
        anchors = division._anchors(Draft(Schedule(func, symbolic=True), TARGET))
        counts.append(check(func))
        assert (counts[-1] > 1) is (len(anchors) > 1)
    assert len(set(counts)) > 3


def test_equal_kernels_are_one_program_to_the_database() -> None:
    from tilewright.autotune.records import workload_record

    first, second, third = (p.func for p in pieces_of(LAYERS["gated"](), TARGET))
    x, w = operand("x", 20, 16), operand("w", 16, 32, constant=True)
    alone = te.func([x, w, product("y", x, w)])
    assert workload_record(first).id == workload_record(alone).id
    assert len({workload_record(f).id for f in (first, second, third)}) == 3


def test_kernels_that_are_alike_are_tuned_once() -> None:
    x, w = operand("x", 20, 16), operand("w", 16, 16)
    programs = [Task(LAYERS["one_weight"](), None), Task(te.func([x, w, product("y", x, w)]), None)]
    kernels = Kernels(programs, [2.0, 3.0], TARGET, divide=True)
    assert [task.func.name for task in kernels.tasks] == ["one_weight_0"]
    assert kernels.weights == [7.0]
    assert kernels.alone(["best"]) == [None, "best"]
    as_they_are = Kernels(programs, [2.0, 3.0], TARGET, divide=False)
    assert [task.func for task in as_they_are.tasks] == [task.func for task in programs]


@pytest.mark.parametrize(("block", "whole"), [("M0", True), ("C", False)])
def test_a_program_is_whole_where_a_rule_of_the_user_applies(
    block: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_rows(draft: tw.Draft) -> None:
        draft.schedule.parallel(draft.schedule.get_loops(draft.schedule.get_block(block))[0])

    monkeypatch.setattr(user_rules, "SKETCH_RULES", rules := dict[str, SketchRule]())
    monkeypatch.setattr(division, "SKETCH_RULES", rules)
    tw.sketch_rule(in_rows)
    assert (not told(LAYERS["two_layers"]())) is whole


def scheduled() -> Func:
    sch = Schedule(mlp(2))
    sch.parallel(sch.get_loops(sch.get_block("M0"))[0])
    return sch.func


def overwritten() -> Func:
    """What the second product takes is computed of what the first one's result overwrites."""
    x, w = operand("X", 8, 8), operand("W", 8, 8)
    r, h = relu("R", x), product("H", x, w)
    y = pointwise("Y", lambda a, b: a + b, h, x)
    return te.func([x, w, product("Z", r, y)], inplace={y: x})


def annotated() -> Func:
    return replace(mlp(2), annotations=(("note", 1),))


def empty() -> Func:
    x, w, v = operand("X", 8, 0), operand("W", 0, 8), operand("V", 8, 8)
    return te.func([x, w, v, product("Y", product("H", x, w), v)])


def norm_of_a_product() -> Func:
    x, w = operand("X", 8, 8), operand("W", 8, 8)
    return te.func([x, w, layer_norm("Y", product("H", x, w))])


WHOLE: dict[str, Callable[[], Func]] = {
    "a product": lambda: ops.matmul_func(20, 16, 8, bias=True, epilogue="relu"),
    "rows": lambda: ops.layer_norm_func(20, 16),
    "an attention": lambda: ops.attention_func(batch=1, heads=2, sequence=24, dim=16),
    "a product and rows": norm_of_a_product,
    "scheduled by hand": scheduled,
    "annotated": annotated,
    "overwritten": overwritten,
    "no elements": empty,
}


@pytest.mark.parametrize("name", WHOLE)
def test_other_programs_are_one_kernel(name: str) -> None:
    assert not told(WHOLE[name]())


def test_targets_that_call_one_kernel_at_a_time() -> None:
    assert not pieces_of(mlp(2), resolve("cuda -arch=sm_90a"))


def test_a_program_that_breaks_a_rule_is_refused() -> None:
    x, w, v = operand("X", 8, 8), operand("W", 8, 8), operand("V", 8, 8)
    k = te.reduce_axis(8, name="k")
    y = te.compute((8, 8), lambda i, j: te.sum(x[i, k + 1] * w[k, j], axis=k), name="Y")
    with pytest.raises(tw.VerifyError):
        pieces_of(te.func([x, w, v, product("Z", y, v)]), TARGET)
