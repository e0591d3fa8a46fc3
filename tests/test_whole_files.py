"""Files of the shell are the old one or the new one: processes are killed, disks are full."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright.tuning_db import Measurement, TuningDatabase
from tilewright.whole_files import whole_file

from .table_records import fill
from .tuning_db.samples import fill as fill_base
from .tuning_db.samples import measurement, schedule

OLD = "<!doctype html>the old one"
WRITERS = {"report": ("report", "tuning.db", "-o", "out"), "export": ("db", "export", "out")}

HALFWAY = """
import sys, time
from pathlib import Path
from tilewright.cli.main import main

moment, *sys.argv[1:] = sys.argv[1:]

def wait():
    print("now", flush=True)
    time.sleep(600)

if moment == "written":
    Path.replace = lambda self, target: wait()
else:
    class Half:
        def __init__(self, file): self.file = file
        def __enter__(self): return self
        def __exit__(self, *_): self.file.close()
        def write(self, data):
            self.file.write(data[: len(data) // 2])
            self.file.flush()
            wait()

    def opened(self, *args, **kwargs):
        file = open(self, *args, **kwargs)
        return Half(file) if self.suffix == ".partial" else file

    Path.open = opened
    Path.write_bytes = lambda self, data: opened(self, "wb").write(data)
main()
"""
"""A command that stops where its file is half written, or written and not in its place."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a database, and a file that is to be replaced."""
    fill(tmp_path / "tuning.db").close()
    (tmp_path / "out").write_text(OLD)
    return tmp_path


def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path)), "HOME": str(root)}


@pytest.mark.parametrize("moment", ["half", "written"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_killed_command_leaves_the_old_file(name: str, moment: str, folder: Path) -> None:
    command = [sys.executable, "-c", HALFWAY, moment, *WRITERS[name]]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        (partial,) = folder.glob(".tilewright-*.partial")
        assert partial.stat().st_size > 0
        process.kill()
    assert (folder / "out").read_text() == OLD
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", *WRITERS[name]],
        cwd=folder, env=environment(folder), check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / "out").read_text() != OLD


@pytest.mark.parametrize("words", [*WRITERS.values(), ("db", "compact")], ids=[*WRITERS, "compact"])
def test_a_full_disk_leaves_the_old_file(words: tuple[str, ...], folder: Path) -> None:
    before = (folder / "tuning.db").read_bytes()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = subprocess.run(
        [sys.executable, "-m", "tilewright", *words],
        cwd=folder, env=environment(folder), check=False, capture_output=True, text=True,
        preexec_fn=limit,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("tilewright: "), done.stderr
    assert "File too large" in done.stderr or "the disk" in done.stderr
    assert "Traceback" not in done.stderr
    assert (folder / "out").read_text() == OLD
    assert (folder / "tuning.db").read_bytes() == before
    assert not list(folder.glob(".tilewright-*"))


COMPACTING = """
import sys
from tilewright.tuning_db import TuningDatabase

with TuningDatabase(sys.argv[1], create=False) as db:
    while True:
        db.compact()
        print("once", flush=True)
"""


def test_a_killed_compaction_loses_no_record(tmp_path: Path) -> None:
    place = tmp_path / "tuning.db"
    with TuningDatabase(place) as db:
        fill_base(db)
        db.put(schedule(8), *(measurement(8, 1.0 + n) for n in range(1000)))
        before = {m.id for m in db.records(Measurement)}
    rng = np.random.default_rng(5)
    for _ in range(4):
        command = [sys.executable, "-c", COMPACTING, str(place)]
        with subprocess.Popen(
            command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "once\n"
            time.sleep(rng.random() / 50)
            process.kill()
        with TuningDatabase(place) as db:
            assert {m.id for m in db.records(Measurement)} == before


def test_what_raises_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(OLD)
    with pytest.raises(KeyboardInterrupt), whole_file(path) as new:
        new.write_text("half")
        raise KeyboardInterrupt
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == OLD
    with whole_file(path) as new:
        new.write_text("all of it")
        assert path.read_text() == OLD
    assert path.read_text() == "all of it"
