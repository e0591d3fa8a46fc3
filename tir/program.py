"""From a graph of tensors to a `Func`: one loop nest with one block per stage.

What is given in place of a program, for errors: what it is, and how a program is made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from types import FunctionType
from typing import Any, cast

from ..base.errors import IRError
from .combiners import COMBINERS, Place, update
from .ir import (
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Iter,
    IterKind,
    Label,
    Let,
    Load,
    Reduce,
    Stmt,
    Var,
    seq,
    store,
)
from .names import unique
from .regions import infer_regions
from .stages import group
from .tensor import Stage, Tensor, key
from .visit import reads_from, rewrite_children, walk
from .wellformed import APART, may_share

Buffers = Mapping[object, Buffer]
"""The buffer of each tensor, by `tensor.key`."""


def program(name: str, args: Sequence[Tensor | Var], inplace: Mapping[Tensor, Tensor]) -> Func:
    """The program that computes the computed tensors in `args` (and `inplace`) from the others."""
    outputs = [a for a in args if isinstance(a, Tensor) and a.stage is not None]
    outputs += inplace
    order = stages_of([cast(Stage, t.stage) for t in outputs])
    _check_arguments(name, args, inplace, order)
    over = {key(output): key(source) for output, source in inplace.items()}
    _check_inplace(inplace, order)

    taken: set[str] = set()
    buffers: dict[object, Buffer] = {}
    params: list[Buffer | Var] = []
    scalars: dict[Any, Var] = {}
    for a in args:
        if isinstance(a, Tensor):
            buffers[key(a)] = Buffer(
                unique(a.name, taken), a.shape, a.dtype, a.strides, "global", a.constant,
                a.value_range,
            )  # fmt: skip
            params.append(buffers[key(a)])
        else:
            scalars[a] = Var(unique(a.name, taken), a.dtype)
            params.append(scalars[a])
    for output, source in over.items():
        buffers[output] = buffers[source]
    allocs: list[Buffer] = []
    for stage in order:
        for position, (own, result) in enumerate(zip(stage.names, stage.results, strict=True)):
            if (stage, position) not in buffers:
                shape = tuple(a.extent for a in stage.axes)
                buffers[stage, position] = Buffer(unique(own, taken), shape, result.dtype)
                allocs.append(buffers[stage, position])
    body = seq(*(_nest(stage, buffers, scalars, taken) for stage in order))
    written = tuple(buffers[key(source)] for source in inplace.values())
    return Func(name, tuple(params), tuple(allocs), body, written)


def stages_of(roots: list[Stage]) -> list[Stage]:
    """All stages that the roots need, each after what it needs."""
    done: dict[Stage, None] = {}
    stack: list[tuple[Stage, Iterator[Tensor]]] = []
    for root in roots:
        if root not in done:
            stack.append((root, iter(root.inputs)))
        while stack:
            stage, inputs = stack[-1]
            for tensor in inputs:
                if tensor.stage is not None and tensor.stage not in done:
                    stack.append((tensor.stage, iter(tensor.stage.inputs)))
                    break
            else:
                done[stage] = None
                stack.pop()
    return list(done)


def _check_arguments(
    name: str, args: Sequence[Tensor | Var], inplace: Mapping[Tensor, Tensor], order: list[Stage]
) -> None:
    keys: dict[object, Tensor | Var] = {}
    for a in args:
        same = key(a) if isinstance(a, Tensor) else a
        if same in keys:
            raise IRError(
                "{0}: argument {1!r} is given twice", name, a.name, hint="list each argument once"
            )
        keys[same] = a
    if not order:
        raise IRError(
            "{0}: no argument is computed; expected at least one output", name,
            hint="list the results of te.compute among the arguments",
        )  # fmt: skip
    used: dict[object, Tensor | Var] = {}
    for stage in order:
        used.update((key(t), t) for t in stage.inputs if t.stage is None)
        used.update((v, v) for v in stage.scalars)
    for k, needed in used.items():
        if k not in keys:
            same = needed.name in (a.name for a in args)
            raise IRError(
                "{0}: {1!r} is used but is not an argument", name, needed.name,
                hint=f"another tensor named {needed.name!r} is an argument: use the one that the "
                "computation reads" if same else "add it to the arguments of te.func",
            )  # fmt: skip
    for k, a in keys.items():
        if k not in used and not (isinstance(a, Tensor) and a.stage is not None):
            raise IRError(
                "{0}: argument {1!r} is used by no computation", name, a.name,
                hint="leave it out, or list the result that uses it",
            )  # fmt: skip
    for output, source in inplace.items():
        if key(output) in keys:
            raise IRError("{0}: {1!r} is in place of {2!r} and an argument too; list only {2!r}",
                          name, output.name, source.name)  # fmt: skip
        if key(source) not in keys:
            raise IRError("{0}: {1!r} is computed in place of {2!r}, not an argument; list it",
                          name, output.name, source.name)  # fmt: skip


def _check_inplace(inplace: Mapping[Tensor, Tensor], order: list[Stage]) -> None:
    """An output may replace its source if nobody reads an element after it was replaced."""
    for output, source in inplace.items():
        stage = cast(Stage, output.stage)
        if source.stage is not None or (source.shape, source.dtype) != (output.shape, output.dtype):
            raise IRError(
                "{0!r} ({1}{2}) cannot be computed in place of {3!r} ({4}{5}); expected a "
                "placeholder of its shape and dtype", output.name, output.dtype, output.extents,
                source.name, source.dtype, source.extents,
            )  # fmt: skip
        if may_share(source.extents, source.strides):
            raise IRError(
                "{0!r} cannot be computed in place of {1!r}: by its strides {2} elements of its "
                "shape {3} share memory", output.name, source.name, source.strides, source.extents,
                hint=APART,
            )  # fmt: skip
        later = [s for s in order[order.index(stage) + 1 :] if source in s.inputs]
        loads = [n for r in stage.results for n in walk(r) if type(n) is Load]
        moved = [n for n in loads if n.buffer is source and not _is_point(n, stage)]
        if later or moved or stage.reduce_axes:
            raise IRError(
                "{0!r} cannot be computed in place of {1!r}: elements are read after they are "
                "replaced ({2})", output.name, source.name,
                f"by {later[0].name}" if later else "at other indices than those written"
                if moved else "by its reduction",
                hint="read the source only at the very element that is written, or not in place",
            )  # fmt: skip


def _is_point(access: Load, stage: Stage) -> bool:
    return all(i is a for i, a in zip(access.indices, stage.axes, strict=True))


def _nest(stage: Stage, buffers: Buffers, scalars: Mapping[Any, Var], taken: set[str]) -> Stmt:
    """The loops of a stage around its block."""
    names = set(taken)
    empty = any(a.extent == 0 for a in stage.reduce_axes)
    reduce_axes = () if empty else stage.reduce_axes
    axes = stage.axes + reduce_axes
    loops = [Var(unique(a.name, names)) for a in axes]
    kinds = [IterKind.SPATIAL] * len(stage.axes) + [IterKind.REDUCE] * len(reduce_axes)
    iters = tuple(
        Iter(Var(unique(f"v{loop.name}", names)), a.extent, kind, loop)
        for a, loop, kind in zip(axes, loops, kinds, strict=True)
    )
    inside: dict[Any, Any] = {**scalars}
    inside.update((a, i.var) for a, i in zip(axes, iters, strict=True))
    point = tuple(inside[a] for a in stage.axes)
    targets = [buffers[stage, position] for position in range(len(stage.results))]

    def lower(n: Any) -> Any:
        if isinstance(n, Var):
            return inside[n]
        if isinstance(n, Tensor):
            return buffers[key(n)]
        return n if type(n) is Const else rewrite_children(n, lower)

    init: Stmt | None = None
    if stage.reduce_axes:
        init = _identities(stage, targets, point)
        body = init if empty else _update(stage, targets, point, lower, names)
        init = None if empty else init
    else:
        body = _stores(targets, point, [lower(r) for r in stage.results], names)
    reads, writes = infer_regions(iters, body, init)
    nest: Stmt = Block(Label(stage.name), iters, reads, writes, body, init)
    for a, loop in reversed(list(zip(axes, loops, strict=True))):
        nest = For(loop, a.extent, nest)
    return nest


def _stores(
    targets: list[Buffer], point: tuple[Var, ...], values: list[Expr], names: set[str]
) -> Stmt:
    """Store the results of a stage; one that reads what another replaces is computed before."""
    early: list[tuple[Var, Expr]] = []
    for n, value in enumerate(values):
        if reads_from(value, targets[:n]):
            early.append((Var(unique(f"{targets[n].name}_value", names), value.dtype), value))
            values[n] = early[-1][0]
    body = seq(*(store(t, point, v) for t, v in zip(targets, values, strict=True)))
    for var, value in early:
        body = Let(var, value, body)
    return body


def _groups(stage: Stage) -> list[list[tuple[int, Reduce]]]:
    """The results of each reduction with their positions, in the order of the combiner's."""
    groups: dict[object, list[tuple[int, Reduce]]] = {}
    for position, result in enumerate(stage.results):
        reduce = cast(Reduce, result)
        groups.setdefault(group(reduce), []).append((position, reduce))
    return [sorted(g, key=lambda pair: pair[1].index) for g in groups.values()]


