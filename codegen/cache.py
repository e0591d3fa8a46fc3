"""Kernel cache: compiled kernels on disk, keyed by content.

The key is a digest of everything that goes into a kernel: the scheduled program as text (including
names, which appear in signatures and errors), the target, the floating-point rules, the compiler's
versions, the sources of the code generator and the user's instructions. `disk_cache.py` keeps the
files.

An entry holds the object code, the sizes of its workspaces and texts for people. The rest of the
signature and the target come from the program that is asked for, and the object code has to match
them.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Protocol

from ..errors import ArtifactError
from ..target import Target
from ..tir.instruction_set import users_digest
from ..tir.ir import Func
from .build import OPENMP, Compiled, compile_func, compiled_signature, compiled_target
from .cpu.elf import ELF_MARK, read_object
from .cpu.llvm import llvm_version, llvmlite_version
from .disk_cache import DiskCache, location, sources_digest
from .signature import sized

KIND = "kernel"
LIMIT_BYTES = 512 << 20
MAX_ENTRY_BYTES = 64 << 20
MAX_TEXT_BYTES = 64 << 20  # of a part, decompressed
_VERSION = 3
_LENGTHS = struct.Struct("<III")  # of the two texts, compressed, and of the object code
_SOURCES = ("codegen/**/*.py", "tir/**/*.py", "dtypes.py", "target.py", "runtime/signature.py")
"""What of this package takes part in making machine code of a program."""


class Compile(Protocol):
    """What has the signature of `compile_func`."""

    def __call__(
        self, func: Func, target: Target | str, *, strict_fp: bool = False
    ) -> Compiled: ...


def compile_cached(
    func: Func, target: Target | str, *, strict_fp: bool = False, compiler: Compile | None = None
) -> Compiled:
    """Like `compile_func`, or `compiler`, but taken from the disk cache if it is there."""
    compiler = compile_func if compiler is None else compiler
    target = compiled_target(target)
    folder = location(os.environ, KIND)
    if folder is None:
        return compiler(func, target, strict_fp=strict_fp)
    kernels = _shared(folder)
    name = key(func, target, strict_fp=strict_fp)
    compiled = kernels.get(name, func, target)
    if compiled is None:
        compiled = compiler(func, target, strict_fp=strict_fp)
        kernels.put(name, compiled)
    return compiled


def is_cached(func: Func, target: Target | str, *, strict_fp: bool = False) -> bool:
    """Whether `compile_cached` need not compile; true as well where nothing is cached."""
    target = compiled_target(target)
    folder = location(os.environ, KIND)
    return folder is None or _shared(folder).entries.has(key(func, target, strict_fp=strict_fp))


def key(func: Func, target: Target, *, strict_fp: bool) -> str:
    """The digest (SHA-256, hex) of what determines the compiled code of a scheduled program."""
    parts = [repr(func), str(target), str(strict_fp), _compiler(), users_digest()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class KernelCache:
    """The kernels of one folder, which takes at most `limit_bytes`."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.entries = DiskCache(folder, KIND, _VERSION, limit_bytes, MAX_ENTRY_BYTES)

    def get(self, name: str, func: Func, target: Target) -> Compiled | None:
        """Returns the kernel of that key, which is of `func`, compiled for `target`.

        `None` if there is none, or it is malformed (logged).
        """
        return self.entries.get(name, lambda content: decode(content, func, target))

    def put(self, name: str, compiled: Compiled) -> None:
        """Store a kernel, replacing an existing one.

        A failure is logged, and nothing else happens. A kernel that is larger than the limits, or
        not in ELF, is not stored.
        """
        if _is_storable(compiled):
            self.entries.put(name, encode(compiled))


@cache
def _shared(folder: Path) -> KernelCache:
    return KernelCache(folder)


@cache
def _compiler() -> str:
    """What determines machine code besides the program: LLVM and sources of this package."""
    return f"{llvm_version()} {llvmlite_version()} {sources_digest(*_SOURCES)}"


def encode(compiled: Compiled) -> bytes:
    """An entry as bytes: a kernel under the key `name`."""
    texts = (compiled.tir, compiled.llvm_text)
    tir, llvm = (zlib.compress(text.encode(), level=1) for text in texts)
    code, sizes = compiled.object_code, compiled.signature.workspaces
    lengths = _LENGTHS.pack(len(tir), len(llvm), len(code))
    return lengths + _sizes(len(sizes)).pack(*sizes) + tir + llvm + code


def decode(body: bytes, func: Func, target: Target) -> Compiled:
    """The kernel of `func` for `target` in an entry under the key `name`.

    Raises `ArtifactError` if the entry is malformed, or its code is not of that program.
    """
    if len(body) < _LENGTHS.size:
        raise ArtifactError("it ends after {0} bytes", len(body))
    lengths = _LENGTHS.unpack_from(body)
    signature = compiled_signature(func)
    sizes = _sizes(len(signature.symbols))
    tir_start = _LENGTHS.size + sizes.size
    if tir_start + sum(lengths) != len(body):
        raise ArtifactError("parts of {0} bytes in {1} bytes", lengths, len(body))
    tir_end = tir_start + lengths[0]
    llvm_end = tir_end + lengths[1]
    code = body[llvm_end:]
    found = read_object(code)
    parallel = not found.undefined.isdisjoint(OPENMP)
    wanted = [*signature.symbols, *([signature.teams_symbol] if parallel else [])]
    missing = [symbol for symbol in wanted if symbol not in found.defined]
    if found.arch != target.arch:
        raise ArtifactError("its code is for {0}, expected {1}", found.arch, target.arch)
    if missing:
        raise ArtifactError("its code does not define {0}", ", ".join(missing))
    return Compiled(
        sized(signature, sizes.unpack_from(body, _LENGTHS.size)),
        target,
        _text(body[tir_start:tir_end]),
        _text(body[tir_end:llvm_end]),
        code,
        parallel=parallel,
    )


def _is_storable(compiled: Compiled) -> bool:
    """Whether `decode` reads what `encode` makes of it: parts within bounds, code in ELF."""
    texts = (compiled.tir, compiled.llvm_text)
    largest = max(*(len(text.encode()) for text in texts), len(compiled.object_code))
    return largest <= MAX_TEXT_BYTES and compiled.object_code.startswith(ELF_MARK)


def _sizes(symbols: int) -> struct.Struct:
    """The bytes of the workspaces of so many functions."""
    return struct.Struct(f"<{symbols}Q")


def _text(compressed: bytes) -> str:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(compressed, MAX_TEXT_BYTES)
        if not stream.eof or stream.unused_data:
            raise ArtifactError("a text that is cut off, or larger than {0} bytes", MAX_TEXT_BYTES)
        return text.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise ArtifactError("a text that cannot be read: {0}", error) from error
