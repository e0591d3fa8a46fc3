"""HTML for notebooks and pages: the style that all pictures share, and safe text.

All of it is made with htpy, which escapes texts and attributes: nothing of a program or a database
is ever markup. Colours are those of the notebook's theme where there is one, else of the reader's
choice of light or dark. No meaning is in colours alone.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

import htpy as h
from markupsafe import Markup

from ...base.text import printable
from .stylesheet import style, style_for

MOST = 10_000
"""Characters of a text of a database that are shown; what is longer ends in an ellipsis."""
LINE = 160
"""Characters of a line of code that are shown in a picture of several."""


def text(value: object, most: int = MOST) -> str:
    """A text of others that is safe to show: control characters are replaced, and it is cut."""
    shown = str(value)
    if len(shown) > most:
        shown = f"{shown[: most - 1]}…"
    return printable(shown)


def fragment(*content: h.Node) -> str:
    """Content as one element for the output of a notebook's cell, with its style."""
    shown = Markup(str(h.fragment[content]))
    return str(h.div(".tw")[h.style[Markup(style_for(shown))], shown])


def page(title: str, *content: h.Node, script: str = "") -> str:
    """Content as a whole document: one file that needs no other, and no network.

    Browsers run this `script` and no other, whatever else is in the page.
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    policy += f"; script-src 'sha256-{_digest(script)}'" if script else ""
    whole = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.meta(http_equiv="Content-Security-Policy", content=policy),
            h.title[text(title)],
            h.style[Markup(style())],
        ],
        h.body(".tw.tw-page")[
            h.main[content],
            h.script[Markup(script)] if script else None,
        ],
    ]
    return str(whole)


def _digest(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode("ascii")
