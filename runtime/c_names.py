"""Names of functions that C and C++ programs can declare and call."""

from __future__ import annotations


def is_c_identifier(name: str) -> bool:
    """Whether a name has only the characters of a name in C."""
    return name.isidentifier() and name.isascii()


def is_function_name(name: str) -> bool:
    """Whether a library can have a function of this name beside those of the system.

    C reserves names of functions that begin with an underscore: the linker, for instance, makes
    `_init` and `_fini` run when a library is loaded and unloaded.
    """
    return is_c_identifier(name) and not name.startswith("_")
