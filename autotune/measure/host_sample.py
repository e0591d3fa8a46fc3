"""Single elements of a program's results, computed on the host in float64.

A device is not judged by itself alone: a random sample of the elements that the unscheduled program
computes there is compared with what its blocks say, read backwards from these elements.

    C[i, j] = C[i, j] + A[i, k] * B[k, j]    of C[3, 5]: the sum over k of A[3, k] * B[k, 5]

The elements of a block are evaluated together, as arrays, and once each. Programs of plain blocks
are sampled: each writes a buffer of its own, an element for each of its spatial iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...runtime.measure.output_sample import OutputSample
from ...tir import array_arithmetic
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    IterKind,
    Load,
    Op,
    Select,
    Stmt,
    Store,
    Var,
    integers,
)
from ...tir.visit import nested, reads_from, stored_buffers
from ...tir.widen import widened

Array = np.ndarray[Any, Any]
Points = Mapping[Var, Array]
SAMPLES = 64
"""Elements of each output."""
BUDGET = 1 << 25
"""Iterations of blocks that are evaluated: a second or two."""
_CHUNK = 1 << 20
_REDUCTIONS = {Op.ADD: np.add, Op.MUL: np.multiply, Op.MIN: np.minimum, Op.MAX: np.maximum}


class NotSampled(Exception):
    """Why elements of a program are not computed on their own."""


class TooMany(Exception):
    """Elements that take more iterations than the budget has."""


def check_sample(
    func: Func,
    arguments: Sequence[Any],
    outputs: Sequence[Array],
    tolerance: float,
) -> str | None:
    """Compare elements of `outputs`, those of a concrete program called with `arguments`.

    An error beyond `tolerance` is accepted if that of the program's own arithmetic on the host is
    comparable. Returns why nothing is compared, in words; `None` where the sample agrees. Raises
    `KernelError` where it does not.
    """
    try:
        samples = host_sample(func, arguments)
    except NotSampled as reason:
        return str(reason)
    for sample, output in zip(samples, outputs, strict=True):
        sample.check(output, tolerance)
    return None


def host_sample(func: Func, arguments: Sequence[Any]) -> list[OutputSample]:
    """Elements of each output of a concrete program called with `arguments` (on the host).

    Raises `NotSampled` for a program whose elements are not computed on their own.
    """
    written = [p for p in func.params if isinstance(p, Buffer) and p in stored_buffers(func)]
    try:
        places, exact = _as_many(widened(func), written, func, arguments)
    except IRError as error:
        raise NotSampled(str(error)) from error

    @cache
    def own() -> list[Array]:
        return _elements_of(func, written, func, arguments, places)

    return [
        OutputSample(b.name, b.dtype, places[n], exact[n], partial(lambda k: own()[k], n))
        for n, b in enumerate(written)
    ]


def _as_many(
    wide: Func, written: Sequence[Buffer], func: Func, arguments: Sequence[Any]
) -> tuple[list[Array], list[Array]]:
    """The places and values of as many elements as the budget allows. Raises `NotSampled`."""
    for count in (SAMPLES, SAMPLES // 8, 1):
        rng = np.random.default_rng(0)
        samples = [_places(rng, math.prod(integers(b.shape)), count) for b in written]
        try:
            return samples, _elements_of(wide, written, func, arguments, samples)
        except TooMany:
            continue
    raise NotSampled(f"one of its elements takes more than {BUDGET} iterations")


def _places(rng: np.random.Generator, size: int, count: int) -> Array:
    """Random flat positions in an array, in order, without any twice."""
    return np.unique(rng.integers(0, size, min(count, size))) if size else np.zeros(0, np.int64)


def _elements_of(
    func: Func,
    written: Sequence[Buffer],
    original: Func,
    arguments: Sequence[Any],
    samples: Sequence[Array],
) -> list[Array]:
    """The elements at `samples` (flat positions) of the outputs by `func`, a form of `original`."""
    given = dict(zip(func.params, arguments, strict=True))
    new = dict(zip(original.params, func.params, strict=True))
    host = _Host(func, given)
    with np.errstate(all="ignore"):
        return [
            host.elements(buffer, places)
            for buffer, places in zip((new[b] for b in written), samples, strict=True)
            if isinstance(buffer, Buffer)
        ]


class _Rule(NamedTuple):
    """A block that writes a buffer: `value` for each point of its iterations.

    `op` combines those of its reduction with `init`; `None` where it reduces nothing.
    """

    block: Block
    indices: tuple[Expr, ...]
    value: Expr
    op: Op | None
    init: Expr | None


class _Host:
    """Evaluates elements of a program's buffers."""

    def __init__(self, func: Func, given: Mapping[Buffer | Var, Any]) -> None:
        self._given = given
        self._rules = _rules(func)
        self._left = BUDGET

    def elements(self, buffer: Buffer, places: Array) -> Array:
        """The elements at different flat positions."""
        if buffer not in self._rules:
            return np.asarray(self._given[buffer]).reshape(-1)[places].astype(_number(buffer.dtype))
        rule = self._rules[buffer]
        shape = integers(buffer.shape)
        points = np.unravel_index(places, shape)
        repeated = [i for i in rule.block.iters if i.kind is not IterKind.SPATIAL]
        extents = [_size(i.extent) for i in repeated]
        total = math.prod(extents)
        self._left -= total * len(places)
        if self._left < 0:
            raise TooMany
        results = np.empty(len(places), _number(buffer.dtype))
        together = max(1, _CHUNK // max(1, min(total, _CHUNK)))
        for first in range(0, len(places), together):
            part = slice(first, first + together)
            at = {
                index: point[part][:, None]
                for index, point in zip(rule.indices, points, strict=True)
                if isinstance(index, Var)
            }
            results[part] = self._reduced(rule, at, [i.var for i in repeated], extents)
        return results

    def _reduced(
        self, rule: _Rule, at: Points, variables: Sequence[Var], extents: Sequence[int]
    ) -> Array:
        """The value of a rule at points (n, 1)."""
        count = len(next(iter(at.values()), np.empty(1)))
        if rule.op is None:
            return np.broadcast_to(self._value(rule.value, at), (count, 1))[:, 0]
        combine, total = _REDUCTIONS[rule.op], math.prod(extents)
        assert rule.init is not None
        result = np.broadcast_to(self._value(rule.init, at), (count, 1))[:, 0]
        for first in range(0, total, _CHUNK):
            steps = np.arange(first, min(first + _CHUNK, total))
            place = np.unravel_index(steps, extents)
            inner = {v: p[None, :] for v, p in zip(variables, place, strict=True)}
            terms = np.broadcast_to(self._value(rule.value, {**at, **inner}), (count, len(steps)))
            last = combine.accumulate(terms, axis=1, dtype=terms.dtype)[:, -1]
            result = combine(result, last)
        return result

    def _value(self, e: Expr, at: Points) -> Array:
        """An expression at points."""
        match e:
            case Var() if e in at:
                return at[e].astype(_number(e.dtype))
            case Var():
                return np.asarray(self._given[e], _number(e.dtype)).reshape(1, 1)
            case Const():
                return array_arithmetic.constant(e.value, e.dtype).reshape(1, 1)
            case Binary():
                function = array_arithmetic.binary(e.op, e.a.dtype)
                return function(self._value(e.a, at), self._value(e.b, at))
            case Call():
                given = np.broadcast_arrays(*(self._value(a, at) for a in e.args))
                flat = array_arithmetic.call(e.fn, e.dtype)(*(a.reshape(-1) for a in given))
                return flat.reshape(given[0].shape)
            case Cast():
                return array_arithmetic.cast(e.value.dtype, e.dtype)(self._value(e.value, at))
            case Select():
                cond, then, other = (self._value(x, at) for x in (e.cond, e.then, e.other))
                return np.where(cond, then, other)
            case Load() if e.mask is None:
                return self._load(e, at)
        raise NotSampled(f"it has an expression of kind {type(e).__name__}")

    def _load(self, e: Load, at: Points) -> Array:
        """The elements of a load; what a condition around it excludes is any element."""
        shape = integers(e.buffer.shape)
        indices = [
            np.clip(self._value(i, at), 0, n - 1) for i, n in zip(e.indices, shape, strict=True)
        ]
        if not indices:
            return self.elements(e.buffer, np.zeros(1, np.int64)).reshape(1, 1)
        flat = np.ravel_multi_index(tuple(np.broadcast_arrays(*indices)), shape)
        places, back = np.unique(flat.reshape(-1), return_inverse=True)
        return self.elements(e.buffer, places)[back.reshape(-1)].reshape(flat.shape)


def _rules(func: Func) -> dict[Buffer, _Rule]:
    """The block that writes each buffer. Raises `NotSampled` for programs of others."""
    if func.inplace:
        raise NotSampled("it changes arguments in place")
    rules = {}
    for block, around in _blocks(func.body):
        rule, buffer = _rule(block)
        if math.prod(around) != math.prod(_size(i.extent) for i in block.iters):
            raise NotSampled(f"the block {block.label.name} does not run all of its iterations")
        if buffer in rules:
            raise NotSampled(f"several blocks write {buffer.name}")
        rules[buffer] = rule
    if rules.keys() != stored_buffers(func):
        raise NotSampled("statements outside of blocks write memory")
    return rules


def _blocks(stmt: Stmt, around: tuple[int, ...] = ()) -> Iterator[tuple[Block, tuple[int, ...]]]:
    """The blocks in a statement, with the extents of the loops around them."""
    if type(stmt) is Block:
        yield stmt, around
    if type(stmt) is If:
        raise NotSampled("it has conditions around blocks")
    inside = (*around, _size(stmt.extent)) if type(stmt) is For else around
    for below in nested(stmt):
        yield from _blocks(below, inside)


def _rule(block: Block) -> tuple[_Rule, Buffer]:
    name = block.label.name
    body, init = block.body, block.init
    if type(body) is not Store or body.mask is not None or block.predicate is not None:
        raise NotSampled(f"the block {name} is more than an assignment")
    free = {i.var for i in block.iters if i.kind is IterKind.SPATIAL}
    named = [i for i in body.indices if isinstance(i, Var)]
    if set(named) != free or len(named) != len(free) or len(named) != len(body.indices):
        raise NotSampled(f"the block {name} writes other elements than those of its iterations")
    sizes = {i.var: i.extent for i in block.iters}
    if tuple(sizes[v] for v in named) != body.buffer.shape:
        raise NotSampled(f"the block {name} writes a part of {body.buffer.name}")
    if all(i.kind is IterKind.SPATIAL for i in block.iters):
        if reads_from(body.value, {body.buffer}):
            raise NotSampled(f"the block {name} reads what it writes")
        return _Rule(block, body.indices, body.value, None, None), body.buffer
    value = body.value
    if type(value) is not Binary or value.op not in _REDUCTIONS or type(init) is not Store:
        raise NotSampled(f"the block {name} is no plain reduction")
    sides = (value.a, value.b)
    before = [type(s) is Load and s.buffer is body.buffer for s in sides]
    if before.count(True) != 1:
        raise NotSampled(f"the block {name} is no plain reduction")
    term = sides[before.index(False)]
    if reads_from(term, {body.buffer}):
        raise NotSampled(f"the block {name} is no plain reduction")
    return _Rule(block, body.indices, term, value.op, init.value), body.buffer


def _size(extent: object) -> int:
    assert isinstance(extent, int), "the program is concrete"
    return extent


def _number(dtype: str) -> np.dtype[Any]:
    return dtypes.to_numpy(dtype)
