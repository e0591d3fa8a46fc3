"""How a program travels to the workers: as text, with its digest."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...base.errors import TuningError
from ...codegen.generator import outside_modules
from ...target import Target
from ...tir.equality import structural_hash
from ...tir.ir import Func
from ...tir.parser import parse
from ...tir.printer import func_text


def program_fields(func: Func, target: Target) -> dict[str, Any]:
    """A program and its target as fields of a message.

    The modules that register the kind of target and the program's instructions come with them.
    Raises `TuningError` for an instruction or a kind of target that a script or notebook defines.
    """
    from ...schedule.tensorizable import instruction_modules  # a child need not load schedules

    kinds, instructions = outside_modules(target), instruction_modules(func)
    if "__main__" in kinds:
        raise TuningError(
            "this script or notebook defines targets of kind {0!r}, which other processes cannot "
            "import",
            target.kind,
            hint="put their record and code generator into a module, and import that here",
        )
    if "__main__" in instructions:
        raise TuningError(
            "{0} takes instructions that this script or notebook defines, which other processes "
            "cannot import",
            func.name,
            hint="put them into a module, and import that here",
        )
    return {
        "text": func_text(func),
        "digest": structural_hash(func),
        "target": target.to_json(),
        "modules": [*kinds, *sorted(instructions)],
    }


def parse_program(fields: dict[str, Any]) -> Func:
    """The program of a message, whose modules are imported first.

    Raises `TuningError` if it is not the one whose digest is given.
    """
    _load_modules(fields)
    func = parse(fields["text"])
    if structural_hash(func) != fields["digest"]:
        raise TuningError("program {0} reads back as another one than it was written", func.name)
    return func


def _load_modules(fields: dict[str, Any]) -> None:
    """Import the modules of a message, which register what a worker needs of the user's own.

    Those are primitives, instructions and kinds of targets. Raises `TuningError` where one cannot
    be imported.
    """
    for module in fields["modules"]:
        try:
            import_module(module)
        except Exception as error:
            raise TuningError(
                "module {0}, which registers primitives, instructions or a kind of target, cannot "
                "be imported to build with: {1!r}",
                module,
                error,
                hint="it must be found on sys.path, by its name",
            ) from error
