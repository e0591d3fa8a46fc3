"""The pictures of modules and targets: origins, arguments, resources, assembly, facts."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, cast
from weakref import ref

import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.base.errors import TargetError
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.cpu import llvm
from tilewright.codegen.generator import generator_for
from tilewright.lab.pictures import target as target_view
from tilewright.lab.pictures.assembly_lines import Assembly
from tilewright.lab.pictures.module import MOST_LINES, assembly, view, window
from tilewright.runtime import load
from tilewright.runtime.module import Origin
from tilewright.runtime.signature import Signature

from .checks import HOSTILE, checked, with_class, words
from .test_error import facts

TARGET = "cpu -mcpu=x86-64 -threads=1"
LOOP = "\n".join([".L1:", *["\tvaddps\t%ymm0, %ymm1, %ymm2"] * 10, "\tjne\t.L1"])


@pytest.fixture(scope="module")
def module() -> tw.Module:
    sch = tw.Schedule(ops.matmul_func(64, 64, 64))
    return tw.build(sch, TARGET)


def test_a_module_says_where_it_is_from_and_what_it_takes(module: tw.Module) -> None:
    main = checked(view(module))
    assert facts(main) == {
        "Kernel": "matmul",
        "Target": TARGET,
        "Schedule": "schedule",
        "Sources": "tir, llvm, asm",
    }
    rows = [[words(cell) for cell in row] for row in main.findall(".//tr")]
    assert rows[:2] == [["argument", "type", "role"], ["A", "float32[64, 64]", "in"]]
    assert rows[-1] == ["C", "float32[64, 64]", "out"]
    assert "tw-module" in module._repr_html_()


def test_the_hot_block_is_marked(module: tw.Module) -> None:
    main = checked(view(module))
    (folded,) = main.findall(".//details")
    assert words(folded[0]).startswith("Assembly: ")
    hot = [words(line) for line in with_class(folded, "here")]
    assert any("mulss" in line or "fmadd" in line for line in hot)
    assert all(line.split()[1] == ">" for line in hot)
    text = module.source("asm").split("\n")
    assert all(line.endswith(" ".join(text[n].split()))
               for line in hot for n in [int(line.split()[0]) - 1])  # fmt: skip


def test_a_module_that_was_built_here_shows_its_loops() -> None:
    """Those that the lab shows, from the cache too; nothing is compiled for the next display."""
    sch = tw.Schedule(ops.matmul_func(64, 64, 64))
    expected = Assembly.of(compile_func(sch.func, TARGET), sch.func).names
    for module in (tw.build(sch, TARGET), tw.build(sch, TARGET)):
        first = str(view(module))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(llvm, "parse", lambda _: pytest.fail("it is compiled again"))
            assert str(view(module)) == first
        main = checked(view(module))
        assert words(main.find(".//summary")).endswith(", the loop that runs each beside it")
        lines = [words(line).split() for line in with_class(main, "here")]
        assert {expected[int(line[0]) - 1] for line in lines} == {"k"}
        assert all(line[2] == "k" for line in lines)


def test_what_is_nested_too_deeply_to_be_read_has_no_loops_beside_it() -> None:
    a = te.placeholder((8,), name="A")
    deep = te.compute((8,), lambda i: reduce(add, [a[i]] * 210), name="Y")
    module = tw.build(tw.Schedule(te.func([a, deep], name="deep")), "cpu -threads=1")
    main = checked(view(module))
    assert "No loops are beside it: " in words(main)
    assert "too deeply to be read" in words(main)
    assert "the loop that" not in words(main.find(".//summary"))


def test_a_module_of_code_alone_has_no_loops_beside_it() -> None:
    compiled = compile_func(ops.matmul_func(8, 8, 8), TARGET)
    module = to_module(replace(compiled, scheduled=()))
    (folded,) = checked(view(module)).findall(".//details")
    assert "the loop that" not in words(folded[0])


def test_pictures_of_modules_keep_no_module() -> None:
    module = tw.build(tw.Schedule(ops.matmul_func(8, 8, 8)), TARGET)
    view(module)
    held = ref(module)
    del module
    gc.collect()
    assert held() is None


def test_modules_of_artifacts_have_no_sources(tmp_path: Path) -> None:
    path = tmp_path / "matmul.so"
    try:
        tw.build_library(tw.Schedule(ops.matmul_func(8, 8, 8)), path, TARGET)
    except tw.BuildError as error:
        pytest.skip(f"nothing is linked here: {error}")
    main = checked(view(load(path)))
    assert facts(main)["Sources"] == "none: it was loaded from an artifact"
    assert not main.findall(".//details")


def with_facts(**changed: Any) -> tw.Module:
    """What the picture asks of a module."""
    signature = Signature("k", ())
    known = {
        "signature": signature,
        "target": tw.Target.parse("cuda -arch=sm_90a"),
        "origin": Origin("schedule"),
        "workspace_bytes": 0,
        "sources": (),
        "layouts": {},
        "resources": {},
    }
    return cast(tw.Module, type("Facts", (), {**known, **changed})())


def test_kernels_of_gpus_have_their_resources() -> None:
    taken = {
        "k_0": {"registers": 64, "spill_store_bytes": 1536, "occupancy": 0.5},
        "k_1": {"registers": 32, "shared_bytes": 49152},
    }
    main = checked(view(with_facts(resources=taken, workspace_bytes=1 << 20)))
    rows = [[words(cell) for cell in row] for row in main.findall(".//tr")]
    assert rows == [
        ["kernel", "registers", "spill store", "occupancy", "shared"],
        ["k_0", "64", "1.5 KiB", "50%", ""],
        ["k_1", "32", "", "", "48 KiB"],
    ]
    assert facts(main)["Workspace"] == "1 MiB"


def test_schedules_have_short_ids_and_details_are_text() -> None:
    origin = Origin("transfer", "1" * 64, HOSTILE, 0.25, "0123456789abcdef" * 4)
    shown = facts(checked(view(with_facts(origin=origin))))["Schedule"]
    assert shown.startswith("transfer of schedule 0123456789ab: <script>")
    assert shown.endswith("(expected to lose 25% of the speed)")


def test_ptx_is_assembly_too() -> None:
    source = {"ptx": f"{HOSTILE}\n{LOOP}"}.__getitem__
    target = tw.Target.parse("cuda -arch=sm_90")
    module = with_facts(target=target, sources=("tir", "cuda", "ptx"), source=source)
    main = checked(view(module))
    assert "the hot block is lines 2 to 13" in words(main.find(".//summary"))


@pytest.mark.parametrize(
    ("count", "hot", "shown"),
    [
        (10, None, range(10)),
        (1000, None, range(MOST_LINES)),
        (1000, range(500, 520), range(460, 560)),
        (1000, range(990, 1000), range(900, 1000)),
        (1000, range(100, 900), range(100, 200)),
    ],
)
def test_long_texts_are_shown_around_the_hot_block(
    count: int, hot: range | None, shown: range
) -> None:
    assert window(count, hot) == shown


def test_long_texts_are_cut() -> None:
    text = "\n".join(["\tnop"] * 5000 + [LOOP] + ["\tnop" + "x" * 10_000] * 5000)
    main = checked(assembly(text, "x"))
    lines = [words(line) for line in with_class(main, "l")]
    assert len(lines) == MOST_LINES + 2
    assert "5001 > .L1:" in lines
    assert len(words(main)) < MOST_LINES * 200


def test_a_target_shows_its_facts() -> None:
    target = tw.Target.parse("cpu -mcpu=skylake-avx512 -threads=2")
    known = facts(checked(target_view.view(target)))
    assert known["L1"] in ("32 KiB", "48 KiB")
    assert known["Vector bits"] == "512"
    assert known["Cache line"] == "64 B"
    assert "GFLOP/s" in known["Arithmetic"]
    assert "avx512f" in known["Features"]
    assert "tw-target" in target._repr_html_()


def test_a_target_that_is_left_to_the_machine_is_filled_in() -> None:
    shown = words(checked(target_view.view(tw.Target.parse("cpu"))))
    assert shown.startswith("cpu is cpu -mcpu=")


def test_gpus_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tw.Target.parse("cuda -arch=sm_90a")
    generator = generator_for(target)
    lack = TargetError("there is no {0}", HOSTILE, hint="install it")
    monkeypatch.setattr(type(generator), "missing", lambda _: [lack])
    main = checked(target_view.view(target))
    assert facts(main)["SMs"] == "132"
    assert facts(main)["Shared per block"] == "227 KiB"
    assert "Missing: there is no <script>" in words(main)
    assert "hint: install it" in words(main)


def test_a_device_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: tw.Target) -> Callable[[], None]:
        raise TargetError("there is no device")

    monkeypatch.setattr(target_view, "resolve", absent)
    assert "Missing: there is no device" in words(
        checked(target_view.view(tw.Target.parse("cuda")))
    )
