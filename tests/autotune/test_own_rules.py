"""Rules that users register, beside those of the package."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import (
    Draft,
    Group,
    GroupKind,
    Schedule,
    Target,
    TuningDatabase,
    TuningError,
    Variant,
    build,
    ops,
    require,
    te,
    tune,
)
from tilewright.autotune.result import TuneResult
from tilewright.autotune.rules import failures, rule_sets, user_rules
from tilewright.autotune.rules.cpu.rule_set import RULES
from tilewright.autotune.rules.draft import RuleChoice
from tilewright.autotune.rules.rule import AlternativeRule, SketchRule
from tilewright.autotune.rules.user_rules import SKETCH_RULES, sketch_rule
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.search import Search
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.session import tuning_job as tuning
from tilewright.cli.report import print_results
from tilewright.schedule import PRIMITIVES
from tilewright.tir.ir import Func, Var
from tilewright.tuning_db import Measurement, Outcome, ScheduleRecord

from ..refusals import refused
from ..schedule.machinery import check_meaning
from .children import QUICK
from .kernels import matmul
from .recorded import Recorded, ok

TARGET = Target.parse("cpu -mcpu=cascadelake -threads=1")
HERE = "cpu -threads=1"


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """Primitives and rules that a test registers are gone after it."""
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
    assert [s.generator for s in sketches(func, TARGET, {own})] == [own]
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
    with refused(TuningError, "careless", "matmul", "ValueError"):
        sketches(ops.matmul_func(16, 16, 16), TARGET)


def cut_by(factor: int) -> None:
    @sketch_rule
    def again(draft: Draft) -> None:
        loop, *_ = draft.schedule.get_loops(draft.schedule.get_block(0))
        draft.schedule.split(loop, factors=[None, factor])


def test_a_rule_may_be_defined_again_but_not_another_of_its_name() -> None:
    for factor in (2, 4):
        cut_by(factor)
    (again,) = [s for s in sketches(ops.matmul_func(16, 16, 16), TARGET) if s.name == "again"]
    assert "factors=[None, 4]" in str(again.trace)
    elsewhere: dict[str, Any] = {"__name__": "elsewhere"}
    exec("def again(draft): ...", elsewhere)
    with refused(TuningError, "again"):
        sketch_rule(elsewhere["again"])


def test_a_rule_of_the_name_of_one_of_ours_is_another() -> None:
    @sketch_rule
    def rows(draft: Draft) -> None:
        draft.schedule.parallel(draft.schedule.get_loops(draft.schedule.get_block(0))[0])

    generators = [s.generator for s in sketches(ops.softmax_func(8, 64), TARGET)]
    assert len(set(generators)) == len(generators)
    assert {"rows", f"{rows.__module__}.rows"} <= set(generators)


def test_a_rule_is_a_function() -> None:
    for found in ("x", Draft):
        with pytest.raises(TuningError, match=f"expected a function .*, found {found!r}"):
            sketch_rule(found)  # type: ignore[arg-type]


def test_a_rule_takes_a_draft_alone() -> None:
    exec("def two(sch, target): ...", elsewhere := {"__name__": "elsewhere"})
    with refused(TuningError, "two", "sch, target"):
        sketch_rule(elsewhere["two"])  # type: ignore[call-overload]


def test_a_rule_for_groups_takes_a_draft_and_a_group() -> None:
    def whole(draft: Draft) -> None: ...

    with refused(TuningError, "whole", "draft", "a Draft and a Group"):
        sketch_rule(GroupKind.ROWS)(whole)  # type: ignore[arg-type]


def whole_rows(draft: Draft, group: Group) -> Iterator[Variant]:
    require(len(group.members) > 1, "a single block")

    def rows(draft: Draft, *, unrolled: bool) -> None:
        sch = draft.schedule
        *inner, last = (draft.schedule.get_block(label) for label in group.labels)
        row, columns, *_ = sch.get_loops(last)
        for label in reversed(inner):
            sch.compute_at(label, row)
        if unrolled:
            sch.unroll(sch.split(columns, factors=[None, sch.sample_categorical([2, 4])])[1])
        draft.map_outer(row)

    for unrolled in (False, True):
        yield Variant.of("by_rows", partial(rows, unrolled=unrolled), unrolled=unrolled)


def product_and_softmax() -> Func:
    i, j, k = 24, 32, 16
    a, b = te.placeholder((i, k), name="A"), te.placeholder((k, j), name="B")
    c = ops.matmul(a, b)
    return te.func([a, b, ops.softmax(c)], name="product_and_softmax")


def test_a_rule_for_a_kind_of_groups_leaves_the_others_to_the_rules_of_the_target() -> None:
    func = product_and_softmax()
    before = sketches(func, TARGET)
    sketch_rule(GroupKind.ROWS)(whole_rows)
    after = sketches(func, TARGET)
    own = after[len(before) :]
    assert [s.generator for s in after[: len(before)]] == [s.generator for s in before]
    name = f"{whole_rows.__module__}.whole_rows"
    assert {c for s in own for c in s.choices if c.rule == name} == {
        RuleChoice.of(name, unrolled=False),
        RuleChoice.of(name, unrolled=True),
    }
    assert {c.rule for s in own for c in s.choices} == {"contraction", name}
    for sketch in own:
        row = Rowspace(sketch).sample(np.random.default_rng(0), 1)[0]
        check_meaning(func, sketch.trace.with_row(row.tolist()).apply(func).func)


def test_a_rule_for_a_kind_of_groups_may_not_apply() -> None:
    """No group of its kind; a group that it refuses; a step that is refused."""

    def single_loop(draft: Draft, group: Group) -> Iterator[Variant]:
        def apply(draft: Draft) -> None:
            (_,) = draft.schedule.get_loops(draft.schedule.get_block(group.anchor.label))[:1]
            require(False, "never")

        yield Variant.of("never", apply)

    programs = [ops.matmul_func(16, 16, 16), ops.reduction_func(n=8, m=64, axis=1)]
    before = [names(func) for func in programs]
    sketch_rule(GroupKind.ROWS)(whole_rows)
    sketch_rule(GroupKind.CONTRACTION)(single_loop)
    assert [names(func) for func in programs] == before


def test_variants_of_a_rule_have_steps_and_differ_in_their_options() -> None:
    def nothing(draft: Draft) -> None: ...

    def in_place(draft: Draft, group: Group) -> Any: ...

    def wrong(draft: Draft, group: Group) -> Iterator[Variant]:
        yield from yielded

    sketch_rule(GroupKind.CONTRACTION)(wrong)
    yielded: list[Any] = [Variant.of("a", nothing, wide=True), Variant.of("b", nothing, wide=True)]
    with pytest.raises(TuningError, match="wrong .* same options"):
        sketches(ops.matmul_func(16, 16, 16), TARGET)
    sketch_rule(GroupKind.ROWS)(in_place)
    with pytest.raises(TuningError, match="in_place returns None"):
        sketches(ops.softmax_func(8, 64), TARGET)
    yielded = [nothing]
    with pytest.raises(TuningError, match="wrong yields <function"):
        sketches(ops.matmul_func(16, 16, 16), TARGET)


class _Odd:
    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class _Variant(Variant):
    @property
    def steps(self) -> Any:
        raise RuntimeError("no steps")


def _step(draft: Draft) -> None: ...


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (Variant.of("a", _step, o=[1]), "a variant with the options .*; expected pairs"),  # type: ignore[arg-type]
        (Variant.of("a", _step, o=(1, _Odd())), "a variant with the options"),  # type: ignore[arg-type]
        (Variant("a", (_step,), {"o": 1}), "a variant with the options {'o': 1}; expected pairs"),  # type: ignore[arg-type]
        (Variant("a", (_step,), (("o", 1, 2),)), "a variant with the options"),  # type: ignore[arg-type]
        (Variant("a", 7), "a variant with the steps 7; expected a tuple of functions"),  # type: ignore[arg-type]
        (Variant("a", (_step, 3)), "a variant with the steps"),  # type: ignore[arg-type]
        (Variant("a", ()), r"a variant with the steps \(\); expected a tuple of functions, one at"),
        (Variant(None, (_step,)), "a variant named None; expected a text"),  # type: ignore[arg-type]
        (Variant(5, (_step,)), "a variant named 5; expected a text"),  # type: ignore[arg-type]
        (object.__new__(_Variant), "<a _Variant whose text raises AttributeError>; expected"),
    ],
)
def test_a_variant_that_is_none_is_an_error_that_names_the_rule(
    variant: Variant, message: str
) -> None:
    def lies(draft: Draft, group: Group) -> Iterator[Variant]:
        yield variant

    sketch_rule(GroupKind.CONTRACTION)(lies)
    with pytest.raises(TuningError, match=f"sketch rule lies yields {message}"):
        sketches(ops.matmul_func(16, 16, 16), TARGET)


def test_rules_that_would_never_run_are_refused() -> None:
    async def later(draft: Draft) -> None: ...

    async def later_of_groups(draft: Draft, group: Group) -> None: ...

    def yields(draft: Draft) -> Iterator[int]:
        yield 1

    with refused(TuningError, "later"):
        sketch_rule(later)  # type: ignore[arg-type]
    with refused(TuningError, "later_of_groups"):
        sketch_rule(GroupKind.ROWS)(later_of_groups)  # type: ignore[arg-type]
    with refused(TuningError, "yields"):
        sketch_rule(yields)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [None, GroupKind.CONTRACTION])
def test_a_rule_that_fails_ends_builds_and_sessions_and_is_named(kind: GroupKind | None) -> None:
    """In the function of a rule for groups, too, and after a step."""

    def careless(draft: Draft) -> None:
        draft.schedule.get_block(0)
        raise KeyError("lanes")

    def careless_of_groups(draft: Draft, group: Group) -> Iterator[Variant]:
        raise KeyError("lanes")

    if kind is None:
        sketch_rule(careless)
    else:
        sketch_rule(kind)(careless_of_groups)
    message = "sketch rule careless.* fails for matmul: KeyError: 'lanes'"
    with pytest.raises(TuningError, match=message) as raised:
        build(ops.matmul_func(16, 16, 16), HERE, database=None)
    assert isinstance(raised.value.__cause__, KeyError)
    with TuningDatabase("sqlite://") as db, pytest.raises(TuningError, match=message):
        tune(ops.matmul_func(16, 16, 16), HERE, database=db, trials=2, config=QUICK)


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


def a_sum(terms: int, lanes: Any) -> Any:
    total = lanes
    for _ in range(terms):
        total = total + lanes
    return total


LIMITS: dict[str, tuple[Callable[[Draft, Any], object], str]] = {
    "another variable": (
        lambda draft, lanes: draft.limit("narrow", Var("zz") < 3),
        "limit 'narrow': there is no column for variable zz",
    ),
    "a float": (
        lambda draft, lanes: draft.limit("narrow", te.cast(lanes, "float32")),
        "limit 'narrow': expected a condition, found .*float32",
    ),
    "of floats": (
        lambda draft, lanes: draft.limit("narrow", te.cast(lanes, "float32") < 3.0),
        "limit 'narrow': only int64, bool, float64 are evaluated",
    ),
    "a text": (
        lambda draft, lanes: draft.limit("narrow", "a<b"),  # type: ignore[arg-type]
        r"limit 'narrow': expected a condition, found 'a<b' \(str\)",
    ),
    "no name": (
        lambda draft, lanes: draft.limit(5, lanes < 3),  # type: ignore[arg-type]
        "limit: expected a name, found 5",
    ),
    "an entry": (
        lambda draft, lanes: draft.prune.append(5),  # type: ignore[arg-type]
        "draft.prune has 5; expected pairs",
    ),
    "a long sum": (
        lambda draft, lanes: draft.limit("narrow", a_sum(3000, lanes) < 10**6),
        "limit 'narrow': an expression is nested too deeply",
    ),
}
"""What is no limit of a rule, and what the error says."""


@pytest.mark.parametrize("case", LIMITS)
def test_what_is_no_limit_is_an_error_that_names_the_rule(case: str) -> None:
    give, says = LIMITS[case]

    @sketch_rule
    def limited(draft: Draft) -> None:
        sch = draft.schedule
        loop = sch.get_loops(sch.get_block("C"))[1]
        factors = sch.sample_perfect_tile(loop, 2, 32)
        sch.split(loop, factors=factors)
        give(draft, factors[1])

    with pytest.raises(TuningError, match=f"sketch rule limited fails for matmul: .*{says}"):
        sketches(ops.matmul_func(64, 64, 64), TARGET)


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
    monkeypatch.setattr("tilewright.autotune.rules._plans_by_target", lambda *_, **__: iter(()))
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
        refused(TuningError, "halved"),
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


def needless(draft: Draft) -> None:
    """A rule whose candidates are the program as written in other loops: none is predicted fast."""
    sch = draft.schedule
    loops = sch.get_loops(sch.get_block("C"))
    sch.split(loops[0], factors=sch.sample_perfect_tile(loops[0], 2, 16))


def played(func: Func, monkeypatch: pytest.MonkeyPatch, trials: int = 8) -> TuneResult:
    monkeypatch.setattr(tuning, "Measurer", Recorded([ok(1.0)]))
    with TuningDatabase("sqlite://") as db:
        return tune(func, HERE, database=db, trials=trials, config=QUICK)


def test_each_rule_that_applies_gets_a_trial_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sketch_rule(needless)
    sketch_rule(rows_of_vectors)
    func = ops.matmul_func(64, 64, 64)
    result = played(func, monkeypatch)
    assert list(result.rules) == ["needless", "rows_of_vectors"]
    assert all(use.trials >= 1 and use.refusal is None for use in result.rules.values())
    said = f"needless: {result.rules['needless'].trials} of 8 trials; rows_of_vectors: "
    assert f"\nrules of your own: {said}" in str(result)
    print_results([result])
    assert f"\nrules of your own: {said}" in capsys.readouterr().out
    assert not [r for r in caplog.records if "applies to nothing" in r.getMessage()]


def test_a_rule_that_applies_to_nothing_is_a_warning_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sketch_rule(rows_of_vectors)

    @sketch_rule(GroupKind.CONTRACTION)
    def products(draft: Draft, group: Group) -> Iterator[Variant]:
        yield Variant.of("products", _step)

    result = played(ops.softmax_func(8, 64), monkeypatch)
    assert [use.trials for use in result.rules.values()] == [0, 0]
    why = str(result.rules["rows_of_vectors"].refusal)
    assert why.startswith("there is no block 'C'")
    assert f"rules of your own: rows_of_vectors: not for this program: {why}" in str(result)
    kind = "products: not for this program: no sketch has it; it is for groups of kind CONTRACTION"
    assert kind in str(result)
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    about = "applies to nothing in this session: softmax: "
    assert f"the sketch rule rows_of_vectors {about}{why}" in warned


def test_a_rule_that_applies_to_one_program_of_a_session_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sketch_rule(rows_of_vectors)
    monkeypatch.setattr(tuning, "Measurer", Recorded([ok(1.0)]))
    with TuningDatabase("sqlite://") as db:
        programs = [ops.softmax_func(8, 64), ops.matmul_func(16, 16, 16)]
        first, second = tune(programs, HERE, database=db, trials=8, config=QUICK)
    assert first.rules["rows_of_vectors"].refusal is not None
    assert second.rules["rows_of_vectors"].trials >= 1
    assert not [r for r in caplog.records if "applies to nothing" in r.getMessage()]


def test_calls_without_their_arguments() -> None:
    with pytest.raises(TuningError, match="(?s)sketch_rule: missing.*hint: write @tw.sketch"):
        sketch_rule()  # type: ignore[call-overload]
    with pytest.raises(TuningError, match="(?s)no argument 'n_trials'.*did you mean trials"):
        tune(matmul(), n_trials=2)  # type: ignore[call-overload]
    with pytest.raises(TuningError, match="(?s)'database'.*hint: tw.tune.func, database="):
        tune(matmul())  # type: ignore[call-overload]


@pytest.mark.parametrize("fails", ["variants", "step", "rewrite", "alternative"])
def test_a_rule_of_ours_that_fails_is_left_out_with_a_warning(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defective(draft: Draft, *_: object) -> Any:
        raise KeyError(draft.func.name)

    def a_variant(draft: Draft, group: Group) -> Iterator[Variant]:
        yield Variant.of("defective", defective)

    func = replace(ops.matmul_func(16, 16, 16), name=f"product_{fails}")
    before = names(func)
    variants = SketchRule("broken", GroupKind.CONTRACTION, defective)
    step = SketchRule("broken", GroupKind.CONTRACTION, a_variant)
    rules = {
        "variants": replace(RULES, rules=(variants, *RULES.rules)),
        "step": replace(RULES, rules=(step, *RULES.rules)),
        "rewrite": replace(RULES, rewrites=(defective, *RULES.rewrites)),
        "alternative": replace(RULES, alternatives=(AlternativeRule(defective),)),
    }[fails]
    monkeypatch.setitem(rule_sets._RULES._loaded, "cpu", rules)
    with pytest.raises(KeyError, match="product"):
        sketches(func, TARGET)
    monkeypatch.setattr(failures, "CHECK", False)
    assert names(func) == before
    name = "broken" if fails in ("variants", "step") else "defective"
    assert caplog.messages == [
        f"{func.name}: the sketch rule {name} fails, and is left out: KeyError: '{func.name}'"
    ]


def test_a_rule_is_tried_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer trials than baselines and schedules of other sizes, too."""
    monkeypatch.setattr(tuning, "Measurer", Recorded([ok(1.0)]))
    with TuningDatabase("sqlite://") as db:
        tune(ops.matmul_func(32, 32, 32), HERE, database=db, trials=8, config=QUICK)
        sketch_rule(needless)
        for size, trials in ((64, 1), (96, 2), (128, 3)):
            func = ops.matmul_func(size, size, size)
            result = tune(func, HERE, database=db, trials=trials, config=QUICK)
            assert result.rules["needless"].trials == 1


