"""Models as files: what is written, loaded, refused, and called from C."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base import files
from tilewright.base.checked_json import sealed
from tilewright.codegen.cpu.archive import members
from tilewright.codegen.cpu.elf import read_object
from tilewright.codegen.cpu.generator import CALLED
from tilewright.codegen.disk_cache import LOCATION
from tilewright.graph import Builder, Graph, TensorType

SERIAL = "cpu -threads=1"
pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang", "ld")), reason="no linker here"
)
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


def layers(name: str = "layers", seed: int = 0, rows: int = 4) -> Graph:
    """Two products; weights are from the seed."""
    rng = np.random.default_rng(seed)
    b = Builder(name)
    x = b.input("x", TensorType("float32", (rows, 16)))
    for _ in range(2):
        w = b.constant(rng.standard_normal((16, 16)) / 4, "float32")
        x = b.add("sigmoid", b.add("matmul", x, w))
    return b.graph({"y": x, "top": b.add("max", x, axes=(1,), keepdims=False)})


def x_of(graph: Graph) -> Any:
    return np.random.default_rng(1).standard_normal(graph.inputs["x"].shape).astype(np.float32)


def written(graph: Graph, path: Path, target: str = SERIAL, **options: Any) -> Path:
    return tw.build_library(graph, path, target, allow=("default",), **options).files[0]


def weights_of(path: Path) -> Path:
    return path.with_name(path.name + ".weights")


def manifest_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def is_right(model: tw.Model, graph: Graph) -> bool:
    x = x_of(graph)
    found, wanted = model(x), graph.reference(x)
    return all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found, wanted, strict=True))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def compile_once(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled here is the same in most tests."""
    monkeypatch.setenv(LOCATION, cache)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(layers(), tmp_path / "layers.so")


def test_a_model_is_loaded_as_it_was_built(tmp_path: Path) -> None:
    graph = layers()
    made = tw.build_library(graph, tmp_path / "layers.so", SERIAL, allow=("default",))
    names = [path.name for path in made.files]
    assert names == ["layers.so", "layers.so.json", "layers.h", "layers.so.weights"]
    with pytest.raises(tw.ArgumentError):
        tw.load(made.files[0], trust_indices=True)
    model, built = tw.load(made.files[0]), tw.build(graph, SERIAL, allow=("default",))
    assert is_right(model, graph)
    assert repr(model) == repr(built)
    assert model.kernels == built.kernels
    steady = [  # what is predicted by the rates of a machine is not in files
        replace(k, least_seconds=None, bound=None, seconds=None) for k in built.evidence.kernels
    ]
    assert model.evidence == replace(built.evidence, seconds={}, kernels=tuple(steady))
    assert [*model.kernels] == [func.name for func in graph.kernels()]
    assert made.origin.kind == model.module.origin.kind == "default"
    assert model.weights is not None
    assert not model.weights.flags.writeable
    np.testing.assert_array_equal(model.weights, built.weights)
    with ThreadPoolExecutor(8) as pool:
        x = x_of(graph)
        assert {y.tobytes() for y, _ in pool.map(lambda _: model(x), range(64))} == {
            built(x)[0].tobytes()
        }


NO_MEMORY = """
import sys
import tilewright as tw
from tilewright.base.process import limit_memory, unlimit_memory
tw.load  # imported before
for size in (0, 1 << 20, 64 << 20):
    limit_memory(size)
    try:
        print(tw.load(sys.argv[1]).module.signature.name)
    except tw.OutOfMemoryError as error:
        print(type(error).__name__)
    unlimit_memory()
"""


def test_a_load_may_find_no_memory(tmp_path: Path) -> None:
    b = Builder("table")
    rows = b.constant(np.ones((2, 1 << 19), np.float32), "float32")  # 4 MB
    graph = b.graph({"y": b.add("take", rows, b.input("i", TensorType("int64", (1,))), axis=0)})
    path = written(graph, tmp_path / "table.so")
    tw.load(path)
    command = [sys.executable, "-c", NO_MEMORY, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["OutOfMemoryError", "OutOfMemoryError", "table"]


def test_a_model_for_several_threads(tmp_path: Path) -> None:
    graph = layers(rows=512)
    path = written(graph, tmp_path / "layers.so", "cpu -threads=2")
    assert is_right(tw.load(path), graph)


def test_a_model_without_constants_has_no_file_of_them(tmp_path: Path) -> None:
    b = Builder("plain")
    graph = b.graph({"y": b.add("relu", b.input("weights", TensorType("float32", (3,))))})
    path = written(graph, tmp_path / "plain.so")
    assert not weights_of(path).exists()
    model = tw.load(path)
    assert model.weights is None
    assert model(np.array([-1, 0, 2], np.float32)).tolist() == [0, 0, 2]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"!")


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    shutil.copy(weights_of(written(layers(seed=1), path.with_name("other.so"))), path)


