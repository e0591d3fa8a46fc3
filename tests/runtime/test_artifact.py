"""Artifacts: what is written, and everything that is refused when it is loaded.

The library is a copy of the system's mathematics library: `int ilogb(double)` has the calling
convention of a kernel with one scalar, and its result is the status.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.errors import ArtifactError, KernelError
from tilewright.runtime import Argument, Origin, Signature, load, loader, write_artifact
from tilewright.runtime.artifact import c_header, manifest_path, read_manifest
from tilewright.runtime.host import cpu_flags
from tilewright.runtime.loader import check_machine
from tilewright.target import Target

SIGNATURE = Signature("ilogb", (Argument("x", "float64", kind="scalar"),))
ORIGIN = Origin("transfer", "abc123", "expected to take 8.9 ms", 0.125)
GENERIC = Target.parse("cpu -mcpu=x86-64 -threads=1")


def math_library() -> Path:
    ctypes.CDLL("libm.so.6")
    lines = Path("/proc/self/maps").read_text().splitlines()
    return Path(next(line.split()[-1] for line in lines if re.search(r"/libm[.-]", line)))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.so"
    shutil.copy(math_library(), path)
    write(path)
    return path


def write(path: Path, **changes: Any) -> None:
    options: dict[str, Any] = {
        "signature": SIGNATURE,
        "target": GENERIC,
        "openmp": False,
        "origin": ORIGIN,
        "schedule_id": "s1",
        "measurement_id": "m1",
        "toolchain": {"llvm": "22.1.0"},
    }
    options.update(changes)
    write_artifact(path, options.pop("signature"), options.pop("target"), **options)


def edit(path: Path, **changes: Any) -> None:
    manifest = manifest_path(path)
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))


def test_an_artifact_is_three_files(library: Path) -> None:
    names = {path.name for path in library.parent.iterdir()}
    assert names == {"kernel.so", "kernel.so.json", "kernel.h"}


def test_the_manifest_reads_back(library: Path) -> None:
    manifest = read_manifest(library)
    assert manifest.signature == SIGNATURE
    assert manifest.origin == ORIGIN
    assert (manifest.schedule_id, manifest.measurement_id) == ("s1", "m1")
    assert manifest.toolchain == {"llvm": "22.1.0"}
    assert manifest.target == str(GENERIC)
    assert manifest.size == library.stat().st_size


def test_a_loaded_module_runs(library: Path) -> None:
    mod = load(library)
    mod(1.5)
    with pytest.raises(KernelError, match="stopped with status 3"):
        mod(8.0)
    assert mod.origin == ORIGIN
    assert mod.target == GENERIC
    assert load(str(library)).signature == SIGNATURE


def test_loading_needs_runtime_and_numpy_only(library: Path) -> None:
    program = (
        "import sys\n"
        "from tilewright.runtime import load\n"
        f"load({str(library)!r})(1.0)\n"
        "ours = {m.split('.')[1] for m in sys.modules if m.startswith('tilewright.')}\n"
        "foreign = {'llvmlite', 'ml_dtypes', 'sqlalchemy', 'xgboost', 'rich'} & set(sys.modules)\n"
        "print(sorted(ours), sorted(foreign))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "['dtypes', 'errors', 'runtime', 'target'] []\n"


def damage_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda p: p.unlink(), "does not exist"),
    (lambda p: manifest_path(p).unlink(), "has no manifest: expected .*kernel.so.json"),
    (lambda p: os.truncate(p, 1000), "is damaged: expected .* bytes, found 1000"),
    (lambda p: p.write_bytes(b""), "is damaged: expected .* bytes, found 0"),
    (damage_middle, "is not the file of its manifest: expected sha256"),
    (lambda p: os.truncate(manifest_path(p), 100), "is damaged: not a JSON text"),
    (lambda p: manifest_path(p).write_bytes(b"\xff\xfe"), "is damaged: not a JSON text"),
    (lambda p: manifest_path(p).write_text("[" * 100_000), "is damaged: not a JSON text"),
    (lambda p: manifest_path(p).write_text("[]"), "expected a manifest as a JSON object"),
    (lambda p: manifest_path(p).write_text(" " * (2 << 20)), "more than 1048576 bytes"),
    (lambda p: edit(p, format=3), "format version 3 is newer than 2"),
    (lambda p: edit(p, format=1), "format version 1 is not supported any more, expected 2"),
    (lambda p: edit(p, abi=7), "abi version 7 is newer than 1"),
    (lambda p: edit(p, abi="1"), "expected a version of its abi, found '1'"),
    (lambda p: edit(p, abi=True), "expected a version of its abi, found True"),
    (lambda p: edit(p, abi=0), "expected a version of its abi, found 0"),
    (lambda p: edit(p, size="1"), "size: expected int, found '1'"),
    (lambda p: edit(p, features=["sse9"]), "unknown processor features .'sse9'."),
    (lambda p: edit(p, target="cpu -mcpu=z80"), "target: unknown processor -mcpu=z80"),
    (lambda p: edit(p, signature=None), "expected a signature as a JSON object"),
    (lambda p: edit(p, origin={"kind": "x", "detail": ""}), "origin: expected one of"),
    (lambda p: edit(p, signature={"name": "no_such", "arguments": []}), "no function no_such"),
    (lambda p: write(p, target=Target.parse("cpu -mcpu=neoverse-v1")), "needs neon"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_what_does_not_fit_is_refused(
    library: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(library)
    with pytest.raises(ArtifactError, match=message):
        load(library)


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    path.write_text("int main() {}")
    write(path)
    with pytest.raises(ArtifactError, match="does not load"):
        load(path)


def test_the_processor_must_have_the_features(library: Path) -> None:
    write(library, target=Target.parse("cpu -mcpu=haswell"))
    manifest = read_manifest(library)
    flags = frozenset(Target.parse("cpu -mcpu=haswell").cpu_flags)
    check_machine(manifest, flags)
    with pytest.raises(ArtifactError, match="needs fma, avx2, which this processor"):
        check_machine(manifest, flags - {"fma", "avx2"})


def test_tile_registers_that_the_system_withholds_are_missed(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(library, target=Target.parse("cpu -mcpu=sapphirerapids"))
    manifest = read_manifest(library)
    flags = frozenset(Target.parse("cpu -mcpu=sapphirerapids").cpu_flags)
    for granted in (True, False):
        monkeypatch.setattr(loader, "request_tiles", lambda granted=granted: granted)
        if granted:
            check_machine(manifest, flags)
        else:
            for told in (flags, None):
                with pytest.raises(ArtifactError, match="registers of amx-tile, which the system"):
                    check_machine(manifest, told)
            write(library, target=Target.parse("cpu -mcpu=sapphirerapids -mattr=-amx-tile"))
            check_machine(read_manifest(library), flags)


def test_what_could_not_be_read_back_is_not_written(library: Path) -> None:
    with pytest.raises(ArtifactError, match="'max value' is not the name of a C function"):
        write(library, signature=Signature("max value", ()))
    assert read_manifest(library).signature == SIGNATURE


def test_unknown_flags_are_announced(library: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_machine(read_manifest(library), None)
    assert "they are not checked" in caplog.text


def test_flags_are_those_of_the_first_processor(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert cpu_flags(path) == frozenset({"fpu", "avx2"})
    path.write_text("Features\t: fp asimd\n")
    assert cpu_flags(path) == frozenset({"fp", "asimd"})
    path.write_text("nothing\n")
    assert cpu_flags(path) is None
    assert cpu_flags(tmp_path / "nowhere") is None


ADD = Signature(
    "add",
    (
        Argument("a", "float32", (2, 3), (8, 1)),
        Argument("s", "int32", kind="scalar"),
        Argument("c", "float32", (2, 3), role="out"),
    ),
)
HEADER = """\
#ifndef TILEWRIGHT_ADD_H
#define TILEWRIGHT_ADD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * a: in tensor float32[2][3], strides (8, 1) elements
 * s: in scalar int32
 * c: out tensor float32[2][3]
 *
 * Returns 0, or 1 if an internal buffer could not be allocated.
 * Outputs must not overlap with any other argument. Calls are thread-safe.
 */
int32_t add(const float *a, int32_t s, float *c);

#ifdef __cplusplus
}
#endif

#endif /* TILEWRIGHT_ADD_H */
"""
SOURCE = """\
#include "add.h"
int32_t add(const float *a, int32_t s, float *c) {
    for (int i = 0; i < 2; i++) for (int j = 0; j < 3; j++) c[3 * i + j] = a[8 * i + j] + s;
    return 0;
}
"""


def test_the_header_declares_the_kernel() -> None:
    assert c_header(ADD) == HEADER


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_kernel_in_c_is_loaded_and_runs(tmp_path: Path) -> None:
    (tmp_path / "add.c").write_text(SOURCE)
    (tmp_path / "add.h").write_text(HEADER)
    library = tmp_path / "add.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, tmp_path / "add.c"],
        check=True,
    )
    write(library, signature=ADD)
    wide, c = np.arange(16, dtype="f4").reshape(2, 8), np.zeros((2, 3), "f4")
    load(library)(wide[:, :3], 10, c)
    np.testing.assert_array_equal(c, wide[:, :3] + 10)
