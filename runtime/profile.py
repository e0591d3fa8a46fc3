"""Where the time of a model's call goes: kernel by kernel, and what is beside the kernels.

The model's own entry is run with the clock read before and after each step, so that each kernel is
timed where it runs: after the one before it, on the operands and caches that it finds there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from ..base.checked_json import read
from ..base.display import html
from ..base.durations import format_seconds
from ..base.errors import ModelError
from ..base.hints import Hinted
from ..base.text import aligned, count, cut, format_bytes, format_si
from .evidence import Evidence, KernelEvidence, Natural
from .module import Module
from .signature import Argument, Signature
from .timer import disturbed, time_calls, time_interleaved, wait_for_threads

VERSION: Final = 1
"""Of the JSON form."""
STAMP_BYTES = 16
_KERNELS = 20
"""Kernels of the text of a profile, the slowest ones."""
_OPERATORS = 40
"""Cells of the operators of a kernel in a text."""
_SECONDS = 1.0
"""About how long the runs of a profile take in all,"""
_ROUNDS = 3, 20
"""but so many rounds at least and at most."""
_DISTURBED = 1.5
"""So many times what its parts take, or the other way round, a call that was disturbed took."""


def stamps(steps: int) -> Argument:
    """The argument that has the time: two stamps in a row, then one before and after each step."""
    return Argument("stamps", "int64", (2 * steps + 2, 2), role="out")


def signatures(signature: Signature, steps: int) -> tuple[Signature, Signature]:
    """Those of the functions of `Instrumented`, beside that of a model of so many steps."""
    name, arguments = signature.name, (*signature.arguments, stamps(steps))
    timed = replace(signature, name=f"{name}.timed", arguments=arguments)
    return timed, replace(signature, name=f"{name}.empty")


class Instrumented(NamedTuple):
    """Two modules for a profile of a model.

    `timed` takes the model's arguments and its `stamps`. `empty` takes the model's arguments, and
    no step: its calls are what a call takes without the kernels.
    """

    timed: Module
    empty: Module


@dataclass(frozen=True)
class KernelTime:
    """The time of a kernel: of all `groups` that run it, in one call of the model.

    `operations` and `bytes` are of all of them too, and so are the `least_seconds` of the roofline.
    """

    name: str
    operators: str
    groups: Natural
    seconds: float
    share: float
    operations: Natural | None
    bytes: Natural
    least_seconds: float | None

    def __repr__(self) -> str:
        return f"<KernelTime {self.name}: {format_seconds(self.seconds)}>"

    @property
    def roofline(self) -> float | None:
        """The share of the roofline's rate that it reaches, which operands in caches may exceed."""
        if self.least_seconds is None or self.seconds <= 0:
            return None
        return self.least_seconds / self.seconds


