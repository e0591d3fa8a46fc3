"""Lock files that are damaged or edited, some by somebody who writes the digests anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tilewright import build, freeze
from tilewright.base.checked_json import sealed
from tilewright.building.lock_file import before_of
from tilewright.tuning_db import ScheduleRecord

from .attempt import Attack, Attempt, refusal
from .damage import damaged, edited
from .subjects import TARGET, check_module, subjects

NAMES = ("affine", "matmul", "gather")


def prepare(folder: Path) -> Attack:
    del folder
    programs = [subjects()[name].func for name in NAMES]
    lock = freeze(programs, TARGET, allow=["default"], jobs=1)

    def attack(attempt: Attempt) -> str:
        path, data = attempt.folder / "tilewright.lock", lock.to_json()
        how = attempt.pick(3)
        if how == 0:
            path.write_bytes(damaged(str(lock).encode(), attempt))
        else:
            data = edited(data, attempt) if how == 1 else _forged(data, attempt)
            path.write_text(json.dumps(data), "utf-8", "surrogatepass")
        subject = subjects()[attempt.choice(NAMES)]
        refused = refusal(
            lambda: check_module(build(subject.func, TARGET, locked=path), subject, attempt.rng)
        )
        return "right" if refused is None else "refused"

    return attack


def _forged(data: dict[str, Any], attempt: Attempt) -> dict[str, Any]:
    """The lock with other steps of a kernel, and all digests right."""
    kernel = attempt.choice(data["kernels"])
    other = attempt.choice(data["kernels"])["steps"]
    kernel["steps"] = edited(other if attempt.chance(0.3) else kernel["steps"], attempt)
    trace = {"version": 1, "steps": kernel["steps"]}
    kernel["schedule"] = ScheduleRecord.of(trace, 1, "", "").id
    before = before_of(data["target"], data["compiler"])
    return {**data, "kernels": [sealed(each, before) for each in data["kernels"]]}