def turn_into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def turn_into_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage", [cut, lengthen, change, swap, Path.unlink, turn_into_folder, turn_into_pipe]
)
def test_weights_that_are_not_those_of_the_model(
    path: Path, damage: Callable[[Path], object]
) -> None:
    damage(weights_of(path))
    with pytest.raises(tw.ArtifactError) as refused:
        tw.load(path)
    assert weights_of(path) in refused.value.arguments


CHANGE_LINKS = """
import os, random, sys
while True:
    for name in sys.argv[1:]:
        os.symlink(f"../{random.choice('01')}/{name}", "links/new")
        os.replace("links/new", f"links/{name}")
"""


def test_links_that_change_while_they_are_followed(tmp_path: Path) -> None:
    """What runs is a library with its own manifest and its own weights."""
    graphs = [layers(seed=seed) for seed in range(2)]
    (tmp_path / "0").mkdir()
    (tmp_path / "1").mkdir()
    library, _ = [written(g, tmp_path / str(n) / "layers.so") for n, g in enumerate(graphs)]
    names = [path.name for path in (library, manifest_of(library), weights_of(library))]
    (tmp_path / "links").mkdir()
    for name in names:
        (tmp_path / "links" / name).symlink_to(f"../0/{name}")
    loaded = refused = 0
    with subprocess.Popen([sys.executable, "-c", CHANGE_LINKS, *names], cwd=tmp_path) as changing:
        try:
            while loaded + refused < 80 or not loaded or not refused:
                assert changing.poll() is None
                try:
                    model = tw.load(tmp_path / "links" / "layers.so")
                except tw.ArtifactError:
                    refused += 1
                    continue
                loaded += 1
                assert any(is_right(model, graph) for graph in graphs)
        finally:
            changing.kill()


@pytest.mark.parametrize("steps", [0, 1, 4096, None, -1, "2"])
def test_a_manifest_that_says_other_steps_of_a_profile_is_refused(path: Path, steps: Any) -> None:
    """The function of the profile would write more than there is memory for."""
    data = json.loads(manifest_of(path).read_text())
    needs = data["programs"][0]["needs"]
    assert needs.pop("profiled") == 3
    needs.update({} if steps is None else {"profiled": steps})
    manifest_of(path).write_text(json.dumps(sealed(data)))
    with pytest.raises(tw.ArtifactError):
        tw.load(path)


@pytest.mark.parametrize("size", [0, 1, 4096, 2**40])
def test_a_manifest_that_says_another_size_is_refused(path: Path, size: int) -> None:
    data = json.loads(manifest_of(path).read_text())
    assert data["weights"]["size"] != size
    data["weights"]["size"] = size
    manifest_of(path).write_text(json.dumps(sealed(data)))
    with pytest.raises(tw.ArtifactError):
        tw.load(path)


def test_a_model_that_is_replaced_stays_what_it_was(path: Path) -> None:
    first, other = tw.load(path), layers(seed=1)
    written(other, path)
    assert is_right(first, layers())
    assert is_right(tw.load(path), other)


def test_a_full_disk_leaves_the_old_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    real = files._write

    def write(where: Path, file: files.File) -> None:
        if file.path == weights_of(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(file.path))
        real(where, file)

    monkeypatch.setattr(files, "_write", write)
    with pytest.raises(tw.BuildError) as refused:
        written(layers(seed=1), path)
    assert str(weights_of(path)) in map(str, refused.value.arguments)
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before


def test_an_interrupt_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for place in ("replace", "_write"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path if place == "replace" else files, place, interrupt)
            written(layers(), tmp_path / "layers.so")
        assert not list(tmp_path.iterdir())


