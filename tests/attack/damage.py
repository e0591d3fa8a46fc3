"""Random damage to bytes and to JSON values."""

from __future__ import annotations

from typing import Any

from .attempt import Attempt

NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64,
    10**40, -0.0, 0.5, -1.5, 1e-9, 1e-320, 1e300, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
TEXTS = (
    "", " ", "x", "0", "-1", "A", "C", "float32", "float16", "None", "cpu", "cpu -mcpu=x86-64-v4",
    "cpu -threads=1", "../../x", "/dev/zero", "a\0b", "\ud800", "{0}", "%s%n", "é" * 40, "9" * 400,
    "2026-02-30T00:00:00+00:00", "9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00:00+23:59",
    "f" * 64, "0" * 64, "[" * 5000, '{"version":1,"steps":[]}', "x" * 100_000,
)  # fmt: skip


def damaged(content: bytes, attempt: Attempt) -> bytes:
    """`content` with some of it changed, cut, repeated, moved or added."""
    data = bytearray(content)
    told = []
    for _ in range(attempt.choice((1, 1, 2, 5, 40))):
        name, function = attempt.choice(_BYTES)
        start = attempt.pick(len(data) + 1)
        told.append(f"{name} at {start}")
        function(data, start, attempt)
    attempt.note(f"{len(content)} bytes: {', '.join(told)}")
    return bytes(data)


def _flip(data: bytearray, at: int, attempt: Attempt) -> None:
    if at < len(data):
        data[at] ^= 1 << attempt.pick(8)


def _set(data: bytearray, at: int, attempt: Attempt) -> None:
    if at < len(data):
        data[at] = attempt.pick(256)


def _zero(data: bytearray, at: int, attempt: Attempt) -> None:
    end = min(len(data), at + attempt.choice((1, 16, 512, 4096)))
    data[at:end] = bytes(end - at)


def _cut(data: bytearray, at: int, attempt: Attempt) -> None:
    if attempt.chance(0.3):
        del data[at:]


def _drop(data: bytearray, at: int, attempt: Attempt) -> None:
    del data[at : at + attempt.choice((1, 7, 4096))]


def _repeat_page(data: bytearray, at: int, attempt: Attempt) -> None:
    source = attempt.pick(len(data) + 1) // 4096 * 4096
    page = data[source : source + 4096]
    at = at // 4096 * 4096
    data[at : at + len(page)] = page


def _add(data: bytearray, at: int, attempt: Attempt) -> None:
    junk = attempt.rng.bytes(attempt.choice((1, 100, 4096, 100_000)))
    data[at:at] = junk
    if attempt.chance(0.5):
        del data[at : at + len(junk)]
        data += junk


_BYTES = (
    ("a bit turned", _flip),
    ("a byte set", _set),
    ("zeros", _zero),
    ("the end cut off", _cut),
    ("bytes left out", _drop),
    ("a page over another", _repeat_page),
    ("junk", _add),
)


def hostile(attempt: Attempt, old: Any = None) -> Any:
    """A JSON value that may be of another type, size or shape than `old`."""
    kind = attempt.pick(9)
    if kind < 3:
        return attempt.choice(NUMBERS)
    if kind < 5:
        return attempt.choice(TEXTS)
    if kind == 5:
        return attempt.choice((None, True, False))
    if kind == 6:
        return attempt.choice(([], {}, [old], {"x": old}, [[1]], {"": None}, [old, old], [-1, 0]))
    if kind == 7:
        return nested(attempt.choice((50, 300)))
    if isinstance(old, (int, float)) and not isinstance(old, bool):
        return attempt.choice((old + 1, old - 1, -old, old * 2, old * 1e10, str(old), [old]))
    if isinstance(old, str) and old:
        at = attempt.pick(len(old))
        return attempt.choice(
            (old[:at], old + old, old[:at] + "\0" + old[at:], old[::-1], f"{old} ")
        )
    return old


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def edited(value: Any, attempt: Attempt) -> Any:
    """A copy of a JSON value in which one place is another value, is gone, or is there twice."""
    if not isinstance(value, (dict, list)) or not value or attempt.chance(0.08):
        new = hostile(attempt, value)
        attempt.note(f"{value!r:.200} becomes {new!r:.200}")
        return new
    if isinstance(value, list):
        at = attempt.pick(len(value))
        action = attempt.pick(12)
        if action == 0:
            attempt.note(f"item {at} left out: {value[at]!r:.200}")
            return value[:at] + value[at + 1 :]
        if action == 1:
            attempt.note(f"item {at} twice: {value[at]!r:.200}")
            return [*value, value[at]]
        if action == 2:
            other = attempt.pick(len(value))
            attempt.note(f"items {at} and {other} exchanged")
            copy = list(value)
            copy[at], copy[other] = copy[other], copy[at]
            return copy
        return [edited(v, attempt) if i == at else v for i, v in enumerate(value)]
    key = attempt.choice(list(value))
    action = attempt.pick(14)
    if action == 0:
        attempt.note(f"{key!r} left out")
        return {k: v for k, v in value.items() if k != key}
    if action == 1:
        attempt.note(f"one more key, {key!r}_")
        return {**value, f"{key}_": value[key]}
    attempt.note(f"in {key!r}")
    return {k: edited(v, attempt) if k == key else v for k, v in value.items()}
