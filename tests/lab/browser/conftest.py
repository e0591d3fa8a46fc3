"""One browser and one JupyterLab, where there is a Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from .jupyter import JUPYTERLAB, Notebook, Server, running, show, switch

_PROGRAMS = "chromium", "chromium-browser", "google-chrome"
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)
_TIMEOUT = 30_000
"""Milliseconds after which a page that does not become as expected fails its test."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("there is no Chromium: make browser-tools")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=list(_ARGUMENTS))


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page of 1600 by 1000 pixels."""
    with browser.new_context(viewport={"width": 1600, "height": 1000}) as context:
        context.set_default_timeout(_TIMEOUT)
        yield context.new_page()


@pytest.fixture(scope="session")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(JUPYTERLAB, tmp_path_factory.mktemp("jupyter")) as server:
        yield server


@pytest.fixture(scope="session")
def front_end_page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of JupyterLab, which loads once for all tests."""
    with browser.new_context(viewport={"width": 1600, "height": 1000}) as context:
        context.set_default_timeout(_TIMEOUT)
        page = context.new_page()
        show(page, server, "lab")
        yield page


@pytest.fixture
def notebook(
    front_end_page: Page, server: Server, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Notebook]]:
    """Opens a notebook with a cell for each source, in the light theme; closed with the test."""
    opened: list[Notebook] = []

    def open_notebook(*sources: str) -> Notebook:
        name = f"{request.node.originalname}{len(opened)}"
        opened.append(Notebook(front_end_page, server, name, *sources))
        return opened[-1]

    yield open_notebook
    for one in reversed(opened):
        one.close()
    front_end_page.set_viewport_size({"width": 1600, "height": 1000})
    switch(front_end_page, dark=False)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether screenshots are written anew."""
    return bool(request.config.getoption("--update"))
