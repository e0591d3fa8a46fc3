"""Rules that users register, beside those of the package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import Draft, Target, TuningDatabase, TuningError, build, ops, require, tune
from tilewright.autotune import tune as tuning
from tilewright.autotune.rules import user_rules
from tilewright.autotune.rules.user_rules import SKETCH_RULES, sketch_rule
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.search import Search
from tilewright.autotune.search.sketch import sketches
from tilewright.schedule import PRIMITIVES
from tilewright.tir.ir import Func
from tilewright.tuning_db import Outcome, ScheduleRecord

from .children import QUICK
from .kernels import matmul
from .recorded import Recorded, ok

TARGET = Target.parse("cpu -mcpu=cascadelake -threads=1")


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """What is registered here is gone afterwards."""
    steps, rules = dict(PRIMITIVES), dict(SKETCH_RULES)
    yield
    PRIMITIVES.clear()
    PRIMITIVES.update(steps)
    SKETCH_RULES.clear()
    SKETCH_RULES.update(rules)


def rows_of_vectors(draft: Draft) -> None:
    sch = draft.schedule
    loops = sch.get_loops(sch.get_block("C"))
    require(len(loops) == 3, "{0} loops around C; expected 3", len(loops))
    _, lanes = sch.split(loops[1], factors=sch.sample_perfect_tile(loops[1], 2, 32))
    sch.reorder(loops[2], lanes)
    sch.vectorize(lanes)


def names(func: Func) -> list[str]:
    return [s.name for s in sketches(func, TARGET)]


def test_what_a_rule_makes_is_searched_too() -> None:
    func = ops.matmul_func(64, 64, 64)
    before = names(func)
    sketch_rule(rows_of_vectors)
    assert names(func) == [*before, "rows_of_vectors"]
    own = f"{rows_of_vectors.__module__}.rows_of_vectors"
    assert [s.generator for s in sketches(func, TARGET, {own}.__contains__)] == [own]
    search = Search(func, TARGET)
    asked = {search.sketches[c.sketch].name for _ in range(60) for c in search.ask(64)}
    assert "rows_of_vectors" in asked


def test_a_rule_is_not_for_every_program() -> None:
    """No block of that name; another number of loops; or it does nothing to it."""
    programs = [ops.softmax_func(8, 64), ops.matmul_func(16, 16, 16, batch=2)]
    before = [names(func) for func in programs]
    sketch_rule(rows_of_vectors)
    sketch_rule(lambda draft: None)
    assert [names(func) for func in programs] == before


def test_a_rule_that_fails_says_so() -> None:
    def careless(draft: Draft) -> None:
        _i, _j = draft.schedule.get_loops(draft.schedule.get_block("C"))

    sketch_rule(careless)
    with pytest.raises(TuningError, match="sketch rule careless fails for matmul: ValueError: too"):
        sketches(ops.matmul_func(16, 16, 16), TARGET)


def test_a_rule_may_be_defined_again_but_not_another_of_its_name() -> None:
    first: list[Any] = []
    for _ in range(2):

        def again(draft: Draft) -> None: ...

        first.append(sketch_rule(again))
    assert SKETCH_RULES["again"] is first[1]
    elsewhere: dict[str, Any] = {"__name__": "elsewhere"}
    exec("def again(draft): ...", elsewhere)
    with pytest.raises(TuningError, match="named again exists already, in module .*test_own_rules"):
        sketch_rule(elsewhere["again"])


def test_a_rule_of_the_name_of_one_of_ours_is_another() -> None:
    @sketch_rule
    def rows(draft: Draft) -> None:
        draft.schedule.parallel(draft.schedule.get_loops(draft.schedule.get_block(0))[0])

    generators = [s.generator for s in sketches(ops.softmax_func(8, 64), TARGET)]
    assert len(set(generators)) == len(generators)
    assert {"rows", f"{rows.__module__}.rows"} <= set(generators)


def test_a_rule_is_a_function() -> None:
    with pytest.raises(TuningError, match="expected a function .*, found 'x'"):
        sketch_rule("x")  # type: ignore[arg-type]


def test_a_rule_takes_a_draft_alone() -> None:
    exec("def two(sch, target): ...", elsewhere := {"__name__": "elsewhere"})
    with pytest.raises(TuningError, match=r"sketch rule two takes \(sch, target\); expected one"):
        sketch_rule(elsewhere["two"])  # type: ignore[arg-type]


def test_rows_beyond_the_limits_of_a_rule_are_not_measured() -> None:
    @sketch_rule
    def few_lanes(draft: Draft) -> None:
        sch = draft.schedule
        loop = sch.get_loops(sch.get_block("C"))[1]
        _, lanes = sch.sample_perfect_tile(loop, 2, 32)
        draft.limit("at most eight lanes", lanes <= 8)
        sch.split(loop, factors=[None, lanes], perfect=True)

    (sketch,) = [s for s in sketches(ops.matmul_func(64, 64, 64), TARGET) if s.name == "few_lanes"]
    rows = Rowspace(sketch).sample(np.random.default_rng(0), 100)
    assert set(rows[:, 0].tolist()) == {1, 2, 4, 8}


STRANGER = """
import tilewright as tw
from tilewright.schedule import primitives as p
from tilewright.tir.ir import Dim, Func, Var


@tw.primitive
def halves(fn: Func, loop: Var, inner: Dim) -> tuple[Func, Var]:
    fn, (outer, _) = p.split(fn, loop, (None, inner))
    return fn, outer


@tw.sketch_rule
def halved(draft: tw.Draft) -> None:
    sch = draft.schedule
    loop = sch.get_loops(sch.get_block(0))[0]
    sch.halves(loop, sch.sample_perfect_tile(loop, 2)[1])
"""


def test_steps_of_a_rule_are_known_where_candidates_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "rules_of_a_stranger"
    (tmp_path / f"{name}.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(name)
    monkeypatch.setattr("tilewright.autotune.rules.plans", lambda *_, **__: iter(()))
    try:
        with TuningDatabase("sqlite://") as db:
            result = tune(matmul(), "cpu -threads=1", database=db, trials=2, config=QUICK)
            assert result.outcomes == {Outcome.OK: 2}
            generators = {s.generator for s in db.records(ScheduleRecord)}
            assert generators - {"written"} == {f"{name}.halved"}
            SKETCH_RULES.clear()
            module = build(matmul(), "cpu -threads=1", database=db, allow=("record",))
        assert module.origin.kind == "record"
    finally:
        del sys.modules[name]


def test_steps_of_a_script_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "Measurer", Recorded([ok(1.0)]))
    exec(STRANGER, {"__name__": "__main__"})
    with (
        TuningDatabase("sqlite://") as db,
        pytest.raises(TuningError, match="halved takes steps or instructions that this"),
    ):
        tune(matmul(), "cpu -threads=1", database=db, trials=2, config=QUICK)


def test_what_is_registered_is_said_where_it_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", user_rules.__name__)
    sketch_rule(rows_of_vectors)
    sketches(ops.softmax_func(8, 64), TARGET)
    (record,) = (r for r in caplog.records if r.name == user_rules.__name__)
    said = record.getMessage()
    assert said.startswith("rows_of_vectors is not for softmax: there is no block 'C'; there are ")
    assert "\n" not in said, "the program is not shown for every rule that is not for it"
