"""Random programs as text whose loops run in order: each element needs those before it."""

from __future__ import annotations

import numpy as np

from tilewright import te
from tilewright.tir.parser import parse

from . import bounded
from .attempt import Attempt
from .bounded import Bounded
from .formulas import Source
from .random_formulas import EXTENTS, Program

_TEXT = """
@tw.script
def scan(A: T.Buffer(({m}, {n}), "float32"), C: T.Buffer(({m}, {n}), "float32")):
    for {first} in range({ends}):
        C[{start}] = A[{start}]
    for i, j in T.grid({rows}, {columns}):
        C[{place}] = {formula}
"""


def random_scan(attempt: Attempt) -> Program:
    """A recurrence along the rows or the columns of a matrix."""
    m, n = attempt.choice(EXTENTS), attempt.choice(EXTENTS)
    down = attempt.chance(0.5)
    factor = attempt.choice((1.0, 0.5, -0.25))
    before, place = "C[i, j]", "i + 1, j" if down else "i, j + 1"
    formula = attempt.choice(
        (f"{before} * {factor} + A[{place}]", f"T.maximum({before}, A[{place}])")
    )
    text = _TEXT.format(
        m=m,
        n=n,
        first="j" if down else "i",
        ends=n if down else m,
        start="0, j" if down else "i, 0",
        rows=m - 1 if down else m,
        columns=n if down else n - 1,
        place=place,
        formula=formula,
    )
    data = attempt.rng.standard_normal((m, n)).astype(np.float32)
    source = Source("A", te.placeholder((m, n), name="A"), bounded.exactly(data), data)
    along = bounded.exactly(data if down else data.T)
    assert along.error is not None
    steps = [Bounded("float32", along.value[0], along.error[0])]
    scale = bounded.exactly(np.full(along.value[0].shape, factor, np.float32))
    for k in range(1, len(along.value)):
        new = Bounded("float32", along.value[k], along.error[k])
        if "maximum" in formula:
            steps.append(bounded.binary("max", steps[-1], new))
        else:
            steps.append(bounded.binary("+", bounded.binary("*", steps[-1], scale), new))
    value = np.stack([s.value for s in steps])
    error = np.stack([np.asarray(s.error) for s in steps])
    turned = Bounded("float32", value, error) if down else Bounded("float32", value.T, error.T)
    return Program(parse(text), [source], [turned])
