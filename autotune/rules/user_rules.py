"""Sketch rules that users register, beside those of the target."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

from ...base.errors import IRError, ScheduleError, TuningError, checked_call
from ...tir.evaluate import Columns
from .draft import Draft, RuleChoice, Step, require_limit
from .rule import Group, GroupKind, SketchRule, Variant, Variants

F = TypeVar("F", bound=Callable[..., Any])
SKETCH_RULES: dict[str, SketchRule] = {}
"""The rules that were registered, by the names of their functions."""

_REFUSALS: ContextVar[dict[str, str] | None] = ContextVar("refusals", default=None)

_log = logging.getLogger(__name__)


@overload
def sketch_rule(function: Step) -> Step: ...


@overload
def sketch_rule(function: GroupKind) -> Callable[[Variants], Variants]: ...


@checked_call(TuningError, "write @tw.sketch_rule or @tw.sketch_rule(tw.GroupKind.ROWS)")
def sketch_rule(function: Any) -> Any:
    """Register a rule, whose sketches are searched along with those of the rules for the target.

    `@sketch_rule` registers a function of a `Draft`, a rule for whole programs: it schedules
    `draft.schedule` in place, which is symbolic, and samples the numbers that are to be searched.

    `@sketch_rule(kind)` registers a function of a `Draft` and a `Group`, a rule for groups of that
    `GroupKind`. It looks at the blocks and yields a `Variant` for each way to schedule them; the
    steps of a variant are functions of a draft. Other groups of the program are scheduled by the
    rules for the target, and its cheap blocks are inlined before.

    `draft.target` is resolved; `draft.limit` says which rows are not worth a measurement. Rows
    that exceed a limit of the target, with too many threads in a block say, are left out anyway.
    A `ScheduleError`, of a step or of `tw.require`, says that the rule does not apply; the reason
    is logged. The rule's name in records is that of its module and function.

    A function that is defined again, as in a cell of a notebook that is run twice, replaces the
    former one. Raises `TuningError` where another rule has its name, and for other parameters.
    While sketches are made, any other exception of the rule becomes a `TuningError` that names it.
    """
    if isinstance(function, GroupKind):
        return lambda rule: _register(rule, function, ["a Draft", "a Group"])
    return _register(function, GroupKind.PROGRAM, ["a Draft"])


def _register(function: F, kind: GroupKind, expected: list[str]) -> F:
    if not inspect.isfunction(function):
        raise TuningError(
            "expected a function to register as a sketch rule, found {0!r}",
            function,
            hint="write @tw.sketch_rule or @tw.sketch_rule(tw.GroupKind.ROWS) above a definition",
        )
    name = function.__name__
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TuningError(
            "sketch rule {0} is asynchronous; expected a plain function, as nothing awaits it", name
        )
    if kind is GroupKind.PROGRAM and len(expected) == 1 and inspect.isgeneratorfunction(function):
        raise TuningError(
            "sketch rule {0} is a generator; expected a function that schedules its draft",
            name,
            hint="a rule that yields variants is registered by @tw.sketch_rule(kind)",
        )
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) != len(expected):
        raise TuningError(
            "sketch rule {0} takes ({1}); expected {2}",
            name,
            ", ".join(parameters),
            " and ".join(expected),
            hint="draft.schedule is the schedule to work on, draft.target the target; "
            "a rule of a draft and a group is registered by @tw.sketch_rule(kind)",
        )
    identity = f"{function.__module__}.{name}"
    former = SKETCH_RULES.get(name)
    if former is not None and former.name != identity:
        raise TuningError(
            "a sketch rule named {0} exists already, in module {1}",
            name,
            former.name.rpartition(".")[0],
            hint="choose another name",
        )
    of_program = kind is GroupKind.PROGRAM and len(expected) == 1
    variants: Variants = _OfProgram(function) if of_program else _OfGroups(function)
    SKETCH_RULES[name] = SketchRule(identity, kind, variants)
    return function


@dataclass(frozen=True)
class _OfProgram:
    """The only variant of a rule that is one step."""

    function: Step

    def __call__(self, draft: Draft, group: Group) -> Iterator[Variant]:
        del draft, group
        name = self.function.__name__
        yield Variant.of(name, _UserStep(name, self.function))


@dataclass(frozen=True)
class _OfGroups:
    """The variants that a user's function yields, whose steps are checked as it is."""

    function: Variants

    def __call__(self, draft: Draft, group: Group) -> Iterator[Variant]:
        name = self.function.__name__
        known = set[Any]()
        try:
            with _errors_named(name, draft):
                result: Any = self.function(draft.copy(), group)
                variants: list[Any] | None = None if result is None else list(result)
        except ScheduleError:
            return
        if variants is None:
            raise TuningError(
                "sketch rule {0} returns None; expected an iterator of variants",
                name,
                hint="yield tw.Variant.of(name, step, option=value)",
            )
        for variant in variants:
            _require_variant(name, variant)
            if variant.options in known:
                raise TuningError(
                    "sketch rule {0} yields two variants with the same options: {1}",
                    name,
                    dict(variant.options),
                    hint="options tell variants apart: tw.Variant.of(name, step, option=value)",
                )
            known.add(variant.options)
            steps = tuple(_UserStep(name, step) for step in variant.steps)
            yield replace(variant, steps=steps)


