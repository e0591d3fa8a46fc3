"""Programs with schedules for GPUs, written by hand; several tests use them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import ops
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func, Var


def extremum(name: str, rows: int, length: int, dtype: str, threads: int) -> Func:
    """The `max` or `min` of rows, each by a block, whose threads have one element at most."""
    a = te.placeholder((rows, length), dtype, name="A")
    p = te.compute((rows, length), lambda i, r: a[i, r], name="P")
    k = te.reduce_axis(length, name="k")
    c = te.compute((rows,), lambda i: getattr(te, name)(p[i, k], axis=k), name="C")
    sch = Schedule(te.func([a, c], name="extremum"))
    whole, parts = sch.get_block("C"), sch.get_block("P")
    i, _ = sch.get_loops(whole)
    sch.compute_at(parts, i)
    sch.set_scope(parts, 0, "shared")
    sch.bind(i, "blockIdx.x")
    _, t = sch.split(sch.get_loops(parts)[-1], factors=[None, threads])
    sch.bind(t, "threadIdx.x")
    return sch.func


def matmul_func(n: int, m: int, k: int, dtype: str = "float32") -> Func:
    a = te.placeholder((n, k), dtype, name="A")
    b = te.placeholder((k, m), dtype, name="B")
    r = te.reduce_axis(k, name="k")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r),
        name="C",
    )
    return te.func([a, b, c], name="matmul")


def matmul(
    n: int, m: int, k: int, dtype: str = "float32", lanes: int = 1, step: int = 8, stages: int = 1
) -> Func:
    """Tiles of 32 x 32 by 64 threads, which compute 4 x 4 elements each in registers.

    The reduction stands around the phases: two copies, and the products. With two stages, threads
    hold elements of the next step while they compute one.
    """
    sch = Schedule(matmul_func(n, m, k, dtype))
    b = sch.get_block("C")
    i, j, r = sch.get_loops(b)
    acc = sch.cache_write(b, 0, "local")
    bi, ti, ii = sch.split(i, factors=[None, 8, 4])
    bj, tj, jj = sch.split(j, factors=[None, 8, 4])
    k0, k1 = sch.split(r, factors=[None, step])
    sch.reorder(bi, bj, k0, ti, tj, k1, ii, jj)
    copies = [sch.cache_read(b, n, "shared") for n in (0, 1)]
    stores = [sch.cache_write(c, 0, "local") for c in copies] if stages > 1 else []
    for c in (*stores, *copies):
        sch.compute_at(c, k0)
    sch.reverse_compute_at(acc, bj)
    alike = [sch.decompose_reduction(b, k0)]
    if stages > 1:
        *first, end = sch.pipeline(k0, [0, 0, 0, 0, 1], [0, 3, 1, 4, 2], versions=2)
        copies += [*stores, *first[:4]]
        alike.append(end)
    for c in copies:
        bind_flat(sch, sch.get_loops(c)[-2:], 64, lanes)
    sch.bind(bi, "blockIdx.x")
    sch.bind(bj, "blockIdx.y")
    sch.bind(sch.fuse(ti, tj), "threadIdx.x")
    for label in alike:
        sch.bind(sch.fuse(*sch.get_loops(label)[2:4]), "threadIdx.x")
    x, y = sch.get_loops(acc)[-2:]
    tx, ix = sch.split(x, factors=[8, 4])
    ty, iy = sch.split(y, factors=[8, 4])
    sch.reorder(tx, ty, ix, iy)
    sch.bind(sch.fuse(tx, ty), "threadIdx.x")
    if lanes > 1:
        sch.vectorize(iy)
    return sch.func


def bind_flat(sch: Schedule, loops: Sequence[Var], threads: int, lanes: int = 1) -> None:
    """Bind loops to threads, which take elements next to each other."""
    fused = sch.fuse(*loops)
    if lanes == 1:
        _, t = sch.split(fused, factors=[None, threads])
    else:
        _, t, v = sch.split(fused, factors=[None, threads, lanes])
        sch.vectorize(v)
    sch.bind(t, "threadIdx.x")


def transpose(n: int, m: int, dtype: str = "float32") -> Func:
    """Tiles of 32 x 32 through shared memory, whose rows are padded, by 8 warps."""
    sch = Schedule(ops.transpose_func(n, m, dtype))
    b = sch.get_block("Y")
    tile = sch.cache_read(b, 0, "shared")
    i, j = sch.get_loops(b)
    bi, ti = sch.split(i, factors=[None, 32])
    bj, tj = sch.split(j, factors=[None, 32])
    sch.reorder(bi, bj, ti, tj)
    sch.compute_at(tile, bj)
    sch.bind(bi, "blockIdx.x")
    sch.bind(bj, "blockIdx.y")
    for rows, columns in ((ti, tj), sch.get_loops(tile)[-2:]):
        _, warp = sch.split(rows, factors=[None, 8])
        sch.bind(warp, "threadIdx.y")
        _, lane = sch.split(columns, factors=[None, 32])
        sch.bind(lane, "threadIdx.x")
    sch.storage_align(tile, 0, 0, 32, 1)
    return sch.func


def elementwise(n: int, dtype: str = "float32", threads: int = 128, lanes: int = 4) -> Func:
    """relu(A + B), 16 bytes at once."""
    sch = Schedule(ops.add_relu_func(n, dtype))
    (i,) = sch.get_loops(sch.get_block("C"))
    b, t, v = sch.split(i, factors=[None, threads, lanes])
    sch.bind(b, "blockIdx.x")
    sch.bind(t, "threadIdx.x")
    sch.vectorize(v)
    return sch.func


def softmax(n: int, m: int, dtype: str = "float32", rows: int = 4, threads: int = 32) -> Func:
    """A row by so many threads, which keep it in registers; several `rows` in a block.

    With 32 threads shuffles combine what they hold in part; with more, shared memory does too.
    """
    sch = Schedule(ops.softmax_func(n, m, dtype))
    largest, powers, total, y = (sch.get_block(name) for name in ("Y_max", "Y_exp", "Y_sum", "Y"))
    row, column = sch.get_loops(y)
    b, ty = sch.split(row, factors=[None, rows])
    _, tx = sch.split(column, factors=[None, threads])
    for stage in (total, powers, largest):
        sch.compute_at(stage, ty)
    held = sch.cache_read(largest, 0, "local")
    sch.compute_at(held, ty)
    for stage in (largest, total):
        _, r = sch.split(sch.get_loops(stage)[-1], factors=[None, threads])
        part = sch.rfactor(r, 0)
        for each in (part, stage):
            sch.set_scope(each, 0, "shared")
        sch.bind(sch.get_loops(part)[-1], "threadIdx.x")
    sch.set_scope(powers, 0, "local")
    for stage in (held, powers):
        _, t = sch.split(sch.get_loops(stage)[-1], factors=[None, threads])
        sch.bind(t, "threadIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.bind(b, "blockIdx.x")
    sch.bind(ty, "threadIdx.y")
    return sch.func


def sum_in_two_launches(n: int, m: int, parts: int = 4, threads: int = 64) -> Func:
    """The sum of each row: parts of it by blocks, and the sum of the parts by another launch."""
    sch = Schedule(ops.reduction_func("sum", n, m))
    y = sch.get_block("Y")
    part, _ = sch.split(sch.get_loops(y)[-1], factors=[parts, None])
    of_block = sch.rfactor(part, 0)
    _, lane = sch.split(sch.get_loops(of_block)[-1], factors=[None, threads])
    of_thread = sch.rfactor(lane, 0)
    sch.compute_at(of_thread, sch.get_loops(of_block)[1])
    sch.set_scope(of_thread, 0, "shared")
    row, part = sch.get_loops(of_block)[:2]
    sch.bind(row, "blockIdx.y")
    sch.bind(part, "blockIdx.x")
    sch.bind(sch.get_loops(of_thread)[2], "threadIdx.x")
    (row, _) = sch.get_loops(y)
    b, t = sch.split(row, factors=[None, 32])
    sch.bind(b, "blockIdx.x")
    sch.bind(t, "threadIdx.x")
    return sch.func


def conv(n: int, c: int, size: int, o: int, threads: int = 64) -> Func:
    """A convolution: an image and an output channel to a block, 4 columns to a thread."""
    sch = Schedule(ops.conv2d_func(n, c, size, size, o))
    sch.compute_inline(sch.get_block("Y_pad"))
    y = sch.get_block("Y")
    acc = sch.cache_write(y, 0, "local")
    bn, bo, row, column, *reduced = sch.get_loops(y)
    x0, x1 = sch.split(column, factors=[None, 4])
    t0, t1 = sch.split(sch.fuse(row, x0), factors=[None, threads])
    sch.reorder(bn, bo, t0, t1, *reduced, x1)
    sch.reverse_compute_at(acc, t1)
    sch.bind(sch.fuse(bn, bo), "blockIdx.y")
    sch.bind(t0, "blockIdx.x")
    sch.bind(t1, "threadIdx.x")
    return sch.func
