"""The report page in a browser: readers, keyboards, and hostile databases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request

from tilewright.lab.report import report
from tilewright.tuning_db import ScheduleRecord, Workload

from ..databases import HOSTILE, NOON, Tuning, tuned
from .accessibility import violations
from .pictures import check_picture

IMAGE = "<img src=x onerror=\"document.title = 'run'\">"


def show(page: Page, html: str, path: Path) -> list[str]:
    """Open a page from a file; returns what it reports as errors, from now on."""
    errors: list[str] = []

    def note(what: object) -> None:
        errors.append(str(what))

    def note_foreign(asked: Request) -> None:
        if asked.url != path.as_uri():
            errors.append(asked.url)

    page.on("console", note)
    page.on("pageerror", note)
    page.on("request", note_foreign)
    path.write_text(html, encoding="utf-8")
    page.goto(path.as_uri())
    return errors


@pytest.mark.part(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_a_report_is_accessible_and_fits(
    page: Page, tmp_path: Path, scheme: str, width: int, update: bool
) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 900})
    database = tuned(tmp_path / "tuning.db")
    html = report(database, now=NOON).replace(database.location, "tuning.db")
    errors = show(page, html, tmp_path / "report.html")
    for folded in page.locator("details").all():
        folded.evaluate("e => e.open = true")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert errors == []
    check_picture(f"report_{scheme}_{width}", page.screenshot(full_page=True), update=update)


def test_tables_are_sorted_and_filtered_by_keys(page: Page, tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start()
    for tile, seconds in ((2, 9e-3), (4, 1e-4), (8, 20e-3), (16, 5e-6), (0, 1e-3)):
        tuning.trial(session, tile, seconds)
    errors = show(page, report(tuning.database, session), tmp_path / "report.html")
    table = page.get_by_role("table", name="The fastest schedules")
    times = table.locator("tbody tr td:nth-child(2)")
    fastest_first = ["5 us", "100 us", "1 ms", "9 ms", "20 ms"]
    assert times.all_inner_texts() == fastest_first
    heading = table.get_by_role("columnheader", name="time")
    heading.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert times.all_inner_texts() == fastest_first
    page.keyboard.press("Space")
    assert heading.get_attribute("aria-sort") == "descending"
    assert times.all_inner_texts() == fastest_first[::-1]
    table.get_by_role("button", name="after").click()
    assert heading.get_attribute("aria-sort") is None
    assert times.all_inner_texts() == ["9 ms", "100 us", "20 ms", "5 us", "1 ms"]
    page.get_by_role("searchbox").fill("Vector=True tiling")
    assert [t.inner_text() for t in times.all() if t.is_visible()] == ["20 ms", "5 us"]
    assert page.get_by_role("status").inner_text() == "2 of 5 rows"
    page.get_by_role("searchbox").fill("")
    assert all(t.is_visible() for t in times.all())
    assert errors == []


@pytest.mark.parametrize("width", [1500, 1100, 400])
def test_long_names_and_remarks_fit_the_page(page: Page, tmp_path: Path, width: int) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    workload = Workload("a" * 64, "a_program_" * 6, "float32[8,8]", "", 1, 1)
    tuning.database.put(workload)
    session = tuning.start(workload)
    tuning.trial(session, 2, 1e-3)
    tuning.database.finish_session(session.id, noise="other programs ran meanwhile; " * 9)
    page.set_viewport_size({"width": width, "height": 900})
    show(page, report(tuning.database), tmp_path / "report.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    table = page.get_by_role("table", name="Sessions")
    table.scroll_into_view_if_needed()
    remark = table.get_by_text("other programs ran meanwhile").bounding_box()
    assert remark is not None
    assert remark["height"] > 3 * 13, "remarks go on in the next line"
    assert remark["width"] > 200, "a line has several words"
    assert remark["x"] + remark["width"] < width, "they are seen without scrolling"


class LongNames(Tuning):
    """The names of rules with their options are long and have no spaces, like paths."""

    def schedule(self, tile: int) -> ScheduleRecord:
        name = "copied_windows(inside=false)+contraction(blocked=false,local=false,pack=[])" * 2
        return replace(super().schedule(tile), generator=name)


def test_names_without_spaces_fit_a_phone(page: Page, tmp_path: Path) -> None:
    tuning = LongNames(tmp_path / "tuning.db")
    session = tuning.start()
    for tile, seconds in ((2, 4e-3), (4, 2e-3), (8, 1e-3)):
        tuning.trial(session, tile, seconds)
    tuning.trial(session, 16, None, "/a/path" * 20)
    tuning.finals(session, {2: 4e-3, 4: 2e-3, 8: 1e-3})
    tuning.database.finish_session(session.id, noise="see " + "/a/path" * 20)
    page.set_viewport_size({"width": 400, "height": 900})
    show(page, report(tuning.database), tmp_path / "report.html")
    for folded in page.locator("details").all():
        folded.evaluate("e => e.open = true")
    assert page.locator("figcaption", has_text="Decisions against time").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_report_is_whole_without_scripts(page: Page, tmp_path: Path) -> None:
    database = tuned(tmp_path / "tuning.db")
    browser = page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False) as context:
        plain = context.new_page()
        (tmp_path / "report.html").write_text(report(database), encoding="utf-8")
        plain.goto((tmp_path / "report.html").as_uri())
        assert plain.get_by_role("table", name="The fastest schedules").is_visible()
        assert plain.get_by_role("button").count() == 0
        assert plain.get_by_role("searchbox").count() == 0


def test_a_hostile_database_runs_nothing(page: Page, tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    for name in (HOSTILE, IMAGE, "javascript:alert(1)", "</title>" * 100):
        workload = Workload(f"{len(name):064x}", name, HOSTILE, name, 1, 1)
        tuning.database.put(workload)
        session = tuning.start(workload)
        tuning.trial(session, 2, None, HOSTILE)
        tuning.trial(session, 4, 1e-3)
    errors = show(page, report(tuning.database), tmp_path / "report.html")
    assert page.locator("img, iframe, main script").count() == 0
    assert page.title() == "Tuning database"
    assert page.get_by_role("heading", name=IMAGE).is_visible()
    page.get_by_role("link", name=IMAGE).click()
    assert errors == []
