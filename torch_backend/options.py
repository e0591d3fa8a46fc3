"""The options of `torch.compile(module, backend="tilewright", options={...})`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ..base.errors import BuildError, similar

if TYPE_CHECKING:
    from ..building.lock_file import LockFileOrPath
    from ..tuning_db import TuningDatabase


@dataclass(frozen=True)
class Options:
    """How captured graphs are built.

    `database`: schedules are taken from there. `tune_seconds`: each graph is tuned so long when it
    is built, into the database. `locked`: schedules are those of this lock, of
    `torch_report().freeze()`. `threads` of the code, by default as many as PyTorch has.

    `tolerance` of inexact steps, as for `tw.build`: without one there are none.

    `breaks`: `record` those of Dynamo in the report, or `fail`. `unsupported`: what becomes of a
    graph with an operator that is not supported: `fail`, or `eager`, by PyTorch itself, which the
    report counts. `freeze`: where no gradient is needed, weights are constants, packed once. A call
    notices that they were written, but for single elements that are written by `Tensor.data` or as
    an array of numpy.
    """

    database: TuningDatabase | str | os.PathLike[str] | None = None
    tune_seconds: float | None = None
    locked: LockFileOrPath | None = None
    threads: int | None = None
    tolerance: float | None = None
    breaks: str = "record"
    unsupported: str = "fail"
    freeze: bool = False

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> Options:
        """The options of a call, with the lock itself.

        Raises `BuildError` for one that is unknown, or has no meaning, and `LockError` for a bad
        lock.
        """
        names = [field.name for field in fields(Options)]
        given = dict(given or {})
        for name, value in given.items():
            if name not in names:
                raise BuildError(
                    "unknown option {0!r} of the backend; there are {1}", name, ", ".join(names),
                    hint=similar(str(name), names), option=name,
                )  # fmt: skip
            expected = _expected(name, value)
            if expected is not None:
                raise BuildError(
                    "option {0}: expected {1}, found {2!r:.80}", name, expected, value, option=name
                )
        options = Options(**given)
        if options.tune_seconds is not None and options.database is None:
            raise BuildError(
                "option tune_seconds: without a database nothing keeps what is measured",
                hint='options={"tune_seconds": 60, "database": "tuning.db"}', option="tune_seconds",
            )  # fmt: skip
        if options.locked is None:
            return options
        if options.database is not None:
            raise BuildError(
                "options database and locked: a lock says which schedules are built",
                hint="leave out one of them", option="locked",
            )  # fmt: skip
        from ..building.lock_file import lock_of

        return replace(options, locked=lock_of(options.locked))


_CHOICES = {"breaks": ("record", "fail"), "unsupported": ("fail", "eager")}


def _expected(name: str, value: Any) -> str | None:
    """What a value that has no meaning should have been."""
    if name in _CHOICES:
        known = _CHOICES[name]
        return None if isinstance(value, str) and value in known else " or ".join(map(repr, known))
    if name == "freeze":
        return None if isinstance(value, bool) else "True or False"
    if value is None:
        return None
    if name == "threads":
        return None if type(value) is int and value > 0 else "a number from 1 on"
    if name == "tolerance":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if number and 0 < value <= 1 else "an error above 0 and at most 1"
    if name == "tune_seconds":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if number and 0 < value < float("inf") else "seconds above 0"
    if isinstance(value, str | os.PathLike):
        return None
    if name == "locked":
        from ..building.lock_file import LockFile

        return None if isinstance(value, LockFile) else "a path, or the lock of tw.freeze"
    from ..tuning_db import TuningDatabase  # takes a while to load

    return None if isinstance(value, TuningDatabase) else "a path, or a TuningDatabase"
