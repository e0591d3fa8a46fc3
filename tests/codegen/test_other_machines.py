"""Artifacts for other machines: linkers, object files, and C programs that call what is in them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import binding

import tilewright as tw
from tilewright import ops, te
from tilewright.base.errors import ArtifactError, BuildError
from tilewright.codegen.build import compile_func
from tilewright.codegen.cpu import llvm, wasm
from tilewright.codegen.cpu.archive import members
from tilewright.codegen.cpu.linking import linker
from tilewright.codegen.cpu.object_file import ObjectFile, read_object, renamed, with_constant
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.runtime.artifact import read_manifest
from tilewright.runtime.header import CAPABILITIES
from tilewright.target import FEATURES, CpuTarget

from ..emulator import ARM, MACHINES, emulated
from ..graph.test_shipping import layers
from ..hosts import processor, take_for
from ..refusals import refused

DEFAULT: Any = {"allow": ("default",)}
MODEL: Any = {"allow": ("model",)}
ARM_TARGET = "cpu -mcpu=neoverse-n1 -threads=1"


def doubles(n: int = 20) -> tw.Func:
    x = te.placeholder((n,), "float32", name="x")
    y = te.compute((n,), lambda i: x[i] * 2.0, name="y")
    return te.func([x, y], name="doubles")


def foreign() -> CpuTarget:
    """A processor of another architecture than this machine's."""
    arm = processor("cpu -threads=1").arch == "aarch64"
    return processor("cpu -mcpu=riscv64" if arm else ARM_TARGET)


# Linkers


def only(*names: str) -> Any:
    return lambda name: f"/bin/{name}" if name in names else None


def test_the_linker_is_one_for_the_architecture() -> None:
    target = foreign()
    own = f"{target.arch}-linux-gnu-gcc"
    assert linker(target, find=only("cc", "ld", own, "ld.lld"))[:2] == [f"/bin/{own}", "-shared"]
    assert "-nostdlib" in linker(target, find=only("cc", own))
    assert linker(target, find=only("cc", "ld", "ld.lld")) == [
        "/bin/ld.lld", "-shared", "-z", "noexecstack",
    ]  # fmt: skip


def test_without_one_the_error_names_packages() -> None:
    target = foreign()
    with refused(BuildError, target.arch) as error:
        linker(target, find=only("cc", "gcc", "ld"))
    packages = error.value.data["packages"]
    assert packages == (
        f"gcc-{target.arch}-linux-gnu", f"binutils-{target.arch}-linux-gnu", "lld", "mold",
    )  # fmt: skip
    assert all(package in str(error.value.hint) for package in packages)


@pytest.mark.parametrize(
    ("chosen", "program", "options"),
    [
        ("lld", "ld.lld", []),
        ("ld.lld-14 --build-id", "ld.lld-14", ["--build-id"]),
        ("riscv64-linux-gnu-ld", "riscv64-linux-gnu-ld", []),
        ("clang '--target=riscv64-linux-gnu'", "clang", ["--target=riscv64-linux-gnu"]),
    ],
)
def test_a_linker_is_chosen_by_its_command(chosen: str, program: str, options: list[str]) -> None:
    found = linker(foreign(), chosen, find=only(program))
    assert found[: 1 + len(options)] == [f"/bin/{program}", *options]
    assert ("-nostdlib" in found) is (program == "clang")


@pytest.mark.parametrize(
    ("chosen", "package"),
    [
        ("lld", "lld"),
        ("riscv64-linux-gnu-gcc", "gcc-riscv64-linux-gnu"),
        ("x86_64-linux-gnu-ld -x", "binutils-x86-64-linux-gnu"),
        ("", ""),
    ],
)
def test_a_chosen_linker_that_is_not_there(chosen: str, package: str) -> None:
    with pytest.raises(BuildError) as error:
        linker(foreign(), chosen, find=only())
    assert error.value.data["packages"] == (package,)
    with refused(BuildError, "ld '"):
        linker(foreign(), "ld '", find=only("ld"))


