"""Screenshots that are kept as files, and compared loosely.

Fonts, their rendering and measured numbers differ between machines: what counts is where there is
ink, and how much. Most of a page is paper, so ink is compared with ink: a page without a panel is
another one, however much of it is white.
"""

from __future__ import annotations

import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

FOLDER = Path(__file__).parent / "screenshots"
_GRID = 24
"""Pixels of a side of the squares whose mean colours are compared."""
_MEAN, _SQUARE = 0.04, 0.35
"""By how much pictures may differ, of the range of colours: in the mean, and most squares."""
_OUTLIERS = 0.02
"""The share of squares that may differ by more."""
_PAPER = 0.1
"""By how much a colour is brighter or darker than the commonest one before it is ink."""
_AROUND = 2
"""Squares on each side in which the same ink may be elsewhere."""
_ALIKE = 0.5
"""Places have alike ink if one has more than this share of the other's."""
_MOVED = 0.2
"""The share of all ink that may be where the other picture has none that is alike."""
_PLACE = 4
"""Squares of a side of a place that must not lose its ink."""
_COVERED, _LEFT = 0.5, 0.25
"""A place has ink from this share of the mean on, and has lost it below this share of its own."""
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
    moved = moved_ink(new, kept)
    if moved > _MOVED:
        return f"{moved:.0%} of its ink is gone or new, more than {_MOVED:.0%}"
    empty = lost_place(new, kept) or lost_place(kept, new)
    if empty is not None:
        return f"the ink around {empty[0]}, {empty[1]} pixels is gone or new: a panel may be lost"
    return None


def lost_place(new: Image.Image, kept: Image.Image) -> tuple[int, int] | None:
    """The middle (x, y) of a place that has ink in `kept` and hardly any in `new`, if there is one.

    A panel may be little of a page: each place is looked at by itself, with what is around it.
    """
    grid = max(1, kept.width // _GRID), max(1, kept.height // _GRID)
    ink, other = _ink(kept, grid), _ink(new, grid)
    for top in range(0, grid[1], _PLACE):
        for left in range(0, grid[0], _PLACE):
            place = ink[top : top + _PLACE, left : left + _PLACE]
            rows = slice(max(0, top - _AROUND), top + _PLACE + _AROUND)
            columns = slice(max(0, left - _AROUND), left + _PLACE + _AROUND)
            covered = place.mean() > _COVERED * ink.mean()
            if covered and other[rows, columns].sum() < _LEFT * place.sum():
                return (left + _PLACE // 2) * _GRID, (top + _PLACE // 2) * _GRID
    return None


def moved_ink(new: Image.Image, kept: Image.Image) -> float:
    """The share of the ink of two pictures that is where the other one has much less."""
    grid = max(1, kept.width // _GRID), max(1, kept.height // _GRID)
    a, b = (_spread(_ink(p, grid)) for p in (new, kept))
    more, less = np.maximum(a, b), np.minimum(a, b)
    return float(more[less < _ALIKE * more].sum() / max(more.sum(), 1e-9))


def _ink(picture: Image.Image, grid: tuple[int, int]) -> NDArray[np.float64]:
    """The ink in each square of a picture: how far its pixels are from the commonest colour."""
    grey = np.asarray(picture.convert("L"))
    paper = int(np.bincount(grey.ravel()).argmax())
    apart = np.abs(grey.astype(np.float64) - paper) / 255
    ink = Image.fromarray(np.maximum(apart - _PAPER, 0).astype(np.float32))
    return np.asarray(ink.resize(grid, Image.Resampling.BOX), dtype=np.float64)


def _spread(ink: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ink of each square with that of the squares around it."""
    side = 2 * _AROUND + 1
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(ink, _AROUND), (side, side))
    return windows.sum(axis=(2, 3))  # type: ignore[no-any-return]
