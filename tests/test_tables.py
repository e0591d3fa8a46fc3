"""The tables of the shell at one width: golden files, written anew with `pytest --update`."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

import tilewright as tw
from tilewright.autotune.examine import Examined
from tilewright.autotune.measure.pack_import import Imported
from tilewright.autotune.model import assess, base_model, samples
from tilewright.autotune.refresh import Refreshed
from tilewright.autotune.result import TuneResult
from tilewright.autotune.search.drawing import Drawn
from tilewright.building.build import Library
from tilewright.cli.main import app
from tilewright.cli.main import main as command_line
from tilewright.cli.report import best_rows
from tilewright.cli.table import output_text, print_table
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.cuda.generator import CudaGenerator
from tilewright.codegen.generator import Tools
from tilewright.runtime.module import Origin
from tilewright.tir.ir import Buffer
from tilewright.tuning_db import (
    Outcome,
    ScheduleRecord,
    Session,
    SessionStatus,
    TuningDatabase,
)

from .golden import check_golden
from .lab.databases import CPU, LLVM
from .lab.test_result import RESULT
from .long import examples
from .runtime.test_evidence_changes import ELSEWHERE, OLD
from .table_records import fill, fill_session
from .tuning_db.samples import delete

GOLDENS = Path(__file__).parent / "tables"
WIDTH = 80
COMMANDS = {
    "list": "db list",
    "list-wide": "db list --wide --workload conv2d",
    "best": "db best",
    "best-inexact": "db best --tolerance 1e-3",
    "stats": "db stats --db session.db",
    "refresh": "db refresh",
    "prune": "db prune",
    "diff-measurements": "db diff {measurement} {other}",
    "diff-schedules": "db diff 24d9a9237f34 1bcbb99574d3 --db session.db",
    "diff-sessions": "db diff {session} {empty}",
    "diff-databases": "db diff tables.db other.db",
    "show-measurement": "db show {measurement}",
    "show-schedule": "db show {schedule}",
    "explain": "db explain programs.py:matmul --db session.db",
    "list-not-calm": "db list --wide --outcome ok --db noisy.db",
    "best-not-calm": "db best programs.py:matmul --db noisy.db",
    "explain-not-calm": "db explain programs.py:matmul --db noisy.db",
    "import": "db import records.jsonl --db {new}",
    "merge": "db merge tables.db --db {new}",
    "tune": "tune programs.py:matmul --trials 4",
    "tune-several": "tune programs.py:matmul programs.py:failed programs.py:empty",
    "check": "check programs.py:matmul",
    "check-large": "check programs.py:large",
    "pin": "db pin {schedule} --db {tables}",
    "build": "build programs.py:matmul -o build/libmatmul.so",
    "target": "target 'cpu -mcpu=x86-64-v3 -threads=1'",
    "target-gpu": "target 'cuda -arch=sm_90a'",
    "watch": "watch session.db --once",
    "model-report": "model report",
    "model-train": "model train --out base.json",
    "measure-pack": "measure pack programs.py:matmul --out packed",
    "measure-import": "measure import results.jsonl --db {new}",
    "evidence": "evidence before.json after.json",
}
"""Words that follow `tilewright`, and `--db tables.db` where they name no database."""
WITHOUT_GOLDEN = {
    "show": "tests/lab/test_terminal.py has its goldens",
    "inspect": "tests/test_cli_models.py reads it",
    "freeze": "tests/test_lock_file.py reads it",
    "keygen": "it prints the names of two files, in tests/test_signatures.py",
    "sign": "it prints the name of a file, in tests/test_signatures.py",
    "verify": "tests/test_libraries.py reads it",
    "run": "it prints times; tests/test_cli_models.py reads it",
    "report": "it writes a page for browsers, and prints the name of its file",
    "db roles": "it prints SQL, of a server; tests/tuning_db/test_roles.py runs it",
    "db sync": "docs/howto/share_a_server.md has its two lines, which are as those of merge",
    "db export": "it prints JSON lines, of any width",
}
STATUS = {"tune-several": 1, "check": 1, "evidence": 1}
"""The exit status of what finds something wrong."""
WARNS = ("check", "measure-pack", "measure-import", "evidence")
WITH_DATABASE = ("tune", "db")
PROGRAMS = """
from tilewright import ops

