"""Loading object code into this process."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from llvmlite import binding

from ..errors import BuildError
from .llvm import initialize

_numbers = itertools.count()


class Loaded(NamedTuple):
    """The address of a function, and what keeps its code alive."""

    address: int
    owner: object


def load_object(code: bytes, symbol: str, imports: Mapping[str, int]) -> Loaded:
    """Link an object file into this process.

    `imports` are addresses of functions that the process does not export. Raises `BuildError` if a
    function that the code calls is not found.
    """
    library = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name, address in imports.items():
        library.import_symbol(name, address)
    library.export_symbol(symbol)
    try:
        tracker = library.link(_jit(), f"kernel{next(_numbers)}")
    except RuntimeError as error:
        raise BuildError("the compiled code of {0} does not load: {1}", symbol, error) from error
    return Loaded(tracker[symbol], tracker)


@cache
def _jit() -> Any:
    initialize()
    return binding.create_lljit_compiler()
