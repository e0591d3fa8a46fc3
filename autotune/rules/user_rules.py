"""Rules of the user's own: functions that make a sketch of a program, beside those of `rules`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator

from ...errors import ScheduleError, TuningError
from .draft import Draft, RuleChoice

SketchRule = Callable[[Draft], None]
SKETCH_RULES: dict[str, SketchRule] = {}
"""The rules that were registered, by name."""

_log = logging.getLogger(__name__)


def sketch_rule(function: SketchRule) -> SketchRule:
    """Register `function` as a rule: what it makes of a program is searched as well.

    It is called with a `Draft` of each program that is tuned, or built without a measurement:
    `draft.schedule` is symbolic, `draft.target` resolved. It schedules the program in place and
    samples what shall be open; `draft.limit` says which rows are not worth a measurement. Where a
    step is refused, or `tw.require` or it itself raises `ScheduleError`, it is not for that
    program. The sketch has the name of the function.

    A function that is defined again, as in a cell of a notebook that is run twice, takes the place
    of its former self. Raises `TuningError` where another one has its name, and for a function that
    does not take a draft alone.
    """
    if not inspect.isfunction(function):
        raise TuningError(
            "expected a function to register as a sketch rule, found {0!r}",
            function,
            hint="write @tw.sketch_rule above its definition",
        )
    name = function.__name__
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) != 1:
        raise TuningError(
            "sketch rule {0} takes ({1}); expected one parameter, a Draft",
            name,
            ", ".join(parameters),
            hint="draft.schedule is the schedule to work on, draft.target the target",
        )
    former = SKETCH_RULES.get(name, function)
    if (former.__module__, former.__qualname__) != (function.__module__, function.__qualname__):
        raise TuningError(
            "a sketch rule named {0} exists already, in module {1}",
            name,
            former.__module__,
            hint="choose another name",
        )
    SKETCH_RULES[name] = function
    return function


def drafts_by_user_rules(original: Draft) -> Iterator[tuple[RuleChoice, Draft]]:
    """What the registered rules make of a program; a rule that takes no step makes none.

    A choice is the rule's module and name, which no rule of this package has.

    Raises `TuningError` for a rule that fails otherwise than by a refusal.
    """
    for name, rule in SKETCH_RULES.items():
        draft = original.copy()
        try:
            rule(draft)
        except ScheduleError as error:
            reason = str(error).partition("\n")[0]
            _log.info("%s is not for %s: %s", name, original.func.name, reason)
            continue
        except Exception as error:
            raise TuningError(
                "sketch rule {0} fails for {1}: {2}: {3}",
                name,
                original.func.name,
                type(error).__name__,
                error,
                hint="a rule says by ScheduleError, as tw.require does, that it is not for a "
                "program",
            ) from error
        if len(draft.schedule.trace):
            yield RuleChoice(f"{rule.__module__}.{name}"), draft
