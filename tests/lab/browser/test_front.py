"""The front end of the lab: what it draws, keys, and the functions that have logic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Locator, Page, expect

import tilewright as tw
from tilewright import Schedule, TuningDatabase, ops, te
from tilewright.autotune.records import schedule_record, target_record, toolchain_record
from tilewright.base.durations import format_change, format_seconds
from tilewright.base.errors import DatabaseError
from tilewright.base.text import format_bytes
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.generator import CodeGenerator
from tilewright.lab.workbench import commands, records
from tilewright.lab.workbench.answers import page_of
from tilewright.lab.workbench.measuring import LabRun, VersionResults
from tilewright.lab.workbench.versions import Comparison, Timing, Version
from tilewright.lab.workbench.workbench import Workbench
from tilewright.tir.ir import Func
from tilewright.tuning_db.results import Verdict
from tilewright.tuning_db.values import Verification, utc_now

from ...layers import LAYERS
from ..databases import CPU, Tuning
from .accessibility import violations
from .front import open_front

HOSTILE = "<img src=x onerror=\"document.title='run'\">"


@pytest.fixture
def bench() -> Workbench:
    return Workbench(ops.matmul_func(64, 48, 32))


def applied(bench: Workbench, op: str, **args: Any) -> None:
    answer = bench.do({"do": "apply", "op": op, "args": args})
    assert answer["ok"], answer


def test_the_tree_is_operated_by_keys(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    rows = lab.get_by_role("treeitem")
    assert [r.get_attribute("tabindex") for r in rows.all()] == ["0", "-1", "-1", "-1"]
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(rows.nth(2)).to_be_focused()
    page.keyboard.press("Enter")
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    expect(lab.get_by_role("heading", name="Moves at loop k")).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    expect(rows).to_have_count(1)
    expect(rows.first).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowRight")
    expect(rows).to_have_count(4)
    page.keyboard.press("End")
    expect(rows.last).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(rows.nth(2)).to_be_focused()


def test_the_kernels_of_a_program_of_several_products(page: Page) -> None:
    lab = open_front(page, Workbench(LAYERS["two_layers"]()))
    says = "Unscheduled, it is built as 2 kernels: mlp_0, mlp_1."
    expect(lab.locator("header.head")).to_contain_text(says)
    expect(lab.locator("header.head code")).to_have_text(
        'tw.lab(tw.kernels(func, target)["mlp_0"], target)'
    )


def test_the_tree_has_the_bytes_of_each_memory(page: Page) -> None:
    sch = Schedule(ops.matmul_func(64, 48, 32))
    block = sch.get_block("C")
    copy = sch.cache_write(block, 0, "register")
    sch.reverse_compute_at(copy, sch.get_loops(block)[1])
    lab = open_front(page, Workbench(sch))
    shown = lab.locator(".footprint").first
    expect(shown).to_have_text(re.compile(r"^ 4 B registers [\d.]+ KiB L1$"))


def nests(*sizes: int) -> Func:
    """A program with a nest of a loop for each size: the largest, block C, takes longest."""
    params = ", ".join(f'A{n}: T.Buffer(({size},), "float32")' for n, size in enumerate(sizes))
    lines = ["@tw.script", f"def nests({params}):"]
    lines.append(f"    T.inplace({', '.join(f'A{n}' for n in range(len(sizes)))})")
    for n, size in enumerate(sizes):
        block = "C" if size == max(sizes) else f"B{n}"
        lines += [
            f"    for i{n} in T.grid({size}):",
            f'        with T.block("{block}"):',
            f"            v = T.axis.spatial({size}, i{n})",
            f"            A{n}[v] = T.exp(A{n}[v])",
        ]
    return tw.script("\n".join(lines))


def test_the_lab_opens_at_the_nest_that_takes_longest(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in a later page of the tree, and further down than the pane shows."""
    sizes = [64] * 30
    sizes[20] = 4096
    monkeypatch.setattr(commands, "PAGE", 16)
    monkeypatch.setattr(commands, "page_of", lambda given, most: page_of(given, min(most, 16)))
    bench = Workbench(nests(*sizes), CPU.text)
    lab = open_front(page, bench)
    expect(lab.get_by_role("heading", name="Moves at loop i20")).to_be_visible()
    row = lab.locator('[role=treeitem][aria-selected="true"]')
    expect(row).to_contain_text("for i20 in 4096")
    expect(row).to_be_in_viewport()
    expect(row).to_have_attribute("tabindex", "0")


def test_what_is_selected_is_shown_in_the_text_too(page: Page) -> None:
    lab = open_front(page, Workbench(nests(*[64] * 20, 4096), CPU.text))
    expect(lab.locator('[role=treeitem][aria-selected="true"]')).to_be_in_viewport()
    lab.get_by_role("button", name="Text", exact=True).click()
    line = lab.locator(".program .line.hot")
    expect(line).to_contain_text("for i20 in range(4096):")
    expect(line).to_be_in_viewport()
    lab.get_by_role("button", name="Tree", exact=True).click()
    expect(lab.locator('[role=treeitem][aria-selected="true"]')).to_be_in_viewport()


