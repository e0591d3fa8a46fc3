"""ELF object files: read their symbols, rename these, and add a constant to a compiled object.

Only 64-bit little-endian relocatable ELF is read, the format of kernels on supported systems
(System V ABI, chapters 4 and 5). Every offset and size is checked against the length of the file.
Adding and renaming leave the code unchanged, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...base.errors import ArtifactError

ELF_MARK = b"\x7fELF"
_START = ELF_MARK + b"\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATABLE = 1
_PROGBITS, _SYMBOL_TABLE, _STRING_TABLE = 1, 2, 3
_ALLOC = 2
_LOCAL, _UNDEFINED = 0, 0
_GLOBAL_OBJECT = 1 << 4 | 1
_HIDDEN = 2
_UNIQUE = 10
"""A binding of a symbol (`STB_GNU_UNIQUE`)."""
_OS_ABI, _GNU = 7, 3
"""Where a file says whose extensions it uses, and that these are GNU's."""
_MAX_SECTIONS = 0xFF00  # beyond it numbers of sections are kept elsewhere
_MAX_NAME = 4096
_ARCHITECTURES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}


class ObjectFile(NamedTuple):
    """The architecture of an object file, and the names of its global symbols."""

    arch: str
    defined: frozenset[str]
    undefined: frozenset[str]


def read_object(code: bytes) -> ObjectFile:
    """Read the head and the symbols of an ELF object file. Raises `ArtifactError`."""
    header, sections = _read(code)
    defined, undefined = set[str](), set[str]()
    for section in sections:
        if section.type == _SYMBOL_TABLE:
            for name, here in _symbols(code, section, sections):
                (defined if here else undefined).add(name)
    arch = _ARCHITECTURES.get(header.machine, f"machine {header.machine}")
    return ObjectFile(arch, frozenset(defined), frozenset(undefined))


def with_constant(object_code: bytes, symbol: str, content: bytes) -> bytes | None:
    """The object file with `content` added as a read-only global constant of that name.

    `None` for a file of another format.
    """
    try:
        header, sections = _read(object_code)
    except ArtifactError:
        return None
    symbols = next((n for n, s in enumerate(sections) if s.type == _SYMBOL_TABLE), None)
    if symbols is None or header.section_count >= _MAX_SECTIONS - 1:
        return None
    file = bytearray(object_code)

    def put(data: bytes) -> int:
        """The position of the data, at the end of the file."""
        file.extend(bytes(-len(file) % 8))
        file.extend(data)
        return len(file) - len(data)

    def grow(number: int, data: bytes) -> int:
        """The size of a section before data is added to it, at another place of the file."""
        old = sections[number]
        whole = bytes(file[old.offset : old.offset + old.size]) + data
        sections[number] = old._replace(offset=put(whole), size=len(whole))
        return old.size

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


def renamed(object_code: bytes, names: Mapping[str, str]) -> bytes:
    """The object file with other names of its global symbols, by their old ones.

    A library that it is linked to does not show those that are renamed. Raises `ArtifactError` for
    a file of another format.
    """
    header, sections = _read(object_code)
    file = bytearray(object_code)
    for table in (s for s in sections if s.type == _SYMBOL_TABLE):
        strings = sections[table.link]
        added = bytearray(file[strings.offset : strings.offset + strings.size])
        for n, (old, _) in enumerate(_symbols(object_code, table, sections, local=True)):
            if (new := names.get(old)) is None:
                continue
            place = table.offset + n * _SYMBOL.size
            _, info, seen, *rest = _SYMBOL.unpack_from(file, place)
            if info >> 4 != _LOCAL:
                _SYMBOL.pack_into(file, place, len(added), info, seen | _HIDDEN, *rest)
                added += new.encode() + b"\0"
        moved = strings._replace(offset=len(file), size=len(added))
        file += added
        _SECTION.pack_into(file, header.sections_at + table.link * _SECTION.size, *moved)
    return bytes(file)


def made_unique(object_code: bytes, name: str) -> bytes:
    """The object file with a symbol that is one in a process, whichever libraries define it.

    Raises `ArtifactError` for a file of another format.
    """
    _, sections = _read(object_code)
    file = bytearray(object_code)
    file[_OS_ABI] = _GNU
    for table in (s for s in sections if s.type == _SYMBOL_TABLE):
        for n, (found, _) in enumerate(_symbols(object_code, table, sections, local=True)):
            if found == name:
                place = table.offset + n * _SYMBOL.size
                start, info, *rest = _SYMBOL.unpack_from(file, place)
                _SYMBOL.pack_into(file, place, start, _UNIQUE << 4 | info & 15, *rest)
    return bytes(file)


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


def _read(code: bytes) -> tuple[_Header, list[_Section]]:
    """The head of an object file, and its sections."""
    if len(code) < _HEADER.size:
        raise ArtifactError("expected an ELF object file, found {0} bytes", len(code))
    header = _Header(*_HEADER.unpack_from(code))
    if not header.ident.startswith(_START) or header.type != _RELOCATABLE:
        raise ArtifactError("expected a relocatable ELF file of 64 bits, found {0!r}", code[:20])
    at, size = header.sections_at, header.section_size * header.section_count
    if header.section_size != _SECTION.size or not _inside(code, at, size):
        raise ArtifactError("an ELF object file whose table of sections is damaged")
    return header, [_Section(*s) for s in _SECTION.iter_unpack(code[at : at + size])]


def _symbols(
    code: bytes, table: _Section, sections: Sequence[_Section], *, local: bool = False
) -> list[tuple[str, bool]]:
    """The global symbols of a table, and whether each is defined; with `local` all of them."""
    names = sections[table.link] if table.link < len(sections) else None
    if (
        names is None
        or names.type != _STRING_TABLE
        or table.entry_size != _SYMBOL.size
        or table.size % _SYMBOL.size
        or not _inside(code, table.offset, table.size)
        or not _inside(code, names.offset, names.size)
    ):
        raise ArtifactError("an ELF object file whose table of symbols is damaged")
    strings = code[names.offset : names.offset + names.size]
    found = []
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(
        code[table.offset : table.offset + table.size]
    ):
        if local or info >> 4 != _LOCAL:
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
