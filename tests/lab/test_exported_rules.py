"""What exported rules propose keeps the limits of their target, for other sizes, too, and begins
with the sizes of the version that they are made of."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.rules.user_rules import SKETCH_RULES
from tilewright.autotune.search.candidates import Rows, Rowspace
from tilewright.autotune.search.drawing import drawn_of_each
from tilewright.autotune.search.search import Candidate, Search
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.base.errors import BuildError
from tilewright.codegen.detect import resolve
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Func

from ..refusals import refused
from .exported_rules import (
    OPERATORS,
    by_hand,
    by_search,
    exported,
    exported_sketch,
    lowered,
    of_search,
    program_of,
    refusals_of,
)

CPU, GPU = resolve("cpu -mcpu=znver4 -threads=2"), resolve("cuda -arch=sm_90")


TOO_LONG = re.compile(r"unrolling gives \d+ stores|the code of \w+ has \d+ operations and operands")
"""What is counted only once a program is lowered."""


def of_rule(func: Func, target: tw.Target) -> Sketch:
    """The sketch that the exported rule makes of a program that it applies to."""
    sketch = exported_sketch(func, target)
    assert isinstance(sketch, Sketch), sketch
    return sketch


def drawn(sketch: Sketch, count: int) -> Rows:
    """Rows of any values that the decisions of a sketch can take."""
    rng = np.random.default_rng(7)
    return np.stack([rng.choice(v, count) for v in sketch.space.values.values()], axis=1)


@pytest.mark.part(2)
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", OPERATORS)
def test_what_a_rule_proposes_is_built(name: str, target: tw.Target) -> None:
    func = program_of(name)
    _, searched = next(by_search(func, target))
    for schedule in (by_hand(func, target), searched):
        with exported(schedule, target):
            for other in (func, program_of(name, 1)):
                sketch = exported_sketch(other, target)
                if isinstance(sketch, str):  # a condition of a step, in words
                    assert schedule is searched, sketch
                    continue
                rows = Rowspace(sketch).sample(np.random.default_rng(3), 8).tolist()
                assert rows
                refusals = refusals_of(sketch, other, rows, target)
                assert not [why for why in refusals if not TOO_LONG.match(why)]


@pytest.mark.grid
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", ["matmul", "softmax", "pairs"])
def test_a_rule_keeps_the_limits_of_the_search(name: str, target: tw.Target) -> None:
    func = program_of(name)
    for sketch, schedule in by_search(func, target):
        with exported(schedule, target):
            own = of_rule(func, target)
        rows = drawn(sketch, 500)
        wanted = Rowspace(sketch).check(rows)
        assert Rowspace(own).check(rows).tolist() == wanted.tolist()
        assert name != "matmul" or not wanted.all()


def test_blocks_of_too_many_threads_are_a_limit_of_rules() -> None:
    func = ops.matmul_func(256, 256, 256)
    with exported(by_hand(func, GPU), GPU):
        sketch = of_rule(func, GPU)
    assert Rowspace(sketch).check(np.array([[32, 32], [64, 32]])).tolist() == [True, False]
    too_many = sketch.trace.with_row([64, 32]).apply(func).func
    with refused(BuildError, "2048"):
        lowered(too_many, GPU)


def test_long_straight_code_is_no_limit_of_rules() -> None:
    """A thousand copies of an exponential are compiled in seconds."""
    x = te.placeholder((1024, 4), name="X")
    y = te.compute((1024, 4), lambda i, j: te.exp(x[i, j]) + 1.0, name="Y")
    sch = tw.Schedule(te.func([x, y], name="exponentials"))
    i, j = sch.get_loops(sch.get_block("Y"))
    sch.unroll(i)
    _, lanes = sch.split(j, factors=[None, 4])
    sch.vectorize(lanes)
    with exported(sch, CPU):
        sketch = of_rule(sch.original, CPU)
    assert Rowspace(sketch).check(np.array([[1], [2], [4]])).all()


def test_code_that_is_too_long_is_a_failed_build() -> None:
    func = program_of("pairs")
    with exported(by_hand(func, CPU), CPU):
        sketch = of_rule(func, CPU)
    row = [16, 16, 256]
    assert Rowspace(sketch).check(np.array([row])).all()
    with pytest.raises(BuildError, match="operations and operands"):
        lowered(sketch.trace.with_row(row).apply(func).func, CPU)


def shared() -> tw.Schedule:
    """Rows that one nest of a launch leaves in shared memory for the next one."""
    a = te.placeholder((512, 1024), name="A")
    b = te.compute((512, 1024), lambda i, j: te.exp(a[i, j]), name="B")
    c = te.compute((512, 1024), lambda i, j: b[i, j] + b[i, 1023 - j], name="C")
    sch = tw.Schedule(te.func([a, c], name="mirrored"))
    first, second = sch.get_block("B"), sch.get_block("C")
    i, _ = sch.get_loops(second)
    rows, _ = sch.split(i, factors=[None, 2])
    sch.bind(rows, "blockIdx.x")
    sch.compute_at(first, rows)
    sch.set_scope(first, 0, "shared")
    for block in (first, second):
        _, threads = sch.split(sch.get_loops(block)[-1], factors=[None, 64])
        sch.bind(threads, "threadIdx.x")
    return sch


@pytest.mark.parametrize(
    ("row", "error"),
    [([2, 64, 64], None), ([32, 128, 128], None), ([64, 64, 64], "takes 262144 bytes of shared")],
)
def test_shared_memory_is_a_limit_of_rules(row: list[int], error: str | None) -> None:
    schedule = shared()
    with exported(schedule, GPU):
        sketch = of_rule(schedule.original, GPU)
    assert Rowspace(sketch).check(np.array([row])).tolist() == [error is None]
    program = sketch.trace.with_row(row).apply(schedule.original).func
    with nullcontext() if error is None else pytest.raises(BuildError, match=error):
        lowered(program, GPU)


def test_loops_of_one_axis_have_one_extent_in_rules() -> None:
    with exported(shared(), GPU):
        space = Rowspace(of_rule(shared().original, GPU))
    assert space.check(np.array([[2, 64, 64], [2, 64, 32]])).tolist() == [True, False]


@pytest.mark.parametrize(("target", "other"), [(CPU, GPU), (GPU, CPU)], ids=["cpu", "cuda"])
def test_a_rule_is_for_a_kind_of_target(target: tw.Target, other: tw.Target) -> None:
    func = ops.matmul_func(64, 64, 64)
    with exported(by_hand(func, target), target):
        assert exported_sketch(func, other) == f"the rule is for {target.kind} targets"


def test_a_rule_says_why_nothing_that_it_makes_is_built() -> None:
    sch = tw.Schedule(ops.add_relu_func(4096))
    (loop,) = sch.get_loops(sch.get_block(0))
    sch.bind(loop, "threadIdx.x")
    with exported(sch, GPU):
        why = exported_sketch(sch.original, GPU)
    assert why == "every candidate violates: a block has no more threads than the device runs"


def test_limits_of_any_form_are_written_out() -> None:
    @tw.sketch_rule
    def in_two_tiles(draft: tw.Draft) -> None:
        sch = draft.schedule
        i, j, _ = sch.get_loops(sch.get_block("C"))
        rows, columns = (sch.sample_categorical([1, 2, 4, 8]) for _ in range(2))
        sch.split(i, factors=[None, rows])
        sch.split(j, factors=[None, columns])
        draft.limit("one is small", te.minimum(rows, columns) <= 2)
        draft.limit("alike", (rows == columns) | ~(te.maximum(rows, columns) > 4))

    func = ops.matmul_func(64, 64, 64)
    try:
        (sketch,) = [s for s in sketches(func, CPU) if s.name == "in_two_tiles"]
        schedule = sketch.trace.with_row([2, 1]).apply(func)
        with exported(schedule, CPU):
            own = of_rule(func, CPU)
    finally:
        del SKETCH_RULES["in_two_tiles"]
    rows = np.array([[a, b] for a in (1, 2, 4, 8) for b in (1, 2, 4, 8)])
    assert Rowspace(own).check(rows).tolist() == Rowspace(sketch).check(rows).tolist()
    assert [name for name, _ in own.prune] == ["one is small", "alike"]


def first_candidate(func: Func, sketch: Sketch, target: tw.Target) -> Candidate:
    """The candidate that a session tries first of a user's rule with this sketch."""
    search = Search(func, target, prepared=[sketch])
    search.begin_with_each([(0,)])
    (candidate,) = search.ask(1)
    return candidate


