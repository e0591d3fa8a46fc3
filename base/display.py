"""How values show themselves in notebooks: a package below `lab` asks it by these hooks alone.

    class Func:
        _repr_html_ = html

`lab` is imported when a notebook asks for the first picture, and not before.
"""

from __future__ import annotations

from importlib import import_module


def html(value: object) -> str:
    """The picture of a value as HTML; the method `_repr_html_` of classes that have one."""
    picture: str = import_module("..lab.pictures.views", __package__).html_of(value)
    return picture


def traceback_lines(error: BaseException) -> list[str]:
    """An error as lines below a cell; the method `_render_traceback_`, for which IPython asks."""
    lines: list[str] = import_module("..lab.pictures.error_text", __package__).lines(error)
    return lines
