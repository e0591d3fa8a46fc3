"""The picture of a program: its text, badges, footprints, and the place that is pointed out."""

from __future__ import annotations

from dataclasses import replace

import tilewright as tw
from tilewright import ops
from tilewright.lab.pictures.listing import pieces, rows
from tilewright.lab.pictures.page import fragment
from tilewright.lab.pictures.program import MOST_LINES, program
from tilewright.lab.pictures.views import html_of
from tilewright.schedule.find import loops_in
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Block, Buffer, Label, seq
from tilewright.tir.parser import parse
from tilewright.tir.visit import substitute_func, walk, with_func_body

from ..autotune.selection import programs
from .checks import HOSTILE, checked, with_class, words

TARGET = tw.Target.parse("cpu -mcpu=skylake-avx512 -threads=1")


def scheduled() -> tw.Schedule:
    sch = tw.Schedule(ops.matmul_func(512, 512, 512))
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, factors=[None, 8])
    j0, j1 = sch.split(j, factors=[None, 16])
    sch.reorder(i0, j0, k, i1, j1)
    sch.parallel(i0)
    sch.unroll(i1)
    sch.vectorize(j1)
    return sch


def test_the_text_is_the_program() -> None:
    func = scheduled().func
    main = checked(program(func, TARGET))
    text = "\n".join("".join(line.itertext()) for line in with_class(main, "l"))
    assert structural_equal(parse(text), func)


def test_badges_and_footprints_are_words() -> None:
    main = checked(program(scheduled().func, TARGET))
    notes = [" ".join(filter(None, map(words, note))) for note in with_class(main, "n")]
    assert notes == [
        "parallel 1.03 MiB in L3 B 1 MiB, C 16 KiB, A 16 KiB",
        "48.5 KiB in L2 B 32 KiB, A 16 KiB, C 512 B",
        "608 B in L1 C 512 B, B 64 B, A 32 B",
        "unrolled 132 B in L1 C 64 B, B 64 B, A 4 B",
        "vector 12 B in L1 C 4 B, A 4 B, B 4 B",
    ]


def test_the_place_is_pointed_out() -> None:
    sch = scheduled()
    func, loop = sch.func, sch.get_loop("k")
    main = checked(program(func, TARGET, mark=loop))
    (here,) = with_class(main, "here")
    assert words(here) == "for k in range(512): # <-- here"
    assert not list(with_class(checked(program(func, TARGET)), "here"))


def test_axes_of_gpus_are_badges_and_their_memories_scopes() -> None:
    sch = tw.Schedule(ops.matmul_func(64, 64, 64))
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    main = checked(program(sch.func))
    assert [words(b) for b in with_class(main, "tw-badge")] == ["blockIdx.x", "threadIdx.x"]
    assert "global" in words(next(with_class(main, "n")))


def test_programs_with_open_decisions_have_no_footprints() -> None:
    sch = tw.Schedule(ops.matmul_func(64, 64, 64), symbolic=True)
    i, *_ = sch.get_loops(sch.get_block("C"))
    sch.split(i, factors=list(sch.sample_perfect_tile(i, 2)))
    main = checked(program(sch.func, TARGET))
    assert not list(with_class(main, "n"))
    assert not list(with_class(main, "caption"))


def test_lowered_programs_show_themselves() -> None:
    func = parse(
        """
@tw.script
def f(A: T.Buffer((64,), "float32")):
    for i in range(4):
        A[T.ramp(i * 16, 1, 16)] = T.broadcast(T.float32(0.0), 16)
"""
    )
    assert "for i in range(4):" in words(checked(program(func, TARGET)))


def test_names_of_databases_are_text() -> None:
    func = ops.matmul_func(8, 8, 8)
    block = next(n for n in walk(func) if type(n) is Block)
    renamed = substitute_func(
        func,
        {
            **{p: replace(p, name=HOSTILE) for p in func.params if type(p) is Buffer},
            block.label: Label(HOSTILE),
        },
    )
    main = checked(program(replace(renamed, name=HOSTILE), TARGET))
    assert "script" in words(main)


def test_the_same_name_twice_is_told_apart() -> None:
    func = ops.matmul_func(8, 8, 8)
    a, b, _ = func.params
    assert type(b) is Buffer
    func = substitute_func(func, {b: replace(b, name=a.name)})
    held = next(row.held[0] for row in rows(func, TARGET) if row.held)
    assert {name for name, _ in held.buffers} == {"A", "A_1", "C"}


def test_long_programs_are_small_and_end() -> None:
    func = scheduled().func
    shown = fragment(program(with_func_body(func, seq(*[func.body] * 84)), TARGET))
    assert 1000 <= shown.count('class="l"') <= 1020
    assert len(shown) < 300_000
    func = with_func_body(func, seq(*[func.body] * 200))
    main = checked(program(func, TARGET))
    assert len(list(with_class(main, "l"))) == MOST_LINES + 1
    assert "more lines" in words(main)


def test_every_operator_shows_itself() -> None:
    for func in programs():
        main = checked(program(func, TARGET))
        assert len(list(with_class(main, "n"))) == len(list(loops_in(func.body)))


def test_programs_show_themselves_in_notebooks() -> None:
    func = ops.matmul_func(8, 8, 8)
    assert func._repr_html_() == html_of(func)
    assert "tw-program" in html_of(func)


def test_pieces_of_a_line_are_the_line() -> None:
    line = '    with T.block("a # \\" b"): x[i] = T.select(i < 3, 0.0, y[i])  # <-- here'
    assert "".join(piece for _, piece in pieces(line)) == line
    assert [(kind, piece) for kind, piece in pieces(line) if kind] == [
        ("keyword", "with"),
        ("call", "T.block"),
        ("string", '"a # \\" b"'),
        ("buffer", "x"),
        ("call", "T.select"),
        ("buffer", "y"),
        ("comment", "# <-- here"),
    ]
