"""ONNX's own cases that were right stay so; `onnx_suite.py` runs them all by our kernels."""

from __future__ import annotations

import hashlib
import logging
import warnings
from pathlib import Path

import pytest

pytest.importorskip("onnx")

import tilewright as tw

from .onnx_suite import PREFIX, RECORDED, Case, cases, verdict
from .verdicts import record, recorded, regressions

REFERENCED, COMPILED = 200, 12
"""Cases that are tried here: others where a source of graphs or importers is another one."""


def sample(all_cases: list[Case]) -> list[Case]:
    """The cases, in the order of a hash that the sources of what is tested decide."""
    root = Path(tw.__file__).parent
    seed = hashlib.sha256()
    for folder in ("graph", "importers"):
        for path in sorted((root / folder).rglob("*.py")):
            seed.update(path.read_bytes())

    def place(case: Case) -> bytes:
        own = seed.copy()
        own.update(case.name.encode())
        return own.digest()

    return sorted(all_cases, key=place)


def test_cases_that_were_right_are_right(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = recorded(RECORDED, PREFIX)["right"]
        found = [case for case in cases() if case.name in known]
        assert len(found) > 0.7 * len(known), "the installed onnx has other cases"
        tried = sample(found)[:REFERENCED]
        verdicts = {case.name: verdict(case, reference=True) for case in tried}
        assert {n: why for n, (kind, why) in verdicts.items() if kind != "right"} == {}
        compiled = {case.name: verdict(case, reference=False) for case in tried[:COMPILED]}
    assert {n: why for n, (kind, why) in compiled.items() if kind != "right"} == {}


def test_cases_without_a_translation_are_right_with_providers() -> None:
    pytest.importorskip("onnxruntime")
    names = "(nonmaxsuppression_identical_boxes|unique_sorted_with_axis|det_2d|dropout_default)$"
    providers = ["onnxruntime", "reference"]
    verdicts = {
        case.name: verdict(case, reference=False, providers=providers)
        for case in cases(f"^test_{names}", ["node"])
    }
    assert len(verdicts) == 4
    assert {n: why for n, (kind, why) in verdicts.items() if kind != "right"} == {}


def test_what_is_lost_is_named(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.txt"
    first = {"test_a": "right", "test_b": "refused", "test_c": "right"}
    record(first, path, PREFIX)
    found = recorded(path, PREFIX)
    assert found == {"right": {"test_a", "test_c"}, "refused": {"test_b"}}
    assert regressions({**first, "test_new": "wrong"}, found["right"]) == []
    assert regressions({**first, "test_a": "wrong"}, found["right"]) == ["test_a"]
