"""Messages between processes: whole, in pieces, damaged."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import TuningError
from tilewright.autotune.measure import protocol
from tilewright.autotune.measure.protocol import Assembler, Message, encode, read

from ..refusals import refused

MESSAGES = st.builds(
    Message, st.dictionaries(st.text(), st.integers() | st.text() | st.none()), st.binary()
)


@given(st.lists(MESSAGES, max_size=4), st.integers(1, 40))
def test_messages_arrive_as_they_were_sent(messages: list[Message], piece: int) -> None:
    stream = b"".join(map(encode, messages))
    file = io.BytesIO(stream)
    assert [read(file) for _ in messages] == messages
    assert read(file) is None
    assembler = Assembler()
    pieces = [stream[k : k + piece] for k in range(0, len(stream), piece)]
    assert [m for p in pieces for m in assembler.feed(p)] == messages


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"GET / HTTP/1.1\r\n", "expected a message, found b'GET"),
        (encode(Message({"a": 1}))[:10], "cut off after 10 bytes"),
        (encode(Message({"a": 1}, b"x"))[:-1], "cut off"),
        (b"twm1" + b"\xff" * 12, "a message of 4294967295 and"),
        (b"twm1" + b"\x02" + b"\0" * 11 + b"[]", "expected a JSON object, found list"),
        (b"twm1" + b"\x02" + b"\0" * 11 + b"{]", "not JSON"),
    ],
)
def test_what_is_no_message_is_refused(stream: bytes, says: str) -> None:
    with pytest.raises(TuningError) as refused:
        read(io.BytesIO(stream))
    assert says in str(refused.value)


def test_damage_in_a_pipe_is_refused() -> None:
    assembler = Assembler()
    assert assembler.feed(b"oops") == []
    with pytest.raises(TuningError, match="expected a message"):
        assembler.feed(b" this is not a message")


def test_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TuningError, match="not JSON"):
        encode(Message({"x": float("nan")}))
    monkeypatch.setattr(protocol, "MAX_DATA", 8)
    with refused(TuningError, "2", "9"):
        encode(Message({}, b"123456789"))
