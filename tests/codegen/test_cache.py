"""The cache of compiled kernels: what hits, what misses, and what cannot hurt."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tilewright import Schedule, ops, te
from tilewright.codegen import cache
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.cache import KernelCache, compile_cached, key
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION, location
from tilewright.target import CpuTarget
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Func

from ..hosts import processor

SERIAL = processor("cpu -threads=1")
NAME = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the kernels of this test go."""
    monkeypatch.setenv(LOCATION, str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def program() -> Func:
    return ops.matmul_func(5, 7, 3)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def refuse_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_nothing(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(cache, "compile_func", compile_nothing)


def test_second_time_nothing_is_compiled(
    folder: Path, program: Func, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_cached(program, SERIAL)
    refuse_to_compile(monkeypatch)
    second = compile_cached(program, SERIAL)
    assert second.image == first.image
    assert second.signature == first.signature
    assert (second.target, second.launches) == (first.target, first.launches)
    assert CpuTarget.of(second.target).l2_bytes == CpuTarget.of(first.target).l2_bytes

    one, two = to_module(first), to_module(second)
    for kind in ("tir", "llvm", "asm"):
        assert one.source(kind) == two.source(kind)
    rng = np.random.default_rng(0)
    a, b = rng.random((5, 3), np.float32), rng.random((3, 7), np.float32)
    c = np.empty((5, 7), np.float32)
    two(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_key_covers_whatever_changes_the_code(
    program: Func, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled = Schedule(program)
    scheduled.unroll(scheduled.get_loops(scheduled.get_block("C"))[2])
    keys = [
        key(program, SERIAL, strict_fp=False),
        key(scheduled.func, SERIAL, strict_fp=False),
        key(ops.matmul_func(5, 7, 4), SERIAL, strict_fp=False),
        key(program, SERIAL, strict_fp=True),
        key(program, SERIAL.with_threads(2), strict_fp=False),
        key(program, resolve("cpu -mcpu=x86-64 -threads=1"), strict_fp=False),
    ]
    monkeypatch.setattr(cache, "_compiler", lambda _: "another compiler")
    keys.append(key(program, SERIAL, strict_fp=False))
    assert len(set(keys)) == len(keys)


def copy_func(source: str) -> Func:
    a = te.placeholder((4,), "float32", name=source)
    return te.func([a, te.compute((4,), lambda i: a[i], name="Y")], name="copy")


def test_key_covers_names() -> None:
    one, other = copy_func("X"), copy_func("Z")
    assert structural_equal(one, other)
    assert key(one, SERIAL, strict_fp=False) != key(other, SERIAL, strict_fp=False)


def test_key_is_the_same_for_the_same_program(program: Func) -> None:
    again = ops.matmul_func(5, 7, 3)
    assert key(program, SERIAL, strict_fp=False) == key(again, SERIAL, strict_fp=False)


MARK = f"kernel {cache._VERSION}".encode()
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"",
    "cut in the middle": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "another version": lambda content: content.replace(MARK, b"kernel 0", 1),
    "a digit in the digest": lambda content: content[:25] + bytes([content[25] ^ 1]) + content[26:],
    "a bit in the lengths": lambda content: content[:54] + bytes([content[54] ^ 8]) + content[55:],
    "a bit of the code": lambda content: content[:-9] + bytes([content[-9] ^ 64]) + content[-8:],
    "something else": lambda content: b"\0" * len(content),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_replaced(
    folder: Path, program: Func, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = compile_cached(program, SERIAL)
    (path,) = entries(folder)
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[how](whole))
    assert compile_cached(program, SERIAL).image == compiled.image
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "malformed" in record.getMessage()
    assert entries(folder) == [path]
    assert path.read_bytes() == whole


def test_an_entry_under_another_name_is_refused(
    folder: Path, program: Func, caplog: pytest.LogCaptureFixture
) -> None:
    compile_cached(program, SERIAL)
    (path,) = entries(folder)
    path.rename(folder / f"{NAME}.kernel")
    assert KernelCache(folder).get(NAME, program, SERIAL) is None
    assert "does not match its name and digest" in caplog.text


def test_the_least_recently_used_are_evicted(tmp_path: Path, program: Func) -> None:
    compiled = compile_func(program, SERIAL)
    names = [f"{n:064x}" for n in range(5)]
    kernels = KernelCache(tmp_path / "kernels")
    kernels.put(names[0], compiled)
    size = entries(kernels.entries.folder)[0].stat().st_size

    small = KernelCache(kernels.entries.folder, limit_bytes=4 * size + size // 2)
    for age, name in enumerate(names[:4]):
        small.put(name, compiled)
        os.utime(small.entries.folder / f"{name}.kernel", (1000 + age, 1000 + age))
    assert len(entries(small.entries.folder)) == 4
    assert small.get(names[0], program, SERIAL) is not None  # used now: no longer the oldest
    small.put(names[4], compiled)
    left = {path.stem for path in entries(small.entries.folder)}
    assert left == {names[0], names[2], names[3], names[4]}
    assert sum(p.stat().st_size for p in entries(small.entries.folder)) <= small.entries.limit_bytes


def test_what_killed_writers_left_is_evicted_too(tmp_path: Path, program: Func) -> None:
    compiled = compile_func(program, SERIAL)
    kernels = KernelCache(tmp_path, limit_bytes=100_000)
    tmp_path.chmod(0o700)
    left = tmp_path / f".tilewright-{'0' * 16}.partial"
    left.write_bytes(b"\0" * 99_000)
    os.utime(left, (1000, 1000))
    kernels.put(NAME, compiled)
    assert [p.stem for p in entries(tmp_path)] == [NAME]


def test_a_kernel_beyond_the_limit_is_not_kept(tmp_path: Path, program: Func) -> None:
    kernels = KernelCache(tmp_path / "kernels", limit_bytes=100)
    kernels.put(NAME, compile_func(program, SERIAL))
    assert entries(kernels.entries.folder) == []


def test_set_to_nothing_it_is_off(
    tmp_path: Path, program: Func, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LOCATION, "")
    compile_cached(program, SERIAL)
    assert entries(tmp_path) == []


def test_location() -> None:
    home = Path(os.path.expanduser("~"))
    assert location({}, "kernel") == home / ".cache/tilewright/kernels"
    assert location({"XDG_CACHE_HOME": "/x"}, "kernel") == Path("/x/tilewright/kernels")
    assert location({"XDG_CACHE_HOME": "relative"}, "kernel") == home / ".cache/tilewright/kernels"
    assert location({"XDG_CACHE_HOME": "/x", LOCATION: "/y"}, "kernel") == Path("/y/kernels")
    assert location({"XDG_CACHE_HOME": "/x", LOCATION: ""}, "kernel") is None


def test_others_cannot_slip_in_code(folder: Path, program: Func) -> None:
    compile_cached(program, SERIAL)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_is_not_used(
    folder: Path, program: Func, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    compile_cached(program, SERIAL)
    compile_cached(program, SERIAL)
    assert entries(folder) == []
    assert caplog.text.count("can be written by others") == 1, "once is enough"


def test_a_folder_that_cannot_be_made_costs_a_warning(
    folder: Path, program: Func, caplog: pytest.LogCaptureFixture
) -> None:
    folder.parent.write_text("a file, where a folder should be")
    assert compile_cached(program, SERIAL).image
    assert "not cached" in caplog.text


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes of any file fail, as they do on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_costs_a_warning_and_leaves_nothing(
    folder: Path, program: Func, caplog: pytest.LogCaptureFixture
) -> None:
    with files_of_at_most(100):
        compiled = compile_cached(program, SERIAL)
    assert compiled.image
    assert "not cached" in caplog.text
    assert entries(folder) == []
    compile_cached(program, SERIAL)
    assert len(entries(folder)) == 1


CHILD = """
import sys
from tilewright import ops
from tilewright.codegen.cache import compile_cached
print("ready", flush=True)
sys.stdin.readline()
for n in range(2, 8):
    compiled = compile_cached(ops.add_relu_func(n), "cpu -threads=1")
    assert compiled.signature.arguments[0].shape == (n,)
"""


def test_processes_share_a_folder(folder: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.communicate("go\n", timeout=600)
        assert child.returncode == 0
    assert len(entries(folder)) == 6
    kernels = KernelCache(folder)
    funcs = [ops.add_relu_func(n) for n in range(2, 8)]
    target = resolve("cpu -threads=1")
    for func in funcs:
        assert kernels.get(key(func, target, strict_fp=False), func, target) is not None
