"""Pictures in the themes of VS Code: the classes and variables that its outputs have."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tilewright import ops
from tilewright.lab.pictures.views import html_of
from tilewright.lab.workbench.workbench import Workbench

from ..test_plot import SCHEDULE
from .accessibility import violations
from .front import open_front

_PAGE = """<!doctype html><html lang="en"><title>An output</title><style>
:root {{ --vscode-editor-foreground: {ink}; --vscode-editor-background: {ground};
  --jp-ui-font-color1: rgba(0, 0, 0, 0.8); --jp-layout-color0: white; }}
code {{ color: #777777; }}
body {{ background: {ground}; }}
</style><body class="{classes}"><main>{html}</main></body></html>"""
"""An output of VS Code once it has loaded what draws widgets, with variables of JupyterLab."""


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("classes", "ink", "ground"),
    [
        ("vscode-light", "#3b3b3b", "#ffffff"),
        ("vscode-dark", "#cccccc", "#1f1f1f"),
        ("vscode-high-contrast", "#ffffff", "#000000"),
        ("vscode-high-contrast-light vscode-high-contrast", "#292929", "#ffffff"),
    ],
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_can_be_read(page: Page, classes: str, ink: str, ground: str, scheme: str) -> None:
    """The editor's theme counts, whatever the reader's choice of light or dark is."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    html = html_of(SCHEDULE)
    page.set_content(_PAGE.format(classes=classes, ink=ink, ground=ground, html=html))
    page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert violations(page) == []
    red, green, blue = (int(ink[k : k + 2], 16) for k in (1, 3, 5))
    for part in page.locator(".tw, .tw code").all():
        colour = part.evaluate("(e) => getComputedStyle(e).color")
        assert colour == f"rgb({red}, {green}, {blue})"


def test_the_lab_is_in_no_white_box(page: Page) -> None:
    """What is around a widget in VS Code is white in all themes."""
    lab = open_front(page, Workbench(ops.matmul_func(64, 48, 32)))
    page.add_style_tag(
        content=".cell-output-ipywidget-background { background: white !important; }"
    )
    lab.locator("..").evaluate("(e) => e.classList.add('cell-output-ipywidget-background')")
    ground = "(e) => getComputedStyle(e).backgroundColor"
    assert lab.locator("..").evaluate(ground) == "rgba(0, 0, 0, 0)"
