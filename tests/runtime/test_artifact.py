"""Artifacts: what is written, and everything that is refused when it is loaded.

The library is a copy of the system's mathematics library: `int ilogb(double)` has the calling
convention of a kernel with one scalar, and its result is the status. The description that a library
carries is at its end: what counts is that it is in the file.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.base import __version__
from tilewright.base.errors import ArgumentError, ArtifactError, KernelError
from tilewright.base.files import File, read_some, replace_files
from tilewright.runtime import Argument, Origin, Signature, cpu_runtime, load, loader
from tilewright.runtime.artifact import (
    ProgramContent,
    artifact_files,
    manifest_path,
    parse_manifest,
    read_manifest,
)
from tilewright.runtime.cpu_runtime import check_machine
from tilewright.runtime.header import Declared, c_header
from tilewright.runtime.host import HOST, cpu_flags
from tilewright.runtime.manifest import Provenance, StoredSchedule, description
from tilewright.runtime.signature import Packing
from tilewright.target import CPUS, FEATURES, CpuTarget

from ..refusals import refused

SIGNATURE = Signature("ilogb", (Argument("x", "float64", kind="scalar"),))
ORIGIN = Origin("transfer", "abc123", "expected to take 8.9 ms", 0.125, "s0")
PROVENANCE = Provenance(ORIGIN, {"ilogb": StoredSchedule(ORIGIN, "[]")})
TOOLCHAIN = {"llvm": "22.1.0"}
GENERIC = CpuTarget.named("x86-64", threads=1)


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


def header_of(signature: Signature, target: CpuTarget = GENERIC) -> str:
    name = signature.name
    return c_header(name, f"{name}.so", target, [Declared(signature)])


def write(
    path: Path,
    signature: Signature = SIGNATURE,
    target: CpuTarget = GENERIC,
    **changes: Any,
) -> None:
    """Add the description to a library, and write its header and manifest."""
    with path.open("ab") as file:
        file.write(description(signature, target, target.features, {}))
    describe(path, signature, target, **changes)


def describe(
    path: Path,
    signature: Signature = SIGNATURE,
    target: CpuTarget = GENERIC,
    **changes: Any,
) -> None:
    """Write the header and the manifest of a library that has a description."""
    toolchain = changes.pop("toolchain", TOOLCHAIN)
    provenance = replace(PROVENANCE, **changes)
    code = File(path, path.read_bytes())
    header = File(path.with_suffix(".h"), header_of(signature, target).encode())
    content = ProgramContent(signature, {}, provenance)
    _, *files = artifact_files(code, target, toolchain, [content], header)
    replace_files(files)


def edit(path: Path, **changes: Any) -> None:
    """Change fields of the manifest, of its code or its program, whichever has them, and its digest
    to that of what it says then."""
    data = json.loads(manifest_path(path).read_text())
    for name, value in changes.items():
        next(place for place in places(data) if name in place)[name] = value
    covered = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    data["digest"] = hashlib.sha256(text.encode()).hexdigest()
    manifest_path(path).write_text(json.dumps(data))


def places(data: Any) -> list[Any]:
    """The objects of a manifest that have different names."""
    (program,) = data["programs"]
    return [data, data["code"], program, program["needs"], program["provenance"]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that do not fit are looked at again at once."""
    monkeypatch.setattr(loader, "_REPLACING_SECONDS", 0)


def test_an_artifact_is_three_files(library: Path) -> None:
    names = {path.name for path in library.parent.iterdir()}
    assert names == {"kernel.so", "kernel.so.json", "kernel.h"}


def test_the_manifest_reads_back(library: Path) -> None:
    manifest = read_manifest(library)
    assert manifest.program.signature == SIGNATURE
    assert manifest.program.provenance == PROVENANCE
    assert manifest.target == GENERIC
    assert manifest.code.size == library.stat().st_size


def test_fields_of_a_kind_may_not_have_names_of_the_others() -> None:
    with pytest.raises(ArtifactError):
        description(SIGNATURE, GENERIC, GENERIC.features, {"abi": 1})


