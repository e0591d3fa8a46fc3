"""Moments as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str, option: str) -> datetime:
    """The moment of a date, in UTC where it does not name a zone, or so long ago.

    Raises `typer.BadParameter` for anything else.
    """
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is neither a date such as 2026-11-23 or 2026-11-23T08:00 (UTC), nor a "
            "duration such as 90m, 12h, 7d or 2w",
            param_hint=option,
        ) from None
