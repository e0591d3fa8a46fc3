"""What a prompt shows of values: a line or a few, and no dataclass in another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.session.events import Batch, Drift, Ended, Final, Started, Waiting
from tilewright.autotune.show.picture import Pictures
from tilewright.base import text as texts
from tilewright.base.durations import MeasuredTime
from tilewright.base.text import printable
from tilewright.runtime.module import Origin
from tilewright.runtime.signature import Argument, Signature
from tilewright.runtime.timer import Timing
from tilewright.schedule.find import blocks_in
from tilewright.tir.expr_printer import MAX_NAME
from tilewright.tir.ir import Buffer, Func, Label, Seq, Var
from tilewright.tuning_db import (
    Best,
    Explanation,
    Measurement,
    ScheduleRecord,
    TargetRecord,
    Workload,
)
from tilewright.tuning_db.explain import Near, Reason, Refused
from tilewright.tuning_db.results import ComparedSchedule, Verdict
from tilewright.tuning_db.values import KINDS

from .golden import check_golden
from .lab.test_result import RESULT
from .table_records import fill

NESTED = re.compile(r"\w+\([^()]*\b\w+\([^()]*\w+=")
"""A constructor with fields in another."""


def scheduled() -> tw.Schedule:
    sch = tw.Schedule(ops.matmul_func(64, 32, 16))
    i, *_ = sch.get_loops(sch.get_block("C"))
    sch.split(i, factors=[None, 8])
    return sch


def refused() -> tw.ScheduleError:
    sch = scheduled()
    with pytest.raises(tw.ScheduleError) as caught:
        sch.split(sch.get_loop("j"), factors=[None, 24], perfect=True)
    return caught.value


@pytest.fixture(scope="module")
def module() -> tw.Module:
    return tw.build(scheduled(), "cpu -mcpu=x86-64 -threads=1")


def test_programs_schedules_and_traces() -> None:
    sch = scheduled()
    assert repr(sch.original) == (
        "<Func matmul(A: float32[64, 16], B: float32[16, 32], C: float32[64, 32]):\n"
        "  3 loops, 1 block; print it for the program>"
    )
    assert repr(sch) == (
        "<Schedule of matmul(A: float32[64, 16], B: float32[16, 32], C: float32[64, 32]):\n"
        "  3 steps; print it for the program>"
    )
    assert repr(ops.matmul_func(512, 512, 512)) == (
        "<Func matmul(A: float32[512, 512], B: float32[512, 512], C: float32[512, 512]):\n"
        "  3 loops, 1 block; print it for the program>"
    )
    assert repr(tw.Schedule(ops.activation_func(8))) == (
        "<Schedule of relu(X: float32[8], Y: float32[8]): 0 steps;\n  print it for the program>"
    )
    assert repr(sch.trace) == "<Trace of 3 steps; print it for Python>"
    assert repr(sch.trace.steps[2]) == "<Step sch.split(l1, factors=[None, 8])>"


def test_printing_shows_all_of_it() -> None:
    sch = scheduled()
    assert str(sch.func).startswith("@tw.script\ndef matmul(")
    assert str(sch) == f"{sch.func}\n\n# 3 steps\n{sch.trace}"
    assert f"{sch.func.body}".startswith("for i_0, i_1, j, k in T.grid(8, 8, 32, 16):\n")


def test_schedules_of_several_programs_and_symbolic_ones() -> None:
    several = tw.Schedule({"one": ops.matmul_func(8, 8, 8), "two": ops.matmul_func(4, 4, 4)})
    several.work_on("two")
    assert repr(several) == (
        "<Schedule of matmul(A: float32[4, 4], B: float32[4, 4], C: float32[4, 4]):\n"
        "  1 step, 2 programs, at 'two'; print it for the program>"
    )
    assert repr(several.trace) == "<Trace of 1 step; print it for Python>"
    assert str(several).splitlines()[-2] == "# 1 step, working on 'two'"
    symbolic = tw.Schedule(ops.matmul_func(8, 8, 8), symbolic=True)
    symbolic.sample_perfect_tile(symbolic.get_loop("i"), 2)
    assert "\n  3 steps, 1 open decision; print" in repr(symbolic)


def test_parts_of_programs() -> None:
    sch = scheduled()
    block = next(blocks_in(sch.func.body))
    assert repr(block) == 'with T.block("C"):  # and 6 more lines'
    assert repr(block.init) == "C[vi, vj] = 0.0"
    assert repr(sch.get_loop("i_0")) == "i_0"
    assert repr(block.label) == "<Label C>"
    assert repr(block.iters[0]) == "<Iter vi = i_0 * 8 + i_1, spatial in 64>"
    assert repr(block.writes[0]) == "<Region C[vi, vj]>"
    assert repr(block.writes[0].buffer) == "<Buffer C: float32[64, 32]>"
    assert repr(Buffer("R", (4,), "int8", scope="register")) == "<Buffer R: int8[4] in register>"


def test_tensor_expressions() -> None:
    n = te.placeholder((3, 4), "float32", name="X")
    r = te.reduce_axis(4, name="r")
    total = te.compute((3,), lambda i: te.sum(n[i, r] * 2.0, axis=r), name="total")
    assert repr(n) == "<Tensor X: float32[3, 4]>"
    assert repr(total) == "<Tensor total: float32[3]>"
    assert repr(n[0, 1] * 2.0 + 1.0) == "X[0, 1] * 2.0 + 1.0"
    assert repr(r) == "r"


def test_targets_read_back() -> None:
    for text in ("cpu -mcpu=skylake-avx512 -threads=2", "cuda -arch=sm_90a", "cuda", "cpu"):
        target = tw.Target.parse(text)
        assert repr(target) == f'Target("{text}")'
        assert eval(repr(target), {"Target": tw.Target}) == target


def test_modules(module: tw.Module) -> None:
    assert repr(module.signature) == (
        "<Signature matmul(A: float32[64, 16] in, B: float32[16, 32] in,\n"
        "  C: float32[64, 32] out)>"
    )
    assert repr(module) == (
        "<Module matmul(A: float32[64, 16] in, B: float32[16, 32] in,\n"
        "  C: float32[64, 32] out) for cpu -mcpu=x86-64 -threads=1, from schedule>"
    )
    assert repr(module.signature.arguments[0]) == "<Argument A: float32[64, 16], in>"
    origin = Origin("record", "1f2e", "of 64 sizes", schedule_id="a9d3")
    assert repr(origin) == "<Origin record of schedule a9d3: of 64 sizes>"
    timing = Timing((1e-3, 1e-3), 1, 2e-3)
    assert repr(timing) == "<Timing 1 ms +- 0.0% (2 samples of 1 call)>"


def test_errors_are_their_first_line() -> None:
    assert repr(refused()) == "ScheduleError('factor 24 does not divide extent 32')"
    assert repr(tw.TargetError("{0} is none", "x", hint="y")) == "TargetError('x is none')"


def test_what_rules_are_given() -> None:
    sch = scheduled()
    fusion = tw.fusion_groups(sch.original)
    of = "a contraction, and the spatial block that follows it"
    assert repr(fusion) == "<Fusion of matmul: 1 group>"
    assert repr(fusion.groups[0]) == f"<FusionGroup C: {of}>"
    group = tw.Group(tw.GroupKind.CONTRACTION, tuple(blocks_in(sch.original.body)))
    assert repr(group) == f"<Group C: {of}>"
    assert repr(tw.Variant.of("tiled", print, width=8)) == "<Variant tiled(width=8): 1 step>"
    draft = tw.Draft(sch, tw.Target.parse("cuda"))
    assert repr(draft) == "<Draft of matmul for cuda>"


def test_long_names_and_many_parameters_are_cut() -> None:
    params: list[Buffer | Var] = [Var(f"n{k}") for k in range(50)]
    params.insert(0, Buffer("x" * 10_000, (1,), "int8"))
    text = repr(Func("f" * 10_000_000, tuple(params), (), Seq(())))
    assert len(text) < 300
    assert ", and 45 more): 0 loops,\n  0 blocks; print" in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(repr(Label("b" * 10_000))) < MAX_NAME + 10
    assert "\x1b" not in repr(Func("\x1b[2J", (), (), Seq(())))


@pytest.mark.parametrize("character", ["x", "\u77e9", "\u0302"], ids=["one", "two", "no"])
def test_no_more_of_a_text_is_looked_at_than_is_shown(
    character: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A character takes one, two or no cells of a terminal."""
    width, looked = texts._width, []

    def counted(one: str) -> int:
        looked.append(one)
        return width(one)

    monkeypatch.setattr(texts, "_width", counted)
    long = character * 10_000_000
    for room in (0, 1, 2, 80):
        shown = texts.cut(long, room)
        assert (shown == "") if room == 0 else shown.endswith("\u2026")
        assert texts.cells(shown) <= room
        assert len(shown) <= 4 * room
        assert len(texts.in_lines([long], max(room, 1))) <= 4 * max(room, 1)
    assert len(looked) < 5000


