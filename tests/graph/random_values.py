"""Values of random graphs with what they hold, so that a graph is only given nodes that say much.

A node is computed as it is added: as the graph's reference does, in float64, and twice in float64
with noise of the size of the roundings. What the noise changes much (differences of equal numbers,
an integer of a float near a step) would hide wrong results behind a wide tolerance: such a node is
refused. What it changes little is how far two right results may be apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.ir import Constant, Node, Value
from tilewright.graph.operator import Kind, find

Array: TypeAlias = "np.ndarray[Any, Any]"
Pick: TypeAlias = Callable[[int], int]
"""A number in range(n)."""
FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = (*SIGNED, "uint8", "uint16", "uint32", "uint64")
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
MOST_ELEMENTS = 1 << 14
MOST_LOSS = 1 / 64
"""Of the largest element, that noise may change in a result, times what a narrow dtype adds."""
ARITHMETIC = {"add", "subtract", "multiply", "sum", "mean", "matmul", "conv", "sum_pool", "divide"}
ARITHMETIC |= {"abs", "negative", "relu", "maximum", "minimum", "floor", "ceil", "round", "sign"}
ARITHMETIC |= {"where", "clip", "cast", "leaky_relu", "accumulate", "prod", "max", "min", "scatter"}
ARITHMETIC |= {"scatter_nd"}
STEPS = {"floor", "ceil", "round", "sign", "fmod", "remainder", "equal", "less", "less_equal"}
STEPS |= {"argmax", "argmin", "top", "cast"}
"""Operators that change much where their first operand changes little."""
EXACT_KINDS = {Kind.VIEW, Kind.MOVEMENT}
EXACT = {"take", "take_along", "take_nd", "max_pool", "top"}


def noise_of(dtype: str) -> float:
    """Half of the last place of floats of a dtype, relative."""
    return float(2.0 ** -(dtypes.info(dtype).mantissa + 1))


@dataclass(frozen=True)
class Held:
    """What a value holds: as the reference computes it, exactly, and with noise."""

    own: Array
    exact: Array
    noisy: tuple[Array, Array]

    @staticmethod
    def given(array: Array) -> Held:
        wide = _wide(array)
        return Held(array, wide, (wide, wide))

    @property
    def lanes(self) -> tuple[Array, ...]:
        return (self.own, self.exact, *self.noisy)

    @property
    def has_edges(self) -> bool:
        return _is_float(self.own) and not np.isfinite(self.exact).all()

    def tolerance(self) -> Array | float:
        """How far the elements of another right result may be from the exact ones."""
        dtype = dtypes.from_numpy(self.own.dtype)
        if not dtypes.is_float(dtype) or not self.exact.size:
            return 0.0
        with np.errstate(all="ignore"):
            spread = [np.nan_to_num(np.abs(n - self.exact), posinf=0) for n in self.noisy]
        changed = np.maximum(*spread)
        if not changed.any() and np.array_equal(self.own, self.exact, equal_nan=True):
            return 0.0
        size = np.nan_to_num(np.abs(self.exact), posinf=0)
        last_place = 8 * noise_of(dtype) * size + tiny_of(dtype)
        return np.asarray(16 * changed + 8 * changed.mean() + last_place)

    def difference(self, found: Array) -> str:
        """What is wrong with a result; nothing if it is right."""
        if found.dtype != self.own.dtype or found.shape != self.own.shape:
            return f"{found.dtype}{list(found.shape)}"
        tolerance = self.tolerance()
        wide = _wide(found)
        with np.errstate(all="ignore"):
            near = np.abs(wide - self.exact) <= tolerance if _is_float(found) else False
        same = (wide == self.exact) | (np.isnan(wide) & np.isnan(self.exact)) | near
        if same.all():
            return ""
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        count = int((~same).sum())
        allowed = np.broadcast_to(tolerance, same.shape)[at]
        return (
            f"{count} of {found.size} elements, the first at {at}: "
            f"{found[at]!r}, expected {self.exact[at]!r}, tolerance {allowed:.3g}"
        )


def tiny_of(dtype: str) -> float:
    """What is lost where numbers become subnormal."""
    return {"float16": 2.0**-24, "float64": 2.0**-1022}.get(dtype, 2.0**-126)


def _is_float(array: Array) -> bool:
    return dtypes.is_float(dtypes.from_numpy(array.dtype))


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if _is_float(array) else array


@dataclass(frozen=True)
class Style:
    """What numbers a graph is given: `normal`, `whole` (small, of few bits), or with `edges`."""

    numbers: str = "normal"
    zeros: bool = False
    """Whether extents may be 0."""
    floats: tuple[str, ...] = ("float32",)
    fresh: int = 0
    """Of 8 operands, how many are new ones where there are others."""


class Pool:
    """A graph in the making, and what its values hold."""

    def __init__(self, pick: Pick, style: Style) -> None:
        self.pick = pick
        self.style = style
        self.builder = Builder("random")
        self.held: dict[Value, Held] = {}
        self.arguments: dict[str, Array] = {}
        self.refused = Counter[str]()
        self.last: Value | None = None
        """The value that a chain of nodes goes on with."""
        self._rng = np.random.default_rng(pick(1 << 16))

    # What operators are given.

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.pick(len(choices))]

    def chance(self, of: int) -> bool:
        return self.pick(of) == of - 1

    def extent(self, least: int = 1) -> int:
        size = self.one_of(SIZES) if not self.chance(12) else self.one_of((33, 40, 65))
        return max(int(size), least)

    def shape(self, low: int = 0, high: int = 4, least: int = 1) -> tuple[int, ...]:
        """A shape of `low` to `high` dimensions, of few elements."""
        rank = low + self.pick(high - low + 1)
        found: list[int] = []
        for _ in range(rank):
            extent = self.extent(least)
            fits = extent * int(np.prod([max(e, 1) for e in found], dtype=int)) <= MOST_ELEMENTS
            found.append(extent if fits else least)
        if self.style.zeros and found and least == 1 and self.chance(3):
            found[self.pick(rank)] = 0
        return tuple(found)

    def axis(self, rank: int) -> int:
        """An axis, which counts from the end sometimes."""
        axis = self.pick(rank)
        return axis - rank if self.chance(6) else axis

    def value(self, dtypes: Sequence[str], low: int = 0, high: int = 4) -> Value:
        """A value of one of the dtypes and so many dimensions: mostly one that is there."""
        fits = [
            v for v in self.held if v.dtype in dtypes and low <= v.type.rank <= high
            and v.type.size <= MOST_ELEMENTS
        ]  # fmt: skip
        if self.last in fits and not self.chance(4):
            return self.last
        if fits and self.pick(8) >= self.style.fresh:
            late = fits[-3:] if self.chance(2) else fits
            found: Value = self.one_of(late)
            return found
        return self.new(TensorType(self.one_of(dtypes), self.shape(low, high)))

    def floats(self, low: int = 0, high: int = 4) -> Value:
        return self.value(self.style.floats, low, high)

    def of(self, dtype: str, shape: Sequence[int]) -> Value:
        """A value of that type: one that is there, one that is made of it, or a new one."""
        type = TensorType(dtype, tuple(shape))
        if self.pick(8) < self.style.fresh:
            return self.new(type)
        same = [v for v in self.held if v.type == type]
        if same and not self.chance(3):
            found: Value = self.one_of(same)
            return found
        others = [v for v in self.held if v.dtype == dtype and v.type.size >= type.size > 0]
        if others and self.chance(4):
            return self._cut(self.one_of(others), type) or self.new(type)
        return self.new(type)

    def _cut(self, value: Value, type: TensorType) -> Value | None:
        """The first elements of another value; `None` where they say little."""
        steps: list[tuple[str, dict[str, Any]]] = []
        if value.type.rank != 1:
            steps.append(("reshape", {"shape": (value.type.size,)}))
        if value.type.size != type.size:
            steps.append(("slice", {"starts": (0,), "steps": (1,), "shape": (type.size,)}))
        if type.rank != 1:
            steps.append(("reshape", {"shape": type.shape}))
        for name, attributes in steps:
            made = self.add(name, value, **attributes)
            if made is None:
                return None
            (value,) = made
        return value

    def broadcastable(self, dtype: str, shape: Sequence[int]) -> Value:
        """An operand that broadcasts to a shape."""
        own = tuple(shape)
        if not self.chance(3):
            return self.of(dtype, own)
        cut = own[self.pick(len(own) + 1) :]
        return self.of(dtype, tuple(1 if self.chance(3) else e for e in cut))

    def indices(self, shape: Sequence[int], extent: int, *, negative: bool = True) -> Value:
        """Integers from -extent (0 without `negative`) to below extent."""
        extent = max(extent, 1)  # of none, the record refuses
        low = -extent if negative else 0
        dtype = self.one_of(("int32", "int64"))
        return self.new(TensorType(dtype, tuple(shape)), low=low, high=extent)

    def new(self, type: TensorType, low: int | None = None, high: int | None = None) -> Value:
        """A new input or constant of random elements."""
        return self.given(self.elements(type, low, high))

    def given(self, array: Array) -> Value:
        """A new input or constant of these elements."""
        if self.chance(3):
            return self.constant(array)
        name = f"x{len(self.builder.inputs)}"
        type = TensorType(dtypes.from_numpy(array.dtype), array.shape)
        value = self.builder.input(name, type)
        self.arguments[name] = array
        self.held[value] = Held.given(array)
        return value

    def constant(self, data: Any, dtype: str | None = None) -> Value:
        """A constant of known elements."""
        held = self.builder.constant(data, dtype)
        self.held.setdefault(held, Held.given(held.data))
        return held

    def elements(self, type: TensorType, low: int | None = None, high: int | None = None) -> Array:
        """Random elements; integers from `low` to below `high` where they are given."""
        kind = dtypes.info(type.dtype).kind
        wanted, rng, shape = dtypes.to_numpy(type.dtype), self._rng, type.shape
        found: Any
        if kind == "bool":
            return np.asarray(rng.integers(0, 2, shape)).astype(wanted)
        if kind != "float":
            if low is None and self.style.numbers == "edges" and self.chance(2):
                first, last = dtypes.int_limits(type.dtype)
                limits = np.array([first, first + 1, 0, 1, 2, last], wanted)
                return np.asarray(rng.choice(limits, shape), wanted)
            least = (0 if kind == "uint" else -9) if low is None else low
            found = rng.integers(least, 10 if high is None else high, shape)
            return np.asarray(found, wanted)
        if self.style.numbers == "whole":
            return np.asarray(rng.integers(-8, 9, shape) / 2).astype(wanted)
        found = rng.standard_normal(shape)
        if self.style.numbers == "edges" and self.chance(2):
            edges = rng.choice([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], shape)
            found = np.where(rng.random(shape) < 0.2, edges, found)
        return np.asarray(found).astype(wanted)

    # Nodes.

    def add(self, name: str, *inputs: Value, **attributes: Any) -> tuple[Value, ...] | None:
        """The outputs of a node, or `None` where it is refused, or would say little."""
        try:
            outputs = self.builder.add_all(name, *inputs, **attributes)
        except ModelError:
            self.refused[name] += 1
            return None
        if all(output in self.held for output in outputs):
            return outputs
        if all(isinstance(output, Constant) for output in outputs):
            found = [Held.given(o.data) for o in outputs if isinstance(o, Constant)]
        else:
            node = self.builder.producers[outputs[0]]
            found = self._computed(node)
        edges = self.style.numbers == "edges"
        if not all(map(_says_much if not edges else _is_steady, found)):
            return None
        if any(o.type.size > 4 * MOST_ELEMENTS for o in outputs):
            return None
        self.held.update(zip(outputs, found, strict=True))
        return outputs

    def _computed(self, node: Node) -> list[Held]:
        """What a node's outputs hold. Where it rounds, its operands have noise, and its results."""
        record = find(node.operator)
        given = [self.held[v] for v in node.inputs]
        own = _evaluated(node, [h.own for h in given], exact=False)
        exact = _evaluated(node, [h.exact for h in given], exact=True)
        equal = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(own, exact, strict=True))
        equal &= all(o.dtype != "float64" for o in node.outputs)  # whose own results are no others
        moves = record.kind in EXACT_KINDS or node.operator in EXACT
        rounds = not moves and not (node.operator in ARITHMETIC and equal)
        noisy: list[list[Array]] = []
        for lane in (0, 1):
            arrays = [h.noisy[lane] for h in given]
            if node.operator in STEPS and not np.array_equal(arrays[0], given[0].own):
                up = 16 * noise_of(node.inputs[0].dtype) * (1 if lane else -1)
                arrays[0] = arrays[0] + up * np.where(np.isfinite(arrays[0]), np.abs(arrays[0]), 0)
            if rounds:
                arrays = [self._noise(a, v.dtype) for a, v in zip(arrays, node.inputs, strict=True)]
            made = _evaluated(node, arrays, exact=True)
            if rounds:
                least = 0.0 if node.operator in ARITHMETIC else 1.0
                made = [
                    self._noise(a, v.dtype, least) for a, v in zip(made, node.outputs, strict=True)
                ]
            noisy.append(made)
        return [Held(a, b, (c, d)) for a, b, c, d in zip(own, exact, *noisy, strict=True)]

    def _noise(self, array: Array, dtype: str, least: float = 0.0) -> Array:
        """Each float a place or two up or down: places of `least`, of smaller ones."""
        if not dtypes.is_float(dtype):
            return array
        places = self._rng.choice([-3.0, -1.0, 1.0, 3.0], array.shape)
        size = np.where(np.isfinite(array), np.maximum(np.abs(array), least), 0)
        return np.asarray(array + size * noise_of(dtype) * places)

    def graph(self, outputs: Sequence[Value]) -> Graph:
        return self.builder.graph({f"y{k}": v for k, v in enumerate(outputs)})


