"""Libraries of several programs, kernels and models: built, loaded, verified, damaged."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.base.checked_json import sealed
from tilewright.codegen.detect import resolve
from tilewright.runtime import DeviceArray, loader
from tilewright.runtime.artifact import manifest_path, read_manifest
from tilewright.runtime.fixture import SteadyRandom
from tilewright.runtime.library import LoadedLibrary
from tilewright.runtime.weights_file import map_weights
from tilewright.tir.equality import structural_hash

from .autotune.emulated_gpu import emulated_gpu
from .commands import Run
from .graph.test_shipping import layers, x_of
from .measured import put_measured
from .refusals import refused
from .test_artifact_files import added, adds, contents

SERIAL = "cpu -threads=1"
ROOT = Path(__file__).resolve().parent.parent
DEFAULT: Any = {"allow": ("default",)}
pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang", "ld")), reason="no linker here"
)


def programs() -> dict[str, Any]:
    """A kernel that packs its operand, one that is scheduled, and two models of equal weights."""
    return {
        "weighted": ops.matmul_func(16, 48, 32, constant_b=True),
        "adds": adds(3),
        "few": layers(rows=2),
        "again": layers("another", rows=2),
        "other": layers(seed=1),
    }


def build(folder: Path) -> Path:
    return tw.build_library(programs(), folder / "ops.so", SERIAL, **DEFAULT).files[0]


def build_again(folder: Path) -> None:
    """A library for a processor whose rates are those of the table, wherever it is built."""
    again: dict[str, Any] = {"adds": adds(3), "few": layers(rows=2)}
    target = "cpu -mcpu=x86-64-v2 -threads=1"
    tw.build_library(again, folder / "ops.so", target, **DEFAULT)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def library(kept: Path, tmp_path: Path) -> Path:
    """The files of a library, to be damaged."""
    for file in kept.parent.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path / kept.name


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_REPLACING_SECONDS", 0)


def test_kernels_and_models_are_reached_by_name(kept: Path) -> None:
    names = [file.name for file in sorted(kept.parent.iterdir())]
    assert names == ["ops.h", "ops.so", "ops.so.json", "ops.so.weights"]
    found = tw.load(kept)
    assert isinstance(found, LoadedLibrary)
    assert [*found] == [*programs()]
    assert [type(found[name]) for name in found] == [tw.Module] * 2 + [tw.Model] * 3
    assert added(found["adds"]) == 3
    for name in ("few", "again", "other"):
        graph = programs()[name]
        for a, b in zip(found[name](x_of(graph)), graph.reference(x_of(graph)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    a, b = np.ones((16, 32), np.float32), np.arange(32 * 48, dtype=np.float32).reshape(32, 48)
    c = np.empty((16, 48), np.float32)
    weighted = found["weighted"]
    weighted(a, weighted.pack("B", b) if weighted.layouts else b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert "few" in found
    assert "nothing" not in found
    with refused(tw.ArgumentError, "fow"):
        found["fow"]


def test_one_program_in_a_list_is_the_program(tmp_path: Path) -> None:
    made = tw.build_library([adds(5)], tmp_path / "adds.so", SERIAL)
    assert added(tw.load(made.files[0])) == 5
    named = tw.build_library({"plus": adds(6)}, tmp_path / "plus.so", SERIAL)
    module = tw.load(named.files[0])
    assert (module.signature.name, added(module)) == ("plus", 6)


def test_equal_weights_are_stored_once(kept: Path) -> None:
    few, again, other = (p.weights for p in read_manifest(kept).programs[2:])
    assert few is not None
    assert other is not None
    assert few == again
    assert other.offset == few.size
    assert kept.with_name("ops.so.weights").stat().st_size == 2 * few.size


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], None),
        ([adds(1), adds(2)], "adds"),
        ({"one two": adds(1)}, None),
        ({"malloc": adds(1)}, "malloc"),
        ([adds(1), 3], None),
        ({"x": 3}, "x"),
    ],
)
def test_what_is_no_library(tmp_path: Path, given: Any, named: str | None) -> None:
    with refused(tw.BuildError, *([] if named is None else [named])):
        tw.build_library(given, tmp_path / "ops.so", SERIAL)
    assert not [*tmp_path.iterdir()]


def test_several_programs_for_a_device(tmp_path: Path) -> None:
    """Each has its image in the file of the code; the emulator runs what is loaded of it."""
    target = "cuda -arch=sm_90a"
    x = te.placeholder((40,), name="x")
    given = []
    for n in (1, 2):
        y = te.compute((40,), lambda i, n=n: x[i] + n, name="y")
        given.append(te.func([x, y], name=f"adds{n}"))
    with emulated_gpu():
        for func in given:
            tw.build(func, target)  # whose images the emulator knows then
        path = tw.build_library(given, tmp_path / "ops.cubin", target).files[0]
        found = tw.load(path)
        assert [*found] == ["adds1", "adds2"]
        for n in (1, 2):
            made = DeviceArray.of(np.zeros(40, np.float32))
            found[f"adds{n}"](DeviceArray.of(np.arange(40, dtype=np.float32)), made)
            np.testing.assert_array_equal(made.numpy(), np.arange(40) + n)
        assert tw.verify(path).passed
        found.warm_up()
        assert found.ready
        described = manifest_path(path)
        whole = json.loads(described.read_text())
        whole["programs"][1]["needs"]["image"]["size"] += 1 << 20
        described.write_text(json.dumps(sealed(whole)))
        with pytest.raises(tw.ArtifactError):
            tw.load(path)


def test_a_parallel_program_beside_a_serial_one(tmp_path: Path) -> None:
    x = te.placeholder((4096,), name="x")
    y = te.compute((4096,), lambda i: x[i] + 1, name="y")
    parallel = tw.Schedule(te.func([x, y], name="parallel"))
    parallel.parallel(parallel.get_loops(parallel.get_block("y"))[0])
    target = "cpu -threads=2"
    path = tw.build_library([adds(1), parallel], tmp_path / "ops.so", target).files[0]
    script = (
        "import sys, numpy as np, tilewright as tw; found = tw.load(sys.argv[1]); "
        "x, y = np.ones(4096, 'f4'), np.empty(4096, 'f4'); found['parallel'](x, y); print(y.max())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2.0\n"


CALLER = """
#include <stdio.h>
#include <stdlib.h>
#include "ops.h"
#include "ops.h"

