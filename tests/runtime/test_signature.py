"""Signatures: derived facts, C prototypes, and JSON that is refused when it is malformed."""

from __future__ import annotations

import ctypes
import json
import sys
from dataclasses import asdict
from typing import Any

import pytest

from tilewright.base import dtypes
from tilewright.base.errors import ArtifactError
from tilewright.runtime.argument_checks import ctypes_parameters, make_binder
from tilewright.runtime.host_memory import HOST_MEMORY
from tilewright.runtime.signature import (
    C_TYPES,
    MAX_ARGUMENTS,
    Argument,
    Packing,
    Signature,
    compact_strides,
)

SIGNATURE = Signature(
    "gather",
    (
        Argument("table", "bfloat16", (7, 5), (8, 1), constant=True),
        Argument("index", "int64", (3,), value_range=(0, 7)),
        Argument("scale", "float32", kind="scalar"),
        Argument("out", "float8_e5m2", (3, 5), role="out"),
        Argument("state", "bool", (), role="inout"),
    ),
)
OPERAND = Argument("W", "float32", (3, 2), constant=True)
PACKING = Packing("f_pack_W", OPERAND, "BA", 192)
PACKED = Signature(
    "f",
    (Argument("W", "bfloat16", (2, 3), constant=True, packing=PACKING), Argument("x", "int8")),
    128,
)


@pytest.mark.parametrize("signature", [SIGNATURE, PACKED])
def test_json_round_trip(signature: Signature) -> None:
    text = json.dumps(signature.to_json())
    assert Signature.from_json(json.loads(text)) == signature


def test_what_packs_an_operand_is_a_function_too() -> None:
    (packer,) = PACKED.packers
    assert packer.c_declaration() == (
        "int32_t f_pack_W(const float *W_in, uint16_t *W_packed_out, void *workspace)"
    )
    assert packer.arguments[0] == OPERAND
    assert packer.arguments[1].shape == (2, 3)
    assert PACKED.symbols == ("f", "f_pack_W")
    assert PACKED.workspaces == (128, 192)
    assert PACKED.with_workspaces([0, 64]).workspaces == (0, 64)
    assert PACKED.with_workspaces([0, 0]).with_workspaces([128, 192]) == PACKED


def test_c_prototype() -> None:
    assert SIGNATURE.c_declaration() == (
        "int32_t gather(const uint16_t *table_in, const int64_t *index_in, float scale_in, "
        "uint8_t *out_out, uint8_t *state_inout, void *workspace)"
    )
    odd = tuple(Argument(n, "int8", kind="scalar") for n in ("x", "int", "\u00e9", "b.1", "new"))
    assert Signature("f", odd).c_declaration() == (
        "int32_t f(int8_t x_in, int8_t int_in, int8_t argument2, int8_t argument3, "
        "int8_t new_in, void *workspace)"
    )
    for size in (0, 64):
        assert Signature("f", (), size).c_declaration() == "int32_t f(void *workspace)"
    taken = (Argument("workspace", "int8", kind="scalar"),)
    assert Signature("f", taken).c_declaration() == (
        "int32_t f(int8_t workspace_in, void *workspace)"
    )


def test_every_dtype_has_a_c_type() -> None:
    assert set(C_TYPES) == set(dtypes.SCALARS)


def test_spans() -> None:
    assert compact_strides((2, 3, 5)) == (15, 5, 1)
    assert Argument("a", "float32", (2, 3)).span_bytes == 24
    assert Argument("a", "float32", (2, 3), (8, 2)).span_bytes == 4 * (8 + 4 + 1)
    assert Argument("a", "float32", (2, 3), (0, 1)).span_bytes == 12
    assert Argument("a", "float64", ()).span_bytes == 8
    assert Argument("a", "float64", (4, 0)).span_bytes == 0


def argument(**changes: Any) -> dict[str, Any]:
    return {**asdict(Argument("a", "float32", (2,))), **changes}


