"""Find loops that accumulate in memory: the only ones that gain from LLVM's full pipeline."""

from __future__ import annotations

from ...tir.ir import For, ForKind, Func, Stmt, Store, Var
from ...tir.visit import nested, walk


def accumulates_in_memory(func: Func) -> bool:
    """Whether a loop of a lowered function stores to the same element in all its iterations.

    The innermost loop around a store counts; buffers of scope `register` are values, not memory.
    """
    pending: list[tuple[Stmt, Var | None]] = [(func.body, None)]
    while pending:
        s, innermost = pending.pop()
        if (
            type(s) is Store
            and innermost is not None
            and s.buffer.scope != "register"
            and not any(n is innermost for i in s.indices for n in walk(i))
        ):
            return True
        if type(s) is For and s.kind is not ForKind.PARALLEL:
            innermost = s.var
        pending.extend((c, innermost) for c in nested(s))
    return False
