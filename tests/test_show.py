"""The command `show`: programs as written, with recorded schedules, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.base.errors import BuildError
from tilewright.cli import showing
from tilewright.codegen.hot_block import hot_block
from tilewright.tir.parser import parse
from tilewright.tuning_db import (
    Measurement,
    ScheduleRecord,
    TargetRecord,
    Verification,
    Workload,
)

from .commands import COMMAND, Run
from .test_cli import SIZES, db, in_terminal, matmul, tuned

__all__ = ["db", "matmul", "tuned"]  # fixtures

TITLES = ["program", "steps", "difference from the program as written", "assembly"]
ANSI = re.compile("\x1b\\[[0-9;]*m")


@pytest.fixture
def records(db: Path) -> Iterator[tuple[Measurement, ScheduleRecord]]:
    """A measurement that ran and was checked, and its schedule, which has steps."""
    with tw.TuningDatabase(db) as opened:
        checked = {v.schedule for v in opened.records(Verification) if v.passed}
        ran = [m for m in opened.records(Measurement) if m.outcome == "ok"]
        ran = [m for m in ran if m.schedule in checked]
        pairs = ((m, opened.get(ScheduleRecord, m.schedule)) for m in ran)
        yield next((m, s) for m, s in pairs if tw.Trace.from_json(s.trace).steps)


@pytest.fixture
def pinned(db: Path, records: tuple[Measurement, ScheduleRecord]) -> Path:
    """The database with that schedule as the best."""
    measurement, schedule = records
    with tw.TuningDatabase(db) as opened:
        where = opened.get(TargetRecord, measurement.target)
        opened.pin(measurement.workload, where, schedule.id)
    return db


def test_a_program_as_it_is_written(run: Run, matmul: str) -> None:
    done = run("show", matmul, *SIZES)
    assert done.code == 0
    assert not done.err
    assert parse(done.out).name == "matmul"
    assert re.search(r"for i in range\(\d+\): +# .* in L1: ", done.out)
    assert "\x1b" not in done.out


def test_the_best_schedule_of_a_database(run: Run, matmul: str, pinned: Path) -> None:
    done = run("show", matmul, *SIZES, "--db", pinned)
    assert done.code == 0
    assert [line for line in done.out.split("\n") if line in TITLES] == TITLES
    assert "b0 = sch.get_block(0)  # C" in done.out
    assert "\n> " in done.out


def test_a_record(
    run: Run, matmul: str, db: Path, records: tuple[Measurement, ScheduleRecord]
) -> None:
    measurement, schedule = records
    steps = str(tw.Trace.from_json(schedule.trace)).split("\n")
    for id in (measurement.id, schedule.id[:16]):
        done = run("show", matmul, *SIZES, "--db", db, "--record", id, "--what", "trace")
        shown = [line[5:] for line in done.out.splitlines()]
        assert shown[0] == f"{steps[0]}  # C"
        assert shown[1:] == steps[1:]


def test_parts(run: Run, matmul: str, pinned: Path) -> None:
    shown = {
        what: run("show", matmul, *SIZES, "--db", pinned, "--what", what).out
        for what in ("program", "diff", "asm")
    }
    assert parse(shown["program"]).name == "matmul"
    assert {line[0] for line in shown["diff"].splitlines()} >= {"+", "-"}
    lines = shown["asm"].splitlines()
    hot = [line for line in lines if line.startswith("> ")]
    loops = {line[2:].split()[0] for line in hot}
    assert re.search(rf"for [\w, ]*\b{loops.pop()}\b", shown["program"])
    assert not loops
    assert len(lines) > sum(line.startswith("> ") for line in lines) > 0


def test_json(run: Run, matmul: str, pinned: Path) -> None:
    told = run("show", matmul, *SIZES, "--db", pinned, "--json").json
    assert parse(told["program"]).name == "matmul"
    assert told["trace"]["steps"]
    assert told["error"] is None
    assert {change["sign"] for change in told["difference"]} >= {"+", "-"}
    block = hot_block(told["assembly"])
    assert block is not None
    assert told["hot_block"] == [block.start, block.stop]
    assert len(told["loops"]) == len(told["assembly"].split("\n")) - 1
    (loop,) = {told["loops"][n] for n in block}
    assert re.search(rf"for [\w, ]*\b{loop}\b", told["program"])


def test_colours_in_a_terminal(matmul: str) -> None:
    code, out = in_terminal([str(COMMAND), "show", matmul, *map(str, SIZES)])
    assert code == 0
    assert "\x1b[35mfor\x1b[0m" in out
    assert parse(ANSI.sub("", out).replace("\r", "")).name == "matmul"


@pytest.mark.parametrize("width", [40, 80])
def test_it_fits(
    run: Run, matmul: str, pinned: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = run("show", matmul, *SIZES, "--db", pinned)
    assert max(map(len, done.out.splitlines())) <= width


def test_other_targets(run: Run, matmul: str) -> None:
    target = "cpu -mcpu=skylake-avx512 -threads=1"
    done = run("show", matmul, *SIZES, "--target", target, "--what", "asm")
    assert done.code == 0
    assert "retq" in done.out


def test_a_database_without_a_record_is_told(run: Run, matmul: str, tmp_path: Path) -> None:
    tw.TuningDatabase(tmp_path / "empty.db").close()
    done = run("show", matmul, *SIZES, "--db", tmp_path / "empty.db")
    assert done.code == 0
    assert done.err.startswith("warning: ")
    assert "has no usable record of matmul" in done.err
    assert "tilewright db explain" in done.err
    assert done.out.startswith("@tw.script")


def test_what_is_refused(
    run: Run, matmul: str, db: Path, records: tuple[Measurement, ScheduleRecord]
) -> None:
    done = run("show", matmul, "--record", "abcdef")
    assert done.code == 2
    assert "--record needs the database" in done.err
    done = run("show", matmul, *SIZES, "--db", db, "--record", "0" * 12)
    assert done.code == 1
    assert "there is no record" in done.err
    with tw.TuningDatabase(db) as opened:
        workload = next(iter(opened.records(Workload)))
    done = run("show", matmul, *SIZES, "--db", db, "--record", workload.id)
    assert done.code == 1
    assert "is the id of a workload; expected a schedule or a measurement" in done.err


def test_records_of_another_program_are_refused_by_name(
    run: Run, root: Path, db: Path, records: tuple[Measurement, ScheduleRecord]
) -> None:
    softmax = f"{root / 'examples' / 'softmax.py'}:softmax"
    for record in records:
        done = run("show", softmax, "--db", db, "--record", record.id)
        assert done.code == 1
        told = " ".join(done.err.split())
        assert f"the {record.kind} {record.id[:12]} is of matmul A:float32[" in told
        assert "and does not apply to softmax X:float32[" in told
        assert "name the program and the sizes that it is of" in told
        assert not done.out


def test_records_of_other_sizes_are_shown_with_a_warning(
    run: Run, matmul: str, db: Path, records: tuple[Measurement, ScheduleRecord]
) -> None:
    sizes = ["-p", "n=32", "-p", "m=96", "-p", "k=16"]
    for record in records:
        done = run("show", matmul, *sizes, "--db", db, "--record", record.id, "--what", "program")
        assert done.code == 0
        assert f"warning: record {record.id} is of matmul A:float32[" in done.err
        assert "on matmul A:float32[32,16]" in done.err
        own = run("show", matmul, *SIZES, "--db", db, "--record", record.id, "--what", "program")
        assert not own.err


def test_where_nothing_is_compiled(
    run: Run, matmul: str, pinned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise BuildError("there is no compiler", hint="install it")

    monkeypatch.setattr(showing, "_assembly", none)
    done = run("show", matmul, *SIZES, "--db", pinned)
    assert done.code == 0
    assert done.out.endswith("assembly\nnone: there is no compiler\n")
    done = run("show", matmul, *SIZES, "--db", pinned, "--what", "asm")
    assert done.code == 1
    assert "hint: install it" in done.err
    told = run("show", matmul, *SIZES, "--db", pinned, "--json").json
    assert told["hot_block"] is None
    assert told["error"].startswith("there is no compiler")


LAYERS = """
import tilewright as tw
from tilewright import ops, te


