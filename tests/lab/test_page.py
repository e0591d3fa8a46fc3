"""The frame of all pictures: safe text, one style, whole documents."""

from __future__ import annotations

import html5lib
import htpy as h
import pytest

from tilewright.lab.pictures.page import MOST, fragment, page, text
from tilewright.lab.pictures.views import html_of

HOSTILE = '<script>alert("x")</script>\x00\x1b[2J</style>'


def test_text_of_a_database_is_no_markup() -> None:
    shown = fragment(h.p(title=text(HOSTILE))[text(HOSTILE)])
    assert "<script" not in shown
    assert "\x00" not in shown
    assert "\x1b" not in shown
    assert shown.count("</style>") == 1


def test_long_texts_end() -> None:
    assert len(text("x" * 10_000_000)) == MOST
    assert text("x" * MOST) == "x" * MOST


@pytest.mark.parametrize("script", ["", "document.title = 'a && b < c';"])
def test_pages_are_valid_and_closed_to_the_network(script: str) -> None:
    whole = page("a < b", h.h1["a < b"], script=script)
    document = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(whole)
    policy = document.find("head/meta[@http-equiv]").get("content")
    assert policy.startswith("default-src 'none'")
    assert "a &lt; b" in whole
    assert ("script-src" in policy) is bool(script)


def test_kinds_without_a_view_say_so() -> None:
    with pytest.raises(TypeError):
        html_of(3)
