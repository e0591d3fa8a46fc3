"""How much results may differ, as `runtime/measure/comparison.py` measures errors.

The arguments to run a program on while it is tuned, with data of `runtime/inputs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...base import dtypes
from ...base.errors import TilewrightError
from ...runtime.inputs import Arguments
from ...runtime.measure.comparison import (
    ROUNDING_FACTOR,
    Deviation,
    Exact,
    check_outputs,
    deviation,
    largest_error,
    typical_size,
)
from ...runtime.memory import Memory
from ...runtime.signature import Signature
from ...tir.bounds import variables
from ...tir.ir import Block, Buffer, Call, Dim, For, Func, IterKind, Load, Stmt, Store, Var
from ...tir.structure import same
from ...tir.visit import nested, reads_from, stored_buffers, walk

__all__ = [
    "ROUNDING_FACTOR",
    "Deviation",
    "Exact",
    "check_outputs",
    "deviation",
    "largest_error",
    "require_tolerance",
    "tolerance_of",
    "typical_size",
]


def tolerance_of(func: Func) -> float:
    """The largest error that rounding explains in an unscheduled program."""
    rounded, accumulated, length = 0.0, 0.0, 0
    for epsilon, terms in _roundings(func.body, ()):
        rounded = max(rounded, epsilon)
        if terms > 1:
            accumulated = max(accumulated, epsilon)
            length += terms
    return 8 * rounded + accumulated * (16 + 4 * math.sqrt(length))


def _roundings(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[tuple[float, int]]:
    """For each block, and each store in none: the rounding of its dtypes, and the terms it adds."""
    if type(stmt) is Block:
        written = stored_buffers(stmt)
        extents = [i.extent for i in stmt.iters if i.kind is not IterKind.SPATIAL]
        adds = reads_from(stmt.body, stored_buffers(stmt.body))
        yield max(map(_epsilon, written), default=0.0), _product(extents) if adds else 1
    elif type(stmt) is Store:
        yield _epsilon(stmt.buffer), _terms(stmt, loops)
    else:
        inside = (*loops, stmt) if type(stmt) is For else loops
        for below in nested(stmt):
            yield from _roundings(below, inside)


def _terms(store: Store, loops: Sequence[For]) -> int:
    """How many values a store in no block adds up: those of loops that it reads its results across.

    Its results are what the innermost loop stores.
    """
    carried = stored_buffers(loops[-1].body) if loops else {store.buffer}
    earlier = [n for n in walk(store.value) if type(n) is Load and n.buffer in carried]
    if not earlier:
        return 1
    kept: set[Var] = set()
    for n, index in enumerate(store.indices):
        if all(n < len(load.indices) and same(load.indices[n], index) for load in earlier):
            kept |= variables(index)
    return _product([loop.extent for loop in loops if loop.var not in kept])


def _product(extents: Sequence[Dim]) -> int:
    return math.prod(n for n in extents if isinstance(n, int))


def require_tolerance(tolerance: float | None, error: type[TilewrightError]) -> None:
    """Raise `error` unless `tolerance` is `None` or more than 0 and at most 1."""
    number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
    if tolerance is not None and not (number and 0 < tolerance <= 1):
        raise error(
            "tolerance={0!r}: expected an error of more than 0 and at most 1, relative to the "
            "typical size of the results",
            tolerance,
        )


def _epsilon(buffer: Buffer) -> float:
    facts = dtypes.info(buffer.dtype)
    return 2.0**-facts.mantissa if facts.kind == "float" else 0.0


_POSITIVE = frozenset({"acosh", "log", "log1p", "sqrt", "rsqrt", "pow"})


def arguments_of(func: Func, signature: Signature, seed: int, memory: Memory) -> Arguments:
    """The arguments of a program, in memory of its kind of target."""
    return Arguments(signature, seed, memory, positive=needs_positive(func))


def needs_positive(func: Func) -> bool:
    """Whether negative inputs may have no result: logarithms, roots, powers."""
    return any(type(n) is Call and n.fn in _POSITIVE for n in walk(func))
