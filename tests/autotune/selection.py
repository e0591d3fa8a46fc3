"""Which sketches of a program have their candidates run.

A combination of packed operands, for instance, comes up in many programs. `LEAST` sketches of each
program are tried. In long runs each of the choices that rules make is tried, too, for one
program at least of each list of dtypes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from tilewright import ops
from tilewright.autotune.rules import SketchPlan
from tilewright.autotune.rules.draft import RuleChoice, generator_of
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.target import Target
from tilewright.tir.ir import Buffer, Func

from ..long import LONG
from .checking import plans_of
from .formulas import FORMULAS

LEAST = 4
Tried = tuple[RuleChoice, tuple[str, ...]]
"""A choice, and the dtypes of the parameters of the program that it is made for."""

POINTWISE: dict[str, Any] = {"kernel": 1, "padding": 0}
OPERATORS: list[tuple[str, dict[str, Any]]] = [
    ("matmul_func", {"n": 33, "m": 50, "k": 17}),
    ("matmul_func", {"n": 13, "m": 32, "k": 8, "bias": True, "epilogue": "relu"}),
    ("matmul_func", {"n": 9, "m": 19, "k": 16, "batch": 2, "transpose_b": True}),
    ("matmul_func", {"n": 1, "m": 40, "k": 30}),
    ("matmul_func", {"n": 3, "m": 63, "k": 5}),
    ("matmul_func", {"n": 1, "m": 12, "k": 30, "batch": 3}),
    ("matmul_func", {"n": 13, "m": 1, "k": 9, "batch": 2, "transpose_a": True}),
    ("int8_matmul_func", {"n": 10, "m": 20, "k": 12}),
    ("int8_matmul_func", {"n": 10, "m": 48, "k": 16}),
    ("matmul_func", {"n": 9, "m": 21, "k": 11, "dtype": "uint8", "dtype_b": "int8"}),
    (
        "matmul_func",
        {"n": 7, "m": 37, "k": 8, "dtype": "uint8", "dtype_b": "int8", "epilogue": "relu"},
    ),
    (
        "matmul_func",
        {
            "n": 7,
            "m": 32,
            "k": 8,
            "dtype": "uint8",
            "dtype_b": "int8",
            "batch": 2,
            "transpose_b": True,
            "bias": True,
        },
    ),
    ("conv2d_func", {"c": 5, "h": 9, "w": 19, "o": 7}),
    ("conv2d_func", {"c": 4, "h": 8, "w": 8, "o": 6, "stride": 2, "layout": "NHWC", "bias": True}),
    ("conv2d_func", {**POINTWISE, "c": 5, "h": 7, "w": 9, "o": 19}),
    ("conv2d_func", {**POINTWISE, "c": 40, "h": 7, "w": 9, "o": 12, "bias": True}),
    ("conv2d_func", {**POINTWISE, "c": 16, "h": 14, "w": 14, "o": 16, "epilogue": "relu"}),
    ("conv2d_func", {**POINTWISE, "n": 2, "c": 5, "h": 7, "w": 9, "o": 19, "layout": "NHWC"}),
    ("conv2d_func", {"n": 2, "c": 8, "h": 7, "w": 9, "o": 24, "groups": 2, "bias": True}),
    ("conv2d_func", {"c": 6, "h": 6, "w": 5, "o": 32, "groups": 2, "layout": "NHWC"}),
    ("conv2d_func", {"n": 16, "c": 4, "h": 4, "w": 4, "o": 20}),
    ("conv2d_func", {"n": 2, "c": 24, "h": 5, "w": 13, "o": 20, "dtype": "int8"}),
    ("conv2d_func", {**POINTWISE, "c": 1, "h": 5, "w": 9, "o": 16, "dtype": "int8"}),
    ("depthwise_conv2d_func", {"c": 5, "h": 8, "w": 17}),
    ("pool2d_func", {"c": 3, "h": 9, "w": 18}),
    ("matmul_func", {"n": 37, "m": 40, "k": 65, "dtype": "int8", "epilogue": "relu"}),
    ("softmax_func", {"n": 5, "m": 37}),
    ("softmax_func", {"n": 300, "m": 1000}),
    ("layer_norm_func", {"n": 5, "m": 48}),
    ("add_relu_func", {"n": 131}),
    ("transpose_func", {"n": 21, "m": 35}),
    ("reduction_func", {"n": 21, "m": 35, "axis": 0}),
    ("reduction_func", {"n": 21, "m": 35, "axis": 1}),
    ("reduction_func", {"n": 21, "m": 35, "axis": 1, "kind": "argmax"}),
    ("reduction_func", {"n": 35, "m": 21, "axis": 0, "kind": "argmin"}),
    ("attention_func", {"batch": 1, "heads": 2, "sequence": 9, "dim": 16}),
    ("attention_func", {"batch": 1, "heads": 2, "sequence": 97, "dim": 16, "causal": True}),
]


@cache
def operator(number: int) -> Func:
    """A program of an operator, one object for all tests."""
    name, options = OPERATORS[number]
    func = getattr(ops, name)(**options)
    assert isinstance(func, Func)
    return func


def operator_name(number: int) -> str:
    name, options = OPERATORS[number]
    return f"{name}-{'-'.join(map(str, options.values()))}"


def programs() -> Iterator[Func]:
    yield from map(operator, range(len(OPERATORS)))
    yield from (make() for make in FORMULAS.values())


def selected(func: Func, target: Target) -> tuple[Sketch, ...]:
    """Sketches of one of `programs`, whose candidates are to be run.

    Where a step of one is refused it has no candidates: then all that are left are taken.
    """
    wanted = _selection(target)[func] if LONG else _taken(plans_of(func, target), [])
    made = sketches(func, target, wanted)
    return made if len(made) == len(wanted) else sketches(func, target)


def tried(func: Func, plan: SketchPlan) -> set[Tried]:
    dtypes = tuple(p.dtype for p in func.params if isinstance(p, Buffer))
    return {(choice, dtypes) for choice in plan.choices}


@cache
def _selection(target: Target) -> dict[Func, frozenset[str]]:
    """The generators of the sketches to take, by program."""
    found: dict[Func, frozenset[str]] = {}
    seen: set[Tried] = set()
    for func in programs():
        plans, taken = plans_of(func, target), list[SketchPlan]()
        for plan in plans:
            if not tried(func, plan) <= seen:
                taken.append(plan)
                seen |= tried(func, plan)
        found[func] = _taken(plans, taken)
    return found


def _taken(plans: list[SketchPlan], taken: list[SketchPlan]) -> frozenset[str]:
    """The generators of the sketches that are taken, and of others up to `LEAST`."""
    rest = [plan for plan in plans if plan not in taken]
    more = max(0, LEAST - len(taken))
    taken += rest[:: max(1, len(rest) // more)][:more] if more else []
    return frozenset(generator_of(plan.choices) for plan in taken)
