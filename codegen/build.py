"""Compile a scheduled `Func` to machine code and load it as a callable module."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BuildError
from ..runtime import openmp
from ..runtime.module import Module, Origin
from ..runtime.signature import Packing, Signature
from ..target import Target
from ..tir.ir import Buffer, Func
from .constant_operands import computed_ahead, layout_of, packer, take_ahead
from .cpu import llvm
from .cpu.accumulators import accumulates_in_memory
from .cpu.glue import make_glue
from .cpu.jit import load_object
from .detect import check_runnable, resolve
from .lower import Trace, check_concrete, lower
from .signature import signature_of, sized

OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
"""The functions of OpenMP's runtime that parallel kernels call."""


_CALLED = frozenset(
    {
        "memset",
        "memcpy",
        "memmove",
        "fma",
        "fmaf",
        "fmod",
        "fmodf",
        "syscall",
        *OPENMP,
    }
)
"""Functions of other libraries that kernels call."""
_DEEP = "compute parts of a long expression in stages of their own"


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel as data.

    `object_code` is an object file that defines the functions `signature.symbols`. `parallel`: it
    calls OpenMP's runtime. `llvm_text` is the optimised module, `lowered` the lowered programs, or
    their text.
    """

    signature: Signature
    target: Target
    lowered: tuple[Func, ...] | str
    llvm_text: str
    object_code: bytes
    parallel: bool

    @property
    def tir(self) -> str:
        """The lowered programs as text."""
        programs = self.lowered
        return programs if isinstance(programs, str) else "\n\n".join(map(str, programs))

    def assembly(self) -> str:
        """The code as assembly text."""
        module = llvm.parse(self.llvm_text)
        return llvm.assembly(module, self.target)


def compile_func(
    func: Func,
    target: Target | str,
    *,
    strict_fp: bool = False,
    name: str | None = None,
    trace: Trace | None = None,
) -> Compiled:
    """Compile a scheduled function for `target`.

    Work on a constant operand alone becomes a separate function, listed in the signature.
    `strict_fp` forbids fma contraction. `name` is that of the C function, by default the
    function's. `trace` is called with the programs after each lowering pass. Raises `BuildError`.
    """
    target = compiled_target(target)
    name = func.name if name is None else name
    _check_name(name)
    try:
        check_concrete(func)
        kernel, packers, packings = _parts(func, name)
        signature = signature_of(kernel, name, packings)
        emitted = []
        for part, called in zip((kernel, *packers), (signature, *signature.packers), strict=True):
            lowered = lower(part, target, strict_fp=strict_fp, trace=trace)
            text = llvm.emit(lowered, called, target, strict_fp=strict_fp, kernel=signature)
            emitted.append((lowered, text))
        signature = sized(signature, [text.workspace_bytes for _, text in emitted])
    except RecursionError as error:
        raise _too_deep(func) from error
    module, *others = [
        llvm.optimise(text.text, target, thorough=accumulates_in_memory(lowered))
        for lowered, text in emitted
    ]
    for other in others:
        module.link_in(other)
    parallel = any(text.parallel for _, text in emitted)
    if parallel:  # of one definition now: to a weak one, linkers for ARM make a copy relocation
        module.get_global_variable(signature.teams_symbol).linkage = "external"
    optimised = str(module)  # before machine code is made of it, which rewrites it
    safe = llvm.without_single_lanes(optimised)
    if safe != optimised:
        module, optimised = llvm.parse(safe), safe
    code = llvm.object_code(module, target)
    programs = tuple(lowered for lowered, _ in emitted)
    return Compiled(signature, target, programs, optimised, code, parallel)


def compiled_target(target: Target | str) -> Target:
    """The target that code is compiled for: resolved, and serial if there is no OpenMP runtime."""
    target = resolve(target)
    if target.threads > 1 and openmp.load() is None:
        target = target.with_threads(1)
    return target


def compiled_signature(func: Func) -> Signature:
    """The signature of what `compile_func` makes of a scheduled function, but for the workspaces,
    of which lowering decides. Raises `BuildError`."""
    _check_name(func.name)
    try:
        check_concrete(func)
        kernel, _, packings = _parts(func, func.name)
        return signature_of(kernel, func.name, packings)
    except RecursionError as error:
        raise _too_deep(func) from error


def _parts(func: Func, name: str) -> tuple[Func, list[Func], dict[Buffer, Packing]]:
    """The kernel, the packers of its constant operands, and the packings of its parameters."""
    ahead = computed_ahead(func)
    packers, packings = list[Func](), dict[Buffer, Packing]()
    places = {p: n for n, p in enumerate(func.params)}
    for a in ahead:
        own = a.operand.name
        symbol = f"{name}_pack_{own if _is_name(own) else places[a.operand]}"
        packers.append(packer(func, a, symbol))
        operand = signature_of(packers[-1]).arguments[0]
        packings[a.packed] = Packing(symbol, operand, layout_of(a))
    return take_ahead(func, ahead), packers, packings


def to_module(
    compiled: Compiled, origin: Origin | None = None, *, trust_indices: bool = False
) -> Module:
    """Load compiled code into this process.

    With `trust_indices` calls do not check the values of tensors that have a `value_range`.
    Raises `TargetError` if it is for another machine, `BuildError` if it does not load.
    """
    check_runnable(compiled.target)
    imports: dict[str, int] = {}
    if compiled.parallel:
        runtime = openmp.load()
        if runtime is None:
            raise BuildError(
                "{0} runs in parallel and there is no OpenMP runtime on this machine",
                compiled.signature.name,
                hint="install libgomp1, or compile for one thread: cpu -threads=1",
            )
        imports = {symbol: runtime.symbol_address(symbol) for symbol in OPENMP}
    symbols = compiled.signature.symbols
    variables = (compiled.signature.teams_symbol,) if compiled.parallel else ()
    loaded = load_object(compiled.object_code, (*symbols, *variables), imports)
    addresses, teams = loaded.addresses[: len(symbols)], loaded.addresses[len(symbols) :]
    for address in teams:
        openmp.connect(address)
    return Module(
        compiled.signature,
        addresses,
        compiled.target,
        origin=Origin("schedule") if origin is None else origin,
        sources={
            "tir": lambda: compiled.tir,
            "llvm": lambda: compiled.llvm_text,
            "asm": compiled.assembly,
        },
        glue=make_glue,
        owner=loaded.owner,
        parallel=compiled.parallel,
        trust_indices=trust_indices,
    )


def _too_deep(func: Func) -> BuildError:
    return BuildError("the program {0} is nested too deeply to be compiled", func.name, hint=_DEEP)


def _is_name(name: str) -> bool:
    return name.isidentifier() and name.isascii()


def _check_name(name: str) -> None:
    if not _is_name(name):
        raise BuildError(
            "{0!r} is not the name of a function in C", name, hint="give the kernel another name"
        )
    if name in _CALLED:
        raise BuildError(
            "a kernel cannot be named {0}: it calls the function of that name",
            name,
            hint="give the kernel another name",
        )
