"""The model of the lab: versions, legal moves, refusals as data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.model.cpu import estimate
from tilewright.autotune.model.profile import Profile, profile
from tilewright.autotune.model.target_model import Estimate, model_for
from tilewright.codegen.detect import resolve
from tilewright.lab.workbench import versions, workbench
from tilewright.lab.workbench.commands import COMMANDS, PAGE
from tilewright.lab.workbench.versions import MOST
from tilewright.lab.workbench.workbench import Workbench
from tilewright.schedule import find
from tilewright.schedule.primitive import PRIMITIVES
from tilewright.tir import printer

from ..layers import LAYERS
from ..long import examples
from .commands import done

TARGET = "cpu -mcpu=znver4 -threads=2"
Data = dict[str, Any]


@pytest.fixture
def bench() -> Workbench:
    return Workbench(ops.matmul_func(64, 48, 32), TARGET)


def refused(bench: Workbench, command: Any) -> Data:
    before = bench.state()
    answer = json.loads(json.dumps(bench.do(command), allow_nan=False))
    assert not answer["ok"]
    assert bench.state() == before
    error: Data = answer["error"]
    return error


def place(bench: Workbench, name: str) -> str:
    nodes = bench.state()["tree"]["nodes"]
    (id,) = [n["id"] for n in nodes if n.get("name") == name]
    return str(id)


def found(bench: Workbench, at: str | None) -> list[Data]:
    moves: list[Data] = done(bench, do="moves", place=at)["moves"]
    return moves


def test_the_tree_has_loops_and_blocks(bench: Workbench) -> None:
    state = json.loads(json.dumps(bench.state(), allow_nan=False))
    nodes = state["tree"]["nodes"]
    assert [(n["kind"], n["name"], n["depth"]) for n in nodes] == [
        ("loop", "i", 0),
        ("loop", "j", 1),
        ("loop", "k", 2),
        ("block", "C", 3),
    ]
    assert [n["extent"] for n in nodes[:3]] == [64, 48, 32]
    assert [n["badges"] for n in nodes[:3]] == [[], [], ["reduction"]]
    assert nodes[3]["writes"] == ["C"]
    assert nodes[3]["text"] == "C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]"
    assert [i["kind"] for i in nodes[3]["iters"]] == ["spatial", "spatial", "reduce"]
    lines = state["text"]["lines"]
    assert [lines[n["line"]]["place"] for n in nodes] == [n["id"] for n in nodes]
    assert tw.script("\n".join(line["text"] for line in lines)).name == "matmul"
    assert nodes[2]["held"][0]["memory"] == "L1"
    assert {b["name"]: b["bytes"] for b in nodes[2]["held"][0]["buffers"]} == dict.fromkeys(
        "ABC", 4
    )


def test_a_program_that_is_built_as_several_kernels_says_so() -> None:
    func = LAYERS["two_layers"]()
    assert Workbench(func, TARGET).state()["kernels"] == ["mlp_0", "mlp_1"]
    for one in tw.kernels(func, TARGET).values():
        assert Workbench(one, TARGET).state()["kernels"] == []


def costliest(bench: Workbench) -> str:
    """The text of the statement below the loops of the nest at which a version is opened."""
    state = bench.state()
    nodes, at = state["tree"]["nodes"], state["costliest"]
    assert nodes[at["node"]]["id"] == at["place"]
    return str(next(n["name"] for n in nodes[at["node"] :] if n["kind"] == "block"))


TWO_NESTS = """
@tw.script
def two(A: T.Buffer((512,), "float32"), B: T.Buffer(({0},), "float32")):
    T.inplace(A, B)
    for i in T.grid(512):
        with T.block("first"):
            vi = T.axis.spatial(512, i)
            A[vi] = T.exp(A[vi])
    for i in T.grid({0}):
        with T.block("second"):
            vi = T.axis.spatial({0}, i)
            B[vi] = T.exp(B[vi])
