"""Commands to a workbench, as a front end sends them: their answers cross as JSON."""

from __future__ import annotations

import json
from typing import Any

from tilewright.lab.workbench.program_tree import Data
from tilewright.lab.workbench.workbench import Workbench


def done(bench: Workbench, **command: Any) -> Data:
    """The result of a command that is carried out."""
    answer = _answer(bench, command)
    assert answer["ok"], answer
    result: Data = answer["result"]
    return result


def refused(bench: Workbench, **command: Any) -> Data:
    """The error of a command that is not."""
    answer = _answer(bench, command)
    assert not answer["ok"], answer
    error: Data = answer["error"]
    return error


def _answer(bench: Workbench, command: Data) -> Data:
    answer: Data = json.loads(json.dumps(bench.do(command), allow_nan=False))
    return answer
