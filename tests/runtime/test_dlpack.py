"""Arrays of other libraries: exporters of both protocols, on devices that are refused too."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib import NumpyVersion

from tilewright.base.errors import ArgumentError
from tilewright.runtime import Argument
from tilewright.runtime.dlpack import TENSOR, VERSION, matcher, view

from ..refusals import refused

Make = Callable[..., Any]
A = Argument("a", "float32", (3, 4))
OUT = Argument("c", "float32", (3, 4), role="out")


class Versioned:
    """Exports a numpy array as DLPack 1."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


class Unversioned(Versioned):
    """Exports it as DLPack 0: does not know `max_version`."""

    def __dlpack__(self, **options: Any) -> Any:
        if options:
            raise TypeError("unexpected keyword arguments")
        return self.array.__dlpack__()


class Raw:
    """Exports a hand-made tensor as DLPack 1.

    It has an offset, types that numpy cannot export, and flags that it has from 2.1 on.
    """

    def __init__(
        self,
        code: int,
        bits: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        *,
        major: int = 1,
        flags: int = 0,
        called: bytes = b"dltensor_versioned",
        fields: dict[str, int] | None = None,
    ) -> None:
        self.called = called
        self.memory = (ctypes.c_uint8 * 64)()
        self.shape, self.strides = words(shape), words(strides or ())
        tensor = {
            "data": ctypes.addressof(self.memory),
            "device": 1,
            "index": 0,
            "rank": len(shape),
            "code": code,
            "bits": bits,
            "lanes": 1,
            "shape": ctypes.addressof(self.shape),
            "strides": 0 if strides is None else ctypes.addressof(self.strides),
            "offset": 16,
        }
        changed = tensor | (fields or {})
        assert changed.keys() == tensor.keys()
        body = TENSOR.pack(*changed.values())
        self.managed = ctypes.create_string_buffer(VERSION.pack(major, 0, 0, 0, flags) + body)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, max_version: tuple[int, int]) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.managed), self.called, None)


def words(values: tuple[int, ...]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


@pytest.mark.parametrize("export", [Versioned, Unversioned])
def test_exported_memory_reaches_the_kernel_uncopied(probe: Make, export: type[Versioned]) -> None:
    p = probe(A, OUT)
    a, c = np.zeros((3, 4), "f4"), np.zeros((3, 4), "f4")
    p.mod(export(a), export(c))
    assert p.calls == [(a.ctypes.data, c.ctypes.data)]


def match(value: object, written: bool = False) -> tuple[int, object] | None:
    return matcher("float32", (3, 4), (4, 1), written)(value)


def test_what_is_exported_exactly_as_expected_is_taken_without_a_view() -> None:
    raw = Raw(2, 32, (3, 4), (4, 1))
    found = match(raw, written=True)
    assert found is not None
    assert found[0] == ctypes.addressof(raw.memory) + 16


@pytest.mark.skipif(
    NumpyVersion(np.__version__) < "2.1.0", reason="this numpy exports no versioned tensors"
)
def test_what_numpy_exports_is_taken_without_a_view() -> None:
    a = np.zeros((3, 4), "f4")
    found = match(Versioned(a), written=True)
    assert found is not None
    assert found[0] == a.ctypes.data


@pytest.mark.parametrize(
    "raw",
    [
        Raw(2, 32, (4, 3), (4, 1)),
        Raw(2, 64, (3, 4), (4, 1)),
        Raw(0, 32, (3, 4), (4, 1)),
        Raw(2, 32, (3, 4, 1), (4, 1, 1)),
        Raw(2, 32, (3, 4), (8, 2)),
        Raw(2, 32, (3, 4)),
        Raw(2, 32, (3, 4), (4, 1), major=2),
    ],
    ids=["shape", "bits", "code", "rank", "strides", "no strides", "protocol"],
)
def test_what_differs_in_anything_is_looked_at_closely(raw: Raw) -> None:
    assert match(raw) is None


@pytest.mark.parametrize("flags", [1, 2])
def test_read_only_memory_and_copies_match_an_input_alone(flags: int) -> None:
    raw = Raw(2, 32, (3, 4), (4, 1), flags=flags)
    assert match(raw) is not None
    assert match(raw, written=True) is None


def test_a_copy_is_no_output(probe: Make) -> None:
    """What the kernel wrote to it would be lost."""
    p = probe(OUT)
    with pytest.raises(ArgumentError):
        p.mod(Raw(2, 32, (3, 4), (4, 1), flags=2))
    with pytest.raises(ArgumentError):
        p.mod(Raw(2, 32, (3, 4), (4, 1), flags=1))
    assert p.calls == []


@pytest.mark.parametrize("export", [Versioned, Unversioned])
def test_exports_are_given_back(probe: Make, export: type[Versioned]) -> None:
    p = probe(A)
    a = np.zeros((3, 4), "f4")
    before = sys.getrefcount(a)
    for _ in range(10):
        p.mod(export(a))
    gc.collect()
    assert sys.getrefcount(a) == before


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 3), "f4"), r"expected shape \(3, 4\), found \(4, 3\)"),
        (np.zeros((3, 4), "f8"), "expected dtype float32, found float64"),
        (np.zeros((3, 4), "c16"), "found DLPack type 5 of 128 bits and 1 lanes"),
        (np.zeros((3, 8), "f4")[:, ::2], r"found strides of \(32, 8\) bytes"),
    ],
)
def test_exported_arrays_are_checked_as_arrays_are(probe: Make, array: Any, message: str) -> None:
    p = probe(A, OUT)
    with pytest.raises(ArgumentError, match=f"argument a: .*{message}"):
        p.mod(Versioned(array), np.zeros((3, 4), "f4"))