"""


@pytest.mark.parametrize("target", [TARGET, "cuda -arch=sm_90"])
def test_a_program_is_opened_at_the_nest_that_takes_longest(target: str) -> None:
    bench = Workbench(ops.softmax_func(512, 512), target)
    assert bench.model is not None
    parts = bench.model.by_nest(bench.func, bench.target)
    longest = max(parts, key=parts.__getitem__)
    assert longest is not next(iter(parts)), "not the first one, else this shows nothing"
    assert bench.state()["costliest"]["place"] == bench.handles.id(longest)


def test_the_parts_of_nests_are_those_of_the_estimate() -> None:
    bench = Workbench(ops.softmax_func(512, 512), TARGET)
    assert bench.model is not None
    parts = bench.model.by_nest(bench.func, bench.target)
    read = profile(bench.func)
    numbers = estimate.Estimator(read, bench.target)._blocks
    assert list(parts.values()) == pytest.approx([block["seconds"] for block in numbers])
    assert sum(parts.values()) == pytest.approx(bench.predict(bench.func))


def test_what_a_call_takes_is_in_the_part_of_no_nest() -> None:
    func = tw.script(TWO_NESTS.format(600))

    def estimator(source: Profile, _: tw.Target) -> Any:
        visits = [float(v.extents[0]) for v in source.visits]
        return lambda rows: Estimate(np.full(len(rows), 10_000.0 + sum(visits)), rows)

    target = resolve(TARGET)
    parts = replace(model_for(target), estimator=estimator).by_nest(func, target)
    assert list(parts.values()) == pytest.approx([512.0, 600.0])


@pytest.mark.parametrize(("size", "name"), [(512, "first"), (540, "first"), (600, "second")])
def test_of_nests_that_take_as_long_the_first_is_the_costliest(size: int, name: str) -> None:
    assert costliest(Workbench(tw.script(TWO_NESTS.format(size)), TARGET)) == name


def test_each_version_has_a_costliest_nest() -> None:
    func = tw.script(TWO_NESTS.format(600))
    sch = tw.Schedule(func)
    (loop,) = sch.get_loops(sch.get_block("second"))
    sch.vectorize(sch.split(loop, factors=[None, 8])[1])
    bench = Workbench(sch, TARGET)
    assert costliest(bench) == "first"
    done(bench, do="go", version="v0")
    assert costliest(bench) == "second"


def test_without_predicted_times_the_first_nest_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    func = tw.script(TWO_NESTS.format(600))
    read = model_for(Workbench(func, TARGET).target)
    monkeypatch.setattr(workbench, "model_or_none", lambda _: None)
    assert costliest(Workbench(func, TARGET)) == "first"
    unknown = replace(read, estimator=lambda *_: lambda rows: Estimate(np.array([np.nan]), rows))
    monkeypatch.setattr(workbench, "model_or_none", lambda _: unknown)
    assert costliest(Workbench(func, TARGET)) == "first"


def test_legal_moves_have_text_time_and_a_sentence(bench: Workbench) -> None:
    moves = found(bench, place(bench, "i"))
    (split,) = [m for m in moves if m["text"] == "sch.split(i, factors=[None, 8])"]
    assert split["legal"] is True
    assert split["says"].startswith("Split a loop into nested loops")
    sch = tw.Schedule(bench.func)
    sch.split(sch.get_loop("i"), factors=[None, 8])
    assert split["predicted"] == bench.predict(sch.func)
    legal = [m["predicted"] for m in moves if m["legal"]]
    assert legal == sorted(legal)


def test_every_legal_move_can_be_applied(bench: Workbench) -> None:
    for name in "ijkC":
        moves = [m for m in found(bench, place(bench, name)) if m["legal"]]
        assert moves
        for move in moves:
            done(bench, do="apply", op=move["op"], args=move["args"])
            version = bench.versions.current
            assert version.text == move["text"]
            assert version.predicted == move["predicted"]
            done(bench, do="undo")


def test_illegal_moves_name_the_loop_in_the_way(bench: Workbench) -> None:
    (vectorize,) = [m for m in found(bench, place(bench, "i")) if m["op"] == "vectorize"]
    assert vectorize["legal"] is False
    assert vectorize["error"]["place"] == place(bench, "j")
    assert "loop j is inside" in vectorize["error"]["text"]
    (parallel,) = [m for m in found(bench, place(bench, "k")) if m["op"] == "parallel"]
    assert "rfactor" in parallel["error"]["hint"]


SCAN = """
@tw.script
def scan(A: T.Buffer((16, 16), "float32")):
    T.inplace(A)
    for i, j in T.grid(15, 15):
        with T.block("A"):
            vi, vj = T.axis.remap("OO", [i, j])
            A[vi + 1, vj] = A[vi, vj + 1] + 1.0
