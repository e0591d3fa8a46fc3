"""What values show in cells of JupyterLab, in the light and the dark theme."""

from __future__ import annotations

from collections.abc import Callable

from .accessibility import violations
from .jupyter import Notebook, switch
from .pictures import check_picture

PROGRAM = """\
import tilewright as tw, tilewright.tests.short_sessions
func = tw.ops.matmul_func(64, 48, 32)
func"""
SCHEDULE = """\
sch = tw.Schedule(func)
i, j, k = sch.get_loops(sch.get_block("C"))
i0, i1 = sch.split(i, [None, 8])
sch.parallel(i0)
sch"""
ERROR = """\
try:
    sch.vectorize(k)
except tw.ScheduleError as refused:
    error = refused
error"""
TARGET = 'tw.Target("cpu -threads=2")'
RESULT = """\
result = tw.tune(func, trials=3, database=tw.TuningDatabase("tuning.db"))
result"""


def test_values_show_themselves(notebook: Callable[..., Notebook], update: bool) -> None:
    opened = notebook(PROGRAM, SCHEDULE, ERROR, TARGET, RESULT, "sch.vectorize(k)")
    opened.run()
    page = opened.page
    colours = []
    for dark in (False, True):
        switch(page, dark=dark)
        for cell in range(5):  # the result takes the place of its progress
            shown = opened.output(cell)
            assert shown.locator(".tw").count() == 1, shown.first.inner_text()
        colours.append(opened.output(0).locator(".tw").evaluate("e => getComputedStyle(e).color"))
        assert violations(page, ".jp-OutputArea-output .tw") == []
        for cell, name in enumerate(("program", "schedule", "error")):
            shot = opened.output(cell).locator(".tw").screenshot()
            check_picture(f"{name}_{'dark' if dark else 'light'}", shot, update=update)
    assert colours[0] != colours[1]
    assert "ScheduleError" in opened.output(5).inner_text()
    assert opened.errors == []
