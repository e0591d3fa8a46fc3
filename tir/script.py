"""`@tw.script`: programs written as decorated Python functions, which are read and never run."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any

from ..base.errors import ParseError
from .ir import Func
from .parser import parse, parse_function
from .source import Source, syntax_tree


def script(program: Callable[..., Any] | str) -> Func:
    """Returns the program of a decorated function, or of a text.

        @tw.script
        def double(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.block("B"):
                    vi = T.axis.spatial(16, i)
                    B[vi] = A[vi] * 2.0

    `T` is `tilewright.T`. Numbers, strings and tuples may be names of the surrounding Python. The
    grammar is in `tilewright/tir/parser.py`. Raises `ParseError`.
    """
    if isinstance(program, str):
        return parse(program)
    if not isinstance(program, FunctionType):
        raise ParseError("script takes a function or its text, found {0!r}", type(program).__name__)
    source, definition = _definition(program)
    scopes: tuple[Mapping[str, Any], ...] = (
        _closure(program),
        sys._getframe(1).f_locals,  # annotations are no part of the closure
        program.__globals__,
    )

    def outside(name: str) -> Any:
        for scope in scopes:
            if name in scope:
                return scope[name]
        raise KeyError(name)

    return parse_function(source, definition, outside)


def _closure(program: FunctionType) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, cell in zip(program.__code__.co_freevars, program.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            values[name] = cell.cell_contents
    return values


def _definition(program: FunctionType) -> tuple[Source, ast.FunctionDef]:
    """The text of a function and the function definition in it."""
    try:
        lines, first = inspect.getsourcelines(program)
        file = inspect.getsourcefile(program) or "<unknown>"
    except (OSError, TypeError) as e:
        raise ParseError(
            "the source of {0} cannot be found", program.__qualname__,
            hint="pass the program as text: tw.script(text)",
        ) from e  # fmt: skip
    text = "".join(lines)
    clean = textwrap.dedent(text)
    indent = len(lines[0]) - len(lines[0].lstrip())
    source = Source(clean, file, first, indent)
    module = syntax_tree(source)
    definition = module.body[0] if module.body else None
    if not isinstance(definition, ast.FunctionDef):
        raise ParseError(
            "{0} is not a function definition", program.__qualname__,
            hint="decorate a `def`, or pass the program as text: tw.script(text)",
        )  # fmt: skip
    return source, definition