@dataclass(frozen=True)
class Profile(Hinted):
    """Where the time of a call goes; all times are medians of `runs`, in seconds.

    `seconds` is that of a call from Python. `kernels` are those that take longest first, and
    `steps` is the time of each group in order. `copies` is the time of the copies at the end.
    `between` is what the entry takes from one step to the next, on average, and `python` what a
    call takes without its kernels. `disturbed`: half of the calls took twice as long as the
    shortest one, or the parts are much longer or shorter than the whole, so something else ran.
    """

    version: Literal[1]
    model: str
    target: str
    runs: Natural
    seconds: float
    kernels: tuple[KernelTime, ...]
    steps: tuple[float, ...]
    copies: float
    between: float
    python: float
    disturbed: bool

    _repr_html_ = html

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object: the fields by name."""
        return asdict(self)

    @staticmethod
    def from_json(data: object) -> Profile:
        """The profile of its JSON form. Raises `ModelError` for anything malformed."""
        return read(Profile, data, "profile", ModelError)

    def facts(self) -> dict[str, str]:
        """What is said of the whole, by name."""
        kernels = sum(self.steps)
        noise = ", while something else ran" if self.disturbed else ""
        copies = f", copies {format_seconds(self.copies)}" if self.copies else ""
        return {
            "model": f"{self.model} for {self.target}",
            "call": f"{format_seconds(self.seconds)}, {count(self.runs, 'run')}{noise}",
            "kernels": f"{format_seconds(kernels)} in {count(len(self.steps), 'group')}{copies}",
            "between": f"{format_seconds(self.between)} from one kernel to the next",
            "python": f"{format_seconds(self.python)} of a call without its kernels",
        }

    def table(self) -> tuple[Sequence[str], list[list[str]]]:
        """Columns and rows of the kernels; for the marks of columns see `Evidence.table`."""
        columns = (
            "~kernel", ">groups", ">time", ">share", ">roofline", ">operations", ">bytes"
        )  # fmt: skip
        return columns, [_row(kernel) for kernel in self.kernels]

    def text(self, kernels: int | None = _KERNELS) -> str:
        """The profile as text, with so many kernels, all for `None`."""
        columns, rows = self.table()
        shown = rows[:kernels]
        lines = [f"{name:<9} {value}" for name, value in self.facts().items()]
        if shown:
            brief = [[cut(row[0], _OPERATORS), *row[1:]] for row in shown]
            lines += ["", *aligned(columns, brief)]
        left = self.kernels[len(shown) :]
        if left:
            share = sum(kernel.share for kernel in left)
            lines.append(f"and {count(len(left), 'kernel')} more with {share:.1%} of the time")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Profile of {self.model}: {format_seconds(self.seconds)} a call>"


def _row(kernel: KernelTime) -> list[str]:
    roofline = kernel.roofline
    return [
        kernel.operators,
        str(kernel.groups),
        format_seconds(kernel.seconds),
        f"{kernel.share:.1%}",
        "" if roofline is None else f"{roofline:.0%}",
        "" if kernel.operations is None else format_si(kernel.operations),
        format_bytes(kernel.bytes),
    ]


def profiled(
    evidence: Evidence,
    modules: Instrumented,
    call: Any,
    empty: Any,
    arguments: Sequence[Any],
) -> Profile:
    """The profile of a model whose `call` has no parameters, and neither has that without steps.

    `arguments` are those of the model's module.
    """
    (argument,) = modules.timed.signature.arguments[len(arguments) :]
    taken = np.zeros(argument.shape, np.int64)
    rows: list[Any] = []
    run = modules.timed.bind(*arguments, taken)

    def stamped() -> None:
        run()
        rows.append(taken[:, 0] * 1_000_000_000 + taken[:, 1])

    rounds = _rounds(call, 3)
    _, whole, without = time_interleaved([stamped, call, empty], rounds=rounds)
    spans = np.median(np.diff(np.stack(rows), axis=1), axis=0) * 1e-9
    steps, others = spans[2::2], spans[1::2]
    # Two stamps in a row tell what one takes; where nothing but them is cold, it is least.
    clock = min([spans[0], *others])
    steps = np.maximum(steps - clock, 0.0).tolist()
    # Stamps are in nanoseconds: less than a thousandth of one is an error of the sums.
    between = max(round(float(np.mean(others) - clock), 12), 0.0) if len(others) else 0.0
    groups = [group.kernel for group in evidence.groups]
    parts = sum(steps) + without.median
    apart = max(whole.median, parts) > _DISTURBED * min(whole.median, parts)
    noisy = apart or disturbed(whole.samples) or disturbed(without.samples)
    return Profile(
        VERSION, evidence.model, evidence.target, len(rows), whole.median,
        _kernels(evidence.kernels, groups, steps), tuple(steps[: len(groups)]),
        sum(steps[len(groups) :]), between, without.median, noisy,
    )  # fmt: skip


class PartTime(NamedTuple):
    """A part of a partitioned model: who runs it, the bytes that it reads and writes, and where the
    time goes in it; `None` where no kernels of Tilewright run."""

    provider: str
    operators: str
    bytes: int
    profile: Profile | None


def partitioned_profile(
    model: str, target: str, parts: Sequence[PartTime], run: Callable[[], Sequence[float]]
) -> Profile:
    """The profile of a model whose `run` calls it once, and returns the seconds of each part.

    A part that others run is a kernel and a step, as nobody sees into it.
    """
    rows: list[Sequence[float]] = []
    (whole,) = time_interleaved([lambda: rows.append(run())], rounds=_rounds(run, 1))
    spent = np.median(rows, axis=0).tolist()
    own = [part.profile for part in parts if part.profile is not None]
    copies, steps = sum(profile.copies for profile in own), list[float]()
    found: dict[str, KernelTime] = {}
    for part, seconds in zip(parts, spent, strict=True):
        if part.profile is not None:
            steps += part.profile.steps
            kernels = part.profile.kernels
        else:
            steps.append(seconds)
            told = f"{part.operators} by {part.provider}"
            kernels = (KernelTime(told, told, 1, seconds, 0.0, None, part.bytes, None),)
        for kernel in kernels:
            known = found.get(kernel.name)
            found[kernel.name] = kernel if known is None else _together(known, kernel)
    total = sum(steps) + copies
    shares = (replace(k, share=k.seconds / (total or 1.0)) for k in found.values())
    between = sum(p.between for p in own) / len(own) if own else 0.0
    return Profile(
        VERSION, model, target, len(rows), whole.median,
        tuple(sorted(shares, key=lambda kernel: -kernel.seconds)), tuple(steps), copies, between,
        max(whole.median - total, 0.0),
        disturbed(whole.samples) or any(profile.disturbed for profile in own),
    )  # fmt: skip


def _together(one: KernelTime, other: KernelTime) -> KernelTime:
    """The time of a kernel that two parts run."""

    def added(a: Any, b: Any) -> Any:
        return None if a is None or b is None else a + b

    return replace(
        one,
        groups=one.groups + other.groups,
        seconds=one.seconds + other.seconds,
        operations=added(one.operations, other.operations),
        bytes=one.bytes + other.bytes,
        least_seconds=added(one.least_seconds, other.least_seconds),
    )


def _rounds(call: Callable[[], object], functions: int) -> int:
    """How often each of so many functions runs, of which a call of that one takes about as long."""
    wait_for_threads()
    once = time_calls(call, max_samples=1).median
    low, high = _ROUNDS
    return int(min(max(_SECONDS / (functions * once), low), high))


def _kernels(
    kernels: Sequence[KernelEvidence], groups: Sequence[str], steps: Sequence[float]
) -> tuple[KernelTime, ...]:
    spent = dict.fromkeys(groups, 0.0)
    for name, seconds in zip(groups, steps, strict=False):
        spent[name] += seconds
    total = sum(steps) or 1.0

    def timed(kernel: KernelEvidence) -> KernelTime:
        seconds, times, least = spent[kernel.name], kernel.groups, kernel.least_seconds
        return KernelTime(
            kernel.name, kernel.operators, times, seconds, seconds / total,
            None if kernel.operations is None else times * kernel.operations, times * kernel.bytes,
            None if least is None else times * least,
        )  # fmt: skip

    return tuple(sorted(map(timed, kernels), key=lambda kernel: -kernel.seconds))
