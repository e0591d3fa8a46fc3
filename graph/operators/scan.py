"""Operators whose steps come one after the other, as programs of loops in their order.

Recurrent cells take their inputs' product with the weights of all steps, which is one matrix
product in front; what is left of a step is the product with the state, and the gates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...tir.ir import Func
from ...tir.parser import parse
from ..ir import TensorType
from ..operator import Array, Kind, one_float, programmed
from .cells import ACTIVATIONS, GATES, NONLINEAR, Activation, CellText, tile_width

_OPTIONS = ("cell", "bias", "peepholes", "lengths")


def _infer(
    x: TensorType, r: TensorType, h: TensorType, *others: TensorType, cell: str, **given: Any
) -> tuple[TensorType, ...]:
    extra = given["given"]
    if cell not in GATES or len(others) != len(extra) or not set(extra) <= set(_OPTIONS):
        raise IRError("recurrence: cell {0} with {1} and {2} operands", cell, extra, len(others))
    if [a[0] in ACTIVATIONS for a in given["activations"]] != [True] * NONLINEAR[cell]:
        raise IRError("recurrence: activations {0} of a {1}", given["activations"], cell)
    if given["clip"] is not None and math.isnan(given["clip"]):
        raise IRError("recurrence: clip is no number")
    if x.rank != 3 or h.rank != 2 or x.shape[1] != h.shape[0]:
        raise IRError("recurrence: inputs {0} and state {1}", x, h)
    n, hidden = h.shape
    columns = GATES[cell] * hidden
    tiles, depth, width = r.shape if r.rank == 3 else (0, 0, 0)
    fits = tiles == 1 or (tiles and hidden % width == 0 and width == tile_width(hidden, n))
    if x.shape[2] != columns or depth != hidden or tiles * width != columns or not fits:
        raise IRError("recurrence: inputs {0}, weights {1} and state {2}", x, r, h)
    floats = (t for name, t in zip(extra, others, strict=True) if name != "lengths")
    one_float("recurrence", x, r, h, *floats)
    wanted = {"cell": (n, hidden), "bias": (hidden,), "peepholes": (3 * hidden,), "lengths": (n,)}
    for name, type in zip(extra, others, strict=True):
        if type.shape != wanted[name]:
            raise IRError("recurrence: {0} of {1}, expected {2}", name, type, wanted[name])
    state = TensorType(x.dtype, h.shape)
    return (TensorType(x.dtype, (x.shape[0], n, hidden)), state, *[state] * (cell == "lstm"))


def _stepped(
    x: Array,
    r: Array,
    h: Array,
    *others: Array,
    cell: str,
    activations: Sequence[Activation],
    given: Sequence[str],
    clip: float | None,
    backwards: bool,
    input_forget: bool,
) -> tuple[Array, ...]:
    options: dict[str, Any] = dict(zip(given, others, strict=True))
    narrow = x.dtype
    if x.itemsize < 4:
        x, r, h = (a.astype(np.float32) for a in (x, r, h))
    hidden = h.shape[1]
    r = np.moveaxis(r, 0, 1).reshape(hidden, -1)
    c = np.asarray(options.get("cell", np.zeros_like(h)), x.dtype)
    bias = options.get("bias")
    holes = options.get("peepholes")
    lengths = options.get("lengths", np.full(len(h), len(x)))

    def act(place: int, value: Array) -> Array:
        name, alpha, beta = activations[place]
        value = value if clip is None else np.clip(value, -clip, clip)
        return np.asarray(ACTIVATIONS[name][1](value, alpha, beta), x.dtype)

    def seen(place: int, state: Array) -> Array | float:
        """What a gate sees of the state: 0 where there are no peepholes, also of infinite ones."""
        return 0.0 if holes is None else np.split(holes.astype(x.dtype), 3)[place] * state

    y = np.zeros((len(x), *h.shape), x.dtype)
    for t in reversed(range(len(x))) if backwards else range(len(x)):
        new_c = c
        if cell == "rnn":
            new = act(0, x[t] + h @ r)
        elif cell == "gru":
            zr = x[t, :, : 2 * hidden] + h @ r[:, : 2 * hidden]
            z, reset = act(0, zr[:, :hidden]), act(0, zr[:, hidden:])
            if bias is None:
                inner = (reset * h) @ r[:, 2 * hidden :]
            else:
                inner = reset * (h @ r[:, 2 * hidden :] + bias)
            new = (1 - z) * act(1, x[t, :, 2 * hidden :] + inner) + z * h
        else:
            i, o, f, g = np.split(x[t] + h @ r, 4, 1)
            i = act(0, i + seen(0, c))
            f = 1 - i if input_forget else act(0, f + seen(2, c))
            new_c = f * c + i * act(1, g)
            name, alpha, beta = activations[2]
            squashed = ACTIVATIONS[name][1](new_c, alpha, beta)
            new = np.asarray(act(0, o + seen(1, new_c)) * squashed, x.dtype)
        live = (t < lengths)[:, None]
        h, c = np.where(live, new, h), np.where(live, new_c, c)
        y[t] = np.where(live, new, 0)
    return tuple(a.astype(narrow) for a in ((y, h, c) if cell == "lstm" else (y, h)))


@programmed(Kind.SCAN, reference=_stepped, infer=_infer)
def recurrence(
    x: TensorType,
    r: TensorType,
    h: TensorType,
    *others: TensorType,
    cell: str,
    activations: Sequence[Activation],
    given: Sequence[str] = (),
    clip: float | None = None,
    backwards: bool = False,
    input_forget: bool = False,
) -> Func:
    """The states of a recurrent cell (rnn, gru, lstm) at all steps, and the last.

    `x` (steps, n, gates * hidden) are the inputs times their weights, with all biases; `r` the
    weights of the state, as one tile (1, hidden, gates * hidden) or as tiles of `tile_width`; `h`
    (n, hidden) the first state. The results are the states (steps, n, hidden), the last state, and
    of an lstm the last cell. The gates are in the order of ONNX: z r h of a gru, i o f c of an
    lstm, whose cells are 0 at first. `given` names further operands:
    `cell` (n, hidden) of an lstm at first, `peepholes` (3 * hidden) of i, o and f, `bias` (hidden)
    of a gru whose reset gate scales the product of the state, and `lengths` (n) of sequences: later
    steps are 0, and leave the state. `clip` bounds what the activations of gates are given.
    """
    given = tuple(given)
    names = {"cell": "C0", "bias": "B", "peepholes": "P", "lengths": "N"}
    operands = {"X": x, "R": r, "H0": h}
    operands |= {names[name]: type for name, type in zip(given, others, strict=True)}
    outputs = _infer(x, r, h, *others, cell=cell, given=given, activations=activations, clip=clip)
    operands |= dict(zip(("Y", "HT", "CT"), outputs, strict=False))
    parameters = ", ".join(f'{k}: T.Buffer({t.shape}, "{t.dtype}")' for k, t in operands.items())
    text = CellText(
        cell,
        x.shape,
        r.shape,
        h.shape[1],
        x.dtype,
        given,
        tuple(activations),
        clip,
        backwards,
        input_forget,
    )
    body = "\n".join(f"    {line}" for line in text.lines())
    return parse(f"@tw.script\ndef recurrence({parameters}):\n{body}\n")


def _accumulated(x: Array, *, axis: int, product: bool, exclusive: bool, reverse: bool) -> Array:
    wide = x.astype(np.float32) if x.dtype.kind not in "iu" and x.itemsize < 4 else x
    moved = np.moveaxis(wide, axis, 0)
    moved = moved[::-1] if reverse else moved
    function = np.cumprod if product else np.cumsum
    found = function(moved, axis=0, dtype=wide.dtype)
    if exclusive:
        first = np.full_like(moved[:1], 1 if product else 0)
        found = np.concatenate([first, found[:-1]])
    found = found[::-1] if reverse else found
    return np.moveaxis(found, 0, axis).astype(x.dtype)


@programmed(Kind.SCAN, reference=_accumulated, infer=lambda x, **_: x)
def accumulate(
    x: TensorType,
    *,
    axis: int,
    product: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> Func:
    """The sums (or products) of the elements up to each along `axis`.

    `exclusive` leaves out the element itself, `reverse` begins at the end.
    """
    last = x.shape[axis] - 1
    wide = x.dtype if dtypes.nbytes(x.dtype) >= 4 or not dtypes.is_float(x.dtype) else "float32"
    names = [f"i{d}" for d in range(x.rank)]

    def at(buffer: str, back: int) -> str:
        own = list(names)
        own[axis] = f"{last + back} - {names[axis]}" if reverse else f"{names[axis]} - {back}"
        return f"{buffer}[{', '.join(own)}]"

    def widened(value: str) -> str:
        return value if wide == x.dtype else f'T.cast("{wide}", {value})'

    unit = f"{int(product)}.0" if dtypes.is_float(wide) else f"{int(product)}"
    sign = "*" if product else "+"
    buffer = "Y" if wide == x.dtype else "S"
    before = f"T.select({names[axis]} > 0, {at(buffer, 1)}, {unit})"
    if exclusive:
        value = f"T.select({names[axis]} > 0, {at(buffer, 1)} {sign} {widened(at('X', 1))}, {unit})"
    else:
        value = f"{before} {sign} {widened(at('X', 0))}"
    whole = ", ".join(map(str, x.shape))
    grid = f"for {', '.join(names)} in " + (f"T.grid({whole})" if x.rank > 1 else f"range({whole})")
    own = f"[{', '.join(names)}]"
    lines = [f'S = T.alloc({x.shape}, "{wide}")'] if buffer == "S" else []
    lines += [f"{grid}:", f"    {at(buffer, 0)} = {value}"]
    if buffer == "S":
        lines += [f"{grid}:", f'    Y{own} = T.cast("{x.dtype}", S{own})']
    body = "\n".join(f"    {line}" for line in lines)
    kinds = f'X: T.Buffer({x.shape}, "{x.dtype}"), Y: T.Buffer({x.shape}, "{x.dtype}")'
    return parse(f"@tw.script\ndef accumulate({kinds}):\n{body}\n")
