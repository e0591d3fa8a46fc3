"""HTML for notebooks and pages: the style that all pictures share, and safe text.

All of it is made with htpy, which escapes texts and attributes: nothing of a program or a database
is ever markup. Colours are those of the notebook's theme where there is one, else of the reader's
choice of light or dark. No meaning is in colours alone.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import NamedTuple

import htpy as h
from markupsafe import Markup

from ...base.text import printable

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


# The style sheet of all pictures, and the part of it that one picture needs.
#
# Each picture has its style with it. A notebook keeps outputs one by one: they are cleared, copied
# and run again alone, and a style that only the first has would be gone with it. But of the whole
# sheet most pictures need less than half.

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_BRACE = re.compile(r"([^{}]*)([{}])")
_WITHOUT = re.compile(r":not\([^)]*\)|::?[\w-]+(?:\([^)]*\))?|\[[^\]]*\]")
"""Parts of a selector that ask for nothing by name: pseudo-classes and attributes."""
_CLASS = re.compile(r"\.([\w-]+)")
_ELEMENT = re.compile(r"(?:^|[\s>+~])([a-z]\w*)")
_CLASSES_OF = re.compile(r'\sclass="([^"]*)"')
_ELEMENTS_OF = re.compile(r"<([a-z]\w*)")
_VARIABLE = re.compile(r"var\((--[\w-]+)")
_VSCODE = ".vscode-light", ".vscode-dark", ".vscode-high-contrast", ".vscode-high-contrast-light"
_AROUND = frozenset({".tw", *_VSCODE, "body"})
"""What a picture is in."""


class Rule(NamedTuple):
    """Declarations for elements that a selector matches, where the `media` are so, if it has any.

    `names` are the elements, and the classes with a dot, that each of its selectors asks for.
    """

    media: str
    selector: str
    declarations: tuple[str, ...]
    names: tuple[frozenset[str], ...]


@cache
def style() -> str:
    """The whole sheet, for what changes after it was drawn."""
    return files(__package__).joinpath("style.css").read_text(encoding="utf-8")


def style_for(html: str) -> str:
    """The rules that elements of a picture may need, without comments and space."""
    classes = {f".{c}" for text in set(_CLASSES_OF.findall(html)) for c in text.split()}
    present = {*classes, *_ELEMENTS_OF.findall(html), *_AROUND}
    kept = [rule for rule in _rules() if any(names <= present for names in rule.names)]
    return "".join(_written(kept, _variables(kept, html)))


def _variables(rules: Iterable[Rule], html: str) -> set[str]:
    """The variables that a picture uses, by itself or by one another."""
    used = set(_VARIABLE.findall(html))
    used |= {v for rule in rules for d in rule.declarations for v in _VARIABLE.findall(d)}
    return used


def _written(rules: Iterable[Rule], used: set[str]) -> Iterator[str]:
    for media, some in groupby(rules, key=lambda rule: rule.media):
        texts = []
        for rule in some:
            needed = [d for d in rule.declarations if d[:2] != "--" or d.partition(":")[0] in used]
            if needed:
                texts.append(f"{rule.selector}{{{';'.join(needed)}}}")
        if texts:
            yield f"{media}{{{''.join(texts)}}}" if media else "".join(texts)


@cache
def _rules() -> tuple[Rule, ...]:
    return tuple(_parsed(_COMMENT.sub("", style())))


def _parsed(sheet: str) -> Iterator[Rule]:
    media = selector = ""
    for text, brace in _BRACE.findall(sheet):
        words = " ".join(text.split())
        if brace == "{" and words.startswith("@media"):
            media = words
        elif brace == "{":
            selector = words
        elif selector:
            declarations = tuple(filter(None, (" ".join(d.split()) for d in text.split(";"))))
            yield Rule(media, selector, declarations, tuple(map(_names, selector.split(","))))
            selector = ""
        else:
            media = ""


def _names(selector: str) -> frozenset[str]:
    """The elements, and the classes with a dot, without which a selector matches nothing."""
    plain = _WITHOUT.sub("", selector.strip())
    return frozenset({*(f".{c}" for c in _CLASS.findall(plain)), *_ELEMENT.findall(plain)})
