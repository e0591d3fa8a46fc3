"""The lab, and what people see elsewhere: pictures of values, plots, reports.

`tw.lab(func, target, database)` opens the lab.
"""

from __future__ import annotations

import sys
from inspect import signature
from types import ModuleType

from .front.open_lab import lab
from .pictures.views import html_of

__all__ = ["html_of", "lab"]


class _CallableRoom(ModuleType):
    """This package: Python binds it to the name `tilewright.lab`, so `tw.lab()` calls it."""

    __call__ = staticmethod(lab)
    __signature__ = signature(lab)


sys.modules[__name__].__class__ = _CallableRoom
__doc__ = lab.__doc__ or ""  # what `help(tw.lab)` and `tw.lab?` show