def function(*arguments: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"name": "f", "arguments": list(arguments), "workspace_bytes": 0, **changes}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"name": 3}, "name"),
        ({"dtype": "float33"}, "dtype"),
        ({"dtype": "float32x4"}, "dtype"),
        ({"dtype": "float32x" + "9" * 5000}, "dtype"),
        ({"shape": None}, "shape"),
        ({"shape": [2.0]}, "shape[0]"),
        ({"shape": [True]}, "shape[0]"),
        ({"shape": [-1]}, ""),
        ({"strides": [1, 1]}, ""),
        ({"strides": [-1]}, ""),
        ({"role": "through"}, "role"),
        ({"kind": "scalar"}, ""),
        ({"constant": 1}, "constant"),
        ({"value_range": [1]}, "value_range"),
        ({"value_range": [1, 1]}, ""),
        ({"value_range": [0, 2**64 + 1]}, "value_range[1]"),
        ({"value_range": [-(2**63) - 1, 0]}, "value_range[0]"),
        ({"shape": [2**63]}, ""),
        ({"shape": [2**61]}, ""),
        ({"shape": [2**31, 2**31]}, ""),
        ({"shape": [0, 2**61]}, ""),
        ({"shape": [2**62, 2**62, 0]}, ""),
        ({"shape": [10**4000]}, "shape[0]"),
        ({"shape": [1] * 65}, "shape"),
        ({"shape": [2**62] * 300_000}, "shape"),
        ({"strides": [2**61]}, ""),
        ({"shape": [3], "strides": [2**60]}, ""),
        ({"shape": [1], "strides": [2**64 + 1]}, "strides[0]"),
    ],
)
def test_malformed_arguments_are_refused(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        Signature.from_json(function(argument(**changes)))
    assert caught.value.data["at"] == f"arguments[0].{place}".rstrip(".")


@pytest.mark.parametrize("key", asdict(Argument("a", "float32", (2,))))
def test_any_field_that_is_nested_deeply_is_refused(key: str) -> None:
    depth = sys.getrecursionlimit() - 200
    nested: Any = []
    for _ in range(depth):
        nested = [nested]
    with pytest.raises(ArtifactError) as caught:
        Signature.from_json(function(argument(**{key: nested})))
    assert len(str(caught.value)) < 500


def test_the_largest_tensor_is_accepted() -> None:
    largest = {"dtype": "int8", "shape": [2**62, 1], "strides": [2, 1]}
    found = Signature.from_json(function(argument(**largest)))
    assert found.arguments[0].span_bytes == 2**63 - 1


def test_a_signature_has_as_many_arguments_as_a_call() -> None:
    arguments = [argument(name=f"a{n}") for n in range(MAX_ARGUMENTS + 1)]
    most = Signature.from_json(function(*arguments[:-1]))
    make_binder(most, HOST_MEMORY)
    ctypes.CFUNCTYPE(ctypes.c_int32, *ctypes_parameters(most))
    with pytest.raises(ArtifactError):
        Signature.from_json(function(*arguments))


def test_a_function_is_named_once() -> None:
    data = PACKED.to_json()
    data["arguments"][0]["packing"]["packer"] = "f"
    with pytest.raises(ArtifactError):
        Signature.from_json(data)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"packer": "f g"}, ".packing.packer"),
        ({"layout": 3}, ".packing.layout"),
        ({"workspace_bytes": None}, ".packing.workspace_bytes"),
        ({"workspace_bytes": 100}, ".packing.workspace_bytes"),
        ({"operand": None}, ".packing.operand"),
        ({"operand": argument()}, ""),
        ({"operand": argument(name="W", role="out")}, ""),
        ({"operand": argument(packing=asdict(PACKING))}, ".packing.operand"),
        ({"operand": {**asdict(OPERAND), "packing": asdict(PACKING)}}, ""),
    ],
)
def test_malformed_packings_are_refused(changes: dict[str, Any], place: str) -> None:
    packing = {**asdict(PACKING), **changes}
    with pytest.raises(ArtifactError) as caught:
        Signature.from_json(function({**asdict(PACKED.arguments[0]), "packing": packing}))
    assert caught.value.data["at"] == f"arguments[0]{place}"


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"name": "f"},
        {"name": "f", "workspace_bytes": 0},
        {"name": "f", "arguments": []},
        function(name="f g"),
        function(name="int"),
        function(name="typeof"),
        function(name="nullptr"),
        function(name="linux"),
        function(name="int32_t"),
        function(name="INT_FAST16_MAX"),
        function(name="_init"),
        function(name="__class__"),
        function(name=1),
        function(workspace_bytes=True),
        function(workspace_bytes=64.0),
        function(workspace_bytes=-64),
        function(workspace_bytes=96),
        function(workspace_bytes=2**63),
    ],
)
def test_malformed_signatures_are_refused(data: object) -> None:
    with pytest.raises(ArtifactError):
        Signature.from_json(data)
