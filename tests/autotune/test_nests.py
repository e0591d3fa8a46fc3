"""Programs that people wrote by hand are scheduled like those that formulas make."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.rules.canonicalise import canonicalise, needs_nests
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.search.unmeasured import model_trace
from tilewright.codegen.build import compile_func
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from ..schedule.machinery import check_compiled, check_meaning, check_replays
from ..schedule.random_programs import with_plain_statements
from .checking import planned, sketches_of, some_rows
from .formulas import FORMULAS

PRODUCT = """
for i in range(13):
    for j in range(40):
        C[i, j] = 0.0
        for k in range(9):
            C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""
TURNED = """
for k in range(9):
    for i in range(13):
        for j in range(40):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
TILED = """
for i in T.parallel(13):
    for jo, k in T.grid(5, 9):
        for ji in T.vectorized(8):
            with T.block("C"):
                vi = T.axis.spatial(13, i)
                vj = T.axis.spatial(40, jo * 8 + ji)
                vk = T.axis.reduce(9, k)
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
GUARDED = """
for io, ii, j in T.grid(3, 5, 40):
    with T.block("C"):
        vi = T.axis.spatial(13, io * 5 + ii)
        vj = T.axis.spatial(40, j)
        T.where(io * 5 + ii < 13)
        C[vi, vj] = A[vi, 0] * B[0, vj]
"""
SCAN = """
for i in range(13):
    C[i, 0] = A[i, 0]
    for j in range(39):
        C[i, j + 1] = C[i, j] * 0.5 + B[0, j + 1]
"""
DOWN = """
for j in range(40):
    C[0, j] = A[0, 0]
for i in range(12):
    for j in range(40):
        C[i + 1, j] = C[i, j] * 0.5 + B[0, j]
"""
LAPS = """
for i in range(12):
    for j in range(39):
        C[i + 1, j] = A[i, 0]
        C[i, j + 1] = C[i + 1, j] + B[0, j]
for i in range(13):
    C[i, 39] = 1.0
for j in range(39):
    C[12, j] = 2.0
    C[0, j] = 3.0
"""
BIASED = """
for i in range(13):
    for j in range(40):
        C[i, j] = W[j]
        for k in range(9):
            C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""
DECLARED = """
for i, j, k in T.grid(13, 40, 9):
    with T.block("C"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        T.reads(B[vk, vj], A[vi, vk], C[vi, vj])
        T.writes(C[vi, vj])
        with T.init():
            C[vi, vj] = 0.0
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
REDUCED_FIRST = DECLARED.replace("vi, vj, vk = ", "vk, vi, vj = ").replace(
    '("SSR", [i, j, k])', '("RSS", [k, i, j])'
)
ACTIVATED = """
for i in range(13):
    for j in range(40):
        C[i, j] = W[j]
        for k in range(9):
            C[i, j] = C[i, j] + A[i, k] * B[k, j]
        C[i, j] = T.maximum(C[i, j], 0.0)
"""
CASES = {
    "activated": ACTIVATED, "biased": BIASED, "declared": DECLARED, "product": PRODUCT,
    "turned": TURNED, "tiled": TILED, "guarded": GUARDED, "scan": SCAN, "down": DOWN,
    "laps": LAPS, "reduced_first": REDUCED_FIRST,
}  # fmt: skip


def program(text: str) -> Func:
    bias = 'W: T.Buffer((40,), "float32"),' if "W[" in text else ""
    header = f"""@tw.script
def matmul(
    A: T.Buffer((13, 9), "float32"),
    B: T.Buffer((9, 40), "float32"),{bias}
    C: T.Buffer((13, 40), "float32"),
):
"""
    return parse(header + "".join(f"    {line}\n" for line in text.strip().splitlines()))


def names_of(func: Func) -> list[str]:
    return [s.name for s in sketches(func, resolve("cpu -threads=2"))]


@pytest.mark.parametrize("name", CASES)
def test_candidates_compute_what_was_written(name: str) -> None:
    func = program(CASES[name])
    rng = np.random.default_rng(0)
    for sketch in sketches(func, resolve("cpu -threads=2")):
        for row in Rowspace(sketch).sample(rng, 1):
            scheduled = sketch.trace.with_row(row.tolist()).apply(func)
            check_compiled(func, scheduled.func)


@pytest.mark.parametrize("name", ["declared", "product", "reduced_first", "turned", "tiled"])
def test_what_is_the_same_gets_the_same_sketches(name: str) -> None:
    formula = names_of(ops.matmul_func(13, 40, 9))
    assert names_of(program(CASES[name])) == ["written", *formula]


@pytest.mark.parametrize("name", ["declared", "product", "reduced_first", "turned", "tiled"])
def test_nests_are_those_of_the_formula(name: str) -> None:
    func = program(CASES[name])
    sch = Schedule(func)
    assert needs_nests(func)
    canonicalise(sch)
    assert not needs_nests(sch.func)
    assert structural_equal(sch.func, ops.matmul_func(13, 40, 9))
    check_replays(func, sch)


SAME: dict[str, Callable[[], Func]] = {
    **FORMULAS,
    "attention": lambda: ops.attention_func(2, 36, 16),
    "convolution": lambda: ops.conv2d_func(c=5, h=11, w=13, o=20, padding=1),
    "int8": lambda: ops.int8_matmul_func(33, 47, 21),
    "layer_norm": lambda: ops.layer_norm_func(9, 37),
    "softmax": lambda: ops.softmax_func(9, 37),
}


@pytest.mark.part(3)
@pytest.mark.parametrize("name", SAME)
def test_plain_loops_are_planned_like_their_formula(name: str) -> None:
    """Separated, they are the formula's program, for which there are the formula's sketches."""
    func, target = SAME[name](), Target.parse("cpu -mcpu=cascadelake -threads=2")
    plain = with_plain_statements(func, lambda _: 1)
    sch = Schedule(plain)
    canonicalise(sch)
    assert structural_equal(sch.func, func)
    assert planned(plain, target) == ["written", *planned(func, target)]


@pytest.mark.part(3)
@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "convolution",
        "convolutions_of_groups_one_after_the_other",
        "layer_norm",
        "products_of_columns",
        "residual_and_norm",
        "sums_of_channels",
        "transposed_convolution_of_bytes",
    ],
)
def test_plain_loops_get_the_sketches_of_their_formula(name: str) -> None:
    func = SAME[name]()
    names = [s.name for s in sketches_of(func, resolve("cpu -threads=2"))]
    assert names_of(with_plain_statements(func, lambda _: 1)) == ["written", *names]


