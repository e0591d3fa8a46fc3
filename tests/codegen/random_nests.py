"""Random nests of plain loops with conditions, built and interpreted.

`python -m tests.codegen.random_nests 0 500` tries the programs of those seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from tilewright.codegen.build import compile_func, to_module
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

TARGET = "cpu -threads=1"
SIZE = 16
_HEAD = f"""@tw.script
def nest(
    A: T.Buffer(({SIZE}, {SIZE}), "float32"),
    X: T.Buffer(({SIZE},), "float32"),
    Y: T.Buffer(({SIZE}, {SIZE}), "float32"),
):
    T.inplace(X, Y)
"""


class Nest:
    """Draws the text of a program that reads and stores elements in two to four loops."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.loops: list[str] = []
        self.lines: list[str] = []

    def pick(self, items: Sequence[str]) -> str:
        return items[int(self.rng.integers(len(items)))]

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def loop(self) -> str:
        return self.pick(self.loops)

    def index(self) -> str:
        v, u = self.loop(), self.loop()
        return self.pick(
            [v, v, f"({v} + 1) % {SIZE}", f"{v} // 2", f"({v} * 4 + {u}) % {SIZE}", f"{v} % 4"]
        )

    def condition(self) -> str:
        v, u, few, many = self.loop(), self.loop(), 1 + self.below(5), 3 + self.below(27)
        return self.pick(
            [
                f"{v} < {few}",
                f"{v} * 4 + {u} < {many}",
                f"{v} * 8 + {u} < {many}",
                f"{v} + {u} < {few}",
                f"{v} >= {few}",
                f"{v} % 2 == 0",
                f"({v} < {few}) & ({u} < {few + 1})",
            ]
        )

    def store(self) -> str:
        read = f"A[{self.index()}, {self.index()}]"
        old = self.pick([f"X[{self.index()}]", f"Y[{self.index()}, {self.index()}]"])
        value = self.pick([read, f"{old} + {read}", old, f"{read} * T.float32(2.0)"])
        return (
            self.pick([f"X[{self.index()}]", f"Y[{self.index()}, {self.index()}]"]) + f" = {value}"
        )

    def body(self, indent: int, deeper: int) -> None:
        for _ in range(1 + self.below(2)):
            kind, space = self.rng.random(), "    " * indent
            if kind < 0.35 and deeper:
                self.nest(indent, deeper)
            elif kind < 0.8:
                self.lines += [f"{space}if {self.condition()}:", f"{space}    {self.store()}"]
                if self.below(2):
                    self.lines += [f"{space}else:", f"{space}    {self.store()}"]
            else:
                self.lines.append(space + self.store())

    def nest(self, indent: int, deeper: int) -> None:
        var = f"v{len(self.loops)}"
        kind = self.pick(["range", "range", "T.unrolled"]) if deeper < 3 else "range"
        self.lines.append(f"{'    ' * indent}for {var} in {kind}({self.pick('34578')}):")
        self.loops.append(var)
        if deeper > 1:
            self.nest(indent + 1, deeper - 1) if len(self.loops) < 2 else None
            self.body(indent + 1, deeper - 1)
        else:
            self.body(indent + 1, 0)
        self.loops.pop()

    def func(self) -> Func:
        self.nest(1, 3)
        return parse(_HEAD + "\n".join(self.lines) + "\n")


def difference(seed: int) -> str | None:
    """The program of a seed, if what is built computes something else than what it says."""
    func = Nest(seed).func()
    rng = np.random.default_rng(seed)
    given = [rng.random(shape, np.float32) for shape in ((SIZE, SIZE), (SIZE,), (SIZE, SIZE))]
    expected, found = ([a.copy() for a in given] for _ in range(2))
    interpret(func, *expected)
    to_module(compile_func(func, TARGET))(*found)
    same = all(map(np.array_equal, expected, found))
    return None if same else f"seed {seed}:\n{func}"


def main() -> None:
    first, last = map(int, sys.argv[1:3])
    failed = [told for told in map(difference, range(first, last)) if told is not None]
    print(*failed, f"{last - first} programs, {len(failed)} failed", sep="\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