def _require_variant(rule: str, variant: Any) -> None:
    """Raise `TuningError`, which names the rule, unless a variant has the types that it declares.

    A subclass may have attributes of its own, which run code: it is none.
    """
    is_plain = type(variant) is Variant
    if not is_plain:
        problem, value = "{1!r}; expected variants with a step at least", variant
    elif not (isinstance(variant.name, str) and variant.name):
        problem, value = "a variant named {1!r}; expected a text", variant.name
    elif not (type(variant.steps) is tuple and variant.steps and all(map(callable, variant.steps))):
        problem = "a variant with the steps {1!r}; expected a tuple of functions, one at least"
        value = variant.steps
    elif not (type(variant.options) is tuple and all(map(_is_option, variant.options))):
        problem = (
            "a variant with the options {1!r}; expected pairs of a name and a value: a boolean, an "
            "integer, a text, or a tuple of these"
        )
        value = variant.options
    else:
        return
    raise TuningError(
        f"sketch rule {{0}} yields {problem}",
        rule,
        value,
        hint="yield tw.Variant.of(name, step, option=value)",
    )


def _is_option(pair: Any) -> bool:
    return type(pair) is tuple and len(pair) == 2 and type(pair[0]) is str and _is_value(pair[1])


def _is_value(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_value, value))
    return type(value) in (bool, int, str)


@dataclass(frozen=True)
class _UserStep:
    """A step of a user's rule."""

    rule: str
    function: Step

    def __call__(self, draft: Draft) -> None:
        before = len(draft.schedule.trace)
        with _errors_named(self.rule, draft):
            self.function(draft)
            if len(draft.schedule.trace) == before:
                raise ScheduleError("it takes no step")
            _check_limits(draft)


def _check_limits(draft: Draft) -> None:
    """Raise `TuningError` for a limit that rows of the draft's decisions do not decide."""
    space = draft.schedule.space
    assert space is not None, "drafts are symbolic"
    for limit in draft.prune:
        if not (type(limit) is tuple and len(limit) == 2):
            raise TuningError(
                "draft.prune has {0!r:.80}; expected pairs of a name and a condition",
                limit,
                hint='draft.limit("at most eight lanes", lanes <= 8) adds one',
            )
        name, condition = limit
        require_limit(name, condition)
        try:
            Columns([condition], space.bounds)
        except IRError as error:
            raise TuningError(
                "limit {0!r:.80}: {1}",
                name,
                error,
                hint="a limit compares integers that the draft's schedule has sampled",
            ) from error


@dataclass(frozen=True)
class LimitToTarget:
    """A step that excludes candidates whose programs exceed a limit of the target.

    Raises `ScheduleError` if all of them do. The users' rules among `choices` note the reason.
    """

    choices: tuple[RuleChoice, ...]

    def __call__(self, draft: Draft) -> None:
        from ..model.target_model import target_limits  # which looks at programs as rules do

        by_users = {rule.name: name for name, rule in SKETCH_RULES.items()}
        space = draft.schedule.space
        assert space is not None, "drafts are symbolic"
        with ExitStack() as stack:
            for choice in self.choices:
                if choice.rule in by_users:
                    stack.enter_context(_errors_named(by_users[choice.rule], draft))
            for name, condition in target_limits(draft.func, draft.target, space):
                draft.limit(name, condition)


@contextmanager
def noted_refusals() -> Iterator[dict[str, str]]:
    """The first reason why each rule (by its name) was refused inside the `with` statement."""
    refusals: dict[str, str] = {}
    token = _REFUSALS.set(refusals)
    try:
        yield refusals
    finally:
        _REFUSALS.reset(token)


@contextmanager
def _errors_named(rule: str, draft: Draft) -> Iterator[None]:
    """Log and note refusals of a rule. Raises `TuningError` for an exception that is none."""
    func = draft.func.name
    try:
        yield
    except ScheduleError as error:
        reason = error.first_line
        _log.info("%s is not for %s: %s", rule, func, reason)
        if (refusals := _REFUSALS.get()) is not None:
            refusals.setdefault(rule, reason)
        raise
    except Exception as error:
        raise TuningError(
            "sketch rule {0} fails for {1}: {2}: {3}",
            rule,
            func,
            type(error).__name__,
            error,
            hint="a rule says by ScheduleError, as tw.require does, that it does not apply to a "
            "program",
        ) from error
