"""The cache of compiled kernels among forged entries, foreign files and folders of others."""

from __future__ import annotations

import errno
import logging
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright import ops
from tilewright.base.errors import ArtifactError
from tilewright.codegen import cache, disk_cache
from tilewright.codegen.build import compile_func, compiled_signature
from tilewright.codegen.cache import KernelCache, compile_cached, encode, key
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cpu.elf import read_object
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION, location
from tilewright.tir.ir import Func

from ..hosts import processor

SERIAL = processor("cpu -threads=1")
OTHER_ARCH = "x86-64" if SERIAL.arch == "aarch64" else "cortex-a76"
PROGRAM = ops.matmul_func(5, 7, 3)
SIGNATURE = compiled_signature(PROGRAM, SERIAL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the kernels of this test go."""
    monkeypatch.setenv(LOCATION, str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_func(PROGRAM, SERIAL)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def entry_of(func: Func, folder: Path) -> Path:
    return folder / f"{key(func, SERIAL, strict_fp=False)}.kernel"


def digested(body: bytes, name: str) -> bytes:
    """An entry with a digest that is right, whatever its content."""
    return KernelCache(Path()).entries.seal(name, body)


def parts(tir: bytes, llvm: bytes, code: bytes, launches: bytes | None = None) -> bytes:
    launches = zlib.compress(LAUNCHES) if launches is None else launches
    lengths = cache._LENGTHS.pack(len(tir), len(llvm), len(launches), len(code))
    return lengths + tir + llvm + launches + code


TEXT = zlib.compress(b"text")
LAUNCHES = b'[{"symbol": "matmul", "needs": {}}]'


def launched(code: bytes, launches: bytes) -> bytes:
    return parts(TEXT, TEXT, code, zlib.compress(launches))


FORGED: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda code: b"",
    "lengths alone": lambda code: parts(b"", b"", b"", b""),
    "lengths of 2^32": lambda code: b"\xff" * cache._LENGTHS.size + TEXT + TEXT + code,
    "one byte short": lambda code: parts(TEXT, TEXT, code)[:-1],
    "one byte more": lambda code: parts(TEXT, TEXT, code) + b"\0",
    "a text that is not compressed": lambda code: parts(b"text", TEXT, code),
    "a text that is cut off": lambda code: parts(TEXT, TEXT[:-3], code),
    "a text that is not UTF-8": lambda code: parts(zlib.compress(b"\xff\xfe"), TEXT, code),
    "a text and more": lambda code: parts(TEXT + b"more", TEXT, code),
    "a text of 80 MB in 80 KB": lambda code: parts(zlib.compress(bytes(80 << 20)), TEXT, code),
    "launches that are not JSON": lambda code: launched(code, LAUNCHES[:-1]),
    "launches nested deeply": lambda code: launched(code, b"[" * 100_000),
    "launches that are no list": lambda code: launched(code, b"{}"),
    "no launches": lambda code: launched(code, b"[]"),
    "a launch of another function": lambda code: launched(code, LAUNCHES.replace(b"mat", b"vec")),
    "a launch without needs": lambda code: launched(code, b'[{"symbol": "matmul"}]'),
    "a launch with needs that are none": lambda code: launched(
        code, LAUNCHES.replace(b"{}", b'{"parallel": [null]}')
    ),
    "a launch with needs that the code has not": lambda code: launched(
        code, LAUNCHES.replace(b"{}", b'{"parallel": true}')
    ),
    "no code": lambda code: parts(TEXT, TEXT, b""),
    "code that is none": lambda code: parts(TEXT, TEXT, b"\x7fELF" + b"\xff" * 200),
    "code that is cut off": lambda code: parts(TEXT, TEXT, code[: len(code) // 2]),
    "code of another architecture": lambda code: parts(TEXT, TEXT, code_for(OTHER_ARCH)),
    "code of another program": lambda code: parts(
        TEXT, TEXT, compile_func(ops.add_relu_func(3), SERIAL).image
    ),
}


def code_for(processor: str) -> bytes:
    return compile_func(PROGRAM, resolve(f"cpu -mcpu={processor} -threads=1")).image


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_entry_is_compiled_anew_and_replaced(
    folder: Path, compiled: Compiled, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = entry_of(PROGRAM, folder)
    whole = digested(encode(compiled), path.stem)
    folder.mkdir(parents=True, mode=0o700)
    path.write_bytes(digested(FORGED[how](compiled.image), path.stem))
    path.chmod(0o600)
    assert compile_cached(PROGRAM, SERIAL).image == compiled.image
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "malformed" in record.getMessage()
    assert path.read_bytes() == whole


def test_what_an_entry_could_say_of_a_kernel_is_taken_from_the_program(
    folder: Path, compiled: Compiled
) -> None:
    found = cache.decode(encode(compiled), SIGNATURE, SERIAL)
    assert found.signature == compiled.signature
    assert found.target is SERIAL


def test_random_damage_under_a_right_digest_is_a_typed_error(compiled: Compiled) -> None:
    rng = np.random.default_rng(0)
    body = encode(compiled)
    refused = 0
    for _ in range(300):
        damaged = np.frombuffer(body, np.uint8).copy()
        reach = int(rng.choice((cache._LENGTHS.size, 400, len(body))))
        damaged[rng.integers(reach, size=2)] = rng.integers(256, size=2)
        try:
            cache.decode(damaged.tobytes(), SIGNATURE, SERIAL)
        except ArtifactError:
            refused += 1
    assert refused > 100


def test_random_damage_of_an_object_file_is_a_typed_error(compiled: Compiled) -> None:
    code = compiled.image
    assert read_object(code).defined == {"matmul"}
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(2000):
        damaged = np.frombuffer(code, np.uint8).copy()
        reach = int(rng.choice((64, len(code))))
        damaged[rng.integers(reach, size=3)] = rng.integers(256, size=3)
        length = len(code) if rng.random() < 0.8 else int(rng.integers(len(code)))
        try:
            read_object(damaged[:length].tobytes())
        except ArtifactError:
            refused += 1
    assert refused > 500


def _link(path: Path, elsewhere: Path) -> None:
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _fifo(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _socket(path: Path, _: Path) -> None:
    path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)


def _giant(path: Path, _: Path) -> None:
    os.truncate(path, 1 << 40)


FOREIGN: dict[str, Callable[[Path, Path], None]] = {
    "writable by the group": lambda path, _: path.chmod(0o620),
    "writable by all": lambda path, _: path.chmod(0o602),
    "a link": _link,
    "a FIFO": _fifo,
    "a socket": _socket,
    "endless": _giant,
}


@pytest.mark.parametrize("how", FOREIGN)
def test_an_entry_that_is_no_file_of_ours_alone_is_replaced(
    folder: Path, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    code = compile_cached(PROGRAM, SERIAL).image
    path = entry_of(PROGRAM, folder)
    FOREIGN[how](path, tmp_path / "elsewhere")
    assert compile_cached(PROGRAM, SERIAL).image == code
    (record,) = caplog.records
    assert "malformed" in record.getMessage()
    assert path.lstat().st_mode == stat.S_IFREG | 0o600
    compile_cached(PROGRAM, SERIAL)
    assert len(caplog.records) == 1


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@needs_root
def test_a_file_of_another_user_in_our_folder_is_not_loaded(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compile_cached(PROGRAM, SERIAL)
    path = entry_of(PROGRAM, folder)
    os.chown(path, 4321, 4321)
    compile_cached(PROGRAM, SERIAL)
    assert "this user alone" in caplog.text
    assert path.stat().st_uid == os.geteuid()


def test_owner_and_mode_decide_what_is_ours(tmp_path: Path) -> None:
    facts = tmp_path.stat()
    fields = list(facts)
    for mode, uid, expected in (
        (0o700, os.geteuid(), True),
        (0o755, os.geteuid(), True),
        (0o770, os.geteuid(), False),
        (0o702, os.geteuid(), False),
        (0o700, os.geteuid() + 1, False),
    ):
        fields[stat.ST_MODE], fields[stat.ST_UID] = stat.S_IFDIR | mode, uid
        assert disk_cache._is_ours(os.stat_result(fields)) is expected


def test_a_folder_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compile_cached(PROGRAM, SERIAL)
    stored = entry_of(PROGRAM, folder).read_bytes()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    cache._shared.cache_clear()
    compile_cached(PROGRAM, SERIAL)
    assert "belongs to another user" in caplog.text
    assert entry_of(PROGRAM, folder).read_bytes() == stored


def test_a_folder_that_is_a_link_is_not_used(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.parent.mkdir()
    folder.symlink_to(elsewhere)
    assert compile_cached(PROGRAM, SERIAL).image
    assert "it is a symbolic link" in caplog.text
    assert list(elsewhere.iterdir()) == []


def test_the_way_to_the_folder_may_have_links(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.parent.symlink_to(tmp_path / "elsewhere")
    compile_cached(PROGRAM, SERIAL)
    assert entry_of(PROGRAM, folder).exists()


def test_eviction_deletes_entries_of_ours_alone(tmp_path: Path, compiled: Compiled) -> None:
    tmp_path.chmod(0o700)
    name = f"{'a' * 64}.kernel"
    strangers = ["notes.txt", "tmpabcdefgh", "backup.kernel", f"{name}.bak", f"{'A' * 64}.kernel"]
    for stranger in strangers:
        (tmp_path / stranger).write_bytes(bytes(200_000))
        os.utime(tmp_path / stranger, (1000, 1000))
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / f"{'b' * 64}.kernel").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{'c' * 64}.kernel").mkdir()
    olds = {name, f".tilewright-{'0' * 16}.partial"}
    for old in olds:
        (tmp_path / old).write_bytes(bytes(100_000))
        os.utime(tmp_path / old, (2000, 2000))
    KernelCache(tmp_path, limit_bytes=100_000).put("d" * 64, compiled)
    left = {path.name for path in tmp_path.iterdir()}
    assert olds & left == set()
    assert left == {
        *strangers, "elsewhere", f"{'b' * 64}.kernel", f"{'c' * 64}.kernel", f"{'d' * 64}.kernel"
    }  # fmt: skip


@needs_root
def test_eviction_leaves_files_of_other_users(tmp_path: Path, compiled: Compiled) -> None:
    tmp_path.chmod(0o700)
    foreign = tmp_path / f"{'a' * 64}.kernel"
    foreign.write_bytes(bytes(200_000))
    os.chown(foreign, 4321, 4321)
    KernelCache(tmp_path, limit_bytes=100_000).put("d" * 64, compiled)
    assert foreign.exists()


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_folders_are_for_nobody_else_to_write(
    tmp_path: Path, mask: int, compiled: Compiled
) -> None:
    with umask(mask):
        KernelCache(tmp_path / "one" / "two" / "kernels").put("d" * 64, compiled)
    made = [tmp_path / p for p in ("one", "one/two", "one/two/kernels")]
    modes = [stat.S_IMODE(p.stat().st_mode) for p in made]
    assert modes == [0o755 & ~mask, 0o755 & ~mask, 0o700]
    (entry,) = made[-1].iterdir()
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_an_entry_that_is_evicted_while_it_is_read_is_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code = compile_cached(PROGRAM, SERIAL).image
    path = entry_of(PROGRAM, folder)
    fstat = os.fstat

    def evicting(descriptor: int) -> os.stat_result:
        facts = fstat(descriptor)
        if stat.S_ISREG(facts.st_mode):
            path.unlink(missing_ok=True)
        return facts

    monkeypatch.setattr(os, "fstat", evicting)
    assert compile_cached(PROGRAM, SERIAL).image == code
    assert not path.exists()
    assert caplog.records == []


def test_entries_are_read_where_nothing_can_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code = compile_cached(PROGRAM, SERIAL).image

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("utime", "replace"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(cache, "compile_func", None)
    assert compile_cached(PROGRAM, SERIAL).image == code
    assert caplog.records == []
    monkeypatch.undo()


def test_a_user_without_a_home_has_no_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as without an account
    disk_cache._warn_homeless.cache_clear()
    for name in (LOCATION, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert location({}, "kernel") is None
    assert compile_cached(PROGRAM, SERIAL).image
    assert caplog.text.count("has no home directory") == 1
    assert list(tmp_path.iterdir()) == []


def test_code_of_another_format_is_not_kept(tmp_path: Path, compiled: Compiled) -> None:
    kernels = KernelCache(tmp_path / "kernels")
    kernels.put("d" * 64, replace(compiled, image=b"MZ" + compiled.image))
    assert not kernels.entries.folder.exists()