def matmul(): return ops.matmul_func(64, 64, 64)
def failed(): return ops.softmax_func(64, 64)
def empty(): return ops.softmax_func(32, 32)
def large(): return ops.matmul_func(512, 512, 512)
"""
SCORES = tuple(
    assess.Score(method, (0.25, 0.5, 1.0), rank, (1.5, 1.25, 1.125, 1.0), timed)
    for method, rank, timed in (
        ("model", 0.875, (1.5, 1.25, 1.0, 1.0)),
        ("base", 0.75, (1.5, 1.25, 1.0, 1.0)),
        ("session", -0.125, None),
        ("analytic", 0.5, (2.5, 1.75, 1.25, 1.125)),
        ("random", 0.0, (12.5, 7.75, 3.25, 2.125)),
    )
)
FAILED = replace(
    RESULT,
    workload="softmax A:float32[64,64]",
    best=None,
    finals=(),
    gains={},
    outcomes={Outcome.CRASH: 3, Outcome.OUT_OF_MEMORY: 1},
    error="signal 11: the process that ran it ended, and said nothing of why \x1b[2J",
    noise="noisy machine: times uncertain by up to 68x; tune again when calm",
)
DRAWN = Drawn(
    "contraction(blocked=false, local=true, pack=[A,B], vector=1); elementwise(form=rows)",
    tw.Trace(),
    ScheduleRecord("{}", 1, "rules"),
    predicted=1.25e-4,
)
EXAMINED = {
    True: (
        Examined(DRAWN, "compiled", ()),
        Examined(
            DRAWN._replace(predicted=None),
            "emulated",
            ("C differs from the interpreter's in 12 of 4096 elements: a race \x1b[2J",),
            {"k_0": {"registers": 255, "spill_store_bytes": 8, "spill_load_bytes": 16,
                     "shared_bytes": 49152}},
            0.25,
            ("few threads run the loop i: bind it",),
        ),
    ),
    False: (Examined(DRAWN, "no", ()),),
}  # fmt: skip
"""Of a small program and a large one."""


TARGET = "cpu -mcpu=x86-64-v3 -threads=1"
STALE = "measured with llvm 21, wanted llvm 22"
NOISE = "noisy machine: times uncertain by up to 68x; tune again when calm"
ORIGIN = Origin(
    "transfer",
    detail="that of A:float32[64,128] B:float32[128,64], about 12% slower than a tuned one",
    loss=0.12,
    schedule_id="ab" * 32,
)
LIBRARY = Library(
    tuple(Path(f"build/libmatmul.{ending}") for ending in ("so", "so.json", "h")),
    tw.Target.parse("cpu -mcpu=x86-64-v3 -threads=1"),
    ORIGIN,
    programs={"matmul": ORIGIN},
)
NO_DEVICE = tw.TargetError(
    "there is no driver of NVIDIA's devices on this machine",
    hint="install the driver, or start the container with its devices",
)


class NamedTask(NamedTuple):
    """What a report says of a task."""

    name: str
    trial_seconds: float | None

    def __str__(self) -> str:
        return self.name


Run = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two databases."""
    path = tmp_path_factory.mktemp("tables")
    with fill(path / "tables.db") as db:
        db.export_lines(path / "records.jsonl")
    fill_session(path / "session.db").close()
    shutil.copy(path / "session.db", path / "noisy.db")
    with TuningDatabase(path / "noisy.db") as noisy:
        for session in noisy.records(Session):
            noisy.finish_session(session.id, SessionStatus.FINISHED, noise=NOISE)
    (path / "programs.py").write_text(PROGRAMS)
    for name, told in (("before", OLD), ("after", ELSEWHERE)):
        (path / f"{name}.json").write_text(json.dumps(told.to_json()))
    with TuningDatabase(path / "other.db") as other:
        other.merge(path / "tables.db")
        delete(other, other.measurements()[0].id)
    return path


