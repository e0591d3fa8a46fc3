"""The toolchain of today, as far as it says what is to be verified again.

It is remembered on disk: to load a code generator and all primitives takes longer than to list the
records of a database. It is for processes in which no user has registered primitives.
"""

from __future__ import annotations

import json
import os
from functools import cache
from importlib import metadata

from ..base.errors import TilewrightError
from ..codegen.disk_cache import DiskCache, location, sources_digest
from ..tuning_db.canonical import digest
from ..tuning_db.values import Toolchain, to_plain

_KIND = "toolchain"
_VERSION = 1
_LIMIT_BYTES, _ENTRY_BYTES = 1 << 20, 4096
_SOURCES = (
    "autotune/records.py",
    "schedule/**/*.py",
    "codegen/generator.py",
    "codegen/cpu/generator.py",
)


@cache
def toolchain_of(target: str) -> Toolchain | None:
    """The tools that make code for a target (its text) today; `None` where none are installed."""
    kind = target.partition(" ")[0]
    folder = location(os.environ, _KIND)
    if folder is None or kind != "cpu":  # what other kinds depend on is not known here
        return _found(kind)
    llvm = metadata.version("llvmlite")
    name = digest([kind, llvm, sources_digest(*_SOURCES)])
    tools = DiskCache(folder, _KIND, _VERSION, _LIMIT_BYTES, _ENTRY_BYTES)
    found = tools.get(name, lambda content: Toolchain(**json.loads(content)))
    if found is None and (found := _found(kind)) is not None:
        tools.put(name, json.dumps(to_plain(found)).encode())
    return found


def _found(kind: str) -> Toolchain | None:
    from ..target import Target
    from .records import toolchain_record

    try:
        return toolchain_record(Target.parse(kind))
    except TilewrightError:
        return None
