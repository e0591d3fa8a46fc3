"""How a program travels to the workers: as text, with its digest."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...codegen.generator import outside_modules
from ...errors import TuningError
from ...target import Target
from ...tir.equality import structural_hash
from ...tir.ir import Func
from ...tir.parser import parse


def program_fields(func: Func, target: Target) -> dict[str, Any]:
    """A program and its target as fields of a message, with the modules that register it."""
    return {
        "text": repr(func),
        "digest": structural_hash(func),
        "target": str(target),
        "modules": list(outside_modules(target)),
    }


def parse_program(fields: dict[str, Any]) -> Func:
    """The program of a message. Raises `TuningError` if it is not the one whose digest is given."""
    func = parse(fields["text"])
    if structural_hash(func) != fields["digest"]:
        raise TuningError("program {0} reads back as another one than it was written", func.name)
    return func


def load_modules(fields: dict[str, Any]) -> None:
    """Import the modules of a message, which register what a worker needs of the user's own.

    Those are primitives, and kinds of targets. Raises `TuningError` where one cannot be imported.
    """
    for module in fields["modules"]:
        try:
            import_module(module)
        except Exception as error:
            raise TuningError(
                "module {0}, which registers primitives or a kind of target, cannot be imported "
                "to build with: {1!r}",
                module,
                error,
                hint="it must be found on sys.path, by its name",
            ) from error
