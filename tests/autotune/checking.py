"""Helpers of tests of candidates: arguments, expected results, and sketches."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from tilewright.autotune.rules import SketchPlan, plans
from tilewright.autotune.rules.draft import Draft, Drafts, generator_of
from tilewright.autotune.search.candidates import Rows, Rowspace
from tilewright.autotune.search.search import Search
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.base import dtypes
from tilewright.codegen.build import compile_func, to_module
from tilewright.runtime.module import Module
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Block, Buffer, Func
from tilewright.tir.visit import walk

Array = np.ndarray[Any, Any]
MAX_INTERPRETED = 50_000
"""Points of a program that the interpreter takes about a tenth of a second for."""


def arguments(func: Func, seed: int) -> list[Array]:
    """Small random arrays for the parameters of a function."""
    rng = np.random.default_rng(seed)
    made = []
    for p in func.params:
        assert isinstance(p, Buffer)
        shape = tuple(int(n) for n in p.shape if isinstance(n, int))
        if dtypes.is_float(p.dtype):
            made.append(rng.standard_normal(shape).astype(dtypes.to_numpy(p.dtype)))
        else:
            made.append(rng.integers(0, 9, shape).astype(dtypes.to_numpy(p.dtype)))
    return made


def expected(func: Func, seed: int) -> list[Array]:
    """`arguments` after the unscheduled program.

    The interpreter runs it, or where it is large the code that is compiled of it as it is written,
    which `tests/codegen` compares with the interpreter.
    """
    arrays = arguments(func, seed)
    if points(func) <= MAX_INTERPRETED:
        interpret(func, *arrays)
    else:
        run(func, "cpu -threads=1", arrays)
    return arrays


def points(func: Func) -> int:
    """How often the bodies of all blocks of a concrete program run."""
    blocks = [n for n in walk(func) if type(n) is Block]
    return sum(math.prod(i.extent for i in b.iters if isinstance(i.extent, int)) for b in blocks)


def run(scheduled: Func, target: Target | str, arrays: list[Array]) -> Module:
    """Compile for a target that runs here, and call with arrays whose constants are not packed."""
    module = to_module(compile_func(scheduled, target))
    module(*(
        value if a.packing is None else module.pack(a.name, value)
        for a, value in zip(module.signature.arguments, arrays, strict=True)
    ))  # fmt: skip
    return module


def some_rows(sketch: Sketch, rng: np.random.Generator, count: int) -> Rows:
    """At most `count` candidates of a sketch, of more that are drawn: of some spaces few are good.

    There is one at least.
    """
    rows = Rowspace(sketch).sample(rng, 256)
    assert len(rows) > 0, f"{sketch.name} has no candidate"
    return rng.permutation(rows)[:count]


@cache
def sketches_of(func: Func, target: Target) -> tuple[Sketch, ...]:
    """The sketches of a program that several tests have in common."""
    return sketches(func, target)


def plans_of(func: Func, target: Target, *, inexact: bool = False) -> list[SketchPlan]:
    """How its sketches are made, those that turn out illegal among them."""
    families = plans(Draft(Schedule(func, symbolic=True), target), Drafts(), inexact=inexact)
    return [plan for family in families for plan in islice(family.plans, family.most)]


def planned(func: Func, target: Target) -> list[str]:
    """The names of all sketches that are tried."""
    return [plan.name for plan in plans_of(func, target)]


def sketches_named(
    func: Func, target: Target, wanted: Callable[[str], bool], *, inexact: bool = False
) -> tuple[Sketch, ...]:
    """The sketches whose names are wanted. The others are not made."""
    found = plans_of(func, target, inexact=inexact)
    generators = {generator_of(plan.choices) for plan in found if wanted(plan.name)}
    return sketches(func, target, generators, inexact=inexact)


def first_sketch(func: Func, target: Target) -> Sketch:
    """The most promising sketch. The others are not made."""
    first = planned(func, target)[0]
    return sketches_named(func, target, lambda name: name == first)[0]


def search_of(func: Func, target: Target, **options: Any) -> Search:
    """A search in sketches that several tests have in common."""
    return Search(func, target, prepared=sketches_of(func, target), **options)