def _evaluated(node: Node, arrays: Sequence[Array], *, exact: bool) -> list[Array]:
    """The outputs of a node, as the graph's reference computes them."""
    attributes = dict(node.attributes)
    own = attributes.get("dtype")
    if exact and isinstance(own, str) and dtypes.is_float(own):
        attributes["dtype"] = "float64"
    if not any(output.type.size for output in node.outputs):
        return [np.empty(o.shape, dtypes.to_numpy(o.dtype)) for o in node.outputs]
    with np.errstate(all="ignore"):
        found = find(node.operator).evaluate(arrays, attributes)
    return [
        np.asarray(
            result if exact and dtypes.is_float(o.dtype) else result.astype(
                dtypes.to_numpy(o.dtype), copy=False
            )
        ).reshape(o.shape)
        for result, o in zip(found, node.outputs, strict=True)
    ]  # fmt: skip


def _says_much(held: Held) -> bool:
    """Whether all elements are finite and of a usual size, and steady."""
    if not _is_float(held.own):
        return _is_steady(held)
    with np.errstate(all="ignore"):
        most = np.abs(held.exact).max(initial=0.0)
    return bool(np.isfinite(most)) and most < 1e4 and _is_steady(held)


def _is_steady(held: Held) -> bool:
    """Whether noise changes little: of integers nothing, and what is finite stays so."""
    if not held.exact.size:
        return True
    if not _is_float(held.own):
        return all(np.array_equal(held.exact, other) for other in (held.own, *held.noisy))
    finite = np.isfinite(held.exact)
    for other in (held.own.astype(np.float64), *held.noisy):
        if not np.array_equal(np.isfinite(other), finite):
            return False
        if not np.array_equal(other[~finite], held.exact[~finite], equal_nan=True):
            return False
    largest = np.abs(held.exact[finite]).max(initial=0.0)
    allowed = largest * (MOST_LOSS + 32 * noise_of(dtypes.from_numpy(held.own.dtype)))
    lanes = (held.own.astype(np.float64), *held.noisy)
    return all(
        np.abs(other[finite] - held.exact[finite]).max(initial=0.0) <= allowed for other in lanes
    )
