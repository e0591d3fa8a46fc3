"""Files that are opened without waiting, and written whole: the old one or the new one is there.

`whole_file` is for one that is written bit by bit, `replace_files` for several together.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .errors import ArtifactError, OutOfMemoryError, TilewrightError

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_DATABASE = b"SQLite format 3\0"
"""How a database begins, such as that of the tuner."""
PARTIAL = r"\.tilewright-[0-9a-f]{16}\.partial"
"""The names of files that killed writers leave (a pattern)."""
_TEMPORARY = re.compile(r"\.tilewright-[0-9a-f]{16}-\d+\.(new|old)")


class File(NamedTuple):
    """A file to write. `mode` has its permissions before the umask."""

    path: Path
    content: bytes | memoryview
    mode: int = 0o666


@contextmanager
def open_regular(
    path: Path, error: type[TilewrightError] = ArtifactError, hint: str | None = None
) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file for reading; returns it and its size in bytes.

    Symbolic links are followed. Anything else is refused without waiting: reading a pipe may block
    for ever, and a device may have no end. Raises `FileNotFoundError` if there is no file,
    `OutOfMemoryError` where it cannot be mapped, and `error`, also where reading fails; with a hint
    for what is no regular file.
    """
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as failure:  # a `ValueError` is of a NUL in the path
        why = failure.strerror if isinstance(failure, OSError) else None
        raise error("cannot read {0}: {1}", path, why or failure) from failure
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "something else")
            raise error("{0} is {1}, expected a regular file", path, kind, hint=hint)
        with open(descriptor, "rb", closefd=False) as file:
            yield file, facts.st_size
    except OSError as failure:
        if failure.errno == errno.ENOMEM:  # a file that is mapped
            raise OutOfMemoryError(
                "{0}: no memory to map it", path, hint="free some memory"
            ) from failure
        raise error("cannot read {0}: {1}", path, failure.strerror or failure) from failure
    finally:
        os.close(descriptor)


def read_some(file: BinaryIO, size: int) -> bytes:
    """Read up to `size` bytes of a file from `open_regular`.

    Takes no memory for more than the file has. Returns nothing if a system file, such as
    /proc/kmsg, has nothing to read yet.
    """
    first = min(size, os.fstat(file.fileno()).st_size + 1)
    content = file.read(first) or b""
    more = len(content) == first < size  # it has grown, or is a system file without a size
    return content + (file.read(size - first) or b"") if more else content


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def require_replaceable(
    path: Path, begins: bytes, what: str, error: type[TilewrightError], hint: str | None = None
) -> None:
    """Raise `error` for a file that is there, is not empty and does not begin as `what` does.

    It may be a database, such as the one that is exported. `hint` is as for `open_regular`.
    """
    try:
        with open_regular(path, error, hint) as (there, _):
            start = read_some(there, len(begins))
    except FileNotFoundError:
        return
    if start not in (b"", begins):
        raise error(
            "cannot write {0}: it is there, and no {1}", path, what, hint="name another file"
        )


@contextmanager
def whole_file(path: Path, folder: int | None = None) -> Iterator[Path]:
    """The path of a new file, which takes the place of the one at `path` when the block ends.

    It is beside that one, and is removed where the block raises. A process that is killed leaves it
    there, as `PARTIAL` says, and the old file as it was. Both paths are relative to the descriptor
    of a folder where one is given.

    Raises `OSError`, and `ValueError` for a path with a NUL.
    """
    partial = path.with_name(f".tilewright-{secrets.token_hex(8)}.partial")
    try:
        yield partial
        os.replace(partial, path, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(OSError, ValueError):
            os.unlink(partial, dir_fd=folder)


def replace_files(files: Sequence[File]) -> None:
    """Write or replace files of one folder: all of them or none.

    Their content is on disk under temporary names before the first one appears, in the given order.
    Writers of one folder wait for each other. After a failure, the old files are back. A killed
    process leaves each file old or new, and temporary ones that the next writer removes. Raises
    `OSError`, also if the path names neither a regular file nor a link to one or to nothing: a file
    does not replace a device.
    """
    folder = files[0].path.parent
    for file in files:
        _require_regular(file.path)
    with _locked(folder) as (descriptor, exclusive):
        if exclusive:
            _remove_temporaries(folder)
        token = secrets.token_hex(8)
        names = [folder / f".tilewright-{token}-{n}" for n in range(len(files))]
        new = [name.with_suffix(".new") for name in names]
        old = [name.with_suffix(".old") for name in names]
        try:
            for file, path in zip(files, new, strict=True):
                _write(path, file)
            for file, path in zip(files, old, strict=True):
                _keep(file.path, path)
            try:
                for file, path in zip(files, new, strict=True):
                    path.replace(file.path)
                os.fsync(descriptor)
            except BaseException:
                for file, staged, kept in zip(files, new, old, strict=True):
                    if not staged.exists():
                        _put_back(file.path, kept)
                raise
        finally:
            for path in (*new, *old):
                path.unlink(missing_ok=True)


def _require_regular(path: Path) -> None:
    try:
        mode = path.stat().st_mode  # of a link what it leads to: /dev/stdout is a link to a pipe
    except OSError:
        return  # nothing there, or nothing that may be looked at: writing says which
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EEXIST, f"{kind} is there, expected a regular file or none", str(path))
    start = b""
    with suppress(OSError), path.open("rb") as there:
        start = there.read(len(_DATABASE))
    if start == _DATABASE:
        raise OSError(errno.EEXIST, "a database is there, which no other file replaces", str(path))


@contextmanager
def _locked(folder: Path) -> Iterator[tuple[int, bool]]:
    """A descriptor of the folder that locks out other writers until it is closed, if it can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        exclusive = False
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            exclusive = True
        yield descriptor, exclusive
    finally:
        os.close(descriptor)


def _remove_temporaries(folder: Path) -> None:
    """Remove temporary files of killed writers."""
    for name in os.listdir(folder):
        if _TEMPORARY.fullmatch(name):
            (folder / name).unlink(missing_ok=True)


def _write(path: Path, file: File) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file.mode)
    with open(descriptor, "wb") as opened:
        opened.write(file.content)
        opened.flush()
        os.fsync(descriptor)


def _keep(path: Path, kept: Path) -> None:
    """Keep whatever is at `path` under another name, too."""
    try:
        os.link(path, kept, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError:  # a file system without links, or the file of somebody else
        shutil.copy2(path, kept, follow_symlinks=False)


def _put_back(path: Path, kept: Path) -> None:
    if os.path.lexists(kept):
        kept.replace(path)
    else:
        path.unlink(missing_ok=True)