def rows_of(func: tw.Func) -> object:
    """The rows of the first argument."""
    first = func.params[0]
    return first.shape[0] if isinstance(first, Buffer) else None


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands have results of always, and not tune, compile or train."""
    results = {"matmul": RESULT, "softmax": FAILED}

    def tuned(funcs: Sequence[tw.Func], *_: object, **__: object) -> list[TuneResult]:
        empty = replace(FAILED, trials=0, outcomes={}, error=None)
        return [results[f.name] if rows_of(f) == 64 else empty for f in funcs]

    def examined(func: tw.Func, *_: object, **__: object) -> Iterator[Examined]:
        yield from EXAMINED[rows_of(func) == 64]

    judged = [
        SimpleNamespace(task=NamedTask(name, seconds), candidates=count, scores=SCORES)
        for name, seconds, count in (
            ("matmul A:float32[64,64] B:float32[64,64] C:float32[64,64]", 0.05, 128),
            ("depthwise_convolution X:float32[1,64,112,112] W:float32[64,1,3,3]", None, 12_345),
        )
    ]
    refreshed = [
        Refreshed("matmul A:float32[64,64] B:float32[64,64]", TARGET, 1e-3, STALE, RESULT),
        Refreshed("softmax A:float32[64,64]", TARGET, 2e-3, STALE),
        Refreshed("own \x1b[2J", TARGET, 3e-3, STALE, refused="its steps do not apply \x1b[2J"),
    ]
    report = assess.Report(tuple(judged), SCORES)  # type: ignore[arg-type]
    monkeypatch.setattr("tilewright.autotune.tune.tune", tuned)
    monkeypatch.setattr("tilewright.autotune.refresh.refresh", lambda *_, **__: refreshed)
    monkeypatch.setattr("tilewright.autotune.examine.examine", examined)
    monkeypatch.setattr(samples, "shipped", lambda kind: [])
    learned = SimpleNamespace(tasks=[SimpleNamespace(session="")])
    monkeypatch.setattr(samples, "featurise", lambda sweeps, kind: learned)
    monkeypatch.setattr(assess, "assess", lambda *_, **__: report)
    trained = SimpleNamespace(rows=12_345, save=lambda path: None)
    monkeypatch.setattr(base_model, "train", lambda learned: trained)
    pack = SimpleNamespace(candidates=range(64), digest="ab" * 32)
    packed = SimpleNamespace(pack=pack, built=61, searched=False)
    monkeypatch.setattr("tilewright.autotune.measure.pack.write_pack", lambda *_, **__: packed)
    imported = Imported(new=9, measurements=1, missing=63, cut=True)
    monkeypatch.setattr(
        "tilewright.autotune.measure.pack_import.import_results", lambda *_: imported
    )
    monkeypatch.setattr("tilewright.runtime.measure.results.read_results", lambda path: None)
    monkeypatch.setattr("tilewright.building.build.build_library", lambda *_, **__: LIBRARY)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands see the same machine always, which has no device."""

    def no_device(self: CudaGenerator) -> None:
        raise NO_DEVICE

    for generator, tools, runtimes in (
        (CpuGenerator, Tools("llvm 22", {"llvm": "22.1.0", "llvmlite": "0.50.0"}), {}),
        (CudaGenerator, Tools("ptxas 13.0", {"nvcc": "13.0.88"}), {"pycuda": None}),
    ):
        monkeypatch.setattr(generator, "tools", lambda _, tools=tools: tools)
        monkeypatch.setattr(generator, "runtimes", lambda _, runtimes=runtimes: runtimes)
    monkeypatch.setattr(CudaGenerator, "missing", lambda _: [NO_DEVICE])
    monkeypatch.setattr("tilewright.codegen.detect.usable_memory", lambda: 32 * 2**30)
    monkeypatch.setattr("tilewright.autotune.records.target_record", lambda target: CPU)
    monkeypatch.setattr("tilewright.autotune.records.toolchain_record", lambda target: LLVM)
    monkeypatch.setattr("tilewright.autotune.today.toolchain_of", lambda text: LLVM)
    path = "/srv/measurements/of-all-machines/tuning.db"
    for module in ("explain", "lookup"):
        monkeypatch.setattr(f"tilewright.tuning_db.{module}.location", lambda _: path)


