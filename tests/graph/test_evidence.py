"""The evidence of models: what is told of nodes, kernels and memory, as data and as text."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ModelError
from tilewright.codegen.detect import resolve
from tilewright.graph import Builder, Graph, TensorType
from tilewright.runtime.evidence import Evidence

from ..measured import put_measured

TARGET = "cpu -threads=1"


def layers() -> Graph:
    """Two equal layers, a view, and an output that is an input."""
    rng = np.random.default_rng(0)
    b = Builder("layers")
    x = b.input("x", TensorType("float32", (4, 16)))
    w = [b.constant(rng.standard_normal((16, 16)), "float32") for _ in range(2)]
    h = b.add("relu", b.add("matmul", x, w[0]))
    y = b.add("relu", b.add("matmul", h, w[1]))
    flat = b.add("reshape", y, shape=(64,))
    return b.graph({"s": b.add("softmax", flat, axis=0), "same": x})


@cache
def built() -> tw.Model:
    return tw.build(layers(), TARGET)


def test_each_node_is_in_a_group_or_a_view() -> None:
    told = built().evidence
    fates = [(node.operator, node.group) for node in told.nodes]
    assert fates == [
        ("matmul", 0),
        ("relu", 0),
        ("matmul", 1),
        ("relu", 1),
        ("reshape", None),
        ("softmax", 2),
    ]
    assert [group.reads for group in told.groups] == [(), (0,), (1,)]
    assert told.memory.copied == ("same",)


def test_equal_groups_have_one_kernel_with_its_figures() -> None:
    told = built().evidence
    layer, softmax = told.kernels
    assert (layer.groups, softmax.groups) == (2, 1)
    assert layer.operations is not None
    assert layer.operations >= 2 * 4 * 16 * 16
    figures = (layer.read_bytes, layer.constant_bytes, layer.written_bytes)
    assert figures == (4 * 4 * 16, 4 * 16 * 16, 4 * 4 * 16)
    assert layer.schedule == "model"
    assert layer.seconds is not None
    assert layer.least_seconds is not None
    assert layer.least_seconds > 0
    assert layer.bound in ("arithmetic", "memory")


def test_a_kernel_names_its_record_and_the_time_measured(tmp_path: Path) -> None:
    graph = layers()
    func = next(func for func, runs in graph.kernels().items() if runs == 2)
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        trace = '{"version":1,"steps":[]}'
        record = put_measured(database, func, resolve(TARGET), trace, 1.5e-6)
        layer, softmax = tw.build(graph, TARGET, database).evidence.kernels
    assert (layer.schedule, layer.record, layer.seconds) == ("record", record.id, 1.5e-6)
    assert (softmax.schedule, softmax.record) == ("model", None)


def test_memory_is_what_the_module_asks_for() -> None:
    model = built()
    memory = model.evidence.memory
    assert memory.arena_bytes == model.module.workspace_bytes
    assert model.weights is not None
    assert memory.weights_bytes == model.weights.nbytes
    values = [life for life in memory.lifetimes if not life.workspace]
    assert [(life.first, life.last) for life in values] == [(0, 1), (1, 2)]
    assert all(life.offset + life.bytes <= memory.arena_bytes for life in memory.lifetimes)


def test_a_build_is_told_by_stages() -> None:
    seconds = built().evidence.seconds
    assert list(seconds) == ["optimize", "divide", "lower", "choose", "compile", "pack", "link"]
    assert all(taken > 0 for taken in seconds.values())


def test_evidence_is_json_and_comes_back() -> None:
    told = built().evidence
    data = json.loads(json.dumps(told.to_json()))
    assert Evidence.from_json(data) == told
    assert Evidence.from_json({**data, "version": 1, "fallbacks": []}) == told


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (("version",), 1),
        (("nodes", 0, "group"), 3),
        (("nodes", 0, "group"), -1),
        (("groups", 1, "reads"), [7]),
        (("groups", 0, "kernel"), "other"),
        (("kernels", 0, "schedule"), "guess"),
        (("kernels", 0, "seconds"), "fast"),
        (("memory", "arena_bytes"), None),
        (("memory", "lifetimes", 0, "color"), 1),
    ],
)
def test_malformed_evidence_is_refused(place: tuple[Any, ...], wrong: Any) -> None:
    data = json.loads(json.dumps(built().evidence.to_json()))
    part = data
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = wrong
    with pytest.raises(ModelError):
        Evidence.from_json(data)


def test_a_text_fits_a_screen_and_has_all_on_request() -> None:
    told = built().evidence
    text = str(told)
    assert "2 views" not in text
    assert "1 view" in text
    assert len(text.splitlines()) == 12
    (line,) = [line for line in told.text(1).splitlines() if line.startswith("and ")]
    assert line.startswith("and 1 kernel more")
    assert told.text(None) == text
