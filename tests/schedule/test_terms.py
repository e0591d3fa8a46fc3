"""`select_terms`: a reduction that a condition leaves out terms of becomes one of all terms."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.autotune.rules.canonicalise import canonicalise, needs_nests
from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.block_queries import has_reduction
from tilewright.schedule.find import blocks_in
from tilewright.tir.ir import Func, Store
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_meaning

UPDATES = {
    "sum": ("0", "C[vi] + X[vi, vk]"),
    "prod": ("1", "X[vi, vk] * C[vi]"),
    "max": ("0", "T.maximum(C[vi], X[vi, vk])"),
    "min": ("1", "T.minimum(C[vi], X[vi, vk])"),
}


def program(
    update: str = "C[vi] + X[vi, vk]",
    *,
    start: str = "0",
    condition: str = "M[vi, vk]",
    dtype: str = "float32",
) -> Func:
    return parse(f"""
@tw.script
def f(
    X: T.Buffer((4, 6), "{dtype}"),
    M: T.Buffer((4, 6), "bool"),
    D: T.Buffer((4, 6), "int32"),
    C: T.Buffer((4,), "{dtype}"),
):
    for i, k in T.grid(4, 6):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = {start}
            if {condition}:
                C[vi] = {update}
""")


def selected(func: Func) -> Func:
    sch = Schedule(func)
    sch.select_terms(sch.get_block("C"))
    verify(sch.func)
    return sch.func


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
@pytest.mark.parametrize("name", UPDATES)
def test_each_reduction_keeps_its_meaning(name: str, dtype: str) -> None:
    start, update = UPDATES[name]
    func = program(update, start=start, dtype=dtype)
    check_meaning(func, selected(func))


def test_conditions_in_each_other(golden: Golden) -> None:
    """The inner one divides by what the outer one tells to be no zero."""
    func = program(condition="D[vi, vk] != 0")
    inner = "if 7 // D[vi, vk] > 2:\n                    C[vi] = C[vi] + X[vi, vk]"
    text = str(func).replace("C[vi] = C[vi] + X[vi, vk]", inner)
    golden("select_terms/nested", parse(text), lambda sch: sch.select_terms(sch.get_block("C")))


def test_a_sum_that_starts_from_a_negative_zero_keeps_it() -> None:
    func = program(start="-0.0")
    x, m = np.ones((4, 6), np.float32), np.zeros((4, 6), bool)
    out = np.ones(4, np.float32)
    tw.build(Schedule(selected(func)), "cpu -threads=1")(x, m, np.ones((4, 6), np.int32), out)
    assert np.signbit(out).all()


@pytest.mark.parametrize(
    ("text", "become"),
    [
        ("            if M[vi, vk]:\n                C[vi] = C", "            C[vi] = C"),
        ("X[vi, vk]", "X[vi, vk]\n            else:\n                C[vi] = C[vi] + 1"),
        ("            with T.init():\n                C[vi] = 0.0\n", ""),
    ],
    ids=["no condition", "another branch", "no init"],
)
def test_what_is_no_such_reduction_is_refused(text: str, become: str) -> None:
    changed = str(program()).replace(text, become)
    sch = Schedule(parse(changed))
    before = sch.func
    with pytest.raises(ScheduleError):
        sch.select_terms(sch.get_block("C"))
    assert sch.func is before


def test_an_init_under_a_condition_is_refused() -> None:
    """Elements that are not computed would be read."""
    text = (
        str(program())
        .replace("            if M[vi, vk]:\n    ", "")
        .replace(
            "            with T.init", "            T.where(M[vi, 0])\n            with T.init"
        )
    )
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        sch.select_terms(sch.get_block("C"))


LOOPS = """
@tw.script
def f(X: T.Buffer((4, 6), "float32"), M: T.Buffer((4, 6), "bool"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        C[i] = 0.0
        for k in range(6):
            if M[i, k]:
                C[i] = C[i] + X[i, k]
"""


@pytest.mark.parametrize("func", [parse(LOOPS), program()], ids=["loops", "block"])
def test_written_programs_become_one_reduction(func: Func) -> None:
    assert needs_nests(func)
    sch = Schedule(func)
    canonicalise(sch)
    (block,) = blocks_in(sch.func.body)
    assert type(block.body) is Store
    assert has_reduction(block)
    check_meaning(func, sch.func)
