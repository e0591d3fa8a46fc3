"""What kernels take, in words."""

from __future__ import annotations

from collections.abc import Mapping

from .canonical import Json

_FIRST = ("registers", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "shared_bytes")


def resources_text(resources: Mapping[str, Json] | None) -> list[str]:
    """A line for each kernel, of the numbers that are not 0; none where nothing is known.

    matmul_kernel: 96 registers, 8 spill store bytes, 16384 shared bytes, 256 threads, 64 blocks
    """
    return [
        f"{kernel}: " + ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in _in_order(taken))
        for kernel, taken in (resources or {}).items()
        if isinstance(taken, dict)
    ]


def _in_order(taken: Mapping[str, Json]) -> list[tuple[str, Json]]:
    """The numbers, the compiler's first; records have them in the order of their names."""
    return [(name, taken[name]) for name in dict.fromkeys((*_FIRST, *taken)) if taken.get(name)]
