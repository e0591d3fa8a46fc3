"""Schedules that are chosen without a measurement of their own, and remembered on disk.

Making the sketches of a program and scoring them takes longer than compiling the one that is
chosen. The name of a choice is the digest of all that it depends on: the program up to names, all
facts of the target, the sources of the rules and of the search, the base models, the libraries that
draw and score, and the user's instructions. Rules of the user's own, and those for a kind of target
from outside of this package, may depend on anything: where there are any, nothing is remembered.

A schedule that records of other sizes give (`transfer.py`) is remembered by their ids, too.

An entry holds a trace as JSON. It is replayed with all checks, and one that does not apply or
compile is chosen again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...base.errors import ArtifactError, ScheduleError, TilewrightError
from ...codegen.disk_cache import DiskCache, location, sources_digest
from ...codegen.generator import outside_modules
from ...schedule import Schedule, Trace
from ...schedule.trace import MAX_JSON
from ...target import Target
from ...tir.equality import structural_hash
from ...tir.instruction_set import users_digest
from ...tir.ir import Func
from ..model import boosting
from ..rules.user_rules import SKETCH_RULES
from .replay import brief, replayed, row_of

if TYPE_CHECKING:
    from .sketch import Sketch

Way = Literal["model", "default"]
"""Who chooses: the cost model, or the analytic estimate alone."""

KIND = "choice"
LIMIT_BYTES = 32 << 20
_VERSION = 1
_ENTRY_BYTES = MAX_JSON + 1024
_SOURCES = (
    "autotune/rules/**/*.py",
    "autotune/search/*.py",
    "autotune/model/**/*.py",
    "autotune/model/*/base/model.json",
    "schedule/**/*.py",
    "codegen/**/*.py",
    "tir/**/*.py",
    "base/dtypes.py",
    "target/*.py",
)
"""The files of this package that take part in choosing, for all kinds of targets."""


def chosen(
    func: Func,
    target: Target,
    way: Way,
    error_factor: float = 1.0,
    sketches: Sequence[Sketch] | None = None,
) -> Schedule:
    """The program with the schedule of `model_trace` or `default_trace`, on a resolved target.

    The schedule comes from the disk where the same was chosen before. `sketches` are those of the
    program, if they are known, with inexact steps if `error_factor` is above 1.
    """
    schedule = recalled(func, target, way, error_factor)
    if schedule is None:
        schedule = chosen_anew(func, target, way, error_factor, sketches)
    return schedule


def chosen_anew(
    func: Func,
    target: Target,
    way: Way,
    error_factor: float = 1.0,
    sketches: Sequence[Sketch] | None = None,
) -> Schedule:
    """Like `chosen`, without what is remembered, which is replaced."""
    from . import unmeasured  # loaded where a choice has to be made

    choose = unmeasured.model_trace if way == "model" else unmeasured.default_trace
    trace = choose(func, target, sketches=sketches, error_factor=error_factor)
    schedule = trace.apply(func)
    choices = choices_of(target)
    if choices is not None and is_whole(target, way):
        choices.put(_key(func, target, way, error_factor), trace.to_json().encode())
    return schedule


def recalled(func: Func, target: Target, way: Way, error_factor: float = 1.0) -> Schedule | None:
    """Returns the schedule of `chosen` if it is remembered, else `None`."""
    choices = choices_of(target)
    if choices is None:
        return None
    return choices.get(
        _key(func, target, way, error_factor),
        lambda content: replayed_entry(content, func, error_factor),
    )


def _key(func: Func, target: Target, way: Way, error_factor: float) -> str:
    return key(func, target, way, *(() if error_factor == 1.0 else (repr(error_factor),)))


def has_own_rules(target: Target) -> bool:
    """Whether rules of the user's own may choose, which other processes need not have."""
    return bool(SKETCH_RULES or outside_modules(target))


def key(func: Func, target: Target, way: Way | Literal["transfer"], *also: str) -> str:
    """The digest (SHA-256, hex) of what determines a choice, such as the records of a transfer."""
    libraries = f"numpy {np.__version__}, xgboost {boosting.installed_version()}"
    program = structural_hash(func)
    place = json.dumps(target.to_json())
    parts = [program, place, way, _chooser(), libraries, users_digest(target), *also]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_whole(target: Target, way: Way) -> bool:
    """Whether the shipped model was there; without it, the estimate chose in its place."""
    from ..model.base_model import SHIPPED, named
    from ..model.target_model import model_for

    target_model = model_for(target)
    chose = way == "default" or target_model.base is None
    return chose or named(SHIPPED, target_model) is not None


def replayed_entry(content: bytes, func: Func, error_factor: float = 1.0) -> Schedule:
    """The program, scheduled as an entry says. Raises `ArtifactError` where it does not apply."""
    try:
        trace = Trace.from_json(content.decode())
        if trace.error_factor > error_factor:
            raise ScheduleError("it has inexact steps ({0})", ", ".join(trace.inexact))
        if row_of(trace) is None:
            raise ScheduleError("it leaves decisions open")
        return replayed(trace, func)
    except (TilewrightError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError("{0}: {1}", type(error).__name__, brief(error)) from error


def choices_of(target: Target) -> DiskCache | None:
    """The folder of choices; `None` where nothing is remembered."""
    folder = None if has_own_rules(target) else location(os.environ, KIND)
    return None if folder is None else _shared(folder)


@cache
def _shared(folder: Path) -> DiskCache:
    return DiskCache(folder, KIND, _VERSION, LIMIT_BYTES, _ENTRY_BYTES)


@cache
def _chooser() -> str:
    return sources_digest(*_SOURCES)
