"""What is given in place of a program, for errors: what it is, and how a program is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType

from .ir import Expr
from .program import stages_of
from .tensor import Tensor


def shown(found: object) -> str:
    """What is given, in few words."""
    match found:
        case Tensor():
            return f"the tensor {found.name}"
        case Expr():
            return f"the expression {found!r}"
        case list() | tuple() if found and all(isinstance(t, Tensor) for t in found):
            return f"a {type(found).__name__} of tensors"
        case _:
            return repr(type(found).__name__)


def program_hint(found: object, call: str) -> str:
    """How a program is made of it, in a `call` such as `tw.build`."""
    several = isinstance(found, (list, tuple))
    parts: Sequence[object] = found if isinstance(found, (list, tuple)) else (found,)
    tensors = [t for t in parts if isinstance(t, Tensor)]
    if tensors and len(tensors) == len(parts):
        names = [t.name for t in tensors] if several else _arguments(tensors[0])
        return f"a program has arguments: {call}(te.func([{', '.join(names)}]))"
    if isinstance(found, Expr):
        return (
            f"te.compute makes a tensor of it: {call}(te.func([X, te.compute(shape, lambda ..)]))"
        )
    name = found.__name__ if isinstance(found, FunctionType) else "matmul"
    name = name if name.isidentifier() else "matmul"
    return f"call the function that makes the program: {call}({name}(), ...)"


def _arguments(tensor: Tensor) -> list[str]:
    """The names of the inputs and scalars that a tensor is computed from, and its own."""
    stages = [] if tensor.stage is None else stages_of([tensor.stage])
    scalars = [v.name for stage in stages for v in stage.scalars]
    inputs = [t.name for stage in stages for t in stage.inputs if t.stage is None]
    return list(dict.fromkeys([*scalars, *inputs, tensor.name]))
