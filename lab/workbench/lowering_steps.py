"""Stepping down from a version to its machine code: what each lowering pass changed, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...autotune.measure.compile_in_child import compile_in_child
from ...base.errors import BuildError
from ...codegen.build import Lowered, compile_func, compiled_target, emit_parts, lower_parts
from ...codegen.compiled import Compiled
from ...codegen.generator import Emission, generator_for
from ...target import Target
from ...tir.ir import Func
from ...tir.printer import func_text
from ..pictures.assembly_lines import Assembly
from ..pictures.changes import line_changes
from .answers import problem
from .program_tree import Data
from .stage_facts import differences, parts_of_program, parts_of_text, totals
from .versions import LabError, Version

_SCHEDULED = "The program as it is scheduled, from which the passes lead down to the code."
_EMITTED = "Writes the program in the language of the tools that make code."


@dataclass(frozen=True)
class LoweringStage:
    """A program or text on the way down, and the pass that made it.

    `why` is a sentence, `parts` are numbers of what is in it, and `error` is why there is none. A
    pass that refused a program has that before it.
    """

    name: str
    why: str
    lines: tuple[str, ...]
    parts: Mapping[str, int]
    is_program: bool = True
    error: Data | None = None


class Lowering:
    """The stages of a version: the scheduled program, that after each pass, and the texts of code.

    The pass that refuses a program is the last stage. Raises `BuildError` for a program that no
    pass is given.
    """

    def __init__(self, version: Version, target: Target) -> None:
        self.target = compiled_target(target)
        self._generator = generator_for(self.target)
        self._version = version
        self._code: Compiled | None = None
        noted: list[tuple[str, Func]] = []
        try:
            lowered = lower_parts(
                version.schedule.func, self.target, trace=lambda *step: noted.append(step)
            )
        except BuildError as error:
            self.stages = list(self._refused(noted, error))
        else:
            self.stages = [*self._passes(noted), *self._texts(lowered)]

    def listed(self) -> list[Data]:
        """The stages without their lines; those that changed nothing are marked."""
        return [
            {
                "number": number,
                "name": stage.name,
                "why": stage.why,
                "facts": list(self._facts(number)),
                "program": stage.is_program,
                "lines": len(stage.lines),
                "changed": number > 0 and stage.lines != self.stages[number - 1].lines,
                "error": stage.error,
            }
            for number, stage in enumerate(self.stages)
        ]

    def _facts(self, number: int) -> Iterator[str]:
        """What a stage has more or less of than the one before; all of it where that is another
        language."""
        stage, before = self.stages[number], self.stages[max(number - 1, 0)]
        alike = number > 0 and stage.parts.keys() == before.parts.keys()
        return differences(before.parts, stage.parts) if alike else totals(stage.parts)

    def stage(self, number: int) -> LoweringStage:
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

    @cached_property
    def assembly(self) -> Assembly:
        """The assembly. Raises `LabError` where there is none."""
        error = self.stages[-1].error
        if error is not None:
            raise LabError("{0}", error["text"], hint=error["hint"])
        assert self._code is not None, "the last stage is a text of the code"
        return Assembly.of(self._code, self._version.schedule.func)

    def _passes(self, noted: Sequence[tuple[str, Func]]) -> Iterator[LoweringStage]:
        """The stages of the kernel."""
        why = {step.name: step.why for step in self._generator.passes(self.target)}
        for number, (name, program) in enumerate(noted):
            if number > 0 and not name:
                return  # the packers of constant operands follow the kernel
            lines = tuple(func_text(program).splitlines())
            about = why.get(name, _SCHEDULED)
            yield LoweringStage(name or "scheduled", about, lines, parts_of_program(program))

    def _refused(
        self, noted: Sequence[tuple[str, Func]], error: BuildError
    ) -> Iterator[LoweringStage]:
        """The stages of the kernel up to the pass that refuses it, or a packer of its operands.

        Raises the error if no pass does.
        """
        passes = tuple(self._generator.passes(self.target))
        begins = [n for n, (name, _) in enumerate(noted) if not name]
        done = len(noted) - begins[-1] - 1 if begins else len(passes)
        if done == len(passes):
            raise error
        yield from self._passes(noted)
        refusing, (_, program) = passes[done], noted[-1]
        lines, parts = tuple(func_text(program).splitlines()), parts_of_program(program)
        yield LoweringStage(refusing.name, refusing.why, lines, parts, True, problem(error))

    def _texts(self, lowered: Lowered) -> Iterator[LoweringStage]:
        """The stages of the texts of code."""
        emission: Emission | None = None
        try:
            emission = self._generator.emission(emit_parts(lowered, self.target))
        except BuildError as error:
            yield LoweringStage("emit", _EMITTED, (), {}, False, problem(error))
        if emission is not None:
            lines = tuple(emission.text.splitlines())
            parts = parts_of_text(lines, emission.counts)
            yield LoweringStage("emit", emission.why, lines, parts, False)
        for number, (name, source) in enumerate(self._generator.sources.items()):
            why = source.why
            if number == 0 and emission is not None:
                why = f"{why} {emission.optimisation}"
            try:
                self._code = self._compiled() if self._code is None else self._code
                lines = tuple(self._code.source(name).splitlines())
            except Exception as error:  # noqa: BLE001 - tools may be missing, or fail in any way
                yield LoweringStage(name, why, (), {}, False, problem(error))
            else:
                yield LoweringStage(name, why, lines, parts_of_text(lines, source.counts), False)

    def _compiled(self) -> Compiled:
        """The code of the version; made by a child process where that may end."""
        foreign, func = self._version.foreign, self._version.schedule.func
        if self._generator.may_end_process(self.target, foreign=foreign):
            return compile_in_child(func, self.target)
        return compile_func(func, self.target)
