"""Errors cross processes: as texts and plain data, whatever they carry."""

from __future__ import annotations

import pickle  # noqa: TID251
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import tilewright as tw
from tilewright.base import errors
from tilewright.base.errors import BuildError, ScheduleError, TargetError, TilewrightError, told_of
from tilewright.tir import te
from tilewright.tir.ir import Func, Var

from .refusals import refused

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type)]
KINDS = [kind for kind in ALL if issubclass(kind, TilewrightError)]


def doubled() -> Func:
    a = te.placeholder((16, 12), "int32", name="A")
    return te.func([a, te.compute((16, 12), lambda i, j: a[i, j] * 2, name="B")], name="doubled")


def refused_step() -> object:
    sch = tw.Schedule(doubled())
    i, j = sch.get_loops(sch.get_block("B"))
    sch.fuse(i, j)
    return sch.split(i, factors=[None, 5])


def refused_build() -> object:
    return tw.build(doubled(), allow=["record"])


def refused_argument() -> object:
    return tw.build(doubled(), allow=["default"])([1], lambda: 2)


def crossed(error: TilewrightError) -> TilewrightError:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    return copy


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_survives_pickling(kind: type[TilewrightError]) -> None:
    def local(x: object) -> object:
        return x

    loop = Var("i")
    error = kind(
        "{0} of {1}: {2!r} {{",
        loop,
        lambda: "a text",
        local,
        hint=lambda: "do that {0}",
        example=lambda: None,
        func=doubled(),
        at=loop,
        several={"a": [1, 2.5, None, local]},
    )
    error.add_note("a note")
    with pytest.raises(kind), told_of(lambda: "program 3"):
        raise error
    copy = crossed(crossed(error))
    assert str(copy).endswith("{\n  hint: do that {0}\n  in: program 3")
    assert (copy.hint, copy.example) == ("do that {0}", None)
    assert copy.data["func"] == "doubled"
    assert copy.data["at"] == "i"
    assert copy.data["several"]["a"][:3] == [1, 2.5, None]
    assert copy.__notes__ == ["a note"]


def test_what_has_no_text_survives_too() -> None:
    class Odd(str):
        __slots__ = ()

        def __repr__(self) -> str:
            raise ValueError("no text")

    class Worse:
        def __str__(self) -> str:
            raise ValueError("no text")

    cycle: list[object] = []
    cycle.append(cycle)
    copy = crossed(TilewrightError("{0!r}", Odd("x"), odd=Odd("x"), worse=Worse(), cycle=cycle))
    assert copy.data["odd"] == "x"
    assert copy.data["worse"] == "<a Worse whose text raises ValueError>"


def test_the_parts_of_a_refusal_cross() -> None:
    with pytest.raises(ScheduleError) as refusal:
        refused_step()
    copy = crossed(refusal.value)
    assert isinstance(copy, ScheduleError)
    assert copy.as_data() == refusal.value.as_data()
    assert copy.ended is not None


@pytest.mark.parametrize("fails", [refused_step, refused_build, refused_argument])
def test_errors_leave_a_pool_of_processes(fails: Callable[[], object]) -> None:
    with pytest.raises(TilewrightError) as here:
        fails()
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        there = pool.submit(fails).exception()
    assert type(there) is here.type
    assert str(there) == str(here.value)


def test_names_that_are_missing_survive() -> None:
    with pytest.raises(AttributeError) as error:
        te.einsum  # type: ignore[attr-defined]  # noqa: B018
    copy = pickle.loads(pickle.dumps(error.value))
    assert type(copy) is AttributeError
    assert str(copy) == str(error.value)


def test_loops_that_were_told_apart_survive() -> None:
    x = te.placeholder((4,), "int32", name="X")
    y = te.compute((4,), lambda i: x[i] + 1, name="Y")
    sch = tw.Schedule(te.func([x, y, te.compute((4,), lambda i: y[i] + 1, name="Z")]))
    with refused(ScheduleError, "i") as error:
        sch.reorder(sch.get_loop("i", block="Y"), sch.get_loop("i", block="Z"))
    assert crossed(error.value).args == (error.value.condition,)


def test_hints_of_errors_in_an_error_are_on_its_line() -> None:
    inner = TargetError("there is no driver ({0})", "libcuda", hint="install it")
    inner.detail = lambda _: "  in: program 3"
    outer = TargetError("{0} does not load: {1}", "f", inner, hint="write a file")
    whole = BuildError("cannot build: {0}", outer)
    text = (
        "f does not load: there is no driver (libcuda)\n"
        "  hint: write a file; install it\n"
        "  in: program 3"
    )
    assert str(outer) == text
    assert str(whole) == f"cannot build: {text}"
    assert str(pickle.loads(pickle.dumps(whole))) == str(whole)
    twice = TargetError("{0}: {1}", inner, inner, hint="install it")
    assert str(twice).count("install it") == 1


def test_what_makes_a_copy_may_be_called_as_a_function() -> None:
    """As tblib does, which Dask brings."""
    error = tw.OutOfMemoryError("no memory: {0}", 3)
    make, arguments, state = error.__reduce__()
    copy = make(*arguments)
    copy.__setstate__(state)
    assert type(copy) is tw.OutOfMemoryError
    assert str(copy) == str(error)
