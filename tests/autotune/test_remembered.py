"""Choices that are remembered on disk: what hits, what misses, and what cannot hurt."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.model import base_model, boosting
from tilewright.autotune.model.target_model import model_of
from tilewright.autotune.rules.user_rules import SKETCH_RULES
from tilewright.autotune.search import remembered, unmeasured
from tilewright.autotune.search.remembered import Way, chosen, key
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.schedule import PRIMITIVES
from tilewright.schedule.find import path_to, rebuild
from tilewright.target import registered_kinds
from tilewright.tir.ir import For, Func, Var
from tilewright.tir.parser import parse

from ..hosts import processor

TARGET = processor("cpu -mcpu=cascadelake -threads=2")
PROGRAM = ops.matmul_func(24, 32, 16)
PROGRAMS = (PROGRAM, ops.softmax_func(6, 40), ops.conv2d_func(c=3, h=6, w=7, o=5))
SIMPLE = ops.add_relu_func(64)
"""For tests of entries, whatever was chosen: it has few sketches."""
WAYS: tuple[Way, ...] = ("model", "default")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the choices of this test go."""
    monkeypatch.setenv(LOCATION, str(tmp_path / "cache"))
    return tmp_path / "cache" / "choices"


@pytest.fixture
def own_rule() -> Iterator[None]:
    def in_rows(draft: tw.Draft) -> None:
        loop = draft.schedule.get_loops(draft.schedule.get_block(0))[0]
        draft.schedule.parallel(loop)

    tw.sketch_rule(in_rows)
    yield
    del SKETCH_RULES["in_rows"]


@pytest.fixture
def own_primitives() -> Iterator[None]:
    before = set(PRIMITIVES)
    yield
    for name in PRIMITIVES.keys() - before:
        del PRIMITIVES[name]


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def refuse_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose_nothing(*_: object, **__: object) -> None:
        raise AssertionError("chosen again")

    monkeypatch.setattr(unmeasured, "model_trace", choose_nothing)
    monkeypatch.setattr(unmeasured, "default_trace", choose_nothing)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("func", PROGRAMS, ids=lambda f: f.name)
