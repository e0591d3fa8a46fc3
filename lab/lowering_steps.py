"""Stepping down from a version to its machine code: what each lowering pass changed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..autotune.measure.compiler import compile_in_child
from ..codegen.build import compile_func, compiled_target
from ..codegen.compiled import Compiled
from ..codegen.constant_operands import computed_ahead, take_ahead
from ..codegen.generator import generator_for
from ..codegen.hot_block import hot_block
from ..codegen.lower import lower, purpose
from ..target import Target
from ..tir.ir import Func
from ..tir.printer import func_text
from .answers import problem
from .changes import line_changes
from .program_tree import Data
from .versions import LabError, Version

_LANGUAGES: Mapping[str, str] = {
    "llvm": "LLVM IR, before LLVM optimises it",
    "asm": "machine code as assembly",
    "cuda": "CUDA C++ of the kernels",
    "ptx": "what the compiler makes of it, before it allots registers",
}


@dataclass(frozen=True)
class Stage:
    """A program or text on the way down, and the pass that made it.

    `error` is why there is none.
    """

    name: str
    why: str
    lines: tuple[str, ...]
    is_program: bool = True
    error: Data | None = None


class Lowering:
    """The stages of a version: the scheduled program, that after each pass, and the texts of code.

    Raises `BuildError` for a program that is not lowered at all.
    """

    def __init__(self, version: Version, target: Target) -> None:
        self.target = compiled_target(target)
        self._generator = generator_for(self.target)
        self._version = version
        self.stages = [*self._passes(version.schedule.func), *self._texts()]

    def listed(self) -> list[Data]:
        """The stages without their lines; those that changed nothing are marked."""
        return [
            {
                "number": number,
                "name": stage.name,
                "why": stage.why,
                "program": stage.is_program,
                "lines": len(stage.lines),
                "changed": number > 0 and stage.lines != self.stages[number - 1].lines,
                "error": stage.error,
            }
            for number, stage in enumerate(self.stages)
        ]

    def stage(self, number: int) -> Stage:
        """The stage of a number. Raises `LabError` if there is none."""
        if number >= len(self.stages):
            raise LabError("there is no stage {0}; there are {1}", number, len(self.stages))
        return self.stages[number]

    def changes(self, number: int) -> list[Data]:
        """How the program of a stage differs from the one before; a text of code is all new."""
        stage = self.stage(number)
        if number == 0 or not stage.is_program:
            return [{"op": " ", "text": line} for line in stage.lines]
        before = self.stages[number - 1].lines
        return [{"op": c.sign, "text": c.text} for c in line_changes(before, stage.lines)]

    def assembly(self) -> Data:
        """The lines of the lowest text, and `hot`: the first and last of those that the kernel
        spends its time in, as far as the text tells."""
        stage = self.stages[-1]
        if stage.error is not None:
            raise LabError("{0}", stage.error["text"], hint=stage.error["hint"])
        hot = hot_block("\n".join(stage.lines))
        return {
            "name": stage.name,
            "lines": list(stage.lines),
            "hot": None if hot is None else [hot.start, hot.stop - 1],
        }

    def _passes(self, func: Func) -> list[Stage]:
        why = {step.name: purpose(step) for step in self._generator.passes(self.target)}
        stages: list[Stage] = []

        def note(name: str, program: Func) -> None:
            about = why[name] if name else "the program as it is scheduled"
            lines = tuple(func_text(program).splitlines())
            stages.append(Stage(name or "scheduled", about, lines))

        lower(take_ahead(func, computed_ahead(func)), self.target, trace=note)
        return stages

    def _texts(self) -> list[Stage]:
        compiled: Compiled | None = None
        stages: list[Stage] = []
        for name in self._generator.sources:
            why = _LANGUAGES.get(name, "")
            try:
                compiled = self._compiled() if compiled is None else compiled
                lines = tuple(compiled.source(name).splitlines())
            except Exception as error:  # noqa: BLE001 - tools may be missing, or fail in any way
                stages.append(Stage(name, why, (), False, problem(error)))
            else:
                stages.append(Stage(name, why, lines, False))
        return stages

    def _compiled(self) -> Compiled:
        """The code of the version; made by a child process where that may end."""
        foreign, func = self._version.foreign, self._version.schedule.func
        if self._generator.may_end_process(self.target, foreign=foreign):
            return compile_in_child(func, self.target)
        return compile_func(func, self.target)
