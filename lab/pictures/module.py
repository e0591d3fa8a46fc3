"""The picture of a compiled kernel: where its schedule is from, what it takes, its assembly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import htpy as h

from ...base.errors import ParseError
from ...base.text import format_bytes
from ...codegen.build import compiled_code
from ...codegen.generator import generator_for
from ...codegen.hot_block import hot_block
from ...runtime import Module
from .assembly_lines import UNKNOWN_LOOPS, Assembly, where
from .page import LINE, text
from .tables import Column, facts, table

_ASSEMBLIES = WeakKeyDictionary[Module, Assembly]()


def view(module: Module) -> h.Node:
    """The picture of a compiled kernel."""
    kind = generator_for(module.target).assembly
    name = module.signature.name
    return h.div(".tw-module")[
        facts(
            {
                "Kernel": h.code[text(name)],
                "Target": text(module.target),
                "Schedule": _origin(module),
                "Workspace": format_bytes(module.workspace_bytes) if module.workspace_bytes else "",
                "Sources": ", ".join(module.sources) or "none: it was loaded from an artifact",
            }
        ),
        _arguments(module),
        _resources(module.resources),
        _assembly(module, kind, f"the assembly of {name}") if kind in module.sources else None,
    ]


def _assembly(module: Module, kind: str, name: str) -> h.Node:
    """The assembly, with its loops where this process built the module. It is made once."""
    if module not in _ASSEMBLIES:
        compiled = compiled_code(module)
        if compiled is None or len(compiled.scheduled) != 1:
            return assembly(module.source(kind), name)
        try:
            (func,) = compiled.programs
        except ParseError as error:  # a program that is nested deeply compiles, and is not read
            plain = assembly(module.source(kind), name)
            return [plain, h.p(".soft")[text(f"No loops are beside it: {error.first_line}.")]]
        _ASSEMBLIES[module] = Assembly.of(compiled, func)
    return assembly_with_loops(_ASSEMBLIES[module], name)


def _origin(module: Module) -> str:
    """Where the schedule comes from, with a short id."""
    origin = module.origin
    loss = "" if origin.loss is None else f" (expected to lose {origin.loss:.0%} of the speed)"
    return text(f"{origin}{loss}")


def _arguments(module: Module) -> h.Node:
    """The parameters in the order of a call."""
    rows = [
        [h.code[text(a.name)], text(a.type_text), a.role, text(module.layouts.get(a.name, ""))]
        for a in module.signature.arguments
    ]
    if not rows:
        return None
    packed = any(row[-1] for row in rows)
    columns = [Column("argument"), Column("type"), Column("role"), Column("packed as")]
    shown = len(columns) if packed else len(columns) - 1
    return table("Arguments of a call", columns[:shown], [row[:shown] for row in rows])


def _resources(resources: Mapping[str, Mapping[str, int | float]]) -> h.Node:
    """What the kernels of GPUs take; a column for each thing that is known of one of them."""
    names = list(dict.fromkeys(name for kernel in resources.values() for name in kernel))
    if not names:
        return None
    rows: list[list[h.Node]] = [
        [h.code[text(symbol)], *(_amount(name, kernel.get(name)) for name in names)]
        for symbol, kernel in resources.items()
    ]
    columns = [Column("kernel"), *(Column(_title(name), number=True) for name in names)]
    return table("What each kernel takes", columns, rows)


def _title(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _amount(name: str, value: int | float | None) -> str:
    if value is None:
        return ""
    if name.endswith("_bytes"):
        return format_bytes(int(value))
    return f"{value:.0%}" if name == "occupancy" else f"{value:g}"


# Assembly with its hot block marked: all of a short text, of a long one what is around that.

MOST_LINES = 100
"""Lines of a text that are shown."""
_NAME = 12
"""Characters of the name of a loop beside a line."""


def window(count: int, hot: range | None) -> range:
    """The lines that are shown of so many: those with the hot block in the middle."""
    middle = 0 if hot is None else (hot.start + min(hot.stop, hot.start + MOST_LINES)) // 2
    first = max(0, min(middle - MOST_LINES // 2, count - MOST_LINES))
    return range(first, min(count, first + MOST_LINES))


def assembly(source: str, name: str) -> h.Node:
    """An assembly text, folded, with its lines numbered; `name` says what it is of."""
    return _folded(source.rstrip().split("\n"), hot_block(source), (), name)


def assembly_with_loops(found: Assembly, name: str) -> h.Node:
    """The same with the loop of the program that runs each line beside it."""
    if found.loops is None:
        return [_folded(found.lines, found.hot, (), name), h.p(".soft")[UNKNOWN_LOOPS]]
    return _folded(found.lines, found.hot, [text(n, _NAME) for n in found.names], name)


def _folded(lines: Sequence[str], hot: range | None, loops: Sequence[str], name: str) -> h.Element:
    beside = ", the loop that runs each beside it" if loops else ""
    return h.details[
        h.summary[f"Assembly: {len(lines)} lines, {where(hot)}{beside}"],
        h.pre(".tw-code.tw-asm", tabindex="0", role="group", aria_label=text(name))[
            h.code[_lines(lines, hot, loops)]
        ],
    ]


def _lines(lines: Sequence[str], hot: range | None, loops: Sequence[str]) -> Iterator[h.Node]:
    shown = window(len(lines), hot)
    room = max((len(loops[n]) for n in shown), default=0) if loops else 0
    if shown.start:
        yield h.span(".l.soft")[f"… {shown.start} lines"]
    for n in shown:
        is_hot = hot is not None and n in hot
        yield h.span(".l.here" if is_hot else ".l")[
            _columns(n, lines[n], is_hot, f"{loops[n]:{room}}  " if room else "")
        ]
        yield "\n"
    if shown.stop < len(lines):
        yield h.span(".l.soft")[f"… {len(lines) - shown.stop} lines"]


def _columns(number: int, line: str, is_hot: bool, loop: str) -> h.Node:
    """The number of a line, a mark of the hot block that is no colour, its loop, and the line."""
    shown = text(line.expandtabs(8), LINE)
    return [h.i[f"{number + 1:5} {'>' if is_hot else ' '} {loop}"], shown]