@pytest.mark.parametrize(
    ("device", "name"), [((2, 1), "cuda:1"), ((10, 0), "rocm:0"), ((99, 3), "device type 99:3")]
)
def test_other_devices_are_refused_by_name(probe: Make, device: tuple[int, int], name: str) -> None:
    p = probe(A)
    with refused(ArgumentError, "a", "the CPU", name):
        p.mod(Versioned(np.zeros((3, 4), "f4"), device))


@pytest.mark.parametrize("export", [Versioned, Unversioned])
def test_a_read_only_array_is_no_output(probe: Make, export: type[Versioned]) -> None:
    p = probe(OUT)
    c = np.zeros((3, 4), "f4")
    c.flags.writeable = False
    with pytest.raises(ArgumentError, match="argument c: "):
        p.mod(export(c))
    assert p.calls == []


def test_an_exporter_that_refuses_is_named(probe: Make) -> None:
    class Refuses(Versioned):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("call detach() first")

    with refused(ArgumentError, "a", "Refuses"):
        probe(A).mod(Refuses(np.zeros((3, 4), "f4")))


def test_an_exporter_of_something_else_is_named(probe: Make) -> None:
    class Strange(Versioned):
        def __dlpack__(self, **options: Any) -> Any:
            return object()

    with pytest.raises(ArgumentError):
        probe(A).mod(Strange(np.zeros((3, 4), "f4")))


@pytest.mark.parametrize(
    ("code", "bits", "dtype"),
    [
        (0, 16, "int16"),
        (1, 64, "uint64"),
        (4, 16, "bfloat16"),
        (6, 8, "bool"),
        (10, 8, "float8_e4m3fn"),
        (12, 8, "float8_e5m2"),
    ],
)
def test_types_offsets_and_missing_strides(probe: Make, code: int, bits: int, dtype: str) -> None:
    raw = Raw(code, bits, (2, 3))
    found = view(raw, "a")
    assert found is not None
    assert (found.dtype, found.shape, found.strides) == (dtype, (2, 3), None)
    assert found.pointer == ctypes.addressof(raw.memory) + 16
    p = probe(Argument("a", dtype, (2, 3)))
    p.mod(raw)
    assert p.calls == [(found.pointer,)]


