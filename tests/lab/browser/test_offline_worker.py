"""The site's search without a server: its worker runs in a frame where browsers refuse workers."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import Page

SHIM = Path(__file__).parents[3] / "docs" / "assets" / "iframe-worker.js"
PAGE = """<!doctype html>
<title>waiting</title>
<body>
SHIM
<script>
  const worker = new Worker("parts/worker.js");
  worker.addEventListener("message", (event) => (document.title = event.data));
  worker.postMessage(20);
</script>
"""
WORKER = """
addEventListener("message", async ({ data }) => {
  await importScripts("parts/one.js", "parts/two.js");
  postMessage(`${data} + ${one} + ${two}`);
});
"""


def write(folder: Path, shim: str) -> str:
    """The address of a page, in a folder, that asks a worker for a sum."""
    (folder / "parts").mkdir()
    shutil.copy(SHIM, folder / "shim.js")
    (folder / "page.html").write_text(PAGE.replace("SHIM", shim))
    (folder / "parts" / "worker.js").write_text(WORKER)
    (folder / "parts" / "one.js").write_text("var one = 1;")
    (folder / "parts" / "two.js").write_text("var two = one + 1;")
    return (folder / "page.html").as_uri()


def test_a_worker_answers_on_a_page_of_a_folder(page: Page, tmp_path: Path) -> None:
    page.goto(write(tmp_path, '<script src="shim.js"></script>'))
    page.wait_for_function("document.title !== 'waiting'")
    assert page.title() == "20 + 1 + 2"


def test_without_it_a_worker_is_refused_there(page: Page, tmp_path: Path) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(error.message))
    page.goto(write(tmp_path, ""))
    page.wait_for_load_state()
    assert page.title() == "waiting"
    assert len(errors) == 1
    assert "Worker" in errors[0]
