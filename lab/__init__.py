"""What people see: pictures of programs, schedules and results, the lab, plots and reports."""

from __future__ import annotations

from .views import html_of

__all__ = ["html_of"]
