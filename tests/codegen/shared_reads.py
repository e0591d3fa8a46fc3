"""Random programs that read an element which lanes share under a comparison of loop variables.

`python -m tests.codegen.shared_reads 0 8` compiles and runs the programs of those seeds on arrays
beside pages that cannot be read, in a process of its own: a read that the guard forbids ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.autotune.search.unmeasured import default_trace
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, Expr, Func
from tilewright.tir.verify import verify

from ..guard_pages import guarded
from .guarded import runs_here

TARGETS = (
    "cpu -mcpu=x86-64 -threads=1",
    "cpu -mcpu=x86-64-v3 -threads=1",
    "cpu -mcpu=skylake-avx512 -threads=1",
)
EXTENTS = (9, 16, 21, 37)
PER_PROGRAM = 4


def drawn(seed: int) -> Func:
    """Outputs of two dimensions, each with an element of `A` where its guard holds, else of `B`."""
    rng = np.random.default_rng(seed)

    def pick(items: Any) -> Any:
        return items[int(rng.integers(len(items)))]

    n, m = pick(EXTENTS), pick(EXTENTS)
    c = int(rng.integers(1, 4))
    a, b = te.placeholder((n,), name="A"), te.placeholder((m,), name="B")
    below: tuple[Callable[[Expr, Expr], Expr], ...] = (
        lambda i, j: j < i,
        lambda i, j: i > j,
        lambda i, j: j * 2 < i,
        lambda i, j: (j < i) & (j >= i - 3),
        lambda i, j: ~(j >= i),
        lambda i, j: (j < i) & (j < m - 1),
    )
    forms: dict[str, tuple[tuple[Any, ...], Callable[[Expr], Expr]]] = {
        "before": (tuple(_late(g, c) for g in below), lambda i: a[i - c]),
        "mirrored": (below, lambda i: a[n - i]),
        "after": (
            (
                lambda i, j: (j > i + c) & (j < n),
                lambda i, j: (i + c < j) & (n > j),
                lambda i, j: i + j + c < n,
            ),
            lambda i: a[i + c],
        ),
    }
    outputs = []
    for k in range(PER_PROGRAM):
        guards, element = forms[pick(tuple(forms))]
        guard, factor = pick(guards), pick((1.0, 2.0))

        def value(
            i: Expr, j: Expr, guard: Any = guard, read: Any = element, f: Any = factor
        ) -> Any:
            return te.select(guard(i, j), read(i) * f, b[j])

        outputs.append(te.compute((n, m), value, name=f"C{k}"))
    return te.func([a, b, *outputs], name="shared_reads")


def _late(guard: Any, c: int) -> Any:
    """`guard`, and only from the iteration `c` on."""
    return lambda i, j: guard(i - (c - 1), j)


def schedules(func: Func) -> Iterator[tuple[Func, str]]:
    """`func` in vectors of a loop, of a part of it, and by default; with targets."""
    for target in filter(runs_here, TARGETS):
        for width in (None, 8):
            sch = Schedule(func)
            for k in range(PER_PROGRAM):
                _, inner = sch.get_loops(sch.get_block(f"C{k}"))
                if width is not None:
                    _, inner = sch.split(inner, [None, width], perfect=False)
                sch.vectorize(inner)
            yield sch.func, target
        yield default_trace(func, resolve(target)).apply(func).func, target


def check(seed: int) -> int:
    """Require that compiled code reads nothing beside `A` and agrees. Returns the runs made."""
    func = drawn(seed)
    verify(func)
    rng = np.random.default_rng(seed)
    arrays = [p for p in func.params if isinstance(p, Buffer)]
    shapes = [tuple(n for n in p.shape if isinstance(n, int)) for p in arrays]
    a, b = (rng.random(shape).astype(np.float32) for shape in shapes[:2])
    empty = [np.zeros(shape, np.float32) for shape in shapes[2:]]
    expected = [e.copy() for e in empty]
    interpret(func, a, b, *expected)
    runs = 0
    for scheduled, target in schedules(func):
        module = to_module(compile_func(scheduled, target))
        for at_end in (False, True):
            found = [e.copy() for e in empty]
            module(guarded(a, at_end=at_end).array, guarded(b, at_end=at_end).array, *found)
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_array_equal(x, y, f"seed {seed}, {target}")
            runs += 1
    return runs


if __name__ == "__main__":
    begin, end = int(sys.argv[1]), int(sys.argv[2])
    print(f"{sum(check(seed) for seed in range(begin, end))} runs")
