"""The generation of lowering is one more where other programs are made of models that there were.

`lowering.txt` has digests of the kernels of models. Where a change makes others of them, raise
`LOWERING` in `base/__init__.py`, and run this file with `--update`.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright as tw
from tilewright.base import LOWERING
from tilewright.building.lock_file import LockedProgram, parse_lock
from tilewright.graph import Graph
from tilewright.tir.equality import structural_hash

from ..golden import check_golden
from .rule_examples import EXAMPLES, parsed

DIGESTS = Path(__file__).parent / "lowering.txt"


def composed() -> Graph:
    """Operators of ONNX that are composed of those of graphs."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("AveragePool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("LayerNormalization", ["b", "g"], ["c"]),
        helper.make_node("Gelu", ["c"], ["d"], approximate="tanh"),
        helper.make_node("Softmax", ["d"], ["y"], axis=1),
    ]
    form = onnx.TensorProto.FLOAT
    shapes = {"w": (4, 3, 3, 3), "g": (4,)}
    graph = helper.make_graph(
        nodes, "composed",
        [helper.make_tensor_value_info("x", form, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", form, (1, 4, 4, 4))],
        [
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
            for name, shape in shapes.items()
        ],
    )  # fmt: skip
    return tw.import_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


def models() -> Iterator[tuple[str, list[Graph]]]:
    yield "composed", [composed()]
    for rule, examples in EXAMPLES.items():
        yield rule, [parsed(inputs, nodes) for inputs, nodes, _ in examples]


def digest(graphs: list[Graph]) -> str:
    kernels = [sorted(map(structural_hash, graph.kernels())) for graph in graphs]
    return sha256(repr(kernels).encode()).hexdigest()[:12]


def test_other_programs_are_of_another_generation(pytestconfig: pytest.Config) -> None:
    now = {name: digest(graphs) for name, graphs in models()}
    generation, *lines = DIGESTS.read_text().splitlines() if DIGESTS.exists() else [""]
    before = dict(line.split() for line in lines)
    changed = [name for name, found in now.items() if before.get(name, found) != found]
    if generation == f"generation {LOWERING}":
        assert not changed, "raise LOWERING in base/__init__.py, and run this with --update"
    text = [f"generation {LOWERING}", *(f"{name} {found}" for name, found in now.items())]
    update = pytestconfig.getoption("update")
    check_golden(DIGESTS, "\n".join(text) + "\n", update=update)


def test_a_lock_of_another_generation_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its kernels are those that are built, it is as good as one of this generation."""
    (inputs, nodes, _), *_ = EXAMPLES["shift_of_shift"]
    graph = parsed(inputs, nodes)
    lock = tw.freeze(graph, "cpu -threads=1", allow=["default"], jobs=1)
    (program,) = lock.programs
    assert program.lowering == LOWERING
    assert parse_lock(str(lock).encode()) == lock
    monkeypatch.setattr("tilewright.building.lock_changes.LOWERING", LOWERING + 1)
    tw.build(graph, "cpu -threads=1", locked=lock)
    other = parsed(inputs, nodes.replace("add(d, b)", "subtract(d, b)"))
    with pytest.raises(tw.LockError) as error:
        tw.build(other, "cpu -threads=1", locked=lock)
    first, *rest = error.value.data["changes"]
    assert first == {
        "what": "lowering", "name": "g", "locked": str(LOWERING), "found": str(LOWERING + 1),
    }  # fmt: skip
    assert {change["what"] for change in rest} == {"kernel"}


def test_programs_that_are_no_models_have_no_generation() -> None:
    assert LockedProgram("one", {}).to_json() == {"name": "one", "kernels": {}}
