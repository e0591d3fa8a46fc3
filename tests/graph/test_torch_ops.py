"""PyTorch's samples of its operators that were right stay so; `torch_ops.py` runs them all."""

from __future__ import annotations

import re
import zlib

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch.testing imports it")

from .torch_ops import RECORDED, Outcome, jobs, operators, outcomes, reasons, worst
from .verdicts import recorded

pytestmark = pytest.mark.filterwarnings("ignore")

TRIED, COMPILED = 24, 4


def test_operators_that_were_right_are_right() -> None:
    """Some of them, of which kernels run a few."""
    known = recorded(RECORDED)["right"] & operators().keys()
    assert len(known) > 700, "the installed torch has other operators"
    names = sorted(known, key=lambda name: zlib.crc32(name.encode()))[:TRIED]
    found = [
        outcome
        for n, name in enumerate(names)
        for job in jobs(f"^{re.escape(name)}$")
        for outcome in outcomes(job._replace(samples=1, compiled=n < COMPILED))
    ]
    assert {one.name for one in found} == set(names)
    assert {one for one in found if one.verdict in ("wrong", "crashed", "refused")} == set()


def test_the_worst_sample_of_an_operator_counts() -> None:
    found = [
        Outcome("a/bool", 0, "unexported", ""),
        Outcome("a/bool", 1, "right", ""),
        Outcome("b/bool", 0, "refused", "DTYPE x y; OPERATOR z"),
        Outcome("b/bool", 1, "wrong", ""),
        Outcome("c/bool", 0, "unexported", ""),
    ]
    assert worst(found) == {"a/bool": "right", "b/bool": "wrong", "c/bool": "unexported"}
    assert reasons(found) == {"DTYPE x y": 1, "OPERATOR z": 1}
