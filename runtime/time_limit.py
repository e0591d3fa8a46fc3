"""Limits of the time that providers take.

Foreign code cannot be stopped. So what has a limit runs in a thread of its own, in which it is left
if it takes longer; its provider is refused as long as it is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..base.errors import ProviderError

T = TypeVar("T")

_hanging: dict[str, tuple[threading.Thread, str]] = {}
"""Of providers by name: the thread that has not come back, and what it does."""


def within(
    seconds: float | None, provider: str, doing: str, call: Callable[[], T], **data: Any
) -> T:
    """What a call into a provider returns, which is `doing` that: `to compile exp`, for example.

    Raises what it raises, and `ProviderError` with this data where it takes longer than so many
    seconds, where it would end the process, and of a provider that hangs in an earlier one. `None`
    is no limit.
    """
    if (hanging := _hanging.get(provider)) is not None:
        _refuse(provider, *hanging, data)
    try:
        return call() if seconds is None else _limited(seconds, provider, doing, call, data)
    except (SystemExit, GeneratorExit) as error:
        raise ProviderError(
            "the provider {0}, asked {1}, raises {2!r}", provider, doing, error,
            provider=provider, **data,
        ) from error  # fmt: skip


def _limited(
    seconds: float, provider: str, doing: str, call: Callable[[], T], data: dict[str, Any]
) -> T:
    outcome: list[tuple[T | None, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:  # noqa: BLE001  # raised below
            outcome.append((None, error))

    thread = threading.Thread(target=run, name=f"provider {provider}", daemon=True)
    thread.start()
    thread.join(min(seconds, threading.TIMEOUT_MAX))
    if not outcome:
        _hanging[provider] = thread, doing
        raise ProviderError(
            "the provider {0} hangs: asked {1}, it has not answered in {2} s", provider, doing,
            seconds, hint="raise `timeout` of the provider if it only is slow",
            provider=provider, seconds=seconds, **data,
        )  # fmt: skip
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _refuse(provider: str, thread: threading.Thread, doing: str, data: dict[str, Any]) -> None:
    """Raise `ProviderError` if a provider hangs."""
    if thread.is_alive():
        raise ProviderError(
            "the provider {0} hangs: it was asked {1}, and still runs", provider, doing,
            hint="only the end of this process ends it, if it never ends by itself",
            provider=provider, **data,
        )  # fmt: skip
    _hanging.pop(provider, None)
