"""Files of the shell are the old one or the new one: processes are killed, disks are full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.base.files import File, replace_files, whole_file
from tilewright.cli.main import main

from .table_records import fill

OLD = {
    "page": "<!doctype html>the old one",
    "records": '{"format":"tilewright-tuning-records","version":7}\nthe old ones',
}
WRITERS = {"page": ("report", "tuning.db", "-o", "page"), "records": ("db", "export", "records")}

HALFWAY = """
import os, sys, time
from pathlib import Path
from tilewright.cli.main import main

moment, *sys.argv[1:] = sys.argv[1:]

def wait():
    print("now", flush=True)
    time.sleep(600)

if moment == "written":
    os.replace = lambda *_, **__: wait()
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
    """A folder with a database, and files that are to be replaced."""
    fill(tmp_path / "tuning.db").close()
    for name, content in OLD.items():
        (tmp_path / name).write_text(content)
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
    assert (folder / name).read_text() == OLD[name]
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", *WRITERS[name]],
        cwd=folder, env=environment(folder), check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / name).read_text() != OLD[name]


@pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_leaves_the_old_file(words: tuple[str, ...], folder: Path) -> None:
    before = (folder / "tuning.db").read_bytes()

    limited = (
        "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
        "runpy.run_module('tilewright', run_name='__main__', alter_sys=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, *words],
        cwd=folder, env=environment(folder), check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("tilewright: "), done.stderr
    assert "File too large" in done.stderr or "the disk" in done.stderr
    assert "Traceback" not in done.stderr
    assert {name: (folder / name).read_text() for name in OLD} == OLD
    assert (folder / "tuning.db").read_bytes() == before
    assert not list(folder.glob(".tilewright-*"))


def test_what_raises_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("the old one")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as new:
        new.write_text("half")
        raise KeyboardInterrupt
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "the old one"
    with whole_file(path) as new:
        new.write_text("all of it")
        assert path.read_text() == "the old one"
    assert path.read_text() == "all of it"


@pytest.mark.parametrize("link", [None, "link"])
@pytest.mark.parametrize(
    "words",
    [
        ("report", "tuning.db", "-o"),
        ("db", "export", "--db", "tuning.db"),
        ("model", "train", "--out"),
        ("build", "program.py:func", "--target", "cpu -mcpu=x86-64-v2 -threads=1", "-o"),
        ("measure", "pack", "program.py:func", "--out"),
    ],
    ids=["report", "export", "train", "build", "pack"],
)
def test_no_command_replaces_a_database(
    words: tuple[str, ...],
    link: str | None,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = (folder / "tuning.db").read_bytes()
    (folder / "program.py").write_text(
        "from tilewright import ops\n\n\ndef func():\n    return ops.add_relu_func(64)\n",
        encoding="utf-8",
    )
    out = link or "tuning.db"
    if link is not None:
        (folder / link).symlink_to("tuning.db")
    monkeypatch.chdir(folder)
    trained = SimpleNamespace(save=lambda path: replace_files([File(path, b"model")]))
    monkeypatch.setattr("tilewright.autotune.model.samples.shipped", lambda kind: [])
    monkeypatch.setattr("tilewright.autotune.model.samples.featurise", lambda *_: None)
    monkeypatch.setattr("tilewright.autotune.model.base_model.train", lambda learned: trained)
    monkeypatch.setattr("sys.argv", ["tilewright", *words, out])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert f"{out} " in told or f"{out}:" in told
    assert " there" in told
    assert (folder / "tuning.db").read_bytes() == before
    assert (folder / out).is_symlink() == (link is not None)