def test_a_record_is_opened_at_the_nest_that_takes_longest(page: Page, tmp_path: Path) -> None:
    """What was selected is in it too, and stays so only where people go from version to version."""
    func = nests(64, 600, 512)
    tuning = Tuning(tmp_path / "nests.db", func)
    tuning.trial(tuning.start(untuned=8), 8, 1e-6)
    lab = open_front(page, Workbench(func, CPU.text, tuning.database))
    expect(lab.get_by_role("heading", name="Moves at loop i1")).to_be_visible()
    lab.get_by_role("treeitem").first.click()
    expect(lab.get_by_role("heading", name="Moves at loop i0")).to_be_visible()
    lab.get_by_role("tab", name="Records").click()
    lab.get_by_role("button", name=re.compile("Open schedule")).click()
    expect(lab.locator(".version[aria-current] .id")).to_have_text("v1")
    expect(lab.get_by_role("heading", name="Moves at loop i1_0")).to_be_visible()
    lab.get_by_role("treeitem").first.click()
    lab.locator(".version", has_text="as written").click()
    expect(lab.locator(".version[aria-current] .id")).to_have_text("v0")
    expect(lab.get_by_role("heading", name="Moves at loop i0")).to_be_visible()
    lab.get_by_role("treeitem").nth(2).click()  # the loop that the record splits
    lab.locator(".version", has_text="schedule").click()
    expect(lab.get_by_role("heading", name="Moves at loop i1_0")).to_be_visible()


