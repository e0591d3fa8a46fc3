"""What a builder process does: replay a trace, lower the program, compile it to object code."""

from __future__ import annotations

import json
import time
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...errors import ScheduleError, TilewrightError, TuningError
from ...schedule import Trace
from ...target import Target
from ...tir.ir import Func
from ...tuning_db.values import Outcome
from .limits import limit_memory, unlimit_memory
from .program_text import parse_program
from .protocol import Message

if TYPE_CHECKING:
    from ...codegen.build import Compiled


class Builder:
    """Answers `program`, then any number of `build`; another `program` takes its place."""

    def __init__(self) -> None:
        from ...codegen import build  # LLVM is loaded while nobody waits

        self._compile = build.compile_func
        self._func: Func | None = None
        self._target: Target | None = None

    def answer(self, message: Message) -> Message:
        fields = message.fields
        if fields["do"] == "program":
            return self._program(fields)
        began = time.perf_counter()
        outcome, error, compiled = self._build(fields["trace"])
        return Message(
            {
                "outcome": outcome.value,
                "error": error,
                "parallel": compiled is not None and compiled.parallel,
                "signature": compiled and json.dumps(compiled.signature.to_json()),
                "seconds": time.perf_counter() - began,
            },
            b"" if compiled is None else compiled.object_code,
        )

    def _program(self, fields: dict[str, Any]) -> Message:
        from ...codegen.detect import resolve

        unlimit_memory()
        self._func = parse_program(fields)
        self._target = resolve(fields["target"])
        limit_memory(fields["memory"])
        for module in fields["modules"]:
            _load(module)
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
            compiled = self._compile(scheduled.func, self._target)
        except TilewrightError as error:
            return Outcome.BUILD_ERROR, str(error), None
        except MemoryError:
            return Outcome.OUT_OF_MEMORY, "compiling took too much memory", None
        except Exception:  # noqa: BLE001 - a defect in lowering costs one candidate
            return Outcome.BUILD_ERROR, traceback.format_exc(), None
        return Outcome.OK, None, compiled


def _load(module: str) -> None:
    """Import a module that registers primitives: the tuning process did so too, it says."""
    try:
        import_module(module)
    except Exception as error:
        raise TuningError(
            "module {0}, which registers primitives, cannot be imported to build with: {1!r}",
            module,
            error,
            hint="it must be found on sys.path, by its name",
        ) from error
