"""Contrast of the one style sheet, computed: texts can be read on what is behind them."""

from __future__ import annotations

import re

import pytest

from tilewright.lab.page import style

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
