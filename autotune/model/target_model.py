"""The model of a kind of target before anything is measured: an estimate and a roofline.

Each kind has one `TargetModel`: `cpu/` has that of processors, `cuda/` that of GPUs.
`register_model` adds another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ...base.durations import format_seconds
from ...base.errors import TargetError, TuningError
from ...schedule.require import Space
from ...target import Target
from ...target.target import Registry
from ...tir.ir import Expr, Func, Label, Var
from ...tir.structure import key_of
from .memo import Memo
from .profile import Ints, Profile, Visit, profile

Features: TypeAlias = npt.NDArray[np.floating[Any]]
"""Rows of features: single floats as they are computed here, double ones out of a database."""

TABLE = "samples.jsonl.gz"
"""The name of the table that comes with a base model."""


class Estimate(NamedTuple):
    """Seconds (float64) and features of each row, the columns of `TargetModel.features`."""

    seconds: npt.NDArray[np.float64]
    features: Features


class ProgramEstimate(NamedTuple):
    """Seconds and features of a concrete program."""

    seconds: float
    features: tuple[float, ...]


class Estimator(Protocol):
    """The estimate of the rows (rows, variables) of a sketch, or the one empty row of a program."""

    def __call__(self, rows: Ints) -> Estimate: ...


@dataclass(frozen=True)
class Roofline:
    """Seconds that arithmetic and moving the arguments take at least."""

    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        return max(self.compute, self.memory)

    @property
    def bound(self) -> Literal["arithmetic", "memory"]:
        """What takes longer."""
        return "arithmetic" if self.compute >= self.memory else "memory"

    def __repr__(self) -> str:
        return f"<Roofline {self}>"

    def __str__(self) -> str:
        return f"{format_seconds(self.seconds)}, bound by {self.bound}"


class SampledFacts:
    """What tables of samples keep of a target beside its text: all else that estimates rest on.

    The text says everything of a target of a kind that takes this class as it is.
    """

    def of(self, target: Target) -> dict[str, Any]:
        """The facts of a resolved target, as a JSON object."""
        del target
        return {}

    def described(self, target: Target, facts: Mapping[str, Any]) -> Target:
        """The target of that text with its facts. Raises `TuningError` for what are none."""
        if facts:
            raise TuningError("unknown facts of {0}: {1}", target, ", ".join(facts))
        return target

    def machine(self, target: Target) -> str:
        """The name of the machine, the same for whatever targets it is taken for."""
        return target.perf_class


class Figure(NamedTuple):
    """A number of a candidate, in `unit`; `of` is what the machine has of it, `None` if that has
    no meaning."""

    name: str
    value: float
    unit: str
    of: float | None = None

    @property
    def exceeds(self) -> bool:
        """Whether it is more than there is."""
        return self.of is not None and self.value > self.of


Figures: TypeAlias = Callable[[Features, Target], tuple[Figure, ...]]
"""The figures of one row of features. Where several blocks run, they are of the slowest."""


def no_figures(features: Features, target: Target) -> tuple[Figure, ...]:
    """For kinds of targets whose features nobody explains."""
    del features, target
    return ()


class Limit(NamedTuple):
    """A condition on decisions that what is built has to meet, and its name in words."""

    name: str
    condition: bool | Expr


Limits: TypeAlias = Callable[[Profile, Target], Iterable[Limit]]
"""The limits of a profile's decisions on a resolved target."""


def no_limits(source: Profile, target: Target) -> tuple[Limit, ...]:
    """For kinds of targets of which no limit is known before a build."""
    del source, target
    return ()


def shares(names: tuple[str, ...], features: Features) -> dict[str, float]:
    """Features by name, which are logarithms, as the numbers that they are of, to five digits:
    features are single floats, and none of them is of zero."""
    numbers = np.exp2(np.asarray(features, np.float64))
    return {n: float(f"{x:.5g}") for n, x in zip(names, numbers.tolist(), strict=True)}


