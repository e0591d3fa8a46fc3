"""Artifacts from build to call: what is called is what was checked, whatever becomes of files."""

from __future__ import annotations

import gc
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.base import files
from tilewright.building.build import build_library
from tilewright.codegen.cpu.library import is_system_name
from tilewright.runtime import Argument, Signature, cpu_runtime, load
from tilewright.runtime.header import Declared, c_header
from tilewright.runtime.host import cpu_flags
from tilewright.runtime.host_memory import HOST_MEMORY
from tilewright.target import FEATURES, CpuTarget

SERIAL = "cpu -threads=1"
pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang", "ld")), reason="no linker here"
)


def adds(number: int, n: int = 4) -> tw.Schedule:
    """y = x + number, of n elements."""
    x = te.placeholder((n,), "int32", name="x")
    y = te.compute((n,), lambda i: x[i] + number, name="y")
    return tw.Schedule(te.func([x, y], name="adds"))


def added(module: tw.Module, n: int = 4) -> int:
    """The number that a module adds. What lies behind its output stays as it is."""
    y = np.full(n + 64, -1, np.int32)
    module(np.zeros(n, np.int32), y[:n])
    assert (y[n:] == -1).all()
    (found,) = set(y[:n].tolist())
    return int(found)


def build_at(path: Path, number: int, n: int = 4) -> Path:
    return build_library(adds(number, n), path, SERIAL).files[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build_at(tmp_path / "adds.so", 1)


@pytest.fixture(params=["memory", "folder", "no memory", "no room"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where libraries are opened: in memory, and in a folder where there is no other way."""

    def fail(*_: object) -> None:
        raise OSError("not here")

    if request.param == "folder":
        monkeypatch.setattr(cpu_runtime, "_MEMORY", False)
    elif request.param == "no memory":
        monkeypatch.setattr(os, "memfd_create", fail)
    elif request.param == "no room":  # a system that runs no code from there
        monkeypatch.setattr(cpu_runtime, "_new_path", lambda descriptor: "/proc/self/fd/999999")
    return str(request.param)


@pytest.mark.usefixtures("place")
def test_an_artifact_that_was_built_anew_is_another_module(path: Path) -> None:
    first = load(path)
    build_at(path, 2, 8)
    second = load(path)
    build_at(path, 3, 4)
    third = load(path)
    assert [added(first), added(second, 8), added(third)] == [1, 2, 3]
    with pytest.raises(tw.ArgumentError):
        second(np.zeros(4, np.int32), np.zeros(4, np.int32))


def test_a_file_that_was_overwritten_in_place_is_another_module(path: Path) -> None:
    """Nothing is mapped from the file, so that nothing changes under a module that is loaded."""
    first = load(path)
    other = build_at(path.with_name("other.so"), 2)
    for old, new in [(path, other), (json_of(path), json_of(other))]:
        old.write_bytes(new.read_bytes())
    assert [added(load(path)), added(first)] == [2, 1]
    os.truncate(path, 0)
    assert added(first) == 1


def json_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


@pytest.mark.parametrize("how", ["overwrite", "replace", "link", "remove"])
def test_a_swap_between_check_and_open_changes_nothing(
    path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = build_at(path.with_name("other.so"), 2)

    opened = cpu_runtime.open_library

    def swap(code: bytes, name: str) -> Any:
        if how == "overwrite":
            path.write_bytes(other.read_bytes())
        else:
            path.unlink()
        if how == "replace":
            other.rename(path)
        elif how == "link":
            path.symlink_to(other)
        return opened(code, name)

    monkeypatch.setattr(cpu_runtime, "open_library", swap)
    assert added(load(path)) == 1


def test_a_swap_of_links_between_two_reads_is_seen(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is read of one artifact and the library of another, which fits the next time."""
    build_at(path.with_name("other.so"), 2, 8)
    link, manifest = path.with_name("link.so"), path.with_name("link.so.json")
    link.symlink_to(path)
    manifest.symlink_to(json_of(path))
    opened = []

    def swap(where: Path) -> Any:
        opened.append(where.name)
        if len(opened) == 2:
            for old, name in [(link, "other.so"), (manifest, "other.so.json")]:
                old.unlink()
                old.symlink_to(name)
        return files.open_regular(where)

    monkeypatch.setattr("tilewright.runtime.artifact.open_regular", swap)
    assert added(load(link), 8) == 2
    assert opened == ["link.so.json", "link.so"] * 2


def test_files_that_do_not_fit_are_refused(path: Path) -> None:
    other = build_at(path.with_name("other.so"), 2)
    shutil.copy(other, path)
    with pytest.raises(tw.ArtifactError):
        load(path)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("place")
def test_loading_again_and_again_takes_no_descriptors(path: Path) -> None:
    load(path)
    copy = path.with_name("copy.so")
    for old, new in [(path, copy), (json_of(path), json_of(copy))]:
        shutil.copy(old, new)
    gc.collect()  # other tests may have left open files to it
    before, mapped = descriptors(), mappings()
    modules = [load((path, copy)[n % 2]) for n in range(100)]
    assert (descriptors(), mappings()) == (before, mapped)
    assert {added(module) for module in modules} == {1}
    for number in range(2, 12):
        assert added(load(build_at(path, number))) == number
    assert descriptors() == before


def mappings() -> int:
    return sum(
        "tilewright-adds" in line for line in Path("/proc/self/maps").read_text().split("\n")
    )


@pytest.mark.usefixtures("place")
def test_threads_load_at_the_same_time(tmp_path: Path) -> None:
    paths = [build_at(tmp_path / f"{number}.so", number) for number in range(20, 26)]
    barrier = threading.Barrier(6)

    def work(start: int) -> list[int]:
        barrier.wait()
        numbers = [(start + n) % 6 for n in range(60)]
        return [added(load(paths[n])) - 20 - n for n in numbers]

    with ThreadPoolExecutor(6) as pool:
        assert {x for result in pool.map(work, range(6)) for x in result} == {0}


def test_what_is_opened_cannot_be_written() -> None:
    with cpu_runtime._in_memory(b"code", "kernel") as name:
        assert Path(name).read_bytes() == b"code"
        with pytest.raises(PermissionError):
            Path(name).write_bytes(b"other")
        with pytest.raises(PermissionError):
            os.truncate(name, 1)
    with cpu_runtime._in_folder(b"code", "kernel") as name:
        assert Path(name).parent.stat().st_mode & 0o777 == 0o700
    assert not Path(name).parent.exists()


def test_a_kernel_is_found_in_the_maps_of_a_process(path: Path) -> None:
    load(path)
    assert re.search(r"/memfd:tilewright-adds \(deleted\)", Path("/proc/self/maps").read_text())


# All or nothing


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


FULL_DISK = """
import resource, sys, tempfile
from pathlib import Path
import tilewright as tw
from tests.test_artifact_files import SERIAL, adds, contents
path, kind = Path(sys.argv[1]), sys.argv[2]
build = lambda where: tw.build_library(adds(2), where, SERIAL, object_file=kind == "object")
sizes = [made.stat().st_size for made in build(Path(sys.argv[3])).files]
old = contents(path.parent)
for limit in sorted({0, 10, *(size - 1 for size in sizes)}):
    tempfile.tempdir = None  # it is looked for anew, and with the limit of 0 there is none
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        build(path)
    except tw.BuildError as error:
        print(error)
    assert contents(path.parent) == old, limit
"""


@pytest.mark.parametrize("kind", ["library", "object"])
@pytest.mark.parametrize("before", ["a fresh folder", "an old artifact"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, before: str, kind: str) -> None:
    """A limit for the size of files stands for the disk: it fails at the same places."""
    folder, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    path = folder / "adds.so"
    if before == "an old artifact":
        build_at(path, 1)
    arguments = [str(path), kind, str(elsewhere / "adds.so")]
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    failures = re.findall("cannot write|cannot link|failed for the target", run.stdout)
    assert len(failures) == 5
    if before == "an old artifact":
        assert added(load(path)) == 1
    else:
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("kind", ["library", "object"])
@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_whatever_fails_leaves_what_was_there(
    tmp_path: Path, step: str, kind: str, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    path = folder / "adds.so"
    if not fresh:
        build_at(path, 1)
    old = contents(folder)
    owner, name = {"os.fsync": (os, "fsync"), "pathlib.Path.replace": (Path, "replace")}[step]
    real = getattr(owner, name)
    failed = 0
    for number in range(6):
        count = iter(range(100))

        def sometimes(*arguments: Any, number: int = number, count: Iterator[int] = count) -> Any:
            if next(count) == number:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, sometimes)
            try:
                build_library(adds(2), path, SERIAL, object_file=kind == "object")
            except tw.BuildError as error:
                reason = str(error)
            else:
                break
        assert "No space left on device" in reason
        assert contents(folder) == old
        failed += 1
    files_written = 3
    assert failed == files_written + (step == "os.fsync")
    assert set(contents(folder)) >= {"adds.so", "adds.h"}


def test_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        made = build_library(adds(1), tmp_path / "adds.so", SERIAL)
    finally:
        os.umask(before)
    assert [p.stat().st_mode & 0o777 for p in made.files] == [0o750, 0o640, 0o640]


WRITER = """
import sys
from pathlib import Path
from tests.test_artifact_files import write_again_and_again
write_again_and_again(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def write_again_and_again(path: Path, elsewhere: Path) -> None:
    """Put the artifacts that add 2 and 3 at `path` in turn, and say that it has begun."""
    artifacts = []
    for number in (2, 3):
        elsewhere.mkdir(exist_ok=True)
        made = build_at(elsewhere / path.name, number)
        names = [made, made.with_suffix(".h"), json_of(made)]
        artifacts.append([files.File(path.with_name(p.name), p.read_bytes()) for p in names])
    for artifact in itertools.cycle(artifacts):
        files.replace_files(artifact)
        print("written", flush=True)


@contextmanager
def writer(path: Path, elsewhere: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", WRITER, str(path), str(elsewhere)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        sink = threading.Thread(target=process.stdout.read)  # so that the pipe never fills up
        sink.start()
        try:
            yield process
        finally:
            process.kill()
            sink.join()


def test_a_writer_that_is_killed_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Or, between two of three renames, what is refused; the next writer puts it in order."""
    rng = np.random.default_rng(0)
    seen = set()
    folder = tmp_path / "here"
    folder.mkdir()
    for _ in range(4):
        path = build_at(folder / "adds.so", 1)
        with writer(path, tmp_path / "elsewhere"):
            time.sleep(rng.random() * 0.05)
        seen.add(state(path))
        build_at(path, 1)
        assert added(load(path)) == 1
        assert {p.name for p in folder.iterdir()} == {"adds.so", "adds.so.json", "adds.h"}
    assert seen <= {2, 3, None}


def state(path: Path) -> int | None:
    """The number that the artifact adds; `None` if it is refused as what it is."""
    try:
        return added(load(path))
    except tw.ArtifactError as error:
        reason = str(error)
    assert re.search("is not the file of its manifest|is damaged: expected", reason)
    return None


def test_readers_and_writers_at_the_same_time(path: Path, tmp_path: Path) -> None:
    """Writers of two processes replace an artifact, which is read here all the time."""
    with writer(path, tmp_path / "a"), writer(path, tmp_path / "b"):
        end, seen = time.monotonic() + 120, set[int | None]()
        for count in itertools.count():
            if (count >= 300 and {2, 3} <= seen) or time.monotonic() > end:
                break
            seen.add(state(path))
    assert seen - {None} == {2, 3}
    build_at(path, 1)
    assert added(load(path)) == 1


def test_writers_of_one_folder_do_not_mix_their_files(tmp_path: Path) -> None:
    path = tmp_path / "adds.so"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: build_at(path, number), range(1, 17)))
    assert 1 <= added(load(path)) <= 16
    assert {p.name for p in tmp_path.iterdir()} == {"adds.so", "adds.so.json", "adds.h"}


def test_only_temporary_files_of_writers_are_removed(tmp_path: Path) -> None:
    kept = [".tilewright-note", ".tilewright-0123456789abcdef-0.so", "x.new"]
    gone = [".tilewright-0123456789abcdef-0.new", ".tilewright-0123456789abcdef-2.old"]
    for name in kept + gone:
        (tmp_path / name).write_text("x")
    build_at(tmp_path / "adds.so", 1)
    assert {p.name for p in tmp_path.iterdir()} == {*kept, "adds.so", "adds.so.json", "adds.h"}


def test_a_file_system_without_locks_and_links_will_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr(os, "link", refuse)
    build_at(path, 2)
    assert added(load(path)) == 2
    old = contents(path.parent)
    real, count = Path.replace, iter(range(9))
    monkeypatch.setattr(Path, "replace", lambda p, q: refuse() if next(count) == 1 else real(p, q))
    with pytest.raises(tw.BuildError):
        build_at(path, 3)
    assert contents(path.parent) == old


@pytest.mark.parametrize("name", ["model.onnx", "program.py"])
@pytest.mark.parametrize("object_file", [False, True])
def test_a_model_or_program_is_not_replaced(tmp_path: Path, name: str, object_file: bool) -> None:
    path = tmp_path / name
    path.write_text("mine")
    with pytest.raises(tw.BuildError):
        build_library(adds(1), path, SERIAL, object_file=object_file)
    assert contents(tmp_path) == {name: b"mine"}


def test_a_path_and_a_program_are_not_confused() -> None:
    swapped: Any = ("adds.so", adds(1))
    with pytest.raises(tw.BuildError):
        build_library(*swapped)


# What the code says of itself


def carried(code: bytes) -> dict[str, Any]:
    (text,) = re.findall(rb"tilewright kernel: ([^\0]*)\0", code)
    found: dict[str, Any] = json.loads(text)
    return found


def test_code_carries_its_description(path: Path) -> None:
    manifest = json.loads(json_of(path).read_text())
    (program,) = manifest["programs"]
    expected = {key: manifest[key] for key in ("abi", "target", "features")}
    expected |= {"signature": program["signature"], **program["needs"]}
    assert carried(path.read_bytes()) == expected
    made = build_library(adds(1), path.with_name("adds.o"), SERIAL, object_file=True)
    assert carried(made.files[0].read_bytes()) == expected


def test_code_of_another_processor_carries_its_description(tmp_path: Path) -> None:
    target = "cpu -mcpu=neoverse-n1 -threads=1"
    made = build_library(adds(1), tmp_path / "adds.o", target, object_file=True)
    assert carried(made.files[0].read_bytes())["target"] == target


def test_other_formats_carry_none_and_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = "cpu -mcpu=x86-64-v2 -mtriple=x86_64-apple-darwin -threads=1"
    made = build_library(adds(1), tmp_path / "adds.o", target, object_file=True)
    assert b"tilewright kernel" not in made.files[0].read_bytes()
    assert (
        "adds carries no description: it is neither ELF of 64 bits nor WebAssembly" in caplog.text
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_two_kernels_are_linked_into_one_program(tmp_path: Path) -> None:
    x = te.placeholder((4,), "int32", name="x")
    other = te.func([x, te.compute((4,), lambda i: x[i] * 3, name="y")], name="triples")
    build_library(adds(5), tmp_path / "adds.o", SERIAL, object_file=True)
    build_library(tw.Schedule(other), tmp_path / "triples.o", SERIAL, object_file=True)
    (tmp_path / "main.c").write_text(
        """
        #include <stdio.h>
        #include "adds.h"
        #include "triples.h"
        extern const char a[] __asm__("adds.description"), b[] __asm__("triples.description");
        int main(void) {
            int32_t x[4] = {1, 2, 3, 4}, y[4], z[4];
            int status = adds(x, y, NULL) + triples(y, z, NULL);
            printf("%d %d %.17s %.17s", status, z[3], a, b);
            return 0;
        }
        """
    )
    command = ["cc", "-Wall", "-Werror", "main.c", "adds.o", "triples.o", "-o", "main"]
    subprocess.run(command, check=True, cwd=tmp_path)
    run = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    assert run.stdout == "0 27 tilewright kernel tilewright kernel"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_a_program_in_c_keeps_the_functions_of_the_system(tmp_path: Path) -> None:
    """It links a library before libm and libc, and so takes names from it first."""
    (tmp_path / "main.c").write_text(
        """
        #include <math.h>
        #include <stdio.h>
        #include <stdlib.h>
        int main(int count, char **words) {
            volatile double one = count;
            char *text = malloc(100);
            snprintf(text, 100, "%.3f %s", exp(one), getenv("HOME") ? "home" : "");
            puts(text);
            free(text);
            return 0;
        }
        """
    )
    refused = 0
    for name in ("exp", "malloc", "free", "puts", "getenv", "exp_kernel", "allocated"):
        func = replace(adds(1).func, name=name)
        library = tmp_path / f"lib{name}.so"
        try:
            build_library(tw.Schedule(func), library, SERIAL)
        except tw.BuildError:
            refused += 1
            continue
        link = ["-Wl,--no-as-needed", f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}", f"-l{name}"]
        subprocess.run(["cc", "main.c", "-o", "main", *link, "-lm"], check=True, cwd=tmp_path)
        environment = {"HOME": "/"}
        run = subprocess.run(
            [tmp_path / "main"], capture_output=True, text=True, check=True, env=environment
        )
        assert run.stdout == "2.718 home\n"
    assert refused == 5


def test_an_object_file_takes_no_name_of_the_system(tmp_path: Path) -> None:
    for name in ("expf", "pthread_create", "omp_get_num_teams", "GOMP_task", "main", "signbit"):
        func = replace(adds(1).func, name=name)
        with pytest.raises(tw.BuildError):
            build_library(tw.Schedule(func), tmp_path / "adds.o", SERIAL, object_file=True)
        tw.build(tw.Schedule(func), SERIAL)  # what runs in this process may be called so
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("nm") is None, reason="no binutils here")
@pytest.mark.parametrize("library", ["libc.so.6", "libm.so.6", "libgomp.so.1"])
def test_names_that_a_library_of_this_system_exports_are_refused(library: str) -> None:
    """All but those that its next versions add."""
    folders = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib")
    files = [Path(folder, library) for folder in folders]
    found = [file for file in files if file.exists()]
    if not found:
        pytest.skip(f"there is no {library}")
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", found[0]], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in listed.splitlines()}
    exported = {name.partition("@@")[0] for name in names if "@@" in name}
    open_to_programs = {name for name in exported if not name.startswith("_")}
    assert len(open_to_programs) > 100
    unknown = {n for n in open_to_programs if not is_system_name(n)}
    assert len(unknown) < len(open_to_programs) / 50, unknown


@pytest.mark.parametrize("name", ["matmul", "topk", "total", "strided", "key_proj", "res_block"])
def test_names_that_are_nobody_s_are_taken(name: str) -> None:
    assert not is_system_name(name)


def test_what_is_built_here_has_no_description() -> None:
    from tilewright.codegen.cache import compile_cached

    compiled = compile_cached(adds(1).func, SERIAL)
    assert b"tilewright kernel" not in compiled.image


@pytest.mark.parametrize("object_file", [False, True])
def test_a_header_does_not_take_the_place_of_the_code(tmp_path: Path, object_file: bool) -> None:
    with pytest.raises(tw.BuildError):
        build_library(adds(1), tmp_path / "adds.h", SERIAL, object_file=object_file)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["", ".json"])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, suffix: str) -> None:
    library = tmp_path / "adds.so"
    pipe = library.with_name(library.name + suffix)
    os.mkfifo(pipe)
    with pytest.raises(tw.BuildError):
        build_at(library, 1)
    assert [p.name for p in tmp_path.iterdir()] == [pipe.name]
    assert pipe.is_fifo()


