"""Contrast of the one style sheet, computed: texts can be read on what is behind them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import html5lib
import pytest

import tilewright as tw
from tilewright.lab.pictures.page import fragment, page, style, style_for
from tilewright.lab.pictures.views import html_of

from .databases import FUNC, tuned
from .test_plot import SCHEDULE
from .test_result import RESULT

INKS = ("fg", "soft", "blue", "green", "red", "orange", "purple")
GROUNDS = ("bg", "fill", "mark", "added", "removed")


def themes() -> dict[str, dict[str, str]]:
    """The variables of each theme: by the choice of the reader, and by that of an editor."""
    light, dark, light_editor, dark_editor = re.findall(
        r"\.tw \{\s*((?:--tw-[^}]*?))\s*(?:color:[^}]*)?\}", style()
    )
    named = {"light": light, "dark": dark}
    values = {theme: dict(_values(text)) for theme, text in named.items()}
    return {
        **values,
        "light editor": {**values["light"], **dict(_values(light_editor))},
        "dark editor": {**values["dark"], **dict(_values(dark_editor))},
    }


def _values(text: str) -> list[tuple[str, str]]:
    """Names and colours; of a theme's own colour the one that stands for it where it has none."""
    return re.findall(r"--tw-(\w+):[^;]*?(#[0-9a-f]{6})\)*;", text)


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(ink: str, ground: str) -> float:
    low, high = sorted([luminance(ink), luminance(ground)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "light editor", "dark editor"])
def test_all_inks_can_be_read_on_all_grounds(theme: str) -> None:
    colours = themes()[theme]
    assert set(colours) >= {*INKS, *GROUNDS}
    low = {
        f"{ink} on {ground}": round(contrast(colours[ink], colours[ground]), 2)
        for ink in INKS
        for ground in GROUNDS
        if contrast(colours[ink], colours[ground]) < 4.5
    }
    assert not low


def test_the_measure_of_contrast() -> None:
    assert round(contrast("#000000", "#ffffff"), 2) == 21
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48


def test_colours_are_variables_alone() -> None:
    """So that the contrasts above are all that there are."""
    rules = style()[style().index(".tw-page") :]
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(", rules)


# The part that a picture needs


def pictures(tmp_path: Path) -> dict[str, str]:
    """Pictures of values of many kinds."""
    database = tuned(tmp_path / "tuning.db")
    with pytest.raises(tw.ScheduleError) as refused:
        SCHEDULE.parallel(SCHEDULE.get_loops(SCHEDULE.get_block("C"))[2])
    values: dict[str, Any] = {
        "program": FUNC,
        "schedule": SCHEDULE,
        "trace": SCHEDULE.trace,
        "result": RESULT,
        "best": RESULT.best,
        "database": database,
        "run": tw.open_run(database),
        "record": database.measurements()[0],
        "target": tw.Target.parse("cpu -mcpu=skylake-avx512 -threads=2"),
        "error": refused.value,
    }
    return {name: html_of(value) for name, value in values.items()}


def rules_of(sheet: str) -> set[str]:
    """The rules of a sheet as they are written without space, without those of variables alone."""
    plain = re.sub(r"/\*.*?\*/|@media[^{]*(?=\{)", "", sheet, flags=re.DOTALL)
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", plain)
    return {
        f"{' '.join(selector.split())}: {declaration}"
        for selector, body in rules
        for declaration in (" ".join(d.split()) for d in body.split(";"))
        if declaration and not declaration.startswith("--tw-")
    }


def test_a_picture_lacks_only_rules_that_match_none_of_its_elements(tmp_path: Path) -> None:
    """A rule that is left out asks for a class or an element that is nowhere in the picture."""
    whole = rules_of(style())
    for name, html in pictures(tmp_path).items():
        tree = html5lib.parse(html, namespaceHTMLElements=False)
        body = [e for e in tree.iter() if e.tag not in ("style", "head", "html")]
        there = {str(e.tag) for e in body}
        there |= {f".{c}" for e in body for c in (e.get("class") or "").split()}
        (own,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
        shown = rules_of(own)
        assert shown < whole, name
        for rule in whole - shown:
            for selector in rule.partition(": ")[0].split(","):
                asked = re.sub(r":not\([^)]*\)|::?[\w-]+|\[[^]]*\]", "", selector)
                names = re.findall(r"\.[\w-]+|(?<![\w.-])[a-z]\w*", asked)
                missing = {n for n in names if n[:8] != ".vscode-"} - there - {"body"}
                assert missing, (name, rule)


def test_the_variables_of_a_picture_are_there_in_all_themes(tmp_path: Path) -> None:
    for name, html in pictures(tmp_path).items():
        (own,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
        for variable in set(re.findall(r"var\((--tw-\w+)", html)):
            expected = style().count(f"{variable}:")
            assert own.count(f"{variable}:") == expected >= 1, (name, variable)


def test_the_style_of_a_picture_is_a_part(tmp_path: Path) -> None:
    """What 20 pictures of a notebook carry is bounded: less than half of the whole sheets."""
    sizes = {n: len(style_for(html)) for n, html in pictures(tmp_path).items()}
    assert max(sizes.values()) < 0.6 * len(style()), sizes
    assert sum(sizes.values()) < 0.4 * len(style()) * len(sizes), sizes


def test_rules_within_media_and_with_attributes() -> None:
    small = style_for('<table class="sortable"><th aria-sort="ascending"><button>a</button></th>')
    assert '.tw th[aria-sort] button::after{content: " \\2191"}' in small
    assert "@media (prefers-color-scheme: dark){.tw{" in small
    assert ".tw-facts" not in small
    facts = style_for('<dl class="tw-facts"><dt>a</dt></dl>')
    assert "@media (max-width: 30rem){.tw .tw-facts{grid-template-columns: 1fr}}" in facts
    assert "td" not in facts


def test_texts_of_others_ask_for_no_rule() -> None:
    import htpy as h

    quiet, loud = (fragment(h.p[text]) for text in ("a", '<svg class="tall">'))
    assert loud.replace("&lt;svg class=&#34;tall&#34;&gt;", "a") == quiet


def test_pages_have_the_whole_sheet() -> None:
    """Their script makes what is sorted."""
    assert style() in page("title")
