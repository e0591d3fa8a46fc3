"""T4 files: every record comes back as it was, and what other tuners wrote is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import Outcome, TuningDatabase
from tilewright.tuning_db.t4 import INVALIDITY
from tilewright.tuning_db.values import KINDS

from ..refusals import refused
from .samples import BASE, MATMUL, ONE_OF_EACH, measurement, schedule

KEPT = Path(__file__).parent / "kept" / "tuned.sqlite"
VALIDITIES = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
"""The ones that T4 1.0.0 has."""
FOREIGN = {
    "schema_version": "1.0.0",
    "metadata": {"timeunit": "milliseconds"},
    "results": [
        {
            "timestamp": "2026-03-01 12:00:00",
            "configuration": {"block_size_x": 128, "tile": 4},
            "times": {"compilation": 80.5, "runtimes": [1.25, 1.5]},
            "invalidity": "correct",
            "correctness": 1,
            "objectives": ["time"],
            "measurements": [{"name": "time", "value": 1.375, "unit": "ms"}],
        }
    ],
}


def exported(db: TuningDatabase) -> dict[str, Any]:
    text = io.StringIO()
    db.export_t4(text)
    document: dict[str, Any] = json.loads(text.getvalue())
    return document


def lines(db: TuningDatabase) -> str:
    text = io.StringIO()
    db.export_lines(text)
    return text.getvalue()


def load(document: object) -> dict[str, int]:
    with TuningDatabase("sqlite://") as db:
        return db.import_t4(io.StringIO(json.dumps(document)))


def one_of_each() -> TuningDatabase:
    db = TuningDatabase("sqlite://")
    db.put(*ONE_OF_EACH)
    return db


def tuned(tmp_path: Path) -> TuningDatabase:
    """A database that a session of real measurements wrote."""
    (tmp_path / "tuned.sqlite").write_bytes(KEPT.read_bytes())
    return TuningDatabase(tmp_path / "tuned.sqlite")


@pytest.mark.parametrize("made", [lambda _: one_of_each(), tuned])
def test_the_round_trip_is_exact(made: Callable[[Path], TuningDatabase], tmp_path: Path) -> None:
    with made(tmp_path) as db, TuningDatabase("sqlite://") as twin:
        count = db.export_t4(tmp_path / "records.t4.json")
        assert sum(twin.import_t4(tmp_path / "records.t4.json").values()) == count > 0
        assert lines(twin) == lines(db)
        assert sum(twin.import_t4(tmp_path / "records.t4.json").values()) == 0
        db.export_t4(tmp_path / "records.t4.json")  # in the place of the old one


def test_an_empty_database_is_a_file_without_results(tmp_path: Path) -> None:
    with TuningDatabase("sqlite://") as db:
        assert exported(db)["results"] == []
        assert db.export_t4(tmp_path / "none.t4.json") == 0
        assert sum(db.import_t4(tmp_path / "none.t4.json").values()) == 0


def test_results_are_what_t4_asks_for(tmp_path: Path) -> None:
    assert set(INVALIDITY) == set(Outcome)
    assert set(INVALIDITY.values()) == VALIDITIES
    with tuned(tmp_path) as db:
        found = exported(db)
        measured = db.measurements()
    assert found["schema_version"] == "1.0.0"
    assert found["metadata"]["timeunit"] == "seconds"
    assert len(found["results"]) == len(measured) > 0
    by_id = {m.id: m for m in measured}
    for result in found["results"]:
        m = by_id[result["record"]["id"]]
        assert result["times"]["runtimes"] == list(m.samples)
        assert result["invalidity"] in VALIDITIES
        assert result["correctness"] == (m.outcome is Outcome.OK)
        assert [x["value"] for x in result["measurements"]] == [m.seconds] * bool(m.samples)
        assert json.loads(result["configuration"]["trace"])["steps"]
    decided = [r["configuration"].keys() for r in found["results"]]
    assert any("decision0" in names for names in decided)


def test_a_failure_names_its_kind() -> None:
    crashed = measurement(3, None)
    with TuningDatabase("sqlite://") as db:
        db.put(*BASE, schedule(3), crashed)
        (result,) = exported(db)["results"]
    assert (result["invalidity"], result["correctness"]) == ("runtime", 0)
    assert result["measurements"] == []


def test_results_of_other_tuners_are_no_evidence() -> None:
    with refused(DatabaseError, "the file", 1):
        load(FOREIGN)


Damage = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d["results"][0]["times"].update(runtimes=[1e-9]),
        lambda d: d["results"][0]["times"].update(runtimes="x"),
        lambda d: d["results"][0]["configuration"].update(trace="{}"),
        lambda d: d["results"][0]["configuration"].pop("trace"),
        lambda d: d["results"][0].pop("record"),
        lambda d: d["results"][0]["record"]["value"].update(seconds=1.0),
        lambda d: d["results"].append(FOREIGN["results"]),
        lambda d: d["results"].append(FOREIGN["results"][0]),  # type: ignore[index]
        lambda d: d["metadata"]["records"].pop(0),
        lambda d: d["metadata"]["records"].append(7),
        lambda d: d["metadata"]["records"].append({"kind": ["workload"]}),
        lambda d: d["metadata"].update(records={}),
        lambda d: d.update(version=99),
        lambda d: d.update(format="other"),
        lambda d: d.pop("results"),
    ],
)
def test_a_damaged_file_is_refused_whole(damage: Damage) -> None:
    with one_of_each() as db:
        document = exported(db)
        kept = lines(db)
    assert document["metadata"]["records"].pop()["kind"] == "pin"
    assert sum(load(document).values()) == len(KINDS) - 1  # nothing refers to a pin
    damage(document)
    with TuningDatabase("sqlite://") as db:
        with pytest.raises(DatabaseError):
            db.import_t4(io.StringIO(json.dumps(document)))
        assert MATMUL.id not in lines(db)
    assert MATMUL.id in kept


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"results": NaN}', "7", '{"a":1,"a":1}'])
def test_what_is_no_t4_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.t4.json").write_text(text)
    with TuningDatabase("sqlite://") as db:
        with refused(DatabaseError, tmp_path / "x.t4.json"):
            db.import_t4(tmp_path / "x.t4.json")
        if text:
            with refused(DatabaseError, tmp_path / "x.t4.json"):
                db.export_t4(tmp_path / "x.t4.json")
            assert (tmp_path / "x.t4.json").read_text() == text


def test_sizes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tuning_db.t4.LARGEST", 1000)
    with one_of_each() as db, refused(DatabaseError, "1000"):
        load(exported(db))


def test_an_export_is_no_larger_than_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.t4.json"
    with one_of_each() as db, TuningDatabase("sqlite://") as twin:
        count = db.export_t4(path)
        kept = path.read_text()
        monkeypatch.setattr("tilewright.tuning_db.t4.LARGEST", len(kept))
        assert db.export_t4(path) == sum(twin.import_t4(path).values()) == count
        monkeypatch.setattr("tilewright.tuning_db.t4.LARGEST", len(kept) - 1)
        with refused(DatabaseError, path, len(kept) - 1):
            db.export_t4(path)
        stream = io.StringIO()
        with refused(DatabaseError, "the file", len(kept) - 1):
            db.export_t4(stream)
        assert stream.getvalue() == ""
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == kept
