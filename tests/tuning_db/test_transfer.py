"""Moving records: export, import and merge; and what comes in a file from somebody else."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright.autotune.records import inexact_steps
from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import (
    AnyRecord,
    Machine,
    Measurement,
    Outcome,
    ScheduleRecord,
    Session,
    SessionStatus,
    TuningDatabase,
    Workload,
    canonical_json,
)
from tilewright.tuning_db.codec import LIMITS, LONGEST_LINE, LONGEST_ROW
from tilewright.tuning_db.exported import exported
from tilewright.tuning_db.lines import VERSION, object_of, record_of
from tilewright.tuning_db.values import KINDS, to_plain

from ..refusals import refused
from .samples import (
    BASE,
    CPU,
    MACHINE,
    MATMUL,
    ONE_OF_EACH,
    SESSION,
    WIDER,
    Clock,
    measurement,
    schedule,
    verification,
    verified,
    winograd,
)

Place = Callable[[], str]
Line = dict[str, Any]
HEADER = '{"format":"tilewright-tuning-records","version":6}'


def dump(db: TuningDatabase) -> str:
    text = io.StringIO()
    db.export_lines(text)
    return text.getvalue()


def load(db: TuningDatabase, content: list[Line] | str) -> dict[str, int]:
    if not isinstance(content, str):
        content = "".join(canonical_json(line) + "\n" for line in content)
    return db.import_lines(io.StringIO(content))


@pytest.fixture
def memory() -> Iterator[TuningDatabase]:
    with TuningDatabase("sqlite://") as opened:
        yield opened


@pytest.fixture(scope="module")
def full_text() -> str:
    """The export of one record of each kind."""
    with TuningDatabase("sqlite://") as db:
        db.put(*ONE_OF_EACH)
        return dump(db)


@pytest.fixture
def full(full_text: str) -> list[Line]:
    """The lines of that export, to be changed at will."""
    return [json.loads(line) for line in full_text.splitlines()]


def test_the_format(full: list[Line]) -> None:
    assert full[0] == {"format": "tilewright-tuning-records", "version": 7}
    assert full[-1] == {"end": len(ONE_OF_EACH)}
    assert [line["kind"] for line in full[1:-1]] == list(KINDS)


def test_an_export_does_not_take_the_place_of_a_pipe(db: TuningDatabase, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link", "."):
        with pytest.raises(DatabaseError):
            db.export_lines(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in tmp_path.glob("*.partial")) == []


def test_an_import_does_not_wait_for_a_pipe(db: TuningDatabase, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link", "."):
        with pytest.raises(DatabaseError):
            db.import_lines(tmp_path / name)


def test_a_refused_import_closes_its_file(db: TuningDatabase, tmp_path: Path) -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(DatabaseError):
            db.import_lines(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == open_before


@pytest.mark.parametrize("content", ["notes", '{"format": "other"}\n'])
def test_an_export_replaces_nothing_but_an_export(
    db: TuningDatabase, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    with pytest.raises(DatabaseError):
        db.export_lines(file)
    assert file.read_text() == content
    file.write_text("")
    db.export_lines(file)
    assert db.export_lines(file) == len(file.read_text().splitlines()) - 2
    own = Path(db.location)
    if own.is_file():
        with pytest.raises(DatabaseError):
            db.export_lines(own)
        assert db.import_lines(file) == dict.fromkeys(db.import_lines(file), 0)


@pytest.mark.parametrize(
    "name", ["plain/x", "missing/x", "x" * 300, "a\0b"], ids=["file", "missing", "long", "NUL"]
)
def test_a_path_that_cannot_be_is_named(db: TuningDatabase, tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").touch()
    with pytest.raises(DatabaseError, match=re.escape(str(tmp_path))):
        db.export_lines(tmp_path / name)
    with pytest.raises(DatabaseError, match=re.escape(str(tmp_path))):
        db.import_lines(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".partial"] == []


def test_a_file_that_takes_no_text_is_no_damage(db: TuningDatabase) -> None:
    closed = io.StringIO()
    closed.close()
    for file in (closed, io.BytesIO()):
        with pytest.raises(DatabaseError):
            db.export_lines(file)  # type: ignore[arg-type]


def test_an_export_takes_a_name_as_long_as_the_file_system_does(
    db: TuningDatabase, tmp_path: Path
) -> None:
    file = tmp_path / ("x" * 250)
    count = db.export_lines(file)
    assert json.loads(file.read_text().splitlines()[-1]) == {"end": count}
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".partial"] == []


def test_an_import_of_an_export_is_the_same_database(
    db: TuningDatabase, new_place: Place, tmp_path: Path
) -> None:
    db.put(*ONE_OF_EACH, *verified(16, 2.0), schedule(32), measurement(32, None))
    file = tmp_path / "records.jsonl"
    count = db.export_lines(file)
    assert count == len(file.read_text().splitlines()) - 2
    with TuningDatabase(new_place()) as twin:
        assert sum(twin.import_lines(file).values()) == count
        assert dump(twin) == dump(db)
        best = db.best(MATMUL.id, CPU)
        assert best is not None
        assert twin.best(MATMUL.id, CPU) == dataclasses.replace(best, layer=twin.location)
        assert sum(twin.import_lines(file).values()) == 0
        assert dump(twin) == dump(db)
    assert [path.name for path in tmp_path.glob("records*")] == ["records.jsonl"]


def test_a_file_of_the_first_version_is_read(full: list[Line], memory: TuningDatabase) -> None:
    load(memory, as_before(full, 1))
    assert memory.get(Workload, MATMUL.id) == MATMUL
    load(memory, [full[0], *related(full[1:])])
    assert memory.get(Workload, MATMUL.id).family == "f" * 64


def as_before(lines: list[Line], version: int) -> list[Line]:
    """The lines of an export as versions 1 to 6 wrote them."""
    header, *records, _ = copy.deepcopy(lines)
    if version < 4:
        records = [line for line in records if line["kind"] != Machine.kind]
    for line in records:
        if line["kind"] == "session":
            for name in ("elapsed", "drift", "untuned", *(["noise"] if version < 6 else [])):
                del line["value"][name]
        if line["kind"] == "measurement":
            del line["value"]["elapsed"], line["value"]["trial"]
            if version < 6:
                del line["value"]["predicted"]
            if version < 5:
                del line["value"]["resources"]
        if line["kind"] == "workload" and version == 1:
            del line["value"]["family"]
        if line["kind"] == "schedule" and version < 3:
            del line["value"]["inexact"]
            line["value"]["parent"] = None
    return [{**header, "version": version}, *records, {"end": len(records)}]


@pytest.mark.parametrize("version", [4, 5, 6])
def test_files_with_all_kinds_of_records_are_read(
    version: int, full: list[Line], memory: TuningDatabase
) -> None:
    assert sum(load(memory, as_before(full, version)).values()) == len(ONE_OF_EACH)
    assert load(memory, full) == dict.fromkeys(KINDS, 0)


def test_a_file_of_the_third_version_is_read(full: list[Line], memory: TuningDatabase) -> None:
    assert sum(load(memory, as_before(full, 3)).values()) == len(ONE_OF_EACH) - 1
    assert load(memory, full) == {**dict.fromkeys(KINDS, 0), Machine.kind: 1}
    assert memory.get(Machine, MACHINE.id) == MACHINE


@pytest.mark.parametrize("version", [1, 2])
def test_what_nothing_reads_is_skipped_in_older_files(
    version: int, full: list[Line], memory: TuningDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    old = as_before(full, version)
    next(line for line in old[1:] if line["kind"] == "schedule")["value"]["parent"] = "e" * 64
    model = {"feature_version": "1", "model": "{}", "rows": 64, "target": CPU.id}
    cost_model = {"kind": "cost_model", "id": "d" * 64, "value": model}
    load(memory, [*old[:-1], cost_model, {"end": old[-1]["end"] + 1}])
    for record in ONE_OF_EACH:
        if record != MACHINE:
            assert memory.get(type(record), record.id) == record
    assert "skipped 1 cost models" in caplog.text
    with refused(DatabaseError, len(full)):
        load(memory, [*full[:-1], cost_model, {"end": full[-1]["end"] + 1}])


def test_inexact_steps_of_older_files_are_told(memory: TuningDatabase) -> None:
    fast, exact = winograd(2, 1.0, 1e-3), schedule(8)
    with TuningDatabase("sqlite://") as db:
        db.put(*BASE, *fast, exact)
        lines = as_before([json.loads(line) for line in dump(db).splitlines()], 2)
    content = "".join(canonical_json(line) + "\n" for line in lines)
    load(memory, content)
    assert memory.get(ScheduleRecord, fast[0].id).inexact == ""
    memory.import_lines(io.StringIO(content), inexact=inexact_steps)
    assert memory.get(ScheduleRecord, fast[0].id) == fast[0], "what it names now is taken over"
    assert memory.get(ScheduleRecord, exact.id) == exact
    load(memory, content)
    assert memory.get(ScheduleRecord, fast[0].id) == fast[0]


def related(lines: list[Line]) -> list[Line]:
    """The lines with a family in the first."""
    first = {**lines[0], "value": {**lines[0]["value"], "family": "f" * 64}}
    return [first, *lines[1:]]


def test_a_family_that_was_unknown_is_taken_over(new_place: Place) -> None:
    known = dataclasses.replace(MATMUL, family="f" * 64)
    with TuningDatabase(new_place()) as one, TuningDatabase(new_place()) as two:
        assert one.put(MATMUL) == 1
        assert two.put(known) == 1
        assert one.merge(two)["workload"] == 1
        assert two.merge(one)["workload"] == 0
        assert one.get(Workload, MATMUL.id) == two.get(Workload, MATMUL.id) == known
        assert one.put(MATMUL, dataclasses.replace(MATMUL, family="e" * 64)) == 0
        assert one.get(Workload, MATMUL.id) == known


def test_merging_is_idempotent_and_in_any_order(new_place: Place) -> None:
    with (
        TuningDatabase(new_place()) as one,
        TuningDatabase(new_place()) as two,
        TuningDatabase(new_place()) as three,
    ):
        one.put(*BASE, *verified(8, 1.0), schedule(16), measurement(16, 0.5))
        two.put(*BASE, WIDER, *verified(8, 3.0, workload=WIDER), schedule(16), verification(16))
        counts = one.merge(two)
        assert (counts["workload"], counts["measurement"], counts["schedule"]) == (1, 1, 0)
        assert sum(one.merge(two).values()) == 0
        two.merge(one)
        assert dump(one) == dump(two)
        three.merge(two)
        three.merge(one)
        assert dump(three) == dump(one)
        for db in (one, two, three):
            best = db.best(MATMUL.id, CPU)
            assert best is not None
            assert best.seconds == 0.5, "a check from one verifies the measurement of the other"


def test_merging_by_path_and_more_than_a_batch(db: TuningDatabase, new_place: Place) -> None:
    place = new_place()
    with TuningDatabase(place) as other:
        other.put(*BASE, schedule(8), *(measurement(8, 1.0 + n) for n in range(600)))
    assert db.merge(place)["measurement"] == 600
    assert len(db.measurements(session=SESSION.id)) == 600
    with pytest.raises(DatabaseError, match="no tuning database at|is empty"):
        db.merge(new_place())


def test_the_later_state_of_a_session_stays(new_place: Place, clock: Clock) -> None:
    with (
        TuningDatabase(new_place(), clock=clock) as one,
        TuningDatabase(new_place(), clock=clock) as two,
    ):
        one.put(*BASE)
        two.put(*BASE)
        clock.tick(30)
        one.finish_session(SESSION.id)
        clock.tick(-10)
        two.heartbeat(SESSION.id)
        assert two.merge(one)["session"] == 1
        assert two.get(Session, SESSION.id).status is SessionStatus.FINISHED
        clock.tick(-10)
        assert one.merge(two)["session"] == 0
        assert one.get(Session, SESSION.id) == two.get(Session, SESSION.id)


def test_a_pin_that_is_here_stays(new_place: Place, clock: Clock) -> None:
    with (
        TuningDatabase(new_place(), clock=clock) as one,
        TuningDatabase(new_place(), clock=clock) as two,
        TuningDatabase(new_place(), clock=clock) as three,
    ):
        for db, tile in ((one, 8), (two, 16)):
            db.put(*BASE, schedule(tile))
            db.pin(MATMUL.id, CPU, schedule(tile).id, unverified=True)
        assert one.merge(two)["pin"] == 0
        assert three.merge(two)["pin"] == 1
        for db, tile in ((one, 8), (three, 16)):
            best = db.best(MATMUL.id, CPU)
            assert best is not None
            assert best.schedule == schedule(tile)


def test_a_failed_import_writes_nothing(db: TuningDatabase, full: list[Line]) -> None:
    before = dump(db)
    full[-2]["value"]["schedule"] = "0" * 64
    with pytest.raises(DatabaseError) as refused:
        load(db, full)
    assert refused.value.data["line"] == 11
    assert dump(db) == before
    assert sum(load(db, [*full[:-2], {"end": len(full) - 3}]).values()) > 0


def corrupt(content: list[Line], kind: str, **changes: object) -> list[Line]:
    for line in content:
        if line.get("kind") == kind:
            line["value"].update(changes)
    return content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c[1:], "line 1: not an export of tuning records"),
        (lambda _: [], "line 1: the file ends here, expected an end line"),
        (lambda c: [c[0] | {"version": 8}, *c[1:]], "line 1: written in version 8 of the format"),
        (lambda c: [c[0] | {"version": "1"}, *c[1:]], "line 1: written in version '1'"),
        (lambda c: c[:-1], "line 12: the file ends here, expected an end line"),
        (lambda c: [*c[:9], *c[10:]], "line 11: found 9 records, expected 10"),
        (lambda c: [*c, c[1]], "line 12: there is more after the end"),
        (lambda c: [c[0], c[1] | {"kind": "pickle"}], "line 2: expected an object with kind"),
        (lambda c: [c[0], c[1] | {"kind": ["workload"]}], "line 2: expected an object with kind"),
        (lambda c: [c[0], c[1] | {"more": 1}], "line 2: expected an object with kind"),
        (lambda c: [c[0], c[1] | {"id": "b" * 64}], "line 2: .* has digest aaaaaaaaaaaa"),
        (lambda c: [c[0], c[1] | {"id": None}], "line 2: .* workload 'None' has digest"),
        (lambda c: [c[0], c[1] | {"value": None}], "line 2: workload is NoneType, expected an obj"),
        (lambda c: corrupt(c, "measurement", session="0" * 64), "line 10: .* damaged or changed"),
        (lambda c: corrupt(c, "measurement", seconds=0.001), "line 10: .*median of its samples is"),
        (lambda c: corrupt(c, "schedule", trace="[1]"), "line 7: .* was damaged or changed"),
        (lambda c: corrupt(c, "target", perf="mine"), "line 3: .* was damaged or changed"),
        (lambda c: corrupt(c, "machine", odd=["calm"]), "line 6: .* was damaged or changed"),
        (lambda c: corrupt(c, "machine", rates={"clock": 0}), "line 6: machine.rates has 'clock'"),
        (lambda c: corrupt(c, "workload", flops=1e3), "line 2: workload.flops: "),
        (
            lambda c: [c[0], *c[2:-1], {"end": 9}],
            "line 7: session 0d337aefd6b4 refers to workload aaaaaaaaaaaa",
        ),
    ],
)
def test_a_bad_line_is_named(
    full: list[Line], change: Callable[[list[Line]], list[Line]], message: str
) -> None:
    with TuningDatabase("sqlite://") as empty:
        with pytest.raises(DatabaseError, match=message) as refused:
            load(empty, change(full))
        assert refused.value.data["line"] >= 1
        assert all(empty.records(kind) == [] for kind in KINDS.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "not valid JSON"),
        ("[1]", "expected a JSON object, found list"),
        ("[" * 100_000, "not valid JSON"),
        ('{"kind": NaN}', "NaN is not JSON"),
        ('{"end": 0, "kind": 1, "end": 0}', "the key 'end' is given twice"),
        ('{"kind": "pin", "id": "", "value": {"a": "", "a": ""}}', "the key 'a' is given twice"),
        ('{"kind": 1' + "0" * 5000 + "}", "not valid JSON"),
        ('{"kind": "workload", "id": "a", "val', "not valid JSON"),
        ("", "not valid JSON"),
        ("cos\nsystem\n(S'echo'\ntR.", "not valid JSON"),
    ],
)
def test_a_damaged_line_is_named(memory: TuningDatabase, text: str, message: str) -> None:
    with pytest.raises(DatabaseError, match=f"line 2: .*{message}"):
        load(memory, f"{HEADER}\n{text}\n")


def test_a_line_too_long_is_not_read(
    memory: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.tuning_db.lines.LONGEST_LINE", 1000)
    with pytest.raises(DatabaseError) as refused:
        load(memory, HEADER + "\n" + '{"a":"' + "x" * 1000)
    assert refused.value.data["line"] == 2


def test_a_line_without_end_takes_little_memory(memory: TuningDatabase) -> None:
    """Of what is longer than any record no more is read than a record may have."""
    sizes: list[int] = []

    class Endless(io.StringIO):
        def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
            if self.tell() == 0:
                return super().readline(size)
            sizes.append(size)
            return "x" * size

    with pytest.raises(DatabaseError) as refused:
        memory.import_lines(Endless(HEADER + "\n"))
    assert refused.value.data["line"] == 2
    assert sizes == [LONGEST_LINE]
    assert LONGEST_LINE < 50_000_000


@pytest.mark.parametrize("form", ["lines", "t4"])
def test_others_write_while_an_import_waits_for_its_file(
    place: str, db: TuningDatabase, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe may stall for minutes."""
    monkeypatch.setattr("tilewright.tuning_db.connect.BUSY_TIMEOUT", 0.2)
    tiles = itertools.count(1)

    class Stalling(io.StringIO):
        def read(self, size: int | None = -1, /) -> str:
            with TuningDatabase(place) as other:
                other.put(*verified(next(tiles), 1.0))
            return super().read(size)

        def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
            self.read(0)
            return super().readline(size)

    with TuningDatabase("sqlite://") as source:
        source.put(*ONE_OF_EACH, *verified(1000, 1.0))
        text = io.StringIO()
        getattr(source, f"export_{form}")(text)
    assert getattr(db, f"import_{form}")(Stalling(text.getvalue()))["measurement"] == 2
    assert len(db.records(Measurement)) == 1 + next(tiles)


