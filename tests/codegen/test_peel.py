"""Rows of random clamps, wraps and masks mean the same after `peel`."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.passes.peel import peel
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .machinery import assert_close, check, random_arguments


def a_program(seed: int) -> Func:
    """A row, tiled or not, whose elements are sums of reads at indices that change at its ends."""
    rng = np.random.default_rng(seed)
    tiles: tuple[int, ...] = [(), (8,), (16,), (4, 8), (2, 16)][rng.integers(5)]
    inner = int(np.prod(tiles, initial=1))
    extent = int(rng.integers(24, 120) if tiles else rng.integers(12, 80))
    outer = -(-extent // inner)
    names = [f"j{n}" for n in range(len(tiles) + 1)]
    index = " + ".join(
        f"{name} * {int(np.prod(tiles[n:], initial=1))}" for n, name in enumerate(names)
    )

    last = extent - 1

    def clamped(text: str, most: int = last) -> str:
        return f"T.minimum(T.maximum({text}, 0), {most})"

    def term() -> str:
        d = int(rng.integers(-3, 4))
        at = f"{index} + {d}"
        match int(rng.integers(9)):
            case 0:
                return f"A[i, T.minimum({at}, {last})]" if d >= 0 else f"A[i, T.maximum({at}, 0)]"
            case 1:
                return f"A[i, {clamped(at)}]"
            case 2:
                return f"A[(i + 1) % 3, ({at} + 3) % {extent}]"
            case 3:
                return f"A[i, {clamped(at, 2 * extent - 1)} // 2]"
            case 4:
                inside = f"({at} >= 0) & ({at} < {extent})"
                return f"T.select({inside}, A[i, {clamped(at)}], 0.5)"
            case 5:
                return f"A[i, {last} - T.abs({last} - T.abs({at}))]"
            case 6:
                past = f"T.select({at} > {last}, {2 * last + 1} - ({at}), {at})"
                return f"A[i, T.select({at} < 0, -1 - ({at}), {past})]"
            case 7:
                shown = f"T.minimum({at}, {2 * last} - ({at}))"
                return f"A[i, T.maximum({shown}, -({at}))]"
            case _:
                return f"A[T.minimum(i + 1, 2), {clamped(f'({index}) * 2 + {d}')}]"

    tensor = f'T.Buffer((3, {extent}), "float32")'
    lines = ["@tw.script", f"def f(A: {tensor}, B: {tensor}):"]
    lines.append(f"    for i, {names[0]} in T.grid(3, {outer}):")
    indent = "        "
    for n, size in enumerate(tiles):
        kind = "vectorized" if n == len(tiles) - 1 else rng.choice(["serial", "unrolled"])
        lines.append(f"{indent}for {names[n + 1]} in T.{kind}({size}):")
        indent += "    "
    if inner * outer > extent:
        lines.append(f"{indent}if {index} < {extent}:")
        indent += "    "
    terms = [term() for _ in range(rng.integers(1, 5))]
    lines.append(f"{indent}B[i, {index}] = {' + '.join(terms)}")
    return parse("\n".join(lines) + "\n")


@pytest.mark.part(23)
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize(("bits", "masked"), [(128, False), (256, True), (512, True)])
def test_random_rows_mean_the_same(seed: int, bits: int, masked: bool) -> None:
    before = a_program(seed)
    after = peel(before, bits, masked)
    expected, found = random_arguments(before), random_arguments(before)
    interpret(before, *expected)
    interpret(after, *found)
    assert_close(expected[1], found[1], 0.0, "B")


@pytest.mark.parametrize("seed", range(0, 60, 5))
def test_random_rows_compile_to_what_they_mean(seed: int) -> None:
    check(a_program(seed), rtol=0.0)


def test_a_row_that_starts_where_an_index_wraps_stays() -> None:
    """Nothing would be kept of it: a guard holds in its last iterations alone."""
    func = parse("""
@tw.script
def f(A: T.Buffer((7,), "float32"), B: T.Buffer((8,), "float32")):
    T.inplace(B)
    for j in range(2):
        if j - 1 >= 0:
            B[j - 1] = A[(j - 1) % 7]
""")
    assert peel(func, 256, masked=False) is func
    check(func, rtol=0.0)


def test_a_row_in_which_nothing_becomes_known_stays() -> None:
    """Its index wraps where its guard ends: below 16, `% 8` is what it was."""
    func = parse("""
@tw.script
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((16,), "float32")):
    for j0, j1 in T.grid(6, 3):
        if j0 * 3 + j1 < 16:
            B[j0 * 3 + j1] = A[(j0 * 3 + j1) % 8]
""")
    assert peel(func, 256, masked=True) is func
    check(func, rtol=0.0)


def test_a_row_of_registers_stays() -> None:
    """Its edge would be a loop over registers, which have no addresses."""
    func = parse("""
@tw.script
def f(A: T.Buffer((3,), "float32"), B: T.Buffer((24,), "float32")):
    R = T.alloc((24,), "float32", scope="register")
    for i in T.unrolled(3):
        for j in T.vectorized(8):
            R[i * 8 + j] = A[T.maximum(T.minimum(i * 8 + j - 1, 2), 0)]
    for i in T.unrolled(3):
        for j in T.vectorized(8):
            B[i * 8 + j] = R[i * 8 + j]
""")
    check(func, rtol=0.0)
