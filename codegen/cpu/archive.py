"""Several object files in one image: an archive in the common format of `ar` (System V).

An image of one object file is that file.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...base.errors import ArtifactError

_MARK = b"!<arch>\n"
_HEADER = 60
_END = b"`\n"


def archive(objects: Sequence[bytes]) -> bytes:
    """The image of these object files, in their order."""
    if len(objects) == 1:
        return objects[0]
    parts = [_MARK]
    for number, code in enumerate(objects):
        name = f"{number}.o/"
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(code):<10}".encode()
        parts += [header, _END, code, b"\n" * (len(code) % 2)]
    return b"".join(parts)


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
        found.append(image[place:end])
        place = end + end % 2
    return found
