"""How many of the decisions that exported rules propose can be built.

    .venv/bin/python -m tests.lab.exported_rules --rows 200 [--target "cuda -arch=sm_90"]

Rules are made of schedules of the search and of ones written by hand, of six operators, and draw
decisions for the sizes of these schedules and for others. A program is built if it is lowered and,
for a GPU, emitted within the limits of the device.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.rules.user_rules import SKETCH_RULES, noted_refusals
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.drawing import drawn_of_each
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.base.errors import BuildError
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.detect import resolve
from tilewright.codegen.generator import Part, generator_for
from tilewright.codegen.lower import lower
from tilewright.lab.workbench.workbench import Workbench
from tilewright.schedule.find import blocks_in, find_block
from tilewright.tir.ir import Expr, Func, IterKind, Var

from .commands import done

NAME = "exported_rule"


def stencil(n: int, m: int) -> Func:
    x = te.placeholder((n + 2, m + 2), name="X")

    def mean(i: Expr, j: Expr) -> Expr:
        return (x[i, j + 1] + x[i + 1, j] + x[i + 1, j + 1] + x[i + 1, j + 2] + x[i + 2, j + 1]) / 5

    return te.func([x, te.compute((n, m), mean, name="Y")], name="stencil")


def pairs(n: int) -> Func:
    p, m, j = te.placeholder((n, 3), name="P"), te.placeholder((n,), name="M"), te.reduce_axis(n)

    def force(i: Expr, c: Expr) -> Expr:
        x, y, z = (p[j, k] - p[i, k] for k in range(3))
        q = te.rsqrt(x * x + y * y + z * z + 0.01)
        return te.sum(m[j] * (p[j, c] - p[i, c]) * q * q * q, axis=j)

    return te.func([p, m, te.compute((n, 3), force, name="Y")], name="pairs")


def conv2d(c: int, size: int, o: int) -> Func:
    return ops.conv2d_func(1, c, size, size, o)


def batched_matmul(batch: int, n: int, m: int, k: int) -> Func:
    return ops.matmul_func(n, m, k, batch=batch)


OPERATORS: dict[str, tuple[Callable[..., Func], list[tuple[int, ...]]]] = {
    "matmul": (ops.matmul_func, [(256, 256, 256), (512, 384, 96), (100, 60, 40)]),
    "conv2d": (conv2d, [(16, 28, 32), (32, 14, 64), (6, 10, 10)]),
    "stencil": (stencil, [(256, 256), (1000, 64), (30, 50)]),
    "softmax": (ops.softmax_func, [(128, 512), (1000, 256), (30, 60)]),
    "batched_matmul": (batched_matmul, [(4, 64, 64, 64), (2, 128, 96, 32), (3, 30, 20, 10)]),
    "pairs": (pairs, [(256,), (1000,), (37,)]),
}
"""Functions of sizes, and sizes: rules are made for the first ones."""


def by_hand(func: Func, target: tw.Target) -> tw.Schedule:
    """Each block of a program in tiles, as people begin."""
    sch = tw.Schedule(func)
    for position in range(len(list(blocks_in(func.body)))):
        block = sch.get_block(position)
        iters = find_block(sch.func, block).iters
        loops = list(zip(sch.get_loops(block), iters, strict=True))
        spatial = [v for v, i in loops if i.kind is IterKind.SPATIAL]
        reduced = [v for v, i in loops if i.kind is not IterKind.SPATIAL]
        tile = _on_gpu if target.kind == "cuda" else _on_cpu
        tile(sch, spatial, reduced)
    return sch


def _on_gpu(sch: tw.Schedule, spatial: list[Var], reduced: list[Var]) -> None:
    *outer, last = spatial
    blocks, threads = zip(*_split(sch, [*outer[-1:], last], [8, 16]), strict=True)
    sch.reorder(*outer[:-1], *blocks, *threads, *reduced)
    for unit, loops in (("blockIdx", blocks), ("threadIdx", threads)):
        for loop, axis in zip(reversed(loops), "xy", strict=False):
            sch.bind(loop, f"{unit}.{axis}")


def _on_cpu(sch: tw.Schedule, spatial: list[Var], reduced: list[Var]) -> None:
    *outer, last = spatial
    tiles, inner = zip(*_split(sch, [*outer[-1:], last], [4, 16]), strict=True)
    parts = _split(sch, reduced[-1:], [4])
    steps = [step for _, step in parts]
    sch.reorder(*outer[:-1], *tiles, *reduced[:-1], *(p for p, _ in parts), *steps, *inner)
    for loop in (*steps, *inner[:-1]):
        sch.unroll(loop)
    sch.parallel((*outer[:-1], *tiles)[0])
    sch.vectorize(inner[-1])


def _split(sch: tw.Schedule, loops: list[Var], sizes: list[int]) -> list[tuple[Var, ...]]:
    """Loops in tiles; the last ones of the sizes are for them."""
    own = sizes[len(sizes) - len(loops) :]
    return [sch.split(v, factors=[None, n]) for v, n in zip(loops, own, strict=True)]


@cache
def program_of(name: str, number: int = 0) -> Func:
    """One of the operators, of one of its sizes."""
    make, sizes = OPERATORS[name]
    return make(*sizes[number])


@cache
def of_search(func: Func, target: tw.Target) -> tuple[Sketch, ...]:
    """The sketches of the search, where the user has no rules."""
    assert not SKETCH_RULES
    return sketches(func, target)


def by_search(func: Func, target: tw.Target) -> Iterator[tuple[Sketch, tw.Schedule]]:
    """A schedule of each of the first sketches of the search."""
    for sketch in of_search(func, target)[:2]:
        for drawn in drawn_of_each([sketch], target, 1, seed=2):
            if drawn.trace.decisions:
                yield sketch, drawn.trace.apply(func)


@contextmanager
def exported(schedule: tw.Schedule, target: tw.Target) -> Iterator[None]:
    """The rule that the lab makes of a schedule is registered."""
    text = done(Workbench(schedule, target), do="rule", name=NAME)["text"]
    exec(compile(text, f"{NAME}.py", "exec"), {"__name__": NAME})
    try:
        yield
    finally:
        del SKETCH_RULES[NAME]


def exported_sketch(func: Func, target: tw.Target) -> Sketch | str:
    """The sketch that the exported rule makes of a program, or why it makes none."""
    with noted_refusals() as refusals:
        try:
            (own,) = sketches(func, target, [f"{NAME}.{NAME}"])
        except tw.ScheduleError:
            return refusals[NAME]
    return own


def lowered(func: Func, target: tw.Target) -> None:
    """Build a program, but for the compiler. Raises `BuildError`."""
    part = Part(lower(func, target), signature_of(func))
    if target.kind == "cuda":
        generator_for(target).emit([part], target, strict_fp=False)


def refusals_of(
    sketch: Sketch, func: Func, rows: list[list[int]], target: tw.Target
) -> Counter[str]:
    """Why rows of a sketch are not built; those that are built are left out."""
    why: Counter[str] = Counter()
    for row in rows:
        try:
            lowered(sketch.trace.with_row(row).apply(func).func, target)
        except (BuildError, tw.ScheduleError) as error:
            why[str(error).partition("\n")[0]] += 1
    return why


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--target", default="cpu -mcpu=znver4 -threads=2")
    parser.add_argument("--only", nargs="*", default=list(OPERATORS))
    options = parser.parse_args()
    target = resolve(options.target)
    for name in options.only:
        func = program_of(name)
        schedules = [("by hand", by_hand(func, target))]
        schedules += [(s.name, schedule) for s, schedule in by_search(func, target)]
        for origin, schedule in schedules:
            with exported(schedule, target):
                for number, size in enumerate(OPERATORS[name][1]):
                    other = program_of(name, number)
                    sketch = exported_sketch(other, target)
                    print(f"{name} {size}, {origin}: ", end="", flush=True)
                    if isinstance(sketch, str):
                        print(f"refused: {sketch}")
                        continue
                    rng = np.random.default_rng(3)
                    rows = Rowspace(sketch).sample(rng, options.rows).tolist()
                    why = refusals_of(sketch, other, rows, target)
                    print(f"{len(rows) - why.total()} of {len(rows)} are built", dict(why) or "")


if __name__ == "__main__":
    main()
