"""Tries that fail in every way, for the tests of the harness: the number of a try says how."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from .attempt import Attack, Attempt, Broken


def prepare(folder: Path) -> Attack:
    return attack


def attack(attempt: Attempt) -> str:
    way = attempt.pick(1 << 30)
    attempt.note(f"way {way}")
    (attempt.folder / "file").write_text("damaged", encoding="ascii")
    match int(os.environ["FAULT"]):
        case 1:
            raise Broken("a promise")
        case 2:
            raise KeyError("raw")
        case 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 4:
            time.sleep(1000)
        case 5:
            bytearray(1 << 36)
        case _:
            print("not a reply")
    return f"held {way}"
