"""WebAssembly object files: read their symbols, rename these, and add a section to one.

The format is that of the tools' conventions for linking (WebAssembly/tool-conventions, Linking.md,
version 2): a module whose symbols are a table in the custom section `linking`. Every offset and
size is checked against the length of the file. Adding and renaming leave the code unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...base.errors import ArtifactError
from .elf import ObjectFile

WASM_MARK = b"\0asm"
SECTION = "tilewright"
"""The name of custom sections that descriptions are in; linkers join those of one name."""
_HEAD = WASM_MARK + b"\x01\0\0\0"
_CUSTOM, _IMPORT = 0, 2
_FUNCTION, _TABLE, _MEMORY, _GLOBAL, _TAG = range(5)
"""What is imported."""
_SYMBOLS = 8
"""The part of the section `linking` that is the table of symbols."""
_OF_FUNCTION, _OF_DATA, _OF_GLOBAL, _OF_SECTION, _OF_TAG, _OF_TABLE = range(6)
"""Kinds of symbols."""
_LOCAL, _HIDDEN, _UNDEFINED, _NAMED = 0x02, 0x04, 0x10, 0x40
_INDEXED = {_OF_FUNCTION: _FUNCTION, _OF_GLOBAL: _GLOBAL, _OF_TAG: _TAG, _OF_TABLE: _TABLE}
"""The kinds of symbols that stand for a function, or what is like one, by its index."""
_VERSION = 2


class _Symbol(NamedTuple):
    """A symbol: its kind, flags and name, and the numbers that say what it stands for."""

    kind: int
    flags: int
    numbers: tuple[int, ...]
    name: str

    @property
    def known(self) -> bool:
        """Whether it goes by its name: sections do not, and local ones are nobody else's."""
        return self.kind in (_OF_FUNCTION, _OF_DATA) and not self.flags & _LOCAL


def read_object(code: bytes) -> ObjectFile:
    """The architecture and the global functions and constants. Raises `ArtifactError`."""
    _, (symbols, _) = _linking(code)
    known = [symbol for symbol in symbols if symbol.known]
    undefined = frozenset(s.name for s in known if s.flags & _UNDEFINED)
    return ObjectFile("wasm32", frozenset(s.name for s in known) - undefined, undefined)


def with_section(code: bytes, content: bytes) -> bytes:
    """The object file with `content` in a custom section. Raises `ArtifactError`."""
    _sections(code)
    return code + _section(SECTION, content)


def renamed(code: bytes, names: Mapping[str, str]) -> bytes:
    """The object file with other names of its global symbols, by their old ones.

    Those that are defined are hidden. Raises `ArtifactError`.
    """
    place, (symbols, others) = _linking(code)
    written = bytearray(_number(len(symbols)))
    for symbol in symbols:
        new = names.get(symbol.name) if symbol.known else None
        flags, name = symbol.flags, symbol.name
        if new is not None:
            flags |= _NAMED if flags & _UNDEFINED else _HIDDEN
            name = new
        written += bytes([symbol.kind]) + _number(flags)
        numbers = b"".join(map(_number, symbol.numbers))
        if symbol.kind == _OF_DATA:  # its name comes first
            written += _text(name) + numbers
        elif symbol.kind == _OF_SECTION or not _has_name(flags):
            written += numbers
        else:
            written += numbers + _text(name)
    parts = {_SYMBOLS: bytes(written), **others}
    linking = _number(_VERSION) + b"".join(
        bytes([kind]) + _number(len(part)) + part for kind, part in parts.items()
    )
    return code[: place.start] + _section("linking", linking) + code[place.stop :]


def _has_name(flags: int) -> bool:
    """Whether the table has the name of a symbol: an import may have it instead."""
    return not flags & _UNDEFINED or bool(flags & _NAMED)


