"""make_blocks."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.find import blocks_in
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
from .programs import matmul

LETTERS = {"spatial": "S", "reduce": "R", "opaque": "O"}


def program(*lines: str) -> Func:
    """A program on integer arrays X (8 by 8), Y (64) and Z (8 by 8), of which Z is updated."""
    header = """@tw.script
def main(
    X: T.Buffer((8, 8), "int32"),
    Y: T.Buffer((64,), "int32"),
    Z: T.Buffer((8, 8), "int32"),
    D: T.Buffer((8,), "int32", value_range=(0, 8)),
):
    T.inplace(Y, Z)
"""
    return parse(header + "".join(f"    {line}\n" for line in lines))


def test_a_product_as_people_write_it(golden: Golden) -> None:
    func = program(
        "for i in range(8):",
        "    for j in range(8):",
        "        Z[i, j] = 0",
        "        for k in range(8):",
        "            Z[i, j] = Z[i, j] + X[i, k] * Y[k * 8 + j]",
    )
    check_compiled(func, golden("make_blocks/product", func, lambda s: s.make_blocks()).func)


@pytest.mark.parametrize(
    ("loops", "statement", "kinds"),
    [
        ("i, j in T.grid(8, 8)", "Z[i, j] = X[j, i] + 1", "SS"),
        ("i, j in T.grid(8, 8)", "Z[i, j] = Z[i, j] * 2", "SS"),
        ("i, j in T.grid(8, 8)", "Y[i * 8 + j] = X[i, j]", "SS"),
        ("i, j in T.grid(8, 8)", "Y[i * 7 + j] = X[i, j]", "OO"),
        ("i, j in T.grid(8, 8)", "Y[i + j] = Y[i + j] + X[i, j]", "OO"),
        ("i, j in T.grid(8, 8)", "Z[i, 0] = Z[i, 0] + X[i, j]", "SR"),
        ("i, j in T.grid(8, 8)", "Z[i, 0] = T.maximum(X[i, j], Z[i, 0])", "SR"),
        ("i, j in T.grid(8, 8)", "Z[i, 0] = Z[i, 0] - X[i, j]", "SO"),
        ("i, j in T.grid(8, 8)", "Z[i, 0] = Z[i, 0] + Z[i, 0]", "SO"),
        ("i, j in T.grid(8, 8)", "Z[i, 0] = Z[i, 1] + X[i, j]", "SO"),
        ("i, j in T.grid(8, 8)", "Z[i, 0] = X[i, j]", "SO"),
        ("i, j in T.grid(8, 7)", "Z[i, j + 1] = Z[i, j] + X[i, j]", "SO"),
        ("i, j in T.grid(7, 8)", "Z[i + 1, j] = Z[i, j] + X[i, j]", "OS"),
        ("i, j in T.grid(7, 7)", "Z[i + 1, j] = Z[i, j + 1]", "OO"),
        ("i, j in T.grid(8, 8)", "Z[D[i], j] = X[i, j]", "OS"),
        ("i, j in T.grid(8, 8)", "Z[i, j] = Z[D[i], j]", "OS"),
        ("i in T.parallel(8)", "Z[i, i] = X[i, i]", "S"),
    ],
)
def test_kinds(loops: str, statement: str, kinds: str) -> None:
    func = program(f"for {loops}:", f"    {statement}")
    sch = Schedule(func)
    sch.make_blocks()
    (block,) = blocks_in(sch.func.body)
    assert "".join(LETTERS[i.kind] for i in block.iters) == kinds
    verify(sch.func)
    check_meaning(func, sch.func)
    check_replays(func, sch)


@pytest.mark.parametrize("seed", range(60))
def test_random_statements(seed: int) -> None:
    """Whatever is called spatial is shown to be: `verify` refuses iterations that are not."""
    rng = np.random.default_rng(seed)

    def index(size: int) -> str:
        a, b, c = rng.choice(["i", "j", "k"], 3).tolist()
        forms = [
            a,
            f"({a} + {b}) % 8",
            f"{a} * 4 % 8 + {b} % 4",
            "3",
            f"(7 - {a})",
            f"{a} // 2 + {c} % 4",
        ]
        return f"({rng.choice(forms)}) % {size}"

    def place(name: str) -> str:
        return (
            f"Y[{index(8)} * 8 + {index(8)}]" if name == "Y" else f"{name}[{index(8)}, {index(8)}]"
        )

    target = place(str(rng.choice(["Y", "Z"])))
    own = target if rng.integers(2) else place(target[0])
    op = rng.choice(["+", "-", "*", "|"])
    statement = (
        f"{target} = {own} {op} {place('X')}" if rng.integers(4) else f"{target} = {place('X')}"
    )
    func = program("for i, j, k in T.grid(8, 4, 3):", f"    {statement}")
    verify(func)
    sch = Schedule(func)
    sch.make_blocks()
    verify(sch.func)
    check_meaning(func, sch.func)


def test_names_are_unique() -> None:
    sch = Schedule(program("Z[0, 0] = 1", "Z[0, 1] = 2", "Y[0] = 3"))
    assert [b.name for b in sch.make_blocks()] == ["Z", "Z_1", "Y"]


def test_what_is_in_blocks_already_stays() -> None:
    func = program(
        "for i in range(8):",
        '    with T.block("Y"):',
        "        v = T.axis.spatial(8, i)",
        "        Y[v] = X[v, 0]",
        "    Y[i + 8] = Y[i]",
    )
    sch = Schedule(func)
    (made,) = sch.make_blocks()
    assert made.name == "Y_1"
    check_meaning(func, sch.func)


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        (("for i in range(8):", "    for j in T.vectorized(8):", "        Z[i, j] = 1"), "S"),
        (("for i in range(8):", "    if X[i, 0] > 0:", "        Z[i, 0] = 1"), "S"),
        (("for i in range(8):", "    if Z[0, i] > 0:", "        Z[i, 0] = 1"), "O"),
        (
            (
                "for i in range(8):",
                "    if X[i, 0] > 0:",
                "        Z[i, 0] = 1",
                "    else:",
                "        Y[0] = Y[0] + 1",
            ),
            "O",
        ),
        (("for i in T.thread('threadIdx.x', 8):", "    Z[0, i] = 1"), "S"),
        (("Y[0] = X[0, 0] + 1",), ""),
    ],
)
def test_conditions_and_vectors_become_part_of_a_block(lines: tuple[str, ...], kinds: str) -> None:
    func = program(*lines)
    sch = Schedule(func)
    sch.make_blocks()
    (block,) = blocks_in(sch.func.body)
    assert "".join(LETTERS[i.kind] for i in block.iters) == kinds
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_other_steps_wait_for_blocks() -> None:
    """They would not see what is in none."""
    func = program("for i in range(8):", "    Z[i, 0] = 1", "    Y[i] = Z[i, 0]")
    sch = Schedule(func)
    sch.make_blocks()
    (loop,) = sch.get_loops(sch.get_block("Y"))
    sch.parallel(loop)
    check_replays(func, sch)
    later = program(
        "for i in range(8):",
        '    with T.block("Y"):',
        "        v = T.axis.spatial(8, i)",
        "        Y[v] = X[v, 0]",
        "    Z[i, 0] = Y[i + 1]",
    )
    sch = Schedule(later)
    (loop,) = sch.get_loops(sch.get_block("Y"))
    with pytest.raises(ScheduleError) as refusal:
        sch.parallel(loop)
    assert "make_blocks" in str(refusal.value)


def test_lowered_programs_stay() -> None:
    with pytest.raises(ScheduleError):
        Schedule(program("Y[T.ramp(0, 1, 8)] = Y[T.ramp(8, 1, 8)]")).make_blocks()


def test_programs_of_blocks_alone() -> None:
    with pytest.raises(ScheduleError):
        Schedule(matmul()).make_blocks()
