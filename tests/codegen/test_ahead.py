"""Computations on constant operands alone take place ahead of the calls."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import build_library, ops, te
from tilewright.base import dtypes
from tilewright.base.errors import ArgumentError, OutOfMemoryError
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.constant_operands import computed_ahead
from tilewright.runtime import load
from tilewright.runtime.host_memory import HostMemory
from tilewright.schedule import Schedule
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .machinery import SERIAL, Array, random_arguments


def matmul(n: int = 5, m: int = 19, k: int = 7, *, constant: bool = True) -> Func:
    return ops.matmul_func(n, m, k, constant_b=constant)


def packed(func: Func, layout: str = "BAb", factors: tuple[int, ...] = (8,)) -> Schedule:
    """The operand B packed, the copy in vectors where it has an inner part."""
    sch = Schedule(func)
    copy = sch.pack(sch.get_block(0), 1, layout, list(factors))
    if factors:
        sch.vectorize(sch.get_loops(copy)[-1])
    return sch


def by_text(array: Array, text: str) -> Array:
    """The array in the layout that a text describes, element by element."""
    layout, *sizes = text.split(", ")
    factors = {s[0]: int(s[4:]) for s in sizes}

    def extent(letter: str) -> int:
        outer = -(-array.shape[ord(letter.upper()) - 65] // factors.get(letter.lower(), 1))
        return factors[letter] if letter.islower() else outer

    found = np.zeros([extent(letter) for letter in layout], array.dtype)
    for index in product(*map(range, array.shape)):
        place = []
        for letter in layout:
            i, factor = index[ord(letter.upper()) - 65], factors.get(letter.lower(), 1)
            place.append(i % factor if letter.islower() else i // factor)
        found[tuple(place)] = array[index]
    return found


def names(func: Func) -> dict[str, str]:
    """Operands, and what is computed of each ahead of the calls."""
    return {a.operand.name: a.packed.name for a in computed_ahead(func)}


@pytest.mark.parametrize(
    ("layout", "factors", "shape"),
    [
        ("BAb", (8,), (3, 7, 8)),
        ("BAba", (8, 2), (3, 4, 8, 2)),
        ("ABba", (8, 2), (4, 3, 8, 2)),
        ("BA", (), (19, 7)),
        ("BAb", (1,), (19, 7, 1)),
        ("BaAb", (2, 8), (3, 2, 4, 8)),
    ],
)
def test_the_kernel_takes_it_packed(
    layout: str, factors: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    module = to_module(compile_func(packed(matmul(), layout, factors).func, SERIAL))
    assert module.layouts["B"].partition(",")[0] == layout
    rng = np.random.default_rng(0)
    a, b = rng.random((5, 7), np.float32), rng.random((7, 19), np.float32)
    c, given = np.empty((5, 19), np.float32), module.pack("B", b)
    assert given.shape == shape
    assert given.ctypes.data % 64 == 0
    np.testing.assert_array_equal(given, by_text(b, module.layouts["B"]))
    module(a, given, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    np.testing.assert_array_equal(module.pack("B", b.T.copy().T), given)
    with pytest.raises(ArgumentError, match=r"pass module.pack\('B', array\)"):
        module(a, b, c)


@pytest.mark.parametrize("missing", ["allocate", "read", "write"])
def test_packing_without_memory_is_an_error_of_two_kinds(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    module = to_module(compile_func(packed(matmul()).func, SERIAL))
    monkeypatch.setattr(HostMemory, missing, fail)
    with pytest.raises(OutOfMemoryError):
        module.pack("B", np.zeros((19, 7), "f4").T)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((19, 7), "f4"), r"argument B: expected shape \(7, 19\), found \(19, 7\)"),
        (np.zeros((7, 19)), "argument B: expected dtype float32, found float64"),
    ],
)
def test_another_array_is_not_packed(array: Array, message: str) -> None:
    module = to_module(compile_func(packed(matmul()).func, SERIAL))
    with pytest.raises(ArgumentError, match=message):
        module.pack("B", array)


class Pretender:
    """No array, whatever it says of memory."""

    def __init__(self) -> None:
        self.__array_interface__ = {"data": (4096, False), "shape": (7, 19), "typestr": "<f4"}


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.ma.masked_array(np.zeros((7, 19), "f4")), "expected a plain array, found a masked"),
        (np.ma.masked_array(np.zeros((19, 7), "f4")).T, "expected a plain array, found a masked"),
        (Pretender(), "expected an array, found "),
        ([[1.0] * 19] * 7, "expected an array, found list"),
        (None, "expected an array, found NoneType"),
    ],
    ids=["masked", "masked-turned", "pretender", "list", "none"],
)
def test_what_no_call_takes_is_not_packed(array: Any, found: str) -> None:
    module = to_module(compile_func(packed(matmul()).func, SERIAL))
    with pytest.raises(ArgumentError, match=f"argument B: {found}"):
        module.pack("B", array)
    with pytest.raises(ArgumentError):
        module.pack([], np.zeros((7, 19), "f4"))  # type: ignore[arg-type]


class Exported:
    """An array of another library."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()


