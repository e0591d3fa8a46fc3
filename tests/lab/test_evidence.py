"""The pictures of models: their graph, their evidence and their profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tilewright as tw
from tilewright.graph import Builder, TensorType
from tilewright.lab.pictures.views import html_of, view_of
from tilewright.lab.report import report
from tilewright.runtime.evidence import (
    Evidence,
    GroupEvidence,
    KernelEvidence,
    Lifetime,
    MemoryEvidence,
    NodeEvidence,
    SourceEvidence,
)
from tilewright.runtime.partition_evidence import (
    CopyEvidence,
    DeviceEvidence,
    PartEvidence,
    PartitionEvidence,
    TransferEvidence,
)
from tilewright.runtime.profile import KernelTime, Profile

from .checks import HOSTILE, checked, with_class, words

KERNEL = KernelEvidence(
    "matmul_0", "matmul", 2, 4096, 256, 1024, 256, 0, "record", "ab" * 32, HOSTILE, 2e-6, 1e-6,
    "memory",
)  # fmt: skip
EVIDENCE = Evidence(
    2, HOSTILE, "cpu", (SourceEvidence(HOSTILE, HOSTILE, "group", 1),), {"gelu": 2}, (
        NodeEvidence("matmul", ("float32[4, 16]",), 0),
        NodeEvidence("reshape", ("float32[64]",), None),
        NodeEvidence(HOSTILE, (HOSTILE,), 1),
        NodeEvidence("relu", ("float32[64]",), 1),
    ),
    (GroupEvidence("matmul_0", ()), GroupEvidence("matmul_0", (0,))),
    (KERNEL,),
    MemoryEvidence(
        384, 320,
        (Lifetime(HOSTILE, False, 256, 0, 0, 1), Lifetime("", True, 64, 256, 1, 1)),
        1024, 0, (HOSTILE,),
    ),
    {"divide": 0.1, "compile": 2.0},
)  # fmt: skip
PARTITION = PartitionEvidence(
    1, HOSTILE,
    (
        PartEvidence("tilewright", ("matmul", HOSTILE), "", (), (HOSTILE,), EVIDENCE),
        PartEvidence(HOSTILE, (HOSTILE,), HOSTILE, (), ()),
        PartEvidence("tilewright", ("relu",), "", (), ()),
    ),
    (TransferEvidence(HOSTILE, HOSTILE, 64, 0, 1), TransferEvidence("exp", "int8[4]", 4, 0, 2)),
    DeviceEvidence((CopyEvidence(HOSTILE, HOSTILE, 64, "", "gpu"),), 1),
)  # fmt: skip
PROFILE = Profile(
    1, HOSTILE, "cpu", 9, 5e-6,
    (KernelTime("matmul_0", HOSTILE, 2, 4e-6, 1.0, 8192, 3072, 2e-6),),
    (2e-6, 2e-6), 0.0, 1e-8, 1e-6, True,
)  # fmt: skip


def test_evidence_shows_groups_and_memory() -> None:
    main = checked(view_of(EVIDENCE))
    assert len(list(with_class(main, "bar"))) == 2
    (arc,) = with_class(main, "strong")
    assert arc.get("d").startswith("M")
    value, work = with_class(main, "life")
    assert "work" in work.get("class")
    # The value lives twice as long, at the bottom of the picture, and is four times as high.
    assert float(value.get("width")) == 2 * float(work.get("width"))
    assert float(value.get("y")) > float(work.get("y"))
    assert abs(float(value.get("height")) / float(work.get("height")) - 4) < 0.05
    assert "workspace of group 1" in words(main)
    assert "4 nodes in 2 groups and 1 view" in words(main)


def test_a_model_without_an_arena_has_no_picture_of_it() -> None:
    memory = MemoryEvidence(0, 0, (), 0, 0, ())
    plain = replace(EVIDENCE, nodes=(), groups=(), kernels=(), memory=memory)
    main = checked(view_of(plain))
    assert "Nothing lives between kernels" in words(main)


def test_a_partition_has_a_lane_for_each_provider() -> None:
    main = checked(view_of(PARTITION))
    first, second, third, *of_kernels = with_class(main, "bar")
    assert first.get("y") == third.get("y") != second.get("y")
    assert float(first.get("x")) < float(second.get("x")) < float(third.get("x"))
    assert len(of_kernels) == 2
    assert len(list(with_class(main, "strong"))) == 2 + 1
    told = words(main)
    assert "host to gpu" in told
    assert "the kernels of tilewright" in told
    assert checked(view_of(replace(PARTITION, parts=(), transfers=(), devices=None))) is not None


def test_models_of_several_providers_show_themselves() -> None:
    b = Builder("two")
    graph = b.graph({"y": b.add("exp", b.input("x", TensorType("float32", (4,))))})
    model: Any = tw.build(graph, "cpu -threads=1", providers=["reference"])
    for value in (model, model.evidence, tw.partition(graph, ["reference"])):
        assert "1 part of 1 provider" in words(checked(view_of(value)))
        assert "1 part of 1 provider" in value._repr_html_()
    assert "1 part of 1 provider" in report(model)


def test_a_profile_has_a_bar_for_each_kernel() -> None:
    main = checked(view_of(PROFILE))
    assert len(list(with_class(main, "bar"))) == 1
    assert "while something else ran" in words(main)


def test_a_graph_shows_its_ends_and_its_text() -> None:
    b = Builder(HOSTILE)
    x = b.input(HOSTILE, TensorType("float32", (2, 3)))
    graph = b.graph({"y": b.add("relu", x)})
    main = checked(view_of(graph))
    assert "float32[2, 3]" in words(main)
    assert "relu" in words(main)


def test_values_show_themselves() -> None:
    assert EVIDENCE._repr_html_() == html_of(EVIDENCE)
    assert PROFILE._repr_html_() == html_of(PROFILE)
