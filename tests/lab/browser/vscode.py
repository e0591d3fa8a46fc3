"""VS Code that runs for tests, and a notebook in it, driven through a browser.

It is code-server: VS Code with what it has of its own for notebooks, without Microsoft's Jupyter
extension. In its place `vscode_extension` runs cells in a kernel of a Jupyter server, and draws
widgets with the widget manager of that extension, in the same page, which VS Code makes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from jupyter_core.paths import jupyter_path
from playwright.sync_api import Frame, FrameLocator, Page, expect

from .jupyter import Server, end, environment

TOOLS = Path(__file__).parents[3] / "build" / "vscode"
_MODULES = TOOLS / "node_modules"
_NODE, _PROGRAM = _MODULES / "node/bin/node", _MODULES / "code-server/out/node/entry.js"
_EXTENSION = Path(__file__).parent / "vscode_extension"
_OPTIONS = (
    "--auth=none",
    "--bind-addr=127.0.0.1:0",
    "--disable-telemetry",
    "--disable-update-check",
    "--disable-workspace-trust",
    "--disable-getting-started-override",
)
_SETTINGS = {
    "chat.disableAIFeatures": True,
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "git.enabled": False,
    "telemetry.telemetryLevel": "off",
    "workbench.editorAssociations": {"*.ipynb": "jupyter-notebook"},
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
}
_WHOLE = """\
import signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: None)  # the end of the input follows
editor = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
sys.stdin.read()  # until the tests are gone, however they ended
editor.terminate()
editor.wait()
"""
_START_SECONDS = 60.0
SLOW = 60_000
"""Milliseconds in which VS Code draws the outputs of a notebook on a busy machine."""
CELLS = ".notebookOverlay .code-cell-row"
THEMES = {
    "Light Modern": "vscode-light",
    "Dark Modern": "vscode-dark",
    "Default High Contrast": "vscode-high-contrast",
    "Default High Contrast Light": "vscode-high-contrast-light",
}
"""Themes that VS Code brings, and what it calls their kinds."""


class Editor(NamedTuple):
    """A running VS Code: its address, the folder that it shows, and the file of its settings."""

    url: str
    folder: Path
    settings: Path

    def use(self, theme: str | None) -> None:
        """Use a theme for pages that are opened from now on; `None`: what their browser prefers."""
        chosen = (
            {"window.autoDetectColorScheme": True}
            if theme is None
            else {"workbench.colorTheme": theme}
        )
        self.settings.write_text(json.dumps(_SETTINGS | chosen), "utf-8")


def need_vscode() -> None:
    """Skip the test where VS Code is not installed for tests."""
    for part in (_NODE, _PROGRAM, TOOLS / "tools" / "require.js"):
        if not part.exists():
            pytest.skip("there is no VS Code: make vscode-tools")


@contextmanager
def running_editor(folder: Path, server: Server) -> Iterator[Editor]:
    """VS Code below `folder`, whose cells run in a kernel of `server`; it ends with the context."""
    work, settings = folder / "work", folder / "user" / "User" / "settings.json"
    work.mkdir(parents=True)
    settings.parent.mkdir(parents=True)
    _install(folder / "extensions" / "tilewright-tests.notebooks-0.0.1", server)
    paths = f"--user-data-dir={folder / 'user'}", f"--extensions-dir={folder / 'extensions'}"
    log = folder / "editor.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _WHOLE, _NODE, _PROGRAM, *_OPTIONS, *paths, work],
            env=environment(folder) | {"EXTENSIONS_GALLERY": "{}"},
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
        )
    try:
        editor = Editor(_address(process, log), work, settings)
        editor.use(None)
        yield editor
    finally:
        end(process)


def open_notebook(page: Page, editor: Editor, name: str) -> FrameLocator:
    """Open a notebook of the editor's folder. Returns the page of its outputs."""
    file = f"vscode-remote://{urlsplit(editor.url).netloc}{editor.folder / name}"
    payload = quote(json.dumps([["openFile", file]]))
    page.goto(f"{editor.url}?folder={quote(str(editor.folder))}&payload={payload}")
    page.locator(".notebookOverlay .cell-list-container").wait_for(timeout=SLOW)
    return page.frame_locator("iframe.webview.ready").frame_locator("#active-frame")


def run(page: Page, cells: int) -> None:
    """Run all cells of the open notebook, that many, and return when the last is done."""
    page.locator(".kernel-label", has_text="Python").wait_for(timeout=SLOW)
    expect(page.locator(CELLS)).to_have_count(cells, timeout=SLOW)
    page.get_by_role("button", name="Run All").first.click()
    done = page.locator(".notebookOverlay .codicon-notebook-state-success")
    expect(done).to_have_count(cells, timeout=SLOW)


def frame_of(outputs: FrameLocator) -> Frame:
    """The page of outputs as a frame, once there is one."""
    handle = outputs.locator("body").element_handle()
    frame = handle.owner_frame()
    assert frame is not None
    return frame


def _install(place: Path, server: Server) -> None:
    shutil.copytree(_EXTENSION, place)
    shutil.copytree(TOOLS / "tools", place / "tools")
    for folder in map(Path, jupyter_path("nbextensions")):
        if (folder / "anywidget").exists():
            shutil.copytree(folder, place / "tools" / "nbextensions")
            break
    about = {"url": server.url, "token": server.token}
    (place / "server.json").write_text(json.dumps(about), encoding="utf-8")


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where the editor listens: it says so in its log when it does."""
    until = time.monotonic() + _START_SECONDS
    text = ""
    while time.monotonic() < until and process.poll() is None:
        text = log.read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"listening on (http://127\.0\.0\.1:\d+/)", text):
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"VS Code did not start:\n{text[-4000:]}")