def test_an_array_of_another_library_is_packed_whatever_its_strides() -> None:
    module = to_module(compile_func(packed(matmul()).func, SERIAL))
    b = np.arange(133, dtype="f4").reshape(7, 19)
    for given in (b, b.T.copy().T, np.tile(b, (2, 2))[:7, :19]):
        np.testing.assert_array_equal(module.pack("B", Exported(given)), module.pack("B", b))


def test_an_operand_with_strides_is_packed_as_it_lies() -> None:
    w = te.placeholder((4, 6), name="W", constant=True, strides=(8, 1))
    y = te.compute((6, 4), lambda i, j: w[j, i], name="Y")
    x = te.placeholder((6, 4), name="X")
    z = te.compute((6, 4), lambda i, j: y[i, j] + x[i, j], name="Z")
    module = to_module(compile_func(te.func([w, x, z], name="turned"), SERIAL))
    wide = np.arange(32, dtype="f4").reshape(4, 8)
    np.testing.assert_array_equal(module.pack("W", wide[:, :6]), wide[:, :6].T)
    assert module.layouts == {"W": "BA"}


def test_other_operands_are_packed_in_each_call() -> None:
    module = to_module(compile_func(packed(matmul(constant=False)).func, SERIAL))
    assert module.layouts == {}
    assert module.signature.arguments[1].shape == (7, 19)


@pytest.mark.parametrize("order", ["XWY", "WYX"])
def test_what_is_written_past_the_caches_is_the_kernels_result(order: str) -> None:
    x = te.placeholder((8, 16), name="X")
    w = te.placeholder((16, 8), name="W", constant=True)
    turned = te.compute((8, 16), lambda i, j: w[j, i], name="D")
    y = te.compute((8, 16), lambda i, j: x[i, j] + turned[i, j], name="Y")
    sch = Schedule(te.func([{"X": x, "W": w, "Y": y}[name] for name in order], name="add"))
    for name in "DY":
        sch.vectorize(sch.get_loops(sch.get_block(name))[-1])
    sch.stream(sch.get_block("Y"), 0)
    module = to_module(compile_func(sch.func, "cpu -mcpu=x86-64 -threads=1"))
    parts = re.findall(r"^add\w*:|movnt|sfence", module.source("asm"), re.MULTILINE)
    assert list(dict.fromkeys(parts)) == ["add:", "movnt", "sfence", "add_pack_W:"]
    rng = np.random.default_rng(0)
    shapes = {"X": (8, 16), "W": (16, 8), "Y": (8, 16)}
    arrays = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    module(*(module.pack("W", arrays["W"]) if name == "W" else arrays[name] for name in order))
    np.testing.assert_array_equal(arrays["Y"], arrays["X"] + arrays["W"].T)


