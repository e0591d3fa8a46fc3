"""Detection, on this machine and on made-up /proc and /sys trees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.base.errors import TargetError
from tilewright.codegen import detect
from tilewright.codegen.cpu import detection
from tilewright.runtime.host import HOST
from tilewright.target import CPUS, CpuTarget, Target

from ..hosts import processor


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_the_host_is_resolved_and_parses_back() -> None:
    host = detection.host_target()
    assert host.resolved
    assert Target.parse(str(host)) == host
    assert detect.resolve(str(host)) == host
    assert host.l1_bytes > 0
    assert host.l2_bytes > 0
    detect.check_runnable(host)


def test_tile_registers_that_the_system_withholds_are_no_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import llvmlite.binding as llvm

    monkeypatch.delenv(HOST, raising=False)
    known = dict.fromkeys(["avx2", "amx-tile", "amx-int8", "amx-bf16"], True)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: known)
    monkeypatch.setattr(detection, "cpu_flags", lambda: None)
    for granted, features in ((True, {"avx2", *known}), (False, {"avx2"})):
        monkeypatch.setattr(detection, "request_tiles", lambda granted=granted: granted)
        assert set(detection.host_target.__wrapped__().features) == features


def test_an_extension_that_the_system_does_not_know_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import llvmlite.binding as llvm

    monkeypatch.delenv(HOST, raising=False)
    known = dict.fromkeys(["avx", "avx2", "fma"], True)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: known)
    monkeypatch.setattr(detection, "cpu_flags", lambda: frozenset({"avx", "fma", "bmi1"}))
    assert detection.host_target.__wrapped__().features == ("avx", "fma")


def test_the_host_is_taken_for_a_lesser_one_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(HOST, raising=False)
    machine = detection.host_target.__wrapped__()
    monkeypatch.setenv(HOST, "-mcpu=x86-64" if machine.arch == "x86_64" else "-mcpu=generic")
    lesser = detection.host_target.__wrapped__()
    assert (lesser.vector_bits, lesser.resolved) == (128, True)
    assert lesser.features == CpuTarget.named(lesser.mcpu).features
    assert (lesser.model, lesser.l2_bytes) == (machine.model, machine.l2_bytes)
    assert (lesser.threads, lesser.cores) == (machine.threads, machine.cores)
    assert lesser.perf_class != machine.perf_class
    monkeypatch.setenv(HOST, f"-mcpu={lesser.mcpu} -threads=1")
    assert detection.host_target.__wrapped__().threads == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-mcpu=x86-64-v9", "unknown processor"),
        ("-threads=2", "names no processor; expected -mcpu=NAME.*cpu -threads=1"),
        ("-mcpu=x86-64-v2 -mtriple=x86_64-unknown-linux-musl", "leave out -mtriple"),
        ("-mtriple=x", "leave out -mtriple"),
        ("haswell", "did you mean -mcpu=haswell"),
        ("-mcpu=neoverse-n1 -mattr=+i8mm", "this machine .* does not have"),
        ("-mcpu=graniterapids -mattr=+amx-fp16,+sse4a", "this machine .* does not have"),
    ],
)
def test_a_host_that_this_machine_cannot_be_taken_for_is_refused(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOST, text)
    with pytest.raises(TargetError, match=f"(?s){HOST}.*{said}"):
        detection.host_target.__wrapped__()


def test_child_processes_take_the_machine_for_the_same_one() -> None:
    name = "x86-64" if detection.host_target().arch == "x86_64" else "generic"
    run = subprocess.run(
        [sys.executable, "-m", "tilewright", "target"],
        env={**os.environ, HOST: f"-mcpu={name}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"cpu -mcpu={name} -threads=" in run.stdout


EMIT_FOR_ALL = """
import llvmlite.binding as llvm
from tilewright.target import CPUS, CpuTarget, Target
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
for name in CPUS:
    target = CpuTarget.named(name)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.llvm_cpu, features=target.llvm_features
    )
    module = llvm.parse_assembly("define void @f() { ret void }")
    module.triple = target.triple
    assert machine.emit_object(module)