def test_a_command_that_links_nothing_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(BuildError):
        tw.build_library(doubles(), tmp_path / "f.so", foreign(), linker="true", **DEFAULT)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_linker_is_told_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(llvm, "emit", None)
    with pytest.raises(BuildError) as error:
        tw.build_library(doubles(), tmp_path / "f.so", foreign(), **DEFAULT)
    assert "lld" in error.value.data["packages"]
    assert list(tmp_path.iterdir()) == []


def test_there_are_no_libraries_for_webassembly(tmp_path: Path) -> None:
    with refused(BuildError, "wasm32"):
        tw.build_library(doubles(), tmp_path / "f.so", "cpu -mcpu=wasm32", **DEFAULT)


def test_an_llvm_without_a_target_names_those_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    known = binding.Target.from_triple

    def without_riscv(triple: str) -> Any:
        if triple.startswith("riscv64"):
            raise RuntimeError("no available targets are compatible")
        return known(triple)

    monkeypatch.setattr(binding.Target, "from_triple", without_riscv)
    llvm.target_machine.cache_clear()
    with refused(BuildError, "aarch64, wasm32, x86_64"):
        llvm.target_machine(processor("cpu -mcpu=riscv64"))


def test_what_has_no_addresses_for_its_arrays_is_refused() -> None:
    target, most = resolve("cpu -mcpu=wasm32"), (1 << 31) - 1
    with refused(BuildError, "doubles", 2 << 30, "wasm32", most):
        compile_func(doubles(1 << 28), target)
    x = te.placeholder((1,), "float32", name="x")
    held = te.compute((1 << 29,), lambda i: x[0] * i, name="held")
    y = te.compute((1,), lambda i: held[i + 3] + held[i + 5], name="y")
    with refused(BuildError, "wasm32", most):
        compile_func(te.func([x, y], name="holds"), target)


def test_threads_do_not_rest_on_this_machine() -> None:
    name = foreign().mcpu
    assert processor(f"cpu -mcpu={name}").threads == 1
    assert processor(f"cpu -mcpu={name} -threads=4").threads == 4


