"""A front end of notebooks that runs for tests, and a notebook in it, driven through a browser.

JupyterLab and Notebook 7 are made of the same parts: `window.jupyterapp` takes the
same commands. In Notebook 7 each notebook is a page.

The server listens on 127.0.0.1 at a free port and has folders of its own for everything that it
writes. Its kernels are the Python that runs the tests, with this checkout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from playwright.sync_api import ConsoleMessage, Error, Locator, Page

_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},  # all cells are in the document
}
_OPTIONS = (
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port_retries=100",
    "--ServerApp.terminals_enabled=False",
    "--ServerApp.root_dir=.",
    "--ServerApp.allow_root=True",
    "--ServerApp.open_browser=False",
)
_PROGRAM = """\
import os, signal, sys, threading

def watch():
    sys.stdin.read()  # until the tests are gone, however they ended
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=watch, daemon=True).start()
from {module} import main
main()
"""
_AT_START = "Cannot read properties of undefined (reading 'schema')"
"""Notebook 7.6 throws this when it opens any notebook, an empty one too."""
_START_SECONDS, _STOP_SECONDS = 60.0, 10.0


class FrontEnd(NamedTuple):
    """The module of a front end with a function `main`, and options of its own."""

    module: str
    options: tuple[str, ...]


JUPYTERLAB = FrontEnd(
    "jupyterlab.labapp",
    ("--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"),
)
JUPYTER_SERVER = FrontEnd("jupyter_server.serverapp", ())
NOTEBOOK_7 = FrontEnd("notebook.app", ("--JupyterNotebookApp.expose_app_in_browser=True",))


class Server(NamedTuple):
    """A running front end: its address, what it lets in, and the folder of its notebooks."""

    front_end: FrontEnd
    url: str
    token: str
    folder: Path


@contextmanager
def running(front_end: FrontEnd, folder: Path) -> Iterator[Server]:
    """A front end below `folder`, which ends with the context, and its kernels with it."""
    work = folder / "work"
    work.mkdir(parents=True)
    for name, values in _SETTINGS.items():
        path = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    log = folder / "server.log"
    program = _PROGRAM.replace("{module}", front_end.module)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *_OPTIONS, *front_end.options],
            cwd=work,
            env=environment(folder),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
        )
    try:
        yield Server(front_end, *_address(process, folder / "runtime", log), work)
    finally:
        end(process)


class Notebook:
    """A notebook in a page of a front end, with a cell for each of its sources."""

    def __init__(self, page: Page, server: Server, name: str, *sources: str) -> None:
        self.page = page
        self.errors: list[str] = []
        """The errors of the browser's console since the notebook was opened."""
        path = server.folder / f"{name}.ipynb"
        path.write_text(json.dumps(written(sources)), encoding="utf-8")
        page.on("console", self._note)
        page.on("pageerror", self._fail)
        if server.front_end is NOTEBOOK_7:
            show(page, server, f"notebooks/{path.name}")
        else:
            self.command("docmanager:open", path=path.name)
        self._ready()

    def close(self) -> None:
        """End the kernel, and close the notebook without keeping it."""
        self.page.remove_listener("console", self._note)
        self.page.remove_listener("pageerror", self._fail)
        self.page.evaluate(
            """async () => {
                const notebook = window.jupyterapp.shell.currentWidget;
                await notebook.sessionContext.shutdown();
                notebook.dispose();
            }"""
        )

    @property
    def cells(self) -> Locator:
        """The cells, in order."""
        return self.page.locator(".jp-Notebook .jp-CodeCell")

    def output(self, cell: int) -> Locator:
        """The outputs of a cell."""
        return self.cells.nth(cell).locator(".jp-OutputArea-output")

    def run(self) -> None:
        """Run all cells, and return when the last is done. Those after an error do not run."""
        self.command("notebook:run-all-cells")
        self.page.wait_for_function(
            r"""() => {
                const cells = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell')];
                const prompts = cells.map((c) => c.querySelector('.jp-InputPrompt').textContent);
                return /\d/.test(prompts[0]) && !prompts.some((p) => p.includes('*'));
            }"""
        )

    def restart(self) -> None:
        """Restart the kernel without asking, and keep the outputs."""
        self.page.evaluate(
            "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
        )
        self._ready()

    def interrupt(self) -> None:
        """Interrupt the kernel."""
        self.command("notebook:interrupt-kernel")

    def command(self, name: str, **arguments: Any) -> None:
        """Execute a command of the front end."""
        execute(self.page, name, **arguments)

    def _ready(self) -> None:
        self.page.wait_for_function(
            """() => {
                const context = window.jupyterapp.shell.currentWidget?.sessionContext;
                const kernel = context?.session?.kernel;
                return kernel?.status === 'idle' && kernel.connectionStatus === 'connected';
            }"""
        )

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _fail(self, error: Error) -> None:
        if error.message != _AT_START:
            self.errors.append(str(error))


def show(page: Page, server: Server, path: str) -> None:
    """Open a page of the front end."""
    page.goto(f"{server.url}{path}?reset&token={server.token}")
    page.wait_for_function("window.jupyterapp?.restored.then(() => true)")


def switch(page: Page, *, dark: bool) -> None:
    """Switch the front end to its light or its dark theme."""
    execute(page, "apputils:change-theme", theme="JupyterLab Dark" if dark else "JupyterLab Light")
    light = "false" if dark else "true"
    page.wait_for_selector(f"body[data-jp-theme-light={light}]", state="attached")


def execute(page: Page, name: str, **arguments: Any) -> None:
    """Execute a command of the front end."""
    page.evaluate(
        "([name, args]) => window.jupyterapp.commands.execute(name, args).then(() => {})",
        [name, arguments],
    )


def written(sources: Iterable[str]) -> dict[str, Any]:
    """A notebook as its file format has it, with a cell for each source."""
    cells = [
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": []}
        | {"execution_count": None, "id": f"cell-{k}"}
        for k, source in enumerate(sources)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}


def environment(folder: Path) -> dict[str, str]:
    """The environment of the server: nothing of the user's is read or written."""
    own = {
        "HOME": "home",
        "IPYTHONDIR": "ipython",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "TILEWRIGHT_CACHE": "cache",
        "XDG_CACHE_HOME": "cache",
        "XDG_CONFIG_HOME": "config",
        "XDG_DATA_HOME": "data",
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY", "PYTEST"))}
    return kept | {name: str(folder / below) for name, below in own.items()}


def _address(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> tuple[str, str]:
    """Where the server listens, and its token: it writes them to a file when it does."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        for file in runtime.glob("jpserver-*.json"):
            try:
                about = json.loads(file.read_text(encoding="utf-8"))
                return about["url"], about["token"]
            except json.JSONDecodeError:  # it is being written
                break
        time.sleep(0.05)
    text = log.read_text(encoding="utf-8", errors="replace")
    raise RuntimeError(f"the front end did not start:\n{text[-4000:]}")


def end(process: subprocess.Popen[bytes]) -> None:
    """End the server and what it started, gently first."""
    children = (
        psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    )
    process.terminate()
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(children, _STOP_SECONDS)
    for child in alive:
        child.kill()
