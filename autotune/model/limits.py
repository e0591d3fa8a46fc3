"""What a kind of target can build: limits on the decisions of a scheduled program.

Rules for a target put tighter limits on their own sketches. These are for schedules of any origin:
of users' rules, and those that people write. They name decisions that every build refuses. How
long a compiler takes is not predicted: a build that exceeds its time limit is a failed trial, from
which the session learns.
"""

from __future__ import annotations

from ...base.errors import TargetError
from ...schedule.require import Space
from ...target import Target
from ...tir.ir import Expr, Func
from ...tir.structure import key_of
from .memo import Memo
from .profile import profile
from .target_model import Limit, model_for


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
