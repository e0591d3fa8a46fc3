"""Compiling in a process of its own (`compiler.py`).

A compiler may end the process instead of refusing a program: LLVM does where it has no code for an
intrinsic on some processor. What was not made by this machine, or is not for it, is therefore
compiled by a child.
"""

from __future__ import annotations

from ...base.errors import BuildError, TuningError
from ...codegen.build import compiled_signature, compiled_target
from ...codegen.compiled import Compiled, compiled_from
from ...target import Target
from ...tir.ir import Func
from .program_text import program_fields
from .protocol import Message
from .supervised_worker import describe, was_killed
from .worker_process import Died, Event, TimedOut, Worker, turn

_PATIENCE = 600.0


def compile_in_child(func: Func, target: Target | str, *, strict_fp: bool = False) -> Compiled:
    """As `compile_func`, in a child process. If that dies, the `BuildError` quotes its output."""
    target = compiled_target(target)
    try:
        fields = {"do": "compile", "strict_fp": strict_fp}
        request = Message({**fields, **program_fields(func, target)})
        answer = _asked(request)
        if was_killed(answer):
            answer = _asked(request)
    except TuningError as error:
        raise BuildError("cannot compile {0} in a child: {1}", func.name, error) from error
    if not isinstance(answer, Message):
        raise BuildError(
            "cannot compile {0} for {1}: {2}",
            func.name,
            target,
            describe(answer),
            hint=_hint(answer),
        )
    if "error" in answer.fields:
        raise BuildError("{0}", answer.fields["error"])
    tir_end, length = answer.fields["lengths"]
    text_end = tir_end + length
    return compiled_from(
        answer.fields["form"],
        compiled_signature(func, target),
        target,
        answer.data[:tir_end].decode(),
        answer.data[tir_end:text_end].decode(),
        answer.data[text_end:],
    )


def _asked(message: Message) -> Event:
    """The answer of a new child process, or its death."""
    worker = Worker(["compiler"], {})
    try:
        worker.send(message, _PATIENCE)
        return turn([worker], lambda: None)[0][1]
    finally:
        worker.kill()


def _hint(death: Died | TimedOut) -> str:
    if was_killed(death):
        return "the process was killed from outside, twice: look for what does that, and try again"
    return "the compiler may have no code for it on that target; try another schedule"