@pytest.mark.parametrize("of_rule", [True, False], ids=["rule", "schedule"])
def test_the_decision_of_a_step_is_tried_first(
    of_rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "Measurer", Recorded([ok(1.0)]))

    def in_tiles(draft: Draft) -> None:
        sch = draft.schedule
        i, j, _ = sch.get_loops(sch.get_block("C"))
        sch.split(i, factors=sch.sample_perfect_tile(i, 2, decision=[1]))
        sch.split(j, factors=[None, sch.sample_categorical([1, 2, 3, 4], decision=[3])])

    def first_trial(size: int) -> tuple[int | None, ...]:
        func = ops.matmul_func(size, size, size)
        what: Func | Schedule = func
        if not of_rule:
            what = Schedule(func, symbolic=True)
            in_tiles(Draft(what, TARGET))
        with TuningDatabase("sqlite://") as db:
            result = tune(what, HERE, database=db, trials=1, config=QUICK)
        assert result.best is not None
        decisions = result.best.trace.decisions.values()
        return tuple(value for decision in decisions for value in decision)

    if of_rule:
        sketch_rule(in_tiles)
    assert first_trial(48) == (1, 3)
    assert first_trial(37) == (1, 3)


def test_more_rules_than_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch_rule(rows_of_vectors)
    sketch_rule(needless)
    result = played(ops.matmul_func(64, 64, 64), monkeypatch, trials=1)
    assert str(result).endswith(
        "rows_of_vectors: 1 of 1 trials; needless: 0 of 1 trials: the session ended before its turn"
    )


