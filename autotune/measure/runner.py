"""The work of the runner process: load compiled code, time it, compare its results.

The work itself is that of a `Bench`; here are its messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

from ...base.process import limit_memory, unlimit_memory
from ...codegen.build import compile_func, to_module
from ...codegen.calling_convention import signature_of
from ...codegen.compiled import Compiled, Launch
from ...codegen.detect import resolve, usable_memory
from ...codegen.generator import generator_for
from ...runtime.measure.bench import FAILURES, Bench, failure
from ...runtime.measure.comparison import Deviation, Exact
from ...runtime.memory import memory_for
from ...runtime.module import Module
from ...runtime.signature import Signature
from ...runtime.target_runtime import runtime_for
from ...target import Target
from ...tir.ir import Func
from ...tir.widen import widened
from .numeric_check import arguments_of, tolerance_of
from .program_text import parse_program
from .protocol import Message
from .reference import read_outputs, write_outputs

_SMALLER = "tune smaller sizes, or free memory that other programs take"


class Runner:
    """Answers `program`, `reference` once, then `run`, `check`, `interleave` of given code.

    `reference` comes with the program that results are checked against. `rounding` runs it in wider
    arithmetic, for the checks after it.

    Another `program` takes the place of the one before. `machine` needs none.
    """

    def __init__(self) -> None:
        self._program: _Program | None = None
        self._last: tuple[bytes, Module] | None = None
        self._answers: dict[str, Callable[[dict[str, Any], bytes], Message]] = {
            "program": self._prepare,
            "reference": self._reference,
            "rounding": self._rounding,
            "run": self._run,
            "check": self._check,
            "interleave": self._interleave,
            "machine": self._machine,
        }

    def answer(self, message: Message) -> Message:
        try:
            return self._answers[message.fields["do"]](message.fields, message.data)
        except FAILURES as error:
            return Message(failure(error))

    def _machine(self, fields: dict[str, Any], _: bytes) -> Message:
        target = Target.from_json(fields["target"])
        return Message({"machine": generator_for(target).measure(target)._asdict()})

    def _prepare(self, fields: dict[str, Any], _: bytes) -> Message:
        self._program = self._last = None  # what the one before held is free for this one
        unlimit_memory()
        self._program = _Program(fields)
        return Message({})

    def _reference(self, fields: dict[str, Any], _: bytes) -> Message:
        program = self._ready()
        bench = program.bench
        module = to_module(compile_func(parse_program(fields), program.target))
        seconds, outputs = bench.run_reference(module)
        write_outputs(program.reference, bench.signature, outputs)
        not_sampled = None
        if program.generator.on_device:
            from .host_sample import check_sample

            on_host = bench.arguments.on_host
            not_sampled = check_sample(program.func, on_host, outputs, bench.tolerance)
        bench.arguments.reset()
        return Message({"seconds": seconds, "not_sampled": not_sampled})

    def _rounding(self, _: dict[str, Any], __: bytes) -> Message:
        from .interchange import reference_program  # loads what schedules need

        program = self._ready()
        func = widened(program.func)
        wide = to_module(compile_func(reference_program(func, program.target), program.target))
        exact = program.bench.run_wide(wide, program.expected())
        write_outputs(program.reference, program.bench.signature, [*exact.outputs], wide=True)
        return Message({"outcome": "ok", "errors": [d[:2] for d in exact.rounding]})

    def _run(self, fields: dict[str, Any], image: bytes) -> Message:
        program = self._ready()
        program.limit()
        self._last = None  # the code that ran before is unloaded

        def load() -> Module:
            module = program.load(image, fields)
            self._last = (image, module)
            return module

        return Message(program.bench.time(load, fields["timing"]))

    def _check(self, fields: dict[str, Any], image: bytes) -> Message:
        program = self._ready()
        program.limit()
        if self._last is not None and self._last[0] == image:
            module = self._last[1]
        else:
            module = program.load(image, fields)
        exact = None
        if fields["rounding"] is not None:
            errors = [Deviation(*pair) for pair in fields["rounding"]]
            exact = Exact(program.expected(wide=True), errors)
        result = program.bench.check(module, program.expected(), exact, fields["error_factor"])
        return Message({"outcome": "ok", "check": result.to_json()})

    def _interleave(self, fields: dict[str, Any], data: bytes) -> Message:
        program = self._ready()
        program.limit()
        ends = accumulate(kernel["size"] for kernel in fields["kernels"])
        loads = [
            partial(program.load, data[end - form["size"] : end], form)
            for form, end in zip(fields["kernels"], ends, strict=True)
        ]
        return Message(program.bench.interleave(loads, fields["rounds"], fields["sample_seconds"]))

    def _ready(self) -> _Program:
        assert self._program is not None, "the program comes first"
        return self._program


class _Program:
    """The workload in this process, and where the expected results are."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.func: Func = parse_program(fields)
        self.target: Target = resolve(Target.from_json(fields["target"]))
        self.generator = generator_for(self.target)
        self.reference: int = fields["outputs"]
        signature, runtime = signature_of(self.func), runtime_for(self.target)
        size = sum(a.span_bytes for a in signature.arguments)
        wanted = "{0}: no memory for its arguments of {1} bytes"
        with memory_for(wanted, signature.name, size, hint=_SMALLER):
            arguments = arguments_of(self.func, signature, fields["seed"], runtime.memory)
        self._memory: int | None = fields["memory"] or None
        self.bench = Bench(runtime, arguments, tolerance_of(self.func), self._memory)
        self._limited = False

    def expected(self, *, wide: bool = False) -> list[Any]:
        """The results of the unscheduled program, or those in wider arithmetic."""
        return read_outputs(self.reference, self.bench.signature, wide=wide)

    def limit(self) -> None:
        """Limit the memory that candidates may allocate, from the first on."""
        addresses = self.generator.addresses(self.target)
        if not self._limited and addresses is not None:
            limit_memory((self._memory or usable_memory() // 2) + addresses)
            self._limited = True

    def load(self, image: bytes, form: dict[str, Any]) -> Module:
        """The module of a `Kernel`'s image and the other fields of its message."""
        text = form["signature"]
        signature = self.bench.signature if text is None else Signature.from_json(json.loads(text))
        launches = tuple(map(Launch.from_json, form["launches"]))
        # What is timed is the kernel, and its arguments are made here.
        return to_module(
            Compiled(signature, self.target, (), "", image, launches), trust_indices=True
        )
