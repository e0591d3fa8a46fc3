"""Calls a kernel with hostile objects: `python hostile.py SEED COUNT`.

Each call computes what the memory that was passed says, or raises `ArgumentError`. The first that
does neither is printed and ends the process; a crash ends it too. Everything follows from the seed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.base.errors import ArgumentError
from tilewright.runtime.dlpack import TENSOR, VERSION

ROWS, COLUMNS, TABLE = 4, 6, 50
T = TypeVar("T")
Rng = np.random.Generator
NEVER = object()
"""The expected result for an object that no kernel may be called with."""


def program() -> tw.Schedule:
    x = te.placeholder((ROWS, COLUMNS), name="x")
    table = te.placeholder((TABLE,), name="table")
    idx = te.placeholder((ROWS,), "int32", name="idx", value_range=(0, TABLE))
    s, alpha = te.scalar("int32", "s"), te.scalar("float32", "alpha")
    out = te.compute(
        (ROWS, COLUMNS),
        lambda i, j: x[i, j] * alpha + table[idx[i]] + te.cast(s, "float32"),
        name="out",
    )
    return tw.Schedule(te.func([x, table, idx, s, alpha, out], name="mixed"))


class Boom(Exception):
    """Nobody's error."""


ERRORS: list[Callable[[], BaseException]] = [
    Boom,
    lambda: OverflowError("big"),
    MemoryError,
    lambda: RecursionError("deep"),
    lambda: KeyError(1),
    lambda: AttributeError("none"),
    lambda: TypeError("odd"),
    lambda: ValueError("odd"),
    StopIteration,
    AssertionError,
    lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "odd"),
]


def one_of(rng: Rng, items: Sequence[T]) -> T:
    return items[int(rng.integers(len(items)))]


def raising(rng: Rng) -> Callable[..., Any]:
    make = one_of(rng, ERRORS)

    def method(*arguments: Any, **options: Any) -> Any:
        raise make()

    return method


def junk(rng: Rng) -> Any:
    """A value that a method or attribute should not have."""
    return one_of(
        rng,
        [
            None, "x", b"", (), (1,), [], {}, 1.5, -1, 2**63, 2**64, -(2**200), float("nan"),
            object(), int, (1, 2, 3), ("cpu", 0), (2**70, 2**70), (1.0, 0.0), (None, None),
        ],
    )  # fmt: skip


def returning(value: Any) -> Callable[..., Any]:
    return lambda *arguments, **options: value


# Arrays that claim to be others


def claims(rng: Rng, good: np.ndarray) -> dict[str, Any]:
    """Attributes of a class that say something else than its memory is."""
    lies: dict[str, list[Any]] = {
        "shape": [good.shape, (10**6,), (2**62, 2**62), (), junk(rng)],
        "strides": [good.strides, (0, 0), (2**40, 4), (-4, -4), junk(rng)],
        "dtype": [good.dtype, np.dtype("f8"), np.dtype("O"), junk(rng)],
        "ndim": [good.ndim, 0, 65, junk(rng)],
        "size": [good.size, 2**62, junk(rng)],
        "itemsize": [1, junk(rng)],
        "nbytes": [2**62, junk(rng)],
        "flags": [good.flags, junk(rng)],
        "data": [junk(rng)],
        "ctypes": [junk(rng)],
        "base": [junk(rng)],
        "__array_interface__": [
            {"data": (0, False), "shape": good.shape, "typestr": "<f4", "version": 3},
            {"data": (8, False), "shape": (10**6,), "typestr": "<f4", "version": 3},
            junk(rng),
        ],
        "__array_struct__": [junk(rng)],
        "__class__": [np.ndarray, int, float, junk(rng)],
        "__dlpack_device__": [returning((1, 0)), returning((2, 0)), raising(rng)],
        "__dlpack__": [returning(None), raising(rng)],
    }
    names = rng.choice(sorted(lies), size=int(rng.integers(1, 6)), replace=False)
    found = {}
    for name in names:
        value = one_of(rng, lies[str(name)])
        if not callable(value) or name == "__class__":
            get = raising(rng) if rng.random() < 0.15 else returning(value)
            found[str(name)] = property(get)
        else:
            found[str(name)] = value
    return found


def reshaped(rng: Rng, good: np.ndarray) -> np.ndarray:
    """An array that the kernel cannot take."""
    ways: list[Callable[[], np.ndarray]] = [
        good[:1].copy,
        good.ravel()[:1].copy,
        lambda: good.astype("f8"),
        lambda: good.astype(good.dtype.newbyteorder()),
        lambda: np.zeros((), good.dtype),
        lambda: np.zeros(0, good.dtype),
        lambda: good.astype(object),
        lambda: good.astype("S4"),
        lambda: np.zeros(good.shape, "m8[ns]"),
        lambda: np.zeros(good.shape, [("a", "f4")]),
        lambda: np.zeros(good.shape, np.dtype((type("float", (np.void,), {}), 4))),
        lambda: np.zeros(good.shape, np.longdouble),
        lambda: np.repeat(good, 2, axis=-1)[..., ::2],
        lambda: good[::-1],
        lambda: np.zeros(good.nbytes + 1, "u1")[1:].view(good.dtype).reshape(good.shape),
    ]
    return one_of(rng, ways)()


