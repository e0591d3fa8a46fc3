"""Values of index arrays in the checked entry: what is refused, and with which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ArgumentError
from tilewright.runtime import Argument
from tilewright.runtime.ranges import checked_limits, trusting
from tilewright.runtime.signature import Packing, Signature

from ..refusals import refused

Make = Callable[..., Any]
IDX = Argument("idx", "int64", (4, 6), value_range=(0, 100))


def test_a_value_out_of_its_range_is_named_with_its_place(probe: Make) -> None:
    p = probe(IDX)
    idx = np.full((4, 6), 99)
    p.mod(idx)
    for place, value in [((3, 5), 107), ((0, 0), -1), ((2, 1), 2**30)]:
        wrong = idx.copy()
        wrong[place] = value
        at = rf"\[{place[0]}, {place[1]}\]"
        words = rf"argument idx: expected values from 0 to 99, found {value} at {at}"
        with pytest.raises(ArgumentError, match=words):
            p.mod(wrong)
        with pytest.raises(ArgumentError, match=words):
            p.mod.bind(wrong)
    assert len(p.calls) == 1


def test_the_first_of_several_is_named(probe: Make) -> None:
    idx = np.zeros((4, 6), np.int64)
    idx[3, 0], idx[1, 4] = -7, 100
    with refused(ArgumentError, "100", "[1, 4]"):
        probe(IDX).mod(idx)


def test_a_bound_call_looks_at_the_values_each_time(probe: Make) -> None:
    p = probe(IDX)
    idx = np.zeros((4, 6), np.int64)
    run = p.mod.bind(idx)
    run()
    idx[1, 1] = 100
    with refused(ArgumentError, "100", "[1, 1]"):
        run()
    idx[1, 1] = 99
    run()
    assert len(p.calls) == 2


def test_who_trusts_is_not_checked(probe: Make) -> None:
    p = probe(IDX, trust_indices=True)
    p.mod(np.full((4, 6), 1000))
    assert len(p.calls) == 1
    assert p.mod.signature.arguments == (IDX,)


def test_numbers_are_checked_of_who_trusts_too(probe: Make) -> None:
    p = probe(Argument("s", "int32", kind="scalar", value_range=(0, 10)), trust_indices=True)
    with refused(ArgumentError, "0", "9", "10"):
        p.mod(10)


def test_what_is_only_written_is_not_looked_at(probe: Make) -> None:
    out = Argument("out", "int32", (4,), role="out", value_range=(0, 10))
    inout = Argument("io", "int32", (4,), role="inout", value_range=(0, 10))
    probe(out).mod(np.full(4, 99, np.int32))
    with refused(ArgumentError, "io", "0", "99", "[0]"):
        probe(inout).mod(np.full(4, 99, np.int32))


@pytest.mark.parametrize(
    ("dtype", "value_range", "limits"),
    [
        ("int8", (-128, 128), None),
        ("int8", (-500, 500), None),
        ("int8", (-500, 5), (-128, 4)),
        ("uint8", (0, 256), None),
        ("uint8", (1, 256), (1, 255)),
        ("uint64", (0, 2**64), None),
        ("uint64", (5, 2**64), (5, 2**64 - 1)),
        ("uint8", (300, 400), (300, 255)),
        ("int64", (-(2**63), 2**63 - 1), (-(2**63), 2**63 - 2)),
        ("float32", (0, 5), None),
    ],
)
def test_limits_are_those_of_the_range_and_of_the_dtype(
    dtype: str, value_range: tuple[int, int], limits: tuple[int, int] | None
) -> None:
    assert checked_limits(Argument("a", dtype, (3,), value_range=value_range)) == limits


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_ranges_beyond_the_dtype_hold_and_refuse(probe: Make, dtype: str) -> None:
    limits = np.iinfo(dtype)
    array = np.full(3, limits.max, dtype)
    probe(Argument("a", dtype, (3,), value_range=(limits.max, 2**70))).mod(array)
    with refused(ArgumentError, "[0]"):
        probe(Argument("a", dtype, (3,), value_range=(2**70, 2**71))).mod(array)


def test_size_zero_and_no_dimensions(probe: Make) -> None:
    probe(Argument("a", "int32", (0, 4), value_range=(0, 1))).mod(np.zeros((0, 4), "i4"))
    point = probe(Argument("a", "int32", (), value_range=(0, 1)))
    point.mod(np.zeros((), "i4"))
    with refused(ArgumentError, "1", "[]"):
        point.mod(np.ones((), "i4"))


def test_declared_strides_and_what_lies_between(probe: Make) -> None:
    p = probe(Argument("a", "int32", (3, 2), (4, 2), value_range=(0, 5)))
    memory = np.full((3, 4), 99, np.int32)
    view = memory[:, ::2]
    view[...] = 4
    p.mod(view)
    view[2, 1] = 5
    with refused(ArgumentError, "5", "[2, 1]"):
        p.mod(view)


def test_operands_are_trusted_as_they_are_packed() -> None:
    packing = Packing("f_pack_a", Argument("a", "int32", (3,), value_range=(0, 5)), "A")
    packed = Argument("a", "int32", (4,), constant=True, value_range=(0, 5), packing=packing)
    (found,) = trusting(Signature("f", (packed,))).arguments
    assert found.value_range is None
    assert found.packing is not None
    assert found.packing.operand.value_range is None
