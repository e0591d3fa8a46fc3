"""The command line, driven as a user would."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.model import assess, base_model, samples
from tilewright.autotune.model.cpu import model as cpu_model
from tilewright.autotune.records import _toolchain, workload_record
from tilewright.base.errors import BuildError
from tilewright.cli.database import _gain as cell_of_gain
from tilewright.cli.program_file import Options, load_program
from tilewright.cli.report import print_assessment
from tilewright.codegen.cuda import generator, nvcc, nvrtc
from tilewright.codegen.cuda import generator as cuda_generator
from tilewright.codegen.detect import resolve
from tilewright.runtime import cuda_pycuda, load
from tilewright.runtime.cuda_driver import Driver, use_driver
from tilewright.tuning_db import (
    Gain,
    Machine,
    ScheduleRecord,
    Session,
    SessionStatus,
    TargetRecord,
    Verdict,
    Workload,
    to_plain,
    utc_now,
)
from tilewright.tuning_db.gains import gain_cell

from .commands import COMMAND, TUNE, Run, spawn
from .measured import put_measured
from .runtime.cuda_double import DoubleDriver

SIZES = ["-p", "n=16", "-p", "m=48", "-p", "k=8"]
needs_linker = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang", "ld")), reason="no linker here"
)


@pytest.fixture(scope="session")
def matmul(root: Path) -> str:
    return f"{root / 'examples' / 'matmul.py'}:matmul"


@pytest.mark.parametrize(
    ("words", "quoted"),
    [
        (["check", "--target", "cuda", "-arch=sm_90a"], '"cuda -arch=sm_90a"'),
        (["target", "cuda", "-arch", "sm_90a"], '"cuda -arch=sm_90a"'),
        (["target", "cpu", "-mcpu=x86-64-v2", "-threads=1"], '"cpu -mcpu=x86-64-v2 -threads=1"'),
        (["target", "-arch=sm_80"], '"cuda -arch=sm_80"'),
        (["build", "--target=cuda", "-arch=sm_80"], '"cuda -arch=sm_80"'),
    ],
)
def test_the_options_of_a_target_are_quoted(run: Run, words: list[str], quoted: str) -> None:
    done = run(*words)
    assert done.code == 2
    assert done.err.endswith(f"  hint: write it in quotes: {quoted}\n")


def test_a_missing_compiler_is_said_once(
    run: Run, matmul: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise BuildError("there is no nvcc", hint="install it")

    monkeypatch.setattr(nvcc, "nvcc", none)
    monkeypatch.setattr(nvrtc, "is_there", lambda: False)
    _toolchain.cache_clear()  # another test of this process may have asked
    target = ["--target", "cuda -arch=sm_90a"]
    for words in (
        ["build", matmul, *SIZES, *target, "-o", tmp_path / "kernel.cubin"],
        ["check", matmul, *SIZES, *target],
        ["measure", "pack", matmul, *SIZES, *target, "--out", tmp_path / "pack"],
    ):
        done = run(*words)
        assert done.code == 1
        assert done.err.startswith("tilewright: there is neither nvcc nor NVRTC on this machine")
        assert done.err.count("neither nvcc") == done.err.count("hint: install it") == 1
        assert not done.out
    assert not list(tmp_path.iterdir())


def test_what_is_no_results_makes_no_database(run: Run, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader\n")
    for name, says in (("letter.txt", "not a JSON text"), ("none.jsonl", "cannot read")):
        done = run("measure", "import", tmp_path / name, "--db", tmp_path / "new.db")
        assert done.code == 1
        assert says in done.err
    assert not (tmp_path / "new.db").exists()


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory, matmul: str) -> Path:
    """A database with a session of three trials, tuned by a process of its own."""
    path = tmp_path_factory.mktemp("cli") / "tuning.db"
    done = spawn(matmul, *SIZES, "--trials", 3, "--db", path, command=TUNE)
    assert done.code == 0, done.err
    assert "all 3 trials are done" in done.out, done.out
    assert "trial 1/3" in done.err
    return path


@pytest.fixture
def db(tuned: Path, tmp_path: Path) -> Path:
    """A copy of that database."""
    with tw.TuningDatabase(tmp_path / "tuning.db") as copy:
        copy.merge(tuned)
    return tmp_path / "tuning.db"


# README


def has_cuda_compiler() -> bool:
    try:
        generator.versions()
    except BuildError:
        return False
    return True


def test_readme_commands(
    run: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run as they stand, in a folder that has the examples, but for smaller numbers."""
    text = (root / "README.md").read_text()
    every = re.findall(r"^    (tilewright .*)$", text, re.MULTILINE)
    commands = [c for c in every if "det." not in c]  # docs/models.md runs those on a model
    assert [shlex.split(c)[1] for c in commands] == [
        "tune",
        "build",
        "show",
        "db",
        "report",
        "target",
        "check",
    ]
    (tmp_path / "examples").symlink_to(root / "examples")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        smaller = command.replace("n=512", "n=4 -p m=32 -p k=8").replace("64", "2")
        smaller = smaller.replace("=96", "=16")
        words = shlex.split(smaller)
        if words[1] == "check" and not has_cuda_compiler():
            continue
        done = run(*words[1:])
        assert done.code == 0, f"{command}\n{done.out}\n{done.err}"
        assert done.out + done.err
    written = {path.name for path in tmp_path.iterdir()}
    made = {"tuning.db", "matmul.so", "matmul.so.json", "matmul.h", "report.html"}
    assert made <= written
    module = load(tmp_path / "matmul.so")
    assert module.origin.kind == "record"
    a, b = np.ones((4, 8), np.float32), np.ones((8, 32), np.float32)
    c = np.empty((4, 32), np.float32)
    module(a, b, c)
    np.testing.assert_array_equal(c, 8)