@pytest.fixture
def db(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TuningDatabase]:
    monkeypatch.chdir(folder)
    with TuningDatabase("tables.db") as opened:
        yield opened


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command on a terminal of a width; return what it prints, and its errors."""

    def run(*words: object, width: int, status: int = 0) -> tuple[str, str]:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys, "argv", ["tilewright", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            command_line()
        assert (ended.value.code or 0) == status
        return capfd.readouterr()

    return run


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("played", "machine")
def test_golden(
    name: str,
    db: TuningDatabase,
    run: Run,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    first, other, *_ = db.measurements()
    empty = next(s for s in db.records(Session) if s.id != first.session)
    ids = {
        "measurement": first.id[:12],
        "other": other.id[:12],
        "schedule": first.schedule[:12],
        "session": first.session[:12],
        "empty": empty.id[:12],
    }
    databases = {name: tmp_path / f"{name}.db" for name in ("new", "tables")}
    if "{tables}" in COMMANDS[name]:  # it writes into this one
        shutil.copy("tables.db", databases["tables"])
    words = shlex.split(COMMANDS[name].format(**ids, **databases))
    if words[0] in WITH_DATABASE and "--db" not in words:
        words += ["--db", "tables.db"]
    text, err = run(*words, width=WIDTH, status=STATUS.get(name, 0))
    assert bool(err) == (name in WARNS)
    assert all(c.isprintable() for line in err.splitlines() for c in line)
    lines = text.splitlines()
    wide = [line for line in lines if cell_len(line) > WIDTH]
    assert all(line.startswith("  python -m ") for line in wide), "commands are copied whole"
    assert all(c.isprintable() for line in lines for c in line), "no control characters"
    update = request.config.getoption("--update")
    check_golden(GOLDENS / f"{name}.txt", text, update=update)


def commands(group: typer.Typer, *words: str) -> Iterator[str]:
    """The names of all commands, as `db list`."""
    for command in group.registered_commands:
        assert command.callback is not None
        yield " ".join([*words, command.name or command.callback.__name__])
    for below in group.registered_groups:
        assert below.typer_instance is not None
        assert below.name is not None
        yield from commands(below.typer_instance, *words, below.name)


def test_each_command_has_goldens_or_a_reason() -> None:
    names = set(commands(app))
    groups = {group.name for group in app.registered_groups}
    given = [words.split() for words in COMMANDS.values()]
    shown = {" ".join(words[: 2 if words[0] in groups else 1]) for words in given}
    assert {"tune", "db list", "measure pack"} <= names
    assert names - shown == set(WITHOUT_GOLDEN)
    assert shown <= names


def test_each_golden_has_its_command() -> None:
    names = {*COMMANDS, "best-ascii"}
    assert {path.stem for path in GOLDENS.iterdir()} == names


def test_a_terminal_that_knows_ascii_alone(
    db: TuningDatabase, request: pytest.FixtureRequest
) -> None:
    plain = {"PYTHONIOENCODING": "ascii", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "80"}
    done = subprocess.run(
        [Path(sys.executable).with_name("tilewright"), "db", "best", "--db", db.location],
        env={**os.environ, **plain},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    update = request.config.getoption("--update")
    check_golden(GOLDENS / "best-ascii.txt", done.stdout.decode("ascii"), update=update)


def test_a_name_of_10_mb_is_set_aside(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Its program is called by its id."""
    path = tmp_path / "hostile.db"
    fill(path).close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE workload SET name = ? WHERE id LIKE '1111%'", ("y" * 10_000_000,))
    out, err = run("db", "list", "--db", path, width=80)
    assert out.startswith("111111111111\ncpu -threads=2\nid  ")
    assert len(out) < 4000
    assert not err
    assert "workload 111111111111" in caplog.text
    assert len(caplog.text) < 1000