def test_choices_do_not_rest_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without records, the row of the processor decides."""
    func, made = ops.matmul_func(96, 128, 64), list[bytes]()
    for here in ("x86-64 -threads=1", "znver5 -threads=16"):
        with monkeypatch.context() as patch:
            patch.setenv(LOCATION, str(tmp_path / here))
            take_for(patch, CpuTarget.of(tw.Target.parse(f"cpu -mcpu={here}")))
            path = tmp_path / "matmul.o"
            tw.build_library(func, path, "cpu -mcpu=neoverse-v1", **MODEL)
            made += [path.read_bytes(), path.with_name("matmul.o.json").read_bytes()]
    assert made[:2] == made[2:]


# Object files


def test_an_object_file_has_a_manifest(tmp_path: Path) -> None:
    path = tmp_path / "doubles.o"
    made = tw.build_library(doubles(), path, ARM_TARGET, **DEFAULT)
    assert [p.name for p in made.files] == ["doubles.o", "doubles.o.json", "doubles.h"]
    manifest = json.loads(made.files[1].read_text())
    (program,) = manifest["programs"]
    assert (manifest["target"], manifest["code"]["form"]) == (ARM_TARGET, "object file")
    assert program["fixture"] is None
    assert "object file" in program["no_fixture"]
    found = tw.verify(path)
    assert found.passed
    assert [c.outcome for c in found.checks] == ["right", "right", "not checked"]
    with refused(ArtifactError, path, "object file"):
        tw.load(path)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert not tw.verify(path).passed


def test_several_programs_are_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "ops.a"
    several = {"one": doubles(), "two": doubles(7)}
    tw.build_library(several, path, "cpu -mcpu=wasm32", object_file=True, **DEFAULT)
    manifest = json.loads(path.with_name("ops.a.json").read_text())
    assert manifest["code"]["form"] == "archive"
    assert [p["signature"]["name"] for p in manifest["programs"]] == ["one", "two"]
    assert {read_object(code).arch for code in members(path.read_bytes())} == {"wasm32"}
    assert tw.verify(path).passed


def test_no_command_line_word_asks_for_an_object_file(tmp_path: Path, run: Any) -> None:
    (tmp_path / "p.py").write_text(
        "import tilewright as tw\nfrom tilewright import ops\n"
        "def mm():\n    return ops.matmul_func(4, 5, 6)\n"
    )
    path = tmp_path / "mm.o"
    done = run("build", f"{tmp_path / 'p.py'}:mm", "-o", path, "--target", "cpu -mcpu=riscv64")
    assert done.code == 0, done.err
    assert read_object(path.read_bytes()).arch == "riscv64"
    shown = run("inspect", path)
    assert "object file" in shown.out
    assert run("verify", path).code == 0


# WebAssembly's object files


def test_symbols_of_webassembly_are_read_and_renamed() -> None:
    target = resolve("cpu -mcpu=wasm32")
    x = te.placeholder((9,), "float32", name="x")
    y = te.compute((9,), lambda i: x[i] % 3.0, name="y")
    code = compile_func(te.func([x, y], name="rest"), target).image
    found = read_object(code)
    assert found == ObjectFile("wasm32", frozenset({"rest"}), frozenset({"fmodf"}))
    again = renamed(code, {"rest": "own.rest", "fmodf": "own.fmodf", "y": "z"})
    wanted = ObjectFile("wasm32", frozenset({"own.rest"}), frozenset({"own.fmodf"}))
    assert read_object(again) == wanted
    assert read_object(renamed(again, {"own.rest": "rest", "own.fmodf": "fmodf"})) == found
    described = with_constant(code, "rest.description", b"some text\0")
    assert described is not None
    assert described.startswith(code)
    assert described.endswith(b"\x0atilewrightsome text\0")
    assert read_object(described) == found


def test_damaged_webassembly_is_a_typed_error() -> None:
    code = compile_func(doubles(), resolve("cpu -mcpu=wasm32")).image
    symbols = code.index(b"linking")
    for size in range(symbols):
        with pytest.raises(ArtifactError):
            read_object(code[:size])
    rng, refusals = np.random.default_rng(0), 0
    for place in rng.integers(8, len(code), 300):
        damaged = bytearray(code)
        damaged[place] = rng.integers(256)
        try:
            wasm.renamed(bytes(damaged), {"doubles": "twice"})
        except ArtifactError:
            refusals += 1
    assert 0 < refusals < 300


# Programs that call what was built

CALLER = """
#include <stdio.h>
#include <stdlib.h>
#include "{name}.h"

