"""annotate, unannotate and set_scope."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule, Trace

from .conftest import Golden
from .programs import chain, elementwise, loops


def test_annotate(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("B")
        i, _ = sch.get_loops(block)
        sch.annotate(i, "pragma", "nontemporal")
        sch.annotate(block, "sizes", [1, 2.5, None, True, {"deep": [3]}])
        sch.annotate(block, "first", 0)

    golden("annotate/loop_and_block", elementwise(), script)


def test_unannotate(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("B")
        i, _ = sch.get_loops(block)
        for target in (i, block):
            sch.annotate(target, "first", 1)
            sch.annotate(target, "second", [2])
            sch.unannotate(target, "first")
        sch.unannotate(block, "second")

    golden("unannotate/loop_and_block", elementwise(), script)


def test_only_what_is_annotated_is_removed() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.unannotate(i, "key")
    sch.annotate(i, "other", 1)
    with pytest.raises(ScheduleError):
        sch.unannotate(i, "key")


def test_set_scope(golden: Golden) -> None:
    golden("set_scope/shared", chain(), lambda sch: sch.set_scope(sch.get_block("B"), 0, "shared"))


def test_a_key_is_annotated_once() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    sch.annotate(i, "key", 1)
    with pytest.raises(ScheduleError):
        sch.annotate(i, "key", 2)


@pytest.mark.parametrize("key", ["", "k" * 65, "new\nline"])
def test_keys_are_short_and_printable(key: str) -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.annotate(loops(sch, "B")[0], key, 1)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", 1j])
def test_values_are_json(value: Any) -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.annotate(loops(sch, "B")[0], "key", value)


def test_values_are_small() -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.annotate(loops(sch, "B")[0], "key", "x" * 4096)


def test_a_handle_is_no_value() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.annotate(i, "key", [i])


def test_scopes_are_known() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.set_scope(sch.get_block("B"), 0, "attic")


def test_parameters_stay_in_global_memory() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError) as refusal:
        sch.set_scope(sch.get_block("C"), 0, "shared")
    assert "cache_write" in str(refusal.value)


def test_a_buffer_that_is_not_written_is_refused() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.set_scope(sch.get_block("B"), 1, "shared")


def test_the_same_scope_changes_nothing() -> None:
    sch = Schedule(chain())
    before = sch.func
    sch.set_scope(sch.get_block("B"), 0, "global")
    assert sch.func is before


def test_annotations_survive_json_in_order() -> None:
    sch = Schedule(elementwise())
    sch.annotate(loops(sch, "B")[0], "map", {"b": 1, "a": [True, None]})
    again = Trace.from_json(sch.trace.to_json()).apply(sch.original)
    assert again.trace == sch.trace
