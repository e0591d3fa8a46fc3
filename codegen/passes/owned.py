"""Whether blocks and threads keep to the elements that are theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...base.errors import BuildError
from ...tir.dependence import Verdict, conflict
from ...tir.ir import Buffer, Expr, For, Func, Op, Stmt, Var, as_expr, binary
from ...tir.simplify import Simplifier
from ...tir.visit import children
from .launches import BLOCK_AXES, Use, tells_apart, uses_of
from .rewrite import ranges_of

Axes = Mapping[Var, tuple[str, int]]
"""The variables of a launch's axes, with the names of these and their extents."""
THREAD_SCOPES = ("local", "register")


def require_owned(stmt: Stmt, code: Stmt, func: Func, axes: Axes) -> None:
    """Raise `BuildError` where an element is used by several blocks or threads that must not.

    `code` is what each thread runs of the launch `stmt`. What all is in one loop over an axis was
    checked when that was bound: its iterations are independent, or have internal buffers of their
    own. Threads have none of scope `shared`, and neither blocks nor threads of scope `global`.
    """
    params = {p for p in func.params if isinstance(p, Buffer)}
    uses: dict[Buffer, list[Use]] = {}
    ranges = {v: (0, extent - 1) for v, (_, extent) in axes.items()}
    s = Simplifier({**ranges_of(code), **ranges})
    for use in uses_of(code):
        uses.setdefault(use.buffer, []).append(use)
    for buffer, found in uses.items():
        if not any(use.writes for use in found):
            continue
        scope = "global" if buffer in params else buffer.scope
        joined = _joined(stmt, buffer)
        private = scope == "global" and buffer not in params  # perhaps of each iteration of a loop
        free = {v for v, (axis, _) in axes.items() if private or axis not in joined}
        blocks, threads = list[Var](), list[Var]()
        for v, (axis, extent) in axes.items():
            if extent == 1:
                continue
            if axis in BLOCK_AXES:
                if v in free:
                    blocks.append(v)
            elif scope in THREAD_SCOPES:
                if axis not in joined:
                    threads.append(v)
            elif axis in joined and buffer not in params:
                threads.append(v)
        if scope in THREAD_SCOPES:
            threads, blocks = [*blocks, *threads], []
        for whose, crossed in (("block", blocks), ("thread", threads)):
            if crossed:
                others = [v for v in axes if v in free.difference(crossed)]
                _require_apart(buffer, scope, found, whose, crossed, others, axes, s)


def _joined(stmt: Stmt, buffer: Buffer) -> set[str]:
    """The axes of which one loop has all uses of a buffer in it."""
    around: list[dict[str, For]] = []

    def visit(n: object, above: dict[str, For]) -> None:
        if type(n) is For and n.thread is not None:
            above = {**above, n.thread: n}
        if n is buffer:
            around.append(above)
        for c in children(n):
            visit(c, above)

    visit(stmt, {})
    first, *others = around
    return {axis for axis, f in first.items() if all(o.get(axis) is f for o in others)}


def _require_apart(
    buffer: Buffer,
    scope: str,
    uses: Sequence[Use],
    whose: str,
    crossed: Sequence[Var],
    others: Sequence[Var],
    axes: Axes,
    s: Simplifier,
) -> None:
    """Require that no element is used at two places along the axes `crossed`.

    Along the `others` the places may differ too; along the rest they are the same.
    """

    def elsewhere(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        return differ(a[: len(crossed)], b[: len(crossed)])

    loops = {v: axes[v][1] for v in (*crossed, *others)}
    outer = {v: n for v, (_, n) in axes.items() if v not in loops}
    for n, a in enumerate(uses):
        for b in uses[n:]:
            if not (a.writes or b.writes):
                continue
            shared = {**outer, **loops}
            if tells_apart(a, b, crossed, outer, s):
                continue
            verdict = conflict(a.access(shared), b.access(shared), outer, loops, elsewhere)
            if not verdict.apart:
                along = ", ".join(axes[v][0] for v in crossed)
                raise _refusal(buffer, scope, whose, along, verdict)


def differ(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    """The condition that two places along axes are different ones."""
    result: Expr = as_expr(False)
    for x, y in zip(a, b, strict=True):
        result = binary(Op.OR, result, binary(Op.NE, x, y))
    return result


def _refusal(buffer: Buffer, scope: str, whose: str, along: str, verdict: Verdict) -> BuildError:
    name = buffer.name
    if scope in THREAD_SCOPES:
        hint = (
            f"bind the loops of all phases that use {name} alike, so that each element is one "
            f'thread\'s; or set_scope(.., "shared")'
        )
    elif whose == "thread":
        hint = (
            f"write {name} in a phase of its own, beside the one that reads it: compute_at a loop "
            f"outside of {along}, and bind its loops to threads likewise; "
            f'or set_scope(.., "local"), which gives each thread a copy of {name}'
        )
    elif scope == "shared":
        hint = f"bind the loops over blocks alike in all phases that use {name}"
    else:
        hint = (
            "blocks share nothing that one of them writes: a nest of its own is a launch of its "
            'own, and set_scope(.., "shared") gives each block a buffer of its own'
        )

    def example() -> str | None:
        found = verdict.example
        if found is None:
            return None
        index = ", ".join(map(str, found.element))
        return f"{name}[{index}] is used at {found.first} and at {found.second}"

    return BuildError(
        "elements of {0}, of scope {1}, are not known to be used by one {2} each (along {3})",
        name,
        scope,
        whose,
        along,
        hint=hint,
        example=example,
    )
