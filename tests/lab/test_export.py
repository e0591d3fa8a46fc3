"""What the lab exports replays to the program that it showed."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import ops
from tilewright.autotune.rules.draft import Draft
from tilewright.autotune.rules.user_rules import SKETCH_RULES
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.drawing import drawn_of_each
from tilewright.autotune.search.replay import row_of
from tilewright.autotune.search.search import Search
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.base.text import excerpt
from tilewright.codegen.detect import resolve
from tilewright.lab.workbench.workbench import Workbench
from tilewright.schedule import Schedule
from tilewright.schedule.find import map_blocks
from tilewright.schedule.primitive import PRIMITIVES
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Buffer, Func, Label, Stmt, Var
from tilewright.tir.printer import listing

from ..autotune.selection import operator, operator_name, selected
from ..long import examples
from ..schedule.random_cases import Tally, a_case, apply_random_steps
from .commands import done, refused

TARGET = "cpu -mcpu=znver4 -threads=2"
PROGRAMS = {
    "matmul": ops.matmul_func(12, 8, 10),
    "softmax": ops.softmax_func(4, 6),
    "conv2d": ops.conv2d_func(1, 2, 5, 5, 2),
    "add_relu": ops.add_relu_func(7),
}
SEARCHED = [0, 7, 12, 16, 26, 28, 31, 35]
"""Operators whose candidates are exported: products, convolutions, rows, reductions, attention."""
Data = dict[str, Any]


def replayed(text: str) -> tw.Schedule:
    """The schedule of an exported script, which runs by itself."""
    namespace: Data = {"__name__": "exported"}
    exec(compile(text, "exported.py", "exec"), namespace)
    schedule = namespace["sch"]
    assert isinstance(schedule, tw.Schedule)
    return schedule


# To shrink takes long, and labels say it all.
@settings(max_examples=examples(12), phases=[Phase.generate])
@given(data=st.data(), name=st.sampled_from(list(PROGRAMS)), steps=st.integers(1, 10))
def test_what_is_exported_replays_to_the_program_that_was_shown(
    data: st.DataObject, name: str, steps: int
) -> None:
    bench = Workbench(PROGRAMS[name], TARGET)
    for _ in range(steps):
        nodes = [n["id"] for n in bench.state()["tree"]["nodes"] if "id" in n]
        place = data.draw(st.sampled_from(nodes), label="place")
        moves = [m for m in done(bench, do="moves", place=place)["moves"] if m["legal"]]
        if moves:
            move = data.draw(st.sampled_from(moves), label="move")
            done(bench, do="apply", op=move["op"], args=move["args"])
    current = bench.versions.current.schedule
    schedule = replayed(done(bench, do="export")["text"])
    assert structural_equal(schedule.func, current.func)
    assert structural_equal(schedule.original, bench.func)
    assert schedule.trace == current.trace


NAMES = st.sampled_from(
    [
        "A",
        "i",
        "i_0",
        "\u4e2d\u6587",
        "\u4e2d\u6587_0",
        "a b",
        "7",
        'q"',
        "'",
        "a\nb",
        "",
        "class",
        "__",
    ]
)


@settings(max_examples=examples(60), phases=[Phase.generate])
@given(data=st.data(), steps=st.integers(0, 6))
def test_an_export_says_which_names_are_others(data: st.DataObject, steps: int) -> None:
    """Loops, buffers and blocks of any names: the texts are equal, or differ as a comment says."""
    func = renamed(ops.softmax_func(4, 6), lambda: data.draw(NAMES))
    bench = Workbench(func, TARGET)
    for _ in range(steps):
        nodes = [n["id"] for n in bench.state()["tree"]["nodes"] if "id" in n]
        place = data.draw(st.sampled_from(nodes))
        moves = [m for m in done(bench, do="moves", place=place)["moves"] if m["legal"]]
        if moves:
            move = data.draw(st.sampled_from(moves))
            done(bench, do="apply", op=move["op"], args=move["args"])
    text = done(bench, do="export")["text"]
    shown, schedule = bench.versions.current.schedule.func, replayed(text)
    assert structural_equal(schedule.func, shown)
    said = re.findall(r"^#   \w+ (\S.*) is (\S.*)$", text, re.MULTILINE)
    assert (said == []) == (str(schedule.func) == str(shown))
    for before, after in said:
        assert literal_eval(before) in names_of(shown)
        assert literal_eval(after) in names_of(schedule.func)


def renamed(func: Func, name: Callable[[], str]) -> Func:
    """A program with other names for all of its loops, blocks and internal buffers."""
    named: dict[object, Any] = {p: p for p in func.params}

    def visit(n: Any) -> Any:
        if isinstance(n, Var | Label | Buffer):
            if n not in named:
                named[n] = replace(n, name=name())
            return named[n]
        if isinstance(n, tuple):
            return tuple([visit(part) for part in n])
        if not is_dataclass(n):
            return n
        return replace(n, **{f.name: visit(getattr(n, f.name)) for f in fields(n)})  # type: ignore[type-var]

    return replace(func, allocs=visit(func.allocs), body=visit(func.body))


def names_of(func: Func) -> set[str]:
    shown = listing(func)
    labels = {line.block.label.name for line in shown.lines if line.block is not None}
    return {*shown.names.values(), *(excerpt(name, len(name)) for name in labels)}


def check_rule(bench: Workbench, row: Sequence[int], target: tw.Target) -> None:
    """The rule of a version, with the sizes that it has, makes its program."""
    version = bench.versions.current
    text = done(bench, do="rule", name="exported_rule")["text"]
    namespace: Data = {"__name__": "exported"}
    try:
        exec(compile(text, "exported.py", "exec"), namespace)
    finally:
        SKETCH_RULES.pop("exported_rule", None)
    draft = Draft(Schedule(bench.func, symbolic=True), target)
    namespace["exported_rule"](draft)
    again = draft.schedule.trace.with_row(row).apply(bench.func)
    assert structural_equal(again.func, version.schedule.func)


@settings(max_examples=examples(40), phases=[Phase.generate])
@given(data=st.data(), steps=st.integers(5, 24))
def test_long_schedules_replay_to_the_program_that_was_shown(
    data: st.DataObject, steps: int
) -> None:
    def pick(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    func, kinds = a_case(pick)
    sch, _ = apply_random_steps(Schedule(func, seed=pick(3)), pick, steps, Tally(), kinds)
    bench = Workbench(sch, TARGET)
    schedule = replayed(done(bench, do="export")["text"])
    assert structural_equal(schedule.func, sch.func)
    assert structural_equal(schedule.original, func)
    assert schedule.trace == sch.trace
    sliders = bench.do({"do": "sliders"})
    if sliders["ok"]:
        check_rule(bench, [s["value"] for s in sliders["result"]["sliders"]], bench.target)


@pytest.mark.part(2)
@pytest.mark.parametrize("target", [TARGET, "cuda -arch=sm_90"], ids=["cpu", "cuda"])
@pytest.mark.parametrize("number", SEARCHED, ids=operator_name)
def test_candidates_of_the_search_replay_to_the_program_that_was_shown(
    number: int, target: str
) -> None:
    func = operator(number)
    bench = Workbench(func, target)
    for sketch in selected(func, bench.target):
        for drawn in drawn_of_each([sketch], bench.target, 2, seed=5):
            shown = drawn.trace.apply(func)
            bench.add(bench.versions.root, "drawn", shown)
            schedule = replayed(done(bench, do="export")["text"])
            assert structural_equal(schedule.func, shown.func)
            assert structural_equal(schedule.original, func)
            assert schedule.trace == drawn.trace
        row = row_of(drawn.trace)
        assert row is not None
        if row:
            check_rule(bench, row, bench.target)


@pytest.mark.parametrize(
    "func",
    [ops.matmul_func(64, 64, 64), ops.attention_func(2, 4, 64, 32)],
    ids=["matmul", "attention"],
)
def test_tuned_schedules_are_exported_with_their_decisions(func: Func) -> None:
    bench = Workbench(default_trace(func, resolve(TARGET)).apply(func), TARGET)
    current = bench.versions.current.schedule
    schedule = replayed(done(bench, do="export")["text"])
    assert schedule.trace == current.trace
    assert structural_equal(schedule.func, current.func)
    done(bench, do="go", version="v0")
    assert len(replayed(done(bench, do="export")["text"]).trace) == 0


def test_long_schedules_are_exported_whole() -> None:
    sch = tw.Schedule(ops.add_relu_func(8))
    loop = sch.get_loops(sch.get_block(0))[0]
    for n in range(40):
        sch.annotate(loop, f"key{n}", "\x1b" + "x" * 500)
    bench = Workbench(sch, TARGET)
    text = done(bench, do="export")["text"]
    assert len(text) > 20_000
    schedule = replayed(text)
    assert schedule.trace == sch.trace
    assert structural_equal(schedule.func, sch.func)
    rule = done(bench, do="rule", name="long_rule")["text"]
    assert len(rule) > 20_000
    compile(rule, "rule.py", "exec")


def test_strange_names_are_quoted() -> None:
    func = tw.script(
        '@tw.script\ndef f(A: T.Buffer((4,), "float32")):\n    for i in range(4):\n'
        "        with T.block(\"it's '''\\\\ \"):\n            vi = T.axis.spatial(4, i)\n"
        "            A[vi] = 0.0\n"
    )
    bench = Workbench(func, TARGET)
    assert structural_equal(replayed(done(bench, do="export")["text"]).func, func)


def test_no_name_leaves_its_comment(tmp_path: Path) -> None:
    executed = tmp_path / "executed"
    call = f"open({str(executed)!r}, 'w')"
    func = ops.add_relu_func(8)
    body = map_blocks(func.body, lambda block: replace(block, label=Label(f"a\n{call}")))
    func = replace(func, name=f'"""; {call}; """', body=body)
    sch = tw.Schedule(func)
    sch.split(sch.get_loops(sch.get_block(0))[0], [None, 4])
    bench = Workbench(sch, TARGET)
    assert structural_equal(replayed(done(bench, do="export")["text"]).func, sch.func)
    exec(done(bench, do="rule", name="of_names")["text"], {"__name__": "my_rules"})
    assert [s for s in sketches(func, resolve(TARGET)) if "of_names" in s.name]
    assert not executed.exists()


@pytest.fixture
def parallel_too() -> Any:
    def register(module: str) -> None:
        exec(_MINE, {"__name__": module})

    yield register
    PRIMITIVES.pop("parallel_too", None)


_MINE = '''
import tilewright as tw
from tilewright.tir.ir import Func, Var
from tilewright.schedule.primitives import parallel

@tw.primitive
def parallel_too(fn: Func, loop: Var) -> tuple[Func, None]:
    """Run a loop in parallel."""
    return parallel(fn, loop)
'''


def test_modules_of_steps_are_imported(parallel_too: Any) -> None:
    parallel_too("my_steps")
    bench = Workbench(ops.add_relu_func(8), TARGET)
    done(bench, do="apply", op="parallel_too", args={"loop": "L0"})
    for text in (done(bench, do="export")["text"], done(bench, do="rule", name="r")["text"]):
        assert "import my_steps" in text.splitlines()[3]


def test_steps_of_a_notebook_are_not_exported(parallel_too: Any) -> None:
    parallel_too("__main__")
    bench = Workbench(ops.add_relu_func(8), TARGET)
    done(bench, do="apply", op="parallel_too", args={"loop": "L0"})
    error = refused(bench, do="export")
    assert "defined in the notebook" in error["text"]
    assert "module" in error["hint"]


def tiled() -> tw.Schedule:
    sch = tw.Schedule(ops.matmul_func(64, 48, 32))
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, factors=[None, 8])
    j0, j1 = sch.split(j, factors=[None, 16])
    sch.reorder(i0, j0, k, i1, j1)
    sch.parallel(i0)
    sch.vectorize(j1)
    return sch


def test_a_rule_of_a_version_is_searched() -> None:
    bench = Workbench(tiled(), TARGET)
    text = done(bench, do="rule", name="my_tiles")["text"]
    exec(compile(text, "my_rules.py", "exec"), {"__name__": "my_rules"})
    assert "my_tiles" in SKETCH_RULES
    (sketch,) = [s for s in sketches(bench.func, resolve(TARGET)) if "my_tiles" in s.name]
    assert len(sketch.variables) == 2
    row = np.array([[8, 16]])
    assert Rowspace(sketch).check(row).all()
    program = sketch.trace.with_row([8, 16]).apply(bench.func).func
    assert structural_equal(program, bench.versions.current.schedule.func)
    search = Search(bench.func, resolve(TARGET), prepared=[sketch], seed=3)
    rows = {c.row for c in search.ask(8)}
    assert len(rows) == 8  # its sizes are open


def test_a_rule_is_for_other_programs_too() -> None:
    bench = Workbench(tiled(), TARGET)
    text = done(bench, do="rule", name="my_tiles")["text"]
    exec(compile(text, "my_rules.py", "exec"), {"__name__": "my_rules"})
    other = ops.matmul_func(96, 80, 40)
    (sketch,) = [s for s in sketches(other, resolve(TARGET)) if "my_tiles" in s.name]
    rows = Rowspace(sketch).sample(np.random.default_rng(0), 4)
    for row in rows.tolist():
        assert isinstance(sketch.trace.with_row(row).apply(other).func.body, Stmt)
    for unlike in (ops.add_relu_func(8), ops.conv2d_func(1, 4, 8, 8, 4)):
        assert not [s for s in sketches(unlike, resolve(TARGET)) if "my_tiles" in s.name]


def test_a_rule_without_sizes_has_its_steps() -> None:
    sch = tw.Schedule(ops.add_relu_func(64))
    sch.parallel(sch.get_loops(sch.get_block(0))[0])
    bench = Workbench(sch, TARGET)
    text = done(bench, do="rule", name="just_parallel")["text"]
    exec(compile(text, "my_rules.py", "exec"), {"__name__": "my_rules"})
    found = [s for s in sketches(bench.func, resolve(TARGET)) if "just_parallel" in s.name]
    assert [structural_equal(s.func, sch.func) for s in found] == [True]


@pytest.mark.parametrize(
    "name", [None, "", "no name", "class", "_x", "a.b", 7, "x" * 81, "tw", "\uff54\uff57", "FAMILY"]
)
def test_names_of_rules_are_checked(name: Any) -> None:
    assert refused(Workbench(tiled(), TARGET), do="rule", name=name)["kind"] == "LabError"


def test_no_rule_is_made_of_no_steps() -> None:
    bench = Workbench(ops.add_relu_func(8), TARGET)
    assert "no steps" in refused(bench, do="rule", name="nothing")["text"]


def test_where_a_location_was_sampled_there_is_no_rule() -> None:
    sch = tw.Schedule(ops.softmax_func(8, 16))
    block = sch.get_block("Y_max")
    sch.compute_at(block, sch.sample_compute_location(block))
    error = refused(Workbench(sch, TARGET), do="rule", name="located")
    assert "cannot be left open" in error["text"]


def test_programs_are_concrete() -> None:
    assert all(isinstance(f, Func) for f in PROGRAMS.values())
