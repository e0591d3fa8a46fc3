"""Traces: JSON that is checked strictly, Python text that runs, replay on other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule, Trace
from tilewright.schedule.find import map_blocks
from tilewright.tir import te
from tilewright.tir.ir import Func, Label

from ..refusals import refused
from .machinery import assert_same
from .programs import elementwise, loops, matmul


def tiled() -> Schedule:
    sch = Schedule(matmul())
    block = sch.get_block("C")
    i, j, r = sch.get_loops(block)
    i0, i1 = sch.split(i, factors=sch.sample_perfect_tile(i, n=2, decision=[4]))
    sch.reorder(i0, j, r, i1)
    sch.annotate(r, "note", {"a": [1, None]})
    return sch


def document() -> Any:
    return json.loads(tiled().trace.to_json())


def test_json_is_readable_and_versioned() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    sch.split(i, factors=[None, 8])
    assert json.loads(sch.trace.to_json()) == {
        "version": 1,
        "steps": [
            {"op": "get_block", "args": {"block": 0}, "out": ["b0"], "note": "B"},
            {"op": "get_loops", "args": {"block": {"v": "b0"}}, "out": ["l1", "l2"]},
            {
                "op": "split",
                "args": {"loop": {"v": "l1"}, "factors": [None, 8]},
                "out": ["l3", "l4"],
            },
        ],
    }


def test_python_text_reads_as_written() -> None:
    assert str(tiled().trace).splitlines() == [
        "b0 = sch.get_block(0)  # C",
        "l1, l2, l3 = sch.get_loops(b0)",
        "t4, t5 = sch.sample_perfect_tile(l1, n=2, max_innermost_factor=16, decision=[4])",
        "l6, l7 = sch.split(l1, factors=[t4, t5])",
        "sch.reorder(l6, l2, l3, l7)",
        "sch.annotate(l3, key='note', value={'a': [1, None]})",
    ]


def test_a_handle_keeps_its_first_name() -> None:
    sch = Schedule(elementwise())
    i, j = loops(sch, "B")
    again = loops(sch, "B")
    assert again[0] is i
    sch.reorder(j, i)
    assert str(sch.trace).splitlines() == [
        "b0 = sch.get_block(0)  # B",
        "l1, l2 = sch.get_loops(b0)",
        "b3 = sch.get_block(0)  # B",
        "l4, l5 = sch.get_loops(b0)",
        "sch.reorder(l2, l1)",
    ]


def test_one_output_in_a_tuple_is_unpacked() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    (outer,) = sch.split(i, factors=[None])
    assert str(sch.trace).splitlines()[-1] == "l3, = sch.split(l1, factors=[None])"
    fresh = Schedule(sch.original)
    exec(str(sch.trace), {"sch": fresh})
    assert fresh.trace == sch.trace
    assert outer.name == "i_0"


def renamed() -> Func:
    a = te.placeholder((8, 10), "int32", name="left")
    b = te.placeholder((10, 12), "int32", name="right")
    k = te.reduce_axis(10, name="k")
    c = te.compute((8, 12), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="product")
    return te.func([a, b, c], name="multiply")


def test_a_trace_applies_to_a_renamed_program() -> None:
    sch = tiled()
    assert_same(sch.trace.apply(renamed()).func, sch.func)


def test_a_trace_that_does_not_fit_is_refused() -> None:
    with refused(ScheduleError, "i_t1", "4"):
        tiled().trace.apply(matmul(n=9))


def test_notes_are_no_part_of_a_trace() -> None:
    trace = tiled().trace
    bare = trace.to_json(notes=False)
    assert '"C"' not in bare
    assert Trace.from_json(bare) == trace


def test_an_empty_trace() -> None:
    trace = Trace()
    assert Trace.from_json(trace.to_json()) == trace
    assert str(trace) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a trace"),
        ("null", "not a trace"),
        ('{"version":1}', "not a trace"),
        ('{"version":"1","steps":[]}', "not a trace"),
        ('{"version":true,"steps":[]}', "not a trace"),
        ('{"version":0,"steps":[]}', "not a trace"),
        ('{"version":1,"steps":{}}', "not a trace"),
        ('{"version":1,"steps":[],"more":1}', "not a trace"),
        ('{"version":1,"steps":[[]]}', r"step 0 of the trace: not a step: \[\]"),
        ('{"version":2,"steps":[]}', "of version 2, this program reads up to 1"),
        ("[" * 100000, "not JSON"),
        ("1" * 5000, "not JSON|no trace"),
        (" " * (5 << 20), "a trace of 5242880 bytes"),
        (json.dumps({"version": 1, "steps": [{}] * 5000}), "a trace of 5000 steps"),
    ],
)
def test_documents_that_are_no_traces(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Trace.from_json(text)


def change(step: int, key: str, value: Any) -> Callable[[Any], None]:
    def apply(data: Any) -> None:
        data["steps"][step][key] = value

    return apply


def argument(step: int, key: str, value: Any) -> Callable[[Any], None]:
    def apply(data: Any) -> None:
        data["steps"][step]["args"][key] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (change(0, "op", "__import__"), "unknown primitive '__import__'; there are .*annotate"),
        (change(0, "op", "copy"), "unknown primitive 'copy'"),
        (change(0, "op", 3), "a step has `op`"),
        (change(0, "args", []), "a step has `op`"),
        (change(0, "more", 1), "not a step"),
        (change(0, "out", ["b1"]), "output 'b1' is out of order"),
        (change(0, "out", ["x0"]), "output 'x0' is out of order"),
        (change(0, "out", "b0"), "`out` is a list"),
        (change(0, "out", [f"b{k}" for k in range(1025)]), "`out` is a list of at most 1024 names"),
        (change(0, "out", [0]), "output 0 is out of order"),
        (change(0, "note", "a\nimport os"), "`note` is a short printable text"),
        (change(0, "note", "n" * 999), "`note` is a short"),
        (change(0, "decision", [1]), "get_block takes no decision"),
        (change(2, "decision", ["4"]), "`decision` is a list of integers"),
        (change(2, "decision", [True]), "`decision` is a list of integers"),
        (change(2, "decision", 4), "`decision` is a list of integers"),
        (change(2, "decision", [1] * 1025), "`decision` is a list of integers"),
        (argument(0, "block", {"v": "b0"}), "no output 'b0' of an earlier step"),
        (argument(0, "block", 1.5), "block must be a text or a plain integer"),
        (argument(0, "other", 1), "get_block takes"),
        (argument(1, "block", {"v": "b5"}), "no output 'b5'"),
        (argument(1, "block", {"v": "l0"}), "no output 'l0'"),
        (argument(1, "block", {"v": "b-1"}), "no output"),
        (argument(1, "block", {"v": "b\u0660"}), "no output"),
        (argument(1, "block", 0), "block must be a block, found 0"),
        (argument(3, "loop", {"v": "b0"}), "loop must be a loop, found b0"),
        (argument(3, "factors", {"v": "t4"}), "factors must be a sequence"),
        (argument(3, "factors", [{"v": "l1"}, 2]), "factors must be a sequence"),
        (argument(3, "factors", ["2", 2]), "factors must be"),
        (argument(3, "factors", [1 << 70, 2]), "out of range"),
        (argument(3, "factors", [1] * 300), "a list of 300 items"),
        (argument(3, "factors", [{"e": ["**", 2, 2]}]), "cannot hold"),
        (argument(3, "factors", [{"e": ["*", "2", 2]}]), "cannot hold"),
        (argument(3, "factors", [{"x": 1}]), "cannot hold"),
        (argument(4, "loops", {"v": "l1"}), "loops must be a loop|must be"),
        (lambda data: data["steps"][4]["args"].clear(), "loops is missing"),
        (argument(5, "key", "k" * 5000), "a text of 5000 characters"),
        (argument(5, "value", {"v": 3}), "cannot hold"),
    ],
)  # fmt: skip
def test_steps_that_make_no_sense(damage: Callable[[Any], None], message: str) -> None:
    data = document()
    damage(data)
    with pytest.raises(ScheduleError, match=message) as refusal:
        Trace.from_json(json.dumps(data))
    assert "of the trace" in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        "lambda i, j: (i, j))\nopen('executed', 'w'",
        "lambda i, j: (i, j)  # no end",
        "lambda i, j: (i,\n j)",
        "lambda i, j: (i, open('executed', 'w'))",
        "lambda i, j: (i, t3)",
    ],
)
def test_an_index_map_of_a_trace_stays_in_its_statement(text: str) -> None:
    sch = Schedule(elementwise())
    sch.transform_block_layout(sch.get_block("B"), lambda i, j: (j, i))
    data = json.loads(sch.trace.to_json())
    assert Trace.from_json(json.dumps(data)) == sch.trace
    data["steps"][1]["args"]["index_map"]["map"] = text
    with pytest.raises(ScheduleError):
        Trace.from_json(json.dumps(data))


@pytest.mark.parametrize("name", ["a\nimport os", "b" * 1000, "a\r\x1b[2J"])
def test_notes_stay_in_their_lines(name: str) -> None:
    func = elementwise()
    body = map_blocks(func.body, lambda block: replace(block, label=Label(name)))
    sch = Schedule(replace(func, name=name, body=body))
    sch.work_on(0)
    sch.get_block(name)
    step = replace(sch.trace.steps[1], note=name)
    for trace in (sch.trace, Trace((sch.trace.steps[0], step))):
        assert [line[:18] for line in str(trace).splitlines()] == [
            "sch.work_on(0)  # ",
            "b0 = sch.get_block",
        ]
    assert Trace.from_json(sch.trace.to_json()) == sch.trace


def test_values_nest_only_so_deep() -> None:
    data = document()
    value: Any = 1
    for _ in range(40):
        value = [value]
    data["steps"][5]["args"]["value"] = value
    with pytest.raises(ScheduleError):
        Trace.from_json(json.dumps(data))


@pytest.mark.parametrize("constant", ["NaN", "Infinity"])
def test_numbers_are_finite(constant: str) -> None:
    text = tiled().trace.to_json().replace("null", constant)
    with pytest.raises(ScheduleError):
        Trace.from_json(text)


def test_outputs_that_a_step_does_not_have_are_refused_on_replay() -> None:
    data = document()
    data["steps"][1]["out"] = ["l1", "l2", "l3", "l4"]
    for step in data["steps"][2:]:
        step.pop("out", None)
    data["steps"] = data["steps"][:2]
    trace = Trace.from_json(json.dumps(data))
    with pytest.raises(ScheduleError):
        trace.apply(matmul())


def test_a_hostile_unroll_is_refused_on_replay() -> None:
    sch = Schedule(elementwise(10**9, 1))
    i, _ = loops(sch, "B")
    data = json.loads(sch.trace.to_json())
    data["steps"].append({"op": "unroll", "args": {"loop": {"v": "l1"}}})
    assert i.name == "i"
    with pytest.raises(ScheduleError):
        Trace.from_json(json.dumps(data)).apply(sch.original)


def test_products_beyond_integers_are_refused() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.split(i, factors=[1 << 40, 1 << 40])


def test_division_by_zero_is_refused() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    t = sch.sample_categorical([4])
    sch.split(i, factors=[None, 8 // t])
    data = json.loads(sch.trace.to_json())
    data["steps"][3]["args"]["factors"][1]["e"] = ["//", 8, 0]
    with refused(ScheduleError, "(8 // 0)"):
        Trace.from_json(json.dumps(data)).apply(sch.original)
