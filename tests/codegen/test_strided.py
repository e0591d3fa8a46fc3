"""Every second, third or fourth element of memory, forward and backward, and reversed rows."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.cpu import llvm
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .machinery import SERIAL, check

WIDE = "cpu -mcpu=skylake-avx512 -threads=1"


def strided(lanes: int, step: int, dtype: str = "float32", mask: str | None = None) -> Func:
    """Y is every `step`-th element of X, which ends with the last that is taken."""
    read = f"X[T.ramp(0, {step}, {lanes})]"
    if mask is not None:
        read = f"T.load({read}, mask=T.ramp(0, 1, {lanes}) < T.broadcast({mask}, {lanes}))"
    return parse(f"""
def f(X: T.Buffer(({(lanes - 1) * step + 1},), "{dtype}"), Y: T.Buffer(({lanes},), "{dtype}")):
    Y[T.ramp(0, 1, {lanes})] = {read}
""")


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("step", [2, 3, 4, 5, -2])
@pytest.mark.parametrize("lanes", [2, 3, 4, 16, 48])
def test_values(lanes: int, step: int, dtype: str) -> None:
    if step > 0:
        check(strided(lanes, step, dtype))
        return
    first = (lanes - 1) * -step
    check(
        parse(f"""
def f(X: T.Buffer(({first + 1},), "{dtype}"), Y: T.Buffer(({lanes},), "{dtype}")):
    Y[T.ramp(0, 1, {lanes})] = X[T.ramp({first}, {step}, {lanes})]
""")
    )


@pytest.mark.parametrize("step", [2, 3, 4])
def test_masks(step: int) -> None:
    for lanes in (4, 16):
        for kept in range(lanes + 1):
            check(strided(lanes, step, mask=str(kept)))


def test_a_mask_that_is_known_at_run_time() -> None:
    check(
        parse("""
def f(X: T.Buffer((31,), "float32"), N: T.Buffer((16,), "int64"), Y: T.Buffer((16,), "float32")):
    Y[T.ramp(0, 1, 16)] = T.load(X[T.ramp(0, 2, 16)], mask=N[T.ramp(0, 1, 16)] > T.broadcast(0, 16))
"""),
        [np.arange(31, dtype="f4"), np.arange(16) % 3, np.zeros(16, "f4")],
    )


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("mask", [False, True])
def test_lanes_that_lie_apart_are_stored_one_by_one(dtype: str, mask: bool) -> None:
    """With a mask that is a scatter: a branch for each lane takes longer."""
    read, write = "X[T.ramp(0, 1, 16)]", "Y[T.ramp(0, 10, 16)]"
    plain, masked = (
        f"{write} = {read}",
        f"T.store({write}, {read}, mask={read} > T.broadcast(T.{dtype}(1), 16))",
    )
    func = parse(f"""
def f(X: T.Buffer((16,), "{dtype}"), Y: T.Buffer((151,), "{dtype}")):
    {masked if mask else plain}
""")
    check(func)
    assert ("masked.scatter" in compile_func(func, WIDE).text) is mask


def test_near_elements_are_not_gathered() -> None:
    for step, gathers in ((2, False), (4, False), (5, True)):
        assert ("vgather" in compile_func(strided(16, step), WIDE).source("asm")) is gathers


def backward(
    lanes: int, step: int, dtype: str, mask: str | None = None, *, stores: bool = False
) -> Func:
    """Y is X the other way round: the first lane takes the last element, or writes to it."""
    far, near = f"T.ramp({(lanes - 1) * step}, {-step}, {lanes})", f"T.ramp(0, 1, {lanes})"
    read, write = (near, far) if stores else (far, near)
    enabled = None if mask is None else f"{near} {mask}"
    value = f"X[{read}]"
    if enabled is not None and not stores:
        value = f"T.load({value}, mask={enabled})"
    line = f"Y[{write}] = {value}"
    if enabled is not None and stores:
        line = f"T.store(Y[{write}], {value}, mask={enabled})"
    size = (lanes - 1) * step + 1
    sizes = (lanes, size) if stores else (size, lanes)
    return parse(f"""
def f(X: T.Buffer(({sizes[0]},), "{dtype}"), Y: T.Buffer(({sizes[1]},), "{dtype}")):
    {line}