def _identities(stage: Stage, targets: list[Buffer], point: tuple[Var, ...]) -> Stmt:
    stores: list[Stmt] = []
    for members in _groups(stage):
        combiner = COMBINERS[members[0][1].combiner]
        identity = combiner.identity(tuple(r.dtype for _, r in members))
        stores += [
            store(targets[position], point, value)
            for (position, _), value in zip(members, identity, strict=True)
        ]
    return seq(*stores)


def _update(
    stage: Stage, targets: list[Buffer], point: tuple[Var, ...], lower: Any, names: set[str]
) -> Stmt:
    """`C = combine(C, value)`; several results are combined before the first of them is stored."""
    updates: list[Stmt] = []
    for members in _groups(stage):
        combiner = COMBINERS[members[0][1].combiner]
        places = [Place(targets[position], point) for position, _ in members]
        old = [p.buffer[point] for p in places]
        values = [lower(v) for v in members[0][1].values]
        updates.append(update(combiner, places, old, values, lambda name: unique(name, names)))
    return seq(*updates)


def shown(found: object) -> str:
    """What is given, in few words."""
    match found:
        case Tensor():
            return f"the tensor {found.name}"
        case Expr():
            return f"the expression {found!r}"
        case list() | tuple() if found and all(isinstance(t, Tensor) for t in found):
            return f"a {type(found).__name__} of tensors"
        case _:
            return repr(type(found).__name__)


