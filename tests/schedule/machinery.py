"""Checks of golden and property tests on a schedule: its text, its meaning, and its replays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base import dtypes
from tilewright.codegen.build import compile_func, to_module
from tilewright.schedule import Schedule, Trace
from tilewright.tir.equality import structural_hash
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, For, ForKind, Func, Store
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
from tilewright.tir.verify import verify
from tilewright.tir.visit import walk

from ..differences import first_difference
from ..golden import check_golden
from ..strided import laid_out
from .random_extremes import extreme_integers

Programs = Func | Mapping[str, Func]
RULE = "-" * 40
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


def check(
    path: Path, func: Programs, script: Callable[[Schedule], Any], *, update: bool
) -> Schedule:
    """Run `script` on a schedule of `func`; compare with the golden file, replay, interpret."""
    schedule = Schedule(func)
    before = schedule.funcs
    script(schedule)
    verify_steps(schedule)
    text = golden_text(before, schedule)
    check_golden(path, text, update=update)
    check_replays(func, schedule)
    for name, after in schedule.funcs.items():
        assert_same(parse(func_text(after)), after)
        check_meaning(before[name], after)
    return schedule


def verify_steps(schedule: Schedule) -> None:
    """Each accepted step made a program that the verifier accepts."""
    for func in dict.fromkeys(f for programs in schedule.history for f in programs):
        verify(func)


def golden_text(before: Mapping[str, Func], schedule: Schedule) -> str:
    """Before, script and after."""
    texts = ["\n\n".join(map(func_text, fs.values())) for fs in (before, schedule.funcs)]
    return f"\n{RULE}\n".join([texts[0], schedule.trace.as_python(), texts[1]]) + "\n"


def check_replays(func: Programs, schedule: Schedule) -> None:
    """The trace gives the same program when replayed, through JSON, and as Python text."""
    trace = schedule.trace
    again = Trace.from_json(trace.to_json())
    assert again == trace
    fresh = Schedule(func)
    exec(trace.as_python(), {"sch": fresh})  # our own text
    assert fresh.trace == trace
    for replayed in (again.apply(func), fresh):
        for a, b in zip(replayed.funcs.values(), schedule.funcs.values(), strict=True):
            assert_same(a, b)


def assert_same(a: Func, b: Func) -> None:
    assert (difference := first_difference(a, b)) is None, difference


def check_meaning(before: Func, after: Func, seed: int = 0, *, extremes: bool = False) -> None:
    """Both programs compute the same: integers exactly, floats within rounding.

    With `extremes`, many integers of their inputs are near the limits of their dtypes.
    """
    expected = run(before, seed, extremes=extremes)
    for order in ("forward", "shuffled"):
        assert_close(expected, run(after, seed, order, extremes=extremes))


def check_compiled(before: Func, after: Func, seed: int = 0, *, extremes: bool = False) -> None:
    """`after` in machine code computes what `before` does, on inputs as of `check_meaning`.

    Thread loops are not for processors, and what is in registers needs constant indices.
    """
    if any(type(n) is For and n.kind is ForKind.THREAD for n in walk(after)):
        return
    if any(b.scope == "register" for b in after.allocs):
        return
    module = to_module(compile_func(after, "cpu -threads=1"))
    arguments, outputs = inputs(after, seed, extremes=extremes)
    module(*arguments)
    assert_close(run(before, seed, extremes=extremes), outputs)


def check_random(check: Callable[..., None], before: Func, after: Func) -> None:
    """`check` two programs, on inputs with extreme integers that differ from program to program."""
    seed = int(structural_hash(before)[:8], 16)
    check(before, after, seed, extremes=True)


def assert_close(expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
    for name, want in expected.items():
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(found[name], want, err_msg=name)
        else:
            wide = want.astype(np.float64)
            scale = max(1.0, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)))
            tolerance = TOLERANCE[want.dtype.name] * scale
            np.testing.assert_allclose(
                found[name].astype(np.float64), wide, rtol=0, atol=tolerance, err_msg=name
            )


def run(
    func: Func, seed: int = 0, order: Any = "forward", *, extremes: bool = False
) -> dict[str, np.ndarray]:
    """The outputs of `func` on random inputs, by name."""
    arguments, outputs = inputs(func, seed, extremes=extremes)
    interpret(func, *arguments, order=order, seed=seed)
    return outputs


def inputs(
    func: Func, seed: int, *, extremes: bool = False
) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Random arguments, and those of them that are outputs, by name; see `check_meaning`."""
    rng = np.random.default_rng(seed)
    stored = {n.buffer for n in walk(func) if type(n) is Store}
    arguments: list[Any] = []
    outputs: dict[str, np.ndarray] = {}
    for p in func.params:
        value: Any = 2
        if isinstance(p, Buffer):
            value = random_array(p, rng, extremes=extremes)
        elif extremes and dtypes.is_integer(p.dtype):
            numbers = extreme_integers(p.dtype)
            value = numbers[rng.integers(len(numbers))]
        arguments.append(value)
        if p in stored:
            outputs[p.name] = value
    return arguments, outputs


def random_array(buffer: Buffer, rng: np.random.Generator, *, extremes: bool = False) -> np.ndarray:
    """Values for a parameter: small, and within its declared range.

    With `extremes`, three in four arrays of integers have extreme ones among them.
    """
    shape = tuple(int(n) for n in buffer.shape)  # type: ignore[arg-type]
    facts = dtypes.info(buffer.dtype)
    if buffer.value_range is not None:
        values: np.ndarray = rng.integers(*buffer.value_range, size=shape)
    elif facts.kind == "float":
        values = rng.standard_normal(shape)
    elif facts.kind == "bool":
        values = rng.integers(0, 2, size=shape)
    else:
        dtype = dtypes.to_numpy(buffer.dtype)
        values = rng.integers(-9 if facts.kind == "int" else 0, 10, size=shape).astype(dtype)
        if extremes and rng.integers(4):
            others = rng.choice(np.array(extreme_integers(buffer.dtype), dtype), shape)
            values = np.where(rng.integers(2, size=shape) == 0, values, others)
    return laid_out(values.astype(dtypes.to_numpy(buffer.dtype)), buffer.strides)