def test_a_long_error_of_a_run_takes_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, looked = Pictures(), []
    whole = printable

    def counted(text: str) -> str:
        looked.append(len(text))
        return whole(text)

    monkeypatch.setattr("tilewright.autotune.show.picture.printable", counted)
    for character in ("x", "\u77e9", "\u0302", "\u202e", "\x1b"):
        pictures.error = f"TuningError: {1_000_000 * character}"
        lines = repr(pictures).splitlines()
        assert len(lines) <= 2
        assert max(map(texts.cells, lines)) <= 80
    assert max(looked) < 1000


def test_what_fits_is_not_cut() -> None:
    for text in ("", "abc", "\u77e9a", "so\u0302"):
        assert texts.cut(text, 3) == text
    assert [texts.cut("so\u0302ftm\u0301ax", n) for n in (6, 4, 3, 1)] == [
        "so\u0302ftm\u0301\u2026", "so\u0302f\u2026", "so\u0302\u2026", "\u2026"
    ]  # fmt: skip


def test_records_of_databases(tmp_path: Path) -> None:
    with fill(tmp_path / "tuning.db") as db:
        workload = next(w for w in db.records(Workload) if w.name.startswith("conv2d"))
        measurement = next(m for m in db.records(Measurement) if m.outcome == "ok")
        assert repr(workload).startswith(f"<Workload {workload.id[:12]}: conv2d")
        assert re.fullmatch(r"<Measurement [0-9a-f]{12}: ok [\d.]+ .*>", repr(measurement))
        for kind in KINDS.values():
            for record in db.records(kind):
                text = repr(record)
                assert len(text) < 200
                assert text.startswith(f"<{kind.__name__} {record.id[:12]}")


