"""Computing ahead of a block: `compute_ahead`, `cache_index`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace as _replace
from typing import Any

from ...base import dtypes
from ...tir.bounds import bound
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Func,
    If,
    Label,
    Load,
    Op,
    Select,
    Store,
    Var,
    as_expr,
    cast,
    load,
    product,
)
from ...tir.structure import key_of
from ...tir.visit import children, rewrite_children, substitute, walk
from ..block_queries import Ranges, domain, free_vars, region_buffers, with_regions, writers_of
from ..buffer_choice import InputIndex
from ..find import blocks_in, find_block, replace, replace_stmt
from ..places import moving, rewritten, spatial_nest
from ..primitive import primitive
from ..require import current_space, require
from .cached_copies import (
    copy_block,
    input_at,
    insert_top,
    require_scope,
    require_written_before,
    top_position,
    written_elements,
)
from .reindex import all_written


@primitive
def compute_ahead(fn: Func, block: Label, read_buffer_index: InputIndex) -> tuple[Func, Label]:
    """Compute what `block` derives from each element of one input in a nest before it.

        for i, j, k: C[i, j] += max(A[i, k], 0) * B[k, j]
          ->  for c0, c1: A_ahead[c0, c1] = max(A[c0, c1], 0)
              for i, j, k: C[i, j] += A_ahead[i, k] * B[k, j]

    This is the largest expression of one element and constants; it must be the same wherever the
    block reads the input. `compute_inline` of the new block undoes the step, or, after `pack` or
    `cache_read`, moves the work to where the copy is made. `read_buffer_index` counts the buffers
    that the block reads and does not write. Returns the label of the new block.
    """
    found = find_block(fn, block)
    buffer = input_at(found, read_buffer_index)
    roots = [found.body] if found.init is None else [found.body, found.init]
    values = [e for root in roots for e in _largest(root, buffer)]
    forms = {key_of(_at(e, buffer, Const(0, buffer.dtype))) for e in values}
    require(
        len(forms) == 1 and type(values[0]) is not Load,
        "block {0} does not compute the same of each element of {1} that it reads",
        block,
        buffer.name,
        hint="cache_read copies elements as they are",
    )
    for role, hint in (("indices", "cache_index computes indices ahead"), ("divisors", None)):
        require(
            not any(n.buffer is buffer for root in roots for n in _elements_in(role, root)),
            "elements of {0} are {1} of block {2}; what is computed of them has no known range",
            buffer.name,
            role,
            block,
            hint=hint,
        )
    conditional = any(
        n.buffer is buffer for root in roots for n in _elements_in("conditions", root)
    )
    shared = [b for b in region_buffers(found.writes) if len(writers_of(fn, b)) > 1]
    require(
        not (conditional and shared),
        "block {0} stores to {1} under conditions on elements of {2}, and others store the rest",
        block,
        lambda: ", ".join(sorted(b.name for b in shared)),
        buffer.name,
        hint="it would no longer be seen that the conditions are each other's opposites",
    )
    value = values[0]
    position = top_position(fn, block)
    require_written_before(fn, buffer, position, found)
    made = Buffer(f"{buffer.name}_ahead", buffer.shape, value.dtype)
    stmt, label = copy_block(made.name, buffer, made, written_elements(fn, buffer))
    (copy,) = blocks_in(stmt)
    (read,) = (n for n in walk(copy.body) if type(n) is Load)
    body = rewrite_children(copy.body, lambda n: _at(value, buffer, read) if n is read else n)
    stmt = replace_stmt(stmt, copy, with_regions(_replace(copy, body=body)))

    computed = set(values)

    def visit(n: Any) -> Any:
        if isinstance(n, Expr) and n in computed:
            (element, *_) = (m for m in walk(n) if type(m) is Load)
            return Load(made, element.indices, made.dtype)
        return n if type(n) is Buffer else rewrite_children(n, visit)

    new = rewritten(found, visit)
    return insert_top(replace(fn, found, new, made), position, stmt), label


def _largest(root: Any, buffer: Buffer) -> Iterator[Expr]:
    """The largest expressions in `root` of an element of `buffer` and numbers alone."""
    if isinstance(root, Expr) and _is_own(root, buffer) and _reads(root):
        places = {tuple(map(key_of, n.indices)) for n in walk(root) if type(n) is Load}
        if len(places) == 1:
            yield root
            return
    for child in children(root):
        if type(child) is not Buffer:
            yield from _largest(child, buffer)


def _elements_in(role: str, root: Any) -> Iterator[Load]:
    """The elements in `root` that are read as "indices", as "divisors", which may not be zero, or
    in "conditions" of statements."""
    for n in walk(root):
        exprs: tuple[Expr, ...] = ()
        if role == "indices" and (type(n) is Load or type(n) is Store):
            exprs = n.indices
        elif role == "divisors" and type(n) is Binary and n.op in (Op.FLOORDIV, Op.MOD):
            exprs = () if dtypes.is_float(n.dtype) else (n.b,)
        elif role == "conditions" and type(n) is If:
            exprs = (n.cond,)
        for e in exprs:
            yield from (m for m in walk(e) if type(m) is Load)


def _is_own(e: Expr, buffer: Buffer) -> bool:
    """Whether `e` can be computed of elements of `buffer` and numbers, whatever those are."""
    if type(e) is Load:
        return e.buffer is buffer
    if type(e) is Binary and e.op in (Op.FLOORDIV, Op.MOD) and type(e.b) is not Const:
        return False
    known = type(e) in (Binary, Call, Cast, Select, Const)
    return known and all(_is_own(c, buffer) for c in children(e) if isinstance(c, Expr))


def _reads(e: Any) -> bool:
    """Whether evaluating `e` reads memory; a select may guard an access out of bounds."""
    if type(e) is Select:
        return _reads(e.cond) or (_reads(e.then) and _reads(e.other))
    return type(e) is Load or any(_reads(c) for c in children(e) if isinstance(c, Expr))


def _at(e: Any, buffer: Buffer, element: Expr) -> Any:
    """`e` with `element` in place of its reads of `buffer`."""
    if type(e) is Load and e.buffer is buffer:
        return element
    return e if type(e) is Buffer else rewrite_children(e, lambda n: _at(n, buffer, element))


NUMBERS = 1 << 26
"""At most how many indices one buffer holds."""
NARROW = 1 << 31


@primitive
def cache_index(
    fn: Func, block: Label, storage_scope: str, cse_thresh: int = 0
) -> tuple[Func, tuple[Label, ...]]:
    """Precompute the indices at which `block` reads, in nests before it.

        for i, j: B[i, j] = A[i * 3 // 7, j]   ->   for c0: index[c0] = c0 * 3 // 7
                                                    for i, j: B[i, j] = A[index[i], j]

    An index is precomputed if it is more than a variable, occurs more than `cse_thresh` times in
    the block, depends on iteration variables only, and is known to be within a buffer that was
    written before. Returns the labels of the blocks that compute the indices.
    """
    require_scope(storage_scope)
    require(cse_thresh >= 0, "cse_thresh is {0}; expected at least 0", cse_thresh, at=block)
    found = find_block(fn, block)
    _require_no_choice(found)
    ranges = domain(found.iters)
    position = top_position(fn, block)
    counts: Counter[object] = Counter()
    exprs: dict[object, Expr] = {}
    places: set[tuple[Load, int]] = set()
    for n in _loads(found):
        if not _is_settled(fn, n.buffer, position):
            continue
        for d, (e, size) in enumerate(zip(n.indices, n.buffer.shape, strict=True)):
            if _is_computed(e, found) and _is_within(e, size, ranges):
                places.add((n, d))
                exprs.setdefault(key_of(e), e)
                counts[key_of(e)] += 1
    chosen = [e for key, e in exprs.items() if counts[key] > cse_thresh]
    require(
        bool(chosen),
        "block {0} computes no index more than {1} times that could be computed ahead",
        block,
        cse_thresh,
        hint="indices that need a condition to be in bounds stay, as do plain variables",
    )
    labels: list[Label] = []
    loads: dict[object, Expr] = {}
    for e in chosen:
        iters = moving(found, (e,))
        name = f"{block.name}_index" + (f"_{len(labels)}" if labels else "")
        shape = tuple(i.extent for i in iters)
        require(
            product(shape) <= NUMBERS,
            "there are {0} values of index {1}; at most {2}",
            lambda shape=shape: product(shape),
            e,
            NUMBERS,
            at=block,
        )
        low, high = bound(e, ranges)
        assert isinstance(low, int)
        assert isinstance(high, int)
        dtype = "int32" if high < NARROW else "int64"
        buffer = Buffer(name, shape, dtype, scope=storage_scope, value_range=(low, high + 1))
        label = Label(name)
        variables = {i.var: Var(f"v{n}") for n, i in enumerate(iters)}
        axes = [(f"c{n}", variables[i.var], i.extent) for n, i in enumerate(iters)]
        body = Store(buffer, tuple(variables.values()), cast(dtype, substitute(e, variables)))
        nest = spatial_nest(label, axes, body)
        fn = insert_top(fn, position + len(labels), nest, buffer)
        loads[key_of(e)] = cast("int64", load(buffer, tuple(i.var for i in iters)))
        labels.append(label)
    return _with_loads(fn, found, loads, places), tuple(labels)


def _require_no_choice(block: Block) -> None:
    """Require that decisions do not change whether an index is precomputed and in its buffer."""
    space = current_space()
    if space is None:
        return
    sizes: list[Dim] = [i.extent for i in block.iters]
    for n in _loads(block):
        sizes += [*n.indices, *n.buffer.shape]
    used = {v for size in sizes for v in free_vars(as_expr(size))}
    require(
        not used & space.bounds.keys(),
        "the indices of block {0} depend on decisions that are open: {1}",
        block.label,
        lambda: ", ".join(sorted(v.name for v in used & space.bounds.keys())),
        hint="compute them ahead before the steps that use these decisions",
    )


def _loads(block: Block) -> list[Load]:
    """The loads of a block from buffers that it does not write."""
    own = region_buffers(block.writes)
    roots = [block.body] if block.init is None else [block.init, block.body]
    return [n for r in roots for n in walk(r) if type(n) is Load and n.buffer not in own]


def _is_settled(fn: Func, buffer: Buffer, position: int) -> bool:
    """Whether all elements of `buffer` have their values before the statement at `position`."""
    earlier = all(top_position(fn, w.label) < position for w in writers_of(fn, buffer))
    return earlier and all_written(fn, buffer)


def _is_computed(e: Expr, block: Block) -> bool:
    """Whether an index is arithmetic on iteration variables that cannot fail."""
    if type(e) is Var or type(e) is Const or not free_vars(e) <= {i.var for i in block.iters}:
        return False
    for n in walk(e):
        divides = type(n) is Binary and n.op in (Op.FLOORDIV, Op.MOD)
        if type(n) is Load or (divides and not (type(n.b) is Const and n.b.value != 0)):
            return False
    return True


def _is_within(e: Expr, size: object, ranges: Ranges) -> bool:
    low, high = bound(e, ranges)
    return (
        isinstance(low, int)
        and isinstance(high, int)
        and isinstance(size, int)
        and 0 <= low <= high < size
    )


def _with_loads(
    fn: Func, block: Block, loads: dict[object, Expr], places: set[tuple[Load, int]]
) -> Func:
    """`fn` in which `block` takes the indices at `places` from `loads`, where they are keys."""

    def index(n: Load, d: int) -> Expr:
        key = key_of(n.indices[d])
        if (n, d) in places and key in loads:
            return loads[key]
        found: Expr = visit(n.indices[d])
        return found

    def visit(n: Any) -> Any:
        if type(n) is Buffer:
            return n
        if type(n) is Load:
            indices = tuple(index(n, d) for d in range(len(n.indices)))
            return Load(n.buffer, indices, n.dtype, None if n.mask is None else visit(n.mask))
        return rewrite_children(n, visit)

    new = rewritten(block, visit)
    return replace(fn, block, new)
