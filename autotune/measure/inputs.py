"""The arguments to run a program on while it is tuned, with data of `runtime/measure/inputs.py`."""

from __future__ import annotations

from ...runtime.measure.inputs import Arguments
from ...runtime.memory import Memory
from ...runtime.signature import Signature
from ...tir.ir import Call, Func
from ...tir.visit import walk

_POSITIVE = frozenset({"acosh", "log", "log1p", "sqrt", "rsqrt", "pow"})


def arguments_of(func: Func, signature: Signature, seed: int, memory: Memory) -> Arguments:
    """The arguments of a program, in memory of its kind of target."""
    return Arguments(signature, seed, memory, positive=needs_positive(func))


def needs_positive(func: Func) -> bool:
    """Whether negative inputs may have no result: logarithms, roots, powers."""
    return any(type(n) is Call and n.fn in _POSITIVE for n in walk(func))
