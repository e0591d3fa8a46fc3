"""What an object file says of itself: its processor, and the symbols that it defines and needs.

Only ELF of 64 bits, little-endian and relocatable is read (System V ABI, chapters 4 and 5), since
that is what kernels are on the systems that run them. Nothing that a file says is believed beyond
its own length.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..errors import ArtifactError

ELF_MARK = b"\x7fELF"
_HEADER = struct.Struct("<4sBB10xHHI8x8xQI6xHHH")
_SECTION = struct.Struct("<4xI8x8xQQI4x8xQ")
_SYMBOL = struct.Struct("<IBxH8x8x")
_CLASS_64, _LITTLE_ENDIAN, _RELOCATABLE = 2, 1, 1
_SYMBOL_TABLE, _STRING_TABLE = 2, 3
_LOCAL = 0
_MAX_NAME = 4096
_UNDEFINED = 0
_ARCHITECTURES = {62: "x86_64", 183: "aarch64"}


class ObjectFile(NamedTuple):
    """The architecture of an object file, and the names of its global symbols."""

    arch: str
    defined: frozenset[str]
    undefined: frozenset[str]


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int
    entry_size: int


def read_object(code: bytes) -> ObjectFile:
    """Read the head and the symbols of an ELF object file. Raises `ArtifactError`."""
    if len(code) < _HEADER.size:
        raise ArtifactError("expected an ELF object file, found {0} bytes", len(code))
    mark, bits, order, kind, machine, _, at, _, entry, count, _ = _HEADER.unpack_from(code)
    if (mark, bits, order, kind) != (ELF_MARK, _CLASS_64, _LITTLE_ENDIAN, _RELOCATABLE):
        raise ArtifactError("expected a relocatable ELF file of 64 bits, found {0!r}", code[:20])
    if entry != _SECTION.size or not _inside(code, at, entry * count):
        raise ArtifactError("an ELF object file whose table of sections is damaged")
    table = _SECTION.iter_unpack(code[at : at + entry * count])
    sections = [_Section(*fields) for fields in table]
    defined, undefined = set[str](), set[str]()
    for section in sections:
        if section.kind == _SYMBOL_TABLE:
            for name, here in _symbols(code, section, sections):
                (defined if here else undefined).add(name)
    arch = _ARCHITECTURES.get(machine, f"machine {machine}")
    return ObjectFile(arch, frozenset(defined), frozenset(undefined))


def _symbols(code: bytes, table: _Section, sections: list[_Section]) -> list[tuple[str, bool]]:
    """The global symbols of a table, and whether each is defined."""
    names = sections[table.link] if table.link < len(sections) else None
    if (
        names is None
        or names.kind != _STRING_TABLE
        or table.entry_size != _SYMBOL.size
        or table.size % _SYMBOL.size
        or not _inside(code, table.offset, table.size)
        or not _inside(code, names.offset, names.size)
    ):
        raise ArtifactError("an ELF object file whose table of symbols is damaged")
    strings = code[names.offset : names.offset + names.size]
    found = []
    for name, info, section in _SYMBOL.iter_unpack(code[table.offset : table.offset + table.size]):
        if info >> 4 != _LOCAL:
            end = strings.find(b"\0", name, name + _MAX_NAME)
            if end < 0:
                raise ArtifactError(
                    "an ELF object file with a symbol of more than {0} characters", _MAX_NAME
                )
            text = strings[name:end].decode("utf-8", "replace")
            found.append((text, section != _UNDEFINED))
    return found


def _inside(code: bytes, offset: int, size: int) -> bool:
    return offset + size <= len(code)
