"""The work of the runner process: load compiled code, time it, compare its results."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from ...base.errors import BuildError, DeviceError, KernelError, OutOfMemoryError
from ...base.process import collected_later, limit_memory, unlimit_memory
from ...codegen.build import compile_func, to_module
from ...codegen.calling_convention import signature_of
from ...codegen.compiled import Compiled, Launch
from ...codegen.detect import resolve, usable_memory
from ...codegen.generator import generator_for
from ...runtime.cuda_driver import LAUNCH_TIMEOUT
from ...runtime.measure.interleaved import time_loaded
from ...runtime.memory import memory_for
from ...runtime.module import Module
from ...runtime.signature import Signature
from ...runtime.target_runtime import runtime_for
from ...target import Target
from ...tir.ir import Func
from ...tir.widen import widened
from ...tuning_db.outcome import Outcome
from .numeric_check import Deviation, Exact, arguments_of, check_outputs, deviation, tolerance_of
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
        except OutOfMemoryError as error:
            return _failed(Outcome.OUT_OF_MEMORY, error)
        except DeviceError as error:
            if not error.sticky:  # the device refuses to launch it
                return _failed(Outcome.BUILD_ERROR, error)
            late = error.code == LAUNCH_TIMEOUT
            outcome = Outcome.RUN_TIMEOUT if late else Outcome.CRASH
            return Message({**_failed(outcome, error).fields, "unusable": True})
        except KernelError as error:
            return _failed(Outcome.CRASH, error)
        except MemoryError:
            return _failed(Outcome.OUT_OF_MEMORY, "no memory to load or run it")
        except BuildError as error:
            return _failed(Outcome.BUILD_ERROR, error)

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
        module = to_module(compile_func(parse_program(fields), program.target))
        values = program.values(module)

        def run() -> None:
            module(*values)
            module.synchronize()

        seconds = program.runtime.timer.time_once(run)
        outputs = program.arguments.outputs
        write_outputs(program.reference, program.signature, outputs)
        not_sampled = None
        if program.generator.on_device:
            from .host_sample import check_sample

            on_host = program.arguments.on_host
            not_sampled = check_sample(program.func, on_host, outputs, program.tolerance)
        program.arguments.reset()
        return Message({"seconds": seconds, "not_sampled": not_sampled})

    def _rounding(self, _: dict[str, Any], __: bytes) -> Message:
        from .interchange import reference_program  # loads what schedules need

        program = self._ready()
        func = widened(program.func)
        arguments = program.arguments.converted(signature_of(func))
        module = to_module(compile_func(reference_program(func, program.target), program.target))
        module(*arguments.values)
        write_outputs(program.reference, program.signature, arguments.outputs, wide=True)
        expected = read_outputs(program.reference, program.signature)
        pairs = zip(expected, arguments.outputs, strict=True)
        found = [deviation(a, a, b)[:2] for a, b in pairs]
        # An error that overflows is no measure of anything.
        errors = [[e if math.isfinite(e) else 0.0 for e in pair] for pair in found]
        return Message({"outcome": Outcome.OK.value, "errors": errors})

    def _run(self, fields: dict[str, Any], image: bytes) -> Message:
        program = self._ready()
        program.limit()
        began = time.perf_counter()
        self._last = None  # the code that ran before is unloaded
        module = program.load(image, fields)
        self._last = (image, module)
        call = module.bind(*program.values(module))
        with collected_later():
            timing = program.runtime.timer.time_calls(
                call,
                min_samples=fields["min_samples"],
                max_samples=fields["max_samples"],
                budget_seconds=fields["timing_seconds"],
                min_sample_seconds=fields["sample_seconds"],
                stop_above=fields["stop_above"],
            )
        return Message(
            {
                "outcome": Outcome.OK.value,
                "samples": list(timing.samples),
                "median": timing.median,
                "stopped": timing.stopped,
                "seconds": time.perf_counter() - began,
            }
        )

    def _check(self, fields: dict[str, Any], image: bytes) -> Message:
        program = self._ready()
        program.limit()
        if self._last is not None and self._last[0] == image:
            module = self._last[1]
        else:
            module = program.load(image, fields)
        arguments = program.arguments
        arguments.reset()
        module(*program.values(module))
        exact = None
        if fields["rounding"] is not None:
            exact = Exact(
                read_outputs(program.reference, program.signature, wide=True),
                [Deviation(*errors) for errors in fields["rounding"]],
            )
        result = check_outputs(
            arguments.outputs,
            read_outputs(program.reference, program.signature),
            [a.name for a in program.signature.arguments if a.written],
            program.tolerance,
            exact,
            fields["error_factor"],
        )
        stray = arguments.stray_write()
        if stray is not None:
            result = replace(result, passed=False, error=f"it wrote beside argument {stray}")
        return Message({"outcome": Outcome.OK.value, "check": result.to_json()})

    def _interleave(self, fields: dict[str, Any], data: bytes) -> Message:
        program = self._ready()
        program.limit()
        ends = accumulate(kernel["size"] for kernel in fields["kernels"])

        def load(form: dict[str, Any], end: int) -> Callable[[], None]:
            module = program.load(data[end - form["size"] : end], form)
            return module.bind(*program.values(module))

        with collected_later():
            samples = time_loaded(
                [partial(load, *pair) for pair in zip(fields["kernels"], ends, strict=True)],
                program.runtime.timer,
                rounds=fields["rounds"],
                min_sample_seconds=fields["sample_seconds"],
            )
        return Message({"samples": samples})

    def _ready(self) -> _Program:
        assert self._program is not None, "the program comes first"
        return self._program


class _Program:
    """The workload in this process: its program, its arguments and the expected results."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.func: Func = parse_program(fields)
        self.target: Target = resolve(Target.from_json(fields["target"]))
        self.generator = generator_for(self.target)
        self.runtime = runtime_for(self.target)
        self.signature: Signature = signature_of(self.func)
        memory, name = self.runtime.memory, self.signature.name
        size = sum(a.span_bytes for a in self.signature.arguments)
        with memory_for("{0}: no memory for its arguments of {1} bytes", name, size, hint=_SMALLER):
            self.arguments = arguments_of(self.func, self.signature, fields["seed"], memory)
        self.tolerance = tolerance_of(self.func)
        self.reference: int = fields["outputs"]
        free = memory.free_bytes()
        self._on_device = free is not None
        self._allowed: int = fields["memory"] or (usable_memory() if free is None else free) // 2
        self._limited = False

    def limit(self) -> None:
        """Limit the memory that candidates may allocate, from the first on."""
        addresses = self.generator.addresses(self.target)
        if not self._limited and addresses is not None:
            limit_memory(self._allowed + addresses)
            self._limited = True

    def load(self, image: bytes, form: dict[str, Any]) -> Module:
        """The module of a `Kernel`'s image and the other fields of its message."""
        text = form["signature"]
        signature = self.signature if text is None else Signature.from_json(json.loads(text))
        if self._on_device and signature.extra_bytes > self._allowed:
            raise OutOfMemoryError(
                "{0}: its workspaces and packed operands are {1} bytes; a candidate may take {2}",
                signature.name,
                signature.extra_bytes,
                self._allowed,
                hint="MeasureConfig.run_memory is the limit",
            )
        launches = tuple(map(Launch.from_json, form["launches"]))
        # What is timed is the kernel, and its arguments are made here.
        return to_module(
            Compiled(signature, self.target, (), "", image, launches), trust_indices=True
        )

    def values(self, module: Module) -> list[Any]:
        """The arguments of a candidate, the constant ones packed as its signature says."""
        return [
            value if a.packing is None else module.pack(a.name, value)
            for a, value in zip(module.signature.arguments, self.arguments.values, strict=True)
        ]


def _failed(outcome: Outcome, error: object) -> Message:
    return Message({"outcome": outcome.value, "error": str(error)})
