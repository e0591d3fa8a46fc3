"""Check the programs of an instruction: their form, and that both compute the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..base import dtypes
from ..base.errors import IRError, similar
from ..target import registered_kinds
from .instruction import Instruction, elements, product_in
from .instruction_match import stores, tile_of
from .interpreter import interpret
from .ir import Buffer, Load, Store, Var, integers
from .verify import verify
from .visit import walk

MAX_ELEMENTS = 4096
"""Of a buffer of an instruction."""


def check_instruction(instruction: Instruction) -> None:
    """Raise `IRError` if a program is not of the form that `instruction` describes, where the
    two do not compute the same on random numbers, or where the facts beside them do not fit."""
    _check_semantics(instruction)
    _check_implementation(instruction)
    _check_values(instruction)
    _check_facts(instruction)


def _check_semantics(instruction: Instruction) -> None:
    func = instruction.semantics
    tile = tile_of(func.body)
    if tile is None or any(n < 2 for _, n in tile.loops) or func.allocs:
        raise IRError(
            "{0}: the semantics must be loops of two iterations or more around one store",
            instruction.name,
        )
    extents = dict(tile.loops)
    for n in walk(tile.store):
        if type(n) is not Load and type(n) is not Store:
            continue
        fits = [
            type(e) is Var and extents.get(e) == size
            for e, size in zip(n.indices, n.buffer.shape, strict=True)
        ]
        if not all(fits) or len(set(n.indices)) < len(n.indices) or n.mask is not None:
            raise IRError(
                "{0}: the semantics must use each dimension of {1} by a loop of its own, over all "
                "of it", instruction.name, n.buffer.name,
            )  # fmt: skip
    verify(func)


def _check_implementation(instruction: Instruction) -> None:
    func, params = instruction.implementation, instruction.semantics.params
    mine = [p for p in func.params if isinstance(p, Buffer)]
    theirs = [p for p in params if isinstance(p, Buffer)]
    if (
        len(mine) != len(params)
        or len(mine) != len(func.params)
        or any(
            a.dtype != b.dtype or elements(a) != elements(b)
            for a, b in zip(mine, theirs, strict=True)
        )
        or any(elements(a) > MAX_ELEMENTS for a in mine)
    ):
        raise IRError(
            "{0}: the implementation must have the buffers of the semantics as parameters, with the"
            " same dtypes and numbers of elements, at most {1}", instruction.name, MAX_ELEMENTS,
        )  # fmt: skip
    for s in stores(instruction):
        for n in walk(s):
            if type(n) is Var or (type(n) in (Load, Store) and n.mask is not None):
                raise IRError(
                    "{0}: the implementation must be straight code without masks, at constant "
                    "indices", instruction.name,
                )  # fmt: skip
    verify(func)


def _check_values(instruction: Instruction) -> None:
    difference = difference_of(instruction, partial(interpret, instruction.implementation))
    if difference is not None:
        raise IRError(
            "{0}: semantics and implementation compute different values: {1}",
            instruction.name, difference,
        )  # fmt: skip


class Difference(NamedTuple):
    """An element of a buffer of an instruction, with the value that its semantics computes."""

    buffer: str
    place: tuple[int, ...]
    value: object
    expected: object

    def __str__(self) -> str:
        index = ", ".join(map(str, self.place))
        return f"{self.buffer}[{index}] is {self.value}, expected {self.expected}"


def difference_of(instruction: Instruction, run: Callable[..., object]) -> Difference | None:
    """Compare what `run` computes with the semantics, on random and on extreme numbers.

    `run` gets an array for each parameter of the implementation. Returns the first element that
    differs, `None` if there is none.
    """
    rng = np.random.default_rng(0)
    for values in (_random, _random, _extreme, _extreme):
        given = [values(p, rng) for p in instruction.semantics.params if isinstance(p, Buffer)]
        expected = [a.copy() for a in given]
        found = [
            a.copy().reshape(p.shape)  # type: ignore[union-attr]
            for a, p in zip(given, instruction.implementation.params, strict=True)
        ]
        interpret(instruction.semantics, *expected)
        run(*found)
        for want, have, p in zip(expected, found, instruction.semantics.params, strict=True):
            have = have.reshape(want.shape)
            differs = ~_close(want, have)
            if differs.any():
                index = tuple(int(n) for n in np.argwhere(differs)[0])
                return Difference(p.name, index, have[index], want[index])
    return None


def _check_facts(instruction: Instruction) -> None:
    name, kind = instruction.name, instruction.unit.kind
    kinds = registered_kinds()
    if kind not in kinds:
        raise IRError(
            "{0} is an instruction of {1!r}, which is no kind of target; known: {2}",
            name, kind, ", ".join(kinds), hint=similar(kind, kinds),
        )  # fmt: skip
    requires: object = instruction.requires
    for names in [requires] if isinstance(requires, str) else instruction.requires:
        if not isinstance(names, tuple):
            raise IRError(
                "{0}: `requires` has {1!r}; expected a tuple of alternatives, each one a tuple of "
                "features", name, names,
                hint=f"requires=(({names!r},),)",
            )  # fmt: skip
    for feature in chain(*instruction.requires):
        if feature not in kinds[kind].feature_names:
            raise IRError(
                "{0} requires the feature {1!r}, which no target has",
                name, feature, hint=similar(feature, kinds[kind].feature_names),
            )  # fmt: skip
    if instruction.product != product_in(instruction.implementation):
        raise IRError(
            "{0} is said to compute {1}, and its implementation is {2}",
            name, instruction.product, product_in(instruction.implementation),
        )  # fmt: skip
    if instruction.code and instruction.product is None:
        raise IRError(
            "{0} is to be written as {1}, and its implementation is no product",
            name, instruction.code,
            hint="emitters find an instruction by its product: write T.dot or T.matmul, or leave "
            "`code` out",
        )  # fmt: skip


def _random(b: Buffer, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    facts = dtypes.info(b.dtype)
    shape = integers(b.shape)
    if facts.kind == "float":
        values: np.ndarray[Any, Any] = rng.uniform(-1, 1, shape)
    elif facts.kind == "bool":
        values = rng.integers(0, 2, shape)
    else:
        low, high = dtypes.int_limits(b.dtype)
        values = rng.integers(max(low, -(1 << 40)), min(high, 1 << 40), shape, endpoint=True)
    return values.astype(dtypes.to_numpy(b.dtype))


def _extreme(b: Buffer, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Numbers at which arithmetic of another sign, or one that saturates, differs most."""
    facts = dtypes.info(b.dtype)
    if facts.kind not in ("int", "uint"):
        choices: tuple[float, ...] = (0, 1) if facts.kind == "bool" else (-1.0, -0.0, 0.0, 1.0)
    else:
        low, high = dtypes.int_limits(b.dtype)
        choices = (low, high) if low == 0 else (low, -1, high)
    picked = rng.integers(0, len(choices), integers(b.shape))
    values: np.ndarray[Any, Any] = np.array(choices, dtypes.to_numpy(b.dtype))[picked]
    return values


def _close(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements of two arrays are the same number, but for the order of sums."""
    if not dtypes.is_float(dtypes.from_numpy(a.dtype)):
        return np.asarray(a == b)
    error = 2.0 ** -(dtypes.info(dtypes.from_numpy(a.dtype)).mantissa - 3)
    x, y = a.astype(np.float64), b.astype(np.float64)
    return np.asarray(np.isclose(x, y, rtol=error, atol=error))
