"""Object files and shared libraries."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cpu.generator import runs_parallel
from tilewright.codegen.cpu.linking import link, linker, version
from tilewright.schedule import Schedule

from ..hosts import processor

needs_linker = pytest.mark.skipif(
    not any(shutil.which(n) for n in ("cc", "gcc", "clang", "ld")), reason="no linker here"
)


def scaled(threads: int) -> Compiled:
    """y = exp(x) * alpha, the rows in parallel."""
    x = te.placeholder((4, 5), "float32", name="x")
    alpha = te.scalar("float32", "alpha")
    y = te.compute((4, 5), lambda i, j: te.exp(x[i, j]) * alpha, name="y")
    sch = Schedule(te.func([x, alpha, y], name="scaled"))
    sch.parallel(sch.get_loops(sch.get_block("y"))[0])
    return compile_func(sch.func, f"cpu -threads={threads}")


@needs_linker
@pytest.mark.parametrize("threads", [1, 2])
def test_a_library_computes_what_the_module_does(threads: int, tmp_path: Path) -> None:
    compiled = scaled(threads)
    assert runs_parallel(compiled) is (threads == 2)
    path = tmp_path / "scaled.so"
    path.write_bytes(link(compiled.image, compiled.target))
    function = ctypes.CDLL(str(path)).scaled
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
    y = np.zeros_like(x)
    places = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
    assert function(places[0], ctypes.c_float(2), places[1]) == 0
    np.testing.assert_allclose(y, 2 * np.exp(x), rtol=1e-6)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_an_object_file_links_with_a_program_in_c(tmp_path: Path) -> None:
    (tmp_path / "scaled.o").write_bytes(scaled(1).image)
    (tmp_path / "main.c").write_text(
        """
        #include <stdint.h>
        #include <stdio.h>
        int32_t scaled(const float *x, float alpha, float *y);
        int main(void) {
            float x[20] = {0}, y[20];
            int32_t status = scaled(x, 3.0f, y);
            printf("%d %g %g", status, y[0], y[19]);
            return 0;
        }
        """
    )
    files = [str(tmp_path / n) for n in ("main.c", "scaled.o", "main")]
    subprocess.run(["cc", files[0], files[1], "-o", files[2], "-lm"], check=True)
    done = subprocess.run([files[2]], capture_output=True, text=True, check=True)
    assert done.stdout == "0 3 3"


def test_without_a_linker_the_error_offers_an_object_file() -> None:
    compiled = scaled(1)
    with pytest.raises(BuildError):
        link(compiled.image, compiled.target, find=lambda name: None)


def test_a_bare_linker_will_do() -> None:
    here = processor("cpu")
    found = linker(here, find=lambda name: "/bin/ld" if name == "ld" else None)
    assert found[:2] == ["/bin/ld", "-shared"]


@pytest.mark.parametrize(
    ("chosen", "flags"),
    [
        ("zig cc", ["cc", "-shared", "-nostdlib"]),
        ("zig cc -target x86_64-linux", ["cc", "-target", "x86_64-linux", "-shared", "-nostdlib"]),
        ("zig ld.lld", ["ld.lld", "-shared", "-z"]),
        ("gcc -fuse-ld=lld", ["-fuse-ld=lld", "-shared", "-nostdlib"]),
        ("ld.lld --threads=1", ["--threads=1", "-shared", "-z"]),
    ],
)
def test_flags_come_after_the_words_of_a_linker(chosen: str, flags: list[str]) -> None:
    """The first of them may say which program it is: `zig cc`."""
    found = linker(processor("cpu"), chosen, find=lambda name: f"/bin/{name}")
    assert found[1:][: len(flags)] == flags


@needs_linker
@pytest.mark.parametrize("threads", [1, 2])
def test_a_linker_that_is_one_of_several_programs(threads: int, tmp_path: Path) -> None:
    """Of two threads it has further flags, in the form of a compiler's."""
    several = tmp_path / "several"
    here = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if here is None:
        pytest.skip("no compiler here")
    several.write_text(f'#!/bin/sh\n[ "$1" = cc ] || exit 3\nshift\nexec {here} "$@"\n')
    several.chmod(0o755)
    compiled = scaled(threads)
    assert link(compiled.image, compiled.target, f"{several} cc") == link(
        compiled.image, compiled.target, here
    )
    assert version(str(several), "cc") == version(here)
    assert version(str(several), "c++") == "several c++"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


@needs_linker
def test_a_linker_that_fails_is_quoted(temporary: Path) -> None:
    temporary.mkdir()
    with pytest.raises(BuildError, match=r"failed for the target cpu"):
        link(scaled(1).image, scaled(1).target, find=lambda _: "false")
    assert list(temporary.iterdir()) == []


@needs_linker
def test_a_folder_that_cannot_be_written_is_an_error(temporary: Path) -> None:
    compiled = scaled(1)
    with pytest.raises(BuildError):
        link(compiled.image, compiled.target)
    assert not temporary.exists()


@needs_linker
def test_threads_link_in_folders_of_their_own(temporary: Path) -> None:
    temporary.mkdir()
    compiled = [scaled(threads) for threads in (1, 2)]
    alone = [link(c.image, c.target) for c in compiled]
    assert alone[0] != alone[1]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda c: link(c.image, c.target), compiled * 6))
    assert together == alone * 6
    assert list(temporary.iterdir()) == []
