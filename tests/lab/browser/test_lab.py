"""The lab as people use it, in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from .accessibility import violations
from .jupyter import Notebook, switch

LAB = """\
import tilewright as tw
func = tw.ops.matmul_func(64, 48, 32)
lab = tw.lab(func)
lab"""


def test_the_lab_in_a_notebook(notebook: Callable[..., Notebook]) -> None:
    opened = notebook(LAB)
    opened.run()
    lab = opened.output(0).locator(".tw-lab")
    lab.get_by_role("treeitem").nth(1).click()
    lab.get_by_role("button", name="sch.unroll(j)").click()
    expect(lab.locator(".version[aria-current] .id")).to_have_text("v1")
    for dark in (False, True):
        switch(opened.page, dark=dark)
        assert violations(opened.page, ".tw-lab") == []
    opened.restart()
    expect(lab.get_by_role("alert")).to_contain_text("Run the cell again")
    assert opened.errors == []
