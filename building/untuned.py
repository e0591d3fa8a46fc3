"""Kernels without a record, where a build requires one: all of them, by their share of the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..base.errors import NotTunedError, TilewrightError
from ..base.text import count
from ..tir.equality import structural_hash
from ..tir.ir import Func
from ..tir.verify import verify
from .choose import best_record

if TYPE_CHECKING:
    from .build_program import Ways


@dataclass(frozen=True)
class Untuned:
    """A kernel without a record: how often calls of all programs run it, and its estimated share
    of their time, `None` where that is not known."""

    kernel: str
    program: str
    runs: int
    share: float | None

    def __str__(self) -> str:
        share = "?" if self.share is None else f"{self.share:.0%}"
        return f"{share:>4}  {self.kernel}{'' if self.runs == 1 else f' ({self.runs}x)'}"


@dataclass(frozen=True)
class _Kernel:
    """A kernel: whether it has a record, the seconds of that, and the least a call may take."""

    name: str
    program: str
    runs: int
    tuned: bool
    seconds: float | None
    least: float | None


def require_tuned(programs: Iterable[tuple[str, Mapping[Func, int]]], ways: Ways) -> None:
    """Raise `NotTunedError` with all kernels of programs that have no record.

    The time of these is estimated: the least that the machine takes, at the efficiency that the
    kernels with a measured time have together.
    """
    runs = Counter[str]()
    funcs = dict[str, Func]()
    for _, kernels in programs:
        for func, times in kernels.items():
            digest = structural_hash(func)
            runs[digest] += times
            funcs.setdefault(digest, func)
    known = {digest: _looked_up(func, digest, ways) for digest, func in funcs.items()}
    if all(tuned for tuned, _ in known.values()):
        return
    for func in funcs.values():
        verify(func)  # of a program that breaks a rule there is no time
    found = [
        _Kernel(func.name, digest, runs[digest], *known[digest], _least(func, ways))
        for digest, func in funcs.items()
    ]
    lacking = [
        Untuned(kernel.name, kernel.program, kernel.runs, share)
        for kernel, share in zip(found, _shares(found), strict=True)
        if not kernel.tuned
    ]
    lacking.sort(key=lambda one: (-(one.share or 0.0), one.kernel))
    total = sum(one.share or 0.0 for one in lacking)
    part = f", about {total:.0%} of the time" if total else ""
    raise NotTunedError(
        "{0} of {1} without a record on {2}{3}:\n{4}",
        len(lacking), count(len(found), "kernel"), str(ways.target), part,
        "\n".join(map(str, lacking)),
        hint="tune them into the database: tw.tune(..., database=...), tilewright tune"
        if ways.locked is None
        else "tune them, and freeze again",
        kernels=[one.kernel for one in lacking],
        missing=[asdict(one) for one in lacking],
        explanation=None,
    )  # fmt: skip


def _looked_up(func: Func, digest: str, ways: Ways) -> tuple[bool, float | None]:
    """Whether a kernel has a record that a build takes, and the seconds of it."""
    if ways.locked is not None:
        kernel = ways.locked.by_program[digest]
        return kernel.source == "record", None if kernel.time is None else kernel.time.seconds
    if ways.database is None:
        return False, None
    choice = best_record(func, ways.target, ways.database, ways.tolerance, {})
    return choice is not None, None if choice is None else choice.seconds


def _least(func: Func, ways: Ways) -> float | None:
    """The roofline of a kernel in seconds; `None` for a kind of target without one."""
    from ..autotune.measure.machine import with_rates
    from ..autotune.model.target_model import model_for

    try:
        return model_for(ways.target).roofline(func, with_rates(ways.target)).seconds
    except TilewrightError:
        return None


def _shares(kernels: Sequence[_Kernel]) -> list[float | None]:
    """The share of each in the time of all; `None` where one is not known."""
    both = [(k.least * k.runs, k.seconds * k.runs) for k in kernels if k.least and k.seconds]
    slower = sum(time for _, time in both) / sum(least for least, _ in both) if both else 1.0
    seconds = [k.seconds or (None if k.least is None else k.least * slower) for k in kernels]
    times = [None if s is None else s * k.runs for k, s in zip(kernels, seconds, strict=True)]
    total = sum(time or 0.0 for time in times)
    return [None if time is None or not total else time / total for time in times]
