"""Stepping from a version to its code, its assembly, and its place below the roofline."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.model.target_model import model_for
from tilewright.codegen.build import compile_func
from tilewright.codegen.detect import resolve
from tilewright.codegen.generator import generator_for
from tilewright.codegen.lower import lower, purpose
from tilewright.errors import BuildError
from tilewright.lab import lowering_steps
from tilewright.lab.workbench import Workbench
from tilewright.tir.printer import func_text

from .commands import done, refused

CPU = resolve("cpu -mcpu=x86-64-v2 -threads=1")
GPU = resolve("cuda -arch=sm_90")
Data = dict[str, Any]


def vectorized() -> tw.Schedule:
    sch = tw.Schedule(ops.matmul_func(16, 32, 8))
    i, j, k = sch.get_loops(sch.get_block("C"))
    j0, j1 = sch.split(j, factors=[None, 16])
    sch.reorder(i, j0, k, j1)
    sch.vectorize(j1)
    return sch


def bound() -> tw.Schedule:
    sch = tw.Schedule(ops.matmul_func(16, 32, 8))
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    return sch


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "cuda"])
def test_every_pass_is_a_stage_with_its_reason(target: tw.Target) -> None:
    sch = vectorized() if target is CPU else bound()
    bench = Workbench(sch, target)
    stages = done(bench, do="lowering")["stages"]
    passes = list(generator_for(target).passes(target))
    texts = list(generator_for(target).sources)
    assert [s["name"] for s in stages] == ["scheduled", *(p.name for p in passes), *texts]
    assert all(s["why"] for s in stages)
    assert [s["program"] for s in stages] == [True] * (1 + len(passes)) + [False] * len(texts)
    programs: list[str] = []
    lower(sch.func, target, trace=lambda _, func: programs.append(func_text(func)))
    for number, text in enumerate(programs):
        changed = number > 0 and text != programs[number - 1]
        assert stages[number]["changed"] is changed
        assert stages[number]["lines"] == len(text.splitlines())
        lines = done(bench, do="stage", number=number)["lines"]
        assert bool([x for x in lines if x["op"] in "+-"]) is changed
    assert any(s["changed"] for s in stages)
    assert not all(s["changed"] for s in stages[1 : len(programs)])


def test_a_stage_shows_what_its_pass_changed() -> None:
    bench = Workbench(vectorized(), CPU)
    stages = {s["name"]: s["number"] for s in done(bench, do="lowering")["stages"]}
    lines = done(bench, do="stage", number=stages["vectorize"])["lines"]
    assert any(x["op"] == "-" and "T.vectorized(16)" in x["text"] for x in lines)
    first = done(bench, do="stage", number=0)
    assert [x["text"] for x in first["lines"]] == func_text(vectorized().func).splitlines()
    assert {x["op"] for x in first["lines"]} == {" "}


def test_the_last_stages_are_the_texts_of_the_code() -> None:
    sch = vectorized()
    bench = Workbench(sch, CPU)
    compiled = compile_func(sch.func, CPU)
    stages = done(bench, do="lowering")["stages"]
    for stage in stages[-2:]:
        found = done(bench, do="stage", number=stage["number"], count=400)
        text = compiled.source(stage["name"]).splitlines()
        assert found["total"] == len(text)
        assert [x["text"] for x in found["lines"]] == text[:400]


def test_the_hot_block_of_the_assembly_is_marked() -> None:
    bench = Workbench(vectorized(), CPU)
    found = done(bench, do="assembly")
    first, last = found["hot"]
    body = found["lines"][first : last + 1]
    assert any("mulps" in line for line in body)
    assert "j" in body[-1]
    assert done(bench, do="assembly", start=2, count=3)["lines"] == found["lines"][2:5]


def test_assembly_of_two_versions_differs_by_lines() -> None:
    bench = Workbench(vectorized(), CPU)
    found = done(bench, do="diff", a="v0", b="v1", of="assembly")
    ops_of = {x["op"] for x in found["assembly"]}
    assert {"-", "+"} <= ops_of
    assert any(x["op"] == "+" and "mulps" in x["text"] for x in found["assembly"])
    same = done(bench, do="diff", a="v1", b="v1", of="assembly")
    assert same["assembly"] == []
    assert "program or assembly" in refused(bench, do="diff", a="v0", b="v1", of="music")["text"]


def test_without_tools_the_passes_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise BuildError("there is no compiler", hint="install one")

    monkeypatch.setattr(lowering_steps, "compile_func", missing)
    monkeypatch.setattr(lowering_steps, "compile_in_child", missing)
    bench = Workbench(vectorized(), CPU)
    stages = done(bench, do="lowering")["stages"]
    assert stages[1]["error"] is None
    assert [s["error"]["text"] for s in stages[-2:]] == ["there is no compiler"] * 2
    error = refused(bench, do="assembly")
    assert error["text"] == "there is no compiler"
    assert error["hint"] == "install one"


def test_schedules_of_records_are_compiled_by_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.autotune.records import schedule_record

    asked: list[str] = []
    func = vectorized().original

    def child(program: tw.Func, target: tw.Target) -> Any:
        asked.append("child")
        return compile_func(program, target)

    monkeypatch.setattr(lowering_steps, "compile_in_child", child)
    database = tw.TuningDatabase("sqlite://")
    record = schedule_record(vectorized().trace)
    database.put(record)
    bench = Workbench(func, "cpu -threads=1", database)
    done(bench, do="lowering")
    assert asked == []
    done(bench, do="open", record=record.id)
    done(
        bench,
        do="apply",
        op="add_unit_loop",
        args={"block_or_loop": bench.state()["tree"]["nodes"][0]["id"]},
    )
    done(bench, do="lowering")
    assert asked == ["child"]


def test_constant_operands_are_lowered_as_the_kernel_has_them() -> None:
    A = te.placeholder((8, 16), name="A")
    B = te.placeholder((16, 32), name="B", constant=True)
    k = te.reduce_axis(16, name="k")
    C = te.compute((8, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    sch = tw.Schedule(te.func([A, B, C], name="f"))
    sch.pack(sch.get_block("C"), read_buffer_index=1, layout="BAb", factors=[16])
    stages = done(Workbench(sch, CPU), do="lowering")["stages"]
    assert stages[-1]["error"] is None


@pytest.mark.parametrize("number", [-1, 99, "1", None, 1.5, True])
def test_hostile_stages_are_refused_as_data(number: Any) -> None:
    error = refused(Workbench(vectorized(), CPU), do="stage", number=number)
    assert error["kind"] == "LabError"


def test_each_pass_of_each_kind_says_why() -> None:
    for target in (CPU, GPU):
        for step in generator_for(target).passes(target):
            why = purpose(step)
            assert why.endswith((".", ":")), (step.name, why)
            assert "\n" not in why


def test_versions_have_points_below_the_roofline() -> None:
    bench = Workbench(vectorized(), CPU)
    found = done(bench, do="roofline")
    roof = model_for(CPU).roofline(bench.func, CPU)
    assert found["seconds"] == roof.seconds
    assert found["bound"] in ("arithmetic", "memory")
    assert found["flops"] == 2 * 16 * 32 * 8
    assert found["intensity"] == found["flops"] / found["bytes"]
    assert found["peak"] == pytest.approx(found["flops"] / roof.compute)
    assert [p["version"] for p in found["points"]] == ["v0", "v1"]
    for point, version in zip(found["points"], bench.versions, strict=True):
        assert version.predicted is not None
        assert point["measured"] is False
        assert point["share"] == pytest.approx(roof.seconds / version.predicted)
        assert point["rate"] == pytest.approx(found["flops"] / version.predicted)


def test_a_program_without_arithmetic_has_a_roofline() -> None:
    found = done(Workbench(ops.transpose_func(1024, 1024), CPU), do="roofline")
    assert found["bound"] == "memory"
    assert found["flops"] == 0
    assert found["peak"] is None
    assert found["points"][0]["rate"] == 0
