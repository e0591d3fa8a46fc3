"""Calling a module: what reaches the kernel, and what is refused with which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.base.errors import ArgumentError, KernelError
from tilewright.runtime import Argument

from ..refusals import refused

Make = Callable[..., Any]

A = Argument("a", "float32", (3, 4))
B = Argument("b", "float32", (3, 4))
OUT = Argument("c", "float32", (3, 4), role="out")


def arrays(count: int, shape: tuple[int, ...] = (3, 4), dtype: Any = np.float32) -> list[Any]:
    return [np.zeros(shape, dtype) for _ in range(count)]


def test_pointers_reach_the_kernel_in_order(probe: Make) -> None:
    p = probe(A, B, OUT)
    a, b, c = arrays(3)
    assert p.mod(a, b, c) is None
    assert p.mod(a, a, c) is None
    assert p.calls == [
        (a.ctypes.data, b.ctypes.data, c.ctypes.data),
        (a.ctypes.data, a.ctypes.data, c.ctypes.data),
    ]


REFUSED = [
    (lambda x: x[:2], ["shape (3, 4)", "found (2, 4)", "compiled for one shape"]),
    (lambda x: x.reshape(4, 3), ["shape (3, 4)", "found (4, 3)", "ascontiguousarray(a.T)"]),
    (lambda x: x.reshape(12), ["found (12,)", "pass a.reshape((3, 4))"]),
    (lambda x: x.astype("f8"), ["dtype float32, found float64", "a.astype(numpy.float32)"]),
    (lambda x: x.astype(">f4"), ["float32 of foreign byte order", "newbyteorder('=')"]),
    (lambda x: x.view("i4"), ["dtype float32, found int32"]),
    (lambda x: x.astype("c8"), ["found complex64"]),
    (np.asfortranarray, ["compact row-major", "(4, 12) bytes", "numpy.ascontiguousarray(a)"]),
    (lambda x: np.zeros((3, 8), "f4")[:, ::2], ["(32, 8) bytes"]),
    (lambda x: x[::-1], ["(-16, 4) bytes"]),
    (lambda x: np.zeros(49, "u1")[1:].view("f4").reshape(3, 4), ["multiple of 4", "a.copy()"]),
    (np.ma.asarray, ["a masked array", "a.filled"]),
    (lambda x: x.tolist(), ["expected an array, found list", "numpy.asarray(a)"]),
    (lambda x: None, ["expected an array, found NoneType"]),
    (memoryview, ["expected an array, found memoryview"]),
]


@pytest.mark.parametrize(("spoil", "words"), REFUSED)
def test_a_wrong_array_is_named_with_what_was_found_and_a_remedy(
    probe: Make, spoil: Callable[[Any], Any], words: list[str]
) -> None:
    p = probe(A, B, OUT)
    a, b, c = arrays(3)
    with pytest.raises(ArgumentError) as error:
        p.mod(spoil(a), b, c)
    text = str(error.value)
    assert text.startswith("argument a: ")
    for word in words:
        assert word in text
    assert p.calls == []


def test_the_number_of_arguments_is_checked(probe: Make) -> None:
    p = probe(A, B, OUT)
    for count in (0, 2, 4):
        with refused(ArgumentError, "3", "a, b, c", count):
            p.mod(*arrays(count))


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [
        ("out", "call module(a, b, c): outputs are passed in, after the inputs"),
        ("c", "call module(a, b, c): outputs are passed in, after the inputs"),
        ("workspce", "did you mean workspace?"),
    ],
)
def test_arguments_are_passed_by_position(probe: Make, keyword: str, hint: str) -> None:
    p = probe(A, B, OUT)
    *inputs, out = arrays(3)
    calls: list[Any] = [p.mod, p.mod.bind]
    for call in calls:
        with pytest.raises(ArgumentError) as e:
            call(*inputs, **{keyword: out})
        assert str(e.value).endswith(f"found keyword {keyword}\n  hint: {hint}")
    assert p.calls == []
    p.mod(*inputs, out, workspace=None)
    assert len(p.calls) == 1


def test_an_output_must_be_writable(probe: Make) -> None:
    p = probe(A, B, OUT)
    a, b, c = arrays(3)
    a.flags.writeable = False
    p.mod(a, b, c)
    with pytest.raises(ArgumentError) as error:
        p.mod(b, b, a)
    assert "hint: c is an output: pass an array of your own, numpy.empty((3, 4)" in str(error.value)


def test_an_output_is_replaced_not_converted(probe: Make) -> None:
    p = probe(A, B, OUT)
    a, b = arrays(2)
    with pytest.raises(ArgumentError, match=r"numpy.empty\(\(3, 4\), numpy.float32\)"):
        p.mod(a, b, np.zeros((3, 4)))
    with pytest.raises(ArgumentError):
        p.mod(a, b, np.zeros((3, 8), "f4")[:, ::2])


def test_an_output_must_not_overlap(probe: Make) -> None:
    p = probe(A, B, OUT)
    memory = np.zeros(30, "f4")
    first, near, second = (memory[i : i + 12].reshape(3, 4) for i in (0, 11, 12))
    p.mod(first, first, second)
    for a, b, c, other in [(first, second, near, "a"), (second, first, first, "b")]:
        with refused(ArgumentError, "c", other):
            p.mod(a, b, c)
    assert len(p.calls) == 1


def test_two_outputs_must_not_overlap(probe: Make) -> None:
    p = probe(OUT, Argument("d", "float32", (3, 4), role="out"))
    c, d = arrays(2)
    p.mod(c, d)
    with pytest.raises(ArgumentError):
        p.mod(c, c)


def test_of_many_outputs_none_may_overlap(probe: Make) -> None:
    """They are sorted, as there are too many pairs."""
    pair, names = "float32", [f"c{n}" for n in range(70)]
    sides = [Argument(name, pair, (3, 4), (8, 1), role="out") for name in ("left", "right")]
    p = probe(A, B, *(Argument(name, pair, (3, 4), role="out") for name in names), *sides)
    a, memory, wide = np.zeros((3, 4), "f4"), np.zeros(70 * 12 + 1, "f4"), np.zeros((3, 8), "f4")
    outs = [memory[12 * n : 12 * n + 12].reshape(3, 4) for n in range(70)]
    beside = [wide[:, :4], wide[:, 4:]]
    p.mod(a, a, *outs[::-1], *beside)
    near = memory[11:23].reshape(3, 4)
    for first, second, others in (
        (near, a, outs), (a, outs[-1], outs), (a, a, [*outs[:-1], outs[0]]),
        (a, a, [outs[0], near, *outs[2:]]),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match="overlaps with argument"):
            p.mod(first, second, *others, *beside)
    with pytest.raises(ArgumentError, match="overlaps with argument"):
        p.mod(a, a, *outs, wide[:, :4], wide[:, 1:5])
    assert len(p.calls) == 1


def test_an_inout_argument_is_in_place_by_declaration(probe: Make) -> None:
    p = probe(A, Argument("x", "float32", (3, 4), role="inout"))
    a, x = arrays(2)
    p.mod(a, x)
    with pytest.raises(ArgumentError):
        p.mod(x, x)
    x.flags.writeable = False
    with pytest.raises(ArgumentError) as error:
        p.mod(a, x)
    assert "hint: x is read and written: pass a copy that may be overwritten" in str(error.value)


def test_declared_strides_are_taken_and_others_refused(probe: Make) -> None:
    strided = Argument("a", "float32", (3, 4), (8, 1))
    p = probe(strided, OUT)
    wide = np.zeros((3, 8), "f4")
    (c,) = arrays(1)
    p.mod(wide[:, :4], c)
    p.mod(wide[:, 4:], c)
    with pytest.raises(ArgumentError):
        p.mod(np.zeros((3, 4), "f4"), c)


def test_interleaved_memory_does_not_overlap(probe: Make) -> None:
    p = probe(
        Argument("a", "float32", (3, 4), (8, 1)), Argument("c", "float32", (3, 4), (8, 1), "out")
    )
    wide = np.zeros((3, 8), "f4")
    p.mod(wide[:, :4], wide[:, 4:])
    with pytest.raises(ArgumentError):
        p.mod(wide[:, :4], wide[:, 1:5])


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,)])
def test_size_zero_has_no_strides_alignment_or_overlap(probe: Make, shape: tuple[int, ...]) -> None:
    p = probe(Argument("a", "float32", shape), Argument("c", "float32", shape, role="out"))
    empty = np.zeros(shape, "f4")
    p.mod(empty, empty)
    p.mod(np.zeros(1, "u1")[:0].view("f4").reshape(shape), empty[..., ::-1])
    assert len(p.calls) == 2


@pytest.mark.parametrize("shape", [(), (1,), (1, 4), (4, 1), (1, 1, 1)])
def test_strides_of_extents_of_one_do_not_matter(probe: Make, shape: tuple[int, ...]) -> None:
    p = probe(Argument("a", "float64", shape), Argument("c", "float64", shape, role="out"))
    p.mod(np.zeros(shape), np.zeros(shape, order="F"))
    steps = tuple(8 if n > 1 else 888 for n in shape)
    p.mod(np.lib.stride_tricks.as_strided(np.zeros(4), shape, steps), np.zeros(shape))
    assert len(p.calls) == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_floats_arrive_as_ml_dtypes(probe: Make, dtype: str) -> None:
    p = probe(Argument("a", dtype, (5,)), Argument("c", dtype, (5,), role="out"))
    p.mod(*arrays(2, (5,), getattr(ml_dtypes, dtype)))
    assert len(p.calls) == 1
    with refused(ArgumentError, "uint8", dtype) as error:
        p.mod(np.zeros(5, "u1"), np.zeros(5, "u1"))
    assert f"a.astype(ml_dtypes.{dtype})" in str(error.value)


def test_a_subclass_of_ndarray_is_an_array(probe: Make) -> None:
    p = probe(A, OUT)

    class Mine(np.ndarray[Any, Any]):
        pass

    p.mod(np.zeros((3, 4), "f4").view(Mine), np.zeros((3, 4), "f4").view(Mine))
    assert len(p.calls) == 1


def says(value: object) -> property:
    """A property with this value."""
    return property(lambda self: value)


LIES: dict[str, Any] = {
    "shape": (3, 4),
    "strides": (16, 4),
    "dtype": np.dtype(np.float32),
    "ndim": 2,
    "size": 12,
    "__array_interface__": {"data": (64, False), "shape": (3, 4), "typestr": "<f4", "version": 3},
}


@pytest.mark.parametrize(
    "real",
    [
        np.zeros((1, 1), "f4"),
        np.zeros((3, 4), "f8"),
        np.zeros((3, 8), "f4")[:, ::2],
        np.zeros(49, "u1")[1:].view("f4").reshape(3, 4),
        np.zeros(0, "f4"),
    ],
    ids=["shape", "dtype", "strides", "address", "size"],
)
def test_what_a_subclass_says_of_its_memory_is_not_believed(probe: Make, real: Any) -> None:
    attributes: dict[str, Any] = {n: says(v) for n, v in LIES.items()}
    liar: Any = np.ndarray.view(real, type("Liar", (np.ndarray,), attributes))
    assert liar.shape == (3, 4)
    p = probe(A)
    with pytest.raises(ArgumentError, match="argument a: expected"):
        p.mod(liar)
    assert p.calls == []


def test_the_address_and_the_flags_of_a_subclass_are_those_of_its_memory(probe: Make) -> None:
    class Flags:
        writeable = True

    flags = Flags()
    attributes = {n: says(v) for n, v in [*LIES.items(), ("flags", flags)]}
    kind = type("Liar", (np.ndarray,), attributes)
    array = np.zeros((3, 4), "f4")
    p = probe(OUT)
    p.mod(np.ndarray.view(array, kind))
    assert p.calls == [(array.ctypes.data,)]
    array.flags.writeable = False
    with pytest.raises(ArgumentError):
        p.mod(np.ndarray.view(array, kind))


def test_an_object_that_claims_to_be_an_array_is_none(probe: Make) -> None:
    attributes = {n: says(v) for n, v in LIES.items()}
    attributes["__class__"] = says(np.ndarray)
    impostor = type("Impostor", (), attributes)()
    assert isinstance(impostor, np.ndarray)
    p = probe(A)
    with refused(ArgumentError, "a", "Impostor"):
        p.mod(impostor)
    assert p.calls == []


def test_a_record_is_no_number_whatever_its_class_is_called(probe: Make) -> None:
    record = np.dtype((type("float", (np.void,), {}), 4))
    assert record.name == "float32"
    with pytest.raises(ArgumentError):
        probe(A).mod(np.zeros((3, 4), record))


def scalar(dtype: str, **facts: Any) -> Argument:
    return Argument("s", dtype, kind="scalar", **facts)


@pytest.mark.parametrize(
    ("dtype", "value", "arrives"),
    [
        ("int32", -7, -7),
        ("int32", np.int64(5), 5),
        ("int32", np.array(5), 5),
        ("int32", True, 1),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("int64", -(2**63), -(2**63)),
        ("bool", True, 1),
        ("bool", np.False_, 0),
        ("float64", 0.1, 0.1),
        ("float64", 3, 3.0),
        ("float32", np.float64(0.5), 0.5),
        ("float32", float("inf"), float("inf")),
        ("float16", 1.0, 0x3C00),
        ("bfloat16", -2.0, 0xC000),
        ("float8_e5m2", 1.0, 0x3C),
    ],
)
def test_scalars_are_passed_by_value(probe: Make, dtype: str, value: Any, arrives: Any) -> None:
    p = probe(scalar(dtype))
    p.mod(value)
    assert p.calls == [(arrives,)]


def test_a_forgotten_scalar_is_named(probe: Make) -> None:
    p = probe(scalar("float32"), A)
    with pytest.raises(ArgumentError, match=r"takes 2 arguments .*\n.*scalars \(s\)"):
        p.mod(np.zeros((3, 4), "f4"))


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        (scalar("int8"), 128, "from -128 to 127, found 128"),
        (scalar("uint8"), -1, "from 0 to 255, found -1"),
        (scalar("int32", value_range=(0, 10)), 10, "from 0 to 9, found 10"),
        (scalar("int32"), 1.0, "expected a number for int32, found 1.0 of type float"),
        (scalar("int32"), "1", "found '1' of type str"),
        (scalar("float32"), 1e39, r"1e\+39 is beyond the range of float32"),
        (scalar("float16"), 65536, "beyond the range of float16"),
        (scalar("float8_e4m3fn"), 1e4, "beyond the range of float8_e4m3fn"),
        (scalar("float64"), 10**400, "an integer of 1329 bits is beyond the range of float64"),
        (scalar("float32"), True, "found True of type bool"),
        (scalar("float32"), 1j, "found 1j of type complex"),
        (scalar("bool"), 1, "expected a number for bool, found 1 of type int"),
        (scalar("float32"), np.zeros(1), "of type ndarray"),
    ],
)
def test_wrong_scalars_are_refused(
    probe: Make, argument: Argument, value: Any, message: str
) -> None:
    p = probe(argument)
    with pytest.raises(ArgumentError, match=f"argument s: .*{message}"):
        p.mod(value)
    assert p.calls == []


class Low(int):
    """A number that is as small as anybody asks for."""

    def __le__(self, other: object) -> bool:
        return True

    __ge__ = __le__


class Raises:
    def __index__(self) -> int:
        raise OverflowError("no number")

    def __repr__(self) -> str:
        raise ZeroDivisionError


class Nonsense:
    def __index__(self) -> Any:
        nonsense: Any = "7"
        return nonsense


class Claims:
    """No number, whatever its class is said to be."""

    __class__ = property(lambda self: float)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Low(2**40), "expected an int32 from 0 to 9, found 1099511627776"),
        (Low(10), "found 10"),
        (Raises(), "found an object that cannot be shown of type Raises"),
        (Nonsense(), "of type Nonsense"),
        (Claims(), "of type Claims"),
        (np.longdouble(1), "of type longdouble"),
        (np.complex64(1), "of type complex64"),
        (np.array(Raises(), object), "of type ndarray"),
    ],
    ids=["order", "index", "raises", "nonsense", "claims", "longdouble", "complex", "object"],
)
def test_objects_that_are_no_good_numbers_are_refused(
    probe: Make, value: Any, message: str
) -> None:
    p = probe(scalar("int32", value_range=(0, 10)))
    with pytest.raises(ArgumentError, match=f"argument s: .*{message}"):
        p.mod(value)
    assert p.calls == []


def test_a_number_is_what_its_class_holds(probe: Make) -> None:
    class Odd(float):
        def __float__(self) -> float:
            return 7.0

    p = probe(scalar("float64"))
    p.mod(Odd(0.5))
    assert p.calls == [(0.5,)]


def test_an_integer_too_long_to_print_is_refused(probe: Make) -> None:
    with pytest.raises(ArgumentError):
        probe(scalar("int32")).mod(10**5000)


def test_a_kernel_that_fails_raises(probe: Make) -> None:
    p = probe(A)
    p.status = -3
    with refused(KernelError, "probe", "-3"):
        p.mod(*arrays(1))
    with refused(KernelError, "probe", "-3"):
        p.mod.bind(*arrays(1))()


def test_time_checks_once_and_calls_the_kernel(probe: Make) -> None:
    p = probe(A, OUT)
    ticks = iter(float(i) for i in range(10_000))
    timing = p.mod.time(*arrays(2), max_samples=4, budget_seconds=100, clock=lambda: next(ticks))
    assert timing.samples == (1.0,) * 4
    assert len(p.calls) == 5
    with pytest.raises(ArgumentError, match="argument a: expected shape"):
        p.mod.time(np.zeros((1, 1), "f4"), np.zeros((3, 4), "f4"))


def test_bound_arguments_stay_alive(probe: Make) -> None:
    p = probe(A)
    run = p.mod.bind(np.zeros((3, 4), "f4"))
    run()
    others = arrays(20)
    run()
    assert p.calls[0] == p.calls[1]
    assert p.calls[0][0] not in {x.ctypes.data for x in others}


def test_sources_are_asked_by_name(probe: Make) -> None:
    p = probe(A)
    assert p.mod.source("tir") == "the program"
    with pytest.raises(ArgumentError):
        p.mod.source("ptx")
    with pytest.raises(ArgumentError):
        p.mod.source([])


def test_packing_where_nothing_is_packed(probe: Make) -> None:
    p = probe(A)
    assert p.mod.layouts == {}
    with pytest.raises(ArgumentError):
        p.mod.pack("a", np.zeros((3, 4), "f4"))


def test_a_module_says_what_it_is(probe: Make) -> None:
    assert repr(probe(A, OUT).mod) == (
        "<Module probe(a: float32[3, 4] in, c: float32[3, 4] out) for cpu -mcpu=x86-64\n"
        "  -threads=1, from schedule>"
    )
