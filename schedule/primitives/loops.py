"""Loop structure: `split`, `fuse`, `reorder`, `tile`, `loop_partition`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...errors import ScheduleError
from ...tir.bounds import bound
from ...tir.ir import (
    Binary,
    Block,
    Const,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Iter,
    Label,
    Op,
    Seq,
    Stmt,
    Var,
    as_expr,
    binary,
    ceildiv,
    product,
    seq,
)
from ...tir.linear import linear
from ...tir.prove import prove
from ...tir.simplify import Simplifier
from ...tir.visit import map_tuple, substitute
from ..blocks import Ranges, conjunction, conjuncts, loop_ranges
from ..find import blocks_in, find_path, path_to, rebuild, with_body
from ..legality import require_permutable
from ..primitive import primitive
from ..require import certain, require

MAX_PARTS = 16


@primitive
def split(
    fn: Func, loop: Var, factors: Sequence[Dim | None], *, perfect: bool = False
) -> tuple[Func, tuple[Var, ...]]:
    """Split a loop into nested loops of `factors` iterations, outermost first.

        for i in 16: A[i]   ->   for i_0 in 4: for i_1 in 4: A[i_0 * 4 + i_1]

    One factor may be `None` and is inferred. Where the factors cover more than the extent, the
    blocks below get the predicate that the index is within it; `perfect=True` refuses that.
    """
    path = path_to(fn, loop)
    old = _plain_loop(path, "split")
    extent = old.extent
    require(
        1 <= len(factors) <= MAX_PARTS,
        "{0} factors; expected 1 to {1}",
        len(factors),
        MAX_PARTS,
        at=loop,
    )
    given = [f for f in factors if f is not None]
    require(
        len(given) >= len(factors) - 1,
        "at most one factor may be None, found {0}",
        list(factors),
        at=loop,
    )
    for f in given:
        require(f >= 1, "factor {0} is not positive", f, at=loop)
    inner = product(given)
    if len(given) < len(factors):
        exact = certain(extent % inner == 0)
        if perfect and not exact:
            require(
                extent % inner == 0,
                "factor {0} does not divide extent {1}",
                inner,
                extent,
                at=loop,
                hint=lambda: _divisors_near(extent, inner),
            )
            exact = True
        missing = extent // inner if exact else ceildiv(extent, inner)
        sizes: list[Dim] = [missing if f is None else f for f in factors]
    else:
        sizes = given
        exact = certain(inner == extent)
        if perfect and not exact:
            require(
                inner == extent,
                "the factors multiply to {0}, the extent is {1}",
                inner,
                extent,
                at=loop,
            )
            exact = True
        if not exact:
            require(
                inner >= extent,
                "the factors multiply to {0}, less than the extent {1}",
                inner,
                extent,
                at=loop,
                hint="put None for the outermost factor",
            )
    names = [Var(f"{loop.name}_{k}") for k in range(len(sizes))]
    index: Expr = names[0]
    stride = product(sizes[1:])
    index = index * stride
    for k in range(1, len(sizes)):
        stride = product(sizes[k + 1 :])
        index = index + names[k] * stride
    guard = None if exact else binary(Op.LT, index, as_expr(extent))
    ranges = _ranges(path, zip(names, sizes, strict=True))
    body = rebound(old.body, {loop: index}, guard, ranges)
    for var, size in zip(reversed(names), reversed(sizes), strict=True):
        body = For(var, size, body)
    return rebuild(fn, path, body), tuple(names)


@primitive
def fuse(fn: Func, *loops: Var) -> tuple[Func, Var]:
    """Fuse perfectly nested loops, outermost first, into one.

    for i in 4: for j in 8: A[i, j]   ->   for i_j_fused in 32: A[i_j_fused // 8, i_j_fused % 8]
    """
    require(len(loops) >= 1, "fuse takes at least one loop")
    path = path_to(fn, loops[0])
    nest = _nested_below(path, loops, "fuse")
    kind = nest[0].kind
    for n in nest:
        require(
            n.kind is kind,
            "{0} is {1} and {2} is {3}; loops to fuse must be of one kind",
            nest[0].var.name,
            kind.value,
            n.var.name,
            n.kind.value,
            at=n.var,
        )
        _plain_loop((n,), "fuse", serial_only=False)
    if len(nest) == 1:
        return fn, loops[0]
    fused = Var("_".join(v.name for v in loops)[:48] + "_fused")
    extent = product([n.extent for n in nest])
    ranges = _ranges(path, [(fused, extent)])
    values: dict[Var, Expr] = {}
    stride: Dim = 1
    for n in reversed(nest):
        value: Expr = binary(Op.FLOORDIV, fused, as_expr(stride))
        if n is not nest[0]:
            value = binary(Op.MOD, value, as_expr(n.extent))
        values[n.var] = value
        stride = n.extent * stride
    body = rebound(nest[-1].body, values, None, ranges)
    return rebuild(fn, path, For(fused, extent, body, kind)), fused


@primitive
def reorder(fn: Func, *loops: Var) -> tuple[Func, None]:
    """Put loops of one perfectly nested chain in the order given; others keep their positions.

    for i: for j: for k: ...   --reorder(k, i)-->   for k: for j: for i: ...
    """
    require(
        len(set(loops)) == len(loops),
        "a loop is named twice: {0}",
        lambda: ", ".join(v.name for v in loops),
    )
    require(len(loops) >= 1, "reorder takes at least one loop")
    path = _path_through(fn, loops)
    wanted = set(loops)
    places = [k for k, s in enumerate(path) if type(s) is For and s.var in wanted]
    top, bottom = places[0], places[-1]
    old = {s.var: s for s in path[top:] if type(s) is For}
    for above, s in zip(path[top:bottom], path[top + 1 : bottom + 1], strict=True):
        require(
            type(s) is For and type(above) is For,
            "loops {0} and {1} are not perfectly nested: other statements are between them",
            loops[0].name,
            loops[-1].name,
            at=path[top].var,
        )  # type: ignore[attr-defined]
    order = [path[k].var for k in places]  # type: ignore[attr-defined]
    if all(a is b for a, b in zip(order, loops, strict=True)):
        return fn, None
    new: dict[int, For] = {k: old[v] for k, v in zip(places, loops, strict=True)}
    chain = [new.get(k, path[k]) for k in range(top, bottom + 1)]
    require_permutable(fn, path[:top], chain)  # type: ignore[arg-type]
    body = path[bottom].body  # type: ignore[attr-defined]
    for s in reversed(chain):
        body = with_body(s, body)  # type: ignore[arg-type]
    return rebuild(fn, path[: top + 1], body), None


@primitive
def tile(
    fn: Func, target: Label | Sequence[Var], factors: Sequence[Dim]
) -> tuple[Func, tuple[Var, ...]]:
    """Split nested loops by `factors` and put the tiles' loops inside; the loops after reorder.

        tile((i, j), (8, 64)):   for i: for j: ...   ->   for i_0: for j_0: for i_1: for j_1: ...

    `target` is as many perfectly nested loops as there are factors, or a block, whose outermost
    loops are taken.
    """
    if isinstance(target, Label):
        above = [s.var for s in path_to(fn, target) if type(s) is For]
        require(
            len(factors) <= len(above),
            "{0} factors, but block {1} is in {2} loops",
            len(factors),
            target.name,
            len(above),
            at=target,
        )
        target = above[: len(factors)]
    require(
        len(target) == len(factors) >= 1, "{0} loops and {1} factors", len(target), len(factors)
    )
    outer: list[Var] = []
    inner: list[Var] = []
    for loop, factor in zip(target, factors, strict=True):
        fn, (o, i) = split(fn, loop, (None, factor))
        outer.append(o)
        inner.append(i)
    fn, _ = reorder(fn, *outer, *inner)
    return fn, (*outer, *inner)


@primitive
def loop_partition(
    fn: Func, loop: Var, at: Dim | None = None
) -> tuple[Func, tuple[Var | Label, ...]]:
    """Cut a loop in two at iteration `at`, and drop the predicates that hold in each part.

        for i in 13: where i * 8 < 100: A[i]   ->   for i in 12: A[i]
                                                    for i_tail in 1: where i_tail * 8 < 4: ...

    By default `at` is where the first predicate begins to fail. The blocks of the first part keep
    their labels, and the loop its variable. Returns the tail's loop and the labels of its blocks.
    """
    path = path_to(fn, loop)
    old = path[-1]
    assert isinstance(old, For)
    require(
        old.kind is not ForKind.THREAD, "loop {0} is bound to a thread axis", loop.name, at=loop
    )
    if at is None:
        at = _first_failure(path, old)
    require(at >= 1, "the first part, [0, {0}), is empty", at, at=loop)
    require(
        at < old.extent,
        "nothing is left for the tail: the loop has {0} iterations",
        old.extent,
        at=loop,
    )
    outer = loop_ranges(s for s in path[:-1] if type(s) is For)
    main = For(
        loop,
        at,
        tidied(old.body, {**outer, loop: (0, at - 1)}),
        old.kind,
        old.thread,
        old.annotations,
    )
    tail_var = Var(f"{loop.name}_tail")
    rest = old.extent - at
    labels: list[Label] = []
    body = _fresh(old.body, {loop: tail_var + at}, labels)
    tail = For(
        tail_var,
        rest,
        tidied(body, {**outer, tail_var: (0, rest - 1)}),
        old.kind,
        old.thread,
        old.annotations,
    )
    both = seq(main, tail)
    parent = path[-2] if len(path) > 1 else None
    if type(parent) is Seq:
        stmts = [both if s is old else s for s in parent.stmts]
        return rebuild(fn, path[:-1], seq(*stmts)), (tail_var, *labels)
    return rebuild(fn, path, both), (tail_var, *labels)


def rebound(
    stmt: Stmt, values: Mapping[Var, Expr], guard: Expr | None, ranges: dict[Var, tuple[Dim, Dim]]
) -> Stmt:
    """`stmt` with loop variables replaced in what blocks are bound to, and a condition added.

    `ranges` are those of the loops around `stmt`.
    """
    match stmt:
        case For():
            inner = {**ranges, stmt.var: (0, stmt.extent - 1)}
            return with_body(stmt, rebound(stmt.body, values, guard, inner))
        case Block():
            iters = map_tuple(stmt.iters, lambda i: _rebound_iter(i, values, ranges))
            old = stmt.predicate
            new = None if old is None else _value(old, values, ranges)
            conditions = [c for c in conjuncts(new) if type(c) is not Const]
            if guard is not None:
                conditions.append(guard)
            return Block(
                stmt.label,
                iters,
                stmt.reads,
                stmt.writes,
                stmt.body,
                stmt.init,
                conjunction(conditions),
                stmt.annotations,
            )
        case Seq():
            return Seq(tuple([rebound(s, values, guard, ranges) for s in stmt.stmts]))
        case If():
            cond = _value(stmt.cond, values, ranges)
            then = rebound(stmt.then, values, guard, ranges)
            other = None if stmt.other is None else rebound(stmt.other, values, guard, ranges)
            return If(cond, then, other)
        case _:
            raise ScheduleError("a statement outside of any block cannot be scheduled: {0}", stmt)


def _rebound_iter(i: Iter, values: Mapping[Var, Expr], ranges: Ranges) -> Iter:
    new = _value(i.value, values, ranges)
    return i if new is i.value else Iter(i.var, i.extent, i.kind, new)


def _value(e: Expr, values: Mapping[Var, Expr], ranges: Ranges) -> Expr:
    """`e` with variables replaced; what quotients and remainders are in it is simplified."""
    if type(e) is Var:
        return values.get(e, e)
    new = substitute(e, values)
    if new is not e and _has_quotient(new):
        return Simplifier(ranges)(new)
    return new


def _has_quotient(e: Expr) -> bool:
    if type(e) is not Binary:
        return False
    if e.op is Op.FLOORDIV or e.op is Op.MOD:
        return True
    return _has_quotient(e.a) or _has_quotient(e.b)


def tidied(stmt: Stmt, ranges: dict[Var, tuple[Dim, Dim]]) -> Stmt:
    """`stmt` without the predicates that hold for all of `ranges`, those of the loops around it."""
    match stmt:
        case For():
            inner = {**ranges, stmt.var: (0, stmt.extent - 1)}
            body = tidied(stmt.body, inner)
            return stmt if body is stmt.body else with_body(stmt, body)
        case Block() if stmt.predicate is not None:
            old = conjuncts(stmt.predicate)
            kept = [c for c in old if prove(c, ranges) is not True]
            if len(kept) == len(old):
                return stmt
            return Block(
                stmt.label,
                stmt.iters,
                stmt.reads,
                stmt.writes,
                stmt.body,
                stmt.init,
                conjunction(kept),
                stmt.annotations,
            )
        case Seq():
            stmts = map_tuple(stmt.stmts, lambda s: tidied(s, ranges))
            return stmt if stmts is stmt.stmts else Seq(stmts)
        case _:
            return stmt


def _fresh(stmt: Stmt, values: dict[Var, Expr], labels: list[Label]) -> Stmt:
    """A copy of `stmt` with loops and blocks of its own, and variables replaced."""
    match stmt:
        case For():
            var = Var(f"{stmt.var.name}_tail")
            body = _fresh(stmt.body, {**values, stmt.var: var}, labels)
            return For(var, stmt.extent, body, stmt.kind, stmt.thread, stmt.annotations)
        case Block():
            label = Label(f"{stmt.label.name}_tail")
            labels.append(label)
            own: dict[Var, Expr] = {i.var: Var(i.var.name) for i in stmt.iters}
            iters = tuple(
                Iter(own[i.var], i.extent, i.kind, substitute(i.value, values))  # type: ignore[arg-type]
                for i in stmt.iters
            )
            inside = Block(label, (), stmt.reads, stmt.writes, stmt.body, stmt.init)
            inside = substitute(inside, own)
            predicate = None if stmt.predicate is None else substitute(stmt.predicate, values)
            return Block(
                label,
                iters,
                inside.reads,
                inside.writes,
                inside.body,
                inside.init,
                predicate,
                stmt.annotations,
            )
        case Seq():
            return Seq(tuple(_fresh(s, values, labels) for s in stmt.stmts))
        case If():
            other = None if stmt.other is None else _fresh(stmt.other, values, labels)
            return If(substitute(stmt.cond, values), _fresh(stmt.then, values, labels), other)
        case _:
            raise ScheduleError("a statement outside of any block cannot be scheduled: {0}", stmt)


def _first_failure(path: tuple[Stmt, ...], loop: For) -> Dim:
    """The first iteration in which a predicate of a block below may fail."""
    found: Dim | None = None
    outer = loop_ranges(s for s in path[:-1] if type(s) is For)
    for block in blocks_in(loop.body):
        below = find_path(loop.body, block.label) or ()
        ranges = {**outer, **loop_ranges(s for s in below if type(s) is For)}
        for c in conjuncts(block.predicate):
            limit = _limit(c, loop.var, ranges)
            if limit is not None and (found is None or certain(limit < found)):
                found = limit
    if found is None:
        raise ScheduleError(
            "no block below loop {0} has a predicate of the form index < size to peel",
            loop.var.name,
            at=loop.var,
            hint="say where to cut: loop_partition(loop, at=...)",
        )
    return found


def _limit(condition: Expr, loop: Var, ranges: Ranges) -> Dim | None:
    """The number of first iterations for which `condition`, some `x < n`, is sure to hold."""
    if type(condition) is not Binary or condition.op is not Op.LT:
        return None
    parts = linear(condition.a - condition.b, (loop,))
    if parts is None or loop not in parts.coefficients:
        return None
    scale = parts.coefficients[loop]
    most = bound(parts.constant, ranges)[1]
    if most is None or not certain(scale >= 1):
        return None
    return (scale - 1 - most) // scale


def _plain_loop(path: tuple[Stmt, ...], what: str, serial_only: bool = True) -> For:
    """The loop at the end of `path`, if nothing but its iterations is attached to it."""
    loop = path[-1]
    assert isinstance(loop, For)
    if serial_only:
        require(
            loop.kind is ForKind.SERIAL,
            "loop {0} is {1} already; {2} it before that",
            loop.var.name,
            loop.kind.value,
            what,
            at=loop.var,
        )
    require(
        loop.kind is not ForKind.THREAD,
        "loop {0} is bound to a thread axis",
        loop.var.name,
        at=loop.var,
    )
    require(
        not loop.annotations,
        "loop {0} is annotated with {1}, which would be lost",
        loop.var.name,
        lambda: ", ".join(k for k, _ in loop.annotations),
        at=loop.var,
    )
    return loop


def _nested_below(path: tuple[Stmt, ...], loops: Sequence[Var], what: str) -> list[For]:
    """The loops as a perfect nest, the first at the end of `path`."""
    stmt: Stmt = path[-1]
    nest: list[For] = []
    for v in loops:
        if type(stmt) is not For or stmt.var is not v:
            path_to(Func("", (), (), path[0]), v)
            raise ScheduleError(
                "loop {0} is not directly inside loop {1}; {2} takes perfectly nested loops",
                v.name,
                nest[-1].var.name,
                what,
                at=v,
            )
        nest.append(stmt)
        stmt = stmt.body
    return nest


def _path_through(fn: Func, loops: Sequence[Var]) -> tuple[Stmt, ...]:
    """The path to the innermost of `loops`, which contains all of them."""
    path = path_to(fn, loops[0])
    for v in loops[1:]:
        if any(type(s) is For and s.var is v for s in path):
            continue
        below = find_path(path[-1], v)
        if below is None:
            path_to(fn, v)
            raise ScheduleError("loops {0} and {1} are not nested", path[-1].var.name, v.name, at=v)  # type: ignore[attr-defined]
        path += below[1:]
    return path


def _ranges(path: tuple[Stmt, ...], new: Iterable[tuple[Var, Dim]]) -> dict[Var, tuple[Dim, Dim]]:
    """Ranges of the loops above the end of `path`, and of `new` ones given by extent."""
    ranges = loop_ranges(s for s in path[:-1] if type(s) is For)
    for var, extent in new:
        ranges[var] = (0, extent - 1)
    return ranges


def _divisors_near(extent: Dim, factor: Dim) -> str:
    if not (isinstance(extent, int) and isinstance(factor, int)):
        return "use a factor that divides the extent"
    found = [d for d in range(1, min(extent, 4096) + 1) if extent % d == 0]
    near = sorted(sorted(found, key=lambda d: abs(d - factor))[:4])
    return f"factors near {factor} that divide {extent}: {', '.join(map(str, near))}"
