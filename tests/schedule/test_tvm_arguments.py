"""Arguments as TVM's scripts write them: taken, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.primitive import PRIMITIVES, TVM_NAMES
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .machinery import check_meaning, check_replays
from .programs import chain, loops, matmul, matmul_relu, stencil

Script = Callable[[Any], Any]


def same_steps(func: Func, script: Script, plain: Script) -> None:
    """Both scripts give the same trace, and keep the meaning."""
    schedules = [Schedule(func) for _ in range(2)]
    for sch, run in zip(schedules, (script, plain), strict=True):
        run(sch)
        check_meaning(func, sch.func)
        check_replays(func, sch)
    assert schedules[0].trace == schedules[1].trace


UPDATE = parse("""
@tw.script
def update(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    T.inplace(B)
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = B[vi] + A[vi]
""")


@pytest.mark.parametrize(
    ("func", "script", "plain"),
    [
        (
            matmul(),
            lambda s: s.cache_read("C", "B", "local"),
            lambda s: s.cache_read("C", 1, "local"),
        ),
        (
            matmul_relu(),
            lambda s: s.cache_read("D", "bias", "global"),
            lambda s: s.cache_read("D", 1, "global"),
        ),
        (
            matmul(),
            lambda s: s.cache_read(s.get_block("C"), s.func.params[1], "local"),
            lambda s: s.cache_read(s.get_block("C"), 1, "local"),
        ),
        (
            matmul(),
            lambda s: s.cache_write("C", "C", "local"),
            lambda s: s.cache_write("C", 0, "local"),
        ),
        (
            matmul(),
            lambda s: s.reindex("C", "B"),
            lambda s: s.reindex("C", ("read", 1)),
        ),
        (
            matmul_relu(),
            lambda s: s.transform_layout("C", "C", lambda i, j: (j, i)),
            lambda s: s.transform_layout("C", ("write", 0), lambda i, j: (j, i)),
        ),
        (
            matmul_relu(),
            lambda s: s.set_scope("C", buffer_index="C", storage_scope="local"),
            lambda s: s.set_scope("C", 0, "local"),
        ),
        (
            UPDATE,
            lambda s: s.cache_inplace("B", "B", "local"),
            lambda s: s.cache_inplace("B", 0, "local"),
        ),
        (
            stencil(),
            lambda s: s.cache_read("B", "A", "global", consumer_blocks=["B"]),
            lambda s: s.cache_read("B", 0, "global", consumers=["B"]),
        ),
        (
            matmul(),
            lambda s: s.annotate(block_or_loop=s.get_loops("C")[0], ann_key="mine", ann_val=[1]),
            lambda s: s.annotate(s.get_loops("C")[0], "mine", [1]),
        ),
        (
            matmul(),
            lambda s: s.get_block(name="C"),
            lambda s: s.get_block("C"),
        ),
        (
            chain(),
            lambda s: s.blockize(target=s.get_loops("C")[0]),
            lambda s: s.blockize(s.get_loops("C")[0]),
        ),
        (
            chain(),
            lambda s: s.work_on(func_name="chain"),
            lambda s: s.work_on("chain"),
        ),
    ],
)
def test_what_is_taken(func: Func, script: Script, plain: Script) -> None:
    same_steps(func, script, plain)


def test_a_name_that_is_none_of_the_buffers() -> None:
    sch: Any = Schedule(matmul())
    for name in ("X", "C", "a"):
        with pytest.raises(ScheduleError) as refusal:
            sch.cache_read("C", name, "local")
        assert (refusal.value.found, refusal.value.alternatives) == (name, ["A", "B"])
    with pytest.raises(ScheduleError) as refusal:
        sch.reindex("C", "X")
    assert refusal.value.alternatives == ["A", "B", "C"]
    assert not sch.trace.steps


def test_a_buffer_of_another_program_goes_by_its_name() -> None:
    func = matmul()
    renamed = parse(str(func)).params
    sch: Any = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.cache_read("C", renamed[2], "local")
    assert sch.cache_read("C", renamed[0], "local").name == "A_local"


@pytest.mark.parametrize(
    ("step", "arguments", "keyword"),
    [
        ("split", {"factors": [None, 4]}, {"preserve_unit_iters": True}),
        ("split", {"factors": [None, 4]}, {"disable_predication": True}),
        ("loop_partition", {}, {"factors": [4, None]}),
        ("compute_at", {}, {"preserve_unit_loops": True}),
        ("compute_at", {}, {"index": -1}),
        ("transform_layout", {"buffer": "C", "index_map": lambda i: (i // 4, i % 4)},
         {"pad_value": 0}),
        ("transform_layout", {"buffer": "C", "index_map": lambda i: (i // 4, i % 4)},
         {"assume_injective_transform": True}),
        ("cache_write", {"write_buffer_index": 0, "storage_scope": "local"},
         {"consumer_blocks": ["C"]}),
        ("get_block", {"block": "B"}, {"func_name": "main"}),
    ],
)  # fmt: skip
def test_what_has_no_effect_here_is_refused(
    step: str, arguments: dict[str, Any], keyword: dict[str, Any]
) -> None:
    sch = Schedule(chain())
    handles: dict[str, Any] = {"loop": loops(sch, "C")[0], "block": sch.get_block("B")}
    arguments = {n: handles[n] for n in PRIMITIVES[step].required & handles.keys()} | arguments
    before = sch.trace
    with pytest.raises(ScheduleError):
        getattr(sch, step)(**arguments, **keyword)
    assert sch.trace == before


def test_a_decision_goes_by_its_name() -> None:
    sch: Any = Schedule(chain())
    (i,) = loops(sch, "C")
    with pytest.raises(ScheduleError):
        sch.sample_perfect_tile(i, 2, 8, [2, 8])
    assert sch.sample_perfect_tile(i, 2, 8, decision=[8]) == (2, 8)


KEYS = """
    buffer_dim_align double_buffer_scope layout_free_buffers meta_schedule.parallel
    meta_schedule.of_another_rule pragma_auto_unroll_max_step pragma_loop_partition_hint
    software_pipeline_stage vector_bytes virtual_thread warp_execution
"""


@pytest.mark.parametrize("key", KEYS.split())
def test_annotations_that_ask_for_nothing_here(key: str) -> None:
    sch = Schedule(chain())
    for target in (loops(sch, "C")[0], sch.get_block("C")):
        with pytest.raises(ScheduleError) as refusal:
            sch.annotate(target, key, 1)
        assert refusal.value.found == key


def test_annotations_of_other_passes() -> None:
    sch = Schedule(chain())
    block = sch.get_block("C")
    for key in ("pragma", "stage", "my.meta_schedule", "unroll"):
        sch.annotate(block, key, 1)
    assert len(sch.trace.steps) == 5


def test_names_of_tvm_are_names_of_parameters() -> None:
    """Each name is taken by some primitive, and none has it as another parameter's name too."""
    for theirs, ours in TVM_NAMES.items():
        takers = [p for p in PRIMITIVES.values() if ours in p.names]
        assert takers
        assert not all(theirs in p.names for p in takers)