print("done", len(CPUS))
"""


def test_llvm_knows_every_processor_and_feature_of_the_table() -> None:
    run = subprocess.run(
        [sys.executable, "-c", EMIT_FOR_ALL], capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.stderr) == (f"done {len(CPUS)}\n", "")


def test_resolve_fills_in_the_host() -> None:
    host = detection.host_target()
    assert detect.resolve("cpu") == host
    one = processor("cpu -threads=1")
    assert (one.threads, one.mcpu, one.model) == (1, host.mcpu, host.model)
    same = processor(f"{host.with_threads(7)}")
    assert (same.threads, same.l3_bytes, same.model) == (7, host.l3_bytes, host.model)
    less = processor(f"cpu -mcpu={host.mcpu} -mattr=-{host.features[-1]}")
    assert host.features[-1] not in less.features
    assert (less.threads, less.l3_bytes, less.model) == (host.threads, host.l3_bytes, host.model)


def test_resolve_leaves_the_facts_of_another_processor_to_the_table() -> None:
    other = "znver1" if detection.host_target().mcpu != "znver1" else "haswell"
    target = processor(f"cpu -mcpu={other}")
    assert target.resolved
    assert target.threads == detection.host_target().threads
    assert (target.l2_bytes, target.model) == (CpuTarget.named(other).l2_bytes, "")


def test_code_for_more_than_the_host_has_is_refused() -> None:
    host = detection.host_target()
    foreign = "neoverse-v1" if host.arch == "x86_64" else "graniterapids"
    with pytest.raises(TargetError, match="this machine"):
        detect.check_runnable(processor(f"cpu -mcpu={foreign}"))


CACHE = "sys/devices/system/cpu/cpu0/cache"


def test_caches_are_read_by_level_and_type(tmp_path: Path) -> None:
    files = {}
    for index, (level, kind, size) in enumerate(
        [(1, "Data", "48K"), (1, "Instruction", "64K"), (2, "Unified", "2M"), (3, "Unified", "1G")]
    ):
        files[f"{CACHE}/index{index}/level"] = str(level)
        files[f"{CACHE}/index{index}/type"] = kind
        files[f"{CACHE}/index{index}/size"] = size
        files[f"{CACHE}/index{index}/coherency_line_size"] = "128"
        files[f"{CACHE}/index{index}/ways_of_associativity"] = str(8 + index)
    found = detection.caches(tree(tmp_path, files))
    assert found == ((48 << 10, 2 << 20, 1 << 30), 128, (8, 10, 11))


def test_unknown_caches_are_zero(tmp_path: Path) -> None:
    assert detection.caches(tmp_path) == ((0, 0, 0), 0, (0, 0, 0))
    broken = tree(tmp_path, {f"{CACHE}/index0/{n}": "?" for n in ("level", "type", "size")})
    assert detection.caches(broken) == ((0, 0, 0), 0, (0, 0, 0))


@pytest.mark.parametrize(
    ("files", "processors"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 8),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "300000 100000"}, 3),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "250000 100000"}, 2),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n2:memory:/y",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/x",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            8,
        ),
        ({"proc/self/cgroup": "garbage", "sys/fs/cgroup/cpu.max": "1 1"}, 8),
    ],
)
def test_processors_are_limited_by_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], processors: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert detect.usable_processors(tree(tmp_path, files)) == processors


def test_processors_are_limited_by_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5})
    assert detect.usable_processors(tmp_path) == 2


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/job", "sys/fs/cgroup/memory.max"),
        ("0::/job", "sys/fs/cgroup/job/memory.max"),
        ("4:memory:/job", "sys/fs/cgroup/memory/job/memory.limit_in_bytes"),
    ],
)
def test_memory_is_limited_by_the_cgroup(tmp_path: Path, groups: str, file: str) -> None:
    root = tree(tmp_path, {"proc/self/cgroup": groups, file: "1048576"})
    assert detect.usable_memory(root) == 1 << 20


def test_memory_without_a_limit_is_what_is_installed(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"})
    assert detect.usable_memory(root) == detect.usable_memory(tmp_path / "nowhere") > 1 << 20


def test_the_model_name_is_the_first_processors(tmp_path: Path) -> None:
    text = "processor : 0\nmodel name\t: Fast  Chip @ 3GHz\nprocessor: 1\nmodel name: Other"
    assert detection.model_name(tree(tmp_path, {"proc/cpuinfo": text})) == "Fast Chip @ 3GHz"
    assert detection.model_name(tmp_path / "nowhere") == ""