def test_a_link_to_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    library = tmp_path / "adds.so"
    os.mkfifo(tmp_path / "pipe")
    library.symlink_to("pipe")
    with pytest.raises(tw.BuildError):
        build_at(library, 1)
    assert library.is_symlink()


def two_steps(n: int = 5000) -> tw.Schedule:
    """y[i] = 2 x[-i - 1] + 1, by way of a buffer that does not fit on the stack."""
    x = te.placeholder((n,), name="x")
    b = te.compute((n,), lambda i: x[i] * 2, name="B")
    y = te.compute((n,), lambda i: b[n - 1 - i] + 1, name="y")
    return tw.Schedule(te.func([x, y], name="two_steps"))


def test_a_library_says_how_large_its_workspace_is(tmp_path: Path) -> None:
    path = build_library(two_steps(), tmp_path / "two_steps.so", SERIAL).files[0]
    manifest = json.loads(path.with_name("two_steps.so.json").read_text())
    assert manifest["programs"][0]["signature"]["workspace_bytes"] == 20032
    module = load(path)
    assert module.workspace_bytes == 20032
    x, y = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32)
    for options in ({}, {"workspace": HOST_MEMORY.allocate(20032)}):
        y[...] = 0
        module(x, y, **options)
        np.testing.assert_array_equal(y, 2 * x[::-1] + 1)