@pytest.mark.part(2)
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_sizes_of_the_version_are_tried_first(name: str, target: tw.Target) -> None:
    func = program_of(name)
    own = next(sketch for sketch in of_search(func, target) if sketch.variables)
    searched = drawn_of_each([own], target, 1, seed=4)[0].trace.apply(func)
    for schedule in (by_hand(func, target), searched):
        with exported(schedule, target):
            first = first_candidate(func, of_rule(func, target), target)
            assert structural_equal(first.trace.apply(func).func, schedule.func)
            other = program_of(name, 2)
            sketch = exported_sketch(other, target)
            if isinstance(sketch, Sketch):
                check_first(other, sketch, target)


def check_first(func: Func, sketch: Sketch, target: tw.Target) -> None:
    """Sizes of a version are those of the first candidate of another program, if it can have them;
    others are drawn."""
    space = Rowspace(sketch)
    row = list(first_candidate(func, sketch, target).row)
    assert space.check(np.array([row])).all()
    initial = [sketch.space.initial.get(v) for v in sketch.variables]
    if None not in initial and space.check(np.array([initial])).all():
        assert row == initial
    else:
        assert row != initial


def test_sizes_that_another_program_cannot_have_are_drawn() -> None:
    func = ops.matmul_func(96, 96, 96)
    sch = tw.Schedule(func)
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.split(i, factors=sch.sample_perfect_tile(i, 2, 32, decision=[32]))
    sch.split(j, factors=[None, 24], perfect=True)
    with exported(sch, CPU):
        rows = [
            first_candidate(program, of_rule(program, CPU), CPU).row
            for program in (func, ops.matmul_func(96, 64, 8), ops.matmul_func(80, 48, 8))
        ]
    assert rows[0] == (32, 24)
    assert rows[1][0] == 32
    assert 64 % rows[1][1] == 0
    assert 80 % rows[2][0] == 0
    assert rows[2][1] == 24


def test_a_rule_has_no_limit_that_its_version_does_not_keep() -> None:
    func = ops.matmul_func(256, 256, 256)
    sketch = sketches(func, CPU)[0]
    rows = drawn(sketch, 2000)
    limits = len(sketch.prune)
    unlimited = Rowspace(replace(sketch, prune=()))
    row = rows[unlimited.check(rows) & ~Rowspace(sketch).check(rows)][0].tolist()
    schedule = sketch.trace.with_row(row).apply(func)
    with exported(schedule, CPU):
        own = of_rule(func, CPU)
        first = first_candidate(func, own, CPU)
    assert 0 < len(own.prune) < limits
    assert first.trace.apply(func).trace == schedule.trace
