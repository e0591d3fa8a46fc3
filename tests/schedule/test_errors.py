"""A refusal as data: what was asked, what does not hold, where, and what would do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError, TuningError
from tilewright.schedule import Schedule, require
from tilewright.schedule.find import blocks_in
from tilewright.schedule.step_arguments import Ref
from tilewright.tir import te
from tilewright.tir.ir import Func, Label, Var
from tilewright.tir.parser import parse

from .programs import chain, elementwise, loops, matmul, matmul_relu


def two_stages() -> Func:
    """B = A * 2, then C = B + 1, over two dimensions."""
    a = te.placeholder((16, 12), "int32", name="A")
    b = te.compute((16, 12), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((16, 12), lambda i, j: b[i, j] + 1, name="C")
    return te.func([a, c], name="two_stages")


def refusal_of(sch: Schedule, name: str, *args: object, **kwargs: object) -> ScheduleError:
    with pytest.raises(ScheduleError) as refusal:
        getattr(sch, name)(*args, **kwargs)
    return refusal.value


def test_a_factor_that_does_not_divide() -> None:
    sch = Schedule(elementwise())
    _, j = loops(sch, "B")
    error = refusal_of(sch, "split", j, factors=[None, 5], perfect=True)
    assert error.condition == "factor 5 does not divide extent 12"
    assert (error.found, error.expected) == (5, "a divisor of 12")
    assert error.place is j
    assert error.func is sch.func
    assert (error.primitive, error.step) == ("split", 2)
    assert error.given.keys() == {"loop", "factors", "perfect"}


def test_it_goes_through_json() -> None:
    sch = Schedule(matmul())
    *_, r = loops(sch, "C")
    data = json.loads(json.dumps(refusal_of(sch, "parallel", r).as_data()))
    assert (data["found"], data["expected"]) == ("reduce", "spatial")
    assert data["place"] == "r"
    assert data["given"] == {"loop": "l3"}
    assert data["hint"] == "rfactor(r) makes it one, of partial results"
    assert "# <-- here" in data["program"]
    assert data["ended"] is data["example"] is None


def test_an_example_is_data_too() -> None:
    text = """
@tw.script
def shifted(A: T.Buffer((8,), "int32"), B: T.Buffer((9,), "int32")):
    T.inplace(B)
    for i in T.serial(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v + 1] = B[v] + A[v]