def in_rows(draft: Draft) -> None:
    """A rule of two candidates."""
    sch = draft.schedule
    loops = sch.get_loops(sch.get_block("C"))
    sch.split(loops[0], factors=[None, sch.sample_categorical([2, 4])])


def test_a_rule_whose_candidates_are_measured_already_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "Measurer", Recorded([ok(1.0)]))
    func = ops.matmul_func(64, 64, 64)
    own = Schedule(func, symbolic=True)
    in_rows(Draft(own, TARGET))
    with TuningDatabase("sqlite://") as db:
        assert tune(own, HERE, database=db, trials=4, config=QUICK).trials == 2
        sketch_rule(in_rows)
        result = tune(func, HERE, database=db, trials=4, config=QUICK)
    assert "in_rows: 0 of 4 trials: all its candidates are measured already" in str(result)


def test_rows_that_no_build_accepts_are_failed_trials_of_the_rule() -> None:
    """How long unrolled code is, is counted only once a program is lowered."""
    x = te.placeholder((4096,), name="X")

    def element(i: Any) -> Any:
        return a_sum(80, x[i])

    func = te.func([x, te.compute((4096,), element, name="Y")], name="many_terms")

    @sketch_rule
    def in_full(draft: Draft) -> None:
        sch = draft.schedule
        (loop,) = sch.get_loops(sch.get_block("Y"))
        sch.unroll(sch.split(loop, factors=[None, sch.sample_categorical([2048, 4096])])[1])

    with TuningDatabase("sqlite://") as db:
        result = tune(func, HERE, database=db, trials=3, config=QUICK, progress=False)
        assert result.outcomes == {Outcome.BUILD_ERROR: 1, Outcome.OK: 2}
        (failed,) = (m for m in db.records(Measurement) if m.outcome is Outcome.BUILD_ERROR)
    expected = r"the code of many_terms has \d+ operations and operands, more than 524288"
    assert re.search(expected, str(failed.error))
    assert result.rules["in_full"].trials == 1
    assert f"in_full: 1 of 3 trials, 1 of which failed: {failed.error}"[:90] in str(result)
