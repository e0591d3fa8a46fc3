"""Sliders: what they say of a row of values is what the search computes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.model.loop_footprints import footprints
from tilewright.autotune.model.target_model import model_for
from tilewright.autotune.search.candidates import Rows, Rowspace
from tilewright.autotune.search.drawing import drawn_of_each
from tilewright.autotune.search.search import Search
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.codegen.detect import resolve
from tilewright.lab.workbench.slider_steps import opened_trace
from tilewright.lab.workbench.sliders import FIXED, MOST, UNLIKE, Sliders
from tilewright.lab.workbench.workbench import Workbench
from tilewright.target import CpuTarget
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Dim, Func, Var
from tilewright.tir.printer import loop_names

from ..autotune.selection import operator, operator_name, selected
from .commands import done, refused

TARGET = resolve("cpu -mcpu=znver4 -threads=2")
TARGETS = [TARGET, resolve("cuda -arch=sm_90")]
DRAWN = [1, 7, 12, 16, 26, 29, 31]
"""Operators: products, convolutions, rows, elementwise, a reduction."""


def tiled(n: int = 128, m: int = 96, *, perfect: bool = False) -> tw.Schedule:
    sch = tw.Schedule(ops.matmul_func(n, m, 64))
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, factors=[None, 8])
    j0, j1 = sch.split(j, factors=[None, 32])
    k0, k1 = sch.split(k, factors=[None, 4], perfect=perfect)
    sch.reorder(i0, j0, k0, k1, i1, j1)
    sch.parallel(i0)
    sch.unroll(i1)
    sch.vectorize(j1)
    return sch


def bound() -> tw.Schedule:
    """A product by hand, in tiles of 8 rows and 32 columns for the threads of a block."""
    sch = tw.Schedule(ops.matmul_func(128, 96, 64))
    i, j, _ = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, factors=[None, 8])
    j0, j1 = sch.split(j, factors=[None, 32])
    sch.reorder(i0, j0, i1, j1)
    for loop, axis in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.y")):
        sch.bind(loop, axis)
    sch.bind(j1, "threadIdx.x")
    return sch


@pytest.mark.parametrize("target", TARGETS, ids=["cpu", "cuda"])
def test_parts_of_a_loop_begin_where_the_sliders_say(target: tw.Target) -> None:
    """The guard of the last part has the number of iterations before it, which is a decision."""
    sch = tw.Schedule(ops.add_relu_func(9))
    (i,) = sch.get_loops(sch.get_block(0))
    outer, _ = sch.split(i, factors=[None, 2], perfect=False)
    sch.loop_partition(outer)
    bench = Workbench(sch, target)
    (slider,) = done(bench, do="sliders")["sliders"]
    found = done(bench, do="figures", values=[slider["value"]])
    assert found["valid"]
    assert found["predicted"] is not None


@pytest.mark.parametrize("target", TARGETS, ids=["cpu", "cuda"])
def test_the_figures_equal_those_of_the_search(target: tw.Target) -> None:
    sch = tiled() if target.kind == "cpu" else bound()
    bench = Workbench(sch, target)
    sliders = Sliders(sch, target)
    search = Search(bench.func, target, prepared=[sliders.sketch], seed=1)
    model = model_for(target)
    asked = search.ask(12)
    assert len(asked) == 12
    for candidate in asked:
        found = done(bench, do="figures", values=list(candidate.row))
        assert found["valid"]
        features = np.array(candidate.features[: len(model.features)])
        assert found["figures"] == [
            {"name": f.name, "value": f.value, "unit": f.unit, "of": f.of, "exceeds": f.exceeds}
            for f in model.figures(features, target)
        ]
        assert np.log2(found["predicted"]) == pytest.approx(candidate.features[0], abs=1e-5)
        program = candidate.trace.apply(bench.func).func
        seconds = model.estimate(program, target).seconds
        assert found["predicted"] == pytest.approx(seconds, rel=1e-12)


def test_each_target_has_its_own_sketches() -> None:
    small = replace(CpuTarget.of(TARGET), l1_bytes=4096, l2_bytes=16384, l3_bytes=65536)
    assert small == TARGET, "caches do not compare"
    func = ops.matmul_func(256, 256, 256)
    for target in (TARGET, small):
        prepared = sketches(func, target, inexact=True)
        drawn = drawn_of_each(prepared, target, 1, seed=1)
        assert all(Sliders(d.trace.apply(func), target).searched for d in drawn)


def predicted_of(schedule: tw.Schedule, target: tw.Target) -> float:
    return model_for(target).estimate(schedule.func, target).seconds


@pytest.mark.part(2)
@pytest.mark.parametrize("target", TARGETS, ids=["cpu", "cuda"])
@pytest.mark.parametrize("number", DRAWN, ids=operator_name)
def test_the_figures_of_candidates_equal_those_of_the_search(
    number: int, target: tw.Target
) -> None:
    func = operator(number)
    bench = Workbench(func, target)
    for sketch in selected(func, target):
        for drawn in drawn_of_each([sketch], target, 2, seed=1):
            schedule = drawn.trace.apply(func)
            if not schedule.trace.decisions:
                continue
            version = bench.add(bench.versions.root, "drawn", schedule)
            found = done(bench, do="sliders", version=version.id)
            assert found["valid"]
            assert found["predicted"] == pytest.approx(drawn.predicted, rel=1e-9)
            assert found["predicted"] == pytest.approx(version.predicted, rel=1e-9)
            assert {c["why"] for c in found["closed"]} <= {FIXED}
            assert all(a["why"] is None for a in found["around"])


@pytest.mark.part(2)
@pytest.mark.parametrize("target", TARGETS, ids=["cpu", "cuda"])
@pytest.mark.parametrize("number", DRAWN, ids=operator_name)
def test_the_figures_of_default_schedules_equal_their_predictions(
    number: int, target: tw.Target
) -> None:
    func = operator(number)
    schedule = default_trace(func, target).apply(func)
    found = done(Workbench(schedule, target), do="sliders")
    assert found["predicted"] == pytest.approx(predicted_of(schedule, target), rel=1e-9)


def packed() -> tuple[Sketch, tw.Schedule]:
    """A product that reads packed panels, of a sketch whose lanes other steps rest on."""
    func = ops.matmul_func(512, 512, 512)
    sketch = next(s for s in sketches(func, TARGET) if "pack=[[1, 1]]" in s.generator)
    (row,) = Rowspace(sketch).sample(np.random.default_rng(1), 1).tolist()
    return sketch, sketch.trace.with_row(row).apply(func)


def test_what_the_search_would_not_try_is_marked() -> None:
    sketch, schedule = packed()
    bench, sliders = Workbench(schedule, TARGET), Sliders(schedule, TARGET)
    good = done(bench, do="sliders")
    assert good["pruned"] == []
    for n, (slider, around) in enumerate(zip(sliders.sliders, good["around"], strict=True)):
        rows: Rows = np.repeat([sliders.row], len(slider.values), axis=0)
        rows[:, n] = slider.values
        tried = Rowspace(sketch).check(rows).tolist()
        both = zip(around["valid"], around["pruned"], strict=True)
        assert [valid and not pruned for valid, pruned in both] == tried
    most = [s.values[-1] for s in sliders.sliders]
    assert (
        "the register tile fits the registers" in done(bench, do="figures", values=most)["pruned"]
    )


def test_what_cannot_be_built_is_marked_in_schedules_by_hand() -> None:
    schedule, target, row = bound(), TARGETS[1], [64, 32]
    bench, sliders = Workbench(schedule, target), Sliders(schedule, target)
    assert not sliders.searched
    assert done(bench, do="sliders")["pruned"] == []
    found = done(bench, do="figures", values=row)
    assert found["pruned"] == ["a block has no more threads than the device runs"]
    assert found["valid"]
    for n, slider in enumerate(sliders.sliders):
        marks = dict(zip(slider.values, found["around"][n]["pruned"], strict=True))
        assert marks[row[n]]
    assert not all(all(around["pruned"]) for around in found["around"])


def test_long_straight_code_is_not_marked() -> None:
    found = done(Workbench(tiled(512, 512), TARGET), do="figures", values=[512, 128, 4])
    assert found["valid"]
    assert found["pruned"] == []


def test_where_open_sizes_hide_an_order_there_are_no_wrong_predictions() -> None:
    """With lanes and panels open, panels seem to be read in no order."""
    sch = tw.Schedule(ops.matmul_func(512, 512, 512))
    block = sch.get_block("C")
    sch.pack(block, read_buffer_index=1, layout="BAb", factors=[32])
    i, j, k = sch.get_loops(block)
    j0, j1, j2 = sch.split(j, factors=[None, 2, 16])
    sch.reorder(i, j0, k, j1, j2)
    sch.vectorize(j2)
    bench = Workbench(sch, TARGET)
    found = done(bench, do="sliders")
    assert found["predicted"] == pytest.approx(predicted_of(sch, TARGET), rel=1e-9)
    assert {a["why"] for a in found["around"]} == {UNLIKE}
    assert all(set(a["predicted"]) == {None} for a in found["around"])
    other = done(bench, do="figures", values=[32, 4, 8])
    after = Sliders(sch, TARGET).schedule([32, 4, 8])
    assert other["predicted"] == pytest.approx(predicted_of(after, TARGET), rel=1e-9)


def test_what_loops_touch_is_that_of_the_program() -> None:
    bench = Workbench(tiled(), TARGET)
    found = done(bench, do="figures", values=[16, 48, 8])
    done(bench, do="slide", values=[16, 48, 8])
    func = bench.versions.current.schedule.func
    names = loop_names(func)
    expected = {
        names[loop]: {b.name: f.bytes for b, f in touched.items()}
        for loop, touched in footprints(func, TARGET).items()
    }
    shown = {
        loop["loop"]: {b["name"]: b["bytes"] for held in loop["held"] for b in held["buffers"]}
        for loop in found["loops"]
    }
    assert shown == expected


def test_figures_are_in_units_of_the_machine() -> None:
    found = done(Workbench(tiled(), TARGET), do="sliders")
    figures = {f["name"]: f for f in found["figures"]}
    assert figures["accumulators"]["value"] == 16  # 8 rows of 32 columns in vectors of 16
    assert figures["accumulators"]["of"] == 32
    assert figures["vectors"]["value"] == 1024  # 32 lanes of float32
    assert figures["vectors"]["unit"] == "bits in registers of 512"
    assert figures["unrolled"]["value"] == 8
    assert not figures["accumulators"]["exceeds"]
    wide = done(Workbench(tiled(), TARGET), do="figures", values=[64, 96, 4])
    assert {f["name"]: f for f in wide["figures"]}["accumulators"]["exceeds"]


def test_sliders_have_labels_and_values() -> None:
    found = done(Workbench(tiled(), TARGET), do="sliders")
    assert [(s["label"], s["value"]) for s in found["sliders"]] == [
        ("split(i) factors[1]", 8),
        ("split(j) factors[1]", 32),
        ("split(k) factors[1]", 4),
    ]
    assert found["values"] == [8, 32, 4]
    assert set(found["sliders"][1]["values"]) >= {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96, 64}
    assert max(found["sliders"][1]["values"]) == 96


def test_loops_of_one_name_are_told_apart() -> None:
    a = te.placeholder((64, 64), "float32", name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((64, 64), lambda i, j: te.exp(b[i, j]), name="C")
    sch = tw.Schedule(te.func([a, c]))
    for block in "BC":
        sch.split(sch.get_loops(sch.get_block(block))[0], factors=[None, 8])
    sch.split(sch.get_loops(sch.get_block("C"))[2], factors=[None, 16])
    found = done(Workbench(sch, TARGET), do="sliders")
    assert [s["label"] for s in found["sliders"]] == [
        "split(i of B) factors[1]",
        "split(i of C) factors[1]",
        "split(j) factors[1]",
    ]


def test_values_that_break_a_constraint_say_which() -> None:
    bench = Workbench(tiled(perfect=True), TARGET)
    found = done(bench, do="figures", values=[8, 32, 3])
    assert found["valid"] is False
    assert found["predicted"] is None
    assert "factor 3 does not divide extent 64" in found["error"]["text"]
    values = done(bench, do="sliders")["sliders"][2]["values"]
    legal = dict(zip(values, found["around"][2]["valid"], strict=True))
    assert legal == {v: 64 % v == 0 for v in values}
    assert refused(bench, do="slide", values=[8, 32, 3])["text"] == found["error"]["text"]


def test_around_a_row_are_the_figures_of_its_neighbours() -> None:
    bench = Workbench(tiled(), TARGET)
    found = done(bench, do="sliders")
    for n, (slider, around) in enumerate(zip(found["sliders"], found["around"], strict=True)):
        for value, predicted in zip(slider["values"], around["predicted"], strict=True):
            row = [*found["values"][:n], value, *found["values"][n + 1 :]]
            other = done(bench, do="figures", values=row)
            assert other["predicted"] == pytest.approx(predicted, rel=1e-12)


def test_a_slide_is_a_version_with_other_numbers() -> None:
    bench = Workbench(tiled(), TARGET)
    found = done(bench, do="figures", values=[16, 48, 8])
    done(bench, do="slide", values=[16, 48, 8])
    version = bench.versions.current
    expected = "split(i) factors[1] = 16, split(j) factors[1] = 48, split(k) factors[1] = 8"
    assert version.text == expected
    assert version.predicted == found["predicted"]
    assert "factors=[None, 48]" in str(version.schedule.trace)
    assert "sample" not in str(version.schedule.trace)
    assert [v["parent"] for v in bench.state()["versions"]] == [None, "v0", "v1"]
    assert "these are the sizes" in refused(bench, do="slide", values=[16, 48, 8])["text"]


def test_sampled_decisions_are_sliders_too() -> None:
    func = ops.matmul_func(128, 96, 64)
    schedule = default_trace(func, TARGET).apply(func)
    sliders = Sliders(schedule, TARGET)
    labels = [s.label for s in sliders.sliders]
    assert len([s for s in sliders.sliders if not s.argument]) == sum(
        len(d) for d in schedule.trace.decisions.values()
    )
    assert all("factors[" in label for label in labels)
    again = sliders.schedule(sliders.row)
    assert again.trace == schedule.trace


def test_what_is_computed_with_a_number_names_it() -> None:
    sch = tw.Schedule(ops.matmul_func(128, 96, 64))
    count = sch.sample_categorical([1, 2, 4])
    (i, *_) = sch.get_loops(sch.get_block("C"))
    sch.split(i, factors=[None, count * 8 + 8])
    (slider,) = done(Workbench(sch, TARGET), do="sliders")["sliders"]
    assert slider["label"] == "split(i) factors[1]"


def test_the_opened_trace_makes_the_same_program() -> None:
    func = ops.matmul_func(128, 96, 64)
    for schedule in (tiled(), default_trace(func, TARGET).apply(func)):
        sliders = Sliders(schedule, TARGET)
        opened = opened_trace(schedule.trace, sliders.sliders).apply(schedule.original)
        assert structural_equal(opened.func, schedule.func)


def test_a_version_without_sizes_says_so() -> None:
    error = refused(Workbench(ops.matmul_func(64, 64, 64), TARGET), do="sliders")
    assert "no sizes to move" in error["text"]
    assert "split" in error["hint"]


def test_what_cannot_be_open_says_why() -> None:
    @tw.primitive
    def split_for_sure(fn: Func, loop: Var, by: Dim) -> tuple[Func, None]:
        """Split a loop by a number that is known."""
        tw.require(isinstance(by, int), "the size must be known")
        from tilewright.schedule.primitives import split

        return split(fn, loop, (None, by))[0], None

    from tilewright.schedule.primitive import PRIMITIVES

    try:
        sch = tiled()
        sch.split_for_sure(sch.get_loops(sch.get_block("C"))[1], by=2)
        found = done(Workbench(sch, TARGET), do="sliders")
    finally:
        del PRIMITIVES["split_for_sure"]
    assert len(found["sliders"]) == 3
    assert [c["label"] for c in found["closed"]] == ["split_for_sure(j_0) by"]
    assert "the size must be known" in found["closed"][0]["why"]


def test_where_a_location_was_sampled_there_is_no_sketch() -> None:
    sch = tw.Schedule(ops.softmax_func(8, 16))
    sch.split(sch.get_loops(sch.get_block("Y"))[0], factors=[None, 4])
    block = sch.get_block("Y_max")
    sch.compute_at(block, sch.sample_compute_location(block))
    error = refused(Workbench(sch, TARGET), do="sliders")
    assert "cannot be left open" in error["text"]


@pytest.mark.parametrize(
    "values",
    [None, 8, "8", [], [8, 32], [8, 32, 4, 1], [8, 32, 5.0], [8, 32, True], [8, 32, 10**30],
     [8, 32, -4], [8, 32, "4"], [[8], 32, 4], {"0": 8}],
    ids=str,
)  # fmt: skip
def test_hostile_values_are_refused_as_data(values: Any) -> None:
    bench = Workbench(tiled(), TARGET)
    for command in ("figures", "slide"):
        assert refused(bench, do=command, values=values)["kind"] == "LabError"


def test_there_are_not_too_many_sliders() -> None:
    sch = tw.Schedule(ops.add_relu_func(2))
    loop = sch.get_loops(sch.get_block(0))[0]
    for _ in range(MOST + 3):
        loop, _ = sch.split(loop, factors=[None, 1])
    found = done(Workbench(sch, TARGET), do="sliders")
    assert len(found["sliders"]) == MOST
    assert len(found["closed"]) == 3


def test_parts_of_different_lengths_are_legal() -> None:
    """A sketch, whose sizes are open, has parts of equal length."""
    sch = tw.Schedule(ops.matmul_func(16, 16, 32))
    _, _, k = sch.get_loops(sch.get_block("C"))
    sch.split_reduction(k, parts=8)
    bench = Workbench(sch, TARGET)
    (slider,) = done(bench, do="sliders")["sliders"]
    assert {2, 3, 4, 5, 9, 11, 16, 32} <= set(slider["values"])
    around = done(bench, do="figures", version="v1", values=[8])["around"][0]
    for value, marked in zip(slider["values"], around["valid"], strict=True):
        figures = done(bench, do="figures", version="v1", values=[value])
        slid = value == 8 or bench.do({"do": "slide", "version": "v1", "values": [value]})["ok"]
        assert figures["valid"] == marked == slid, value
        assert (figures["predicted"] is not None) == marked
        if not marked:
            assert "choice" not in figures["error"]["text"]
        elif slid and value != 8:
            assert figures["predicted"] == pytest.approx(bench.versions.current.predicted)