"""
    sch = Schedule(parse(text))
    data = refusal_of(sch, "parallel", *loops(sch, "B")).as_data()
    assert data["example"] == "iteration i=0 writes B[1], iteration i=1 reads it"


def test_where_a_handle_came_from_and_went() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    outer, inner = sch.split(i, factors=[None, 4])
    sch.fuse(outer, inner)
    error = refusal_of(sch, "unroll", inner)
    ended = (
        "loop i_1 was made by step 2 and ended with step 3, sch.fuse(l3, l4); "
        "in its place: i_0_i_1_fused"
    )
    assert error.as_data()["ended"] == ended
    assert ended in str(error)
    assert "made by" not in str(refusal_of(sch, "unroll", i))
    assert "loop i ended with step 2" in str(refusal_of(sch, "unroll", i))


def test_what_took_the_place_of_a_handle() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    outer, _ = sch.split(i, factors=[None, 4])
    sch.split(outer, factors=[None, 2])
    assert "in its place: i_0, i_1\n" in str(refusal_of(sch, "unroll", i))
    sch = Schedule(chain())
    b = sch.get_block("B")
    sch.compute_inline(b)
    error = refusal_of(sch, "get_loops", b)
    assert "block B ended with step 1, sch.compute_inline(b0)\n" in str(error)


def test_a_block_that_is_there_no_more_by_name() -> None:
    sch = Schedule(chain())
    sch.compute_inline(sch.get_block("B"))
    error = refusal_of(sch, "get_block", "B")
    assert error.as_data()["ended"] == "block B ended with step 1, sch.compute_inline(b0)"
    assert error.alternatives == ["C"]


def test_misspelt_names() -> None:
    sch = Schedule(parse(str(matmul()).replace('T.block("C")', 'T.block("product")')))
    block = sch.get_block("product")
    for step, hint in {
        ("get_block", "prodct"): "did you mean product?",
        ("get_block", "xyz"): None,
        ("cache_read", block, 0, "shard"): "did you mean shared?",
        (
            "tensorize",
            block,
            "dot_16x4_vni",
        ): "did you mean dot_16x4_vnni or dot_8x4_vnni or dot_4x4_vnni?",
    }.items():
        error = refusal_of(sch, *step)  # type: ignore[arg-type]
        assert error.as_data()["hint"] == hint
        assert error.found == step[-1]
        assert error.alternatives
    with pytest.raises(AttributeError, match="no primitive 'vectorise'; did you mean vectorize"):
        sch.vectorise  # noqa: B018


def test_arguments_of_another_type() -> None:
    sch = Schedule(matmul())
    i, *_ = loops(sch, "C")
    error = refusal_of(sch, "split", i, 8)
    assert error.found == 8
    assert error.expected == "a sequence with each an integer or None"
    error = refusal_of(sch, "fuse", [i])
    assert (error.found, error.expected) == ((Ref("l", 1),), "a loop")
    error = refusal_of(sch, "parallel", "i")
    assert (error.found, error.expected) == ("i", "a loop")
    assert "sch.get_loop(name)" in error.as_data()["hint"]
    error = refusal_of(sch, "get_loops", "c")
    assert error.as_data()["hint"] == "did you mean C?"
    error = refusal_of(sch, "reorder", "j", sch.get_block("C"))
    assert error.condition == "reorder: loops[0] must be a loop, found 'j'"
    error = refusal_of(sch, "reorder", i, sch.get_block("C"))
    assert error.condition == "reorder: loops[1] must be a loop, found b0"


@pytest.mark.parametrize("block", [None, True, 1.5, ()])
def test_blocks_are_named_by_texts_and_integers(block: Any) -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.get_block(block)
    assert len(sch.trace) == 0
    assert sch.get_block(np.int64(1)) is sch.get_block("C")  # type: ignore[arg-type]


def test_a_function_in_place_of_a_program_is_shown_and_not_called() -> None:
    def program(size: int) -> Func:
        raise AssertionError(f"called with {size}")

    with pytest.raises(ScheduleError) as refusal:
        Schedule(program)  # type: ignore[arg-type]
    assert "expected a program (Func) or programs by name to schedule, found 'function'" in str(
        refusal.value
    )
    assert "call the function that makes the program" in str(refusal.value)


@pytest.mark.parametrize(
    ("call", "found", "hint"),
    [
        (
            lambda sch, loop: sch.split(loop, factor=8),
            "found factor=8",
            "did you mean factors?",
        ),
        (
            lambda sch, loop: sch.sample_categorical(candidate=3),
            "found candidate=3",
            "did you mean candidates?",
        ),
        (
            lambda sch, loop: sch.sample_perfect_tile(loop, 2, max_innermost=4),
            "found max_innermost=4",
            "did you mean max_innermost_factor?",
        ),
        (lambda sch, loop: sch.vectorize(loop, lanes=8), "found lanes=8", None),
        (lambda sch, loop: sch.vectorize(loop, loop=loop), "found loop=", None),
        (lambda sch, loop: sch.split(loop), "; factors is missing", None),
        (lambda sch, loop: sch.get_block(), "; block is missing", None),
        (lambda sch, loop: sch.work_on(0, 1), "found 2 arguments", None),
    ],
)
def test_arguments_that_a_step_does_not_take(
    call: Callable[[Any, Var], object], found: str, hint: str | None
) -> None:
    sch = Schedule(matmul())
    i, *_ = loops(sch, "C")
    before = sch.trace
    with pytest.raises(ScheduleError) as refusal:
        call(sch, i)
    assert found in refusal.value.condition
    assert refusal.value.as_data()["hint"] == hint
    assert sch.trace == before


def test_a_label_of_the_original_program_names_its_block() -> None:
    func = chain()
    first, *_, last = (b.label for b in blocks_in(func.body))
    sch = Schedule(func)
    assert sch.get_block(last) is last
    assert str(sch.trace) == "b0 = sch.get_block(1)  # C"
    sch.compute_inline(sch.get_block(first))
    before = sch.trace
    for label, message in (
        (first, "there is no block B"),
        (Label("B"), "block B was made by a step that did not return it"),
    ):
        with pytest.raises(ScheduleError, match=message):
            sch.get_block(label)
    assert sch.trace == before


def test_a_label_that_a_step_returned_is_its_own_handle() -> None:
    sch = Schedule(chain())
    label = sch.cache_write(sch.get_block("C"), 0, "register")
    before = sch.trace
    assert sch.get_block(label) is label
    assert sch.trace == before


def test_handles_are_named() -> None:
    sch = Schedule(matmul())
    i, _, r = loops(sch, "C")
    two = sch.sample_categorical([2])
    error = refusal_of(sch, "tile", (i, r), (two, 2 - two))
    assert error.handles == {"l1": "i", "l3": "r", "t4": "2"}
    assert "sch.tile(target=[l1, l3], factors=[t4, 2 - t4])  # l1: i, l3: r, t4: 2\n" in str(error)


def test_loops_that_are_nested() -> None:
    sch = Schedule(matmul())
    i, j, r = loops(sch, "C")
    error = refusal_of(sch, "fuse", i, r)
    assert (error.found, error.expected) == (r, [j])
    error = refusal_of(sch, "fuse", j, i)
    assert (error.found, error.expected) == (i, [r])
    sch = Schedule(chain())
    (b,), (c,) = loops(sch, "B"), loops(sch, "C")
    error = refusal_of(sch, "fuse", b, c)
    assert (error.found, error.expected) == (c, [])
    error = refusal_of(sch, "reorder", b, c)
    assert error.condition == "loop i of block C is not nested with loop i of block B"
    assert error.handles == {"l1": "i of block B", "l3": "i of block C"}


def test_loops_that_are_as_deep() -> None:
    sch = Schedule(two_stages())
    (i, _), (k, m) = loops(sch, "B"), loops(sch, "C")
    assert refusal_of(sch, "merge", i, m).place is m
    sch.merge(i, k)


def test_loops_to_compute_at() -> None:
    sch = Schedule(two_stages())
    b, c = sch.get_block("B"), sch.get_block("C")
    mine, others = sch.get_loops(b), sch.get_loops(c)
    assert refusal_of(sch, "compute_at", b, mine[1]).found is mine[1]
    assert refusal_of(sch, "reverse_compute_at", c, others[0]).found is others[0]
    assert refusal_of(sch, "reverse_compute_at", b, others[0]).found is others[0]


def test_loops_of_a_reduction() -> None:
    sch = Schedule(matmul())
    i, _, r = loops(sch, "C")
    error = refusal_of(sch, "rfactor", i, 0)
    assert (error.found, error.expected) == (i, [r])


def test_loops_outside_of_a_reduction() -> None:
    sch = Schedule(matmul_relu())
    *_, r = loops(sch, "C")
    assert refusal_of(sch, "reverse_compute_at", sch.get_block("D"), r).found is r


def test_without_a_schedule_there_is_less_to_say() -> None:
    loop = Var("i")
    with pytest.raises(ScheduleError) as refusal:
        require(False, "{0} is not {1}", 1, 2, at=loop, found=1, expected=lambda: 2)
    data = refusal.value.as_data()
    assert data.pop("condition") == "1 is not 2"
    assert (data.pop("found"), data.pop("expected"), data.pop("place")) == (1, 2, "i")
    assert not any(data.values())
    assert refusal.value.func is None


def test_the_first_loop_or_block_that_is_named_is_marked() -> None:
    loop, block = Var("a loop"), Label("B")
    with pytest.raises(ScheduleError) as refusal:
        require(False, "{0} of {1} around {2}", 4, loop, block.name)
    assert refusal.value.condition == "4 of a loop around B"
    assert refusal.value.place is loop
    with pytest.raises(ScheduleError) as refusal:
        require(False, "{0}", "x", at=block)
    assert refusal.value.place is block


def test_nothing_is_made_before_it_is_read() -> None:
    def fail() -> str:
        raise AssertionError("read")

    with pytest.raises(ScheduleError) as refusal:
        require(False, "no", hint=fail, example=fail, found=fail, expected=fail, alternatives=fail)
    for name in ("found", "expected", "alternatives"):
        with pytest.raises(AssertionError, match="read"):
            getattr(refusal.value, name)
    with pytest.raises(AssertionError, match="read"):
        str(refusal.value)


def test_an_argument_whose_text_raises_is_named_in_its_place() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no text")

        def __format__(self, spec: str) -> str:
            raise KeyError(spec)

    class NoText(Exception):
        def __str__(self) -> str:
            raise TypeError

    def fails() -> str:
        raise OSError

    error = TuningError("{0!r} {1} {2} {3} {4}", Odd(), Odd(), NoText(), fails, "as it is")
    assert str(error) == (
        "<a Odd whose text raises ValueError> <a Odd whose text raises KeyError> "
        "<a NoText whose text raises TypeError> <a function whose text raises OSError> as it is"
    )


def long_chain(stages: int) -> Func:
    """A program with five lines for each of its blocks."""
    tensors = [te.placeholder((16,), "int32", name="A")]
    for k in range(stages):
        last = tensors[-1]
        tensors.append(te.compute((16,), lambda i, last=last: last[i] + 1, name=f"B{k}"))
    return te.func(tensors, name="long_chain")


@pytest.mark.parametrize("stage", [0, 5, 9])
def test_long_messages_are_folded(stage: int) -> None:
    sch = Schedule(long_chain(10))
    (loop,) = loops(sch, f"B{stage}")
    error = refusal_of(sch, "split", loop, factors=[None, 5], perfect=True)
    lines = str(error).split("\n")
    assert len(lines) == 20
    program = str(error.program).split("\n")
    shown = [line[4:] for line in lines[lines.index("  program:") + 1 :]]
    assert sum("# <-- here" in line for line in shown) == 1
    left_out = [int(line.split()[1]) for line in shown if line.startswith("... ")]
    assert len(left_out) == (1 if stage == 9 else 2)
    kept = [line for line in shown if not line.startswith("... ")]
    assert sum(left_out) + len(kept) == len(program)
    assert program[left_out[0] : left_out[0] + len(kept)] == kept
    assert "# <-- here" in error.as_data()["program"]


def test_short_messages_are_whole() -> None:
    sch = Schedule(chain())
    error = refusal_of(sch, "split", loops(sch, "C")[0], factors=[None, 5], perfect=True)
    assert str(error).endswith("\n".join(f"    {x}" for x in str(error.program).split("\n")))


@pytest.mark.parametrize("step", ["parallel", "vectorize"])
def test_a_loop_of_a_reduction_runs_at_once_after_the_step_that_is_named(step: str) -> None:
    sch = Schedule(matmul())
    *_, r = loops(sch, "C")
    hint = refusal_of(sch, step, r).as_data()["hint"]
    assert hint == "rfactor(r) makes it one, of partial results"
    sch.rfactor(r)
    getattr(sch, step)(r)


@pytest.mark.parametrize("step", ["parallel", "vectorize"])
def test_loops_of_opaque_iterations_show_what_orders_them(step: str) -> None:
    sch = Schedule(
        parse("""
