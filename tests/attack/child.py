"""The process that makes tries: `python -m tests.attack.child PARENT KIND SEED FOLDER`.

It reads the number of a try from its standard input and answers a line of JSON on its standard
output. The module of a kind has `prepare(folder)`, which makes what the tries have in common and
returns the `Attack`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from importlib import import_module
from pathlib import Path

import numpy as np

from tilewright.base.process import end_with_parent, limit_memory

from .attempt import Attack, Broken, attempt, story
from .kinds import kind_of


def main(parent: str, kind: str, seed: str, place: str) -> None:
    end_with_parent(int(parent))
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the code under test prints is no reply
    root = Path(place)
    (root / "common").mkdir()
    limit_memory(kind_of(kind).memory)
    attack: Attack = import_module(f".{kind_of(kind).module}", __package__).prepare(root / "common")
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        folder = root / "try"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        story(folder).write_text("", encoding="utf-8")
        answer = answer_to(attack, kind, int(seed), int(line), folder)
        print(json.dumps(answer), file=replies, flush=True)


def answer_to(attack: Attack, kind: str, seed: int, number: int, folder: Path) -> dict[str, str]:
    """The outcome of a try: `held` or `failure`."""
    try:
        with np.errstate(all="ignore"):
            return {"held": attack(attempt(kind, seed, number, folder))}
    except Broken as broken:
        return {"failure": str(broken)}
    except BaseException as error:  # noqa: BLE001 - whatever comes is to be reported
        text = "".join(traceback.format_exception(error, limit=-8, chain=False))
        return {"failure": f"unexpected {type(error).__name__}\n{text}"}


if __name__ == "__main__":
    main(*sys.argv[1:])
