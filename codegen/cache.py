"""Compiled kernels on disk, by content: what was compiled once is loaded the next time.

The key is the digest of all that goes into a kernel: the scheduled program as text (names included,
since they are in signatures and errors), the target, the floating-point rules, the compiler's
versions and the sources of the code generator. There is therefore nothing to invalidate: what is
not asked for any more is evicted, least recently used first, once the folder exceeds its limit.

Any number of processes may share a folder: an entry appears under its name whole or not at all. It
holds the object code and texts for people, and a digest of them and of the key. The signature and
the target are those of the program that is asked for; the object code has to fit them.

Machine code is loaded from the folder, so it counts only if it belongs to this user and nobody else
can write to it, and so does each file in it. Both are opened once, without following links, and the
open descriptors are checked. A malformed entry is compiled again and replaced. A folder that cannot
be used (read-only, full, somebody else's) costs a warning and never a build.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from ..errors import ArtifactError
from ..target import Target
from ..tir.ir import Func
from .build import OPENMP, Compiled, compile_func, compiled_signature, compiled_target
from .cpu.elf import ELF_MARK, read_object
from .cpu.llvm import llvm_version

_log = logging.getLogger(__name__)

LOCATION = "TILEWRIGHT_CACHE_DIR"
LIMIT_BYTES = 512 << 20
MAX_ENTRY_BYTES = 64 << 20
MAX_TEXT_BYTES = 64 << 20  # of a part, decompressed
_KEPT = 0.9  # of the limit after an eviction, so that not every entry evicts
_MARK = b"tilewright kernel 2\n"
_LENGTHS = struct.Struct("<III")  # of the two texts, compressed, and of the object code
_DIGEST_BYTES = 32
_SUFFIX = ".kernel"
_OWN_NAME = re.compile(r"[0-9a-f]{64}\.kernel(\.[0-9a-f]{16}\.partial)?")
_NO_ENTRY = (errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO)
"""Why a link, somebody's private file or a socket does not open."""


class Compile(Protocol):
    """What has the signature of `compile_func`."""

    def __call__(
        self, func: Func, target: Target | str, *, strict_fp: bool = False
    ) -> Compiled: ...


def compile_cached(
    func: Func, target: Target | str, *, strict_fp: bool = False, compiler: Compile | None = None
) -> Compiled:
    """As `compile_func`, or `compiler`, but from the disk where the same was compiled before."""
    compiler = compile_func if compiler is None else compiler
    target = compiled_target(target)
    folder = location(os.environ)
    if folder is None:
        return compiler(func, target, strict_fp=strict_fp)
    kernels = _shared(folder)
    name = key(func, target, strict_fp=strict_fp)
    compiled = kernels.get(name, func, target)
    if compiled is None:
        compiled = compiler(func, target, strict_fp=strict_fp)
        kernels.put(name, compiled)
    return compiled


def location(environ: Mapping[str, str]) -> Path | None:
    """The folder of the kernels; `None` where `TILEWRIGHT_CACHE_DIR` is set to nothing.

    That variable names it, else it is `tilewright` in `XDG_CACHE_HOME`, else in `~/.cache`. A user
    without a home directory has no such folder, which is logged once.
    """
    if LOCATION in environ:
        return Path(environ[LOCATION]) / "kernels" if environ[LOCATION] else None
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification: relative paths are to be ignored
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        _warn_homeless()
        return None
    return Path(base) / "tilewright" / "kernels"


