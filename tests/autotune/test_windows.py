"""Windows that are clamped, reflected or wrapped at borders are read from copies, in vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.autotune.rules.access_patterns import inputs_of, reduced
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.unmeasured import default_trace, model_trace
from tilewright.codegen.detect import resolve
from tilewright.schedule.block_queries import free_vars, has_reduction
from tilewright.schedule.find import blocks_in, find_path
from tilewright.target import CpuTarget, Target
from tilewright.tir import te
from tilewright.tir.ir import Block, Expr, For, ForKind, Func
from tilewright.tir.piecewise import is_piecewise

from ..codegen.borders import BORDERS
from ..codegen.machinery import assert_close
from .checking import arguments, expected, planned, run, sketches_named, sketches_of

AVX512 = Target.parse("cpu -mcpu=znver5 -threads=1")
TILED = {"copied:tiled", "copied_inside:tiled"}
Place = Callable[[Expr, int], Expr]
Combine = Callable[[Expr, Sequence[te.Axis]], Expr]


def clamped(e: Expr, n: int) -> Expr:
    return te.maximum(te.minimum(e, n - 1), 0)


def wrapped(e: Expr, n: int) -> Expr:
    return (e + n) % n


def filtered(
    kernel: tuple[int, ...],
    size: tuple[int, ...] = (40, 70),
    *,
    place: Place = clamped,
    stride: int = 1,
    combine: Combine = te.max,
) -> Func:
    """Windows of `kernel` elements around elements of an image, every `stride`-th along rows."""
    x = te.placeholder(size, name="X")
    axes = [te.reduce_axis(n, name=f"r{d}") for d, n in enumerate(kernel)]

    def element(*at: Expr) -> Expr:
        starts = [*at[:-1], at[-1] * stride]
        found = (
            place(e + r - n // 2, m) for e, r, n, m in zip(starts, axes, kernel, size, strict=True)
        )
        return combine(x[tuple(found)], axes)

    y = te.compute((*size[:-1], -(-size[-1] // stride)), element, name="Y")
    return te.func([x, y], name="filtered")


def differences(size: tuple[int, int] = (30, 50), kernel: int = 9) -> Func:
    """Sums of differences from the middle of windows, whose rows are clamped and columns wrap."""
    x = te.placeholder(size, name="X")
    r, q = te.reduce_axis(kernel, name="r"), te.reduce_axis(kernel, name="q")
    n, m = size

    def element(i: Expr, j: Expr) -> Expr:
        near = x[clamped(i + r - kernel // 2, n), wrapped(j + q - kernel // 2, m)]
        return te.sum(te.abs(near - x[i, j]), axis=[r, q])

    return te.func([x, te.compute(size, element, name="Y")], name="differences")


def with_border(kernel: int = 9, n: int = 30, m: int = 50, *, place: Place = clamped) -> Func:
    """Windows of a stage that repeats the border, or does with it what `place` says."""
    x, half = te.placeholder((n, m), name="X"), kernel // 2
    pad = te.compute(
        (n + kernel - 1, m + kernel - 1),
        lambda i, j: x[place(i - half, n), place(j - half, m)],
        name="Pad",
    )
    r, q = te.reduce_axis(kernel, name="r"), te.reduce_axis(kernel, name="q")
    total = te.compute((n, m), lambda i, j: te.sum(pad[i + r, j + q], axis=[r, q]), name="Total")
    y = te.compute((n, m), lambda i, j: total[i, j] / kernel**2, name="Y")
    return te.func([x, y], name="with_border")


PROGRAMS: dict[str, Callable[[], Func]] = {
    "9x9": lambda: filtered((9, 9)),
    "11x11 wrapped": lambda: filtered((11, 11), place=wrapped, combine=te.min),
    "9x9 of every second column": lambda: filtered((9, 9), stride=2, combine=te.sum),
    "3x3x7": lambda: filtered((3, 3, 9), (6, 9, 40)),
    "a row of 81": lambda: filtered((1, 81), (5, 150)),
    "a column of 81": lambda: filtered((81, 1), (150, 21), combine=te.sum),
    "an even number": lambda: filtered((10, 8), (21, 37), combine=te.sum),
    "larger than the image": lambda: filtered((15, 19), (9, 12)),
    "two places": differences,
    "a border": with_border,
    "9x9 reflected by conditions": lambda: filtered((9, 9), place=BORDERS["reflect"]["conditions"]),
    "9x9 reflected by absolute values": lambda: filtered(
        (9, 9), place=BORDERS["reflect"]["absolute values"]
    ),
    "9x9 reflected in triangles": lambda: filtered(
        (9, 9), place=BORDERS["reflect"]["triangles"], combine=te.sum
    ),
    "9x9 symmetric": lambda: filtered((9, 9), place=BORDERS["symmetric"]["conditions"]),
    "9x9 wrapped by conditions": lambda: filtered((9, 9), place=BORDERS["wrap"]["conditions"]),
    "a reflected border": lambda: with_border(place=BORDERS["reflect"]["absolute values"]),
}


def reductions(func: Func) -> list[Block]:
    return [b for b in blocks_in(func.body) if has_reduction(b)]


def is_bent(block: Block) -> bool:
    return any(is_piecewise(r.min) for region in block.reads for r in region.ranges)


@pytest.mark.grid
@pytest.mark.parametrize("choose", [default_trace, model_trace])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_choice_without_trials_reads_copies_in_vectors(
    name: str, choose: Callable[[Func, Target], Any]
) -> None:
    func = PROGRAMS[name]()
    scheduled = choose(func, AVX512).apply(func).func
    found = reductions(scheduled)
    assert found
    for block in found:
        assert not is_bent(block)
        around = [s for s in find_path(scheduled.body, block.label) or () if type(s) is For]
        assert around[-1].kind is ForKind.VECTOR


@pytest.mark.part(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_sketches_compute_the_same(name: str) -> None:
    target, func = resolve("cpu -threads=1"), PROGRAMS[name]()
    wanted, rng = expected(func, 0), np.random.default_rng(0)
    for sketch in sketches_of(func, target):
        for row in Rowspace(sketch).sample(rng, 2):
            found = arguments(func, 0)
            run(sketch.trace.with_row(row.tolist()).apply(func).func, target, found)
            for p, x, y in zip(func.params, wanted, found, strict=True):
                assert_close(x, y, 1e-4, f"{p.name} by {sketch.name}")


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "neoverse-n1"])
def test_other_processors(name: str) -> None:
    target = Target.parse(f"cpu -mcpu={name} -threads=1")
    func = filtered((9, 9))
    assert not any(map(is_bent, reductions(model_trace(func, target).apply(func).func)))


def test_a_border_that_the_program_copies_is_copied_once() -> None:
    func = with_border()
    for sketch in sketches_named(func, AVX512, lambda name: name in TILED):
        buffers = {b.name for b in sketch.func.allocs if b.scope != "register"}
        assert len(buffers) == 1


def test_what_is_no_window_is_not_copied() -> None:
    """A reversed row, and a window that is read as it is."""
    x, k = te.placeholder((64, 40), name="X"), te.reduce_axis(64, name="k")
    reverse = te.compute((40,), lambda j: te.sum(x[63 - k, j], axis=k), name="Y")
    r = te.reduce_axis(9, name="r")
    plain = te.compute((64, 32), lambda i, j: te.max(x[i, j + r], axis=r), name="Z")
    for y in (reverse, plain):
        assert not any("copied" in name for name in planned(te.func([x, y]), AVX512))


def rows_at_once(kernel: tuple[int, int]) -> set[int]:
    """How many rows of a window candidates take at once."""
    target, func = CpuTarget.named("znver5", threads=1), filtered(kernel, (60, 70))
    (sketch,) = sketches_named(func, target, lambda name: name == "copied:tiled")
    found: set[int] = set()
    for row in Rowspace(sketch).sample(np.random.default_rng(0), 60):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        (block,) = (b for b in reductions(scheduled) if "init" not in b.label.name)
        (rows,) = (i.value for i in block.iters if i.var.name == "vr0")
        around = [s for s in find_path(scheduled.body, block.label) or () if type(s) is For]
        taken = [s.extent for s in around if s.kind is ForKind.UNROLL and s.var in free_vars(rows)]
        found.add(math.prod(n for n in taken if isinstance(n, int)))
    return found


def test_rows_of_windows_of_any_width_may_be_taken_at_once() -> None:
    """One or all of a small window; of a large one some, which register tiles have room for."""
    wanted = {(9, 9): {1, 9}, (11, 11): {1, 11}, (15, 15): {3, 5, 15}}
    wanted |= {(19, 19): {19}, (37, 37): {1}}
    assert {kernel: rows_at_once(kernel) for kernel in wanted} == wanted


def test_windows_are_not_cut_into_parts() -> None:
    names = [s.name for s in sketches_of(filtered((9, 9)), AVX512)]
    assert "copied:tiled" in names
    assert "copied:blocked" not in names


def test_what_a_reduction_does_not_move_stays_in_registers() -> None:
    """Rows of the middle elements, of the results and of the windows share the registers."""
    target = CpuTarget.named("znver5", threads=1)
    func = differences((240, 321))
    (sketch,) = sketches_named(func, target, lambda name: name == "copied:tiled")
    vectors, _, rows, *_ = (list(v) for v in sketch.space.values.values())
    assert (max(vectors), max(rows)) == (6, 16)
    sampled = Rowspace(sketch).sample(np.random.default_rng(0), 2_000)
    held = {int(row[0]) * int(row[2]) for row in sampled}
    assert max(held) * 3 <= target.vector_registers - 1


def test_the_copies_are_of_what_is_read() -> None:
    func = filtered((9, 9), (40, 70))
    for sketch in sketches_named(func, AVX512, lambda name: name in TILED):
        (copy,) = (b for b in sketch.func.allocs if b.scope != "register")
        assert copy.shape == (48, 78)
        (block,) = reductions(sketch.func)
        (source,) = (i for i in inputs_of(block) if i.buffer is copy)
        assert source.used > set(reduced(block))
