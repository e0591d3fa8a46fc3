"""The work of a process that compiles programs, for `compile_in_child.py`."""

from __future__ import annotations

import time

from ...codegen.build import compile_func
from ...codegen.cache import compile_cached
from ...target import Target
from ...tir.printer import func_text
from .program_text import parse_program
from .protocol import Message


class Compiler:
    """Answers with the code of a program, which is scheduled or whose schedule it chooses."""

    def answer(self, message: Message) -> Message:
        fields = message.fields
        func, way = parse_program(fields), fields["way"]
        target = Target.from_json(fields["target"])
        began = time.perf_counter()
        if way is not None:
            from ..search.remembered import chosen  # loads all rules

            func = chosen(func, target, way, fields["error_factor"]).func
        chose = time.perf_counter()
        compiler = compile_cached if fields["cached"] else compile_func
        compiled = compiler(func, target, strict_fp=fields["strict_fp"])
        texts = [text.encode() for text in (func_text(func), compiled.text)]
        answer = {
            "form": compiled.form,
            "signature": compiled.signature.to_json(),
            "lengths": [len(text) for text in texts],
            "spent": [chose - began, time.perf_counter() - chose],
        }
        return Message(answer, b"".join(texts) + compiled.image)
