"""A program as a tree of loops and blocks with ids, and as lines, as JSON data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ...schedule.block_queries import feeding
from ...schedule.find import blocks_in, loops_in, statements
from ...target import Target
from ...tir.ir import Block, For, Func, IterKind, Label, Stmt, Var
from ...tir.printer import loop_names, stmt_text
from ...tir.visit import nested
from ..pictures.listing import Held, Row, badge, rows

Data: TypeAlias = dict[str, Any]


class Handles:
    """Ids for loops (`L3`) and blocks (`B1`). One keeps its id in all programs that it is in."""

    def __init__(self) -> None:
        self._ids: dict[Var | Label, str] = {}
        self._handles: dict[str, Var | Label] = {}

    def learn(self, func: Func) -> None:
        """Give the loops and blocks of a program their ids, in program order."""
        loops = [s.var for s in loops_in(func.body)]
        handles: list[Var | Label] = [*loops, *(b.label for b in blocks_in(func.body))]
        for handle in handles:
            if handle not in self._ids:
                id = f"{'B' if isinstance(handle, Label) else 'L'}{len(self._ids)}"
                self._ids[handle] = id
                self._handles[id] = handle

    def id(self, handle: Var | Label) -> str | None:
        """The id of a loop or block; `None` if it is of no program that was learnt."""
        return self._ids.get(handle)

    def get(self, id: object) -> Var | Label | None:
        """The loop or block with an id; `None` if there is none."""
        return self._handles.get(id) if isinstance(id, str) else None


class ProgramTree:
    """The `nodes` of a program, each before those inside it, and its `lines`; see `workbench`."""

    def __init__(self, func: Func, target: Target, handles: Handles) -> None:
        listed = rows(func, target)
        self._handles = handles
        self._names = loop_names(func)
        self._rows: dict[Stmt, tuple[int, Row]] = {}
        for number, row in enumerate(listed):
            for stmt in (row.line.loop, row.line.block):
                if stmt is not None:
                    self._rows[stmt] = number, row
        self.lines: list[Data] = [
            {"text": row.line.text, "place": self._place(row)} for row in listed
        ]
        self.nodes: list[Data] = list(self._nodes(func.body, 0))

    def _place(self, row: Row) -> str | None:
        """The id of what a line begins."""
        stmt = row.line.loop or row.line.block
        return None if stmt is None else self._handles.id(_handle(stmt))

    def _nodes(self, stmt: Stmt, depth: int) -> Iterator[Data]:
        for s in statements(stmt):
            number, row = self._rows.get(s, (None, None))
            node: Data = {"depth": depth, "line": number}
            if isinstance(s, For):
                yield {**node, **self._loop(s, row)}
            elif isinstance(s, Block):
                yield {**node, **self._block(s)}
            else:
                yield {**node, "kind": "code", "text": _first_line(s)}
            for below in nested(s):
                yield from self._nodes(below, depth + 1)

    def _loop(self, s: For, row: Row | None) -> Data:
        reduces = any(s.var in feeding(b, IterKind.REDUCE) for b in blocks_in(s))
        found = badge(s)
        return {
            "kind": "loop",
            "id": self._handles.id(s.var),
            "name": self._names.get(s.var, s.var.name),
            "extent": _dim(s.extent),
            "loop": s.kind.value,
            "badges": [
                *([] if found is None else [found]),
                *(["reduction"] if reduces else []),
                *(str(key) for key, _ in s.annotations),
            ],
            "reduces": reduces,
            "held": [] if row is None else [held_data(held) for held in row.held],
        }

    def _block(self, s: Block) -> Data:
        return {
            "kind": "block",
            "id": self._handles.id(s.label),
            "name": s.label.name,
            "iters": [
                {"name": i.var.name, "extent": _dim(i.extent), "kind": i.kind.value}
                for i in s.iters
            ],
            "text": _first_line(s.body),
            "reads": list(dict.fromkeys(r.buffer.name for r in s.reads)),
            "writes": list(dict.fromkeys(r.buffer.name for r in s.writes)),
            "badges": [
                *(["initial value"] if s.init is not None else []),
                *(["predicate"] if s.predicate is not None else []),
            ],
        }


def held_data(held: Held) -> Data:
    """What an iteration of a loop touches, as data."""
    return {
        "memory": held.memory,
        "bytes": held.bytes,
        "buffers": [{"name": name, "bytes": count} for name, count in held.buffers],
    }


def _first_line(stmt: Stmt) -> str:
    return stmt_text(stmt).partition("\n")[0]


def _handle(stmt: For | Block) -> Var | Label:
    return stmt.var if isinstance(stmt, For) else stmt.label


def _dim(extent: object) -> int | str:
    return extent if isinstance(extent, int) else repr(extent)
