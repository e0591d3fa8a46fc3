"""What a stage of lowering did to a program or a text, in numbers of what is in it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ...base import dtypes
from ...tir.ir import (
    INDEX,
    Alloc,
    Barrier,
    Binary,
    Block,
    Buffer,
    Call,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Op,
    Prefetch,
    Ramp,
    Select,
    Store,
    WarpShuffle,
    integers,
)
from ...tir.visit import walk

_BENT = frozenset({Op.MIN, Op.MAX, Op.MOD})
_Access = Load | Store
_PARTS: Mapping[str, Callable[[object], bool]] = {
    "block{s}": lambda n: type(n) is Block,
    "loop{s}": lambda n: type(n) is For,
    "loop{s} of extent 1": lambda n: type(n) is For and isinstance(n.extent, int) and n.extent == 1,
    "parallel loop{s}": lambda n: type(n) is For and n.kind is ForKind.PARALLEL,
    "vectorized loop{s}": lambda n: type(n) is For and n.kind is ForKind.VECTOR,
    "unrolled loop{s}": lambda n: type(n) is For and n.kind is ForKind.UNROLL,
    "loop{s} over blocks or threads": lambda n: type(n) is For and n.kind is ForKind.THREAD,
    "loop{s} counted in 32 bits": lambda n: type(n) is For and n.var.dtype != INDEX,
    "branch{es}": lambda n: type(n) is If,
    "store{s}": lambda n: type(n) is Store,
    "load{s}": lambda n: type(n) is Load,
    "vector store{s}": lambda n: type(n) is Store and _is_vector(n),
    "vector load{s}": lambda n: type(n) is Load and _is_vector(n),
    "masked access{es}": lambda n: isinstance(n, _Access) and n.mask is not None,
    "access{es} with several indices": lambda n: isinstance(n, _Access) and len(n.indices) > 1,
    "clamped or wrapped term{s}": lambda n: (
        type(n) is Binary and n.op in _BENT and n.dtype == INDEX
    ),
    "operation{s}": lambda n: isinstance(n, Binary | Call | Select),
    "named value{s}": lambda n: type(n) is Let,
    "prefetch{es}": lambda n: type(n) is Prefetch,
    "barrier{s}": lambda n: type(n) is Barrier,
    "shuffle{s} between threads": lambda n: type(n) is WarpShuffle,
}
"""Parts of programs by their names, in the order in which they are listed."""


def parts_of_program(func: Func) -> Counter[str]:
    """How many of each part a program has, and its internal buffers."""
    found = Counter(dict.fromkeys(_PARTS, 0))
    buffers = [b for b in func.allocs if type(b) is Buffer]
    for n in walk(func):
        found.update(name for name, is_part in _PARTS.items() if is_part(n))
        if type(n) is Alloc:
            buffers.append(n.buffer)
    registers = [b for b in buffers if b.scope == "register"]
    found["buffer{s} in registers"] = len(registers)
    found["internal buffer{s}"] = len(buffers) - len(registers)
    found["byte{s} of internal buffers"] = sum(
        math.prod(integers(b.shape)) * dtypes.nbytes(b.dtype)
        for b in buffers
        if b.scope != "register"
    )
    return found


def parts_of_text(lines: Iterable[str], counts: Mapping[str, str]) -> Counter[str]:
    """How many lines of a text begin as each of the patterns."""
    patterns = {name: re.compile(pattern) for name, pattern in counts.items()}
    found = Counter(dict.fromkeys(counts, 0))
    for line in lines:
        found.update(name for name, pattern in patterns.items() if pattern.match(line))
    return found


def differences(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    """Phrases such as `3 loops of extent 1 removed`, for what there is more or less of."""
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name, 0), after.get(name, 0)
        if old == new:
            continue
        if new == 0:
            yield f"{_counted(old, name)} removed"
        elif old == 0:
            yield f"{_counted(new, name)} added"
        else:
            yield f"from {old:,} to {_counted(new, name)}"


def totals(parts: Mapping[str, int]) -> Iterator[str]:
    """Phrases for what there is."""
    return (_counted(count, name) for name, count in parts.items() if count)


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name.format(s='' if count == 1 else 's', es='' if count == 1 else 'es')}"


def _is_vector(access: Load | Store) -> bool:
    return any(type(index) is Ramp for index in access.indices)
