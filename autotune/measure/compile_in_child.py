"""Compiling in processes of their own (`compiler.py`): what may end a process, or several at once.

A compiler may end the process instead of refusing a program: LLVM does where it has no code for an
intrinsic on some processor. What was not made by this machine, or is not for it, is therefore
compiled by a child.

Python runs one thread of a process at a time, and so does the binding to LLVM: what is to be built
in parallel takes processes too. Each takes 0.16 s of processor time to start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...base.errors import BuildError, TuningError
from ...codegen.compiled import Compiled, compiled_from
from ...codegen.detect import resolve
from ...runtime.signature import Signature
from ...target import Target
from ...tir.instruction_set import user_instructions
from ...tir.ir import Func
from ..search.remembered import Way
from .machine import with_rates
from .program_text import program_fields
from .protocol import Message
from .worker_pool import Builds, SupervisedWorker, describe, was_killed
from .worker_process import Died, Reply, TimedOut, Worker

_PATIENCE = 600.0
_ASLEEP = 60.0
"""Seconds for which a child may sleep, because it was stopped, say."""


class CompileRequest(NamedTuple):
    """A program to compile; its schedule is chosen first by `way`, unless that is `None`.

    `error_factor` as in `unmeasured.model_trace`.
    """

    func: Func
    way: Way | None = None
    error_factor: float = 1.0


def compile_in_children(
    requests: Sequence[CompileRequest],
    target: Target,
    jobs: int,
    *,
    strict_fp: bool = False,
    cached: bool = True,
    own: Callable[[int], Compiled | str] | None = None,
) -> list[Compiled | str | Died | TimedOut]:
    """Choose and compile in at most `jobs` processes; with what is `cached` on disk, or anew.

    All are children, or all but this one: `own` does here the request of a number, one that still
    waits, the last first. A program that is refused has the error's text in place of its code, and
    one on which a child ends that end. A child that is killed from outside is replaced, once for
    each program.

    Raises `TuningError` where no process can be started, or for a program that none can read.
    """
    target = resolve(target)
    messages = [_message(r, target, strict_fp=strict_fp, cached=cached) for r in requests]
    here = own is not None
    workers = [SupervisedWorker("compiler", {}) for _ in range(min(jobs, len(messages)) - here)]

    def ask(supervised: SupervisedWorker, message: Message) -> Worker:
        return supervised.ask(message, _PATIENCE, _ASLEEP)

    def hear(answer: Reply, _: Message) -> Compiled | str | Died | TimedOut:
        return _compiled(answer, target) if isinstance(answer, Message) else answer

    def work() -> bool:
        number = None if own is None else builds.take()
        if own is None or number is None:
            return False
        builds.results[number] = own(number)
        return True

    try:
        builds = Builds(workers, messages, ask, hear)
        while builds.at_work:
            builds.hear(lambda: None, work)
    finally:
        for supervised in workers:
            supervised.close()
    return [builds.results[number] for number in range(len(messages))]


def compile_in_child(func: Func, target: Target | str, *, strict_fp: bool = False) -> Compiled:
    """As `compile_func`, in a child process. If that dies, the `BuildError` quotes its output."""
    target = resolve(target)
    try:
        (answer,) = compile_in_children(
            [CompileRequest(func)], target, 1, strict_fp=strict_fp, cached=False
        )
    except TuningError as error:
        raise BuildError("cannot compile {0} in a child: {1}", func.name, error) from error
    if isinstance(answer, str):
        raise BuildError("{0}", answer)
    if not isinstance(answer, Compiled):
        raise BuildError(
            "cannot compile {0} for {1}: {2}",
            func.name,
            target,
            describe(answer),
            hint=_hint(answer),
        )
    return answer


def _message(request: CompileRequest, target: Target, *, strict_fp: bool, cached: bool) -> Message:
    func, way, error_factor = request
    fields = program_fields(func, target if way is None else with_rates(target))
    if way is not None:  # rules may take any instruction
        homes = {i.home for i in user_instructions()}
        fields["modules"] += sorted(home for home in homes if home is not None)
    fields |= {"way": way, "error_factor": error_factor}
    return Message({**fields, "strict_fp": strict_fp, "cached": cached})


def _compiled(answer: Message, target: Target) -> Compiled | str:
    """The code in an answer of `compiler.py`, or the text of its error."""
    fields = answer.fields
    if "error" in fields:
        return str(fields["error"])
    start, texts = 0, list[str]()
    for length in fields["lengths"]:
        texts.append(answer.data[start : start + length].decode())
        start += length
    scheduled, text = texts
    signature = Signature.from_json(fields["signature"])
    image = answer.data[start:]
    compiled = compiled_from(fields["form"], signature, target, (scheduled,), text, image)
    return replace(compiled, spent=tuple(fields["spent"]))


def _hint(death: Died | TimedOut) -> str:
    if was_killed(death):
        return "the process was killed from outside, twice: look for what does that, and try again"
    return "the compiler may have no code for it on that target; try another schedule"