def mlp() -> tw.Func:
    x, w, v = (te.placeholder((8, 8), name=name) for name in "XWV")
    return te.func([x, w, v, ops.matmul(ops.matmul(x, w, epilogue="relu"), v)], name="mlp")
"""


def test_kernels_of_a_program_of_several_products(run: Run, tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYERS)
    mlp, where = f"{tmp_path / 'layers.py'}:mlp", ("--target", "cpu -threads=1")
    written = run("show", mlp, *where)
    assert parse(written.out).name == "mlp"
    assert f"2 kernels: mlp_0, mlp_1; each is a program: {mlp}:mlp_0" in written.err
    assert parse(run("show", f"{mlp}:mlp_1", *where).out).name == "mlp_1"
    assert "it has mlp_0, mlp_1" in run("show", f"{mlp}:mlp_2", *where).err

    db = tmp_path / "tuning.db"
    assert run("tune", f"{mlp}:mlp_1", "--trials", 1, "--db", db, *where).code == 0
    done = run("show", mlp, *where, "--db", db, "--what", "trace")
    titles = [line for line in done.out.splitlines() if line.startswith("kernel")]
    assert titles == ["kernel 1 of 2: mlp_0", "kernel 2 of 2: mlp_1"]
    assert "no usable record of mlp_0" in done.err
    assert "of mlp_1" not in done.err
    told = run("show", mlp, *where, "--db", db, "--json").json["kernels"]
    assert [parse(kernel["program"]).name for kernel in told] == ["mlp_0", "mlp_1"]
    assert [bool(kernel["trace"]["steps"]) for kernel in told] == [False, True]
