"""Programs and their parts in a line: what `repr` shows of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..base.text import arguments, count, excerpt, in_lines
from .ir import Block, Buffer, Dim, For, Func, Iter, Region, Stmt
from .names import Names, identifier
from .visit import nested

MAX_NAME = 40
"""Characters of a name; what is longer ends in an ellipsis."""


def signature(func: Func) -> list[str]:
    """The parts of `matmul(A: float32[64, 64], n: int64)`: a program's name and parameters."""
    parts = [
        f"{shortened(p.name)}: {array_type(p) if isinstance(p, Buffer) else p.dtype}"
        for p in func.params
    ]
    return arguments(shortened(func.name), parts)


def summary(kind: str, func: Func, facts: Sequence[str]) -> str:
    """`<Func matmul(A: float32[64, 64]): 3 loops, 1 block; print it for the program>`, in lines."""
    *parts, last = signature(func)
    told = [*(f"{fact}," for fact in facts[:-1]), f"{facts[-1]};"]
    return in_lines([f"<{kind}", *parts, f"{last}:", *told, "print it for the program>"])


def func_summary(func: Func) -> str:
    """A program, and how many loops and blocks it has."""
    kinds = Counter[type]()
    stack: list[Stmt] = [func.body]
    while stack:
        stmt = stack.pop()
        kinds[type(stmt)] += 1
        stack += nested(stmt)
    return summary("Func", func, [count(kinds[For], "loop"), count(kinds[Block], "block")])


def stmt_summary(text: str) -> str:
    """The first line of a statement's text, and how many follow."""
    first, *rest = text.split("\n")
    return f"{first}  # and {count(len(rest), 'more line')}" if rest else first


def array_type(buffer: Buffer) -> str:
    """`float32[64, n]`."""
    return f"{buffer.dtype}[{', '.join(map(dim_text, buffer.shape))}]"


def buffer_summary(buffer: Buffer) -> str:
    """`<Buffer A: float32[64, 64]>`, with a scope that is not `global`."""
    scope = "" if buffer.scope == "global" else f" in {buffer.scope}"
    return f"<{type(buffer).__name__} {shortened(buffer.name)}: {array_type(buffer)}{scope}>"


def region_text(region: Region) -> str:
    """`A[i, 0:16]`."""
    from .expr_printer import ExprPrinter

    return ExprPrinter(Names()).region(region)


def iter_text(it: Iter) -> str:
    """`vi = i_0 * 8 + i_1, spatial in 64`."""
    return f"{it.var!r} = {it.value!r}, {it.kind.value} in {dim_text(it.extent)}"


def dim_text(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else repr(dim)


def shortened(name: str) -> str:
    """A name as it stands in the text of a program, no longer than people read."""
    return excerpt(identifier(name[: MAX_NAME + 1]), MAX_NAME)
