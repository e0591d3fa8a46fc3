"""The picture of an error: what does not hold, where, what clashes, and what helps."""

from __future__ import annotations

import copy
import importlib.util
import re
import runpy
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.lab.pictures import error_text
from tilewright.lab.pictures.error import MOST_ROWS, view
from tilewright.tir.ir import seq
from tilewright.tir.parser import parse
from tilewright.tir.visit import with_func_body

from .checks import HOSTILE, checked, with_class, words

WAVE = """
@tw.script
def wave(A: T.Buffer((64, 64), "float32")):
    T.inplace(A)
    for i, j in T.grid(62, 62):
        with T.block("A"):
            vi = T.axis.opaque(62, i)
            vj = T.axis.opaque(62, j)
            A[vi + 1, vj + 1] = A[vi, vj + 2] + 1.0
"""


def refused(schedule: tw.Schedule, step: Callable[[tw.Schedule], object]) -> tw.ScheduleError:
    with pytest.raises(tw.ScheduleError) as caught:
        step(schedule)
    return caught.value


def facts(main: Any) -> dict[str, str]:
    names, values = ([words(e) for e in main.iter(tag)] for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def test_two_iterations_that_clash() -> None:
    sch = tw.Schedule(parse(WAVE))
    i, j = sch.get_loops(sch.get_block("A"))
    main = checked(view(refused(sch, lambda s: s.reorder(j, i))))
    head = next(with_class(main, "tw-refusal"))
    assert words(head).startswith("ScheduleError: block A must run in the order of loops i, j")
    known = facts(main)
    assert known["Refused"] == "step 2, sch.reorder(l2, l1) l2 is j, l1 is i"
    assert known["What clashes"] == (
        "iteration i=0, j=1 writes A[1, 2], iteration i=1, j=0 reads it"
    )
    assert [words(line) for line in with_class(main, "here")] == ['with T.block("A"): # <-- here']


def test_what_was_expected() -> None:
    sch = tw.Schedule(ops.matmul_func(64, 64, 64))
    i, *_ = sch.get_loops(sch.get_block("C"))
    error = refused(sch, lambda s: s.split(i, factors=[None, 24], perfect=True))
    known = facts(checked(view(error)))
    assert known["Expected"] == "a divisor of 64; found 24"


def test_handles_that_ended() -> None:
    sch = tw.Schedule(ops.matmul_func(64, 64, 64))
    i, *_ = sch.get_loops(sch.get_block("C"))
    sch.split(i, factors=[8, 8])
    known = facts(checked(view(refused(sch, lambda s: s.parallel(i)))))
    assert known["Handle"].startswith("loop i ended with step 2")


def test_long_programs_are_shown_around_the_place() -> None:
    func = ops.matmul_func(64, 64, 64)
    sch = tw.Schedule(
        with_func_body(func, seq(*(ops.matmul_func(8, 8, 8).body for _ in range(40))))
    )
    loop = sch.get_loops(sch.get_block(20))[-1]
    main = checked(view(refused(sch, lambda s: s.parallel(loop))))
    lines = [words(line) for line in with_class(main, "l")]
    assert len(lines) == MOST_ROWS + 2
    assert lines[0].startswith("… ")
    assert lines[-1].startswith("… ")
    assert len(list(with_class(main, "here"))) == 1


def test_errors_of_other_processes_have_their_texts() -> None:
    sch = tw.Schedule(parse(WAVE))
    i, j = sch.get_loops(sch.get_block("A"))
    error = refused(sch, lambda s: s.reorder(j, i))
    main = checked(view(copy.copy(error)))
    assert len(list(with_class(main, "here"))) == 1
    assert facts(main) == facts(checked(view(error)))


def test_other_errors_are_their_texts() -> None:
    with pytest.raises(tw.ParseError) as caught:
        parse("@tw.script\ndef f(:\n")
    main = checked(view(caught.value))
    assert words(main).startswith("ParseError: <text>:2:7:")
    assert "^" in words(main.find(".//pre"))
    plain = tw.TargetError("no {0}", HOSTILE)
    assert not checked(view(plain)).findall(".//pre")
    assert "tw-error" in plain._repr_html_()


def test_other_pythons_show_the_whole_traceback() -> None:
    sch = tw.Schedule(ops.matmul_func(8, 8, 8))
    error = refused(sch, lambda s: s.get_block("D"))
    shown = "".join(traceback.format_exception(error))
    assert shown.startswith("Traceback (most recent call last)")
    assert "schedule.py" in shown
    assert str(error) in shown


def test_many_frames_are_left_out() -> None:
    def deeper(sch: tw.Schedule, more: int) -> None:
        if more:
            deeper(sch, more - 1)
        sch.get_block("D")

    error = refused(tw.Schedule(ops.matmul_func(8, 8, 8)), lambda s: deeper(s, 99))
    shown = error_text.lines(error)
    assert shown[0] == f"ScheduleError: {error.condition}"
    assert sum("in deeper" in line for line in shown) == error_text.MOST_FRAMES
    assert f"... {102 - error_text.MOST_FRAMES} frames further out" in shown
    assert shown[-3].strip() == 'sch.get_block("D")'


def test_files_of_users_may_be_called_like_modules_of_python(tmp_path: Path) -> None:
    file = tmp_path / "profile.py"
    file.write_text("def ask(sch):\n    return sch.get_block('D')\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("profile", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = error_text.lines(refused(tw.Schedule(ops.matmul_func(8, 8, 8)), module.ask))
    at = shown.index(f"File {file}, line 2, in ask")
    assert shown[at + 1] == "    return sch.get_block('D')"


def test_frames_of_python_itself_are_left_out(tmp_path: Path) -> None:
    def ask(_: object) -> str:
        tw.Schedule(ops.matmul_func(8, 8, 8)).get_block("D")
        return ""

    def by_a_pattern(_: tw.Schedule) -> None:
        re.sub("x", ask, "x")

    def by_a_file(sch: tw.Schedule) -> None:
        runpy.run_path(str(file), {"ask": lambda: ask(sch)})

    file = tmp_path / "started.py"
    file.write_text("ask()\n", encoding="utf-8")
    for step in (by_a_pattern, by_a_file):
        shown = error_text.lines(refused(tw.Schedule(ops.matmul_func(8, 8, 8)), step))
        files = {line.partition(",")[0] for line in shown if line.startswith("File ")}
        assert any(line.endswith("in ask") for line in shown)
        assert files <= {f"File {__file__}", f"File {file}"}


def test_a_circle_of_causes_ends() -> None:
    first, second = tw.TargetError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert "  ValueError: second" in error_text.lines(first)


def test_texts_of_users_are_no_markup() -> None:
    sch = tw.Schedule(ops.matmul_func(8, 8, 8))
    assert "<script>" in words(checked(view(refused(sch, lambda s: s.get_block(HOSTILE)))))


class _Unhashable(Exception):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("causes are told apart by identity")


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("cause", [_Unhashable("odd"), _Mute()], ids=["unhashable", "mute"])
def test_causes_of_odd_classes_are_shown(cause: Exception) -> None:
    error = tw.TilewrightError("refused")
    error.__cause__ = cause
    shown = error_text.lines(error)
    assert shown[0] == "TilewrightError: refused"
    assert any(type(cause).__name__ in line for line in shown[1:])
