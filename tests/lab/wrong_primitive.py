"""A primitive whose programs compute something else: what is measured of them must be refused."""

from __future__ import annotations

from dataclasses import replace

import tilewright as tw
from tilewright.schedule.find import find_loop, replace_stmt
from tilewright.tir.ir import Func, Var


@tw.primitive
def skip_half(fn: Func, loop: Var) -> tuple[Func, None]:
    """Compute half of it."""
    old = find_loop(fn, loop)
    assert isinstance(old.extent, int)
    half = replace(old, extent=old.extent // 2)
    return replace(fn, body=replace_stmt(fn.body, old, half)), None