def test_the_header_does_not_depend_on_the_schedule(tmp_path: Path) -> None:
    """But for the size of the workspace: a program in C is compiled once more, and not changed."""
    inline = two_steps()
    inline.compute_inline(inline.get_block("B"))
    texts = []
    for folder, schedule in (("plain", two_steps()), ("inline", inline)):
        (tmp_path / folder).mkdir()
        build_library(schedule, tmp_path / folder / "two_steps.so", SERIAL)
        texts.append((tmp_path / folder / "two_steps.h").read_text())
    first, second = texts
    assert "#define two_steps_WORKSPACE_BYTES 20032\n" in first
    assert "int32_t two_steps(const float *x_in, float *y_out, void *workspace);" in first
    assert second == first.replace("BYTES 20032", "BYTES 0")


PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "two_steps.h"

int main(void) {
    static float x[5000], y[5000];
    char *memory = aligned_alloc(64, two_steps_WORKSPACE_BYTES + 64);
    for (int i = 0; i < 5000; i++) x[i] = i;
    printf("%d %d ", two_steps(x, y, NULL), two_steps(x, y, memory + 16));
    printf("%d ", two_steps(x, y, memory));
    printf("%g %g\\n", y[0], y[4999]);
    return 0;
}
"""


NAMES = """
uint8_t int32_t INT8_MAX typeof typeid nullptr alignas constexpr linux unix and_eq int
K_WORKSPACE_BYTES k_WORKSPACE_BYTES workspace __LINE_ _Bool I x_in x_out
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("compiler", [["cc", "-xc"], ["cc", "-xc++"], ["cc", "-xc", "-std=c2x"]])
def test_arguments_of_any_name_have_a_header_that_compiles(
    tmp_path: Path, compiler: list[str]
) -> None:
    inputs = tuple(Argument(name, "uint8", (3,)) for name in NAMES.split())
    signature = Signature("k", (*inputs, Argument("x", "int8", (3,), role="out")), 64)
    target = CpuTarget.named("znver4", threads=2)
    header = c_header("k", "k.so", target, [Declared(signature)], ["-lgomp"])
    (tmp_path / "k.c").write_text(header + "int main(void) { return 0; }\n")
    command = [*compiler, "-Wall", "-Werror", "-fsyntax-only", "k.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "unrecognized" in done.stderr or "cc1plus" in done.stderr:
        pytest.skip(f"the compiler cannot do {compiler[1:]}")
    assert done.returncode == 0, done.stderr


CALLER = """
#include "adds.h"
#include "neoverse_n1.h"
#include "sapphirerapids.h"
#include "x86_64.h"

int main() {
    int32_t x[4] = {1, 2, 3, 4}, y[4];
    if (!adds_runs_here() || adds(x, y, NULL))
        return 1;
    printf("%d %d %d %d", y[3], neoverse_n1_runs_here(), sapphirerapids_runs_here(),
           x86_64_runs_here());
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("compiler", [["cc", "-xc"], ["cc", "-xc++"]])
def test_callers_in_c_and_cpp_ask_whether_the_processor_will_do(
    tmp_path: Path, compiler: list[str]
) -> None:
    build_at(tmp_path / "adds.so", 5)
    flags, expected = cpu_flags(), ["9"]
    for mcpu in ("neoverse-n1", "sapphirerapids", "x86-64"):
        target, name = CpuTarget.named(mcpu), mcpu.replace("-", "_")
        header = c_header(name, f"{name}.so", target, [Declared(Signature(name, ()))])
        (tmp_path / f"{name}.h").write_text(header)
        needed = {FEATURES[feature].flag for feature in target.features}
        expected.append(str(int(flags is not None and needed <= flags)))
    (tmp_path / "main.c").write_text(CALLER)
    command = [*compiler, "-Wall", "-Werror", "-c", "main.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "cc1plus" in done.stderr:
        pytest.skip("the compiler has no C++")
    assert done.returncode == 0, done.stderr
    subprocess.run(["cc", "main.o", "./adds.so", "-lm", "-o", "main"], cwd=tmp_path, check=True)
    called = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert called.stdout.split() == expected


PRODUCT = """
#include "matmul.h"
int main(void) {
    static float a[64 * 64], b[64 * 64], c[64 * 64];
    return matmul(a, b, c, NULL);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_program_in_c_links_what_the_header_says(tmp_path: Path) -> None:
    path = tmp_path / "matmul.so"
    build_library(tw.ops.matmul_func(64, 64, 64), path, "cpu -threads=2", allow=("default",))
    (said,) = re.findall(r" \* Link (.*)", path.with_suffix(".h").read_text())
    (tmp_path / "main.c").write_text(PRODUCT)

    def linked(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["cc", "main.c", *words, "-o", "main", "-Wl,-rpath,."]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert said.split() == ["matmul.so", "-lm", "-lpthread"]
    assert linked(*said.split()).returncode == 0
    subprocess.run(["./main"], cwd=tmp_path, check=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_program_in_c_provides_the_workspace(tmp_path: Path) -> None:
    build_library(two_steps(), tmp_path / "two_steps.so", SERIAL)
    (tmp_path / "main.c").write_text(PROGRAM)
    command = ["cc", "-Wall", "-Werror", "main.c", "./two_steps.so", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "1 1 0 9999 1\n"


def test_a_library_that_hides_a_module_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "net.py").write_text("")
    for name, told in (("other.so", 0), ("net.so", 1)):
        build_at(tmp_path / name, 1)
        assert len([r for r in caplog.records if "net.py" in r.getMessage()]) == told
