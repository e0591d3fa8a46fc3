"""The lab as people use it, in a real JupyterLab; in short, in a real Notebook 7."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Locator, Page, expect

from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text

from .accessibility import violations
from .jupyter import NOTEBOOK_7, Notebook, Server, running, switch
from .pictures import check_picture

LAB = """\
import tilewright as tw, tilewright.tests.short_sessions
func = tw.ops.matmul_func(64, 48, 32)
database = tw.TuningDatabase("{0}.db")
lab = tw.lab(func, "cpu -threads=2", database)
lab"""
AGAIN = """\
again = tw.lab(func, "cpu -threads=2", tw.TuningDatabase(database.location))
again"""
TUNE = """\
import tilewright as tw, tilewright.tests.short_sessions
func = tw.ops.matmul_func(64, 48, 32)
database = tw.TuningDatabase("tuning.db")
tw.tune(func, "cpu -threads=2", trials=3, database=database)"""
OPEN = """\
lab = tw.lab(func, "cpu -threads=2", database)
lab"""


def opened_lab(opened: Notebook, cell: int = 0) -> Locator:
    lab = opened.output(cell).locator(".tw-lab")
    lab.locator(".move").first.wait_for()
    return lab


def current(lab: Locator) -> Locator:
    """The row of the current version."""
    return lab.locator(".version[aria-current]")


def measured(lab: Locator) -> None:
    """Measure the current version, and wait for the end."""
    lab.get_by_role("button", name="Measure").click()
    expect(lab.get_by_role("button", name="Cancel")).to_be_visible()
    expect(lab.get_by_role("button", name="Cancel")).to_have_count(0, timeout=60_000)
    expect(current(lab).locator(".measured")).to_have_text(re.compile(r"^[\d.]+ [mun]?s"))


def test_work_in_the_lab(notebook: Callable[..., Notebook], tmp_path: Path, update: bool) -> None:
    opened = notebook(LAB.format("work"), "print(lab.schedule.func)")
    opened.run()
    page, lab = opened.page, opened_lab(opened)

    lab.get_by_role("treeitem", name="for k").click()
    lab.locator("summary", has_text="refused").click()
    lab.get_by_role("button", name=re.compile(r"parallel\(k\)")).click()
    expect(lab.locator(".refused .error")).to_contain_text("Hint:")
    expect(lab.locator(".in-the-way")).to_have_count(1)

    rows = lab.get_by_role("treeitem")
    rows.first.focus()
    page.keyboard.press("ArrowDown")  # keys are the lab's, not the notebook's
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(rows.first).to_be_focused()
    expect(rows.first).to_have_attribute("aria-selected", "true")
    lab.get_by_role("button", name="sch.split(i, factors=[None, 8])").click()
    expect(current(lab)).to_contain_text("split(i, factors=[None, 8])")
    lab.get_by_role("button", name="sch.parallel(i_0)").click()
    expect(current(lab)).to_contain_text("parallel(i_0)")

    slider = lab.get_by_role("slider", name="split(i) factors[1]")
    before = lab.locator(".predicted").inner_text()
    box = slider.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, middle, steps=5)
    page.mouse.up()
    expect(slider).to_have_attribute("aria-valuetext", "64")
    expect(lab.locator(".predicted")).not_to_have_text(before)
    expect(lab.get_by_role("row", name="threads at work 1 of 2 threads")).to_be_visible()
    page.mouse.click(box["x"] + 2, middle)
    expect(slider).to_have_attribute("aria-valuetext", "1")
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "2")
    page.keyboard.press("ArrowLeft")
    lab.get_by_role("button", name="Undo").focus()
    page.keyboard.press("b")  # a command of the notebook, where that has the focus
    expect(page.locator(".jp-CodeCell")).to_have_count(2)
    lab.get_by_role("button", name="Keep as a version").click()
    expect(current(lab).locator(".id")).to_have_text("v3")
    measured(lab)

    lab.get_by_role("button", name="Undo").click()
    expect(current(lab).locator(".id")).to_have_text("v2")
    lab.get_by_role("treeitem", name="for j").click()
    lab.get_by_role("button", name="sch.unroll(j)").click()
    expect(current(lab)).to_contain_text("unroll(j)")
    expect(lab.locator(".lanes circle")).to_have_count(5)

    check_export(lab, tmp_path)

    lab.get_by_role("button", name="Tree").click()
    lab.get_by_role("tab", name="Sizes").click()
    for dark in (False, True):
        switch(page, dark=dark)
        assert violations(page, ".tw-lab") == []
        check_picture(f"lab_{'dark' if dark else 'light'}", lab.screenshot(), update=update)
    opened.restart()
    expect(lab.get_by_role("alert")).to_contain_text("Run the cell again")
    assert opened.errors == []


@pytest.mark.long
def test_the_lab_in_notebook_7(page: Page, tmp_path: Path) -> None:
    """What depends on the front end: outputs that change, and the widget with its messages."""
    with running(NOTEBOOK_7, tmp_path / "notebook") as server:
        opened = Notebook(page, server, "lab", TUNE, OPEN)
        opened.run()
        result = opened.output(0).locator(".tw")  # in the place of the live picture
        expect(result).to_have_count(1)
        expect(result).to_contain_text("all 3 trials are done")

        lab = opened_lab(opened, 1)
        lab.get_by_role("treeitem", name="for i").click()
        lab.get_by_role("button", name="sch.split(i, factors=[None, 8])").click()
        expect(current(lab)).to_contain_text("split(i, factors=[None, 8])")
        slider = lab.get_by_role("slider", name="split(i) factors[1]")
        slider.focus()
        page.keyboard.press("End")
        expect(slider).to_have_attribute("aria-valuetext", "64")
        lab.get_by_role("button", name="Keep as a version").click()
        expect(current(lab)).to_contain_text("split(i) factors[1] = 64")
        measured(lab)

        check_export(lab, tmp_path)
        assert opened.errors == []


def check_export(lab: Locator, folder: Path) -> None:
    """The script that the lab exports prints the program that it shows."""
    lab.get_by_role("tab", name="Export").click()
    source = lab.locator(".source").inner_text()
    lab.get_by_role("button", name="Text").click()
    shown = [line.inner_text() for line in lab.locator(".program .line").all()]
    program = parse("\n".join(re.sub(r"^\d+", "", line) for line in shown))  # may be folded
    assert func_text(program) == func_text(parse("\n".join(replayed(source, folder))))


def replayed(source: str, folder: Path) -> list[str]:
    """The lines of the program that an exported script prints."""
    file = folder / "exported.py"
    file.write_text(source, encoding="utf-8")
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


@pytest.mark.long
def test_two_labs_on_a_database_and_an_interrupt(
    notebook: Callable[..., Notebook], server: Server
) -> None:
    opened = notebook(LAB.format("shared"), AGAIN)
    opened.run()
    first, second = opened_lab(opened), opened_lab(opened, 1)
    measured(first)
    second.get_by_role("tab", name="Records").click()
    second.get_by_role("button", name="Open schedule").first.click()
    expect(current(second)).to_contain_text("schedule ")
    expect(current(second).locator(".measured")).to_be_visible()
    expect(current(second)).not_to_contain_text("unchecked")

    second.get_by_role("button", name="Measure").click()
    expect(second.get_by_role("button", name="Cancel")).to_be_visible()
    opened.interrupt()
    expect(second.get_by_role("button", name="Cancel")).to_have_count(0, timeout=60_000)
    measured(second)
    first.get_by_role("button", name="Measure").click()
    until(lambda: measuring(server) != [])
    opened.run()
    assert measuring(server) == [], "a lab ends with the next run of its cell"
    opened_lab(opened).get_by_role("button", name="Measure").click()
    until(lambda: measuring(server) != [])
    opened.restart()
    until(lambda: measuring(server) == [])
    assert opened.errors == []


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition. Raises `AssertionError` if it takes too long."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def measuring(server: Server) -> list[str]:
    """The processes that build and time for the lab: they end with its kernel."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        line = " ".join(process.info["cmdline"] or [])
        if "measure.worker" in line and process.info["cwd"] == str(server.folder):
            found.append(line)
    return found
