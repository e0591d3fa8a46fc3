"""Packing of constant operands, against the definition element by element."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from tilewright.errors import ArgumentError, ArtifactError
from tilewright.runtime.packing import Packing

CASES = [
    Packing("BAb", (4,), (3, 8)),
    Packing("BAb", (4,), (3, 9)),
    Packing("AB", (), (3, 5)),
    Packing("CBaAc", (2, 3), (5, 2, 7)),
    Packing("Aa", (8,), (3,)),
    Packing("BAb", (4,), (0, 9)),
]


@pytest.mark.parametrize("packing", CASES, ids=str)
def test_each_element_has_its_place(packing: Packing) -> None:
    array = np.arange(1, np.prod(packing.shape) + 1, dtype=np.float32).reshape(packing.shape)
    packed = packing.pack(array, "W", "float32")
    assert packed.shape == packing.packed_shape
    assert not packed.size or packed.ctypes.data % 64 == 0
    factors = dict(zip(filter(str.islower, packing.layout), packing.factors, strict=True))
    wanted = np.zeros(packing.packed_shape, np.float32)
    for index in product(*map(range, packing.shape)):
        place = []
        for letter in packing.layout:
            i, factor = index[ord(letter.upper()) - ord("A")], factors.get(letter.lower(), 1)
            place.append(i % factor if letter.islower() else i // factor)
        wanted[tuple(place)] = array[index]
    np.testing.assert_array_equal(packed, wanted)


@pytest.mark.parametrize("packing", CASES, ids=str)
def test_it_travels_as_json(packing: Packing) -> None:
    assert Packing.from_json(json.loads(json.dumps(packing.to_json()))) == packing


@pytest.mark.parametrize(
    ("change"),
    [
        {"layout": "BA"},
        {"layout": "BAc"},
        {"layout": "BABb"},
        {"layout": 3},
        {"factors": [0]},
        {"factors": [4, 4]},
        {"factors": [4.0]},
        {"shape": [3, -1]},
        {"shape": "39"},
    ],
)
def test_a_malformed_packing_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ArtifactError, match="expected how an operand is packed"):
        Packing.from_json(CASES[1].to_json() | change)


def test_another_array_is_refused() -> None:
    for array in (np.zeros((3, 7), np.float32), np.zeros((3, 8))):
        with pytest.raises(ArgumentError, match=r"argument W: expected .* float32\[3, 8\] to pack"):
            CASES[0].pack(array, "W", "float32")