def test_a_loaded_module_runs(library: Path) -> None:
    mod = load(library)
    mod(1.5)
    with pytest.raises(KernelError, match="stopped with status 3"):
        mod(8.0)
    assert mod.origin == ORIGIN
    assert mod.target == GENERIC
    assert load(str(library)).signature == SIGNATURE
    with pytest.raises(ArgumentError):
        load(library, device=0)


@pytest.mark.parametrize("name", ["_handle", "_name", "__class__", "_FuncPtr"])
def test_only_the_library_is_asked_for_symbols(library: Path, name: str) -> None:
    with refused(ArtifactError, name):
        cpu_runtime._symbol(ctypes.CDLL(str(library)), name, library)


def test_an_artifact_of_an_older_version_runs() -> None:
    module = load(Path(__file__).parent / "kept" / "matmul.so")
    assert str(module.target) == "cpu -mcpu=x86-64-v2 -threads=1"
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    b = np.arange(30, dtype=np.float32).reshape(6, 5)
    c = np.empty((4, 5), np.float32)
    module(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_loading_needs_runtime_and_numpy_only(library: Path) -> None:
    program = (
        "import sys\n"
        "from tilewright.runtime import load\n"
        f"load({str(library)!r})(1.0)\n"
        "named = [m.split('.') for m in sys.modules if m.startswith('tilewright.')]\n"
        "ours = {of for _, of, *inside in named if inside}\n"
        "foreign = {'llvmlite', 'ml_dtypes', 'sqlalchemy', 'xgboost', 'rich'} & set(sys.modules)\n"
        "print(sorted(ours), sorted(foreign))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "['base', 'runtime', 'target'] []\n"


def damage_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def nested(depth: int = 500) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def argument(**changes: Any) -> dict[str, Any]:
    return {**asdict(SIGNATURE.arguments[0]), **changes}


def sign(
    *arguments: dict[str, Any], name: str = "ilogb", workspace_bytes: int | None = 0
) -> dict[str, Any]:
    return {"name": name, "arguments": list(arguments), "workspace_bytes": workspace_bytes}


def for_an_unknown_kind(path: Path) -> None:
    """Both the library and its manifest say so."""
    code = path.read_bytes().replace(b"cpu -mcpu=x86-64", b"abacus -beads=10")
    path.write_bytes(code)
    target = str(GENERIC).replace("cpu -mcpu=x86-64", "abacus -beads=10")
    edit(path, target=target, sha256=hashlib.sha256(code).hexdigest())


def for_an_unknown_processor(path: Path) -> None:
    """Both the library and its manifest say so."""
    code = path.read_bytes().replace(b"mcpu=x86-64", b"mcpu=z80-99")
    path.write_bytes(code)
    target = str(GENERIC).replace("x86-64", "z80-99")
    edit(path, target=target, sha256=hashlib.sha256(code).hexdigest())


TENSOR = {"kind": "tensor", "role": "out"}
DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda p: p.unlink(), "does not exist"),
    (lambda p: manifest_path(p).unlink(), "has no manifest: expected .*kernel.so.json"),
    (lambda p: os.truncate(p, 1000), "is damaged: expected .* bytes, found 1000"),
    (lambda p: p.write_bytes(b""), "is damaged: expected .* bytes, found 0"),
    (damage_middle, "is not the file of its manifest: expected sha256"),
    (lambda p: os.truncate(manifest_path(p), 100), "is damaged: not a JSON text"),
    (lambda p: manifest_path(p).write_bytes(b"\xff\xfe"), "is damaged: not a JSON text"),
    (lambda p: manifest_path(p).write_text("[" * 100_000), "is damaged: not a JSON text"),
    (lambda p: manifest_path(p).write_text("1" * 100_000), "is damaged: not a JSON text"),
    (lambda p: manifest_path(p).write_text('{"a": NaN}'), "NaN is not JSON"),
    (lambda p: manifest_path(p).write_text('{"a": 1, "a": 2}'), "the key .a. is given twice"),
    (lambda p: manifest_path(p).write_text("[]"), "expected an object"),
    (lambda p: manifest_path(p).write_text(" " * (17 << 20)), "more than 16777216 bytes"),
    (lambda p: os.truncate(manifest_path(p), 1 << 40), "more than 16777216 bytes"),
    (lambda p: edit(p, format=9), "format version 9 is newer than 8"),
    (lambda p: edit(p, format=3), "format version 3 is not supported any more, expected 4 to 8"),
    (lambda p: edit(p, format=nested()), "expected a version of its format, found "),
    (lambda p: edit(p, abi=7), "abi version 7 is newer than 3"),
    (lambda p: edit(p, abi=10**4000), "abi version 1000.* is newer than 3"),
    (lambda p: edit(p, abi=2), "abi version 2 is not supported any more, expected 3"),
    (lambda p: edit(p, abi="1"), "expected a version of its abi, found '1'"),
    (lambda p: edit(p, abi=True), "expected a version of its abi, found True"),
    (lambda p: edit(p, abi=0), "expected a version of its abi, found 0"),
    (lambda p: edit(p, size="1"), "size: expected an integer"),
    (lambda p: edit(p, size=-1), "size: expected a number from 0 to 268435456, found -1"),
    (lambda p: edit(p, size=2**63), "size: expected a number from 0 to 268435456, found 9223"),
    (lambda p: edit(p, features=["sse9"]), "unknown features .'sse9'."),
    (lambda p: edit(p, features=[nested()]), "features.0.: expected a text"),
    (for_an_unknown_kind, "is for targets of kind .abacus., expected one of cpu"),
    (for_an_unknown_processor, "target: unknown processor -mcpu=z80-99"),
    (lambda p: edit(p, target="cpu -mcpu=x86-64 -threads=2"), "does not carry the description"),
    (lambda p: edit(p, features=["avx2"]), "does not carry the description"),
    (lambda p: edit(p, signature=None), "signature: expected an object"),
    (lambda p: edit(p, origin={"kind": "x", "detail": ""}), "origin.kind: expected one of"),
    (lambda p: edit(p, origin=nested()), "origin: expected an object"),
    (lambda p: edit(p, toolchain={"llvm": nested()}), "toolchain..llvm..: expected a text"),
    (lambda p: edit(p, signature=sign()), "does not carry the description"),
    (lambda p: edit(p, signature=sign(argument(), workspace_bytes=64)), "does not carry the desc"),
    (
        lambda p: edit(p, signature=sign(argument(), workspace_bytes=63)),
        "expected a multiple of 64",
    ),
    (
        lambda p: edit(p, signature=sign(argument(), workspace_bytes=None)),
        "workspace_bytes: expect",
    ),
    (lambda p: edit(p, signature=sign(argument(**TENSOR))), "does not carry the description"),
    (lambda p: edit(p, signature=sign(argument(dtype="int64"))), "does not carry the description"),
    (lambda p: edit(p, signature=sign(argument(), name="logb")), "does not carry the description"),
    (lambda p: edit(p, signature=sign(*[argument()] * 1200)), "1200 arguments"),
    (lambda p: edit(p, signature=sign(argument(**TENSOR, shape=[2**63]))), "x is too large"),
    (lambda p: edit(p, signature=sign(argument(**TENSOR, shape=[2**40] * 9))), "x is too large"),
    (lambda p: edit(p, signature=sign(argument(name=nested()))), "name: expected a text"),
    (lambda p: write(p, target=CpuTarget.parse("cpu -mcpu=neoverse-v1")), "needs neon"),
    (
        lambda p: write(p, signature=Signature("no_such", SIGNATURE.arguments)),
        "no symbol no_such",
    ),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_what_does_not_fit_is_refused(
    library: Path, damage: Callable[[Path], object], message: str
) -> None:
    load(library)
    damage(library)
    with pytest.raises(ArtifactError, match=message) as caught:
        load(library)
    assert len(str(caught.value)) < 5000


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All values of JSON data, those in others too, and where they are."""
    if path:
        yield path, value
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, item in value.items() if isinstance(value, dict) else ():
        yield from leaves(item, (*path, key))


def other_values(value: Any) -> list[Any]:
    match value:
        case None:
            return [0, ""]
        case bool():
            return [not value, None, int(value)]
        case int() | float():
            return [value + 1, -value - 1, str(value), None]
        case str():
            return [value + "x", value[:-1], None] if value else ["x", None]
        case list():
            return [[*value, *(value[:1] or [1])], value[:-1] if value else None]
        case _:
            return [{**value, "more": 1}, {} if value else None]


CONSTANT = Argument("w", "int8", (2, 3), constant=True)
FIELDS = Signature(
    "ilogb",
    (
        Argument("t", "float32", (4, 3), (8, 1)),
        Argument("i", "int32", (5,), value_range=(0, 4)),
        replace(CONSTANT, shape=(6,), packing=Packing("logb", CONSTANT, "BA")),
        Argument("out", "float32", (5,), role="out"),
    ),
    workspace_bytes=192,
)


def test_no_field_of_a_manifest_can_change(library: Path) -> None:
    write(library, signature=FIELDS)
    load(library)
    text = manifest_path(library).read_text()
    tried = 0
    for path, value in leaves(json.loads(text)):
        for other in [*other_values(value), ...]:
            data = place = json.loads(text)
            for key in path[:-1]:
                place = place[key]
            if other is ...:
                del place[path[-1]]
            else:
                place[path[-1]] = other
            manifest_path(library).write_text(json.dumps(data))
            with pytest.raises(ArtifactError, match="manifest"):
                load(library)
            tried += 1
    assert tried > 200
    manifest_path(library).write_text(json.dumps({**json.loads(text), "more": 1}))
    with pytest.raises(ArtifactError):
        load(library)
    manifest_path(library).write_text(json.dumps(json.loads(text)))  # the same in other lines
    load(library)


def test_what_a_call_depends_on_is_in_the_library_too(library: Path) -> None:
    """A manifest that was written anew, with a digest of its own, is compared with the code."""
    write(library, signature=FIELDS)
    text = manifest_path(library).read_text()
    tried = 0
    for part in ("abi", "signature", "target", "features", "size", "sha256"):
        changed = next(place for place in places(json.loads(text)) if part in place)[part]
        for path, value in [((), changed), *leaves(changed)]:
            for other in other_values(value):
                data = {"all": deepcopy(changed)}
                place: Any = data
                *above, last = ("all", *path)
                for key in above:
                    place = place[key]
                if isinstance(other, dict) and "more" in other:
                    continue  # a key that is not known says nothing
                place[last] = other
                manifest_path(library).write_text(text)
                edit(library, **{part: data["all"]})
                with pytest.raises(ArtifactError):
                    load(library)
                tried += 1
    assert tried > 150


def test_no_bit_of_a_manifest_can_change(library: Path) -> None:
    path = manifest_path(library)
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ArtifactError):
            parse_manifest(bytes(changed), path)
    for bit in range(0, 8 * len(content), 97):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(ArtifactError):
            load(library)


def test_no_bit_of_a_library_can_change(library: Path) -> None:
    code = library.read_bytes()
    for bit in np.random.default_rng(0).integers(8 * len(code), size=50).tolist():
        changed = bytearray(code)
        changed[bit // 8] ^= 1 << bit % 8
        library.write_bytes(changed)
        with pytest.raises(ArtifactError):
            load(library)


def test_a_library_without_a_description_gets_no_manifest(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    shutil.copy(math_library(), path)
    with pytest.raises(ArtifactError):
        describe(path)
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.so"]


def test_the_description_of_another_kernel_is_shown(library: Path) -> None:
    other = Signature("ilogb", (Argument("y", "float64", kind="scalar"),))
    with pytest.raises(ArtifactError):
        describe(library, other)
    assert read_manifest(library).program.signature == SIGNATURE


@pytest.mark.parametrize("field", [{"loss": float("nan")}, {"record_id": b"x"}])
def test_what_is_no_json_is_not_written(library: Path, field: dict[str, Any]) -> None:
    origin = Origin("default", **field)
    with pytest.raises(ArtifactError):
        write(library, origin=origin)


def test_a_manifest_that_is_too_large_is_not_written(library: Path) -> None:
    with pytest.raises(ArtifactError):
        write(library, toolchain={"llvm": "2" * (16 << 20)})
    assert read_manifest(library).toolchain == {"llvm": "22.1.0"}


# Files that are none


@pytest.fixture
def soon() -> Iterator[None]:
    """Fail instead of waiting for ever."""

    def give_up(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make_socket(path: Path) -> None:
    place = os.getcwd()
    os.chdir(path.parent)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(place)


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is a pipe, expected a regular file"),
    "folder": (lambda p: p.mkdir(), "is a folder[,;] expected"),
    "device": (lambda p: p.symlink_to("/dev/zero"), "is a device, expected a regular file"),
    "terminal": (lambda p: p.symlink_to("/dev/null"), "is a device, expected a regular file"),
    "socket": (make_socket, "cannot read .*: No such device or address"),
    "loop": (lambda p: p.symlink_to(p.name), "cannot read .*: Too many levels of symbolic links"),
    "link to a pipe": (link_to_pipe, "is a pipe, expected a regular file"),
}


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("part", ["library", "manifest"])
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_regular_file_is_refused(library: Path, part: str, kind: str) -> None:
    make, message = ODD[kind]
    path = library if part == "library" else manifest_path(library)
    path.unlink()
    make(path)
    with pytest.raises(ArtifactError, match=message):
        load(library)


@pytest.mark.usefixtures("soon")
def test_a_file_that_has_nothing_to_read_yet_is_empty() -> None:
    """A pipe in the place of /proc/kmsg, which is a regular file and is read like one."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(reading, "rb") as file, open(writing, "wb"):
        assert read_some(file, 10) == b""


@pytest.mark.usefixtures("soon")
def test_a_large_file_is_not_read(library: Path) -> None:
    """Of a file with holes, that has 8 TB and takes no place."""
    os.truncate(library, 1 << 43)
    with refused(ArtifactError, "8796093022208"):
        load(library)


def test_a_link_to_a_library_is_followed(library: Path) -> None:
    real = library.with_name("real.so")
    library.rename(real)
    library.symlink_to(real)
    load(library)(1.5)


@pytest.mark.parametrize("name", ["a\0b.so", "a" * 300 + ".so", "kernel.so/a.so"])
def test_paths_that_no_file_has_are_artifact_errors(library: Path, name: str) -> None:
    with pytest.raises(ArtifactError):
        load(library.with_name("x").parent / name)


def test_the_root_folder_is_no_library() -> None:
    with pytest.raises(ArtifactError):
        load("/")


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    path.write_text("int main() {}")
    write(path)
    with pytest.raises(ArtifactError):
        load(path)


def flags_of(mcpu: str) -> frozenset[str]:
    """The flags that /proc/cpuinfo lists on such a processor."""
    return frozenset(FEATURES[name].flag for name in CPUS[mcpu].features)


def test_the_processor_must_have_the_features(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HOST, raising=False)
    write(library, target=CpuTarget.parse("cpu -mcpu=haswell"))
    manifest = read_manifest(library)
    flags = flags_of("haswell")
    check_machine(manifest, flags)
    with pytest.raises(ArtifactError):
        check_machine(manifest, flags - {"fma", "avx2"})


def test_tile_registers_that_the_system_withholds_are_missed(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HOST, raising=False)
    write(library, target=CpuTarget.parse("cpu -mcpu=sapphirerapids"))
    manifest = read_manifest(library)
    flags = flags_of("sapphirerapids")
    for granted in (True, False):
        monkeypatch.setattr(cpu_runtime, "request_tiles", lambda granted=granted: granted)
        if granted:
            check_machine(manifest, flags)
        else:
            for told in (flags, None):
                with pytest.raises(ArtifactError):
                    check_machine(manifest, told)
            write(library, target=CpuTarget.parse("cpu -mcpu=sapphirerapids -mattr=-amx-tile"))
            check_machine(read_manifest(library), flags)


def test_what_could_not_be_read_back_is_not_written(library: Path) -> None:
    with pytest.raises(ArtifactError):
        write(library, signature=Signature("max value", ()))
    assert read_manifest(library).program.signature == SIGNATURE


def test_unknown_flags_are_announced(library: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_machine(read_manifest(library), None)
    assert "they are not checked" in caplog.text


def test_flags_are_those_of_the_first_processor(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert cpu_flags(path) == frozenset({"fpu", "avx2"})
    path.write_text("Features\t: fp asimd\n")
    assert cpu_flags(path) == frozenset({"fp", "asimd"})
    path.write_text("isa\t\t: rv64imafdcv_zba_zbb\n")
    assert cpu_flags(path) == frozenset([*"imafdcv", "zba", "zbb"])
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
#ifndef TILEWRIGHT_add_H
#define TILEWRIGHT_add_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Code for cpu -mcpu=x86-64-v2 -threads=1
 * by Tilewright VERSION, calling convention 3.
 * Link add.so -lm
 */

/*
 * a: in tensor float32[2][3], strides (8, 1) elements
 * s: in scalar int32
 * c: out tensor float32[2][3]
 *
 * A workspace is for one call at a time and overlaps with no argument. It has at least the
 * WORKSPACE_BYTES of its function, aligned to 64, and may be null for 0.
 * Its content need not be initialised and is garbage afterwards.
 *
 * Returns 0, or 1 if a needed workspace is null or not aligned.
 * Outputs must not overlap with any other argument. Calls are thread-safe.
 */
#define add_WORKSPACE_BYTES 0
int32_t add(const float *a_in, int32_t s_in, float *c_out, void *workspace);

/*
 * Returns 1 if this processor has the features that the code needs, and 0 if it has not, or
 * if the system does not say: Linux does, in /proc/cpuinfo. Call it before anything else.
 */
static inline int add_runs_here(void) {
    static const char *const needed[] = {
        " cx16 ", " popcnt ", " pni ", " ssse3 ", " sse4_1 ",
        " sse4_2 ",
    };
    const size_t count = sizeof needed / sizeof *needed;
    size_t found = 0, length;
    char line[8192];
    FILE *const file = fopen("/proc/cpuinfo", "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line - 1, file))
        if (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)) {
            length = strcspn(line, "\\n");
            line[length] = ' ';
            line[length + 1] = 0;
            while (found < count && strstr(line, needed[found]))
                found++;
            break;
        }
    fclose(file);
    return found == count;
}

#ifdef __cplusplus
}
#endif

#endif /* TILEWRIGHT_add_H */
""".replace("VERSION", __version__)
SOURCE = """\
#include "add.h"
const char add_description[] = DESCRIPTION;
int32_t add(const float *a, int32_t s, float *c, void *workspace) {
    (void)workspace;
    for (int i = 0; i < 2; i++) for (int j = 0; j < 3; j++) c[3 * i + j] = a[8 * i + j] + s;
    return 0;
}
"""


def test_the_header_declares_the_kernel() -> None:
    assert header_of(ADD, CpuTarget.named("x86-64-v2", threads=1)) == HEADER


def defines(signature: Signature) -> list[str]:
    return [line for line in header_of(signature).splitlines() if line.startswith("#define ")]


def test_names_that_differ_in_case_have_constants_of_their_own() -> None:
    def packed(name: str, workspace_bytes: int) -> Argument:
        operand = Argument(name, "float32", (2, 3), constant=True)
        packing = Packing(f"k_pack_{name}", operand, "BA", workspace_bytes)
        return replace(operand, packing=packing)

    assert defines(Signature("k", (packed("W", 64), packed("w", 128)), 192)) == [
        "#define TILEWRIGHT_k_H",
        "#define k_WORKSPACE_BYTES 192",
        "#define k_pack_W_WORKSPACE_BYTES 64",
        "#define k_pack_w_WORKSPACE_BYTES 128",
    ]
    assert defines(Signature("K", (), 64))[0] == "#define TILEWRIGHT_K_H"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_kernel_in_c_is_loaded_and_runs(tmp_path: Path) -> None:
    (tmp_path / "add.c").write_text(SOURCE)
    (tmp_path / "add.h").write_text(HEADER)
    library = tmp_path / "add.so"
    content = description(ADD, GENERIC, GENERIC.features, {})
    text = content.removesuffix(b"\0").decode()
    define = f"-DDESCRIPTION={json.dumps(text)}"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wall", "-Werror", define, "-o", library, tmp_path / "add.c"],
        check=True,
    )
    describe(library, ADD)
    wide, c = np.arange(16, dtype="f4").reshape(2, 8), np.zeros((2, 3), "f4")
    load(library)(wide[:, :3], 10, c)
    np.testing.assert_array_equal(c, wide[:, :3] + 10)