def key(func: Func, target: Target, *, strict_fp: bool) -> str:
    """The digest (SHA-256, hex) of what determines the compiled code of a scheduled program."""
    parts = [repr(func), str(target), str(strict_fp), _compiler()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class KernelCache:
    """The entries of one folder, which takes at most `limit_bytes`."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._warned = False

    def get(self, name: str, func: Func, target: Target) -> Compiled | None:
        """The kernel of that key, which is of `func`, compiled for `target`.

        `None` where there is none, or it is malformed (logged).
        """
        try:
            with self._opened() as folder:
                content = _read_entry(folder, name)
            return decode(content, func, target, name)
        except FileNotFoundError:
            return None
        except ArtifactError as error:
            path = self.folder / f"{name}{_SUFFIX}"
            _log.warning("the cached kernel %s is malformed and is compiled anew: %s", path, error)
        except OSError as error:
            self._warn(error)
        return None

    def put(self, name: str, compiled: Compiled) -> None:
        """Keep a kernel, in the place of what has its name.

        Where that is not possible it is logged, and nothing else happens. A kernel that is larger
        than the limits, or no ELF file, is not kept.
        """
        if not _is_storable(compiled):
            return
        content = encode(compiled, name)
        if len(content) > min(self.limit_bytes, MAX_ENTRY_BYTES):
            return
        try:
            _make_folder(self.folder)
            with self._opened() as folder:
                _evict(folder, self.limit_bytes - len(content))
                _write_entry(folder, name, content)
        except OSError as error:
            self._warn(error)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the folder, which nobody else can write to."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            folder = os.open(self.folder, flags)
        except NotADirectoryError as error:
            if self.folder.is_symlink():
                raise NotADirectoryError("it is a symbolic link") from error
            raise
        try:
            if not _is_ours(os.fstat(folder)):
                raise PermissionError("it belongs to another user or can be written by others")
            yield folder
        finally:
            os.close(folder)

    def _warn(self, error: OSError) -> None:
        """Say once that this folder is of no use."""
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        _log.log(level, "compiled kernels are not cached in %s: %s", self.folder, error)


@cache
def _shared(folder: Path) -> KernelCache:
    return KernelCache(folder)


@cache
def _warn_homeless() -> None:
    _log.warning(
        "compiled kernels are not cached: this user has no home directory; "
        "set %s to a folder, or to nothing",
        LOCATION,
    )


@cache
def _compiler() -> str:
    """All that makes machine code of a program: LLVM, and what of this package takes part."""
    root = Path(__file__).resolve().parent.parent
    ground = [root / name for name in ("dtypes.py", "target.py", "runtime/signature.py")]
    total = hashlib.sha256(f"{llvm_version()} {version('llvmlite')}".encode())
    for path in [*sorted(root.glob("codegen/**/*.py")), *sorted(root.glob("tir/**/*.py")), *ground]:
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


# Entries


def encode(compiled: Compiled, name: str) -> bytes:
    """A kernel as bytes, the entry of the key `name`."""
    texts = (compiled.tir, compiled.llvm_text)
    tir, llvm = (zlib.compress(text.encode(), level=1) for text in texts)
    code = compiled.object_code
    body = _LENGTHS.pack(len(tir), len(llvm), len(code)) + tir + llvm + code
    return _MARK + _digest(name, body) + body


def decode(content: bytes, func: Func, target: Target, name: str) -> Compiled:
    """The kernel of `func` for `target` in an entry of the key `name`.

    Raises `ArtifactError` where the entry is malformed, or its code is not of that program.
    """
    start = len(_MARK) + _DIGEST_BYTES
    body = content[start:]
    if not content.startswith(_MARK):
        raise ArtifactError("it does not begin with {0!r}", _MARK)
    if content[len(_MARK) : start] != _digest(name, body):
        raise ArtifactError("its content does not match its name and digest")
    if len(body) < _LENGTHS.size:
        raise ArtifactError("it ends after {0} bytes", len(content))
    lengths = _LENGTHS.unpack_from(body)
    if _LENGTHS.size + sum(lengths) != len(body):
        raise ArtifactError("parts of {0} bytes in {1} bytes", lengths, len(body))
    tir_end = _LENGTHS.size + lengths[0]
    llvm_end = tir_end + lengths[1]
    code = body[llvm_end:]
    found, signature = read_object(code), compiled_signature(func)
    parallel = not found.undefined.isdisjoint(OPENMP)
    wanted = [*signature.symbols, *([signature.teams_symbol] if parallel else [])]
    missing = [symbol for symbol in wanted if symbol not in found.defined]
    if found.arch != target.arch:
        raise ArtifactError("its code is for {0}, expected {1}", found.arch, target.arch)
    if missing:
        raise ArtifactError("its code does not define {0}", ", ".join(missing))
    return Compiled(
        signature,
        target,
        _text(body[_LENGTHS.size : tir_end]),
        _text(body[tir_end:llvm_end]),
        code,
        parallel=parallel,
    )


def _is_storable(compiled: Compiled) -> bool:
    """Whether `decode` reads what `encode` makes of it: parts within bounds, code in ELF."""
    texts = (compiled.tir, compiled.llvm_text)
    largest = max(*(len(text.encode()) for text in texts), len(compiled.object_code))
    return largest <= MAX_TEXT_BYTES and compiled.object_code.startswith(ELF_MARK)


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + body).digest()


def _text(compressed: bytes) -> str:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(compressed, MAX_TEXT_BYTES)
        if not stream.eof or stream.unused_data:
            raise ArtifactError("a text that is cut off, or larger than {0} bytes", MAX_TEXT_BYTES)
        return text.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise ArtifactError("a text that cannot be read: {0}", error) from error


# Files


def _is_ours(facts: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user and nobody else can write to it."""
    return facts.st_uid == os.geteuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _make_folder(folder: Path) -> None:
    """Create the folder for this user alone, and its parents for no others to write."""
    missing = [p for p in folder.parents if not p.exists()]
    for parent in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            parent.mkdir(mode=0o755)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def _read_entry(folder: int, name: str) -> bytes:
    """The content of an entry, which becomes the most recently used one.

    Raises `ArtifactError` for what is no file of this user alone, and `OSError`.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        entry = os.open(name + _SUFFIX, flags, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NO_ENTRY:
            raise
        raise ArtifactError("it does not open: {0}", error.strerror) from error
    with os.fdopen(entry, "rb") as file:
        facts = os.fstat(entry)
        if not stat.S_ISREG(facts.st_mode) or not _is_ours(facts):
            raise ArtifactError("it is not a file that this user alone can write")
        if facts.st_size > MAX_ENTRY_BYTES:
            raise ArtifactError("{0} bytes; at most {1}", facts.st_size, MAX_ENTRY_BYTES)
        content = file.read(facts.st_size + 1)
        with suppress(OSError):  # on a read-only file system all stay as old as they are
            os.utime(entry)
    return content


def _write_entry(folder: int, name: str, content: bytes) -> None:
    """Put an entry under its name, whole or not at all. Raises `OSError`."""
    partial = f"{name}{_SUFFIX}.{secrets.token_hex(8)}.partial"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    entry = os.open(partial, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(entry, "wb") as file:
            file.write(content)
        os.replace(partial, name + _SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=folder)
        raise


def _evict(folder: int, limit: int) -> None:
    """Remove the least recently used entries, and what writers left that were killed.

    Whatever else is in the folder is not counted and not touched.
    """
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _OWN_NAME.fullmatch(entry.name):
                continue
            try:
                facts = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # another process was faster
            if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid():
                files.append((facts.st_mtime_ns, facts.st_size, entry.name))
    total = sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, name in sorted(files):
        if total <= _KEPT * limit:
            break
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        total -= size