def _linking(code: bytes) -> tuple[slice, tuple[list[_Symbol], dict[int, bytes]]]:
    """The place of the section `linking`, its symbols, and its other parts by their kind."""
    imports: dict[int, list[str]] = {}
    for kind, place, content in _sections(code):
        if kind == _IMPORT:
            imports = _imports(content)
        elif kind == _CUSTOM and content.text() == "linking":
            if content.number() != _VERSION:
                raise ArtifactError("a WebAssembly object file of another version of linking")
            symbols, others = list[_Symbol](), dict[int, bytes]()
            while content.left:
                part = content.byte()
                inner = content.bytes(content.number())
                if part == _SYMBOLS:
                    symbols = _symbols(_Reader(inner), imports)
                else:
                    others[part] = inner
            return place, (symbols, others)
    raise ArtifactError("expected a WebAssembly object file, found a module without symbols")


def _symbols(table: _Reader, imports: Mapping[int, Sequence[str]]) -> list[_Symbol]:
    found = []
    for _ in range(table.number()):
        kind, flags = table.byte(), table.number()
        name, numbers = "", tuple[int, ...]()
        if kind == _OF_DATA:
            name = table.text()
            numbers = () if flags & _UNDEFINED else tuple(table.number() for _ in range(3))
        elif kind == _OF_SECTION:
            numbers = (table.number(),)
        elif kind in _INDEXED:
            numbers = (table.number(),)
            if _has_name(flags):
                name = table.text()
            else:
                of_kind = imports.get(_INDEXED[kind], ())
                if numbers[0] >= len(of_kind):
                    raise ArtifactError("a WebAssembly object file with a damaged symbol")
                name = of_kind[numbers[0]]
        else:
            raise ArtifactError("a WebAssembly object file with a symbol of kind {0}", kind)
        found.append(_Symbol(kind, flags, numbers, name))
    return found


def _imports(content: _Reader) -> dict[int, list[str]]:
    """The names of what is imported, by its kind."""
    found: dict[int, list[str]] = {}
    for _ in range(content.number()):
        content.text()
        name, kind = content.text(), content.byte()
        found.setdefault(kind, []).append(name)
        if kind in (_TABLE, _MEMORY):
            if kind == _TABLE:
                content.byte()
            limits = content.byte()
            for _ in range(2 if limits & 1 else 1):
                content.number()
        elif kind == _GLOBAL:
            content.bytes(2)
        else:
            for _ in range(2 if kind == _TAG else 1):
                content.number()
    return found


def _sections(code: bytes) -> Iterator[tuple[int, slice, _Reader]]:
    """The sections of a module: the kind, the place and the content of each."""
    if not code.startswith(_HEAD):
        raise ArtifactError("expected a WebAssembly module of version 1, found {0!r}", code[:8])
    reader = _Reader(code, len(_HEAD))
    while reader.left:
        start, kind = reader.place, reader.byte()
        content = reader.bytes(reader.number())
        yield kind, slice(start, reader.place), _Reader(content)


class _Reader:
    """Reads numbers and texts; each raises `ArtifactError` where the file ends before."""

    def __init__(self, content: bytes, place: int = 0) -> None:
        self._content, self.place = content, place

    @property
    def left(self) -> int:
        return len(self._content) - self.place

    def bytes(self, size: int) -> bytes:
        if size > self.left:
            raise ArtifactError("a WebAssembly object file that is cut")
        self.place += size
        return self._content[self.place - size : self.place]

    def byte(self) -> int:
        return self.bytes(1)[0]

    def number(self) -> int:
        """An unsigned LEB128 number of at most 64 bits."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ArtifactError("a WebAssembly object file with a damaged number")

    def text(self) -> str:
        return self.bytes(self.number()).decode("utf-8", "replace")


def _number(value: int) -> bytes:
    """The shortest LEB128 of an unsigned number."""
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _text(value: str) -> bytes:
    return _number(len(value.encode())) + value.encode()


def _section(name: str, content: bytes) -> bytes:
    whole = _text(name) + content
    return bytes([_CUSTOM]) + _number(len(whole)) + whole