def test_an_operand_that_is_read_elsewhere_stays_as_it_is() -> None:
    w = te.placeholder((16,), "float32", name="W", constant=True)
    x = te.placeholder((16,), "float32", name="X")
    y = te.compute((16,), lambda i: w[i] + x[i], name="Y")
    z = te.compute((16,), lambda i: y[i] * w[i], name="Z")
    sch = Schedule(te.func([w, x, z], name="twice"))
    sch.pack(sch.get_block("Z"), 1, "Aa", [4])
    assert names(sch.func) == {}


def test_all_that_is_computed_of_one_operand_is_computed_ahead() -> None:
    """As far as one buffer is left of it."""
    w = te.placeholder((16,), "float32", name="W", constant=True)
    doubled = te.compute((16,), lambda i: w[i] * 2.0, name="doubled")
    squared = te.compute((16,), lambda i: doubled[i] * doubled[i], name="squared")
    x = te.placeholder((16,), "float32", name="X")
    y = te.compute((16,), lambda i: squared[i] + x[i], name="Y")
    both = te.compute((16,), lambda i: y[i] * doubled[i], name="both")
    assert names(te.func([w, x, both], name="f")) == {"W": "doubled"}
    func = te.func([w, x, y], name="f")
    assert names(func) == {"W": "squared"}
    module = to_module(compile_func(func, SERIAL))
    assert module.layouts == {"W": "computed by doubled, squared"}
    given, result = np.arange(16, dtype="f4"), np.empty(16, "f4")
    module(module.pack("W", given), np.ones(16, "f4"), result)
    np.testing.assert_array_equal(result, 4 * given**2 + 1)
    assert "doubled" not in module.source("tir").partition("def f_pack_W(")[0]


HINT = """
        with T.block("hint"):
            vj = T.axis.spatial(8, i)
            T.prefetch(W[vj])"""
STAGES = """
def f(W: T.Buffer((8,), "float32", constant=True), V: T.Buffer((8,), "float32", constant=True),
      X: T.Buffer((8,), "float32"), s: T.float32, Y: T.Buffer((8,), "float32"),
      Z: T.Buffer((8,), "float32")):
    P = T.alloc((8,), "float32"{options})
    for i in range(8):
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            {first}
    for i in range(8):
        with T.block("Y"):
            vi = T.axis.spatial(8, i)
            Y[vi] = P[vi] * X[vi]
    for i in range(8):
        with T.block("Z"):
            vi = T.axis.spatial(8, i)
            {last}
"""


@pytest.mark.parametrize(
    ("first", "last", "options", "found"),
    [
        ("P[vi] = W[vi]", "Z[vi] = V[vi]", "", {"W": "P"}),
        ("P[vi] = W[vi] * s", "Z[vi] = X[vi]", "", {}),
        ("P[vi] = W[vi] * V[vi]", "Z[vi] = X[vi]", "", {}),
        ("P[vi] = W[vi] * X[vi]", "Z[vi] = X[vi]", "", {}),
        ("P[vi] = W[vi]", "Z[vi] = W[vi]", "", {}),
        ("P[vi] = W[vi]", "P[vi] = X[vi]", "", {}),
        ("P[vi] = W[vi]", f"Z[vi] = X[vi]{HINT}", "", {}),
        ("P[vi] = W[vi]", "T.prefetch(P[vi])", "", {"W": "P"}),
        ("P[vi] = W[vi]", "Z[vi] = X[vi]", ', scope="local"', {}),
        ("P[vi] = W[vi]", "Z[vi] = X[vi]", ", align=((0, 8, 1),)", {}),
        ("P[vi] = 0.0", "Z[vi] = W[vi]", "", {}),
    ],
)
def test_what_depends_on_a_call_is_computed_in_it(
    first: str, last: str, options: str, found: dict[str, str]
) -> None:
    func = parse(STAGES.format(first=first, last=last, options=options))
    assert names(func) == found
    arguments = random_arguments(func)
    wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    interpret(func, *wanted)
    module = to_module(compile_func(func, SERIAL))
    module(*packed_for(module, arguments))
    for a, b in zip(arguments[-2:], wanted[-2:], strict=True):
        np.testing.assert_array_equal(a, b)