def test_what_is_remembered_is_what_would_be_chosen(
    folder: Path, func: Func, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = unmeasured.model_trace if way == "model" else unmeasured.default_trace
    expected = choose(func, TARGET)
    first = chosen(func, TARGET, way)
    (entry,) = entries(folder)
    refuse_to_choose(monkeypatch)
    second = chosen(func, TARGET, way)
    assert first.trace == second.trace == expected
    assert str(first.func) == str(second.func)
    assert entries(folder) == [entry]


def renamed(func: Func) -> Func:
    text = str(func)
    for name in ("A", "B", "C"):
        text = text.replace(f"{name}:", f"other_{name}:").replace(f"{name}[", f"other_{name}[")
    return parse(text)


def test_the_key_covers_what_a_choice_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [
        key(PROGRAM, TARGET, "model"),
        key(PROGRAM, TARGET, "default"),
        key(ops.matmul_func(24, 32, 17), TARGET, "model"),
        key(ops.matmul_func(24, 32, 16, dtype="float64"), TARGET, "model"),
        key(PROGRAM, TARGET.with_threads(3), "model"),
        key(PROGRAM, replace(TARGET, l2_bytes=TARGET.l2_bytes // 2), "model"),
        key(PROGRAM, resolve("cpu -mcpu=haswell -threads=2"), "model"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(boosting, "installed_version", lambda: "9")
        keys.append(key(PROGRAM, TARGET, "model"))
    with monkeypatch.context() as patch:
        patch.setattr(np, "__version__", "9")
        keys.append(key(PROGRAM, TARGET, "model"))
    with monkeypatch.context() as patch:
        patch.setattr(remembered, "_chooser", lambda: "other rules, or another model")
        keys.append(key(PROGRAM, TARGET, "model"))
    assert len(set(keys)) == len(keys)


def test_the_sources_are_there_and_have_the_models_among_them(root: Path) -> None:
    sources = [set(root.glob(pattern)) for pattern in remembered._SOURCES]
    assert all(sources), remembered._SOURCES
    records = registered_kinds().items()
    kinds = [kind for kind, record in records if record.__module__.startswith("tilewright.")]
    kinds.remove("cuda")  # there is no model of GPUs
    assert "cpu" in kinds
    for kind in kinds:
        base = model_of(kind).base
        assert base is None or any(base in paths for paths in sources), kind


def test_a_program_under_other_names_has_the_same_choice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = renamed(PROGRAM)
    assert {p.name for p in PROGRAM.params}.isdisjoint(p.name for p in other.params)
    assert key(other, TARGET, "model") == key(PROGRAM, TARGET, "model")
    assert unmeasured.model_trace(other, TARGET) == chosen(PROGRAM, TARGET, "model").trace
    refuse_to_choose(monkeypatch)
    assert chosen(other, TARGET, "model").original is other


def test_set_to_nothing_it_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LOCATION, "")
    chosen(PROGRAM, TARGET, "default")
    assert entries(tmp_path) == []


def test_rules_of_the_users_own_may_depend_on_anything(
    folder: Path, own_rule: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen(PROGRAM, TARGET, "default")
    assert entries(folder) == []
    monkeypatch.setattr(remembered, "SKETCH_RULES", {})
    chosen(PROGRAM, TARGET, "default")
    monkeypatch.undo()
    monkeypatch.setenv(LOCATION, str(folder.parent))
    assert len(entries(folder)) == 1
    refuse_to_choose(monkeypatch)
    with pytest.raises(AssertionError, match="chosen again"):
        chosen(PROGRAM, TARGET, "default")


def test_what_stands_in_for_a_missing_model_is_not_remembered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unmeasured, "named", lambda *_: None)
    monkeypatch.setattr(base_model, "named", lambda *_: None)
    chosen(PROGRAM, TARGET, "model")
    assert entries(folder) == []
    chosen(PROGRAM, TARGET, "default")
    assert len(entries(folder)) == 1


def forged(how: str) -> bytes:
    """The content of an entry that has the right digest, and is none."""
    convolution = tw.Schedule(ops.conv2d_func(c=4, h=6, w=6, o=4))
    convolution.winograd(convolution.get_block("Y"), 2)
    open_decisions = tw.Schedule(SIMPLE, symbolic=True)
    loops = open_decisions.get_loops(open_decisions.get_block("C"))
    open_decisions.split(loops[0], factors=open_decisions.sample_perfect_tile(loops[0], 2))
    other = unmeasured.default_trace(ops.softmax_func(6, 40), TARGET)
    unknown = {"version": 1, "steps": [{"op": "run_code", "args": {}}]}
    contents = {
        "nothing": b"",
        "no text": b"\xff\xfe",
        "no JSON": b"{",
        "no trace": b"[]",
        "nested without end": b"[" * 100_000,
        "another version": b'{"version": 9, "steps": []}',
        "a trace of another program": other.to_json().encode(),
        "an unknown step": json.dumps(unknown).encode(),
        "an open decision": open_decisions.trace.to_json().encode(),
        "a step that is not exact": convolution.trace.to_json().encode(),
    }
    return contents[how]


FORGED = {
    "nothing": "",
    "no text": "",
    "no JSON": "",
    "no trace": "",
    "nested without end": "",
    "another version": "version 9",
    "a trace of another program": "ScheduleError",
    "an unknown step": "run_code",
    "an open decision": "leaves decisions open",
    "a step that is not exact": "inexact steps (winograd)",
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_entry_is_chosen_anew_and_replaced(
    folder: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = chosen(SIMPLE, TARGET, "default").trace
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    choices = remembered._shared(folder)
    choices.put(entry.stem, forged(how))
    assert entry.read_bytes() != whole
    assert chosen(SIMPLE, TARGET, "default").trace == expected
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "malformed" in record.getMessage()
    assert FORGED[how] in record.getMessage()
    assert entries(folder) == [entry]
    assert entry.read_bytes() == whole


def test_a_choice_whose_program_does_not_verify_is_chosen_anew(
    folder: Path, caplog: pytest.LogCaptureFixture, own_primitives: None
) -> None:
    """Of a step that forgets a condition: here it lets a loop run beyond its array."""

    @tw.primitive
    def overrun(fn: Func, loop: Var) -> tuple[Func, None]:
        """Double a loop."""
        path = path_to(fn, loop)
        old = path[-1]
        assert isinstance(old, For)
        return rebuild(fn, path, replace(old, extent=old.extent * 2)), None

    expected = chosen(SIMPLE, TARGET, "default").trace
    (entry,) = entries(folder)
    sch: Any = tw.Schedule(SIMPLE)
    sch.overrun(sch.get_loops(sch.get_block("C"))[0])
    remembered._shared(folder).put(entry.stem, sch.trace.to_json().encode())
    assert chosen(SIMPLE, TARGET, "default").trace == expected
    assert "VerifyError: " in caplog.text


def bound_to_a_gpu(sch: tw.Schedule) -> None:
    sch.bind(sch.get_loops(sch.get_block("C"))[0], "blockIdx.x")


def two_scopes(sch: tw.Schedule) -> None:
    for _ in range(2):
        sch.cache_read(sch.get_block("C"), 0, "register")


@pytest.mark.parametrize("steps", [bound_to_a_gpu, two_scopes])
def test_a_choice_that_does_not_compile_is_chosen_anew_and_replaced(
    folder: Path, steps: Callable[[tw.Schedule], None], caplog: pytest.LogCaptureFixture
) -> None:
    target = resolve("cpu -threads=1")
    expected = chosen(PROGRAM, target, "model").func
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    sch = tw.Schedule(PROGRAM)
    steps(sch)
    remembered._shared(folder).put(entry.stem, sch.trace.to_json().encode())
    for _ in range(2):
        module = tw.build(PROGRAM, target)
        assert module.origin.kind == "model"
        assert module.source("tir") == to_module(compile_func(expected, target)).source("tir")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "remembered schedule is set aside: it does not compile" in record.getMessage()
    assert entry.read_bytes() == whole


@pytest.mark.parametrize("damage", ["a bit", "cut", "writable by all", "a link"])
def test_a_damaged_entry_is_chosen_anew_and_replaced(
    folder: Path, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = chosen(SIMPLE, TARGET, "default").trace
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    if damage == "a bit":
        entry.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    elif damage == "cut":
        entry.write_bytes(whole[:-1])
    elif damage == "writable by all":
        entry.chmod(0o602)
    else:
        entry.rename(tmp_path / "elsewhere")
        entry.symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        assert chosen(SIMPLE, TARGET, "default").trace == expected
    assert len(caplog.records) == 1, "once is enough"
    assert entry.read_bytes() == whole
    assert not entry.is_symlink()
    assert entry.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_others_can_write_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    for _ in range(2):
        chosen(PROGRAM, TARGET, "default")
    assert entries(folder) == []
    assert caplog.text.count("can be written by others") == 1, "once is enough"


def test_the_folder_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(PROGRAM, TARGET, "default")
    (first,) = entries(folder)
    os.utime(first, (1000, 1000))
    monkeypatch.setattr(remembered, "LIMIT_BYTES", first.stat().st_size + 10)
    remembered._shared.cache_clear()
    try:
        chosen(ops.add_relu_func(9), TARGET, "default")
        (left,) = entries(folder)
    finally:
        remembered._shared.cache_clear()
    assert left != first


def test_a_build_says_where_its_schedule_comes_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tw.build(PROGRAM, "cpu -threads=1")
    refuse_to_choose(monkeypatch)
    second = tw.build(PROGRAM, "cpu -threads=1")
    assert first.origin == second.origin
    assert second.origin.kind == "model"
    assert first.source("tir") == second.source("tir")
    with pytest.raises(AssertionError, match="chosen again"):
        tw.build(PROGRAM, "cpu -threads=1", allow=("default",))


CHILD = """
import sys
import tilewright as tw
from tilewright import ops
modules = [tw.build(ops.matmul_func(n, 8, 8), "cpu -threads=1") for n in (4, 6)]
assert all(m.origin.kind == "model" for m in modules)
print(*sorted(m for m in sys.modules if m.startswith("tilewright.autotune")))
"""


def run(environment: dict[str, str]) -> set[str]:
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )
    assert child.stderr == ""
    return set(child.stdout.split())


def test_a_new_process_loads_neither_search_nor_models(folder: Path) -> None:
    searching = {f"tilewright.autotune.{m}" for m in ("search.unmeasured", "model.cpu.estimate")}
    environment = {LOCATION: str(folder.parent)}
    assert run(environment) >= searching
    assert len(entries(folder)) == 2
    assert run(environment) & searching == set()


def test_processes_share_a_folder(folder: Path) -> None:
    environment = {**os.environ, LOCATION: str(folder.parent)}
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD], env=environment, stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert [child.wait(timeout=600) for child in children] == [0, 0]
    assert len(entries(folder)) == 2
