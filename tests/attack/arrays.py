"""Hostile objects in calls: an `ArgumentError` or the right result, and no stray writes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import Module, build
from tilewright.base.errors import ArgumentError, TilewrightError

from .attempt import Attack, Attempt, require
from .lies import LIES, index_out_of_range
from .subjects import TARGET, Call, call_of, require_close, subjects


def prepare(folder: Path) -> Attack:
    modules = {name: build(s.func, TARGET, allow=("default",)) for name, s in subjects().items()}
    return partial(attack, modules)


def attack(modules: dict[str, Module], attempt: Attempt) -> str:
    name = attempt.choice(list(modules))
    module, call = modules[name], call_of(subjects()[name], attempt.rng)
    attempt.note(name)
    wrong = spoil(name, call, attempt)
    before = [None if m is None else m.array.copy() for m in call.memory]
    refused: TilewrightError | None = None
    try:
        if attempt.chance(0.7):
            module(*call.arguments)
        else:
            module.bind(*call.arguments)()
    except TilewrightError as error:
        refused = error
        require(isinstance(error, ArgumentError), f"a {type(error).__name__}: {error}")
        require(bool(str(error)), "an error without a text")
    call.check_margins()
    if refused is None:
        require(wrong != "indices", "indices out of their range were taken")
        require(wrong != "overlap", "an output that overlaps was taken")
        if wrong != "number":  # which may have become another number
            check_outputs(call)
        return "taken and right"
    for now, then in zip(call.memory, before, strict=True):
        same = now is None or now.array.tobytes() == (b"" if then is None else then.tobytes())
        require(same, "a call that was refused changed an array")
    return f"refused ({wrong})"


def spoil(name: str, call: Call, attempt: Attempt) -> str:
    """Make one argument, or the list of them, hostile; returns how."""
    arguments = call.arguments
    at = attempt.pick(len(arguments))
    action = attempt.pick(12)
    if name == "gather" and action < 4:
        arguments[1] = index_out_of_range(arguments[1], attempt)
        return "indices"
    if action == 0:
        del arguments[at]
        return "too few"
    if action == 1:
        arguments += [arguments[at]] * attempt.choice((1, 2, 1200))
        return "too many"
    if action == 2 and isinstance(arguments[call.written[0]], np.ndarray):
        return overlap(call, attempt)
    lie: Any = attempt.choice(LIES)
    value = arguments[at]
    if isinstance(value, np.ndarray):
        arguments[at] = lie(value, attempt)
        return str(lie.__name__)
    arguments[at] = lie(np.asarray(value, np.float32), attempt)
    return "number"


def overlap(call: Call, attempt: Attempt) -> str:
    """An output in the memory of another argument."""
    at = call.written[0]
    out = call.arguments[at]
    others = [
        k
        for k, a in enumerate(call.arguments)
        if k != at and isinstance(a, np.ndarray) and a.dtype == out.dtype and a.size and out.size
    ]
    if not others:
        return "nothing"
    other = attempt.choice(others)
    arena = np.zeros(out.nbytes + call.arguments[other].nbytes, np.uint8)
    shift = attempt.pick(out.nbytes) // out.itemsize * out.itemsize
    source = call.arguments[other]
    if not source.flags.c_contiguous:
        return "nothing"
    first = arena[: out.nbytes].view(out.dtype).reshape(out.shape)
    second = arena[shift : shift + source.nbytes].view(source.dtype).reshape(source.shape)
    second[...] = source
    call.arguments[at], call.arguments[other] = first, second
    attempt.note(f"argument {at} overlaps with {other}, by {out.nbytes - shift} bytes")
    return "overlap"


def check_outputs(call: Call) -> None:
    """The outputs that were passed as they are hold what they should; a copy stays unseen."""
    for position, want in zip(call.written, call.expected, strict=True):
        memory = call.memory[position]
        assert memory is not None
        if call.arguments[position] is memory.array:
            require_close(memory.array, want, f"argument {position}")
