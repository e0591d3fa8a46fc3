"""Names in CUDA C++: those of the program, unless they mean something there."""

from __future__ import annotations

import re

from ...runtime.c_names import is_function_name
from ...tir.ir import FLOAT_FUNCTIONS
from ...tir.names import unique
from .prelude import FUNCTIONS

_MACROS = re.compile(
    r"[A-Z][A-Z0-9_]{2,}|(M|L|P|FP|HUGE|SNAN|NV|IF|SM)_\w*|cuda\w*|CUDA\w*|SNAN\w*|MAXFLOAT"
    r"|(ht|be|le)\d*(to)?(be|le|h)?\d*|is\w+|to\w+|str\w+|std\w+|assert\w*|alloca|offsetof"
    r"|math_errhandling"
)
"""Names that macros of the compiler's headers may have."""
_USED = frozenset(
    (
        *("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "min", "max", "fmod"),
        *("copysign", "shared_memory", "workspace"),
        *(f"{kind}{lanes}" for kind in ("float", "double", "int", "uint") for lanes in (2, 4)),
        *(
            f"{fn}{suffix}"
            for fn in (*FLOAT_FUNCTIONS, "abs", "fabs", "rint")
            for suffix in ("", "f")
        ),
        *FUNCTIONS,
    )
)
"""Names that kernels use themselves."""


class Names:
    """Names of variables and buffers of one kernel, each free again after its scope."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._taken: set[str] = set(_USED)

    def bind(self, thing: object, name: str) -> str:
        """A name for `thing`, like `name` and different from those in use."""
        clean = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("_") or "v"
        if clean[0].isdigit():
            clean = f"v{clean}"
        clean = re.sub("__+", "_", clean)
        if not is_function_name(clean) or _MACROS.fullmatch(clean):
            clean = f"{clean}_"
        fresh = self._names[thing] = unique(clean, self._taken)
        return fresh

    def release(self, thing: object) -> None:
        """The scope of `thing` has ended."""
        self._taken.discard(self._names[thing])

    def of(self, thing: object) -> str:
        return self._names[thing]