class Exported:
    """An array as an object of another library."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


def test_a_loaded_model_takes_what_a_built_one_takes(path: Path) -> None:
    graph = layers()
    x = x_of(graph)
    wanted = tw.load(path)(x)
    for model in (tw.load(path), tw.build(graph, SERIAL)):
        forms = (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], Exported(x))
        for found in (*map(model, forms), model(x=x)):
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)
        out = [np.empty_like(a) for a in wanted]
        model.into(Exported(x), out=out)
        np.testing.assert_allclose(out[0], wanted[0], rtol=1e-6)
        wrong: Any
        for wrong in (x[:2], x.astype(np.float64), np.ma.masked_array(x), 1.0, None, []):
            with pytest.raises(tw.ArgumentError) as caught:
                model(wrong)
            assert caught.value.__context__ is None
        with pytest.raises(tw.ArgumentError):
            model.into(x, out=[out[0][:2], *out[1:]])


LOADED = """
import json, sys
import numpy as np
import tilewright as tw
model = tw.load(sys.argv[1])
np.save(sys.argv[3], model(np.load(sys.argv[2]))[0])
assert len(model.profile(np.load(sys.argv[2])).steps) == 3
named = (name.split(".") for name in sys.modules if name.startswith("tilewright."))
parts = {of for _, of, *inside in named if inside}
foreign = {"llvmlite", "sqlalchemy", "xgboost", "ml_dtypes", "onnx", "onnx_ir"} & {*sys.modules}
print(json.dumps([sorted(parts), sorted(foreign)]))
"""


def test_a_model_needs_the_runtime_and_numpy_alone(path: Path) -> None:
    x, y = path.with_name("x.npy"), path.with_name("y.npy")
    np.save(x, x_of(layers()))
    command = [sys.executable, "-c", LOADED, *map(str, (path, x, y))]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == [["base", "runtime", "target"], []]
    np.testing.assert_allclose(np.load(y), layers().reference(np.load(x))[0], rtol=1e-5)


WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None
import tilewright as tw
try:
    tw.load(sys.argv[1])
except tw.ArtifactError as error:
    print(error.hint)
"""


