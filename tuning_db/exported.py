"""Lines that are exactly what an export writes, read without their JSON being parsed.

Schedules and measurements are nearly all of an export. What is read here is checked as any record
is, and is canonical, so that its line is what JSON would be parsed to: a line with anything else,
or with what is refused, is left to those who parse it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from .canonical import schedule_id, trace_of_literal
from .codec import check
from .outcome import Outcome
from .values import DIGESTS, Measurement, ScheduleRecord, field_types


def exported(line: str) -> ScheduleRecord | Measurement | None:
    """The record of a line; `None` where JSON has to be parsed, also for a line to be refused."""
    record = _schedule(line) or _measurement(line)
    if record is None or not line.startswith(f'{{"id":"{record.id}"'):
        return None
    check(record)
    return record


def _schedule(line: str) -> ScheduleRecord | None:
    """The text of a schedule is steps that repeat."""
    match = _SCHEDULE.fullmatch(line)
    trace = None if match is None else trace_of_literal(match["trace"])
    if match is None or trace is None:
        return None
    version = int(match["trace_version"])
    fields = {
        "trace": trace,
        "trace_version": version,
        "generator": match["generator"],
        "inexact": match["inexact"],
        "id": schedule_id(trace, version),
    }
    return ScheduleRecord.of_normal(fields)


def _measurement(line: str) -> Measurement | None:
    match = _MEASUREMENT.fullmatch(line)
    if match is None:
        return None
    texts = match.groupdict()
    try:
        fields = {name: None if texts[name] is None else read(texts[name]) for name, read in _READ}
    except ValueError:
        return None
    content = match["content"]
    for name in Measurement.added_later:
        if fields[name] is None:
            content = content.replace(f'"{name}":null,', "", 1)
    lists = {name: f"[{texts[name]}]" for name in _LISTS if texts[name] is not None}
    id = hashlib.sha256(content.encode("ascii")).hexdigest()
    return Measurement.of_normal({**fields, "id": id, "_texts": lists})


def _float(text: str) -> float:
    value = float(text)
    if repr(value) != text:
        raise ValueError(text)
    return value


def _floats(text: str) -> tuple[float, ...]:
    values = tuple(map(float, text.split(","))) if text else ()
    if ",".join(map(repr, values)) != text:
        raise ValueError(text)
    return values


def _time(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if value.isoformat("T", "microseconds") != text:
        raise ValueError(text)
    return value


_PLAIN = r"[ !#-\[\]-~]*"
"""A text that JSON has as it is."""
# By annotations: the JSON of a value with `{}` for what is read, a pattern of that, the reader.
_FORMS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "str": ('"{}"', _PLAIN, str),
    "float": ("{}", r"[-+.e0-9]+", _float),
    "bool": ("{}", r"true|false", lambda text: text == "true"),
    "datetime": ('"{}"', r"[-T:.0-9]{26}\+00:00", _time),
    "Outcome": ('"{}"', r"[a-z_]+", Outcome),
    "tuple[float, ...]": (r"\[{}\]", r"[-+.e0-9,]*", _floats),
}


def _pattern(name: str, annotation: str) -> str:
    kind = annotation.removesuffix(" | None")
    form, part, _ = _FORMS.get(kind, ("{}", r"(?!)", str))  # mappings are left to JSON
    part = "[0-9a-f]{64}" if name in DIGESTS else part
    value = form.format(f"(?P<{name}>{part})")
    return f'"{name}":' + (value if kind == annotation else f"(?:null|{value})")


_TYPES = field_types(Measurement.kind)
_READ = [(n, _FORMS.get(t.removesuffix(" | None"), _FORMS["str"])[2]) for n, t in _TYPES.items()]
_LISTS = [name for name, type_ in _TYPES.items() if type_.startswith("tuple")]
_MEASUREMENT = re.compile(
    r'\{"id":"[0-9a-f]{64}","kind":"measurement","value":(?P<content>\{'
    + ",".join(_pattern(name, _TYPES[name]) for name in sorted(_TYPES))
    + r"\})\}\n"
)
_SCHEDULE = re.compile(
    r'\{"id":"[0-9a-f]{64}","kind":"schedule","value":'
    rf'\{{"generator":"(?P<generator>{_PLAIN})","inexact":"(?P<inexact>{_PLAIN})",'
    r'"trace":"(?P<trace>.*)","trace_version":(?P<trace_version>[1-9][0-9]{0,8})\}\}\n'
)
