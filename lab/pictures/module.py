"""The picture of a compiled kernel: where its schedule is from, what it takes, its assembly."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import htpy as h

from ...base.errors import ParseError
from ...base.text import format_bytes
from ...codegen.build import compiled_code
from ...codegen.generator import generator_for
from ...runtime import Module
from ...tir.parser import parse
from .assembly import assembly, assembly_with_loops
from .assembly_lines import Assembly
from .facts import facts
from .page import text
from .tables import Column, table

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
        if compiled is None or compiled.scheduled is None:
            return assembly(module.source(kind), name)
        try:
            func = parse(compiled.scheduled)
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
