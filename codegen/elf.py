"""Object files in ELF: adding a constant to one that is compiled already.

The code stays what it was to the byte, compiled anew neither here nor in a child process. Of the
format there is here what it takes (System V ABI, chapter 4, Object Files).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_START = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATABLE = 1
_PROGBITS, _SYMTAB = 1, 2
_ALLOC = 2
_GLOBAL_OBJECT = 1 << 4 | 1
_MAX_SECTIONS = 0xFF00  # beyond it numbers of sections are kept elsewhere


class _Header(NamedTuple):
    ident: bytes
    type: int
    machine: int
    version: int
    entry: int
    program_headers: int
    sections_at: int
    flags: int
    size: int
    program_header_size: int
    program_header_count: int
    section_size: int
    section_count: int
    names: int


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


def takes_constants(object_code: bytes) -> bool:
    """Whether `with_constant` knows the format: ELF of 64 bits, little-endian, relocatable."""
    if not object_code.startswith(_START) or len(object_code) < _HEADER.size:
        return False
    header = _Header(*_HEADER.unpack_from(object_code))
    return header.type == _RELOCATABLE and 0 < header.section_count < _MAX_SECTIONS - 1


def with_constant(object_code: bytes, symbol: str, content: bytes) -> bytes:
    """The object file with `content`, read only, as a global constant of that name.

    `takes_constants` says for which files there is one.
    """
    header = _Header(*_HEADER.unpack_from(object_code))
    at, size = header.sections_at, header.section_count * _SECTION.size
    sections = [_Section(*s) for s in _SECTION.iter_unpack(object_code[at : at + size])]
    file = bytearray(object_code)

    def put(data: bytes) -> int:
        """Where the data is, at the end of the file."""
        file.extend(bytes(-len(file) % 8))
        file.extend(data)
        return len(file) - len(data)

    def grow(number: int, data: bytes) -> int:
        """The size of a section before data is added to it, at another place of the file."""
        old = sections[number]
        whole = bytes(file[old.offset : old.offset + old.size]) + data
        sections[number] = old._replace(offset=put(whole), size=len(whole))
        return old.size

    symbols = next(n for n, s in enumerate(sections) if s.type == _SYMTAB)
    named = grow(header.names, b".rodata.tilewright\0")
    name = grow(sections[symbols].link, symbol.encode() + b"\0")
    entry = _SYMBOL.pack(name, _GLOBAL_OBJECT, 0, len(sections), 0, len(content))
    grow(symbols, entry)  # local symbols come first, and this one is global
    place = put(content)
    sections.append(_Section(named, _PROGBITS, _ALLOC, 0, place, len(content), 0, 0, 1, 0))
    table = put(b"".join(_SECTION.pack(*s) for s in sections))
    changed = header._replace(sections_at=table, section_count=len(sections))
    file[: _HEADER.size] = _HEADER.pack(*changed)
    return bytes(file)
