"""Profiles of models: the time of each kernel where it runs, and what is beside the kernels."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ArgumentError, ArtifactError, ModelError
from tilewright.base.files import replace_files
from tilewright.building.build_model import compile_graph
from tilewright.codegen.cpu.library import library_files
from tilewright.codegen.detect import resolve
from tilewright.graph import Builder, Graph, TensorType
from tilewright.runtime.manifest import Provenance
from tilewright.runtime.module import Origin
from tilewright.runtime.profile import Profile
from tilewright.runtime.timer import Timing, time_interleaved

TARGET = "cpu -threads=1"


def uneven() -> Graph:
    """A large product, two small equal ones, and an output that is an input."""
    rng = np.random.default_rng(0)
    b = Builder("uneven")
    x = b.input("x", TensorType("float32", (128, 256)))
    y = b.input("y", TensorType("float32", (4, 4)))
    large = b.constant(rng.standard_normal((256, 256)), "float32")
    small = b.constant(rng.standard_normal((4, 4)), "float32")
    twice = b.add("matmul", b.add("matmul", y, small), small)
    return b.graph({"large": b.add("matmul", x, large), "small": twice, "same": y})


@cache
def built() -> tw.Model:
    return tw.build(uneven(), TARGET)


@cache
def profiled() -> Profile:
    return built().profile(np.ones((128, 256), np.float32), y=np.ones((4, 4), np.float32))


def test_the_time_of_each_kernel_is_found_where_it_runs() -> None:
    found = profiled()
    first, second = found.kernels
    assert (first.groups, second.groups) == (1, 2)
    assert first.operations == 2 * 128 * 256 * 256
    assert second.operations == 2 * 2 * 4 * 4 * 4
    assert first.share > 0.5
    assert first.share + second.share <= 1
    assert len(found.steps) == 3
    assert sum(found.steps) == pytest.approx(first.seconds + second.seconds)
    assert first.roofline is not None
    assert first.roofline > 0


def test_the_parts_are_not_longer_than_the_whole() -> None:
    """Of what runs undisturbed; a busy machine has medians of all sorts."""
    found = profiled()
    assert found.runs >= 3
    assert 0 <= found.python < 1e-3
    assert 0 <= found.between < 1e-3


@pytest.mark.parametrize("which", [1, 2])
def test_a_whole_that_is_far_from_its_parts_was_disturbed(
    monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """The whole, or the calls without kernels, in a turn in which something else ran."""

    def slowed(*calls: Any, **options: Any) -> list[Timing]:
        found = list(time_interleaved(*calls, **options))
        found[which] = replace(found[which], samples=(1.0,) * 3)
        return found

    monkeypatch.setattr("tilewright.runtime.profile.time_interleaved", slowed)
    found = built().profile(np.ones((128, 256), np.float32), np.ones((4, 4), np.float32))
    assert found.disturbed


@pytest.mark.parametrize("loaded", [False, True])
def test_a_profile_runs_the_model_itself(loaded: bool, tmp_path: Path) -> None:
    """The entry with stamps computes the same, and the one without steps computes nothing."""
    model = built()
    if loaded:
        tw.build_library(uneven(), tmp_path / "uneven.so", TARGET)
        model = tw.load(tmp_path / "uneven.so")
    x, y = np.ones((128, 256), np.float32), np.ones((4, 4), np.float32)
    assert model._instrumented is not None
    modules = model._instrumented()
    *_, argument = modules.timed.signature.arguments
    taken = np.zeros(argument.shape, np.int64)
    outputs = tuple(np.full(a.shape, 7, np.float32) for a in model.outputs.values())
    modules.timed(x, y, *outputs, model.weights, taken)
    for found, wanted in zip(outputs, model(x, y), strict=True):
        np.testing.assert_array_equal(found, wanted)
    nanoseconds = taken[:, 0] * 10**9 + taken[:, 1]
    assert (nanoseconds > 0).all()
    assert (np.diff(nanoseconds) >= 0).all()
    for output in outputs:
        output.fill(7)
    modules.empty(x, y, *outputs, model.weights)
    assert all((output == 7).all() for output in outputs)


def test_a_profile_is_json_and_comes_back() -> None:
    found = profiled()
    data = json.loads(json.dumps(found.to_json()))
    assert Profile.from_json(data) == found
    data["kernels"][0]["seconds"] = "long"
    with pytest.raises(ModelError):
        Profile.from_json(data)


def test_texts_have_the_slowest_kernels() -> None:
    text = profiled().text(1).splitlines()
    assert text[-1].startswith("and 1 kernel more with ")
    assert len(str(profiled()).splitlines()) == len(text)


def test_inputs_are_checked() -> None:
    with pytest.raises(ArgumentError):
        built().profile(np.ones((128, 255), np.float32), np.ones((4, 4), np.float32))


@pytest.mark.parametrize(("rows", "copied"), [(2, 1), (0, 0)])
def test_models_without_kernels_have_evidence_and_a_profile(
    rows: int, copied: int, tmp_path: Path
) -> None:
    b = Builder("plain")
    graph = b.graph({"y": b.input("x", TensorType("float32", (rows, 3)))})
    tw.build_library(graph, tmp_path / "plain.so", TARGET)
    for model in (tw.build(graph, TARGET), tw.load(tmp_path / "plain.so")):
        assert len(model.evidence.memory.copied) == copied
        found = model.profile(np.ones((rows, 3), np.float32))
        assert (found.kernels, found.steps) == ((), ())
        assert (found.copies > 0) <= (copied > 0)
        assert "0 groups" in str(found)
        assert not str(found).endswith("\n")


def test_a_file_without_the_functions_of_a_profile_has_none(tmp_path: Path) -> None:
    """As one of an older version."""
    compiled = compile_graph(uneven(), resolve(TARGET)).compiled
    program = (compiled, Provenance(Origin("default")))
    replace_files(library_files([program], tmp_path / "uneven.so", {}))
    model = tw.load(tmp_path / "uneven.so")
    inputs = np.ones((128, 256), np.float32), np.ones((4, 4), np.float32)
    with pytest.raises(ArtifactError):
        model.profile(*inputs)
    assert model.time(*inputs).median > 0
