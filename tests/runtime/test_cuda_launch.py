"""The list of kernels of an entry point as data: what is written is read, the rest is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tilewright.base.errors import ArtifactError
from tilewright.codegen.compiled import Launch
from tilewright.runtime.cuda_launch import (
    MAX_BLOCK,
    MAX_GRID,
    MAX_KERNELS,
    MAX_SHARED_BYTES,
    MAX_THREADS,
    KernelLaunch,
    KernelResources,
    kernels_from_json,
    kernels_to_json,
)
from tilewright.runtime.signature import Argument, Signature
from tilewright.target import ARCHS

SIGNATURE = Signature(
    "sums", (Argument("A", "float32", (8, 4)), Argument("B", "float32", (8,), role="out")), 64
)
KERNELS = (
    KernelLaunch("sums_0", (8, 1, 1), (32, 4, 1), (0, 2), 4096, KernelResources(32, 8, 4, 4, 16)),
    KernelLaunch("sums_1", (2**31 - 1, 65535, 65535), (16, 1, 64), (2, 1)),
)


def test_kernels_are_read_as_they_were_written() -> None:
    text = json.dumps(kernels_to_json(KERNELS))
    assert kernels_from_json(json.loads(text), SIGNATURE) == KERNELS


def test_compiled_code_carries_them() -> None:
    launch = Launch("sums", {"kernels": kernels_to_json(KERNELS)})
    read = Launch.from_json(json.loads(json.dumps(launch.to_json())))
    assert read == launch
    assert kernels_from_json(read.needs["kernels"], SIGNATURE) == KERNELS


def test_the_limits_are_those_of_the_architectures() -> None:
    """What any of them allows is read, in each respect; what none does is not."""
    found = (MAX_GRID, MAX_BLOCK, MAX_THREADS, MAX_SHARED_BYTES)
    each = [(a.grid, a.block, a.block_threads, a.block_bytes) for a in ARCHS.values()]
    assert all(
        extent <= most
        for grid, block, *_ in each
        for extent, most in zip((*grid, *block), (*MAX_GRID, *MAX_BLOCK), strict=True)
    )
    assert found == tuple(map(max, zip(*each, strict=True)))


def test_threads_of_a_block() -> None:
    assert [kernel.threads for kernel in KERNELS] == [128, 1024]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"symbol": "a b"}, "symbol"),
        ({"symbol": 3}, "symbol"),
        ({"symbol": "a" * 1025}, "symbol"),
        ({"grid": [1, 1]}, "grid"),
        ({"grid": [0, 1, 1]}, "grid"),
        ({"grid": [1, 65536, 1]}, "grid"),
        ({"grid": [True, 1, 1]}, "grid[0]"),
        ({"grid": [1.0, 1, 1]}, "grid[0]"),
        ({"grid": "abc"}, "grid"),
        ({"block": [1025, 1, 1]}, "block"),
        ({"block": [1, 1, 65]}, "block"),
        ({"block": [32, 32, 2]}, ""),
        ({"shared_bytes": -1}, "shared_bytes"),
        ({"shared_bytes": 1 << 20}, "shared_bytes"),
        ({"arguments": [0, -1]}, "arguments[1]"),
        ({"arguments": [3]}, "arguments"),
        ({"arguments": {}}, "arguments"),
        ({"arguments": [0] * 513}, "arguments"),
        ({"resources": 3}, "resources"),
        ({"resources": {"registers": 3}}, "resources.stack_bytes"),
        ({"more": 1}, ""),
    ],
)
def test_malformed_launches_are_refused(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        kernels_from_json([{**KERNELS[0].to_json(), **changes}], SIGNATURE)
    assert caught.value.data["at"] == f"kernels[0].{place}".rstrip(".")


@pytest.mark.parametrize("value", [-1, 2**31, 1.5, "8", None, True])
@pytest.mark.parametrize("name", KernelResources(1).to_json())
def test_malformed_resources_are_refused(name: str, value: object) -> None:
    resources = {**KernelResources(1).to_json(), name: value}
    with pytest.raises(ArtifactError) as caught:
        kernels_from_json([{**KERNELS[0].to_json(), "resources": resources}], SIGNATURE)
    assert caught.value.data["at"] == f"kernels[0].resources.{name}"


@pytest.mark.parametrize("data", [None, {}, "abc", [3], [None], [[]]])
def test_what_is_no_list_of_kernels_is_refused(data: object) -> None:
    with pytest.raises(ArtifactError):
        kernels_from_json(data, SIGNATURE)


def test_an_entry_point_has_a_limited_number_of_kernels() -> None:
    data = kernels_to_json(KERNELS[:1]) * (MAX_KERNELS + 1)
    with pytest.raises(ArtifactError) as caught:
        kernels_from_json(data, SIGNATURE)
    assert caught.value.data["at"] == "kernels"


def test_an_entry_point_without_a_workspace_passes_none() -> None:
    with pytest.raises(ArtifactError):
        kernels_from_json(kernels_to_json(KERNELS), replace(SIGNATURE, workspace_bytes=0))


@pytest.mark.parametrize("need", [1.5, [1.5], {"a": [None, 2.5]}])
def test_needs_are_numbers_and_names(need: object) -> None:
    with pytest.raises(ArtifactError):
        Launch.from_json({"symbol": "f", "needs": {"kernels": need}})


def test_needs_are_not_nested_deeply() -> None:
    need: object = 1
    for _ in range(100):
        need = [need]
    with pytest.raises(ArtifactError):
        Launch.from_json({"symbol": "f", "needs": {"kernels": need}})