def test_what_an_init_reads_is_no_operand() -> None:
    formula = names_of(ops.matmul_func(13, 40, 9))
    assert names_of(program(BIASED)) == ["written", *formula]
    assert names_of(program(ACTIVATED)) == ["written", *formula]


def test_formulas_are_left_alone() -> None:
    for func in (ops.matmul_func(8, 8, 8), ops.softmax_func(4, 8), ops.conv2d_func(c=2, h=4, w=4)):
        assert not needs_nests(func)
        assert "written" not in planned(func, resolve("cpu"))


def test_rows_that_share_a_loop_get_nests_of_their_own() -> None:
    func = parse("""
@tw.script
def softmax(A: T.Buffer((6, 40), "float32"), B: T.Buffer((6, 40), "float32")):
    M = T.alloc((6,), "float32")
    S = T.alloc((6,), "float32")
    E = T.alloc((6, 40), "float32")
    for i in range(6):
        M[i] = -3e38
        for j in range(40):
            M[i] = T.maximum(M[i], A[i, j])
        S[i] = 0.0
        for j in range(40):
            E[i, j] = T.exp(A[i, j] - M[i])
            S[i] = S[i] + E[i, j]
        for j in range(40):
            B[i, j] = E[i, j] / S[i]
""")
    sch = Schedule(func)
    canonicalise(sch)
    check_meaning(func, sch.func)
    formula = names_of(ops.softmax_func(6, 40))
    assert names_of(func) == ["written", *formula]
    rng = np.random.default_rng(0)
    for sketch in sketches(func, resolve("cpu -threads=2")):
        (row,) = Rowspace(sketch).sample(rng, 1)
        check_compiled(func, sketch.trace.with_row(row.tolist()).apply(func).func)


def test_scans_run_in_their_order() -> None:
    assert names_of(program(SCAN)) == ["written", "ordered_rows+rows", "ordered_steps+rows"]
    func = program(DOWN)
    assert names_of(func) == ["written", "ordered_lanes+rows", "ordered_steps+rows"]
    sketch = sketches(func, resolve("cpu -threads=2"))[1]
    (row,) = Rowspace(sketch).sample(np.random.default_rng(0), 1)
    assert "T.vectorized(" in str(sketch.trace.with_row(row.tolist()).apply(func).func)


def test_what_no_rule_is_for_is_left_as_written(caplog: Any) -> None:
    """A block that cannot have a nest of its own is no start for other rules."""
    with caplog.at_level(logging.WARNING):
        assert names_of(program(GUARDED)) == ["written"]
    assert not caplog.records  # it was scheduled by hand


@pytest.mark.parametrize(
    "formula", [ops.softmax_func(16, 128), ops.layer_norm_func(16, 128)], ids=lambda f: f.name
)
def test_what_was_held_in_registers_is_not_in_loops_that_are_made_anew(formula: Func) -> None:
    """Registers have no index that varies at run time."""
    target = resolve("cpu -threads=1")
    func = parse(str(model_trace(formula, target).apply(formula).func))
    assert any(b.scope == "register" for b in func.allocs)
    made = [s for s in sketches(func, target) if s.trace.steps]
    assert made
    for sketch in made:
        for row in some_rows(sketch, np.random.default_rng(0), 4).tolist():
            compile_func(sketch.trace.with_row(row).apply(func).func, target)


def test_a_program_that_no_rule_makes_anything_of(
    caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.autotune.rules.plans", lambda *_, **__: iter(()))
    with caplog.at_level(logging.WARNING):
        (sketch,) = sketches(ops.matmul_func(4, 4, 4), resolve("cpu"))
    assert sketch.name == "written"
    assert not sketch.trace.steps
    assert "no rule makes a schedule for matmul: left as written" in caplog.text
