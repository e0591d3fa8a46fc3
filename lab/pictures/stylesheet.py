"""The style sheet of all pictures, and the part of it that one picture needs.

Each picture has its style with it. A notebook keeps outputs one by one: they are cleared, copied
and run again alone, and a style that only the first has would be gone with it. But of the whole
sheet most pictures need less than half.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import NamedTuple

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
