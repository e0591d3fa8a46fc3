"""Compiling: from a scheduled `Func` to machine code, and from that to a callable module."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..errors import BuildError
from ..runtime import openmp
from ..runtime.module import Module, Origin
from ..runtime.signature import Signature
from ..target import Target
from ..tir.ir import Func
from . import llvm
from .accumulators import accumulates_in_memory
from .ahead import take_ahead
from .detect import check_runnable, resolve
from .glue import make_glue
from .jit import load_object
from .lower import Trace, check_concrete, lower
from .signature import signature_of

_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


_CALLED = frozenset(
    {
        "aligned_alloc",
        "free",
        "memset",
        "memcpy",
        "memmove",
        "fma",
        "fmaf",
        "fmod",
        "fmodf",
        *_OPENMP,
    }
)
"""Functions of other libraries that kernels call."""
_DEEP = "compute parts of a long expression in stages of their own"


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel as data.

    `object_code` is an object file that defines the function `signature.name`; `parallel` says that
    it calls OpenMP's runtime. `llvm_text` is the optimised module, `lowered` the program it is of,
    or that program's text.
    """

    signature: Signature
    target: Target
    lowered: Func | str
    llvm_text: str
    object_code: bytes
    parallel: bool

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

    Constant operands that it packs are taken packed, and the signature says how. `strict_fp`
    forbids fma contraction. `name` is that of the C function, by default the function's. `trace`
    sees the program after each lowering pass. Raises `BuildError`.
    """
    target = resolve(target)
    if target.threads > 1 and openmp.load() is None:
        target = target.with_threads(1)
    _check_name(func.name if name is None else name)
    try:
        check_concrete(func)
        func, packings = take_ahead(func)
        signature = signature_of(func, name, packings)
        lowered = lower(func, target, strict_fp=strict_fp, trace=trace)
        text, parallel = llvm.emit(lowered, signature, target, strict_fp=strict_fp)
    except RecursionError as error:
        raise BuildError(
            "the program {0} is nested too deeply to be compiled", func.name, hint=_DEEP
        ) from error
    module = llvm.optimise(text, target, thorough=accumulates_in_memory(lowered))
    optimised = str(module)  # before machine code is made of it, which rewrites it
    code = llvm.object_code(module, target)
    return Compiled(signature, target, lowered, optimised, code, parallel)


def to_module(compiled: Compiled, origin: Origin | None = None) -> Module:
    """Load compiled code into this process.

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
        imports = {symbol: runtime.symbol_address(symbol) for symbol in _OPENMP}
    loaded = load_object(compiled.object_code, compiled.signature.name, imports)
    return Module(
        compiled.signature,
        loaded.address,
        compiled.target,
        origin=Origin("schedule") if origin is None else origin,
        sources={
            "tir": partial(str, compiled.lowered),
            "llvm": lambda: compiled.llvm_text,
            "asm": compiled.assembly,
        },
        glue=make_glue,
        owner=loaded.owner,
    )


def _check_name(name: str) -> None:
    if not (name.isidentifier() and name.isascii()):
        raise BuildError(
            "{0!r} is not the name of a function in C", name, hint="give the kernel another name"
        )
    if name in _CALLED:
        raise BuildError(
            "a kernel cannot be named {0}: it calls the function of that name",
            name,
            hint="give the kernel another name",
        )
