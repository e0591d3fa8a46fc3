"""What two builds of a model differ in, and what of it is worse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.base.errors import ModelError
from tilewright.graph import Builder, TensorType
from tilewright.runtime.evidence import (
    Evidence,
    GroupEvidence,
    KernelEvidence,
    MemoryEvidence,
    NodeEvidence,
    SourceEvidence,
)
from tilewright.runtime.evidence_changes import Build, Change, build_from, changes, table
from tilewright.runtime.partition_evidence import (
    PartEvidence,
    PartitionEvidence,
    TransferEvidence,
    evidence_from,
)

from ..commands import Run


def kernel(name: str, operators: str, schedule: Any = "record") -> KernelEvidence:
    record = "ab" * 32 if schedule == "record" else None
    return KernelEvidence(
        name, operators, 1, 64, 64, 64, 64, 0, schedule, record, "", 1e-6, 1e-6, "memory"
    )


OLD = Evidence(
    2,
    "layer",
    "cpu -threads=1",
    (SourceEvidence("/a", "MatMul", "group", 0), SourceEvidence("/b", "Softmax", "group", 1)),
    {},
    (NodeEvidence("matmul", ("float32[4]",), 0), NodeEvidence("softmax", ("float32[4]",), 1)),
    (GroupEvidence("matmul_0", ()), GroupEvidence("softmax_0", (0,))),
    (kernel("matmul_0", "matmul"), kernel("softmax_0", "softmax", "model")),
    MemoryEvidence(64, 64, (), 256, 0, ()),
    {"compile": 2.0},
)
ELSEWHERE = PartitionEvidence(
    1,
    "layer",
    (
        PartEvidence("tilewright", ("matmul",), "", ("float32[4]",), ("float32[4]",), OLD),
        PartEvidence("onnxruntime", ("softmax",), "placed", ("float32[4]",), ("float32[4]",)),
    ),
    (TransferEvidence("matmul", "float32[4]", 16, 0, 1),),
)


def differs(old: Any, new: Any, *times: tuple[float, ...]) -> list[tuple[str, str, bool]]:
    before, after = times or ((), ())
    found = changes(Build(old, before), Build(new, after))
    assert [len(row) for row in table(found)[1]] == [5] * len(found)
    return [(change.what, change.of, change.worse) for change in found]


def test_equal_builds_do_not_differ() -> None:
    later = replace(OLD, seconds={"compile": 9.0}, model="other")
    assert differs(OLD, later) == []
    assert differs(ELSEWHERE, ELSEWHERE) == []


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"arena_bytes": 128, "live_bytes": 128}, ("arena", "", True)),
        ({"arena_bytes": 0, "live_bytes": 0}, ("arena", "", False)),
        ({"weights_bytes": 257}, ("weights", "", True)),
    ],
)
def test_memory(fields: dict[str, Any], change: tuple[str, str, bool]) -> None:
    assert differs(OLD, replace(OLD, memory=replace(OLD.memory, **fields))) == [change]


def test_a_lost_fusion_is_more_groups_of_the_same_graph() -> None:
    more = replace(OLD, groups=(*OLD.groups, GroupEvidence("softmax_0", (1,))))
    assert differs(OLD, more) == [("groups", "", True)]
    assert differs(more, OLD) == [("groups", "", False)]
    other = replace(more, sources=(*OLD.sources, SourceEvidence("/c", "Softmax", "group", 2)))
    assert differs(OLD, other) == [("graph", "", False), ("groups", "", False)]


@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        ([kernel("matmul_0", "matmul", "model")], [("schedule", "matmul", True)]),
        ([kernel("matmul_1", "matmul", "transfer")], [("schedule", "matmul", True)]),
        ([kernel("matmul_1", "matmul")], []),
        ([kernel("matmul_1", "matmul_add", "model")], []),
    ],
)
def test_a_schedule_that_is_no_record_any_more(
    kernels: list[KernelEvidence], found: list[tuple[str, str, bool]]
) -> None:
    """Kernels are those of the same name, or else of the same operators."""
    rest = OLD.kernels[1]
    assert differs(OLD, replace(OLD, kernels=(*kernels, rest))) == found


def test_a_schedule_that_is_a_record_now() -> None:
    better = replace(OLD, kernels=(OLD.kernels[0], kernel("softmax_0", "softmax")))
    assert differs(OLD, better) == [("schedule", "softmax", False)]


def test_what_runs_elsewhere() -> None:
    told = differs(OLD, ELSEWHERE)
    assert told == [("partition", "", True), ("elsewhere", "softmax by onnxruntime", True)]
    assert differs(ELSEWHERE, OLD) == [
        ("partition", "", True), ("elsewhere", "softmax by onnxruntime", False),
    ]  # fmt: skip
    (crossing,) = ELSEWHERE.transfers
    more = replace(ELSEWHERE, transfers=(replace(crossing, bytes=32),))
    assert differs(ELSEWHERE, more) == [("partition", "", True)]
    (own, other) = ELSEWHERE.parts
    larger = replace(OLD, memory=replace(OLD.memory, weights_bytes=512))
    grown = replace(ELSEWHERE, parts=(replace(own, kernels=larger), other))
    assert differs(ELSEWHERE, grown) == [("weights", "", True)]


def test_times_are_worse_beyond_their_interval() -> None:
    calm = tuple(1.0 + n / 100 for n in range(20))
    slow = tuple(1.2 * second for second in calm)
    assert differs(OLD, OLD, calm, slow) == [("time", "", True)]
    assert differs(OLD, OLD, slow, calm) == [("time", "", False)]
    assert differs(OLD, OLD, calm, tuple(1.02 * second for second in calm)) == []
    assert differs(OLD, OLD, calm, slow[:3]) == []
    assert differs(OLD, OLD, calm, ()) == []


def test_builds_of_json() -> None:
    assert build_from(OLD.to_json()) == Build(OLD)
    assert build_from(json.loads(json.dumps(ELSEWHERE.to_json()))) == Build(ELSEWHERE)
    run = {"evidence": OLD.to_json(), "samples": [1.0, 2.0], "seconds": 1.5}
    assert build_from(run) == Build(OLD, (1.0, 2.0))
    assert build_from({"evidence": OLD.to_json()}) == Build(OLD)
    beyond = replace(ELSEWHERE, transfers=(TransferEvidence("x", "y", 1, 0, 2),))
    wrong: list[Any] = [
        {}, [], 3, {"evidence": 1}, {"parts": []}, {**run, "samples": "x"}, beyond.to_json(),
        {**run, "samples": [-1.0]}, {**OLD.to_json(), "fallbacks": []},
    ]  # fmt: skip
    for data in wrong:
        with pytest.raises(ModelError):
            build_from(data)
    assert evidence_from(OLD.to_json()) == OLD


def test_changes_are_data() -> None:
    (change,) = changes(Build(OLD), Build(replace(OLD, target="cpu")))
    assert change == Change("target", "", "cpu -threads=1", "cpu", False)
    assert change.to_json()["what"] == "target"


def test_the_command_compares_files(run: Run, tmp_path: Path) -> None:
    files: dict[str, Any] = {"old": OLD, "new": replace(OLD, target="cpu"), "elsewhere": ELSEWHERE}
    for name, told in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(told.to_json()))
    old, new, elsewhere = (tmp_path / f"{name}.json" for name in files)
    assert run("evidence", old, old).out == "nothing is worse: 0 changes\n"
    done = run("evidence", old, new)
    assert (done.code, done.out) == (0, "nothing is worse: 1 change\n")
    assert run("evidence", old, new, "--json").json["worse"] == 0
    refused = run("evidence", old, elsewhere)
    assert refused.code == 1
    assert "softmax by onnxruntime" in refused.out
    assert refused.err == "tilewright: 2 of 2 changes are worse\n"
    told = run("evidence", old, elsewhere, "--json").json
    assert (told["worse"], len(told["changes"])) == (2, 2)
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    for wrong in ("bad.json", "binary.json", "missing.json", "."):
        done = run("evidence", old, tmp_path / wrong)
        assert done.code == 1
        assert done.err.startswith("tilewright: ")


def test_the_command_compares_artifacts(run: Run, tmp_path: Path) -> None:
    b = Builder("sums")
    x = b.input("x", TensorType("float32", (4, 8)))
    graph = b.graph({"y": b.add("exp", b.add("sum", b.add("exp", x), axes=(1,)))})
    kept = tmp_path / "kept.so"
    tw.build_library(graph, kept, "cpu -threads=1", allow=("default",))
    assert run("evidence", kept, kept).code == 0
    same = tmp_path / "kept.json"
    same.write_text(run("inspect", kept, "--json").out)
    assert run("evidence", same, kept, "--json").json["changes"] == []
    odd: list[list[Any]] = [[], [{}, {}], [3], [{}]]
    for programs in odd:
        with pytest.raises(tw.ModelError):
            build_from({"programs": programs})
    timed = tmp_path / "timed.json"
    timed.write_text(run("run", kept, "--evidence", "--json").out)
    assert run("evidence", timed, kept, "--json").json["changes"] == []
    assert build_from(json.loads(timed.read_text())).samples


def test_a_build_that_fuses_nothing_is_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder("chain")
    x = b.input("x", TensorType("float32", (4, 8)))
    graph = b.graph({"y": b.add("tanh", b.add("exp", b.add("negative", x)))})

    def build() -> Build:
        return Build(tw.build(graph, "cpu -threads=1", allow=("default",)).evidence)

    fused = build()
    assert changes(fused, build()) == []
    monkeypatch.setattr(
        "tilewright.graph.groups._Division.leaders",
        lambda division: {node: node for node in division.graph.nodes},
    )
    worse = {change.what for change in changes(fused, build()) if change.worse}
    assert worse == {"groups", "arena"}