int main(void) {
    int32_t x[4] = {1, 2, 3, 4}, y[4];
    float in[32], out[32], top[2];
    char *held = aligned_alloc(64, 65536), *memory = aligned_alloc(64, 65536);
    FILE *file = fopen("ops.so.weights", "rb");
    fseek(file, few_WEIGHTS_OFFSET, SEEK_SET);
    if (fread(held, 1, few_WEIGHTS_BYTES, file) != few_WEIGHTS_BYTES) return 1;
    for (int i = 0; i < 32; i++) in[i] = 0.0f;
    printf("%d ", adds(x, y, NULL));
    printf("%d %d ", y[3], few(in, out, top, (uint8_t *)held, memory));
    printf("%.6f\\n", top[0]);
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("kind", ["ops.so", "ops.a"])
def test_a_program_in_c_calls_kernels_and_models(kept: Path, library: Path, kind: str) -> None:
    folder = library.parent
    if kind == "ops.a":
        called = {name: programs()[name] for name in ("adds", "few")}
        tw.build_library(called, folder / kind, SERIAL, **DEFAULT, object_file=True)
        (folder / "ops.a.weights").replace(folder / "ops.so.weights")
    (folder / "main.c").write_text(CALLER)
    command = ["cc", "-Wall", "-Werror", "main.c", f"./{kind}", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=True)
    top = tw.load(kept)["few"](np.zeros((2, 16), np.float32))[1][0]
    assert done.stdout == f"0 7 0 {top:.6f}\n"


# The manifest


def schema() -> Any:
    return json.loads((ROOT / "docs" / "manifest.schema.json").read_text())


def test_the_schema_is_that_of_the_classes() -> None:
    render = runpy.run_path(str(ROOT / "scripts" / "manifest_schema.py"))["render"]
    text = (ROOT / "docs" / "manifest.schema.json").read_text()
    assert text == render(), "write it with .venv/bin/python scripts/manifest_schema.py"


def test_a_manifest_is_of_the_schema(kept: Path) -> None:
    import jsonschema

    validator = jsonschema.Draft202012Validator(schema())
    data = json.loads(manifest_path(kept).read_text())
    validator.validate(data)
    for program in data["programs"]:
        (*_, last) = program["provenance"]["schedules"].values()
        tw.Trace.from_json(last["trace"])
        assert program["fixture"]["outputs"]
        assert len(program["provenance"]["source"]["digest"]) == 64
    data["programs"][0]["weights"] = {"offset": 0, "size": -1}
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(data)


BUILDER = """
import sys
from pathlib import Path
from tests.test_libraries import build_again
build_again(Path(sys.argv[1]))
"""


def test_equal_builds_have_equal_bytes(tmp_path: Path) -> None:
    """In another folder, by another process, which chooses and compiles all anew."""
    here, made = tmp_path / "here", tmp_path / "a" / "b"
    here.mkdir()
    made.mkdir(parents=True)
    build_again(here)
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONHASHSEED"] = "7"
    command = [sys.executable, "-c", BUILDER, str(made)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert contents(made) == contents(here)


def test_a_schedule_under_another_name_keeps_its_steps(tmp_path: Path) -> None:
    schedule = tw.Schedule(ops.matmul_func(6, 10, 4))
    schedule.unroll(schedule.get_loops(schedule.get_block("C"))[2])
    tw.build_library({"product": schedule}, tmp_path / "ops.so", SERIAL)
    stored = read_manifest(tmp_path / "ops.so").programs[0].provenance
    assert stored.schedules["product"].trace == schedule.trace.to_json(notes=False)
    assert stored.source is not None
    assert stored.source.digest == structural_hash(schedule.original)


def test_a_database_in_another_folder_gives_equal_bytes(tmp_path: Path) -> None:
    """Records say when and where they were measured; no folder of this machine is named."""
    func, target = ops.matmul_func(6, 10, 4), resolve(SERIAL)
    schedule = tw.Schedule(func)
    schedule.unroll(schedule.get_loops(schedule.get_block("C"))[2])
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    with tw.TuningDatabase(here / "team.db") as database:
        put_measured(database, func, target, schedule.trace.to_json(), 1e-3, passed=True)
    shutil.copytree(here, there)
    made = []
    for folder in (here, there):
        path = folder / "ops.so"
        tw.build_library(
            {"matmul": func, "adds": adds(1)}, path, SERIAL, folder / "team.db", allow=("record",)
        )
        made.append({name: file for name, file in contents(folder).items() if "ops" in name})
    assert made[0] == made[1]
    assert str(tmp_path).encode() not in b"".join(made[0].values())
    stored = read_manifest(here / "ops.so").programs[0].provenance.schedules["matmul"]
    assert stored.origin.kind == "record"
    assert "team.db" in stored.origin.detail
    assert stored.measured is not None
    assert stored.measured.id == stored.origin.record_id
    assert stored.measured.low <= stored.measured.seconds <= stored.measured.high


# Verifying


def test_an_artifact_that_is_right_passes(kept: Path) -> None:
    found = tw.verify(kept)
    assert found.passed, found
    checked = [(check.what, check.of) for check in found.checks]
    each = [(what, name) for name in programs() for what in ("machine", "fixture")]
    assert checked == [("files", ""), ("header", ""), *each]
    assert {check.outcome for check in found.checks} == {"right"}
    assert [check.what for check in tw.verify(kept, run=False).checks] == ["files", "header"]


def edit(path: Path, change: Callable[[Any], object]) -> None:
    """Change the manifest, and its digest to that of what it says then."""
    place = manifest_path(path)
    data = json.loads(place.read_text())
    change(data)
    data.pop("digest")
    place.write_text(json.dumps(sealed(data)))


def test_a_program_that_computes_something_else_is_found(library: Path) -> None:
    def other(data: Any) -> None:
        """Of integers the digest alone counts, and of floats sums too."""
        for program in data["programs"]:
            program["fixture"]["outputs"][0]["sha256"] = "0" * 64
        data["programs"][3]["fixture"]["outputs"][0]["sums"][5] += 0.01

    edit(library, other)
    failed = tw.verify(library).failed
    assert [(c.what, c.of, c.outcome) for c in failed] == [
        ("fixture", "adds", "wrong"),
        ("fixture", "again", "wrong"),
    ]


@pytest.mark.parametrize("name", ["ops.so", "ops.so.json", "ops.so.weights", "ops.h"])
def test_a_file_that_was_changed_fails(library: Path, name: str) -> None:
    place = library.with_name(name)
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    found = tw.verify(library, run=False)
    assert [check.outcome for check in found.failed] == ["wrong"]


def test_a_header_larger_than_any_is_not_read(library: Path) -> None:
    edit(library, lambda data: data["header"].update(size=1 << 40))
    os.truncate(library.with_suffix(".h"), 1 << 40)
    (failed,) = tw.verify(library, run=False).failed
    assert (failed.what, failed.outcome) == ("header", "wrong")


def test_a_file_that_memory_is_too_small_for_is_wrong(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tilewright.runtime.verification.read_content", without_memory)
    (failed,) = tw.verify(library, run=False).failed
    assert (failed.what, failed.outcome) == ("files", "wrong")


def test_a_header_is_not_needed(library: Path) -> None:
    library.with_suffix(".h").unlink()
    found = tw.verify(library, run=False)
    assert found.passed
    assert found.checks[-1].outcome == "not checked"


def test_what_does_not_run_here_says_why(tmp_path: Path) -> None:
    target = "cpu -mcpu=sapphirerapids -mattr=+amx-fp16 -threads=1"
    path = tw.build_library(adds(1), tmp_path / "adds.so", target).files[0]
    (program,) = read_manifest(path).programs
    assert program.fixture is None
    assert program.no_fixture is not None
    assert "amx-fp16" in program.no_fixture
    found = tw.verify(path)
    assert [(check.what, check.outcome) for check in found.failed] == [
        ("machine", "does not run here")
    ]
    assert "amx-fp16" in found.failed[0].detail
    assert tw.verify(path, run=False).passed


def test_arguments_that_are_too_large_are_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.runtime.fixture.MAX_BYTES", 31)
    path = tw.build_library(adds(1), tmp_path / "adds.so", SERIAL).files[0]
    (program,) = read_manifest(path).programs
    assert program.fixture is None
    assert "32 bytes" in (program.no_fixture or "")
    assert tw.verify(path).passed


def test_an_artifact_of_an_older_version_is_verified() -> None:
    found = tw.verify(ROOT / "tests" / "runtime" / "kept" / "matmul.so")
    assert found.passed
    assert found.checks[-1].outcome == "not checked"


def test_what_is_no_artifact_is_an_error_or_fails(tmp_path: Path) -> None:
    with pytest.raises(tw.ArgumentError):
        tw.verify(adds(1))
    assert [check.outcome for check in tw.verify(tmp_path / "none.so").checks] == ["wrong"]


def test_the_numbers_of_fixtures_never_change() -> None:
    """Artifacts that are out there have results of them."""
    drawn = SteadyRandom([0, 1])
    assert drawn.integers(-3, 4, 6).tolist() == [0, 0, -3, -3, -2, 2]
    assert (drawn.random(3, np.float32) * (1 << 24)).tolist() == [12035655.0, 7719680.0, 12610718.0]


# From a shell

SOURCE = """
from tilewright import ops
from tilewright.graph import Builder, TensorType

def f(n: int = 4): return ops.transpose_func(n, n)

def g(): return ops.transpose_func(2, 2)

def model():
    b = Builder("model")
    x = b.input("x", TensorType("float32", (2, 4)))
    return b.graph({"y": b.add("exp", x)})
"""


def test_the_command_builds_inspects_and_verifies(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, library = tmp_path / "a.py", tmp_path / "ops.so"
    file.write_text(SOURCE)
    target = ["--target", SERIAL, "--allow", "default"]
    sources = [f"{file}:f", f"second={file}:g", f"{file}:model"]
    alone = run("build", f"plus={file}:g", "-o", library, *target, "--json").json
    assert [*alone["programs"]] == ["plus"]
    monkeypatch.chdir(tmp_path)
    Path("a=b.py").write_text(SOURCE)  # the name of a file that is there
    odd = run("build", "a=b.py:g", "-o", library, *target, "--json").json
    assert [*odd["programs"]] == ["transpose"]
    done = run("build", *sources, "-p", "n=3", "-o", library, *target, "--json").json
    assert [*done["programs"]] == ["transpose", "second", "model"]
    told = run("inspect", library, "--json").json
    assert told == json.loads(manifest_path(library).read_text())
    shapes = [p["signature"]["arguments"][0]["shape"] for p in told["programs"]]
    assert shapes == [[3, 3], [2, 2], [2, 4]]
    text = run("inspect", library).out
    assert all(word in text for word in ("second", "model", "schedule", "float32[3, 3]"))
    (alone,) = run("inspect", f"{library}:second", "--json").json["programs"]
    assert alone == told["programs"][1]
    assert run("run", f"{library}:model", "--json").json["outputs"]["y"]["type"] == "float32[2, 4]"
    assert run("evidence", f"{library}:model", f"{library}:model").code == 0
    for words in (f"run {library}", f"run {library}:other", f"evidence {library} {library}"):
        assert run(*words.split()).code
    checked = run("verify", library)
    assert (checked.code, checked.out.count("fixture")) == (0, 3)
    assert run("verify", library, "--json").json["passed"]
    library.write_bytes(library.read_bytes() + b"!")
    assert run("verify", library, "--form").code == 1
    for wrong, named in (
        ([f"{file}:f", f"{file}:g"], "'transpose'"),
        ([*sources, "-p", "m=3"], "m=3"),
        ([*sources, "--shape", "N=1"], "N=1"),
    ):
        refused = run("build", *wrong, "-o", library, *target)
        assert (refused.code, named in refused.err) == (2, True)


# Damage


@pytest.mark.parametrize("name", ["ops.so.json", "ops.so", "ops.so.weights"])
def test_no_byte_can_change(library: Path, name: str) -> None:
    """A share of the bytes: a digest covers all of them alike, and so do the first ones."""
    place = library.with_name(name)
    content = place.read_bytes()
    places = sorted({*range(0, 64, 7), *range(0, len(content), max(1, len(content) // 60))})
    for number, at in enumerate(places):
        changed = bytearray(content)
        changed[at] ^= 1 << number % 8
        place.write_bytes(changed)
        with pytest.raises(tw.ArtifactError):
            tw.load(library)
    place.write_bytes(content)
    assert len(tw.load(library)) == 5


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": [value]}
    return value


HOSTILE: dict[str, Callable[[Any], object]] = {
    "weights beyond the file": lambda d: d["programs"][4]["weights"].update(offset=1 << 40),
    "weights from inside another": lambda d: d["programs"][4]["weights"].update(offset=1),
    "more weights than arguments": lambda d: d["programs"][2]["weights"].update(size=64),
    "negative weights": lambda d: d["programs"][2]["weights"].update(size=-64),
    "a file that is larger": lambda d: d["weights"].update(size=d["weights"]["size"] * 2),
    "one piece, many digests": lambda d: d["weights"].update(piece_bytes=1),
    "no pieces": lambda d: d["weights"].update(piece_bytes=0),
    "no weights": lambda d: d.update(weights=None),
    "code of another size": lambda d: d["code"].update(size=1 << 62),
    "no programs": lambda d: d.update(programs=[]),
    "a program twice": lambda d: d["programs"].append(d["programs"][1]),
    "a name that escapes": lambda d: d["programs"][1]["signature"].update(name="../../adds"),
    "a symbol of the system": lambda d: d["programs"][1]["signature"].update(name="_init"),
    "another program's name": lambda d: d["programs"][1]["signature"].update(name="few"),
    "another alignment": lambda d: d.update(alignment=16),
    "a field more": lambda d: d.update(path="/etc/passwd"),
    "deep nesting": lambda d: d["programs"][2]["provenance"].update(evidence=nested(400)),
    "functions that are not there": lambda d: d["programs"][1]["needs"].update(profiled=3),
    "a parts' file": lambda d: d["programs"][2].update(partition={"plan": {}, "parts": []}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_manifests_are_refused(library: Path, name: str) -> None:
    """With a digest that is right: whoever writes them knows how."""
    edit(library, HOSTILE[name])
    with pytest.raises(tw.TilewrightError):
        found = tw.load(library)
        found["few"].evidence  # noqa: B018 - what nobody asks for is not read
    assert tw.verify(library, run=False).passed is (name == "deep nesting")


@pytest.mark.parametrize("name", ["ops.so", "ops.so.json", "ops.so.weights"])
def test_links_are_followed_to_what_is_checked(library: Path, tmp_path: Path, name: str) -> None:
    """One to the file is as good as the file; one to anything else is refused."""
    place, moved = library.with_name(name), tmp_path / "moved"
    place.rename(moved)
    place.symlink_to(moved)
    assert added(tw.load(library)["adds"]) == 3
    for other in ("/dev/zero", str(tmp_path), "/proc/self/mem", "/etc/passwd", name):
        place.unlink()
        place.symlink_to(other)
        with pytest.raises(tw.ArtifactError):
            tw.load(library)


def test_a_link_that_is_swapped_between_check_and_load(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is mapped is the file that was opened, not what its path leads to later."""
    weights, mapped = library.with_name("ops.so.weights"), map_weights
    moved, other = tmp_path / "moved", tmp_path / "other"
    weights.rename(moved)
    weights.symlink_to(moved)
    other.write_bytes(bytes(moved.stat().st_size))
    graph = layers(rows=2)
    expected = tw.load(library)["few"](x_of(graph))

    def swapping(path: Path, held: Any) -> Any:
        found = mapped(path, held)
        weights.unlink()
        weights.symlink_to(other)
        return found

    monkeypatch.setattr(loader, "map_weights", swapping)
    found = tw.load(library)["few"](x_of(graph))
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]