def test_texts_of_databases_are_printable() -> None:
    record = Workload("0" * 64, "\x1b[2J" + "x" * 1000, "", "", 0, 0)
    assert repr(record).isprintable()
    assert len(repr(record)) < 200


def test_lookups_and_comparisons() -> None:
    compared = ComparedSchedule("ab" * 32, 1e-3, 9, 1.0, None, Verdict.FASTEST)
    assert repr(compared) == "<ComparedSchedule abababababab: fastest, 1 ms>"
    tie = replace(compared, ratio=1.0123, interval=(0.99, 1.03), verdict=Verdict.UNSETTLED)
    text = "<ComparedSchedule abababababab: unsettled (1.01x faster to 1.03x slower)>"
    assert repr(tie) == text
    assert str(tie) == "unsettled (1.01x faster to 1.03x slower)"
    schedule = ScheduleRecord("{}", 1, "written")
    best = Best(schedule, None, True, "a.db")
    assert repr(best) == f"<Best not measured: schedule {schedule.id[:12]}, pinned>"
    explanation = Explanation("cd" * 32, "f", "cpu", None, (), best, (), (), {})
    assert repr(explanation) == (
        "<Explanation of cdcdcdcdcdcd: pinned, 0 refused, 0 near; print it>"
    )


@pytest.mark.parametrize("reason", Reason)
def test_refused_records_fit_a_line_for_any_reason(reason: Reason) -> None:
    text = repr(Refused(reason, "on " * 99, 9999, 12.345e-6, ("ab" * 32, "cd" * 32), "a.db"))
    assert len(text) <= 80
    assert text == f"<Refused {reason.name}: 9,999 records, at best 12.3 us, such as abababababab>"
    alone = repr(Refused(reason, "", 1, None, (), "a.db"))
    assert alone == f"<Refused {reason.name}: 1 record>"


def values(module: tw.Module) -> Iterator[Any]:
    """Public values, and what their attributes have."""
    sch = scheduled()
    arrays = [np.zeros(a.shape, a.dtype) for a in module.signature.arguments]
    yield from (sch, sch.func, sch.trace, *sch.trace.steps, module, module.target, refused())
    yield from (module.time(*arrays, max_samples=3), module.origin, module.signature)
    yield from (
        sch.func.params,
        sch.func.body,
        *blocks_in(sch.func.body),
        tw.fusion_groups(sch.func),
    )
    yield tw.Target.parse("cuda -arch=sm_90a")
    yield (RESULT, *EVENTS)


def test_no_dataclass_shows_another(module: tw.Module) -> None:
    for value in values(module):
        shown: dict[str, Any] = {"value": value}
        for name in dir(type(value)):
            if name.startswith("_"):
                continue
            if isinstance(getattr(type(value), name), property):
                shown[name] = getattr(value, name)
        for name, part in shown.items():
            text = repr(part)
            assert not NESTED.search(text), (type(value), name, text)
            assert text.count("\n") < 10, (type(value), name)
            assert " object at 0x" not in text, (type(value), name, text)


