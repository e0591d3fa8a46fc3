"""What the site does beside mkdocs: pages from outside docs/, notebooks, and pictures.

- ARCHITECTURE.md, CONTRIBUTING.md and the notebooks of examples/notebooks/ are pages too, and the
  functions of all primitives have one.
- A link to a file that is no page of the site becomes its text: the site needs no repository.
- A block of `python picture` is followed by the picture of its last expression. The blocks of
  such a page run while the site is built, in order, in a folder of their own.
- Nothing is loaded from elsewhere: a page with a script, style or image of another host fails.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import os
import posixpath
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = ROOT / "examples" / "notebooks"
INSIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md")
"""Pages at the root of the repository."""
PRIMITIVES_PAGE = "reference/primitives.md"
PRIMITIVES_INTRODUCTION = """\
# Primitives as functions

Each step of a schedule is a pure function: it takes a program, and returns the new program and the
handles that the step makes. [A primitive of your own](../howto/write_a_primitive.md) is made of
these. As methods of a `Schedule` they are in [Primitives](../schedules.md)."""

_FENCE = re.compile(r"^```(\w+)((?: [^\n]*)?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ASSET = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)"
)
_pictures: dict[str, list[str]] = {}
"""The HTML that stands in the place of each mark of a page."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for name in INSIDE:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        uri = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, uri, content=notebook_page(path, uri)))
    files.append(File.generated(config, PRIMITIVES_PAGE, content=primitives_page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Resolve links, make pictures, and leave of the words after a fence its language."""
    uri: str = page.file.src_uri
    markdown = with_site_links(markdown, source_of(uri), uri)
    values = iter(values_of(markdown) if "```python picture\n" in markdown else ())

    def plain(m: re.Match[str]) -> str:
        block = f"```{m[1]}\n{m[3]}```"
        if m[2] != " picture":
            return block
        return f"{block}\n\n{_mark(uri, picture(next(values)))}"

    return _FENCE.sub(plain, markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Put pictures in the places of their marks."""
    for number, shown in enumerate(_pictures.pop(page.file.src_uri, ())):
        html = html.replace(f'<div data-picture="{number}"></div>', shown)
    return html


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse what would be loaded from another host."""
    from mkdocs.exceptions import PluginError

    if elsewhere := loaded_from_elsewhere(output):
        raise PluginError(f"{page.file.src_uri} loads {', '.join(elsewhere)}")
    return output


def loaded_from_elsewhere(html: str) -> list[str]:
    return _ASSET.findall(html)


def _mark(uri: str, html: str) -> str:
    """The place of a picture in Markdown, which would otherwise read HTML as text in part.

    A picture is a tree of its own in the page: the style of the site is not for it.
    """
    pictures = _pictures.setdefault(uri, [])
    pictures.append(f'<div class="picture"><template shadowrootmode="open">{html}</template></div>')
    return f'<div data-picture="{len(pictures) - 1}"></div>'


def source_of(uri: str) -> Path:
    """The file of the repository that a page is made of."""
    if uri in INSIDE:
        return ROOT / uri
    if uri.startswith("notebooks/"):
        return NOTEBOOKS / f"{Path(uri).stem}.ipynb"
    return DOCS / uri


def uri_of(path: Path) -> str | None:
    """The page that is made of a file, or `None` if there is none."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    if path.parent == NOTEBOOKS and path.suffix == ".ipynb":
        return f"notebooks/{path.stem}.md"
    return path.name if path.parent == ROOT and path.name in INSIDE else None


def with_site_links(markdown: str, source: Path, uri: str) -> str:
    """Markdown of `source` with links to pages of the site, and other files named by their text."""

    def moved(m: re.Match[str]) -> str:
        text, link = m[1], urlsplit(m[2])
        if link.scheme or not link.path:
            return m[0]
        target = uri_of(Path(os.path.normpath(source.parent / link.path)))
        if target is None:
            return text
        anchor = f"#{link.fragment}" if link.fragment else ""
        return f"[{text}]({posixpath.relpath(target, posixpath.dirname(uri) or '.')}{anchor})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(p if p.startswith("```") else _LINK.sub(moved, p) for p in parts)


def values_of(markdown: str) -> list[object]:
    """Run the `python` blocks of a page; returns the values of those that ask for a picture.

    The tests of the pages say which errors are expected.
    """
    from tilewright.base.errors import TilewrightError

    names: dict[str, Any] = {"__name__": "page"}
    values: list[object] = []
    value: object = None
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for m in _FENCE.finditer(markdown):
            if m[1] == "python" and m[2] in ("", " picture"):
                file = f"<block at {m.start()}>"
                linecache.cache[file] = len(m[3]), None, m[3].splitlines(keepends=True), file
                with quiet(), contextlib.suppress(TilewrightError):
                    value = run_block(m[3], names, file)
                if m[2]:
                    values.append(value)
    return values


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop what is printed."""
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def run_block(source: str, names: dict[str, Any], file: str = "page") -> object:
    """Run a block of Python; returns the value of the expression that it ends with, or `None`."""
    tree = ast.parse(source, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, file, "exec"), names)  # noqa: S102 - the pages are ours
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), file, "eval"), names)  # noqa: S307


def picture(value: Any) -> str:
    """The HTML of a value, as a notebook shows it. Raises `TypeError` if it has none."""
    for form in ("_repr_html_", "_repr_svg_"):
        if hasattr(value, form):
            return str(getattr(value, form)())
    if hasattr(value, "figure"):  # what matplotlib draws on
        drawn = io.StringIO()
        undated = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        value.figure.savefig(drawn, format="svg", bbox_inches="tight", metadata=undated)
        svg = drawn.getvalue()
        return '<svg style="max-width: 100%; height: auto"' + svg[svg.index("<svg") + 4 :]
    raise TypeError(f"a {type(value).__name__} has no picture")


def primitives_page() -> str:
    """The functions of all primitives, by the files that they are in."""
    from tilewright.schedule import PRIMITIVES

    families: dict[str, list[str]] = {}
    for primitive in PRIMITIVES.values():
        families.setdefault(primitive.function.__module__, []).append(primitive.name)
    parts = [PRIMITIVES_INTRODUCTION]
    for module, names in sorted(families.items()):
        title = (sys.modules[module].__doc__ or "").partition(":")[0].rstrip(".\n")
        parts.append(f"## {title}")
        parts += [f"::: {module}.{name}" for name in names]
    return "\n\n".join(parts) + "\n"


def notebook_page(path: Path, uri: str) -> str:
    """A notebook as Markdown, with its stored outputs."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [shown for output in cell["outputs"] if (shown := output_of(output, uri))]
    return "\n\n".join(parts) + "\n"


def output_of(output: Mapping[str, Any], uri: str) -> str:
    """One output of a cell: its picture if it has one, else its text."""
    data: Mapping[str, Any] = output.get("data", {})
    for mime in ("text/html", "image/svg+xml"):
        if mime in data:
            return _mark(uri, "".join(data[mime]))
    if "image/png" in data:
        text = escape("".join(data.get("text/plain", "a figure")))
        return _mark(uri, f'<img alt="{text}" src="data:image/png;base64,{data["image/png"]}">')
    lines = output.get("text") or data.get("text/plain") or "\n".join(output.get("traceback", ()))
    text = _COLOURS.sub("", "".join(lines)).rstrip("\n")
    return f"```text\n{text}\n```" if text else ""
