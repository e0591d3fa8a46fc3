"""Constants that are added to object files."""

from __future__ import annotations

import ctypes
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding

from tilewright import te
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cpu import elf
from tilewright.codegen.cpu.linking import link

TARGETS = ["cpu -threads=1", "cpu -mcpu=x86-64-v2 -threads=1", "cpu -mcpu=neoverse-n1 -threads=1"]


def table(target: str = TARGETS[0]) -> Compiled:
    """y = exp(x): code with constants of its own, and relocations to them."""
    x = te.placeholder((20,), "float32", name="x")
    y = te.compute((20,), lambda i: te.exp(x[i]), name="y")
    return compile_func(te.func([x, y], name="table"), target)


def with_constant(code: bytes, symbol: str, content: bytes) -> bytes:
    found = elf.with_constant(code, symbol, content)
    assert found is not None
    return found


def sections(code: bytes) -> dict[str, bytes]:
    """The content of sections by name, as LLVM reads them."""
    found = binding.ObjectFileRef.from_data(code).sections()
    return {name.decode(): s.data() for s in found if (name := s.name())}


@pytest.mark.parametrize("target", TARGETS)
def test_a_section_is_added_and_the_others_stay(target: str) -> None:
    code = table(target).image
    before, after = sections(code), sections(with_constant(code, "some_text", b"some text\0"))
    assert after.pop(".rodata.tilewright") == b"some text\0"
    assert after.keys() == before.keys()
    assert {name for name in before if before[name] != after[name]} == {".strtab", ".symtab"}
    for name in (".strtab", ".symtab"):
        assert after[name].startswith(before[name])
    assert after[".text"]


def test_the_code_still_runs() -> None:
    compiled = table()
    code = with_constant(compiled.image, "some_text", b"some text\0")
    x, y = np.linspace(-1, 1, 20, dtype=np.float32), np.zeros(20, np.float32)
    to_module(replace(compiled, image=code))(x, y)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no linker here")
def test_libraries_export_constants(tmp_path: Path) -> None:
    compiled = table()
    code = compiled.image
    for number in range(3):
        code = with_constant(code, f"text{number}", b"x" * number + b"\0")
    path = tmp_path / "table.so"
    path.write_bytes(link(code, compiled.target))
    library = ctypes.CDLL(str(path))
    found = [
        ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, f"text{n}")))
        for n in range(3)
    ]
    assert found == [b"", b"x", b"xx"]


@pytest.mark.parametrize("triple", ["x86_64-apple-darwin", "x86_64-pc-windows-msvc"])
def test_other_formats_take_none(triple: str) -> None:
    code = table(f"cpu -mcpu=x86-64-v2 -mtriple={triple} -threads=1").image
    assert elf.with_constant(code, "some_text", b"some text\0") is None


def test_what_is_no_object_file_takes_none() -> None:
    code = table().image
    library = bytearray(code)
    struct.pack_into("<H", library, 16, 3)  # ET_DYN
    for other in (b"", code[:63], bytes(library)):
        assert elf.with_constant(other, "some_text", b"some text\0") is None
