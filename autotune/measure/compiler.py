"""Compiling in a process of its own, both sides of it.

LLVM does not refuse what it has no code for on some processor (an intrinsic, say): it ends the
process. What was not made by this machine, or is not for it, is therefore compiled by a child.
"""

from __future__ import annotations

from ...codegen.build import Compiled, compile_func, compiled_signature, compiled_target
from ...codegen.signature import sized
from ...errors import BuildError, TuningError
from ...target import Target
from ...tir.ir import Func
from .program_text import parse_program, program_fields
from .protocol import Message
from .supervised_worker import describe, was_killed
from .worker_process import Died, Event, TimedOut, Worker, turn

_PATIENCE = 600.0


class Compiler:
    """What the child does: it answers `compile`, and `build` (`build_ahead.py`)."""

    def answer(self, message: Message) -> Message:
        fields = message.fields
        if fields["do"] == "build":
            from .build_ahead import answer

            return answer(fields)
        func, strict_fp = parse_program(fields), fields["strict_fp"]
        compiled = compile_func(func, fields["target"], strict_fp=strict_fp)
        texts = [compiled.tir.encode(), compiled.llvm_text.encode()]
        answer = {
            "parallel": compiled.parallel,
            "workspaces": compiled.signature.workspaces,
            "lengths": [len(text) for text in texts],
        }
        return Message(answer, b"".join(texts) + compiled.object_code)


def compile_apart(func: Func, target: Target | str, *, strict_fp: bool = False) -> Compiled:
    """As `compile_func`, in a child. If that dies, the `BuildError` has what it printed."""
    target = compiled_target(target)
    fields = {"do": "compile", "target": str(target), "strict_fp": strict_fp}
    try:
        request = Message({**fields, **program_fields(func)})
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
    llvm_end = tir_end + length
    return Compiled(
        sized(compiled_signature(func), answer.fields["workspaces"]),
        target,
        answer.data[:tir_end].decode(),
        answer.data[tir_end:llvm_end].decode(),
        answer.data[llvm_end:],
        answer.fields["parallel"],
    )


def _asked(message: Message) -> Event:
    """What a new child answers, or its death."""
    worker = Worker(["compiler"], {})
    try:
        worker.send(message, _PATIENCE)
        return turn([worker], lambda: None)[0][1]
    finally:
        worker.kill()


def _hint(death: Died | TimedOut) -> str:
    if was_killed(death):
        return "the process was killed from outside, twice: look for what does that, and try again"
    return "LLVM may have no code for it on that processor; try another schedule"
