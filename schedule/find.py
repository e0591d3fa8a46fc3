"""Find loops and blocks in a program, and replace statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as _replace

from ..base.errors import ScheduleError, similar
from ..tir.ir import Alloc, Block, Buffer, For, Func, If, Label, Let, Seq, Stmt, Var, seq
from ..tir.printer import loop_names
from ..tir.visit import map_tuple, nested, with_body, with_func_body
from .facts import fact

MAKE_BLOCKS = "begin with make_blocks(), which makes a block of each statement"
"""A hint for programs with statements in no block."""


def find_path(root: Stmt, wanted: Var | Label) -> tuple[Stmt, ...] | None:
    """Statements from `root` down to the loop over a variable or the block with a label."""
    nest: list[Stmt] = []  # most programs are long nests: down a nest without recursion
    while type(root) is For:
        nest.append(root)
        if root.var is wanted:
            return tuple(nest)
        root = root.body
    nest.append(root)
    if type(root) is Block:
        return tuple(nest) if root.label is wanted else None
    for stmt in nested(root):
        below = find_path(stmt, wanted)
        if below is not None:
            return (*nest, *below)
    return None


def path_to(fn: Func, wanted: Var | Label) -> tuple[Stmt, ...]:
    """`find_path` in a function. Raises `ScheduleError` if the handle is expired or foreign."""
    path = find_path(fn.body, wanted)
    if path is None:
        what = "loop" if type(wanted) is Var else "block"
        raise ScheduleError(
            "there is no {0} {1} in the program (any more)", what, wanted.name, dead=wanted
        )
    return path


def loop_path(fn: Func, loop: Var) -> tuple[tuple[Stmt, ...], For]:
    """`path_to` a loop, and the loop."""
    path = path_to(fn, loop)
    return path, last_loop(path)


def printed_names(root: Func | Stmt) -> dict[Var, str]:
    """`loop_names`, for which a program is printed once while facts are kept."""
    return fact((loop_names, root), lambda: loop_names(root))


def called(root: Func | Stmt, loop: Var) -> str:
    """The name of a loop in the text of a program, with a block in it if others are called so."""
    names = printed_names(root)
    name = names.get(loop, loop.name)
    body = root.body if isinstance(root, Func) else root
    path = find_path(body, loop)
    if path is None or list(names.values()).count(name) < 2:
        return name
    block = next(blocks_in(path[-1]), None)
    return name if block is None else f"{name} of block {block.label.name}"


def find_named(fn: Func, name: str, block: Label | None = None) -> tuple[Func, For]:
    """The loop of that name, of those around `block` if it is given.

    Raises `ScheduleError` if there is none, or several.
    """
    names = loop_names(fn)
    around = loops_in(fn.body) if block is None else loops_above(fn, block)
    known = {s: names[s.var] for s in around}
    found = [s for s in known if known[s] == name]
    if not found:
        raise ScheduleError(
            "there is no loop {0!r}{1}; there are {2}",
            name,
            "" if block is None else f" around block {block.name}",
            lambda: ", ".join(dict.fromkeys(known.values())) or "none",
            hint=lambda: similar(name, known.values()),
            found=name,
            alternatives=lambda: list(dict.fromkeys(known.values())),
        )
    if len(found) > 1:
        raise ScheduleError(
            "{0} loops are called {1!r}: {2}",
            len(found),
            name,
            lambda: ", ".join(called(fn, s.var) for s in found),
            hint="get_loop(name, block=...) is the one around a block",
            found=name,
        )
    return fn, found[0]


def last_loop(path: Sequence[Stmt]) -> For:
    """The loop at the end of the path to one."""
    loop = path[-1]
    assert isinstance(loop, For)
    return loop


def last_block(path: Sequence[Stmt]) -> Block:
    """The block at the end of the path to one."""
    block = path[-1]
    assert isinstance(block, Block)
    return block


def perfect_nest(stmt: Stmt) -> tuple[list[For], Stmt]:
    """The loops from `stmt` on that contain nothing but each other, and what is in the last."""
    loops: list[For] = []
    while type(stmt) is For:
        loops.append(stmt)
        stmt = stmt.body
    return loops, stmt


def find_loop(fn: Func, loop: Var) -> For:
    """The loop over `loop`. Raises `ScheduleError` if there is none."""
    return last_loop(path_to(fn, loop))


def find_block(fn: Func, label: Label) -> Block:
    """The block with `label`. Raises `ScheduleError` if there is none."""
    return last_block(path_to(fn, label))


def loops_above(fn: Func, label: Label | Var) -> tuple[For, ...]:
    """The loops around a block or loop, outermost first, without the loop itself."""
    return tuple(s for s in path_to(fn, label)[:-1] if isinstance(s, For))


def blocks_in(stmt: Stmt) -> Iterator[Block]:
    """The blocks in `stmt` in program order."""
    stack = [stmt]
    while stack:
        s = stack.pop()
        while type(s) is For:
            s = s.body
        if type(s) is Block:
            yield s
        else:
            stack.extend(reversed(nested(s)))


def nests_in(stmt: Stmt) -> Iterator[tuple[Block, tuple[For, ...]]]:
    """The blocks in `stmt` in program order, each with the loops around it, outermost first."""
    stack: list[tuple[Stmt, tuple[For, ...]]] = [(stmt, ())]
    while stack:
        s, loops = stack.pop()
        while type(s) is For:
            loops = (*loops, s)
            s = s.body
        if type(s) is Block:
            yield s, loops
        else:
            stack.extend((below, loops) for below in reversed(nested(s)))


def loops_in(stmt: Stmt) -> Iterator[For]:
    """The loops in `stmt`, itself included, outer before inner, in program order."""
    stack = [stmt]
    while stack:
        s = stack.pop()
        if type(s) is For:
            yield s
        stack.extend(reversed(nested(s)))


def statements(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements that run one after the other in `stmt`: itself if it is no sequence."""
    return stmt.stmts if type(stmt) is Seq else (stmt,)


