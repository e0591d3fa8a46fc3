"""The report in a browser: sorted and filtered tables, by keys, and nothing of a database runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tilewright.lab.report import report
from tilewright.tuning_db import ScheduleRecord, Workload

from ..databases import HOSTILE, NOON, Tuning, tuned
from .accessibility import violations
from .pictures import check_picture


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Page:
    file = tmp_path / "report.html"
    file.write_text(report(tuned(tmp_path / "tuning.db"), now=NOON), encoding="utf-8")
    page.goto(file.as_uri())
    return page


def times(page: Page) -> Locator:
    """The table of the fastest measurements of a program."""
    return page.locator("table.sortable", has_text="The fastest measurements")


def column(table: Locator, number: int) -> list[str]:
    return [
        row.locator("th, td").nth(number).inner_text() for row in table.locator("tbody tr").all()
    ]


def test_tables_are_sorted_by_keys(opened: Page) -> None:
    table = times(opened)
    heading = table.locator("th[scope=col].num").first
    number = heading.evaluate("e => e.cellIndex")
    before = column(table, number)
    heading.get_by_role("button").focus()
    opened.keyboard.press("Enter")
    expect(heading).to_have_attribute("aria-sort", "ascending")
    ascending = column(table, number)
    opened.keyboard.press("Enter")
    expect(heading).to_have_attribute("aria-sort", "descending")
    assert column(table, number) == ascending[::-1]
    assert sorted(ascending) == sorted(before)
    assert len(set(before)) > 1


def test_tables_are_filtered(page: Page, tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start()
    for number, tile in enumerate((0, 2, 4, 8, 16)):
        tuning.trial(session, tile, 1.0625e-3 * (number + 1))
    file = tmp_path / "report.html"
    file.write_text(report(tuning.database, now=NOON), encoding="utf-8")
    page.goto(file.as_uri())
    rows = times(page).locator("tbody tr")
    label = page.locator("label.filter")
    label.get_by_role("searchbox").fill("vector=TRUE")
    expect(label.locator("output")).to_have_text("2 of 5 rows")
    expect(rows.locator("visible=true")).to_have_count(2)
    label.get_by_role("searchbox").fill("vector=true 4.25")
    expect(rows.locator("visible=true")).to_have_count(1)
    label.get_by_role("searchbox").fill("")
    expect(rows.locator("visible=true")).to_have_count(5)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_is_readable(opened: Page, scheme: str, update: bool) -> None:
    opened.set_viewport_size({"width": 1000, "height": 900})
    opened.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    assert violations(opened) == []
    check_picture(f"report_{scheme}", opened.screenshot(full_page=True), update=update)


def test_a_hostile_database_executes_nothing(page: Page, tmp_path: Path) -> None:
    attack = f"<img src=x onerror=\"document.title='owned'\">{HOSTILE}"
    tuning = Tuning(tmp_path / "tuning.db")
    workload = Workload("a" * 64, attack, attack, attack, 1, 1)
    tuning.database.put(
        workload, ScheduleRecord(f'{{"version": 1, "a": "{"b" * 99}"}}', 1, attack, "")
    )
    session = tuning.start(workload)
    tuning.trial(session, 2, None, attack)
    tuning.trial(session, 2, 1e-3)
    file = tmp_path / "report.html"
    file.write_text(report(tuning.database, now=NOON), encoding="utf-8")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    page.goto(file.as_uri())
    assert page.title() == "Tuning database"
    assert page.locator("img").count() == 0
    assert "<img src=x" in page.locator("main").inner_text()
    assert asked == [file.as_uri()]
    # A script that got into the page after all would not run: the policy names the one that may.
    page.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = "document.title = 'owned'";
            document.body.append(script);
        }"""
    )
    assert page.title() == "Tuning database"
