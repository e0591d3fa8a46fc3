"""Turn tensor expressions into stages: lift out nested reductions, and check names and axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from ..base.errors import STAGES_HINT, IRError, depth_errors
from .combiners import COMBINERS
from .ir import Buffer, Const, Expr, Load, Reduce, Select, Var
from .structure import key_of, tree_size
from .tensor import Axis, Stage, Tensor, key
from .visit import children, rewrite_children, walk

MAX_NODES = 1 << 15
"""The size of a stage's expressions: code computes what is used twice in a statement twice."""


def compute(
    name: str, names: tuple[str, ...], axes: tuple[Axis, ...], results: tuple[Expr, ...]
) -> tuple[Tensor, ...]:
    """The tensors of `results` over `axes`, one for each.

    A reduction inside a larger expression becomes a stage over the axes that it depends on. Raises
    `IRError` for an axis that is not in scope, for an expression that is too large or nested too
    deeply, and for a reduction in a branch of a `select`, which would be computed even if the
    branch is not taken.
    """
    with depth_errors(IRError, f"the expression of {name}", "computed in one stage"):
        _check_size(name, results)
        hoist = _hoister(name)
        if _is_reduction(results):
            reduces = cast(tuple[Reduce, ...], results)
            inner = axes + _axes(reduces[0])
            return _reduction(name, names, axes, reduces, lambda e: hoist(e, inner))
        return _stage(name, names, axes, (), tuple(hoist(r, axes) for r in results))


def _check_size(name: str, results: tuple[Expr, ...]) -> None:
    sizes: dict[Expr, int] = {}
    nodes = sum(tree_size(r, sizes) for r in results)
    if nodes > MAX_NODES:
        raise IRError(
            "{0}: an expression of {1} operations and operands, each counted as often as it is "
            "used; expected at most {2}", name, nodes, MAX_NODES,
            hint=STAGES_HINT,
        )  # fmt: skip


def _is_reduction(results: tuple[Expr, ...]) -> bool:
    """Whether each result is a different result of a reduction over the same axes."""
    reduces = [r for r in results if type(r) is Reduce]
    if len(reduces) != len(results):
        return False
    same = {tuple(map(id, _axes(r))) for r in reduces}
    return len(same) == 1 and len({(group(r), r.index) for r in reduces}) == len(reduces)


def _axes(reduce: Reduce) -> tuple[Axis, ...]:
    return tuple(cast(Axis, i.var) for i in reduce.axes)


def group(reduce: Reduce) -> tuple[object, ...]:
    """The part that all results of one reduction share: its combiner, values and axes."""
    return reduce.combiner, id(reduce.values), id(reduce.axes)


def _free(expr: Expr) -> set[Axis]:
    """The axes that the value of an expression depends on."""
    if isinstance(expr, Axis):
        return {expr}
    free = {a for c in children(expr) if not isinstance(c, Buffer) for a in _free(c)}
    return free - set(_axes(expr)) if type(expr) is Reduce else free


def _hoister(name: str) -> Callable[[Expr, tuple[Axis, ...]], Expr]:
    """A function of an expression and the axes in scope; one reduction makes one stage."""
    made: dict[tuple[object, ...], tuple[tuple[Tensor, ...], tuple[Axis, ...]]] = {}

    def hoist(expr: Expr, scope: tuple[Axis, ...], branch: bool = False) -> Expr:
        def visit(n: Any) -> Any:
            if isinstance(n, (Var, Buffer, Const)):
                return n
            if type(n) is Select:
                cond = visit(n.cond)
                then, other = hoist(n.then, scope, True), hoist(n.other, scope, True)
                if cond is n.cond and then is n.then and other is n.other:
                    return n
                return Select(cond, then, other, n.dtype)
            if type(n) is not Reduce:
                return rewrite_children(n, visit)
            if branch:
                raise IRError(
                    "{0}: a reduction ({1}) in a branch of select", name, n.combiner,
                    hint="give the reduction a te.compute of its own, and select from that",
                )  # fmt: skip
            return reduction(n)

        def reduction(n: Reduce) -> Expr:
            same = (n.combiner, *map(key_of, n.values), *_axes(n))
            if same not in made:
                outer = tuple(a for a in scope if a not in set(_axes(n)))
                axes = tuple(a for a in outer if a in _free(n))
                names = tuple(f"{name}_{n.combiner}" for _ in n.values)
                reduces = tuple(
                    Reduce(n.combiner, n.values, n.axes, k, v.dtype) for k, v in enumerate(n.values)
                )
                inner = outer + _axes(n)
                tensors = _reduction(names[0], names, axes, reduces, lambda e: hoist(e, inner))
                made[same] = tensors, axes
            tensors, axes = made[same]
            return tensors[n.index][axes]

        return cast(Expr, visit(expr))

    return hoist


def _reduction(
    name: str,
    names: tuple[str, ...],
    axes: tuple[Axis, ...],
    reduces: tuple[Reduce, ...],
    inner: Callable[[Expr], Expr],
) -> tuple[Tensor, ...]:
    """A reduction stage; all results of a combiner are computed, also where not all are asked for.

    Results that nobody asked for come after the others.
    """
    whole: dict[tuple[object, ...], tuple[Reduce, ...]] = {}
    for r in reduces:
        if group(r) not in whole:
            values = tuple(inner(v) for v in r.values)
            whole[group(r)] = tuple(
                Reduce(r.combiner, values, r.axes, k, values[k].dtype)
                for k in range(COMBINERS[r.combiner].arity)
            )
    asked = [(group(r), r.index) for r in reduces]
    rest = [(g, k) for g in whole for k in range(len(whole[g])) if (g, k) not in asked]
    results = tuple(whole[g][k] for g, k in asked + rest)
    more = tuple(f"{name}_{k}" for k in range(len(names), len(results)))
    return _stage(name, names + more, axes, _axes(reduces[0]), results)


def _stage(
    name: str,
    names: tuple[str, ...],
    axes: tuple[Axis, ...],
    reduce_axes: tuple[Axis, ...],
    results: tuple[Expr, ...],
) -> tuple[Tensor, ...]:
    inputs: dict[object, Tensor] = {}
    scalars: dict[Var, None] = {}
    for n in (n for r in results for n in walk(r)):
        if isinstance(n, Var):
            _check_variable(name, n, axes + reduce_axes)
            if not isinstance(n, Axis):
                scalars[n] = None
        elif type(n) is Load:
            if not isinstance(n.buffer, Tensor):
                raise IRError("{0} reads {1}; expected a tensor of te", name, n.buffer)
            inputs[key(n.buffer)] = n.buffer
    stage = Stage(name, names, axes, reduce_axes, results, tuple(inputs.values()), tuple(scalars))
    shape = tuple(a.extent for a in axes)
    return tuple(
        Tensor(own, shape, result.dtype, stage=stage, position=position)
        for position, (own, result) in enumerate(zip(names, results, strict=True))
    )


def _check_variable(name: str, var: Var, scope: Iterable[Axis]) -> None:
    if not isinstance(var, Axis) or any(var is a for a in scope):
        return
    if var.reduce:
        raise IRError(
            "{0}: reduce axis {1} is used outside of a reduction over it", name, var.name,
            hint=f"pass it on: te.sum(..., axis=[..., {var.name}])",
        )  # fmt: skip
    raise IRError(
        "{0}: index variable {1} belongs to another compute", name, var.name,
        hint="use only the parameters of this compute's function, and reduce axes",
    )  # fmt: skip
