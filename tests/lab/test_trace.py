"""The pictures of traces and schedules: steps, and the difference that each made."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.lab.pictures import trace
from tilewright.lab.pictures.page import fragment
from tilewright.lab.pictures.trace import Change, line_changes, schedule_view, summary
from tilewright.lab.pictures.views import html_of
from tilewright.schedule.trace import Step

from .checks import HOSTILE, checked, with_class, words


def scheduled(steps: int = 0) -> tw.Schedule:
    sch = tw.Schedule(ops.matmul_func(64, 64, 64))
    i, *_ = sch.get_loops(sch.get_block("C"))
    outer, _ = sch.split(i, factors=[None, 8])
    sch.parallel(outer)
    for n in range(steps):
        sch.annotate(outer, f"note{n}", n)
    return sch


def test_each_step_shows_what_it_changed() -> None:
    main = checked(schedule_view(scheduled()))
    entries = [words(entry) for entry in main.find(".//ol").findall("li")]
    assert entries[:2] == ["b0 = sch.get_block(0) # C", "l1, l2, l3 = sch.get_loops(b0)"]
    assert entries[2].startswith("l4, l5 = sch.split(l1, factors=[None, 8]) -2 +5 ")
    assert entries[3].startswith("sch.parallel(l4) -1 +1 ")
    (taken,) = main.findall(".//li[4]//del")
    (added,) = main.findall(".//li[4]//ins")
    assert words(taken) == "- for i_0 in range(8):"
    assert words(added) == "+ for i_0 in T.parallel(8):"


def test_the_program_comes_first() -> None:
    main = checked(schedule_view(scheduled()))
    assert words(main.find(".//pre")).startswith("@tw.script")
    assert scheduled()._repr_html_().count('class="tw-trace"') == 1


def test_a_trace_by_itself_has_steps_alone() -> None:
    main = checked(trace.view(scheduled().trace))
    assert len(main.findall(".//li")) == 4
    assert not main.findall(".//details")
    assert html_of(scheduled().trace) == scheduled().trace._repr_html_()


def test_nothing_is_no_list() -> None:
    assert not checked(trace.view(tw.Trace())).findall(".//ol")
    main = checked(schedule_view(tw.Schedule(ops.matmul_func(4, 4, 4))))
    assert "0 steps." in words(main)


def test_several_programs() -> None:
    sch = tw.Schedule({"one": ops.matmul_func(4, 4, 4), "two": ops.matmul_func(8, 8, 8)})
    sch.parallel(sch.get_loop("i"))
    sch.work_on("two")
    sch.unroll(sch.get_loop("j"))
    main = checked(schedule_view(sch))
    heads = [words(head) for head in main.iter("h4")]
    assert heads == ["Program one", "Program two, where steps are applied", "Steps"]
    changed = [words(line) for line in main.iter("ins")]
    assert changed == ["+ for i in T.parallel(4):", "+ for j in T.unrolled(8):"]


def test_open_decisions_are_listed() -> None:
    sch = tw.Schedule(ops.matmul_func(64, 64, 64), symbolic=True)
    sch.sample_perfect_tile(sch.get_loop("i"), 2, 16)
    assert "Open decisions:" in words(checked(schedule_view(sch)))
    assert " from 1 to 16" in words(checked(schedule_view(sch)))


def test_long_traces_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    compared, changes = [], trace.changes

    def counted(before: tw.Func, after: tw.Func) -> list[Change]:
        compared.append(before)
        return changes(before, after)

    monkeypatch.setattr(trace, "changes", counted)
    shown = fragment(schedule_view(scheduled(500)))
    assert len(shown) < 300_000
    assert len(compared) == trace.MOST_COMPARED
    main = checked(schedule_view(scheduled(500)))
    assert len(main.findall(".//li")) == 504
    assert len(main.findall(".//li/details")) == trace.MOST_COMPARED
    assert f"the last {trace.MOST_COMPARED} steps are shown, of 402 others not" in words(main)


def test_long_differences_are_cut() -> None:
    found = [Change("+", f"x{n}" * 10_000) for n in range(100)]
    main = checked(trace.picture(found, "a long one", 40))
    assert len(list(main.iter("ins"))) == 40
    assert "… 60 more lines" in words(main)
    assert len(words(main)) < 40 * 200


def test_notes_of_databases_are_text() -> None:
    step = replace(scheduled().trace.steps[0], note=HOSTILE)
    main = checked(trace.view(tw.Trace((step,))))
    assert "<script>" in words(main)


def test_unknown_primitives_show_as_written() -> None:
    step = Step("no_such_step", (("loop", 3),))
    assert "sch.no_such_step(loop=3)" in words(checked(trace.view(tw.Trace((step,)))))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("a b c", "a b c", ""),
        ("a b c d e", "a b x d e", " b,-c,+x, d"),
        ("a b c d e f g h", "x b c d e f g y", "-a,+x, b,…, g,-h,+y"),
        ("a", "b", "-a,+b"),
        ("", "b", "-,+b"),
        ("a b", "a b c", " b,+c"),
    ],
)
def test_differences_of_lines(before: str, after: str, found: str) -> None:
    result = line_changes(before.split(" "), after.split(" "))
    assert ",".join(f"{c.sign}{c.text}" for c in result) == found


def test_another_indentation_is_no_difference() -> None:
    found = line_changes(["for i:", "  a", "  b"], ["for i:", "  for j:", "    a", "    b"])
    assert found == [
        Change(" ", "for i:"),
        Change("+", "  for j:"),
        Change(" ", "    a"),
    ]
    assert summary(found) == "-0 +1"


def test_differences_are_marked_by_signs() -> None:
    main = checked(trace.picture([Change("-", "a"), Change("+", "b")], "x", 10))
    assert [words(line) for line in with_class(main, "l")] == ["- a", "+ b"]