class Reset(io.StringIO):
    def read(self, size: int | None = -1, /) -> str:
        raise ConnectionResetError

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        return self.read(size)


def unzipped(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(gzip.GzipFile(fileobj=io.BytesIO(content)))


def closed() -> io.StringIO:
    file = io.StringIO()
    file.close()
    return file


UNREADABLE: dict[str, Callable[[], object]] = {
    "bytes": lambda: io.BytesIO(b"{}"),
    "closed": closed,
    "cut": lambda: unzipped(gzip.compress(b"{" * 1000)[:-12]),
    "flipped": lambda: unzipped(gzip.compress(b"{")[:10] + b"\xff" * 9),
    "reset": Reset,
    "encoding": lambda: io.TextIOWrapper(io.BytesIO(b"{\xe9"), encoding="ascii"),
    "none": lambda: None,
    "a path of bytes": lambda: b"records.jsonl",
}


@pytest.mark.parametrize("file", UNREADABLE)
@pytest.mark.parametrize("form", ["lines", "t4"])
def test_an_open_file_that_cannot_be_read_is_refused(
    memory: TuningDatabase, form: str, file: str
) -> None:
    with pytest.raises(DatabaseError) as refused:
        getattr(memory, f"import_{form}")(UNREADABLE[file]())
    assert "damaged" not in str(refused.value)


def test_a_full_folder_of_temporary_files_is_an_error(
    db: TuningDatabase, full_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(DatabaseError):
            db.import_lines(io.StringIO(full_text))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "none"))
    with pytest.raises(DatabaseError):
        db.import_lines(io.StringIO(full_text))