def packed_for(module: Any, arguments: list[Any]) -> list[Any]:
    pairs = zip(module.signature.arguments, arguments, strict=True)
    return [module.pack(a.name, x) if a.name in module.layouts else x for a, x in pairs]


@pytest.mark.parametrize("threads", [1, 2])
def test_two_operands_and_their_packers(threads: int) -> None:
    """Of other dtypes than the operands have, and names that are none in C."""
    v = te.placeholder((40,), "bfloat16", name="ä", constant=True)
    w = te.placeholder((40,), "bfloat16", name="ö", constant=True)
    x = te.placeholder((40,), name="x")
    a = te.compute((40,), lambda i: te.exp(te.cast(v[i], "float32")), name="a")
    b = te.compute((40,), lambda i: te.exp(te.cast(w[i], "float32")) + 1.0, name="b")
    y = te.compute((40,), lambda i: a[i] * x[i] + b[i], name="y")
    sch = Schedule(te.func([v, x, w, y], name="affine"))
    for name in "ab":
        sch.parallel(sch.get_loops(sch.get_block(name))[0])
    module = to_module(compile_func(sch.func, f"cpu -threads={threads}"))
    assert module.signature.symbols == ("affine", "affine_pack_0", "affine_pack_2")
    given = np.linspace(-1, 1, 40).astype(dtypes.to_numpy("bfloat16"))
    ones, result = np.ones(40, "f4"), np.empty(40, "f4")
    module(module.pack("ä", given), ones, module.pack("ö", given[::-1]), result)
    exact = np.exp(given.astype("f4"))
    np.testing.assert_allclose(result, exact + exact[::-1] + 1, rtol=1e-5)


LOADED = """
import json, sys
import numpy as np
import tilewright as tw
module = tw.load(sys.argv[1])
x, w = np.load(sys.argv[2]), np.load(sys.argv[3])
y = np.empty((1, 16, 8, 8), np.float32)
module(x, module.pack("W", w), y)
np.save(sys.argv[4], y)
foreign = {"llvmlite", "sqlalchemy", "xgboost", "ml_dtypes"} & set(sys.modules)
print(json.dumps([module.layouts, sorted(foreign)]))
"""


def test_a_library_prepares_its_operands_without_the_compiler(tmp_path: Path) -> None:
    func = ops.conv2d_func(1, 16, 8, 8, 16, constant_w=True)
    sch = Schedule(func)
    sch.winograd(sch.get_block("Y"), 2)
    library = build_library(sch, tmp_path / "m.so", SERIAL)
    header = library.files[2].read_text()
    assert "float32[16][16][3][3]: computed by " in header
    assert (
        "int32_t conv2d_pack_W(const float *W_in, float *W_packed_out, void *workspace);" in header
    )
    x, w, y = random_arguments(func)
    paths = [tmp_path / f"{name}.npy" for name in "xwy"]
    np.save(paths[0], x)
    np.save(paths[1], w)
    command = [sys.executable, "-c", LOADED, str(library.files[0]), *map(str, paths)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    layouts, foreign = json.loads(run.stdout)
    assert layouts["W"].startswith("computed by ")
    assert foreign == []
    interpret(func, x, w, y)
    np.testing.assert_allclose(np.load(paths[2]), y, rtol=1e-4, atol=1e-4)


def test_a_library_says_how_its_operands_are_packed(tmp_path: Path) -> None:
    library = build_library(packed(matmul()), tmp_path / "m.so", SERIAL)
    assert (
        " * B: in tensor float32[3][7][8], as matmul_pack_B makes it of float32[7][19]: "
        "BAb, b = 8\n" in library.files[2].read_text()
    )
    module = load(library.files[0])
    assert module.layouts == {"B": "BAb, b = 8"}
    a, b, c = np.ones((5, 7), "f4"), np.ones((7, 19), "f4"), np.empty((5, 19), "f4")
    module(a, module.pack("B", b), c)
    np.testing.assert_array_equal(c, np.full((5, 19), 7, "f4"))
