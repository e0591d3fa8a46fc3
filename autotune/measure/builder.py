"""The work of a builder process: replay a trace, lower the program, compile it."""

from __future__ import annotations

import json
import time
import traceback
from typing import Any

from ...base.errors import ScheduleError, TilewrightError
from ...base.process import limit_memory, unlimit_memory
from ...codegen.build import compile_func
from ...codegen.compiled import Compiled
from ...codegen.detect import resolve
from ...codegen.generator import generator_for
from ...schedule import Trace
from ...target import Target
from ...tir.ir import Func
from ...tuning_db.outcome import Outcome
from .measure_result import Kernel
from .program_text import parse_program
from .protocol import Message


class Builder:
    """Answers `program`, then any number of `build`; another `program` takes its place."""

    def __init__(self) -> None:
        self._func: Func | None = None
        self._target: Target | None = None

    def answer(self, message: Message) -> Message:
        fields = message.fields
        if fields["do"] == "program":
            return self._program(fields)
        began = time.perf_counter()
        outcome, error, compiled = self._build(fields["trace"])
        told: dict[str, Any] = {
            "outcome": outcome.value,
            "error": error,
            "seconds": time.perf_counter() - began,
        }
        if compiled is None:
            return Message(told)
        signature = json.dumps(compiled.signature.to_json())
        kernel = Kernel(compiled.image, compiled.launches, signature)
        resources = generator_for(compiled.target).resources(compiled)
        told |= {**kernel.form(), "resources": resources, "target": str(compiled.target)}
        return Message(told, kernel.image)

    def _program(self, fields: dict[str, Any]) -> Message:
        unlimit_memory()
        self._func = parse_program(fields)
        self._target = resolve(Target.from_json(fields["target"]))
        limit_memory(fields["memory"])
        return Message({})

    def _build(self, trace: str) -> tuple[Outcome, str | None, Compiled | None]:
        assert self._func is not None, "the program comes first"
        assert self._target is not None
        try:
            scheduled = Trace.from_json(trace).apply(self._func)
        except ScheduleError as error:
            return Outcome.ILLEGAL, str(error), None
        except MemoryError:
            return Outcome.OUT_OF_MEMORY, "replaying the schedule took too much memory", None
        except Exception:  # noqa: BLE001 - a defect in a primitive costs one candidate
            return Outcome.BUILD_ERROR, traceback.format_exc(), None
        try:
            compiled = compile_func(scheduled.func, self._target)
        except TilewrightError as error:
            return Outcome.BUILD_ERROR, str(error), None
        except MemoryError:
            return Outcome.OUT_OF_MEMORY, "compiling took too much memory", None
        except Exception:  # noqa: BLE001 - a defect in lowering costs one candidate
            return Outcome.BUILD_ERROR, traceback.format_exc(), None
        return Outcome.OK, None, compiled
