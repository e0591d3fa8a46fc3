"""Compile a scheduled `Func` and load it as a callable module."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ..base.errors import BuildError, depth_errors
from ..runtime.module import Module, Origin
from ..runtime.signature import Packing, Signature, is_c_identifier, is_function_name
from ..target import Target
from ..tir.ir import Buffer, Func
from .calling_convention import signature_of, sized
from .compiled import Compiled
from .constant_operands import computed_ahead, layout_of, packer, take_ahead
from .detect import resolve
from .generator import Part, generator_for
from .lower import Watcher, check_concrete, lower
from .program_loops import ProgramLoops

_COMPILED = WeakKeyDictionary[Module, Compiled]()


def compile_func(
    func: Func,
    target: Target | str,
    *,
    strict_fp: bool = False,
    name: str | None = None,
    watcher: Watcher | None = None,
) -> Compiled:
    """Compile a scheduled function for `target`.

    Work on a constant operand alone becomes a separate function, listed in the signature.
    `strict_fp` forbids fma contraction. `name` is that of the C function, by default the
    function's. `watcher` is called with the programs after each lowering pass. Raises `BuildError`.
    """
    target = resolve(target)
    generator = generator_for(target)
    lowered = lower_parts(func, target, strict_fp=strict_fp, name=name, watcher=watcher)
    emitted = emit_parts(lowered, target, strict_fp=strict_fp)
    code = generator.compile(emitted, target)
    remarks = tuple(r for part in lowered.scheduled for r in generator.remarks(part))
    signature = sized(lowered.parts[0].signature, code.workspaces)
    return Compiled(
        signature, target, (func,), code.text, code.image, code.launches, remarks, strict_fp
    )


class Lowered(NamedTuple):
    """A scheduled kernel with the packers of its constant operands, and the lowered parts."""

    scheduled: tuple[Func, ...]
    parts: tuple[Part, ...]


def lower_parts(
    func: Func,
    target: Target,
    *,
    strict_fp: bool = False,
    name: str | None = None,
    watcher: Watcher | None = None,
) -> Lowered:
    """Lower a scheduled function for a resolved target, as `compile_func` does."""
    with _depth_errors(func):
        kernel, packers, signature = _parts(func, func.name if name is None else name, target)
        scheduled, numbers = (kernel, *packers), ProgramLoops(func).numbers
        parts = tuple(
            Part(lower(part, target, strict_fp=strict_fp, watcher=watcher), called, numbers)
            for part, called in zip(scheduled, (signature, *signature.packers), strict=True)
        )
    return Lowered(scheduled, parts)


def emit_parts(lowered: Lowered, target: Target, *, strict_fp: bool = False) -> Any:
    """What the code generator of the target emits. Raises `BuildError`."""
    with _depth_errors(lowered.scheduled[0]):
        return generator_for(target).emit(lowered.parts, target, strict_fp=strict_fp)


def compiled_signature(func: Func, target: Target) -> Signature:
    """The signature of what `compile_func` makes of a scheduled function, but for the workspaces,
    of which lowering decides. Raises `BuildError`."""
    with _depth_errors(func):
        return _parts(func, func.name, target)[2]


def packers_of(func: Func, target: Target) -> dict[str, Func]:
    """The programs that pack the constant operands of a scheduled function, by their symbols."""
    with _depth_errors(func):
        return {packer.name: packer for packer in _parts(func, func.name, target)[1]}


def _parts(func: Func, name: str, target: Target) -> tuple[Func, list[Func], Signature]:
    """The kernel, the packers of its constant operands, and its signature without workspaces."""
    check_name(name, target)
    check_concrete(func)
    ahead = computed_ahead(func)
    packers, packings = list[Func](), dict[Buffer, Packing]()
    places = {p: n for n, p in enumerate(func.params)}
    for a in ahead:
        own = a.operand.name
        symbol = f"{name}_pack_{own if is_c_identifier(own) else places[a.operand]}"
        packers.append(packer(func, a, symbol))
        operand = signature_of(packers[-1]).arguments[0]
        packings[a.packed] = Packing(symbol, operand, layout_of(a))
    kernel = take_ahead(func, ahead)
    return kernel, packers, signature_of(kernel, name, packings)


def to_module(
    compiled: Compiled, origin: Origin | None = None, *, trust_indices: bool = False
) -> Module:
    """Load compiled code into this process.

    With `trust_indices` calls do not check the values of tensors that have a `value_range`.
    Raises `TargetError` if it is for another machine, `BuildError` if it does not load.
    """
    module: Module = generator_for(compiled.target).load(
        compiled, Origin("schedule") if origin is None else origin, trust_indices=trust_indices
    )
    _COMPILED[module] = compiled
    return module


def compiled_code(module: Module) -> Compiled | None:
    """What `to_module` loaded; `None` of a module of an artifact."""
    return _COMPILED.get(module)


def _depth_errors(func: Func) -> AbstractContextManager[None]:
    return depth_errors(BuildError, f"the program {func.name}", "compiled")


def check_name(name: str, target: Target) -> None:
    """Raise `BuildError` for a name that a kernel cannot have."""
    if not is_function_name(name):
        raise BuildError(
            "{0!r} cannot be the name of a function in C", name, hint="give the kernel another name"
        )
    if name in generator_for(target).reserved:
        raise BuildError(
            "a kernel cannot be named {0}: it calls the function of that name",
            name,
            hint="give the kernel another name",
        )