def with_children(stmt: Stmt, children: tuple[Stmt, ...]) -> Stmt:
    """`stmt` with other statements directly below it, in the order of `nested`."""
    match stmt:
        case For():
            return with_body(stmt, children[0])
        case Seq():
            return seq(*children)
        case If():
            return If(stmt.cond, children[0], children[1] if len(children) > 1 else None)
        case Let():
            return Let(stmt.var, stmt.value, children[0])
        case Alloc():
            return Alloc(stmt.buffer, children[0])
        case _:
            raise TypeError(f"a {type(stmt).__name__} has no place in a schedule")


def rebuild(fn: Func, path: tuple[Stmt, ...], new: Stmt) -> Func:
    """`fn` with the last statement of `path` (from `path_to`) replaced by `new`."""
    child = path[-1]
    for parent in reversed(path[:-1]):
        if type(parent) is For:
            new = with_body(parent, new)
        else:
            below = tuple([new if s is child else s for s in nested(parent)])
            new = with_children(parent, below)
        child = parent
    return with_func_body(fn, new)


def map_blocks(root: Stmt, f: Callable[[Block], Block]) -> Stmt:
    """`root` with `f` applied to its blocks."""
    if type(root) is Block:
        return f(root)
    below = nested(root)
    changed = map_tuple(below, lambda s: map_blocks(s, f))
    return root if changed is below else with_children(root, changed)


def replace_stmt(root: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """`root` with the statement `old` (by identity) replaced by `new`."""
    if root is old:
        return new
    below = nested(root)
    changed = map_tuple(below, lambda s: replace_stmt(s, old, new))
    return root if changed is below else with_children(root, changed)


def replace(fn: Func, old: Stmt, new: Stmt, *allocs: Buffer) -> Func:
    """`fn` with `old` replaced by `new` (and, where given, buffers added to its `allocs`)."""
    body = replace_stmt(fn.body, old, new)
    fn = with_func_body(fn, body)
    return _replace(fn, allocs=(*fn.allocs, *allocs)) if allocs else fn
