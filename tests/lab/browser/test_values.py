"""What cells show, in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Callable

from .accessibility import violations
from .jupyter import Notebook, switch

FRAGMENT = """\
import htpy as h
from IPython.display import HTML
from tilewright.lab.page import fragment
HTML(fragment(h.p["an output of ", h.span(".soft")["Tilewright"]]))"""


def test_outputs_follow_the_theme(notebook: Callable[..., Notebook]) -> None:
    opened = notebook(FRAGMENT)
    opened.run()
    colours = []
    for dark in (False, True):
        switch(opened.page, dark=dark)
        soft = opened.output(0).locator(".soft")
        colours.append(soft.evaluate("e => getComputedStyle(e).color"))
        assert violations(opened.page, ".jp-OutputArea-output") == []
    assert colours[0] != colours[1]
    assert opened.errors == []
