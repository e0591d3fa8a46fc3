"""Programs, steps, differences and assembly as text: golden files at three widths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.text import Text

import tilewright as tw
from tilewright import ops
from tilewright.lab.pictures.assembly_lines import Assembly
from tilewright.lab.terminal import (
    assembly_lines,
    difference_lines,
    folded,
    program_lines,
    sentence,
    step_lines,
)
from tilewright.tir.equality import structural_equal
from tilewright.tir.parser import parse

from ..golden import check_golden
from .checks import HOSTILE

GOLDENS = Path(__file__).parent / "goldens"
WIDTHS = (40, 80, 200)
TARGET = tw.Target.parse("cpu -mcpu=skylake-avx512 -threads=1")
ASSEMBLY = """\
matmul:
	xorl	%eax, %eax
.LBB0_1:
	vbroadcastss	4(%rdi,%rax,8), %zmm2
	vfmadd231ps	1024(%rsi,%rax), %zmm2, %zmm1
	addq	$8, %rax
	jne	.LBB0_1
	retq
"""


def scheduled() -> tw.Schedule:
    sch = tw.Schedule(ops.matmul_func(512, 512, 512))
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, factors=[None, 8])
    j0, j1, j2 = sch.split(j, factors=[None, 2, 16])
    k0, k1 = sch.split(k, factors=[None, 4])
    sch.reorder(i0, j0, k0, k1, i1, j1, j2)
    sch.vectorize(j2)
    sch.unroll(j1)
    sch.parallel(i0)
    sch.reverse_compute_at(sch.cache_write(c, 0, "register"), j0)
    return sch


def assembly(text: str = ASSEMBLY) -> Assembly:
    """An assembly of which the first of the loops runs the lines 2 to 6, and the fourth line 4."""
    lines = range(len(text.rstrip().split("\n")))
    loops = [(3 if n == 4 else 0) if 2 <= n <= 6 else None for n in lines]
    return Assembly("asm", text, scheduled().func, loops)


def everything(width: int | None) -> list[Text]:
    sch = scheduled()
    return [
        *program_lines(sch.func, TARGET, width),
        Text(""),
        *step_lines(sch.trace, width),
        Text(""),
        *difference_lines(sch.original, sch.func, width),
        Text(""),
        *assembly_lines(assembly(), width, whole=True),
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits(width: int, request: pytest.FixtureRequest) -> None:
    lines = everything(width)
    assert max(line.cell_len for line in lines) <= width
    text = "\n".join(line.plain for line in lines)
    check_golden(GOLDENS / f"show-{width}.txt", text, update=request.config.option.update)


@pytest.mark.parametrize("width", [80, 200, None])
def test_a_program_with_its_notes_is_still_one(width: int | None) -> None:
    func = scheduled().func
    text = "\n".join(line.plain for line in program_lines(func, TARGET, width))
    assert "# parallel" in text
    assert structural_equal(parse(text), func)


def test_notes_are_below_each_other_where_there_is_room() -> None:
    lines = [line.plain for line in program_lines(scheduled().func, TARGET, None)]
    columns = {line.index("# ") for line in lines if "# " in line}
    assert columns == {max(len(line.partition("#")[0]) for line in lines if "# " in line)}


def test_the_hot_block_alone() -> None:
    lines = [line.plain for line in assembly_lines(assembly(), None, whole=False)]
    assert len(lines) == 5
    assert lines[0] == "> i_0  .LBB0_1:"
    assert [line[:7] for line in lines] == ["> i_0  "] * 2 + ["> k_1  "] + ["> i_0  "] * 2
    straight = assembly("kernel:\n\tretq\n")
    assert [line.plain for line in assembly_lines(straight, None, whole=False)] == [
        "  kernel:", "          retq",
    ]  # fmt: skip


def test_code_that_does_not_tell_its_loops_says_so() -> None:
    unknown = Assembly("ptx", ASSEMBLY, scheduled().func, None)
    *lines, last = [line.plain for line in assembly_lines(unknown, None, whole=False)]
    assert lines[0] == "> .LBB0_1:"
    assert last == "This code does not tell which loop a line is of."


@pytest.mark.parametrize(
    ("line", "width", "parts"),
    [
        ("  a bb ccc", 80, ["  a bb ccc"]),
        ("  a bb ccc", None, ["  a bb ccc"]),
        ("  a bb ccc", 9, ["  a bb", "    ccc"]),
        ("aaa bbb ccc ddd", 8, ["aaa bbb", "    ccc", "    ddd"]),
        ("x" * 20, 8, ["x" * 8, "    xxxx", "    xxxx", "    xxxx"]),
        ("漢字 漢字", 5, ["漢字", "  漢", "  字"]),
    ],
)
def test_long_lines_go_on_further_in(line: str, width: int | None, parts: list[str]) -> None:
    assert [part.plain for part in folded(Text(line), width)] == parts


def test_gutters_stay_beside_their_lines() -> None:
    parts = [part.plain for part in folded(Text("  a bb ccc"), 9, "+ ")]
    assert parts == ["+   a bb", "    ccc"]


def test_signs_and_colours_say_the_same() -> None:
    sch = scheduled()
    for line in difference_lines(sch.original, sch.func, 80):
        styles = {str(span.style) for span in line.spans}
        assert ("green" in styles and "red" not in styles) or not line.plain.startswith("+")
        assert "red" in styles or not line.plain.startswith("-")


@pytest.mark.parametrize("shown", [
    lambda: sentence(HOSTILE, 80),
    lambda: assembly_lines(assembly(f"{HOSTILE}\n{ASSEMBLY}"), 80, whole=True),
])  # fmt: skip
def test_no_control_characters(shown: Callable[[], list[Text]]) -> None:
    assert all(c.isprintable() for line in shown() for c in line.plain)
