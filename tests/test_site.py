"""The site of docs/: what its hooks do. `make docs` builds it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from tilewright import target, tuning_db
from tilewright.base import errors
from tilewright.schedule import PRIMITIVES

ROOT = Path(__file__).resolve().parent.parent
site = runpy.run_path(str(ROOT / "scripts" / "site_hooks.py"))


def shown(markdown: str, uri: str = "howto/page.md") -> str:
    """A page as its hooks leave it, before and after Markdown is converted."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
    html: str = site["on_page_content"](site["on_page_markdown"](markdown, page), page)
    return html


def test_links_lead_to_pages_of_the_site_or_become_text() -> None:
    text = "[a](../tuning.md#the-gain) [b](../../ARCHITECTURE.md) [c](../../tir/ir.py) [d](#here)"
    assert shown(text) == "[a](../tuning.md#the-gain) [b](../ARCHITECTURE.md) c [d](#here)"
    text = "[a](docs/tuning.md) [LICENSE](LICENSE) [e](https://example.org/x)"
    assert shown(text, "ARCHITECTURE.md") == "[a](tuning.md) LICENSE [e](https://example.org/x)"
    text = "[a](../../docs/tuning.md) ![b](../x.png)"
    assert shown(text, "notebooks/n.md") == "[a](../tuning.md) ![b](../x.png)"


def test_code_is_not_searched_for_links() -> None:
    text = "```python\na[0](../../tir/ir.py)\n```"
    assert shown(text) == text


def test_words_after_a_fence_are_dropped() -> None:
    assert shown("```text measured\n1 ms\n```") == "```text\n1 ms\n```"


class Drawn:
    def _repr_html_(self) -> str:
        return "<p>drawn</p>"


def test_a_picture_follows_the_code_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.Drawn", Drawn, raising=False)
    text = "```python\nd = Drawn()\n```\n\n```python picture\nd\n```\n\nend"
    assert shown(text) == (
        "```python\nd = Drawn()\n```\n\n```python\nd\n```\n\n"
        '<div class="picture"><template shadowrootmode="open"><p>drawn</p></template></div>\n\nend'
    )


def test_code_without_a_picture_fails() -> None:
    with pytest.raises(TypeError):
        shown("```python picture\n1\n```")
    with pytest.raises(TypeError):
        shown("```python picture\nx = 1\n```")


def test_pages_that_load_from_elsewhere_are_found() -> None:
    for html in (
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//cdn.example/x.css">',
        "<img alt='' src='http://cdn.example/x.png'>",
    ):
        assert len(site["loaded_from_elsewhere"](html)) == 1
    assert site["loaded_from_elsewhere"]('<a href="https://x.org">x</a><img src="a.png">') == []


def test_the_search_needs_no_server_and_no_network() -> None:
    """`offline` makes a script of the index. Its default for a worker is in the network."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "\n  - offline\n" in config
    (worker,) = re.findall(r"^  polyfills: \[(.*?)\]", config, re.MULTILINE)
    assert "iframe-worker" in worker
    assert (ROOT / "docs" / worker).is_file()


def test_outputs_of_notebooks_are_shown() -> None:
    def output(**fields: Any) -> str:
        html: str = site["output_of"](fields, "page")
        return html

    assert output(output_type="stream", text=["a\n", "b\n"]) == "```text\na\nb\n```"
    assert output(data={"text/plain": ["1"]}) == "```text\n1\n```"
    assert "data-picture" in output(data={"text/plain": "x", "text/html": ["<p>", "x</p>"]})
    assert (
        output(traceback=["\x1b[31mScheduleError\x1b[0m: no"]) == "```text\nScheduleError: no\n```"
    )
    assert output(data={"text/plain": ""}) == ""


def test_the_reference_has_every_public_name() -> None:
    pages = "\n".join(p.read_text("utf-8") for p in (ROOT / "docs" / "reference").glob("*.md"))
    entries = set(re.findall(r"^::: tilewright\.(\S+)$", pages, re.MULTILINE))
    documented = {name for name, module in tw._MODULES.items() if module[1:] in entries}
    documented |= {entry.rpartition(".")[2] for entry in entries}
    for module in (errors, target, tuning_db):
        if module.__name__.removeprefix("tilewright.") in entries:
            documented |= set(getattr(module, "__all__", vars(module)))
    assert set(tw.__all__) - documented == set()


def test_the_reference_has_every_primitive() -> None:
    page = site["primitives_page"]()
    entries = re.findall(r"^::: (\S+)\.(\w+)$", page, re.MULTILINE)
    built_in = {n for n, p in PRIMITIVES.items() if p.function.__module__.startswith("tilewright.")}
    assert built_in <= {name for _, name in entries}