# Help


@pytest.mark.parametrize(
    "command",
    [
        *(
            "",
            "tune",
            "build",
            "show",
            "target",
            "inspect",
            "run",
            "db",
            "db list",
            "db show",
            "db best",
            "db export",
        ),
        *("db import", "db merge", "db explain"),
    ],
)
def test_help(run: Run, command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.code == 0
    assert "Usage: tilewright" in result.out


def test_no_command_is_a_question_for_help(run: Run) -> None:
    done = run()
    assert done.code == 2
    assert "Usage: tilewright" in done.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_an_error(matmul: str) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "tilewright", "show", matmul, *SIZES]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=600, check=False
        )
    assert done.returncode == 1
    assert re.fullmatch(r"tilewright: cannot write: .*No space left on device\n", done.stderr)


def test_a_closed_output_is_no_terminal(matmul: str) -> None:
    command = [sys.executable, "-m", "tilewright", "show", matmul, *SIZES]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    assert "Traceback" not in done.stderr


def test_version(run: Run) -> None:
    assert run("--version").out == f"tilewright {tw.__version__}\n"


def test_python_dash_m() -> None:
    command = [sys.executable, "-m", "tilewright", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == f"tilewright {tw.__version__}\n"


def test_help_waits_for_nothing_heavy() -> None:
    code = "import sys, tilewright.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "llvmlite", "sqlalchemy", "xgboost", "rich", "scipy", "psutil"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("imported", ["typer", "tilewright.cli.main", "tilewright.codegen"])
def test_ctrl_c_while_modules_are_imported(root: Path, imported: str) -> None:
    """One line, for what a command imports itself as well."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    module, _, entry = project["scripts"]["tilewright"].partition(":")
    code = f"""if True:
        import signal, sys
        class Finder:
            def find_spec(self, name, *_):
                if name == {imported!r}:
                    signal.raise_signal(signal.SIGINT)
        sys.meta_path.insert(0, Finder())
        sys.argv[1:] = ["target"]
        from {module} import {entry}
        {entry}()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "tilewright: interrupted\n"


# Tuning


def test_tune_prints_json(run: Run, matmul: str, tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    result = run("tune", matmul, *SIZES, "--trials", 2, "--db", path, "--seed", 3, "--json")
    assert result.code == 0
    told = result.json
    assert (told["trials"], told["status"]) == (2, "finished")
    assert told["outcomes"] == {"ok": 2}
    assert told["best"]["seconds"] > 0
    trace = tw.Trace.from_json(json.dumps(told["best"]["trace"]))
    assert trace.apply(tw.ops.matmul_func(16, 48, 8)).func.name == "matmul"
    with tw.TuningDatabase(path, create=False) as db:
        assert db.measurements(session=told["session"])[0].outcome == "ok"


def test_tune_stops_after_seconds(run: Run, matmul: str, tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    result = run("tune", matmul, *SIZES, "--seconds", 0.2, "--db", path, "--json")
    assert result.code in {0, 1}
    assert "seconds" in result.json["reason"]


def test_tune_shows_progress_in_a_terminal(matmul: str, tmp_path: Path) -> None:
    arguments = [matmul, *SIZES, "--trials", "2", "--db", str(tmp_path / "tuning.db")]
    code, shown = in_terminal([*TUNE, *arguments])
    assert code == 0
    assert "trial 2/2" in shown
    assert "all 2 trials are done" in shown
    assert "\x1b[" in shown, "a picture that is drawn anew"


def test_a_session_that_measured_nothing_says_so(
    run: Run, matmul: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Measurer, "measure", interrupted)
    result = run("tune", matmul, *SIZES, "--trials", 2, "--db", tmp_path / "tuning.db")
    assert result.code == 130
    assert "nothing was measured in " in result.out
    assert "0 trials are kept in " in result.out
    assert (
        "; resume=True (--resume) with the same target and budget continues the session"
        in result.out
    )
    assert "no candidate is correct" not in result.out


def in_terminal(command: list[str]) -> tuple[int, str]:
    """The status and the output of a command whose output is a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, **TERMINAL})
    os.close(theirs)
    pieces = []
    while True:
        try:
            pieces.append(os.read(ours, 1 << 16))
        except OSError:  # the other end is closed
            break
        if not pieces[-1]:
            break
    os.close(ours)
    return child.wait(timeout=600), b"".join(pieces).decode()


TERMINAL = {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}


def test_ctrl_c_keeps_the_best(matmul: str, tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    command = [*TUNE, matmul, *SIZES, "--trials", "100000", "--db", str(path)]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "COLUMNS": ""},  # lines as they are
    )
    assert child.stderr is not None
    line = next(line for line in child.stderr if "trial" in line)
    assert "best" in line
    _await_trials(path)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert re.search(r"^best +[\d.]+ [mun]s", out, re.MULTILINE)
    assert "interrupted" in out
    with tw.TuningDatabase(path, create=False) as db:
        (session,) = db.records(Session)
        kept = f"{db.trials(session.id)} trials are kept in {path}; resume=True (--resume) "
    assert kept in out
    assert kept in err
    with tw.TuningDatabase(path, create=False) as db:
        assert db.best(workload_record(tw.ops.matmul_func(16, 48, 8)).id, *_here(db)) is not None


@pytest.mark.parametrize(
    ("number", "output"),
    [
        (signal.SIGHUP, []),
        pytest.param(signal.SIGTERM, [], marks=pytest.mark.long),
        (signal.SIGTERM, ["--json"]),
    ],
)
def test_a_signal_that_ends_the_process_ends_the_session(
    matmul: str, tmp_path: Path, number: signal.Signals, output: list[str]
) -> None:
    path = tmp_path / "tuning.db"
    command = [*TUNE, matmul, *SIZES, "--trials", "100000", "--db", str(path)]
    command += output
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        _await_trials(path)
        child.send_signal(number)
        err = child.stderr.read()
    assert child.returncode == -number
    assert "interrupted" in err
    assert "Traceback" not in err
    with tw.TuningDatabase(path, create=False) as db:
        (session,) = db.records(Session)
        assert session.status is SessionStatus.INTERRUPTED
        assert f"{db.trials(session.id)} trials are kept in {path}; resume=True (--resume)" in err


def _await_trials(path: Path) -> None:
    """Wait until a session has recorded two trials."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        time.sleep(0.1)
        with suppress(tw.DatabaseError), tw.TuningDatabase(path, create=False) as db:
            if len(db.measurements()) >= 2:
                return
    raise AssertionError("no trial was recorded")


def _here(db: tw.TuningDatabase) -> Any:
    from tilewright.tuning_db import Toolchain

    return db.records(TargetRecord)[0], db.records(Toolchain)[0]


# Building


def test_parameters_of_no_program_are_refused(run: Run, db: Path) -> None:
    result = run("db", "best", *SIZES, "--db", db)
    assert result.code == 2
    assert "parameters of no program" in result.err


@needs_linker
def test_build_from_a_record(run: Run, matmul: str, db: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.so"
    result = run("build", matmul, *SIZES, "--db", db, "-o", output, "--json")
    assert (result.code, result.err) == (0, "")
    told = result.json
    assert told["files"] == [str(tmp_path / name) for name in ("out.so", "out.so.json", "out.h")]
    (best,) = run("db", "best", "--db", db, "--json").json
    assert run("db", "best", matmul, *SIZES, "--db", db, "--json").json == [best]
    assert run("db", "best", matmul, "--db", db, "--json").json == []  # of other sizes
    nothing = run("db", "best", matmul, "--db", db).out
    assert nothing.startswith("nothing usable for matmul A:float32[1024,1024]")
    with tw.TuningDatabase(db) as tuned:
        (session,) = tuned.records(Session)
    # Finals that other tests disturb are recorded nowhere, and so are the gains.
    assert "written" in best["gains"] or session.noise is not None
    assert all(gain["ratio"] > 0 for gain in best["gains"].values())
    assert told["origin"]["kind"] == "record"
    assert told["origin"]["record_id"] == best["measurement"]
    module = load(output)
    a, b = np.ones((16, 8), np.float32), np.ones((8, 48), np.float32)
    c = np.empty((16, 48), np.float32)
    module(a, b, c)
    np.testing.assert_array_equal(c, 8)


def test_build_without_a_record_says_so(run: Run, matmul: str, db: Path, tmp_path: Path) -> None:
    sizes = ["-p", "n=8", "-p", "m=8", "-p", "k=8"]
    output = tmp_path / "out.o"
    result = run("build", matmul, *sizes, "--db", db, "-o", output, "--object")
    assert result.code == 0
    assert "no usable record of matmul" in result.err
    assert "from transfer" in result.out
    assert output.read_bytes()[:4] == b"\x7fELF"

    refused = run(
        "build", matmul, *sizes, "--db", db, "-o", output, "--object", "--allow", "record"
    )
    assert refused.code == 1
    assert "near shapes of matmul" in refused.err


def test_build_without_a_database(run: Run, matmul: str, tmp_path: Path) -> None:
    result = run("build", matmul, *SIZES, "-o", tmp_path / "out.o", "--object")
    assert (result.code, result.err) == (0, "")
    assert "from model" in result.out


# The database


def test_list(run: Run, db: Path) -> None:
    found = run("db", "list", "--db", db, "--json").json
    assert {row["superseded"] for row in found} <= {True, False}
    assert len(found) >= 3
    wanted = {"id", "workload", "target", "outcome", "seconds", "session", "created"}
    assert all(row.keys() >= wanted for row in found)
    assert len({row["id"] for row in found}) == len(found)
    assert [row["created"] for row in found] == sorted((r["created"] for r in found), reverse=True)

    table = run("db", "list", "--db", db)
    assert table.code == 0
    assert all(row["id"][:12] in table.out for row in found)
    assert "matmul A:float32[16,8]" in table.out
    assert len(run("db", "list", "--db", db, "--limit", 1, "--json").json) == 1


def test_list_chooses_and_sorts(run: Run, db: Path) -> None:
    def listed(*words: object) -> Any:
        return run("db", "list", "--db", db, "--json", *words).json

    everything = listed()
    times = [row["seconds"] for row in listed("--sort", "time") if row["seconds"]]
    assert times == sorted(times)
    assert listed("--outcome", "ok") == [row for row in everything if row["outcome"] == "ok"]
    assert listed("--workload", "A:float32[16,8]") == everything
    assert listed("--workload", everything[0]["workload"][:6]) == everything
    assert listed("--since", "3h") == everything
    assert listed("--since", "2100-01-01") == listed("--since", "2100-01-01T00:00+02:00") == []
    assert "no measurements in" in run("db", "list", "--db", db, "--since", "2100-01-01").out
    wide = run("db", "list", "--db", db, "--wide").out
    assert "decisions" in wide
    assert everything[0]["generator"] in wide
    nothing = run("db", "list", "--db", db, "--workload", "softmax")
    assert nothing.code == 1
    assert "is called 'softmax', and no id of one begins so; there are: matmul A:" in nothing.err
    for option, value, told in (
        ("--sort", "speed", "'speed' is none of created, time, outcome"),
        ("--outcome", "fine", "'fine' is none of ok, illegal, build_error"),
        ("--since", "soon", "'soon' is neither a date such as"),
        ("--since", "1e3d", "'1e3d' is neither a date such as"),
        ("--since", "99999999w", "'99999999w' is neither a date such as"),
    ):
        refused = run("db", "list", "--db", db, option, value)
        assert refused.code == 2
        assert told in refused.err


def test_list_of_an_empty_database(run: Run, tmp_path: Path) -> None:
    tw.TuningDatabase(tmp_path / "new.db").close()
    assert run("db", "list", "--db", tmp_path / "new.db", "--json").json == []
    assert "no measurements" in run("db", "list", "--db", tmp_path / "new.db").out


def test_rows_of_assessments_are_lines_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Texts that are as long as they get leave the predictions whole."""
    monkeypatch.setenv("COLUMNS", "80")
    workload = "depthwise_convolution A:float32[1,64,112,112] W:float32[64,64,3,3]"
    ratios = tuple(1.234 for _ in range(4))
    scores = tuple(
        assess.Score(method, (0.5, 0.5, 0.5), -0.55, ratios, ratios)
        for method in ("model", "analytic", "random")
    )

    class Task(NamedTuple):
        trial_seconds: None = None

        def __str__(self) -> str:
            return workload

    judged: Any = SimpleNamespace(task=Task(), candidates=12345, scores=scores)
    print_assessment(assess.Report((judged,), scores))
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if "depthwise" in line]
    assert row.split()[-3:] == ["1.234"] * 3


def test_list_fits_into_a_terminal(db: Path) -> None:
    code, shown = in_terminal([str(COMMAND), "db", "list", "--db", str(db)])
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 120


def test_show(run: Run, db: Path) -> None:
    (best,) = run("db", "best", "--db", db, "--json").json
    shown = run("db", "show", best["measurement"][:10], "--db", db)
    assert shown.code == 0
    assert best["measurement"] in shown.out
    with tw.TuningDatabase(db) as opened:
        # The schedule of a build, which is measured too, comes from no generator.
        made = [(m, s) for m, s in opened.history() if s.generator and json.loads(s.trace)["steps"]]
        scheduled, schedule = made[0]
    shown = run("db", "show", scheduled.id, "--db", db)
    assert "b0 = sch.get_block(0)" in shown.out
    assert schedule.generator in shown.out
    assert run("db", "show", best["schedule"], "--db", db, "--json").json["kind"] == "schedule"
    assert "with T.block" in run("db", "show", best["workload"], "--db", db).out
    measurement = run("db", "show", best["measurement"], "--db", db, "--json").json
    session = run("db", "show", measurement["session"], "--db", db)
    assert hashlib.sha256(cpu_model.MODEL_FILE.read_bytes()).hexdigest() in session.out
    assert run("db", "show", "0123456789", "--db", db).code == 1


def test_show_of_a_machine(run: Run, db: Path) -> None:
    with tw.TuningDatabase(db) as opened:
        (target, *_) = opened.records(TargetRecord)
        odd = ("the clock varied by 12%", "a quota of 1.5 processors")
        machine = Machine(target.id, {"clock": 2.6e9}, odd, utc_now())
        opened.put(machine)
    shown = run("db", "show", machine.id[:10], "--db", db)
    assert shown.code == 0
    facts = dict(line.split(maxsplit=1) for line in shown.out.splitlines())
    assert facts["kind"] == "machine"
    assert facts["rates"] == "{'clock': 2600000000.0}"
    assert facts["odd"] == "the clock varied by 12%; a quota of 1.5 processors"
    shown = run("db", "show", machine.id, "--db", db, "--json")
    assert shown.json == {"kind": "machine", "id": machine.id, **to_plain(machine)}


def test_show_of_a_schedule_that_cannot_be_read(run: Run, db: Path) -> None:
    record = ScheduleRecord('{"version": 99, "steps": []}', 99)
    with tw.TuningDatabase(db) as opened:
        opened.put(record)
    shown = run("db", "show", record.id, "--db", db)
    assert shown.code == 0
    assert "cannot be read" in shown.out
    assert "version 99" in shown.out


def test_best(run: Run, db: Path) -> None:
    (best,) = run("db", "best", "--db", db, "--json").json
    assert best["name"] == "matmul"
    assert best["seconds"] > 0
    assert best["gflops"] == pytest.approx(2 * 16 * 48 * 8 / best["seconds"] / 1e9)
    assert best["schedule"][:12] in run("db", "best", "--db", db).out


def test_explain(run: Run, matmul: str, db: Path) -> None:
    told = run("db", "explain", matmul, *SIZES, "--db", db)
    assert told.code == 0
    assert "fastest verified" in told.out
    # Which of the others were checked too depends on what they took.
    assert "usable, but not the choice" in told.out or "not verified" in told.out
    plain = run("db", "explain", matmul, *SIZES, "--db", db, "--json").json
    assert plain["best"]["schedule"]["trace"]

    other = run("db", "explain", matmul, *SIZES, "--db", db, "--target", "cpu -threads=77")
    assert "found: nothing usable" in other.out
    assert "another number of threads: a build re-fits it, as a transfer (tuned for " in other.out
    assert ", asked for 77)" in other.out


def test_a_record_that_does_not_apply_is_told(run: Run, matmul: str, db: Path) -> None:
    """`best` and `explain` say what a build takes, and `explain` why it is not the fastest."""
    (before,) = run("db", "best", "--db", db, "--json").json
    func = load_program(matmul, Options([*SIZES[1::2]]))
    with tw.TuningDatabase(db) as database:
        trace = '{"version":1,"steps":[{"op":"explode","args":{}}]}'
        unfit = put_measured(database, func, resolve("cpu"), trace, 1e-9)
    (best,) = run("db", "best", "--db", db, "--json").json
    assert best == before
    told = run("db", "explain", matmul, *SIZES, "--db", db).out
    assert "its schedule does not apply to the program" in told
    assert "'explode'" in told
    assert unfit.id[:12] in told
    assert f"found: schedule {best['schedule'][:12]}" in told


def test_records_move(run: Run, db: Path, tmp_path: Path) -> None:
    lines, other = tmp_path / "records.jsonl", tmp_path / "other.db"
    exported = run("db", "export", lines, "--db", db)
    assert exported.err == f"{len(lines.read_text().splitlines()) - 2} records written\n"
    piped = run("db", "export", "-", "--db", db)
    assert piped.out == lines.read_text()
    t4 = tmp_path / "records.t4.json"
    assert run("db", "export", t4, "--db", db).err == exported.err
    assert run("db", "export", "-", "--format", "t4", "--db", db).out == t4.read_text()
    run("db", "import", t4, "--db", tmp_path / "t4.db")
    assert run("db", "export", "-", "--db", tmp_path / "t4.db").out == piped.out

    new = run("db", "import", lines, "--db", other, "--json").json
    assert new["workload"] == 1
    assert run("db", "merge", db, "--db", other).out == "new: nothing\n"
    assert (
        run("db", "list", "--db", other, "--json").out
        == run("db", "list", "--db", db, "--json").out
    )


def test_hostile_names_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    text = "\x1b[2J\x1b]0;owned\x07[bold]"
    with tw.TuningDatabase(path) as db:
        db.put(Workload("ab" * 32, text, text, text, 1, 1))
    shown = run("db", "show", "abab", "--db", path)
    assert shown.code == 0
    assert "[bold]" in shown.out
    assert not set(shown.out) & {"\x1b", "\x07"}


def test_database_by_environment(run: Run, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DB", str(db))
    assert len(run("db", "list", "--json").json) >= 3


def test_reader_that_has_seen_enough(db: Path) -> None:
    command = f"{shlex.quote(str(COMMAND))} db export - --db {shlex.quote(str(db))} | head -c 9"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == '{"format"'
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr


# The target


def test_target(run: Run) -> None:
    told = run("target", "--json").json
    assert told["target"].startswith("cpu -mcpu=")
    assert told["threads"] >= 1
    assert told["features"]
    named = run("target", "cpu -mcpu=x86-64-v3 -threads=1")
    assert "cpu -mcpu=x86-64-v3 -threads=1" in named.out


def test_a_gpu_and_what_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_generator, "versions", lambda: {"nvcc": "13.0.88"})
    with use_driver(DoubleDriver()):
        told = run("target", "cuda", "--json").json
        assert told["target"] == "cuda -arch=sm_90a"
        assert (told["model"], told["sms"], told["driver"]) == ("NVIDIA H200", 132, "13.0")
        assert told["missing"] == []
        assert "missing" not in run("target", "cuda").out


def test_all_that_a_gpu_lacks_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler() -> str:
        raise tw.BuildError("there is no nvcc", hint="install it")

    def no_driver() -> Driver:
        raise tw.TargetError("there is no driver", hint="install that")

    monkeypatch.setattr(cuda_pycuda, "open_driver", no_driver)
    monkeypatch.setattr(cuda_generator, "versions", no_compiler)
    both = "there is no driver\n  hint: install that\nthere is no nvcc\n  hint: install it"
    here = run("target", "cuda")
    assert (here.code, here.out, here.err) == (1, "", f"tilewright: {both}\n")
    named = run("target", "cuda -arch=sm_80")
    assert named.code == 0
    assert "shared_bytes_per_block  166912\n" in named.out
    assert "missing: there is no nvcc\n  hint: install it\n" in named.out
    assert "missing: there is no driver\n" in named.out


# Errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("db list --db missing.db", "there is no tuning database at"),
        ("db export records.jsonl --db missing.db", "there is no tuning database at"),
        ("db merge missing.db --db new.db", "there is no tuning database at"),
        ("db import missing.jsonl --db new.db", "missing.jsonl failed"),
        ("db show xyz --db garbage.db", "garbage.db"),
        ("target gpu", "unknown target kind 'gpu'"),
        ("build MATMUL -o nowhere/x.so -p n=2", "there is no folder nowhere"),
        ("build MATMUL -o x.so --allow guess -p n=2", "unknown policy 'guess'"),
        ("build MATMUL -o x.so -p n=2 --target tpu", "unknown target kind 'tpu'"),
        ("build MATMUL -o x.so -p dtype=float7", "float7"),
        ("build MATMUL -o x.o -p n=2 --linker ld", "takes no linker"),
        ("build MATMUL -o x.so -p n=2 --linker no-such-ld", "'no-such-ld'"),
        ("tune MATMUL --seconds 0 -p n=2", "is no budget"),
    ],
)
def test_what_is_refused(
    run: Run, matmul: str, arguments: str, says: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "garbage.db").write_text("no database at all, whatever its name says" * 99)
    result = run(*(matmul if a == "MATMUL" else a for a in arguments.split()))
    assert result.code == 1
    assert result.err.startswith("tilewright: ")
    assert says in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("tune missing.py:f", "there is no file 'missing.py'"),
        ("tune matmul", "expected FILE.py:FUNCTION or MODEL.onnx, found 'matmul'"),
        ("db best x.db", "found 'x.db'; a database is given by --db"),
        ("tune FILE:nothing", "has no function 'nothing'; it defines"),
        ("tune FILE:number", "gives a int, expected a program"),
        ("tune FILE:nothing", "refused, named"),
        ("tune FILE:seen", "gives a list, expected a program"),
        ("tune FILE:named -p n=1", "is no function, and has no parameters"),
        ("tune FILE:text -p n=1", "has no parameter 'n'; it has none"),
        ("tune FILE:needs", "needs a value for n"),
        ("tune FILE:needs -p n", "expected NAME=VALUE, found 'n'"),
        ("tune FILE:needs -p n=1.5", "n=1.5: expected int, found '1.5'"),
        ("tune FILE:needs -p n=1 -p n=2", "'n' is given twice"),
        ("tune FILE:needs -p n=1 -p kind=c", "kind=c: expected one of a, b"),
        ("tune FILE:needs -p n=1 -p flag=perhaps", "flag=perhaps: expected bool"),
        ("tune FILE:needs -p n=1 -p sizes=3", "cannot be given as text"),
        ("tune FILE:needs --trials none", "--trials"),
        ("tune FILE:needs --trials 0", "--trials"),
        ("build FILE:needs", "-o"),
        ("fly", "No such command 'fly'"),
        ("explain x", "No such command 'explain'. Did you mean `tilewright db explain`?"),
        ("db", "Usage: tilewright db"),
    ],
)
def test_wrong_usage(run: Run, user_file: Path, arguments: str, says: str) -> None:
    result = run(*(a.replace("FILE", str(user_file)) for a in arguments.split()))
    assert result.code == 2
    assert says in result.err + result.out


USER_FILE = """
from typing import Literal
from beside import scale
from tilewright import te


def needs(n: int, scale: float = scale, kind: Literal["a", "b"] = "a", flag: bool = True,
          some: int | None = None, sizes: list[int] = (), free=3):
    seen.append((n, scale, kind, flag, some, free))
    a = te.placeholder((n,), "float32", name="a")
    return te.func([a, te.compute((n,), lambda i: a[i] * scale, name="b")], name="scaled")


def number() -> int:
    return 1


def text() -> str:
    return "text"


def broken() -> None:
    raise RuntimeError("a bug of the user's own")


def refused():
    te.placeholder((2,), "float7")


seen = []
named = needs(4)
seen.clear()
"""


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(USER_FILE)
    (tmp_path / "beside.py").write_text("scale = 2.5\n")
    return tmp_path / "mine.py"


def test_parameters_by_annotation(run: Run, user_file: Path) -> None:
    given = ["n=3", "scale=1e-1", "kind=b", "flag=false", "some=none", "free=7"]
    options = [word for text in given for word in ("-p", text)]
    output = user_file.with_name("x.o")
    result = run("build", f"{user_file}:needs", *options, "-o", output, "--object")
    assert result.code == 0, result.err
    assert sys.modules["_tilewright_user_mine"].seen == [(3, 0.1, "b", False, None, 7)]
    assert str(user_file.parent) not in sys.path


def test_a_program_is_named_itself(run: Run, user_file: Path) -> None:
    output = user_file.with_name("x.o")
    result = run("build", f"{user_file}:named", "-o", output, "--object")
    assert result.code == 0, result.err
    assert output.exists()


def test_errors_of_the_program_are_told(run: Run, user_file: Path) -> None:
    result = run("tune", f"{user_file}:refused", "--db", user_file.with_name("x.db"))
    assert result.code == 1
    assert "float7" in result.err


def test_a_bug_of_the_user_shows_where_it_is(user_file: Path) -> None:
    done = spawn("tune", f"{user_file}:broken")
    assert done.code == 1
    assert "a bug of the user's own" in done.err
    assert f'File "{user_file}"' in done.err


def test_verbose_logs_to_standard_error(matmul: str, db: Path, tmp_path: Path) -> None:
    sizes = ["-p", "n=8", "-p", "m=8", "-p", "k=8"]
    done = spawn("-v", "build", matmul, *sizes, "--db", db, "--object", "-o", tmp_path / "x.o")
    assert done.code == 0, done.err
    assert "INFO: " in done.err
    assert "has no usable record of matmul" in done.err


# Cost models


def test_model_train_and_report(
    run: Run, matmul: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table, out = (tmp_path / name for name in ("t.db", "table.jsonl.gz", "model.json"))
    for n in (16, 24):
        sizes = ["-p", f"n={n}", "-p", "m=64", "-p", "k=16"]
        assert run("tune", matmul, *sizes, "--trials", 16, "--db", path).code == 0
    wanted = ["model", "train", "--db", path, "--out", out, "--no-shipped"]
    told = run(*wanted, "--table", table, "--json").json
    assert told == {"file": str(out), "rows": 32, "tasks": 2}
    monkeypatch.setattr(samples, "shipped", lambda kind: samples.read(table))
    assert base_model.load(out, cpu_model.MODEL.feature_version).rows == 32
    report = run("model", "report", "--json", "--folds", 2).json
    assert [t["candidates"] for t in report["tasks"]] == [16, 16]
    assert {s["method"] for s in report["overall"]} == {*assess.METHODS}
    shown = run("model", "report", "--db", path, "--folds", 2).out
    assert "2 tasks" in shown
    assert "known of 2 tasks" in shown
    assert all(method in shown for method in assess.METHODS)


def test_model_report_of_too_little(run: Run, db: Path) -> None:
    assert run("model", "report", "--db", db, "--no-shipped").code == 1
    missing = run("model", "train", "--db", db, "--no-shipped", "--out", db.parent / "m.json")
    assert missing.code == 1
    assert "no samples to train on" in missing.err
    unknown = run("model", "report", "--db", db, "--kind", "quantum")
    assert unknown.code == 1
    assert "no cost model for targets of kind 'quantum'; there is one for cpu, cuda" in unknown.err


# measure, check


@needs_linker
def test_measure_and_check(run: Run, matmul: str, tmp_path: Path) -> None:
    here = ["--target", "cpu -mcpu=x86-64-v2 -threads=1"]
    folder = tmp_path / "p; true"
    pack = run("measure", "pack", matmul, *SIZES, *here, "--trials", 1, "--out", folder)
    assert pack.code == 0, pack.err
    assert "1 of 1 candidates of matmul compiled" in pack.out
    assert shlex.split(pack.out.splitlines()[-1])[3] == str(folder)
    refused = run("measure", "import", folder / "pack.json", "--db", tmp_path / "t.db")
    assert refused.code == 1
    assert "has no results" in refused.err
    checked = run("check", matmul, *SIZES, *here, "--candidates", 1, "--json")
    assert checked.code == 0, checked.err
    assert {row["ran"] for row in checked.json} == {"compiled"}
    shown = run("check", matmul, *SIZES, *here, "--candidates", 1)
    assert "predicted" in shown.out
    assert "candidates are right" in shown.out


def test_check_shows_its_verdicts_in_a_narrow_terminal(
    run: Run, matmul: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("check", matmul, *SIZES, "--target", "cpu -mcpu=x86-64-v2 -threads=1")
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 80
    heading = next(line for line in lines if "sketch" in line)
    assert heading.split()[-1] == "result"
    assert lines[-1].endswith("candidates are right")


@pytest.mark.parametrize("verdict", Verdict)
def test_a_gain_of_a_list_says_what_it_says_elsewhere(verdict: Verdict) -> None:
    gain = Gain(1.05, (0.9, 1.2), verdict=verdict)
    assert cell_of_gain(to_plain(gain)) == gain_cell(gain)
