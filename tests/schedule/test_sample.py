"""sample_perfect_tile, sample_tile, sample_categorical: drawn, given, refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule, Trace
from tilewright.schedule.step_arguments import Derived, Sampled, SampledLoop, evaluate
from tilewright.tir.bounds import prove
from tilewright.tir.ir import const
from tilewright.tir.visit import substitute

from ..refusals import refused
from .conftest import Golden
from .machinery import check_meaning
from .programs import chain, elementwise, loops, stencil


def test_perfect_tile(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _ = loops(sch, "B")
        sch.split(i, factors=sch.sample_perfect_tile(i, n=3, max_innermost_factor=4))

    golden("sample_perfect_tile/three", elementwise(), script)


def test_partitioned_tile(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _ = loops(sch, "B")
        factors = sch.sample_partitioned_tile(i, n=4, partition_pos=2, innerpart_factor=4)
        sch.split(i, factors=factors)

    golden("sample_partitioned_tile/four", elementwise(32), script)


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_the_inner_part_is_a_multiple_of_its_factor(position: int) -> None:
    seen = set()
    for seed in range(40):
        sch = Schedule(elementwise(96, 1), seed=seed)
        i, _ = loops(sch, "B")
        factors = sch.sample_partitioned_tile(i, n=4, partition_pos=position, innerpart_factor=6)
        assert math.prod(factors) == 96
        assert math.prod(factors[position:]) % 6 == 0
        seen.add(tuple(factors))
    assert len(seen) > (3 if position == 3 else 12)


def test_partitioned_tiles_may_be_left_open() -> None:
    sch = Schedule(elementwise(48, 1), symbolic=True)
    i, _ = loops(sch, "B")
    factors = sch.sample_partitioned_tile(i, n=3, partition_pos=1, innerpart_factor=4)
    sch.split(i, factors=factors)
    assert sch.space is not None
    (first, second) = sch.space.bounds
    allowed = {
        (a, b)
        for a in range(1, 49)
        for b in range(1, 49)
        if all(
            prove(substitute(c.condition, {first: const(a), second: const(b)})) is True
            for c in sch.space.constraints
        )
    }
    assert allowed == {
        (a, b) for a in range(1, 49) for b in range(1, 49) if 48 % (a * b) == 0 and a * b % 4 == 0
    }


def test_what_a_partition_asks() -> None:
    sch = Schedule(elementwise(18, 1))
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.sample_partitioned_tile(i, 2, 3)
    with pytest.raises(ScheduleError):
        sch.sample_partitioned_tile(i, 2, -1)
    with pytest.raises(ScheduleError):
        sch.sample_partitioned_tile(i, 2, 2, 3)
    with pytest.raises(ScheduleError) as refusal:
        sch.sample_partitioned_tile(i, 2, 1, 4)
    assert refusal.value.place.name == "i"
    with pytest.raises(ScheduleError):
        sch.sample_partitioned_tile(i, 2, 1, 0)
    with pytest.raises(ScheduleError):
        sch.sample_partitioned_tile(i, 2, 1, 3, decision=[2])


def test_tile(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _ = loops(sch, "B")
        sch.split(i, factors=sch.sample_tile(i, n=3, max_factor=5, decision=[3, 5]))

    golden("sample_tile/three", elementwise(), script)


def test_categorical(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _ = loops(sch, "B")
        width = sch.sample_categorical([2, 4, 8], [0.5, 0.25, 0.25])
        sch.split(i, factors=[None, width * 2 - 1])

    golden("sample_categorical/computed", elementwise(), script)


def test_perfect_tiles_multiply_to_the_extent() -> None:
    seen = set()
    for seed in range(40):
        sch = Schedule(elementwise(60, 1), seed=seed)
        i, _ = loops(sch, "B")
        factors = sch.sample_perfect_tile(i, n=3, max_innermost_factor=6)
        assert math.prod(factors) == 60
        assert factors[-1] <= 6
        seen.add(tuple(factors))
    assert len(seen) > 15


def test_tiles_cover_the_extent() -> None:
    seen = set()
    for seed in range(40):
        sch = Schedule(elementwise(37, 1), seed=seed)
        i, _ = loops(sch, "B")
        outer, a, b = sch.sample_tile(i, n=3, max_factor=8)
        assert outer * a * b >= 37 > (outer - 1) * a * b
        assert max(a, b) <= 8
        seen.add((a, b))
    assert len(seen) > 15


def test_a_prime_extent_is_tiled_without_dividing() -> None:
    sch = Schedule(elementwise(37, 1))
    i, _ = loops(sch, "B")
    sch.split(i, factors=sch.sample_tile(i, n=2, decision=[8]))
    check_meaning(sch.original, sch.func)


def test_probabilities_are_kept() -> None:
    drawn = [Schedule(elementwise(), seed=s).sample_categorical([7, 3], [0, 1]) for s in range(9)]
    assert drawn == [3] * 9


def test_the_seed_decides() -> None:
    def sample(seed: int) -> list[Any]:
        sch = Schedule(elementwise(1024, 1), seed=seed)
        i, _ = loops(sch, "B")
        return [sch.sample_perfect_tile(i, n=4) for _ in range(4)]

    assert sample(3) == sample(3)
    assert sample(3) != sample(4)


def test_a_replay_takes_the_recorded_decisions() -> None:
    sch = Schedule(elementwise(64, 1), seed=5)
    i, _ = loops(sch, "B")
    sch.split(i, factors=sch.sample_perfect_tile(i, n=3))
    assert sch.trace.apply(sch.original, seed=99).trace == sch.trace


def test_other_decisions_go_through_to_later_steps() -> None:
    sch = Schedule(elementwise(64, 1))
    i, _ = loops(sch, "B")
    _, inner = sch.sample_perfect_tile(i, n=2, decision=[4])
    sch.split(i, factors=[None, inner * 2])
    (step,) = sch.trace.decisions
    other = sch.trace.with_decisions({step: [8]})
    assert "4, 16" in str(other.apply(sch.original).func)
    assert "8, 8" in str(sch.func)


def test_open_decisions_are_drawn_when_replayed() -> None:
    sch = Schedule(elementwise(64, 1), seed=1)
    i, _ = loops(sch, "B")
    sch.sample_tile(i, n=4, max_factor=4)
    (step,) = sch.trace.decisions
    opened = sch.trace.with_decisions({step: [None, 2, None]})
    again = opened.apply(sch.original, seed=2).trace.decisions[step]
    assert again[1] == 2
    assert None not in again


def test_rows_fill_all_decisions_in_order() -> None:
    sch = Schedule(elementwise(64, 8))
    i, j = loops(sch, "B")
    sch.sample_perfect_tile(i, n=3, decision=[4, 2])
    sch.sample_tile(j, n=2, decision=[5])
    trace = sch.trace.with_row([2, 8, 3])
    assert list(trace.decisions.values()) == [(2, 8), (3,)]
    with refused(ScheduleError, "3", "2"):
        sch.trace.with_row([2, 8])


def test_compute_location(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        b, c = sch.get_block("B"), sch.get_block("C")
        sch.split(sch.get_loops(c)[0], factors=[None, 4])
        sch.compute_at(b, sch.sample_compute_location(b, decision=[1]))

    golden("sample_compute_location/chain", chain(), script)


def test_another_location_goes_through_to_the_step_that_takes_it() -> None:
    sch = Schedule(chain())
    b, c = sch.get_block("B"), sch.get_block("C")
    sch.split(sch.get_loops(c)[0], factors=[None, 4])
    inner = sch.get_loops(c)[1]
    location = sch.sample_compute_location(b, decision=[1])
    assert isinstance(location, SampledLoop)
    assert location.loop is inner
    assert repr(location) == "i_1"
    sch.parallel(inner)
    sch.compute_at(b, location)
    (step,) = sch.trace.decisions
    other = sch.trace.with_decisions({step: [0]}).apply(sch.original)
    assert len(loops(other, "B")) == 2
    check_meaning(sch.original, other.func)


def test_all_legal_locations_are_drawn_and_no_other() -> None:
    seen = set()
    for seed in range(20):
        sch = Schedule(stencil(18), seed=seed)
        (i,) = loops(sch, "C")
        sch.split(i, factors=[2, 2, None])
        location = sch.sample_compute_location(sch.get_block("B"))
        sch.compute_at(sch.get_block("B"), location)
        check_meaning(sch.original, sch.func)
        seen.add(location.name)
    assert seen == {"i_0", "i_1", "i_2"}


def test_what_a_location_asks() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.sample_compute_location(sch.get_block("C"))
    b = sch.get_block("B")
    with pytest.raises(ScheduleError):
        sch.sample_compute_location(b, decision=[7])
    sch.compute_at(b, loops(sch, "C")[0])
    with pytest.raises(ScheduleError) as refusal:
        sch.sample_compute_location(b)
    assert refusal.value.place.name == "B"


def test_a_location_is_not_left_open() -> None:
    sch = Schedule(chain(), symbolic=True)
    with pytest.raises(ScheduleError):
        sch.sample_compute_location(sch.get_block("B"))


def test_a_sampled_loop_of_another_schedule_is_refused() -> None:
    one, two = Schedule(chain()), Schedule(chain())
    location = one.sample_compute_location(one.get_block("B"))
    with pytest.raises(ScheduleError, match="the sampled loop i is of another schedule"):
        two.compute_at(two.get_block("B"), location)
    two.sample_compute_location(two.get_block("B"))
    with pytest.raises(ScheduleError):
        two.compute_at(two.get_block("B"), location)


@pytest.mark.parametrize("decision", [[3], [32], [0], [-2]])
def test_decisions_that_are_not_possible_are_refused(decision: list[int]) -> None:
    sch = Schedule(elementwise(64, 1))
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.sample_perfect_tile(i, n=2, decision=decision)


@pytest.mark.parametrize("decision", [4, "4", "", {4: 1}, None, ["4"], [4.0]])
def test_what_is_no_decision_is_refused(decision: Any) -> None:
    sch = Schedule(elementwise(64, 1))
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError, match=r"decision .*; found (\W*4|None|'')"):
        sch.sample_perfect_tile(i, n=2, decision=decision)


def test_decisions_of_numpy_are_recorded_as_integers() -> None:
    sch = Schedule(elementwise(64, 1))
    i, _ = loops(sch, "B")
    sch.sample_perfect_tile(i, n=2, decision=[np.int64(4)])
    (taken,) = sch.trace.steps[-1].decision
    assert (type(taken), taken) == (int, 4)


def test_a_wrong_number_of_decisions_is_refused() -> None:
    sch = Schedule(elementwise(64, 1))
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.sample_perfect_tile(i, n=3, decision=[1, 1, 1, 1])
    for step in (sch.sample_perfect_tile, sch.sample_partitioned_tile, sch.sample_tile):
        with pytest.raises(ScheduleError):
            step(i, n=3, decision=[8, 4, 2])
        assert step(i, n=3, decision=[8, 4]) == (2, 4, 8)
    sch.sample_perfect_tile(i, n=3, decision=[1, 1])
    with pytest.raises(ScheduleError):
        sch.trace.with_decisions({2: [1]})
    for decision in ([1], []):
        with pytest.raises(ScheduleError):
            sch.trace.with_decisions({0: decision})


@pytest.mark.parametrize(
    ("candidates", "probs", "message"),
    [
        ([], None, "0 candidates"),
        ([1, 1], None, "candidates repeat"),
        ([1, 2], [1.0], "1 probabilities for 2"),
        ([1, 2], [0.0, 0.0], "must be positive"),
        ([1, 2], [-1.0, 2.0], "must be positive"),
        (["a"], None, "candidates must be a sequence with each a plain integer"),
    ],
)
def test_candidates_make_sense(candidates: Any, probs: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule(elementwise()).sample_categorical(candidates, probs)


@pytest.mark.parametrize(("n", "most"), [(0, 4), (17, 4), (2, 0)])
def test_parts_make_sense(n: int, most: int) -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.sample_perfect_tile(i, n, most)
    with pytest.raises(ScheduleError):
        sch.sample_tile(i, n, most)


def test_an_empty_loop_is_not_tiled() -> None:
    sch = Schedule(elementwise(0, 4))
    i, _ = loops(sch, "B")
    for sample in (sch.sample_perfect_tile, sch.sample_tile, sch.sample_partitioned_tile):
        with pytest.raises(ScheduleError) as refusal:
            sample(i, 2)
        assert refusal.value.place.name == "i"


def test_a_sampled_number_of_another_schedule_is_refused() -> None:
    one, two = Schedule(elementwise(64, 1)), Schedule(elementwise(64, 1))
    i, _ = loops(one, "B")
    j, _ = loops(two, "B")
    outer, inner = one.sample_perfect_tile(i, n=2, decision=[4])
    with pytest.raises(ScheduleError):
        two.split(j, factors=[outer, inner])


def test_a_sampled_number_that_was_decided_otherwise_is_refused() -> None:
    one, two = Schedule(elementwise(64, 1)), Schedule(elementwise(64, 1))
    four = one.sample_categorical([4, 8], decision=[4])
    two.sample_categorical([4, 8], decision=[8])
    with pytest.raises(ScheduleError):
        two.split(loops(two, "B")[0], factors=[None, four])


def test_an_extent_without_a_known_bound_is_not_tiled() -> None:
    sch = Schedule(elementwise(64, 1), symbolic=True)
    n = sch.sample_categorical([1, 2, 4])
    outer, _ = sch.split(loops(sch, "B")[0], factors=[None, n - 1])
    with pytest.raises(ScheduleError):
        sch.sample_perfect_tile(outer, n=2)


def test_arithmetic_on_sampled_numbers_is_recorded() -> None:
    sch = Schedule(elementwise(64, 1))
    i, _ = loops(sch, "B")
    t = sch.sample_categorical([4])
    sch.split(i, factors=[None, (9 - t) * 2 // 3 + 7 % t])
    assert "[None, (((9 - t3) * 2) // 3) + (7 % t3)]" in str(sch.trace)
    again = Trace.from_json(sch.trace.to_json())
    assert again == sch.trace
    assert again.apply(sch.original).trace == sch.trace


@pytest.mark.parametrize(
    "function",
    [
        lambda t: t + 1, lambda t: 1 + t, lambda t: t - 1, lambda t: 9 - t, lambda t: t * 2,
        lambda t: 2 * t, lambda t: t // 3, lambda t: 9 // t, lambda t: t % 3, lambda t: 9 % t,
        lambda t: -t, lambda t: t * t,
    ],
)  # fmt: skip
def test_arithmetic_on_sampled_numbers_is_that_of_integers(function: Any) -> None:
    sch = Schedule(elementwise())
    t = function(sch.sample_categorical([4]))
    assert t == function(4)
    assert isinstance(t, Sampled)
    assert isinstance(t.source, Derived)
    assert evaluate(t.source, lambda ref: 4) == t
