"""The call glue: it calls the kernel only where the checked entry would, with the same values."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import ArgumentError, KernelError
from tilewright.codegen.cpu import glue
from tilewright.codegen.cpu.glue import make_glue
from tilewright.runtime import Argument, Module, Origin, Signature
from tilewright.runtime.argument_checks import ctypes_parameters, make_binder
from tilewright.runtime.host_memory import HOST_MEMORY
from tilewright.target import Target

from ..refusals import refused

A = Argument("a", "float32", (3, 4))
OUT = Argument("c", "float32", (3, 4), role="out")


class Deferred(Exception):
    """The glue handed a call over."""


class Rig:
    """Glue around a kernel that notes its values, with a fallback that raises `Deferred`."""

    def __init__(self, *arguments: Argument) -> None:
        self.signature = Signature("probe", arguments)
        self.calls: list[tuple[Any, ...]] = []
        self.status = 0
        self.function = ctypes.CFUNCTYPE(ctypes.c_int32, *ctypes_parameters(self.signature))(
            self.kernel
        )
        address = ctypes.cast(self.function, ctypes.c_void_p).value
        assert address is not None
        self.address = address
        made = make_glue(address, self.signature, self.fallback, self.fail)
        assert made is not None
        self.call = made

    def kernel(self, *values: Any) -> int:
        *arguments, workspace = values
        assert workspace is None
        self.calls.append(tuple(arguments))
        return self.status

    def fallback(self, *arguments: Any) -> None:
        raise Deferred(*arguments)

    def fail(self, status: int) -> None:
        raise KernelError("status {0}", status)

    def accepts(self, *arguments: Any) -> bool:
        """Whether the kernel is called; if so the checked entry agrees on its values."""
        before, given_on = len(self.calls), None
        try:
            self.call(*arguments)
        except Deferred as error:
            given_on = error
        if given_on is not None:
            assert all(x is y for x, y in zip(given_on.args, arguments, strict=True))
            assert len(self.calls) == before
            return False
        values, _ = make_binder(self.signature, HOST_MEMORY)(arguments)
        assert self.calls[before:] == [tuple(values)]
        return True


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def test_plain_arrays_go_straight_to_the_kernel() -> None:
    rig = Rig(A, A, OUT)
    a = zeros(3, 4)
    assert rig.accepts(a, zeros(3, 4), zeros(3, 4))
    assert rig.call(a, a, zeros(3, 4)) is None
    assert rig.accepts(a, a, zeros(3, 4))
    assert rig.accepts(read_only(a), a, zeros(3, 4))


def unaligned() -> Any:
    return np.zeros(49, "u1")[1:].view("f4").reshape(3, 4)


class Mine(np.ndarray[Any, Any]):
    """A subclass of ndarray."""


@pytest.mark.parametrize(
    "other",
    [
        zeros(4, 3),
        zeros(12),
        zeros(3, 4, 1),
        zeros(0, 4),
        zeros(3, 4, dtype="f8"),
        zeros(3, 4, dtype="i4"),
        zeros(3, 4, dtype=">f4"),
        zeros(4, 3).T,
        zeros(3, 8)[:, ::2],
        zeros(3, 4)[::-1],
        unaligned(),
        zeros(3, 4).view(Mine),
        np.ma.zeros((3, 4), "f4"),
        zeros(3, 4).tolist(),
        None,
        3.0,
        np.float32(1),
        memoryview(zeros(3, 4)),
        np.ndarray,
    ],
)
def test_everything_else_is_handed_over(other: Any) -> None:
    rig = Rig(A, OUT)
    assert not rig.accepts(other, zeros(3, 4))
    assert not rig.accepts(zeros(3, 4), other)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_arguments_is_handed_over(count: int) -> None:
    assert not Rig(A, OUT).accepts(*[zeros(3, 4)] * count)


def test_an_output_must_be_writable_and_apart() -> None:
    rig = Rig(A, OUT)
    memory = zeros(30)
    first, near, second = (memory[i : i + 12].reshape(3, 4) for i in (0, 11, 12))
    assert rig.accepts(first, second)
    assert rig.accepts(second, first)
    assert not rig.accepts(first, near)
    assert not rig.accepts(near, first)
    assert not rig.accepts(first, first)
    assert not rig.accepts(zeros(3, 4), read_only(zeros(3, 4)))


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype"),
    [
        ("bool", np.bool_),
        ("int8", np.int8),
        ("uint16", np.uint16),
        ("int64", np.int64),
        ("float16", np.float16),
        ("float64", np.float64),
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        ("float8_e5m2", ml_dtypes.float8_e5m2),
    ],
)
def test_dtypes(dtype: str, numpy_dtype: Any) -> None:
    rig = Rig(Argument("a", dtype, (5,)), Argument("c", dtype, (5,), role="out"))
    assert rig.accepts(zeros(5, dtype=numpy_dtype), zeros(5, dtype=numpy_dtype))
    assert not rig.accepts(zeros(5, dtype="u4"), zeros(5, dtype=numpy_dtype))


def test_no_dimensions_no_elements_and_extents_of_one() -> None:
    assert Rig(Argument("a", "float32", ())).accepts(zeros())
    assert not Rig(Argument("a", "float32", ())).accepts(zeros(1))
    empty = Rig(Argument("a", "float32", (0, 4)), Argument("c", "float32", (0, 4), role="out"))
    same = zeros(0, 4)
    assert empty.accepts(same, same)
    one = Rig(Argument("a", "float32", (1, 4)), Argument("c", "float32", (4, 1), (1, 9), "out"))
    assert one.accepts(zeros(5, 4)[::5], zeros(4, 1))


def test_declared_strides() -> None:
    rig = Rig(
        Argument("a", "float32", (3, 4), (8, 1)), Argument("c", "float32", (3, 4), (1, 3), "out")
    )
    assert rig.accepts(zeros(3, 8)[:, :4], zeros(4, 3).T)
    assert not rig.accepts(zeros(3, 4), zeros(4, 3).T)
    assert not rig.accepts(zeros(3, 8)[:, :4], zeros(3, 4))


@given(st.data())
def test_the_checked_entry_accepts_whatever_the_glue_accepts(data: st.DataObject) -> None:
    memory = np.zeros(160, np.uint8)

    def array(label: str) -> Any:
        start = data.draw(st.sampled_from([0, 0, 8, 16, 17, 48]), label)
        dtype = data.draw(st.sampled_from(["f4", "f4", "f4", "i4", "f2"]), label)
        shape = data.draw(st.sampled_from([(2, 3), (2, 3), (3, 2), (6,), (0, 3)]), label)
        order = data.draw(st.permutations(range(len(shape))), label)
        base = np.ndarray([shape[i] for i in order], dtype, memory, start)
        view = base.transpose(np.argsort(order))
        view.flags.writeable = data.draw(st.booleans(), label)
        return view

    strides = data.draw(st.sampled_from([None, (3, 1), (1, 2)]))
    rig = RIGS[strides]
    a, c = array("a"), array("c")
    plain = type(a) is np.ndarray and _binds(rig, a, c)
    assert rig.accepts(a, c) == plain


RIGS = {
    strides: Rig(
        Argument("a", "float32", (2, 3), strides), Argument("c", "float32", (2, 3), strides, "out")
    )
    for strides in (None, (3, 1), (1, 2))
}


def _binds(rig: Rig, *arguments: Any) -> bool:
    try:
        make_binder(rig.signature, HOST_MEMORY)(arguments)
    except ArgumentError:
        return False
    return True


def scalar(dtype: str, **facts: Any) -> Argument:
    return Argument("s", dtype, kind="scalar", **facts)


@pytest.mark.parametrize(
    ("argument", "accepted", "handed_over"),
    [
        (scalar("bool"), [True, False], [1, 0, None, np.True_]),
        (scalar("int8"), [-128, 127], [128, -129, True, 1.0, np.int8(1)]),
        (scalar("uint8"), [0, 255], [-1, 256, 2**64]),
        (scalar("int32", value_range=(2, 10)), [2, 9], [1, 10]),
        (scalar("int64"), [-(2**63), 2**63 - 1, 0], [2**63, -(2**63) - 1, 10**100]),
        (scalar("uint64"), [0, 2**63 - 1], [-1, 2**63, 2**64]),
        (scalar("float64"), [0.1, -1e308, float("inf")], [1, True, np.float64(1), "x"]),
        (scalar("float32"), [0.5, 3e38, float("inf"), -float("inf")], [3.5e38, -1e300, 1]),
    ],
)
def test_scalars(argument: Argument, accepted: list[Any], handed_over: list[Any]) -> None:
    rig = Rig(argument, A)
    for value in accepted:
        assert rig.accepts(value, zeros(3, 4)), value
    for value in handed_over:
        assert not rig.accepts(value, zeros(3, 4)), value


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_not_a_number_is_a_number(dtype: str) -> None:
    rig = Rig(scalar(dtype))
    rig.call(float("nan"))
    assert np.isnan(rig.calls[0][0])


def test_many_arguments_of_both_kinds_keep_their_places() -> None:
    arguments = []
    for i in range(10):
        arguments += [
            Argument(f"t{i}", "float32", (i,)),
            Argument(f"i{i}", "int32", kind="scalar"),
            Argument(f"f{i}", "float64", kind="scalar"),
        ]
    values: list[Any] = []
    for i in range(10):
        values += [zeros(i), i, i / 2]
    assert Rig(*arguments).accepts(*values)


def test_a_status_is_raised() -> None:
    rig = Rig(A)
    rig.status = -7
    with refused(KernelError, "-7"):
        rig.call(zeros(3, 4))
    rig.status = 0
    rig.call(zeros(3, 4))


def test_references_are_balanced() -> None:
    rig = Rig(A, scalar("int64"), OUT)
    a, c, big = zeros(3, 4), zeros(3, 4), 2**62
    rig.status = 5

    def count() -> list[int]:
        gc.collect()
        return [sys.getrefcount(x) for x in (a, c, big, None, rig.call, KernelError)]

    def calls() -> None:
        for _ in range(200):
            rig.status = 0
            rig.call(a, big, c)
            rig.status = 5
            with pytest.raises(KernelError):
                rig.call(a, big, c)
            with pytest.raises(Deferred):
                rig.call(a, a, c)
        rig.calls.clear()

    def grown() -> list[int]:
        before = count()
        calls()
        return [abs(x - y) for x, y in zip(count(), before, strict=True)]

    calls()
    # Other threads hold and drop references too, but a leak is there each time.
    least = [min(n) for n in zip(*(grown() for _ in range(3)), strict=True)]
    assert all(n < 50 for n in least)


def test_glue_is_freed_with_what_it_holds() -> None:
    rig = Rig(A)
    dead = weakref.ref(rig)
    del rig
    gc.collect()
    assert dead() is None


def test_glue_keeps_its_fallback_alive() -> None:
    call = Rig(A).call
    gc.collect()
    with pytest.raises(Deferred):
        call(None)


def test_code_is_made_once_per_signature() -> None:
    Rig(Argument("x", "float32", (3, 4)), OUT)
    misses = glue._compile.cache_info().misses
    rig = Rig(A, OUT)
    assert glue._compile.cache_info().misses == misses
    assert rig.accepts(zeros(3, 4), zeros(3, 4))


def semaphore() -> tuple[Any, Any]:
    """An array that holds a semaphore, and glue around the C function that waits for it."""
    libc = ctypes.CDLL(None)
    memory = np.zeros(4, np.int64)
    assert libc.sem_init(ctypes.c_void_p(memory.ctypes.data), 0, 0) == 0
    address = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
    assert address is not None
    signature = Signature("sem_wait", (Argument("s", "int64", (4,), role="inout"),))
    return memory, make_glue(address, signature, lambda s: None, lambda status: None)


def test_the_gil_is_released_while_the_kernel_runs() -> None:
    memory, wait = semaphore()
    threads = [threading.Thread(target=wait, args=(memory,), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in threads:
        ctypes.CDLL(None).sem_post(ctypes.c_void_p(memory.ctypes.data))
    for thread in threads:
        thread.join(timeout=600)
        assert not thread.is_alive()


def test_many_threads_call_at_once() -> None:
    rig = Rig(A, OUT)

    def calls() -> None:
        a, c = zeros(3, 4), zeros(3, 4)
        for _ in range(300):
            rig.call(a, c)

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rig.calls) == 1200


def test_a_module_with_glue_is_a_module() -> None:
    rig = Rig(A, OUT)
    mod = Module(
        rig.signature,
        [rig.address],
        Target.parse("cpu -mcpu=x86-64 -threads=1"),
        origin=Origin("schedule"),
        glue=make_glue,
        owner=rig.function,
    )
    a, c = zeros(3, 4), zeros(3, 4)
    mod(a, c)
    mod(a.view(Mine), c)
    mod.bind(a, c)()
    mod.bind(a.view(Mine), c)()
    assert rig.calls == [(a.ctypes.data, c.ctypes.data)] * 4
    with refused(ArgumentError, "a", "float32", "float64"):
        mod(a.astype("f8"), c)
    rig.status = 1
    with refused(KernelError, "probe", "1"):
        mod(a, c)


def test_there_is_no_glue_for_scalars_of_narrow_floats() -> None:
    signature = Signature("probe", (scalar("bfloat16"),))
    assert make_glue(1, signature, lambda s: None, lambda status: None) is None


def test_there_is_no_glue_for_objects_of_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glue, "layout_is_known", lambda: False)
    assert make_glue(1, Signature("f", (A,)), lambda a: None, lambda status: None) is None
