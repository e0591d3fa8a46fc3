"""The work of a process that compiles programs, for `compile_in_child.py` and `build_ahead.py`."""

from __future__ import annotations

from typing import Any

from ...codegen.build import compile_func
from ...target import Target
from .program_text import parse_program
from .protocol import Message


class Compiler:
    """Answers `compile` with the code, and `build` by leaving it in the cache."""

    def answer(self, message: Message) -> Message:
        fields = message.fields
        return _build(fields) if fields["do"] == "build" else _compile(fields)


def _compile(fields: dict[str, Any]) -> Message:
    func, target = parse_program(fields), Target.from_json(fields["target"])
    compiled = compile_func(func, target, strict_fp=fields["strict_fp"])
    texts = [compiled.tir.encode(), compiled.text.encode()]
    answer = {"form": compiled.form, "lengths": [len(text) for text in texts]}
    return Message(answer, b"".join(texts) + compiled.image)


def _build(fields: dict[str, Any]) -> Message:
    from ...codegen.cache import compile_cached
    from ..search.remembered import chosen

    func, way = parse_program(fields), fields["way"]
    target = Target.from_json(fields["target"])
    if way is not None:
        func = chosen(func, target, way).func
    compile_cached(func, target, strict_fp=fields["strict_fp"])
    return Message({})
