"""Several object files in one image: an archive in the common format of `ar` (System V).

An image of one object file is that file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence

from ...base.errors import ArtifactError

_MARK = b"!<arch>\n"
_HEADER = 60
_END = b"`\n"
_INDEX = b"/"


def archive(objects: Sequence[bytes]) -> bytes:
    """The image of these object files, in their order."""
    if len(objects) == 1:
        return objects[0]
    return b"".join([_MARK, *(_member(f"{n}.o/", code) for n, code in enumerate(objects))])


def indexed(image: bytes, symbols: Callable[[bytes], Iterable[str]]) -> bytes:
    """The image with an index of the symbols that its object files define, which linkers ask for.

    An image of one object file needs none.
    """
    objects = members(image)
    if len(objects) == 1:
        return image
    defined = [sorted(symbols(code)) for code in objects]
    names = b"".join(name.encode() + b"\0" for each in defined for name in each)
    total = sum(map(len, defined))
    index_bytes = 4 * (1 + total) + len(names)
    place = len(_MARK) + _HEADER + index_bytes + index_bytes % 2
    places: list[int] = []
    for code, each in zip(objects, defined, strict=True):
        places += [place] * len(each)
        place += _HEADER + len(code) + len(code) % 2
    index = struct.pack(f">{1 + total}I", total, *places) + names
    return _MARK + _member(_INDEX.decode(), index) + image[len(_MARK) :]


def _member(name: str, content: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}".encode()
    return header + _END + content + b"\n" * (len(content) % 2)


def members(image: bytes) -> list[bytes]:
    """The object files of an image. Raises `ArtifactError` for a malformed archive."""
    if not image.startswith(_MARK):
        return [image]
    found: list[bytes] = []
    place = len(_MARK)
    while place < len(image):
        header = image[place : place + _HEADER]
        size = header[48:58].strip()
        if header[58:] != _END or not size.isdigit():
            raise ArtifactError("its code is a damaged archive")
        place += _HEADER
        end = place + int(size)
        if end > len(image):
            raise ArtifactError("its code is a cut archive")
        if header[:16].strip() != _INDEX:
            found.append(image[place:end])
        place = end + end % 2
    return found
