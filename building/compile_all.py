"""Compiling the first choice that compiles: of one program, or of several in child processes."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..base.errors import BuildError, TilewrightError, TuningError, told_of
from ..base.process import collected_later
from ..target import Target
from .choose import Choice, Choices
from .stages import Stages

if TYPE_CHECKING:
    from ..codegen.compiled import Compiled
    from ..tir.ir import Func

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChosenKernel:
    """A program, the schedule that was chosen for it, and its code."""

    func: Func
    choice: Choice
    compiled: Compiled


def compile_all(
    choices: Sequence[Choices],
    target: Target,
    *,
    jobs: int | None = None,
    strict_fp: bool = False,
    stage: Stages | None = None,
) -> list[ChosenKernel]:
    """Compile several programs for a resolved target: of each, the first choice that compiles.

    The first choices are compiled in `jobs` processes, by default one for each processor that may
    be used: in this one, and in children, whose code comes by message. The rest is done here: what
    children cannot read, what is cached on disk, and the choices that follow one that fails, in the
    order of programs. The time is that of the stages `choose` and `compile`: children tell how much
    of each they did.

    Raises what `compile_first` raises, for the first program that cannot be built, and `BuildError`
    where no process can be started.
    """
    stage = Stages() if stage is None else stage
    first: list[Choice] = []
    with stage("choose"):
        for n, offers in enumerate(choices):
            with told_of(partial(nth, choices, n)):
                first.append(next(offers))
    results: list[ChosenKernel] = []
    with stage("compile"):
        made = _in_children(first, target, jobs, strict_fp=strict_fp)
        for n, offers in enumerate(choices):
            with told_of(partial(nth, choices, n)):
                results.append(
                    compile_first(offers, target, strict_fp=strict_fp, first=first[n], code=made[n])
                )
    chose, compiled = (sum(kernel.compiled.spent[n] for kernel in results) for n in range(2))
    stage.move(chose / (chose + compiled or 1.0), "compile", "choose")
    return results


def nth(choices: Sequence[Choices], n: int) -> str:
    """A program by its name and number."""
    return f"program {choices[n].name}, number {n + 1} of {len(choices)}"


def compile_first(
    choices: Choices,
    target: Target,
    *,
    strict_fp: bool = False,
    first: Choice | None = None,
    code: Compiled | None = None,
) -> ChosenKernel:
    """Compile the first choice that compiles, for a resolved target.

    `first` is the first one if it was taken already, and `code` what it compiles to. Choices that
    fail are set aside, with warnings. Raises the error of the last one where none compiles, and
    what `choices` raises; where there is no compiler, that is said once.
    """
    from ..codegen.generator import generator_for

    choice = next(choices) if first is None else first
    generator_for(target).tools()
    failed = False
    while code is None:
        func, began = None, time.perf_counter()
        try:
            func = choice.scheduled(target)
            # What ended a child may be the program's fault: then it would end this process next.
            foreign = choice.foreign or failed
            code = _compiled(func, target, began, strict_fp=strict_fp, foreign=foreign)
        except TilewrightError as error:
            choices.set_aside(choice, error, found=func is not None)
            choice, failed = next(choices), True
    for remark in code.remarks:
        _log.warning("%s: %s", choice.func.name, remark)
    return ChosenKernel(choices.func, choice, code)


@collected_later()
def _compiled(
    func: Func, target: Target, began: float, *, strict_fp: bool, foreign: bool
) -> Compiled:
    """The code of a scheduled program, whose schedule has been looked for since `began`."""
    from ..codegen.cache import Compile, compile_cached
    from ..codegen.generator import generator_for

    chose = time.perf_counter()
    compiler: Compile | None = None
    if generator_for(target).may_end_process(target, foreign=foreign):
        from ..autotune.measure.compile_in_child import compile_in_child

        compiler = compile_in_child
    code = compile_cached(func, target, strict_fp=strict_fp, compiler=compiler)
    return replace(code, spent=(chose - began, time.perf_counter() - chose))


def _in_children(
    choices: Sequence[Choice], target: Target, jobs: int | None, *, strict_fp: bool
) -> list[Compiled | None]:
    """The code of choices that several processes compile; `None` of those that are left.

    What fails is logged, and left to this process, which then has the error.
    """
    from ..autotune.measure.compile_in_child import CompileRequest, compile_in_children
    from ..autotune.measure.worker_pool import describe
    from ..codegen.compiled import Compiled
    from ..codegen.generator import outside_modules
    from ..tir.instruction_set import user_instructions
    from ..tir.printer import func_text

    jobs = jobs_by_default() if jobs is None else jobs
    # Children import what modules register.
    homes = {*outside_modules(target), *(i.home for i in user_instructions())}
    if jobs == 1 or len(choices) < 2 or "__main__" in homes:
        return [None] * len(choices)
    keys = [(func_text(c.func), c.way, c.error_factor) for c in choices]
    shared = {
        key: choice
        for key, choice in zip(keys, choices, strict=True)
        if _is_for_children(choice, target, strict_fp=strict_fp)
    }
    if len(shared) < 2:  # a process is not worth it
        return [None] * len(choices)
    several = list(shared.values())

    def own(number: int) -> Compiled | str:
        choice, began = several[number], time.perf_counter()
        try:
            func = choice.scheduled(target)
            return _compiled(func, target, began, strict_fp=strict_fp, foreign=choice.foreign)
        except TilewrightError as error:
            return str(error)

    requests = [CompileRequest(c.func, c.way, c.error_factor) for c in several]
    try:
        answers = compile_in_children(requests, target, jobs, strict_fp=strict_fp, own=own)
    except TuningError as error:
        raise BuildError(
            "cannot build in child processes: {0}", error, hint="build here: jobs=1"
        ) from error
    made = dict[object, Compiled]()
    for key, answer in zip(shared, answers, strict=True):
        if isinstance(answer, Compiled):
            made[key] = answer
        elif isinstance(answer, str):
            _log.info("a build failed, and is made again: %s", answer)
        else:
            _log.warning("a build in a child process failed: %s", describe(answer))
    return [made.get(key) for key in keys]


def jobs_by_default() -> int:
    """One process for each processor that may be used."""
    from ..codegen.detect import usable_processors

    return usable_processors()


def _is_for_children(choice: Choice, target: Target, *, strict_fp: bool) -> bool:
    from ..autotune.search.remembered import has_own_rules
    from ..codegen.cache import is_cached

    if choice.way is not None:
        return not has_own_rules(target)
    return not is_cached(choice.func, target, strict_fp=strict_fp)
