"""Disk cache: entries keyed by a digest of everything that determines their content.

Entries therefore never become stale. The least recently used ones are evicted when their folder
exceeds its size limit.

Any number of processes may share a folder. An entry appears under its name complete or not at all,
and holds a digest of its name and content. An entry or folder counts only if it belongs to this
user and nobody else can write to it. Each is opened once, without following links, and the open
descriptor is checked. A malformed entry is computed again and replaced. A folder that cannot be
used (read-only, full, somebody else's) causes a warning and never fails a build.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from ..base.errors import ArtifactError
from ..base.files import PARTIAL, whole_file

T = TypeVar("T")
_log = logging.getLogger(__name__)

LOCATION = "TILEWRIGHT_CACHE_DIR"
_KEPT = 0.9  # of the limit after an eviction, so that not every entry evicts
_DIGEST_BYTES = 32
_NO_ENTRY = (errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO)
"""Why a link, somebody's private file or a socket does not open."""
_ROOT = Path(__file__).resolve().parent.parent


def location(environ: Mapping[str, str], kind: str) -> Path | None:
    """The folder of the entries of a kind; `None` if `TILEWRIGHT_CACHE_DIR` is set to nothing.

    It is named after the kind (`kernels` for `kernel`), in the folder of that variable, else in
    `tilewright` in `XDG_CACHE_HOME`, else in `~/.cache/tilewright`. A user without a home directory
    has no such folder, which is logged once.
    """
    if LOCATION in environ:
        return Path(environ[LOCATION]) / f"{kind}s" if environ[LOCATION] else None
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification: relative paths are to be ignored
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        _warn_homeless()
        return None
    return Path(base) / "tilewright" / f"{kind}s"


@cache
def sources_digest(*patterns: str) -> str:
    """A digest (SHA-256, hex) of the files of this package that match: code that decides."""
    total = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(_ROOT.glob(pattern)):
            name = path.relative_to(_ROOT).as_posix()
            total.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


