"""A worker process: `python -m tilewright.autotune.measure.worker --parent=PID --replies=FD KIND`.

It reads requests from its standard input and writes one reply to each into `--replies`. It ends
with its parent: by the parent-death signal where there is one, or when its input ends.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from typing import Protocol

from ...base.errors import TilewrightError
from ...base.process import collected_later, end_with_parent, expect_the_worst
from .protocol import Message, encode, read


class Role(Protocol):
    def answer(self, message: Message) -> Message:
        """The reply to one request."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="tilewright.autotune.measure.worker")
    parser.add_argument("--parent", type=int, required=True, help="process id of the parent")
    parser.add_argument("--replies", type=int, required=True, help="descriptor for the replies")
    parser.add_argument("role", choices=("builder", "compiler", "runner"))
    options = parser.parse_args()
    end_with_parent(options.parent)
    expect_the_worst()
    with (
        os.fdopen(os.dup(sys.stdin.fileno()), "rb") as requests,
        os.fdopen(options.replies, "wb") as replies,
    ):
        _detach_input()
        with collected_later():
            role = _role(options.role)
        gc.freeze()  # collections need not look at what the modules hold
        while (message := read(requests)) is not None:
            try:
                reply = role.answer(message)
            except TilewrightError as error:
                reply = Message({"error": str(error)})
            replies.write(encode(reply))
            replies.flush()


def _detach_input() -> None:
    """Replace the standard input by an empty one, for code that reads it."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _role(name: str) -> Role:
    if name == "builder":
        from .builder import Builder

        return Builder()
    if name == "compiler":
        from .compiler import Compiler

        return Compiler()
    from .runner import Runner

    return Runner()


if __name__ == "__main__":
    main()
