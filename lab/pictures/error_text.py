"""An error as IPython shows it below a cell: its message first, then the user's own lines.

IPython asks exceptions for their text by the method `_render_traceback_`. Frames of this package
and of installed ones are left out: they say nothing about what is refused.
"""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType

from IPython import get_ipython

from ...base.errors import TilewrightError

MOST_FRAMES = 8
"""Frames that are shown, the innermost ones."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_PACKAGE = __name__.partition(".")[0]
_STANDARD = PurePath(sysconfig.get_path("stdlib"))
"""The folder of Python's own files; the names of modules tell nothing, users take them too."""
_FROZEN = "<frozen "
"""The beginning of the names of modules that are parts of the interpreter."""
_MORE = "(%debug steps into the frames that are left out; %xmode Verbose and %tb show them)"


def lines(error: TilewrightError) -> list[str]:
    """The lines of an error; where `%xmode` asks for all or for nothing, those of IPython."""
    shell = get_ipython()
    if shell is not None and shell.InteractiveTB.mode in ("Verbose", "Minimal"):
        full: list[str] = shell.InteractiveTB.structured_traceback(
            type(error), error, error.__traceback__, tb_offset=1
        )
        return full
    return [*_own(error), *_causes(error), "", _MORE]


def _own(error: BaseException) -> Iterator[str]:
    """An error and where the user's code called for it."""
    yield from f"{type(error).__name__}: {_text(error)}".split("\n")
    walked = traceback.walk_tb(error.__traceback__)
    places = [(frame, line) for frame, line in walked if _is_users(frame)]
    if places:
        yield ""
    if len(places) > MOST_FRAMES:
        yield f"... {len(places) - MOST_FRAMES} frames further out"
    for frame, line in places[-MOST_FRAMES:]:
        yield _place(frame, line)
        yield f"    {linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()}"


def _text(error: BaseException) -> str:
    """The text of an error, which may be of a class of anybody's."""
    try:
        return str(error)
    except Exception as failed:  # noqa: BLE001 - what is raised here would hide the error
        return f"<it has no text: {type(failed).__name__}>"


def _causes(error: BaseException) -> Iterator[str]:
    """The errors that it was raised from, or while they were handled."""
    seen = {id(error)}
    while True:
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        if cause is None or id(cause) in seen:
            return
        yield ""
        yield "Raised from:" if error.__cause__ is not None else "Raised while this was handled:"
        yield from (f"  {line}".rstrip() for line in _own(cause))
        seen.add(id(cause))
        error = cause


def _is_users(frame: FrameType) -> bool:
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    file = PurePath(frame.f_code.co_filename)
    if top == _PACKAGE or file.is_relative_to(_STANDARD) or str(file).startswith(_FROZEN):
        return False
    return not _INSTALLED.intersection(file.parts)


def _place(frame: FrameType, line: int) -> str:
    """`Cell In[3], line 2`, or a file; in which function."""
    code = frame.f_code
    shell = get_ipython()
    named = None if shell is None else shell.compile.format_code_name(code.co_filename)
    where = f"File {code.co_filename}" if named is None else " ".join(named)
    function = "" if code.co_name == "<module>" else f", in {code.co_name}"
    return f"{where}, line {line}{function}"
