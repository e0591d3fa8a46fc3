"""Cached copies of inputs and outputs: `cache_read`, `cache_write`, `read_at`, `write_at`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as _replace
from typing import NamedTuple

from ...base.errors import similar
from ...tir.digits import joined
from ...tir.ir import (
    SCOPES,
    Block,
    Buffer,
    Const,
    Dim,
    Expr,
    Func,
    Iter,
    IterKind,
    Label,
    Load,
    Stmt,
    Store,
    Var,
    as_expr,
    load,
    seq,
)
from ...tir.structure import key_of
from ...tir.visit import substitute, walk
from ..available import require_still_concurrent
from ..block_queries import (
    free_vars,
    readers_of,
    require_inside,
    require_not_inplace,
    require_unit,
    writers_of,
)
from ..buffer_choice import InputIndex, OutputIndex, inputs_of, outputs_of, updates_of
from ..find import find_block, find_loop, find_path, map_blocks, statements
from ..loop_dependence import always_writes
from ..places import spatial_nest
from ..primitive import primitive
from ..require import certain, require
from ..written import visited
from .copies_in_nests import (
    after_writer,
    copied_out,
    readers_beside,
    require_served,
    writer_beside,
)
from .place import compute_at, reverse_compute_at


def require_scope(scope: str) -> None:
    require(
        scope in SCOPES,
        "unknown scope {0!r}; expected one of {1}",
        scope,
        ", ".join(SCOPES),
        hint=lambda: similar(scope, SCOPES),
        found=scope,
        alternatives=SCOPES,
    )


def top_statements(fn: Func) -> tuple[Stmt, ...]:
    return statements(fn.body)


def top_position(fn: Func, label: Label) -> int:
    """The index of the top-level statement that contains a block."""
    find_block(fn, label)
    return next(n for n, s in enumerate(top_statements(fn)) if find_path(s, label) is not None)


def insert_top(fn: Func, position: int, new: Stmt, *allocs: Buffer) -> Func:
    """`fn` with a statement inserted before the top-level statement at `position`.

    Where given, buffers are added to its `allocs`.
    """
    stmts = top_statements(fn)
    body = seq(*stmts[:position], new, *stmts[position:])
    return _replace(fn, body=body, allocs=(*fn.allocs, *allocs))


def replace_top(fn: Func, label: Label, new: Stmt) -> Func:
    """`fn` with `new` in place of the top-level statement that contains a block."""
    stmts, position = top_statements(fn), top_position(fn, label)
    return _replace(fn, body=seq(*stmts[:position], new, *stmts[position + 1 :]))


def _numbered(block: Block, buffers: Sequence[Buffer], index: int, what: str) -> Buffer:
    """The `index`-th of the `buffers` of a block."""
    require(
        0 <= index < len(buffers),
        "block {0} {1}s {2}; there is no index {3}, they count from 0",
        block.label,
        what,
        lambda: ", ".join(b.name for b in buffers) or "no buffer",
        index,
        found=index,
        alternatives=range(len(buffers)),
    )
    return buffers[index]


def accessed(block: Block, buffer: tuple[str, int]) -> Buffer:
    """The buffer of a block that ("read", n) or ("write", n) names."""
    kind, index = buffer
    require(
        kind in ("read", "write"),
        "buffer must be ('read', n) or ('write', n), found {0!r}",
        buffer,
        at=block.label,
    )
    return input_at(block, index) if kind == "read" else written_at(block, index)


def written_at(block: Block, index: int) -> Buffer:
    """The `index`-th buffer that a block writes."""
    return _numbered(block, outputs_of(block), index, "write")


def updated_at(block: Block, index: int) -> Buffer:
    """The `index`-th buffer that a block both reads and writes."""
    return _numbered(block, updates_of(block), index, "update")


def input_at(block: Block, index: int) -> Buffer:
    """The `index`-th buffer that a block reads and does not write."""
    return _numbered(block, inputs_of(block), index, "read")


class Elements(NamedTuple):
    """The elements of a buffer that are written: those at `indices` for `variables` in a box."""

    variables: tuple[Var, ...]
    extents: tuple[Dim, ...]
    indices: tuple[Expr, ...]


def written_elements(fn: Func, buffer: Buffer) -> Elements:
    """The elements of `buffer` that have values: all of an input, else the stored ones.

    A buffer that is updated in place is an input. Raises `ScheduleError` if that is not known.
    """
    writers = writers_of(fn, buffer)
    if not writers or buffer in fn.inplace:
        return all_elements(buffer)
    return elements_of(fn, buffer, writers)


def all_elements(buffer: Buffer) -> Elements:
    """All elements of a buffer."""
    variables = tuple(Var(f"v{d}") for d in range(len(buffer.shape)))
    return Elements(variables, buffer.shape, variables)


def elements_of(fn: Func, buffer: Buffer, writers: Sequence[Block]) -> Elements:
    """The elements of `buffer` that `writers`, one at least, store together.

    Raises `ScheduleError` if that is not known.
    """
    first = _written_by(writers[0], buffer)
    alike = [w for w in writers[:1] if _stores(w, buffer)]
    for other in writers[1:]:
        if is_whole(first, buffer) and not _is_point(other, buffer):
            continue
        same = _alike(first, _written_by(other, buffer))
        require(
            same or is_whole(first, buffer),
            "it cannot be shown which elements of {0} have values: blocks {1} and {2} write "
            "different ones",
            buffer.name,
            writers[0].label.name,
            other.label,
        )
        alike += [other] if same and _stores(other, buffer) else []
    require(
        bool(alike),
        "it cannot be shown which elements of {0} have values: block {1} stores to them under a "
        "condition in its body",
        buffer.name,
        writers[0].label,
        hint="cache_inplace copies in first what the block leaves as it is",
    )
    require(
        visited(fn, [(w, writing_iters(w, buffer)) for w in alike]),
        "it cannot be shown which elements of {0} have values: block {1} does not run in all of "
        "its iterations",
        buffer.name,
        writers[0].label,
        hint="compute_at has left out what its consumer does not need; copy before that",
    )
    return first


def _stores(writer: Block, buffer: Buffer) -> bool:
    """Whether each visit of `writer` stores to `buffer`."""
    return all(always_writes(writer, r) for r in writer.writes if r.buffer is buffer)


def _is_point(writer: Block, buffer: Buffer) -> bool:
    """Whether `writer` stores to `buffer` at one place, of one element."""
    regions = [r for r in writer.writes if r.buffer is buffer]
    return len(regions) == 1 and all(certain(r.extent == 1) for r in regions[0].ranges)


def writing_iters(writer: Block, buffer: Buffer) -> list[Iter]:
    """The spatial iterations that say where `writer` stores to `buffer`."""
    places = [r.min for region in writer.writes if region.buffer is buffer for r in region.ranges]
    used = {v for e in places for v in free_vars(e)}
    return [i for i in writer.iters if i.kind is IterKind.SPATIAL and i.var in used]


def _written_by(writer: Block, buffer: Buffer) -> Elements:
    """The elements of `buffer` that `writer` stores to."""
    require(
        _is_point(writer, buffer),
        "it cannot be shown which elements of {0} block {1} writes",
        buffer.name,
        writer.label,
    )
    (region,) = [r for r in writer.writes if r.buffer is buffer]
    indices = tuple(r.min for r in region.ranges)
    spatial = writing_iters(writer, buffer)
    fresh = {i.var: Var(i.var.name) for i in spatial}
    require(
        {v for e in indices for v in free_vars(e)} <= fresh.keys(),
        "it cannot be shown which elements of {0} have values: block {1} overwrites them as it "
        "goes on",
        buffer.name,
        writer.label,
        hint="a rolling buffer keeps only a window; copy before rolling_buffer",
    )
    return Elements(
        tuple(fresh.values()),
        tuple(i.extent for i in spatial),
        tuple(substitute(e, fresh) for e in indices),
    )


def _alike(a: Elements, b: Elements) -> bool:
    """Whether both are the same elements at the same variables, in their order."""
    if len(a.variables) != len(b.variables):
        return False
    renamed: dict[Var, Expr] = dict(zip(b.variables, a.variables, strict=True))
    return all(
        certain(as_expr(m) == as_expr(n)) for m, n in zip(a.extents, b.extents, strict=True)
    ) and all(
        key_of(e) == key_of(substitute(f, renamed))
        for e, f in zip(a.indices, b.indices, strict=True)
    )


def is_whole(elements: Elements, buffer: Buffer) -> bool:
    """Whether `elements` are all of `buffer`, each at variables of its own.

    A variable may count the elements of several dimensions.
    """
    extents = dict(zip(elements.variables, elements.extents, strict=True))
    shape, indices, _ = joined(buffer, elements.indices)
    moving = [
        (e, n)
        for e, n in zip(indices, shape, strict=True)
        if not (certain(n == 1) and type(e) is Const and e.value == 0)
    ]
    plain = [(e, n) for e, n in moving if type(e) is Var and e in extents]
    return len({e for e, _ in plain}) == len(moving) and all(
        certain(extents[v] == n) for v, n in plain
    )


def copy_of(buffer: Buffer, name: str, scope: str = "global") -> Buffer:
    """An internal buffer for the elements of `buffer`."""
    return Buffer(name, buffer.shape, buffer.dtype, scope=scope, value_range=buffer.value_range)


def copy_block(name: str, source: Buffer, target: Buffer, elements: Elements) -> tuple[Stmt, Label]:
    """A loop nest that copies `elements` of `source` to `target`, which has the same shape."""
    label = Label(name)
    if is_whole(elements, source):
        shape, indices, _ = joined(source, elements.indices)
        places = [(e, n) for e, n in zip(indices, shape, strict=True) if type(e) is Var]
        names = (e.name if e.name.startswith("v") else f"v{d}" for d, (e, _) in enumerate(places))
        renamed = {e: Var(name) for (e, _), name in zip(places, names, strict=True)}
        at = tuple(substitute(e, renamed) for e in elements.indices)
        elements = Elements(tuple(renamed.values()), tuple(n for _, n in places), at)
    sizes = zip(elements.variables, elements.extents, strict=True)
    body = Store(target, elements.indices, load(source, elements.indices))
    return spatial_nest(label, [(f"c{d}", v, n) for d, (v, n) in enumerate(sizes)], body), label


def loads_of(block: Block, buffer: Buffer) -> list[Load]:
    """The loads of `buffer` in a block."""
    roots = [block.body] if block.init is None else [block.init, block.body]
    return [n for root in roots for n in walk(root) if type(n) is Load and n.buffer is buffer]


def redirect(fn: Func, labels: set[Label], old: Buffer, new: Buffer) -> Func:
    """`fn` with the blocks `labels` using `new` instead of `old`."""
    swap = {old: new}
    body = map_blocks(fn.body, lambda b: substitute(b, swap) if b.label in labels else b)
    return _replace(fn, body=body)


def consumers_to_redirect(
    fn: Func, block: Block, buffer: Buffer, consumers: Sequence[Label] | None
) -> set[Label]:
    labels = {block.label} if consumers is None else {block.label, *consumers}
    reading = {b.label for b in readers_of(fn, {buffer})}
    storing = {b.label for b in writers_of(fn, buffer)}
    for label in labels:
        require(label in reading, "block {0} does not read {1}", label, buffer.name)
        require(
            label not in storing,
            "block {0} stores to {1}, of which it would read a copy",
            label,
            buffer.name,
        )
    return labels


def require_written_before(
    fn: Func, buffer: Buffer, position: int, block: Block, until: int | None = None
) -> None:
    """Require that `buffer` is complete before the top-level statement at `position`.

    If it has values before the program runs, statements behind `until` may overwrite it; that is
    `position` by default.
    """
    last = position if until is None else until
    for w in writers_of(fn, buffer):
        place = top_position(fn, w.label)
        require(
            place < position or (place > last and buffer in fn.inplace),
            "{0} is written by block {1} in the same loop nest as block {2}",
            buffer.name,
            w.label,
            block.label.name,
            hint="make the copy before compute_at moves the blocks into one nest",
        )


def require_read_after(fn: Func, buffer: Buffer, position: int, writer: Label) -> None:
    """Require that all but `writer` read `buffer` after the top-level statement at `position`."""
    for r in readers_of(fn, {buffer}, but=writer):
        require(
            top_position(fn, r.label) > position,
            "{0} is read by block {1} in the same loop nest",
            buffer.name,
            r.label,
            hint="make the copy before compute_at moves the blocks into one nest",
        )


@primitive
def cache_read(
    fn: Func,
    block: Label,
    read_buffer_index: InputIndex,
    storage_scope: str,
    consumers: Sequence[Label] | None = None,
) -> tuple[Func, Label]:
    """Let `block` read a copy of an input; a new nest before the block's nest makes the copy.

        for i: B[i] = A[i] * 2   ->   for c0: A_local[c0] = A[c0]
                                      for i: B[i] = A_local[i] * 2

    What a block of the same nest computes is copied right after that, within the loops of both.
    `read_buffer_index` counts the buffers that the block reads and does not write. `consumers` are
    further blocks that read the copy. Returns the label of the copying block.
    """
    require_scope(storage_scope)
    found = find_block(fn, block)
    buffer = input_at(found, read_buffer_index)
    labels = consumers_to_redirect(fn, found, buffer, consumers)
    positions = [top_position(fn, label) for label in labels]
    position = min(positions)
    copy = copy_of(buffer, f"{buffer.name}_{storage_scope}", storage_scope)
    writer = writer_beside(fn, buffer, labels)
    if writer is not None:
        stmt, label = copy_block(copy.name, buffer, copy, all_elements(buffer))
        fn = insert_top(fn, top_position(fn, writer) + 1, stmt, copy)
        fn = redirect(after_writer(fn, label, writer, labels), labels, buffer, copy)
        require_served(fn, labels, (label,))
        return fn, label
    require_written_before(fn, buffer, position, found, max(positions))
    stmt, label = copy_block(copy.name, buffer, copy, written_elements(fn, buffer))
    return insert_top(redirect(fn, labels, buffer, copy), position, stmt, copy), label


@primitive
def cache_write(
    fn: Func, block: Label, write_buffer_index: OutputIndex, storage_scope: str
) -> tuple[Func, Label]:
    """Let `block` compute into an internal buffer, which a new nest after it copies to the output.

        for i: B[i] = A[i] * 2   ->   for i: B_local[i] = A[i] * 2
                                      for c0: B[c0] = B_local[c0]

    What a block of the same nest reads is copied right after `block`, within the loops of both.
    Returns the label of the copying block.
    """
    require_scope(storage_scope)
    found = find_block(fn, block)
    require_unit(fn, found)
    buffer = written_at(found, write_buffer_index)
    require_not_inplace(fn, buffer, block)
    position = top_position(fn, block)
    copy = copy_of(buffer, f"{buffer.name}_{storage_scope}", storage_scope)
    if readers_beside(fn, buffer, block):
        output = copy_of(buffer, buffer.name)
        stmt, label = copy_block(copy.name, copy, output, all_elements(buffer))
        fn = redirect(fn, {block}, buffer, copy)
        fn = insert_top(fn, position + 1, stmt, copy, output)
        return copied_out(fn, label, block, buffer, {output: (buffer, lambda e: e)}), label
    elements = written_elements(fn, buffer)
    require_read_after(fn, buffer, position, block)
    stmt, label = copy_block(copy.name, copy, buffer, elements)
    fn = insert_top(redirect(fn, {block}, buffer, copy), position + 1, stmt, copy)
    require_still_concurrent(fn, (block,))
    return fn, label


@primitive
def read_at(
    fn: Func, loop: Var, block: Label, read_buffer_index: InputIndex, storage_scope: str
) -> tuple[Func, Label]:
    """Let `block` read a copy of an input; each iteration of `loop` copies the part that it needs.

        for i:                                for i:
          for j: B[i, j] = A[i, j] * 2   ->     for ax0: A_local[i, ax0] = A[i, ax0]
                                                for j: B[i, j] = A_local[i, j] * 2

    This is `cache_read` and `compute_at` in one step. Returns the label of the copying block.
    """
    find_block(fn, block)
    require_inside(find_loop(fn, loop), block)
    fn, copy = cache_read(fn, block, read_buffer_index, storage_scope)
    if find_path(find_loop(fn, loop), copy) is None:
        fn, _ = compute_at(fn, copy, loop)
    return fn, copy


@primitive
def write_at(
    fn: Func, loop: Var, block: Label, write_buffer_index: OutputIndex, storage_scope: str
) -> tuple[Func, Label]:
    """Let `block` compute into an internal buffer, which each iteration of `loop` copies out.

        for i:                                for i:
          for j: B[i, j] = A[i, j] * 2   ->     for j: B_local[i, j] = A[i, j] * 2
                                                for ax0: B[i, ax0] = B_local[i, ax0]

    This is `cache_write` and `reverse_compute_at` in one step: each iteration of `loop` must finish
    what it computes. Returns the label of the copying block.
    """
    find_block(fn, block)
    require_inside(find_loop(fn, loop), block)
    fn, copy = cache_write(fn, block, write_buffer_index, storage_scope)
    if find_path(find_loop(fn, loop), copy) is None:
        fn, _ = reverse_compute_at(fn, copy, loop)
    return fn, copy