""")


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("lanes", [2, 7, 16, 48])
def test_values_the_other_way_round(lanes: int, dtype: str, stores: bool) -> None:
    check(backward(lanes, 1, dtype, stores=stores))
    for relation in ("<", ">="):
        for n in sorted({0, 1, lanes // 2, lanes - 1, lanes}):
            mask = f"{relation} T.broadcast({n}, {lanes})"
            check(backward(lanes, 1, dtype, mask, stores=stores))


@pytest.mark.parametrize("step", [2, 4])
@pytest.mark.parametrize("lanes", [4, 16])
def test_masks_of_steps_backward(lanes: int, step: int) -> None:
    for n in range(lanes + 1):
        check(backward(lanes, step, "float32", f"< T.broadcast({n}, {lanes})"))


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("mask", [None, "< T.broadcast(5, 16)"])
def test_a_reversed_row_is_a_vector_in_memory(mask: str | None, stores: bool) -> None:
    code = compile_func(backward(16, 1, "float32", mask, stores=stores), WIDE).source("asm")
    assert "gather" not in code
    assert "scatter" not in code
    # a vector is moved in and one out, however its lanes are turned
    assert code.count("(%rdi)") + code.count("(%rsi)") == 2


def guarded(count: int, *, at_start: bool) -> np.ndarray:
    """Memory of float32 of which the page before it, or else the one behind, may not be touched."""
    page = mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, 2 * page), dtype=np.uint8)
    forbid = ctypes.CDLL(None, use_errno=True).mprotect
    start = whole.ctypes.data + (0 if at_start else page)
    assert forbid(ctypes.c_void_p(start), ctypes.c_size_t(page), 0) == 0
    first = page if at_start else page - 4 * count
    return whole[first : first + 4 * count].view("f4")


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("step", [1, 2, 4])
def test_nothing_around_a_reversed_row_is_read(step: int, at_start: bool) -> None:
    x = guarded(15 * step + 1, at_start=at_start)
    x[:] = np.arange(len(x))
    y = np.empty(16, "f4")
    to_module(compile_func(backward(16, step, "float32"), SERIAL))(x, y)
    np.testing.assert_array_equal(y, x[::-step])


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("kept", range(1, 16))
def test_lanes_of_a_reversed_row_that_are_off_are_not_touched(kept: int, at_start: bool) -> None:
    """The lanes that are on lie at the border: those that are off would lie beyond it."""
    offset, relation, limit = (kept - 1, "<", kept) if at_start else (15, ">=", 16 - kept)
    mask = f"mask=T.ramp(0, 1, 16) {relation} T.broadcast({limit}, 16)"
    func = parse(f"""
def f(X: T.Buffer(({kept},), "float32"), Y: T.Buffer((16,), "float32")):
    Y[T.ramp(0, 1, 16)] = T.load(X[T.ramp({offset}, -1, 16)], {mask})
""")
    x = guarded(kept, at_start=at_start)
    x[:] = np.arange(1, kept + 1)
    y = np.empty(16, "f4")
    to_module(compile_func(func, SERIAL))(x, y)
    wanted = np.zeros(16, "f4")
    on = slice(0, kept) if at_start else slice(16 - kept, 16)
    wanted[on] = x[::-1]
    np.testing.assert_array_equal(y, wanted)
    func = parse(f"""
def f(X: T.Buffer((16,), "float32"), Y: T.Buffer(({kept},), "float32")):
    T.store(Y[T.ramp({offset}, -1, 16)], X[T.ramp(0, 1, 16)], {mask})
""")
    source, target = np.arange(16, dtype="f4"), guarded(kept, at_start=at_start)
    to_module(compile_func(func, SERIAL))(source, target)
    np.testing.assert_array_equal(target, source[on][::-1])


@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("mask", [None, "16", "5"])
def test_nothing_behind_the_last_element_is_read(step: int, mask: str | None) -> None:
    """The page behind X may not be read: who does ends the process."""
    page = mmap.PAGESIZE
    space = mmap.mmap(-1, 2 * page)
    whole = np.frombuffer(space, dtype=np.uint8)
    forbid = ctypes.CDLL(None, use_errno=True).mprotect
    assert forbid(ctypes.c_void_p(whole.ctypes.data + page), ctypes.c_size_t(page), 0) == 0
    size = 15 * step + 1
    x = whole[page - 4 * size : page].view("f4")
    x[:] = np.arange(size)
    y = np.zeros(16, "f4")
    to_module(compile_func(strided(16, step, mask=mask), SERIAL))(x, y)
    expected = x[::step].copy()
    expected[int(mask or 16) :] = 0
    np.testing.assert_array_equal(y, expected)


def narrowed(lanes: int, wide: str, narrow: str, masks: Sequence[str]) -> Func:
    """The lanes that each of the masks names of a vector, cut to a narrower dtype."""
    vector = f"T.{narrow}x{lanes}(X[T.ramp(0, 1, {lanes})])"
    ramp = f"T.ramp(0, 1, {lanes})"
    stores = "\n".join(
        f"    T.store(Y[T.ramp({n * lanes}, 1, {lanes})], {vector}, mask={ramp} {mask})"
        for n, mask in enumerate(masks)
    )
    size = len(masks) * lanes
    return parse(f"""
def f(X: T.Buffer(({lanes},), "{wide}"), Y: T.Buffer(({size},), "{narrow}")):
{stores}
""")


def test_single_lanes_are_patched_where_llvm_writes_beyond_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(llvm, "without_single_lanes", lambda text: text)
    code = compile_func(narrowed(8, "int32", "int8", ["< T.broadcast(1, 8)"]), WIDE).source("asm")
    assert llvm.widens_single_lanes() is ("movl\t%eax, (%rsi)" in code)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("int16", "int8"), ("int32", "int8"), ("int32", "int16"), ("int64", "int32"),
     ("int64", "int16"), ("float32", "bfloat16")],
)  # fmt: skip
@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
def test_what_is_stored_narrower_stays_within_its_lanes(lanes: int, wide: str, narrow: str) -> None:
    one = narrowed(lanes, wide, narrow, [f"< T.broadcast(1, {lanes})"])
    assert "call void @llvm.masked.store" not in compile_func(one, WIDE).source("llvm")
    for relation in ("<", ">=", "=="):
        masks = [f"{relation} T.broadcast({n}, {lanes})" for n in range(lanes + 1)]
        check(narrowed(lanes, wide, narrow, masks))
