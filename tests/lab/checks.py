"""What every picture is checked for: valid HTML that no text can break, with names for readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import html5lib
import htpy as h

from tilewright.lab.pictures.page import page

HOSTILE = "<script>alert(1)</script>\"'&\x00\x1b[2J\u202e</style>"
"""A name that a database may have."""


def checked(*nodes: h.Node) -> Any:
    """The main element of a page with these pictures; fails for what readers cannot use."""
    whole = page("checked", *nodes)
    main = (
        html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(whole).find(".//main")
    )
    assert main is not None
    assert all(c.isprintable() or c in "\n\t" for c in whole)
    assert not list(main.iter("script"))
    ids = [e.get("id") for e in main.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    for table in main.iter("table"):
        assert words(table.find("caption")), "a table has a caption"
        assert list(table.iter("th")), "a table has headers"
    for picture in main.iter("svg"):
        assert picture.get("aria-label") or picture.find("title") is not None
    for control in (*main.iter("button"), *main.iter("summary"), *main.iter("a")):
        assert words(control) or control.get("aria-label"), "a control has a name"
    for folded in main.iter("details"):
        assert folded[0].tag == "summary"
    for code in main.iter("pre"):
        assert code.get("tabindex") == "0", "what scrolls can be scrolled by keys"
        assert code.get("aria-label")
    return main


def words(element: Any) -> str:
    """The text in an element, as a screen reader has it."""
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def with_class(element: Any, name: str) -> Iterator[Any]:
    """The elements in it that have a class."""
    return (e for e in element.iter() if name in (e.get("class") or "").split())