LONG = "long \N{HIRAGANA LETTER A} " * 40
EVENTS = (
    Started("ab" * 32, LONG, LONG, 64, 3.0, 0, 0, 1000, 1e-3),
    Batch(1, 64, 4.30921893499999),
    Waiting(LONG, 4.30921893499999),
    Drift(1.0123456789, 4.30921893499999, finals=True),
    Final(RESULT.finals, 4.30921893499999, gains=RESULT.gains),
    Final((), 4.30921893499999),
    Ended("all 2 trials are done", False, 2, MeasuredTime(1e-3), 4.3, best_session="ab" * 32),
    Ended(LONG, True, 0, None, 4.30921893499999, kept=LONG, noise=LONG),
)
WIDTHS = (40, 80, 200)
MOST_LINES = {
    "Func": 3, "Schedule": 3, "Module": 3, "Signature": 5, "TuneResult": 12, "Pictures": 13,
    "RecordedRun": 14,
}  # fmt: skip
"""Of what has parameters, or tells of several programs; anything else is a line."""


def values_by_kind(module: tw.Module, db: tw.TuningDatabase) -> dict[str, list[Any]]:
    """Public values by their kind; those of measurements are of always."""
    sch = scheduled()
    measured = db.measurements()
    best = next(b for w in db.records(Workload) if (b := db.best(w.id, target_of(db))) is not None)
    run = tw.open_run(db, measured[0].session)
    several: list[Any] = [sch, sch.func, sch.trace, *sch.trace.steps, module, module.target]
    several += [refused(), module.origin, module.signature, Timing((1e-3, 1e-3), 1, 2e-3)]
    several += [tw.Target.parse("cuda -arch=sm_90a"), tw.fusion_groups(sch.func)]
    several += [record for kind in KINDS.values() for record in db.records(kind)]
    several += [best, db.explain(measured[0].workload, target_of(db)), db.compare(db)]
    several += [db.prune(dry_run=True), db.diff(measured[0].id, measured[1].id), run, run.pictures]
    several += [RESULT, RESULT.best, *RESULT.history, *RESULT.gains.values(), *RESULT.finals]
    several += [RESULT.roofline, RESULT.spent]
    several += [*db.explain(measured[0].workload, target_of(db)).refused, *EVENTS]
    several += [
        tw.Draft(sch, tw.Target.parse("cuda -arch=sm_90a")),
        *tw.fusion_groups(sch.func).groups,
    ]
    several += [tw.Variant.of("tiled", print, width=8), ops.attention_func(), module_of_many()]
    several += [*played(), replace(RESULT, workload=LONG, reason=LONG)]
    several.append(Near("12" * 32, "A[64,64] " * 9, 1000, 0.123, 1.0, db.location, None))
    kinds: dict[str, list[Any]] = {}
    for value in several:
        kinds.setdefault(type(value).__name__, []).append(value)
    return kinds


def module_of_many() -> Signature:
    """A signature of more parameters than a line has room for."""
    return Signature("g" * 90, tuple(Argument(f"a{n}", "float32", (64,) * 30) for n in range(9)))


def played() -> Iterator[Any]:
    """Runs of no program, and of more than anybody reads the names of."""
    yield Pictures()
    pictures = Pictures()
    for n in range(9):
        pictures.add(replace(EVENTS[0], program=n))
    pictures.error = f"TuningError: {LONG}"
    yield pictures


def target_of(db: tw.TuningDatabase) -> TargetRecord:
    return db.get(TargetRecord, db.measurements()[0].target)


@pytest.mark.parametrize("width", WIDTHS)
def test_reprs_at_each_width(
    width: int,
    module: tw.Module,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """They do not depend on the width of the terminal, and fit one of 80 columns."""
    monkeypatch.setenv("COLUMNS", str(width))
    with fill(tmp_path / "tuning.db") as db:
        kinds = values_by_kind(module, db)
        lines = [f"{kind}: {v!r}" for kind, some in kinds.items() for v in some]
        assert repr(db) == f"TuningDatabase({db.location!r})"
        for kind, several in kinds.items():
            for value in several:
                lines_of = repr(value).splitlines()
                assert max(map(cell_len, lines_of)) <= 80, value
                assert len(lines_of) <= MOST_LINES.get(kind, 1), value
                assert not NESTED.search(repr(value)), value
                assert not re.search(r"[0-9a-f]{13}", repr(value)), "ids are short"
    text = "\n".join(lines) + "\n"
    update = request.config.getoption("--update")
    check_golden(Path(__file__).with_name("reprs.txt"), text, update=update)
