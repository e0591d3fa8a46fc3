"""The memory of models: plans that share bytes, what a call allocates, and poison in what is dead.

The tests of this package poison the memory of all models that they run (`TILEWRIGHT_CHECK=1`).
"""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.building import model_steps
from tilewright.building.choose import POLICIES, Choices
from tilewright.building.compile_all import compile_first
from tilewright.building.memory_plan import ALIGNMENT, Block, live, plan
from tilewright.building.model_steps import Steps, poisoned, steps_of
from tilewright.building.weights import Weights
from tilewright.codegen.build import to_module
from tilewright.codegen.detect import resolve
from tilewright.codegen.sequence import joined
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.groups import divide
from tilewright.graph.ir import Value
from tilewright.graph.lower import lowered_all

from ..long import examples

TARGET = "cpu -threads=1"
KEPT = 4096
"""Bytes of Python's own objects that a call may leave behind for a moment."""


def residuals(layers: int = 3) -> Graph:
    """Layers that are added to what was before them, some of it long before, with two outputs."""
    rng = np.random.default_rng(0)
    b = Builder("residuals")
    x = b.input("x", TensorType("float32", (32, 64)))
    w = b.constant(rng.standard_normal((64, 64)) / 8, "float32")
    kept = [x]
    for n in range(layers):
        y = b.add("matmul", kept[-1], w)
        halves = b.add("softmax", b.add("reshape", y, shape=(64, 32)), axis=1)
        y = b.add("add", b.add("matmul", b.add("reshape", halves, shape=(32, 64)), w), y)
        kept.append(b.add("add", y, kept[n // 2]))
    return b.graph({"y": b.add("softmax", kept[-1], axis=1), "same": kept[1], "again": kept[1]})


@cache
def built() -> tw.Model:
    return tw.build(residuals(), TARGET)


@st.composite
def lifetimes(draw: st.DrawFn) -> dict[int, Block]:
    """Blocks of the values of a graph in which each node reads some of those before it."""
    steps = draw(st.integers(1, 40))
    unit = draw(st.sampled_from([256, 4096, 100_000]))
    last = list(range(steps))
    sizes = [unit * draw(st.integers(1, 8)) for _ in range(steps)]
    for step in range(1, steps):
        for back in draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)):
            read = max(step - back, 0)
            last[read] = max(last[read], step)
    return {n: Block(sizes[n], n, last[n]) for n in range(steps)}


@given(blocks=lifetimes())
@settings(max_examples=examples(60), deadline=None)
def test_what_lives_at_the_same_time_does_not_overlap(blocks: dict[int, Block]) -> None:
    found = plan(blocks)
    for key, block in blocks.items():
        begin = found.offsets[key]
        assert begin % ALIGNMENT == 0
        assert begin + block.bytes <= found.bytes
        for other, second in blocks.items():
            if other < key and second.last >= block.first and block.last >= second.first:
                at = found.offsets[other]
                assert at + second.bytes <= begin or begin + block.bytes <= at
    assert found.bytes >= live((block.bytes, block) for block in blocks.values())


@given(blocks=lifetimes())
@settings(max_examples=examples(60), deadline=None, derandomize=True)
def test_an_arena_is_little_more_than_what_lives_at_once(blocks: dict[int, Block]) -> None:
    assert plan(blocks).bytes <= 1.1 * live((block.aligned, block) for block in blocks.values())


def test_plans_of_many_values_take_little_time() -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(1, 12, 10_000)
    blocks = {n: Block(64 * int(end), n, n + int(end)) for n, end in enumerate(ends)}
    found = plan(blocks)
    assert found.bytes <= 1.1 * live((block.bytes, block) for block in blocks.values())


def test_planned_is_allocated_to_the_byte() -> None:
    model = built()
    memory = model.evidence.memory
    assert memory.arena_bytes <= 1.1 * memory.live_bytes
    assert model.module.workspace().nbytes == memory.arena_bytes
    used = max(one.offset + -(-one.bytes // ALIGNMENT) * ALIGNMENT for one in memory.lifetimes)
    assert used == memory.arena_bytes


def test_calls_allocate_their_outputs_and_nothing_else() -> None:
    model = built()
    x = np.ones((32, 64), np.float32)
    out = model(x)
    needed = sum(array.nbytes for array in out)
    assert _allocated(lambda: model.into(x, out=out)) <= KEPT
    assert needed <= _allocated(lambda: model(x)) <= needed + KEPT


def _allocated(call: Any) -> int:
    """The most bytes that a call has of Python and numpy, after it has run before."""
    call()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


class Kernels:
    """A graph's kernels, which are compiled once, and joined by whatever plan there is."""

    def __init__(self) -> None:
        self.graph = residuals(2)
        self.groups = divide(self.graph)
        funcs = lowered_all(self.groups)
        target = resolve(TARGET)
        made = [compile_first(Choices(f, target, None, POLICIES), target) for f in {*funcs}]
        codes = {kernel.func: kernel.compiled for kernel in made}
        self.codes = [codes[func] for func in funcs]
        self.weights = Weights()
        self.weights.take(self.groups, self.codes)
        self.content = self.weights.content()

    def steps(self) -> Steps[Value]:
        return steps_of(self.graph, self.groups, self.codes, self.weights, "residuals")

    def is_right(self) -> bool:
        """Whether a call has right results, in memory that is poisoned where nothing lives."""
        steps = self.steps()
        module = to_module(joined(steps.signature, tuple(poisoned(steps)), self.codes[0].target))
        x = np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)
        outputs = [np.empty(v.shape, np.float32) for v in self.graph.outputs.values()]
        module(x, *outputs, self.content)
        pairs = zip(outputs, self.graph.reference(x), strict=True)
        return all(np.allclose(found, wanted, rtol=1e-4, atol=1e-5) for found, wanted in pairs)


@cache
def kernels() -> Kernels:
    return Kernels()


def test_memory_of_the_dead_is_never_read() -> None:
    assert kernels().is_right()


def test_values_at_one_place_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = kernels().steps().blocks
    together = [
        (a, b) for a in blocks for b in blocks if blocks[a].first < blocks[b].first < blocks[a].last
    ]
    assert together
    for first, second in together:

        def overlapping(blocks: Any, first: Any = first, second: Any = second) -> Any:
            found = plan(blocks)
            return replace(found, offsets={**found.offsets, second: found.offsets[first]})

        monkeypatch.setattr(model_steps, "plan", overlapping)
        assert not kernels().is_right()


def test_lives_that_are_too_short_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no other value takes the memory."""
    whole = model_steps._blocks
    values = [key for key in kernels().steps().blocks if isinstance(key, Value)]
    assert len(values) > 3
    for value in values:

        def shorter(*arguments: Any, value: Value = value) -> Any:
            blocks = whole(*arguments)
            blocks[value] = replace(blocks[value], last=blocks[value].last - 1)
            return blocks

        monkeypatch.setattr(model_steps, "_blocks", shorter)
        assert not kernels().is_right()