def test_a_newer_protocol_is_refused(probe: Make) -> None:
    with pytest.raises(ArgumentError):
        probe(A).mod(Raw(2, 32, (3, 4), major=2))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (Raw(2, 32, (3, 4), (4, 1), fields={"data": 0}), "a null pointer to its elements"),
        (Raw(2, 32, (3, 4), fields={"data": 0}), "a null pointer to its elements"),
        (Raw(2, 32, (3, 4), (4, 1), fields={"shape": 0}), "2 dimensions and no shape"),
        (Raw(2, 32, (3, 4), fields={"shape": 0}), "2 dimensions and no shape"),
        (Raw(2, 32, (3, 4), (4, 1), fields={"offset": 2**64 - 4}), "beyond the last address"),
        (
            Raw(2, 32, (3, 4), (4, 1), fields={"data": 2**64 - 32, "offset": 0}),
            "beyond the last address",
        ),
        (Raw(2, 32, (2**62, 2**62), (4, 1)), "beyond the last address"),
        (Raw(2, 32, (2**62, 2**62)), "beyond the last address"),
        (Raw(2, 32, (3, 4), (2**62, 2**62)), "beyond the last address"),
        (Raw(2, 32, (-3, 4), (4, 1)), r"expected shape \(3, 4\), found \(-3, 4\)"),
        (
            Raw(2, 32, (3, 4), (4, 1), fields={"lanes": 4}),
            "found DLPack type 2 of 32 bits and 4 lanes",
        ),
        (Raw(2, 32, (3, 4), (4, 1), fields={"rank": -1}), "exported with -1 dimensions"),
        (Raw(2, 32, (3, 4), (4, 1), fields={"rank": 65}), "exported with 65 dimensions"),
        (Raw(2, 32, (3, 4), (4, 1), fields={"device": 2, "index": 3}), "found an array on cuda:3"),
    ],
)
def test_tensors_that_cannot_be_are_refused(probe: Make, raw: Raw, message: str) -> None:
    p = probe(A)
    for call in (p.mod, p.mod.bind):
        with pytest.raises(ArgumentError, match=f"argument a: .*{message}"):
            call(raw)
    assert p.calls == []


def test_a_tensor_without_elements_may_be_anywhere(probe: Make) -> None:
    p = probe(Argument("a", "float32", (0, 4)))
    p.mod(Raw(2, 32, (0, 4), fields={"data": 0, "offset": 0}))
    assert p.calls == [(None,)]


ODD_DEVICES = [None, 1, "cpu", (), (1,), (1, 2, 3), ("cpu", 0), (1.5, 0), (None, None), object()]


@pytest.mark.parametrize("device", ODD_DEVICES, ids=range(len(ODD_DEVICES)))
def test_odd_devices_are_refused(probe: Make, device: Any) -> None:
    array = np.zeros((4, 3), "f4")  # not what the kernel takes: what is looked at closely
    with pytest.raises(ArgumentError):
        probe(A).mod(Versioned(array, device))


def test_a_device_of_a_huge_number_is_refused(probe: Make) -> None:
    with pytest.raises(ArgumentError):
        probe(A).mod(Versioned(np.zeros((3, 4), "f4"), (2**70, 2**80)))


@pytest.mark.parametrize(
    "error", [OverflowError("odd"), MemoryError(), KeyError(1), StopIteration()]
)
@pytest.mark.parametrize("method", ["__dlpack__", "__dlpack_device__", "both"])
def test_whatever_an_exporter_raises_is_an_argument_error(
    probe: Make, error: Exception, method: str
) -> None:
    def fails(*arguments: Any, **options: Any) -> Any:
        raise error

    names = ["__dlpack__", "__dlpack_device__"] if method == "both" else [method]
    kind = type("Fails", (Versioned,), dict.fromkeys(names, fails))
    with pytest.raises(ArgumentError) as found:
        probe(A).mod(kind(np.zeros((3, 4), "f4")))
    assert found.value.__cause__ is error


def test_an_object_whose_attributes_raise_is_refused(probe: Make) -> None:
    class Raises:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("no such thing")

    with pytest.raises(ArgumentError):
        probe(A).mod(Raises())


@pytest.mark.parametrize("name", [b"used_dltensor", b"used_dltensor_versioned", b"other", b""])
def test_capsules_of_other_names_are_refused(probe: Make, name: bytes) -> None:
    raw = Raw(2, 32, (3, 4), (4, 1), called=name)
    p = probe(A)
    with pytest.raises(ArgumentError):
        p.mod(raw)
    assert p.calls == []


class Negative(Versioned):
    """An array of torch that is the negative of what it exports."""

    def __init__(self, array: Any, answer: Any = True) -> None:
        super().__init__(array)
        self.answer = answer

    def is_neg(self) -> bool:
        return bool(self.answer)


@pytest.mark.parametrize("answer", [True, np.ones(2)])  # the truth of an array raises
def test_memory_that_has_the_negative_is_refused(probe: Make, answer: Any) -> None:
    array = np.zeros((3, 4), "f4")
    assert match(Negative(array, False)) is not None
    assert match(Negative(array, answer)) is None
    p = probe(A)
    with refused(ArgumentError, "a"):
        p.mod(Negative(array, answer))
    assert p.calls == []