def table_lines(columns: Sequence[str], rows: list[list[str]], width: int) -> list[str]:
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(text):
        patch.setenv("COLUMNS", str(width))
        print_table(columns, rows, "nothing \x1b[2J")
    return text.getvalue().splitlines()


@settings(max_examples=examples(40))
@given(
    st.lists(st.lists(st.text(), min_size=4, max_size=4), min_size=1, max_size=4),
    st.integers(40, 200),
)
def test_any_texts_fit(rows: list[list[str]], width: int) -> None:
    """What has to fit in one line fits; a long word in a list of facts is divided."""
    for row in rows:
        row[0] = row[0][:8]
    lines = table_lines((">id", "~name", "?session", "error"), rows, width)
    assert max(map(cell_len, lines), default=0) <= width


def test_columns_without_a_text_are_left_out() -> None:
    lines = table_lines(("a", ">b", "c"), [["1", "", "x"], ["2", "", ""]], 80)
    assert lines == ["a  c", "────", "1  x", "2"]


def test_rows_are_lists_of_facts_where_there_is_no_room() -> None:
    lines = table_lines(("id", "?when", "name"), [["1" * 12, "now", "x" * 40]] * 2, 40)
    facts = ["id    111111111111", "when  now", "name  " + "x" * 34, "      " + "x" * 6]
    assert lines == [*facts, "", *facts]


def test_texts_of_tables_are_no_markup_and_no_control_characters() -> None:
    assert table_lines(("id",), [["[bold]\x1b[2J"]], 80)[2] == "[bold]\ufffd[2J"
    assert table_lines(("id",), [], 80) == ["nothing \ufffd[2J"]


def test_the_best_of_a_tuning_has_its_interval_and_gains_in_any_width(
    db: TuningDatabase, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gain = {"ratio": 42.5, "interval": (41.0, 44.0), "verdict": "slower", "same_code": False}

    def timed(*args: Any) -> Iterator[dict[str, Any]]:
        for best in best_rows(*args):
            gains = {"written": gain, "untuned": {**gain, "ratio": 1.06}}
            yield {**best, "interval": (0.9 * best["seconds"], best["seconds"]), "gains": gains}

    monkeypatch.setattr("tilewright.cli.database.best_rows", timed)
    for width in (40, 80, 200):
        text, _ = run("db", "best", "--db", db.location, width=width)
        for shown in ("95% interval", "vs written", "42.5x faster", "vs untuned", "1.06x faster"):
            assert shown in text


def test_the_best_of_a_session_that_was_disturbed_is_marked(
    db: TuningDatabase, run: Run, folder: Path
) -> None:
    """In a list of programs, where the words of each would be too long."""
    text, _ = run("db", "best", "--db", "noisy.db", width=80)
    assert "verified, not calm" in text
    assert "`db explain` of the program says what disturbed its session" in text
    assert NOISE not in " ".join(text.split())
    calm, _ = run("db", "best", "--db", "session.db", width=80)
    assert "not calm" not in calm
    (row, *_) = json.loads(run("db", "best", "--db", "noisy.db", "--json", width=80)[0])
    assert row["noise"].endswith(f"was not calm: {NOISE.removeprefix('noisy machine: ')}")
    rows = json.loads(run("db", "list", "noisy.db", "--json", width=80)[0])
    assert {row["calm"] for row in rows} == {False}


def test_a_time_of_one_sample_has_no_interval(
    db: TuningDatabase, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(*args: Any) -> Iterator[dict[str, Any]]:
        for best in best_rows(*args):
            yield {**best, "seconds": 0.748, "interval": None, "samples": 1}

    monkeypatch.setattr("tilewright.cli.database.best_rows", once)
    text, _ = run("db", "best", "--db", db.location, width=200)
    assert "748 ms (1 sample)" in text
    assert "95% interval" not in text, "the column is empty"


def test_texts_of_others_have_no_tabs_or_control_characters() -> None:
    assert output_text("a\tb\n\x1b[31m") == "a b\n\ufffd[31m"