def subclass(rng: Rng, good: np.ndarray) -> tuple[Any, Any]:
    kind = type("Liar", (np.ndarray,), claims(rng, good))
    if rng.random() < 0.5:
        return np.ndarray.view(good, kind), good
    return np.ndarray.view(reshaped(rng, good), kind), NEVER


def other_arrays(rng: Rng, good: np.ndarray) -> tuple[Any, Any]:
    ways: list[Callable[[], tuple[Any, Any]]] = [
        lambda: (np.ma.array(good), NEVER),
        lambda: (np.ma.array(good).view(type("Masked", (np.ma.MaskedArray,), {})), NEVER),
        lambda: (good.view(np.recarray), good),
        lambda: (reshaped(rng, good), NEVER),
        lambda: (good.tolist(), NEVER),
        lambda: (good.data, NEVER),
        lambda: (good.tobytes(), NEVER),
        lambda: (junk(rng), NEVER),
        lambda: (np.ndarray, NEVER),
        lambda: (good.view(np.matrix), good) if good.ndim == 2 else (None, NEVER),
    ]
    return one_of(rng, ways)()


class Meta(type):
    """Its classes have names and instances of their own."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise Boom

    def __instancecheck__(cls, instance: object) -> bool:
        return True

    def __subclasscheck__(cls, other: type) -> bool:
        return True


def impostor(rng: Rng, good: np.ndarray) -> tuple[Any, Any]:
    """An object that is no array at all."""
    attributes = claims(rng, good)
    if rng.random() < 0.3:
        attributes["__getattr__"] = raising(rng)
    if rng.random() < 0.3:
        attributes["__repr__"] = raising(rng)
    return (Meta if rng.random() < 0.3 else type)("Impostor", (), attributes)(), NEVER


# Objects with DLPack

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
KEPT: list[Any] = []
"""Memory that capsules of this process point to, and their names."""


def words(values: Any) -> int:
    array = (ctypes.c_int64 * len(values))(*values)
    KEPT.append(array)
    return ctypes.addressof(array)


def capsule(rng: Rng, good: np.ndarray) -> tuple[Any, bool]:
    """A capsule of a tensor, and whether a kernel may take it."""
    code, bits = {"f": (2, 32), "i": (0, 32)}[good.dtype.kind]
    steps = [n // good.itemsize for n in good.strides]
    data = good.ctypes.data
    fields: dict[str, Any] = {
        "data": data, "device": 1, "rank": good.ndim, "code": code, "bits": bits, "lanes": 1,
        "shape": words(good.shape), "strides": words(steps), "offset": 0, "major": 1, "flags": 0,
    }  # fmt: skip
    damage: list[tuple[str, list[Any]]] = [
        ("data", [0]),
        ("device", [2, 0, -1, 2**31 - 1]),
        ("rank", [-1, 0, good.ndim + 1, 65, 2**31 - 1, -(2**31)]),
        ("code", [0, 1, 3, 5, 255]),
        ("bits", [0, 1, 8, 64, 255]),
        ("lanes", [0, 2, 65535]),
        ("shape", [0, words([-n for n in good.shape]), words([2**62] * good.ndim),
                   words([2**63 - 1] * good.ndim)]),
        ("strides", [words([-n for n in steps]), words([2**62] * good.ndim),
                     words([-(2**63)] * good.ndim)]),
        ("offset", [2**64 - 1, 2**64 - data, 2**64 - data + 64, 2**64 - data - 4]),
        ("major", [2, 2**32 - 1]),
    ]  # fmt: skip
    intact = dict(fields)
    for _ in range(int(rng.integers(0, 3))):
        name, values = one_of(rng, damage)
        fields[name] = one_of(rng, values)
    differs = {name for name, value in intact.items() if fields[name] != value}
    if rng.random() < 0.2:  # compact, as they are
        fields["strides"] = 0
        differs -= {"strides"}
    f = fields
    tensor = TENSOR.pack(
        f["data"], f["device"], 0, f["rank"], f["code"], f["bits"], f["lanes"], f["shape"],
        f["strides"], f["offset"],
    )  # fmt: skip
    head = VERSION.pack(f["major"], 0, 0, 0, f["flags"])
    names = [b"dltensor_versioned"] * 6 + [b"dltensor"] * 2
    names += [b"used_dltensor_versioned", b"used_dltensor", b"other", b""]
    called = one_of(rng, names)
    body = ctypes.create_string_buffer(tensor if called == b"dltensor" else head + tensor)
    KEPT.append(body)
    KEPT.append(called)
    if called == b"dltensor":
        differs -= {"major"}  # which unversioned tensors do not have
    right = not differs and called in {b"dltensor_versioned", b"dltensor"}
    return new_capsule(ctypes.addressof(body), called, None), right


def exporter(rng: Rng, good: np.ndarray) -> tuple[Any, Any]:
    exported, right = capsule(rng, good)
    device: Any = returning((1, 0))
    export: Any = returning(exported)
    chance = rng.random()
    if chance < 0.15:
        device, right = raising(rng), False
    elif chance < 0.3:
        found = junk(rng)
        device = returning(found)
        right = right and isinstance(found, tuple) and found[:1] == (1,)
    elif chance < 0.4:
        export, right = raising(rng), False
    elif chance < 0.5:
        export, right = returning(junk(rng)), False
    elif chance < 0.6:
        device = returning((Number(1), Number(0)))
    elif chance < 0.65:
        device, right = returning((2, 0)), False
    kind = type("Exporter", (), {"__dlpack__": export, "__dlpack_device__": device})
    return kind(), (good if right else NEVER)


class Number:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> Any:
        return self.value

    def __ne__(self, other: object) -> Any:
        raise Boom

    __hash__ = None  # type: ignore[assignment]


# Numbers


def number(rng: Rng, kind: str) -> tuple[Any, Any]:
    """An object for a scalar, and the number that it may be taken for."""
    overridden = {
        name: one_of(rng, [returning(True), returning(False), returning(7), raising(rng)])
        for name in ("__le__", "__ge__", "__lt__", "__gt__", "__eq__", "__index__", "__int__",
                     "__float__", "__bool__", "__repr__", "item", "bit_length", "__format__")
        if rng.random() < 0.4
    }  # fmt: skip
    overridden["__hash__"] = returning(1)
    value = one_of(rng, [0, 1, -5, 2**31 - 1, 2**31, -(2**31) - 1, 2**63, 2**64 + 3, 10**400])
    fits = -(2**31) <= value < 2**31
    real = float(one_of(rng, [0.5, -2.0, 1e39, float("inf"), 1e300]))
    narrow = abs(real) < 1e38 or real == float("inf")
    ints = value if fits or (kind == "float" and value < 10**38) else NEVER
    floats = real if kind == "float" and narrow else NEVER
    methods = {"__index__": one_of(rng, [raising(rng), returning(junk(rng))])}
    ways: list[tuple[Any, Any]] = [
        (value, ints),
        (type("Int", (int,), overridden)(value), ints),
        (type("Float", (float,), overridden)(real), floats),
        (type("Float64", (np.float64,), overridden)(real), floats),
        (type("Index", (), methods)(), None),
        (type("Fake", (), {**overridden, "__class__": property(returning(int))})(), None),
        (type("Fake", (), {**overridden, "__class__": property(returning(float))})(), None),
        (Number(value), ints),
        (np.longdouble(1.5), NEVER),
        (np.complex128(1j), NEVER),
        (np.datetime64("2020-01-01"), NEVER),
        (np.str_("7"), NEVER),
        (np.array(object(), object), NEVER),
        (np.array([1]), NEVER),
        (np.ndarray.view(np.array(3), type("Zero", (np.ndarray,), claims(rng, np.array(3)))), 3),
        (np.float32(0.5), 0.5 if kind == "float" else NEVER),
        (np.int8(-3), -3),
        ("7", NEVER),
        (3 + 0j, NEVER),
        (junk(rng), None),
    ]
    return one_of(rng, ways)


ARRAYS = (subclass, subclass, other_arrays, impostor, exporter, exporter, exporter)


def main(seed: int, count: int) -> None:
    mod = tw.build(program(), "cpu -threads=1")
    computed = 0
    for trial in range(count):
        rng = np.random.default_rng([seed, trial])
        honest: list[Any] = [
            rng.random((ROWS, COLUMNS), np.float32),
            rng.random(TABLE, np.float32),
            rng.integers(0, TABLE, ROWS, np.int32),
            3,
            0.5,
            np.zeros((ROWS, COLUMNS), np.float32),
        ]
        values, real = list(honest), list(honest)
        for _ in range(1 if rng.random() < 0.8 else 2):
            place = int(rng.integers(6))
            if place in (3, 4):
                values[place], real[place] = number(rng, "int" if place == 3 else "float")
            else:
                values[place], real[place] = one_of(rng, ARRAYS)(rng, honest[place])
        entry: Any = one_of(rng, [mod, mod._kernel, lambda *a: mod.bind(*a)()])
        try:
            entry(*values)
        except ArgumentError as error:
            str(error)
            continue
        assert not any(r is NEVER for r in real), f"trial {trial} was called with {real}"
        x, table, idx, s, alpha, out = real
        if s is None or alpha is None:  # taken for a number that nobody knows here
            continue
        expected = x * np.float32(alpha) + table[idx][:, None] + np.float32(s)
        assert np.allclose(out, expected, atol=1e-4, equal_nan=True), (
            f"trial {trial} computed something else"
        )
        computed += 1
    print(computed)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