@tw.script
def row(A: T.Buffer((16, 16), "int32")):
    T.inplace(A)
    for i, j in T.grid(15, 15):
        with T.block("A"):
            vi = T.axis.spatial(15, i)
            vj = T.axis.opaque(15, j)
            A[vi, vj + 1] = A[vi, vj] + 1
""")
    )
    told = refusal_of(sch, step, loops(sch, "A")[1]).as_data()
    assert told["example"] == "at i=0: iteration j=0 writes A[0, 1], iteration j=1 reads it"
    assert (told["found"], told["expected"]) == ("opaque", "spatial")


HINTED: dict[str, tuple[Callable[[Schedule], object], str | None]] = {
    "two open factors": (
        lambda sch: sch.split(loops(sch, "C")[0], factors=[None, None]),
        "the one that is None follows from the others: factors=[None, 8]",
    ),
    "a loop twice": (
        lambda sch: sch.reorder(loops(sch, "C")[0], loops(sch, "C")[0]),
        "name each loop once, in the new order; those that are not named keep their place",
    ),
    "no such operand": (
        lambda sch: sch.cache_read(sch.get_block("C"), 5, "local"),
        None,
    ),
    "an axis that is misspelt": (
        lambda sch: sch.bind(loops(sch, "C")[0], "threadIdx.w"),
        "did you mean threadIdx.z or threadIdx.y or threadIdx.x?",
    ),
    "too few paddings": (
        lambda sch: sch.pad_einsum(sch.get_block("C"), [2, 2]),
        "a multiple for each, 1 for none",
    ),
}


@pytest.mark.parametrize("case", HINTED)
def test_typical_mistakes_say_what_to_write(case: str) -> None:
    step, hint = HINTED[case]
    with pytest.raises(ScheduleError) as error:
        step(Schedule(matmul()))
    assert error.value.as_data()["hint"] == hint


def test_opaque_iterations_show_what_orders_them() -> None:
    text = """
