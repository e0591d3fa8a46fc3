"""Object files in the formats of kernels that describe themselves: ELF and WebAssembly.

All functions raise `ArtifactError` for a damaged file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from . import elf, wasm
from .wasm import WASM_MARK

ObjectFile: TypeAlias = elf.ObjectFile


def read_object(code: bytes) -> ObjectFile:
    """The architecture of an object file and the names of its symbols."""
    return wasm.read_object(code) if code.startswith(WASM_MARK) else elf.read_object(code)


def with_constant(code: bytes, symbol: str, content: bytes) -> bytes | None:
    """The object file with `content` in it, which linkers keep; `None` for one of another format.

    In ELF it is a read-only constant of that name, in WebAssembly a custom section.
    """
    if code.startswith(WASM_MARK):
        return wasm.with_section(code, content)
    return elf.with_constant(code, symbol, content)


def renamed(code: bytes, names: Mapping[str, str]) -> bytes:
    """The object file with other names of its global symbols, by their old ones.

    What it is linked to does not show those that are renamed.
    """
    if code.startswith(WASM_MARK):
        return wasm.renamed(code, names)
    return elf.renamed(code, names)
