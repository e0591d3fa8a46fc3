"""The source text of a program that is being parsed, and errors that point into it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ..base.errors import ParseError

T = TypeVar("T")

MAX_CHARACTERS = 1 << 22
MAX_SHOWN = 120
MAX_QUOTED = 40


class Source(NamedTuple):
    """Program text. `first_line` and `indent` say where it stands in `file`."""

    text: str
    file: str = "<text>"
    first_line: int = 1
    indent: int = 0

    def error(
        self, node: ast.AST, message: str, *arguments: Any, hint: str | None = None
    ) -> ParseError:
        """An error about `node`; the message says what was found and what is expected."""
        line = getattr(node, "lineno", 1)
        text = self.line(line)
        column = len(text.encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
        return self.error_at(line, column + 1, message, *arguments, hint=hint)

    def error_at(
        self, line: int, column: int, message: str, *arguments: Any, hint: str | None = None
    ) -> ParseError:
        """An error at a line and column of the text, both from 1."""
        where = f"{self.file}:{line + self.first_line - 1}:{column + self.indent}: "
        return ParseError(
            "{0}" + message.format(*[f"{{{k + 3}}}" for k in range(len(arguments))]) + "\n{1}\n{2}",
            where,
            lambda: "    " + self.line(line)[:MAX_SHOWN],
            "    " + " " * min(column - 1, MAX_SHOWN) + "^",
            *arguments,
            hint=hint,
            line=line + self.first_line - 1,
            column=column + self.indent,
        )

    def line(self, number: int) -> str:
        lines = self.text.split("\n", number)
        return lines[number - 1] if number <= len(lines) else ""

    def show(self, node: ast.AST) -> str:
        """The text of `node`, shortened."""
        first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        end = getattr(node, "end_col_offset", 0) if first == last else None
        text = self.line(first).encode()[getattr(node, "col_offset", 0) : end]
        short = text[:MAX_QUOTED].decode(errors="ignore")
        return short if first == last and len(text) <= MAX_QUOTED else f"{short} .."


def syntax_tree(source: Source) -> ast.Module:
    """The text as a Python syntax tree. Nothing of it is ever run.

    Raises `ParseError` for text that is no Python, too long or nested too deeply.
    """
    if len(source.text) > MAX_CHARACTERS:
        raise ParseError(
            "the program has {0} characters; at most {1} are read", len(source.text), MAX_CHARACTERS
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.text)
    except SyntaxError as e:
        line, column = e.lineno or 1, e.offset or 1
        raise source.error_at(line, column, "not valid Python: {0}", e.msg) from e
    except (ValueError, OverflowError) as e:
        raise ParseError("{0}: not valid Python: {1}", source.file, str(e)) from e
    except (RecursionError, MemoryError) as e:
        raise too_deep(source) from e


def guarded(source: Source, parse: Callable[[], T]) -> T:
    """`parse()`, with a clear error where the nesting exhausts the stack."""
    try:
        return parse()
    except RecursionError as e:
        raise too_deep(source) from e


def too_deep(source: Source, limit: int | None = None) -> ParseError:
    detail = "" if limit is None else f" (more than {limit} levels)"
    return ParseError(
        "{0}: the program is nested too deeply to be read{1}", source.file, detail,
        hint="store intermediate values in a buffer",
    )  # fmt: skip
