"""Hints for a name that is not there: the nearest of those that are, or what to write instead.

`docs/from` has the vocabularies of other libraries; the table here has what is typed most often and
is like no name that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import similar

INSTEAD: Mapping[str, str] = {
    "tw.IRModule": "tw.Func, which te.func and tw.script make",
    "tw.Tensor": "te.placeholder(shape, dtype, name=...), of `from tilewright import te`",
    "tw.array": "a numpy array: modules are called with those",
    "tw.compile": "tw.build(func)",
    "tw.cuda": 'the target as a text: "cuda", or "cuda -arch=sm_90a" for an architecture',
    "tw.jit": "tw.build(func), of a program that te.func or tw.script makes",
    "tw.lower": 'tw.build(func).source("tir")',
    "tw.meta_schedule": "tw.tune(func, database=...)",
    "te.clamp": "te.clip(x, low, high)",
    "te.create_prim_func": "te.func([X, Y], name=...)",
    "te.einsum": "te.sum(A[i, r] * B[r, j], axis=r) with r = te.reduce_axis(k), or "
    "tilewright.ops.matmul(A, B)",
    "te.extern": "loops of your own with tilewright.script",
    "te.if_then_else": "te.select(condition, a, b)",
    "te.swish": "te.silu(x)",
    "te.thread_axis": "sch.parallel(loop) or sch.bind(loop, axis), of a tw.Schedule",
    "te.var": "te.scalar(dtype, name), for a number of each call",
    "te.zeros": "te.compute(shape, lambda i, j: te.const(0, dtype))",
    "T.alloc_buffer": "T.alloc(shape, dtype)",
    "T.if_then_else": "T.select(condition, a, b)",
    "T.max": "T.maximum(a, b)",
    "T.prim_func": "@tw.script",
    "Expr.shape": "X.extents, of the tensor: an expression is one element",
    "Tensor.T": "ops.transpose(X)",
    "Tensor.astype": "te.compute(X.extents, lambda i: X[i].astype(dtype))",
    "Schedule.mod": "sch.func",
    "Schedule.show": "print(sch.func); print(sch.trace) shows the steps",
    "Module.asm": 'mod.source("asm")',
    "Module.export_library": 'tw.build_library(program, "kernel.so")',
    "Module.time_evaluator": "mod.time(*arrays)",
    "TuneResult.schedule": "result.best.trace.apply(func)",
    "compute.dtype": "te.cast(x, dtype) or x.astype(dtype) in the function",
    "tune.max_trials_global": "trials=64",
    "tune.timeout": "seconds=60, of wall-clock time",
    "tune.work_dir": 'database="tuning.db"',
}
"""What to write for a name of a module, an object or a call."""

KINDS: Mapping[str, str] = {
    "gpu": 'write "cuda" for the GPU of this machine, or "cuda -arch=sm_90a" for an architecture',
    "llvm": "LLVM makes the code of `cpu`",
}
"""Hints for kinds of targets."""

OPTIONS: Mapping[str, str] = {
    "arch": "mcpu",
    "cores": "threads",
    "march": "mcpu",
    "num-cores": "threads",
}
"""The options of targets by the names that they have elsewhere."""


def instead(owner: str, name: str) -> str | None:
    """The hint of the table for a name that `owner` does not have."""
    text = INSTEAD.get(f"{owner}.{name}")
    return None if text is None else f"write {text}"


class MissingNameError(AttributeError):
    """The error for a `name` that is not there; `text` says so, as in "X has no attribute".

    `hint` is asked for when the text is read: imports and `hasattr` try names that are not there.
    """

    def __init__(self, text: str, name: str, hint: Callable[[str], str | None]) -> None:
        super().__init__(f"{text} {name!r}", name=name)
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)

    def __str__(self) -> str:
        hint = self.hint(str(self.name))
        return f"{self.args[0]}; {hint}" if hint else str(self.args[0])


def raise_missing(
    value: object, name: str, hint: Callable[[str], str | None], text: str | None = None
) -> NoReturn:
    """Raise the error of an attribute that a value does not have; `text` says so.

    A `__getattr__` is also asked for a property that raised an `AttributeError`, which Python then
    drops. The property is asked again, for its error.
    """
    if any(name in vars(each) for each in type(value).__mro__):
        object.__getattribute__(value, name)
    text = text or f"{type(value).__name__!r} object has no attribute"
    raise MissingNameError(text, name, hint)


class Hinted:
    """A class whose values say what to write instead of an attribute that they do not have."""

    __slots__ = ()

    def _instead(self, name: str) -> str | None:
        """The hint of the table for an attribute, or the nearest ones."""
        hints = (instead(each.__name__, name) for each in type(self).__mro__)
        return next(filter(None, hints), None) or similar(name, dir(self))

    if not TYPE_CHECKING:  # type checkers then still know what there is

        def __getattr__(self, name: str) -> Any:
            raise_missing(self, name, self._instead)