def program_hint(found: object, call: str) -> str:
    """How a program is made of it, in a `call` such as `tw.build`."""
    several = isinstance(found, (list, tuple))
    parts: Sequence[object] = found if isinstance(found, (list, tuple)) else (found,)
    tensors = [t for t in parts if isinstance(t, Tensor)]
    if tensors and len(tensors) == len(parts):
        names = [t.name for t in tensors] if several else _arguments(tensors[0])
        return f"a program has arguments: {call}(te.func([{', '.join(names)}]))"
    if _is_model(found):
        return "tw.import_onnx(model) is a graph, which tw.build and tw.tune take"
    if any(callable(getattr(part, "kernels", None)) for part in parts):
        return f"a graph has several programs: {call}([*graph.kernels()][0]) takes one"
    if isinstance(found, Expr):
        return (
            f"te.compute makes a tensor of it: {call}(te.func([X, te.compute(shape, lambda ..)]))"
        )
    name = found.__name__ if isinstance(found, FunctionType) else "matmul"
    name = name if name.isidentifier() else "matmul"
    return f"call the function that makes the program: {call}({name}(), ...)"


def _is_model(found: object) -> bool:
    """Whether it is the path of a model, or one as `onnx.load` returns it."""
    if isinstance(found, (str, PathLike)):
        return str(found).endswith(".onnx")
    return type(found).__name__ == "ModelProto"


def _arguments(tensor: Tensor) -> list[str]:
    """The names of the inputs and scalars that a tensor is computed from, and its own."""
    stages = [] if tensor.stage is None else stages_of([tensor.stage])
    scalars = [v.name for stage in stages for v in stage.scalars]
    inputs = [t.name for stage in stages for t in stage.inputs if t.stage is None]
    return list(dict.fromkeys([*scalars, *inputs, tensor.name]))
