"""Softmax, normalisation and attention in other orders of the same steps than in `ops`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tilewright.tir import te
from tilewright.tir.ir import Expr, Func
from tilewright.tir.te import Tensor

ROWS, LENGTH = 3, 2048
QUERIES, HEADS, DIM, KEYS = 37, 2, 16, 768
SCALE = 0.25

Matrix = Callable[[Expr, Expr], Expr]
Column = Callable[[Expr], Expr]


def _row(name: str, element: Column) -> Tensor:
    return te.compute((ROWS,), element, name=name)


def _rows(name: str, element: Matrix) -> Tensor:
    return te.compute((ROWS, LENGTH), element, name=name)


def _sum(name: str, term: Matrix) -> Tensor:
    k = te.reduce_axis(LENGTH, name="k")
    return _row(name, lambda i: te.sum(term(i, k), axis=k))


def _max(name: str, term: Matrix) -> Tensor:
    k = te.reduce_axis(LENGTH, name="k")
    return _row(name, lambda i: te.max(term(i, k), axis=k))


def _x() -> Tensor:
    return te.placeholder((ROWS, LENGTH), "float32", name="X")


@cache
def softmax(*, exps: str = "stored", division: str = "terms", scale: str = "none") -> Func:
    """Softmax of the rows of a matrix.

    Its exponentials are `stored`, computed `again`, kept `twice`, or those of a `difference` that
    is stored. Rows are divided by their sums as `terms`, by their `inverse`, by a `stored` inverse,
    or in the exponent (`lse`); `log` gives the logarithms. The `scale` is applied `before` the
    maximum, or after it to the `difference` or to `both` of its sides.
    """
    x = _x()
    z = _rows("Z", lambda i, j: x[i, j] * SCALE) if scale == "before" else x
    m = _max("M", lambda i, k: z[i, k])
    minus = _row("Minus", lambda i: -m[i]) if exps == "negated" else None

    def exponent(i: Expr, j: Expr) -> Expr:
        if minus is not None:
            return z[i, j] + minus[i]
        if scale == "both":
            return z[i, j] * SCALE - m[i] * SCALE
        return (z[i, j] - m[i]) * SCALE if scale == "difference" else z[i, j] - m[i]

    d = _rows("D", exponent) if exps == "difference" else None

    def value(i: Expr, j: Expr) -> Expr:
        return te.exp(exponent(i, j) if d is None else d[i, j])

    e = None if exps == "again" else _rows("E", value)
    f = _rows("F", value) if exps == "twice" else e
    s = _sum("S", lambda i, k: value(i, k) if e is None else e[i, k])
    if division in ("log", "lse"):
        lse = _row("Lse", lambda i: m[i] + te.log(s[i]))
        return te.func([x, _rows("Y", lambda i, j: (
            x[i, j] - lse[i] if division == "log" else te.exp(x[i, j] - lse[i])
        ))])  # fmt: skip
    inverse = _row("R", lambda i: 1.0 / s[i]) if division == "stored" else None

    def share(i: Expr, j: Expr) -> Expr:
        own = value(i, j) if f is None else f[i, j]
        if inverse is not None:
            return inverse[i] * own
        return own * (1.0 / s[i]) if division == "inverse" else own / s[i]

    return te.func([x, _rows("Y", share)])


SOFTMAX: dict[str, dict[str, str]] = {
    "divided": {},
    "inverse": {"division": "inverse"},
    "stored-inverse": {"division": "stored"},
    "computed-again": {"exps": "again"},
    "kept-twice": {"exps": "twice"},
    "stored-difference": {"exps": "difference"},
    "negated-maximum": {"exps": "negated"},
    "scaled-before": {"scale": "before"},
    "scaled-difference": {"scale": "difference"},
    "scaled-both-sides": {"scale": "both"},
    "scaled-stored-difference": {"scale": "difference", "exps": "difference"},
    "log": {"division": "log"},
    "log-again": {"division": "log", "exps": "again"},
    "exponent-of-sum": {"division": "lse", "exps": "again"},
}


@cache
def layer_norm(
    *, mean: str = "block", square: str = "distance", root: str = "rsqrt", order: str = "sum"
) -> Func:
    """Layer normalisation of the rows of a matrix.

    The mean is a `block`, computed where it is `used`, a `product` with the inverse number, or a
    sum of `shares`. The squares are of a `distance`, of a `stored` one, stored themselves
    (`squares`), of the distance the other way round (`reversed`), or of the elements (`moment`).
    """
    x = _x()
    gamma, beta = (te.placeholder((LENGTH,), "float32", name=n) for n in ("gamma", "beta"))
    moment = square == "moment"
    squares = _sum("V", lambda i, k: x[i, k] * x[i, k]) if moment and order == "square" else None
    total = _sum("T", lambda i, k: x[i, k] / LENGTH if mean == "shares" else x[i, k])

    def computed(i: Expr) -> Expr:
        if mean == "shares":
            return total[i]
        return total[i] * (1 / LENGTH) if mean == "product" else total[i] / LENGTH

    block = None if mean in ("used", "shares") else _row("Mean", computed)
    middle = computed if block is None else block.__getitem__

    def distance(i: Expr, j: Expr) -> Expr:
        return middle(i) - x[i, j] if square == "reversed" else x[i, j] - middle(i)

    d = _rows("D", distance) if square in ("stored", "squares") else None

    def squared(i: Expr, k: Expr) -> Expr:
        if moment:
            return x[i, k] * x[i, k]
        own = distance(i, k) if d is None else d[i, k]
        return own * own / LENGTH if mean == "shares" else own * own

    q = _rows("Q", squared) if square == "squares" else None
    if squares is None:
        squares = _sum("V", squared if q is None else lambda i, k: q[i, k])

    def variance(i: Expr) -> Expr:
        own = squares[i] if mean == "shares" and not moment else squares[i] / LENGTH
        return own - middle(i) * middle(i) if moment else own

    scale = None if root == "used" else _row("R", lambda i: te.rsqrt(variance(i) + 1e-5))

    def element(i: Expr, j: Expr) -> Expr:
        value = (x[i, j] - middle(i)) if d is None else d[i, j]
        value = value / te.sqrt(variance(i) + 1e-5) if scale is None else value * scale[i]
        return gamma[j] * value + beta[j]

    return te.func([x, gamma, beta, _rows("Y", element)])


LAYER_NORM: dict[str, dict[str, str]] = {
    "mean-of-its-own": {},
    "mean-where-used": {"mean": "used"},
    "mean-by-product": {"mean": "product"},
    "mean-of-shares": {"mean": "shares"},
    "stored-distance": {"square": "stored"},
    "stored-squares": {"square": "squares"},
    "reversed-distance": {"square": "reversed"},
    "square-root": {"root": "used"},
}
MOMENTS: dict[str, dict[str, str]] = {
    "sum-first": {"square": "moment"},
    "squares-first": {"square": "moment", "order": "square"},
}
"""Layer normalisation by the mean of the squares, which does not need the mean."""


@cache
def rms_norm(*, stored: bool = False, divided: bool = False) -> Func:
    """The rows of a matrix divided by the root of the mean of their squares."""
    x = _x()
    gamma = te.placeholder((LENGTH,), "float32", name="gamma")
    q = _rows("Q", lambda i, j: x[i, j] * x[i, j]) if stored else None
    squares = _sum("V", lambda i, k: x[i, k] * x[i, k] if q is None else q[i, k])
    root = _row("R", lambda i: te.sqrt(squares[i] / LENGTH + 1e-5)) if divided else None

    def element(i: Expr, j: Expr) -> Expr:
        if root is not None:
            return gamma[j] * (x[i, j] / root[i])
        return x[i, j] * te.rsqrt(squares[i] / LENGTH + 1e-5) * gamma[j]

    return te.func([x, gamma, _rows("Y", element)])


Element = Callable[[Expr, Expr, Expr], Expr]
"""An element by three of head, query, key and column."""
EXTENTS = {"h": HEADS, "i": QUERIES, "j": KEYS, "d": DIM}


def _operand(name: str, axes: str) -> Tensor:
    return te.placeholder((1, *(EXTENTS[a] for a in axes)), "float32", name=name)


def _at(tensor: Tensor, axes: str, **indices: Expr) -> Expr:
    """An element of an operand, whose axes are in any order."""
    return tensor[(te.const(0, "int32"), *(indices[a] for a in axes))]


@dataclass(frozen=True)
class Attention:
    """Attention with one choice for each step.

    The `scale` is of the scores, of `q`, `k`, the `terms` of the product, the `exponent` or `both`
    of its sides. The `mask` is added or causal, `before` the scale or after it. Exponentials are
    `stored`, computed `again`, or kept `twice`. Weights are stored, or part of the second product
    (`terms`), or the `result` is divided; by the sum, or by a stored inverse. `axes` are those of
    Q, K, V and the result, and `between` those of all that is between the products.
    """

    scale: str = "scores"
    mask: str = "none"
    exps: str = "stored"
    division: str = "weights"
    axes: tuple[str, str, str, str] = ("hid", "hjd", "hjd", "hid")
    between: str = "hij"
    swapped: bool = False
    cap: bool = False
    epilogue: bool = False

    def func(self) -> Func:
        """The program."""
        q, k, v = (_operand(name, axes) for name, axes in zip("QKV", self.axes, strict=False))
        mask = te.placeholder((QUERIES, KEYS), "float32", name="Mask")
        params = [q, k, v, *([mask] if self.mask.startswith("added") else [])]
        scores = self._scores(self._products(q, k), mask)
        return te.func([*params, self._result(*self._exponentials(scores), v)], name="attention")

    def _stored(self, name: str, element: Element, axes: str | None = None) -> Element:
        """A tensor between the products, and how it is read."""
        order = self.between if axes is None else axes

        def body(*indices: Expr) -> Expr:
            at = dict(zip(order, indices, strict=True))
            return element(at["h"], at["i"], at.get("j", at["i"]))

        tensor = te.compute(tuple(EXTENTS[a] for a in order), body, name=name)
        return lambda h, i, j: tensor[tuple({"h": h, "i": i, "j": j}[a] for a in order)]

    def _products(self, q: Tensor, k: Tensor) -> Element:
        rows = te.compute(q.extents, lambda *i: q[i] * SCALE, name="Qs") if self.scale == "q" else q
        keys = te.compute(k.extents, lambda *i: k[i] * SCALE, name="Ks") if self.scale == "k" else k

        def product(h: Expr, i: Expr, j: Expr) -> Expr:
            d = te.reduce_axis(DIM, name="d")
            a = _at(rows, self.axes[0], h=h, i=i, d=d)
            b = _at(keys, self.axes[1], h=h, j=j, d=d)
            a = a * SCALE if self.scale == "terms" else a
            return te.sum(b * a if self.swapped else a * b, axis=d)

        return self._stored("Products", product)

    def _scores(self, products: Element, mask: Tensor) -> Element:
        def masked(value: Expr, i: Expr, j: Expr) -> Expr:
            if self.mask.startswith("added"):
                return value + mask[i, j]
            return te.select(j <= i + 3, value, te.const(float("-inf"), "float32"))

        def score(h: Expr, i: Expr, j: Expr) -> Expr:
            value = products(h, i, j)
            value = masked(value, i, j) if self.mask.endswith("before") else value
            value = value * SCALE if self.scale == "scores" else value
            value = value / 4.0 if self.scale == "quotient" else value
            value = masked(value, i, j) if self.mask.endswith("after") else value
            return te.tanh(value / 30.0) * 30.0 if self.cap else value

        plain = self.mask == "none" and not self.cap and self.scale not in ("scores", "quotient")
        return products if plain else self._stored("Scores", score)

    def _exponentials(self, scores: Element) -> tuple[Element, Element]:
        """The exponentials that are multiplied with V, and their sums."""
        row = self.between.replace("j", "")

        def largest(h: Expr, i: Expr, _: Expr) -> Expr:
            r = te.reduce_axis(KEYS, name="r")
            return te.max(scores(h, i, r), axis=r)

        m = self._stored("M", largest, row)

        def exponential(h: Expr, i: Expr, j: Expr) -> Expr:
            if self.scale == "both":
                return te.exp(scores(h, i, j) * SCALE - m(h, i, j) * SCALE)
            exponent = scores(h, i, j) - m(h, i, j)
            return te.exp(exponent * SCALE if self.scale == "exponent" else exponent)

        e = exponential if self.exps == "again" else self._stored("E", exponential)

        def total(h: Expr, i: Expr, _: Expr) -> Expr:
            t = te.reduce_axis(KEYS, name="t")
            return te.sum(e(h, i, t), axis=t)

        sums = self._stored("S", total, row)
        return (self._stored("F", exponential) if self.exps == "twice" else e), sums

    def _result(self, exps: Element, sums: Element, v: Tensor) -> Tensor:
        inverse = sums
        if self.division.endswith("inverse"):
            row = self.between.replace("j", "")
            inverse = self._stored("R", lambda h, i, j: 1.0 / sums(h, i, j), row)

        def divided(value: Expr, h: Expr, i: Expr) -> Expr:
            return value / sums(h, i, i) if inverse is sums else value * inverse(h, i, i)

        def weight(h: Expr, i: Expr, j: Expr) -> Expr:
            return divided(exps(h, i, j), h, i)

        late = self.division.startswith("result")
        weights = exps if late else weight
        if self.division.startswith("weights"):
            weights = self._stored("W", weight)

        def product(h: Expr, i: Expr, d: Expr) -> Expr:
            o = te.reduce_axis(KEYS, name="o")
            return te.sum(weights(h, i, o) * _at(v, self.axes[2], h=h, j=o, d=d), axis=o)

        def after(h: Expr, i: Expr, d: Expr) -> Expr:
            value = _at(products, self.axes[3], h=h, i=i, d=d)
            value = divided(value, h, i) if late else value
            return te.maximum(value, 0.0) if self.epilogue else value

        products = self._output("U" if late or self.epilogue else "Y", product)
        return self._output("Y", after) if late or self.epilogue else products

    def _output(self, name: str, element: Element) -> Tensor:
        order = self.axes[3]

        def body(_: Expr, *indices: Expr) -> Expr:
            at = dict(zip(order, indices, strict=True))
            return element(at["h"], at["i"], at["d"])

        return te.compute((1, *(EXTENTS[a] for a in order)), body, name=name)


ATTENTION: dict[str, Attention] = {
    "scaled-scores": Attention(),
    "scaled-by-quotient": Attention(scale="quotient"),
    "scaled-q": Attention(scale="q"),
    "scaled-k": Attention(scale="k"),
    "scaled-terms": Attention(scale="terms"),
    "scaled-exponent": Attention(scale="exponent"),
    "scaled-both-sides": Attention(scale="both"),
    "divided-result": Attention(division="result"),
    "result-by-inverse": Attention(division="result-inverse"),
    "weights-by-inverse": Attention(division="weights-inverse"),
    "divided-terms": Attention(division="terms"),
    "masked-before": Attention(mask="added-before"),
    "masked-after": Attention(mask="added-after"),
    "causal-before": Attention(mask="causal-before", division="result"),
    "causal-after": Attention(mask="causal-after"),
    "capped": Attention(cap=True),
    "capped-divided-result": Attention(cap=True, division="result"),
    "swapped-factors": Attention(swapped=True),
    "k-transposed": Attention(axes=("hid", "hdj", "hjd", "hid")),
    "v-transposed": Attention(axes=("hid", "hjd", "hdj", "hid")),
    "heads-inside": Attention(axes=("ihd", "jhd", "jhd", "ihd")),
    "heads-inside-divided-result": Attention(axes=("ihd", "jhd", "jhd", "ihd"), division="result"),
    "heads-inside-of-q": Attention(axes=("ihd", "hjd", "hjd", "hid")),
    "rows-outside-of-heads": Attention(between="ihj"),
    "rows-outside-divided-result": Attention(between="ihj", division="result"),
    "epilogue": Attention(epilogue=True),
    "epilogue-divided-result": Attention(epilogue=True, division="result"),
}
"""Spellings for which attention is computed in bands, and in bands by pieces."""

FUSED_ALONE: dict[str, Attention] = {
    "computed-again": Attention(exps="again"),
    "kept-twice": Attention(exps="twice"),
    "kept-twice-divided-result": Attention(exps="twice", division="result"),
}
"""Spellings that compute each exponential twice: for these there are bands, but no pieces."""

assert math.isclose(SCALE, 1 / math.sqrt(DIM))
