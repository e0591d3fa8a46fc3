"""Random programs in the emulator, against one thread after the other and all pairs of accesses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.codegen.cuda.emulate import Emulation, emulate
from tilewright.codegen.cuda.emulate_faults import Action, Fault, FaultKind
from tilewright.tir.ir import Store

from ...long import examples
from .kernels import kernel

SIZE = 40
"""Elements of each buffer."""
UNTOUCHED = 9
"""The elements of B at the start."""
OFFSETS = {"S": 0, "R": 128}
"""Bytes of S and R overlap: elements 32 to 39 of S are the elements 0 to 7 of R."""
BUFFERS = ("A", "B", "S", "R")
"""A and B are in global memory, and written at the start: A always, B if no step writes it."""


class Index(NamedTuple):
    """The index (factor * t + add + step * k) % SIZE of thread t in iteration k."""

    factor: int
    add: int
    step: int

    def of(self, thread: int, k: int) -> int:
        return (self.factor * thread + self.add + self.step * k) % SIZE

    def __str__(self) -> str:
        return f"(t * {self.factor} + {self.add} + k * {self.step}) % {SIZE}"


@dataclass(frozen=True)
class Step:
    """`to[at] = of[where] + add` in the threads of each block from `low` up to `high`."""

    to: str
    at: Index
    of: str
    where: Index
    add: int
    low: int
    high: int

    def __str__(self) -> str:
        store = f"{self.to}[{self.at}] = {self.of}[{self.where}] + {self.add}"
        return f"if (t >= {self.low}) & (t < {self.high}):\n        {store}"


Body: TypeAlias = list[Step | str]
"""Steps, and barriers by their scopes."""


@dataclass(frozen=True)
class Program:
    threads: int
    blocks: int
    times: int
    body: Body

    def code(self) -> str:
        lines = [s if isinstance(s, str) else str(s) for s in self.body]
        lines = [f'T.barrier("{s}")' if s in ("block", "warp") else s for s in lines]
        return "\n    ".join([f"for k in range({self.times}):", *lines])


class Access(NamedTuple):
    """What a thread does in a step of the body. Equal `epochs` have no barrier between."""

    step: int
    action: Action
    buffer: str
    place: int
    block: int
    thread: int
    block_epoch: int
    warp_epoch: int

    @property
    def element(self) -> tuple[object, int]:
        """What is equal where memory is."""
        if self.buffer in OFFSETS:
            return self.block, OFFSETS[self.buffer] + 4 * self.place
        return self.buffer, self.place


Pair: TypeAlias = tuple[tuple[int, Action, str], tuple[int, Action, str]]


class Reference:
    """Runs the threads of a program one after the other, a step at a time."""

    def __init__(self, program: Program, a: npt.NDArray[np.int32]) -> None:
        self.values: dict[tuple[object, int], int] = {}
        self.values |= {("A", n): int(x) for n, x in enumerate(a)}
        if not changes(program, "B"):
            self.values |= {("B", n): UNTOUCHED for n in range(SIZE)}
        self.holder = {element: str(element[0]) for element in self.values}
        self.accesses: list[Access] = []
        self.unwritten: set[tuple[int, str]] = set()
        block_epoch = warp_epoch = 0
        for k in range(program.times):
            for n, step in enumerate(program.body):
                if step == "block":
                    block_epoch, warp_epoch = block_epoch + 1, warp_epoch + 1
                elif step == "warp":
                    warp_epoch += 1
                elif isinstance(step, Step):
                    self.step(program, n, step, k, (block_epoch, warp_epoch))

    def step(self, program: Program, n: int, step: Step, k: int, epochs: tuple[int, int]) -> None:
        stores = []
        for block, t in itertools.product(range(program.blocks), range(program.threads)):
            if not step.low <= t < step.high:
                continue
            read = Access(n, Action.READ, step.of, step.where.of(t, k), block, t, *epochs)
            write = Access(n, Action.WRITE, step.to, step.at.of(t, k), block, t, *epochs)
            self.accesses += [read, write]
            if self.holder.get(read.element) != step.of:
                self.unwritten.add((n, step.of))
            stores.append((write, self.values.get(read.element, 0) + step.add))
        for write, value in stores:
            self.values[write.element] = value
            self.holder[write.element] = write.buffer

    def races(self) -> tuple[set[Pair], set[Pair]]:
        """The pairs of accesses that race in a block, and between blocks."""
        within: set[Pair] = set()
        between: set[Pair] = set()
        of_element: dict[tuple[object, int], set[Access]] = {}
        for access in self.accesses:
            of_element.setdefault(access.element, set()).add(access)
        for accesses in of_element.values():
            for a, b in itertools.combinations(accesses, 2):
                if Action.WRITE not in (a.action, b.action) or (a.block, a.thread) == (
                    b.block,
                    b.thread,
                ):
                    continue
                if a.block != b.block:
                    between.add(pair(a, b))
                elif a.block_epoch == b.block_epoch and (
                    a.thread // 32 != b.thread // 32 or a.warp_epoch == b.warp_epoch
                ):
                    within.add(pair(a, b))
        return within, between


def pair(a: Access, b: Access) -> Pair:
    one, other = sorted([(x.step, x.action, x.buffer) for x in (a, b)])
    return one, other


def indices() -> st.SearchStrategy[Index]:
    return st.builds(
        Index, st.sampled_from([1, 1, 1, 0, 2, -1]), st.integers(0, SIZE - 1), st.integers(0, 1)
    )


@st.composite
def programs(draw: st.DrawFn) -> Program:
    threads = draw(st.sampled_from([3, 34, 37]))
    buffer = st.sampled_from(BUFFERS)
    bound = st.integers(0, threads)
    step = st.builds(
        Step, buffer, indices(), buffer, indices(), st.integers(-3, 3),
        st.one_of(st.just(0), bound), st.one_of(st.just(threads), bound),
    )  # fmt: skip
    body = draw(
        st.lists(st.one_of(step, step, st.sampled_from(["block", "warp"])), min_size=1, max_size=5)
    )
    return Program(threads, draw(st.integers(1, 2)), draw(st.integers(1, 2)), body)


def steps_of(program: Program, found: Emulation) -> dict[int, int]:
    """The numbers in the body of the stores, by the identity of their statements."""
    numbers = [n for n, s in enumerate(program.body) if isinstance(s, Step)]
    stores = [c.statement for c in found.counts if type(c.statement) is Store]
    return {id(s): n for s, n in zip(stores, numbers, strict=True)}


def site_pairs(faults: list[Fault], steps: dict[int, int]) -> Iterator[Pair]:
    for fault in faults:
        one, other = sorted(
            (steps[id(s.statement)], s.action, s.buffer.name)
            for s in fault.sites
            if s.buffer is not None
        )
        yield one, other


@pytest.mark.parametrize("batch", [1, 8192])
@given(program=programs())
@settings(max_examples=examples(100))
def test_random_programs(batch: int, program: Program) -> None:
    func = kernel(
        f"A int32 {SIZE}; B int32 {SIZE}", program.code(), threads=program.threads,
        blocks=program.blocks, inplace="A" if changes(program, "A") else "",
        shared=f"S int32 {SIZE}; R int32 {SIZE}", offsets=list(OFFSETS.values()),
    )  # fmt: skip
    a = np.arange(100, 100 + SIZE, dtype=np.int32)
    reference = Reference(program, a)
    b = np.full(SIZE, UNTOUCHED, np.int32)
    found = emulate(func, a, b, batch_threads=batch)
    steps = steps_of(program, found)
    of_kind: dict[FaultKind, list[Fault]] = {}
    for fault in found.faults:
        of_kind.setdefault(fault.kind, []).append(fault)
    within, between = reference.races()
    races = set(site_pairs(of_kind.pop(FaultKind.RACE, []), steps))
    block_races = set(site_pairs(of_kind.pop(FaultKind.BLOCK_RACE, []), steps))
    assert races == within
    assert block_races <= between
    assert bool(block_races) == bool(between)
    unwritten = {
        (steps[id(s.statement)], s.buffer.name)
        for fault in of_kind.pop(FaultKind.UNWRITTEN, [])
        for s in fault.sites
        if s.buffer is not None
    }
    assert not of_kind
    if not (within or between):
        assert unwritten == reference.unwritten
        if not unwritten:
            for name, array in (("A", a), ("B", b)):
                expected = [reference.values.get((name, n), UNTOUCHED) for n in range(SIZE)]
                assert array.tolist() == expected


def changes(program: Program, buffer: str) -> bool:
    return any(isinstance(s, Step) and s.to == buffer for s in program.body)


def test_the_random_programs_are_of_all_kinds() -> None:
    """Right programs are among them, and programs with each fault."""
    seen: set[str] = set()

    @given(program=programs())
    @settings(max_examples=examples(100))
    def look(program: Program) -> None:
        reference = Reference(program, np.zeros(SIZE, np.int32))
        within, between = reference.races()
        names = {"race": within, "block race": between, "unwritten": reference.unwritten}
        seen.update(name for name, faults in names.items() if faults)
        if reference.accesses and not any(names.values()):
            seen.add("right")

    look()
    assert seen == {"race", "block race", "unwritten", "right"}
