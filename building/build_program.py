"""Building a program: as one kernel, or as several and an entry that calls them.

What is between kernels is in the workspace of the entry, whose signature is that of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..base.errors import BuildError, NotTunedError
from ..codegen.build import check_name
from ..codegen.calling_convention import signature_of
from ..codegen.compiled import Compiled
from ..codegen.sequence import Address, KernelCall, joined
from ..runtime.module import Origin
from ..target import Target
from ..tir.equality import structural_hash
from ..tir.ir import Func
from ..tir.node import CHECK
from .choose import POLICIES, Choice, Choices, best_record, require_policies
from .compile_all import ChosenKernel, compile_all, compile_first
from .memory_plan import Block, plan
from .model_steps import Steps, poisoned
from .origins import not_tuned, together

if TYPE_CHECKING:
    from ..autotune.rules.division import Operand, Piece
    from ..schedule import Schedule
    from ..tuning_db import TuningDatabase
    from .lock_file import LockFile


Kernels: TypeAlias = Mapping[Any, int]
"""How often a call runs which kernels, each a `Func` or a `Schedule`."""


@dataclass(frozen=True)
class Ways:
    """How programs are built: arguments of `tw.build`, the target resolved.

    Raises `BuildError` for those that say nothing, or contradict each other.
    """

    target: Target
    database: TuningDatabase | None
    allow: Sequence[str]
    tolerance: float | None
    strict_fp: bool = False
    locked: LockFile | None = None
    require_tuned: bool = False

    def __post_init__(self) -> None:
        require_policies(self.allow)
        if self.require_tuned and "record" not in self.allow:
            raise BuildError(
                "require_tuned takes records alone, and allow={0} has none", [*self.allow],
                hint='leave out allow, or write allow=("record",)',
            )  # fmt: skip
        if self.locked is not None:
            self._require_locked_alone()
        if self.tolerance is not None:
            from ..autotune.measure.numeric_check import require_tolerance

            require_tolerance(self.tolerance, BuildError)

    def _require_locked_alone(self) -> None:
        given = {
            "database": self.database is not None,
            "allow": tuple(self.allow) != POLICIES,
            "tolerance": self.tolerance is not None,
        }
        for name in (name for name, is_given in given.items() if is_given):
            raise BuildError(
                "{0} and locked: a lock says which schedules are built", name,
                hint=f"leave out {name} here, and give it to tw.freeze",
            )  # fmt: skip

    @property
    def restricted(self) -> bool:
        """Whether `check` may refuse something, which needs all kernels of programs."""
        return self.locked is not None or self.require_tuned

    def choices(self, program: Func | Schedule) -> Choices:
        allow = ("record",) if self.require_tuned else self.allow
        return Choices(program, self.target, self.database, allow, self.tolerance, self.locked)

    def check(self, programs: Sequence[tuple[str, Kernels]]) -> None:
        """Check programs, given by their names, and how often a call of each runs which kernels.

        Raises `LockError` with all that changed since they were locked, and `NotTunedError` with
        all that have no record, where that is required.
        """
        funcs = [
            (name, {k: runs for k, runs in kernels.items() if isinstance(k, Func)})
            for name, kernels in programs
        ]
        if self.locked is not None:
            from ..schedule import Schedule
            from .lock_changes import check_unchanged

            if any(isinstance(kernel, Schedule) for _, kernels in programs for kernel in kernels):
                raise BuildError(
                    "locked: a Schedule is built as it is, and no lock says how",
                    hint="build it without a lock, or build its program with one",
                )
            check_unchanged(self.locked, funcs, self.target)
        if self.require_tuned:
            from .untuned import require_tuned

            require_tuned(funcs, self)


@dataclass(frozen=True)
class Built:
    """The code of a program, and the choices of its kernels by their names."""

    compiled: Compiled
    choices: Mapping[str, Choice]

    @property
    def origin(self) -> Origin:
        """Where its schedule comes from; of several kernels the least certain origin."""
        if len(self.choices) == 1:
            return next(iter(self.choices.values())).origin
        return together(self.kernels.values())

    @property
    def kernels(self) -> dict[str, Origin]:
        """Of several kernels, where the schedules come from, by their names."""
        several = len(self.choices) > 1
        return {name: choice.origin for name, choice in self.choices.items() if several}


def compile_program(program: Func | Schedule, ways: Ways) -> Built:
    """Compile a program. Raises what `tw.build` raises."""
    pieces = pieces_of(program, ways)
    if ways.restricted:
        ways.check([_with_kernels(program, pieces)])
    if not isinstance(program, Func) or not pieces:
        return _built(compile_first(ways.choices(program), ways.target, strict_fp=ways.strict_fp))
    choices = [ways.choices(piece.func) for piece in pieces]
    try:
        made = compile_all(choices, ways.target, strict_fp=ways.strict_fp)
    except NotTunedError as error:
        again = [ways.choices(piece.func) for piece in pieces]
        raise not_tuned(program.name, ways.target, ways.allow, again, error) from error
    return _joined(program, pieces, made)


def compile_programs(
    programs: Sequence[Func | Schedule], ways: Ways, jobs: int | None
) -> list[Built]:
    """Compile several programs in `jobs` child processes; see `compile_all`."""
    parted = [pieces_of(program, ways) for program in programs]
    ways.check([*map(_with_kernels, programs, parted)])
    kernels: list[Func | Schedule] = []
    for program, pieces in zip(programs, parted, strict=True):
        kernels += [piece.func for piece in pieces] or [program]
    choices = [ways.choices(kernel) for kernel in kernels]
    made = iter(compile_all(choices, ways.target, jobs=jobs, strict_fp=ways.strict_fp))
    return [
        _joined(program, pieces, [next(made) for _ in pieces]) if pieces else _built(next(made))
        for program, pieces in zip(programs, parted, strict=True)
    ]


def pieces_of(program: Func | Schedule, ways: Ways) -> tuple[Piece, ...]:
    """The kernels that a program is built as; none where it is one itself.

    It is, too, where its whole is locked, or has a record that is pinned, or is not slower than
    those of all of the kernels together.
    """
    from ..autotune.rules import division

    if not isinstance(program, Func):
        return ()
    pieces = division.pieces_of(program, ways.target)
    if pieces and ways.locked is not None:
        return () if structural_hash(program) in ways.locked.by_program else pieces
    if not pieces or ways.database is None or "record" not in ways.allow:
        return pieces
    best = partial(
        best_record, target=ways.target, database=ways.database, tolerance=ways.tolerance, unfit={}
    )
    whole = best(program)
    if whole is None:
        return pieces
    if whole.last or whole.seconds is None:
        return ()
    seconds = 0.0
    for piece in pieces:
        choice = best(piece.func)
        if choice is None or choice.seconds is None:
            return ()
        seconds += choice.seconds
    return pieces if seconds < whole.seconds else ()


def _with_kernels(program: Any, pieces: Sequence[Piece]) -> tuple[str, Kernels]:
    """The name of a program, and how often a call runs which kernels."""
    name = getattr(program, "name", "?")  # what is no program is refused later
    if not isinstance(program, Hashable):
        return name, {}
    return name, Counter(piece.func for piece in pieces) or {program: 1}


def _built(kernel: ChosenKernel) -> Built:
    return Built(kernel.compiled, {kernel.compiled.signature.name: kernel.choice})


def _joined(
    program: Func | Schedule, pieces: Sequence[Piece], made: Sequence[ChosenKernel]
) -> Built:
    """The code of the kernels of a program with the entry that calls them."""
    assert isinstance(program, Func), "a schedule is of one kernel"
    kernels = [kernel.compiled for kernel in made]
    plan = _steps(program, pieces, kernels)
    steps = tuple(poisoned(plan)) if CHECK else plan.steps
    compiled = joined(plan.signature, steps, kernels[0].target)
    return Built(compiled, {k.compiled.signature.name: k.choice for k in made})


def _steps(program: Func, pieces: Sequence[Piece], kernels: Sequence[Compiled]) -> Steps[Operand]:
    """A call of each kernel; its packed operands are packed for the entry."""
    check_name(program.name, kernels[0].target)
    signature = signature_of(program)
    numbers = {parameter: n for n, parameter in enumerate(program.params)}
    arguments = [*signature.arguments]
    blocks: dict[Operand | int, Block] = {}
    for n, (piece, kernel) in enumerate(zip(pieces, kernels, strict=True)):
        if kernel.signature.workspace_bytes:
            blocks[n] = Block(kernel.signature.workspace_bytes, n, n)
        for operand, argument in zip(piece.operands, kernel.signature.arguments, strict=True):
            if operand not in numbers:
                first = blocks[operand].first if operand in blocks else n
                blocks[operand] = Block(argument.span_bytes, first, n)
            elif argument.packing is not None:
                arguments[numbers[operand]] = argument
    memory = plan(blocks)
    places: dict[Operand | int, Address] = {p: Address(n) for p, n in numbers.items()}
    places |= {key: Address(None, offset) for key, offset in memory.offsets.items()}
    steps = tuple(
        KernelCall(kernel, tuple(places[o] for o in piece.operands), places.get(n))
        for n, (piece, kernel) in enumerate(zip(pieces, kernels, strict=True))
    )
    signature = replace(signature, arguments=tuple(arguments), workspace_bytes=memory.bytes)
    return Steps(signature, steps, memory, blocks, ())
