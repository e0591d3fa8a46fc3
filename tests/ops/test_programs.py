"""Every `<operator>_func` of the package, so that none is forgotten."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tilewright import ops
from tilewright.tir.equality import structural_equal, structural_hash
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

SMALL = {
    "n": 3,
    "m": 4,
    "k": 5,
    "c": 2,
    "h": 5,
    "w": 6,
    "o": 4,
    "batch": 2,
    "heads": 2,
    "sequence": 3,
    "dim": 4,
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "activation_func": [{"kind": kind} for kind in ops.ACTIVATIONS if kind != "relu"],
    "attention_func": [{"causal": True}],
    "conv2d_func": [{"layout": "NHWC", "stride": 2, "bias": True, "epilogue": "relu"}],
    "depthwise_conv2d_func": [{"layout": "NHWC", "multiplier": 2}],
    "matmul_func": [{"bias": True, "epilogue": "gelu", "dtype": "bfloat16"}, {"batch": None}],
    "pool2d_func": [{"kind": "avg"}, {"kind": "max", "layout": "NHWC"}],
    "reduction_func": [{"kind": kind, "axis": 0} for kind in ("mean", "prod", "argmax", "argmin")],
}
CASES = [
    (name, options)
    for name in ops.__all__
    if name.endswith("_func")
    for options in [{}, *OPTIONS.get(name, [])]
]


def build(name: str, options: dict[str, Any]) -> Func:
    fn = getattr(ops, name)
    small = {k: v for k, v in SMALL.items() if k in inspect.signature(fn).parameters}
    func = fn(**{**small, **options})
    assert isinstance(func, Func)
    return func


@pytest.mark.parametrize(("name", "options"), CASES)
def test_text_parses_back(name: str, options: dict[str, Any]) -> None:
    func = build(name, options)
    again = parse(str(func))
    assert structural_equal(func, again)
    assert structural_hash(func) == structural_hash(again)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_building_twice_gives_the_same_program(name: str, options: dict[str, Any]) -> None:
    assert structural_hash(build(name, options)) == structural_hash(build(name, options))


def test_programs_differ() -> None:
    digests = {structural_hash(build(name, options)) for name, options in CASES}
    assert len(digests) == len(CASES)
