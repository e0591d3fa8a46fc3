"""Discrete Fourier transforms as programs: mixed radices, of so many transforms at once.

    for p in range(m):              # a stage of radix r, of n = m * r elements
        for q in range(s):          # as many transforms of n elements: s is what was divided by
            y[q + s * (r * p + k)] = w[p, k] * sum(x[q + s * (p + m * j)] * e(-j * k / r))

The transforms are side by side in vectors. Each stage reads one array and writes another, whose
order is such that the last one has the results in theirs (Stockham's). A transform of an even
number of real elements is one of half as many complex ones, which hold two of them each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...tir.ir import Func
from ...tir.parser import parse
from ..ir import TensorType
from ..operator import Array, Kind, programmed

WIDE = {"float16": "float32", "bfloat16": "float32", "float32": "float64"}
"""What sums are computed in: of float32 as numpy does, so that a result is rounded once."""
MAX_RADIX = 13
"""Lengths whose prime factors are at most this are transformed by stages."""
FORMS = ("complex", "of_real", "to_real")


def radices(length: int) -> list[int] | None:
    """The radices of the stages of a transform; `None` for a length with a larger prime factor."""
    found = []
    for prime in (11, 13, 7, 5, 3, 2):
        exponent = 0
        while length % prime == 0:
            length //= prime
            exponent += 1
        if prime == 2:  # as few stages as there can be of radix 8 and 4
            fours = {0: 0, 1: 2, 2: 1}[exponent % 3] if exponent > 1 else 0
            found += [4] * fours + [8] * ((exponent - 2 * fours) // 3) + [2] * (exponent == 1)
        else:
            found += [prime] * exponent
    return None if length > 1 else sorted(found, reverse=True)


def twiddles(length: int, form: str) -> Array:
    """The factors (count, 2) that a transform reads: of its stages, then of halves."""
    half = length if form == "complex" else length // 2
    angles = []
    rest = half
    for radix in radices(half) or ():
        rest //= radix
        if rest > 1:
            angles.append(np.outer(np.arange(rest), np.arange(1, radix)).ravel() / (rest * radix))
    if form != "complex":
        angles.append(np.arange(1, (half + 1) // 2) / length)
    turns = 2 * math.pi * np.concatenate([*angles, np.zeros(1)])
    return np.stack([np.cos(turns), -np.sin(turns)], -1)


def _transformed(
    x: Array, _w: Array, *, length: int, form: str, inverse: bool, scale: float
) -> Array:
    wide = x.astype(np.float64)
    if form == "of_real":
        found = np.fft.rfft(wide, axis=0) * scale
    elif form == "to_real":
        spectrum = wide[:, 0] + 1j * wide[:, 1]
        return np.asarray(np.fft.irfft(spectrum, length, 0) * (length * scale), x.dtype)
    else:
        own = wide[:, 0] + 1j * wide[:, 1]
        found = np.fft.ifft(own, axis=0) * length if inverse else np.fft.fft(own, axis=0)
        found = found * scale
    return np.stack([found.real, found.imag], 1).astype(x.dtype)


def _infer(
    x: TensorType, w: TensorType, *, length: int, form: str, inverse: bool, scale: float
) -> TensorType:
    del scale
    half = length // 2
    shapes = {
        "complex": ((length, 2), (length, 2)),
        "of_real": ((length,), (half + 1, 2)),
        "to_real": ((half + 1, 2), (length,)),
    }
    if form not in shapes or length < 1 or (form != "complex" and (length % 2 or inverse)):
        raise IRError("fourier: a transform of {0}, {1}", length, form)
    if radices(length if form == "complex" else half) is None:
        raise IRError("fourier: {0} has a prime factor above {1}", length, MAX_RADIX)
    given, made = shapes[form]
    if x.shape[:-1] != given or w.shape != twiddles(length, form).shape or x.dtype != w.dtype:
        raise IRError("fourier: {0} of {1} with factors {2}", form, x, w)
    return TensorType(x.dtype, (*made, x.shape[-1]))


@programmed(Kind.OPAQUE, reference=_transformed, infer=_infer)
def fourier(
    x: TensorType,
    w: TensorType,
    *,
    length: int,
    form: str = "complex",
    inverse: bool = False,
    scale: float = 1.0,
) -> Func:
    """Discrete Fourier transforms of `length` along the first dimension, one for each of the last.

    The middle dimension has the real and the imaginary parts. Of the forms `complex` takes (length,
    2, n) and returns the same; `of_real` takes (length, n) and returns half of a spectrum (length /
    2 + 1, 2, n); `to_real` is its inverse. Inverses are not divided by the length; all results are
    multiplied by `scale`. `w` are the `twiddles`.
    """
    y = _infer(x, w, length=length, form=form, inverse=inverse, scale=scale)
    buffers = {"X": x, "W": w, "Y": y}
    parameters = ", ".join(f'{k}: T.Buffer({t.shape}, "{t.dtype}")' for k, t in buffers.items())
    lines = _Text(x.dtype, x.shape[-1], length, form, inverse, scale).lines()
    body = "\n".join(f"    {line}" for line in lines)
    return parse(f"@tw.script\ndef fourier({parameters}):\n{body}\n")


class _Number(NamedTuple):
    """A complex number: the texts of its parts."""

    real: str
    imag: str

    @property
    def turned(self) -> _Number:
        return _Number(self.imag, self.real)


@dataclass
class _Lines:
    """Statements in the making, each of which has its own name."""

    done: list[str] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=count)

    def value(self, text: str) -> str:
        name = f"t{next(self.names)}"
        self.done.append(f"{name} = {text}")
        return name

    def sum(self, a: _Number, b: _Number, sign: str = "+") -> _Number:
        return _Number(*(self.value(f"{p} {sign} {q}") for p, q in zip(a, b, strict=True)))

    def product(self, a: _Number, real: str, imag: str) -> _Number:
        return _Number(
            self.value(f"{a.real} * {real} - {a.imag} * {imag}"),
            self.value(f"{a.real} * {imag} + {a.imag} * {real}"),
        )

    def rotated(self, a: _Number, numerator: int, denominator: int) -> _Number:
        """The product with e(-numerator / denominator), without what is 0 and 1."""
        eighths, rest = divmod(8 * (numerator % denominator), denominator)
        if rest or eighths % 2:
            angle = 2 * math.pi * numerator / denominator
            return self.product(a, repr(math.cos(angle)), repr(-math.sin(angle)))
        for _ in range(eighths // 2):  # by -i
            a = _Number(a.imag, self.value(f"-{a.real}"))
        return a

    def transformed(self, x: Sequence[_Number]) -> list[_Number]:
        """The transform of numbers: of a composite count by those of its factors."""
        n = len(x)
        first = next((f for f in (4, 2, 3, 5, 7, 11, 13) if n % f == 0), 1)
        if n == 1:
            return list(x)
        if n == 2:
            return [self.sum(x[0], x[1]), self.sum(x[0], x[1], "-")]
        if n == 4:
            return self._four(x)
        if n == first:
            return self._prime(x)
        second = n // first
        columns = [self.transformed(x[j::second]) for j in range(second)]
        found: dict[int, _Number] = {}
        for k in range(first):
            row = [self.rotated(c[k], j * k, n) for j, c in enumerate(columns)]
            found.update(zip(range(k, n, first), self.transformed(row), strict=True))
        return [found[k] for k in range(n)]

    def _four(self, x: Sequence[_Number]) -> list[_Number]:
        even, odd = self.sum(x[0], x[2]), self.sum(x[1], x[3])
        other, side = self.sum(x[0], x[2], "-"), self.sum(x[1], x[3], "-")
        return [
            self.sum(even, odd),
            _Number(
                self.value(f"{other.real} + {side.imag}"), self.value(f"{other.imag} - {side.real}")
            ),
            self.sum(even, odd, "-"),
            _Number(
                self.value(f"{other.real} - {side.imag}"), self.value(f"{other.imag} + {side.real}")
            ),
        ]

    def _prime(self, x: Sequence[_Number]) -> list[_Number]:
        """By sums and differences of what lies as far from both ends."""
        n = len(x)
        pairs = range(1, n // 2 + 1)
        sums = [self.sum(x[j], x[n - j]) for j in pairs]
        differences = [self.sum(x[j], x[n - j], "-") for j in pairs]
        zero = x[0]
        for s in sums:
            zero = self.sum(zero, s)
        found = {0: zero}
        for k in pairs:
            turns = [2 * math.pi * (j * k % n) / n for j in pairs]
            cosines, sines = ([f(t) for t in turns] for f in (math.cos, math.sin))
            own = [
                self.value(
                    " + ".join(
                        [x[0][p], *(f"{s[p]} * {c!r}" for s, c in zip(sums, cosines, strict=True))]
                    )
                )
                for p in range(2)
            ]
            side = [
                self.value(
                    " + ".join(f"{d[p]} * {c!r}" for d, c in zip(differences, sines, strict=True))
                )
                for p in range(2)
            ]
            found[k] = _Number(
                self.value(f"{own[0]} + {side[1]}"), self.value(f"{own[1]} - {side[0]}")
            )
            found[n - k] = _Number(
                self.value(f"{own[0]} - {side[1]}"), self.value(f"{own[1]} + {side[0]}")
            )
        return [found[k] for k in range(n)]


@dataclass(frozen=True)
class _Text:
    """The body of a program of the buffers X, W and Y."""

    dtype: str
    lanes: int
    length: int
    form: str
    inverse: bool
    scale: float

    @property
    def wide(self) -> str:
        return WIDE.get(self.dtype, self.dtype)

    @property
    def size(self) -> int:
        return self.length if self.form == "complex" else self.length // 2

    def lines(self) -> Iterator[str]:
        width = 64 // dtypes.nbytes(self.wide)
        if not self.lanes:
            yield "pass"
            return
        for name in "AB":
            yield f'{name} = T.alloc(({self.size}, 2, {width}), "{self.wide}")'
        if self.lanes < width:
            yield from self._block("0", self.lanes)
            return
        yield f"for b in range({-(-self.lanes // width)}):"
        yield f"    first = T.minimum(b * {width}, {self.lanes - width})"  # the last again some
        yield from self._indented(self._block("first", width), 1)

    def _indented(self, lines: Iterator[str], depth: int) -> Iterator[str]:
        return (f"{'    ' * depth}{line}" for line in lines)

    def _block(self, start: str, width: int) -> Iterator[str]:
        """Transforms in the lanes of a vector."""
        steps = radices(self.size) or [1]
        sides = ["A", "B"]
        source = "X"
        if self.form == "to_real":
            yield from self._merged(start, width)
            source = "A"
        rest, stride, first = self.size, 1, 0
        for place, radix in enumerate(steps):
            rest //= radix
            last = place == len(steps) - 1 and self.form != "of_real"
            target = "Y" if last else sides[source == "A"]
            yield from self._stage(source, target, radix, rest, stride, first, start, width)
            first += rest * (radix - 1) if rest > 1 else 0
            stride *= radix
            source = target
        if self.form == "of_real":
            yield from self._halved(source, first, start, width)

    def _stage(
        self, source: str, target: str, radix: int, rest: int, stride: int, first: int,
        start: str, width: int,
    ) -> Iterator[str]:  # fmt: skip
        body = _Lines()
        turned = self.inverse or self.form == "to_real"
        given = [
            self._load(source, f"q + {stride} * (p + {rest * j})", start) for j in range(radix)
        ]
        own = [_Number(*map(body.value, x.turned if turned else x)) for x in given]
        made = body.transformed(own)
        for k in range(1, radix) if rest > 1 else ():
            made[k] = body.product(made[k], f"w{k}r", f"w{k}i")
        for k, number in enumerate(made):
            at = f"q + {stride} * ({radix} * p + {k})"
            body.done += self._store(target, at, start, number.turned if turned else number)
        yield f"for p in range({rest}):"
        for k in range(1, radix) if rest > 1 else ():
            yield from self._indented(
                self._factor(f"w{k}", f"{first} + p * {radix - 1} + {k - 1}"), 1
            )
        yield f"    for q in range({stride}):"
        yield f"        for v in T.vectorized({width}):"
        yield from self._indented(iter(body.done), 3)

    def _factor(self, name: str, place: str) -> Iterator[str]:
        for part in range(2):
            yield f"{name}{'ri'[part]} = {self._widened(f'W[{place}, {part}]')}"

    def _load(self, buffer: str, row: str, start: str) -> _Number:
        if buffer != "X":
            return _Number(*(f"{buffer}[{row}, {part}, v]" for part in range(2)))
        real = self.form == "of_real"
        places = (f"2 * ({row}) + {part}" if real else f"{row}, {part}" for part in range(2))
        return _Number(*(self._widened(f"X[{at}, {start} + v]") for at in places))

    def _store(self, buffer: str, row: str, start: str, number: _Number) -> Iterator[str]:
        real = self.form == "to_real"
        for part, value in enumerate(number):
            if buffer != "Y":
                yield f"{buffer}[{row}, {part}, v] = {value}"
            else:
                at = f"2 * ({row}) + {part}" if real else f"{row}, {part}"
                yield f"Y[{at}, {start} + v] = {self._narrowed(value)}"

    def _halved(self, source: str, first: int, start: str, width: int) -> Iterator[str]:
        """The spectrum of real elements, from that of pairs of them."""
        half = self.size
        ends = _Lines()
        zero = self._load(source, "0", start)
        for row, sign in (("0", "+"), (f"{half}", "-")):
            number = _Number(f"{zero.real} {sign} {zero.imag}", "0.0")
            ends.done += self._store("Y", row, start, number)
        if half % 2 == 0:
            middle = self._load(source, f"{half // 2}", start)
            ends.done += self._store(
                "Y", f"{half // 2}", start, _Number(middle.real, f"-{middle.imag}")
            )
        yield f"for v in T.vectorized({width}):"
        yield from self._indented(iter(ends.done), 1)
        body = _Lines()
        a, b = map(body.value, self._load(source, "p + 1", start))
        c, d = map(body.value, self._load(source, f"{half - 1} - p", start))
        even = _Number(body.value(f"({a} + {c}) * 0.5"), body.value(f"({b} - {d}) * 0.5"))
        odd = _Number(body.value(f"({b} + {d}) * 0.5"), body.value(f"({c} - {a}) * 0.5"))
        odd = body.product(odd, "wr", "wi")
        body.done += self._store(
            "Y", "p + 1", start, _Number(f"{even.real} + {odd.real}", f"{even.imag} + {odd.imag}")
        )
        body.done += self._store(
            "Y",
            f"{half - 1} - p",
            start,
            _Number(f"{even.real} - {odd.real}", f"{odd.imag} - {even.imag}"),
        )
        yield from self._pairs(body, first, width)

    def _pairs(self, body: _Lines, first: int, width: int) -> Iterator[str]:
        pairs = (self.size - 1) // 2
        if pairs:
            yield f"for p in range({pairs}):"
            yield from self._indented(self._factor("w", f"{first} + p"), 1)
            yield f"    for v in T.vectorized({width}):"
            yield from self._indented(iter(body.done), 2)

    def _merged(self, start: str, width: int) -> Iterator[str]:
        """What half of a spectrum is of pairs of real elements."""
        half = self.size
        first = len(twiddles(half, "complex")) - 1
        ends = _Lines()
        low, high = (self._load("X", row, start).real for row in ("0", f"{half}"))
        ends.done += self._store("A", "0", start, _Number(f"{low} + {high}", f"{low} - {high}"))
        if half % 2 == 0:
            middle = self._load("X", f"{half // 2}", start)
            ends.done += self._store(
                "A", f"{half // 2}", start, _Number(f"{middle.real} * 2.0", f"{middle.imag} * -2.0")
            )
        yield f"for v in T.vectorized({width}):"
        yield from self._indented(iter(ends.done), 1)
        body = _Lines()
        a, b = map(body.value, self._load("X", "p + 1", start))
        c, d = map(body.value, self._load("X", f"{half - 1} - p", start))
        even = _Number(body.value(f"{a} + {c}"), body.value(f"{b} - {d}"))
        odd = _Number(body.value(f"{a} - {c}"), body.value(f"{b} + {d}"))
        odd = body.product(odd, "wr", "(0.0 - wi)")
        body.done += self._store(
            "A", "p + 1", start, _Number(f"{even.real} - {odd.imag}", f"{even.imag} + {odd.real}")
        )
        body.done += self._store(
            "A",
            f"{half - 1} - p",
            start,
            _Number(f"{even.real} + {odd.imag}", f"{odd.real} - {even.imag}"),
        )
        yield from self._pairs(body, first, width)

    def _widened(self, value: str) -> str:
        return value if self.wide == self.dtype else f'T.cast("{self.wide}", {value})'

    def _narrowed(self, value: str) -> str:
        value = value if self.scale == 1 else f"({value}) * {float(self.scale)!r}"
        return value if self.wide == self.dtype else f'T.cast("{self.dtype}", {value})'
