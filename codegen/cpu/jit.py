"""Load object code into this process."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from llvmlite import binding

from ...base.errors import BuildError
from .archive import members
from .llvm import initialize

_TOGETHER = 16
"""Kernels that share a linker. LLVM keeps about 10 KB of each kernel that was unloaded for as long
as its linker lives, in pieces that keep what is freed around them from being used again: the memory
of a process that runs 300 kernels one after the other grows by 40 MB. A linker costs a millisecond
to make."""
_numbers = itertools.count()


class Loaded(NamedTuple):
    """The addresses of functions in the order asked for, and the owner of their code."""

    addresses: tuple[int, ...]
    owner: object


def load_object(code: bytes, symbols: Sequence[str], imports: Mapping[str, int]) -> Loaded:
    """Link an image of object files into this process, for the functions `symbols` that it defines.

    `imports` are addresses of functions that the process does not export. Raises `BuildError` for
    an undefined function.
    """
    name = symbols[0]
    library = binding.JITLibraryBuilder().add_current_process()
    for member in members(code):
        library.add_object_img(member)
    for imported, address in imports.items():
        library.import_symbol(imported, address)
    for symbol in symbols:
        library.export_symbol(symbol)
    number = next(_numbers)
    try:
        tracker = library.link(_linker(number // _TOGETHER), f"kernel{number}")
    except RuntimeError as error:
        raise BuildError("the compiled code of {0} does not load: {1}", name, error) from error
    return Loaded(tuple(tracker[symbol] for symbol in symbols), tracker)


@lru_cache(maxsize=1)
def _linker(_group: int) -> Any:
    """The linker of a group of kernels, which lives as long as any of them does.

    JITLink lays the sections of an object file side by side. LLVM's default maps each where memory
    is free, and aborts the process where that is not within 2 GB of the others.
    """
    initialize()
    return binding.create_lljit_compiler(use_jit_link=True)
