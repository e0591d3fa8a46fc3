"""Write docs/schedules.md: what every primitive does, from the docstrings of the registry."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any, get_args, get_origin

from tilewright.schedule import PRIMITIVES, Schedule
from tilewright.schedule.primitive import Primitive
from tilewright.tir.ir import Label, Var

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schedules.md"
INTRODUCTION = """\
# Primitives

<!-- Written by scripts/reference.py from the docstrings; edit those, and run it again. -->

A schedule step is a method of `tw.Schedule`. It keeps the meaning of the program or raises
`ScheduleError` and changes nothing. Loops and blocks are named by *handles*: what `get_loops` and
`get_block` return, and what steps return for the loops that they make. `sch.get_loop("i")` is the
loop of that name, `sch.get_loop("i", block="C")` the one around a block. Where a step takes a
block, its name does too: `sch.get_loops("C")`. A handle stays valid until a step consumes its loop.
The [tutorial](tutorial.md) uses these steps one after the other.

Below, `for i in 16: A[i]` is short for a loop of 16 iterations around a block that computes `A[i]`;
`->` stands between a program before a step and the same program after it. An argument that is an
*integer* may also be one that a `sample_` step returned. The golden files in
[tests/schedule/goldens](../tests/schedule/goldens) show whole programs for every primitive.
"""
WORDS: dict[Any, str] = {Var: "loop", Label: "block"}


def render() -> str:
    """The page, from the primitives in the order in which `Schedule` has them."""
    names = [name for name in vars(Schedule) if name in PRIMITIVES]
    families: dict[str, list[Primitive]] = {}
    for name in names:
        primitive = PRIMITIVES[name]
        families.setdefault(primitive.function.__module__, []).append(primitive)
    return "\n".join([INTRODUCTION, *(family(m, ps) for m, ps in families.items())])


def family(module: str, primitives: list[Primitive]) -> str:
    """A section for the primitives of one file; its title is what the file's docstring says."""
    title = (sys.modules[module].__doc__ or "").partition(":")[0]
    return "\n".join([f"## {title}\n", *(entry(p) for p in primitives)])


def entry(primitive: Primitive) -> str:
    text = inspect.getdoc(primitive.function) or ""
    paragraphs = [as_code(p) if "->" in p and not p.startswith(" ") else p
                  for p in text.split("\n\n")]  # fmt: skip
    result = get_args(primitive.types["return"])[1]
    returns = "" if result in (None, type(None)) else f" -> {describe(result)}"
    heading = (
        f"### {primitive.name}\n\n    sch.{primitive.name}({parameters(primitive)}){returns}\n"
    )
    return "\n".join([heading, "\n\n".join(paragraphs), ""])


def parameters(primitive: Primitive) -> str:
    """The parameters as a user of `Schedule` gives them."""
    signature = inspect.signature(primitive.function)
    texts = []
    for p in list(signature.parameters.values())[2 if primitive.samples else 1 :]:
        if p.kind is p.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        star = "*" if p.kind is p.VAR_POSITIONAL else ""
        texts.append(star + p.name + ("" if p.default is p.empty else f"={p.default!r}"))
    return ", ".join([*texts, *(["*", "decision=()"] if primitive.samples else [])])


def describe(result: Any) -> str:
    """The result of a step, in words."""
    if get_origin(result) is not tuple:
        return WORDS.get(result, "integer")
    parts = get_args(result)
    if parts[-1] is ...:
        return f"({describe(parts[0])}, ..)"
    return f"({', '.join(describe(p) for p in parts)})"


def as_code(paragraph: str) -> str:
    return "\n".join(f"    {line}" for line in paragraph.split("\n"))


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
