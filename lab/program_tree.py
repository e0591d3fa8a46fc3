"""A program as a tree of loops and blocks with ids, as JSON data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ..schedule.block_queries import feeding
from ..schedule.find import blocks_in, loops_in, statements
from ..tir.ir import Block, For, ForKind, Func, IterKind, Label, Stmt, Var
from ..tir.printer import loop_names, stmt_text
from ..tir.visit import nested

Data: TypeAlias = dict[str, Any]

_BADGES = {
    ForKind.PARALLEL: "parallel",
    ForKind.VECTOR: "vector",
    ForKind.UNROLL: "unrolled",
}


class Handles:
    """Ids for loops (`L3`) and blocks (`B1`). One keeps its id in all programs that it is in."""

    def __init__(self) -> None:
        self._ids: dict[Var | Label, str] = {}
        self._handles: dict[str, Var | Label] = {}

    def id(self, handle: Var | Label) -> str:
        """The id of a loop or block, a new one if it has none."""
        found = self._ids.get(handle)
        if found is None:
            found = f"{'B' if isinstance(handle, Label) else 'L'}{len(self._ids)}"
            self._ids[handle] = found
            self._handles[found] = handle
        return found

    def learn(self, func: Func) -> None:
        """Give the loops and blocks of a program their ids, in program order."""
        for loop in loops_in(func.body):
            self.id(loop.var)
        for block in blocks_in(func.body):
            self.id(block.label)

    def get(self, id: str) -> Var | Label | None:
        """The loop or block with an id; `None` if there is none."""
        return self._handles.get(id)


def tree(func: Func, handles: Handles) -> list[Data]:
    """The nodes of a program, each before those inside it, with its `depth`.

    A loop has `extent`, `loop` (its kind), `badges` and `reduces` (whether it feeds a reduction).
    A block has `iters`, and the buffers that it `reads` and `writes`. A statement in no block is
    `code` with its `text`, without an id.
    """
    names = loop_names(func)
    return list(_nodes(func.body, 0, names, handles))


def _nodes(stmt: Stmt, depth: int, names: dict[Var, str], handles: Handles) -> Iterator[Data]:
    for s in statements(stmt):
        if type(s) is For:
            yield {"depth": depth, **_loop(s, names.get(s.var, s.var.name), handles.id(s.var))}
        elif type(s) is Block:
            yield {"depth": depth, **_block(s, handles.id(s.label))}
        else:
            yield {"depth": depth, "kind": "code", "text": stmt_text(s).partition("\n")[0]}
        for below in nested(s):
            yield from _nodes(below, depth + 1, names, handles)


def _loop(s: For, name: str, id: str) -> Data:
    reduces = any(s.var in feeding(b, IterKind.REDUCE) for b in blocks_in(s))
    badges = [_BADGES[s.kind]] if s.kind in _BADGES else []
    badges += [s.thread] if s.thread else []
    badges += ["reduction"] if reduces else []
    badges += [str(key) for key, _ in s.annotations]
    return {
        "kind": "loop",
        "id": id,
        "name": name,
        "extent": s.extent if isinstance(s.extent, int) else repr(s.extent),
        "loop": s.kind.value,
        "badges": badges,
        "reduces": reduces,
    }


def _block(s: Block, id: str) -> Data:
    return {
        "kind": "block",
        "id": id,
        "name": s.label.name,
        "iters": [
            {
                "name": i.var.name,
                "extent": i.extent if isinstance(i.extent, int) else repr(i.extent),
                "kind": i.kind.value,
            }
            for i in s.iters
        ],
        "reads": list(dict.fromkeys(r.buffer.name for r in s.reads)),
        "writes": list(dict.fromkeys(r.buffer.name for r in s.writes)),
        "badges": (["initial value"] if s.init is not None else [])
        + (["predicate"] if s.predicate is not None else []),
    }
