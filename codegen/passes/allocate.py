"""Internal buffers become `Alloc` statements."""

from __future__ import annotations

from dataclasses import replace

from ...target import Target
from ...tir.ir import Alloc, Func


def allocate(func: Func, target: Target) -> Func:
    """Make each internal buffer where it is used."""
    del target
    body = func.body
    for buffer in reversed(func.allocs):
        body = Alloc(buffer, body)
    return replace(func, body=body, allocs=())
