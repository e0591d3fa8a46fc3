"""The command line as tests run it: in this process by the fixture `run`, or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = Path(sys.executable).with_name("tilewright")
_MAIN = "import tilewright.tests.short_sessions; from tilewright.cli.main import main; main()"
TUNE = (sys.executable, "-c", _MAIN, "tune")
"""`tilewright tune`, with short sessions."""


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


def spawn(*arguments: object, command: Sequence[str] = (str(COMMAND),)) -> Result:
    """Runs the command in a process of its own."""
    env = {**os.environ, "COLUMNS": ""}  # lines as they are
    done = subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=env,
    )
    return Result(done.returncode, done.stdout, done.stderr)
