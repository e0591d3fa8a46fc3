"""Groups as programs: each node by its operator's `lower`, the constants as operands.

Equal groups give equal programs, so that one kernel serves them: operands are numbered, and the
name ends with a digest of the program.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from ..base.errors import UnsupportedError
from ..tir import te
from ..tir.ir import Func
from ..tir.printer import func_text
from ..tir.te import Tensor
from .groups import Group
from .ir import Constant, Value
from .operator import find, placeholder

_MAX_NAME = 48


def lowered(group: Group) -> Func:
    """The program of a group: its inputs, then its outputs, are the parameters.

    Small constants are written into the program. Raises `UnsupportedError` for an operator without
    a lowering.
    """
    func = _programmed(group) or _formulas(group)
    digest = hashlib.sha256(func_text(func).encode()).hexdigest()[:10]
    return replace(func, name=f"{group.name[:_MAX_NAME]}_{digest}")


def _programmed(group: Group) -> Func | None:
    """The program of a node that is one by itself."""
    (node, *others) = group.nodes
    program = find(node.operator).program
    if program is None or others:
        return None
    func = program(*(v.type for v in node.inputs), **node.attributes)
    return replace(func, name="group")


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
        if record.lower is None:
            raise UnsupportedError("{0} has no kernel", node.operator, reasons=[node.operator])
        made = record.lower(*(tensors[v] for v in node.inputs), **node.attributes)
        results = (made,) if isinstance(made, Tensor) else tuple(made)
        tensors.update(zip(node.outputs, results, strict=True))
    parameters += [tensors[v] for v in group.outputs]
    return te.func(parameters, name="group")
