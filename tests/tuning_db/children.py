"""The processes of the fault tests: `python -m tests.tuning_db.children TASK`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import TuningDatabase

from .samples import CPU, MATMUL, fill, measurement, schedule, verification

NOBODY = 65534


def write(place: str, first: str, count: str) -> None:
    """Record measurements one by one, and say the id of each when it is written."""
    with TuningDatabase(place) as db:
        fill(db)
        db.put(schedule(8), verification(8))
        for n in range(int(first), int(first) + int(count)):
            record = measurement(8, 1.0 + n)
            db.put(record)
            say(record.id)


def hold(place: str) -> None:
    """Hold the lock of a writer until the standard input ends."""
    with TuningDatabase(place) as db, db._layers[0].writing():
        say("locked")
        sys.stdin.read()


def read_only(place: str) -> None:
    """Say what an unprivileged user gets who opens a database for writing, then for reading."""
    TuningDatabase("sqlite://").close()  # everything is imported while it still may be
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        TuningDatabase(place)
    except DatabaseError as error:
        say(str(error).splitlines()[0])
    with TuningDatabase(place, read_only=True) as db:
        say(str(db.best(MATMUL.id, CPU) is not None))
    with TuningDatabase("sqlite://", layers=[place]) as db:
        say(str(db.best(MATMUL.id, CPU) is not None))


def open_it(place: str) -> None:
    """Say what opening a database gives: for writing, for reading, as a layer."""
    for options in ({}, {"read_only": True}):
        try:
            TuningDatabase(place, **options)  # type: ignore[arg-type]
        except DatabaseError as error:
            say(str(error).splitlines()[0])
    try:
        TuningDatabase("sqlite://", layers=[place])
    except DatabaseError as error:
        say(str(error).splitlines()[0])


def fork(place: str) -> None:
    """Say what the forked child of a process gets that uses its parent's database."""
    with TuningDatabase(place) as db:
        child = os.fork()  # noqa: TID251 - what is tested
        if child == 0:
            try:
                db.put(MATMUL)
            except DatabaseError as error:
                say(str(error).splitlines()[0])
            os._exit(0)
        os.waitpid(child, 0)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    TASKS: dict[str, Callable[..., None]] = {
        "write": write,
        "hold": hold,
        "read_only": read_only,
        "fork": fork,
        "open": open_it,
    }
    TASKS[sys.argv[1]](*sys.argv[2:])
