"""Contractions: tiles of blocks and of threads, or a thread for each result."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....base import dtypes
from ....schedule import Schedule
from ....schedule.find import find_block
from ....schedule.index_map import IndexMap
from ....target.cuda import WARP, CudaTarget
from ....tir.ir import Block, Dim, Label, Var, ceildiv, product
from ..access_patterns import extents, last_digits, outputs_of, reduced, spatial
from ..common import fused, powers, sampled
from ..draft import Draft, Option
from ..rule import Group, Variant
from .by_thread import schedule_results
from .limits import device_limits, limit_block, registers
from .matmul_form import Matmul, Operand, as_matmul, matmul_form, writer_of

PART = 128
"""Steps of a part of a reduction, at least."""
MOST_PARTS = 64
FEW_RESULTS = 4096
"""Results of a multiprocessor, below which parts of the reduction are worth a second launch."""


def contraction_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """By tiles, where it is a product of matrices, or a thread for each result.

    Operands are copied in one stage or two. Where a device would have few tiles, these may be of
    parts of the reduction.
    """
    main, *following = group.members
    if matmul_form(main, *following) is not None:
        for split in (False, True) if _is_long(draft, main) else (False,):
            for stages in (1, 2):
                apply = functools.partial(
                    _schedule_tiled, labels=group.labels, split=split, stages=stages
                )
                options: dict[str, Option] = {"split": split, "stages": stages}
                chosen = {name: value for name, value in options.items() if value not in (False, 1)}
                name = "_".join(["tiled", *["split"] * split, *["pipelined"] * (stages > 1)])
                yield Variant.of(name, apply, tiled=True, **chosen)
    if spatial(main) and not last_digits(main):
        apply = functools.partial(schedule_results, labels=group.labels)
        yield Variant.of("by_thread", apply)
    yield Variant.of("default", default=True)


def _is_long(draft: Draft, main: Block) -> bool:
    """Whether tiles of the result are too few for the device, and the reduction is long."""
    sizes = extents(main)
    results = math.prod(sizes[v] for v in spatial(main))
    steps = math.prod(sizes[v] for v in reduced(main))
    return results < FEW_RESULTS * CudaTarget.of(draft.target).sms and steps >= 2 * PART


def _schedule_tiled(
    draft: Draft, labels: Sequence[Label], *, split: bool = False, stages: int = 1
) -> None:
    matmul = as_matmul(draft, labels, VECTOR)
    tile, parts = decide_tile(draft, matmul, stages), None
    if split:
        most = min(MOST_PARTS, matmul.sizes[-1] // PART)
        parts = sampled(draft.schedule, powers(most)[1:])
        grid = device_limits(draft).grid
        draft.limit("the parts fit a grid", parts * matmul.sizes[0] <= grid[2])
    schedule_product(draft, matmul, tile, parts)


# Products of matrices by tiles of blocks and of threads.
#
#     for bx in thread("blockIdx.x"), by in thread("blockIdx.y"):
#         for t in thread("threadIdx.x"): the thread's tile of C = 0
#         for k0:                                             # steps of the reduction
#             for t in thread("threadIdx.x"): A_shared[..] = A[..]
#             for t in thread("threadIdx.x"): B_shared[..] = B[..]
#             for t in thread("threadIdx.x"):
#                 for k1:
#                     load columns of A_shared and rows of B_shared, 4 elements at once
#                     for i, j: C_local[i, j] += A_local[i] * B_local[j]
#         for t in thread("threadIdx.x"): write the tile, with what follows
#
# Copies are padded with zeros, so that nothing in the inner loop depends on sizes. A thread's tile
# is made of vectors of 4 elements. Shared memory has the first vector of all threads, then the
# second one, so that threads next to each other read vectors next to each other; padding keeps what
# is stored across apart in the banks.
#
# With two stages, elements of the next step are on their way while one is computed. Threads hold
# them in registers, and store them to the other one of two versions of shared memory:
#
#         the first step's elements, by way of registers, to A_shared[0] and B_shared[0]
#         for k0, but for the last step:
#             for t in thread("threadIdx.x"): A_local[..] = A[.. of step k0 + 1]
#             for t in thread("threadIdx.x"): B_local[..] = B[.. of step k0 + 1]
#             for t in thread("threadIdx.x"): compute from A_shared[k0 % 2] and B_shared[k0 % 2]
#             for t in thread("threadIdx.x"): A_shared[(k0 + 1) % 2] = A_local[..]
#             for t in thread("threadIdx.x"): B_shared[(k0 + 1) % 2] = B_local[..]
#         compute the last step

VECTOR = 4
"""Elements of a vector of a thread's tile."""
BANKS = 32
"""Elements of 4 bytes in all banks."""
MOST_PADDED = 1.25
"""How much larger the result may be in whole warps of better lanes than of others."""
MOST_COPIED = 16
"""Elements that a thread copies at once, at most: each has a place of its own to compute."""
ADDING_THREADS = 256
"""Threads of a block that adds up parts of results."""
LANES = ((4, 8), (2, 16), (8, 4), (1, 32), (16, 2), (32, 1))
"""Rows and columns of a warp's threads, the best ones first: they read the fewest bytes."""


