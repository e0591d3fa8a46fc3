"""Programs for the files of one artifact: kernels and models, each with where it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ..base.errors import BuildError
from ..codegen.compiled import Compiled
from ..codegen.detect import resolve
from ..codegen.generator import generator_for
from ..graph.ir import Graph
from ..graph.parts import Partition
from ..graph.provider import Provider
from ..runtime.manifest import Provenance
from ..runtime.signature import is_function_name
from ..schedule import Schedule
from ..target import Target
from ..tir.ir import Func
from ..tir.program import program_hint, shown
from . import provenance
from .build_model import compile_graph
from .build_partition import compile_partition, divided, with_options
from .build_program import Kernels, Ways, compile_program, compile_programs, pieces_of
from .origins import together
from .providers import DeviceProvider, Tilewright

Buildable: TypeAlias = Func | Schedule | Graph | Partition


def named_programs(
    given: Buildable | Sequence[Buildable] | Mapping[str, Buildable],
) -> list[Buildable]:
    """Programs that are given alone, in a list, or by the names that they are to have.

    Raises `BuildError` for none, for what is no list of programs, and for two of one name.
    """
    if isinstance(given, Mapping):
        programs = [renamed(program, name) for name, program in given.items()]
    elif isinstance(given, list | tuple):
        programs = [*given]
    else:
        return [given]  # type: ignore[list-item]  # what it is, compiling it says
    if not programs:
        raise BuildError("expected one program or several, found none")
    for program in programs:
        if not isinstance(program, Buildable):
            raise BuildError(
                "expected programs (Func), schedules and graphs, found {0!r:.80}", program
            )
    names = [_name(program) for program in programs]
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise BuildError(
            "two programs are called {0}, and a library has one of each name", twice,
            hint="name them: tw.build_library({'first': ..., 'second': ...}, ...), or on a command "
            "line first=FILE.py:FUNCTION",
            name=twice,
        )  # fmt: skip
    return programs


def _name(program: Buildable) -> str:
    if isinstance(program, Schedule):
        return program.func.name
    return program.graph.name if isinstance(program, Partition) else program.name


def renamed(program: Any, name: object) -> Buildable:
    """The program under another name. Raises `BuildError` for a name that no C function has."""
    if not isinstance(name, str) or not is_function_name(name):
        raise BuildError("expected the name of a C function, found {0!r:.80}", name)
    if isinstance(program, Schedule):
        if program.space is not None or len(program.funcs) > 1:
            return program  # which is not built: the build says why
        return program.trace.apply(replace(program.original, name=name))
    if isinstance(program, Partition):
        return replace(program, graph=replace(program.graph, name=name))
    if not isinstance(program, Func | Graph):
        raise BuildError(
            "{0}: expected a program (Func), a Schedule, a Graph or a Partition, found {1!r:.80}",
            name, program,
        )  # fmt: skip
    return replace(program, name=name)


def compiled_for_files(
    programs: Sequence[Buildable],
    ways: Ways,
    own: Tilewright,
    *,
    object_file: bool,
    shared: Mapping[str, Any],
) -> list[tuple[Compiled, Provenance]]:
    """The code of programs, in their order; graphs are `shared` among providers, of which `own` is
    Tilewright's.

    Raises what `tw.build_library` raises.
    """
    if len(programs) > 1 and not generator_for(ways.target).several:
        raise BuildError(
            "expected one program, as a file for {0} has, found {1}", ways.target, len(programs),
            hint="write a file of each",
        )  # fmt: skip
    # What is wrong with any of them is told before the first one is compiled.
    given = [
        divided(p, own=own, **shared) if isinstance(p, Graph)
        else with_options(p, own) if isinstance(p, Partition)
        else p
        for p in programs
    ]  # fmt: skip
    if len(programs) > 1 and ways.restricted:
        ways.check([part for program in given for part in parts_of(program, ways)])
    plain = [p for p in programs if not isinstance(p, Graph | Partition)]
    kernels = iter(_kernels(plain, ways))
    return [
        _graph(each, ways, own, object_file=object_file)
        if isinstance(each, Partition)
        else next(kernels)
        for each in given
    ]


def parts_of(program: object, ways: Ways) -> Iterator[tuple[str, Kernels]]:
    """What is built of a program, graph or partition: names, and how often a call runs which
    kernels.

    Raises `BuildError` for anything else.
    """
    match program:
        case Graph():
            yield program.name, {**program.kernels()}
        case Partition() if all(part.provider.name == "tilewright" for part in program.parts):
            yield from parts_of(program.graph, ways)
        case Partition():
            for part in program.parts:
                if _has_kernels(part.provider, ways.target):
                    yield from parts_of(part.graph, ways)
        case Schedule():
            yield program.func.name, {program: 1}
        case Func():
            yield program.name, Counter(p.func for p in pieces_of(program, ways)) or {program: 1}
        case _:
            raise BuildError(
                "expected programs (Func), graphs or partitions, found {0}", shown(program),
                hint=program_hint(program, "tw.freeze"),
            )  # fmt: skip


def _has_kernels(provider: Provider, target: Target) -> bool:
    """Whether a provider runs kernels of this compiler for a resolved target."""
    if isinstance(provider, DeviceProvider):
        return resolve(provider.target) == target
    return provider.name == "tilewright" and not generator_for(target).on_device


def _kernels(
    programs: Sequence[Func | Schedule], ways: Ways
) -> Iterator[tuple[Compiled, Provenance]]:
    alone = len(programs) == 1
    made = [compile_program(programs[0], ways)] if alone else compile_programs(programs, ways, None)
    for program, built in zip(programs, made, strict=True):
        yield built.compiled, provenance.of_program(program, built, ways)


def _graph(
    found: Partition, ways: Ways, own: Tilewright, *, object_file: bool
) -> tuple[Compiled, Provenance]:
    graph = found.graph
    if all(part.provider is own for part in found.parts):
        built = compile_graph(graph, ways.target, **own.options, profiled=not object_file)
        told = built.evidence()
        return built.compiled, provenance.of_graph(graph, built.origin, built.choices, told, ways)
    if object_file:
        raise BuildError(
            "{0}: parts that other providers run are no object code", graph.name,
            hint="write a library, without object_file (--object)",
        )  # fmt: skip
    parts = compile_partition(found, ways.target, own)
    origin = together(choice.origin for choice in parts.choices.values())
    return parts.compiled, provenance.of_graph(graph, origin, parts.choices, parts.evidence, ways)
