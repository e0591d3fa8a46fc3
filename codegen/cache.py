"""Kernel cache: compiled kernels on disk, keyed by content.

The key is a digest of everything that goes into a kernel: the scheduled program as text (including
names, which appear in signatures and errors), the target, the floating-point rules, the versions of
the tools, the sources of the code generator and the user's instructions. `disk_cache.py` keeps the
files.

An entry holds the image with its launches, the sizes of its workspaces, remarks, and texts for
people: of the scheduled programs, and of what the image was made of. The rest of the signature and
the target come from the program that is asked for, and the image has to match them.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Protocol

from ..base.errors import ArtifactError
from ..runtime.signature import Signature
from ..target import Target
from ..tir.instruction_set import users_digest
from ..tir.ir import Func
from ..tir.printer import func_text
from .build import compile_func, compiled_signature
from .compiled import Compiled, as_text, compiled_from
from .detect import resolve
from .disk_cache import DiskCache, location, sources_digest
from .generator import generator_for

KIND = "kernel"
LIMIT_BYTES = 512 << 20
MAX_ENTRY_BYTES = 64 << 20
MAX_TEXT_BYTES = 64 << 20  # of a part, decompressed
_VERSION = 6
_LENGTHS = struct.Struct("<IIII")  # of the two texts and the form, compressed, and of the image
_SOURCES = (
    "codegen/**/*.py",
    "tir/**/*.py",
    "base/dtypes.py",
    "target/*.py",
    "runtime/signature.py",
)
"""The files of this package that take part in compiling a program."""


class Compile(Protocol):
    """A function with the signature of `compile_func`."""

    def __call__(
        self, func: Func, target: Target | str, *, strict_fp: bool = False
    ) -> Compiled: ...


def compile_cached(
    func: Func, target: Target | str, *, strict_fp: bool = False, compiler: Compile | None = None
) -> Compiled:
    """Like `compile_func`, or `compiler`, but taken from the disk cache if it is there."""
    compiler = compile_func if compiler is None else compiler
    target = resolve(target)
    text, folder = func_text(func), location(os.environ, KIND)
    if folder is None:
        return replace(compiler(func, target, strict_fp=strict_fp), scheduled=(text,))
    kernels = _shared(folder)
    name = _key(text, target, strict_fp=strict_fp)
    compiled = kernels.get(name, func, target)
    if compiled is None:
        compiled = replace(compiler(func, target, strict_fp=strict_fp), scheduled=(text,))
        kernels.put(name, compiled)
    return compiled


def is_cached(func: Func, target: Target | str, *, strict_fp: bool = False) -> bool:
    """Whether `compile_cached` need not compile."""
    target, folder = resolve(target), location(os.environ, KIND)
    if folder is None:
        return False
    return _shared(folder).entries.has(key(func, target, strict_fp=strict_fp))


def key(func: Func, target: Target, *, strict_fp: bool) -> str:
    """The digest (SHA-256, hex) of what determines the compiled code of a scheduled program."""
    return _key(func_text(func), target, strict_fp=strict_fp)


def _key(text: str, target: Target, *, strict_fp: bool) -> str:
    parts = [text, str(target), str(strict_fp), _compiler(target), users_digest(target, text)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class KernelCache:
    """The kernels of one folder, which takes at most `limit_bytes`."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.entries = DiskCache(folder, KIND, _VERSION, limit_bytes, MAX_ENTRY_BYTES)

    def get(self, name: str, func: Func, target: Target) -> Compiled | None:
        """Returns the kernel of that key, which is of `func`, compiled for `target`.

        `None` if there is none, or it is malformed (logged).
        """
        return self.entries.get(
            name, lambda content: decode(content, compiled_signature(func, target), target)
        )

    def put(self, name: str, compiled: Compiled) -> None:
        """Store a kernel, replacing an existing one.

        A failure is logged, and nothing else happens. A kernel that is larger than the limits, or
        one that `decode` would refuse, is not stored.
        """
        texts = _texts(compiled)
        if _is_storable(compiled, texts):
            self.entries.put(name, _encoded(texts, compiled.image))


@cache
def _shared(folder: Path) -> KernelCache:
    return KernelCache(folder)


@cache
def _compiler(target: Target) -> str:
    """All that makes code of a program: tools, and what of this package takes part."""
    tools = generator_for(target).tools()
    return f"{tools.generation} {dict(tools.versions)} {sources_digest(*_SOURCES)}"


def encode(compiled: Compiled) -> bytes:
    """A kernel as bytes, which `decode` reads."""
    return _encoded(_texts(compiled), compiled.image)


def _encoded(texts: Sequence[bytes], image: bytes) -> bytes:
    parts = [*(zlib.compress(text, level=1) for text in texts), image]
    return _LENGTHS.pack(*map(len, parts)) + b"".join(parts)


def decode(body: bytes, signature: Signature, target: Target) -> Compiled:
    """The kernel of a signature, but for its workspaces, for `target`.

    Raises `ArtifactError` if the bytes are malformed, or the code is not of that signature.
    """
    if len(body) < _LENGTHS.size:
        raise ArtifactError("it ends after {0} bytes", len(body))
    lengths = _LENGTHS.unpack_from(body)
    if _LENGTHS.size + sum(lengths) != len(body):
        raise ArtifactError("parts of {0} bytes in {1} bytes", lengths, len(body))
    ends = list(accumulate(lengths, initial=_LENGTHS.size))
    told, text, form, image = (body[start:end] for start, end in pairwise(ends))
    try:
        data, programs = json.loads(_text(form)), json.loads(_text(told))
    except (ValueError, RecursionError) as error:
        raise ArtifactError("its form or programs are not JSON: {0}", error) from error
    if not (isinstance(programs, list) and all(isinstance(p, str) for p in programs)):
        raise ArtifactError("its programs are no list of texts: {0!r:.80}", programs)
    compiled = compiled_from(data, signature, target, tuple(programs), _text(text), image)
    generator_for(target).check(compiled)
    return compiled


def _texts(compiled: Compiled) -> tuple[bytes, ...]:
    programs = json.dumps([*map(as_text, compiled.scheduled)])
    texts = (programs, compiled.text, json.dumps(compiled.form))
    return tuple(text.encode() for text in texts)


def _is_storable(compiled: Compiled, texts: Sequence[bytes]) -> bool:
    """Whether `decode` reads what `encode` makes of it: parts within bounds, an image that fits."""
    if max(len(compiled.image), *map(len, texts)) > MAX_TEXT_BYTES:
        return False
    try:
        generator_for(compiled.target).check(compiled)
    except ArtifactError:
        return False
    return True


def _text(compressed: bytes) -> str:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(compressed, MAX_TEXT_BYTES)
        if not stream.eof or stream.unused_data:
            raise ArtifactError("a text that is cut off, or larger than {0} bytes", MAX_TEXT_BYTES)
        return text.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise ArtifactError("a text that cannot be read: {0}", error) from error
