"""Screenshots that are kept as files, and compared loosely.

Fonts, their rendering and measured numbers differ between machines: what counts is where there is
ink, and how much.
"""

from __future__ import annotations

import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parent / "screenshots"
_GRID = 24
"""Pixels of a side of the squares whose mean colours are compared."""
_MEAN, _SQUARE = 0.04, 0.35
"""By how much pictures may differ, of the range of colours: in the mean, and most squares."""
_OUTLIERS = 0.02
"""The share of squares that may differ by more."""
_SIZE = 0.1
"""By which share the sides may differ."""


def check_picture(name: str, png: bytes, *, update: bool) -> None:
    """Compare a screenshot with the one that is kept under `name`, or keep it with `update`."""
    kept = FOLDER / f"{name}.png"
    picture = Image.open(BytesIO(png)).convert("RGB")
    if update:
        FOLDER.mkdir(exist_ok=True)
        picture.quantize(64, dither=Image.Dither.NONE).save(kept, optimize=True)
        return
    assert kept.exists(), f"no screenshot {kept.name} is kept: look at it, and run with --update"
    fault = difference(picture, Image.open(kept).convert("RGB"))
    if fault is not None:
        seen = Path(tempfile.gettempdir()) / kept.name
        picture.save(seen)
        pytest.fail(f"{kept.name}: {fault}; the new one is {seen}")


def difference(new: Image.Image, kept: Image.Image) -> str | None:
    """How two pictures differ beyond what machines explain, `None` if they do not."""
    for side, size, old in zip(("width", "height"), new.size, kept.size, strict=True):
        if abs(size - old) > _SIZE * old:
            return f"its {side} is {size} pixels instead of {old}"
    grid = max(1, kept.width // _GRID), max(1, kept.height // _GRID)
    a, b = (
        np.asarray(p.resize(grid, Image.Resampling.BOX), dtype=np.float64) / 255
        for p in (new, kept)
    )
    apart = np.abs(a - b).mean(axis=2)
    if apart.mean() > _MEAN:
        return f"the mean difference of colours is {apart.mean():.3f}, more than {_MEAN}"
    outliers = float((apart > _SQUARE).mean())
    if outliers > _OUTLIERS:
        return f"{outliers:.1%} of it look different"
    return None