@pytest.mark.parametrize("moved", ["merge", "sync", "compare"])
def test_a_database_is_not_its_own_other(memory: TuningDatabase, moved: str) -> None:
    with pytest.raises(DatabaseError):
        getattr(memory, moved)(memory)


def test_a_file_is_its_own_other_and_has_nothing_more(tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "own.db") as own:
        own.put(*ONE_OF_EACH)
        before = own.compare(own)
        own.merge(own)
        own.sync(own)
        assert own.compare(own) == before
        assert not any(own.merge(own).values())


def test_a_line_has_room_for_the_largest_record() -> None:
    """Whatever its characters are, the line that is exported for it is read again."""
    astral = "\U0001f600" * LIMITS["workload.ir"]
    largest = dataclasses.replace(MATMUL, ir=astral, shape="\U0001f600" * LIMITS["workload.shape"])
    line = canonical_json({"kind": "workload", "id": largest.id, "value": to_plain(largest)})
    assert len(line) < LONGEST_LINE
    assert len(astral.encode()) < LONGEST_ROW


def test_files_that_are_not_text_or_not_there(memory: TuningDatabase, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x80\x04\x95")
    with pytest.raises(DatabaseError) as refused:
        memory.import_lines(tmp_path / "binary")
    assert refused.value.data["line"] == 1
    with pytest.raises(DatabaseError):
        memory.import_lines(tmp_path / "none")
    with pytest.raises(DatabaseError):
        memory.export_lines(tmp_path / "no" / "directory")


def test_a_damaged_record_in_a_merged_database_is_refused(
    db: TuningDatabase, new_place: Place
) -> None:
    with TuningDatabase(new_place()) as other:
        other.put(*BASE, schedule(8), measurement(8, 1.0))
        with other._layers[0].writing() as connection:
            connection.exec_driver_sql("UPDATE measurement SET seconds = 0.25")
        with pytest.raises(DatabaseError):
            db.merge(other)
    assert db.records(Measurement) == []
    assert db.records(ScheduleRecord) == []


def test_the_import_of_a_name_that_differs_keeps_ours(db: TuningDatabase, full: list[Line]) -> None:
    load(db, corrupt(full, "workload", name="mm"))
    assert db.get(Workload, MATMUL.id).name == "matmul"


def exported_lines() -> list[str]:
    """A line of each kind that `exported` reads."""
    steps = [
        {"args": {"loop": {"v": f"l{n}"}, "text": 'a"\\\n\u00e9'}, "op": "split"} for n in (0, 1)
    ]
    first = ScheduleRecord.of({"version": 1, "steps": steps}, 1, "tiling", "")
    timed = dataclasses.replace(
        measurement(8, 0.125), features=(1.0, -2.5e-07), feature_version="1"
    )
    failed = dataclasses.replace(
        timed, outcome=Outcome.CRASH, seconds=None, samples=(), error="no", predicted=1e22
    )
    return [
        canonical_json({"id": r.id, "kind": r.kind, "value": to_plain(r)}) + "\n"
        for r in (first, timed, failed)
    ]


def parsed(line: str) -> AnyRecord | None:
    return record_of(object_of(line), VERSION, None)


def or_refusal(read: Callable[[str], AnyRecord | None], line: str) -> AnyRecord | str | None:
    try:
        return read(line)
    except DatabaseError as error:
        return str(error)


def forged(line: str) -> str:
    """The line of a measurement with the digest of its text, canonical or not, for an id."""
    start, _, rest = line.partition('"value":')
    content = rest[:-2]
    for name in Measurement.added_later:
        content = content.replace(f'"{name}":null,', "")
    id = hashlib.sha256(content.encode()).hexdigest()
    return start.replace(start[7:71], id) + f'"value":{rest}'


@pytest.mark.parametrize("line", exported_lines(), ids=["schedule", "timed", "failed"])
def test_a_line_of_an_export_is_read_as_its_json_says(line: str) -> None:
    """Whatever is changed in it: as JSON it is the same record, or refused for the same reason."""
    assert exported(line) == record_of(object_of(line), VERSION, None)
    taken = 0
    for place, end in itertools.product(range(len(line)), (0, 1)):
        for new in ("", '"', "\\", "\\u", "{", " ", "1", "e", "-", ".", "0", "\t", "\n", "\u00e9"):
            changed = line[:place] + new + line[place + end :]
            changed = forged(changed) if "measurement" in line[:100] else changed
            read = or_refusal(exported, changed)
            if read is not None:
                taken += 1
                assert read == or_refusal(parsed, changed)
    assert taken > len(line)
