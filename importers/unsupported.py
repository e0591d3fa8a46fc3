"""What importers refuse, and why: all that a model has of it in one error."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ..base.errors import UnsupportedError


class Reason(Enum):
    """Why a node is not translated: the closed list."""

    OPERATOR = "the operator is not supported"
    DOMAIN = "the operator is of a domain that is not supported"
    VERSION = "this version of the operator is not supported"
    ATTRIBUTE = "an attribute has a value that is not supported"
    DTYPE = "a dtype is not supported"
    DATA_DEPENDENT = "data decide a shape or a branch"
    TYPE = "it is no dense tensor of numbers in the memory of the processor"


class Unsupported(Exception):
    """A node is not translated."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason.value, detail)
        self.reason = reason
        self.detail = detail


def unsupported_error(found: Sequence[tuple[str, str, Reason, str]]) -> UnsupportedError:
    """The error of nodes that are not translated: the name of each, its operator, and why."""
    lines = [f"  {op} {name!r}: {reason.value} ({detail})" for name, op, reason, detail in found]
    return UnsupportedError(
        "{0} nodes are not supported:\n{1}",
        len(found),
        "\n".join(dict.fromkeys(lines)),
        reasons=[(name, op, reason.name, detail) for name, op, reason, detail in found],
    )