def test_a_model_of_dtypes_that_numpy_lacks_says_what_it_needs(tmp_path: Path) -> None:
    b = Builder("narrow")
    x = b.input("x", TensorType("bfloat16", (4,)))
    path = written(b.graph({"y": b.add("multiply", x, x)}), tmp_path / "narrow.so")
    command = [sys.executable, "-c", WITHOUT, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "pip install ml_dtypes"
    assert tw.load(path).inputs["x"].dtype == "bfloat16"


PROGRAM = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "{0}.h"
#include "{1}.h"

static const uint8_t *mapped(const char *name, size_t size) {{
    int file = open(name, O_RDONLY);
    void *found = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (file < 0 || found == MAP_FAILED) exit(3);
    return found;
}}

int main(void) {{
    static float x[64], y[64], top[4];
    const uint8_t *w0 = mapped("{2}.weights", {0}_WEIGHTS_BYTES);
    const uint8_t *w1 = mapped("{3}.weights", {1}_WEIGHTS_BYTES);
    char *memory = aligned_alloc(64, {0}_WORKSPACE_BYTES + {1}_WORKSPACE_BYTES + 64);
    for (int i = 0; i < 64; i++) x[i] = i / 64.0f;
    printf("%d ", {0}(x, y, top, w0, NULL));
    printf("%d ", {0}(x, y, top, w0, memory));
    printf("%.5f ", top[3]);
    printf("%d ", {1}(x, y, top, w1, memory));
    printf("%.5f", top[3]);
    return 0;
}}
"""


@needs_compiler
@pytest.mark.parametrize(("ending", "threads"), [("so", 1), ("a", 2)])
def test_a_program_in_c_has_two_models(tmp_path: Path, ending: str, threads: int) -> None:
    graphs = [layers("first"), layers("second", seed=1)]
    names = [f"{graph.name}.{ending}" for graph in graphs]
    for graph, name in zip(graphs, names, strict=True):
        written(graph, tmp_path / name, f"cpu -threads={threads}", object_file=ending == "a")
    (tmp_path / "main.c").write_text(PROGRAM.format("first", "second", *names))
    linked = [f"./{name}" for name in names] + ["-lgomp"] * (threads > 1)
    command = ["cc", "-Wall", "-Werror", "main.c", *linked, "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    x = (np.arange(64, dtype=np.float32) / 64).reshape(4, 16)
    tops = [graph.reference(x)[1][3] for graph in graphs]
    found = run.stdout.split()
    assert [found[0], found[1], found[3]] == ["1", "0", "0"]
    assert [float(found[2]), float(found[4])] == pytest.approx(tops, abs=2e-5)


def test_models_share_no_symbols(tmp_path: Path) -> None:
    """Their kernels have equal names, and may have other schedules."""
    defined = []
    for name in ("first", "second"):
        path = written(layers(name), tmp_path / f"{name}.a", object_file=True)
        objects = [read_object(code) for code in members(path.read_bytes())]
        defined.append(frozenset[str]().union(*(found.defined for found in objects)))
        called = frozenset[str]().union(*(found.undefined for found in objects)) - CALLED
        assert len(objects) == 3
        assert called <= defined[-1]
    assert not defined[0] & defined[1]


@needs_compiler
@pytest.mark.parametrize("name", ["main", "exp", "int", "2nd", "", "é", "_init"])
def test_graphs_of_any_name_are_functions_in_c(tmp_path: Path, name: str) -> None:
    graph = layers(name)
    path = written(graph, tmp_path / "layers.so")
    assert is_right(tw.load(path), graph)
    command = ["cc", "-xc", "-Wall", "-Werror", "-fsyntax-only", "layers.h"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_a_header_tells_weights_from_an_input_of_that_name(tmp_path: Path) -> None:
    b = Builder("named")
    x = b.input("weights", TensorType("float32", (2, 2)))
    graph = b.graph({"y": b.add("matmul", x, b.constant(np.ones((2, 2)), "float32"))})
    path = written(graph, tmp_path / "named.so")
    declared = path.with_suffix(".h").read_text().partition("int32_t named(")[2].split(";")[0]
    assert declared.split(", ")[0] == "const float *weights_in"
    assert declared.count(" *weights_in") == 1
    assert tw.load(path)(weights=np.ones((2, 2), np.float32)).tolist() == [[2, 2], [2, 2]]


def test_what_a_model_says_is_no_code_of_the_header(tmp_path: Path) -> None:
    """C joins lines that end with a backslash before it looks where comments end."""
    b = Builder("named")
    names = ("x*\\\n/ int taken = 1; /*", "y*/ int taken = 1; /*", "self")
    inputs = [b.input(name, TensorType("float32", (2,))) for name in names]
    asserted = b.add(
        "asserted", inputs[-1], b.input("n", TensorType("int64", ())), by=names[0], broken=names[0]
    )
    graph = b.graph({"y": b.add("negative", asserted)})
    path = written(graph, tmp_path / "named.so")
    command = ["cc", "-xc", "-E", "-P", "named.h"]
    code = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "int32_t named(" in code
    assert "taken" not in code
    zeros = np.zeros(2, np.float32)
    given = {**dict.fromkeys(names, zeros), "n": np.array(0)}
    assert tw.load(path)(**given).tolist() == [0, 0]


def test_kernels_without_records_are_listed(path: Path) -> None:
    graph = layers()
    with tw.TuningDatabase(path.with_name("tuning.db")) as database:
        before = path.read_bytes()
        with pytest.raises(tw.NotTunedError) as refused:
            tw.build_library(graph, path, SERIAL, database, allow=("record",))
        assert refused.value.data["kernels"] == [func.name for func in graph.kernels()]
        assert str(refused.value.data["explanation"]) in str(refused.value)
        told = tw.explain(graph, SERIAL, database)
    assert path.read_bytes() == before
    assert {k.name: k.runs for k in told.kernels} == {f.name: n for f, n in graph.kernels().items()}
    assert {k.origin.kind for k in told.kernels} == {"model"}
    assert all(k.name in str(told) for k in told.kernels)


def test_records_for_other_threads_are_named(tmp_path: Path) -> None:
    b = Builder("one")
    graph = b.graph({"y": b.add("exp", b.input("x", TensorType("float32", (8,))))})
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        tw.tune(graph, "cpu -threads=2", database=database, trials=1, progress=False)
        with pytest.raises(tw.NotTunedError) as refused:
            tw.build(graph, SERIAL, database, allow=("record",))
        assert "transfer" in str(refused.value.hint)
        assert "threads" in str(refused.value)
        tw.build(graph, SERIAL, database, allow=("transfer",))


def test_weights_for_another_machine_are_packed_here(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that machine would: the programs that pack are compiled for this one."""

    def refuse(target: tw.Target) -> None:
        raise tw.TargetError("not here")

    graph = layers()
    assert b"_pack_w1" in path.read_bytes()  # there is something to pack
    monkeypatch.setattr("tilewright.building.weights.check_runnable", refuse)
    other = written(graph, tmp_path / "other.so")
    assert weights_of(other).read_bytes() == weights_of(path).read_bytes()
    there = written(graph, tmp_path / "arm.a", "cpu -mcpu=neoverse-n1 -threads=1", object_file=True)
    objects = [read_object(code) for code in members(there.read_bytes())]
    assert {found.arch for found in objects} == {"aarch64"}
    assert {p.name for p in tmp_path.glob("arm*")} == {
        "arm.a",
        "arm.a.json",
        "arm.h",
        "arm.a.weights",
    }
