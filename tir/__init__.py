"""The intermediate representation: nodes, text form, builder, analyses and interpreter."""

from __future__ import annotations

from typing import Any

from ..base.hints import MissingNameError, instead


def __getattr__(name: str) -> Any:
    def hint() -> str | None:
        return "write tw.Schedule(func)" if name == "Schedule" else instead("tilewright", name)

    raise MissingNameError(f"module {__name__!r} has no attribute", name, hint)