class DiskCache:
    """The entries of one kind in one folder, which takes at most `limit_bytes`.

    An entry is a file `<name>.<kind>`; names are 64 hexadecimal digits. `entry_bytes` is the most
    that is read of one. The version of a kind changes with the meaning of its entries.
    """

    def __init__(
        self, folder: Path, kind: str, version: int, limit_bytes: int, entry_bytes: int
    ) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._entry_bytes = entry_bytes
        self._kind = kind
        self._mark = f"tilewright {kind} {version}\n".encode()
        self._names = re.compile(rf"[0-9a-f]{{64}}\.{kind}|{PARTIAL}")
        self._warned = False
        self._room = 0

    def get(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """Returns the content of the entry of that name, decoded by `decode`.

        `None` if there is no entry. A warning names an entry that is malformed, or for which
        `decode` raises `ArtifactError`.
        """
        try:
            with self._opened() as folder:
                entry = _read_entry(folder, f"{name}.{self._kind}", self._entry_bytes)
            return decode(self.unseal(name, entry))
        except FileNotFoundError:
            return None
        except ArtifactError as error:
            path = self.folder / f"{name}.{self._kind}"
            _log.warning(
                "the cached %s %s is malformed and is made anew: %s", self._kind, path, error
            )
        except OSError as error:
            self._warn(error)
        return None

    def has(self, name: str) -> bool:
        """Whether there is an entry of that name, whatever is in it."""
        return os.path.exists(self.folder / f"{name}.{self._kind}")  # `Path.exists` may raise

    def keeps(self) -> bool:
        """Whether entries can be stored: the folder is there, or is made, and can be written to."""
        try:
            _make_folder(self.folder)
            with self._opened() as folder:
                return os.access(".", os.W_OK, dir_fd=folder)
        except OSError as error:
            self._warn(error)
            return False

    def put(self, name: str, *content: bytes | memoryview) -> None:
        """Store the parts of a content as the entry of that name, replacing an existing one.

        A failure is logged, and nothing else happens. Content that is larger than the limits is not
        stored.
        """
        entry = self._sealed(name, content)
        size = sum(map(len, entry))
        if size > min(self.limit_bytes, self._entry_bytes):
            return
        try:
            _make_folder(self.folder)
            with self._opened() as folder:
                if size > self._room:
                    self._room = self._evict(folder, self.limit_bytes - size) + size
                self._room -= size
                _write_entry(folder, f"{name}.{self._kind}", entry)
        except OSError as error:
            self._warn(error)

    def seal(self, name: str, content: bytes) -> bytes:
        """An entry as bytes: the mark of its kind, a digest of name and content, the content."""
        return b"".join(self._sealed(name, (content,)))

    def _sealed(
        self, name: str, content: Sequence[bytes | memoryview]
    ) -> tuple[bytes | memoryview, ...]:
        """The parts of an entry, which may be too many bytes for a copy of them."""
        return self._mark, _digest(name, *content), *content

    def unseal(self, name: str, entry: bytes) -> bytes:
        """The content of an entry. Raises `ArtifactError` if it is not the one of that name."""
        start = len(self._mark) + _DIGEST_BYTES
        content = entry[start:]
        if not entry.startswith(self._mark):
            raise ArtifactError("it does not begin with {0!r}", self._mark)
        if entry[len(self._mark) : start] != _digest(name, content):
            raise ArtifactError("its content does not match its name and digest")
        return content

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
        """Warn once that this folder cannot be used."""
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        _log.log(level, "%ss are not cached in %s: %s", self._kind, self.folder, error)

    def _evict(self, folder: int, limit: int) -> int:
        """Remove the least recently used entries, and temporary files of killed writers.

        Other files in the folder are not counted and not touched. Returns the bytes that may be
        stored before the folder is looked through again, which takes long where it has thousands
        of entries: less than are free, since other processes store too.
        """
        files = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if not self._names.fullmatch(entry.name):
                    continue
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # another process was faster
                if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid():
                    files.append((facts.st_mtime_ns, facts.st_size, entry.name))
        total = sum(size for _, size, _ in files)
        if total > limit:
            for _, size, name in sorted(files):
                if total <= _KEPT * limit:
                    break
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
                total -= size
        return min(limit - total, limit // 16)


@cache
def _warn_homeless() -> None:
    _log.warning(
        "nothing is cached: this user has no home directory; set %s to a folder, or to nothing",
        LOCATION,
    )


def _digest(name: str, *content: bytes | memoryview) -> bytes:
    total = hashlib.sha256(name.encode() + b"\0")
    for part in content:
        total.update(part)
    return total.digest()


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


def _read_entry(folder: int, name: str, most: int) -> bytes:
    """Read at most `most` bytes of an entry, which becomes the most recently used one.

    Raises `ArtifactError` for anything but a file of this user alone, and `OSError`.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        entry = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NO_ENTRY:
            raise
        raise ArtifactError("it does not open: {0}", error.strerror) from error
    with os.fdopen(entry, "rb") as file:
        facts = os.fstat(entry)
        if not stat.S_ISREG(facts.st_mode) or not _is_ours(facts):
            raise ArtifactError("it is not a file that this user alone can write")
        if facts.st_size > most:
            raise ArtifactError("{0} bytes; at most {1}", facts.st_size, most)
        content = file.read(facts.st_size + 1)
        with suppress(OSError):  # on a read-only file system all stay as old as they are
            os.utime(entry)
    return content


def _write_entry(folder: int, name: str, entry: Sequence[bytes | memoryview]) -> None:
    """Put an entry under its name, complete or not at all. Raises `OSError`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        whole_file(Path(name), folder) as partial,
        os.fdopen(os.open(partial, flags, 0o600, dir_fd=folder), "wb") as file,
    ):
        for part in entry:
            file.write(part)
