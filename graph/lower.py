"""Groups as programs: each node by its operator's `lower`, the constants as operands.

Groups of equal programs share one, which is one kernel, and names of the program end with a digest
of it. Operands are numbered, so that equal groups give equal programs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ..base.errors import UnsupportedError
from ..tir import te
from ..tir.equality import structural_hash
from ..tir.ir import Func
from ..tir.printer import func_text
from ..tir.te import Tensor
from .groups import Group, divide
from .ir import Constant, Graph, Value
from .joined import joined
from .loops import kernel_groups
from .operator import find, placeholder

_MAX_NAME = 48


def lowered_all(groups: Iterable[Group]) -> list[Func]:
    """The program of each group; groups whose programs are structurally equal share one."""
    known: dict[str, Func] = {}
    programs: dict[str, Func] = {}
    funcs = list[Func]()
    for group in groups:
        form = _form(group)
        if form not in known:
            func = lowered(group)
            known[form] = programs.setdefault(structural_hash(func), func)
        funcs.append(known[form])
    return funcs


def lowered(group: Group) -> Func:
    """The program of a group: its inputs, then its outputs, are the parameters.

    Constants of one element are written into the program. Raises `UnsupportedError` for an operator
    without a lowering.
    """
    func = _programmed(group) or _formulas(group)
    digest = hashlib.sha256(func_text(func).encode()).hexdigest()[:10]
    return replace(func, name=f"{group.name[:_MAX_NAME]}_{digest}")


def _form(group: Group) -> str:
    """A text that is equal for groups of equal nodes, which need not be lowered again."""
    names: dict[Value, str] = {}
    for n, value in enumerate(group.inputs):
        kind = "constant" if isinstance(value, Constant) else "data"
        names[value] = f"{n} {kind} {value.type}"
    lines = [*names.values()]
    for count, node in enumerate(group.nodes):
        for v in node.inputs:
            if v not in names and isinstance(v, Constant):
                names[v] = f"{v.type} {v.data.tobytes()!r}"
        operands = [names[v] for v in node.inputs]
        lines.append(f"{node.operator} {operands} {node.attributes!r}")
        names.update((v, f"{count}.{place}") for place, v in enumerate(node.outputs))
    return "\n".join([*lines, *(names[v] for v in group.outputs)])


def _programmed(group: Group) -> Func | None:
    """The program of a node that is one by itself."""
    (node, *others) = group.nodes
    record = find(node.operator)
    if record.program is None or others:
        return None
    given, made = ([value.type for value in values] for values in (node.inputs, node.outputs))
    return replace(record.programmed(given, node.attributes, made), name="group")


def kernels_of(graph: Graph) -> dict[Func, int]:
    """The programs of the kernels of a graph, each once, and how often a call runs it."""
    groups = dict(kernel_groups(divide(graph)))
    found = Counter[Func]()
    for func, runs in zip(lowered_all(groups), groups.values(), strict=True):
        found[func] += runs
    return found


def _written(value: Constant) -> Tensor:
    """A constant of one element, as part of the program."""
    number = te.const(value.data.reshape(-1)[0].item(), value.dtype)
    return te.compute(value.shape, lambda *_: number, name="number")


def _formulas(group: Group) -> Func:
    tensors: dict[Value, Tensor] = {}
    parameters = list[Tensor]()
    for n, value in enumerate(group.inputs):
        constant = isinstance(value, Constant)
        tensors[value] = placeholder(
            value.type, f"{'w' if constant else 'x'}{n}", constant=constant
        )
        parameters.append(tensors[value])
    for node in group.nodes:
        record = find(node.operator)
        for value in node.inputs:
            if value not in tensors and isinstance(value, Constant):
                tensors[value] = _written(value)
        if record.lower is None:
            raise UnsupportedError("{0} has no kernel", node.operator, reasons=[node.operator])
        types = [value.type for value in node.outputs]
        results = record.lowered([tensors[v] for v in node.inputs], node.attributes, types)
        tensors.update(zip(node.outputs, results, strict=True))
    parameters += [tensors[v] for v in group.outputs]
    return joined(te.func(parameters, name="group"))
