"""The cost of each schedule primitive: `python -m benchmarks.primitives`.

The program is a convolution in three stages: pad the image, convolve, add a bias and apply relu. A
step runs with all its checks, on a program in which it is legal, from a schedule with the steps
before it; those are not in the times, which are the least of many repetitions, in processor time.
`verify` is what checking the program afterwards takes. Below are a step that is refused, and the
text of its refusal.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func, Label, Var
from tilewright.tir.verify import verify


@dataclass(frozen=True)
class Line:
    """A step, and what it takes in microseconds."""

    step: str
    microseconds: float
    verify: float | None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.primitives", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="a primitive")
    parser.add_argument("--json", type=Path, default=Path("build/primitives.json"))
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args(arguments)
    unknown = set(options.only or ()) - set(CASES)
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    lines = [measured(name, CASES[name], options.repeats) for name in options.only or CASES]
    if not options.only:
        lines += refusals(options.repeats)
    Console(width=None if sys.stdout.isatty() else 100).print(table(lines))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
    return 0


def table(lines: Sequence[Line]) -> Table:
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("step")
    found.add_column("us", justify="right", no_wrap=True)
    found.add_column("verify, us", justify="right", no_wrap=True)
    for line in lines:
        after = "" if line.verify is None else f"{line.verify:,.0f}"
        found.add_row(line.step, f"{line.microseconds:,.1f}", after)
    return found


def program(size: int = 28, channels: int = 16) -> Func:
    """An image of `channels` in NCHW order, padded by one, under a 3x3 convolution."""
    x = te.placeholder((1, channels, size, size), "float32", name="X")
    w = te.placeholder((32, channels, 3, 3), "float32", name="W")
    b = te.placeholder((32,), "float32", name="b")

    def inside(i: Any) -> Any:
        return (i >= 1) & (i <= size)

    pad = te.compute(
        (1, channels, size + 2, size + 2),
        lambda n, c, i, j: te.select(inside(i) & inside(j), x[n, c, i - 1, j - 1], 0.0),
        name="pad",
    )
    c, r, s = (te.reduce_axis(n, name=name) for n, name in ((channels, "c"), (3, "r"), (3, "s")))
    conv = te.compute(
        (1, 32, size, size),
        lambda n, k, i, j: te.sum(pad[n, c, i + r, j + s] * w[k, c, r, s], axis=(c, r, s)),
        name="conv",
    )
    out = te.compute(
        (1, 32, size, size),
        lambda n, k, i, j: te.maximum(conv[n, k, i, j] + b[k], 0.0),
        name="out",
    )
    return te.func([x, w, b, out], name="conv")


class ConvSchedule:
    """A schedule of the program, with the handles that cases use."""

    def __init__(self) -> None:
        self.sch = Schedule(program())
        self.pad, self.conv, self.out = (self.sch.get_block(n) for n in ("pad", "conv", "out"))

    def loops(self, block: Label) -> tuple[Var, ...]:
        return self.sch.get_loops(block)


Step = Callable[[Schedule], Any]


def measured(name: str, case: Callable[[ConvSchedule], Step], repeats: int) -> Line:
    """The times of one case, and of the verifier after it."""
    scheduled = ConvSchedule()
    step = case(scheduled)
    after = scheduled.sch.copy()
    step(after)
    seconds = least(scheduled.sch.copy, step, repeats)
    verifying = least(lambda: after.func, verify, max(3, repeats // 10))
    return Line(name, seconds * 1e6, verifying * 1e6)


def least(prepare: Callable[[], Any], run: Callable[[Any], Any], repeats: int) -> float:
    """The least seconds of processor time of `run` on what `prepare` gives."""
    times = []
    for _ in range(repeats):
        subject = prepare()
        began = time.process_time()
        run(subject)
        times.append(time.process_time() - began)
    return min(times)


def refusals(repeats: int) -> list[Line]:
    """Steps that are refused, and one refusal read."""
    scheduled = ConvSchedule()
    c = scheduled.loops(scheduled.conv)[4]

    def refused(sch: Schedule) -> ScheduleError:
        try:
            sch.parallel(c)
        except ScheduleError as error:
            return error
        raise AssertionError("the reduction ran in parallel")

    seconds = least(scheduled.sch.copy, refused, repeats)
    reading = least(lambda: refused(scheduled.sch), str, repeats)
    return [
        Line("parallel, refused", seconds * 1e6, None),
        Line("the text of that refusal", reading * 1e6, None),
    ]


def tiled(scheduled: ConvSchedule) -> tuple[Var, ...]:
    """The convolution in tiles: the loops n, k, i, j, c, r, s with k and j split by 8 and 14."""
    n, k, i, j, c, r, s = scheduled.loops(scheduled.conv)
    k0, k1 = scheduled.sch.split(k, factors=[None, 8])
    j0, j1 = scheduled.sch.split(j, factors=[None, 14])
    scheduled.sch.reorder(n, k0, i, j0, c, r, s, k1, j1)
    return n, k0, i, j0, c, r, s, k1, j1


def _parallel(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[1]
    return lambda sch: sch.parallel(loop)


def _vectorize(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[-1]
    return lambda sch: sch.vectorize(loop)


def _unroll(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[-2]
    return lambda sch: sch.unroll(loop)


def _serial(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[-2]
    scheduled.sch.unroll(loop)
    return lambda sch: sch.serial(loop)


def _bind(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[1]
    return lambda sch: sch.bind(loop, "blockIdx.x")


def _split(scheduled: ConvSchedule) -> Step:
    loop = scheduled.loops(scheduled.conv)[3]
    return lambda sch: sch.split(loop, factors=[None, 8])


def _fuse(scheduled: ConvSchedule) -> Step:
    loops = tiled(scheduled)[:3]
    return lambda sch: sch.fuse(*loops)


def _reorder(scheduled: ConvSchedule) -> Step:
    n, k, i, j, c, r, s = scheduled.loops(scheduled.conv)
    return lambda sch: sch.reorder(c, r, s, n, k, i, j)


def _merge(scheduled: ConvSchedule) -> Step:
    first, second = scheduled.loops(scheduled.conv)[1], scheduled.loops(scheduled.out)[1]
    return lambda sch: sch.merge(first, second)


def _fission(scheduled: ConvSchedule) -> Step:
    loop = scheduled.sch.merge(
        scheduled.loops(scheduled.conv)[1], scheduled.loops(scheduled.out)[1]
    )
    return lambda sch: sch.fission(loop)


def _loop_partition(scheduled: ConvSchedule) -> Step:
    loop, _ = scheduled.sch.split(scheduled.loops(scheduled.out)[3], factors=[None, 8])
    return lambda sch: sch.loop_partition(loop)


def _unannotate(scheduled: ConvSchedule) -> Step:
    scheduled.sch.annotate(scheduled.conv, "note", 1)
    return lambda sch: sch.unannotate(scheduled.conv, "note")


def _compute_at(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[3]
    return lambda sch: sch.compute_at(scheduled.pad, loop)


def _reverse_compute_at(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[3]
    return lambda sch: sch.reverse_compute_at(scheduled.out, loop)


def _decompose_reduction(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[4]
    return lambda sch: sch.decompose_reduction(scheduled.conv, loop)


def _merge_reduction(scheduled: ConvSchedule) -> Step:
    init = scheduled.sch.decompose_reduction(scheduled.conv, tiled(scheduled)[4])
    return lambda sch: sch.merge_reduction(init, scheduled.conv)


def _rfactor(scheduled: ConvSchedule) -> Step:
    loop = scheduled.loops(scheduled.conv)[4]
    return lambda sch: sch.rfactor(loop, factor_axis=0)


def _split_reduction(scheduled: ConvSchedule) -> Step:
    loop = scheduled.loops(scheduled.conv)[4]
    return lambda sch: sch.split_reduction(loop, 4)


def _set_scope(scheduled: ConvSchedule) -> Step:
    scheduled.sch.cache_write(scheduled.conv, 0, "local")
    return lambda sch: sch.set_scope(scheduled.conv, 0, "global")


def _storage_align(scheduled: ConvSchedule) -> Step:
    return lambda sch: sch.storage_align(scheduled.pad, 0, -2, 32, 5)


def _prefetch(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[5]
    return lambda sch: sch.prefetch(scheduled.conv, 1, loop)


def _double_buffer(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[4]
    copy = scheduled.sch.cache_read(scheduled.conv, 1, "local")
    scheduled.sch.compute_at(copy, loop)
    return lambda sch: sch.double_buffer(copy, loop)


def _read_at(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[3]
    return lambda sch: sch.read_at(loop, scheduled.conv, 0, "local")


def _write_at(scheduled: ConvSchedule) -> Step:
    loop = tiled(scheduled)[3]
    return lambda sch: sch.write_at(loop, scheduled.conv, 0, "local")


def _blockize(scheduled: ConvSchedule) -> Step:
    loops = tiled(scheduled)
    scheduled.sch.decompose_reduction(scheduled.conv, loops[4])
    return lambda sch: sch.blockize(loops[-2])


def _sample(name: str, *args: Any) -> Callable[[ConvSchedule], Step]:
    def case(scheduled: ConvSchedule) -> Step:
        loop = scheduled.loops(scheduled.conv)[3]
        return lambda sch: getattr(sch, name)(loop, *args)

    return case


def _sample_compute_location(scheduled: ConvSchedule) -> Step:
    return lambda sch: sch.sample_compute_location(scheduled.pad)


CASES: dict[str, Callable[[ConvSchedule], Step]] = {
    "get_block": lambda _s: lambda sch: sch.get_block("conv"),
    "get_loops": lambda s: lambda sch: sch.get_loops(s.conv),
    "get_producers": lambda s: lambda sch: sch.get_producers(s.conv),
    "get_consumers": lambda s: lambda sch: sch.get_consumers(s.conv),
    "split": _split,
    "fuse": _fuse,
    "reorder": _reorder,
    "tile": lambda s: lambda sch: sch.tile(s.out, (1, 8, 4, 14)),
    "reorder_block_iter_var": lambda s: (
        lambda sch: sch.reorder_block_iter_var(s.conv, [0, 2, 3, 1, 4, 5, 6])
    ),
    "merge": _merge,
    "fission": _fission,
    "loop_partition": _loop_partition,
    "add_unit_loop": lambda s: lambda sch: sch.add_unit_loop(s.conv),
    "parallel": _parallel,
    "vectorize": _vectorize,
    "unroll": _unroll,
    "serial": _serial,
    "bind": _bind,
    "annotate": lambda s: lambda sch: sch.annotate(s.conv, "note", 1),
    "unannotate": _unannotate,
    "set_scope": _set_scope,
    "storage_align": _storage_align,
    "cache_read": lambda s: lambda sch: sch.cache_read(s.conv, 0, "local"),
    "cache_write": lambda s: lambda sch: sch.cache_write(s.conv, 0, "local"),
    "read_at": _read_at,
    "write_at": _write_at,
    "reindex": lambda s: lambda sch: sch.reindex(s.conv, ("read", 0)),
    "pack": lambda s: lambda sch: sch.pack(s.conv, 1, "ABCDa", [8]),
    "prefetch": _prefetch,
    "double_buffer": _double_buffer,
    "transform_layout": lambda s: (
        lambda sch: sch.transform_layout(s.pad, ("write", 0), lambda n, c, i, j: (n, i, j, c))
    ),
    "transform_block_layout": lambda s: (
        lambda sch: sch.transform_block_layout(s.out, lambda n, k, i, j: (n, k, i * 28 + j))
    ),
    "compute_at": _compute_at,
    "reverse_compute_at": _reverse_compute_at,
    "compute_inline": lambda s: lambda sch: sch.compute_inline(s.pad),
    "decompose_reduction": _decompose_reduction,
    "merge_reduction": _merge_reduction,
    "rfactor": _rfactor,
    "split_reduction": _split_reduction,
    "winograd": lambda s: lambda sch: sch.winograd(s.conv, 2),
    "stream": lambda s: lambda sch: sch.stream(s.out, 0),
    "blockize": _blockize,
    "sample_perfect_tile": _sample("sample_perfect_tile", 3),
    "sample_tile": _sample("sample_tile", 3),
    "sample_categorical": lambda _s: lambda sch: sch.sample_categorical([1, 2, 4]),
    "sample_compute_location": _sample_compute_location,
}
ELSEWHERE = {
    "make_blocks": "needs loops that were written by hand",
    "compute_ahead": "needs an operand of which the reduction computes something",
    "distinguish_reads": "needs a reduction that reads one buffer in several places",
    "distinguish_updates": "needs a stage that updates its result in place",
    "work_on": "needs several programs",
    "reverse_compute_inline": "needs a producer that is no reduction",
    "online_softmax": "needs a sum of exponentials with their maximum",
    "online_variance": "needs a sum of squared distances from their mean",
    "locate_extremum": "needs an argmax",
    "select_terms": "needs a condition that leaves out terms",
    "expand_reduction": "needs a reduction of few terms",
    "hoist_factor": "needs a factor that the reduction does not move",
    "fuse_reduction_epilogue": "needs a sum as epilogue",
    "pad_einsum": "needs a contraction with plain indices",
    "decompose_padding": "needs a stage that copies within a condition and nothing else",
    "cache_index": "needs indices with a common part",
    "cache_inplace": "needs a buffer that is updated in place",
    "reindex_cache_read": "is reindex with a map",
    "reindex_cache_write": "is reindex with a map",
    "rolling_buffer": "needs a producer that is recomputed along a loop",
    "pipeline": "needs several blocks in a loop",
    "swizzle": "needs a copy in fast memory",
    "tensorize": "needs the shape of an instruction",
    "sample_partitioned_tile": "is sample_perfect_tile with one condition more",
}
"""Primitives for which this program has no place, and why."""


if __name__ == "__main__":
    sys.exit(main())