"""


def test_illegal_moves_show_the_iterations_that_clash() -> None:
    bench = Workbench(tw.script(SCAN), TARGET)
    (reorder,) = [m for m in found(bench, place(bench, "i")) if m["op"] == "reorder"]
    assert reorder["legal"] is False
    assert reorder["error"]["place"] == place(bench, "A")
    example = "iteration i=0, j=1 writes A[1, 1], iteration i=1, j=0 reads it"
    assert reorder["error"]["example"] == example


def test_moves_ask_for_what_cannot_be_completed(bench: Workbench) -> None:
    at = place(bench, "i")
    (annotate,) = [m for m in found(bench, at) if m["op"] == "annotate"]
    assert annotate["legal"] is None
    assert [n["name"] for n in annotate["needs"]] == ["key", "value"]
    args = {**annotate["args"], "key": "mine", "value": {"depth": [1, 2]}}
    done(bench, do="apply", op="annotate", args=args)
    assert "mine" in bench.state()["tree"]["nodes"][0]["badges"]
    assert [m["args"]["key"] for m in found(bench, at) if m["op"] == "unannotate"] == ["mine"]


def test_primitives_of_users_are_moves(bench: Workbench) -> None:
    exec(_MINE, {"__name__": "mine"})
    try:
        moves = [m for m in found(bench, place(bench, "i")) if m["op"] == "split_in_two"]
    finally:
        del PRIMITIVES["split_in_two"]
    assert [m["text"] for m in moves if m["legal"]][:2] == [
        "sch.split_in_two(i, by=8)",
        "sch.split_in_two(i, by=16)",
    ]
    assert {m["from"] for m in moves} == {"mine"}


_MINE = '''
import tilewright as tw
from tilewright.tir.ir import Dim, Func, Var
from tilewright.schedule.primitives import split

@tw.primitive
def split_in_two(fn: Func, loop: Var, by: Dim) -> tuple[Func, tuple[Var, ...]]:
    """Split a loop."""
    return split(fn, loop, (None, by))
'''


_BROKEN = '''
import tilewright as tw
from tilewright.tir.ir import Func, Var

@tw.primitive
def always_fails(fn: Func, loop: Var) -> tuple[Func, None]:
    """Divide by zero."""
    return fn if 1 // 0 else fn, None
'''


def test_a_primitive_that_fails_is_an_illegal_move(bench: Workbench) -> None:
    exec(_BROKEN, {"__name__": "mine"})
    try:
        (move,) = [m for m in found(bench, "L0") if m["op"] == "always_fails"]
        error = refused(bench, {"do": "apply", "op": "always_fails", "args": {"loop": "L0"}})
    finally:
        del PRIMITIVES["always_fails"]
    assert move["legal"] is False
    assert "always_fails of mine fails: ZeroDivisionError" in move["error"]["text"]
    assert "tw.require" in move["error"]["hint"]
    assert error["text"] == move["error"]["text"]


def test_moves_of_two_blocks_compute_one_inside_the_other() -> None:
    bench = Workbench(ops.softmax_func(8, 16), TARGET)
    moves = [m for node in bench.state()["tree"]["nodes"] for m in found(bench, node["id"])]
    legal = {m["op"] for m in moves if m["legal"]}
    assert {"compute_at", "reverse_compute_at", "merge", "fuse", "cache_read"} <= legal


def test_a_gpu_has_its_axes_and_scopes() -> None:
    bench = Workbench(ops.matmul_func(64, 64, 64), "cuda -arch=sm_90")
    moves = found(bench, place(bench, "i"))
    assert {m["args"]["thread_axis"] for m in moves if m["op"] == "bind"} >= {"blockIdx.x"}
    scopes = {m["args"].get("storage_scope") for m in found(bench, place(bench, "C"))}
    assert "shared" in scopes
    state = bench.state()["target"]
    assert state["model"]


def test_a_try_changes_nothing(bench: Workbench) -> None:
    before = bench.state()
    at = place(bench, "j")
    legal = done(bench, do="try", op="split", args={"loop": at, "factors": [None, 5]})
    assert legal["legal"]
    assert legal["text"] == "sch.split(j, factors=[None, 5])"
    bad = {"loop": at, "factors": [None, 5], "perfect": True}
    illegal = done(bench, do="try", op="split", args=bad)
    assert illegal["legal"] is False
    assert "does not divide" in illegal["error"]["text"]
    assert bench.state() == before


def test_undo_redo_and_branches(bench: Workbench) -> None:
    i = place(bench, "i")
    done(bench, do="apply", op="parallel", args={"loop": i})
    assert bench.state()["tree"]["nodes"][0]["badges"] == ["parallel"]
    assert place(bench, "i") == i
    done(bench, do="undo")
    assert bench.state()["can_redo"]
    assert not bench.state()["can_undo"]
    assert done(bench, do="redo") == {"version": "v1"}
    done(bench, do="undo")
    done(bench, do="apply", op="split", args={"loop": i, "factors": [None, 8]})
    state = bench.state()
    assert [(v["id"], v["parent"]) for v in state["versions"]] == [
        ("v0", None),
        ("v1", "v0"),
        ("v2", "v0"),
    ]
    assert not state["can_redo"]
    done(bench, do="go", version="v1")
    assert bench.state()["version"] == "v1"
    done(bench, do="undo")
    again = done(bench, do="apply", op="split", args={"loop": i, "factors": [None, 8]})
    assert again == {"version": "v2"}


ABOUT_A_VERSION: dict[str, Data] = {
    "assembly": {},
    "export": {},
    "figures": {"values": [8]},
    "lowering": {},
    "moves": {"place": "L0"},
    "roofline": {},
    "rule": {"name": "mine"},
    "sliders": {},
    "stage": {},
    "text": {},
    "tree": {},
    "try": {"op": "unroll", "args": {"loop": "L1"}},
}


@pytest.mark.parametrize("name", ABOUT_A_VERSION)
def test_commands_are_about_the_version_that_they_name(bench: Workbench, name: str) -> None:
    done(bench, do="apply", op="split", args={"loop": "L0", "factors": [None, 8]})
    command = {"do": name, **ABOUT_A_VERSION[name]}
    at_v1 = bench.do(command)
    assert at_v1["result"]["version"] == "v1"
    done(bench, do="undo")
    later = bench.do({**command, "version": "v1"})
    assert later == {**at_v1, "revision": bench.state()["revision"]}
    assert bench.do({**command, "version": "v0"}) != later
    assert "no version" in refused(bench, {**command, "version": "v9"})["text"]


def test_steps_of_an_older_version_make_a_branch(bench: Workbench) -> None:
    done(bench, do="apply", op="split", args={"loop": "L0", "factors": [None, 8]})
    done(bench, do="slide", version="v1", values=[16])
    done(bench, do="apply", version="v0", op="parallel", args={"loop": "L0"})
    done(bench, do="slide", version="v1", values=[4])
    parents = [v["parent"] for v in bench.state()["versions"]]
    assert parents == [None, "v0", "v1", "v0", "v1"]
    assert [v.text for v in bench.versions][3] == "sch.parallel(i)"


def test_programs_of_two_versions_differ_by_lines(bench: Workbench) -> None:
    done(bench, do="apply", op="parallel", args={"loop": place(bench, "i")})
    lines = done(bench, do="diff", a="v0", b="v1")["program"]
    added = [line["text"].strip() for line in lines if line["op"] == "+"]
    gone = [line["text"].strip() for line in lines if line["op"] == "-"]
    assert added == ["for i in T.parallel(64):"]
    assert gone == ["for i in range(64):"]


@pytest.mark.parametrize("of", ["program", "assembly"])
def test_differences_come_in_pages(bench: Workbench, of: str) -> None:
    done(bench, do="apply", op="parallel", args={"loop": place(bench, "i")})
    whole = done(bench, do="diff", a="v0", b="v1", of=of)
    total = whole["total"]
    assert total > 1
    pages = [done(bench, do="diff", a="v0", b="v1", of=of, start=n, count=1) for n in range(total)]
    assert [p[of][0] for p in pages[:PAGE]] == whole[of]
    assert {p["total"] for p in pages} == {total}
    assert [p["start"] for p in pages] == list(range(total))
    assert done(bench, do="diff", a="v0", b="v1", of=of, start=total)[of] == []


def test_stages_come_in_pages(bench: Workbench) -> None:
    stages = done(bench, do="lowering")["stages"]
    number = len(stages) - 1
    total = stages[number]["lines"]
    page = done(bench, do="stage", number=number, start=1, count=2)
    assert page["total"] == total > 2
    assert page["lines"] == done(bench, do="stage", number=number)["lines"][1:3]
    last = done(bench, do="stage", number=number, start=total - 1)
    assert len(last["lines"]) == 1


def test_versions_may_be_added_while_others_read_them(bench: Workbench) -> None:
    read = iter(bench.versions)
    next(read)
    done(bench, do="apply", op="parallel", args={"loop": place(bench, "i")})
    assert list(read) == []
    assert [v.id for v in bench.versions] == ["v0", "v1"]


def test_a_given_schedule_is_a_version() -> None:
    sch = tw.Schedule(ops.add_relu_func(8))
    sch.parallel(sch.get_loops(sch.get_block(0))[0])
    bench = Workbench(sch, TARGET)
    state = bench.state()
    assert [v["text"] for v in state["versions"]] == ["as written", "the given schedule"]
    assert state["version"] == "v1"


HOSTILE: list[Any] = [
    None,
    7,
    [],
    {},
    {"do": None},
    {"do": "explode"},
    {"do": ["moves"]},
    {"do": "moves", "place": "L99"},
    {"do": "moves", "place": ["L0"]},
    {"do": "moves", "place": None, "start": -1},
    {"do": "moves", "place": None, "count": "7"},
    {"do": "moves", "place": None, "count": 1e400},
    {"do": "moves", "place": None, "count": True},
    {"do": "apply"},
    {"do": "apply", "op": 3, "args": {}},
    {"do": "apply", "op": "split"},
    {"do": "apply", "op": "split", "args": []},
    {"do": "apply", "op": "split", "args": {"loop": "L0"}},
    {"do": "apply", "op": "split", "args": {"loop": "L0", "factors": [None, 10**400]}},
    {"do": "apply", "op": "split", "args": {"loop": "L0", "factors": [None, -3]}},
    {"do": "apply", "op": "split", "args": {"loop": "L0", "factors": [None, float("nan")]}},
    {"do": "apply", "op": "split", "args": {"loop": "L0", "factors": "L0"}},
    {"do": "apply", "op": "split", "args": {"loop": "L0", "factors": [1] * 10_000}},
    {"do": "apply", "op": "split", "args": {"loop": "B3", "factors": [None, 8]}},
    {"do": "apply", "op": "split", "args": {"loop": {"v": "l0"}, "factors": [None, 8]}},
    {"do": "apply", "op": "split", "args": {"loop": "L0", "factors": [None, 8], "x": 1}},
    {"do": "apply", "op": "__init__", "args": {}},
    {"do": "apply", "op": "copy", "args": {}},
    {"do": "apply", "op": "serial", "args": {"loop": "L0"}},
    {"do": "apply", "op": "fuse", "args": {"loops": "L0"}},
    {"do": "apply", "op": "fuse", "args": {"loops": [["L0"], "L1"]}},
    {"do": "apply", "op": "annotate", "args": {"target": "L0", "key": "k", "value": print}},
    {
        "do": "apply",
        "op": "transform_block_layout",
        "args": {"block": "B3", "index_map": "__import__('os').system('true')"},
    },
    {"do": "undo"},
    {"do": "redo"},
    {"do": "go"},
    {"do": "go", "version": "v9"},
    {"do": "go", "version": {}},
    {"do": "diff", "a": "v0"},
    {"do": "text", "version": "v7"},
]


@pytest.mark.parametrize("command", HOSTILE, ids=str)
def test_hostile_commands_are_refused_as_data(bench: Workbench, command: Any) -> None:
    error = refused(bench, command)
    assert error["kind"]
    assert error["text"]


def test_deep_arguments_are_refused(bench: Workbench) -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert (
        "nested"
        in refused(
            bench,
            {"do": "apply", "op": "annotate", "args": {"target": "L0", "key": "k", "value": deep}},
        )["text"]
    )


def test_unknown_commands_name_the_nearest(bench: Workbench) -> None:
    assert "moves" in refused(bench, {"do": "move"})["hint"]


def test_texts_are_safe_to_show() -> None:
    hostile = replace(ops.add_relu_func(4), name="\x1b[2J" + "x" * 20_000)
    name = Workbench(hostile, TARGET).state()["program"]["name"]
    assert "\x1b" not in name
    assert len(name) <= 10_000


def test_large_programs_come_in_pages() -> None:
    sch = tw.Schedule(ops.add_relu_func(4))
    loop = sch.get_loops(sch.get_block(0))[0]
    for _ in range(60):
        loop = sch.add_unit_loop(loop)
    bench = Workbench(sch, TARGET)
    whole = done(bench, do="tree")
    some = done(bench, do="tree", start=3, count=2)
    assert some["nodes"] == whole["nodes"][3:5]
    assert some["total"] == whole["total"] > 60
    assert done(bench, do="text", start=10**9)["lines"] == []
    page = done(bench, do="moves", place=None, count=0)
    assert page["moves"] == []
    assert len(done(bench, do="text", count=10**9)["lines"]) <= PAGE


def test_a_lab_keeps_so_many_versions(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MOST", 2)
    done(bench, do="apply", op="parallel", args={"loop": "L0"})
    error = refused(bench, {"do": "apply", "op": "unroll", "args": {"loop": "L1"}})
    assert "keeps 2 versions" in error["text"]
    assert MOST > 100


def test_changes_are_told() -> None:
    told: list[int] = []
    bench = Workbench(ops.add_relu_func(8), TARGET, on_change=lambda: told.append(1))
    done(bench, do="apply", op="parallel", args={"loop": place(bench, "i0")})
    assert bench.state()["revision"] == len(told) == 1


def test_every_command_is_described() -> None:
    assert all(f"`{name}`" in (workbench.__doc__ or "") for name in COMMANDS)


def test_an_interrupt_leaves_the_lab_as_it_was(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bench.state()
    calls = 0

    def interrupted(*_: Any) -> float:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt
        return 1.0

    monkeypatch.setattr(bench, "predict", interrupted)
    for command in (
        {"do": "moves", "place": "L0"},
        {"do": "apply", "op": "parallel", "args": {"loop": "L0"}},
    ):
        with pytest.raises(KeyboardInterrupt):
            bench.do(command)
    monkeypatch.undo()
    assert bench.state() == before
    assert done(bench, do="moves", place="L0")["total"] > 20
    assert done(bench, do="apply", op="parallel", args={"loop": "L0"}) == {"version": "v1"}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["L0", "L1", "B3", "v0", "split", "fuse", "annotate", "program", "local"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
KEYS = ("place", "op", "args", "version", "a", "b", "of", "values", "number", "start", "count",
        "record", "name", "folder", "versions")  # fmt: skip


@settings(max_examples=examples(150))
@given(
    name=st.sampled_from(sorted(set(COMMANDS) - {"pack"})) | JSON,
    keys=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4),
)
def test_any_json_has_an_answer_in_json(name: Any, keys: Data) -> None:
    bench = Workbench(ops.add_relu_func(6), TARGET)
    answer = bench.do({"do": name, **keys})
    json.dumps(answer, allow_nan=False)
    assert answer["ok"] or answer["error"]["text"]
    json.dumps(bench.state(), allow_nan=False)


@settings(max_examples=examples(60))
@given(op=st.sampled_from(sorted(PRIMITIVES)), args=st.data())
def test_any_arguments_of_a_primitive_have_an_answer(op: str, args: st.DataObject) -> None:
    bench = Workbench(ops.matmul_func(4, 6, 3), TARGET)
    names = PRIMITIVES[op].names
    drawn = args.draw(st.fixed_dictionaries(dict.fromkeys(names, JSON)))
    for do in ("try", "apply"):
        answer = bench.do({"do": do, "op": op, "args": drawn})
        json.dumps(answer, allow_nan=False)
        assert answer["ok"] or answer["error"]["text"]


def test_the_state_of_a_large_program_is_small() -> None:
    stages = [te.placeholder((4, 4), name="X")]
    for n in range(150):
        last = stages[-1]
        stages.append(te.compute((4, 4), lambda i, j, x=last: x[i, j] + 1.0, name=f"S{n}"))
    bench = Workbench(te.func([stages[0], stages[-1]], name="chain"), TARGET)
    state = bench.state()
    assert state["text"]["total"] > 800
    assert state["tree"]["total"] == 450
    assert len(state["text"]["lines"]) == PAGE
    assert len(state["tree"]["nodes"]) == PAGE
    assert len(json.dumps(state)) < 200_000
    rest = done(bench, do="tree", start=PAGE)
    assert len(rest["nodes"]) == 450 - PAGE


def test_refusals_print_the_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    value = te.placeholder((8, 8), "float32", name="A")
    stages = [value]
    for _ in range(6):
        stages.append(te.compute((8, 8), lambda i, j, a=stages[-1]: a[i, j] + 1.0))
    bench = Workbench(te.func([value, stages[-1]]), TARGET)
    printed = []

    def loop_names(root: Any) -> Any:
        printed.append(root)
        return printer.loop_names(root)

    monkeypatch.setattr(find, "loop_names", loop_names)
    moves = found(bench, "L0")
    assert sum(m["legal"] is False for m in moves) > 4
    assert printed == [bench.func]


@settings(max_examples=examples(12), deadline=None)
@given(st.data())
def test_a_version_made_of_legal_moves_is_built(data: st.DataObject) -> None:
    """The steps of a walk are any legal moves, at any places."""
    bench = Workbench(ops.matmul_func(12, 8, 16), TARGET)
    for _ in range(4):
        nodes = bench.state()["tree"]["nodes"]
        at = data.draw(st.sampled_from([n["id"] for n in nodes if n.get("id")]))
        moves = [m for m in found(bench, at) if m["legal"]]
        # Copies are one move of dozens: they are as likely as all the others together.
        copies = [m for m in moves if "storage_scope" in m["args"]]
        move = data.draw(st.sampled_from(copies or moves) | st.sampled_from(moves))
        done(bench, do="apply", op=move["op"], args=move["args"])
        error = bench.not_built(bench.versions.current.schedule.func)
        assert error is None, (bench.versions.current.schedule.trace, error)


def test_a_copy_in_registers_is_refused_until_its_indices_are_constants(bench: Workbench) -> None:
    def registers(scope: str) -> Data:
        args = {"block": place(bench, "C"), "write_buffer_index": 0, "storage_scope": scope}
        return {"op": "cache_write", "args": args}

    error = done(bench, do="try", **registers("register"))["error"]
    assert error["text"] == (
        "the program after it cannot be built: C_register is held in registers, and its index "
        "i * 48 + j is not a constant"
    )
    assert error["hint"] == "unroll or vectorize the loops in the index, or use another scope"
    assert error == refused(bench, {"do": "apply", **registers("register")})
    offered = [m for m in found(bench, place(bench, "C")) if m["op"] == "cache_write"]
    assert [m["args"]["storage_scope"] for m in offered if m["legal"]] == ["local", "global"]

    # What it names is done first, and the copy is put in registers then.
    bench = Workbench(ops.matmul_func(4, 8, 32), TARGET)
    done(bench, do="apply", **registers("local"))
    for n in bench.state()["tree"]["nodes"]:
        if n["kind"] == "loop" and n["name"] != "k":
            done(bench, do="apply", op="unroll", args={"loop": n["id"]})
    of = next(n["id"] for n in bench.state()["tree"]["nodes"] if n["kind"] == "block")
    args = {"block": of, "write_buffer_index": 0, "storage_scope": "register"}
    done(bench, do="apply", op="set_scope", args=args)
    assert bench.not_built(bench.versions.current.schedule.func) is None


def test_a_program_that_cannot_be_built_before_a_step_is_scheduled_further() -> None:
    bench = Workbench(ops.matmul_func(64, 48, 32), "cuda -arch=sm_90")
    legal = {m["op"] for m in found(bench, place(bench, "i")) if m["legal"]}
    assert {"bind", "split", "unroll"} <= legal  # no nest is bound to the device yet
    (parallel,) = [m for m in found(bench, place(bench, "i")) if m["op"] == "parallel"]
    assert "loop i is parallel, which loops of processors are" in parallel["error"]["text"]
    assert 'sch.bind(i, "blockIdx.x")' in parallel["error"]["hint"]
