"""How values show themselves in notebooks: a package below `lab` asks it by these hooks alone.

    class Func:
        _repr_html_ = html

`lab` is imported when a notebook asks for the first picture, and not before. The runtime that is
shipped alone is without it; values are then shown as their texts.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def html(value: object) -> str:
    """The picture of a value as HTML; the method `_repr_html_` of classes that have one.

    Raises `NotImplementedError` where there is no lab: IPython then shows the text.
    """
    if (views := _of_lab("pictures.views")) is None:
        raise NotImplementedError("there is no lab")
    picture: str = views.html_of(value)
    return picture


def traceback_lines(error: BaseException) -> list[str]:
    """An error as lines below a cell; the method `_render_traceback_`, for which IPython asks."""
    if (texts := _of_lab("pictures.error_text")) is None:
        from traceback import format_exception

        return format_exception(error)
    lines: list[str] = texts.lines(error)
    return lines


def _of_lab(name: str) -> ModuleType | None:
    """A module of the lab, or `None` where there is no lab."""
    from importlib.util import find_spec

    if find_spec("..lab", __package__) is None:
        return None
    return import_module(f"..lab.{name}", __package__)
