"""What axe-core, the common checker of accessibility, finds in a page."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Frame, Page

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def violations(page: Page | Frame, selector: str = "html") -> list[str]:
    """How what `selector` matches violates WCAG 2.2, level AA: a line for each place.

    Skips the test where axe-core is not installed.
    """
    pytest.importorskip("axe_playwright_python", reason="axe-core is not installed")
    source = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page.evaluate(f"window.axe ?? (() => {{ {source} }})()")
    found: list[dict[str, Any]] = page.evaluate(
        """async ([selector, rules]) => (await axe.run(selector, {
            runOnly: rules, resultTypes: ['violations'],
        })).violations""",
        [selector, _RULES],
    )
    return [
        f"{rule['id']}: {place['html']}: {place['failureSummary']}"
        for rule in found
        for place in rule["nodes"]
    ]