@dataclass(frozen=True)
class TargetModel:
    """The start of predictions for a kind of target.

    `features` are the names of the columns that cost models learn from, of which the first is log2
    of the estimated seconds. `version` changes whenever their meaning or the estimate does.
    `estimator` makes the estimate of a profile's rows on a resolved target, and `roofline` that of
    a concrete program. `base` is the file of the base model that comes with them, `None` where
    there is none. `facts` are those that samples of the kind keep. `figures` are what a row of
    features says in units of the machine, and `limits` what can be built for the kind.
    """

    features: tuple[str, ...]
    version: str
    estimator: Callable[[Profile, Target], Estimator]
    roofline: Callable[[Func, Target], Roofline]
    base: Path | None = None
    facts: SampledFacts = field(default_factory=SampledFacts)
    figures: Figures = no_figures
    limits: Limits = no_limits

    def estimate(self, func: Func, target: Target, memo: Memo | None = None) -> ProgramEstimate:
        """The estimate of a concrete program on a resolved target.

        A `memo` is for programs that have blocks in common. No bit of an estimate depends on it.
        """
        row = self.estimator(profile(func, memo=memo), target)(np.empty((1, 0), np.int64))
        return ProgramEstimate(float(row.seconds[0]), tuple(row.features[0].tolist()))

    def by_nest(
        self, func: Func, target: Target, memo: Memo | None = None
    ) -> dict[Var | Label, float]:
        """The part of the estimate of each nest of a concrete program, in program order.

        Nests are by their outermost loop, or by their block if it has none. What a call takes
        beside them, which the estimate of each alone contains, is in none of several.
        """
        source = profile(func, memo=memo)

        def seconds(visits: tuple[Visit, ...]) -> float:
            estimator = self.estimator(replace(source, visits=visits), target)
            return float(estimator(np.empty((1, 0), np.int64)).seconds[0])

        alone = {top: seconds(visits) for top, visits in source.nests.items()}
        if len(alone) < 2:
            return alone
        call = (sum(alone.values()) - seconds(source.visits)) / (len(alone) - 1)
        return {top: max(part - call, 0.0) for top, part in alone.items()}

    @property
    def feature_version(self) -> str:
        """Of the features: a model is used only with those it was trained on."""
        return f"{self.version}/{len(self.features)}"

    @property
    def table(self) -> Path | None:
        """The table of samples that the base model is trained on, which lies beside it."""
        return None if self.base is None else self.base.with_name(TABLE)


def _cpu() -> TargetModel:
    from .cpu.model import MODEL

    return MODEL


def _cuda() -> TargetModel:
    from .cuda.model import MODEL

    return MODEL


_MODELS = Registry("cost model", "register_model", {"cpu": _cpu, "cuda": _cuda})


def register_model(kind: str, load: Callable[[], TargetModel]) -> None:
    """Predict for targets of a kind by what `load` returns when it is first asked for.

    Raises `TargetError` where the kind has a cost model already.
    """
    _MODELS.register(kind, load)


def model_for(target: Target) -> TargetModel:
    """The model of its kind of target. Raises `TargetError` where there is none."""
    return _MODELS.of(target)


def model_of(kind: str) -> TargetModel:
    """The model of a kind of target. Raises `TargetError` where there is none."""
    return _MODELS.of_kind(kind)


# What a kind of target can build: limits on the decisions of a scheduled program.
#
# Rules for a target put tighter limits on their own sketches. These are for schedules of any
# origin: of users' rules, and those that people write. They name decisions that every build
# refuses. How long a compiler takes is not predicted: a build that exceeds its time limit is a
# failed trial, from which the session learns.


def target_limits(
    func: Func, target: Target, space: Space, memo: Memo | None = None
) -> list[Limit]:
    """The limits that not all decisions in a space satisfy, each once; `False` where none does.

    There are none for a kind of target without a model. A `memo` is for programs that have blocks
    in common.
    """
    try:
        model = model_for(target)
    except TargetError:
        return []
    limits: dict[object, Limit] = {}
    for name, condition in model.limits(profile(func, space.bounds, memo), target):
        holds = space.decide(condition) if isinstance(condition, Expr) else condition
        if holds is None:
            limits[name, key_of(condition)] = Limit(name, condition)
        elif not holds:
            limits[name, None] = Limit(name, False)
    return list(limits.values())