int main(int count, char **names) {{
    static float x[64], y[64], top[4];
    FILE *file = fopen(names[1], "rb");
    void *weights = aligned_alloc(64, {name}_WEIGHTS_BYTES + 64);
    void *memory = aligned_alloc(64, {name}_WORKSPACE_BYTES + 64);
    if (count != 2 || !file || !{name}_runs_here()) return 3;
    if (fread(weights, 1, {name}_WEIGHTS_BYTES, file) != {name}_WEIGHTS_BYTES) return 4;
    for (int i = 0; i < 64; i++) x[i] = i / 64.0f;
    printf("%d ", {name}(x, y, top, weights, NULL));
    printf("%d %.5f", {name}(x, y, top, weights, memory), top[3]);
    return 0;
}}
"""


@pytest.mark.parametrize("mcpu", ["neoverse-n1", "riscv64", "wasm32"])
def test_a_program_in_c_calls_a_model(mcpu: str, tmp_path: Path) -> None:
    machine, graph = MACHINES[mcpu], layers("model")
    if machine.missing is not None:
        pytest.skip(machine.missing)
    path = tmp_path / "model.o"
    tw.build_library(graph, path, f"cpu -mcpu={mcpu}", **DEFAULT)
    (tmp_path / "main.c").write_text(CALLER.format(name="model"))
    machine.compile(tmp_path / "program", [tmp_path / "main.c", path])
    found = machine.run(mcpu, tmp_path / "program", tmp_path / "model.o.weights").split()
    x = (np.arange(64, dtype=np.float32) / 64).reshape(4, 16)
    assert found[:2] == ["1", "0"]
    assert float(found[2]) == pytest.approx(graph.reference(x)[1][3], abs=2e-5)


DYNAMIC = """
#include <stdio.h>
#include "doubles.h"
int main(void) {
    float x[20] = {[19] = 4}, y[20];
    printf("%d %d ", doubles_runs_here(), doubles(x, y, NULL));
    printf("%g", y[19]);
    return 0;
}
"""


@emulated
@pytest.mark.parametrize("chosen", [None, "lld"])
def test_a_program_in_c_loads_a_shared_library(tmp_path: Path, chosen: str | None) -> None:
    if chosen is not None and shutil.which("ld.lld") is None:
        pytest.skip("no ld.lld: `make cross-tools` installs it")
    made = tw.build_library(doubles(), tmp_path / "arm.so", ARM_TARGET, linker=chosen, **DEFAULT)
    assert tw.verify(made.files[0], run=False).passed
    linked_by = read_manifest(made.files[0]).toolchain["linker"]
    assert ("LLD" in linked_by) is (chosen == "lld")
    (tmp_path / "main.c").write_text(DYNAMIC)
    (tmp_path / "doubles.h").write_bytes((tmp_path / "arm.h").read_bytes())
    command = [ARM.compiler[0], "-Wall", "-Werror", "main.c", "./arm.so", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    words = [*ARM.emulator, *ARM.processors["neoverse-n1"], "-L", "/usr/aarch64-linux-gnu"]
    done = subprocess.run([*words, "./main"], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == b"1 0 8"


@emulated
def test_a_processor_without_the_features_is_noticed(tmp_path: Path) -> None:
    tw.build_library(doubles(), tmp_path / "doubles.o", "cpu -mcpu=neoverse-v1", **DEFAULT)
    (tmp_path / "main.c").write_text(
        '#include "doubles.h"\n#include <stdio.h>\n'
        'int main(void) { printf("%d", doubles_runs_here()); return 0; }\n'
    )
    ARM.compile(tmp_path / "main", [tmp_path / "main.c"])
    assert ARM.run("neoverse-n1", tmp_path / "main") == "0"
    assert ARM.run("neoverse-v1", tmp_path / "main") == "1"


def test_each_feature_has_a_capability_that_the_header_compares() -> None:
    of_linux = {name for name, f in FEATURES.items() if f.arch in ("aarch64", "riscv64")}
    assert of_linux == CAPABILITIES.keys()


ALONE = """
import { readFileSync } from "node:fs";
const module = new WebAssembly.Module(readFileSync(process.argv[2]));
const [described] = WebAssembly.Module.customSections(module, "tilewright");
const { memory, __heap_base, mm } = new WebAssembly.Instance(module, {}).exports;
const place = (at, n) => new Float32Array(memory.buffer, at, n);
const a = __heap_base.value, b = a + 4 * 24, c = b + 4 * 30;
place(a, 24).fill(2);
place(b, 30).fill(0.5);
console.log(mm(a, b, c, 0), place(c, 20).join(), new TextDecoder().decode(described).slice(0, 18));
"""


@pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("wasm-ld", "node")), reason="no wasm-ld or no node"
)
def test_javascript_calls_a_module_that_is_linked_alone(tmp_path: Path) -> None:
    func = ops.matmul_func(4, 5, 6)
    path = tw.build_library({"mm": func}, tmp_path / "mm.o", "cpu -mcpu=wasm32", **DEFAULT).files[0]
    linked, script = tmp_path / "mm.wasm", tmp_path / "alone.mjs"
    command = ["wasm-ld", "--no-entry", "--export=mm", "--export=__heap_base"]
    subprocess.run([*command, str(path), "-o", str(linked)], check=True)
    script.write_text(ALONE)
    done = subprocess.run(["node", script, linked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"0 {','.join(['6'] * 20)} tilewright kernel:"
