"""The end of a run says for which processors code was run and compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.codegen.build import compile_func
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cpu.detection import host_target
from tilewright.runtime.host import HOST
from tilewright.target import CPUS, CpuTarget, Target
from tilewright.tir.ir import Func

from .hosts import LESSER, Processors, lesser, runs, why_not
from .matrix import __main__ as matrix

x86 = pytest.mark.skipif(host_target().arch != "x86_64", reason="these processors are x86-64")


@x86
def test_what_processes_of_a_run_did_is_told_together(root: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-k",
         "(test_the_instruction_is_used and cascadelake-vpdpbusd) or test_all_bits",
         "tests/codegen/test_dot.py"],
        cwd=root,
        env={**os.environ, HOST: "-mcpu=x86-64 -threads=1"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    lines = run.stdout.splitlines()
    first = next(k for k, line in enumerate(lines) if line.strip("= ") == "processors")
    assert lines[first + 1].startswith(f"taken for  x86-64 -threads=1, by {HOST}")
    told = lines[first + 2 : first + 6]
    assert told == [
        "run        x86-64",
        "compiled   cascadelake (not run: no AVX-512 VNNI here)",
        "compiled   x86-64-v2 (not run: no cx16 here)",
        "compiled   x86-64-v3 (not run: no AVX2 here)",
    ]


@pytest.mark.part(1)
@x86
@pytest.mark.parametrize("text", ["-mcpu=haswel", "-mcpu=-mcpu=haswell", "-mcpu=neoverse-n1"])
def test_a_run_as_a_processor_that_there_is_none_of_ends_at_once(text: str, root: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/tir/test_digits.py"],
        cwd=root,
        env={**os.environ, HOST: text},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert run.stderr.startswith(f"ERROR: no processor to test: {HOST}=")
    assert "passed" not in run.stdout


def test_a_summary_is_narrow_and_short() -> None:
    names = ["x86-64", "haswell", "cascadelake", "cooperlake", "sapphirerapids", "neoverse-n1"]
    noted = Processors()
    noted.add({"run": [], "compiled": [*names, "graniterapids", "skylake-avx512", "znver1"]})
    lines = noted.summary()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 12
    assert all(any(name in line for line in lines) for name in names)


def test_what_runs_is_what_the_host_has() -> None:
    host = host_target()
    assert runs("cpu")
    assert runs(host)
    foreign = "neoverse-v1" if host.arch == "x86_64" else "haswell"
    assert not runs(f"cpu -mcpu={foreign}")


@pytest.mark.parametrize(
    ("target", "host", "why"),
    [
        ("graniterapids", "znver5", "not run: no AMX here"),
        ("cascadelake", "skylake-avx512", "not run: no AVX-512 VNNI here"),
        ("znver1", "haswell", "not run: no sse4a here"),
        ("neoverse-n1", "haswell", "not run: for aarch64"),
        ("haswell", "znver4", "no test runs it"),
    ],
)
def test_reasons(target: str, host: str, why: str) -> None:
    assert why_not(CpuTarget.named(target), CpuTarget.named(host)) == why


@x86
@pytest.mark.parametrize(
    ("name", "count"), [("x86-64", 0), ("x86-64-v2", 0), ("x86-64-v3", 1), ("haswell", 2)]
)
def test_lesser_processors_are_those_that_the_machine_has_more_than(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.hosts.host_target", lambda: CpuTarget.named(name))
    assert lesser() == list(LESSER[:count])


def test_the_matrix_has_every_set_of_features() -> None:
    tried = {CPUS[name].features for name in matrix.PROCESSORS}
    assert [name for name, cpu in CPUS.items() if cpu.features not in tried] == []


def test_the_matrix_notices_code_for_another_processor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_haswell(func: Func, target: Target) -> Compiled:
        return compile_func(func, "cpu -mcpu=haswell -threads=1")

    monkeypatch.setattr(matrix, "CASES", [("add_relu_func", {"n": 131})])
    assert matrix.check_processor("haswell") == 0
    monkeypatch.setattr(matrix, "compile_func", of_haswell)
    assert matrix.check_processor("x86-64-v2") > 0
    printed = capsys.readouterr().out
    assert "x86-64-v2 add_relu_func(n=131) default: v" in printed
    assert "(takes avx)" in printed


def test_the_matrix_counts_a_compiler_that_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho at znver1 matmul_func default\nkill -ABRT $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert matrix.run_child("znver1") == 1
    printed = capsys.readouterr().out
    assert "at znver1 matmul_func default" in printed
    assert "exit status -6" in printed
