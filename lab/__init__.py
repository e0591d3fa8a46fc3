"""What people see: pictures of programs, schedules and results, the lab, plots and reports.

    tw.lab(func, target, database)

The room is called as a function: it opens the lab.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .open_lab import lab
from .views import html_of

if TYPE_CHECKING:
    from .widget import Lab

__all__ = ["html_of"]


__wrapped__ = lab  # whose signature this has


class _Room(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Lab:
        return lab(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
