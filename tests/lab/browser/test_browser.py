"""The tools of these tests find what they look for."""

from __future__ import annotations

from pathlib import Path

import htpy as h
import pytest
from PIL import Image, ImageDraw, ImageFilter
from playwright.sync_api import Page

from tilewright.lab.pictures.page import fragment, text
from tilewright.lab.pictures.page import page as document

from .accessibility import violations
from .pictures import FOLDER, difference

HOSTILE = "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"


def test_violations_are_found(page: Page) -> None:
    page.set_content("<html lang='en'><title>t</title><button></button><main>text</main></html>")
    (fault,) = violations(page)
    assert fault.startswith("button-name")
    page.set_content("<html lang='en'><title>t</title><main style='color: #aaa'>text</main></html>")
    (fault,) = violations(page)
    assert fault.startswith("color-contrast")


def test_pages_execute_no_text(page: Page) -> None:
    page.set_content(fragment(h.p(title=text(HOSTILE))[text(HOSTILE)]))
    assert page.title() == ""
    assert page.locator("p").inner_text() == HOSTILE


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_pages_are_readable(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    kinds = "soft", "bad", "good"
    page.set_content(document("colours", h.h1["Colours"], [h.p(class_=k)[k] for k in kinds]))
    assert violations(page) == []


def test_pictures_that_differ_are_told_apart() -> None:
    def drawn(width: int = 600, text: str = "trial 12 of 40", rows: int = 5) -> Image.Image:
        image = Image.new("RGB", (width, 400), "white")
        draw = ImageDraw.Draw(image)
        for row in range(rows):
            draw.text((20, 20 + 60 * row), text, fill="black", font_size=30)
        return image

    assert difference(drawn(), drawn()) is None
    assert difference(drawn(text="trial 31 of 64"), drawn()) is None
    assert "width is 600" in str(difference(drawn(), drawn(width=1000)))
    assert "mean difference" in str(difference(Image.new("RGB", (600, 400)), drawn()))
    filled = drawn()
    ImageDraw.Draw(filled).rectangle((312, 312, 420, 384), fill="black")
    assert "look different" in str(difference(filled, drawn()))


@pytest.mark.part(2)
@pytest.mark.parametrize("kept", sorted(FOLDER.glob("*.png")), ids=lambda path: path.stem)
def test_pictures_without_their_content_are_refused(kept: Path) -> None:
    picture = Image.open(kept).convert("RGB")
    paper = picture.getpixel((picture.width - 8, picture.height - 8))
    moved = Image.new("RGB", picture.size, paper)
    assert "of its ink is gone" in str(difference(moved, picture))
    moved.paste(picture, (5, 8))
    for alike in (picture, moved, picture.filter(ImageFilter.GaussianBlur(0.8))):
        assert difference(alike, picture) is None


@pytest.mark.parametrize("name", ["lab_light", "lab_dark"])
@pytest.mark.parametrize(
    "panel",
    [(2, 106, 366, 314), (2, 318, 366, 500), (372, 106, 735, 705), (740, 106, 1160, 705)],
    ids=["program", "versions", "moves", "sizes"],
)
def test_a_lab_without_a_panel_is_refused(name: str, panel: tuple[int, int, int, int]) -> None:
    picture = Image.open(FOLDER / f"{name}.png").convert("RGB")
    without = picture.copy()
    paper = picture.getpixel((picture.width - 8, picture.height - 8))
    ImageDraw.Draw(without).rectangle(panel, fill=paper)
    assert "is gone" in str(difference(without, picture))
    assert "is gone" in str(difference(picture, without))
