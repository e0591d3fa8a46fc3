"""Stepping from a version to its code, its assembly, and its place below the roofline."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import html5lib
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.model.target_model import model_for
from tilewright.base.durations import format_seconds
from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.detect import resolve
from tilewright.codegen.generator import CodeGenerator, Pass, generator_for
from tilewright.codegen.lower import lower
from tilewright.codegen.passes.blocks import blocks
from tilewright.lab.pictures.assembly_lines import MOST_RANGES
from tilewright.lab.pictures.trace import line_changes
from tilewright.lab.workbench import lowering_steps
from tilewright.lab.workbench.lowering_steps import differences
from tilewright.lab.workbench.versions import Timing
from tilewright.lab.workbench.workbench import Workbench
from tilewright.tir.printer import func_text

from .checks import words
from .commands import done, refused

CPU = resolve("cpu -mcpu=x86-64-v2 -threads=1")
GPU = resolve("cuda -arch=sm_90")
SVG = "{http://www.w3.org/2000/svg}"


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
    texts = [*(["emit"] if target is CPU else []), *generator_for(target).sources]
    assert [s["name"] for s in stages] == ["scheduled", *(p.name for p in passes), *texts]
    assert all(s["why"] for s in stages)
    assert [s["program"] for s in stages] == [True] * (1 + len(passes)) + [False] * len(texts)
    programs: list[str] = []
    lower(sch.func, target, watcher=lambda _, func: programs.append(func_text(func)))
    for number, text in enumerate(programs):
        changed = number > 0 and text != programs[number - 1]
        assert stages[number]["changed"] is changed
        assert stages[number]["lines"] == len(text.splitlines())
        lines = done(bench, do="stage", number=number)["lines"]
        assert bool([x for x in lines if x["op"] in "+-"]) is changed
    assert any(s["changed"] for s in stages)
    assert not all(s["changed"] for s in stages[1 : len(programs)])


def test_a_pass_that_refuses_a_program_is_the_last_stage() -> None:
    bench = Workbench(ops.matmul_func(16, 32, 8), GPU)
    stages = done(bench, do="lowering")["stages"]
    passes = [p.name for p in generator_for(GPU).passes(GPU)]
    *before, last = stages
    assert [s["name"] for s in stages] == ["scheduled", *passes[: len(before)]]
    assert [s["error"] for s in before] == [None] * len(before)
    assert last["error"]["kind"] == "BuildError"
    assert "is bound to no axis of the device" in last["error"]["text"]
    assert last["error"]["hint"].startswith('sch.bind(i, "blockIdx.x")')
    assert last["program"]
    assert not last["changed"]
    assert last["facts"] == []
    first = done(bench, do="stage", number=0)["lines"]
    assert [x["text"] for x in first] == func_text(bench.func).splitlines()
    assert done(bench, do="stage", number=last["number"])["lines"] == []
    assert refused(bench, do="assembly")["text"] == last["error"]["text"]


def test_what_no_pass_is_given_is_refused_as_a_whole() -> None:
    func = ops.matmul_func(16, 32, 8)
    bench = Workbench(replace(func, name="int"), GPU)
    assert "'int' cannot be the name of a function" in refused(bench, do="lowering")["text"]


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


def test_lines_of_assembly_are_of_loops() -> None:
    bench = Workbench(vectorized(), CPU)
    found = done(bench, do="assembly")
    i, j0, k, j1 = (n["id"] for n in bench.state()["tree"]["nodes"] if n["kind"] == "loop")
    first, last = found["hot"]
    assert found["says"] == f"the hot block is lines {first + 1} to {last + 1}"
    assert set(found["loops"][first : last + 1]) == {k}
    places = found["places"]
    assert places[k]["lines"] == [[first, last]]
    assert places[k]["says"] == f"The iterations of k run lines {first + 1} to {last + 1}."
    assert places[j1]["lines"] == []
    assert places[j1]["says"] == (
        "No lines are those of j_1 alone: its iterations are lanes of vectors. The next loop "
        "around it with lines is k."
    )
    for id, inside in ((j0, {j0, k}), (i, {i, j0, k})):
        mine = {n for a, b in places[id]["lines"] for n in range(a, b + 1)}
        assert mine == {n for n, loop in enumerate(found["loops"]) if loop in inside}
    page = done(bench, do="assembly", start=first, count=2)
    assert page["loops"] == [k, k]


def test_a_sentence_names_a_few_of_many_ranges_of_lines() -> None:
    sch = tw.Schedule(ops.matmul_func(16, 32, 8))
    sch.unroll(sch.get_loops(sch.get_block("C"))[0])
    places = done(Workbench(sch, CPU), do="assembly")["places"].values()
    (copies,) = {len(place["lines"]) for place in places}
    assert copies == 16
    for place in places:
        named = " and ".join(f"{a + 1} to {b + 1}" for a, b in place["lines"][:MOST_RANGES])
        more = copies - MOST_RANGES
        assert place["says"].endswith(f" run lines {named} and {more} more ranges.")


def test_lines_of_loops_in_blocks_are_of_the_loop_in_the_tree() -> None:
    sch = tw.Schedule(ops.matmul_func(16, 32, 8))
    sch.blockize(sch.get_loops(sch.get_block("C"))[1])
    bench = Workbench(sch, CPU)
    found = done(bench, do="assembly")
    nodes = [n["id"] for n in bench.state()["tree"]["nodes"] if n["kind"] == "loop"]
    assert set(found["loops"]) == {None, *nodes}
    assert set(found["places"]) == set(nodes)
    ((first, last),) = found["places"][nodes[0]]["lines"]
    assert first <= found["hot"][0] <= found["hot"][1] <= last


def test_code_that_does_not_tell_its_loops_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuGenerator, "loops_of_lines", CodeGenerator.loops_of_lines)
    found = done(Workbench(vectorized(), CPU), do="assembly")
    assert found["loops"] is None
    assert found["places"] == {}
    assert found["unknown"] == "This code does not tell which loop a line is of."


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


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "cuda"])
def test_each_pass_and_text_says_why_in_a_sentence(target: tw.Target) -> None:
    generator = generator_for(target)
    whys = {step.name: step.why for step in generator.passes(target)}
    whys |= {name: source.why for name, source in generator.sources.items()}
    assert len(set(whys.values())) == len(whys)
    for name, why in whys.items():
        assert re.fullmatch(r"[A-Z][^.]+[^.\s]\.", why), name
        assert re.search(r"\b(so that|as|for|after)\b", why), name


def test_a_pass_without_a_reason_cannot_be_listed() -> None:
    with pytest.raises(TypeError, match="why"):
        Pass("blocks", blocks)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="the pass blocks: expected a sentence"):
        Pass("blocks", blocks, " ")


def test_stages_have_the_numbers_of_their_program() -> None:
    sch = vectorized()
    loop, *_ = sch.get_loops(sch.get_block("C"))
    sch.split(loop, factors=[16, 1])
    stages = {s["name"]: s for s in done(Workbench(sch, CPU), do="lowering")["stages"]}
    assert {"1 block", "5 loops", "1 loop of extent 1"} <= set(stages["scheduled"]["facts"])
    assert {"1 block removed", "1 loop of extent 1 removed"} <= set(stages["blocks"]["facts"])
    wanted = {"2 vectorized loops removed", "from 2 to 8 stores", "8 vector stores added"}
    assert wanted <= set(stages["vectorize"]["facts"])
    assert stages["peel"]["facts"] == []
    for name in ("emit", "asm"):
        counted = [f for f in stages[name]["facts"] if re.fullmatch(r"\d+ instructions", f)]
        assert len(counted) == 1


def test_what_llvm_optimises_is_counted_and_why() -> None:
    sch = vectorized()
    bench = Workbench(sch, CPU)
    stages = {s["name"]: s for s in done(bench, do="lowering")["stages"]}
    emitted, optimised = stages["emit"], stages["llvm"]
    before = [x["text"] for x in done(bench, do="stage", number=emitted["number"])["lines"]]
    after = [x["text"] for x in done(bench, do="stage", number=optimised["number"])["lines"]]
    assert any("define i32 @matmul" in line for line in before)
    assert any("define" in line and "@matmul" in line for line in after)
    assert before != after
    counts = [sum(line.startswith("  ") for line in lines) for lines in (before, after)]
    assert f"from {counts[0]} to {counts[1]} instructions" in optimised["facts"]
    assert "Four passes run" in optimised["why"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"loop{s} of extent 1": 3}, {"loop{s} of extent 1": 0}, "3 loops of extent 1 removed"),
        ({"branch{es}": 0}, {"branch{es}": 2}, "2 branches added"),
        ({"store{s}": 4}, {"store{s}": 1}, "from 4 to 1 store"),
    ],
)
def test_differences_in_words(before: dict[str, int], after: dict[str, int], said: str) -> None:
    assert list(differences(before, after)) == [said]
    assert list(differences(after, after)) == []


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


def test_the_figure_of_the_roofline_has_every_version() -> None:
    bench = Workbench(ops.matmul_func(64, 64, 64), CPU)
    for size in range(2, 22):
        done(bench, do="apply", op="split", args={"loop": "L0", "factors": [None, size]})
        done(bench, do="undo")
    measured = [version for version in bench.versions if version.id in ("v3", "v5")]
    for version in measured:
        version.timing = Timing(1e-4, (1e-4,), True)
    done(bench, do="go", version="v1")
    html = html5lib.parse(done(bench, do="roofline")["html"], namespaceHTMLElements=False)
    kinds = {path.get("class") for path in html.iter(SVG + "path")}
    assert {"points c0", "points c1"} <= kinds
    drawn = {f"{t.text}" for t in html.iter(SVG + "text")}
    assert {"v3 100 us", "v5 100 us"} <= drawn
    predicted = [v for v in bench.versions if v not in measured]
    rows = {e.text for e in html.iter("th") if e.get("scope") == "row"}
    texts = {f"{v.id} {format_seconds(v.predicted)}, predicted" for v in predicted if v.predicted}
    assert len(texts) == 19
    assert texts <= rows
    (current,) = (text for text in texts if text.startswith("v1 "))
    assert current in drawn
    assert len(drawn & texts) == 10
    legend = [words(e) for e in html.iter("li")]
    assert legend == ["measured", "predicted"]


def test_a_program_without_arithmetic_has_a_roofline() -> None:
    found = done(Workbench(ops.transpose_func(1024, 1024), CPU), do="roofline")
    assert found["bound"] == "memory"
    assert found["flops"] == 0
    assert found["peak"] is None
    assert found["points"][0]["rate"] == 0


def test_what_was_in_a_branch_that_is_gone_stands_below_it() -> None:
    before = ["for i in 4:", "    if i < 3:", "        for j in 8:", "            A[i, j] = 0"]
    after = ["for i in 4:", "    for j in 8:", "        A[i, j] = 0"]
    removed = [(change.sign, change.text) for change in line_changes(before, after)]
    assert removed == [(" ", before[0]), ("-", before[1]), (" ", before[2])]
    added = [(change.sign, change.text) for change in line_changes(after, before)]
    assert added == [(" ", before[0]), ("+", before[1]), (" ", before[2])]


def test_the_reason_for_tails_covers_guards_that_others_imply() -> None:
    why = {step.name: step.why for step in generator_for(CPU).passes(CPU)}["tails"]
    assert "whole tiles and a tail" in why
    assert "a guard that others imply is dropped" in why
