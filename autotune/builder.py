"""What a builder process does: replay a trace, lower the program, compile it to object code."""

from __future__ import annotations

import time
import traceback
from typing import Any

from ..errors import ScheduleError, TilewrightError
from ..schedule import Trace
from ..target import Target
from ..tir.ir import Func
from ..tuning_db.values import Outcome
from .limits import limit_memory
from .program import parse_program
from .protocol import Message


class Builder:
    """Answers `program`, then any number of `build`."""

    def __init__(self) -> None:
        from ..codegen import build  # LLVM is loaded while nobody waits

        self._compile = build.compile_func
        self._func: Func | None = None
        self._target: Target | None = None

    def answer(self, message: Message) -> Message:
        fields = message.fields
        if fields["do"] == "program":
            return self._program(fields)
        began = time.perf_counter()
        outcome, error, data, parallel = self._build(fields["trace"])
        return Message(
            {
                "outcome": outcome.value,
                "error": error,
                "parallel": parallel,
                "seconds": time.perf_counter() - began,
            },
            data,
        )

    def _program(self, fields: dict[str, Any]) -> Message:
        from ..codegen.detect import resolve

        self._func = parse_program(fields)
        self._target = resolve(fields["target"])
        limit_memory(fields["memory"])
        return Message({})

    def _build(self, trace: str) -> tuple[Outcome, str | None, bytes, bool]:
        assert self._func is not None, "the program comes first"
        assert self._target is not None
        try:
            scheduled = Trace.from_json(trace).apply(self._func)
        except ScheduleError as error:
            return Outcome.ILLEGAL, str(error), b"", False
        except MemoryError:
            return Outcome.OUT_OF_MEMORY, "replaying the schedule took too much memory", b"", False
        except Exception:  # noqa: BLE001 - a defect in a primitive costs one candidate
            return Outcome.BUILD_ERROR, traceback.format_exc(), b"", False
        try:
            compiled = self._compile(scheduled.func, self._target)
        except TilewrightError as error:
            return Outcome.BUILD_ERROR, str(error), b"", False
        except MemoryError:
            return Outcome.OUT_OF_MEMORY, "compiling took too much memory", b"", False
        except Exception:  # noqa: BLE001 - a defect in lowering costs one candidate
            return Outcome.BUILD_ERROR, traceback.format_exc(), b"", False
        return Outcome.OK, None, compiled.object_code, compiled.parallel
