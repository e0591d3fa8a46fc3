"""Names of functions that C and C++ programs can declare and call."""

from __future__ import annotations

import re

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue contract_assert decltype default delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires restrict return short signed sizeof static static_assert static_cast struct switch
template this thread_local throw true try typedef typeid typename typeof typeof_unqual union
unsigned using virtual void volatile wchar_t while xor xor_eq
"""
"""Those of C and of C++, which reads headers too."""
_PREDEFINED = frozenset({"i386", "linux", "unix"})
"""Macros of compilers on Linux."""
_REFUSED = _PREDEFINED.union(_KEYWORDS.split())
_STDINT = re.compile(
    r"u?int(_least|_fast)?\d+_t|u?int(max|ptr)_t"
    r"|U?INT(_LEAST|_FAST)?\d+_(MAX|MIN|C|WIDTH)|U?INT(MAX|PTR)_(MAX|MIN|C|WIDTH)"
    r"|(PTRDIFF|SIG_ATOMIC|SIZE|WCHAR|WINT)_(MAX|MIN|WIDTH)"
)
"""The names that <stdint.h> defines, which headers of kernels include."""


def is_c_identifier(name: str) -> bool:
    """Whether a name has only the characters of a name in C."""
    return name.isidentifier() and name.isascii()


def is_function_name(name: str) -> bool:
    """Whether a header of a kernel can declare a function of this name.

    C reserves names of functions that begin with an underscore: the linker, for instance, makes
    `_init` and `_fini` run when a library is loaded and unloaded.
    """
    return (
        is_c_identifier(name)
        and not name.startswith("_")
        and name not in _REFUSED
        and not _STDINT.fullmatch(name)
    )
