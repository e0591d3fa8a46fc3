"""Pictures, the result of tuning and the lab in VS Code, without Microsoft's Jupyter extension."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import html5lib
import pytest
from playwright.sync_api import Browser, Frame, Page, ViewportSize, expect

from .accessibility import violations
from .jupyter import JUPYTER_SERVER, running, written
from .pictures import check_picture
from .test_lab import check_export, current, measured
from .vscode import (
    CELLS,
    SLOW,
    THEMES,
    Editor,
    frame_of,
    need_vscode,
    open_notebook,
    run,
    running_editor,
)

TALL: ViewportSize = {"width": 1500, "height": 3000}
KEPT = sorted((Path(__file__).parents[3] / "examples" / "notebooks").glob("*.ipynb"))
LAB = """\
import tilewright as tw
func = tw.ops.matmul_func(64, 48, 32)
database = tw.TuningDatabase("tuning.db")
lab = tw.lab(func, "cpu -threads=2", database)
lab"""
TUNE = 'tw.tune(func, "cpu -threads=2", trials=3, database=database)'
ECHO = """\
import anywidget

class Echo(anywidget.AnyWidget):
    _esm = '''export default { render({ model, el }) {
        model.on("msg:custom", ({ length }, [answer]) => {
            el.textContent = `${length}: ${[...new Uint8Array(answer.buffer)]}`;
        });
        el.className = "echo";
        model.send({ length: 3 }, undefined, [new Uint8Array([1, 2, 255])]);
    } };'''

def echo(widget, content, buffers):
    widget.send({"length": content["length"]}, [bytes(reversed(buffers[0]))])

widget = Echo()
widget.on_msg(echo)
widget"""


@pytest.fixture(scope="module")
def editor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    need_vscode()
    folder = tmp_path_factory.mktemp("vscode")
    with (
        running(JUPYTER_SERVER, folder / "jupyter") as server,
        running_editor(folder / "editor", server) as editor,
    ):
        yield editor


def pictures(notebook: Path) -> list[str]:
    """The pictures of this package in the outputs of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    shown = ["".join(output.get("data", {}).get("text/html", [])) for output in outputs]
    return [html for html in shown if html.startswith('<div class="tw">')]


def elements(html: str) -> list[tuple[str, int]]:
    """How often each element is in a picture."""
    body = html5lib.parse(html, namespaceHTMLElements=False).find("body")
    return sorted(Counter(str(e.tag) for e in body.iter()).items())


def ink(frame: Frame) -> str:
    """The colour of texts in the editor's theme."""
    return frame.evaluate(  # type: ignore[no-any-return]
        """() => {
            const probe = document.body.appendChild(document.createElement('i'));
            probe.style.color = 'var(--vscode-editor-foreground)';
            const { color } = getComputedStyle(probe);
            probe.remove();
            return color;
        }"""
    )


@pytest.mark.parametrize(
    ("theme", "notebook"),
    [
        *(("Dark Modern", kept) for kept in KEPT),
        *((theme, KEPT[-1]) for theme in THEMES if theme != "Dark Modern"),
    ],
    ids=lambda value: getattr(value, "stem", value),
)
def test_kept_outputs(page: Page, editor: Editor, theme: str, notebook: Path) -> None:
    """VS Code draws them whole, in the colours of its theme."""
    editor.use(theme)
    shutil.copy(notebook, editor.folder)
    kept = pictures(notebook)
    page.set_viewport_size(TALL)
    outputs = open_notebook(page, editor, notebook.name)
    shown = outputs.locator(".tw")  # not in the order of cells
    expect(shown).to_have_count(len(kept), timeout=SLOW)
    kind = outputs.locator("body").get_attribute("data-vscode-theme-kind")
    assert kind == THEMES[theme]
    drawn = [elements(picture.evaluate("(e) => e.outerHTML")) for picture in shown.all()]
    assert sorted(drawn) == sorted(map(elements, kept))
    frame = frame_of(outputs)
    colour = ink(frame)
    for part in (*shown.all(), *outputs.locator(".tw pre code").all()):
        expect(part).to_have_css("color", colour)
    assert violations(frame, ".tw") == []


def test_work_in_the_lab(page: Page, editor: Editor, tmp_path: Path, update: bool) -> None:
    """With the widget manager of Microsoft's Jupyter extension, and a kernel."""
    editor.use(None)
    (editor.folder / "lab.ipynb").write_text(json.dumps(written([LAB, TUNE, ECHO])), "utf-8")
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.set_viewport_size(TALL)
    outputs = open_notebook(page, editor, "lab.ipynb")
    run(page, 3)
    result = outputs.locator(".tw:not(.tw-lab)")  # in the place of the live picture
    expect(result).to_have_count(1, timeout=SLOW)
    expect(result).to_contain_text("all 3 trials are done")
    expect(outputs.locator(".echo")).to_have_text("3: 255,2,1", timeout=SLOW)

    lab = outputs.locator(".tw-lab")
    lab.get_by_role("button", name="sch.split(i, factors=[None, 8])").click()
    lab.get_by_role("button", name="sch.parallel(i_0)").click()
    expect(current(lab)).to_contain_text("parallel(i_0)")
    rows = lab.get_by_role("treeitem")
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(rows.first).to_be_focused()
    lab.get_by_role("button", name="Undo").focus()
    page.keyboard.press("b")  # a command of the notebook, where that has the focus
    slider = lab.get_by_role("slider", name="split(i) factors[1]")
    before = lab.locator(".predicted").inner_text()
    slider.focus()
    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "64")
    expect(lab.locator(".predicted")).not_to_have_text(before)
    expect(page.locator(CELLS)).to_have_count(3)
    lab.get_by_role("button", name="Keep as a version").click()
    expect(current(lab)).to_contain_text("split(i) factors[1] = 64")
    measured(lab)

    check_export(lab, tmp_path)

    lab.get_by_role("button", name="Tree").click()
    lab.get_by_role("tab", name="Sizes").click()
    frame = frame_of(outputs)
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme)
        kind = f"body[data-vscode-theme-kind='vscode-{scheme}']"
        expect(outputs.locator(kind)).to_have_count(1)
        for around in outputs.locator(".cell-output-ipywidget-background:has(.tw-lab)").all():
            expect(around).to_have_css("background-color", "rgba(0, 0, 0, 0)")
        for picture in outputs.locator(".tw").all():
            expect(picture).to_have_css("color", ink(frame))
        assert violations(frame, ".tw") == []
        check_picture(f"vscode_{scheme}", lab.screenshot(), update=update)
    assert faults == []
