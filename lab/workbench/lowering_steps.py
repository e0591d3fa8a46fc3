"""Stepping down from a version to its machine code: what each lowering pass changed, and why.

What a stage of lowering did to a program or a text, in numbers of what is in it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...autotune.measure.compile_in_child import compile_in_child
from ...base import dtypes
from ...base.errors import BuildError
from ...codegen.build import Lowered, compile_func, emit_parts, lower_parts
from ...codegen.compiled import Compiled
from ...codegen.detect import resolve
from ...codegen.generator import Emission, generator_for
from ...target import Target
from ...tir.ir import (
    INDEX,
    Alloc,
    Barrier,
    Binary,
    Block,
    Buffer,
    Call,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Op,
    Prefetch,
    Ramp,
    Select,
    Store,
    WarpShuffle,
    integers,
)
from ...tir.printer import func_text
from ...tir.visit import walk
from ..pictures.assembly_lines import Assembly
from ..pictures.trace import line_changes
from .answers import problem
from .program_tree import Data
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
        self.target = resolve(target)
        self._generator = generator_for(self.target)
        self._version = version
        self._code: Compiled | None = None
        noted: list[tuple[str, Func]] = []
        try:
            lowered = lower_parts(
                version.schedule.func, self.target, watcher=lambda *step: noted.append(step)
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


_BENT = frozenset({Op.MIN, Op.MAX, Op.MOD})
_Access = Load | Store
_PARTS: Mapping[str, Callable[[object], bool]] = {
    "block{s}": lambda n: type(n) is Block,
    "loop{s}": lambda n: type(n) is For,
    "loop{s} of extent 1": lambda n: type(n) is For and isinstance(n.extent, int) and n.extent == 1,
    "parallel loop{s}": lambda n: type(n) is For and n.kind is ForKind.PARALLEL,
    "vectorized loop{s}": lambda n: type(n) is For and n.kind is ForKind.VECTOR,
    "unrolled loop{s}": lambda n: type(n) is For and n.kind is ForKind.UNROLL,
    "loop{s} over blocks or threads": lambda n: type(n) is For and n.kind is ForKind.THREAD,
    "loop{s} counted in 32 bits": lambda n: type(n) is For and n.var.dtype != INDEX,
    "branch{es}": lambda n: type(n) is If,
    "store{s}": lambda n: type(n) is Store,
    "load{s}": lambda n: type(n) is Load,
    "vector store{s}": lambda n: type(n) is Store and _is_vector(n),
    "vector load{s}": lambda n: type(n) is Load and _is_vector(n),
    "masked access{es}": lambda n: isinstance(n, _Access) and n.mask is not None,
    "access{es} with several indices": lambda n: isinstance(n, _Access) and len(n.indices) > 1,
    "clamped or wrapped term{s}": lambda n: (
        type(n) is Binary and n.op in _BENT and n.dtype == INDEX
    ),
    "operation{s}": lambda n: isinstance(n, Binary | Call | Select),
    "named value{s}": lambda n: type(n) is Let,
    "prefetch{es}": lambda n: type(n) is Prefetch,
    "barrier{s}": lambda n: type(n) is Barrier,
    "shuffle{s} between threads": lambda n: type(n) is WarpShuffle,
}
"""Parts of programs by their names, in the order in which they are listed."""


def parts_of_program(func: Func) -> Counter[str]:
    """How many of each part a program has, and its internal buffers."""
    found = Counter(dict.fromkeys(_PARTS, 0))
    buffers = [b for b in func.allocs if type(b) is Buffer]
    for n in walk(func):
        found.update(name for name, is_part in _PARTS.items() if is_part(n))
        if type(n) is Alloc:
            buffers.append(n.buffer)
    registers = [b for b in buffers if b.scope == "register"]
    found["buffer{s} in registers"] = len(registers)
    found["internal buffer{s}"] = len(buffers) - len(registers)
    found["byte{s} of internal buffers"] = sum(
        math.prod(integers(b.shape)) * dtypes.nbytes(b.dtype)
        for b in buffers
        if b.scope != "register"
    )
    return found


def parts_of_text(lines: Iterable[str], counts: Mapping[str, str]) -> Counter[str]:
    """How many lines of a text begin as each of the patterns."""
    patterns = {name: re.compile(pattern) for name, pattern in counts.items()}
    found = Counter(dict.fromkeys(counts, 0))
    for line in lines:
        found.update(name for name, pattern in patterns.items() if pattern.match(line))
    return found


def differences(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    """Phrases such as `3 loops of extent 1 removed`, for what there is more or less of."""
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name, 0), after.get(name, 0)
        if old == new:
            continue
        if new == 0:
            yield f"{_counted(old, name)} removed"
        elif old == 0:
            yield f"{_counted(new, name)} added"
        else:
            yield f"from {old:,} to {_counted(new, name)}"


def totals(parts: Mapping[str, int]) -> Iterator[str]:
    """Phrases for what there is."""
    return (_counted(count, name) for name, count in parts.items() if count)


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name.format(s='' if count == 1 else 's', es='' if count == 1 else 'es')}"


def _is_vector(access: Load | Store) -> bool:
    return any(type(index) is Ramp for index in access.indices)