@tw.script
def diagonal(A: T.Buffer((32, 16), "int32"), B: T.Buffer((16, 16), "int32")):
    T.inplace(A)
    for i, j in T.grid(15, 15):
        with T.block("A"):
            vi, vj = T.axis.remap("OO", [i, j])
            A[{index}] = {value}
"""
    cases = {
        ("vi + 1, vj", "A[vi, vj + 1] + 1"): (
            "iteration i=0, j=1 writes A[1, 1], iteration i=1, j=0 reads it"
        ),
        ("vi + vj, 0", "B[vi, vj]"): (
            "iteration i=0, j=1 writes A[1, 0], iteration i=1, j=0 writes it"
        ),
    }
    for (index, value), example in cases.items():
        sch = Schedule(parse(text.replace("{index}", index).replace("{value}", value)))
        i, j = loops(sch, "A")
        data = refusal_of(sch, "reorder", j, i).as_data()
        assert data["condition"].startswith("block A must run in the order of loops i, j: ")
        assert data["example"] == example


def test_blocks_that_are_reordered_after_they_are_taken_apart() -> None:
    text = """
@tw.script
def pair(A: T.Buffer((18, 17), "int32"), B: T.Buffer((17, 17), "int32")):
    T.inplace(A)
    for i, j in T.grid(16, 15):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi + 1, vj] = 1
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi + {row}, vj + 1]
"""
    sch = Schedule(parse(text.replace("{row}", "0")))
    i, j = loops(sch, "P")
    data = refusal_of(sch, "reorder", j, i).as_data()
    assert "iteration i=0, j=1 of block P writes A[1, 1]" in data["example"]
    sch.fission(j)
    sch.fission(i)
    for block in ("P", "Q"):
        sch.reorder(*reversed(sch.get_loops(sch.get_block(block))))
    sch = Schedule(parse(text.replace("{row}", "1")))
    i, j = loops(sch, "P")
    refusal_of(sch, "parallel", j)
    refusal_of(sch, "fission", j)


def test_bounds_in_messages_are_numbers() -> None:
    x = te.placeholder((16,), "int32", name="X")
    y = te.compute((20,), lambda i: te.select(i < 16, x[i], 0), name="Y")
    sch = Schedule(te.func([x, y], name="padded"))
    error = refusal_of(sch, "reindex_cache_read", sch.get_block("Y"), 0, "global", lambda i: (i,))
    assert "is not shown to lie within 0 to 15 in all iterations" in error.condition


def test_a_reason_that_no_order_of_loops_helps_against_comes_first() -> None:
    sch = Schedule(matmul())
    i, j, k = loops(sch, "C")
    sch.reorder(k, j)
    error = refusal_of(sch, "vectorize", k)
    assert "is part of the reduce iterations of block C" in error.condition
    assert "rfactor" in str(error.as_data()["hint"])
    sch.vectorize(j)
    sch.reorder(k, i)
    error = refusal_of(sch, "vectorize", i)
    assert error.as_data()["hint"] == "call serial(j) first: one loop of a nest runs as vectors"
