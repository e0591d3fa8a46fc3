"""Damage at random places: whatever it does, the answer is a `DatabaseError` or the truth."""

from __future__ import annotations

import io
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import TuningDatabase
from tilewright.tuning_db.values import KINDS

from ..long import first_of
from .samples import CPU, MATMUL, ONE_OF_EACH, verified


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A SQLite database with one record of each kind."""
    path = tmp_path_factory.mktemp("whole") / "tuning.db"
    with TuningDatabase(path) as db:
        db.put(*ONE_OF_EACH)
    return path.read_bytes()


@pytest.fixture(scope="module")
def text(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The export of that database."""
    path = tmp_path_factory.mktemp("export") / "tuning.db"
    path.write_bytes(content)
    lines = io.StringIO()
    with TuningDatabase(path) as db:
        db.export_lines(lines)
    return lines.getvalue()


@pytest.mark.parametrize("seed", range(24))
def test_a_damaged_database(content: bytes, tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    damaged = bytearray(content)
    for _ in range(rng.choice([1, 5, 50])):
        damaged[rng.integers(len(damaged))] = rng.integers(256)
    path = tmp_path / "tuning.db"
    path.write_bytes(damaged)
    refusal = refusal_of(lambda: use(path))
    assert refusal is None or str(path) in refusal


@pytest.mark.parametrize("first", first_of(range(0, 60, 10)))
def test_damaged_databases_in_every_use(tmp_path: Path, root: Path, first: int) -> None:
    """In a process with a limit of time: nothing hangs, is wrong, or ends with another error."""
    command = [sys.executable, "-m", "tests.tuning_db.hostile", str(tmp_path), str(first), "10"]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts = Counter({k: int(n) for k, n in (x.split(": ") for x in done.stdout.splitlines())})
    assert counts["opened"] + counts["refused"] == 10
    # Most damage is survived: a bad record does not make the others unusable.
    assert all(counts[use] > 4 for use in ("best", "machine", "build", "tune"))
    assert counts["move refused"] > 0


def refusal_of(action: Callable[[], object]) -> str | None:
    """The text of a `DatabaseError`, if one is raised; any other exception fails the test."""
    try:
        action()
    except DatabaseError as error:
        return str(error)
    return None


def use(path: Path) -> None:
    with TuningDatabase(path) as db:
        for kind in KINDS.values():
            db.records(kind)
        db.best(MATMUL.id, CPU)
        db.machine(CPU.id)
        str(db.explain(MATMUL, CPU))
        with TuningDatabase("sqlite://") as other:
            other.merge(db)
        db.put(*verified(99, 1.0))


def test_a_damaged_export(text: str) -> None:
    """Of a bad import nothing is there; of a good one (a harmless change) everything."""
    rng = np.random.default_rng(0)
    db = TuningDatabase("sqlite://")
    refused = 0
    for _ in range(200):
        lines = io.StringIO(damage(text, rng))
        refusal = refusal_of(lambda db=db, lines=lines: db.import_lines(lines))  # type: ignore[misc]
        records = sum(len(db.records(kind)) for kind in KINDS.values())
        if refusal is None:
            assert records == len(ONE_OF_EACH)
            db.close()
            db = TuningDatabase("sqlite://")
        else:
            refused += 1
            assert "line " in refusal
            assert records == 0
    db.close()
    assert refused > 150


def damage(text: str, rng: np.random.Generator) -> str:
    start = int(rng.integers(len(text)))
    match int(rng.integers(4)):
        case 0:
            return text[:start]
        case 1:
            return text[:start] + text[start + 1 + int(rng.integers(20)) :]
        case 2:
            return text[:start] + chr(rng.integers(1, 256)) + text[start + 1 :]
        case _:
            return (
                text[:start] + str(rng.choice(['"', "{", "]", "NaN", "1e999", "\n"])) + text[start:]
            )