def test_tabs_are_operated_by_keys(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    tabs = lab.get_by_role("tab")
    tabs.first.focus()
    page.keyboard.press("ArrowRight")
    expect(tabs.nth(1)).to_be_focused()
    expect(lab.get_by_role("tabpanel", name=tabs.nth(1).inner_text())).to_be_visible()
    page.keyboard.press("End")
    expect(tabs.last).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(tabs.first).to_be_focused()


def test_a_move_is_taken_by_keys_and_focus_is_not_lost(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    lab.get_by_role("button", name="sch.parallel(i)").focus()
    page.keyboard.press("Enter")
    expect(lab.locator(".version[aria-current]")).to_contain_text("parallel(i)")
    expect(lab.get_by_role("treeitem").first).to_contain_text("parallel")
    assert page.evaluate("document.querySelector('#lab').contains(document.activeElement)")
    lab.get_by_role("button", name="Undo").click()
    expect(lab.locator(".version[aria-current]")).to_contain_text("as written")
    expect(lab.get_by_role("button", name="Undo")).to_be_disabled()
    lab.get_by_role("button", name="Redo").click()
    expect(lab.locator(".version[aria-current]")).to_contain_text("parallel(i)")


def test_refusals_name_the_loop_in_the_way(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    lab.get_by_role("treeitem").nth(2).click()
    lab.get_by_text("refused").click()
    refusal = lab.get_by_role("button", name="parallel(k)")
    refusal.click()
    expect(refusal).to_have_attribute("aria-expanded", "true")
    expect(lab.locator(".refused .error")).to_contain_text("Hint:")
    expect(lab.locator(".in-the-way")).to_contain_text("in the way")
    assert violations(page) == []
    refusal.click()
    expect(lab.locator(".in-the-way")).to_have_count(0)


def test_arguments_are_typed_tried_and_applied(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    lab.get_by_role("button", name="Other arguments for split").click()
    form = lab.locator("form")
    assert form.get_by_label("loop").input_value() == '"i"'
    form.get_by_label("factors").fill("[null, 5]")
    form.get_by_role("button", name="Try").click()
    expect(form.get_by_role("status")).to_contain_text("Predicted:")
    form.get_by_label("factors").fill("[null, null]")
    form.get_by_role("button", name="Try").click()
    expect(form.get_by_role("status")).to_contain_text("factor")
    form.get_by_label("factors").fill("[null, 4]")
    form.get_by_role("button", name="Apply").click()
    expect(lab.locator(".version[aria-current]")).to_contain_text("split(i, factors=[None, 4])")
    expect(lab.locator("form")).to_have_count(0)


def test_answers_are_of_the_version_that_was_shown(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    lab.get_by_role("button", name="sch.parallel(i)").wait_for()
    page.evaluate("hold()")
    lab.get_by_role("button", name="sch.parallel(i)").click()
    lab.get_by_role("tab", name="Export").click()  # asked for behind the step
    page.evaluate("release()")
    expect(lab.locator(".source")).to_contain_text("parallel")
    lab.get_by_role("button", name="Undo").click()
    expect(lab.locator(".version[aria-current] .id")).to_have_text("v0")
    expect(lab.locator(".source")).not_to_contain_text("parallel")


def test_moves_are_of_the_version_that_was_shown(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    lab.get_by_role("button", name="sch.parallel(i)").wait_for()
    page.evaluate("hold()")
    lab.get_by_role("button", name="sch.parallel(i)").click()
    lab.get_by_role("treeitem").nth(1).click()  # its moves are asked for behind the step
    expect(lab.get_by_role("heading", name="Moves at loop j")).to_be_visible()
    page.evaluate("release()")
    expect(lab.locator(".version[aria-current] .id")).to_have_text("v1")
    lab.get_by_role("button", name="Undo").click()
    expect(lab.locator(".version[aria-current] .id")).to_have_text("v0")
    lab.get_by_role("treeitem").nth(1).click()
    lab.locator(".move").first.wait_for()
    bench.do({"do": "go", "version": "v0"})
    place = bench.state()["tree"]["nodes"][1]["id"]
    moves = bench.do({"do": "moves", "place": place})["result"]["moves"]
    shown = {move.get_attribute("title") for move in lab.locator(".move").all()}
    assert shown == {m["text"] for m in moves if m["legal"]}


def test_a_step_is_taken_at_the_version_that_was_shown(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    lab.get_by_role("button", name="sch.parallel(i)").wait_for()
    page.evaluate("hold()")
    lab.get_by_role("button", name="sch.parallel(i)").click()
    lab.get_by_role("button", name="sch.unroll(i)").click()
    page.evaluate("release()")
    expect(lab.locator(".version")).to_have_count(3)
    assert [v["parent"] for v in bench.state()["versions"]] == [None, "v0", "v0"]


def test_typed_arguments_are_of_their_form(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    other = lab.get_by_role("button", name="Other arguments for split")
    other.click()
    lab.locator("form").get_by_label("loop").fill('"k"')
    lab.get_by_role("treeitem").nth(1).click()
    other.click()
    assert lab.locator("form").get_by_label("loop").input_value() == '"j"'
    page.evaluate("hold()")
    lab.locator("form").get_by_role("button", name="Try").click()
    lab.get_by_role("treeitem").nth(0).click()
    page.evaluate("release()")
    other.click()
    expect(lab.locator("form").get_by_label("loop")).to_have_value('"i"')
    assert lab.locator("form").get_by_role("status").inner_text() == ""


def test_errors_are_not_kept_as_answers(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = TuningDatabase(tmp_path / "kept.db")
    bench = Workbench(ops.matmul_func(64, 48, 32), "cpu", database)
    lab = open_front(page, bench)

    def locked(*_: object) -> list[Any]:
        raise DatabaseError("database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(records, "listed", locked)
        lab.get_by_role("tab", name="Records").click()
        expect(lab.get_by_role("tabpanel")).to_contain_text("database is locked")
    lab.get_by_role("button", name="Try again").click()
    panel = lab.get_by_role("tabpanel")
    expect(panel).to_contain_text("no schedule of this program")
    others = Tuning(tmp_path / "kept.db", bench.func)
    others.trial(others.start(), 8, 1e-3)
    lab.get_by_role("tab", name="Export").click()
    lab.get_by_role("tab", name="Records").click()
    expect(panel.get_by_role("button", name="Open schedule")).to_have_count(1)


def test_views_have_questions_of_their_own(page: Page, bench: Workbench) -> None:
    open_front(page, bench)
    page.evaluate(
        """(state) => {
        const sent = [];
        const model = {get: () => state, on: () => 0, off: () => 0, send: (m) => sent.push(m.id)};
        for (const _ of [0, 1]) new front.Lab(model, document.createElement('div'));
        window.sent = sent;
    }""",
        bench.state(),
    )
    ids = page.evaluate("sent")
    assert len(ids) == len(set(ids)) > 2


def test_moves_have_measured_times_too(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    lab.get_by_role("button", name="sch.parallel(i)").click()
    expect(lab.locator(".version[aria-current] .id")).to_have_text("v1")
    lab.get_by_role("button", name="Undo").click()
    move = lab.get_by_role("button", name="sch.parallel(i)")
    expect(move).to_contain_text("us")
    expect(move).not_to_contain_text("measured")
    expect(move).not_to_contain_text("expected")
    expect(move).to_have_accessible_name(re.compile(r"predicted "))
    v0, v1 = bench.versions
    run = LabRun([v0, v1], 0.0, says="done", ended=1.0)
    timings = {v: Timing(s, (s,) * 3, True) for v, s in ((v0, 3e-3), (v1, 1e-3))}
    bench._measured(run, VersionResults(timings, {}, []))
    page.evaluate("refresh()")
    expect(move.locator(".measured")).to_have_text("1 ms")
    expect(move).to_have_accessible_name(re.compile(r"expected .*measured 1 ms, 3.00x faster$"))
    expect(move).to_contain_text("expected")
    expect(move).to_have_attribute("title", re.compile("over predicted time of v0, 3 ms over "))
    lab.get_by_role("button", name="Other arguments for parallel").click()
    lab.locator("form").get_by_role("button", name="Try").click()
    expect(lab.locator("form").get_by_role("status")).to_contain_text("Expected: ")
    expect(lab.locator("form").get_by_role("status")).to_contain_text("Measured: 1 ms")
    assert violations(page) == []


def test_a_version_that_failed_says_why(page: Page, bench: Workbench) -> None:
    applied(bench, "parallel", loop=bench.state()["tree"]["nodes"][0]["id"])
    lab = open_front(page, bench)
    v0, v1 = bench.versions
    bench.measurements.run = LabRun([v0, v1], 0.0, says="done", ended=1.0)
    timings = {v0: Timing(1e-3, (1e-3,) * 3, True)}
    results = VersionResults(timings, {v1: "crash: signal 11"}, [])
    bench._measured(bench.measurements.run, results)
    page.evaluate("refresh()")
    status = lab.get_by_role("status").first
    expect(status).to_contain_text("v0 measured.")
    expect(status).to_contain_text("v1 has no time. crash: signal 11")
    assert violations(page) == []


def test_moves_are_filtered(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    lab.locator(".move").first.wait_for()
    lab.get_by_label("Filter moves").fill("parallel")
    expect(lab.locator(".group")).to_have_count(1)
    assert lab.locator(".group b").inner_text() == "parallel"


def test_sliders_show_the_figures_of_the_search(page: Page, bench: Workbench) -> None:
    (loop, *_) = [n["id"] for n in bench.state()["tree"]["nodes"]]
    applied(bench, "split", loop=loop, factors=[None, 8])
    lab = open_front(page, bench)
    slider = lab.get_by_role("slider", name="split(i) factors[1]")
    expect(slider).to_have_attribute("aria-valuetext", "8")
    slider.focus()
    page.keyboard.press("ArrowRight")
    known = bench.do({"do": "sliders"})["result"]["sliders"][0]["values"]
    moved = known[known.index(8) + 1]
    expect(slider).to_have_attribute("aria-valuetext", str(moved))
    figures = bench.do({"do": "figures", "values": [moved]})["result"]
    expect(lab.locator(".predicted")).to_contain_text(format_seconds(figures["predicted"]))
    _, v1 = bench.versions
    assert v1.predicted is not None
    timed = {v1: Timing(2 * v1.predicted, (2 * v1.predicted,) * 3, True)}
    bench._measured(LabRun([v1], 0.0, says="done", ended=1.0), VersionResults(timed, {}, []))
    page.evaluate("refresh()")
    expected = format_seconds(2 * figures["predicted"])
    expect(lab.locator(".predicted")).to_contain_text(f"{expected} expected, ")
    lab.get_by_role("button", name="Keep as a version").click()
    expect(lab.locator(".version[aria-current] .id")).to_have_text("v2")
    assert slider.input_value() == str(known.index(moved))


def test_sliders_of_one_name_are_all_shown(page: Page) -> None:
    a = te.placeholder((64, 64), "float32", name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((64, 64), lambda i, j: te.exp(b[i, j]), name="C")
    bench = Workbench(te.func([a, c]))
    for loop in [n["id"] for n in bench.state()["tree"]["nodes"] if n.get("name") == "i"]:
        applied(bench, "split", loop=loop, factors=[None, 8])
    lab = open_front(page, bench)
    first = lab.get_by_role("slider", name="split(i of B) factors[1]")
    second = lab.get_by_role("slider", name="split(i of C) factors[1]")
    expect(second).to_have_attribute("aria-valuetext", "8")
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(first).not_to_have_attribute("aria-valuetext", "8")
    expect(second).to_have_attribute("aria-valuetext", "8")
    expect(lab.get_by_role("slider")).to_have_count(2)


def test_a_swapped_comparison_is_the_newest(page: Page, bench: Workbench) -> None:
    (loop, *_) = [n["id"] for n in bench.state()["tree"]["nodes"]]
    applied(bench, "parallel", loop=loop)
    lab = open_front(page, bench)
    lab.get_by_role("tab", name="Compare").click()
    v0, v1 = bench.versions
    for a, b, ratio, says in ((v0, v1, 2.0, "v1 is 2.00x slower"), (v1, v0, 0.25, "v0 is 4.00x")):
        compared = Comparison(a.id, b.id, ratio, None, Verdict.UNSETTLED)
        bench._measured(LabRun([a, b], 0.0, ended=1.0), VersionResults({}, {}, [compared]))
        page.evaluate("refresh()")
        expect(lab.get_by_role("tabpanel")).to_contain_text(says)


def test_the_fastest_is_that_of_the_comparison(page: Page, bench: Workbench) -> None:
    """The other has a shorter time, of rounds in which the machine was faster."""
    (loop, *_) = [n["id"] for n in bench.state()["tree"]["nodes"]]
    applied(bench, "parallel", loop=loop)
    v0, v1 = bench.versions
    timings = {v0: Timing(1e-3, (1e-3,) * 6, True), v1: Timing(1.5e-3, (1.5e-3,) * 6, True)}
    compared = Comparison("v0", "v1", 0.98, None, Verdict.FASTEST)
    bench._measured(LabRun([v0, v1], 0.0, ended=1.0), VersionResults(timings, {}, [compared]))
    lab = open_front(page, bench)
    (row,) = lab.locator("button.version").filter(has_text="fastest").all()
    expect(row).to_contain_text("1.5 ms")


def checked(database: TuningDatabase, bench: Workbench) -> None:
    """Record that the results of the current version are right."""
    schedule = schedule_record(bench.versions.current.schedule.trace)
    subject = bench.workload, target_record(bench.target), toolchain_record(bench.target), schedule
    program, target, tools, _ = (record.id for record in subject)
    check = Verification(program, target, schedule.id, tools, True, 0.0, 0.0, utc_now())
    database.put(*subject, check)


def test_a_pin_is_taken_back(page: Page, tmp_path: Path) -> None:
    database = TuningDatabase(tmp_path / "pinned.db")
    bench = Workbench(ops.matmul_func(64, 48, 32), "cpu", database)
    lab = open_front(page, bench)
    lab.get_by_role("button", name="Pin", exact=True).click()
    expect(lab.get_by_role("alert")).to_contain_text("is not verified")
    expect(lab.get_by_role("alert")).to_contain_text("Hint: measure it first")
    checked(database, bench)
    lab.get_by_role("button", name="Pin", exact=True).click()
    taken = re.compile(r"take v0 now, schedule [0-9a-f]{12}\.")
    expect(lab.get_by_role("status").first).to_contain_text(taken)
    lab.get_by_role("button", name="Unpin").click()
    expect(lab.get_by_role("status").first).to_contain_text("No version is pinned now.")
    lab.get_by_role("button", name="Unpin").click()
    expect(lab.get_by_role("status").first).to_contain_text("No version was pinned.")


@pytest.mark.part(1)
@pytest.mark.parametrize("width", [480, 1068, 1500])
def test_records_say_when_and_which_is_pinned(page: Page, tmp_path: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    tuning = Tuning(tmp_path / "when.db", ops.matmul_func(64, 48, 32))
    session = tuning.start()
    for tile in (8, 16):
        tuning.trial(session, tile, tile * 1e-3)
    bench = Workbench(ops.matmul_func(64, 48, 32), "cpu -mcpu=znver4 -threads=2", tuning.database)
    row = bench.do({"do": "records"})["result"]["records"][0]
    bench.do({"do": "open", "record": row["record"]})
    assert bench.do({"do": "pin", "unverified": True})["ok"]
    lab = open_front(page, bench)
    lab.get_by_role("tab", name="Records").click()
    rows = lab.locator(".records tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="pinned")).to_contain_text(row["id"])
    panel = lab.get_by_role("tabpanel").bounding_box()
    assert panel is not None
    mark = rows.filter(has_text="pinned").locator(".badge").inner_text()
    assert mark == "◆ pinned"
    pinned = lab.locator(".version", has=page.locator(".pinned"))
    expect(pinned).to_have_count(1)
    expect(pinned.locator(".id")).to_have_text("v1")
    expect(pinned.locator(".pinned")).to_be_visible()
    assert pinned.locator(".pinned").text_content() == mark, "the same mark, read aloud in full"
    expect(rows.nth(0).locator(".decisions")).to_have_text("split(i) factors[1] = 8")
    expect(rows.nth(1).locator(".decisions")).to_have_text("split(i) factors[1] = 16")
    for shown in lab.locator(".records .when, .records .decisions code").all():
        box = shown.bounding_box()
        assert box is not None
        assert panel["x"] <= box["x"]
        assert box["x"] + box["width"] <= panel["x"] + panel["width"]
    assert violations(page) == []


def test_two_versions_are_compared(page: Page, bench: Workbench) -> None:
    (loop, *_) = [n["id"] for n in bench.state()["tree"]["nodes"]]
    applied(bench, "parallel", loop=loop)
    lab = open_front(page, bench)
    lab.get_by_role("tab", name="Compare").click()
    expect(lab.locator("td.added").first).to_contain_text("T.parallel(64)")
    lab.get_by_role("button", name="Undo").click()
    expect(lab.locator(".version[aria-current] .id")).to_have_text("v0")
    for side, version in (("Left", "v0"), ("Right", "v1")):
        expect(lab.get_by_role("combobox", name=side)).to_have_value(version)
    assert violations(page) == []


def test_stepping_down_to_the_assembly(page: Page, bench: Workbench) -> None:
    (loop, *_) = [n["id"] for n in bench.state()["tree"]["nodes"]]
    applied(bench, "parallel", loop=loop)
    lab = open_front(page, bench)
    lab.get_by_role("tab", name="Lowering").click()
    expect(lab.get_by_role("combobox", name="Pass")).to_have_value("0")
    stages = bench.do({"do": "lowering"})["result"]["stages"]
    first = next(s for s in stages if s["changed"])
    lab.get_by_role("button", name="Down").click()
    expect(lab.get_by_role("combobox", name="Pass")).to_have_value(str(first["number"]))
    expect(lab.get_by_role("tabpanel")).to_contain_text(first["why"])
    expect(lab.get_by_role("tabpanel")).to_contain_text(f"Here: {', '.join(first['facts'])}.")
    expect(lab.locator(".diff .added, .diff .removed").first).to_be_visible()
    assert violations(page) == []
    lab.get_by_role("button", name="Up").click()
    expect(lab.get_by_role("combobox", name="Pass")).to_have_value("0")
    lab.get_by_role("tab", name="Assembly").click()
    first_hot, last_hot = bench.do({"do": "assembly"})["result"]["hot"]
    expect(lab.locator(".line.hot")).to_have_count(last_hot - first_hot + 1)
    assert violations(page) == []


def test_lines_of_assembly_and_loops_are_linked(page: Page, bench: Workbench) -> None:
    i, _, k = (n for n in bench.state()["tree"]["nodes"] if n["kind"] == "loop")
    places = bench.do({"do": "assembly"})["result"]["places"]
    lab = open_front(page, bench)
    lab.get_by_role("tab", name="Assembly").click()
    panel, mine = lab.get_by_role("tabpanel"), lab.locator(".line.mine")
    panel.get_by_role("button", name="Earlier").click()  # it begins before the hot block

    def lines_of(loop: dict[str, Any]) -> int:
        return sum(last - first + 1 for first, last in places[loop["id"]]["lines"])

    assert 0 < lines_of(k) < lines_of(i)
    rows = lab.get_by_role("treeitem")
    rows.nth(2).focus()
    page.keyboard.press("Enter")
    expect(mine).to_have_count(lines_of(k))
    expect(panel).to_contain_text(places[k["id"]]["says"])
    assert violations(page) == []
    other = panel.get_by_role("button", name="Select loop i of line").first
    other.focus()
    page.keyboard.press("Enter")
    expect(rows.first).to_have_attribute("aria-selected", "true")
    expect(other).to_have_attribute("aria-pressed", "true")
    expect(other).to_be_focused()
    expect(mine).to_have_count(lines_of(i))
    expect(lab.locator(".line:not(.mine) .loop", has_text="┃")).to_have_count(0)
    marked = lab.locator(".line.mine .loop").all_inner_texts()
    assert set(marked) <= {"┃", "i", "j", "k"}
    rows.last.click()  # a block
    expect(mine).to_have_count(0)
    expect(panel).to_contain_text("A loop that is selected")


def test_code_that_does_not_tell_its_loops_says_so(
    page: Page, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuGenerator, "loops_of_lines", CodeGenerator.loops_of_lines)
    lab = open_front(page, bench)
    lab.get_by_role("tab", name="Assembly").click()
    expect(lab.get_by_role("tabpanel")).to_contain_text("does not tell which loop a line is of.")
    expect(lab.locator(".line .loop")).to_have_count(0)
    expect(lab.locator(".line").first).to_be_visible()


def test_long_assembly_comes_in_pages(page: Page) -> None:
    bench = Workbench(ops.matmul_func(8, 16, 16))
    i, j, k = (n["id"] for n in bench.state()["tree"]["nodes"] if n["kind"] == "loop")
    applied(bench, "unroll", loop=j)
    applied(bench, "unroll", loop=k)
    answer = bench.do({"do": "assembly"})["result"]
    total, lines = answer["total"], list(answer["lines"])
    while len(lines) < total:
        lines += bench.do({"do": "assembly", "start": len(lines)})["result"]["lines"]
    assert total > 400
    lab = open_front(page, bench)
    lab.get_by_role("tab", name="Assembly").click()
    panel, shown = lab.get_by_role("tabpanel"), lab.locator(".panel .line")
    earlier, later = (panel.get_by_role("button", name=name) for name in ("Earlier", "Later"))
    start = max(0, answer["hot"][0] - 8) if answer["hot"] else 0

    def expect_from(start: int) -> None:
        expect(panel).to_contain_text(f"from line {start + 1} of {total}")
        expect(shown).to_have_count(min(200, total - start))
        for at, n in ((shown.first, start), (shown.last, min(start + 200, total) - 1)):
            expect(at.locator(".lineno")).to_have_text(re.compile(rf"{n + 1}$"))
            expect(at).to_contain_text(lines[n].strip())

    expect_from(start)
    assert violations(page) == []
    while start > 0:
        earlier.click()
        start = max(0, start - 200)
        expect_from(start)
    expect(earlier).to_be_disabled()
    later.focus()
    while start + 200 < total:
        page.keyboard.press("Enter")
        start += 200
        expect_from(start)
    expect(later).to_be_disabled()
    lab.get_by_role("treeitem").first.click()
    (first, _), *_ = answer["places"][i]["lines"]
    panel.get_by_role("button", name=f"Show line {first + 1}").click()
    expect_from(first)
    expect(lab.locator(".line.mine").first).to_be_visible()


def test_passes_that_changed_nothing_are_folded(page: Page, bench: Workbench) -> None:
    stages = bench.do({"do": "lowering"})["result"]["stages"]
    idle = [s for s in stages[1:] if not s["changed"]]
    lab = open_front(page, bench)
    lab.get_by_role("tab", name="Lowering").click()
    options = lab.get_by_role("combobox", name="Pass").get_by_role("option")
    expect(options).to_have_count(len(stages) - len(idle))
    folded = lab.get_by_text(f"{len(idle)} passes changed nothing")
    reasons = lab.locator(".idle li")
    expect(reasons.first).to_be_hidden()
    folded.click()
    expect(reasons).to_have_text([f"{s['name']} {s['why']}" for s in idle])
    assert violations(page) == []
    steps = [s for s in stages if s not in idle]
    for step in steps[1:]:
        lab.get_by_role("button", name="Down").click()
        expect(lab.get_by_role("combobox", name="Pass")).to_have_value(str(step["number"]))
    expect(lab.get_by_role("button", name="Down")).to_be_disabled()
    assert [s["name"] for s in steps[-3:]] == ["emit", "llvm", "asm"]


def test_what_is_long_has_more(
    page: Page, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (loop, *_) = [n["id"] for n in bench.state()["tree"]["nodes"]]
    applied(bench, "split", loop=loop, factors=[None, 8])
    tree, text = (bench.do({"do": do})["result"]["total"] for do in ("tree", "text"))
    lines = bench.do({"do": "diff", "a": "v0", "b": "v1"})["result"]["program"]
    monkeypatch.setattr(commands, "page_of", lambda given, most: page_of({**given, "count": 3}, 3))
    lab = open_front(page, bench)

    def see_all(unit: str, things: Locator, total: int) -> None:
        more = lab.get_by_role("button", name=f"More {unit}", exact=True)
        expect(things).to_have_count(3)
        for count in range(6, total + 3, 3):
            expect(more.locator("..")).to_contain_text(f"The first {count - 3} of {total}")
            more.click()
            expect(things).to_have_count(min(count, total))
        expect(more).to_have_count(0)

    see_all("loops and blocks", lab.get_by_role("treeitem"), tree)
    lab.get_by_role("treeitem").last.click()
    expect(lab.get_by_role("heading", name="Moves at block")).to_be_visible()
    lab.get_by_role("button", name="Text").click()
    see_all("lines", lab.locator(".program .line"), text)
    lab.get_by_role("tab", name="Compare").click()
    see_all("different lines of the program", lab.locator(".panel .diff .line"), len(lines))
    assert violations(page) == []
    lab.get_by_role("tab", name="Lowering").click()
    lab.get_by_role("button", name="Down").click()
    at = int(lab.get_by_role("combobox", name="Pass").input_value())
    stage = bench.do({"do": "stage", "number": at})["result"]
    see_all("changed lines", lab.locator(".panel .diff .line"), stage["total"])


def test_the_roofline_has_a_point_of_the_version(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    lab.get_by_role("tab", name="Roofline").click()
    expect(lab.get_by_role("img", name="Roofline")).to_be_visible()
    (point,) = bench.do({"do": "roofline"})["result"]["points"]
    panel = lab.get_by_role("tabpanel")
    expect(panel).to_contain_text(f"{100 * point['share']:.0f}% of the roofline is what v0 reaches")
    expect(panel).to_contain_text(f"v0 {format_seconds(point['seconds'])}")
    assert violations(page) == []


def test_the_folder_of_a_pack_is_asked_for(
    page: Page, bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[tuple[list[str], Path]] = []

    def pack(versions: Sequence[Version], folder: Path) -> LabRun:
        packed.append(([v.id for v in versions], folder))
        return LabRun(versions, 0.0, says=f"packed into {folder}", ended=1.0)

    monkeypatch.setattr(bench.measurements, "pack", pack)
    lab = open_front(page, bench)
    lab.get_by_role("button", name="Pack").click()
    form = lab.locator("form.pack")
    form.get_by_label("New folder for v0").fill(str(tmp_path))
    assert violations(page) == []
    form.get_by_role("button", name="Pack").click()
    expect(form).to_have_count(0)
    assert packed == [(["v0"], tmp_path)]


@pytest.mark.part(2)
@pytest.mark.parametrize(("width", "scheme"), [(480, "light"), (800, "dark"), (1500, "light")])
def test_the_lab_is_readable(page: Page, bench: Workbench, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    lab = open_front(page, bench)
    lab.locator(".move").first.wait_for()
    assert violations(page) == []
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0, "the lab is wider than its place"


def test_names_of_programs_are_no_markup(page: Page) -> None:
    func = ops.matmul_func(8, 8, 8)
    bench = Workbench(replace(func, name=HOSTILE))
    open_front(page, bench)
    assert page.locator("h2").inner_text() == HOSTILE
    assert page.title() == "The lab"


def test_the_end_of_the_kernel_is_said(page: Page, bench: Workbench) -> None:
    lab = open_front(page, bench)
    page.evaluate("trigger('comm_live_update')")
    expect(lab.get_by_role("alert")).to_contain_text("kernel of this lab has ended")


def test_numbers_are_written_as_in_texts(page: Page, bench: Workbench) -> None:
    open_front(page, bench)
    times = [3.2e-9, 9.996e-7, 1e-6, 8.8649e-3, 0.99951, 12.5, 1234.6, 0.00012]
    assert page.evaluate("ts => ts.map(front.seconds)", times) == [format_seconds(t) for t in times]
    pairs = [(1, 3), (187, 378), (190, 378), (1.2, 1), (1, 123.4)]
    changes = page.evaluate("ps => ps.map(([a, b]) => front.change(a, b).text)", pairs)
    expected = ["3.00x faster", "2.02x faster", "1.99x faster", "1.20x slower", "123x faster"]
    assert changes == expected
    assert changes == [format_change(now / before) for now, before in pairs]
    assert page.evaluate("front.change(1.001, 1).text") == "same time"
    assert page.evaluate("front.change(0, 1).text") == ""
    sizes = [
        0,
        768,
        1023,
        1024,
        49152,
        1_023_487,
        1_023_590,
        1_048_063,
        1_048_575,
        1 << 50,
        1 << 70,
    ]
    written = page.evaluate("ns => ns.map(n => front.quantity(n, 'bytes'))", sizes)
    assert written == [format_bytes(n) for n in sizes]
    units = ["copies", "registers a thread", "a block", "waves", ""]
    ones = page.evaluate("us => us.map(u => front.quantity(1, u))", units)
    assert ones == ["1 copy", "1 register a thread", "1 a block", "1 wave", "1"]
    assert page.evaluate("front.quantity(24, 'copies')") == "24 copies"


def test_nothing_is_cut_without_a_mark(page: Page) -> None:
    """Refused steps that are longer than the pane is wide, and their reasons."""
    page.set_viewport_size({"width": 660, "height": 900})
    lab = open_front(page, Workbench(ops.softmax_func(64, 512), CPU.text))
    lab.get_by_role("treeitem").nth(2).click()
    expect(lab.get_by_role("heading", name="Moves at block")).to_be_visible()
    lab.get_by_text(re.compile(r"\d+ refused")).click()
    parts = lab.locator(".refusal > *:not(.cross)").evaluate_all(
        """parts => parts.map((part) => {
            const right = (e) => e.getBoundingClientRect().right;
            const over = right(part) - right(part.parentElement);
            const cut = part.scrollWidth > part.clientWidth;
            return [over, cut, getComputedStyle(part).textOverflow];
        })"""
    )
    assert any(cut for _, cut, _ in parts)
    assert all(over <= 0 for over, _, _ in parts)
    assert {mark for _, cut, mark in parts if cut} == {"ellipsis"}
    short = lab.locator(".refusal code", has_text=re.compile(r"^\w+\(\w+\)$"))
    widths = short.evaluate_all("all => all.map((e) => [e.scrollWidth, e.clientWidth])")
    assert widths
    assert all(wanted <= there for wanted, there in widths), "the reason gives way"


def test_the_program_is_as_high_as_text_as_it_is_as_a_tree(page: Page) -> None:
    """What is below it stays where it is."""
    sch = Schedule(ops.conv2d_func(1, 16, 28, 28, 32, 3, padding=1))
    lab = open_front(page, Workbench(sch, CPU.text))
    lab.locator(".move").first.wait_for()
    pane = lab.locator(".pane.program > :nth-child(2)")
    assert pane.evaluate("e => getComputedStyle(e).maxHeight") == "340px"
    lab.get_by_role("button", name="Text", exact=True).click()
    expect(pane).to_have_class(re.compile("code"))
    assert pane.evaluate("e => getComputedStyle(e).maxHeight") == "340px"


def test_the_pass_that_refuses_a_program_is_shown_first(page: Page) -> None:
    lab = open_front(page, Workbench(ops.matmul_func(64, 48, 32), "cuda -arch=sm_90"))
    lab.get_by_role("tab", name="Lowering").click()
    expect(lab.locator(".lowering option:checked")).to_have_text("1. bound (failed)")
    expect(lab.locator(".lowering .error")).to_contain_text("bound to no axis of the device")
    lab.get_by_role("button", name="Up", exact=True).click()
    expect(lab.locator(".lowering option:checked")).to_have_text("0. scheduled")
    expect(lab.locator(".lowering pre")).to_contain_text("for i, j, k in")


def test_calls_are_taken_apart(page: Page, bench: Workbench) -> None:
    open_front(page, bench)
    call = "sch.f(i, factors=[None, 8], key='a, b', m=lambda i, j: (j, i))"
    expected = ["i", "factors=[None, 8]", "key='a, b'", "m=lambda i", "j: (j, i)"]
    assert page.evaluate("front.parts", call) == expected


def test_branches_have_lanes_of_their_own(page: Page, bench: Workbench) -> None:
    open_front(page, bench)
    parents = {"v0": None, "v1": "v0", "v2": "v1", "v3": "v1", "v4": "v0", "v5": "v2"}
    versions = [{"id": id, "parent": parent} for id, parent in parents.items()]
    placed = page.evaluate(
        "vs => front.lanes(vs).map(p => [p.version.id, p.lane, p.row])", versions
    )
    order = {id: (lane, row) for id, lane, row in placed}
    assert [id for id, _, _ in placed] == ["v0", "v1", "v2", "v5", "v3", "v4"]
    assert order["v5"][0] == order["v2"][0] == order["v0"][0]
    assert len({order[id][0] for id in ("v0", "v3", "v4")}) == 3


def test_drawing_keeps_nodes(page: Page, bench: Workbench) -> None:
    open_front(page, bench)
    kept = page.evaluate(
        """() => {
            const {el, patch} = front;
            const place = document.createElement('div');
            const item = (key) => el('p', {key, title: key}, key);
            patch(place, [item('a'), item('b'), 'text']);
            const [a, b] = place.children;
            patch(place, [item('b'), item('c'), item('a'), 'other']);
            return [place.textContent, place.children[0] === b, place.children[2] === a];
        }"""
    )
    assert kept == ["bcaother", True, True]


def test_a_key_is_of_one_node(page: Page, bench: Workbench) -> None:
    open_front(page, bench)
    with pytest.raises(Error, match="repeated keys: a, a"):
        page.evaluate("front.patch(document.body, [0, 1].map(() => front.el('p', {key: 'a'})))")


def test_moves_of_one_text_are_all_shown(
    page: Page, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = [n["id"] for n in bench.state()["tree"]["nodes"]]
    moves = bench.do({"do": "moves", "place": first})["result"]["moves"]
    move = next(m for m in moves if m["op"] == "parallel")
    twins = [move, {**move, "args": {"loop": second}}]
    bench = Workbench(ops.matmul_func(64, 48, 32))
    monkeypatch.setattr(commands, "moves", lambda *_: twins)
    lab = open_front(page, bench)
    expect(lab.locator(".move")).to_have_count(2)
    lab.get_by_label("Filter moves").fill("par")
    expect(lab.locator(".move")).to_have_count(2)


@pytest.mark.part(1)
@pytest.mark.parametrize("width", [480, 700, 1500])
def test_times_of_versions_are_whole(page: Page, bench: Workbench, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    lab = open_front(page, bench)
    j = page.evaluate("document.querySelector('#lab [role=treeitem][data-id]').dataset.id")
    applied(bench, "split", loop=j, factors=[None, 8])
    v0, v1 = bench.versions
    samples = tuple(k * 1e-6 for k in range(404, 453, 2))
    timings = {v: Timing(439e-6, samples, False) for v in (v0, v1)}
    bench._measured(LabRun([v0, v1], 0.0, says="done", ended=1.0), VersionResults(timings, {}, []))
    bench.pinned = v1.schedule_id
    page.evaluate("refresh()")
    expect(lab.locator(".version[aria-current] .pinned")).to_be_visible()
    time = lab.locator(".version[aria-current] .time")
    expect(time).to_contain_text("439 us (4")
    pane, box = lab.locator(".graph").bounding_box(), time.bounding_box()
    assert pane is not None
    assert box is not None
    assert time.evaluate("e => e.scrollWidth <= e.clientWidth")
    assert box["x"] + box["width"] <= pane["x"] + pane["width"]
