"""Messages between a tuning process and its workers: a JSON object and a binary part, over pipes.

A frame is a head (a mark, the length of each part) and the two parts. Lengths are bounded, so that
a damaged stream is an error and never an allocation; nothing that arrives is executed except the
code of a candidate, which is what a runner is for.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, NamedTuple

from ...base.errors import TuningError

MAX_TEXT = 32 << 20
MAX_DATA = 256 << 20
_HEAD = struct.Struct("<4sIQ")
_MARK = b"twm1"


class Message(NamedTuple):
    """A JSON object, and bytes that go with it."""

    fields: dict[str, Any]
    data: bytes = b""


def encode(message: Message) -> bytes:
    """The frame of a message. Raises `TuningError` if it is too large or not JSON."""
    try:
        text = json.dumps(message.fields, allow_nan=False).encode()
    except ValueError as error:
        raise TuningError("a message that is not JSON: {0}", error) from error
    _check_lengths(len(text), len(message.data))
    return _HEAD.pack(_MARK, len(text), len(message.data)) + text + message.data


def read(stream: BinaryIO) -> Message | None:
    """The next message of a blocking stream, `None` where it ends.

    Raises `TuningError` for anything that is no message, also one that is cut off.
    """
    head = stream.read(_HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise TuningError("a message was cut off after {0} bytes", len(head))
    text_length, data_length = _lengths(head)
    body = stream.read(text_length + data_length)
    if len(body) < text_length + data_length:
        raise TuningError("a message was cut off after {0} bytes", len(body))
    return _decode(body, text_length)


class Assembler:
    """Puts messages together from the pieces in which they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> list[Message]:
        """The messages that `piece` completes. Raises `TuningError` for a damaged stream."""
        self._buffer += piece
        messages = []
        while len(self._buffer) >= _HEAD.size:
            text_length, data_length = _lengths(self._buffer[: _HEAD.size])
            end = _HEAD.size + text_length + data_length
            if len(self._buffer) < end:
                break
            messages.append(_decode(bytes(self._buffer[_HEAD.size : end]), text_length))
            del self._buffer[:end]
        return messages


def _lengths(head: bytes | bytearray) -> tuple[int, int]:
    mark, text_length, data_length = _HEAD.unpack(head)
    if mark != _MARK:
        raise TuningError("expected a message, found {0!r}", bytes(head))
    _check_lengths(text_length, data_length)
    return text_length, data_length


def _check_lengths(text_length: int, data_length: int) -> None:
    if text_length > MAX_TEXT or data_length > MAX_DATA:
        raise TuningError(
            "a message of {0} and {1} bytes; at most {2} and {3}",
            text_length,
            data_length,
            MAX_TEXT,
            MAX_DATA,
        )


def _decode(body: bytes, text_length: int) -> Message:
    try:
        fields = json.loads(body[:text_length])
    except (ValueError, RecursionError) as error:
        raise TuningError("a message that is not JSON: {0}", error) from error
    if not isinstance(fields, dict):
        raise TuningError("expected a JSON object, found {0}", type(fields).__name__)
    return Message(fields, body[text_length:])
