"""Putting off the collector of cyclic garbage."""

from __future__ import annotations

import gc

import pytest

from tilewright import ops
from tilewright.autotune.search.unmeasured import model_trace
from tilewright.base.process import collected_later
from tilewright.target import Target
from tilewright.tir.ir import Func


def test_nothing_is_collected_meanwhile_and_also_after_errors() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), collected_later():
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    @collected_later()
    def inner() -> bool:
        return gc.isenabled()

    with collected_later():
        assert not inner()
        assert not gc.isenabled()
    assert not inner()
    assert gc.isenabled()


@pytest.mark.parametrize("func", [ops.matmul_func(48, 64, 32), ops.softmax_func(8, 64)])
def test_a_choice_leaves_next_to_nothing_to_collect(func: Func) -> None:
    """Cycles would keep all sketches until the collector has visited each of their objects."""
    target = Target.parse("cpu -mcpu=cascadelake -threads=2")
    model_trace(func, target)
    gc.collect()
    gc.disable()
    try:
        trace = model_trace(func, target)
        assert len(trace) > 0
        assert gc.collect() < 1000
    finally:
        gc.enable()
