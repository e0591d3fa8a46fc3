"""Hostile exports: an import is refused, or what is built afterwards computes what it should."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from tilewright import TuningDatabase, build
from tilewright.base.errors import DatabaseError, TilewrightError
from tilewright.tuning_db.lines import FORMAT, VERSION
from tilewright.tuning_db.values import (
    KINDS,
    AnyRecord,
    Machine,
    Measurement,
    Session,
    to_plain,
)

from .attempt import Attack, Attempt, Broken, refusal, require
from .damage import TEXTS, damaged, edited, nested
from .facts import NOON, TUNED, here, history, machines, measured, session_of, traces
from .subjects import TARGET, check_module, subjects


def prepare(folder: Path) -> Attack:
    whole, empty = folder / "whole.db", folder / "empty.db"
    with TuningDatabase(whole) as db:
        db.put(*history())
        text = io.StringIO()
        db.export_lines(text)
    with TuningDatabase(empty):
        pass
    lines = text.getvalue().splitlines()

    def attack(attempt: Attempt) -> str:
        place = attempt.folder / "tuning.db"
        shutil.copy(attempt.choice((whole, empty)), place)
        export = attempt.folder / "records.jsonl"
        name = attempt.choice(TUNED)
        false = attempt.chance(0.5)
        if false:
            export.write_text(export_of(false_records(name, attempt)), encoding="utf-8")
        else:
            export.write_bytes(damaged_export(lines, attempt))
        with TuningDatabase(place) as db:
            before = {r.id for kind in KINDS.values() for r in db.records(kind)}
            error = refusal(lambda: db.import_lines(export))
            after = [r for kind in KINDS.values() for r in db.records(kind)]
            if error is None:
                require_plausible(after)
            else:
                require(isinstance(error, DatabaseError), f"a {type(error).__name__}: {error}")
                require({r.id for r in after} == before, "an import that was refused wrote")
            subject = subjects()[name]
            try:
                module = build(subject.func, TARGET, database=db)
            except TilewrightError as failed:
                raise Broken(f"no build of {name} any more: {failed}") from failed
            check_module(module, subject, attempt.rng)
            str(db.explain(_workload(name), *here()))
        what = "false" if false else "damaged"
        return f"{what}, {'refused' if error else f'taken, then {module.origin.kind}'}"

    return attack


def require_plausible(records: list[AnyRecord]) -> None:
    """Require possible records: rates and times are positive, times belong to their samples."""
    for record in records:
        if isinstance(record, Machine):
            require(all(0 < r < float("inf") for r in record.rates.values()), f"{record.rates}")
        if isinstance(record, Measurement) and record.seconds is not None:
            times = (record.seconds, *record.samples)
            require(all(0 < t < float("inf") for t in times), f"a time in {times[:5]}")
            low, high = min(record.samples), max(record.samples)
            require(low <= record.seconds <= high, f"{record.seconds} s of {record.samples[:5]}")


def damaged_export(lines: list[str], attempt: Attempt) -> bytes:
    """An export of which a line or some bytes are not what they were."""
    kind = attempt.pick(8)
    at = attempt.pick(len(lines))
    lines = list(lines)
    if kind < 4:
        attempt.note(f"line {at + 1}: {lines[at][:300]}")
        value = edited(json.loads(lines[at]), attempt)
        lines[at] = json.dumps(value) if kind else redigested(value)
    elif kind == 4:
        lines[at] = strange_line(lines[at], attempt)
    elif kind == 5:
        other = attempt.pick(len(lines))
        attempt.note(f"lines {at + 1} and {other + 1} exchanged, or one twice")
        lines[at] = lines[other]
        if attempt.chance(0.5):
            lines.insert(other, lines[at])
            lines[-1] = json.dumps({"end": len(lines) - 2})
    else:
        return damaged("\n".join(lines).encode() + b"\n", attempt)
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def redigested(value: Any) -> str:
    """The line with the digest that its content has, where it is a record at all."""
    try:
        kind = KINDS[value["kind"]]
        record: Any = kind(**{k: v for k, v in value["value"].items() if k != "id"})
        return json.dumps({**value, "id": record.id})
    except Exception:  # noqa: BLE001 - then it stays as it is
        return json.dumps(value)


def strange_line(line: str, attempt: Attempt) -> str:
    """Lines that are costly or ambiguous to read."""
    name, text = attempt.choice(
        (
            ("deep nesting", json.dumps({"x": 1})[:-1] + ', "y": ' + "[" * 200_000 + "}"),
            ("nested 5000 times", json.dumps({"kind": "environment", "value": nested(900)})),
            ("a key twice", line[:-1] + ", " + line[1:] if line.startswith("{") else line),
            ("a key twice inside", line.replace('{"', '{"kind": 1, "', 1)),
            ("a line of 40 MB", line[:-1] + ', "x": "' + "y" * (40 << 20) + '"}'),
            ("spaces", " " * (30 << 20) + line),
            ("a huge number", line.replace("1", "1" * 5000, 1)),
            ("NaN", line.replace("0.", "NaN", 1).replace("null", "NaN", 1)),
            ("no line at all", ""),
            ("NUL", line.replace("e", "\\u0000", 1)),
            ("a lone surrogate", line.replace("e", "\\ud800", 1)),
        )
    )
    attempt.note(name)
    return text


def export_of(records: list[AnyRecord]) -> str:
    """The records as an export, formally right."""
    order = {kind: n for n, kind in enumerate(KINDS)}
    unique = {(r.kind, r.id): r for r in records}
    ordered = sorted(unique.values(), key=lambda r: order[r.kind])
    lines = [{"format": FORMAT, "version": VERSION}]
    lines += [{"kind": r.kind, "id": r.id, "value": to_plain(r)} for r in ordered]
    lines.append({"end": len(ordered)})
    return "".join(json.dumps(line) + "\n" for line in lines)


def false_records(name: str, attempt: Attempt) -> list[AnyRecord]:
    """A session of somebody else whose fastest measurement is a lie."""
    target, toolchain = here()
    workload, session, *_ = session_of(name, 3)
    assert isinstance(session, Session)
    session = replace(session, nonce=f"{attempt.pick(1 << 30):x}", host="elsewhere")
    what, trace = attempt.choice(_TRACES)(name, attempt)
    attempt.note(f"1 ns for {name} by {what}: {trace[:1500]}")
    seconds = attempt.choice((1e-9, 1e-9, 1e-12, 5e-324, 1e-6))
    when = NOON + timedelta(days=attempt.choice((1, 9000, 300_000)))
    try:
        lie = measured(session, trace, seconds, when)
        lie[0].id  # noqa: B018 - the trace may be no JSON, and then there is none
    except Exception:  # noqa: BLE001 - what is not even a record is not imported
        lie = measured(session, '{"version":1,"steps":[]}', seconds, when)
    schedule, measurement, verification = lie
    if attempt.chance(0.2):
        schedule = replace(schedule, trace_version=attempt.choice((0, 2, -1, 2**40)))
        measurement = replace(measurement, schedule=schedule.id)
        verification = replace(verification, schedule=schedule.id)
    own = [] if attempt.chance(0.5) else list(session_of(name, 0))
    environment = [r for r in history() if r.kind == "environment"]
    some: list[AnyRecord] = [schedule, measurement, verification]
    if attempt.chance(0.2):
        some.append(_contradiction(measurement, attempt))
    if attempt.chance(0.1):
        some.append(_false_machine(attempt))
    return [target, toolchain, *environment, workload, session, *own, *some]


def _contradiction(measurement: Measurement, attempt: Attempt) -> Measurement:
    """A measurement that cannot be: its time is not that of its samples."""
    attempt.note("and one more whose seconds contradict its samples")
    return replace(measurement, seconds=1e-15, created=NOON)


def _false_machine(attempt: Attempt) -> Machine:
    """A description that is newer than all others, of a machine that may not be."""
    rate = attempt.choice((0.0, -1.0, 5e-324, 1e308, 1e12))
    attempt.note(f"and a machine of {rate} operations a second")
    return replace(machines()[-1], rates={"fma": rate}, created=NOON + timedelta(days=9000))


def _workload(name: str) -> Any:
    return session_of(name, 0)[0]


def _of_another(name: str, attempt: Attempt) -> tuple[str, str]:
    other = attempt.choice([n for n in subjects() if n in TUNED and n != name])
    return f"a schedule of {other}", attempt.choice(traces(other))


def _edited_trace(name: str, attempt: Attempt) -> tuple[str, str]:
    trace = json.loads(attempt.choice(traces(name)))
    for _ in range(attempt.choice((1, 1, 2, 3))):
        trace = edited(trace, attempt)
    return "an edited trace", json.dumps(trace)


def _edited_steps(name: str, attempt: Attempt) -> tuple[str, str]:
    trace = json.loads(attempt.choice(traces(name)))
    steps = trace["steps"]
    if steps:
        at = attempt.pick(len(steps))
        steps[at] = edited(steps[at], attempt)
    return "a trace with an edited step", json.dumps(trace)


def _strange(_name: str, attempt: Attempt) -> tuple[str, str]:
    return "no trace", attempt.choice((*TEXTS, "{}", "[]", "null", '{"version":1}', '"x"'))


def _true(name: str, attempt: Attempt) -> tuple[str, str]:
    return "a schedule that is right", attempt.choice(traces(name))


_TRACES: tuple[Callable[[str, Attempt], tuple[str, str]], ...] = (
    _of_another,
    _edited_trace,
    _edited_steps,
    _edited_steps,
    _strange,
    _true,
)
