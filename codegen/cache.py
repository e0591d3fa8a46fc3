"""Compiled kernels on disk, by content: what was compiled once is loaded the next time.

The key is the digest of all that goes into a kernel: the scheduled program as text (names included,
since they are in signatures and errors), the target, the floating-point rules, the compiler's
versions and the sources of the code generator. There is therefore nothing to invalidate: what is
not asked for any more is evicted, least recently used first, once the folder exceeds its limit.

Any number of processes may share a folder: an entry appears under its name whole or not at all, and
carries its own digest, so that a damaged one is seen, ignored and replaced. A folder that cannot be
used (read-only, full, somebody else's) costs a warning and never a build.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import struct
import tempfile
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from ..errors import ArtifactError, TargetError
from ..runtime import openmp
from ..runtime.signature import Signature
from ..target import Target
from ..tir.ir import Func
from .build import Compiled, compile_func
from .detect import resolve
from .llvm import llvm_version

_log = logging.getLogger(__name__)

LOCATION = "TILEWRIGHT_CACHE_DIR"
LIMIT_BYTES = 512 << 20
_KEPT = 0.9  # of the limit after an eviction, so that not every entry evicts
_MARK = b"tilewright kernel 1\n"
_LENGTHS = struct.Struct("<II")  # of the description, compressed, and of the object code
_DIGEST_BYTES = 32
_SUFFIX = ".kernel"


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
    target = resolve(target)
    if target.threads > 1 and openmp.load() is None:
        target = target.with_threads(1)
    found = location(os.environ)
    if found is None:
        return compiler(func, target, strict_fp=strict_fp)
    kernels = _shared(found)
    name = key(func, target, strict_fp=strict_fp)
    compiled = kernels.get(name)
    if compiled is None:
        compiled = compiler(func, target, strict_fp=strict_fp)
        kernels.put(name, compiled)
    return compiled


def location(environ: Mapping[str, str]) -> Path | None:
    """The folder of the kernels; `None` where `TILEWRIGHT_CACHE_DIR` is set to nothing.

    That variable names it, else it is `tilewright` in `XDG_CACHE_HOME`, else in `~/.cache`.
    """
    if LOCATION in environ:
        return Path(environ[LOCATION]) / "kernels" if environ[LOCATION] else None
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification: relative paths are to be ignored
        base = os.path.join(os.path.expanduser("~"), ".cache")
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

    def get(self, name: str) -> Compiled | None:
        """The kernel of that key; `None` where there is none, or it is damaged (logged)."""
        path = self._path(name)
        try:
            self._check_owner()
            content = path.read_bytes()
            try:
                compiled = decode(content, name)
            except (ArtifactError, TargetError) as error:
                _log.warning(
                    "the cached kernel %s is damaged and is compiled anew: %s", path, error
                )
                return None
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(error)
            return None
        return compiled

    def put(self, name: str, compiled: Compiled) -> None:
        """Keep a kernel. Where that is not possible it is logged, and nothing else happens."""
        content = encode(compiled, name)
        if len(content) > self.limit_bytes:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_owner()
            self._evict(self.limit_bytes - len(content))
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                try:
                    file.write(content)
                    file.close()
                    os.replace(file.name, self._path(name))
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            self._warn(error)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"

    def _check_owner(self) -> None:
        """Machine code is loaded from here, so nobody else may be able to put it here."""
        facts = self.folder.stat()
        if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{self.folder} can be written by others")

    def _evict(self, limit: int) -> None:
        """Remove the least recently used entries, and what writers left that were killed."""
        files = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # another process was faster
                files.append((facts.st_mtime_ns, facts.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        if total <= limit:
            return
        for _, size, path in sorted(files):
            if total <= _KEPT * limit:
                break
            Path(path).unlink(missing_ok=True)
            total -= size

    def _warn(self, error: OSError) -> None:
        """Say once that this folder is of no use."""
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        _log.log(level, "compiled kernels are not cached in %s: %s", self.folder, error)


@cache
def _shared(folder: Path) -> KernelCache:
    return KernelCache(folder)


@cache
def _compiler() -> str:
    """All that makes machine code of a program: LLVM, and what of this package takes part."""
    root = Path(__file__).resolve().parent.parent
    ground = [root / name for name in ("dtypes.py", "target.py", "runtime/signature.py")]
    total = hashlib.sha256(f"{llvm_version()} {version('llvmlite')}".encode())
    for path in [*sorted(root.glob("codegen/**/*.py")), *sorted(root.glob("tir/**/*.py")), *ground]:
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def encode(compiled: Compiled, name: str = "") -> bytes:
    """A kernel as bytes, the entry of the key `name`."""
    description = {
        "key": name,
        "signature": compiled.signature.to_json(),
        "target": str(compiled.target),
        "parallel": compiled.parallel,
        "tir": compiled.tir,
        "llvm": compiled.llvm_text,
    }
    text = zlib.compress(json.dumps(description).encode(), level=1)
    code = compiled.object_code
    body = _LENGTHS.pack(len(text), len(code)) + text + code
    return _MARK + hashlib.sha256(body).digest() + body


def decode(content: bytes, name: str = "") -> Compiled:
    """The kernel of what `encode` gave. Raises `ArtifactError` where that is not what was put."""
    start = len(_MARK) + _DIGEST_BYTES
    body = memoryview(content)[start:]
    if (
        content[: len(_MARK)] != _MARK
        or hashlib.sha256(body).digest() != content[len(_MARK) : start]
    ):
        raise ArtifactError("its content does not match its digest")
    length, code_length = _LENGTHS.unpack_from(body)
    text = body[_LENGTHS.size : _LENGTHS.size + length]
    code = bytes(body[_LENGTHS.size + length :])
    fields: dict[str, Any] = json.loads(zlib.decompress(text))
    if fields["key"] != name or len(code) != code_length:
        raise ArtifactError("it is the entry of {0}", fields["key"])
    return Compiled(
        Signature.from_json(fields["signature"]),
        resolve(Target.parse(fields["target"])),
        fields["tir"],
        fields["llvm"],
        code,
        fields["parallel"],
    )