@dataclass(frozen=True)
class BlockTile:
    """The decisions of a tile: warps of a block, threads of a warp and vectors of a thread, each
    along rows and columns, and the steps of the reduction that are shared at once.

    Operands are copied in one stage or two.
    """

    warps: tuple[Dim, Dim]
    lanes: tuple[int, int]
    vectors: tuple[Dim, Dim]
    steps: Dim
    stages: int

    @property
    def threads(self) -> Dim:
        return self.warps[0] * self.warps[1] * WARP

    def cut(self, axis: int) -> tuple[Dim, Dim, Dim]:
        """The rows or columns of warps, of threads, and of a thread."""
        return self.warps[axis], self.lanes[axis], self.vectors[axis] * VECTOR

    def size(self, axis: int) -> Dim:
        """The rows or columns of a block."""
        return product(self.cut(axis))


def decide_tile(draft: Draft, matmul: Matmul, stages: int = 1) -> BlockTile:
    """Decide the tiles of a product, within the limits of the target."""
    sch, (_, *sides, steps) = draft.schedule, matmul.sizes
    area = [_padded(sides[0], n[0]) * _padded(sides[1], n[1]) for n in LANES]
    lanes = next(n for n, size in zip(LANES, area, strict=True) if size <= MOST_PADDED * min(area))
    warps, vectors = list[Dim](), list[Dim]()
    for extent, along, operand in zip(sides, lanes, matmul.operands, strict=True):
        most = -(-extent // (along * VECTOR))
        # Which elements a thread fetches must be plain to see, else it cannot hold them.
        tried = (1, 2, 3, 4) if stages == 1 or operand.along_steps else (1, 2, 4)
        warps.append(sampled(sch, [n for n in (1, 2, 4, 8) if n < 2 * most]))
        vectors.append(sampled(sch, [n for n in tried if n <= most]))
    step = sampled(sch, [n for n in (4, 8, 16) if n < 2 * steps or n == 4])
    tile = BlockTile((warps[0], warps[1]), lanes, (vectors[0], vectors[1]), step, stages)
    _limit(draft, matmul, tile)
    return tile


def _padded(extent: int, lanes: int) -> int:
    """An extent in whole warps."""
    return -(-extent // (lanes * VECTOR)) * lanes * VECTOR


def _limit(draft: Draft, matmul: Matmul, tile: BlockTile) -> None:
    out = outputs_of(draft.block(matmul.main))[0].buffer.dtype
    held: list[tuple[str, Dim]] = [(out, product([n * VECTOR for n in tile.vectors]))]
    shared: Dim = 0
    for axis, operand in enumerate(matmul.operands):
        copied = ceildiv(tile.size(axis) * tile.steps, tile.threads)
        held.append((operand.dtype, tile.vectors[axis] * VECTOR + copied * operand.moved))
        draft.limit("a thread copies few elements at once", copied <= MOST_COPIED)
        row = tile.warps[axis] * tile.lanes[axis] * VECTOR + BANKS + _apart(operand)
        row = row * tile.vectors[axis] + BANKS
        shared = shared + row * tile.steps * dtypes.nbytes(operand.dtype)
    limit_block(draft, tile.threads, registers(held), shared * tile.stages)
    for axis, extent in enumerate(matmul.sizes[1:3]):
        least = _padded(extent, tile.lanes[axis])
        draft.limit("tiles are not much larger than the result", tile.size(axis) < 2 * least)
    grid = device_limits(draft).grid
    blocks = ceildiv(matmul.sizes[1], tile.size(0))
    draft.limit("the blocks along rows fit a grid", blocks <= grid[1])
    draft.limit("the batches fit a grid", matmul.sizes[0] <= grid[2])


def _apart(operand: Operand) -> int:
    """The banks by which vectors of a thread lie apart, so that what is stored at once does."""
    return BANKS // 4 if operand.along_steps else BANKS // 2


def schedule_product(
    draft: Draft, matmul: Matmul, tile: BlockTile, parts: Dim | None = None
) -> None:
    """Compute a product by such tiles.

    With `parts`, blocks compute so many parts of the reduction, which a second launch adds up.
    """
    sch = draft.schedule
    tiled = _tiled(sch, matmul, tile, parts)
    main = tiled.main
    around = sch.get_loops(main)[:-3]
    sides = [
        sch.split(loop, factors=[None, *tile.cut(axis)], perfect=True)
        for axis, loop in enumerate(sch.get_loops(main)[-3:-1])
    ]
    step, inner = sch.split(sch.get_loops(main)[-1], factors=[None, tile.steps], perfect=True)
    blocks, warps, lanes, elements = zip(*sides, strict=True)
    sch.reorder(*around, *blocks, step, *warps, *lanes, inner, *elements)
    grid = [*([fused(sch, around)] if around else []), *blocks]
    for loop, letter in zip(grid, "zyx"[-len(grid) :], strict=True):
        sch.bind(loop, f"blockIdx.{letter}")
    for label in tiled.read:
        sch.compute_at(label, inner)
        vectorized(sch, sch.get_loops(label)[-1], VECTOR)
    for label in (*tiled.copies, *tiled.fetches):
        sch.compute_at(label, step)
    sch.reverse_compute_at(tiled.write, blocks[-1])
    init = sch.decompose_reduction(main, step)
    moves, alike = [*tiled.fetches, *tiled.copies], [init]
    if tile.stages > 1:
        # The statements are a fetch and a copy of each operand, and what computes.
        first = sch.pipeline(step, [0, 0, 0, 0, 1], [0, 3, 1, 4, 2], versions=2)
        moves += first[:4]
        alike.append(first[-1])
    for n, label in enumerate(moves):
        _bind_copy(sch, label, matmul.operands[n % 2], tile.threads)
    for axis, (label, operand) in enumerate(zip(tiled.copies, matmul.operands, strict=True)):
        _lay_out(sch, label, operand, tile.vectors[axis])
    sch.bind(fused(sch, [*warps, *lanes]), "threadIdx.x")
    place = len(grid)
    for label in alike:
        sch.bind(fused(sch, sch.get_loops(label)[place : place + 4]), "threadIdx.x")
    _bind_write(sch, matmul, tiled.write, tile)


@dataclass(frozen=True)
class _Tiled:
    """The blocks of a padded product: copies to shared memory, copies of these to registers, and
    what writes what `main` computes.

    With two stages, what `copies` store is in registers, to which `fetches` have copied it.
    """

    main: Label
    fetches: list[Label]
    copies: list[Label]
    read: tuple[Label, Label]
    write: Label


def _tiled(sch: Schedule, matmul: Matmul, tile: BlockTile, parts: Dim | None) -> _Tiled:
    """Pad a product to whole tiles; the copies pad, and what they read is computed there."""
    main = matmul.main
    batch = len(sch.get_loops(main)) - 3
    steps = tile.steps if parts is None else tile.steps * parts
    *copied, crop = sch.pad_einsum(main, [*[1] * batch, tile.size(0), tile.size(1), steps], True)
    for operand in matmul.operands:
        for view in (operand.copy, *operand.views):
            sch.compute_inline(view)
    sch.reverse_compute_inline(matmul.write)
    sch.set_scope(main, 0, "local")
    write = crop
    if parts is not None:
        part, _ = sch.split(sch.get_loops(main)[-1], factors=[parts, None], perfect=True)
        main = sch.rfactor(part, 0)
        *others, part, step = sch.get_loops(main)
        sch.reorder(part, *others, step)
        write = sch.cache_write(main, 0, "local")
        # First: that all parts are written is plain to see where these are not scheduled yet.
        _add_up(sch, matmul.main, crop)
    numbers = [operand.number for operand in matmul.operands]
    copies = [writer_of(sch, main, n, copied) for n in numbers]
    for label in copies:
        sch.set_scope(label, 0, "shared")
    fetches: list[Label] = []
    if tile.stages > 1:
        fetches, copies = copies, [sch.cache_write(label, 0, "local") for label in copies]
        for label, operand in zip(fetches, matmul.operands, strict=True):
            if operand.along_steps:
                _turn(sch, label)
    read = [sch.cache_read(main, n, "local") for n in numbers]
    return _Tiled(main, fetches, copies, (read[0], read[1]), write)


def _turn(sch: Schedule, label: Label) -> None:
    """Let what a block writes be contiguous along steps, as what it reads is."""
    rank = len(outputs_of(find_block(sch.func, label))[0].buffer.shape)
    *others, step, element = inputs = tuple(Var(f"d{n}") for n in range(rank))
    sch.transform_layout(label, ("write", 0), IndexMap(inputs, (*others, element, step)))


def _add_up(sch: Schedule, main: Label, crop: Label) -> None:
    """Add up the parts of each result by a thread."""
    blocks, thread = sch.split(fused(sch, sch.get_loops(crop)), factors=[None, ADDING_THREADS])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.compute_at(main, thread)


def vectorized(sch: Schedule, loop: Var, lanes: int) -> None:
    """Take elements of a loop, a multiple of `lanes`, at once."""
    _, lane = sch.split(loop, factors=[None, lanes], perfect=True)
    sch.vectorize(lane)


def _bind_copy(sch: Schedule, label: Label, operand: Operand, threads: Dim) -> None:
    """Let all threads of a block copy, those next to each other what lies so in memory."""
    step, element = sch.get_loops(label)[-2:]
    lanes = operand.lanes
    if operand.along_steps:
        inner, lane = sch.split(step, factors=[None, lanes], perfect=True)
        sch.reorder(element, inner, lane)
        loops = [element, inner]
    else:
        inner, lane = sch.split(element, factors=[None, lanes], perfect=True)
        loops = [step, inner]
    several, thread = sch.split(fused(sch, loops), factors=[None, threads])
    sch.bind(thread, "threadIdx.x")
    sch.vectorize(lane)
    sch.unroll(several)  # loads are on their way at once


def _lay_out(sch: Schedule, label: Label, operand: Operand, vectors: Dim) -> None:
    """Lay out rows of shared memory: the first vector of all threads, then the second one."""
    rank = len(outputs_of(find_block(sch.func, label))[0].buffer.shape)
    inputs = tuple(Var(f"d{n}") for n in range(rank))
    *others, element = inputs
    number = (*others, element // VECTOR, element % VECTOR)
    sch.transform_layout(label, ("write", 0), IndexMap(inputs, number))
    inputs = tuple(Var(f"d{n}") for n in range(rank + 1))
    *others, vector, lane = inputs
    by_thread = (*others, vector % vectors, vector // vectors, lane)
    sch.transform_layout(label, ("write", 0), IndexMap(inputs, by_thread))
    sch.storage_align(label, 0, -3, BANKS, _apart(operand))
    if operand.along_steps:
        sch.storage_align(label, 0, -4, BANKS, VECTOR)


def _bind_write(sch: Schedule, matmul: Matmul, label: Label, tile: BlockTile) -> None:
    """Let each thread write its tile."""
    cut = [
        sch.split(loop, factors=[None, *tile.cut(axis)[1:]])
        for axis, loop in enumerate(sch.get_loops(label)[-2:])
    ]
    warps, lanes, elements = zip(*cut, strict=True)
    sch.reorder(*warps, *lanes, *elements)
    if matmul.contiguous:
        vectorized(sch, elements[1], VECTOR)
    sch.bind(fused(sch, [*warps, *lanes]), "threadIdx.x")
